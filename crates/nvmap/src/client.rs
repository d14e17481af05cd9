//! An open `/dev/nvmap`.

use std::sync::Arc;

use nvgpu_sys::door::OpenFlags;
use nvgpu_sys::nvmap as sys;
use nvgpu_sys::{Door, DoorFd, Errno, paths};

use crate::buffer::{Buffer, BufferBuilder};
use crate::error::Error;

/// The node's path in messages.
const NODE: &str = "/dev/nvmap";

/// Size and free bytes of the system-memory heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUsage {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free, without the contiguous-memory reserve.
    pub free_bytes: u64,
}

/// The memory allocator of a Jetson.
///
/// Cloning is cheap and shares the descriptor; it closes when the last clone and the last buffer
/// are gone. The kernel keeps one table of handles per process, however often the node is open.
#[derive(Clone, Debug)]
pub struct Nvmap {
    fd: Arc<DoorFd>,
}

impl Nvmap {
    /// Opens `/dev/nvmap` through `door`.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; the message says what to do.
    pub fn open(door: &Arc<dyn Door>) -> Result<Self, Error> {
        // O_SYNC is what nvmap's own user-space library passes.
        let flags = OpenFlags::READ_WRITE | OpenFlags::SYNC | OpenFlags::CLOSE_ON_EXEC;
        let fd =
            DoorFd::open(door, paths::NVMAP, flags).map_err(|errno| Error::Open { path: NODE, errno })?;
        Ok(Self { fd: Arc::new(fd) })
    }

    /// The door this client came through.
    pub fn door(&self) -> &Arc<dyn Door> {
        self.fd.door()
    }

    /// Starts the description of a buffer of at least `size` bytes.
    pub fn buffer(&self, size: u64) -> BufferBuilder<'_> {
        BufferBuilder::new(self, size)
    }

    /// Makes a buffer over memory that the process already has: the GPU then works on these very
    /// pages, without a copy. The mode of the GPU's accesses is cacheable.
    ///
    /// The kernel pins whole pages, so the GPU can reach the rest of a partial last page too. After
    /// a `fork`, writes of the parent may move to new pages while the GPU keeps the old ones.
    ///
    /// # Errors
    ///
    /// [`Error::HostAddress`] if `pointer` is not page-aligned, [`Error::Size`] for a length of 0,
    /// [`Error::Buffer`] if the kernel cannot pin the memory (`EINVAL`).
    ///
    /// # Safety
    ///
    /// `len` bytes at `pointer` are mapped writable in this process and stay so until the buffer is
    /// dropped, and no reference to them is used while the device may access them.
    pub unsafe fn import_host(
        &self,
        pointer: core::ptr::NonNull<u8>,
        len: usize,
        label: &str,
    ) -> Result<Buffer, Error> {
        // SAFETY: the caller's promise is passed on.
        unsafe { Buffer::import(self, pointer, len, label) }
    }

    /// The carveout heaps of this machine. System memory, which all buffers come from by default, is
    /// never listed.
    ///
    /// # Errors
    ///
    /// [`Error::Query`].
    pub fn carveouts(&self) -> Result<sys::Heaps, Error> {
        let mut argument = sys::AvailableHeaps::default();
        sys::GET_AVAILABLE_HEAPS
            .send(&self.fd, &mut argument)
            .map_err(|errno| query_error(sys::GET_AVAILABLE_HEAPS.name(), errno))?;
        // CAST: heap bits are defined up to bit 30; what lies above has no name.
        Ok(sys::Heaps::from_bits_truncate((argument.heaps & u64::from(u32::MAX)) as u32))
    }

    /// Size and free bytes of system memory, as nvmap counts them.
    ///
    /// # Errors
    ///
    /// [`Error::Query`].
    pub fn system_memory(&self) -> Result<HeapUsage, Error> {
        let mut argument =
            sys::QueryHeapParams { heap_mask: sys::Heaps::IOVMM.bits(), ..sys::QueryHeapParams::default() };
        sys::QUERY_HEAP_PARAMS
            .send(&self.fd, &mut argument)
            .map_err(|errno| query_error(sys::QUERY_HEAP_PARAMS.name(), errno))?;
        Ok(HeapUsage { total_bytes: argument.total, free_bytes: argument.free })
    }

    /// The descriptor, shared with the buffers.
    pub(crate) fn fd(&self) -> &Arc<DoorFd> {
        &self.fd
    }
}

fn query_error(call: &'static str, errno: Errno) -> Error {
    Error::Query { call, path: NODE, errno }
}
