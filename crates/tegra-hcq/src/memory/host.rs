//! Memory of the process that the GPU accesses in place.

use core::ffi::c_void;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytemuck::Pod;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::error::{RangeError, Result};
use gpu_hal::DeviceMemory;

/// The CPU reads and writes.
const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Zeroed, page-aligned memory of the process, for [`Device::import`](crate::Device::import).
///
/// An ordinary `Vec` cannot be imported, because the kernel pins whole pages, and the first and last page of a `Vec`
/// also contain other data.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// use tegra_hcq::HostMemory;
///
/// // The GPU reads and writes the memory of the process in place.
/// let buffer = device.import(HostMemory::from_slice(&[1.0_f32; 1024])?)?;
/// assert_eq!(buffer.to_vec()?, [1.0; 1024]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct HostMemory<T: Pod> {
    pointer: NonNull<T>,
    len: usize,
    mapped: usize,
}

// SAFETY: the memory is owned by this value alone and `T: Pod` may move between threads.
unsafe impl<T: Pod + Send> Send for HostMemory<T> {}
// SAFETY: shared references only allow reading.
unsafe impl<T: Pod + Sync> Sync for HostMemory<T> {}

impl<T: Pod> HostMemory<T> {
    /// Allocates `len` elements of zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the size is zero or overflows, or if the system has not enough
    /// memory.
    pub fn new(len: usize) -> Result<Self> {
        let bytes = Self::whole_pages(len)?;
        // SAFETY: a new anonymous mapping touches no existing memory.
        let mapped = unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, ACCESS, MapFlags::SHARED) };
        Self::over(mapped, len, bytes)
    }

    /// The first `len` elements of a file that keeps its size: a memfd with F_SEAL_SHRINK. Other processes may map it,
    /// too.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    /// use tegra_hcq::HostMemory;
    ///
    /// let file = memfd_create("numbers", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    /// ftruncate(&file, 4096)?;
    /// fcntl_add_seals(&file, SealFlags::SHRINK)?;
    /// // SAFETY: nothing else maps the file.
    /// let mut buffer = device.import(unsafe { HostMemory::<u32>::of_file(&file, 64)? })?;
    /// buffer.copy_from_slice(&[7; 64])?;
    /// let mut word = [0; 4];
    /// rustix::io::pread(&file, &mut word, 252)?;
    /// assert_eq!(u32::from_le_bytes(word), 7);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the file has no such seal, or fewer elements, or none is asked for; if
    /// the system does not map the file for writing.
    ///
    /// # Safety
    ///
    /// While a reference to the elements exists, of this value or of a view of its buffer, nothing else writes them.
    pub unsafe fn of_file(file: impl AsFd, len: usize) -> Result<Self> {
        let (file, bytes) = (file.as_fd(), Self::whole_pages(len)?);
        let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let has = if sealed { fstat(file).map_or(0, |status| status.st_size) } else { 0 };
        if !i64::try_from(bytes).is_ok_and(|bytes| bytes <= has) {
            return Err(RangeError::HostFile { len, element_bytes: size_of::<T>() }.into());
        }
        // SAFETY: a new mapping touches no existing memory; the file has the pages and keeps them.
        let mapped = unsafe { mmap(core::ptr::null_mut(), bytes, ACCESS, MapFlags::SHARED, file, 0) };
        Self::over(mapped, len, bytes)
    }

    /// Size in bytes of the pages of `len` elements.
    fn whole_pages(len: usize) -> Result<usize> {
        const { super::check_alignment::<T>() };
        let page = rustix::param::page_size();
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_next_multiple_of(page));
        Ok(bytes
            .filter(|bytes| *bytes > 0)
            .ok_or(RangeError::HostMemory { len, element_bytes: size_of::<T>() })?)
    }

    /// `len` elements in `bytes` bytes that were mapped.
    fn over(mapped: rustix::io::Result<*mut c_void>, len: usize, bytes: usize) -> Result<Self> {
        let pointer = mapped.ok().and_then(|pointer| NonNull::new(pointer.cast::<T>()));
        let pointer = pointer.ok_or(RangeError::HostMemory { len, element_bytes: size_of::<T>() })?;
        Ok(Self { pointer, len, mapped: bytes })
    }

    /// A copy of `data`.
    ///
    /// # Errors
    ///
    /// As [`HostMemory::new`].
    pub fn from_slice(data: &[T]) -> Result<Self> {
        let mut memory = Self::new(data.len())?;
        memory.copy_from_slice(data);
        Ok(memory)
    }

    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.pointer.cast()
    }

    pub(crate) fn mapped(&self) -> usize {
        self.mapped
    }
}

impl<T: Pod> Deref for HostMemory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements are mapped, page-aligned and initialised; any bit pattern is a valid `Pod` value; no
        // other code has the address, or the caller of `of_file` promised that it does not write.
        unsafe { core::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for HostMemory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; `self` is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

impl<T: Pod> Drop for HostMemory<T> {
    fn drop(&mut self) {
        // SAFETY: `new` created the mapping, and no other code uses it.
        let unmapped = unsafe { munmap(self.pointer.as_ptr().cast(), self.mapped) };
        if let Err(error) = unmapped {
            tracing::warn!(%error, "host memory could not be unmapped");
        }
    }
}

impl<T: Pod> fmt::Debug for HostMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Imported memory together with the owner of its pages.
pub(crate) struct Imported<T: Pod> {
    // Declared before `host`: the driver unpins the pages first.
    memory: Box<dyn DeviceMemory>,
    host: Arc<HostMemory<T>>,
}

impl<T: Pod> Imported<T> {
    pub(crate) fn new(memory: Box<dyn DeviceMemory>, host: Arc<HostMemory<T>>) -> Self {
        Self { memory, host }
    }
}

impl<T: Pod> fmt::Debug for Imported<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}

// SAFETY: the driver's memory maps the pages of `host`, which lives as long, for the GPU.
unsafe impl<T: Pod + Send + Sync> DeviceMemory for Imported<T> {
    fn gpu_va(&self) -> u64 {
        self.memory.gpu_va()
    }

    fn cpu(&self) -> gpu_hal::Result<NonNull<u8>> {
        Ok(self.host.pointer())
    }

    fn bytes(&self) -> u64 {
        // CAST: usize is at most 64 bits.
        self.host.mapped() as u64
    }
}
