//! Where frames come from: a V4L2 camera, or the synthetic one of the software Orin.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use orin_sim::{CameraOptions, SoftwareOrin};
use rustix::event::{PollFd, PollFlags, Timespec};
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
    V4l2(v4l2::Camera),
}

impl Source {
    /// The synthetic camera of a software Orin.
    pub(crate) fn synthetic(orin: &SoftwareOrin, (width, height): (u32, u32), rate: f64) -> Result<Self> {
        let interval = Duration::from_secs_f64(1.0 / rate);
        let readout = interval / 3;
        let options =
            CameraOptions { width, height, buffers: BUFFERS, interval, readout, ..CameraOptions::default() };
        let camera = orin.camera(options.clone())?;
        let layout = camera.layout();
        let plane = |plane: &orin_sim::FramePlane| Plane {
            offset: plane.offset,
            pitch: layout.pitch,
            size: u64::from(layout.pitch) * u64::from(plane.rows),
            layout: tegra_image::Layout::Pitch,
        };
        let planes: Vec<_> = layout.planes.iter().map(plane).collect();
        let surface = Surface::new(Format::Nv12, width, height, &planes, layout.bytes)?;
        Ok(Self::Synthetic { camera, options, surface })
    }

    /// A V4L2 camera.
    pub(crate) fn v4l2(path: &Path, size: (u32, u32)) -> Result<Self> {
        Ok(Self::V4l2(v4l2::Camera::open(path, size, BUFFERS as u32)?))
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Synthetic { .. } => "synthetic camera of the software Orin".to_owned(),
            Self::V4l2(camera) => camera.name.clone(),
        }
    }

    pub(crate) fn surface(&self) -> &Surface {
        match self {
            Self::Synthetic { surface, .. } => surface,
            Self::V4l2(camera) => &camera.surface,
        }
    }

    /// A dma-buf per buffer.
    pub(crate) fn buffers(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Synthetic { camera, .. } => {
                (0..camera.buffers()).filter_map(|at| camera.buffer(at)).collect()
            }
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
            // V4L2 takes no fences: the CPU waits.
            (Self::V4l2(camera), read) => {
                read.map_or(Ok(()), wait)?;
                camera.queue(index)
            }
        }
    }

    /// Checks the beginning of a frame: the pixels of a synthetic one show its number.
    pub(crate) fn check(&self, sequence: u32, beginning: &[u8]) -> Result<()> {
        if let Self::Synthetic { options, .. } = self {
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
