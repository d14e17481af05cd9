//! Buffers: typed memory shared by CPU and GPU.
//!
//! On an Orin, CPU and GPU use the same LPDDR5. A buffer is a block of driver memory that both access, cached by the
//! CPU and kept coherent by the SoC. Copying in and out is therefore a plain memory copy, faster than any copy engine
//! (`docs/memory.md`). The GPU may write the memory at any time. The CPU therefore accesses it only with volatile
//! accesses, or through a [`View`], which proves that the GPU has finished.
//!
//! # Ways to copy
//!
//! | what copies | where | when |
//! |---|---|---|
//! | CPU, volatile words | `gpu_hal::volatile` | [`Buffer::copy_from_slice`], `copy_to_slice`, programs, variables |
//! | a copy engine of its own | `heap/staging.rs` | the same for long copies and a GPU's own memory (a) |
//! | CPU, whole cache lines | `record::copy_out` | launch records, command words: unused until the doorbell |
//! | the queue's copy engine | `queue/copy`, `queue/raw` | `Queue::copy`, `copy_2d`, `upload`, `download` (b) |
//! | a kernel | `transfer` | copies in graphs; copies of a queue inside a GPU's own memory, or between GPUs (c) |
//! | the engine for NVLink | `queue/copy` | long copies of a queue between GPUs (d) |
//!
//! (a) From `Driver::writes_by_engine_from` or `reads_by_engine_from` bytes on, after the CPU has copied 1 MiB in all.
//! The CPU fills or empties other chunks meanwhile; long reads bypass its caches. (b) The other half of an upload or
//! download is a copy by the CPU. (c) From `Driver::copies_by_kernel_from` or `PeerCopies::by_kernel_from` bytes on.
//! (d) From `PeerCopies::by_link_engine_from` bytes on.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut, RangeBounds};
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use bytemuck::Pod;
use gpu_hal::volatile;

use crate::error::{RangeError, Result};
use crate::heap::{Content, Handle, Heap};
use crate::limits::DEFAULT_TIMEOUT;
use gpu_hal::{FileAccess, MemoryUse};

mod host;
mod plane;
mod reserved;
mod shared;
mod slice;

pub use host::HostMemory;
pub(crate) use host::Imported;
pub use plane::{Plane, PlaneMut};
pub(crate) use plane::{field, resolve};
pub use reserved::AddressRange;
pub use shared::{CpuAccess, ReadOnlyBuffer, SharedBuffer};
pub(crate) use slice::with_readable;
pub use slice::{Slice, SliceMut};

/// `len` elements of `T` in memory that the CPU and the GPU access. A type aligned to more than 256 bytes does not
/// compile:
///
/// ```compile_fail,E0080
/// # use tegra_hcq::{Device, Pod};
/// #[derive(Clone, Copy)]
/// #[repr(C, align(512))]
/// struct Page([u8; 512]);
/// // SAFETY: bytes without padding.
/// unsafe impl bytemuck::Zeroable for Page {}
/// // SAFETY: as above.
/// unsafe impl Pod for Page {}
///
/// fn first(device: &Device) -> tegra_hcq::Result<Page> {
///     Ok(device.alloc::<Page>(1)?.view()?[0])
/// }
/// # fn main() -> tegra_hcq::Result<()> {
/// #     first(&Device::open(tegra_hcq::DeviceKind::Auto)?).map(drop)
/// # }
/// ```
///
/// Dropping a buffer frees the memory after the launches that use it have ended; the memory is kept for the next
/// allocation of its size. The buffer does not know launches that get its address other than as a [`Buffer`] argument
/// ([`Buffer::gpu_va`], a pointer inside a struct): keep the buffer until such work has ended, or use a queue with
/// [`QueueOptions::any_memory`](crate::QueueOptions::any_memory).
///
/// After a fault of a queue, the buffers used by its unfinished work report the fault until
/// [`Device::recover`](crate::Device::recover) is called or the queue and its fences are dropped, because the results
/// are missing.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// let mut buffer = device.alloc_zeroed::<u32>(3)?.named("counters");
/// buffer.copy_from_slice(&[5, 6, 7])?;
/// assert_eq!(buffer.to_vec()?, [5, 6, 7]);
/// assert_eq!(buffer.byte_len(), 12);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct Buffer<T: Pod> {
    handle: Handle,
    len: usize,
    _elements: PhantomData<T>,
}

/// Refuses, at compile time, element types for which a block of memory is not aligned.
const fn check_alignment<T>() {
    assert!(align_of::<T>() <= 256, "the elements of a buffer are aligned to at most 256 bytes");
}

impl<T: Pod> Buffer<T> {
    pub(crate) fn new(heap: &Arc<Heap>, len: usize, purpose: MemoryUse) -> Result<Self> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or(RangeError::Overflow { len, element_bytes: size_of::<T>() })?;
        // CAST: usize is at most 64 bits.
        let handle = Handle::allocate(heap, bytes as u64, purpose, Content::Buffer)?;
        Ok(Self::over(handle, len))
    }

    /// Creates a buffer over memory that holds at least `len` elements.
    pub(crate) fn over(handle: Handle, len: usize) -> Self {
        const { check_alignment::<T>() };
        Self { handle, len, _elements: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Length in bytes.
    pub fn byte_len(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Address of the first element on the GPU.
    pub fn gpu_va(&self) -> u64 {
        self.handle.gpu_va()
    }

    /// Use that the memory was allocated for.
    pub fn purpose(&self) -> MemoryUse {
        self.handle.memory().purpose()
    }

    /// Address of the first element on the CPU, valid while the buffer lives; `None` for memory of a GPU with its own
    /// memory, which is copied instead. For other languages and libraries; Rust programs use [`Buffer::view`].
    ///
    /// Accesses through the address are not synchronised with the GPU: wait for the work that uses the buffer
    /// ([`Buffer::wait`]) before an access, and let it end before the next launch.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// let buffer = device.alloc_from(&[5_u32, 6])?;
    /// let address = buffer.cpu_address()?.expect("an Orin's memory is visible");
    /// // SAFETY: inside the buffer, which lives until the end; no work uses it.
    /// assert_eq!(unsafe { address.add(1).read_volatile() }, 6);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the driver cannot map the memory.
    pub fn cpu_address(&self) -> Result<Option<NonNull<T>>> {
        let memory = self.handle.memory();
        if memory.purpose() == MemoryUse::Device && !self.handle.heap().has_unified_memory() {
            return Ok(None);
        }
        Ok(Some(memory.map()?.cast()))
    }

    /// Gives the buffer a name for fault reports.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.set_name(name);
        self
    }

    /// As [`Buffer::named`], for a buffer that is shared.
    pub fn set_name(&self, name: &str) {
        self.handle.heap().name(self.handle.memory(), name);
    }

    /// A part of the buffer, as an argument of a launch or the source of a copy.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the range ends after the end of the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        let range = plane::resolve(&range, self.len)?;
        Ok(Slice::new(&self.handle, range.start, range.len()))
    }

    /// A part of the buffer for writing, as an argument of a launch or the target of a copy.
    ///
    /// # Errors
    ///
    /// As [`Buffer::slice`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        let range = plane::resolve(&range, self.len)?;
        Ok(SliceMut::new(&self.handle, range.start, range.len()))
    }

    /// As [`Buffer::slice_mut`] for a buffer that has several users, for example handles of another language, or for
    /// a copy inside the buffer.
    ///
    /// # Errors
    ///
    /// As [`Buffer::slice`].
    ///
    /// # Safety
    ///
    /// Until the work that uses the returned part has ended, nothing else writes its elements, and no reference to
    /// them exists: neither a [`View`] nor one through [`Buffer::cpu_address`].
    pub unsafe fn slice_mut_unchecked(&self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        let range = plane::resolve(&range, self.len)?;
        Ok(SliceMut::new(&self.handle, range.start, range.len()))
    }

    /// The buffer as rows of `pitch` elements, for 2-D copies.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the buffer does not consist of whole rows.
    pub fn plane(&self, pitch: usize) -> Result<Plane<'_, T>> {
        Slice::from(self).plane(pitch)
    }

    /// As [`Buffer::plane`], for writing.
    ///
    /// # Errors
    ///
    /// As [`Buffer::plane`].
    pub fn plane_mut(&mut self, pitch: usize) -> Result<PlaneMut<'_, T>> {
        SliceMut::from(self).plane(pitch)
    }

    /// Two parts of the buffer, before element `at` and from it on, that one launch or copy can use together.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the buffer has fewer than `at` elements.
    pub fn split_at_mut(&mut self, at: usize) -> Result<(SliceMut<'_, T>, SliceMut<'_, T>)> {
        SliceMut::from(self).split_at(at)
    }

    /// Waits for the work that uses the buffer, then copies `source` into it.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the lengths differ; the errors of [`Buffer::wait`].
    pub fn copy_from_slice(&mut self, source: &[T]) -> Result<()> {
        self.slice_mut(..)?.copy_from_slice(source)
    }

    /// Waits for the work that uses the buffer, then copies it to `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the lengths differ; the errors of [`Buffer::wait`].
    pub fn copy_to_slice(&self, target: &mut [T]) -> Result<()> {
        self.slice(..)?.copy_to_slice(target)
    }

    /// Waits for the work that uses the buffer, then returns its elements.
    ///
    /// # Errors
    ///
    /// The errors of [`Buffer::wait`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.slice(..)?.to_vec()
    }

    /// Waits for the work that uses the buffer, at most [`DEFAULT_TIMEOUT`], then gives access to its elements without
    /// a copy. No launch can use the buffer while the view exists, and replays of recorded graphs that use it are
    /// refused.
    ///
    /// # Errors
    ///
    /// The errors of [`Buffer::wait`].
    pub fn view(&mut self) -> Result<View<'_, T>> {
        self.view_within(DEFAULT_TIMEOUT)
    }

    /// As [`Buffer::view`], with a time-out.
    ///
    /// # Errors
    ///
    /// As [`Buffer::view`].
    pub fn view_within(&mut self, timeout: Duration) -> Result<View<'_, T>> {
        // `Graph::note` describes the order.
        let elements = self.handle.memory().map()?.cast();
        self.handle.memory().set_viewed(true);
        fence(Ordering::SeqCst);
        let view = View { buffer: self, elements };
        view.buffer.wait(timeout)?;
        view.buffer.observe_view(true);
        Ok(view)
    }

    /// Waits for the work that uses the buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Fault`](crate::Error::Fault), [`Error::Timeout`](crate::Error::Timeout), or
    /// [`Error::NotSubmitted`](crate::Error::NotSubmitted) if a launch has not been submitted.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.handle.heap().wait_for(self.handle.uses(), timeout)
    }

    /// A file of the memory, as [`SharedBuffer::export`], for a buffer of [`SharedBuffer::into_buffer`].
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver) with [`gpu_hal::Error::Unsupported`] for every other buffer.
    pub fn export(&self, access: FileAccess) -> Result<OwnedFd> {
        Ok(self.handle.memory().export(access)?)
    }

    /// A file of the driver's memory that contains the buffer, and the offset of the buffer there in bytes, for
    /// [`Device::import_file`](crate::Device::import_file) in a process that may see the contents of all buffers of
    /// this one: small buffers have their memory in common. The memory is used for other buffers when this one is
    /// dropped, whoever has the file. For a buffer of its own, there is
    /// [`Device::alloc_shared`](crate::Device::alloc_shared).
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// let buffer = device.alloc_from(&[5_u8, 6, 7])?;
    /// let (file, offset) = buffer.export_whole()?;
    /// let offset = offset as usize;
    /// let seen = device.import_file::<u8>(&file, offset..offset + buffer.len())?;
    /// assert_eq!(seen.to_vec()?, [5, 6, 7]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver) with [`gpu_hal::Error::Unsupported`] if the driver has no such files, or
    /// none for a buffer of this size: on an Orin for more than 256 MiB.
    pub fn export_whole(&self) -> Result<(OwnedFd, u64)> {
        Ok(self.handle.memory().export_whole()?)
    }

    /// Tells the driver that made shared memory that accesses of the CPU through [`Buffer::cpu_address`] begin; see
    /// [`SharedBuffer::cpu_access`]. Other memory needs none.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn begin_cpu(&self, access: FileAccess) -> Result<()> {
        self.handle.memory().begin_cpu(access)
    }

    /// Tells the driver that the accesses of [`Buffer::begin_cpu`] have ended.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn end_cpu(&self, access: FileAccess) -> Result<()> {
        self.handle.memory().end_cpu(access)
    }

    /// Clears a buffer that no work uses yet.
    pub(crate) fn zero(&self) -> Result<()> {
        // SAFETY: the memory holds `len` elements and lives as long as `self`.
        unsafe { volatile::fill(self.handle.map()?, 0, self.byte_len()) };
        if let Some(observer) = self.handle.heap().observer() {
            observer.written(self.gpu_va(), self.byte_len());
        }
        Ok(())
    }

    /// Reports a view that is opened or closed to the checks of a software GPU.
    fn observe_view(&self, viewed: bool) {
        if let Some(observer) = self.handle.heap().observer() {
            observer.viewed(self.gpu_va(), viewed);
        }
    }
}

impl<T: Pod> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("type", &core::any::type_name::<T>())
            .field("len", &self.len)
            .field("gpu_va", &format_args!("{:#x}", self.gpu_va()))
            .finish()
    }
}

/// The elements of a buffer in place. Exists only while the GPU has no work that uses the buffer, and excludes new
/// launches and replays of recorded graphs that use it.
#[derive(Debug)]
pub struct View<'a, T: Pod> {
    buffer: &'a mut Buffer<T>,
    elements: NonNull<T>,
}

// SAFETY: the pointer refers to the buffer's memory, which any thread may access; the view owns the access to its
// elements as a `&mut [T]` does.
unsafe impl<T: Pod + Send> Send for View<'_, T> {}
// SAFETY: a shared view gives shared references to elements only.
unsafe impl<T: Pod + Sync> Sync for View<'_, T> {}

impl<T: Pod> Deref for View<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory holds `len` elements, is aligned to 256 bytes and lives as long as the buffer. Every
        // submission that uses it has ended, and none can begin while the buffer is borrowed exclusively. Any bit
        // pattern is a valid `Pod` value.
        unsafe { core::slice::from_raw_parts(self.elements.as_ptr(), self.buffer.len) }
    }
}

impl<T: Pod> DerefMut for View<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; the view is borrowed exclusively, and there is one view at a time.
        unsafe { core::slice::from_raw_parts_mut(self.elements.as_ptr(), self.buffer.len) }
    }
}

impl<T: Pod> Drop for View<'_, T> {
    fn drop(&mut self) {
        self.buffer.observe_view(false);
        self.buffer.handle.memory().set_viewed(false);
    }
}
