//! Buffers: typed memory that CPU and GPU share.
//!
//! On an Orin CPU and GPU use the same LPDDR5. A buffer is one nvmap allocation, cached by the CPU and
//! kept coherent by the SoC, so that copying in and out is a plain memory copy: faster than any copy
//! engine (docs/memory.md). The GPU writes the memory behind the CPU's back; it is therefore only
//! reached by volatile accesses, never through a reference.

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

pub use bytemuck::Pod;
use nvmap::volatile;

use crate::args::BufferUse;
use crate::backend::DeviceMemory;
use crate::device::{DEFAULT_TIMEOUT, Shared, Uses};
use crate::error::{Error, Result};

/// `len` elements of `T` in memory that CPU and GPU see.
///
/// Dropping a buffer frees the memory once the launches that use it have ended. A launch that gets
/// the address by another way than as a [`Buffer`] argument ([`Buffer::gpu_va`], a pointer inside a
/// struct) is not known to the buffer: keep the buffer until such work has ended.
///
/// When a queue has faulted, the buffers that its unfinished work uses repeat the fault until the queue
/// and its fences are dropped: what should have been in them is not there.
pub struct Buffer<T: Pod> {
    // Always `Some` until `drop` takes it.
    memory: Option<Box<dyn DeviceMemory>>,
    uses: Uses,
    len: usize,
    device: Arc<Shared>,
    _elements: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    pub(crate) fn new(device: &Arc<Shared>, len: usize) -> Result<Self> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::Range(format!("{len} elements of {} bytes overflow", size_of::<T>())))?;
        // CAST: usize is at most 64 bits. The driver has no empty allocations.
        let memory = device.allocate((bytes as u64).max(1), "buffer")?;
        Ok(Self {
            memory: Some(memory),
            uses: Uses::default(),
            len,
            device: Arc::clone(device),
            _elements: PhantomData,
        })
    }

    fn memory(&self) -> &dyn DeviceMemory {
        // PANIC: the memory is only taken by `drop`.
        self.memory.as_deref().expect("a live buffer has memory")
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first element on the GPU.
    pub fn gpu_va(&self) -> u64 {
        self.memory().gpu_va()
    }

    /// Waits for the work that uses the buffer, then copies `source` into it.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the lengths differ; the wait's errors.
    pub fn copy_from_slice(&mut self, source: &[T]) -> Result<()> {
        self.check_len(source.len())?;
        self.device.wait_for(&self.uses, DEFAULT_TIMEOUT)?;
        // SAFETY: the memory holds `len` elements and lives as long as `self`; `source` is as long and
        // ordinary memory, which nvmap never maps.
        unsafe { volatile::store(self.memory().cpu().as_ptr(), bytemuck::cast_slice(source)) };
        Ok(())
    }

    /// Clears a buffer that no work uses yet.
    pub(crate) fn zero(&self) {
        // SAFETY: the memory holds `len` elements and lives as long as `self`.
        unsafe { volatile::fill(self.memory().cpu().as_ptr(), 0, self.len * size_of::<T>()) };
    }

    /// Waits for the work that uses the buffer, then copies it to `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the lengths differ; the wait's errors.
    pub fn copy_to_slice(&self, target: &mut [T]) -> Result<()> {
        self.check_len(target.len())?;
        self.device.wait_for(&self.uses, DEFAULT_TIMEOUT)?;
        // SAFETY: as in `copy_from_slice`, with the roles exchanged; any bits are a value of a `Pod`.
        unsafe { volatile::load(self.memory().cpu().as_ptr(), bytemuck::cast_slice_mut(target)) };
        Ok(())
    }

    /// Waits for the work that uses the buffer, then returns its elements.
    ///
    /// # Errors
    ///
    /// The wait's errors.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.len];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }

    fn check_len(&self, len: usize) -> Result<()> {
        if len == self.len {
            return Ok(());
        }
        Err(Error::Range(format!(
            "a slice of {len} elements cannot be copied from or to a buffer of {}",
            self.len
        )))
    }

    pub(crate) fn uses(&self) -> &Uses {
        &self.uses
    }

    pub(crate) fn as_use(&self) -> BufferUse<'_> {
        BufferUse { va: self.gpu_va(), uses: &self.uses, device: self.device.id() }
    }
}

impl<T: Pod> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.device.free(memory, &self.uses);
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
