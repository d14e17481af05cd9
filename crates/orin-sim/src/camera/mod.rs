//! A synthetic camera: frames in dma-bufs that nvmap did not export, at a rate, with fences.
//!
//! Real is what a consumer must cope with: the buffers are a ring that it shares with the producer; the frame is given
//! out before it is complete, with a sync-file of a syncpoint of host1x, as NVIDIA's capture engine (VI) signals; a
//! frame is lost when no buffer is free, and its number is missing; a buffer may be given back with a fence. Invented
//! are the pattern, the interface of this module (a board has V4L2, Argus or NvBufSurface instead), the choice of the
//! fences, and the faults. A V4L2 driver on a board gives no fence out: it is [`FrameFences::None`].
//!
//! The camera waits for a slow host: frames come late then, but none is lost for that reason.

mod format;
mod producer;

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::io::Errno;

use crate::SoftwareOrin;
use crate::kernel::EngineFences;
use crate::memory::Memory;

pub use format::{FrameFormat, FrameLayout, FramePlane};

use format::NUMBER_BITS;
use producer::{Producer, Shared};

/// Page of a buffer in bytes.
const PAGE: u64 = 4096;
/// Alignment of rows in bytes, unless a pitch is given: that of NvBufSurface on a Jetson.
const PITCH: u32 = 256;
/// Largest width and height in pixels.
const LARGEST: u32 = 16384;

/// The fences with which frames are given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameFences {
    /// Of a syncpoint of host1x: the GPU can wait for them. They are given out with the frame, before it is complete.
    #[default]
    Host1x,
    /// Of another driver: only the CPU can wait. They are given out with the frame, before it is complete.
    Other,
    /// None: the frame is given out when it is complete.
    None,
}

/// A fault of the camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameraFault {
    /// The frame with this number is never complete, and none follows. Its fence does not signal before the camera is
    /// dropped: then one of another driver ends with ECANCELED. A sync-file of host1x ends with ETIMEDOUT 30 seconds
    /// after the first wait.
    NeverComplete(u32),
    /// The camera stops in the middle of the frame with this number, as if it were unplugged. A fence of another driver
    /// ends with ECANCELED, one of host1x when the camera is dropped.
    Stop(u32),
    /// The buffer with this index has half the size, so its frames are cut off.
    ShortBuffer(usize),
}

/// A synthetic camera's format, rate, buffers and faults.
#[derive(Clone, Debug)]
pub struct CameraOptions {
    /// Format of the pixels.
    pub format: FrameFormat,
    /// Pixels in a row: even, 32 to 16384.
    pub width: u32,
    /// Rows: even, 2 to 16384.
    pub height: u32,
    /// Distance of two rows in bytes, a multiple of 4; 0 for the row rounded up to 256 bytes.
    pub pitch: u32,
    /// Number of buffers, 2 to 32.
    pub buffers: usize,
    /// Time from one frame to the next, not 0.
    pub interval: Duration,
    /// Time from the beginning of a frame, when it is given out with its fence, to its completion; at most the
    /// interval.
    pub readout: Duration,
    /// The fences.
    pub fences: FrameFences,
    /// The faults.
    pub faults: Vec<CameraFault>,
}

impl Default for CameraOptions {
    /// 640 by 480 pixels in NV12, 30 frames a second, four buffers, fences of host1x.
    fn default() -> Self {
        Self {
            format: FrameFormat::Nv12,
            width: 640,
            height: 480,
            pitch: 0,
            buffers: 4,
            interval: Duration::from_micros(33_333),
            readout: Duration::from_millis(10),
            fences: FrameFences::Host1x,
            faults: Vec::new(),
        }
    }
}

impl CameraOptions {
    /// The layout of a frame.
    ///
    /// # Errors
    ///
    /// [`CameraError::Options`].
    pub fn layout(&self) -> Result<FrameLayout, CameraError> {
        let even = |value: u32, least: u32| value.is_multiple_of(2) && (least..=LARGEST).contains(&value);
        if !even(self.width, NUMBER_BITS) || !even(self.height, 2) {
            return Err(CameraError::Options {
                what: "width and height must be even, 32 x 2 to 16384 x 16384",
            });
        }
        let row = self.width * self.format.sample_bytes();
        let pitch = if self.pitch == 0 { row.next_multiple_of(PITCH) } else { self.pitch };
        if pitch < row || !pitch.is_multiple_of(4) || pitch > 4 * LARGEST {
            return Err(CameraError::Options {
                what: "the pitch must be a multiple of 4 bytes and hold a row",
            });
        }
        Ok(self.format.layout(self.width, self.height, pitch))
    }

    /// All bytes of the frame with this number; padding is 0.
    ///
    /// # Errors
    ///
    /// [`CameraError::Options`].
    pub fn content(&self, sequence: u32) -> Result<Vec<u8>, CameraError> {
        let layout = self.layout()?;
        // CAST: at most 2 GiB.
        let mut frame = vec![0; layout.bytes as usize];
        for (at, plane) in layout.planes.iter().enumerate() {
            // CAST: as above.
            let rows = frame[plane.offset as usize..].chunks_exact_mut(layout.pitch as usize);
            for (y, row) in (0..plane.rows).zip(rows) {
                self.format.row(sequence, at, y, &mut row[..plane.row_bytes as usize]);
            }
        }
        Ok(frame)
    }

    /// The number in a frame that begins with these bytes, from the pixels that show it; `None` if they show none.
    pub fn number_in(&self, frame: &[u8]) -> Option<u32> {
        self.format.number(frame)
    }

    fn check(&self) -> Result<FrameLayout, CameraError> {
        if !(2..=32).contains(&self.buffers) {
            return Err(CameraError::Options { what: "a camera has 2 to 32 buffers" });
        }
        if self.interval.is_zero() || self.readout > self.interval {
            return Err(CameraError::Options {
                what: "the interval must not be 0 and not shorter than the readout",
            });
        }
        self.layout()
    }
}

/// One frame.
#[derive(Debug)]
pub struct Frame {
    /// Index of its buffer. The camera does not write to it before [`Camera::queue`] gives it back.
    pub index: usize,
    /// Its number: 0 for the first. The numbers of lost frames are missing.
    pub sequence: u32,
    /// Time of `CLOCK_MONOTONIC` at its beginning.
    pub timestamp: Duration,
    /// A sync-file that signals when it is complete; `None` if it is complete.
    pub fence: Option<OwnedFd>,
    /// Whether its buffer holds all of it, as opposed to [`CameraFault::ShortBuffer`].
    pub is_whole: bool,
}

/// An error of a synthetic camera.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CameraError {
    /// An option is out of its range.
    #[error("the options of the camera are wrong: {what}")]
    Options {
        /// The rule.
        what: &'static str,
    },
    /// No frame came in time.
    #[error("no frame within {0:?}: give buffers back with Camera::queue, or wait longer than an interval")]
    TimedOut(Duration),
    /// The camera has stopped: a fault, or an error of the host. No frame follows.
    #[error("the camera has stopped: drop it, and open another one")]
    Stopped,
    /// The buffer is not one that the caller has.
    #[error("buffer {index} was not given out: give each frame's buffer back once")]
    NotGivenOut {
        /// Its index.
        index: usize,
    },
    /// The descriptor to wait for is not a sync-file of the board.
    #[error("the descriptor is not a sync-file of the board: {0}")]
    Fence(Errno),
    /// The host has no memory or descriptor for a buffer or a fence, or the board has no syncpoint.
    #[error("the camera lacks memory, a descriptor or a syncpoint: {0}")]
    Resources(Errno),
}

/// A synthetic camera, which captures until it is dropped. The drop waits for its thread: at most for the writes of one
/// frame.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use orin_sim::{CameraOptions, Config, FrameFences, SoftwareOrin};
///
/// let orin = SoftwareOrin::new(Config::default())?;
/// let options = CameraOptions { fences: FrameFences::None, ..CameraOptions::default() };
/// let camera = orin.camera(options.clone())?;
/// let frame = camera.next_frame(Duration::from_secs(10))?;
/// let mut seen = vec![0; 64];
/// rustix::io::pread(camera.buffer(frame.index).unwrap(), &mut seen, 0)?;
/// assert_eq!(options.number_in(&seen), Some(frame.sequence));
/// camera.queue(frame.index, None)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Camera {
    orin: SoftwareOrin,
    layout: FrameLayout,
    buffers: Arc<[OwnedFd]>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl SoftwareOrin {
    /// Opens a synthetic camera, which begins to capture into its buffers at once. Its fences are files of this
    /// process. The board lives as long as the camera.
    ///
    /// # Errors
    ///
    /// [`CameraError::Options`], [`CameraError::Resources`].
    pub fn camera(&self, options: CameraOptions) -> Result<Camera, CameraError> {
        let layout = options.check()?;
        let buffers: Result<Vec<OwnedFd>, Errno> = (0..options.buffers)
            .map(|index| Memory::file("camera", bytes_of(&options, &layout, index)))
            .collect();
        let buffers: Arc<[OwnedFd]> = buffers.map_err(CameraError::Resources)?.into();
        let fences = match options.fences {
            FrameFences::Host1x => Some(EngineFences::of_host1x(self).map_err(CameraError::Resources)?),
            FrameFences::Other => Some(EngineFences::of_driver(self, "camera")),
            FrameFences::None => None,
        };
        let shared = Arc::new(Shared::new(buffers.len()));
        let producer =
            Producer::new(options, layout.clone(), Arc::clone(&buffers), fences, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("orin-camera".to_owned()).spawn(move || producer.run());
        let thread = thread.map_err(|_| CameraError::Resources(Errno::AGAIN))?;
        Ok(Camera { orin: self.clone(), layout, buffers, shared, thread: Some(thread) })
    }
}

/// Size of a buffer in bytes.
fn bytes_of(options: &CameraOptions, layout: &FrameLayout, index: usize) -> u64 {
    let short = options.faults.contains(&CameraFault::ShortBuffer(index));
    let bytes = if short { layout.bytes / 2 } else { layout.bytes };
    bytes.next_multiple_of(PAGE)
}

impl Camera {
    /// The layout of a frame.
    pub fn layout(&self) -> &FrameLayout {
        &self.layout
    }

    /// Number of buffers.
    pub fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// The dma-buf with an index; `None` if there is none. It is one of another driver for the board, and a sealed
    /// memfd for the host, so another process can have it too.
    pub fn buffer(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.buffers.get(index).map(AsFd::as_fd)
    }

    /// Number of frames that were lost because no buffer was free.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped()
    }

    /// Waits for the next frame. It has the longest age of those that were not taken yet.
    ///
    /// # Errors
    ///
    /// [`CameraError::TimedOut`]; [`CameraError::Stopped`] when no frame follows; [`CameraError::Resources`] without a
    /// descriptor for the fence, and then the frame can be taken later.
    pub fn next_frame(&self, timeout: Duration) -> Result<Frame, CameraError> {
        let captured = self.shared.take(timeout)?;
        let fence = captured.fence.as_ref().map(|fence| self.orin.engine_sync_file(fence)).transpose();
        let fence = match fence {
            Ok(fence) => fence,
            Err(errno) => {
                self.shared.take_back(captured);
                return Err(CameraError::Resources(errno));
            }
        };
        let is_whole = rustix::fs::fstat(&self.buffers[captured.index])
            .is_ok_and(|file| u64::try_from(file.st_size).is_ok_and(|size| size >= self.layout.bytes));
        let (index, sequence, timestamp) = (captured.index, captured.sequence, captured.timestamp);
        Ok(Frame { index, sequence, timestamp, fence, is_whole })
    }

    /// Gives a frame's buffer back. The camera does not write to it before the sync-file `after` has ended; until then
    /// the buffer is not free.
    ///
    /// # Errors
    ///
    /// [`CameraError::NotGivenOut`], [`CameraError::Fence`].
    pub fn queue(&self, index: usize, after: Option<BorrowedFd<'_>>) -> Result<(), CameraError> {
        let after = after.map(|file| self.orin.awaited(file)).transpose().map_err(CameraError::Fence)?;
        self.shared.give_back(index, after)
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}
