//! The CPU cost of the library: launches, batches, waits, allocations, graphs and copies. The GPU's work is not timed.
//!
//! Run `cargo bench -p benches --bench launch`. The results are meaningful on any machine, because they measure
//! encoding, a few stores and barriers. The reference is one trivial system call on the same machine: a driver that
//! submits through the kernel pays at least that, plus the kernel's own work. All queues spin, so submissions request
//! no interrupts.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use benches::kernels::BASICS;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tegra_hcq::{Device, DeviceKind, Fence, Graph, NodeId, Queue, QueueOptions, Result, WaitPolicy, args};

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Submissions per timed burst, because reading the clock costs a good part of one submission.
const BURST: u64 = 8;
/// Submissions that share one doorbell.
const TOGETHER: u64 = 64;
/// Launches per batch.
const BATCH: u64 = 16;
/// Number of kernels in the long graph.
const LONG_GRAPH: usize = 1000;

fn open() -> (Device, Queue) {
    let device = Device::open(DeviceKind::Auto).expect("a device opens");
    let queue = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin)).expect("a queue opens");
    (device, queue)
}

/// Times at least `rounds` calls of `work`, which submits, in bursts. Returns the time of `rounds` of them. The wait
/// after each burst keeps the rings from filling up; it is not timed.
fn time(rounds: u64, mut work: impl FnMut(u64) -> Result<Fence>) -> Duration {
    let bursts = rounds.div_ceil(BURST);
    let mut spent = Duration::ZERO;
    for burst in 0..bursts {
        let start = Instant::now();
        let fences: [_; BURST as usize] = core::array::from_fn(|at| work(burst * BURST + at as u64));
        spent += start.elapsed();
        for fence in fences {
            fence.and_then(|fence| fence.wait(TIMEOUT)).expect("it is submitted and ends");
        }
    }
    spent.mul_f64(rounds as f64 / (bursts * BURST) as f64)
}

fn launches(criterion: &mut Criterion) {
    let (device, mut queue) = open();
    let program = BASICS.load(&device).expect("the program loads");
    let empty = program.kernel("empty").expect("the kernel is there");
    let increment = program.kernel("increment").expect("the kernel is there");
    let data = device.alloc_from(&[0_u32; 32]).expect("memory");
    let mut target = device.alloc_from(&[0_u32; 32]).expect("memory");

    let mut group = criterion.benchmark_group("submission");
    group.bench_function("launch_and_submit_empty_kernel", |bencher| {
        bencher.iter_custom(|rounds| {
            time(rounds, |_| {
                unsafe { queue.launch(&empty, 1, 32, &[]) }?;
                queue.submit()
            })
        });
    });
    group.bench_function("launch_and_submit_two_arguments", |bencher| {
        bencher.iter_custom(|rounds| {
            time(rounds, |_| {
                unsafe { queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
                queue.submit()
            })
        });
    });
    group.bench_function("launch_one_of_16_in_a_batch", |bencher| {
        bencher.iter_custom(|rounds| {
            let batches = rounds.div_ceil(BATCH);
            let spent = time(batches, |_| {
                for _ in 0..BATCH {
                    unsafe { queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
                }
                queue.submit()
            });
            spent.mul_f64(rounds as f64 / (batches * BATCH) as f64)
        });
    });
    // The GPU sees them only at the end, so a software GPU does not compete for the caches meanwhile.
    group.bench_function("launch_and_submit_64_with_one_doorbell", |bencher| {
        bencher.iter_custom(|rounds| {
            let groups = rounds.div_ceil(TOGETHER);
            let mut spent = Duration::ZERO;
            for _ in 0..groups {
                let start = Instant::now();
                let fence = queue.together(|queue| {
                    for _ in 1..TOGETHER {
                        unsafe { queue.launch(&empty, 1, 32, &[]) }?;
                        queue.submit()?;
                    }
                    unsafe { queue.launch(&empty, 1, 32, &[]) }?;
                    queue.submit()
                });
                spent += start.elapsed();
                fence.and_then(|fence| fence.wait(TIMEOUT)).expect("it is submitted and ends");
            }
            spent.mul_f64(rounds as f64 / (groups * TOGETHER) as f64)
        });
    });
    group.bench_function("copy_and_submit", |bencher| {
        bencher.iter_custom(|rounds| {
            time(rounds, |_| {
                queue.copy(&data, &mut target)?;
                queue.submit()
            })
        });
    });
    group.bench_function("wait_on_a_ready_fence", |bencher| {
        let fence = queue.submit().expect("submit");
        fence.wait(TIMEOUT).expect("it ends");
        bencher.iter(|| black_box(&fence).wait(TIMEOUT));
    });
    group.bench_function("rival_one_system_call", |bencher| {
        bencher.iter(|| black_box(rustix::process::getppid()));
    });
    group.finish();
}

/// Records a graph of `kernels` launches. Returns it and its first node.
fn record(device: &Device, kernels: usize) -> Result<(Graph, NodeId)> {
    let program = BASICS.load(device).expect("the program loads");
    let increment = program.kernel("increment")?;
    let data = device.alloc_from(&[0_u32; 32])?;
    let mut builder = device.graph();
    // Enough instances that no replay of a burst waits for an earlier one.
    builder.instances(BURST as usize)?;
    let first = unsafe { builder.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
    for _ in 1..kernels {
        unsafe { builder.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
    }
    Ok((builder.build()?, first))
}

fn graphs(criterion: &mut Criterion) {
    let (device, mut queue) = open();
    let (mut graph, node) = record(&device, 1).expect("a graph");
    let mut group = criterion.benchmark_group("graph");
    group.bench_function("replay_one_kernel", |bencher| {
        bencher.iter_custom(|rounds| time(rounds, |_| queue.replay(&mut graph)));
    });
    group.bench_function("patch_and_replay_one_kernel", |bencher| {
        bencher.iter_custom(|rounds| {
            time(rounds, |round| {
                // CAST: below 33.
                unsafe { graph.set_argument(node, 1, 1 + (round % 32) as u32) }?;
                queue.replay(&mut graph)
            })
        });
    });
    // Few rounds, because the software Orin interprets each kernel.
    let (mut long, _) = record(&device, LONG_GRAPH).expect("a graph");
    group.sample_size(10);
    group.bench_function("replay_1000_kernels", |bencher| {
        bencher.iter_custom(|rounds| time(rounds, |_| queue.replay(&mut long)));
    });
    group.finish();
}

fn memory(criterion: &mut Criterion) {
    let (device, _) = open();
    let mut group = criterion.benchmark_group("memory");
    for (name, bytes) in [("4KiB", 4 << 10), ("64KiB", 64 << 10), ("1MiB", 1 << 20), ("16MiB", 16 << 20)] {
        group.bench_function(format!("allocate_and_free_cached_{name}"), |bencher| {
            drop(device.alloc::<u8>(bytes).expect("memory"));
            bencher.iter(|| black_box(device.alloc::<u8>(bytes).expect("memory")));
        });
    }
    let source = vec![7_u8; 64 << 10];
    let buffer = device.alloc_from(&source).expect("memory");
    group.bench_function("copy_64KiB_to_a_buffer", |bencher| {
        let mut target = device.alloc::<u8>(source.len()).expect("memory");
        bencher.iter(|| target.copy_from_slice(black_box(&source)));
    });
    group.bench_function("copy_64KiB_from_a_buffer", |bencher| {
        bencher.iter_batched_ref(
            || vec![0_u8; source.len()],
            |target| buffer.copy_to_slice(black_box(target)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, launches, graphs, memory);
criterion_main!(benches);
