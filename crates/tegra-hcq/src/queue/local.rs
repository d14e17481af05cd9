//! Local memory: the backing store of the threads' stacks and spilled registers.
//!
//! The hardware lays it out per TPC, SM and warp. A kernel that needs more bytes per thread than allocated needs a
//! larger area before its launch (SET_SHADER_LOCAL_MEMORY_*, `clc7c0.h`).

use std::sync::Arc;

use ampere_cmd::command::local_memory_size;
use ampere_cmd::host_c76f::WfiScope;

use super::Queue;
use crate::error::Result;
use crate::heap::{Content, Handle};
use gpu_hal::MemoryUse;

/// Backing store of the threads' stacks.
#[derive(Debug)]
pub(super) struct LocalMemory {
    pub(super) memory: Handle,
    pub(super) bytes_per_thread: u32,
}

impl Queue {
    /// Ensures that threads have at least `bytes_per_thread` bytes of local memory in the open batch.
    #[inline]
    pub(crate) fn need_local(&mut self, bytes_per_thread: u32) -> Result<()> {
        if self.has_local(bytes_per_thread) { Ok(()) } else { self.grow_local(bytes_per_thread) }
    }

    /// Whether threads have at least that much local memory.
    #[inline]
    pub(super) fn has_local(&self, bytes_per_thread: u32) -> bool {
        self.local.as_ref().is_some_and(|local| local.bytes_per_thread >= bytes_per_thread)
    }

    /// Sets the local memory of the queue's threads to `bytes_per_thread` bytes.
    #[cold]
    pub(super) fn grow_local(&mut self, bytes_per_thread: u32) -> Result<()> {
        let bytes_per_thread = bytes_per_thread.checked_next_multiple_of(32).unwrap_or(u32::MAX);
        let device = Arc::clone(&self.state.device);
        let layout = device.driver().properties().local_layout;
        let size = local_memory_size(bytes_per_thread, layout)?;
        let memory = device.allocate(size.area_bytes, MemoryUse::Device, Content::LocalMemory)?;
        let va = memory.gpu_va();
        self.encode(|encoder| {
            // Threads of earlier launches still use the old memory.
            encoder.wait_for_idle(WfiScope::CurrentScgType)?;
            encoder.shader_local_memory(va)?;
            encoder.shader_local_memory_size(size.bytes_per_tpc, device.chip().local.max_sm_count)
        })?;
        if let Some(old) = self.local.replace(LocalMemory { memory, bytes_per_thread }) {
            // Freed after everything encoded so far has ended.
            self.note(&old.memory);
        }
        Ok(())
    }
}
