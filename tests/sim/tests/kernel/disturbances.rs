//! Injected disturbances: each has its effect, and no other.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use crate::support::*;
use kernel_door::{DoorFd, DoorMapping, Errno};
use nvgpu_sys::{channel, ctrl, nvmap, tsg};
use orin_sim::{Config, FaultPlan, LiveCounts, RandomFailures, Stall};

/// A channel that writes semaphores.
struct Worker {
    chain: Chain,
    ring: DoorMapping,
    userd: DoorMapping,
    doorbell: DoorMapping,
    buffer: DoorFd,
    memory: DoorMapping,
    va: u64,
}

impl Worker {
    fn new(bench: &Bench) -> Self {
        let chain = bench.chain();
        let (ring, userd, doorbell) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096), bench.doorbell());
        let buffer = bench.buffer(4096);
        let (memory, va) = (cpu(&buffer, 4096), map(&chain.space, &buffer).unwrap());
        Self { chain, ring, userd, doorbell, buffer, memory, va }
    }

    /// Submits a release of `value` to `target`.
    fn release(&self, target: u64, value: u32) {
        let words = [0x2005_0017, target as u32, (target >> 32) as u32, value, 0, 1];
        for (at, value) in words.into_iter().enumerate() {
            word(&self.memory, 4 * at).store(value, Ordering::Relaxed);
        }
        submit(&self.ring, &self.userd, &self.doorbell, self.chain.token, self.va, 6);
    }

    fn value(&self) -> u32 {
        word(&self.memory, 0x800).load(Ordering::Acquire)
    }

    fn semaphore(&self) -> u64 {
        self.va + 0x800
    }
}

fn with(faults: FaultPlan) -> Bench {
    Bench::with(Config { faults, ..Config::default() })
}

/// Long compared with the model's time for a submission.
const WHILE: Duration = Duration::from_millis(60);

#[test]
fn the_first_request_pays_for_the_power_up() {
    let bench = with(FaultPlan { power_up: WHILE, ..FaultPlan::default() });
    let begun = Instant::now();
    bench.tsg();
    assert!(begun.elapsed() >= WHILE);
    let begun = Instant::now();
    bench.tsg();
    assert!(begun.elapsed() < WHILE);
    bench.orin.power_down(WHILE);
    let begun = Instant::now();
    bench.tsg();
    assert!(begun.elapsed() >= WHILE);
}

#[test]
fn allocations_end_at_the_limit() {
    let bench = Bench::with(Config { available_bytes: Some(8192), ..Config::default() });
    let heap = nvmap::Heaps::IOVMM.bits();
    let _kept = bench.buffer(8192);
    let handle = bench.create(4096);
    assert_eq!(bench.try_alloc(handle, heap, TAG), Err(Errno::NOMEM));
    bench.orin.limit_allocations(12_288);
    assert_eq!(bench.try_alloc(handle, heap, TAG), Ok(0));
}

#[test]
fn the_next_doorbell_replaces_a_lost_one() {
    let bench = with(FaultPlan { lost_doorbells: vec![2], ..FaultPlan::default() });
    let worker = Worker::new(&bench);
    worker.release(worker.semaphore(), 1);
    wait_until("the first", || worker.value() == 1);
    worker.release(worker.semaphore(), 2);
    std::thread::sleep(WHILE);
    assert_eq!(worker.value(), 1, "the doorbell was lost");
    word(&worker.doorbell, ctrl::USERMODE_DOORBELL).store(worker.chain.token, Ordering::SeqCst);
    wait_until("the second", || worker.value() == 2);
    bench.orin.lose_doorbells(1);
    assert_eq!(bench.orin.doorbells_to_lose(), 1);
    worker.release(worker.semaphore(), 3);
    wait_until("the loss", || bench.orin.doorbells_to_lose() == 0);
    std::thread::sleep(WHILE);
    assert_eq!(worker.value(), 2);
}

#[test]
fn a_stall_ends_by_itself() {
    let bench =
        with(FaultPlan { stalls: vec![Stall { doorbell: 1, length: WHILE }], ..FaultPlan::default() });
    let worker = Worker::new(&bench);
    let begun = Instant::now();
    worker.release(worker.semaphore(), 1);
    wait_until("the semaphore", || worker.value() == 1);
    assert!(begun.elapsed() >= WHILE);
}

#[test]
fn stalled_engines_cannot_be_preempted() {
    let bench = Bench::new();
    let worker = Worker::new(&bench);
    let (sibling, other) = (bench.channel(), bench.tsg());
    bind_space(&worker.chain.space, &sibling).unwrap();
    bind_tsg(&worker.chain.tsg, &sibling, 0).unwrap();
    bench.orin.stall_engines(true);
    worker.release(worker.semaphore(), 1);
    assert_eq!(tsg::PREEMPT.send(&worker.chain.tsg, 0), Err(Errno::TIMEDOUT));
    std::thread::sleep(WHILE);
    assert_eq!(worker.value(), 0);
    bench.orin.stall_engines(false);
    wait_until("the semaphore", || worker.value() == 1);
    assert_eq!(tsg::PREEMPT.send(&worker.chain.tsg, 0), Ok(0));
    bench.orin.stall_engines(true);
    drop(sibling);
    let mut timed_out = channel::GetParam::default();
    channel::GET_TIMEDOUT.send(&worker.chain.channel, &mut timed_out).unwrap();
    assert_eq!(timed_out.value, 1, "the close of a busy channel ends its TSG");
    assert!(bench.orin.kernel_log().iter().any(|line| line.contains("unbind failed, tearing down TSG 0")));
    drop((other, worker));
    assert_eq!(bench.orin.live(), LiveCounts { descriptors: 2, ..LiveCounts::default() });
}

#[test]
fn a_silent_fault_is_only_in_the_notifier() {
    let bench = with(FaultPlan { silent_faults: true, ..FaultPlan::default() });
    let worker = Worker::new(&bench);
    let mut args =
        channel::SetErrorNotifier { offset: 0xf00, mem: raw(&worker.buffer), ..Default::default() };
    channel::SET_ERROR_NOTIFIER.send(&worker.chain.channel, &mut args).unwrap();
    let before = bench.orin.kernel_log();
    worker.release(0x12_3456_0000, 1);
    wait_until("the notifier", || word(&worker.memory, 0xf0c).load(Ordering::Acquire) == 0xffff_0000);
    assert_eq!(word(&worker.memory, 0xf08).load(Ordering::Acquire), 31);
    assert_eq!(bench.orin.kernel_log(), before);
}

#[test]
fn random_failures_repeat_with_the_seed() {
    let run = |seed| {
        let random = Some(RandomFailures { per_mille: 300, errno: Errno::NOMEM });
        let faults = FaultPlan { random, ..FaultPlan::default() };
        let bench = Bench::with(Config { seed, faults, ..Config::default() });
        let mut results = Vec::new();
        for _ in 0..200 {
            let result = ctrl::NUM_VSMS.send(&bench.ctrl, &mut ctrl::NumVsms::default());
            assert!([Ok(0), Err(Errno::NOMEM)].contains(&result));
            results.push(result.is_ok());
        }
        results
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    let failed = run(5).iter().filter(|ok| !**ok).count();
    assert!((30..90).contains(&failed), "{failed} of 200");
}
