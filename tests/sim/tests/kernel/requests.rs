//! Requests beyond the usual bring-up: kernel-mode submission, ENABLE and DISABLE, the copy runlist, sparse ranges,
//! clocks, metadata.

use core::sync::atomic::Ordering;
use core::time::Duration;

use crate::support::*;
use kernel_door::{DoorFd, DoorMapping, Errno, Events, OpenFlags};
use nvgpu_sys::address_space::{self as space, AllocSpaceFlags, MapBufferFlags, RemapFlags, RemapOp};
use nvgpu_sys::channel::{self, Fence, Gpfifo, SetupBind, SubmitFlags, SubmitGpfifo};
use nvgpu_sys::{ctrl, paths, sync_file, tsg};
use orin_sim::LiveCounts;

/// Words of a host semaphore release: SEM_ADDR_LO, _HI, PAYLOAD_LO, _HI, EXECUTE.
fn release(va: u64, payload: u32) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, payload, 0, 1]
}

fn write(memory: &DoorMapping, offset: usize, words: &[u32]) {
    for (at, value) in words.iter().enumerate() {
        word(memory, offset + 4 * at).store(*value, Ordering::Relaxed);
    }
}

fn entry(va: u64, words: u32) -> Gpfifo {
    Gpfifo { entry0: va as u32, entry1: (va >> 32) as u32 | words << 10 }
}

/// Submits entries with input and output fences.
fn submit_kernel(
    channel: &DoorFd,
    entries: &[Gpfifo],
    flags: SubmitFlags,
    fence: Fence,
) -> Result<Fence, Errno> {
    let mut args = SubmitGpfifo {
        gpfifo: entries.as_ptr().expose_provenance() as u64,
        num_entries: entries.len() as u32,
        flags: flags.bits(),
        fence,
    };
    // SAFETY: the address is that of the entries, which are only read.
    unsafe { channel::SUBMIT_GPFIFO.send_pointing(channel, &mut args) }?;
    Ok(args.fence)
}

#[test]
fn the_kernel_submits_with_fences() {
    let bench = Bench::new();
    let space = bench.try_alloc_as(LOGGED_START, 0xff_0000_0000).unwrap();
    let (tsg, first, second) = (bench.tsg(), bench.channel(), bench.channel());
    for channel in [&first, &second] {
        bind_space(&space, channel).unwrap();
        bind_tsg(&tsg, channel, 0).unwrap();
        let mut args = SetupBind { num_gpfifo_entries: 8, ..SetupBind::default() };
        channel::SETUP_BIND.send(channel, &mut args).unwrap();
        object(channel, 0xc7c0).unwrap();
    }
    let buffer = bench.buffer(8192);
    let (memory, va) = (cpu(&buffer, 8192), map(&space, &buffer).unwrap());
    write(&memory, 0, &release(va + 0x1000, 5));
    write(&memory, 64, &release(va + 0x1010, 6));
    let value = |offset| word(&memory, offset).load(Ordering::Acquire);

    // The second waits for a value beyond the first one's submitted work.
    let get = SubmitFlags::FENCE_GET;
    let file = submit_kernel(&first, &[], get | SubmitFlags::SYNC_FENCE, Fence::default()).unwrap();
    let file = adopt(&bench.door, file.id.cast_signed());
    let poll = |timeout| file.poll(Events::IN, timeout).unwrap();
    assert_eq!(poll(Duration::from_secs(20)), Events::IN);
    assert_eq!(sync_file::status(&file), Ok(Some(Ok(()))));
    let wait = Fence { id: 1, value: 2 };
    submit_kernel(&second, &[entry(va + 64, 6)], SubmitFlags::FENCE_WAIT, wait).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(value(0x1010), 0, "its fence has not been reached");
    let fence = submit_kernel(&first, &[entry(va, 6)], get, Fence::default()).unwrap();
    assert_eq!((fence.id, fence.value), (1, 2));
    wait_until("the second channel", || value(0x1010) == 6);
    assert_eq!(value(0x1000), 5);
    // The ring wraps many times.
    for round in 0..40 {
        write(&memory, 0, &release(va + 0x1000, 100 + round));
        wait_until("room", || {
            let result = submit_kernel(&first, &[entry(va, 6)], SubmitFlags::empty(), Fence::default());
            assert!(matches!(result, Ok(_) | Err(Errno::AGAIN)), "{result:?}");
            result.is_ok()
        });
        wait_until("the round", || value(0x1000) == 100 + round);
    }
    let foreign = Fence { id: raw(&bench.ctrl), value: 0 };
    let flags = SubmitFlags::FENCE_WAIT | SubmitFlags::SYNC_FENCE;
    assert_eq!(submit_kernel(&first, &[], flags, foreign).err(), Some(Errno::INVAL));
    let unknown = Fence { id: 1024, value: 0 };
    assert_eq!(submit_kernel(&first, &[], SubmitFlags::FENCE_WAIT, unknown).err(), Some(Errno::INVAL));
    channel::FORCE_RESET.send(&first, 0).unwrap();
    assert_eq!(submit_kernel(&first, &[], get, Fence::default()).err(), Some(Errno::TIMEDOUT));
    drop((space, tsg, first, second, buffer, memory, file));
    assert_eq!(bench.orin.live(), LiveCounts { descriptors: 2, ..LiveCounts::default() });
}

#[test]
fn a_disabled_channel_stays_idle_until_it_is_enabled() {
    let bench = Bench::new();
    let chain = bench.chain();
    let (ring, userd, doorbell) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096), bench.doorbell());
    let buffer = bench.buffer(4096);
    let (memory, va) = (cpu(&buffer, 4096), map(&chain.space, &buffer).unwrap());
    let value = || word(&memory, 0x800).load(Ordering::Acquire);
    for round in 1..=2 {
        let of_channel = round == 1;
        if of_channel {
            channel::DISABLE.send(&chain.channel, 0).unwrap();
        } else {
            tsg::DISABLE.send(&chain.tsg, 0).unwrap();
        }
        write(&memory, 0, &release(va + 0x800, round));
        submit(&ring, &userd, &doorbell, chain.token, va, 6);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(value(), round - 1);
        if of_channel {
            channel::ENABLE.send(&chain.channel, 0).unwrap();
        } else {
            tsg::ENABLE.send(&chain.tsg, 0).unwrap();
        }
        wait_until("the work", || value() == round);
    }
}

#[test]
fn the_copy_engine_has_its_own_runlist() {
    let bench = Bench::new();
    let (space, tsg, channel) = (bench.space(), bench.tsg(), bench.try_channel(1).unwrap());
    bind_space(&space, &channel).unwrap();
    bind_tsg(&tsg, &channel, 0).unwrap();
    wdt(&channel, channel::WDT_DISABLE).unwrap();
    let (ring, userd) = (bench.buffer(8192), bench.buffer(4096));
    let token = setup(&channel, &ring, &userd, 1024).unwrap();
    assert_eq!(token, 511 | 1 << 16);
    let buffer = bench.buffer(4096);
    let (memory, va) = (cpu(&buffer, 4096), map(&space, &buffer).unwrap());
    // SET_OBJECT of the copy engine on its subchannel, then the semaphore.
    let words = [&[0x2001_8000, 0xc7b5][..], &release(va + 0x800, 3)].concat();
    write(&memory, 0, &words);
    let (ring, userd, doorbell) = (cpu(&ring, 8192), cpu(&userd, 4096), bench.doorbell());
    submit(&ring, &userd, &doorbell, token, va, 8);
    wait_until("the semaphore", || word(&memory, 0x800).load(Ordering::Acquire) == 3);
}

#[test]
fn sparse_pages_are_mapped_and_unmapped() {
    let bench = Bench::new();
    let chain = bench.chain();
    let (ring, userd, doorbell) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096), bench.doorbell());
    let code = bench.buffer(4096);
    let (words, va) = (cpu(&code, 4096), map(&chain.space, &code).unwrap());
    let area = reserve(&chain.space, 16, AllocSpaceFlags::SPARSE.bits(), 0).unwrap();
    let buffer = bench.buffer(8192);
    let memory = cpu(&buffer, 8192);
    let remap = |ops: &[RemapOp]| {
        let mut ops = ops.to_vec();
        let mut args = space::Remap { num_ops: ops.len() as u32, ..Default::default() };
        args.ops = ops.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the address is that of the operations, which are read and stored again.
        let result = unsafe { space::REMAP.send_pointing(&chain.space, &mut args) };
        (result, args.num_ops)
    };
    let op = |page: u64, pages: u64, mem_handle: u32| RemapOp {
        flags: RemapFlags::PAGESIZE_4K.bits(),
        compr_kind: space::KIND_INVALID,
        incompr_kind: if mem_handle == 0 { space::KIND_INVALID } else { 0 },
        mem_handle,
        virt_offset_in_pages: area / 4096 + page,
        num_pages: pages,
        ..RemapOp::default()
    };
    let store = |target: u64, value: u32| {
        write(&words, 0, &release(target, value));
        // A later release in the same segment shows that it is done.
        write(&words, 24, &release(va + 0x800, value));
        submit(&ring, &userd, &doorbell, chain.token, va, 12);
        wait_until("the marker", || word(&words, 0x800).load(Ordering::Acquire) == value);
    };
    store(area + 0x2000, 1);
    assert_eq!(remap(&[op(2, 2, raw(&buffer))]), (Ok(0), 1));
    store(area + 0x2000, 2);
    store(area + 0x3004, 3);
    store(area + 0x4000, 4);
    let value = |offset| word(&memory, offset).load(Ordering::Acquire);
    assert_eq!((value(0), value(0x1004)), (2, 3));
    // All or nothing: the second operation leaves the area.
    assert_eq!(remap(&[op(2, 1, 0), op(15, 2, 0)]), (Err(Errno::INVAL), 0));
    store(area + 0x2000, 5);
    assert_eq!(value(0), 5);
    assert_eq!(remap(&[op(2, 1, 0)]), (Ok(0), 1));
    store(area + 0x2000, 6);
    assert_eq!(value(0), 5, "the page is sparse again");
    store(area + 0x3000, 7);
    assert_eq!(value(0x1000), 7);
    // A mapping at a chosen address replaces the existing one.
    let mut fixed =
        space::MapBufferEx { flags: MapBufferFlags::FIXED_OFFSET.bits(), offset: area, ..map_args(&buffer) };
    space::MAP_BUFFER_EX.send(&chain.space, &mut fixed).unwrap();
    store(area, 8);
    assert_eq!(value(0), 8);
    let live = bench.orin.live().buffers;
    drop((buffer, memory));
    assert_eq!(bench.orin.live().buffers, live, "the pages keep it");
    space::FREE_SPACE
        .send(&chain.space, &mut space::FreeSpace { offset: area, ..Default::default() })
        .unwrap();
    assert_eq!(bench.orin.live().buffers, live - 1);
    let errors: Vec<String> =
        bench.orin.kernel_log().into_iter().filter(|line| line.contains("[ERR]")).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].ends_with("validate_unmap failed: -22"), "{errors:?}");
}

#[test]
fn a_clock_request_lasts_as_long_as_its_node() {
    let bench = Bench::new();
    let file = || {
        let fd = DoorFd::open(&bench.door, paths::DEVFREQ_CUR_FREQ, OpenFlags::CLOSE_ON_EXEC).unwrap();
        let mut text = [0; 32];
        let len = fd.read(&mut text).unwrap();
        std::str::from_utf8(&text[..len]).unwrap().trim().parse::<u64>().unwrap()
    };
    let domain = ctrl::CLK_DOMAIN_GPCCLK;
    let range = ctrl::clk_get_range(&bench.ctrl, domain).unwrap();
    let mut points = [ctrl::ClkVfPoint::default(); 32];
    let count = ctrl::clk_get_vf_points(&bench.ctrl, domain, &mut points).unwrap();
    let points: Vec<u64> = points[..count].iter().map(|point| point.freq_hz).collect();
    assert!(points.is_sorted() && points[0] == range.min_hz && points[count - 1] == range.max_hz);
    assert_eq!(ctrl::clk_get_vf_points(&bench.ctrl, domain, &mut []), Ok(count));
    assert!(ctrl::clk_get_range(&bench.ctrl, ctrl::CLK_DOMAIN_MCLK).is_err());

    let other = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
    let idle = file();
    let done = ctrl::clk_set_info(&other, domain, 1_000_000_000).unwrap();
    assert_eq!(done.poll(Events::IN, Duration::ZERO), Ok(Events::IN));
    let actual = ctrl::clk_get_info(&bench.ctrl, domain, ctrl::CLK_TYPE_ACTUAL).unwrap().freq_hz;
    assert!(actual >= 1_000_000_000 && points.contains(&actual), "{actual}");
    assert_eq!(file(), actual);
    assert!(ctrl::clk_get_info(&bench.ctrl, domain, 9).is_err());
    drop(other);
    assert_eq!(file(), idle);
}

#[test]
fn metadata_stays_with_the_buffer() {
    let bench = Bench::new();
    let buffer = bench.buffer(4096);
    let register = |bytes: &[u8], flags: ctrl::RegisterBufferFlags| {
        let mut args = ctrl::RegisterBuffer {
            dmabuf_fd: buffer.raw(),
            metadata_addr: bytes.as_ptr().expose_provenance() as u64,
            metadata_size: bytes.len() as u32,
            flags: flags.bits(),
            ..Default::default()
        };
        // SAFETY: the address is that of the bytes, which are only read.
        unsafe { ctrl::REGISTER_BUFFER.send_pointing(&bench.ctrl, &mut args) }
    };
    register(b"first", ctrl::RegisterBufferFlags::MUTABLE).unwrap();
    register(b"second one", ctrl::RegisterBufferFlags::MODIFY).unwrap();
    let mut bytes = [0_u8; 6];
    let mut args = ctrl::BufferInfoIn {
        dmabuf_fd: buffer.raw(),
        metadata_size: 6,
        metadata_addr: bytes.as_mut_ptr().expose_provenance() as u64,
        size: 0,
    };
    // SAFETY: the address is that of 6 live bytes.
    unsafe { ctrl::GET_BUFFER_INFO.send_pointing(&bench.ctrl, &mut args) }.unwrap();
    assert_eq!(&bytes, b"second");
    let out: ctrl::BufferInfoOut = as_output(args);
    assert_eq!((out.size, out.metadata_size), (4096, 10));
    assert_eq!(out.flags, ctrl::BufferInfoFlags::METADATA_REGISTERED.bits());
}

/// The same bytes as output.
fn as_output(args: ctrl::BufferInfoIn) -> ctrl::BufferInfoOut {
    ctrl::BufferInfoOut {
        flags: u64::from(args.dmabuf_fd.cast_unsigned()) | u64::from(args.metadata_size) << 32,
        metadata_size: args.metadata_addr as u32,
        reserved: (args.metadata_addr >> 32) as u32,
        size: args.size,
    }
}

#[test]
fn rare_requests_follow_their_rules() {
    let bench = Bench::new();
    let (space, tsg, channel) = bench.bound();
    // OPEN of a channel reads no runlist: it is always runlist 0.
    let mut open = channel::Open { channel_fd: 77 };
    channel::OPEN.send(&channel, &mut open).unwrap();
    let second = adopt(&bench.door, open.channel_fd);
    bind_space(&space, &second).unwrap();
    assert_eq!(bind_tsg(&tsg, &second, 0), Ok(0));
    // The older layout of ALLOC_SPACE.
    let mut old = space::AllocSpace32 { pages: 4, page_size: 4096, ..Default::default() };
    space::ALLOC_SPACE_32.send(&space, &mut old).unwrap();
    assert!((LOGGED_START..LOGGED_END).contains(&old.offset));
    assert_eq!(
        space::ALLOC_SPACE_32.send(&space, &mut space::AllocSpace32 { page_size: 65_536, ..old }),
        Err(Errno::INVAL)
    );
    // The L2 policy is part of the engine context.
    let mut ways = tsg::L2MaxWaysEvictLast::default();
    assert_eq!(tsg::GET_L2_MAX_WAYS_EVICT_LAST.send(&tsg, &mut ways), Err(Errno::INVAL));
    object(&channel, 0xc7c0).unwrap();
    tsg::SET_L2_MAX_WAYS_EVICT_LAST
        .send(&tsg, &mut tsg::L2MaxWaysEvictLast { max_ways: 5, reserved: 0 })
        .unwrap();
    tsg::GET_L2_MAX_WAYS_EVICT_LAST.send(&tsg, &mut ways).unwrap();
    assert_eq!(ways.max_ways, 5);
    // With scheduling locked, requests that would be refused anyway also return EPERM.
    bench.orin.lock_scheduling(true);
    let mut interleave = tsg::RunlistInterleave { level: 9, reserved: 0 };
    assert_eq!(tsg::SET_RUNLIST_INTERLEAVE.send(&tsg, &mut interleave), Err(Errno::PERM));
    bench.orin.lock_scheduling(false);
    assert_eq!(tsg::SET_RUNLIST_INTERLEAVE.send(&tsg, &mut interleave), Err(Errno::INVAL));
    // Without power some requests return EINVAL, the others ENODEV.
    bench.orin.quiesce();
    let mut times = ctrl::GetCpuTimeCorrelationInfo { source_id: 1, ..Default::default() };
    assert_eq!(ctrl::GET_CPU_TIME_CORRELATION_INFO.send(&bench.ctrl, &mut times), Err(Errno::INVAL));
    let mut debug = ctrl::MmuDebugMode::default();
    assert_eq!(ctrl::SET_MMUDEBUG_MODE.send(&bench.ctrl, &mut debug), Err(Errno::INVAL));
    assert_eq!(ctrl::GET_GPU_TIME.send(&bench.ctrl, &mut ctrl::GetGpuTime::default()), Err(Errno::NODEV));
}
