//! Where frames come from: a V4L2 camera, the synthetic one of the software Orin, or a thread of the program.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use orin_sim::{CameraOptions, SoftwareOrin};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::{ClockId, clock_gettime};
use tegra_hcq::{Device, SharedBuffer};
use tegra_image::{Format, Plane, Surface};

use crate::v4l2;

/// Number of buffers.
const BUFFERS: usize = 4;
/// Longest wait for a frame.
const PATIENCE: Duration = Duration::from_secs(10);

/// A frame in one of the source's buffers.
pub(crate) struct Frame {
    pub(crate) index: usize,
    /// Numbers of lost frames are missing.
    pub(crate) sequence: u32,
    /// Time of `CLOCK_MONOTONIC` at which the capture began, or as the driver says.
    pub(crate) timestamp: Duration,
    /// Signals when the frame is complete; `None` if it is.
    pub(crate) ready: Option<OwnedFd>,
}

/// A camera that captures into a ring of dma-bufs.
pub(crate) enum Source {
    Synthetic { camera: orin_sim::Camera, options: CameraOptions, surface: Surface },
    Thread { writer: Writer, options: CameraOptions, surface: Surface },
    V4l2(v4l2::Camera),
}

/// The options of a synthetic camera, and its image.
fn described((width, height): (u32, u32), rate: f64) -> Result<(CameraOptions, Surface)> {
    let interval = Duration::from_secs_f64(1.0 / rate);
    let readout = interval / 3;
    let options =
        CameraOptions { width, height, buffers: BUFFERS, interval, readout, ..CameraOptions::default() };
    let layout = options.layout()?;
    let plane = |plane: &orin_sim::FramePlane| Plane {
        offset: plane.offset,
        pitch: layout.pitch,
        size: u64::from(layout.pitch) * u64::from(plane.rows),
        layout: tegra_image::Layout::Pitch,
    };
    let planes: Vec<_> = layout.planes.iter().map(plane).collect();
    let surface = Surface::new(Format::Nv12, width, height, &planes, layout.bytes)?;
    Ok((options, surface))
}

/// A thread that writes frames with the CPU to exported memory, for machines without a camera.
pub(crate) struct Writer {
    files: Vec<OwnedFd>,
    frames: Receiver<Frame>,
    // Taken on drop: the thread ends when it is gone.
    free: Option<Sender<usize>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Writer {
    fn new(device: &Device, options: CameraOptions) -> Result<Self> {
        let bytes = usize::try_from(options.layout()?.bytes)?;
        let buffers: Result<Vec<_>, _> = (0..BUFFERS).map(|_| device.alloc_shared::<u8>(bytes)).collect();
        let mut buffers = buffers?;
        let files = buffers.iter().map(SharedBuffer::export).collect::<Result<_, _>>()?;
        let ((send, frames), (free, take)) = (channel(), channel());
        (0..BUFFERS).try_for_each(|index| free.send(index))?;
        let write = move || {
            for sequence in 0.. {
                std::thread::sleep(options.interval);
                let index = match take.try_recv() {
                    Ok(index) => index,
                    Err(TryRecvError::Empty) => continue,
                    Err(TryRecvError::Disconnected) => break,
                };
                let timestamp = now();
                let buffer: &mut SharedBuffer<u8> = &mut buffers[index];
                buffer.copy_from_slice(&options.content(sequence)?)?;
                if send.send(Frame { index, sequence, timestamp, ready: None }).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let thread = Some(std::thread::Builder::new().name("camera".to_owned()).spawn(write)?);
        Ok(Self { files, frames, free: Some(free), thread })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.free = None;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            orin_cli::warn(format_args!("the camera's thread has failed: {error:#}"));
        }
    }
}

/// The clock of cameras.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

impl Source {
    /// The synthetic camera of a software Orin.
    pub(crate) fn synthetic(orin: &SoftwareOrin, size: (u32, u32), rate: f64) -> Result<Self> {
        let (options, surface) = described(size, rate)?;
        Ok(Self::Synthetic { camera: orin.camera(options.clone())?, options, surface })
    }

    /// A thread that writes frames.
    pub(crate) fn thread(device: &Device, size: (u32, u32), rate: f64) -> Result<Self> {
        let (options, surface) = described(size, rate)?;
        Ok(Self::Thread { writer: Writer::new(device, options.clone())?, options, surface })
    }

    /// A V4L2 camera.
    pub(crate) fn v4l2(path: &Path, size: (u32, u32)) -> Result<Self> {
        Ok(Self::V4l2(v4l2::Camera::open(path, size, BUFFERS as u32)?))
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Synthetic { .. } => "synthetic camera of the software Orin".to_owned(),
            Self::Thread { .. } => "no camera, but a thread that writes frames".to_owned(),
            Self::V4l2(camera) => camera.name.clone(),
        }
    }

    pub(crate) fn surface(&self) -> &Surface {
        match self {
            Self::Synthetic { surface, .. } | Self::Thread { surface, .. } => surface,
            Self::V4l2(camera) => &camera.surface,
        }
    }

    /// A dma-buf per buffer.
    pub(crate) fn buffers(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Synthetic { camera, .. } => {
                (0..camera.buffers()).filter_map(|at| camera.buffer(at)).collect()
            }
            Self::Thread { writer, .. } => writer.files.iter().map(AsFd::as_fd).collect(),
            Self::V4l2(camera) => camera.buffers.iter().map(AsFd::as_fd).collect(),
        }
    }

    pub(crate) fn next_frame(&self) -> Result<Frame> {
        match self {
            Self::Synthetic { camera, .. } => {
                let frame = camera.next_frame(PATIENCE)?;
                ensure!(frame.is_whole, "frame {} is cut off: its buffer is too small", frame.sequence);
                let (index, sequence, timestamp) = (frame.index, frame.sequence, frame.timestamp);
                Ok(Frame { index, sequence, timestamp, ready: frame.fence })
            }
            Self::Thread { writer, .. } => Ok(writer.frames.recv_timeout(PATIENCE)?),
            Self::V4l2(camera) => {
                let frame = camera.next_frame(PATIENCE)?;
                let (index, sequence, timestamp) = (frame.index, frame.sequence, frame.timestamp);
                Ok(Frame { index, sequence, timestamp, ready: None })
            }
        }
    }

    /// Gives a buffer back, to be written after the fence `read`.
    pub(crate) fn give_back(&self, index: usize, read: Option<&OwnedFd>) -> Result<()> {
        match (self, read) {
            (Self::Synthetic { camera, .. }, read) => Ok(camera.queue(index, read.map(AsFd::as_fd))?),
            // These take no fences: the CPU waits.
            (Self::Thread { writer, .. }, read) => {
                read.map_or(Ok(()), wait)?;
                let free = writer.free.as_ref().context("the thread is at its end")?;
                Ok(free.send(index)?)
            }
            (Self::V4l2(camera), read) => {
                read.map_or(Ok(()), wait)?;
                camera.queue(index)
            }
        }
    }

    /// Checks the beginning of a frame: the pixels of a synthetic one show its number.
    pub(crate) fn check(&self, sequence: u32, beginning: &[u8]) -> Result<()> {
        if let Self::Synthetic { options, .. } | Self::Thread { options, .. } = self {
            let shown = options.number_in(beginning);
            ensure!(shown == Some(sequence), "frame {sequence} shows the number {shown:?}");
        }
        Ok(())
    }
}

/// Waits on the CPU for a sync-file.
pub(crate) fn wait(file: &OwnedFd) -> Result<()> {
    let mut files = [PollFd::new(file, PollFlags::IN)];
    let ready = rustix::event::poll(&mut files, Some(&Timespec::try_from(PATIENCE)?)).context("poll")?;
    ensure!(ready > 0, "a fence did not signal within {PATIENCE:?}");
    Ok(())
}
