//! Growth: the cost per item at rising counts. A cost that rises with the count has a list or a search in its path.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use std::time::{Duration, Instant};

use tegra_hcq::{Buffer, Device, Graph, Kernel, WaitPolicy, args};

use super::{KIB, size_name};
use crate::TIMEOUT;
use crate::bench::{Bench, timed};
use crate::case::Case;
use crate::cuda;
use crate::error::Result;
use crate::kernels::BASICS;

/// First part of the names of these cases.
pub(crate) const PREFIX: &str = "growth/";

/// Launches before the wait.
const LAUNCHES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Launches whose buffer is dropped before they end.
const DROPPED: [u64; 3] = [100, 1_000, 10_000];
/// Live buffers.
const BUFFERS: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];
/// Sizes of the buffers, in bytes.
const SIZES: [u64; 2] = [4 * KIB, 256 * KIB];
/// Largest number of driver allocations on the software Orin, where each is a file of the process.
const MANY_FILES: u64 = 1_000;
/// Nodes of a graph.
const NODES: [u64; 5] = [1, 10, 100, 1_000, 10_000];
/// Open queues.
const QUEUES: [u64; 4] = [1, 8, 32, 128];
/// Loaded programs.
const PROGRAMS: [u64; 4] = [1, 10, 100, 1_000];

/// Work of a case.
type Run = fn(&mut Bench<'_>) -> Result<()>;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, about, counts: &[u64], run: Run| {
        for count in counts {
            let patience = *count >= 100_000;
            let case = Case::new(&format!("{PREFIX}{name}/{count}"), about, run);
            cases.push(case.size(*count).needs_patience(patience));
        }
    };
    add("launch", "launches with a submission each, then one wait: per launch", &LAUNCHES, launch);
    add("drop_in_use", "launch on a new buffer, submit, drop the buffer: per launch", &DROPPED, drop_in_use);
    add("graph_build", "record and build a graph: per node", &NODES, graph_build);
    add("graph_replay", "replay a graph and wait: per node", &NODES, graph_replay);
    add("queue", "open a queue while the others are open: per queue", &QUEUES, queue);
    add("program", "load a program while the others are loaded: per program", &PROGRAMS, program);
    cases.extend(buffer_cases());
    cases
}

fn buffer_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let kinds: [(&str, &str, [Run; 2]); 2] = [
        (
            "allocate",
            "allocate a buffer while the others live: per buffer",
            [|bench| allocate(bench, SIZES[0]), |bench| allocate(bench, SIZES[1])],
        ),
        (
            "free",
            "free a buffer that no work uses: per buffer",
            [|bench| free(bench, SIZES[0]), |bench| free(bench, SIZES[1])],
        ),
    ];
    for (name, about, runs) in kinds {
        for (bytes, run) in SIZES.into_iter().zip(runs) {
            for count in BUFFERS {
                let name = format!("{PREFIX}{name}_{}/{count}", size_name(bytes));
                let hardware = bytes > 64 * KIB && count > MANY_FILES;
                let case = Case::new(&name, about, run).size(count).needs(count * bytes, hardware);
                cases.push(case.needs_patience(count >= 100_000));
            }
        }
    }
    cases
}

fn launch(bench: &mut Bench<'_>) -> Result<()> {
    let empty = bench.program(&BASICS)?.kernel("empty")?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let rounds = bench.rounds(bench.size());
    let mut ours = || {
        timed(|| {
            for _ in 0..rounds {
                unsafe { queue.launch(&empty, 1, 32, &[]) }?;
                queue.submit()?;
            }
            Ok(queue.wait(TIMEOUT)?)
        })
    };
    bench.measure(rounds, &mut ours, &mut |cuda| {
        let mut launch = cuda.kernel(&BASICS, "empty")?.launch([1; 3], [32, 1, 1], &[])?;
        let stream = cuda.stream()?;
        Ok(Box::new(move || {
            timed(|| {
                for _ in 0..rounds {
                    stream.launch(&mut launch)?;
                }
                stream.wait()
            })
        }))
    })
}

fn drop_in_use(bench: &mut Bench<'_>) -> Result<()> {
    let increment = bench.program(&BASICS)?.kernel("increment")?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let (device, rounds) = (bench.device(), bench.rounds(bench.size()));
    bench.measure_alone(rounds, &mut || {
        timed(|| {
            for _ in 0..rounds {
                let data = device.alloc::<u32>(1024)?;
                unsafe { queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
                queue.submit()?;
            }
            Ok(queue.wait(TIMEOUT)?)
        })
    })
}

/// Makes `count` items, which all live; returns them and the time.
fn make_all<T>(count: u64, mut make: impl FnMut() -> Result<T>) -> Result<(Vec<T>, Duration)> {
    let mut live = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    let start = Instant::now();
    for _ in 0..count {
        live.push(make()?);
    }
    Ok((live, start.elapsed()))
}

/// Allocates `count` buffers of `bytes` bytes; returns them and the time.
fn buffers(device: &Device, count: u64, bytes: u64) -> Result<(Vec<Buffer<u8>>, Duration)> {
    // CAST: a few hundred KiB.
    make_all(count, || Ok(device.alloc(bytes as usize)?))
}

/// As [`buffers`], with CUDA.
fn rival_buffers(cuda: &cuda::Cuda, count: u64, bytes: u64) -> Result<(Vec<cuda::Memory>, Duration)> {
    // CAST: a few hundred KiB.
    make_all(count, || cuda.memory(bytes as usize))
}

fn allocate(bench: &mut Bench<'_>, bytes: u64) -> Result<()> {
    let count = bench.rounds(bench.size());
    let device = bench.device();
    let mut ours = || {
        device.trim();
        let (_live, elapsed) = buffers(device, count, bytes)?;
        Ok(elapsed)
    };
    bench.measure(count, &mut ours, &mut |cuda| {
        let cuda = cuda.clone();
        Ok(Box::new(move || {
            let (live, elapsed) = rival_buffers(&cuda, count, bytes)?;
            live.into_iter().try_for_each(cuda::Memory::free)?;
            Ok(elapsed)
        }))
    })
}

fn free(bench: &mut Bench<'_>, bytes: u64) -> Result<()> {
    let count = bench.rounds(bench.size());
    let device = bench.device();
    let mut ours = || {
        let (live, _) = buffers(device, count, bytes)?;
        timed(|| {
            drop(live);
            Ok(())
        })
    };
    bench.measure(count, &mut ours, &mut |cuda| {
        let cuda = cuda.clone();
        Ok(Box::new(move || {
            let (live, _) = rival_buffers(&cuda, count, bytes)?;
            timed(|| live.into_iter().try_for_each(cuda::Memory::free))
        }))
    })
}

/// Records a graph of `count` increment kernels.
fn record(device: &Device, increment: &Kernel, data: &Buffer<u32>, count: u64) -> Result<Graph> {
    let mut builder = device.graph();
    for _ in 0..count {
        unsafe { builder.launch(increment, 1, 32, &args![data, 32_u32]) }?;
    }
    Ok(builder.build()?)
}

fn graph_build(bench: &mut Bench<'_>) -> Result<()> {
    let increment = bench.program(&BASICS)?.kernel("increment")?;
    let data = bench.device().alloc_from(&[0_u32; 32])?;
    let (device, count) = (bench.device(), bench.rounds(bench.size()));
    bench.measure_alone(count, &mut || {
        let start = Instant::now();
        let graph = record(device, &increment, &data, count)?;
        let elapsed = start.elapsed();
        drop(graph);
        Ok(elapsed)
    })
}

fn graph_replay(bench: &mut Bench<'_>) -> Result<()> {
    let increment = bench.program(&BASICS)?.kernel("increment")?;
    let data = bench.device().alloc_from(&[0_u32; 32])?;
    let count = bench.rounds(bench.size());
    let mut graph = record(bench.device(), &increment, &data, count)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    bench.measure_alone(count, &mut || timed(|| Ok(queue.replay(&mut graph)?.wait(TIMEOUT)?)))
}

fn queue(bench: &mut Bench<'_>) -> Result<()> {
    let (device, count) = (bench.device(), bench.rounds(bench.size()));
    bench.measure_alone(count, &mut || {
        let (_queues, elapsed) = make_all(count, || Ok(device.queue()?))?;
        Ok(elapsed)
    })
}

fn program(bench: &mut Bench<'_>) -> Result<()> {
    let (device, count) = (bench.device(), bench.rounds(bench.size()));
    let mut ours = || {
        let (_programs, elapsed) = make_all(count, || BASICS.load(device))?;
        Ok(elapsed)
    };
    bench.measure(count, &mut ours, &mut |cuda| {
        let cuda = cuda.clone();
        Ok(Box::new(move || {
            let (_kernels, elapsed) = make_all(count, || cuda.kernel(&BASICS, "empty"))?;
            Ok(elapsed)
        }))
    })
}
