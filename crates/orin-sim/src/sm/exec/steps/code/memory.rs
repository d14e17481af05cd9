//! Memory of generated code: written first, executable and read-only from then on.

use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Most bytes of code of a process.
const LIMIT: usize = 64 << 20;

/// Bytes of code of the process.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes of code of the process.
pub(in crate::sm::exec::steps) fn bytes() -> usize {
    TAKEN.load(Relaxed)
}

/// Executable code.
#[derive(Debug)]
pub(super) struct Code {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is not written after `new`.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// Copies code to memory of its own; `None` if the system refuses that, or if the process has too much code.
    pub(super) fn new(code: &[u8]) -> Option<Self> {
        let bytes = code.len().next_multiple_of(4096);
        if TAKEN.fetch_add(bytes, Relaxed) + bytes > LIMIT {
            TAKEN.fetch_sub(bytes, Relaxed);
            return None;
        }
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which nothing else refers to.
        let start = unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, writable, MapFlags::PRIVATE) };
        let Some(start) = start.ok().and_then(|start| NonNull::new(start.cast::<u8>())) else {
            TAKEN.fetch_sub(bytes, Relaxed);
            return None;
        };
        let mapped = Self { start, bytes };
        // SAFETY: the mapping is writable, not shared yet, and as long as the code.
        unsafe { core::ptr::copy_nonoverlapping(code.as_ptr(), start.as_ptr(), code.len()) };
        // SAFETY: the mapping belongs to `mapped`.
        unsafe { mprotect(start.as_ptr().cast(), bytes, MprotectFlags::READ | MprotectFlags::EXEC) }.ok()?;
        Some(mapped)
    }

    /// Returns the address of the instruction at an offset.
    pub(super) fn at(&self, offset: usize) -> *const u8 {
        assert!(offset < self.bytes, "an offset in the code");
        // SAFETY: inside the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing refers to it any more. Failure leaves it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        TAKEN.fetch_sub(self.bytes, Relaxed);
    }
}
