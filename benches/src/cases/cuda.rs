//! The CUDA library of this project (`crates/libcuda`) through CUDA's driver API, and the same calls to NVIDIA's.

use std::time::Instant;

use crate::bench::{Bench, Sampler, timed};
use crate::case::Case;
use crate::cuda::{Cuda, Graph, Kernel, Launch, Stream};
use crate::error::Result;
use crate::kernels::BASICS;
use crate::start_up::{self, Target};

/// Launches in a row per sample.
const MANY: u64 = 10_000;
/// Bytes of an allocation.
const BYTES: usize = 64 << 10;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("cuda/launch", "cuLaunchKernel of an empty kernel, until the call returns", |bench| {
            both(bench, 1, |cuda, _| {
                let (stream, mut launch) = empty(cuda)?;
                Ok(Box::new(move || {
                    let elapsed = timed(|| stream.launch(&mut launch))?;
                    stream.wait()?;
                    Ok(elapsed)
                }))
            })
        }),
        Case::new("cuda/wait", "cuLaunchKernel of an empty kernel, and cuStreamSynchronize", |bench| {
            both(bench, 1, |cuda, _| {
                let (stream, mut launch) = empty(cuda)?;
                Ok(Box::new(move || {
                    timed(|| {
                        stream.launch(&mut launch)?;
                        stream.wait()
                    })
                }))
            })
        }),
        Case::new("cuda/row_10000", "10,000 calls of cuLaunchKernel, and a wait: per kernel", |bench| {
            let rounds = bench.rounds(MANY);
            both(bench, rounds, |cuda, rounds| {
                let (stream, mut launch) = empty(cuda)?;
                Ok(Box::new(move || {
                    timed(|| {
                        (0..rounds).try_for_each(|_| stream.launch(&mut launch))?;
                        stream.wait()
                    })
                }))
            })
        }),
        Case::new("cuda/event", "cuEventRecord, and one cuEventQuery", |bench| {
            both(bench, 1, |cuda, _| {
                let (stream, event) = (cuda.stream()?, cuda.event()?);
                Ok(Box::new(move || {
                    let start = Instant::now();
                    event.record(&stream)?;
                    event.is_done()?;
                    let elapsed = start.elapsed();
                    stream.wait()?;
                    Ok(elapsed)
                }))
            })
        }),
        Case::new("cuda/alloc_async", "cuMemAllocAsync of 64 KiB, and cuMemFreeAsync", |bench| {
            both(bench, 1, |cuda, _| {
                let stream = cuda.stream()?;
                Ok(Box::new(move || {
                    let elapsed = timed(|| stream.allocate_and_free(BYTES))?;
                    stream.wait()?;
                    Ok(elapsed)
                }))
            })
        }),
        Case::new("cuda/capture", "capture of 20 launches of a kernel, and cuGraphInstantiate", |bench| {
            both(bench, 1, |cuda, _| {
                let (stream, kernel) = (cuda.stream()?, cuda.kernel(&BASICS, "empty")?);
                Ok(Box::new(move || {
                    let launches = row(&kernel)?;
                    let start = Instant::now();
                    let graph = Graph::of_launches(&stream, launches, Vec::new())?;
                    let elapsed = start.elapsed();
                    drop(graph);
                    Ok(elapsed)
                }))
            })
        }),
        Case::new("cuda/graph_20", "cuGraphLaunch of 20 empty kernels, and cuStreamSynchronize", |bench| {
            both(bench, 1, |cuda, _| {
                let (stream, kernel) = (cuda.stream()?, cuda.kernel(&BASICS, "empty")?);
                let graph = Graph::of_launches(&stream, row(&kernel)?, Vec::new())?;
                Ok(Box::new(move || {
                    timed(|| {
                        graph.launch(&stream)?;
                        stream.wait()
                    })
                }))
            })
        }),
        Case::new("cuda/first_result", "from the start of a process until a kernel's result", first_result),
    ];
    cases.iter_mut().for_each(|case| case.needs.own_cuda = true);
    cases.last_mut().into_iter().for_each(|case| case.needs.child_process = true);
    cases
}

/// An empty kernel, and a stream for it.
fn empty(cuda: &Cuda) -> Result<(Stream, Launch)> {
    Ok((cuda.stream()?, cuda.kernel(&BASICS, "empty")?.launch([1; 3], [32, 1, 1], &[])?))
}

/// Launches of an empty kernel for a graph.
fn row(kernel: &Kernel) -> Result<Vec<Launch>> {
    (0..20).map(|_| kernel.launch([1; 3], [32, 1, 1], &[])).collect()
}

/// Measures what `make` does, with either library.
fn both(bench: &mut Bench<'_>, rounds: u64, make: fn(&Cuda, u64) -> Result<Box<Sampler>>) -> Result<()> {
    let own = Cuda::own()?;
    bench.measure(rounds, &mut *make(&own, rounds)?, &mut |cuda| make(cuda, rounds))
}

fn first_result(bench: &mut Bench<'_>) -> Result<()> {
    let start_up = bench.start_up().cloned();
    let sampler = |target| {
        let start_up = start_up.clone();
        move || start_up::measure(start_up.as_ref(), target)
    };
    bench.measure(1, &mut sampler(Target::OwnCuda), &mut |_| Ok(Box::new(sampler(Target::Cuda))))
}
