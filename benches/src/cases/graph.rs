//! Recorded graphs.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use tegra_hcq::{Device, Graph, NodeId, WaitPolicy, args};

use crate::TIMEOUT;
use crate::bench::{Bench, timed};
use crate::case::Case;
use crate::cuda::{self, Argument, Cuda};
use crate::error::{Error, Result};
use crate::kernels::BASICS;

/// Number of kernels in the long graph.
const KERNELS: usize = 1000;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("graph/replay_wait", "graph of one kernel: replay, spin until completion", replay),
        Case::new("graph/patched", "graph of one kernel: change an argument, replay, spin", patched),
        Case::new("graph/1000_kernels", "graph of 1,000 kernels: replay, spin: per kernel", thousand),
        Case::new(
            "graph/1000_profiled",
            "the same, with the time of each kernel recorded: per kernel",
            profiled,
        ),
    ]
}

/// Records a graph of `count` increment kernels.
fn record(bench: &Bench<'_>, device: &Device, count: usize) -> Result<(Graph, NodeId)> {
    let increment = bench.program(&BASICS)?.kernel("increment")?;
    let data = device.alloc_from(&[0_u32; 32])?;
    let mut builder = device.graph();
    let first = unsafe { builder.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
    for _ in 1..count {
        unsafe { builder.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
    }
    Ok((builder.build()?, first))
}

/// Captures the same graph with CUDA.
fn capture(cuda: &Cuda, count: usize) -> Result<(cuda::Stream, cuda::Graph, cuda::Launch)> {
    let (kernel, stream) = (cuda.kernel(&BASICS, "increment")?, cuda.stream()?);
    let data = cuda.memory(32 * size_of::<u32>())?;
    let launch = kernel.launch([1; 3], [32, 1, 1], &[data.argument(), Argument::U32(32)])?;
    let graph = cuda::Graph::of_launches(&stream, vec![launch.clone(); count], vec![data])?;
    Ok((stream, graph, launch))
}

fn replay(bench: &mut Bench<'_>) -> Result<()> {
    whole(bench, 1)
}

fn thousand(bench: &mut Bench<'_>) -> Result<()> {
    whole(bench, KERNELS)
}

fn whole(bench: &mut Bench<'_>, count: usize) -> Result<()> {
    let (mut graph, _) = record(bench, bench.device(), count)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let mut ours = || timed(|| Ok(queue.replay(&mut graph)?.wait(TIMEOUT)?));
    bench.measure(count as u64, &mut ours, &mut |cuda| {
        let (stream, graph, _) = capture(cuda, count)?;
        Ok(Box::new(move || {
            timed(|| {
                graph.launch(&stream)?;
                stream.wait()
            })
        }))
    })
}

/// As `thousand`, while the queue records. Reading the times afterwards is not part of a sample.
fn profiled(bench: &mut Bench<'_>) -> Result<()> {
    let (mut graph, _) = record(bench, bench.device(), KERNELS)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    queue.profile(true)?;
    bench.measure_alone(KERNELS as u64, &mut || {
        let elapsed = timed(|| Ok(queue.replay(&mut graph)?.wait(TIMEOUT)?))?;
        let recorded = queue.take_profile()?.spans.len();
        let whole = recorded == 1 + KERNELS;
        if whole { Ok(elapsed) } else { Err(Error::WrongResult(format!("{recorded} spans recorded"))) }
    })
}

fn patched(bench: &mut Bench<'_>) -> Result<()> {
    let (mut graph, node) = record(bench, bench.device(), 1)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let mut round = 0_u32;
    let mut ours = || {
        round += 1;
        timed(|| {
            unsafe { graph.set_argument(node, 1, 1 + round % 32) }?;
            Ok(queue.replay(&mut graph)?.wait(TIMEOUT)?)
        })
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let (stream, mut graph, mut launch) = capture(cuda, 1)?;
        let node = graph.only_node()?;
        let mut round = 0_u32;
        Ok(Box::new(move || {
            round += 1;
            timed(|| {
                launch.set(1, Argument::U32(1 + round % 32))?;
                graph.set_launch(&node, &mut launch)?;
                graph.launch(&stream)?;
                stream.wait()
            })
        }))
    })
}
