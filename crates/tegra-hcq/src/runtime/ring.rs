//! The ring in host memory that kernels write records to, and its control words in GPU memory.
//!
//! A record begins at a multiple of 16 bytes with two words: its tag, then its size in bytes in the lower and its kind
//! in the upper half. The tag is twice the record's offset plus 2, plus 1 when the record is complete. Offsets count
//! all bytes ever written, so no old word is taken for a tag. Kernels may write anything there, so nothing is trusted.

use core::mem::offset_of;
use core::sync::atomic::{Ordering, fence};
use std::sync::Arc;

use gpu_hal::{MemoryUse, volatile};
use zerocopy::{Immutable, IntoBytes};

use crate::error::Result;
use crate::heap::{Content, Handle, Heap, Mapped};

/// Smallest ring in bytes.
const LEAST_BYTES: u64 = 4096;
/// Words of a record before its contents.
const HEADER: u64 = 2;

/// A complete record.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) kind: u32,
    pub(super) words: Vec<u64>,
}

/// `Ring` of `functions.cu`: see there.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Control {
    head: u64,
    tail: u64,
    lost: u64,
    words: u64,
    bytes: u64,
}

/// The ring.
#[derive(Debug)]
pub(super) struct Ring {
    control: Mapped,
    memory: Mapped,
    /// Size, a power of two.
    bytes: u64,
    /// Offset of the next record.
    tail: u64,
    /// Number of lost records that were reported.
    lost: u64,
}

impl Ring {
    /// An empty ring of at least `bytes` bytes.
    pub(super) fn new(heap: &Arc<Heap>, bytes: u64) -> Result<Self> {
        let bytes = bytes.max(LEAST_BYTES).next_power_of_two();
        let memory = Mapped::new(Handle::allocate(heap, bytes, MemoryUse::ReadBack, Content::Runtime)?)?;
        let place = size_of::<Control>() as u64;
        let control = Mapped::new(Handle::allocate(heap, place, MemoryUse::Device, Content::Runtime)?)?;
        let content = Control { head: 0, tail: 0, lost: 0, words: memory.gpu_va(), bytes };
        // SAFETY: the allocations are new and have the sizes. CAST: the CPU has mapped the memory.
        unsafe {
            volatile::fill(memory.cpu(), 0, bytes as usize);
            volatile::store(control.cpu(), content.as_bytes());
        }
        Ok(Self { control, memory, bytes, tail: 0, lost: 0 })
    }

    /// Address of the control words.
    pub(super) fn gpu_va(&self) -> u64 {
        self.control.gpu_va()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The control word at a byte offset of [`Control`].
    fn control(&self, offset: usize) -> *mut u64 {
        // SAFETY: the offset is that of a field, inside the allocation.
        unsafe { self.control.cpu().add(offset).cast() }
    }

    /// Makes the space of the records that were taken free. Returns the number of records that were lost since the last
    /// call. After a fault, `stopped`, all that kernels have reserved is discarded.
    pub(super) fn settle(&mut self, before: u64, stopped: bool) -> u64 {
        if stopped {
            // SAFETY: aligned, in the control words, which `self` keeps alive.
            let head = unsafe { self.control(offset_of!(Control, head)).read_volatile() };
            if head > self.tail && head - self.tail <= self.bytes && head.is_multiple_of(16) {
                self.tail = head;
            }
        }
        if self.tail == before {
            // Records are lost only while others are in the ring.
            return 0;
        }
        // SAFETY: as above; only the host writes the tail.
        unsafe { self.control(offset_of!(Control, tail)).write_volatile(self.tail) };
        // SAFETY: as above.
        let lost = unsafe { self.control(offset_of!(Control, lost)).read_volatile() };
        lost.saturating_sub(core::mem::replace(&mut self.lost, lost))
    }

    /// Offset of the next record.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// The word at an offset that is a multiple of 8.
    fn word(&self, offset: u64) -> u64 {
        // CAST: the ring is mapped by the CPU.
        let at = (offset & (self.bytes - 1)) as usize;
        // SAFETY: aligned, inside the ring, which `self` keeps alive.
        unsafe { self.memory.cpu().add(at).cast::<u64>().read_volatile() }
    }

    /// Takes the next complete record. With `skip`, those before it that are incomplete are discarded.
    pub(super) fn next(&mut self, skip: bool) -> Option<Record> {
        loop {
            let begun = self.tail.wrapping_mul(2).wrapping_add(2);
            let tag = self.word(self.tail);
            let complete = tag == begun + 1;
            let passes = complete || skip && tag == begun;
            if !passes {
                return None;
            }
            fence(Ordering::Acquire);
            let header = self.word(self.tail + 8);
            // CAST: two halves.
            let (bytes, kind) = (u64::from(header as u32), (header >> 32) as u32);
            if !bytes.is_multiple_of(16) || bytes == 0 || bytes > self.bytes {
                // Another record was never begun, or the kernel wrote over it.
                return None;
            }
            let words = (HEADER..bytes / 8).map(|word| self.word(self.tail + 8 * word));
            let record = complete.then(|| Record { kind, words: words.collect() });
            self.tail += bytes;
            if record.is_some() {
                return record;
            }
        }
    }
}
