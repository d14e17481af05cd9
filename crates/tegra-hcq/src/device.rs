//! The device: one opened GPU, its memory and its queues.
//!
//! A [`Device`] is a handle that is cheap to clone; buffers, programs and queues keep what is behind
//! it alive, so they may be dropped in any order.

use core::ptr::NonNull;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::bundle;
use crate::error::{Error, Result};
use crate::graph::GraphBuilder;
use crate::kind::DeviceKind;
use crate::memory::{Buffer, Handle, HostMemory, Imported, Pod, PoolUsage};
use crate::queue::{Queue, QueueOptions};
use crate::recover::{self, Recovery};
use crate::shared::Shared;
use crate::signal::Signal;
use gpu_hal::{MemoryInfo, MemoryUse};

/// How long calls wait for the GPU that have no time-out of their own: reading a buffer, a launch
/// that finds the rings full, opening and closing a queue.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// What the GPU is, and which kind of device answers. Dereferences to the driver's [`gpu_hal::Properties`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Kind of the device; never [`DeviceKind::Auto`].
    pub kind: DeviceKind,
    /// What the driver reports.
    pub gpu: gpu_hal::Properties,
}

impl core::ops::Deref for Properties {
    type Target = gpu_hal::Properties;

    fn deref(&self) -> &gpu_hal::Properties {
        &self.gpu
    }
}

/// An open GPU.
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<Shared>,
}

impl Device {
    /// The GPU's properties.
    pub fn info(&self) -> &Properties {
        self.shared.properties()
    }

    /// Allocates a buffer of `len` elements that CPU and GPU see. Its contents are unspecified.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the size overflows, [`Error::OutOfMemory`] when there is no memory.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.alloc_for(len, MemoryUse::Device)
    }

    /// As [`Device::alloc`], with the CPU's caching suited to a use.
    ///
    /// # Errors
    ///
    /// As [`Device::alloc`].
    pub fn alloc_for<T: Pod>(&self, len: usize, purpose: MemoryUse) -> Result<Buffer<T>> {
        Buffer::new(&self.shared, len, purpose)
    }

    /// Allocates a buffer of `len` elements whose bytes are all zero.
    ///
    /// # Errors
    ///
    /// As [`Device::alloc`].
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        let buffer = self.alloc(len)?;
        buffer.zero();
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

    /// Lets the GPU work on memory of the process in place, without a copy. The buffer owns the memory
    /// from now on; [`Buffer::view`] shows it.
    ///
    /// # Errors
    ///
    /// When the driver refuses to pin the pages.
    pub fn import<T: Pod + Send + Sync>(&self, host: HostMemory<T>) -> Result<Buffer<T>> {
        let (pointer, mapped, len) = (host.pointer(), host.mapped(), host.len());
        // SAFETY: the pages stay mapped until `Imported` drops the driver's memory, then `host`.
        let memory = unsafe { self.shared.driver().import(pointer, mapped, "imported memory")? };
        // CAST: usize is at most 64 bits.
        let memory = self.shared.pool().adopt(Box::new(Imported::new(memory, host)), mapped as u64);
        Ok(Buffer::over(Handle::new(memory, &self.shared), len))
    }

    /// As [`Device::import`] for memory that the caller keeps: a mapped file, a camera's frame, memory
    /// of another library.
    ///
    /// # Errors
    ///
    /// When `pointer` is not page-aligned or the driver refuses to pin the pages.
    ///
    /// # Safety
    ///
    /// `len` elements at `pointer` are mapped writable until the buffer and all work that uses it are
    /// gone, and no reference to them exists while the GPU or the buffer may access them. The rest of
    /// the last page becomes visible to the GPU, too.
    pub unsafe fn import_raw<T: Pod>(&self, pointer: NonNull<T>, len: usize) -> Result<Buffer<T>> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::Range(format!("{len} elements of {} bytes overflow", size_of::<T>())))?;
        // SAFETY: the caller's promise is passed on.
        let memory = unsafe { self.shared.driver().import(pointer.cast(), bytes, "imported memory")? };
        let memory = self.shared.pool().adopt(memory, bytes as u64);
        Ok(Buffer::over(Handle::new(memory, &self.shared), len))
    }

    /// Makes a signal with the given value.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn signal(&self, value: u64) -> Result<Signal> {
        Signal::new(&self.shared, value)
    }

    /// Opens a queue: a compute and a copy channel of its own, set up and idle.
    ///
    /// # Errors
    ///
    /// When [`MAX_QUEUES`](crate::MAX_QUEUES) are open, when the driver refuses a step, or when the GPU does not answer.
    pub fn queue(&self) -> Result<Queue> {
        self.queue_with(&QueueOptions::default())
    }

    /// As [`Device::queue`], with options.
    ///
    /// # Errors
    ///
    /// As [`Device::queue`].
    pub fn queue_with(&self, options: &QueueOptions) -> Result<Queue> {
        Queue::open(&self.shared, options)
    }

    /// Begins to record a graph.
    pub fn graph(&self) -> GraphBuilder {
        GraphBuilder::new(&self.shared)
    }

    /// Stops and rebuilds what has faulted or hangs, and goes on: see [`Recovery`].
    ///
    /// Queues that have faulted, or on which a wait has run out for work that has not ended since, are
    /// stopped; their unfinished work is lost, and the fences of that work keep saying why (after many
    /// recoveries of a queue the oldest no longer have the log's lines and the commands). Each such queue
    /// gets new channels at its next use. Buffers and programs survive; what lost work should have written
    /// is unspecified.
    ///
    /// # Errors
    ///
    /// When the driver refuses to stop a channel.
    pub fn recover(&self) -> Result<Recovery> {
        recover::recover(&self.shared)
    }

    /// Writes what can be told about the device to a new folder inside `folder`, which is made if need be; returns
    /// the new folder. For reports of trouble: the files say what happened last, what each queue was given, what
    /// memory is mapped, what the kernel has logged and which versions were in use. The contents of buffers are left
    /// out.
    ///
    /// With the variable `NVGPU_CRASH_DIR` set to a folder, each fault and each time-out of a wait of at least 10 ms
    /// does the same, at most 16 times, and its error names the new folder.
    ///
    /// # Errors
    ///
    /// [`Error::File`] when a file cannot be written.
    pub fn write_bundle(&self, folder: impl AsRef<Path>) -> Result<PathBuf> {
        for queue in self.shared.queues() {
            // Faults that nobody has waited for yet are told, too.
            let _ = queue.check();
        }
        bundle::write(&self.shared, folder.as_ref(), bundle::Event::Request)
    }

    /// Figures of the device's own allocator.
    pub fn memory_usage(&self) -> PoolUsage {
        self.shared.pool().usage()
    }

    /// How much memory the machine or GPU has, if the driver tells.
    pub fn memory_info(&self) -> Option<MemoryInfo> {
        self.shared.driver().memory_info()
    }

    /// Gives memory that is kept for recycling back to the system. Returns the number of bytes.
    pub fn trim(&self) -> u64 {
        self.shared.sweep();
        self.shared.pool().trim()
    }

    /// The same moment by the GPU's clock, in nanoseconds, and by the system's.
    ///
    /// # Errors
    ///
    /// When the driver cannot read both.
    pub fn clock_pair(&self) -> Result<(u64, SystemTime)> {
        Ok(self.shared.driver().clock_pair()?)
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}
