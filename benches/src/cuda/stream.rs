//! Streams: work in order, and waits for it.

use core::ptr;
use std::rc::Rc;

use super::library::{Handle, Status};
use super::{Context, Launch, Memory, Pinned, SharedWord};
use crate::error::Result;

/// CUDA_ERROR_NOT_READY.
const NOT_READY: Status = 600;

/// A stream, with an event for sleeping waits.
#[derive(Debug)]
pub struct Stream {
    pub(super) context: Rc<Context>,
    pub(super) handle: Handle,
    pub(super) event: Handle,
}

impl Stream {
    /// Submits a launch.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    #[inline]
    pub fn launch(&self, launch: &mut Launch) -> Result<()> {
        let mut pointers = launch.pointers();
        let ([x, y, z], [u, v, w]) = (launch.grid, launch.block);
        let function = launch.kernel.function;
        let send = self.context.driver.functions.launch;
        // SAFETY: the kernel's module stays loaded while `launch` lives, and is unloaded only when nothing runs. There
        // is a pointer to a value of the right size for each parameter.
        let status = unsafe {
            send(function, x, y, z, u, v, w, 0, self.handle, pointers.as_mut_ptr(), ptr::null_mut())
        };
        self.context.check("cuLaunchKernel", status)
    }

    /// Submits a copy of `bytes` bytes from the start of `source` to the start of `target`.
    ///
    /// # Errors
    ///
    /// Returns an error if one of them is too short. Errors of libcuda.
    pub fn copy(&self, source: &Memory, target: &mut Memory, bytes: usize) -> Result<()> {
        source.check_length("cuMemcpyDtoDAsync", bytes)?;
        target.check_length("cuMemcpyDtoDAsync", bytes)?;
        let copy = self.context.driver.functions.copy_on_device;
        // SAFETY: both have that many bytes and wait for the GPU before they are freed.
        let status = unsafe { copy(target.address, source.address, bytes, self.handle) };
        self.context.check("cuMemcpyDtoDAsync", status)
    }

    /// As [`Stream::copy`], between the memory of two devices.
    ///
    /// # Errors
    ///
    /// As [`Stream::copy`].
    pub fn copy_peer(&self, source: &Memory, target: &mut Memory, bytes: usize) -> Result<()> {
        source.check_length("cuMemcpyPeerAsync", bytes)?;
        target.check_length("cuMemcpyPeerAsync", bytes)?;
        let copy = self.context.driver.functions.copy_peer;
        let (to, from) = (target.context.handle, source.context.handle);
        // SAFETY: as in `copy`; both contexts are retained.
        let status = unsafe { copy(target.address, to, source.address, from, bytes, self.handle) };
        self.context.check("cuMemcpyPeerAsync", status)
    }

    /// Copies all of `source` to the start of `target` and waits for completion.
    ///
    /// # Errors
    ///
    /// Returns an error if the target is too short. Errors of libcuda.
    pub fn copy_up(&self, source: &Pinned, target: &mut Memory) -> Result<()> {
        target.check_length("cuMemcpyHtoDAsync", source.bytes)?;
        let copy = self.context.driver.functions.copy_to_device_async;
        // SAFETY: both have that many bytes and are borrowed until the copy has completed.
        let status =
            unsafe { copy(target.address, source.pointer.as_ptr().cast(), source.bytes, self.handle) };
        self.context.check("cuMemcpyHtoDAsync", status)?;
        self.wait()
    }

    /// Copies the start of `source` to all of `target` and waits for completion.
    ///
    /// # Errors
    ///
    /// Returns an error if the source is too short. Errors of libcuda.
    pub fn copy_down(&self, source: &Memory, target: &mut Pinned) -> Result<()> {
        source.check_length("cuMemcpyDtoHAsync", target.bytes)?;
        let copy = self.context.driver.functions.copy_to_host_async;
        // SAFETY: as in `copy_up`.
        let status =
            unsafe { copy(target.pointer.as_ptr().cast(), source.address, target.bytes, self.handle) };
        self.context.check("cuMemcpyDtoHAsync", status)?;
        self.wait()
    }

    /// Allocates from the device's pool and frees to it, in stream order.
    ///
    /// # Errors
    ///
    /// Errors of libcuda. Some devices have no pools.
    pub fn allocate_and_free(&self, bytes: usize) -> Result<()> {
        let functions = self.context.driver.functions;
        let mut address = 0;
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (functions.allocate_async)(&raw mut address, bytes, self.handle) };
        self.context.check("cuMemAllocAsync", status)?;
        // SAFETY: the memory was just allocated and is not in use.
        let status = unsafe { (functions.free_async)(address, self.handle) };
        self.context.check("cuMemFreeAsync", status)
    }

    /// Makes the stream wait until the word is at least `value`.
    ///
    /// # Errors
    ///
    /// Errors of libcuda. Some devices do not support it.
    pub fn wait_value(&self, word: &SharedWord, value: u64) -> Result<()> {
        // SAFETY: the word waits for the GPU before it is freed. Flag 0 is CU_STREAM_WAIT_VALUE_GEQ.
        let status =
            unsafe { (self.context.driver.functions.stream_wait_value)(self.handle, word.address, value, 0) };
        self.context.check("cuStreamWaitValue64", status)
    }

    /// Sets the word after all earlier work of the stream has completed.
    ///
    /// # Errors
    ///
    /// Errors of libcuda. Some devices do not support it.
    pub fn write_value(&self, word: &SharedWord, value: u64) -> Result<()> {
        // SAFETY: as in `wait_value`. Flag 0 is CU_STREAM_WRITE_VALUE_DEFAULT.
        let status = unsafe {
            (self.context.driver.functions.stream_write_value)(self.handle, word.address, value, 0)
        };
        self.context.check("cuStreamWriteValue64", status)
    }

    /// Spins until all submitted work has completed.
    ///
    /// # Errors
    ///
    /// Errors of libcuda, including those of the work.
    #[inline]
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream is open.
        let status = unsafe { (self.context.driver.functions.stream_synchronize)(self.handle) };
        self.context.check("cuStreamSynchronize", status)
    }

    /// Sleeps until all submitted work has completed.
    ///
    /// # Errors
    ///
    /// Errors of libcuda, including those of the work.
    pub fn wait_asleep(&self) -> Result<()> {
        let functions = self.context.driver.functions;
        // SAFETY: event and stream are open.
        let status = unsafe { (functions.event_record)(self.event, self.handle) };
        self.context.check("cuEventRecord", status)?;
        // SAFETY: the event is open.
        let status = unsafe { (functions.event_synchronize)(self.event) };
        self.context.check("cuEventSynchronize", status)
    }
}

/// An event with times.
#[derive(Debug)]
pub struct Event {
    pub(super) context: Rc<Context>,
    pub(super) handle: Handle,
}

impl Event {
    /// Records the work of a stream so far.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: event and stream are open.
        let status = unsafe { (self.context.driver.functions.event_record)(self.handle, stream.handle) };
        self.context.check("cuEventRecord", status)
    }

    /// Whether the recorded work has ended.
    ///
    /// # Errors
    ///
    /// Errors of libcuda, including those of the work.
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the event is open.
        match unsafe { (self.context.driver.functions.event_query)(self.handle) } {
            NOT_READY => Ok(false),
            status => self.context.check("cuEventQuery", status).map(|()| true),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the event is open and no thread waits for it.
            let _ = unsafe { (self.context.driver.functions.event_destroy)(self.handle) };
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.context.settle();
        let functions = self.context.driver.functions;
        if !self.event.is_null() {
            // SAFETY: the event is open and no thread waits for it.
            let _ = unsafe { (functions.event_destroy)(self.event) };
        }
        // SAFETY: the stream is open and idle.
        let _ = unsafe { (functions.stream_destroy)(self.handle) };
    }
}
