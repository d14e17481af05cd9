//! Timelines: 64-bit counters in memory that the GPU advances as work ends.
//!
//! Each queue owns one slot of a page. The release at the end of a submission writes the value and a nanosecond time
//! stamp into the slot (16 bytes, `SEM_EXECUTE` of class C76F with RELEASE_TIMESTAMP). A submission's value is one more
//! than that of its predecessor, so "value >= n" means that everything up to submission n has ended. 64 bits never wrap
//! in practice.

use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use crate::error::Result;
use crate::limits::MAX_QUEUES;
use gpu_hal::DeviceMemory;

/// Distance between two slots in bytes: a CPU cache line, to avoid false sharing between queues.
const STRIDE: usize = 64;

/// Size of the slots in bytes.
pub(crate) const BYTES: u64 = (STRIDE * MAX_QUEUES) as u64;

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
