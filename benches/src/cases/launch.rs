//! Launches: the cost for the CPU, and the time until the CPU sees the completion.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use std::time::Instant;

use tegra_hcq::{Buffer, Count, Queue, WaitPolicy, args};

use crate::TIMEOUT;
use crate::bench::{Bench, Rival, spin_until, timed};
use crate::case::Case;
use crate::cuda::Argument;
use crate::error::{Error, Result};
use crate::kernels::BASICS;

/// Launches per sample, where a single one is too short.
const MANY: u64 = 10_000;
/// Launches per batch.
pub(super) const BATCH: u64 = 100;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("launch/submit", "empty kernel: launch and submit, until submit returns", submit),
        Case::new("launch/wait_spin", "empty kernel: launch, submit, spin until completion", wait_spin),
        Case::new("launch/wait_sleep", "empty kernel: launch, submit, sleep until completion", wait_sleep),
        Case::new(
            "launch/visible_store",
            "launch, submit, spin until the CPU sees the kernel's store",
            visible_store,
        ),
        Case::new(
            "launch/dynamic_10000",
            "10,000 launches with a submission each, and a wait: per kernel",
            dynamic,
        ),
        Case::new(
            "launch/chained_10000",
            "10,000 launches in batches of 100, and a wait: per kernel",
            chained,
        ),
        Case::new(
            "launch/profiled_10000",
            "as chained_10000, with the time of each kernel recorded: per kernel",
            profiled,
        ),
        Case::new("launch/encode", "100 launches without their submission: per launch", encode),
        Case::new("launch/encode_typed", "as encode, by a typed kernel: per launch", encode_typed),
    ]
}

fn submit(bench: &mut Bench<'_>) -> Result<()> {
    let empty = bench.program(&BASICS)?.kernel("empty")?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let mut ours = || {
        let start = Instant::now();
        unsafe { queue.launch(&empty, 1, 32, &[]) }?;
        let fence = queue.submit()?;
        let elapsed = start.elapsed();
        fence.wait(TIMEOUT)?;
        Ok(elapsed)
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let mut launch = cuda.kernel(&BASICS, "empty")?.launch([1; 3], [32, 1, 1], &[])?;
        let stream = cuda.stream()?;
        Ok(Box::new(move || {
            let elapsed = timed(|| stream.launch(&mut launch))?;
            stream.wait()?;
            Ok(elapsed)
        }))
    })
}

fn wait_spin(bench: &mut Bench<'_>) -> Result<()> {
    wait(bench, WaitPolicy::Spin, &mut |cuda| {
        let mut launch = cuda.kernel(&BASICS, "empty")?.launch([1; 3], [32, 1, 1], &[])?;
        let stream = cuda.stream()?;
        Ok(Box::new(move || {
            timed(|| {
                stream.launch(&mut launch)?;
                stream.wait()
            })
        }))
    })
}

fn wait_sleep(bench: &mut Bench<'_>) -> Result<()> {
    wait(bench, WaitPolicy::Sleep, &mut |cuda| {
        let mut launch = cuda.kernel(&BASICS, "empty")?.launch([1; 3], [32, 1, 1], &[])?;
        let stream = cuda.stream()?;
        Ok(Box::new(move || {
            timed(|| {
                stream.launch(&mut launch)?;
                stream.wait_asleep()
            })
        }))
    })
}

fn wait(bench: &mut Bench<'_>, policy: WaitPolicy, rival: Rival<'_>) -> Result<()> {
    let empty = bench.program(&BASICS)?.kernel("empty")?;
    let mut queue = bench.queue(policy)?;
    let mut ours = || {
        timed(|| {
            unsafe { queue.launch(&empty, 1, 32, &[]) }?;
            Ok(queue.submit()?.wait(TIMEOUT)?)
        })
    };
    bench.measure(1, &mut ours, rival)
}

fn visible_store(bench: &mut Bench<'_>) -> Result<()> {
    let fill = bench.program(&BASICS)?.kernel("fill_u32")?;
    // The CPU may read the value of a signal at any time, also while the GPU writes it.
    let word = bench.device().signal(0)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let mut round = 0_u32;
    let mut ours = || {
        round += 1;
        let start = Instant::now();
        unsafe { queue.launch(&fill, 1, 32, &args![word.gpu_va(), round, 1_u32]) }?;
        let fence = queue.submit()?;
        let seen = spin_until("the kernel's store", || word.value() == u64::from(round));
        let elapsed = start.elapsed();
        // Check for a fault first: it explains more than a missing store.
        fence.wait(TIMEOUT)?;
        seen.map(|()| elapsed)
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let kernel = cuda.kernel(&BASICS, "fill_u32")?;
        let (stream, word) = (cuda.stream()?, cuda.shared_word()?);
        let arguments = [word.argument(), Argument::U32(0), Argument::U32(1)];
        let mut launch = kernel.launch([1; 3], [32, 1, 1], &arguments)?;
        let mut round = 0_u32;
        Ok(Box::new(move || {
            round += 1;
            launch.set(1, Argument::U32(round))?;
            let start = Instant::now();
            stream.launch(&mut launch)?;
            let seen = spin_until("the kernel's store", || word.value() == u64::from(round));
            let elapsed = start.elapsed();
            stream.wait()?;
            seen.map(|()| elapsed)
        }))
    })
}

fn dynamic(bench: &mut Bench<'_>) -> Result<()> {
    many(bench, 1)
}

fn chained(bench: &mut Bench<'_>) -> Result<()> {
    many(bench, BATCH)
}

/// As `chained`, while the queue records. Reading the times afterwards is not part of a sample.
fn profiled(bench: &mut Bench<'_>) -> Result<()> {
    let increment = bench.program(&BASICS)?.kernel("increment")?;
    let data = bench.device().alloc_from(&[0_u32; 32])?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    queue.profile(true)?;
    let rounds = bench.rounds(MANY);
    bench.measure_alone(rounds, &mut || {
        let elapsed = timed(|| {
            for round in 1..=rounds {
                // SAFETY: the kernel adds 1 to the 32 elements of `data`.
                unsafe { queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
                if round % BATCH == 0 {
                    queue.submit()?;
                }
            }
            Ok(queue.wait(TIMEOUT)?)
        })?;
        let recorded = queue.take_profile()?.spans.len() as u64;
        if recorded == rounds {
            Ok(elapsed)
        } else {
            Err(Error::WrongResult(format!("{recorded} launches recorded")))
        }
    })
}

/// Parameters of the kernel `increment`: the data and its length.
type Increment = (&'static mut [u32], Count<u32>);

fn encode(bench: &mut Bench<'_>) -> Result<()> {
    let increment = bench.program(&BASICS)?.kernel("increment")?;
    encode_alone(bench, &mut |queue, data| unsafe {
        Ok(queue.launch(&increment, 1, 32, &args![&*data, 32_u32])?)
    })
}

fn encode_typed(bench: &mut Bench<'_>) -> Result<()> {
    // SAFETY: the kernel adds 1 to the first n elements of its data.
    let increment = unsafe { bench.program(&BASICS)?.typed::<Increment>("increment")? };
    encode_alone(bench, &mut |queue, data| Ok(increment.launch(queue, 1, 32, (data, 32))?))
}

/// Measures launches without submission and wait: the checks, the launch record and its place in the batch.
fn encode_alone(
    bench: &mut Bench<'_>,
    launch: &mut dyn FnMut(&mut Queue, &mut Buffer<u32>) -> Result<()>,
) -> Result<()> {
    let mut data = bench.device().alloc_from(&[0_u32; 32])?;
    let mut queue = bench.queue(WaitPolicy::default())?;
    bench.measure_alone(BATCH, &mut || {
        let elapsed = timed(|| (0..BATCH).try_for_each(|_| launch(&mut queue, &mut data)))?;
        queue.wait(TIMEOUT)?;
        Ok(elapsed)
    })
}

/// Many launches with `batch` of them per submission. libcuda has no batches, so it submits them one by one.
fn many(bench: &mut Bench<'_>, batch: u64) -> Result<()> {
    let increment = bench.program(&BASICS)?.kernel("increment")?;
    let data = bench.device().alloc_from(&[0_u32; 32])?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let rounds = bench.rounds(MANY);
    let mut ours = || {
        timed(|| {
            for round in 1..=rounds {
                unsafe { queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
                if round % batch == 0 {
                    queue.submit()?;
                }
            }
            Ok(queue.wait(TIMEOUT)?)
        })
    };
    bench.measure(rounds, &mut ours, &mut |cuda| {
        let (kernel, stream) = (cuda.kernel(&BASICS, "increment")?, cuda.stream()?);
        let data = cuda.memory(32 * size_of::<u32>())?;
        let mut launch = kernel.launch([1; 3], [32, 1, 1], &[data.argument(), Argument::U32(32)])?;
        Ok(Box::new(move || {
            // Keeps the data until the stream has completed.
            let _data = &data;
            timed(|| {
                for _ in 0..rounds {
                    stream.launch(&mut launch)?;
                }
                stream.wait()
            })
        }))
    })
}
