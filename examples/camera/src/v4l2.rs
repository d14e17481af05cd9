//! A camera through V4L2: buffers of its driver, exported as dma-bufs.
//!
//! The requests and structs are those of Linux `include/uapi/linux/videodev2.h` on 64-bit machines. Of the crates for
//! V4L2 one exports no buffers, and all make their bindings with libclang when they are built.

use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kernel_door::{Door, DoorFd, Errno, Events, LinuxDoor, OpenFlags, requests, uapi_struct};
use tegra_image::Surface;

/// `V4L2_BUF_TYPE_VIDEO_CAPTURE`.
const CAPTURE: u32 = 1;
/// `V4L2_MEMORY_MMAP`: buffers of the driver.
const MMAP: u32 = 1;
/// `V4L2_FIELD_NONE`: whole frames.
const PROGRESSIVE: u32 = 1;
/// `V4L2_CAP_VIDEO_CAPTURE` and `V4L2_CAP_STREAMING`.
const NEEDED: u32 = 1 | 0x0400_0000;
/// `V4L2_CAP_DEVICE_CAPS`: the capabilities of the node are in a field of their own.
const OF_NODE: u32 = 0x8000_0000;
/// `V4L2_BUF_FLAG_ERROR`: the frame may be damaged.
const DAMAGED: u32 = 0x40;
/// `O_CLOEXEC`: the importer only reads.
const CLOSE_ON_EXEC: u32 = 0o2_000_000;

requests! {
    unsafe family b'V';
    /// What the node is.
    Read 0 QUERYCAP ("VIDIOC_QUERYCAP"): Capability;
    /// Sets the format, or the nearest that the camera has.
    ReadWrite 5 S_FMT ("VIDIOC_S_FMT"): Format;
    /// Allocates buffers.
    ReadWrite 8 REQBUFS ("VIDIOC_REQBUFS"): RequestBuffers;
    /// Gives a buffer to the camera.
    ReadWrite 15 QBUF ("VIDIOC_QBUF"): Buffer;
    /// A dma-buf of a buffer.
    ReadWrite 16 EXPBUF ("VIDIOC_EXPBUF"): ExportBuffer;
    /// Takes a complete frame.
    ReadWrite 17 DQBUF ("VIDIOC_DQBUF"): Buffer;
    /// Starts to capture.
    Write 18 STREAMON ("VIDIOC_STREAMON"): BufferType;
}

uapi_struct! {
    /// Argument of [`QUERYCAP`].
    unsafe plain Capability = "v4l2_capability", 104 bytes {
        /// Name of the driver, zero-padded.
        0 => driver: [u8; 16];
        /// Name of the device, zero-padded.
        16 => card: [u8; 32];
        /// Where it is.
        48 => bus_info: [u8; 32];
        /// Version of the kernel.
        80 => version: u32;
        /// Capabilities of the device.
        84 => capabilities: u32;
        /// Capabilities of the node.
        88 => device_caps: u32;
        /// 0.
        92 => reserved: [u32; 3];
    }

    /// Argument of [`S_FMT`]: of the union, `struct v4l2_pix_format`.
    unsafe plain Format = "v4l2_format", 208 bytes {
        /// [`CAPTURE`].
        0 => kind: u32, "type";
        /// Before the union.
        4 => padding: u32, "";
        /// Pixels in a row.
        8 => width: u32, "";
        /// Rows.
        12 => height: u32, "";
        /// FourCC.
        16 => pixelformat: [u8; 4], "";
        /// [`PROGRESSIVE`].
        20 => field: u32, "";
        /// Distance of two rows.
        24 => bytesperline: u32, "";
        /// Size of a frame.
        28 => sizeimage: u32, "";
        /// The rest of the union.
        32 => rest: [u64; 22], "";
    }

    /// Argument of [`REQBUFS`].
    unsafe plain RequestBuffers = "v4l2_requestbuffers", 20 bytes {
        /// In: wanted. Out: allocated.
        0 => count: u32;
        /// [`CAPTURE`].
        4 => kind: u32, "type";
        /// [`MMAP`].
        8 => memory: u32;
        /// Out: what the queue can do.
        12 => capabilities: u32;
        /// 0.
        16 => flags: [u8; 4];
    }

    /// Argument of [`QBUF`] and [`DQBUF`].
    pointing(m) Buffer = "v4l2_buffer", 88 bytes {
        /// Number of the buffer.
        0 => index: u32;
        /// [`CAPTURE`].
        4 => kind: u32, "type";
        /// Bytes of the frame.
        8 => bytesused: u32;
        /// Flags.
        12 => flags: u32;
        /// Fields of the frame.
        16 => field: u32;
        /// Before the time.
        20 => padding: u32, "";
        /// Seconds and microseconds of the clock that the flags say.
        24 => timestamp: [i64; 2];
        /// Unused.
        40 => timecode: [u32; 4];
        /// Number of the frame.
        56 => sequence: u32;
        /// [`MMAP`].
        60 => memory: u32;
        /// An offset, for this memory; an address for other.
        64 => m: u64;
        /// Size of the buffer.
        72 => length: u32;
        /// 0.
        76 => reserved2: u32;
        /// Unused.
        80 => request_fd: i32;
        /// After it.
        84 => padding2: u32, "";
    }

    /// Argument of [`EXPBUF`].
    unsafe plain ExportBuffer = "v4l2_exportbuffer", 64 bytes {
        /// [`CAPTURE`].
        0 => kind: u32, "type";
        /// Number of the buffer.
        4 => index: u32;
        /// Plane of a format with several buffers for a frame.
        8 => plane: u32;
        /// Flags of the descriptor.
        12 => flags: u32;
        /// Out: the descriptor.
        16 => fd: i32;
        /// 0.
        20 => reserved: [u32; 11];
    }

    /// Argument of [`STREAMON`].
    unsafe plain BufferType = "int", 4 bytes {
        /// [`CAPTURE`].
        0 => kind: u32, "";
    }
}

/// An open camera that captures.
pub(crate) struct Camera {
    node: DoorFd,
    pub(crate) name: String,
    pub(crate) surface: Surface,
    /// A dma-buf per buffer.
    pub(crate) buffers: Vec<OwnedFd>,
}

/// A complete frame.
pub(crate) struct Frame {
    pub(crate) index: usize,
    pub(crate) sequence: u32,
    /// Time of `CLOCK_MONOTONIC`, by most drivers.
    pub(crate) timestamp: Duration,
}

impl Camera {
    /// Opens a node, and starts to capture NV12 of about this size into `count` buffers.
    pub(crate) fn open(path: &Path, (width, height): (u32, u32), count: u32) -> Result<Self> {
        let door: Arc<dyn Door> = Arc::new(LinuxDoor);
        let name = CString::new(path.as_os_str().as_bytes())?;
        let flags = OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC | OpenFlags::NON_BLOCKING;
        let node =
            DoorFd::open(&door, &name, flags).with_context(|| format!("opening {}", path.display()))?;
        let mut found = Capability::default();
        QUERYCAP
            .send(&node, &mut found)
            .with_context(|| format!("{} is not a V4L2 device", path.display()))?;
        let has = if found.capabilities & OF_NODE != 0 { found.device_caps } else { found.capabilities };
        ensure!(
            has & NEEDED == NEEDED,
            "{} does not capture video into buffers (it may be a metadata node)",
            path.display()
        );

        let mut format = Format {
            kind: CAPTURE,
            width,
            height,
            pixelformat: *b"NV12",
            field: PROGRESSIVE,
            ..Format::default()
        };
        S_FMT.send(&node, &mut format).context("VIDIOC_S_FMT")?;
        let Format { width, height, pixelformat, bytesperline, sizeimage, .. } = format;
        if pixelformat != *b"NV12" {
            bail!(
                "the camera has no NV12, but {}: choose another camera, or convert with a kernel of tegra-image",
                pixelformat.escape_ascii()
            );
        }
        let surface = Surface::from_v4l2(pixelformat, width, height, bytesperline, sizeimage)?;

        let mut request = RequestBuffers { count, kind: CAPTURE, memory: MMAP, ..RequestBuffers::default() };
        REQBUFS.send(&node, &mut request).context("VIDIOC_REQBUFS: another program may use the camera")?;
        let mut buffers = Vec::new();
        for index in 0..request.count {
            let mut export =
                ExportBuffer { kind: CAPTURE, index, flags: CLOSE_ON_EXEC, ..ExportBuffer::default() };
            EXPBUF.send(&node, &mut export).context("VIDIOC_EXPBUF: the driver exports no dma-bufs")?;
            // SAFETY: the request has returned a new descriptor.
            buffers.push(unsafe { OwnedFd::from_raw_fd(export.fd) });
        }
        let name = String::from_utf8_lossy(&found.card).trim_end_matches('\0').to_owned();
        let camera = Self { node, name, surface, buffers };
        (0..camera.buffers.len()).try_for_each(|index| camera.queue(index))?;
        STREAMON.send(&camera.node, &mut BufferType { kind: CAPTURE }).context("VIDIOC_STREAMON")?;
        Ok(camera)
    }

    /// Gives a buffer to the camera.
    pub(crate) fn queue(&self, index: usize) -> Result<()> {
        let index = u32::try_from(index)?;
        let mut buffer = Buffer { index, kind: CAPTURE, memory: MMAP, ..Buffer::default() };
        // SAFETY: with buffers of the driver, the request follows no address.
        unsafe { QBUF.send_pointing(&self.node, &mut buffer) }.context("VIDIOC_QBUF")?;
        Ok(())
    }

    /// Waits for a complete frame; damaged ones are given back.
    pub(crate) fn next_frame(&self, timeout: Duration) -> Result<Frame> {
        let end = std::time::Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            ensure!(!left.is_zero(), "no frame within {timeout:?}");
            match self.node.poll(Events::IN, left) {
                Ok(events) if events.contains(Events::ERROR) => bail!("the camera has stopped"),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("poll"),
            }
            let mut buffer = Buffer { kind: CAPTURE, memory: MMAP, ..Buffer::default() };
            // SAFETY: as in `queue`.
            match unsafe { DQBUF.send_pointing(&self.node, &mut buffer) } {
                Err(Errno::AGAIN) => continue,
                result => result.context("VIDIOC_DQBUF")?,
            };
            let index = buffer.index as usize;
            if buffer.flags & DAMAGED != 0 {
                self.queue(index)?;
                continue;
            }
            let [seconds, micros] = buffer.timestamp.map(|part| u64::try_from(part).unwrap_or_default());
            let timestamp = Duration::from_secs(seconds) + Duration::from_micros(micros);
            return Ok(Frame { index, sequence: buffer.sequence, timestamp });
        }
    }
}

/// The first node of the machine, if there is one.
pub(crate) fn first_node() -> Option<std::path::PathBuf> {
    let mut nodes: Vec<_> = std::fs::read_dir("/dev")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("video")?.parse::<u32>().ok())
        .collect();
    nodes.sort_unstable();
    nodes.first().map(|number| format!("/dev/video{number}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_have_the_codes_of_64_bit_linux() {
        // From a C program that prints the macros of the header.
        let codes = [
            (QUERYCAP.code(), 0x8068_5600),
            (S_FMT.code(), 0xc0d0_5605),
            (REQBUFS.code(), 0xc014_5608),
            (QBUF.code(), 0xc058_560f),
            (EXPBUF.code(), 0xc040_5610),
            (DQBUF.code(), 0xc058_5611),
            (STREAMON.code(), 0x4004_5612),
        ];
        for (code, expected) in codes {
            assert_eq!(code, expected, "{code:#x}");
        }
    }

    #[test]
    fn what_is_no_camera_is_refused() {
        for (path, text) in [("/dev/no-such-camera", "opening"), ("/dev/null", "not a V4L2 device")] {
            let error = Camera::open(Path::new(path), (640, 480), 4).err().expect("no camera");
            assert!(format!("{error:#}").contains(text), "{error:#}");
        }
    }
}
