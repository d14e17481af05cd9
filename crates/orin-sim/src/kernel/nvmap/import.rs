//! FROM_VA: a handle for existing memory of the process (`nvmap_handle.c`, `nvmap_alloc.c`).
//!
//! The kernel pins the pages, so a program may unmap its own mapping before the GPU is done. The model maps shared
//! memory a second time. It uses private memory in place, under a guard that replaces unmapped pages
//! ([`crate::caller::guard`]); the contracts of `send_pointing` and `import_host` forbid other use of the addresses.
//! The resulting dma-buf can be mapped by the CPU, but accessing the mapping kills the process, as on a board.

use core::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

use gpu_log::{Level, MemoryLine};
use nvgpu_sys::nvmap::{self as abi, CreateHandleFromVa, HandleFlags, Heaps};
use rustix::io::Errno;

use crate::caller::maps;
use crate::memory::Memory;

use super::super::log::Log;
use super::super::process::task::Task;
use super::range::Sources;
use super::{Buffer, Handle, Nvmap, PAGE, Storage};

/// Returns the first page, if all pages can be read, and written unless `read_only`.
fn pin(va: u64, len: u64, read_only: bool) -> Option<NonNull<u8>> {
    let end = va.checked_add(len)?;
    let mut at = va;
    while at < end {
        let vma = maps::find(at).filter(|vma| vma.start <= at && vma.readable)?;
        if !vma.writable && !read_only {
            return None;
        }
        at = vma.end;
    }
    NonNull::new(ptr::with_exposed_provenance_mut::<u8>(usize::try_from(va).ok()?))
}

impl Nvmap {
    /// FROM_VA. Either field contains the size; without one, the buffer extends to the end of the mapping. `devices`
    /// are the ranges `(address, length)` of the process that map registers and cannot be pinned.
    pub(super) fn import(
        &mut self,
        task: &Task<'_>,
        log: &Log,
        devices: &[(u64, u64)],
        args: &mut CreateHandleFromVa,
    ) -> Result<(), Errno> {
        if !args.va.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        if !task.is_direct() {
            log.model(MemoryLine::FromVaElsewhere { address: args.va });
            return Err(Errno::INVAL);
        }
        let vma = maps::find(args.va).ok_or(Errno::INVAL)?;
        let bytes = match (args.size, args.size_or_handle) {
            (0, 0) => vma.end - args.va,
            (0, size) => size,
            (size, _) => u64::from(size),
        };
        // Counted in whole pages, like in the kernel.
        if bytes / PAGE > self.largest() / PAGE {
            return Err(Errno::NOMEM);
        }
        let read_only = args.flags & HandleFlags::READ_ONLY.bits() != 0;
        if !vma.writable && !read_only {
            return Err(Errno::INVAL);
        }
        let size = bytes.next_multiple_of(PAGE);
        self.check_tag(task, log, args.flags);
        let device =
            |(start, len): &(u64, u64)| args.va < start + len && *start < args.va.saturating_add(size);
        let pinned = if devices.iter().any(device) { None } else { pin(args.va, size, read_only) };
        let Some(pointer) = pinned else {
            let pages = size / PAGE;
            let function = "alloc_handle_from_va";
            log.nvmap(Level::Error, function, MemoryLine::UserPages { requested: pages, got: -14 });
            log.nvmap(Level::Error, "nvmap_create_handle_from_va", MemoryLine::FromVaFailed { error: -22 });
            return Err(Errno::INVAL);
        };
        // CAST: the range is mapped, so its length fits usize.
        let len = size as usize;
        let whole = vma.shared && vma.start <= args.va && args.va + size <= vma.end;
        // SAFETY: the range is part of one shared mapping.
        let pinned = whole.then(|| unsafe { Memory::pin(pointer, len) }.ok()).flatten();
        let memory = match pinned {
            Some(memory) => memory,
            // Emulators of user programs (qemu-user) refuse the second mapping; the memory is then used in place.
            // SAFETY: the range is mapped now, and the caller of FROM_VA uses the addresses for nothing else until the
            // last use of the buffer (module documentation).
            None => unsafe { Memory::import(pointer, len) }?,
        };
        let memory = memory.labelled("imported host memory").requested_as(bytes);
        let memory = Arc::new(if self.watched { memory.watched(false) } else { memory });
        let storage = Storage {
            memory: OnceLock::from(memory),
            label: String::new(),
            watched: None,
            heap: Heaps::IOVMM,
            align: 4096,
            cache: args.flags & abi::CACHE_MASK,
            flags: args.flags,
            bytes: 0,
            pool: Arc::clone(&self.system),
            _sources: Sources::default(),
        };
        let handle = Handle::new(bytes, OnceLock::from(storage), self).ok_or(Errno::NOMEM)?;
        let id = self.enter(Buffer { handle: Arc::new(handle), read_only });
        args.size_or_handle = args.size_or_handle & !u64::from(u32::MAX) | u64::from(id);
        Ok(())
    }
}
