//! Timelines: 64-bit counters in memory that the GPU advances as work ends.
//!
//! Each queue owns one slot of a page. The release at the end of a submission writes the value and a nanosecond time
//! stamp into the slot (16 bytes, `SEM_EXECUTE` of class C76F with RELEASE_TIMESTAMP). A submission's value is one more
//! than that of its predecessor, so "value >= n" means that everything up to submission n has ended. 64 bits never wrap
//! in practice.
//!
//! The commands that raise an interrupt after a submission follow the slots. NON_STALL_INTERRUPT (`clc76f.h`) wakes
//! threads that sleep in the kernel until the GPU has finished something. It has to follow the release that it reports.
//! But the release also returns the words of the submission to the CPU, so a command after it could be overwritten
//! before the host engine has fetched it. The interrupt is therefore in separate words, written once and valid as long
//! as the device, with a separate GPFIFO entry.

use core::any::Any;
use core::fmt::Debug;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};
use std::time::Duration;

use ampere_cmd::gpfifo;
use ampere_cmd::pushbuffer::{Encoder, SliceSink};
use gpu_hal::{DeviceMemory, volatile};

use crate::error::{Error, Result};
use crate::limits::MAX_QUEUES;

/// Distance between two slots in bytes: a CPU cache line, to avoid false sharing between queues.
const STRIDE: usize = 64;

/// Size of the slots in bytes.
pub(crate) const BYTES: u64 = (STRIDE * MAX_QUEUES) as u64;
/// Largest number of words in the commands of an interrupt.
const INTERRUPT_WORDS: usize = 4;
/// Size of the slots and of the commands behind them, in bytes.
pub(super) const WHOLE_BYTES: u64 = BYTES + 4 * INTERRUPT_WORDS as u64;

/// One slot. Valid as long as the device that created it, which every holder keeps alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    value: NonNull<u64>,
    gpu_va: u64,
}

// SAFETY: the pointer refers to memory that any thread and the GPU may access at any time; every access is a volatile
// access to one aligned word.
unsafe impl Send for Timeline {}
// SAFETY: as for `Send`.
unsafe impl Sync for Timeline {}

/// The timelines at the start of `memory`, all set to zero.
///
/// # Safety
///
/// The memory must have [`BYTES`] bytes, must be unused so far, and must live as long as the timelines.
pub(super) unsafe fn over(memory: &dyn DeviceMemory) -> Result<Box<[Timeline]>> {
    let first = memory.cpu()?;
    let make = |slot: usize| {
        // SAFETY: the slot is inside the memory, which is page-aligned.
        let value = unsafe { first.add(slot * STRIDE) }.cast::<u64>();
        let timeline = Timeline { value, gpu_va: memory.gpu_va() + (slot * STRIDE) as u64 };
        timeline.set(0);
        timeline
    };
    Ok((0..MAX_QUEUES).map(make).collect())
}

impl Timeline {
    /// The last value that the GPU has released. Writes made before the release are visible to the caller.
    #[inline]
    pub(crate) fn value(self) -> u64 {
        // SAFETY: aligned, inside the timeline page, which the device keeps alive.
        let value = unsafe { self.value.as_ptr().read_volatile() };
        fence(Ordering::Acquire);
        value
    }

    /// GPU time of the last release, in nanoseconds.
    pub(crate) fn timestamp(self) -> u64 {
        // SAFETY: the second word of the slot; as in `value`.
        unsafe { self.value.as_ptr().add(1).read_volatile() }
    }

    /// Writes the value from the CPU. No channel may use the slot.
    pub(crate) fn set(self, value: u64) {
        fence(Ordering::Release);
        // SAFETY: as in `value`.
        unsafe { self.value.as_ptr().write_volatile(value) };
    }

    /// Address of the value on the GPU.
    #[inline]
    pub(crate) fn gpu_va(self) -> u64 {
        self.gpu_va
    }
}

/// Writes the commands of an interrupt behind the timelines and returns their GPFIFO entry.
///
/// # Safety
///
/// The memory must have [`WHOLE_BYTES`] bytes, and the GPU must not use those behind the slots yet.
pub(super) unsafe fn write_interrupt(memory: &dyn DeviceMemory) -> Result<u64> {
    let mut words = [0; INTERRUPT_WORDS];
    let mut sink = SliceSink::new(&mut words);
    Encoder::new(&mut sink).non_stall_interrupt()?;
    let len = sink.len();
    let first = memory.cpu()?.as_ptr();
    // SAFETY: the words fit by the caller's promise, and the size of the slots is a multiple of 4.
    unsafe { volatile::store(first.add(BYTES as usize), bytemuck::cast_slice(&words[..len])) };
    // CAST: at most `INTERRUPT_WORDS`.
    let segment = gpfifo::Segment::new(memory.gpu_va() + BYTES, len as u32);
    Ok(gpfifo::Entry::from(segment).encode()?)
}

/// A queue whose timeline can be waited for: what the heap needs of the queues above it.
pub(crate) trait Progress: Any + Debug + Send + Sync {
    /// Waits until the submission with timeline value `value` has ended.
    fn wait(&self, value: u64, timeout: Duration) -> Result<()>;

    /// The outcome of a submission; `None` while it runs. Never blocks.
    fn peek(&self, value: u64) -> Option<Result<()>>;

    /// Returns an error if the kernel has stopped the channels.
    fn check(&self) -> Result<()>;

    /// The most recent value that the GPU has released.
    fn value(&self) -> u64;

    /// Whether the queue's submissions raise no interrupt when they end.
    fn spins(&self) -> bool;

    /// Sleeps until the GPU reports an event, for at most `longest`.
    fn sleep(&self, longest: Duration);

    /// Makes waits for the queue print what kernels have printed.
    fn expect_output(&self);

    /// The error of a wait that has timed out.
    fn time_out(&self, wanted: u64, seen: u64, timeout: Duration) -> Error;
}
