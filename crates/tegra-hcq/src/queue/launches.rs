//! The ring of launch records of a queue: see [`record`].

use std::sync::Arc;

use ampere_cmd::qmd::ALIGNMENT;

use super::batch::ChainEnd;
use super::record;
use crate::descriptor::Shape;
use crate::error::Result;
use crate::memory::{Content, Handle};
use crate::program::KernelCode;
use crate::ring::{Cursor, Mark};
use crate::shared::Shared;
use gpu_hal::MemoryUse;

/// Size of the ring in bytes: over a thousand records of usual size.
const BYTES: u64 = 2 << 20;

/// Launch records in GPU memory, and what the GPU does not use of it.
#[derive(Debug)]
pub(super) struct LaunchRing {
    memory: Handle,
    cursor: Cursor,
}

impl LaunchRing {
    /// An empty ring.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub(super) fn new(device: &Arc<Shared>) -> Result<Self> {
        let memory = device.allocate(BYTES, MemoryUse::Commands, Content::LaunchRecords)?;
        Ok(Self { memory, cursor: Cursor::new(BYTES) })
    }

    /// Starts over with an empty ring, none of whose records is used any more.
    pub(super) fn restart(&mut self) {
        self.cursor = Cursor::new(BYTES);
    }

    /// The memory of the records.
    pub(super) fn memory(&self) -> &Handle {
        &self.memory
    }

    /// Offset of `bytes` bytes for a record; `None` while the ring is too full.
    #[inline]
    pub(super) fn reserve(&mut self, bytes: u64) -> Option<u64> {
        self.cursor.reserve(bytes, ALIGNMENT)
    }

    /// Whether a record of `bytes` bytes fits an empty ring.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.cursor.capacity()
    }

    /// Everything reserved so far.
    #[inline]
    pub(super) fn mark(&self) -> Mark {
        self.cursor.mark()
    }

    /// Frees everything reserved before `mark`.
    #[inline]
    pub(super) fn release(&mut self, mark: Mark) {
        self.cursor.release(mark);
    }

    /// GPU address of the descriptor of a record.
    #[inline]
    pub(super) fn va(&self, record: ChainEnd) -> u64 {
        self.memory.gpu_va() + record.offset
    }

    /// Writes a record to the place at `offset` that [`LaunchRing::reserve`] gave for it.
    ///
    /// # Errors
    ///
    /// When a number does not fit its field; nothing is written then.
    #[inline]
    pub(super) fn store(
        &mut self,
        offset: u64,
        bank: &[u8],
        code: &KernelCode,
        shape: &Shape,
    ) -> Result<ChainEnd> {
        // SAFETY: `reserve` gave the record's bytes at `offset` inside the memory, and nothing in flight uses them; the
        // memory lives as long as `self`.
        let link = unsafe {
            let target = self.memory.cpu().add(offset as usize);
            record::store(target, self.memory.gpu_va() + offset, bank, code, shape)?
        };
        Ok(ChainEnd { offset: offset + record::bank_bytes(code), link })
    }

    /// Chains a record to `last`, the last one that was written. The GPU has not got that one yet.
    ///
    /// # Errors
    ///
    /// If the address of the record does not fit a pointer; `last` is unchanged then.
    #[inline]
    pub(super) fn chain(&mut self, last: ChainEnd, next: ChainEnd) -> Result<()> {
        let next_va = self.va(next);
        // SAFETY: the descriptor lies inside the memory, which lives as long as `self`.
        unsafe { last.link.store(next_va, self.memory.cpu().add(last.offset as usize)) }
    }

    /// Lets `last`, the last record that was written, which the GPU has not been given yet, release `value` to the
    /// semaphore at `va`.
    ///
    /// # Errors
    ///
    /// When the address does not fit its field.
    #[inline]
    pub(super) fn release_by(&mut self, last: ChainEnd, va: u64, value: u64) -> Result<()> {
        // SAFETY: the descriptor lies inside the memory, which lives as long as `self`.
        unsafe {
            let descriptor = self.memory.cpu().add(last.offset as usize);
            last.link.store_release(va, value, descriptor)
        }
    }

    /// Undoes [`LaunchRing::release_by`].
    #[cold]
    pub(super) fn revoke_release(&mut self, last: ChainEnd) {
        // SAFETY: as in `release_by`.
        unsafe {
            let descriptor = self.memory.cpu().add(last.offset as usize);
            last.link.clear_release(descriptor);
        }
    }
}
