//! Memory of the device and of the host.

use core::ptr;
use core::ptr::NonNull;
use std::rc::Rc;

use super::library::Address;
use super::{Argument, Context};
use crate::error::{Error, Result};

/// Device memory.
#[derive(Debug)]
pub struct Memory {
    pub(super) context: Rc<Context>,
    pub(super) address: Address,
    pub(super) bytes: usize,
}

impl Memory {
    /// The address as an argument of a launch.
    pub fn argument(&self) -> Argument {
        Argument::Address(self.address)
    }

    pub(super) fn check_length(&self, call: &'static str, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(Error::Cuda { call, reason: format!("{bytes} bytes do not fit into {}", self.bytes) })
    }

    /// Copies `source` to the start of the memory.
    ///
    /// # Errors
    ///
    /// Returns an error if `source` does not fit. Errors of libcuda.
    pub fn copy_from(&mut self, source: &[u8]) -> Result<()> {
        self.check_length("cuMemcpyHtoD", source.len())?;
        let copy = self.context.driver.functions.copy_to_device;
        // SAFETY: both sides have that many bytes; the call returns after the source has been read.
        let status = unsafe { copy(self.address, source.as_ptr().cast(), source.len()) };
        self.context.check("cuMemcpyHtoD", status)
    }

    /// Copies the start of the memory to `target`.
    ///
    /// # Errors
    ///
    /// Returns an error if `target` is longer than the memory. Errors of libcuda.
    pub fn copy_to(&self, target: &mut [u8]) -> Result<()> {
        self.check_length("cuMemcpyDtoH", target.len())?;
        let copy = self.context.driver.functions.copy_to_host;
        // SAFETY: both sides have that many bytes; the call returns after the target has been written.
        let status = unsafe { copy(target.as_mut_ptr().cast(), self.address, target.len()) };
        self.context.check("cuMemcpyDtoH", status)
    }

    /// Frees the memory immediately, without the wait of `drop`. No work in flight may use it.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn free(self) -> Result<()> {
        let memory = core::mem::ManuallyDrop::new(self);
        // SAFETY: `self` is never dropped, so its context is still alive and is moved out exactly once.
        let context = unsafe { ptr::read(&raw const memory.context) };
        // SAFETY: allocated by `cuMemAlloc`, freed once; cuMemFree waits for work that uses the memory.
        let status = unsafe { (context.driver.functions.free)(memory.address) };
        context.check("cuMemFree", status)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: allocated by `cuMemAlloc`, freed once, and nothing uses it any more.
        let _ = unsafe { (self.context.driver.functions.free)(self.address) };
    }
}

/// A 64-bit word of host memory that kernels and streams can access.
#[derive(Debug)]
pub struct SharedWord {
    pub(super) context: Rc<Context>,
    pub(super) pointer: NonNull<u64>,
    pub(super) address: Address,
}

impl SharedWord {
    /// The address as an argument of a launch.
    pub fn argument(&self) -> Argument {
        Argument::Address(self.address)
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> u64 {
        // SAFETY: aligned memory owned by `self`; volatile because the GPU may write it.
        unsafe { self.pointer.read_volatile() }
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, value: u64) {
        // SAFETY: as in `value`.
        unsafe { self.pointer.write_volatile(value) };
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: allocated by `cuMemHostAlloc`, freed once, and nothing uses it any more.
        let _ = unsafe { (self.context.driver.functions.host_free)(self.pointer.as_ptr().cast()) };
    }
}

/// Pinned host memory.
#[derive(Debug)]
pub struct Pinned {
    pub(super) context: Rc<Context>,
    pub(super) pointer: NonNull<u8>,
    pub(super) bytes: usize,
}

impl Pinned {
    /// The bytes, while no copy is in flight.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory has that length, is owned by `self` and was initialised on allocation. Streams access it
        // only between a call that borrows it and the wait for that call.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: allocated by `cuMemHostAlloc`, freed once, and nothing uses it any more.
        let _ = unsafe { (self.context.driver.functions.host_free)(self.pointer.as_ptr().cast()) };
    }
}
