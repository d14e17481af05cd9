//! A buffer: memory that is completely mapped for the CPU.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use bytemuck::{AnyBitPattern, NoUninit};
use kernel_door::DoorRange;
use nvgpu_sys::nvmap as sys;

use crate::attributes::{Access, CacheMode, CacheOperation, DEFAULT_TAG};
use crate::client::Nvmap;
use crate::dma_buf::DmaBuf;
use crate::error::Error;
use crate::handle::Handle;
use crate::mapping::CpuMapping;
use crate::view::TypedView;
use gpu_hal::volatile;

/// The CPU mapping of a buffer.
#[derive(Debug)]
enum Memory {
    /// A mapping of the dma-buf.
    Mapped(CpuMapping),
    /// Imported memory of the process.
    Host { pointer: NonNull<u8>, len: usize },
}

/// Memory that both the CPU and the GPU access.
///
/// The GPU may write it at any time, so there are no references to its bytes. Use the volatile and
/// atomic accessors, or [`Buffer::pointer`] on a hot path.
///
/// Dropping a buffer unmaps it from the CPU, closes its dma-buf descriptor and frees its handle, in
/// that order. The memory itself exists as long as the GPU has it mapped.
///
/// A `Buffer` is `Send` and `Sync`: it is only an address range, and all accessors are sound while
/// other threads or the GPU access the same memory. Use the atomics to pass data between threads.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let nvmap = nvmap::Nvmap::open(&door)?;
/// let buffer = nvmap.buffer(4096).label("words").allocate()?;
/// buffer.write_u32(8, 7);
/// assert_eq!(buffer.read_u32(8), 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Buffer {
    // Drop order: the mapping, then the descriptor, then the handle, which keeps the nvmap descriptor
    // open.
    memory: Memory,
    dma_buf: DmaBuf,
    cache: CacheMode,
}

// SAFETY: only the pointer to host memory is not `Send`. It is an address range of the whole process,
// which stays valid by the contract of `Nvmap::import_host`; accesses through `&Buffer` are volatile
// or atomic.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Nvmap {
    /// Creates a buffer for existing memory of the process: the GPU accesses the same pages, without
    /// a copy. The cache mode is inner cacheable.
    ///
    /// The kernel pins whole pages, so the GPU can also access the rest of a partial last page. After
    /// a `fork`, writes of the parent may go to new pages while the GPU still uses the old ones.
    ///
    /// # Errors
    ///
    /// [`Error::HostAddress`] if `pointer` is not page-aligned, [`Error::Size`] for a length of 0,
    /// [`Error::Buffer`] if the kernel cannot pin the memory (`EINVAL`).
    ///
    /// # Safety
    ///
    /// `len` bytes at `pointer` are mapped writable in this process and remain so, and no reference to
    /// them is used, until nothing uses them any more: not the buffer, no duplicate of it, no mapping
    /// and no work of the GPU. As for [`send_pointing`](kernel_door::Request::send_pointing).
    pub unsafe fn import_host(&self, pointer: NonNull<u8>, len: usize, label: &str) -> Result<Buffer, Error> {
        // SAFETY: the contract of the caller is the same.
        unsafe { Buffer::import(self, pointer, len, Access::ReadWrite, label) }
    }

    /// Like [`Nvmap::import_host`], but read-only: neither the CPU nor the GPU can write through the
    /// buffer. The memory may be mapped read-only, for example a file of weights.
    ///
    /// # Errors
    ///
    /// As [`Nvmap::import_host`].
    ///
    /// # Safety
    ///
    /// `len` bytes at `pointer` are mapped readable in this process and remain so until nothing uses
    /// them any more, as for [`Nvmap::import_host`].
    pub unsafe fn import_host_read_only(
        &self,
        pointer: NonNull<u8>,
        len: usize,
        label: &str,
    ) -> Result<Buffer, Error> {
        // SAFETY: the contract of the caller is the same.
        unsafe { Buffer::import(self, pointer, len, Access::ReadOnly, label) }
    }

    /// Like [`Nvmap::import`], and maps all of the memory for the CPU.
    ///
    /// # Errors
    ///
    /// As [`Nvmap::import`] and [`DmaBuf::map`]: [`Error::HostMapping`] for memory of [`Nvmap::import_host`].
    pub fn import_buffer(&self, fd: BorrowedFd<'_>, label: &str) -> Result<Buffer, Error> {
        let dma_buf = self.import(fd, label)?;
        let cache = dma_buf.parameters()?.cache;
        Buffer::mapped(dma_buf, cache)
    }
}

impl Buffer {
    /// Maps all of `dma_buf` with the access rights of its handle.
    pub(crate) fn mapped(dma_buf: DmaBuf, cache: CacheMode) -> Result<Self, Error> {
        Ok(Self { memory: Memory::Mapped(dma_buf.map_whole()?), dma_buf, cache })
    }

    /// Maps all of each dma-buf, side by side: the first byte of a buffer follows the last byte of the one before it.
    /// While all of them live, [`Buffer::pointer`] of the first is valid for the sum of their sizes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
    /// # let nvmap = nvmap::Nvmap::open(&door)?;
    /// let parts = vec![nvmap.buffer(4096).allocate_unmapped()?, nvmap.buffer(8192).allocate_unmapped()?];
    /// let parts = nvmap::Buffer::side_by_side(parts)?;
    /// assert_eq!(unsafe { parts[0].pointer().add(4096) }, parts[1].pointer());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DmaBuf::map`]; nothing stays mapped then. [`Error::Size`] without a part, or if the sizes do not fit the
    /// CPU's address space.
    pub fn side_by_side(parts: Vec<DmaBuf>) -> Result<Vec<Self>, Error> {
        let label = || parts.first().map_or("", DmaBuf::label).to_owned();
        let sum = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.size()));
        let len = sum.filter(|len| *len > 0).ok_or_else(|| Error::Size {
            label: label(),
            size: 0,
            alignment: sys::PAGE_SIZE,
        })?;
        // CAST: a size has at most 64 bits.
        let range = DoorRange::reserve(len).map_err(|errno| Error::Buffer {
            call: "mmap",
            label: label(),
            size: len as u64,
            errno,
        })?;
        Self::side_by_side_in(range, parts)
    }

    /// As [`Buffer::side_by_side`], from the first address of `range` on, which has room for all of them.
    ///
    /// # Errors
    ///
    /// As [`DmaBuf::map`]: `EINVAL` if the range is too short. Nothing stays mapped then.
    pub fn side_by_side_in(mut range: DoorRange, parts: Vec<DmaBuf>) -> Result<Vec<Self>, Error> {
        parts
            .into_iter()
            .map(|dma_buf| {
                let memory = Memory::Mapped(dma_buf.map_in(&mut range)?);
                Ok(Self { memory, cache: dma_buf.parameters()?.cache, dma_buf })
            })
            .collect()
    }

    /// Creates a buffer for host memory.
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
        // SAFETY: the caller guarantees that the memory is mapped.
        let handle = unsafe { Handle::from_va(nvmap.fd(), address, size, flags) }.map_err(failed)?;
        let parameters = handle.parameters().map_err(|errno| failed((sys::PARAMETERS.name(), errno)))?;
        nvmap.host.lock().insert(parameters.serial_id);
        let dma_buf = DmaBuf::export_host(handle, len, access, label).map_err(failed)?;
        Ok(Self { memory: Memory::Host { pointer, len }, dma_buf, cache })
    }

    /// The handle and descriptor, for sharing and further mappings.
    pub fn as_dma_buf(&self) -> &DmaBuf {
        &self.dma_buf
    }

    /// Access rights; a buffer that was not imported is readable and writable.
    pub fn access(&self) -> Access {
        self.dma_buf.access()
    }

    /// Returns a view of `count` values of type `T` that starts at byte `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    pub fn view<T: NoUninit + AnyBitPattern>(
        &self,
        offset: usize,
        count: usize,
    ) -> Result<TypedView<'_, T>, Error> {
        // SAFETY: the memory is valid for its size while `self` is alive, which the view borrows, and
        // writable if `access` allows stores.
        unsafe { TypedView::new(self.pointer(), self.size(), self.access(), self.label(), offset, count) }
    }

    /// Size in bytes: the requested size, rounded up to the alignment.
    pub fn size(&self) -> usize {
        match &self.memory {
            Memory::Mapped(mapping) => mapping.len(),
            Memory::Host { len, .. } => *len,
        }
    }

    /// Pointer to the first byte, valid for volatile and atomic accesses of [`Buffer::size`] bytes
    /// while the buffer is alive.
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

    /// The nvmap handle number.
    pub fn handle(&self) -> u32 {
        self.dma_buf.handle()
    }

    /// Cache mode of the CPU mapping.
    pub fn cache_mode(&self) -> CacheMode {
        self.cache
    }

    /// Label for messages.
    pub fn label(&self) -> &str {
        self.dma_buf.label()
    }

    /// Copies `values` into the buffer at byte `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`]; nothing is copied in that case.
    pub fn copy_from_slice<T: NoUninit>(&self, offset: usize, values: &[T]) -> Result<(), Error> {
        let bytes = bytemuck::cast_slice(values);
        let target = self.range(offset, bytes.len())?;
        self.dma_buf.check_writable()?;
        // SAFETY: `range` has checked that the bytes are in the buffer, which `self` keeps alive. No
        // slice overlaps them, because there are no references into a buffer.
        unsafe { volatile::store(target, bytes) };
        Ok(())
    }

    /// Copies from the buffer at byte `offset` into `values`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`]; nothing is copied in that case.
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

    /// Sets the `len` bytes at `offset` to `byte`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`]; nothing is written in that case.
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
    /// Panics if the word is misaligned or outside the buffer, like an index into a slice.
    #[inline]
    pub fn read_u32(&self, offset: usize) -> u32 {
        // SAFETY: `word` has checked range and alignment; `self` keeps the memory alive.
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

    /// Loads the 64-bit word at byte `offset` atomically. With [`Ordering::Acquire`], writes of the GPU
    /// before its write to the word are visible afterwards.
    ///
    /// # Panics
    ///
    /// As [`Buffer::read_u32`], and if `order` is only valid for stores.
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: as in `read_u32`; all CPU accesses to words that the GPU also writes are atomic or
        // volatile, and aligned.
        unsafe { AtomicU64::from_ptr(self.word::<u64>(offset)) }.load(order)
    }

    /// Stores the 64-bit word at byte `offset` atomically.
    ///
    /// # Panics
    ///
    /// As [`Buffer::write_u32`], and if `order` is only valid for loads.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        // SAFETY: as in `load_u64`.
        unsafe { AtomicU64::from_ptr(self.word_mut::<u64>(offset)) }.store(value, order);
    }

    /// Loads the 32-bit word at byte `offset` atomically; see [`Buffer::load_u64`].
    ///
    /// # Panics
    ///
    /// As [`Buffer::load_u64`].
    #[inline]
    pub fn load_u32(&self, offset: usize, order: Ordering) -> u32 {
        // SAFETY: as in `load_u64`.
        unsafe { AtomicU32::from_ptr(self.word::<u32>(offset)) }.load(order)
    }

    /// Stores the 32-bit word at byte `offset` atomically.
    ///
    /// # Panics
    ///
    /// As [`Buffer::store_u64`].
    #[inline]
    pub fn store_u32(&self, offset: usize, value: u32, order: Ordering) {
        // SAFETY: as in `load_u64`.
        unsafe { AtomicU32::from_ptr(self.word_mut::<u32>(offset)) }.store(value, order);
    }

    /// Performs cache maintenance on the `len` bytes at `offset`. The GPU of an Orin snoops the CPU
    /// caches, so this is not needed there. It has no effect on uncached and write-combined buffers.
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
        // SAFETY: `addr` and `len` are inside the mapping, which `self` keeps alive; maintenance does
        // not change the contents that a coherent reader sees.
        unsafe { sys::CACHE_64.send_pointing(self.dma_buf.client(), &mut argument) }
            .map(drop)
            .map_err(|errno| self.dma_buf.failed(sys::CACHE_64.name(), errno))
    }

    /// Pointer to the bytes `offset..offset + len`, if they are inside the buffer.
    fn range(&self, offset: usize, len: usize) -> Result<*mut u8, Error> {
        match offset.checked_add(len) {
            // SAFETY: `offset` is at most the size of the mapping.
            Some(end) if end <= self.size() => Ok(unsafe { self.pointer().as_ptr().add(offset) }),
            _ => Err(Error::OutOfBounds { label: self.label().into(), offset, len, size: self.size() }),
        }
    }

    /// Pointer to the aligned word at byte `offset`.
    #[inline]
    fn word<T>(&self, offset: usize) -> *mut T {
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.size());
        // PANIC: a bug of the caller, like a slice index out of range. Mappings are page-aligned, so
        // the alignment depends on the offset only.
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

    /// Pointer to the aligned word at byte `offset`, for writing.
    #[inline]
    fn word_mut<T>(&self, offset: usize) -> *mut T {
        // PANIC: a bug of the caller, which imported the buffer as read-only.
        assert!(self.access().is_writable(), "buffer \"{}\" is read-only", self.label());
        self.word(offset)
    }
}

impl AsFd for Buffer {
    /// The dma-buf descriptor, for example to send to another process over a Unix socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dma_buf.as_fd()
    }
}
