//! Memory and fences as files: what a frame costs beside the work on it.

use tegra_hcq::WaitPolicy;

use crate::TIMEOUT;
use crate::bench::{Bench, timed};
use crate::case::Case;
use crate::error::Result;

/// Bytes of a frame: 1920 x 1080 in NV12.
const FRAME: usize = 1920 * 1080 * 3 / 2;

pub(super) fn cases() -> Vec<Case> {
    let about = "a queue ends with a fence file, another waits for it, the CPU spins for the end of both";
    vec![
        Case::new("file/fence", about, fence).needs_fence_files(),
        Case::new("file/event", "the same with a fence of the library instead of a file", event),
        Case::new("file/import", "a frame of 3.1 MB behind a file is mapped and unmapped again", import),
        Case::new(
            "file/copy",
            "the same frame is copied to a buffer by the CPU instead, and waited for",
            copy,
        )
        .needs(2 * FRAME as u64, false),
    ]
}

fn fence(bench: &mut Bench<'_>) -> Result<()> {
    let (mut first, mut second) = (bench.queue(WaitPolicy::Spin)?, bench.queue(WaitPolicy::Spin)?);
    let mut word = bench.device().alloc_zeroed::<u32>(1)?;
    bench.measure_alone(1, &mut || {
        timed(|| {
            first.write(&mut word, 0, 1)?;
            let file = first.submit_to_file()?;
            second.wait_file(&file)?;
            second.write(&mut word, 0, 2)?;
            Ok(second.wait(TIMEOUT)?)
        })
    })
}

fn event(bench: &mut Bench<'_>) -> Result<()> {
    let (mut first, mut second) = (bench.queue(WaitPolicy::Spin)?, bench.queue(WaitPolicy::Spin)?);
    let mut word = bench.device().alloc_zeroed::<u32>(1)?;
    bench.measure_alone(1, &mut || {
        timed(|| {
            first.write(&mut word, 0, 1)?;
            let fence = first.submit()?;
            second.wait_fence(&fence)?;
            second.write(&mut word, 0, 2)?;
            Ok(second.wait(TIMEOUT)?)
        })
    })
}

fn import(bench: &mut Bench<'_>) -> Result<()> {
    // Of another device: this one has not mapped the memory.
    let owner = tegra_hcq::Device::open(bench.device().info().kind)?;
    let file = owner.alloc_shared::<u8>(FRAME)?.export()?;
    let device = bench.device();
    bench.measure_alone(1, &mut || {
        timed(|| {
            device.import_file::<u8>(&file, ..FRAME)?;
            Ok(())
        })
    })
}

fn copy(bench: &mut Bench<'_>) -> Result<()> {
    let (frame, mut queue) = (vec![7_u8; FRAME], bench.queue(WaitPolicy::Spin)?);
    let mut target = bench.device().alloc::<u8>(FRAME)?;
    bench.measure_alone(1, &mut || {
        timed(|| {
            queue.upload(&frame, &mut target)?;
            Ok(queue.wait(TIMEOUT)?)
        })
    })
}
