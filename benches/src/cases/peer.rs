//! Copies and signals between two GPUs.

use tegra_hcq::{Buffer, Device, Link, Queue, QueueOptions, WaitPolicy};

use super::{KIB, MIB, size_name};
use crate::TIMEOUT;
use crate::bench::{Bench, timed};
use crate::case::{Case, Unit};
use crate::cuda::Cuda;
use crate::error::{Error, Result};

/// Sizes of the copies, in bytes.
const SIZES: [u64; 6] = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB];
/// Largest copy that the software Orin does in reasonable time, in bytes.
const MODEL: u64 = MIB;
/// Turns of the two queues, per sample.
const TURNS: u64 = 100;

pub(super) fn cases() -> Vec<Case> {
    type Run = fn(&mut Bench<'_>) -> Result<()>;
    let kinds: [(&str, &str, Run); 2] = [
        ("push", "a buffer to another GPU's: call, submit, spin until completion", |bench| {
            copy(bench, false)
        }),
        ("pull", "a buffer from another GPU's: call, submit, spin until completion", |bench| {
            copy(bench, true)
        }),
    ];
    let mut cases = Vec::new();
    for (kind, about, run) in kinds {
        for size in SIZES {
            let case = Case::new(&format!("peer/{kind}/{}", size_name(size)), about, run)
                .size(size)
                .unit(Unit::Bytes(size))
                .needs(3 * size, size > MODEL);
            cases.push(case.needs_peer());
        }
    }
    let about = "queues of two GPUs wait for each other's signal in turns: per turn";
    cases.push(Case::new("peer/signal", about, signal).needs_peer());
    cases
}

fn spinning(device: &Device) -> Result<Queue> {
    Ok(device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin))?)
}

/// One copy, by the queue of the first device if it reaches the other's memory.
fn copy_once(
    link: &mut Link,
    [near, far]: [&mut Queue; 2],
    source: &Buffer<u8>,
    target: &mut Buffer<u8>,
    pull: bool,
) -> Result<()> {
    if link.access().is_direct() {
        near.copy(source, target)?;
        return Ok(near.submit()?.wait(TIMEOUT)?);
    }
    let (from, to) = if pull { (far, near) } else { (near, far) };
    Ok(link.copy(from, source, to, target)?.wait(TIMEOUT)?)
}

fn copy(bench: &mut Bench<'_>, pull: bool) -> Result<()> {
    // CAST: truncation to the low byte is intended.
    let contents: Vec<u8> = (0..bench.len()).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    let (near, far) = (bench.device().clone(), bench.peer()?);
    let mut link = near.link(&far)?;
    let (from, to) = if pull { (&far, &near) } else { (&near, &far) };
    let (source, mut target) = (from.alloc_from(&contents)?, to.alloc_zeroed::<u8>(contents.len())?);
    let mut queues = [spinning(&near)?, spinning(&far)?];
    let mut ours = || {
        timed(|| {
            let [near, far] = &mut queues;
            copy_once(&mut link, [near, far], &source, &mut target, pull)
        })
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let (near, far) = (cuda.clone(), cuda.second()?);
        let (from, to) = if pull { (&far, &near) } else { (&near, &far) };
        let mut source = from.memory(contents.len())?;
        source.copy_from(&contents)?;
        let (mut target, bytes) = (to.memory(contents.len())?, contents.len());
        let stream = near.stream()?;
        Ok(Box::new(move || {
            near.enter()?;
            let elapsed = timed(|| {
                stream.copy_peer(&source, &mut target, bytes)?;
                stream.wait()
            });
            // Keeps the second context.
            let _ = &far;
            elapsed
        }))
    })?;
    match target.to_vec()?.iter().zip(&contents).position(|(got, wanted)| got != wanted) {
        Some(at) => Err(Error::WrongResult(format!("byte {at} differs"))),
        None => Ok(()),
    }
}

fn signal(bench: &mut Bench<'_>) -> Result<()> {
    let (near, far) = (bench.device(), bench.peer()?);
    let (ping, pong) = (near.shared_signal(&far, 0)?, near.shared_signal(&far, 0)?);
    let (mut left, mut right) = (spinning(near)?, spinning(&far)?);
    let turns = bench.rounds(TURNS);
    let mut next = 0;
    let mut ours =
        || timed(|| super::signal::take_turns(&mut left, &mut right, &ping, &pong, turns, &mut next));
    bench.measure(2 * turns, &mut ours, &mut |near: &Cuda| {
        let (near, far) = (near.clone(), near.second()?);
        let (left, ping, pong) = (near.stream()?, near.shared_word()?, near.shared_word()?);
        let right = far.stream()?;
        let mut next = 0;
        Ok(Box::new(move || {
            timed(|| {
                for _ in 0..turns {
                    next += 1;
                    near.enter()?;
                    left.write_value(&ping, next)?;
                    far.enter()?;
                    right.wait_value(&ping, next)?;
                    right.write_value(&pong, next)?;
                    near.enter()?;
                    left.wait_value(&pong, next)?;
                }
                far.enter()?;
                right.wait()?;
                near.enter()?;
                left.wait()
            })
        }))
    })
}
