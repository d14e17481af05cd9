//! Shared ownership of a piece of memory.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use super::pool::Memory;
use crate::shared::{Shared, Uses};

/// One of the owners of a piece of memory. The last to go gives it back to the device, which frees it
/// when the GPU is done with it.
#[derive(Debug)]
pub(crate) struct Handle {
    // Always `Some` until `drop` takes it.
    memory: Option<Arc<Memory>>,
    device: Arc<Shared>,
}

impl Handle {
    /// Owns memory that was just allocated.
    pub(crate) fn new(memory: Arc<Memory>, device: &Arc<Shared>) -> Self {
        Self { memory: Some(memory), device: Arc::clone(device) }
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        // PANIC: the memory is only taken by `drop`.
        self.memory.as_deref().expect("a live handle has memory")
    }

    pub(crate) fn device(&self) -> &Arc<Shared> {
        &self.device
    }

    #[inline]
    pub(crate) fn uses(&self) -> &Uses {
        &self.memory().uses
    }

    #[inline]
    pub(crate) fn gpu_va(&self) -> u64 {
        self.memory().gpu_va()
    }

    /// First byte on the CPU.
    #[inline]
    pub(crate) fn cpu(&self) -> *mut u8 {
        self.memory().cpu().as_ptr()
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.memory().handles.fetch_add(1, Ordering::Relaxed);
        Self { memory: self.memory.clone(), device: Arc::clone(&self.device) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Release and acquire: what other owners noted in the uses is visible to the last one.
        if let Some(memory) = self.memory.take()
            && memory.handles.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.device.free(memory);
        }
    }
}
