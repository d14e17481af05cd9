//! Lifetimes of objects, and leaks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::*;
use kernel_door::{Door, DoorFd, DoorMapping, Errno, MapRequest, Protection};
use nvgpu_sys::address_space::{self as space, MapBufferFlags};
use nvgpu_sys::nvmap::{self, CreateHandle};
use nvgpu_sys::{channel, ctrl, paths, tsg};
use orin_sim::{Call, Config, Failure, LiveCounts, Node, Nodes, SoftwareOrin};

/// The live objects when only the two nodes are open.
const NODES: LiveCounts = LiveCounts {
    descriptors: 2,
    mappings: 0,
    handles: 0,
    buffers: 0,
    memory_bytes: 0,
    address_spaces: 0,
    gpu_mappings: 0,
    tsgs: 0,
    channels: 0,
    syncpoints: 0,
};

const READ_WRITE: Protection = Protection::READ.union(Protection::WRITE);

#[test]
fn a_chain_can_be_closed_in_any_order() {
    let bench = Bench::new();
    // All orders of the five descriptors.
    for order in 0..120_usize {
        let Chain { space, tsg, channel, ring, userd, token } = bench.chain();
        assert_eq!(token, 511, "the id freed last is used first");
        let mut left: Vec<DoorFd> = vec![space, tsg, channel, ring, userd];
        let mut code = order;
        for divisor in (1..=5).rev() {
            drop(left.remove(code % divisor));
            code /= divisor;
        }
        assert_eq!(bench.orin.live(), NODES, "order {order}");
    }
}

#[test]
fn an_address_space_lives_as_long_as_its_channel() {
    let bench = Bench::new();
    let chain = bench.chain();
    let va = map(&chain.space, &bench.buffer(4096)).unwrap();
    assert_eq!(va, 0xff_ffa0_0000);
    drop(chain.space);
    let live = bench.orin.live();
    assert_eq!((live.address_spaces, live.gpu_mappings, live.tsgs), (1, 1, 1));
    drop(chain.channel);
    // The TSG's context is still mapped in it.
    assert_eq!(bench.orin.live().address_spaces, 1);
    drop(chain.tsg);
    assert_eq!(bench.orin.live().address_spaces, 0);
}

#[test]
fn a_tsg_lives_as_long_as_a_channel_of_it() {
    let bench = Bench::new();
    let (_space, tsg, channel) = bench.bound();
    drop(tsg);
    assert_eq!(bench.orin.live().tsgs, 1);
    drop(channel);
    assert_eq!(bench.orin.live().tsgs, 0);
}

#[test]
fn memory_outlives_number_and_descriptor_through_mappings() {
    let bench = Bench::new();
    let space = bench.space();
    let buffer = bench.buffer(8192);
    let mapping = buffer.map(0, 8192, READ_WRITE).unwrap();
    let va = map(&space, &buffer).unwrap();
    drop(buffer);
    assert_eq!(bench.orin.live().memory_bytes, 8192);
    drop(mapping);
    assert_eq!(bench.orin.live().memory_bytes, 8192);
    unmap(&space, va);
    assert_eq!(bench.orin.live().memory_bytes, 0);
}

#[test]
fn closing_the_last_nvmap_node_drops_all_numbers() {
    let bench = Bench::new();
    let second = DoorFd::open(&bench.door, paths::NVMAP, FLAGS).unwrap();
    let handle = bench.create(4096);
    bench.alloc(handle);
    let Bench { orin, nvmap, .. } = bench;
    drop(nvmap);
    assert_eq!(orin.live().handles, 1, "the numbers are the process's");
    drop(second);
    assert_eq!(orin.live().memory_bytes, 0);
}

#[test]
fn descriptors_of_one_buffer_show_the_same_bytes() {
    let bench = Bench::new();
    let handle = bench.create(4096);
    let early = bench.export(handle);
    assert_eq!(early.map(0, 4096, READ_WRITE).unwrap_err(), Errno::PERM, "no memory yet");
    bench.alloc(handle);
    let late = bench.export(handle);
    let byte = |mapping: &DoorMapping| mapping.pointer().as_ptr();
    let (one, other) = (early.map(0, 4096, READ_WRITE).unwrap(), late.map(0, 4096, READ_WRITE).unwrap());
    // SAFETY: both mappings are alive and a page long.
    unsafe {
        assert_eq!(byte(&other).add(9).read_volatile(), 0, "memory comes zeroed");
        byte(&one).add(9).write_volatile(77);
        assert_eq!(byte(&other).add(9).read_volatile(), 77);
    }
    let mut bytes = [0; 4];
    assert_eq!(nvmap::read(&bench.nvmap, handle, 8, &mut bytes), Ok(4));
    assert_eq!(bytes, [0, 77, 0, 0]);
    assert_eq!(nvmap::write(&bench.nvmap, handle, 4094, &[1, 2, 3]), Err(Errno::INVAL));
    assert_eq!(nvmap::write(&bench.nvmap, handle, 4093, &[1, 2, 3]), Ok(3));
    // SAFETY: as above.
    unsafe { assert_eq!(byte(&one).add(4095).read_volatile(), 3) };
}

#[test]
fn a_read_only_twin_can_only_be_read() {
    let bench = Bench::new();
    let handle = bench.create(4096);
    bench.alloc(handle);
    let mut args =
        nvmap::DuplicateHandle { handle, access_flags: nvmap::HandleFlags::READ_ONLY.bits(), dup_handle: 0 };
    nvmap::DUP_HANDLE.send(&bench.nvmap, &mut args).unwrap();
    let twin = bench.export(args.dup_handle);
    assert_eq!(twin.map(0, 4096, READ_WRITE).unwrap_err(), Errno::ACCESS);
    assert!(twin.map(0, 4096, Protection::READ).is_ok());
}

#[test]
fn memory_is_limited_to_the_boards_size() {
    let bench = Bench::with(Config { memory_bytes: 3 << 20, ..Config::default() });
    let first = bench.buffer(1 << 20);
    let _second = bench.buffer(1 << 20);
    let third = bench.create(2 << 20);
    let heap = nvmap::Heaps::IOVMM.bits();
    assert_eq!(bench.try_alloc(third, heap, TAG), Err(Errno::NOMEM));
    drop(first);
    assert_eq!(bench.try_alloc(third, heap, TAG), Ok(0));
}

#[test]
fn handle_numbers_grow_and_are_not_used_again() {
    let bench = Bench::new();
    let first = bench.create(4096);
    assert_eq!(first, 0x7fff_ffff);
    bench.free(first);
    assert_eq!(bench.create(4096), 0x8000_0000);
    let other = Bench::with(Config { seed: 0xd47, ..Config::default() });
    assert_eq!(other.create(4096), 0x8000_0d46, "another machine has used some");
}

#[test]
fn mappings_are_reused_and_counted() {
    let bench = Bench::new();
    let space = bench.space();
    let buffer = bench.buffer(8192);
    let va = map(&space, &buffer).unwrap();
    assert_eq!(map(&space, &buffer), Ok(va));
    let mut cached = space::MapBufferEx { flags: MapBufferFlags::CACHEABLE.bits(), ..map_args(&buffer) };
    space::MAP_BUFFER_EX.send(&space, &mut cached).unwrap();
    assert_ne!(cached.offset, va, "other flags, other mapping");
    unmap(&space, va);
    assert_eq!(bench.orin.live().gpu_mappings, 2, "one reference left");
    unmap(&space, va);
    assert_eq!(bench.orin.live().gpu_mappings, 1);
    assert_eq!(map(&space, &bench.buffer(8192)), Ok(va), "the freed addresses come first");
}

#[test]
fn fixed_mappings_live_in_their_range() {
    let bench = Bench::new();
    let space = bench.space();
    let (one, two) = (bench.buffer(8192), bench.buffer(8192));
    let area = reserve(&space, 256, 1, 0x40_0000).unwrap();
    assert_eq!(area, 0x40_0000);
    let fixed = |buffer: &DoorFd, offset, buffer_offset, mapping_size| {
        let mut args = space::MapBufferEx {
            flags: MapBufferFlags::FIXED_OFFSET.bits(),
            offset,
            buffer_offset,
            mapping_size,
            ..map_args(buffer)
        };
        space::MAP_BUFFER_EX.send(&space, &mut args).map(|_| args.offset)
    };
    assert_eq!(fixed(&one, area, 0, 0), Ok(area));
    assert_eq!(fixed(&two, area + 4096, 0, 0), Err(Errno::INVAL), "overlaps");
    assert_eq!(fixed(&two, area + 8192, 4096, 4096), Ok(area + 8192));
    assert_eq!(fixed(&one, area + 12288, 0, 0), Ok(area + 12288), "one buffer, two places");
    // Extra references keep a mapping when its range is freed; a later mapping replaces it.
    assert_eq!(fixed(&one, area, 0, 0), Ok(area));
    space::FREE_SPACE.send(&space, &mut space::FreeSpace { offset: area + 5, ..Default::default() }).unwrap();
    assert_eq!(bench.orin.live().gpu_mappings, 1);
    assert_eq!(reserve(&space, 256, 1, area), Ok(area));
    assert_eq!(fixed(&two, area, 0, 0), Err(Errno::INVAL), "the survivor is in the way");
    unmap(&space, area);
    assert_eq!(fixed(&two, area, 0, 0), Ok(area));
    drop(space);
    assert_eq!(bench.orin.live().gpu_mappings, 0);
}

#[test]
fn va_regions_describe_the_user_range() {
    let bench = Bench::new();
    let space = bench.space();
    let mut regions = [space::VaRegion::default(); 2];
    assert_eq!(space::get_va_regions(&space, &mut regions), Ok(1));
    assert_eq!(regions[0].offset, LOGGED_START);
    assert_eq!(regions[0].pages, (LOGGED_END - LOGGED_START) / 4096);
    assert_eq!(regions[0].page_size, 4096);
}

#[test]
fn a_failed_call_changes_nothing() {
    let bench = Bench::new();
    let steps: [u32; 10] = [
        ctrl::code::ALLOC_AS,
        ctrl::code::OPEN_TSG,
        ctrl::code::OPEN_CHANNEL,
        space::code::BIND_CHANNEL,
        tsg::code::BIND_CHANNEL_EX,
        channel::code::WDT,
        nvmap::code::CREATE,
        nvmap::code::ALLOC,
        nvmap::code::GET_FD,
        channel::code::SETUP_BIND,
    ];
    for code in steps {
        bench.orin.fail(Failure { call: Call::Ioctl(code), nth: 1, errno: Errno::NOMEM });
        let before = open_here(&bench);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(bench.chain())));
        assert!(result.is_err(), "{code:#x} is on the way");
        // The test driver leaked at most a handle number.
        let live = bench.orin.live();
        assert_eq!(live.channels + live.tsgs + live.address_spaces + live.gpu_mappings, 0, "{code:#x}");
        assert_eq!(open_here(&bench), before, "{code:#x}");
        drop(bench.chain());
    }
}

fn open_here(bench: &Bench) -> usize {
    bench.orin.live().descriptors
}

#[test]
fn only_the_nth_call_fails() {
    let failure = Failure { call: Call::Ioctl(nvmap::code::CREATE), nth: 3, errno: Errno::NOMEM };
    let bench = Bench::with(Config { failures: vec![failure], ..Config::default() });
    let create = || nvmap::CREATE.send(&bench.nvmap, &mut CreateHandle { size_or_fd: 1, handle: 0 });
    assert_eq!([create(), create(), create(), create()], [Ok(0), Ok(0), Err(Errno::NOMEM), Ok(0)]);
    bench.orin.fail(Failure { call: Call::Mmap, nth: 2, errno: Errno::AGAIN });
    let buffer = bench.buffer(4096);
    assert!(buffer.map(0, 4096, READ_WRITE).is_ok());
    assert_eq!(buffer.map(0, 4096, READ_WRITE).unwrap_err(), Errno::AGAIN);
    bench.orin.fail(Failure { call: Call::Open, nth: 1, errno: Errno::MFILE });
    assert_eq!(bench.door.open(paths::NVMAP, FLAGS), Err(Errno::MFILE));
    assert!(DoorFd::open(&bench.door, paths::NVMAP, FLAGS).is_ok());
}

#[test]
fn requests_are_counted_exactly() {
    let bench = Bench::new();
    assert_eq!(bench.orin.ioctl_count(), 0);
    drop(bench.buffer(4096));
    let counts = bench.orin.ioctl_counts();
    for code in [nvmap::code::CREATE, nvmap::code::ALLOC, nvmap::code::GET_FD, nvmap::code::FREE] {
        assert_eq!(counts.get(&code), Some(&1), "{code:#x}");
    }
    assert_eq!(bench.orin.ioctl_count(), 4);
}

#[test]
fn nodes_can_be_missing_or_forbidden() {
    let open = |nodes, path| {
        let orin = SoftwareOrin::new(Config { nodes, ..Config::default() }).unwrap();
        let door: Arc<dyn Door> = Arc::new(orin);
        door.open(path, FLAGS).and_then(|fd| close(&door, fd))
    };
    let nodes =
        Nodes { ctrl: Node::Absent, nvmap: Node::Denied, kernel_log: Node::Denied, ..Nodes::default() };
    assert_eq!(open(nodes, paths::CTRL), Err(Errno::NOENT));
    assert_eq!(open(nodes, paths::CTRL_LEGACY), Err(Errno::NOENT));
    assert_eq!(open(nodes, paths::NVMAP), Err(Errno::ACCESS));
    assert_eq!(open(nodes, paths::KMSG), Err(Errno::ACCESS));
    assert_eq!(open(Nodes::default(), c"/dev/nvgpu/igpu0/as"), Err(Errno::INVAL));
    assert_eq!(open(Nodes::default(), c"/dev/nvgpu/igpu1/ctrl"), Err(Errno::NOENT));
    assert_eq!(open(Nodes::default(), paths::CTRL_LEGACY), Ok(()));
}

#[test]
fn an_older_driver_supports_fewer_requests() {
    let mut config = Config::default();
    config.characteristics.gpu_ioctl_nr_last = 24;
    let bench = Bench::with(config);
    let result = ctrl::GET_GPU_TIME.send(&bench.ctrl, &mut ctrl::GetGpuTime::default());
    assert_eq!(result, Err(Errno::INVAL));
    assert!(ctrl::NUM_VSMS.send(&bench.ctrl, &mut ctrl::NumVsms::default()).is_ok());
}

#[test]
fn an_unmodelled_request_is_named_and_an_unknown_one_is_refused() {
    let bench = Bench::new();
    let mut argument = [0_u8; 16];
    let code = nvmap::code::GUP_TEST;
    // SAFETY: the argument has the 16 bytes that the code specifies.
    let result = unsafe { bench.door.ioctl(bench.nvmap.raw(), code, argument.as_mut_ptr().cast()) };
    assert_eq!(result, Err(Errno::NOTTY));
    assert!(bench.orin.kernel_log().contains(&format!("orin-sim: request {code:#010x} is not modelled")));
}

#[test]
fn descriptors_are_named_like_the_kernels() {
    let bench = Bench::new();
    let name = |fd: &DoorFd| {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.raw())).unwrap();
        link.to_string_lossy().into_owned()
    };
    let (space, tsg, channel, buffer) = (bench.space(), bench.tsg(), bench.channel(), bench.buffer(4096));
    assert!(name(&space).contains(&format!("nvhost-ga10b-fd{}", space.raw())));
    assert!(name(&tsg).contains(&format!("nvgpu-ga10b-tsg{}", tsg.raw())));
    assert!(name(&channel).contains(&format!("nvhost-17000000.gpu-fd{}", channel.raw())));
    assert!(name(&buffer).contains("dmabuf"));
    assert_eq!(close(&bench.door, space.raw()), Ok(()));
    assert_eq!(close(&bench.door, space.raw()), Err(Errno::BADF));
    // Dropping `space` closes nothing: the number is free, and another thread of this process may have reused it.
    let result = ctrl::NUM_VSMS.send(&space, &mut ctrl::NumVsms::default());
    assert!([Err(Errno::BADF), Err(Errno::NOTTY)].contains(&result), "{result:?}");
}

#[test]
fn channel_ids_tsgs_and_subcontexts_are_allocated_as_on_the_board() {
    let bench = Bench::new();
    let channels: Vec<DoorFd> = (0..512).map(|_| bench.channel()).collect();
    assert_eq!(bench.try_channel(-1).unwrap_err(), Errno::NOMEM);
    drop(channels);
    let tsgs: Vec<DoorFd> = (0..512).map(|_| bench.tsg()).collect();
    let result = ctrl::OPEN_TSG.send(&bench.ctrl, &mut ctrl::OpenTsg::default());
    assert_eq!(result, Err(Errno::NOMEM));
    drop(tsgs);
    assert_eq!(bench.orin.live(), NODES);
}

#[test]
fn mappings_are_checked() {
    let bench = Bench::new();
    let buffer = bench.buffer(8192);
    let fails = |fd: &DoorFd, offset, len| fd.map(offset, len, READ_WRITE).unwrap_err();
    assert_eq!(fails(&buffer, 0, 8193), Errno::INVAL);
    assert_eq!(fails(&buffer, 4096, 8192), Errno::INVAL);
    assert_eq!(fails(&buffer, 0, 0), Errno::INVAL);
    assert_eq!(fails(&buffer, 100, 100), Errno::INVAL);
    assert!(buffer.map(4096, 4096, READ_WRITE).is_ok());
    assert_eq!(fails(&bench.tsg(), 0, 4096), Errno::NODEV);
    let request = MapRequest { fd: 0x7fff_0000, offset: 0, len: 4096, protection: READ_WRITE, place: None };
    assert_eq!(mmap(&bench.door, &request), Err(Errno::BADF));
}

#[test]
fn a_reset_ends_the_tsg_with_code_43() {
    let bench = Bench::new();
    let chain = bench.chain();
    let buffer = bench.buffer(4096);
    let memory = buffer.map(0, 4096, READ_WRITE).unwrap();
    let mut args = channel::SetErrorNotifier { offset: 5, mem: raw(&buffer), ..Default::default() };
    channel::SET_ERROR_NOTIFIER.send(&chain.channel, &mut args).unwrap();
    channel::FORCE_RESET.send(&chain.channel, 0).unwrap();
    let byte = |at: usize| {
        // SAFETY: inside the live mapping.
        unsafe { memory.pointer().as_ptr().add(at).read_volatile() }
    };
    assert_eq!([byte(5 + 8), byte(5 + 9), byte(5 + 14), byte(5 + 15), byte(5 + 16)], [43, 0, 0xff, 0xff, 0]);
    let log = bench.orin.kernel_log();
    assert!(log.iter().any(|line| line.contains("[INFO]  error notifier set to 43 for ch 511")), "{log:#?}");
    // A channel that joins later is dead from the start.
    let late = bench.channel();
    bind_space(&chain.space, &late).unwrap();
    bind_tsg(&chain.tsg, &late, 0).unwrap();
    let mut timed_out = channel::GetParam::default();
    channel::GET_TIMEDOUT.send(&late, &mut timed_out).unwrap();
    assert_eq!(timed_out.value, 1);
}

#[test]
fn threads_that_build_tear_down_and_reset_never_block_each_other() {
    let bench = Bench::new();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..40 {
                    let chain = bench.chain();
                    if round % 3 == 0 {
                        channel::FORCE_RESET.send(&chain.channel, 0).unwrap();
                    }
                    let buffer = bench.buffer(0x1_0000);
                    let va = map(&chain.space, &buffer).unwrap();
                    unmap(&chain.space, va);
                    if round % 2 == 0 {
                        drop(chain.space);
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..200 {
                let _ = (bench.orin.live(), bench.orin.kernel_log().len());
            }
        });
    });
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!(bench.orin.live(), NODES);
}

#[test]
fn a_board_can_be_dropped_with_everything_open() {
    let bench = Bench::new();
    let chain = bench.chain();
    let doorbell = bench.doorbell();
    let Bench { orin, door, nvmap, ctrl, .. } = bench;
    drop((orin, nvmap, ctrl, doorbell, chain));
    assert_eq!(std::sync::Arc::strong_count(&door), 1);
}

/// A duplicate made without the door.
fn duplicate(fd: &DoorFd) -> DoorFd {
    // SAFETY: the descriptor is open while `fd` lives.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd.raw()) };
    let copy = rustix::io::fcntl_dupfd_cloexec(borrowed, 0).unwrap();
    adopt(fd.door(), std::os::fd::IntoRawFd::into_raw_fd(copy))
}

/// Closes a descriptor without the door.
fn close_behind(fd: DoorFd) {
    let fd = core::mem::ManuallyDrop::new(fd);
    // SAFETY: the door does not close the number any more.
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd.raw()) });
}

#[test]
fn a_duplicate_of_a_dma_buf_is_the_same_open_file() {
    let bench = Bench::new();
    let space = bench.space();
    let buffer = bench.buffer(8192);
    let copy = duplicate(&buffer);
    for fd in [&buffer, &copy] {
        let mut import = CreateHandle { size_or_fd: raw(fd), handle: 0 };
        nvmap::FROM_FD.send(&bench.nvmap, &mut import).unwrap();
        bench.free(import.handle);
        let va = map(&space, fd).unwrap();
        unmap(&space, va);
    }
    let view = cpu(&copy, 8192);
    word(&cpu(&buffer, 8192), 4096).store(5, std::sync::atomic::Ordering::Release);
    assert_eq!(word(&view, 4096).load(std::sync::atomic::Ordering::Acquire), 5);
    // The duplicate keeps the buffer, although the model sees it for the first time now.
    let other = duplicate(&copy);
    drop((view, buffer, copy));
    assert_eq!(bench.orin.live().buffers, 1);
    assert_eq!(word(&cpu(&other, 8192), 4096).load(std::sync::atomic::Ordering::Acquire), 5);
    let mut import = CreateHandle { size_or_fd: raw(&other), handle: 0 };
    nvmap::FROM_FD.send(&bench.nvmap, &mut import).unwrap();
    bench.free(import.handle);
    drop((other, space));
    assert_eq!(bench.orin.live(), NODES);
}

#[test]
fn duplicates_of_other_descriptors_answer_requests_and_keep_their_object() {
    let bench = Bench::new();
    let chain = bench.chain();
    let channel = duplicate(&chain.channel);
    let (ctrl, nvmap) = (duplicate(&bench.ctrl), duplicate(&bench.nvmap));
    ctrl::get_characteristics(&ctrl).unwrap();
    let mut create = CreateHandle { size_or_fd: 4096, handle: 0 };
    nvmap::CREATE.send(&nvmap, &mut create).unwrap();
    bench.free(create.handle);
    let Chain { space, tsg, channel: first, ring, userd, .. } = chain;
    let copy = duplicate(&tsg);
    drop((first, tsg, space, ring, userd));
    let live = bench.orin.live();
    assert_eq!((live.channels, live.tsgs, live.descriptors), (1, 1, 4));
    channel::FORCE_RESET.send(&channel, 0).unwrap();
    drop((channel, copy));
    let live = bench.orin.live();
    assert_eq!((live.channels, live.tsgs, live.address_spaces), (0, 0, 0));
    drop((ctrl, nvmap));
    assert_eq!(bench.orin.live(), NODES);
}

#[test]
fn a_descriptor_closed_without_the_door_ends_its_object() {
    let bench = Bench::new();
    let Chain { space, tsg, channel, ring, userd, .. } = bench.chain();
    let number = channel.raw();
    close_behind(channel);
    close_behind(ring);
    close_behind(userd);
    assert_eq!(bench.orin.live().channels, 0);
    // The number is free, or belongs to something else, of this test or of one beside it.
    let file = rustix::fs::memfd_create("other", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: the request takes no pointer.
    let asked = unsafe { bench.door.ioctl(number, channel::code::ENABLE, core::ptr::null_mut()) };
    assert!(matches!(asked, Err(Errno::NOTTY | Errno::BADF)), "{asked:?}");
    // A duplicate keeps the object.
    let copy = duplicate(&tsg);
    close_behind(tsg);
    assert_eq!(bench.orin.live().tsgs, 1);
    close_behind(copy);
    close_behind(space);
    assert_eq!(bench.orin.live(), NODES);
    drop(file);
}

/// A handle costs a board's process no descriptor, so its number is not limited by `ulimit -n`.
#[test]
fn handles_cost_no_descriptor_of_the_host() {
    let bench = Bench::new();
    let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let handles: Vec<_> = (0..100_000).map(|_| bench.create(4096)).collect();
    handles.iter().for_each(|handle| bench.alloc(*handle));
    let after = std::fs::read_dir("/proc/self/fd").unwrap().count();
    // Other tests run at the same time.
    assert!(after < before + 5_000, "{before} descriptors, now {after}");
    assert_eq!(bench.orin.live().memory_bytes, 100_000 * 4096);
    let last = bench.export(handles[99_999]);
    assert_eq!(word(&cpu(&last, 4096), 0).load(std::sync::atomic::Ordering::Acquire), 0);
    handles.iter().for_each(|handle| bench.free(*handle));
    drop(last);
    assert_eq!(bench.orin.live(), NODES);
}
