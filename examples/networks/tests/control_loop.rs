//! A cycle of the control loop makes no system call and no allocation once warm.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use networks::control::{ControlLoop, Plan, Timing, run};
use test_support::{Bench, TIMEOUT, allocations};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

#[test]
fn a_control_loop_costs_neither() {
    let bench = Bench::spinning("basics");
    let mut control = ControlLoop::new(&bench.device, 1, 1e-3, TIMEOUT).unwrap();
    let (mut timing, done, stop) = (Timing::new(), AtomicU64::new(0), AtomicBool::new(false));
    let mut plan = Plan { cycles: 8, period: None, check_every: 1 };
    // Every instance of the graph has been used once.
    run(&mut control, &plan, &mut timing, &done, &stop).unwrap();

    let (calls, requests, allocated) = (bench.probe.calls(), bench.orin.ioctl_count(), allocations::count());
    plan = Plan { cycles: 300, period: Some(Duration::from_micros(1)), check_every: 10 };
    run(&mut control, &plan, &mut timing, &done, &stop).unwrap();
    assert_eq!(bench.probe.calls() - calls, 0, "calls through the door");
    assert_eq!(bench.orin.ioctl_count() - requests, 0, "requests that reached the kernel");
    assert_eq!(allocations::count() - allocated, 0, "allocations");
    assert_eq!((timing.cycle.len(), timing.checks, done.into_inner()), (308, 38, 300));
}
