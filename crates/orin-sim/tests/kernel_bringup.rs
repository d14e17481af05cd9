//! The bring-up of a compute channel, with the numbers that a board gave.

mod kernel_support;

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kernel_support::*;
use nvgpu_sys::door::{DoorFd, DoorMapping, Protection};
use nvgpu_sys::{channel, ctrl, tsg};
use orin_sim::LiveCounts;

#[test]
fn the_known_good_sequence_gives_the_boards_numbers() {
    let bench = Bench::new();
    let (characteristics, bytes) = ctrl::get_characteristics(&bench.ctrl).unwrap();
    assert_eq!(bytes, 328);
    assert_eq!((characteristics.compute_class, characteristics.gpfifo_class), (0xc7c0, 0xc76f));
    assert_eq!(&characteristics.chipname, b"ga10b\0\0\0");
    assert_eq!(characteristics.device_instance_id, 1);
    let mut vsms = ctrl::NumVsms::default();
    ctrl::NUM_VSMS.send(&bench.ctrl, &mut vsms).unwrap();
    assert_eq!(vsms.num_vsms, 8);

    let space = bench.space();
    let doorbell = bench.doorbell();
    assert_eq!(doorbell.len(), 0x1_0000);
    let tsg = bench.tsg();
    assert_eq!(subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC), Ok(1));

    // A compute channel and a copy channel on the same subcontext.
    let mut live = Vec::new();
    for (class, token) in [(0xc7c0, 511), (0xc7b5, 510)] {
        let channel = bench.channel();
        bind_space(&space, &channel).unwrap();
        bind_tsg(&tsg, &channel, 1).unwrap();
        wdt(&channel, channel::WDT_DISABLE).unwrap();
        let (ring, userd) = (bench.buffer(8192), bench.buffer(4096));
        let mut args = setup_args(&ring, &userd, 1024);
        channel::SETUP_BIND.send(&channel, &mut args).unwrap();
        assert_eq!(args.work_submit_token, token);
        assert_eq!((args.gpfifo_gpu_va, args.userd_gpu_va, args.usermode_mmio_gpu_va), (0, 0, 0));
        object(&channel, class).unwrap();
        live.push(channel);
    }

    // The first addresses in the logs, by size.
    let buffers: Vec<(u32, u64)> = vec![
        (0x1000, 0xff_ffa0_0000),
        (0x1000, 0xff_ffa0_1000),
        (0x1_0000, 0xff_ffa1_0000),
        (0x10_0000, 0xff_ffb0_0000),
        (0x100_0000, 0xff_fe20_0000),
        (0x400_0000, 0xff_f820_0000),
    ];
    for (bytes, va) in buffers {
        assert_eq!(map(&space, &bench.buffer(bytes)), Ok(va), "{bytes:#x}");
    }
    let warnings = bench.orin.kernel_log();
    let warned = warnings.iter().filter(|line| line.starts_with("WARNING:")).count();
    assert_eq!(warned, 2, "one per ALLOC_OBJ_CTX, as the RTV buffer lies above 2^40: {warnings:#?}");
}

#[test]
fn windows_reserved_at_fixed_addresses_are_avoided() {
    let bench = Bench::new();
    let space = bench.space();
    for window in [0xfd_0000_0000, 0xfe_0000_0000] {
        assert_eq!(reserve(&space, 0x4_0000, 1, window), Ok(window));
        assert_eq!(reserve(&space, 1, 1, window + 0x1000), Err(nvgpu_sys::Errno::NOMEM));
    }
    // Either side of each window a 2 MiB block has been cut off; the last one is used first.
    assert_eq!(map(&space, &bench.buffer(4096)), Ok(0xfe_4000_0000));
}

#[test]
fn a_lower_end_keeps_the_context_below_the_limit() {
    let bench = Bench::new();
    let space = bench.try_alloc_as(LOGGED_START, 0xff_0000_0000).unwrap();
    let (tsg, channel) = (bench.tsg(), bench.channel());
    bind_space(&space, &channel).unwrap();
    bind_tsg(&tsg, &channel, 0).unwrap();
    object(&channel, 0xc7c0).unwrap();
    assert_eq!(bench.orin.kernel_log(), [""; 0]);
}

#[test]
fn a_large_ring_below_the_limit_pushes_the_context_above_it() {
    let bench = Bench::new();
    let (_space, _tsg, channel) = bench.bound();
    let (ring, userd) = (bench.buffer(3 << 20), bench.buffer(4096));
    setup(&channel, &ring, &userd, 1024).unwrap();
    assert_eq!(object(&channel, 0xc7c0), Err(nvgpu_sys::Errno::NODEV));
    assert!(bench.orin.kernel_log().iter().any(|line| line.contains("a board freezes here")));
    assert_eq!(ctrl::get_characteristics(&bench.ctrl).unwrap_err(), nvgpu_sys::Errno::INVAL);
}

/// The word at `offset` of a mapping.
fn word(mapping: &DoorMapping, offset: usize) -> &AtomicU32 {
    assert!(offset + 4 <= mapping.len() && offset % 4 == 0);
    // SAFETY: in bounds, aligned, and borrowed from the mapping that keeps it.
    unsafe { AtomicU32::from_ptr(mapping.pointer().as_ptr().add(offset).cast()) }
}

fn cpu(fd: &DoorFd, bytes: usize) -> DoorMapping {
    fd.map(0, bytes, Protection::READ | Protection::WRITE).unwrap()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    // TIMEOUT: far above what the model needs, so that only a hang fails.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::yield_now();
    }
}

/// Submits one pushbuffer segment and rings the doorbell.
fn submit(ring: &DoorMapping, userd: &DoorMapping, doorbell: &DoorMapping, token: u32, va: u64, words: u32) {
    let put = word(userd, 0x8c).load(Ordering::Relaxed);
    let entry = va | 1 << 41 | u64::from(words) << 42;
    let at = 8 * put as usize;
    word(ring, at).store(entry as u32, Ordering::Relaxed);
    word(ring, at + 4).store((entry >> 32) as u32, Ordering::Relaxed);
    word(userd, 0x8c).store((put + 1) % 1024, Ordering::Release);
    word(doorbell, ctrl::USERMODE_DOORBELL).store(token, Ordering::SeqCst);
}

#[test]
fn work_runs_and_a_fault_ends_the_whole_tsg() {
    let bench = Bench::new();
    let chain = bench.chain();
    let sibling = bench.channel();
    bind_space(&chain.space, &sibling).unwrap();
    bind_tsg(&chain.tsg, &sibling, 0).unwrap();
    let doorbell = bench.doorbell();
    let (ring, userd) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096));

    let buffer = bench.buffer(8192);
    let memory = cpu(&buffer, 8192);
    let va = map(&chain.space, &buffer).unwrap();
    let notifier = |channel: &DoorFd, offset| {
        let mut args = channel::SetErrorNotifier { offset, mem: raw(&buffer), ..Default::default() };
        channel::SET_ERROR_NOTIFIER.send(channel, &mut args).unwrap();
    };
    notifier(&chain.channel, 0x1000);
    notifier(&sibling, 0x1010);

    // SEM_ADDR_LO, _HI, PAYLOAD_LO, _HI, EXECUTE (release) of the host class.
    let release = |va: u64, payload: u32| [0x2005_0017, va as u32, (va >> 32) as u32, payload, 0, 1];
    for (at, value) in release(va + 0x800, 42).into_iter().enumerate() {
        word(&memory, 4 * at).store(value, Ordering::Relaxed);
    }
    submit(&ring, &userd, &doorbell, chain.token, va, 6);
    wait_until("the semaphore", || word(&memory, 0x800).load(Ordering::Acquire) == 42);
    assert_eq!(bench.orin.kernel_log().iter().filter(|line| line.contains("[ERR]")).count(), 0);

    // The same to an address where nothing is mapped.
    for (at, value) in release(0x1234_5678_0000 & 0xff_ffff_f000, 42).into_iter().enumerate() {
        word(&memory, 4 * at).store(value, Ordering::Relaxed);
    }
    submit(&ring, &userd, &doorbell, chain.token, va, 6);
    for offset in [0x1000, 0x1010] {
        wait_until("the notifier", || word(&memory, offset + 12).load(Ordering::Acquire) == 0xffff_0000);
        assert_eq!(word(&memory, offset + 8).load(Ordering::Acquire), 31);
        assert_ne!(word(&memory, offset + 4).load(Ordering::Acquire), 0, "wall-clock time");
    }
    for fd in [&chain.channel, &sibling] {
        let mut timed_out = channel::GetParam::default();
        channel::GET_TIMEDOUT.send(fd, &mut timed_out).unwrap();
        assert_eq!(timed_out.value, 1);
    }
    let log = bench.orin.kernel_log();
    let line = log.iter().find(|line| line.contains("fault addr:")).expect("the key line");
    assert!(line.contains("[ERR]  [MMU FAULT] mmu engine id:"), "{line}");
    assert!(line.contains("ch id:  511, fault addr: 0x3456780000"), "{line}");
    assert!(line.contains("fault type: invalid pde, access type: virt write"), "{line}");
    assert_eq!(log.iter().filter(|line| line.contains("error notifier set to 31 for ch 51")).count(), 2);

    // Nothing runs any more, and everything can be given back.
    submit(&ring, &userd, &doorbell, chain.token, va, 6);
    drop((chain, sibling, buffer, memory, ring, userd, doorbell));
    let nodes = LiveCounts { descriptors: 2, ..LiveCounts::default() };
    assert_eq!(bench.orin.live(), nodes);
}
