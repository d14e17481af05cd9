//! dma-bufs of any driver, by their descriptors.
//!
//! The GPU's driver maps any dma-buf (`drivers/gpu/nvgpu/os/linux/dmabuf.c:nvgpu_mm_pin`), also those that nvmap knows
//! nothing of: buffers of a camera (V4L2, `VIDIOC_EXPBUF`), a display (DRM), a dma-heap or udmabuf. So a
//! [`DmaBufFile`] needs no nvmap. What its driver must know of accesses by the CPU goes through `DMA_BUF_IOCTL_SYNC`.

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, RawFd};
use std::sync::{Arc, OnceLock};

use kernel_door::{Door, DoorFd, Errno};
use nvgpu_sys::dma_buf as sys;

use crate::attributes::Access;
use crate::error::Error;
use crate::mapping::CpuMapping;

/// How often `DMA_BUF_IOCTL_SYNC` is repeated after signals.
const SYNC_ATTEMPTS: u32 = 1000;

/// A dma-buf of any driver, with a descriptor of its own.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use nvmap::Access;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let nvmap = nvmap::Nvmap::open(&door)?;
/// # let camera = nvmap.buffer(8192).allocate_unmapped()?;
/// // `camera` is any descriptor of a dma-buf.
/// let frame = nvmap::DmaBufFile::new(&door, std::os::fd::AsFd::as_fd(&camera), "frame")?;
/// assert_eq!(frame.size(), 8192);
/// frame.begin_cpu(Access::ReadOnly)?;
/// assert_eq!(frame.map()?.view::<u8>(0, 8)?.to_vec(), [0; 8]);
/// frame.end_cpu(Access::ReadOnly)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DmaBufFile {
    // Drop order: the mapping, then the descriptor.
    mapping: OnceLock<CpuMapping>,
    fd: DoorFd,
    size: usize,
    access: Access,
    label: String,
}

impl DmaBufFile {
    /// Duplicates `file`, a descriptor of a dma-buf of `door`'s kernel; it may be closed afterwards. Access is
    /// read-only if the descriptor is.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] if the descriptor cannot be duplicated (`EMFILE`); [`Error::NotDmaBuf`] if its size is none of
    /// a dma-buf: 0, or no whole number of pages.
    pub fn new(door: &Arc<dyn Door>, file: BorrowedFd<'_>, label: &str) -> Result<Self, Error> {
        let failed = |call, errno| Error::Buffer { call, label: label.into(), size: 0, errno };
        let copy = rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(|errno| failed("dup", errno))?;
        let flags = rustix::fs::fcntl_getfl(&copy).map_err(|errno| failed("fcntl", errno))?;
        let writes = flags.contains(rustix::fs::OFlags::RDWR);
        // SAFETY: a new descriptor of the process, which nothing else owns.
        let fd = unsafe { DoorFd::from_raw(door, copy.into_raw_fd()) };
        let size = match fd.seek_end() {
            // A socket, a pipe, some devices.
            Err(Errno::SPIPE) => 0,
            size => size.map_err(|errno| failed("lseek", errno))?,
        };
        if size == 0 || !size.is_multiple_of(nvgpu_sys::nvmap::PAGE_SIZE) {
            return Err(Error::NotDmaBuf { label: label.into(), size });
        }
        let size = usize::try_from(size).map_err(|_| failed("lseek", Errno::OVERFLOW))?;
        let access = if writes { Access::ReadWrite } else { Access::ReadOnly };
        Ok(Self { mapping: OnceLock::new(), fd, size, access, label: label.into() })
    }

    /// Size in bytes, a whole number of pages.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Access that the descriptor allows.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The descriptor, for requests that take one.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.raw()
    }

    /// Label for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The mapping of all of the memory for the CPU, made by the first call. Accesses lie between
    /// [`begin_cpu`](Self::begin_cpu) and [`end_cpu`](Self::end_cpu).
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: the driver that made the dma-buf refuses mappings for the CPU.
    pub fn map(&self) -> Result<&CpuMapping, Error> {
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping);
        }
        let mapping = self
            .fd
            .map(0, self.size, self.access.protection())
            .map_err(|errno| self.failed("mmap", errno))?;
        // Of two threads, one unmaps its own again.
        Ok(self.mapping.get_or_init(|| CpuMapping::new(mapping, self.access, self.label.clone())))
    }

    /// Tells the driver that made the dma-buf that the CPU begins to access it: it waits for the fences that it knows,
    /// and maintains the caches if they are not coherent.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`].
    pub fn begin_cpu(&self, access: Access) -> Result<(), Error> {
        self.sync(flags(access))
    }

    /// Tells the driver that the accesses of [`begin_cpu`](Self::begin_cpu) have ended.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`].
    pub fn end_cpu(&self, access: Access) -> Result<(), Error> {
        self.sync(flags(access) | sys::SyncFlags::END)
    }

    fn sync(&self, flags: sys::SyncFlags) -> Result<(), Error> {
        // The kernel asks for a repeat after a signal; signals without end end the call.
        let mut result = Ok(());
        for _ in 0..SYNC_ATTEMPTS {
            result = sys::sync(&self.fd, flags);
            if !matches!(result, Err(Errno::INTR | Errno::AGAIN)) {
                break;
            }
        }
        result.map_err(|errno| self.failed(sys::SYNC.name(), errno))
    }

    fn failed(&self, call: &'static str, errno: Errno) -> Error {
        // CAST: a size has at most 64 bits.
        Error::Buffer { call, label: self.label.clone(), size: self.size as u64, errno }
    }
}

/// The flags of an access.
fn flags(access: Access) -> sys::SyncFlags {
    if access.is_writable() { sys::SyncFlags::READ | sys::SyncFlags::WRITE } else { sys::SyncFlags::READ }
}

impl AsFd for DmaBufFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
