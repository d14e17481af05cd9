//! A buffer: memory with a CPU mapping of all of it.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use bytemuck::{AnyBitPattern, NoUninit};
use nvgpu_sys::nvmap as sys;

use crate::attributes::{Access, CacheMode, CacheOperation, DEFAULT_TAG};
use crate::client::Nvmap;
use crate::dma_buf::DmaBuf;
use crate::error::Error;
use crate::handle::Handle;
use crate::mapping::CpuMapping;
use crate::view::TypedView;
use gpu_hal::volatile;

/// Where the CPU sees the bytes.
#[derive(Debug)]
enum Memory {
    /// A mapping of the dma-buf.
    Mapped(CpuMapping),
    /// The process's own memory, imported.
    Host { pointer: NonNull<u8>, len: usize },
}

/// Memory that both the CPU and the GPU reach.
///
/// The GPU may write it at any time, so there are no references to its bytes: reads and writes go
/// through volatile or atomic accessors, or through [`Buffer::pointer`] on a hot path.
///
/// Dropping a buffer unmaps it from the CPU, closes its dma-buf descriptor and frees its handle, in
/// that order. The memory itself lives on as long as the GPU has it mapped.
///
/// A `Buffer` is `Send` and `Sync`: it is only an address range, and every accessor makes accesses
/// that are valid whatever another thread or the GPU does meanwhile. Which value is seen is up to
/// the synchronisation between them: use the atomics to pass data.
#[derive(Debug)]
pub struct Buffer {
    // Fields drop in this order: first the mapping, then the descriptor, then the handle, which
    // keeps the nvmap descriptor open until then.
    memory: Memory,
    dma_buf: DmaBuf,
    cache: CacheMode,
}

// SAFETY: the only part that is not `Send` by itself is the pointer to host memory, an address range
// of the whole process that stays valid by the contract of `Nvmap::import_host`; accesses through
// `&Buffer` are volatile or atomic.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Nvmap {
    /// Makes a buffer over memory that the process already has: the GPU then works on these very
    /// pages, without a copy. The mode of the GPU's accesses is cacheable.
    ///
    /// The kernel pins whole pages, so the GPU can reach the rest of a partial last page too. After
    /// a `fork`, writes of the parent may move to new pages while the GPU keeps the old ones.
    ///
    /// # Errors
    ///
    /// [`Error::HostAddress`] if `pointer` is not page-aligned, [`Error::Size`] for a length of 0,
    /// [`Error::Buffer`] if the kernel cannot pin the memory (`EINVAL`).
    ///
    /// # Safety
    ///
    /// `len` bytes at `pointer` are mapped writable in this process and stay so until the buffer is
    /// dropped, and no reference to them is used while the device may access them.
    pub unsafe fn import_host(&self, pointer: NonNull<u8>, len: usize, label: &str) -> Result<Buffer, Error> {
        // SAFETY: the caller's promise is passed on.
        unsafe { Buffer::import(self, pointer, len, Access::ReadWrite, label) }
    }

    /// As [`Nvmap::import_host`] for memory that nobody may write through the buffer: neither the
    /// CPU, nor the GPU, whose mappings are then read-only. The memory may be mapped read-only, e.g.
    /// a file of weights.
    ///
    /// # Errors
    ///
    /// As [`Nvmap::import_host`].
    ///
    /// # Safety
    ///
    /// `len` bytes at `pointer` are mapped readable in this process and stay so until the buffer is
    /// dropped.
    pub unsafe fn import_host_read_only(
        &self,
        pointer: NonNull<u8>,
        len: usize,
        label: &str,
    ) -> Result<Buffer, Error> {
        // SAFETY: the caller's promise is passed on.
        unsafe { Buffer::import(self, pointer, len, Access::ReadOnly, label) }
    }

    /// As [`Nvmap::import`], with a CPU mapping of all of the memory.
    ///
    /// # Errors
    ///
    /// As [`Nvmap::import`] and [`DmaBuf::map`].
    pub fn import_buffer(&self, fd: BorrowedFd<'_>, label: &str) -> Result<Buffer, Error> {
        let dma_buf = self.import(fd, label)?;
        let cache = dma_buf.parameters()?.cache;
        Buffer::mapped(dma_buf, cache)
    }
}

impl Buffer {
    /// Maps all of `dma_buf`, as its handle allows.
    pub(crate) fn mapped(dma_buf: DmaBuf, cache: CacheMode) -> Result<Self, Error> {
        Ok(Self { memory: Memory::Mapped(dma_buf.map_whole()?), dma_buf, cache })
    }

    /// Makes a buffer over host memory.
    ///
    /// # Safety
    ///
    /// As [`Nvmap::import_host`], or [`Nvmap::import_host_read_only`] for read-only access.
    unsafe fn import(
        nvmap: &Nvmap,
        pointer: NonNull<u8>,
        len: usize,
        access: Access,
        label: &str,
    ) -> Result<Self, Error> {
        // CAST: addresses and sizes have at most 64 bits.
        let (address, size) = (pointer.as_ptr().expose_provenance() as u64, len as u64);
        if !address.is_multiple_of(sys::PAGE_SIZE) {
            return Err(Error::HostAddress { label: label.into(), address });
        }
        if size == 0 {
            return Err(Error::Size { label: label.into(), size, alignment: sys::PAGE_SIZE });
        }
        let failed = |(call, errno)| Error::Buffer { call, label: label.into(), size, errno };
        let cache = CacheMode::InnerCacheable;
        let mut flags = cache.bits() | u32::from(DEFAULT_TAG) << sys::TAG_SHIFT;
        if !access.is_writable() {
            flags |= sys::HandleFlags::READ_ONLY.bits();
        }
        // SAFETY: the caller vouches for the memory.
        let handle = unsafe { Handle::from_va(nvmap.fd(), address, size, flags) }.map_err(failed)?;
        let dma_buf = DmaBuf::export_host(handle, len, access, label).map_err(failed)?;
        Ok(Self { memory: Memory::Host { pointer, len }, dma_buf, cache })
    }

    /// Handle and descriptor, for sharing, more mappings and what else needs no bytes.
    pub fn as_dma_buf(&self) -> &DmaBuf {
        &self.dma_buf
    }

    /// What may be done with the bytes; a buffer that was not imported takes reads and writes.
    pub fn access(&self) -> Access {
        self.dma_buf.access()
    }

    /// `count` values of type `T` from byte `offset` on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    pub fn view<T: NoUninit + AnyBitPattern>(
        &self,
        offset: usize,
        count: usize,
    ) -> Result<TypedView<'_, T>, Error> {
        // SAFETY: the memory is valid for its size as long as `self`, which the view borrows, and
        // takes stores if `access` says so.
        unsafe { TypedView::new(self.pointer(), self.size(), self.access(), self.label(), offset, count) }
    }

    /// Size in bytes: what was asked for, rounded up to the alignment.
    pub fn size(&self) -> usize {
        match &self.memory {
            Memory::Mapped(mapping) => mapping.len(),
            Memory::Host { len, .. } => *len,
        }
    }

    /// First byte in the CPU's address space. Valid for volatile and atomic accesses of
    /// [`Buffer::size`] bytes as long as the buffer lives.
    pub fn pointer(&self) -> NonNull<u8> {
        match &self.memory {
            Memory::Mapped(mapping) => mapping.pointer(),
            Memory::Host { pointer, .. } => *pointer,
        }
    }

    /// The dma-buf descriptor, for requests that take one; never 0.
    pub fn dma_buf(&self) -> RawFd {
        self.dma_buf.raw_fd()
    }

    /// nvmap's number for the memory.
    pub fn handle(&self) -> u32 {
        self.dma_buf.handle()
    }

    /// How the CPU accesses the buffer.
    pub fn cache_mode(&self) -> CacheMode {
        self.cache
    }

    /// What the buffer is for.
    pub fn label(&self) -> &str {
        self.dma_buf.label()
    }

    /// Copies `values` into the buffer at byte `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`]; nothing is copied then.
    pub fn copy_from_slice<T: NoUninit>(&self, offset: usize, values: &[T]) -> Result<(), Error> {
        let bytes = bytemuck::cast_slice(values);
        let target = self.range(offset, bytes.len())?;
        self.dma_buf.check_writable()?;
        // SAFETY: `range` has checked that the bytes lie in the buffer, which `self` keeps alive. No
        // slice overlaps them, since no reference into a buffer exists.
        unsafe { volatile::store(target, bytes) };
        Ok(())
    }

    /// Copies from the buffer at byte `offset` into `values`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`]; nothing is copied then.
    pub fn copy_to_slice<T: NoUninit + AnyBitPattern>(
        &self,
        offset: usize,
        values: &mut [T],
    ) -> Result<(), Error> {
        let bytes = bytemuck::cast_slice_mut(values);
        let source = self.range(offset, bytes.len())?;
        // SAFETY: as in `copy_from_slice`.
        unsafe { volatile::load(source, bytes) };
        Ok(())
    }

    /// Sets `len` bytes from `offset` on to `byte`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`]; nothing is written then.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> Result<(), Error> {
        let target = self.range(offset, len)?;
        self.dma_buf.check_writable()?;
        // SAFETY: as in `copy_from_slice`.
        unsafe { volatile::fill(target, byte, len) };
        Ok(())
    }

    /// Reads the 32-bit word at byte `offset`, volatile.
    ///
    /// # Panics
    ///
    /// If the word is misaligned or outside the buffer, as indexing a slice does.
    #[inline]
    pub fn read_u32(&self, offset: usize) -> u32 {
        // SAFETY: `word` has checked place and alignment; `self` keeps the memory alive.
        unsafe { ptr::read_volatile(self.word::<u32>(offset)) }
    }

    /// Writes the 32-bit word at byte `offset`, volatile.
    ///
    /// # Panics
    ///
    /// As [`Buffer::read_u32`], and if the buffer is read-only.
    #[inline]
    pub fn write_u32(&self, offset: usize, value: u32) {
        // SAFETY: as in `read_u32`.
        unsafe { ptr::write_volatile(self.word_mut::<u32>(offset), value) }
    }

    /// Reads the 64-bit word at byte `offset`, volatile.
    ///
    /// # Panics
    ///
    /// As [`Buffer::read_u32`].
    #[inline]
    pub fn read_u64(&self, offset: usize) -> u64 {
        // SAFETY: as in `read_u32`.
        unsafe { ptr::read_volatile(self.word::<u64>(offset)) }
    }

    /// Writes the 64-bit word at byte `offset`, volatile.
    ///
    /// # Panics
    ///
    /// As [`Buffer::write_u32`].
    #[inline]
    pub fn write_u64(&self, offset: usize, value: u64) {
        // SAFETY: as in `read_u32`.
        unsafe { ptr::write_volatile(self.word_mut::<u64>(offset), value) }
    }

    /// Loads the 64-bit word at byte `offset`, atomic. With [`Ordering::Acquire`], what the GPU
    /// wrote before it wrote the word is visible afterwards.
    ///
    /// # Panics
    ///
    /// As [`Buffer::read_u32`], and if `order` is a store's.
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: as in `read_u32`; the CPU accesses words that the GPU also writes only atomically
        // or volatile, whole and aligned.
        unsafe { AtomicU64::from_ptr(self.word::<u64>(offset)) }.load(order)
    }

    /// Stores the 64-bit word at byte `offset`, atomic.
    ///
    /// # Panics
    ///
    /// As [`Buffer::write_u32`], and if `order` is a load's.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        // SAFETY: as in `load_u64`.
        unsafe { AtomicU64::from_ptr(self.word_mut::<u64>(offset)) }.store(value, order);
    }

    /// Loads the 32-bit word at byte `offset`, atomic; see [`Buffer::load_u64`].
    ///
    /// # Panics
    ///
    /// As [`Buffer::load_u64`].
    #[inline]
    pub fn load_u32(&self, offset: usize, order: Ordering) -> u32 {
        // SAFETY: as in `load_u64`.
        unsafe { AtomicU32::from_ptr(self.word::<u32>(offset)) }.load(order)
    }

    /// Stores the 32-bit word at byte `offset`, atomic.
    ///
    /// # Panics
    ///
    /// As [`Buffer::store_u64`].
    #[inline]
    pub fn store_u32(&self, offset: usize, value: u32, order: Ordering) {
        // SAFETY: as in `load_u64`.
        unsafe { AtomicU32::from_ptr(self.word_mut::<u32>(offset)) }.store(value, order);
    }

    /// Does cache maintenance on `len` bytes from `offset` on. An Orin's GPU snoops the CPU caches,
    /// so nothing needs this there; uncached and write-combined buffers ignore it.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], or [`Error::Buffer`]: `EADDRNOTAVAIL` for imported host memory, which
    /// is not an nvmap mapping.
    pub fn maintain_cache(&self, operation: CacheOperation, offset: usize, len: usize) -> Result<(), Error> {
        let start = self.range(offset, len)?;
        let mut argument = sys::CacheOp64 {
            // CAST: addresses and sizes have at most 64 bits.
            addr: start.expose_provenance() as u64,
            handle: self.handle(),
            len: len as u64,
            op: operation.raw(),
            ..sys::CacheOp64::default()
        };
        // SAFETY: `addr` and `len` lie in the mapping, which `self` keeps alive; maintenance does not
        // change what the memory holds for a coherent reader.
        unsafe { sys::CACHE_64.send_pointing(self.dma_buf.client(), &mut argument) }
            .map(drop)
            .map_err(|errno| self.dma_buf.failed(sys::CACHE_64.name(), errno))
    }

    /// The bytes `offset..offset + len`, if they lie in the buffer.
    fn range(&self, offset: usize, len: usize) -> Result<*mut u8, Error> {
        match offset.checked_add(len) {
            // SAFETY: `offset` is at most the size of the mapping.
            Some(end) if end <= self.size() => Ok(unsafe { self.pointer().as_ptr().add(offset) }),
            _ => Err(Error::OutOfBounds { label: self.label().into(), offset, len, size: self.size() }),
        }
    }

    /// The aligned word at byte `offset`.
    #[inline]
    fn word<T>(&self, offset: usize) -> *mut T {
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.size());
        // PANIC: a bug of the caller, like a slice index out of range. Mappings are page-aligned, so
        // the offset decides the alignment.
        assert!(
            fits && offset.is_multiple_of(align_of::<T>()),
            "word of {} bytes at {offset} in buffer \"{}\" of {} bytes",
            size_of::<T>(),
            self.label(),
            self.size(),
        );
        // SAFETY: `offset` is below the size of the mapping.
        unsafe { self.pointer().as_ptr().add(offset) }.cast()
    }

    /// The aligned word at byte `offset`, for writing.
    #[inline]
    fn word_mut<T>(&self, offset: usize) -> *mut T {
        // PANIC: a bug of the caller; read-only buffers are only ever imported as such.
        assert!(self.access().is_writable(), "buffer \"{}\" is read-only", self.label());
        self.word(offset)
    }
}

impl AsFd for Buffer {
    /// The dma-buf descriptor, e.g. to send it to another process over a Unix socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dma_buf.as_fd()
    }
}
