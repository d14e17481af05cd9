//! Shared ownership of a block of memory.

use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use gpu_hal::MemoryUse;

use super::pool::{Content, Memory};
use super::{Heap, Uses};
use crate::error::Result;

/// One of the owners of a block of memory. The last owner returns the block to the heap, which frees it after the GPU
/// has finished with it.
pub(crate) struct Handle {
    // `Some` until `drop` takes it.
    memory: Option<Arc<Memory>>,
    heap: Arc<Heap>,
}

impl Handle {
    /// Allocates at least `bytes` bytes, aligned to 256.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory, even after idle memory was
    /// returned to the driver.
    // Built by the caller, register by register: a handle that a function returns in memory is copied by a load that
    // stalls behind two smaller stores.
    #[inline(always)]
    pub(crate) fn allocate(
        heap: &Arc<Heap>,
        bytes: u64,
        purpose: MemoryUse,
        content: Content,
    ) -> Result<Self> {
        Ok(Self::new(heap.allocate(bytes, purpose, content)?, heap))
    }

    /// Takes ownership of newly allocated memory.
    #[inline]
    pub(crate) fn new(memory: Arc<Memory>, heap: &Arc<Heap>) -> Self {
        Self { memory: Some(memory), heap: Arc::clone(heap) }
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        // PANIC: only `drop` takes the memory.
        self.memory.as_deref().expect("a live handle has memory")
    }

    pub(crate) fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    #[inline]
    pub(crate) fn uses(&self) -> &Uses {
        &self.memory().uses
    }

    /// Records that work up to `value` of the queue in `slot` of the device of `heap` uses the memory.
    #[inline]
    pub(crate) fn note(&self, heap: &Arc<Heap>, slot: usize, value: u64) {
        if Arc::ptr_eq(heap, &self.heap) {
            self.uses().note(slot, value);
        } else {
            self.uses().note_by_peer(heap, slot, value);
        }
    }

    #[inline]
    pub(crate) fn gpu_va(&self) -> u64 {
        self.memory().gpu_va()
    }

    /// First byte on the CPU. The first call may map the memory.
    ///
    /// # Errors
    ///
    /// As [`Memory::map`].
    #[inline]
    pub(crate) fn map(&self) -> Result<*mut u8> {
        Ok(self.memory().map()?.as_ptr())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.gpu_va())
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.memory().handles.fetch_add(1, Ordering::Relaxed);
        Self { memory: self.memory.clone(), heap: Arc::clone(&self.heap) }
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        // Release and acquire: uses recorded by other owners are visible to the last one.
        if let Some(memory) = self.memory.take()
            && memory.handles.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.heap.free(memory);
        }
    }
}

/// Memory that the CPU writes or reads while the GPU works: mapped when it is allocated, so accesses cannot fail.
#[derive(Debug)]
pub(crate) struct Mapped {
    cpu: NonNull<u8>,
    // Keeps the pointer valid.
    handle: Handle,
}

// SAFETY: as for [`Memory`], to which the pointer refers.
unsafe impl Send for Mapped {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the memory of a handle.
    ///
    /// # Errors
    ///
    /// As [`Memory::map`].
    pub(crate) fn new(handle: Handle) -> Result<Self> {
        Ok(Self { cpu: handle.memory().map()?, handle })
    }

    /// First byte on the CPU, valid for the size of the memory while `self` lives.
    #[inline]
    pub(crate) fn cpu(&self) -> *mut u8 {
        self.cpu.as_ptr()
    }
}

impl Deref for Mapped {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}
