//! GPU errors are reported with cause and location. Only the queue is lost: the device, its memory and new
//! queues continue to work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orin_sim::{Config, FaultPlan, MmuOrder, SegmentWatcher, SoftwareOrin};
use tegra_hcq::{
    Device, Error, ErrorCode, Fault, FaultKind, MmuAccess, MmuFaultType, Program, WarpError, args,
};
use test_support::{Bench, TIMEOUT, cubin};

/// The fault inside an error.
fn fault(result: Result<(), Error>) -> Fault {
    match result.unwrap_err() {
        Error::Fault(fault) => (*fault).clone(),
        other => panic!("expected a fault: {other}"),
    }
}

/// The queue is dead and reports why; a new queue works with the same program and buffers.
fn recovers(bench: &mut Bench, first: &Fault) {
    let kernel = bench.program.kernel("fault_no_bound").unwrap();
    let input = bench.device.alloc_from(&[5_u32, 6, 7, 8]).unwrap();
    let out = bench.device.alloc::<u32>(4).unwrap();
    let again = unsafe { bench.queue.launch(&kernel, 1, 4, &args![&input, &out]) };
    assert_eq!(&fault(again), first, "a dead queue repeats its fault");
    bench.queue = bench.device.queue().unwrap();
    unsafe { bench.run("fault_no_bound", 1, 4, &args![&input, &out]) };
    assert_eq!(out.to_vec().unwrap(), [5, 6, 7, 8]);
}

#[test]
fn a_read_outside_of_all_buffers_is_an_mmu_fault_at_that_address() {
    let mut bench = Bench::new("faults");
    let out = bench.device.alloc::<u32>(1).unwrap();
    let address = 0x12_3456_7000_u64;
    let fault = fault(unsafe { bench.try_run("fault_read", 1, 1, &args![address, &out]) });
    assert_eq!(fault.kind, FaultKind::Mmu);
    assert_eq!(fault.address, Some(address));
    assert_eq!(fault.access, Some((MmuFaultType::InvalidPde, MmuAccess::VirtRead)));
    assert_eq!(fault.location.as_ref().unwrap().kernel, "fault_read");
    recovers(&mut bench, &fault);
}

#[test]
fn writes_and_atomics_fault() {
    let mut bench = Bench::new("faults");
    for kernel in ["fault_write", "fault_atomic"] {
        let fault = fault(unsafe { bench.try_run(kernel, 1, 1, &args![0x77_0000_0000_u64, 1_u32]) });
        assert_eq!(fault.kind, FaultKind::Mmu);
        assert_eq!(fault.address, Some(0x77_0000_0000), "{kernel}");
        assert_eq!(fault.location.as_ref().unwrap().kernel, kernel);
        recovers(&mut bench, &fault);
    }
}

#[test]
fn running_past_the_end_of_a_buffer_faults_at_its_end() {
    let mut bench = Bench::new("faults");
    // 1024 words fill a page. The next pages may belong to another buffer, but distant ones do not.
    let len = 1 << 20;
    let input = bench.device.alloc_from(&vec![1_u32; len]).unwrap();
    let out = bench.device.alloc::<u32>(len).unwrap();
    let fault = fault(unsafe { bench.try_run("fault_no_bound", 1 << 14, 1024, &args![&input, &out]) });
    assert_eq!(fault.kind, FaultKind::Mmu);
    assert!(fault.address.is_some());
    recovers(&mut bench, &fault);
}

#[test]
fn a_misaligned_load_is_named() {
    let mut bench = Bench::new("faults");
    let input = bench.device.alloc_from(&[0_u32; 4]).unwrap();
    let out = bench.device.alloc::<u32>(1).unwrap();
    let fault = fault(unsafe { bench.try_run("fault_misaligned", 1, 32, &args![&input, 2_u32, &out]) });
    assert_eq!(fault.kind, FaultKind::Sm(WarpError::MisalignedAddress));
    let location = fault.location.clone().unwrap();
    assert_eq!(location.kernel, "fault_misaligned");
    assert!(location.offset > 0 && fault.pc.is_some());
    recovers(&mut bench, &fault);
}

#[test]
fn a_fault_of_a_program_that_was_dropped_is_named() {
    let Bench { device, mut queue, .. } = Bench::new("basics");
    let input = device.alloc_from(&[0_u32; 4]).unwrap();
    let out = device.alloc::<u32>(1).unwrap();
    let args = args![&input, 2_u32, &out];
    let kernel = Program::load(&device, &cubin("faults")).unwrap().kernel("fault_misaligned").unwrap();
    unsafe { queue.launch(&kernel, 1, 32, &args) }.unwrap();
    drop(kernel);
    let fence = queue.submit().unwrap();
    // More programs than are remembered at once.
    for _ in 0..40 {
        Program::load(&device, &cubin("basics")).unwrap();
    }
    let first = fault(fence.wait(TIMEOUT));
    assert_eq!(
        first.location.as_ref().map(|location| &*location.kernel),
        Some("fault_misaligned"),
        "{first}"
    );
    assert_eq!(first.grid, Some((1.into(), 32.into())));
    // The next program has the same address.
    device.recover().unwrap();
    let mut queue = device.queue().unwrap();
    let program = Program::load(&device, &cubin("faults")).unwrap();
    unsafe { queue.launch(&program.kernel("fault_trap").unwrap(), 1, 64, &args![33_u32, &out]) }.unwrap();
    let second = fault(queue.submit().unwrap().wait(TIMEOUT));
    assert_eq!(second.location.as_ref().map(|location| &*location.kernel), Some("fault_trap"), "{second}");
}

#[test]
fn a_trap_names_its_kernel() {
    let mut bench = Bench::new("faults");
    let out = bench.device.alloc::<u32>(64).unwrap();
    let fault = fault(unsafe { bench.try_run("fault_trap", 1, 64, &args![33_u32, &out]) });
    assert!(matches!(fault.kind, FaultKind::Sm(_)), "{fault}");
    assert_eq!(fault.location.as_ref().unwrap().kernel, "fault_trap");
    recovers(&mut bench, &fault);
}

#[test]
fn shared_memory_has_bounds() {
    let mut bench = Bench::new("faults");
    let out = bench.device.alloc::<u32>(1).unwrap();
    let fault = fault(unsafe { bench.try_run("fault_shared_bounds", 1, 1, &args![1_u32 << 20, &out]) });
    assert_eq!(fault.kind, FaultKind::Sm(WarpError::OutOfRangeAddress), "{fault}");
    recovers(&mut bench, &fault);
}

#[test]
fn a_deadlocked_barrier_is_reported() {
    let mut bench = Bench::new("faults");
    let out = bench.device.alloc::<u32>(64).unwrap();
    let kernel = bench.program.kernel("fault_barrier").unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 64, &args![&out]) }.unwrap();
    let error = bench.queue.wait(TIMEOUT).unwrap_err().to_string();
    assert!(error.contains("deadlock") && error.contains("fault_barrier"), "{error}");
}

#[test]
fn an_endless_kernel_ends_in_a_time_out_with_its_cause() {
    let mut bench = Bench::new("faults");
    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    let out = bench.device.alloc::<u32>(1).unwrap();
    let kernel = bench.program.kernel("fault_endless").unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 32, &args![&stop, &out]) }.unwrap();
    let error = bench.queue.wait(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("kernel fault_endless"), "{error}");

    // Dropping the queue stops the kernel; the device's buffers are usable again at once.
    drop(std::mem::replace(&mut bench.queue, bench.device.queue().unwrap()));
    assert_eq!(stop.to_vec().unwrap(), [0]);
    let input = bench.device.alloc_from(&[3_u32]).unwrap();
    unsafe { bench.run("fault_no_bound", 1, 1, &args![&input, &out]) };
    assert_eq!(out.to_vec().unwrap(), [3]);
}

#[test]
fn a_kernel_stopped_by_a_store_of_the_cpu() {
    let mut bench = Bench::new("faults");
    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    let out = bench.device.alloc_from(&[0_u32]).unwrap();
    let writer = bench.device.queue().unwrap();
    let kernel = bench.program.kernel("fault_endless").unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 1, &args![&stop, &out]) }.unwrap();
    let fence = bench.queue.submit().unwrap();
    assert!(fence.wait(Duration::from_millis(50)).is_err());

    // Another queue stores the word while the first kernel runs: queues do not block each other.
    let mut writer = writer;
    let store = bench.program.kernel("fault_write").unwrap();
    unsafe { writer.launch(&store, 1, 1, &args![stop.gpu_va(), 1_u32]) }.unwrap();
    writer.wait(TIMEOUT).unwrap();
    fence.wait(TIMEOUT).unwrap();
    assert!(out.to_vec().unwrap()[0] > 0);
}

#[test]
fn one_queue_s_fault_leaves_the_others_alone() {
    let mut bench = Bench::new("faults");
    let mut other = bench.device.queue().unwrap();
    let out = bench.device.alloc::<u32>(1).unwrap();
    fault(unsafe { bench.try_run("fault_read", 1, 1, &args![0x30_0000_0000_u64, &out]) });
    assert!(matches!(out.to_vec(), Err(Error::Fault(_))), "the kernel that writes the buffer never finished");
    let kernel = bench.program.kernel("fault_no_bound").unwrap();
    let input = bench.device.alloc_from(&[9_u32]).unwrap();
    let fresh = bench.device.alloc::<u32>(1).unwrap();
    unsafe { other.launch(&kernel, 1, 1, &args![&input, &fresh]) }.unwrap();
    other.wait(TIMEOUT).unwrap();
    assert_eq!(fresh.to_vec().unwrap(), [9]);
}

#[test]
fn invalid_launches_are_refused_before_submission() {
    let mut bench = Bench::new("basics");
    let out = bench.device.alloc::<u32>(16).unwrap();
    let mut refuse = |kernel: &str, grid: [u32; 3], block: [u32; 3], arguments: &[tegra_hcq::Arg<'_>]| {
        unsafe { bench.try_run(kernel, grid, block, arguments) }.unwrap_err().to_string()
    };
    let text = refuse("fill_u32", [1; 3], [32, 1, 1], &args![&out, 1_u32]);
    assert!(text.contains("takes 3 arguments, 2 were given") && text.contains("8, 4, 4"), "{text}");
    let text = refuse("fill_u32", [1; 3], [32, 1, 1], &args![&out, 1_u64, 2_u32]);
    assert!(text.contains("argument 1 has 8 bytes, the parameter has 4"), "{text}");
    let text = refuse("fill_u32", [0, 1, 1], [32, 1, 1], &args![&out, 1_u32, 2_u32]);
    assert!(text.contains("grid 0x1x1"), "{text}");
    let text = refuse("fill_u32", [1; 3], [32, 33, 1], &args![&out, 1_u32, 2_u32]);
    assert!(text.contains("1056 threads"), "{text}");
    let text = refuse("nothing_like_it", [1; 3], [1; 3], &[]);
    assert!(text.contains("nothing_like_it") && text.contains("fill_u32"), "{text}");

    let kernel = bench.program.kernel("fill_u32").unwrap();
    let arguments = args![&out, 1_u32, 16_u32];
    let text = unsafe { bench.queue.launch_with_shared(&kernel, 1, 32, 200 << 10, &arguments) }
        .unwrap_err()
        .to_string();
    assert!(text.contains("shared memory"), "{text}");
    unsafe { bench.run("fill_u32", 1, 32, &arguments) };
    assert_eq!(out.to_vec().unwrap(), [1; 16], "the queue is still usable");
}

#[test]
fn launch_bounds_are_respected() {
    let mut bench = Bench::new("params");
    let a = bench.device.alloc_from(&[1_i8; 256]).unwrap();
    let b = bench.device.alloc::<i16>(256).unwrap();
    let c = bench.device.alloc::<f64>(256).unwrap();
    let error = unsafe { bench.try_run("pointer_params", 1, 256, &args![&a, &b, &c, 256_u32]) }.unwrap_err();
    assert!(error.to_string().contains("256 threads") && error.to_string().contains("128"), "{error}");
}

#[test]
fn a_buffer_of_another_device_is_refused() {
    let mut bench = Bench::new("basics");
    let stranger = Bench::new("basics").device.alloc::<u32>(16).unwrap();
    let error = unsafe { bench.try_run("fill_u32", 1, 1, &args![&stranger, 1_u32, 1_u32]) }.unwrap_err();
    assert!(matches!(error, Error::OtherDevice(_)), "{error}");
    assert_eq!(error.to_string(), "the buffer of argument 0 of kernel fill_u32 belongs to another device");
}

#[test]
fn files_other_than_cubins_for_this_gpu_are_refused() {
    let bench = Bench::new("basics");
    let load = |bytes: &[u8]| Program::load(&bench.device, bytes).unwrap_err().to_string();
    assert!(load(b"").contains("empty"), "{}", load(b""));
    assert!(
        load(b"#!/bin/sh\necho not a cubin at all, however long it may be").contains("not a cubin: text")
    );
    let good = test_support::cubin("basics");
    for len in [16, 64, 200, good.len() / 2] {
        assert!(Program::load(&bench.device, &good[..len]).is_err(), "cut to {len} bytes");
    }
    // The ELF flags contain the architecture: bits 7:0 real, 23:16 virtual.
    let mut hopper = good.clone();
    (hopper[48], hopper[50]) = (90, 90);
    let text = load(&hopper);
    assert!(text.contains("90") && text.contains("87"), "{text}");
}

#[test]
fn work_that_was_not_submitted_is_not_waited_for() {
    let mut bench = Bench::new("basics");
    let out = bench.device.alloc_from(&[0_u32; 4]).unwrap();
    let kernel = bench.program.kernel("fill_u32").unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 32, &args![&out, 7_u32, 4_u32]) }.unwrap();
    assert!(matches!(out.to_vec(), Err(Error::NotSubmitted)));
    bench.queue.submit().unwrap();
    assert_eq!(out.to_vec().unwrap(), [7; 4]);
}

/// A software Orin on which the exception of an SM is handled before the MMU's interrupt, and its device.
fn sm_first(late_lines: Duration) -> (SoftwareOrin, Device) {
    let faults = FaultPlan { mmu_order: MmuOrder::SmFirst, late_lines, ..FaultPlan::default() };
    let (orin, device) = test_support::try_open(Config { faults, ..test_support::config() });
    (orin, device.unwrap())
}

/// Runs a kernel that writes to an address without memory; returns the fault.
fn write_to(device: &Device, address: u64) -> Arc<Fault> {
    let program = Program::load(device, &cubin("faults")).unwrap();
    let mut queue = device.queue().unwrap();
    let kernel = program.kernel("fault_write").unwrap();
    unsafe { queue.launch(&kernel, 1, 1, &args![address, 1_u32]) }.unwrap();
    match queue.wait(TIMEOUT) {
        Err(Error::Fault(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_sm_that_reports_first_still_makes_an_mmu_fault() {
    for late in [Duration::ZERO, Duration::from_millis(60)] {
        let (orin, device) = sm_first(late);
        let fault = write_to(&device, 0x40_0000_0000);
        assert_eq!((fault.kind, fault.notifier), (FaultKind::Mmu, ErrorCode::EngineException), "{fault}");
        assert_eq!(fault.address, Some(0x40_0000_0000), "{fault}");
        assert_eq!(fault.access, Some((MmuFaultType::InvalidPde, MmuAccess::VirtWrite)), "{fault}");
        assert_eq!(fault.location.as_ref().map(|place| place.kernel.as_str()), Some("fault_write"));
        let log = orin.kernel_log().join("\n");
        let at = |text: &str| log.find(text).unwrap_or_else(|| panic!("no '{text}': {log}"));
        assert!(at("error notifier set to 13") < at("[MMU FAULT]"), "{log}");
        // The next fault is not mistaken for this one.
        let next = write_to(&device, 0x50_0000_0000);
        assert_eq!((next.kind, next.address), (FaultKind::Mmu, Some(0x50_0000_0000)), "{next}");
    }
}

#[test]
fn every_type_of_mmu_fault_reaches_the_program() {
    for (number, _, known) in MmuFaultType::ALL {
        for mmu_order in [MmuOrder::MmuFirst, MmuOrder::SmFirst] {
            let faults = FaultPlan { mmu_type: Some(*number), mmu_order, ..FaultPlan::default() };
            let (_orin, device) = test_support::try_open(Config { faults, ..test_support::config() });
            let fault = write_to(&device.unwrap(), 0x40_0000_0000);
            assert_eq!(fault.kind, FaultKind::Mmu, "{fault}");
            assert_eq!(fault.access, Some((known.clone(), MmuAccess::VirtWrite)), "{fault}");
        }
    }
}

#[test]
fn lines_that_come_too_late_leave_the_address_unknown() {
    let (_orin, device) = sm_first(Duration::from_millis(900));
    let fault = write_to(&device, 0x40_0000_0000);
    assert_eq!((fault.kind, fault.address), (FaultKind::Mmu, None), "{fault}");
    assert!(fault.pc.is_some(), "{fault}");
}

#[test]
fn the_seed_decides_which_report_of_a_refused_access_comes_first() {
    let first = |seed| {
        let (_orin, device) = test_support::try_open(Config { seed, ..test_support::config() });
        let device = device.unwrap();
        let notifiers = [0x40_0000_0000, 0x50_0000_0000, 0x60_0000_0000].map(|address| {
            let fault = write_to(&device, address);
            assert_eq!((fault.kind, fault.address), (FaultKind::Mmu, Some(address)), "seed {seed}: {fault}");
            fault.notifier
        });
        notifiers.to_vec()
    };
    assert_eq!(first(0), [ErrorCode::MmuFault; 3]);
    let all: Vec<_> = (1..6).flat_map(first).collect();
    assert!(all.contains(&ErrorCode::MmuFault) && all.contains(&ErrorCode::EngineException), "{all:?}");
    assert_eq!(first(3), first(3));
}

#[test]
fn a_panic_of_the_model_fails_each_wait_and_call_with_its_text() {
    let broken = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&broken);
    // The watcher runs on the GPU's thread.
    let watcher =
        SegmentWatcher::new(move |_, _, _| assert!(!panics.load(Ordering::Relaxed), "a broken model"));
    let (orin, device) = test_support::try_open(Config { segments: Some(watcher), ..test_support::config() });
    let device = device.unwrap();
    let program = Program::load(&device, &cubin("faults")).unwrap();
    let kernel = program.kernel("fault_write").unwrap();
    let (mut first, mut second) = (device.queue().unwrap(), device.queue().unwrap());
    let out = device.alloc_zeroed::<u32>(1).unwrap();
    broken.store(true, Ordering::Relaxed);
    let start = Instant::now();
    unsafe { first.launch(&kernel, 1, 1, &args![&out, 1_u32]) }.unwrap();
    let fence = first.submit().unwrap();
    let fault = fault(fence.wait(TIMEOUT));
    assert_eq!(fault.location.as_ref().map(|place| place.kernel.as_str()), Some("fault_write"));
    let results = [
        Err(Error::Fault(Arc::new(fault))),
        unsafe { first.launch(&kernel, 1, 1, &args![&out, 1_u32]) },
        unsafe { second.launch(&kernel, 1, 1, &args![&out, 1_u32]) }.and_then(|()| second.wait(TIMEOUT)),
        device.queue().map(drop),
        device.alloc::<u8>(1 << 30).map(drop),
        Device::open_through(Arc::new(orin.clone()), tegra_hcq::DeviceKind::Sim).map(drop),
        out.to_vec().map(drop),
        device.recover().and_then(|_| unsafe { first.launch(&kernel, 1, 1, &args![&out, 1_u32]) }),
    ];
    for (at, result) in results.into_iter().enumerate() {
        let text = result.expect_err(&format!("call {at} succeeds")).to_string();
        assert!(text.contains("a broken model") && text.contains("report it"), "{at}: {text}");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(orin.kernel_log().iter().any(|line| line.contains("a broken model")));
}
