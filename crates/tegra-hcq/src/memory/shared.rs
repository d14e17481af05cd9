//! Memory that other processes and drivers have as well, through a file: on an Orin a dma-buf.
//!
//! A camera's frame reaches a kernel, and a result another process, without a copy. Nothing orders the accesses of
//! different owners but what they agree on: see [`Queue::wait_file`](crate::Queue::wait_file) and
//! [`Queue::submit_to_file`](crate::Queue::submit_to_file). So there are no references to the elements, and no
//! [`View`](crate::View): the CPU accesses them through copies, or through the pointer of a [`CpuAccess`], which tells
//! the driver that made the memory when accesses begin and end (cache maintenance, `DMA_BUF_IOCTL_SYNC`).

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Range, RangeBounds};
use core::ptr::NonNull;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use gpu_hal::FileAccess;

use super::{Buffer, Pod, Slice, SliceMut, check_alignment, resolve};
use crate::device::Device;
use crate::error::{RangeError, Result};
use crate::heap::{self, Handle};
use crate::limits::DEFAULT_TIMEOUT;

/// `len` elements of `T` in memory that other processes or drivers may have as well.
///
/// Calls that read take a `&SharedBuffer`, calls that write a `&mut SharedBuffer`, like a [`Buffer`](crate::Buffer).
/// Elements that another owner writes meanwhile are read as a mixture of old and new.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let other_device = device.clone();
/// let mut result = device.alloc_shared::<f32>(1024)?;
/// // The descriptor goes to another process, over a Unix socket.
/// let file = result.export_read_only()?;
/// let theirs = other_device.import_file_read_only::<f32>(&file, ..4096)?;
///
/// let mut queue = device.queue()?;
/// queue.fill(&mut result, 1.5)?;
/// queue.wait(tegra_hcq::DEFAULT_TIMEOUT)?;
/// assert_eq!(theirs.slice(1020..)?.to_vec()?, [1.5; 4]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct SharedBuffer<T: Pod> {
    part: Part,
    _elements: PhantomData<T>,
}

/// As [`SharedBuffer`], for memory that this device may only read. There is no way to write it: a kernel that does so
/// all the same stops with a fault.
pub struct ReadOnlyBuffer<T: Pod> {
    part: Part,
    _elements: PhantomData<T>,
}

/// Elements of the memory behind a file.
struct Part {
    handle: Handle,
    /// First element.
    start: usize,
    /// Number of elements.
    len: usize,
}

impl Part {
    /// The elements of `T` in a range of bytes.
    fn new<T: Pod>(handle: Handle, range: &Range<usize>) -> Result<Self> {
        const { check_alignment::<T>() };
        let size = size_of::<T>();
        if size == 0 || !range.start.is_multiple_of(size) || !range.len().is_multiple_of(size) {
            return Err(
                RangeError::Cast { first: range.start, bytes: range.len(), element_bytes: size }.into()
            );
        }
        Ok(Self { handle, start: range.start / size, len: range.len() / size })
    }

    fn into_buffer<T: Pod>(self) -> Result<Buffer<T>> {
        if self.start > 0 {
            return Err(RangeError::outside(&(..self.start), 0).into());
        }
        Ok(Buffer::over(self.handle, self.len))
    }

    fn slice<T: Pod>(&self) -> Slice<'_, T> {
        Slice::new(&self.handle, self.start, self.len)
    }
}

impl<T: Pod> ReadOnlyBuffer<T> {
    /// As [`SharedBuffer::into_buffer`]. Copies to the result are refused.
    ///
    /// # Errors
    ///
    /// As [`SharedBuffer::into_buffer`].
    ///
    /// # Safety
    ///
    /// As for [`SharedBuffer::into_buffer`]. The elements of a [`View`](crate::View) are not written.
    pub unsafe fn into_buffer(self) -> Result<Buffer<T>> {
        self.part.into_buffer()
    }
}

impl Device {
    /// Allocates a buffer that other processes and drivers can map, through [`SharedBuffer::export`]. It has a file of
    /// its own, and its memory goes back to the system when all owners have dropped it. The contents are zeros.
    ///
    /// # Errors
    ///
    /// As [`Device::alloc`]; [`Error::Driver`](crate::Error::Driver) with [`gpu_hal::Error::Unsupported`] if the driver
    /// has no such memory.
    pub fn alloc_shared<T: Pod>(&self, len: usize) -> Result<SharedBuffer<T>> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or(RangeError::Overflow { len, element_bytes: size_of::<T>() })?;
        // CAST: usize is at most 64 bits.
        let handle = self.shared().heap().allocate_shared(bytes as u64)?;
        let part = Part::new::<T>(handle, &(0..bytes))?;
        Ok(SharedBuffer { part, _elements: PhantomData })
    }

    /// Maps memory behind a file for the GPU, without a copy: the bytes of `range`, which `T` divides. The file is one
    /// that another process or device has exported, or, on an Orin, a dma-buf of any driver: a camera (V4L2
    /// `VIDIOC_EXPBUF`), a display (DRM), a dma-heap, udmabuf, NvBufSurface. It may be closed afterwards. All of it is
    /// mapped, once for all imports of the same memory.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// # let camera = device.alloc_shared::<u8>(640 * 480 * 3 / 2)?.export()?;
    /// // NV12: the plane of brightness, then that of colour.
    /// let luma = device.import_file::<u8>(&camera, ..640 * 480)?;
    /// let chroma = device.import_file::<[u8; 2]>(&camera, 640 * 480..640 * 480 * 3 / 2)?;
    /// assert_eq!(chroma.gpu_va(), luma.gpu_va() + 640 * 480);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the range is not inside the memory, or no whole number of elements;
    /// [`Error::Driver`](crate::Error::Driver) if the file has no memory that the GPU can map, if it may only be read,
    /// or if the driver that made it refuses the GPU.
    pub fn import_file<T: Pod>(
        &self,
        file: impl AsFd,
        range: impl RangeBounds<usize>,
    ) -> Result<SharedBuffer<T>> {
        let part = self.import_part::<T>(file, &range, FileAccess::ReadWrite)?;
        Ok(SharedBuffer { part, _elements: PhantomData })
    }

    /// As [`Device::import_file`], for reading only. The file need not allow more.
    ///
    /// # Errors
    ///
    /// As [`Device::import_file`].
    pub fn import_file_read_only<T: Pod>(
        &self,
        file: impl AsFd,
        range: impl RangeBounds<usize>,
    ) -> Result<ReadOnlyBuffer<T>> {
        let part = self.import_part::<T>(file, &range, FileAccess::ReadOnly)?;
        Ok(ReadOnlyBuffer { part, _elements: PhantomData })
    }

    fn import_part<T: Pod>(
        &self,
        file: impl AsFd,
        range: &impl RangeBounds<usize>,
        access: FileAccess,
    ) -> Result<Part> {
        let handle = self.shared().heap().import_file(file.as_fd(), access)?;
        let bytes = usize::try_from(handle.memory().bytes()).unwrap_or(usize::MAX);
        Part::new::<T>(handle, &resolve(range, bytes)?)
    }
}

/// The methods that both kinds have.
macro_rules! reading {
    ($($buffer:ident),*) => {$(
        impl<T: Pod> $buffer<T> {
            /// Number of elements.
            pub fn len(&self) -> usize {
                self.part.len
            }

            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.part.len == 0
            }

            /// Length in bytes.
            pub fn byte_len(&self) -> usize {
                self.part.len * size_of::<T>()
            }

            /// Size in bytes of all of the memory behind the file.
            pub fn file_bytes(&self) -> u64 {
                self.part.handle.memory().bytes()
            }

            /// Address of the first element on the GPU.
            pub fn gpu_va(&self) -> u64 {
                self.part.slice::<T>().gpu_va()
            }

            /// Gives the memory a name for fault reports.
            #[must_use]
            pub fn named(self, name: &str) -> Self {
                self.part.handle.heap().name(self.part.handle.memory(), name);
                self
            }

            /// A part of the buffer, as an argument of a launch or the source of a copy.
            ///
            /// # Errors
            ///
            /// [`Error::Range`](crate::Error::Range) if the range ends after the end of the buffer.
            pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
                self.part.slice().part(range)
            }

            /// Waits for the work of this device that uses the memory, then copies the elements to `target`.
            ///
            /// # Errors
            ///
            /// [`Error::Range`](crate::Error::Range) if the lengths differ; the errors of
            /// [`Buffer::wait`](crate::Buffer::wait); [`Error::Driver`](crate::Error::Driver) if the driver that made
            /// the memory refuses the CPU.
            pub fn copy_to_slice(&self, target: &mut [T]) -> Result<()> {
                self.part.slice().copy_to_slice(target)
            }

            /// Waits for the work of this device that uses the memory, then returns the elements.
            ///
            /// # Errors
            ///
            /// As `copy_to_slice`.
            pub fn to_vec(&self) -> Result<Vec<T>> {
                self.part.slice().to_vec()
            }

            /// Waits for the work of this device that uses the memory; of other owners it knows nothing.
            ///
            /// # Errors
            ///
            /// As [`Buffer::wait`](crate::Buffer::wait).
            pub fn wait(&self, timeout: Duration) -> Result<()> {
                self.part.handle.heap().wait_for(self.part.handle.uses(), timeout)
            }

            /// A file of all of the memory for owners that only read: another process, or another driver. Closed on
            /// exec.
            ///
            /// # Errors
            ///
            /// [`Error::Driver`](crate::Error::Driver): [`gpu_hal::Error::Unsupported`] if the driver cannot restrict
            /// the rights, as for memory that another driver has allocated.
            pub fn export_read_only(&self) -> Result<OwnedFd> {
                Ok(self.part.handle.memory().export(FileAccess::ReadOnly)?)
            }
        }

        impl<'a, T: Pod> From<&'a $buffer<T>> for Slice<'a, T> {
            fn from(buffer: &'a $buffer<T>) -> Self {
                buffer.part.slice()
            }
        }

        impl<T: Pod> fmt::Debug for $buffer<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($buffer))
                    .field("type", &core::any::type_name::<T>())
                    .field("len", &self.part.len)
                    .field("gpu_va", &format_args!("{:#x}", self.gpu_va()))
                    .finish()
            }
        }
    )*};
}

reading!(SharedBuffer, ReadOnlyBuffer);

impl<T: Pod> SharedBuffer<T> {
    /// A part of the buffer for writing, as an argument of a launch or the target of a copy.
    ///
    /// # Errors
    ///
    /// As [`SharedBuffer::slice`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        Ok(SliceMut::over(self.slice(range)?))
    }

    /// Waits for the work of this device that uses the memory, then copies `source` into it.
    ///
    /// # Errors
    ///
    /// As [`SharedBuffer::copy_to_slice`].
    pub fn copy_from_slice(&mut self, source: &[T]) -> Result<()> {
        self.slice_mut(..)?.copy_from_slice(source)
    }

    /// A file of all of the memory, for owners that read and write. Closed on exec; the memory lives as long as any
    /// owner or file of it.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver), for example if the process has too many open files.
    pub fn export(&self) -> Result<OwnedFd> {
        Ok(self.part.handle.memory().export(FileAccess::ReadWrite)?)
    }

    /// The buffer as a [`Buffer`], for callers that use one type for all memory, such as other languages.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the buffer does not begin at the start of the memory.
    ///
    /// # Safety
    ///
    /// While a [`View`](crate::View) of the result exists, no other owner of the memory writes its elements.
    pub unsafe fn into_buffer(self) -> Result<Buffer<T>> {
        self.part.into_buffer()
    }

    /// Waits for the work of this device that uses the memory, then begins accesses of the CPU in place, which last
    /// until the result is dropped.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// let mut shared = device.alloc_shared::<u32>(4)?;
    /// let access = shared.cpu_access()?;
    /// // SAFETY: the element lies in the buffer, which `access` borrows; the store is volatile.
    /// unsafe { access.pointer().add(3).write_volatile(7) };
    /// drop(access);
    /// assert_eq!(shared.to_vec()?, [0, 0, 0, 7]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`SharedBuffer::copy_to_slice`].
    pub fn cpu_access(&mut self) -> Result<CpuAccess<'_, T>> {
        self.wait(DEFAULT_TIMEOUT)?;
        let memory = self.part.handle.memory();
        // SAFETY: the part lies inside the memory.
        let elements = unsafe { memory.map()?.cast::<T>().add(self.part.start) };
        Ok(CpuAccess { elements, len: self.part.len, _access: memory.access_cpu(FileAccess::ReadWrite)? })
    }
}

impl<'a, T: Pod> From<&'a mut SharedBuffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a mut SharedBuffer<T>) -> Self {
        buffer.part.slice()
    }
}

impl<'a, T: Pod> From<&'a mut SharedBuffer<T>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut SharedBuffer<T>) -> Self {
        Self::over(buffer.part.slice())
    }
}

/// Accesses of the CPU to a [`SharedBuffer`] in place.
#[derive(Debug)]
pub struct CpuAccess<'a, T: Pod> {
    elements: NonNull<T>,
    len: usize,
    _access: heap::CpuAccess<'a>,
}

impl<T: Pod> CpuAccess<'_, T> {
    /// The first element, valid for volatile and atomic accesses of [`CpuAccess::len`] elements while `self` lives.
    /// Another owner may write them at any time, so no reference to them is allowed.
    pub fn pointer(&self) -> NonNull<T> {
        self.elements
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
