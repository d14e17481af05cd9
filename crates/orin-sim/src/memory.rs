//! Physical memory of the software Orin.
//!
//! On the board every buffer is a part of the LPDDR5 shared by CPU and GPU, exported as a dma-buf. Here it is a
//! `memfd`: the driver under test maps the descriptor like a dma-buf, the model has its own mapping, and both see the
//! same pages. The file's size is sealed: a program that truncates its dma-buf gets EPERM, where a board answers
//! EINVAL, and its mappings stay valid.
//!
//! Memory that the driver imports is the process's own. A shared mapping gets a second mapping of the same pages, which
//! outlives the process's, as pinned pages do on a board. A private one cannot be mapped twice and is used in place,
//! under a guard that replaces pages that the process unmaps (`caller::guard`).

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::caller::guard::Guard;
use crate::check::Shadow;

/// Device and inode of a file, which identify it.
pub(crate) type Inode = (u64, u64);

/// The inode behind a descriptor.
pub(crate) fn inode_of(descriptor: impl AsFd) -> Option<Inode> {
    let stat = rustix::fs::fstat(descriptor).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Receives GPU writes to memory that counts them instead of storing them, such as a syncpoint's window.
pub(crate) trait WriteCounter: Send + Sync + fmt::Debug {
    /// `words` aligned 32-bit words at byte `offset` of `memory` are being written; the values do not matter.
    fn written(&self, memory: &Memory, offset: usize, words: u32);
}

/// Part of a file that backs memory.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    file: Arc<OwnedFd>,
    /// The file's shadow for the order check.
    shadow: Option<Arc<Shadow>>,
    /// First byte of the part in the file, page aligned.
    offset: u64,
    /// Length in bytes, whole pages.
    len: usize,
}

impl Part {
    /// `len` bytes of a file from `offset` on, whole pages that the file has and keeps.
    pub(crate) fn new(file: Arc<OwnedFd>, offset: u64, len: usize) -> Self {
        Self { file, shadow: None, offset, len }
    }
}

/// The storage of the bytes.
#[derive(Debug)]
enum Backing {
    /// Private memory owned by the process.
    Host { _guard: Guard },
    /// A second mapping of shared memory of the process.
    Pinned,
    /// A separate file, from its first byte on.
    File(Arc<OwnedFd>),
    /// Consecutive parts of the files of other memory.
    Parts(Vec<Part>),
}

/// The backing store of one buffer, mapped for the model while the value lives.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_sim::memory::Memory;
///
/// let memory = Memory::new("semaphores", 0x1000)?;
/// memory.store(8, 42);
/// assert_eq!((memory.load(8), memory.label()), (42, "semaphores"));
/// // Programs map the descriptor like a dma-buf.
/// assert!(memory.fd().is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Memory {
    backing: Backing,
    pointer: NonNull<u8>,
    len: usize,
    /// Requested size in bytes, at most `len`.
    requested: usize,
    counter: Option<Arc<dyn WriteCounter>>,
    label: String,
    /// The shadow for the order check; `None` for memory composed of parts.
    shadow: Option<Arc<Shadow>>,
}

// SAFETY: `Memory` is an address range and a descriptor. All accesses use raw pointers whose users synchronise with
// atomics or accept races like hardware.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates `len` zeroed bytes (rounded up to 4 KiB by the caller), named for `/proc/self/fd`.
    ///
    /// # Errors
    ///
    /// The errno of memfd_create, ftruncate or mmap.
    pub fn new(name: &str, len: usize) -> Result<Self, Errno> {
        // CAST: usize is at most 64 bits on every target of the workspace.
        Ok(Self::map(Arc::new(Self::file(name, len as u64)?), len)?.labelled(name))
    }

    /// Creates only the file: `len` bytes that read as zero and use no memory until touched.
    ///
    /// # Errors
    ///
    /// The errno of memfd_create or ftruncate.
    pub fn file(name: &str, len: u64) -> Result<OwnedFd, Errno> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len)?;
        // Without the seals, a program could truncate the file, and accesses of the model would raise SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    /// Maps the first `len` bytes of a file made by [`Memory::file`].
    ///
    /// # Errors
    ///
    /// EINVAL if the file is shorter or may shrink, because accesses beyond its end would raise SIGBUS; the errno of
    /// mmap.
    pub fn map(file: Arc<OwnedFd>, len: usize) -> Result<Self, Errno> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        // CAST: a length has at most 64 bits.
        let is_long_enough =
            u64::try_from(rustix::fs::fstat(&file)?.st_size).is_ok_and(|size| size >= len as u64);
        if !seals.contains(SealFlags::SHRINK) || !is_long_enough {
            return Err(Errno::INVAL);
        }
        Self::map_lasting(file, len)
    }

    /// As [`Memory::map`], of a file that has `len` bytes and keeps them.
    pub(crate) fn map_lasting(file: Arc<OwnedFd>, len: usize) -> Result<Self, Errno> {
        // SAFETY: a fresh mapping at an address that the kernel chooses affects no other memory.
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

    /// Imports memory of the process. It is used in place and not freed on drop.
    ///
    /// # Errors
    ///
    /// As [`Guard::new`].
    ///
    /// # Safety
    ///
    /// `len` bytes at `pointer` must be mapped. While `self` lives, the process may unmap them, but not map anything
    /// else there.
    pub(crate) unsafe fn import(pointer: NonNull<u8>, len: usize) -> Result<Self, Errno> {
        let guard = Guard::new(pointer.as_ptr().expose_provenance(), len)?;
        Ok(Self::over(Backing::Host { _guard: guard }, pointer, len))
    }

    /// Maps shared memory of the process a second time. The pages live while one of the mappings does.
    ///
    /// # Errors
    ///
    /// The errno of mremap.
    ///
    /// # Safety
    ///
    /// `len` bytes at `pointer` must be part of one shared mapping now.
    pub(crate) unsafe fn pin(pointer: NonNull<u8>, len: usize) -> Result<Self, Errno> {
        // SAFETY: with an old size of 0, mremap leaves the old mapping alone and maps its pages elsewhere.
        let second =
            unsafe { rustix::mm::mremap(pointer.as_ptr().cast(), 0, len, rustix::mm::MremapFlags::MAYMOVE)? };
        Ok(Self::over(Backing::Pinned, NonNull::new(second.cast()).ok_or(Errno::NOMEM)?, len))
    }

    fn over(backing: Backing, pointer: NonNull<u8>, len: usize) -> Self {
        Self { backing, pointer, len, requested: len, counter: None, label: String::new(), shadow: None }
    }

    /// Names the memory for fault reports.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The name for fault reports; empty if there is none.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Records the requested size in bytes, before the kernel rounded it up to pages. The checks
    /// report accesses beyond it ([`crate::check`]).
    #[must_use]
    pub fn requested_as(mut self, bytes: u64) -> Self {
        self.requested = usize::try_from(bytes).map_or(self.len, |bytes| bytes.min(self.len));
        self
    }

    /// Requested size in bytes; the length unless [`Memory::requested_as`] was called.
    pub fn requested(&self) -> u64 {
        // CAST: usize is at most 64 bits on every target of the workspace.
        self.requested as u64
    }

    /// Enables tracking by the order check ([`crate::check`]). `poison` fills the memory with
    /// [`POISON`](crate::check::POISON), so that unwritten words can be detected.
    #[must_use]
    pub fn watched(mut self, poison: bool) -> Self {
        if poison {
            for offset in (0..self.len).step_by(4) {
                self.word(offset).store(crate::check::POISON, Ordering::Relaxed);
            }
        }
        self.shadow = Some(Arc::new(Shadow::new(poison)));
        self
    }

    /// Zeroes the words that were poisoned and that have not been written since, like fresh memory of a board.
    pub(crate) fn clear_poison(&self) {
        if !self.shadow.as_ref().is_some_and(|shadow| shadow.is_poisoned()) {
            return;
        }
        for offset in (0..self.len).step_by(4) {
            let word = self.word(offset);
            // A concurrent write takes precedence.
            let _ = word.compare_exchange(crate::check::POISON, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The shadow of the byte at `offset`, and the byte's offset there.
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

    /// The files behind `len` bytes from `offset` on, whole pages inside the memory; `None` for imported memory, which
    /// has none.
    pub(crate) fn parts(&self, offset: usize, len: usize) -> Option<Vec<Part>> {
        let whole = match &self.backing {
            Backing::Host { .. } | Backing::Pinned => return None,
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

    /// Creates memory from parts of other memory: the same bytes, contiguous.
    ///
    /// # Errors
    ///
    /// The errno of mmap.
    pub(crate) fn join(parts: Vec<Part>) -> Result<Self, Errno> {
        let len = parts.iter().map(|part| part.len).sum();
        let pointer = map_parts(&parts, ProtFlags::READ | ProtFlags::WRITE, None)?;
        Ok(Self::over(Backing::Parts(parts), pointer, len))
    }

    /// Redirects the GPU's writes to `counter` instead of memory.
    #[must_use]
    pub(crate) fn counting(mut self, counter: Arc<dyn WriteCounter>) -> Self {
        self.counter = Some(counter);
        self
    }

    /// The counter of the GPU's writes, if they are not stored.
    pub(crate) fn counter(&self) -> Option<&dyn WriteCounter> {
        self.counter.as_deref()
    }

    /// The descriptor behind the memory; `None` if it is imported or consists of parts of other memory. Duplicate it
    /// before passing it on.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::File(file) => Some(file.as_fd()),
            Backing::Host { .. } | Backing::Pinned | Backing::Parts(_) => None,
        }
    }

    /// First byte; valid for [`Memory::len`] bytes while `self` lives.
    pub fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The aligned 32-bit word at byte `offset`, accessed atomically; other mappings see the same word.
    ///
    /// # Panics
    ///
    /// Panics if the word is outside the memory or misaligned, which is a bug of the model.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "word at {offset:#x} of {:#x}", self.len);
        // SAFETY: in bounds and aligned (the mapping is page aligned). The mapping lives as long as `self`, and an
        // atomic may be shared with any other accessor.
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

/// Maps the parts consecutively, at `place`, or at an address that the kernel chooses. One munmap unmaps all of them.
///
/// # Errors
///
/// The errno of mmap; EINVAL without parts.
pub(crate) fn map_parts(
    parts: &[Part],
    protection: ProtFlags,
    place: Option<NonNull<u8>>,
) -> Result<NonNull<u8>, Errno> {
    let len: usize = parts.iter().map(|part| part.len).sum();
    let base = untouchable(len, place)?;
    let mut at = 0;
    for part in parts {
        // SAFETY: the range is part of the fresh, still unused mapping.
        let mapped = unsafe {
            let place = base.as_ptr().add(at).cast();
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            rustix::mm::mmap(place, part.len, protection, flags, &part.file, part.offset)
        };
        if let Err(errno) = mapped {
            // SAFETY: the mapping is fresh and unused.
            let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), len) };
            return Err(errno);
        }
        at += part.len;
    }
    Ok(base)
}

/// Maps `len` bytes that trap, at `place`, whose addresses belong to the caller of the mmap, or at an address that the
/// kernel chooses.
///
/// # Errors
///
/// The errno of mmap.
pub(crate) fn untouchable(len: usize, place: Option<NonNull<u8>>) -> Result<NonNull<u8>, Errno> {
    let (address, flags) = placed(place, MapFlags::PRIVATE);
    // SAFETY: the caller owns the addresses at the place; without one, a fresh mapping affects no other memory.
    let pointer = unsafe { rustix::mm::mmap_anonymous(address, len, ProtFlags::empty(), flags)? };
    NonNull::new(pointer.cast()).ok_or(Errno::NOMEM)
}

/// Address and flags of a mapping at `place`.
pub(crate) fn placed(place: Option<NonNull<u8>>, flags: MapFlags) -> (*mut core::ffi::c_void, MapFlags) {
    match place {
        Some(place) => (place.as_ptr().cast(), flags | MapFlags::FIXED),
        None => (core::ptr::null_mut(), flags),
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if matches!(self.backing, Backing::Host { .. }) {
            return;
        }
        // SAFETY: the range was mapped in `map`, `pin` or `join` and is unmapped only here. Pointers do not outlive
        // `self`, as documented at `pointer`.
        let _ = unsafe { rustix::mm::munmap(self.pointer.as_ptr().cast(), self.len) };
    }
}
