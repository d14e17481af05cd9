//! Fault reports, and recovery after a fault.

use std::time::Duration;

use orin_sim::Config;
use tegra_hcq::{Error, Fault, FaultKind, Program, args};
use test_support::{Bench, TIMEOUT, assert_live, cubin, try_open};

fn fault(result: Result<(), Error>) -> Fault {
    match result.unwrap_err() {
        Error::Fault(fault) => (*fault).clone(),
        other => panic!("expected a fault: {other}"),
    }
}

#[test]
fn a_report_names_buffer_distance_launch_and_commands() {
    let mut bench = Bench::new("faults");
    // Larger than a slab, so the memory after it is not mapped.
    let len = 3 << 20;
    let weights = bench.device.alloc::<u8>(len).unwrap().named("weights");
    let address = weights.gpu_va() + len as u64;
    let result = unsafe { bench.try_run("fault_write", 3, (2, 1, 1), &args![address + 0x2000, 1_u32]) };
    let fault = fault(result);
    assert_eq!(
        fault.grid.map(|(grid, block)| (grid.to_array(), block.to_array())),
        Some(([3, 1, 1], [2, 1, 1]))
    );
    let near = fault.nearest.as_ref().unwrap();
    assert_eq!((near.name.as_str(), near.bytes), ("weights", len as u64));
    let text = fault.to_string();
    assert!(text.contains("8192 bytes past the end of weights"), "{text}");
    assert!(text.contains("kernel fault_write") && text.contains("grid 3x1x1"), "{text}");
    let last = fault.submissions.iter().rev().find(|submission| !submission.launches.is_empty()).unwrap();
    let text = last.text();
    assert!(text.contains("SEND_PCAS_A") && text.contains("kernel fault_write, grid 3x1x1"), "{text}");
    assert!(last.launches[0].text().contains("CTA_RASTER_WIDTH"), "{}", last.launches[0].text());
}

#[test]
fn a_recovered_queue_continues_and_old_fences_still_report_the_fault() {
    let mut bench = Bench::new("faults");
    let data = bench.device.alloc_from(&[5_u32; 4]).unwrap();
    let out = bench.device.alloc_zeroed::<u32>(4).unwrap();
    let good = bench.program.kernel("fault_no_bound").unwrap();
    let bad = bench.program.kernel("fault_write").unwrap();
    unsafe { bench.queue.launch(&good, 1, 4, &args![&data, &out]) }.unwrap();
    let ended = bench.queue.submit().unwrap();
    ended.wait(TIMEOUT).unwrap();
    unsafe { bench.queue.launch(&bad, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
    let faulted = bench.queue.submit().unwrap();
    unsafe { bench.queue.launch(&good, 1, 4, &args![&data, &out]) }.unwrap();
    let behind = bench.queue.submit().unwrap();
    let first = fault(faulted.wait(TIMEOUT));
    assert_eq!(fault(behind.wait(TIMEOUT)), first);
    assert!(matches!(out.to_vec(), Err(Error::Fault(_))), "the work that writes it was lost");

    for round in 0..3 {
        let recovery = bench.device.recover().unwrap();
        assert_eq!(recovery.faults.len(), usize::from(round == 0), "only once");
        assert_eq!(out.to_vec().unwrap(), [5; 4], "buffers survive");
        ended.wait(TIMEOUT).unwrap();
        assert_eq!(fault(faulted.wait(TIMEOUT)), first, "lost work stays lost");
        assert_eq!(fault(behind.wait(TIMEOUT)), first);
    }
    for value in 0..100_u32 {
        let data = bench.device.alloc_from(&[value; 4]).unwrap();
        unsafe { bench.queue.launch(&good, 1, 4, &args![&data, &out]) }.unwrap();
        bench.queue.submit().unwrap().wait(TIMEOUT).unwrap();
        assert_eq!(out.to_vec().unwrap(), [value; 4]);
    }
    assert!(bench.device.recover().unwrap().is_empty());
    assert_eq!(fault(behind.wait(TIMEOUT)), first);
}

#[test]
fn a_wait_without_new_work_succeeds_after_a_recovery() {
    let mut bench = Bench::new("faults");
    let bad = bench.program.kernel("fault_write").unwrap();
    for _ in 0..2 {
        unsafe { bench.queue.launch(&bad, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
        fault(bench.queue.wait(TIMEOUT));
        fault(bench.queue.wait(TIMEOUT));
        bench.device.recover().unwrap();
        bench.queue.wait(TIMEOUT).unwrap();
        bench.queue.submit().unwrap().wait(TIMEOUT).unwrap();
    }
}

#[test]
fn a_hanging_kernel_is_stopped_and_the_queue_continues() {
    let mut bench = Bench::new("faults");
    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    let out = bench.device.alloc_zeroed::<u32>(1).unwrap();
    let endless = bench.program.kernel("fault_endless").unwrap();
    unsafe { bench.queue.launch(&endless, 1, 1, &args![&stop, &out]) }.unwrap();
    let fence = bench.queue.submit().unwrap();
    assert!(matches!(fence.wait(Duration::from_millis(100)), Err(Error::Timeout { .. })));
    let recovery = bench.device.recover().unwrap();
    assert_eq!((recovery.hanging, recovery.faults.len()), (1, 0));
    let lost = fault(fence.wait(TIMEOUT));
    assert_eq!(lost.kind, FaultKind::Abandoned);
    assert!(lost.to_string().contains("fault_endless"), "{lost}");
    let data = bench.device.alloc_from(&[6_u32]).unwrap();
    unsafe { bench.run("fault_no_bound", 1, 1, &args![&data, &out]) };
    assert_eq!(out.to_vec().unwrap(), [6]);
}

#[test]
fn an_interrupted_wait_ends_at_once_and_its_work_counts_as_hanging() {
    thread_local! { static ASKED: core::cell::Cell<u32> = const { core::cell::Cell::new(0) }; }
    let bench = Bench::new("faults");
    let mut other = bench.device.queue().unwrap();
    let (stop, out) = (bench.device.alloc_zeroed::<u32>(1).unwrap(), bench.device.alloc::<u32>(1).unwrap());
    let endless = bench.program.kernel("fault_endless").unwrap();
    unsafe { other.launch(&endless, 1, 1, &args![&stop, &out]) }.unwrap();
    let fence = other.submit().unwrap();
    tegra_hcq::set_interrupt(Some(|| ASKED.replace(ASKED.get() + 1) == 2));
    let start = std::time::Instant::now();
    assert!(matches!(fence.wait(TIMEOUT), Err(Error::Interrupted)));
    assert_eq!(ASKED.get(), 3, "the wait goes on until the answer is yes");
    ASKED.set(2);
    assert!(matches!(out.wait(TIMEOUT), Err(Error::Interrupted)));
    assert!(tegra_hcq::set_interrupt(None).is_some());
    assert_eq!(bench.device.recover().unwrap().hanging, 1);
    unsafe { other.launch(&endless, 1, 1, &args![&stop, &out]) }.unwrap();
    other.submit().unwrap();
    ASKED.set(2);
    tegra_hcq::set_interrupt(Some(|| ASKED.replace(ASKED.get() + 1) == 2));
    drop(other);
    tegra_hcq::set_interrupt(None);
    assert!(start.elapsed() < Duration::from_secs(10), "an interrupted drop does not wait for its work");
}

#[test]
fn a_hundred_faults_do_not_leak() {
    let mut bench = Bench::new("faults");
    let out = bench.device.alloc_zeroed::<u32>(1).unwrap();
    let data = bench.device.alloc_from(&[7_u32]).unwrap();
    let mut first = None;
    for round in 0..100_u64 {
        let address = 0x40_0000_0000 + round * 0x1000;
        let fault = fault(unsafe { bench.try_run("fault_write", 1, 1, &args![address, 1_u32]) });
        assert_eq!((fault.kind, fault.address), (FaultKind::Mmu, Some(address)));
        bench.device.recover().unwrap();
        unsafe { bench.run("fault_no_bound", 1, 1, &args![&data, &out]) };
        assert_eq!(out.to_vec().unwrap(), [7]);
        bench.device.trim();
        let live = bench.orin.live();
        assert_live(&bench.orin, *first.get_or_insert(live));
    }
}

#[test]
fn other_queues_are_unaffected() {
    let mut bench = Bench::new("faults");
    let mut other = bench.device.queue().unwrap();
    let data = bench.device.alloc_from(&[1_u32]).unwrap();
    let out = bench.device.alloc_zeroed::<u32>(1).unwrap();
    let good = bench.program.kernel("fault_no_bound").unwrap();
    for _ in 0..10 {
        unsafe { other.launch(&good, 1, 1, &args![&data, &out]) }.unwrap();
        let fence = other.submit().unwrap();
        fault(unsafe { bench.try_run("fault_write", 1, 1, &args![0x40_0000_0000_u64, 1_u32]) });
        fence.wait(TIMEOUT).unwrap();
        bench.device.recover().unwrap();
        unsafe { other.launch(&good, 1, 1, &args![&data, &out]) }.unwrap();
        other.wait(TIMEOUT).unwrap();
    }
}

#[test]
fn out_of_memory_is_an_error_with_figures() {
    let (_orin, device) = try_open(Config { memory_bytes: 256 << 20, ..test_support::config() });
    let device = device.unwrap();
    let program = Program::load(&device, &cubin("basics")).unwrap();
    let mut queue = device.queue().unwrap();
    let mut kept = Vec::new();
    let error = loop {
        match device.alloc::<u8>(16 << 20) {
            Ok(buffer) => kept.push(buffer),
            Err(error) => break error,
        }
        assert!(kept.len() < 16, "256 MiB cannot hold that much");
    };
    let Error::OutOfMemory { wanted, in_use, memory, .. } = &error else { panic!("{error}") };
    assert_eq!(*wanted, 16 << 20);
    assert!(*in_use >= (kept.len() as u64) << 24 && memory.is_some(), "{error}");
    // Idle memory of another size is freed for the request.
    kept.truncate(1);
    let large = device.alloc::<u8>(100 << 20).unwrap();
    let out = device.alloc::<u32>(4).unwrap();
    unsafe { queue.launch(&program.kernel("fill_u32").unwrap(), 1, 4, &args![&out, 3_u32, 4_u32]) }.unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), [3; 4]);
    drop((large, kept));
}

#[test]
fn a_queue_that_waits_for_lost_work_continues_after_a_recovery() {
    let mut bench = Bench::new("faults");
    let mut other = bench.device.queue().unwrap();
    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    let data = bench.device.alloc_from(&[3_u32]).unwrap();
    let (ignored, out) =
        (bench.device.alloc_zeroed::<u32>(1).unwrap(), bench.device.alloc_zeroed::<u32>(1).unwrap());
    let endless = bench.program.kernel("fault_endless").unwrap();
    let good = bench.program.kernel("fault_no_bound").unwrap();
    unsafe { bench.queue.launch(&endless, 1, 1, &args![&stop, &ignored]) }.unwrap();
    let lost = bench.queue.submit().unwrap();
    other.wait_fence(&lost).unwrap();
    unsafe { other.launch(&good, 1, 1, &args![&data, &out]) }.unwrap();
    let fence = other.submit().unwrap();
    assert!(lost.wait(Duration::from_millis(50)).is_err());
    assert!(!fence.is_done(), "it waits for hanging work");
    bench.device.recover().unwrap();
    fence.wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), [3]);
}

#[test]
fn a_graph_whose_replay_was_lost_can_be_replayed_after_a_recovery() {
    let mut bench = Bench::new("faults");
    let mut other = bench.device.queue().unwrap();
    let data = bench.device.alloc_from(&[3_u32]).unwrap();
    let out = bench.device.alloc_zeroed::<u32>(1).unwrap();
    let good = bench.program.kernel("fault_no_bound").unwrap();
    let mut builder = bench.device.graph();
    builder.instances(1).unwrap();
    unsafe { builder.launch(&good, 1, 1, &args![&data, &out]) }.unwrap();
    let mut graph = builder.build().unwrap();
    let bad = bench.program.kernel("fault_write").unwrap();
    unsafe { bench.queue.launch(&bad, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
    let lost = bench.queue.replay(&mut graph).unwrap();
    let first = fault(lost.wait(TIMEOUT));
    assert_eq!(fault(other.replay(&mut graph).map(drop)), first, "its only instance is lost");
    bench.device.recover().unwrap();
    other.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), [3]);
}

/// The machine has one kernel log; a report takes the lines of its own queue only.
#[test]
fn concurrent_faults_of_several_queues_are_distinguished() {
    let mut bench = Bench::new("faults");
    let mut other = bench.device.queue().unwrap();
    let read = bench.program.kernel("fault_read").unwrap();
    let write = bench.program.kernel("fault_write").unwrap();
    let out = bench.device.alloc::<u32>(1).unwrap();
    for round in 0..20_u64 {
        let (first, second) = (0x40_0000_0000 + round * 0x1000, 0x50_0000_0000 + round * 0x1000);
        unsafe { bench.queue.launch(&read, 1, 1, &args![first, &out]) }.unwrap();
        let reading = bench.queue.submit().unwrap();
        unsafe { other.launch(&write, 1, 1, &args![second, 1_u32]) }.unwrap();
        let writing = other.submit().unwrap();
        // Both faults happen before either is read, so the log contains both.
        while bench.orin.kernel_log().iter().filter(|line| line.contains("[MMU FAULT] mmu")).count()
            < 2 * (round as usize + 1)
        {
            std::thread::yield_now();
        }
        let facts = |fault: Fault| (fault.kind, fault.address, fault.location.unwrap().kernel);
        assert_eq!(
            facts(fault(writing.wait(TIMEOUT))),
            (FaultKind::Mmu, Some(second), "fault_write".to_owned())
        );
        assert_eq!(
            facts(fault(reading.wait(TIMEOUT))),
            (FaultKind::Mmu, Some(first), "fault_read".to_owned())
        );
        assert_eq!(bench.device.recover().unwrap().faults.len(), 2);
    }
}

/// A time-out reports its own log lines and leaves another queue's fault to that queue.
#[test]
fn a_time_out_does_not_take_the_report_of_another_queue() {
    let mut bench = Bench::new("faults");
    let mut other = bench.device.queue().unwrap();
    let endless = bench.program.kernel("fault_endless").unwrap();
    let write = bench.program.kernel("fault_write").unwrap();
    let (stop, out) = (bench.device.alloc_zeroed::<u32>(1).unwrap(), bench.device.alloc::<u32>(1).unwrap());
    unsafe { bench.queue.launch(&endless, 1, 1, &args![&stop, &out]) }.unwrap();
    let hanging = bench.queue.submit().unwrap();
    unsafe { other.launch(&write, 1, 1, &args![0x40_0000_5000_u64, 1_u32]) }.unwrap();
    let faulting = other.submit().unwrap();
    while !bench.orin.kernel_log().iter().any(|line| line.contains("error notifier set to 31")) {
        std::thread::yield_now();
    }
    assert!(matches!(hanging.wait(Duration::from_millis(20)), Err(Error::Timeout { .. })));
    assert_eq!(fault(faulting.wait(TIMEOUT)).address, Some(0x40_0000_5000));
    let recovery = bench.device.recover().unwrap();
    assert_eq!((recovery.hanging, recovery.faults.len()), (1, 1));
}

/// A channel reuses the id of one that faulted earlier; the log's lines about the earlier one are not its
/// own.
#[test]
fn a_silent_fault_has_no_address_of_an_earlier_one() {
    let mut bench = Bench::new("faults");
    let write = bench.program.kernel("fault_write").unwrap();
    unsafe { bench.queue.launch(&write, 1, 1, &args![0x40_0000_5000_u64, 1_u32]) }.unwrap();
    bench.queue.submit().unwrap();
    while !bench.orin.kernel_log().iter().any(|line| line.contains("error notifier set to 31")) {
        std::thread::yield_now();
    }
    // The fate of this queue is never queried.
    drop(std::mem::replace(&mut bench.queue, bench.device.queue().unwrap()));
    bench.queue = bench.device.queue().unwrap();
    bench.orin.silence_faults(true);
    let silent = fault(unsafe { bench.try_run("fault_write", 1, 1, &args![0x41_0000_0000_u64, 1_u32]) });
    assert_eq!((silent.kind, silent.address), (FaultKind::Mmu, None));
    // The driver's own requests still report the instruction.
    let location = silent.location.unwrap();
    assert!(silent.pc.is_some() && location.kernel == "fault_write" && location.offset > 0, "{location:?}");
}

/// Each thread has a queue that faults, and recovers the device; no thread stops what another has just set
/// up.
#[test]
fn recoveries_of_several_threads_do_not_disturb_each_other() {
    let bench = Bench::new("faults");
    let (device, program) = (&bench.device, &bench.program);
    let recovered: usize = std::thread::scope(|scope| {
        let run = |number: u64| {
            let mut queue = device.queue().unwrap();
            let write = program.kernel("fault_write").unwrap();
            let good = program.kernel("fault_no_bound").unwrap();
            let out = device.alloc_zeroed::<u32>(4).unwrap();
            let mut recovered = 0;
            for round in 0..100_u32 {
                let address = 0x40_0000_0000 + (number << 32) + u64::from(round) * 0x1000;
                unsafe { queue.launch(&write, 1, 1, &args![address, 1_u32]) }.unwrap();
                let report = fault(queue.submit().unwrap().wait(TIMEOUT));
                assert_eq!(report.address, Some(address));
                recovered += device.recover().unwrap().faults.len();
                for value in round..round + 3 {
                    let data = device.alloc_from(&[value; 4]).unwrap();
                    unsafe { queue.launch(&good, 1, 4, &args![&data, &out]) }.unwrap();
                    queue.submit().unwrap().wait(TIMEOUT).unwrap();
                    assert_eq!(out.to_vec().unwrap(), [value; 4]);
                }
            }
            recovered
        };
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(recovered, 400, "each fault is reported by one recovery");
}

/// A queue hangs only until the awaited work has ended, whichever thread notices; then a recovery leaves it
/// alone.
#[test]
fn work_that_ends_late_is_no_hang() {
    let mut bench = Bench::new("faults");
    let mut writer = bench.device.queue().unwrap();
    let store = bench.program.kernel("fault_write").unwrap();
    fault(unsafe { bench.try_run("fault_write", 1, 1, &args![0x40_0000_0000_u64, 1_u32]) });
    bench.device.recover().unwrap();
    let (stop, out) = (bench.device.alloc_zeroed::<u32>(1).unwrap(), bench.device.alloc::<u32>(4).unwrap());
    let data = bench.device.alloc_from(&[6_u32; 4]).unwrap();
    let good = bench.program.kernel("fault_no_bound").unwrap();
    unsafe { bench.queue.launch(&good, 1, 4, &args![&data, &out]) }.unwrap();
    let between = bench.queue.submit().unwrap();
    between.wait(TIMEOUT).unwrap();
    // The wait times out; then the kernel completes.
    let endless = bench.program.kernel("fault_endless").unwrap();
    unsafe { bench.queue.launch(&endless, 1, 1, &args![&stop, &out]) }.unwrap();
    let late = bench.queue.submit().unwrap();
    assert!(matches!(late.wait(Duration::from_millis(30)), Err(Error::Timeout { .. })));
    unsafe { writer.launch(&store, 1, 1, &args![stop.gpu_va(), 1_u32]) }.unwrap();
    writer.wait(TIMEOUT).unwrap();
    while !late.is_done() {
        std::thread::yield_now();
    }
    stop.wait(TIMEOUT).unwrap();
    let again = bench.device.alloc_zeroed::<u32>(1).unwrap();
    unsafe { bench.queue.launch(&endless, 1, 1, &args![&again, &out]) }.unwrap();
    let running = bench.queue.submit().unwrap();
    assert!(bench.device.recover().unwrap().is_empty(), "no wait for the running work has timed out");
    unsafe { writer.launch(&store, 1, 1, &args![again.gpu_va(), 1_u32]) }.unwrap();
    writer.wait(TIMEOUT).unwrap();
    running.wait(TIMEOUT).unwrap();
    late.wait(TIMEOUT).unwrap();
    between.wait(TIMEOUT).unwrap();
}

/// Work submitted while another thread recovers the queue is lost as well, and reports that at once.
#[test]
fn a_wait_for_a_submission_during_a_recovery_does_not_hang() {
    let mut bench = Bench::new("faults");
    let good = bench.program.kernel("fault_no_bound").unwrap();
    let bad = bench.program.kernel("fault_write").unwrap();
    let (data, out) = (bench.device.alloc_from(&[6_u32; 4]).unwrap(), bench.device.alloc::<u32>(4).unwrap());
    for round in 0..300_u64 {
        unsafe { bench.queue.launch(&bad, 1, 1, &args![0x40_0000_0000 + round * 0x1000, 1_u32]) }.unwrap();
        bench.queue.submit().unwrap();
        let (device, queue) = (&bench.device, &mut bench.queue);
        let last = std::thread::scope(|scope| {
            let recovering = scope.spawn(|| while device.recover().unwrap().is_empty() {});
            let mut last = None;
            while !recovering.is_finished() {
                let launched = unsafe { queue.launch(&good, 1, 4, &args![&data, &out]) };
                match launched.and_then(|()| queue.submit()) {
                    Ok(fence) => last = Some(fence),
                    Err(Error::Fault(_)) => break,
                    Err(other) => panic!("round {round}: {other}"),
                }
            }
            last
        });
        match last.map(|fence| fence.wait(TIMEOUT)) {
            None | Some(Ok(()) | Err(Error::Fault(_))) => {}
            Some(other) => panic!("round {round}: {other:?}"),
        }
        bench.device.recover().unwrap();
    }
}

/// A queue with many faults does not accumulate memory; its old fences still report the cause.
#[test]
fn old_reports_keep_kind_and_place_without_log_and_commands() {
    let mut bench = Bench::new("faults");
    let write = bench.program.kernel("fault_write").unwrap();
    let mut fences = Vec::new();
    for round in 0..40_u64 {
        let address = 0x40_0000_0000 + round * 0x1000;
        unsafe { bench.queue.launch(&write, 1, 1, &args![address, 1_u32]) }.unwrap();
        let fence = bench.queue.submit().unwrap();
        assert!(!fault(fence.wait(TIMEOUT)).submissions.is_empty());
        bench.device.recover().unwrap();
        fences.push((address, fence));
    }
    for (age, (address, fence)) in fences.into_iter().rev().enumerate() {
        let report = fault(fence.wait(TIMEOUT));
        assert_eq!((report.kind, report.address), (FaultKind::Mmu, Some(address)));
        assert_eq!(report.location.unwrap().kernel, "fault_write");
        assert_eq!(
            (report.submissions.is_empty(), report.log.unwrap().is_empty()),
            (age >= 16, age >= 16),
            "{age}"
        );
    }
}
