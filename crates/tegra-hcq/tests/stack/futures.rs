//! Fences as futures, driven by a minimal executor.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tegra_hcq::{Error, FaultKind, Fence, FenceFuture, MAX_QUEUES, QueueOptions, WaitPolicy, args};
use test_support::{Bench, TIMEOUT};

/// Unparks a thread and counts the wake-ups.
struct Unpark {
    thread: Thread,
    count: AtomicU32,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn waker() -> (Arc<Unpark>, Waker) {
    let unpark = Arc::new(Unpark { thread: thread::current(), count: AtomicU32::new(0) });
    (Arc::clone(&unpark), Waker::from(unpark))
}

/// Runs a future to completion; the thread parks between polls.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let (_, waker) = waker();
    let start = Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT, "the future was not woken");
        thread::park_timeout(TIMEOUT);
    }
}

/// Polls all futures concurrently; returns their results in order.
struct All(Vec<(FenceFuture, Option<Result<(), Error>>)>);

impl All {
    fn new(fences: impl IntoIterator<Item = FenceFuture>) -> Self {
        Self(fences.into_iter().map(|fence| (fence, None)).collect())
    }
}

impl Future for All {
    type Output = Vec<Result<(), Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        for (future, result) in self.0.iter_mut().filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(value) = Pin::new(future).poll(context) {
                *result = Some(value);
            }
        }
        if self.0.iter().any(|(_, result)| result.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(self.0.drain(..).filter_map(|(_, result)| result).collect())
    }
}

/// A kernel that runs until the word is set.
fn endless(bench: &mut Bench, stop: &tegra_hcq::Buffer<u32>) -> Fence {
    let out = bench.device.alloc_zeroed::<u32>(1).unwrap();
    let kernel = bench.program.kernel("fault_endless").unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 1, &args![stop, &out]) }.unwrap();
    bench.queue.submit().unwrap()
}

/// Sets a word from a separate queue, since a buffer in use waits for its users.
fn store(bench: &Bench, word: &tegra_hcq::Buffer<u32>) -> Fence {
    let mut queue = bench.device.queue().unwrap();
    let kernel = bench.program.kernel("fault_write").unwrap();
    unsafe { queue.launch(&kernel, 1, 1, &args![word.gpu_va(), 1_u32]) }.unwrap();
    queue.submit().unwrap()
}

/// Threads of the process that wait for futures.
fn waiters() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "hcq-waiter").count()
}

#[test]
fn a_fence_can_be_awaited() {
    let mut bench = Bench::new("faults");
    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    let fence = endless(&mut bench, &stop);
    let store = store(&bench, &stop);
    block_on(async {
        store.await?;
        fence.clone().await?;
        // A completed fence needs no thread.
        fence.within(Duration::ZERO).await
    })
    .unwrap();
}

#[test]
fn several_futures_complete_independently() {
    let mut bench = Bench::new("faults");
    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    let data = bench.device.alloc_from(&[7_u32]).unwrap();
    let out = bench.device.alloc_zeroed::<u32>(1).unwrap();
    let good = bench.program.kernel("fault_no_bound").unwrap();
    let bad = bench.program.kernel("fault_write").unwrap();
    let mut faulting = bench.device.queue().unwrap();
    let spinning = QueueOptions::default().wait(WaitPolicy::Spin);
    let mut spinning = bench.device.queue_with(&spinning).unwrap();

    let hanging = endless(&mut bench, &stop);
    unsafe { faulting.launch(&bad, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
    let fault = faulting.submit().unwrap();
    unsafe { spinning.launch(&good, 1, 1, &args![&data, &out]) }.unwrap();
    let ended = spinning.submit().unwrap();
    let results = block_on(All::new([
        ended.within(TIMEOUT),
        fault.clone().within(TIMEOUT),
        fault.within(TIMEOUT),
        hanging.clone().within(Duration::from_millis(50)),
    ]));
    assert!(results[0].is_ok(), "{results:?}");
    for result in &results[1..3] {
        let Err(Error::Fault(fault)) = result else { panic!("expected a fault: {results:?}") };
        assert_eq!((fault.kind, fault.address), (FaultKind::Mmu, Some(0x40_0000_0000)));
    }
    let Err(error @ Error::Timeout { .. }) = &results[3] else { panic!("{results:?}") };
    assert!(error.to_string().contains("kernel fault_endless"), "{error}");
    assert_eq!(out.to_vec().unwrap(), [7]);

    // After a recovery the same fence reports why its work is lost.
    bench.device.recover().unwrap();
    let Err(Error::Fault(fault)) = block_on(hanging.into_future()) else { panic!("the work is lost") };
    assert_eq!(fault.kind, FaultKind::Abandoned);
}

#[test]
fn many_futures_of_one_queue_are_woken() {
    let mut bench = Bench::new("faults");
    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    let data = bench.device.alloc_from(&[7_u32]).unwrap();
    let out = bench.device.alloc_zeroed::<u32>(1).unwrap();
    let good = bench.program.kernel("fault_no_bound").unwrap();
    let mut fences = vec![endless(&mut bench, &stop)];
    for _ in 0..200 {
        unsafe { bench.queue.launch(&good, 1, 1, &args![&data, &out]) }.unwrap();
        fences.push(bench.queue.submit().unwrap());
    }
    let mut all = Box::pin(All::new(fences.into_iter().rev().map(Fence::into_future)));
    let (unpark, waker) = waker();
    assert!(all.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(unpark.count.load(Ordering::SeqCst), 0, "nothing has ended");
    store(&bench, &stop).wait(TIMEOUT).unwrap();
    let results = block_on(all);
    assert_eq!(results.len(), 201);
    assert!(results.iter().all(Result::is_ok));
}

#[test]
fn dropped_futures_wake_no_task() {
    let mut bench = Bench::new("faults");
    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    let fence = endless(&mut bench, &stop);
    let (unpark, waker) = waker();
    let mut dropped = fence.clone().within(Duration::from_millis(20));
    assert!(Pin::new(&mut dropped).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(dropped);
    // A later time-out is seen; the dropped future woke no task.
    let result = block_on(fence.clone().within(Duration::from_millis(60)));
    assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
    assert_eq!(unpark.count.load(Ordering::SeqCst), 0);
    drop(waker);
    assert_eq!(Arc::strong_count(&unpark), 1, "the waker was dropped");
    store(&bench, &stop).wait(TIMEOUT).unwrap();
    block_on(fence.into_future()).unwrap();
}

#[test]
fn a_device_with_pending_futures_can_be_dropped() {
    // A device is closed once its last queue, buffer and future are dropped.
    let start = Instant::now();
    for round in 0..20 {
        let mut bench = Bench::new("faults");
        let stop = bench.device.alloc_from(&[0_u32]).unwrap();
        let fence = endless(&mut bench, &stop);
        let (_, waker) = waker();
        let mut futures: Vec<FenceFuture> =
            (0..3).map(|_| fence.clone().within(Duration::from_millis(40))).collect();
        for future in &mut futures {
            assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        // The work hangs; dropping its queue must not wait for it.
        assert!(fence.wait(Duration::from_millis(1)).is_err());
        let orin = bench.orin.clone();
        drop((fence, stop, bench));
        if round % 2 == 0 {
            // They still report the outcome of the work.
            let results = block_on(All::new(futures));
            assert!(results.iter().all(|result| matches!(result, Err(Error::Timeout { .. }))), "{results:?}");
        } else {
            drop(futures);
        }
        while orin.live() != orin_sim::SoftwareOrin::new(test_support::config()).unwrap().live() {
            assert!(start.elapsed() < TIMEOUT, "the device still has open objects: {:?}", orin.live());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn dropped_queues_free_their_slots_at_once() {
    let bench = Bench::new("faults");
    let data = bench.device.alloc_from(&[7_u32]).unwrap();
    let kernel = bench.program.kernel("fault_no_bound").unwrap();
    let (_, waker) = waker();
    for _ in 0..10 {
        let mut queues: Vec<_> = (1..MAX_QUEUES).map(|_| bench.device.queue().unwrap()).collect();
        for queue in &mut queues {
            unsafe { queue.launch(&kernel, 1, 1, &args![&data, &data]) }.unwrap();
            let mut future = queue.submit().unwrap().into_future();
            // Dropped, whether completed or not.
            let _ = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        }
    }
}

#[test]
fn the_waiter_ends_with_its_device() {
    // Other tests of this process have their own waiters; a separate process has none.
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "futures::a_waiter_starts_and_ends", "--nocapture"])
        .env("ALONE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

/// If run alone, as by the test above, it also counts the threads.
#[test]
fn a_waiter_starts_and_ends() {
    let alone = std::env::var_os("ALONE").is_some();
    let mut bench = Bench::new("faults");
    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    assert!(!alone || waiters() == 0, "nothing has waited yet");
    let fence = endless(&mut bench, &stop);
    let result = block_on(fence.clone().within(Duration::from_millis(5)));
    assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
    assert!(!alone || waiters() == 1);
    store(&bench, &stop).wait(TIMEOUT).unwrap();
    block_on(fence.into_future()).unwrap();
    drop((stop, bench));
    let start = Instant::now();
    while alone && waiters() > 0 {
        assert!(start.elapsed() < TIMEOUT, "the waiter has not ended");
        thread::sleep(Duration::from_millis(1));
    }
}
