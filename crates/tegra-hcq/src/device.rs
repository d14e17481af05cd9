//! The device: one opened GPU and its memory.
//!
//! A [`Device`] is a handle that is cheap to clone. Buffers, programs and queues keep the parts of it that they need
//! alive, so they may be dropped in any order. The modules of queues, graphs, signals, recovery and bundles add their
//! own methods.

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;
use std::time::SystemTime;

use gpu_hal::{MemoryInfo, MemoryUse};

use crate::encodings::Encodings;
use crate::error::{RangeError, Result};
use crate::heap::{Handle, PoolUsage};
use crate::kind::Properties;
use crate::memory::{Buffer, HostMemory, Imported, Pod};
use crate::runtime::OutputStream;
use crate::shared::Shared;

/// An open GPU.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// use tegra_hcq::{Device, DeviceKind};
///
/// let device = Device::open(DeviceKind::Sim)?;
/// let buffer = device.alloc_from(&[1, 2, 3])?;
/// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
}

impl Device {
    /// The GPU's properties.
    pub fn info(&self) -> &Properties {
        self.shared.properties()
    }

    /// The encodings that the device uses: its chip's, with the overrides of [`DeviceOptions`](crate::DeviceOptions).
    pub fn encodings(&self) -> &Encodings {
        self.shared.encodings()
    }

    /// Allocates a buffer of `len` elements that the CPU and the GPU access. Its contents are unspecified.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the size overflows,
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.alloc_for(len, MemoryUse::Device)
    }

    /// As [`Device::alloc`], with CPU caching chosen for a use.
    ///
    /// # Errors
    ///
    /// As [`Device::alloc`]; [`gpu_hal::Error::Unsupported`] for [`MemoryUse::Shared`], which is
    /// [`Device::alloc_shared`].
    pub fn alloc_for<T: Pod>(&self, len: usize, purpose: MemoryUse) -> Result<Buffer<T>> {
        if purpose == MemoryUse::Shared {
            return Err(
                gpu_hal::Error::Unsupported("a Buffer of shared memory: use Device::alloc_shared").into()
            );
        }
        Buffer::new(self.shared.heap(), len, purpose)
    }

    /// Allocates a buffer of `len` elements that the CPU and the GPU see at one address: [`Buffer::cpu_address`] is
    /// [`Buffer::gpu_va`], so data may contain pointers that both follow. The memory is the machine's, also if the GPU
    /// has its own; neither side copies anything. What CUDA calls pinned or managed memory.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// let buffer = device.alloc_unified::<f32>(100)?;
    /// let address = buffer.cpu_address()?.expect("the CPU sees it");
    /// assert_eq!(address.as_ptr() as u64, buffer.gpu_va());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Device::alloc`]; [`Shortage::Addresses`](crate::Shortage::Addresses) also if the process itself uses the
    /// addresses that the GPU has free. [`Error::Driver`](crate::Error::Driver) with
    /// [`gpu_hal::Error::Unsupported`] if the driver cannot do it.
    pub fn alloc_unified<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.alloc_for(len, MemoryUse::Unified)
    }

    /// Allocates a zeroed buffer of `len` elements.
    ///
    /// # Errors
    ///
    /// As [`Device::alloc`].
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        let buffer = self.alloc(len)?;
        buffer.zero()?;
        Ok(buffer)
    }

    /// Allocates a buffer filled with a copy of `data`.
    ///
    /// # Errors
    ///
    /// As [`Device::alloc`].
    pub fn alloc_from<T: Pod>(&self, data: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(data.len())?;
        buffer.copy_from_slice(data)?;
        Ok(buffer)
    }

    /// Maps memory of the process for the GPU in place, without a copy. The buffer takes ownership of the memory;
    /// [`Buffer::view`] gives access to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver refuses to pin the pages.
    pub fn import<T: Pod + Send + Sync>(&self, host: HostMemory<T>) -> Result<Buffer<T>> {
        let len = host.len();
        Ok(Buffer::over(self.import_shared(&Arc::new(host))?, len))
    }

    /// Maps memory of the process that other devices may map, too.
    pub(crate) fn import_shared<T: Pod + Send + Sync>(&self, host: &Arc<HostMemory<T>>) -> Result<Handle> {
        let (pointer, mapped) = (host.pointer(), host.mapped());
        // SAFETY: the pages stay mapped until `Imported` drops the driver's memory, then `host`.
        let memory = unsafe { self.shared.driver().import(pointer, mapped, "imported memory")? };
        let imported = Box::new(Imported::new(memory, Arc::clone(host)));
        // CAST: usize is at most 64 bits.
        let memory = self.shared.heap().adopt(imported, mapped as u64);
        Ok(Handle::new(memory, self.shared.heap()))
    }

    /// As [`Device::import`] for memory that the caller continues to own: a mapped file, or memory of another
    /// library. Mappings of device memory (`VM_PFNMAP`), such as the
    /// buffers of many camera drivers, cannot be pinned.
    ///
    /// # Errors
    ///
    /// Returns an error if `pointer` is not page-aligned or the driver refuses to pin the pages.
    ///
    /// # Safety
    ///
    /// `len` elements at `pointer` must stay mapped writable until the buffer and all work that uses it are gone. No
    /// reference to them may exist while the GPU or the buffer may access them. The GPU can also access the rest of the
    /// last page.
    pub unsafe fn import_raw<T: Pod>(&self, pointer: NonNull<T>, len: usize) -> Result<Buffer<T>> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or(RangeError::Overflow { len, element_bytes: size_of::<T>() })?;
        // SAFETY: the caller's promise is passed on.
        let memory = unsafe { self.shared.driver().import(pointer.cast(), bytes, "imported memory")? };
        let memory = self.shared.heap().adopt(memory, bytes as u64);
        Ok(Buffer::over(Handle::new(memory, self.shared.heap()), len))
    }

    /// Usage of the device's allocator.
    pub fn memory_usage(&self) -> PoolUsage {
        self.shared.heap().pool().usage()
    }

    /// Memory of the machine or GPU, and what this device holds of it; `None` if the driver does not report it.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// let buffer = device.alloc::<u8>(1 << 20)?;
    /// let memory = device.memory().expect("the software Orin reports its memory");
    /// assert!(memory.held >= 1 << 20 && memory.largest <= memory.available && memory.available < memory.total);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    pub fn memory(&self) -> Option<MemoryFigures> {
        let MemoryInfo { total, available, largest } = self.shared.driver().memory_info()?;
        Some(MemoryFigures { total, available, largest, held: self.memory_usage().reserved })
    }

    /// Returns idle memory of the allocator to the system. Returns the number of bytes released.
    pub fn trim(&self) -> u64 {
        self.shared.heap().trim()
    }

    /// The current time by the GPU's clock and by the system's clock, both in nanoseconds.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver cannot read both clocks.
    pub fn clock_pair(&self) -> Result<(u64, SystemTime)> {
        Ok(self.shared.driver().clock_pair()?)
    }

    /// Passes the output of kernels (`printf`, messages of failed assertions) to `sink` instead of the process's
    /// standard streams. Output arrives when a wait for the device ends, and when the device is closed. The sink must
    /// not call the device.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// let (send, receive) = std::sync::mpsc::channel();
    /// device.on_output(move |_stream, text| {
    ///     let _ = send.send(String::from_utf8_lossy(text).into_owned());
    /// });
    /// // No kernel has printed yet.
    /// assert!(receive.try_recv().is_err());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    pub fn on_output(&self, sink: impl FnMut(OutputStream, &[u8]) + Send + 'static) {
        self.shared.output().set(Some(Box::new(sink)));
    }

    /// Passes the output of kernels to the process's standard streams again, as before [`Device::on_output`]. The
    /// earlier sink is not called any more.
    pub fn reset_output(&self) {
        self.shared.output().set(None);
    }

    /// Size in bytes of the buffer for the output of kernels between two waits. Initially 1 MiB, as in CUDA.
    pub fn printf_bytes(&self) -> u64 {
        self.shared.runtime_sizes().printf
    }

    /// Sets the size of the buffer for the output of kernels, in bytes; it is rounded up to a power of two, at least
    /// 4 KiB. While the buffer is full, `printf` returns -1. Each change keeps the old buffer until the device is
    /// closed.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) for more than 4 GiB;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn set_printf_bytes(&self, bytes: u64) -> Result<()> {
        let bytes = run_time_size(bytes)?;
        let mut sizes = self.shared.runtime_sizes();
        if let Some(runtime) = self.shared.runtime().filter(|_| sizes.printf != bytes) {
            runtime.set_printf(bytes)?;
        }
        sizes.printf = bytes;
        Ok(())
    }

    /// Size in bytes of the heap for `malloc` in kernels. Initially 8 MiB, as in CUDA.
    pub fn kernel_heap_bytes(&self) -> u64 {
        self.shared.runtime_sizes().heap
    }

    /// Sets the size of the heap for `malloc` in kernels, in bytes; it is rounded down to pages of 4 KiB. No kernel may
    /// run that calls `malloc`: memory that it gets meanwhile cannot be freed.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) for more than 4 GiB, and if kernels have not freed all memory of the
    /// present heap; [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn set_kernel_heap_bytes(&self, bytes: u64) -> Result<()> {
        let bytes = run_time_size(bytes)?;
        let mut sizes = self.shared.runtime_sizes();
        if let Some(runtime) = self.shared.runtime().filter(|runtime| runtime.has_heap()) {
            runtime.set_heap(bytes)?;
        }
        sizes.heap = bytes;
        Ok(())
    }

    /// Size in bytes of the stack of a thread whose kernel may need any: it is recursive, or calls through pointers.
    /// Initially 1024, as in CUDA.
    pub fn stack_bytes(&self) -> u64 {
        self.shared.runtime_sizes().stack.into()
    }

    /// Sets [`Device::stack_bytes`] for programs that are loaded from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) for more than 512 KiB.
    pub fn set_stack_bytes(&self, bytes: u64) -> Result<()> {
        let stack = u32::try_from(bytes).ok().filter(|bytes| *bytes <= MOST_STACK);
        let limit = MOST_STACK.into();
        self.shared.runtime_sizes().stack = stack.ok_or(RangeError::RunTime { bytes, limit })?;
        Ok(())
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// Largest buffer for output, and largest heap of kernels, in bytes.
const MOST_RUN_TIME: u64 = 4 << 30;

/// Largest stack of a thread in bytes, as in CUDA.
const MOST_STACK: u32 = 512 << 10;

/// Refuses a size that is too large for the run time of kernels.
fn run_time_size(bytes: u64) -> Result<u64> {
    if bytes > MOST_RUN_TIME {
        Err(RangeError::RunTime { bytes, limit: MOST_RUN_TIME }.into())
    } else {
        Ok(bytes)
    }
}

/// Memory of the machine or GPU, in bytes: [`Device::memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFigures {
    /// Total size.
    pub total: u64,
    /// What allocations can get now. On an Orin it is what Linux reports as available, less what is free only for
    /// contiguous allocations.
    pub available: u64,
    /// The most that one allocation may take now, beside idle memory of the device ([`PoolUsage::idle`]).
    pub largest: u64,
    /// What this device has allocated, idle memory included.
    pub held: u64,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}
