//! Physical memory of the software Orin.
//!
//! On the board every buffer is a piece of LPDDR5 shared by CPU and GPU, exported as a dma-buf. Here
//! it is a `memfd`: the driver under test maps the descriptor like a dma-buf, the model keeps a
//! mapping of its own, and both see the same pages. Memory that the driver imports is used where it is.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::strict::Shadow;

/// Told of GPU writes to memory that counts them instead of storing them, as a syncpoint's window does.
pub trait WriteCounter: Send + Sync + fmt::Debug {
    /// `words` aligned 32-bit words at byte `offset` of `memory` are being written; what with does not
    /// matter.
    fn written(&self, memory: &Memory, offset: usize, words: u32);
}

/// Part of a file: what a piece of memory consists of.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    file: Arc<OwnedFd>,
    /// What strict mode keeps of the file.
    shadow: Option<Arc<Shadow>>,
    /// First byte of the part in the file, page aligned.
    offset: u64,
    /// Length in bytes, whole pages.
    len: usize,
}

/// Where the bytes are.
#[derive(Debug)]
enum Backing {
    /// Memory that belongs to somebody else.
    Host,
    /// A file of its own, from its first byte on.
    File(Arc<OwnedFd>),
    /// Parts of the files of other memory, one after the other.
    Parts(Vec<Part>),
}

/// One buffer's backing store, mapped for the model as long as the value lives.
#[derive(Debug)]
pub struct Memory {
    backing: Backing,
    pointer: NonNull<u8>,
    len: usize,
    counter: Option<Arc<dyn WriteCounter>>,
    label: String,
    /// What strict mode keeps of memory that is no parts of other memory.
    shadow: Option<Arc<Shadow>>,
}

// SAFETY: `Memory` is an address range plus a descriptor; all access goes through raw pointers
// whose users synchronise by atomics or accept races as hardware does.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes `len` zeroed bytes (rounded up to 4 KiB by the caller), named for `/proc/self/fd`.
    ///
    /// # Errors
    ///
    /// The errno of memfd_create, ftruncate or mmap.
    pub fn new(name: &str, len: usize) -> Result<Self, Errno> {
        // CAST: usize is at most 64 bits on every target of the workspace.
        Ok(Self::map(Arc::new(Self::file(name, len as u64)?), len)?.labelled(name))
    }

    /// Makes the file alone: `len` bytes that read as zero and take no memory until touched.
    ///
    /// # Errors
    ///
    /// The errno of memfd_create or ftruncate.
    pub fn file(name: &str, len: u64) -> Result<OwnedFd, Errno> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, len)?;
        Ok(file)
    }

    /// Maps the first `len` bytes of a file made by [`Memory::file`].
    ///
    /// # Errors
    ///
    /// The errno of mmap.
    pub fn map(file: Arc<OwnedFd>, len: usize) -> Result<Self, Errno> {
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs nothing.
        let pointer = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let pointer = NonNull::new(pointer.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self::over(Backing::File(file), pointer, len))
    }

    /// Memory of the process itself, imported: used in place, and left alone when `self` goes.
    ///
    /// # Safety
    ///
    /// `len` bytes at `pointer` are mapped, and stay so as long as `self` lives.
    pub(crate) unsafe fn import(pointer: NonNull<u8>, len: usize) -> Self {
        Self::over(Backing::Host, pointer, len)
    }

    fn over(backing: Backing, pointer: NonNull<u8>, len: usize) -> Self {
        Self { backing, pointer, len, counter: None, label: String::new(), shadow: None }
    }

    /// Gives the memory a name for fault reports.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The name for fault reports; empty without one.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Lets strict mode ([`crate::strict`]) keep account of the memory. `poison` fills it with
    /// [`POISON`](crate::strict::POISON), so that words that nobody writes can be told.
    #[must_use]
    pub fn watched(mut self, poison: bool) -> Self {
        if poison {
            for offset in (0..self.len).step_by(4) {
                self.word(offset).store(crate::strict::POISON, Ordering::Relaxed);
            }
        }
        self.shadow = Some(Arc::new(Shadow::new(poison)));
        self
    }

    /// Zeroes the words that strict mode has filled and nobody has written since, as fresh memory of a board is.
    pub(crate) fn clear_poison(&self) {
        if !self.shadow.as_ref().is_some_and(|shadow| shadow.is_poisoned()) {
            return;
        }
        for offset in (0..self.len).step_by(4) {
            let word = self.word(offset);
            // Whoever writes the word meanwhile wins.
            let _ = word.compare_exchange(crate::strict::POISON, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// What strict mode keeps of the byte at `offset`, and its offset there.
    pub(crate) fn shadow(&self, offset: usize) -> Option<(&Shadow, usize)> {
        let Backing::Parts(parts) = &self.backing else {
            return self.shadow.as_deref().map(|shadow| (shadow, offset));
        };
        let mut begin = 0;
        for part in parts {
            if offset < begin + part.len {
                // CAST: the file is mapped somewhere, so its offsets fit usize.
                return part.shadow.as_deref().map(|shadow| (shadow, part.offset as usize + offset - begin));
            }
            begin += part.len;
        }
        None
    }

    /// The files behind `len` bytes from `offset` on, whole pages inside the memory; `None` for imported
    /// memory, which has none.
    pub(crate) fn parts(&self, offset: usize, len: usize) -> Option<Vec<Part>> {
        let whole = match &self.backing {
            Backing::Host => return None,
            Backing::File(file) => {
                let (file, shadow) = (Arc::clone(file), self.shadow.clone());
                vec![Part { file, shadow, offset: 0, len: self.len }]
            }
            Backing::Parts(parts) => parts.clone(),
        };
        let (mut skip, mut left) = (offset, len);
        let mut parts = Vec::new();
        for part in whole {
            let (cut, rest) = (skip.min(part.len), part.len - skip.min(part.len));
            let taken = rest.min(left);
            if taken > 0 {
                // CAST: a length fits 64 bits.
                parts.push(Part { offset: part.offset + cut as u64, len: taken, ..part });
            }
            (skip, left) = (skip - cut, left - taken);
        }
        Some(parts)
    }

    /// Memory that consists of parts of other memory: the same bytes, contiguous.
    ///
    /// # Errors
    ///
    /// The errno of mmap.
    pub(crate) fn join(parts: Vec<Part>) -> Result<Self, Errno> {
        let len = parts.iter().map(|part| part.len).sum();
        let pointer = map_parts(&parts, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self::over(Backing::Parts(parts), pointer, len))
    }

    /// Makes the GPU's writes count: from now on they reach `counter` and not the memory.
    #[must_use]
    pub fn counting(mut self, counter: Arc<dyn WriteCounter>) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Who counts the GPU's writes, if they are not stored.
    pub fn counter(&self) -> Option<&dyn WriteCounter> {
        self.counter.as_deref()
    }

    /// The descriptor behind the memory; `None` if it is imported or consists of parts of other memory.
    /// Duplicate it to hand it out.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::File(file) => Some(file.as_fd()),
            Backing::Host | Backing::Parts(_) => None,
        }
    }

    /// First byte; valid for [`Memory::len`] bytes as long as `self` lives.
    pub fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The aligned 32-bit word at byte `offset`, shared with whoever else maps the memory.
    ///
    /// # Panics
    ///
    /// When the word does not lie inside the memory or is misaligned: a bug of the model.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "word at {offset:#x} of {:#x}", self.len);
        // SAFETY: in bounds and aligned (the mapping is page aligned); the mapping lives as long
        // as `self`, and an atomic may be shared with any other accessor.
        unsafe { AtomicU32::from_ptr(self.pointer.as_ptr().add(offset).cast()) }
    }

    /// Reads the word at byte `offset` with acquire ordering.
    pub fn load(&self, offset: usize) -> u32 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Writes the word at byte `offset` with release ordering.
    pub fn store(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::Release);
    }
}

/// Maps the parts one after the other, at an address of the kernel's choice. The mapping is undone as one.
///
/// # Errors
///
/// The errno of mmap; EINVAL without parts.
pub(crate) fn map_parts(parts: &[Part], protection: ProtFlags) -> Result<NonNull<u8>, Errno> {
    let len: usize = parts.iter().map(|part| part.len).sum();
    // SAFETY: a fresh mapping at an address of the kernel's choice disturbs nothing.
    let base = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE)?
    };
    let mut at = 0;
    for part in parts {
        // SAFETY: the range is part of the fresh mapping, which nothing uses yet.
        let mapped = unsafe {
            let place = base.cast::<u8>().add(at).cast();
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            rustix::mm::mmap(place, part.len, protection, flags, &part.file, part.offset)
        };
        if let Err(errno) = mapped {
            // SAFETY: the fresh mapping, which nothing uses.
            let _ = unsafe { rustix::mm::munmap(base, len) };
            return Err(errno);
        }
        at += part.len;
    }
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

impl Drop for Memory {
    fn drop(&mut self) {
        if matches!(self.backing, Backing::Host) {
            return;
        }
        // SAFETY: the range was mapped in `map` or `join` and is unmapped only here; pointers handed out do
        // not outlive `self` by the contract of `pointer`.
        let _ = unsafe { rustix::mm::munmap(self.pointer.as_ptr().cast(), self.len) };
    }
}
