//! FROM_VA: a handle over memory that the process already has (`nvmap_handle.c`, `nvmap_alloc.c`).
//!
//! The kernel pins the pages; the model uses them in place and relies on the caller to keep them
//! mapped until the last use of the buffer, as importers have to promise anyway. A CPU mapping of
//! the resulting dma-buf is given, but touching it ends the process, as on a board.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use nvgpu_sys::nvmap::{self as abi, CreateHandleFromVa, HandleFlags, Heaps};
use rustix::io::Errno;
use rustix::mm::Advice;

use crate::memory::Memory;

use super::super::log::{Level, Log};
use super::{Buffer, Handle, Nvmap, PAGE, Storage};

/// One mapping of the process.
#[derive(Clone, Copy, Debug)]
struct Vma {
    end: u64,
    writable: bool,
}

/// The mapping at `va` or the next one above it.
fn find_vma(va: u64) -> Option<Vma> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let end = u64::from_str_radix(range.split_once('-')?.1, 16).ok()?;
        (end > va).then(|| Vma { end, writable: rest.as_bytes().get(1) == Some(&b'w') })
    })
}

/// Faults all pages in, for writing if they will be written.
fn pin(va: u64, len: u64, read_only: bool) -> Option<NonNull<u8>> {
    let advice = if read_only { Advice::LinuxPopulateRead } else { Advice::LinuxPopulateWrite };
    let (address, len) = (usize::try_from(va).ok()?, usize::try_from(len).ok()?);
    let pointer = ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: populating changes no contents and no permissions, whatever is mapped there.
    unsafe { rustix::mm::madvise(pointer.cast::<c_void>(), len, advice) }.ok()?;
    NonNull::new(pointer)
}

impl Nvmap {
    /// FROM_VA. The size is in either field; none means up to the end of the mapping.
    pub(super) fn import(&mut self, log: &Log, args: &mut CreateHandleFromVa) -> Result<(), Errno> {
        if !args.va.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let vma = find_vma(args.va).ok_or(Errno::INVAL)?;
        let bytes = match (args.size, args.size_or_handle) {
            (0, 0) => vma.end - args.va,
            (0, size) => size,
            (size, _) => u64::from(size),
        };
        if bytes > self.system.total {
            return Err(Errno::NOMEM);
        }
        let read_only = args.flags & HandleFlags::READ_ONLY.bits() != 0;
        if !vma.writable && !read_only {
            return Err(Errno::INVAL);
        }
        let size = bytes.next_multiple_of(PAGE);
        self.check_tag(log, args.flags);
        let Some(pointer) = pin(args.va, size, read_only) else {
            let pages = size / PAGE;
            let function = "alloc_handle_from_va";
            log.nvmap(Level::Error, function, format_args!("get_user_pages requested/got: {pages}/-14]"));
            log.nvmap(
                Level::Error,
                "nvmap_create_handle_from_va",
                format_args!("alloc_handle_from_va failed -22"),
            );
            return Err(Errno::INVAL);
        };
        let file: OwnedFd = Memory::file("dmabuf", size).map_err(|_| Errno::NOMEM)?;
        // CAST: the range is mapped, so its length fits usize.
        // SAFETY: the range is mapped now, and the caller of FROM_VA keeps it so until the buffer
        // is gone (module documentation).
        let memory = Arc::new(unsafe { Memory::import(pointer, size as usize) });
        let storage = Storage {
            memory,
            heap: Heaps::IOVMM,
            align: 4096,
            cache: args.flags & abi::CACHE_MASK,
            tag: args.flags >> abi::TAG_SHIFT,
            bytes: 0,
            pool: Arc::clone(&self.system),
        };
        let handle = Handle::new(size, file, OnceLock::from(storage), self);
        let id = self.enter(Buffer { handle: Arc::new(handle), read_only });
        args.size_or_handle = args.size_or_handle & !u64::from(u32::MAX) | u64::from(id);
        Ok(())
    }
}
