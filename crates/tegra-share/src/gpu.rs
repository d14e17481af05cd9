//! Both ends on devices of `tegra-hcq`: the ring's buffers are memory of a GPU, and its fences those of queues.

use core::time::Duration;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use tegra_hcq::{Device, DeviceKind, Pod, Queue, ReadOnlyBuffer, SharedBuffer};

use crate::consumer::{Consumer, Frame};
use crate::error::Error;
use crate::producer::{FrameInfo, Layout, Producer, ProducerOptions};
use crate::ring::Writable;
use crate::socket;

/// A producer whose buffers are memory of a device.
///
/// On an Orin, the GPU waits for consumers and they for it, and the CPU for neither. The fences of other devices are
/// not files that another process could wait for: there, [`publish`](Self::publish) waits for the queue on the CPU.
#[derive(Debug)]
pub struct GpuProducer<T: Pod> {
    producer: Producer,
    buffers: Vec<SharedBuffer<T>>,
    fences: bool,
}

impl<T: Pod> GpuProducer<T> {
    /// Allocates `buffers` buffers of `len` elements and serves consumers at a path, as [`Producer::bind`]. Consumers
    /// get read-only descriptors if the driver has such.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`]; the errors of [`Producer::bind`].
    pub fn bind(
        device: &Device,
        path: impl AsRef<Path>,
        (buffers, len): (usize, usize),
        meta: &[u8],
        options: ProducerOptions,
    ) -> Result<Self, Error> {
        let allocate = |_| device.alloc_shared(len);
        let buffers = (0..buffers).map(allocate).collect::<Result<Vec<SharedBuffer<T>>, _>>()?;
        let export = |buffer: &SharedBuffer<T>| buffer.export_read_only().or_else(|_| buffer.export());
        let files = buffers.iter().map(export).collect::<Result<_, _>>()?;
        // CAST: usize is at most 64 bits.
        let layout = Layout { buffers: files, bytes: (len * size_of::<T>()) as u64, meta: meta.to_vec() };
        let producer = Producer::bind(path, layout, options)?;
        Ok(Self { producer, buffers, fences: has_fences(device) })
    }

    /// The producer, for its events and to serve consumers.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// As [`Producer::acquire`]; later work of `queue` waits until the buffer may be written.
    ///
    /// # Errors
    ///
    /// As [`Producer::acquire`]; [`Error::Gpu`]; [`Error::TimedOut`] for a fence that only the CPU can wait for.
    pub fn acquire(&mut self, queue: &mut Queue, timeout: Duration) -> Result<Writable, Error> {
        let deadline = socket::deadline(timeout);
        let buffer = self.producer.acquire(timeout)?;
        buffer.fences().try_for_each(|fence| wait_in(queue, fence, deadline, timeout))?;
        Ok(buffer)
    }

    /// The memory of an acquired buffer, as the target of a launch or a copy.
    ///
    /// # Errors
    ///
    /// [`Error::OtherProducer`]
    pub fn memory(&mut self, buffer: &Writable) -> Result<&mut SharedBuffer<T>, Error> {
        if !self.producer.has_given(buffer) {
            return Err(Error::OtherProducer);
        }
        Ok(&mut self.buffers[buffer.index()])
    }

    /// Submits the work of `queue` and publishes a frame that is ready once that has ended. Where fences are not
    /// files, waits for it, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Producer::publish`]; [`Error::Gpu`], after which the frame is not published.
    pub fn publish(
        &mut self,
        queue: &mut Queue,
        buffer: Writable,
        info: FrameInfo,
        timeout: Duration,
    ) -> Result<u64, Error> {
        let fence = submit(queue, self.fences, timeout)?;
        self.producer.publish(buffer, info, fence)
    }
}

/// A consumer whose device maps the buffers of a producer, for reading. The elements are `T`, whatever the producer
/// calls them.
#[derive(Debug)]
pub struct GpuConsumer<T: Pod> {
    consumer: Consumer,
    buffers: Vec<ReadOnlyBuffer<T>>,
    fences: bool,
}

impl<T: Pod> GpuConsumer<T> {
    /// Connects as [`Consumer::connect`], and maps the buffers.
    ///
    /// # Errors
    ///
    /// As [`Consumer::connect`]; [`Error::Gpu`] if the device cannot map them, or `T` does not divide their size.
    pub fn connect(
        device: &Device,
        path: impl AsRef<Path>,
        hold: u32,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let consumer = Consumer::connect(path, hold, timeout)?;
        let bytes = usize::try_from(consumer.layout().bytes).unwrap_or(usize::MAX);
        let map = |file| device.import_file_read_only(file, ..bytes);
        let buffers = consumer.layout().buffers.iter().map(map).collect::<Result<_, _>>()?;
        Ok(Self { consumer, buffers, fences: has_fences(device) })
    }

    /// The consumer, for its description of the buffers.
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// As [`Consumer::recv`]; later work of `queue` waits until the frame is ready.
    ///
    /// # Errors
    ///
    /// As [`Consumer::recv`]; [`Error::Gpu`]; [`Error::TimedOut`] for a fence that only the CPU can wait for.
    pub fn recv(&mut self, queue: &mut Queue, timeout: Duration) -> Result<Option<Frame>, Error> {
        let deadline = socket::deadline(timeout);
        let Some(frame) = self.consumer.recv(timeout)? else { return Ok(None) };
        if let Some(fence) = frame.fence() {
            wait_in(queue, fence, deadline, timeout)?;
        }
        Ok(Some(frame))
    }

    /// The memory of a frame, as the source of a launch or a copy.
    ///
    /// # Errors
    ///
    /// [`Error::OtherProducer`]
    pub fn memory(&self, frame: &Frame) -> Result<&ReadOnlyBuffer<T>, Error> {
        if !self.consumer.has_received(frame) {
            return Err(Error::OtherProducer);
        }
        Ok(&self.buffers[frame.index()])
    }

    /// Submits the work of `queue` and gives the frame back once that has ended. Where fences are not files, waits for
    /// it, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Frame::release`]; [`Error::Gpu`].
    pub fn release(&self, queue: &mut Queue, frame: Frame, timeout: Duration) -> Result<(), Error> {
        let fence = submit(queue, self.fences, timeout)?;
        frame.release(fence.as_ref().map(AsFd::as_fd))
    }
}

/// Whether other processes can wait for fences of the device. The software Orin's are known only to itself; a program
/// under `orin serve` sees an Orin.
fn has_fences(device: &Device) -> bool {
    device.info().kind == DeviceKind::Nvgpu
}

/// Makes a queue wait for a fence; the CPU waits if the GPU cannot.
fn wait_in(queue: &mut Queue, fence: impl AsFd, deadline: Instant, timeout: Duration) -> Result<(), Error> {
    match queue.wait_file(&fence) {
        Err(tegra_hcq::Error::Driver(_)) => socket::wait_fence(fence, deadline, timeout),
        result => Ok(result?),
    }
}

/// Submits a queue's work. Returns a file that signals when it has ended, or waits for that.
fn submit(queue: &mut Queue, fences: bool, timeout: Duration) -> Result<Option<OwnedFd>, Error> {
    if fences {
        return Ok(Some(queue.submit_to_file()?));
    }
    queue.submit()?.wait(timeout)?;
    Ok(None)
}
