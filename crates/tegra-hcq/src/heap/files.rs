//! Memory that files stand for: imported from other processes and drivers, or allocated here for them.

use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use gpu_hal::{DeviceMemory, FileAccess, FileId, MemoryUse};
use parking_lot::Mutex;

use super::pool::{self, Content, Memory};
use super::{Handle, Heap};
use crate::error::{RangeError, Result};

/// The memory behind files, by identity and access.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<BTreeMap<(FileId, FileAccess), Weak<Memory>>>);

impl Files {
    /// A further handle of memory that is still in use.
    fn get(&self, heap: &Arc<Heap>, id: FileId, access: FileAccess) -> Option<Handle> {
        let memory = self.0.lock().get(&(id, access))?.upgrade()?;
        let join = |handles: u32| (handles > 0).then_some(handles + 1);
        if memory.handles.fetch_update(Ordering::AcqRel, Ordering::Relaxed, join).is_err() {
            // Its last handle is gone; the GPU may still use it.
            let mut parked = heap.parked.lock();
            let at = parked.blocks.iter().position(|block| Arc::ptr_eq(block, &memory))?;
            parked.blocks.remove(at);
            heap.parked_count.fetch_sub(1, Ordering::Relaxed);
            memory.handles.store(1, Ordering::Release);
        }
        Some(Handle::new(memory, heap))
    }

    fn add(&self, id: FileId, memory: &Arc<Memory>) {
        let mut files = self.0.lock();
        files.retain(|_, memory| memory.strong_count() > 0);
        files.insert((id, memory.access()), Arc::downgrade(memory));
    }
}

impl Heap {
    /// Allocates memory of its own for files.
    pub(crate) fn allocate_shared(self: &Arc<Self>, bytes: u64) -> Result<Handle> {
        self.sweep();
        let page = rustix::param::page_size() as u64;
        let whole = bytes.max(1).checked_next_multiple_of(page).ok_or(RangeError::TooLarge { bytes })?;
        let label = Content::Shared.name();
        let allocate = || pool::driver_memory(self.driver(), whole, MemoryUse::Shared, label);
        let mut memory = allocate();
        if memory.as_ref().is_err_and(crate::Error::is_out_of_memory) && self.trim() > 0 {
            memory = allocate();
        }
        let memory = memory.map_err(|error| self.out_of_memory(bytes, error))?;
        Ok(self.enter_file(memory, Content::Shared, FileAccess::ReadWrite, bytes))
    }

    /// Takes ownership of memory that files stand for, of which `bytes` bytes were asked for.
    fn enter_file(
        self: &Arc<Self>,
        memory: Box<dyn DeviceMemory>,
        content: Content,
        access: FileAccess,
        bytes: u64,
    ) -> Handle {
        let id = memory.file_id();
        let memory = self.pool.adopt_shared(memory, content, access);
        if let Some(observer) = self.observer() {
            observer.adopted(&memory, bytes);
        }
        if let Some(id) = id {
            self.files.add(id, &memory);
        }
        Handle::new(memory, self)
    }

    /// Maps the memory behind a file, or returns what has mapped it.
    pub(crate) fn import_file(self: &Arc<Self>, file: BorrowedFd<'_>, access: FileAccess) -> Result<Handle> {
        self.sweep();
        let id = self.driver().file_id(file, access)?;
        if let Some(handle) = id.and_then(|id| self.files.get(self, id, access)) {
            return Ok(handle);
        }
        let memory = self.driver().import_file(file, access, Content::Imported.name())?;
        let bytes = memory.bytes();
        Ok(self.enter_file(memory, Content::Imported, access, bytes))
    }
}
