//! A driver outside `tegra-hcq` runs kernels, copies, faults and queues, and sees the expected calls.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use std::sync::Arc;

use orin_sim::SoftwareOrin;
use tegra_hcq::{Device, DeviceKind, Error, FaultKind, Program, QueueOptions, WaitPolicy, args};
use test_support::counting_driver::{Calls, Counting, Counts};
use test_support::{TIMEOUT, cubin};

/// A device with a counting driver on top of the software Orin's driver.
fn device() -> (Device, Counts) {
    let orin = SoftwareOrin::from_environment().unwrap();
    let driver = Device::driver_through(Arc::new(orin), DeviceKind::Sim).unwrap();
    let (driver, counts) = Counting::new(driver);
    (Device::with_driver(Box::new(driver)).unwrap(), counts)
}

fn spinning() -> QueueOptions {
    QueueOptions::default().wait(WaitPolicy::Spin)
}

#[test]
fn a_launch_makes_no_call_of_the_driver() {
    let (device, counts) = device();
    assert_eq!(device.info().kind, DeviceKind::Other);
    let (program, loading) = counts.during(|| Program::load(&device, &cubin("basics")).unwrap());
    assert_eq!(loading.opened_groups, 0, "a program needs no channels: {loading:?}");
    let (mut queue, opening) = counts.during(|| device.queue_with(&spinning()).unwrap());
    assert_eq!(opening.opened_groups, 1, "{opening:?}");
    let kernel = program.kernel("increment").unwrap();
    let data = device.alloc_from(&[0_u32; 64]).unwrap();
    unsafe { queue.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    queue.wait(TIMEOUT).unwrap();
    for _ in 0..100 {
        let (fence, launching) = counts.during(|| {
            unsafe { queue.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
            queue.submit().unwrap()
        });
        assert_eq!(launching, Calls::default());
        // A long wait reads the group's error, which is not a request.
        let (result, waiting) = counts.during(|| fence.wait(TIMEOUT));
        result.unwrap();
        assert_eq!(waiting.total(), waiting.error_queries, "{waiting:?}");
    }
    assert_eq!(data.to_vec().unwrap(), [101; 64]);
}

#[test]
fn a_copy_opens_no_channels_and_memory_is_released() {
    let (device, counts) = device();
    let mut queue = device.queue_with(&spinning()).unwrap();
    let words: Vec<u32> = (0..10_000).collect();
    let ((from, mut to), allocating) = counts
        .during(|| (device.alloc_from(&words).unwrap(), device.alloc_zeroed::<u32>(words.len()).unwrap()));
    assert!(allocating.allocations >= 1 && allocating.opened_groups == 0, "{allocating:?}");
    queue.copy(&from, &mut to).unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(to.to_vec().unwrap(), words);
    let (_, copying) = counts.during(|| {
        queue.copy(&to, &mut device.alloc::<u32>(words.len()).unwrap()).unwrap();
        queue.wait(TIMEOUT).unwrap();
    });
    assert_eq!((copying.opened_groups, copying.aborts, copying.log_reads), (0, 0, 0), "{copying:?}");
    drop((from, to, queue, device));
    let end = counts.now();
    assert_eq!(end.allocations, end.frees, "{end:?}");
    assert_eq!(end.opened_groups, end.closed_groups, "{end:?}");
}

#[test]
fn a_fault_is_read_and_recovered_through_the_driver() {
    let (device, counts) = device();
    let program = Program::load(&device, &cubin("faults")).unwrap();
    let mut queue = device.queue_with(&spinning()).unwrap();
    let kernel = program.kernel("fault_write").unwrap();
    let (error, faulting) = counts.during(|| {
        unsafe { queue.launch(&kernel, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
        queue.wait(TIMEOUT).unwrap_err()
    });
    let Error::Fault(fault) = error else { panic!("{error}") };
    assert_eq!((fault.kind, fault.address), (FaultKind::Mmu, Some(0x40_0000_0000)));
    assert!(faulting.error_queries >= 1 && faulting.log_reads >= 1, "{faulting:?}");
    assert!(faulting.evidence_queries >= 1, "{faulting:?}");
    assert_eq!(faulting.opened_groups, 0, "{faulting:?}");

    let data = device.alloc_from(&[5_u32]).unwrap();
    let kernel = program.kernel("fault_no_bound").unwrap();
    let ((), recovering) = counts.during(|| {
        device.recover().unwrap();
        unsafe { queue.launch(&kernel, 1, 1, &args![&data, &data]) }.unwrap();
        queue.wait(TIMEOUT).unwrap();
    });
    assert_eq!((recovering.aborts, recovering.opened_groups), (1, 1), "{recovering:?}");
    assert_eq!(counts.now().opened_groups - counts.now().closed_groups, 1, "{:?}", counts.now());
}

#[test]
fn a_dropped_queue_closes_its_channels() {
    let (device, counts) = device();
    let queues: Vec<_> = (0..3).map(|_| device.queue().unwrap()).collect();
    assert_eq!(counts.now().opened_groups - counts.now().closed_groups, 3, "{:?}", counts.now());
    let ((), dropping) = counts.during(|| drop(queues));
    assert_eq!((dropping.closed_groups, dropping.opened_groups, dropping.aborts), (3, 0, 0), "{dropping:?}");
}

#[test]
fn a_queue_whose_work_cannot_be_aborted_closes_its_channels_before_it_completes_its_timeline() {
    let (device, counts) = device();
    let program = Program::load(&device, &cubin("faults")).unwrap();
    let options = spinning().timeout(std::time::Duration::from_millis(20));
    let mut queue = device.queue_with(&options).unwrap();
    let (stop, out) = (device.alloc_from(&[0_u32]).unwrap(), device.alloc_zeroed::<u32>(1).unwrap());
    let kernel = program.kernel("fault_endless").unwrap();
    unsafe { queue.launch(&kernel, 1, 1, &args![&stop, &out]) }.unwrap();
    queue.submit().unwrap();
    counts.refuse_aborts();
    // The kernel still runs. The timeline is completed after the group is dropped, and the memory that the kernel uses
    // may then be given to others.
    let ((), dropping) = counts.during(|| drop(queue));
    assert_eq!(
        (dropping.aborts, dropping.closed_groups, dropping.groups_left_open),
        (1, 1, 0),
        "{dropping:?}"
    );
}

#[test]
fn every_counter_counts() {
    let (device, counts) = device();
    let (_, asking) = counts.during(|| device.memory());
    assert_eq!((asking.other_queries, asking.total()), (1, 1), "{asking:?}");
    // A waiting queue sleeps in the driver while a kernel runs.
    let program = Program::load(&device, &cubin("faults")).unwrap();
    let mut queue = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Sleep)).unwrap();
    let (stop, out) = (device.alloc_from(&[0_u32]).unwrap(), device.alloc_zeroed::<u32>(1).unwrap());
    let kernel = program.kernel("fault_endless").unwrap();
    unsafe { queue.launch(&kernel, 1, 1, &args![&stop, &out]) }.unwrap();
    let (result, waiting) = counts.during(|| queue.wait(std::time::Duration::from_millis(50)));
    assert!(result.is_err() && waiting.sleeps >= 1, "{result:?} {waiting:?}");
    let (recovery, stopping) = counts.during(|| device.recover());
    recovery.unwrap();
    assert!(stopping.aborts >= 1, "{stopping:?}");
}
