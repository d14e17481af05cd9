//! Copies between host memory and buffers, and from buffer to buffer.

use tegra_hcq::{MemoryUse, WaitPolicy};

use super::{KIB, MIB, size_name};
use crate::TIMEOUT;
use crate::bench::{Bench, Sampler, timed};
use crate::case::{Case, Unit};
use crate::cuda;
use crate::error::{Error, Result};

/// Sizes of the copies, in bytes.
const SIZES: [u64; 6] = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB];
/// Largest copy that the software Orin does in reasonable time, in bytes.
const MODEL: u64 = MIB;

type Run = fn(&mut Bench<'_>) -> Result<()>;

/// The kinds of copies. The rate counts every byte once, although a copy reads and writes it.
const KINDS: [(&str, &str, Run); 6] = [
    ("to_device", "host memory to an idle buffer", to_device),
    ("to_host", "an idle buffer to host memory", to_host),
    (
        "pinned_up",
        "pinned host memory to a buffer by the copy engine: call, submit, spin until completion",
        up,
    ),
    (
        "pinned_down",
        "a buffer to pinned host memory by the copy engine: call, submit, spin until completion",
        down,
    ),
    ("engine", "buffer to buffer by the copy engine: call, submit, spin until completion", by_engine),
    ("kernel", "buffer to buffer by the graph's copy kernel: replay, spin until completion", by_kernel),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, about, run) in KINDS {
        for size in SIZES {
            let case = Case::new(&format!("copy/{kind}/{}", size_name(size)), about, run)
                .size(size)
                .unit(Unit::Bytes(size))
                .needs(3 * size, size > MODEL);
            cases.push(case);
        }
    }
    cases
}

/// Bytes that depend on their position.
fn pattern(len: usize) -> Vec<u8> {
    // CAST: truncation to the low byte is intended.
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

fn check(got: &[u8], wanted: &[u8]) -> Result<()> {
    match got.iter().zip(wanted).position(|(got, wanted)| got != wanted) {
        Some(at) => Err(Error::WrongResult(format!("byte {at} is {}, not {}", got[at], wanted[at]))),
        None => Ok(()),
    }
}

fn to_device(bench: &mut Bench<'_>) -> Result<()> {
    let host = pattern(bench.len());
    let mut buffer = bench.device().alloc::<u8>(host.len())?;
    buffer.copy_from_slice(&host)?;
    check(&buffer.to_vec()?, &host)?;
    let mut ours = || timed(|| Ok(buffer.copy_from_slice(&host)?));
    bench.measure(1, &mut ours, &mut |cuda| {
        let (host, mut memory) = (host.clone(), cuda.memory(host.len())?);
        Ok(Box::new(move || timed(|| memory.copy_from(&host))))
    })
}

fn to_host(bench: &mut Bench<'_>) -> Result<()> {
    let source = pattern(bench.len());
    let buffer = bench.device().alloc_from(&source)?;
    let mut host = vec![0; source.len()];
    let mut ours = || timed(|| Ok(buffer.copy_to_slice(&mut host)?));
    bench.measure(1, &mut ours, &mut |cuda| {
        let mut memory = cuda.memory(source.len())?;
        memory.copy_from(&source)?;
        let mut host = vec![0; source.len()];
        Ok(Box::new(move || timed(|| memory.copy_to(&mut host))))
    })?;
    check(&host, &source)
}

/// Measures copies by the copy engine from a buffer for `from` to a buffer for `to`. `rival` copies the contents.
fn through_engine(
    bench: &mut Bench<'_>,
    (from, to): (MemoryUse, MemoryUse),
    rival: fn(&cuda::Cuda, &[u8]) -> Result<Box<Sampler>>,
) -> Result<()> {
    let contents = pattern(bench.len());
    let mut source = bench.device().alloc_for::<u8>(contents.len(), from)?;
    source.copy_from_slice(&contents)?;
    let mut target = bench.device().alloc_for::<u8>(contents.len(), to)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let mut ours = || {
        timed(|| {
            queue.copy(&source, &mut target)?;
            Ok(queue.submit()?.wait(TIMEOUT)?)
        })
    };
    bench.measure(1, &mut ours, &mut |cuda| rival(cuda, &contents))?;
    check(&target.to_vec()?, &contents)
}

fn by_engine(bench: &mut Bench<'_>) -> Result<()> {
    through_engine(bench, (MemoryUse::Device, MemoryUse::Device), |cuda, contents| {
        let (source, mut target, bytes) = rival_pair(cuda, contents)?;
        let stream = cuda.stream()?;
        Ok(Box::new(move || {
            timed(|| {
                stream.copy(&source, &mut target, bytes)?;
                stream.wait()
            })
        }))
    })
}

fn up(bench: &mut Bench<'_>) -> Result<()> {
    through_engine(bench, (MemoryUse::Upload, MemoryUse::Device), |cuda, contents| {
        let mut source = cuda.pinned(contents.len())?;
        source.bytes_mut().copy_from_slice(contents);
        let (mut target, stream) = (cuda.memory(contents.len())?, cuda.stream()?);
        Ok(Box::new(move || timed(|| stream.copy_up(&source, &mut target))))
    })
}

fn down(bench: &mut Bench<'_>) -> Result<()> {
    through_engine(bench, (MemoryUse::Device, MemoryUse::ReadBack), |cuda, contents| {
        let mut source = cuda.memory(contents.len())?;
        source.copy_from(contents)?;
        let (mut target, stream) = (cuda.pinned(contents.len())?, cuda.stream()?);
        Ok(Box::new(move || timed(|| stream.copy_down(&source, &mut target))))
    })
}

fn by_kernel(bench: &mut Bench<'_>) -> Result<()> {
    let contents = pattern(bench.len());
    let source = bench.device().alloc_from(&contents)?;
    let mut target = bench.device().alloc_zeroed::<u8>(contents.len())?;
    let mut builder = bench.device().graph();
    builder.copy(&source, &mut target)?;
    let mut graph = builder.build()?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let mut ours = || timed(|| Ok(queue.replay(&mut graph)?.wait(TIMEOUT)?));
    bench.measure(1, &mut ours, &mut |cuda| {
        let (source, target, bytes) = rival_pair(cuda, &contents)?;
        let stream = cuda.stream()?;
        let graph = cuda::Graph::of_copy(&stream, source, target, bytes)?;
        Ok(Box::new(move || {
            timed(|| {
                graph.launch(&stream)?;
                stream.wait()
            })
        }))
    })?;
    check(&target.to_vec()?, &contents)
}

fn rival_pair(cuda: &cuda::Cuda, contents: &[u8]) -> Result<(cuda::Memory, cuda::Memory, usize)> {
    let (mut source, target) = (cuda.memory(contents.len())?, cuda.memory(contents.len())?);
    source.copy_from(contents)?;
    Ok((source, target, contents.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found() {
        let wanted = pattern(70_000);
        check(&wanted, &wanted).unwrap();
        let mut got = wanted.clone();
        got[65_000] ^= 1;
        assert!(check(&got, &wanted).unwrap_err().to_string().contains("byte 65000"));
    }
}
