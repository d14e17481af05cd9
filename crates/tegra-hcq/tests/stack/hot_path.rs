//! The hot path makes no system call and no allocation once warm. A probe counts the calls through the door,
//! the software Orin counts requests, and a counting allocator counts this thread's allocations.

use tegra_hcq::{QueueOptions, WaitPolicy, args};
use test_support::{Bench, TIMEOUT, allocations};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

#[test]
fn the_counting_allocator_counts() {
    let before = allocations::count();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocations::count() - before, 1);
}

/// Does the work, which must make no call through the door and no allocation.
fn costs_neither(bench: &mut Bench, work: impl FnOnce(&mut Bench)) {
    let (calls, allocated) = (bench.probe.calls(), allocations::count());
    work(bench);
    assert_eq!(bench.probe.calls() - calls, 0, "calls through the door");
    assert_eq!(allocations::count() - allocated, 0, "allocations");
}

#[test]
fn launch_submit_and_wait_make_no_system_call_and_no_allocation() {
    let mut bench = Bench::spinning("basics");
    let data = bench.device.alloc_from(&[0_u32; 64]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    unsafe { bench.run("increment", 2, 32, &args![&data, 64_u32]) };

    let (calls, requests, allocated) = (bench.probe.calls(), bench.orin.ioctl_count(), allocations::count());
    // Three times around the ring of 1024 entries.
    for _ in 0..3072 {
        unsafe { bench.queue.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
        unsafe { bench.queue.launch(&kernel, 1, 32, &args![&data, 64_u32]) }.unwrap();
        bench.queue.submit().unwrap().wait(TIMEOUT).unwrap();
    }
    assert_eq!(bench.probe.calls() - calls, 0, "calls through the door");
    assert_eq!(bench.orin.ioctl_count() - requests, 0, "requests that reached the kernel");
    assert_eq!(allocations::count() - allocated, 0, "allocations");

    let before = bench.probe.calls();
    let got = data.to_vec().unwrap();
    assert_eq!((got[0], got[63]), (1 + 2 * 3072, 1 + 3072));
    assert_eq!(bench.probe.calls(), before, "reading a buffer is a plain memory copy");
    drop(bench.device.alloc::<u32>(1 << 20).unwrap());
    assert!(bench.probe.calls() > before, "the counter counts");
}

#[test]
fn work_by_address_costs_neither() {
    let options = QueueOptions::default().wait(WaitPolicy::Spin).any_memory(true);
    let mut bench = Bench::with_options("basics", &options);
    let (data, copy) =
        (bench.device.alloc_from(&[0_u32; 64]).unwrap(), bench.device.alloc::<u32>(64).unwrap());
    let kernel = bench.program.kernel("increment").unwrap();
    let block = [&data.gpu_va().to_le_bytes()[..], &64_u32.to_le_bytes()].concat();
    let round = |bench: &mut Bench| {
        unsafe { bench.queue.launch_raw(&kernel, 2, 32, 0, &block) }.unwrap();
        unsafe { bench.queue.copy_raw(data.gpu_va(), copy.gpu_va(), 256) }.unwrap();
        unsafe { bench.queue.fill_raw(data.gpu_va() + 4, 9_u16, 2) }.unwrap();
        bench.queue.submit().unwrap().wait(TIMEOUT).unwrap();
        drop(bench.device.alloc::<u32>(64).unwrap());
    };
    round(&mut bench);
    costs_neither(&mut bench, |bench| {
        for _ in 0..1500 {
            round(bench);
        }
    });
    assert_eq!(copy.to_vec().unwrap()[..3], [1501, 0x0009_000a, 1501]);
}

#[test]
fn time_stamps_cost_neither() {
    let mut bench = Bench::spinning("basics");
    let round = |bench: &mut Bench| {
        let signals = [0, 1].map(|value| bench.device.signal(value).unwrap());
        for signal in &signals {
            bench.queue.timestamp(signal, 7).unwrap();
            bench.queue.submit().unwrap();
        }
        bench.queue.wait(TIMEOUT).unwrap();
        assert!(signals[0].gpu_time_ns() <= signals[1].gpu_time_ns() && signals[0].gpu_time_ns() > 0);
    };
    round(&mut bench);
    costs_neither(&mut bench, |bench| {
        for _ in 0..1500 {
            round(bench);
        }
    });
}

#[test]
fn copies_are_as_cheap_as_launches() {
    let mut bench = Bench::spinning("basics");
    let a = bench.device.alloc_from(&[7_u8; 4096]).unwrap();
    let mut b = bench.device.alloc_from(&[0_u8; 4096]).unwrap();
    bench.queue.copy(&a, &mut b).unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    costs_neither(&mut bench, |bench| {
        for _ in 0..1500 {
            bench.queue.copy(&a, &mut b).unwrap();
            bench.queue.submit().unwrap().wait(TIMEOUT).unwrap();
        }
    });
}

#[test]
fn a_replayed_graph_costs_neither() {
    let mut bench = Bench::spinning("basics");
    let data = bench.device.alloc_from(&[0_u32; 64]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    let first = unsafe { builder.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    unsafe { builder.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();
    // Every instance has been used once.
    for _ in 0..8 {
        bench.queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    }
    costs_neither(&mut bench, |bench| {
        for round in 0..1500_u32 {
            unsafe { graph.set_argument(first, 1, 32 + round % 32) }.unwrap();
            bench.queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
        }
    });
    assert_eq!(data.to_vec().unwrap()[0], 2 * 1508);
}

#[test]
fn a_profile_costs_no_system_call_and_nothing_once_it_is_off() {
    let mut bench = Bench::spinning("basics");
    let data = bench.device.alloc_from(&[0_u32; 64]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    bench.queue.profile(true).unwrap();
    unsafe { bench.run("increment", 2, 32, &args![&data, 64_u32]) };
    let calls = bench.probe.calls();
    for _ in 0..1500 {
        unsafe { bench.queue.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
        bench.queue.submit().unwrap().wait(TIMEOUT).unwrap();
    }
    assert_eq!(bench.probe.calls() - calls, 0, "calls through the door");
    bench.queue.profile(false).unwrap();
    assert_eq!(bench.queue.take_profile().unwrap().spans.len(), 1501);

    costs_neither(&mut bench, |bench| {
        for _ in 0..1500 {
            unsafe { bench.queue.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
            bench.queue.submit().unwrap().wait(TIMEOUT).unwrap();
        }
    });
}

#[test]
fn buffers_are_recycled_without_either() {
    let bench = Bench::spinning("basics");
    for elements in [16_usize, 5000, 1 << 20] {
        drop(bench.device.alloc::<u32>(elements).unwrap());
        let (calls, allocated) = (bench.probe.calls(), allocations::count());
        for _ in 0..100 {
            drop(bench.device.alloc::<u32>(elements).unwrap());
        }
        assert_eq!(bench.probe.calls() - calls, 0, "calls through the door, {elements} elements");
        assert_eq!(allocations::count() - allocated, 0, "allocations, {elements} elements");
    }
}
