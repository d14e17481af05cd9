//! An open `/dev/nvmap`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvgpu_sys::door::OpenFlags;
use nvgpu_sys::nvmap as sys;
use nvgpu_sys::{Door, DoorFd, Errno, paths};

use crate::error::Error;

/// The node's path in messages.
const NODE: &str = paths::text(paths::NVMAP);

/// Size and free bytes of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUsage {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free; for system memory without the contiguous-memory reserve.
    pub free_bytes: u64,
    /// What allocations are rounded up to, in bytes.
    pub granule_bytes: u32,
    /// Whether allocations are physically contiguous.
    pub contiguous: bool,
}

/// The memory allocator of a Jetson.
///
/// Cloning is cheap and shares the descriptor; it closes when the last clone and the last buffer
/// are gone. The kernel keeps one table of handles per process, however often the node is open.
#[derive(Clone, Debug)]
pub struct Nvmap {
    fd: Arc<DoorFd>,
    /// Serial numbers of the memory that is or was part of joined buffers; see [`Nvmap::join`].
    joined: Arc<Mutex<BTreeSet<u64>>>,
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
        Ok(Self { fd: Arc::new(fd), joined: Arc::default() })
    }

    /// The door this client came through.
    pub fn door(&self) -> &Arc<dyn Door> {
        self.fd.door()
    }

    /// Gives an allocation tag a text in the kernel's statistics, for the whole machine; the first 31
    /// bytes count.
    ///
    /// # Errors
    ///
    /// [`Error::Query`].
    pub fn label_tag(&self, tag: u16, text: &str) -> Result<(), Error> {
        sys::set_tag_label(&self.fd, tag, text).map_err(|errno| query_error(sys::SET_TAG_LABEL.name(), errno))
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

    /// Size in bytes of one carveout heap.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`] unless `heap` is exactly one; [`Error::Query`], `ENODEV` for a carveout that this
    /// machine lacks and for system memory, which is none.
    pub fn carveout_bytes(&self, heap: sys::Heaps) -> Result<u64, Error> {
        let mut argument = sys::HeapSize { heap: one(heap)?, ..sys::HeapSize::default() };
        sys::GET_HEAP_SIZE
            .send(&self.fd, &mut argument)
            .map_err(|errno| query_error(sys::GET_HEAP_SIZE.name(), errno))?;
        Ok(argument.size)
    }

    /// Size and free bytes of one heap, system memory included.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`] unless `heap` is exactly one; [`Error::Query`], `ENODEV` for a carveout that this
    /// machine lacks.
    pub fn heap_usage(&self, heap: sys::Heaps) -> Result<HeapUsage, Error> {
        let mut argument = sys::QueryHeapParams { heap_mask: one(heap)?, ..sys::QueryHeapParams::default() };
        sys::QUERY_HEAP_PARAMS
            .send(&self.fd, &mut argument)
            .map_err(|errno| query_error(sys::QUERY_HEAP_PARAMS.name(), errno))?;
        Ok(HeapUsage {
            total_bytes: argument.total,
            free_bytes: argument.free,
            granule_bytes: argument.granule_size,
            contiguous: argument.contig != 0,
        })
    }

    /// Size and free bytes of system memory, as nvmap counts them.
    ///
    /// # Errors
    ///
    /// [`Error::Query`].
    pub fn system_memory(&self) -> Result<HeapUsage, Error> {
        self.heap_usage(sys::Heaps::IOVMM)
    }

    /// Serial numbers of the memory that is or was part of joined buffers.
    pub(crate) fn joined(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // Each change is a single call, so the set is consistent even after a panic of a lock holder.
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor, shared with the buffers.
    pub(crate) fn fd(&self) -> &Arc<DoorFd> {
        &self.fd
    }
}

/// The bit of a single heap; the kernel prints a stack trace for several.
fn one(heap: sys::Heaps) -> Result<u32, Error> {
    if heap.bits().count_ones() == 1 { Ok(heap.bits()) } else { Err(Error::Heap { heaps: heap }) }
}

/// Makes the error of a failed request to the node.
pub(crate) fn query_error(call: &'static str, errno: Errno) -> Error {
    Error::Query { call, path: NODE, errno }
}
