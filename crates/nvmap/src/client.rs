//! An open `/dev/nvmap`.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use nvgpu_sys::door::OpenFlags;
use nvgpu_sys::nvmap as sys;
use nvgpu_sys::{Door, DoorFd, Errno, paths};

use crate::buffer::{Buffer, CacheOperation};
use crate::builder::BufferBuilder;
use crate::dma_buf::{Access, DmaBuf};
use crate::error::Error;

/// The node's path in messages.
const NODE: &str = "/dev/nvmap";

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
        unsafe { Buffer::import(self, pointer, len, Access::ReadWrite, label) }
    }

    /// As [`Nvmap::import_host`] for memory that nobody may write through the buffer: neither the
    /// CPU, nor the GPU, whose mappings are then read-only. The memory may be mapped read-only, e.g.
    /// a file of weights.
    ///
    /// # Errors
    ///
    /// As [`Nvmap::import_host`].
    ///
    /// # Safety
    ///
    /// `len` bytes at `pointer` are mapped readable in this process and stay so until the buffer is
    /// dropped.
    pub unsafe fn import_host_read_only(
        &self,
        pointer: core::ptr::NonNull<u8>,
        len: usize,
        label: &str,
    ) -> Result<Buffer, Error> {
        // SAFETY: the caller's promise is passed on.
        unsafe { Buffer::import(self, pointer, len, Access::ReadOnly, label) }
    }

    /// Makes a new handle and descriptor for the memory behind `fd`, a dma-buf descriptor of this
    /// process or one received from another (over a Unix socket, or inherited). `fd` may be closed
    /// afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EBADF` or `EINVAL` if `fd` is no dma-buf; [`Error::ForeignDmaBuf`] if it is
    /// another driver's.
    pub fn import(&self, fd: BorrowedFd<'_>, label: &str) -> Result<DmaBuf, Error> {
        DmaBuf::import(self, fd, label)
    }

    /// As [`Nvmap::import`], with a CPU mapping of all of the memory.
    ///
    /// # Errors
    ///
    /// As [`Nvmap::import`] and [`DmaBuf::map`].
    pub fn import_buffer(&self, fd: BorrowedFd<'_>, label: &str) -> Result<Buffer, Error> {
        let dma_buf = self.import(fd, label)?;
        let cache = dma_buf.parameters()?.cache;
        Buffer::mapped(dma_buf, cache)
    }

    /// Makes one buffer out of parts of others, (buffer, first byte, length) each, one after the other: the
    /// same pages, contiguous for CPU and GPU. The memory lives as long as any of them does.
    ///
    /// All parts are of system memory, writable and of one cache mode. Memory can be part of one joined
    /// buffer only: r36.4.3 has a single place in its books for that, and corrupts them the second time. So
    /// memory that was joined before through this client or its clones is refused for good; do not join the
    /// same memory in two processes or through clients opened separately.
    ///
    /// # Errors
    ///
    /// [`Error::Part`], [`Error::ReadOnly`] and [`Error::NotJoinable`] before any call; [`Error::Buffer`],
    /// `EINVAL` for protected memory or parts of different cache modes.
    pub fn join(&self, parts: &[(&DmaBuf, usize, usize)], label: &str) -> Result<DmaBuf, Error> {
        // The set is changed by single calls: it is sound whatever happened to a holder.
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        let serials = DmaBuf::joinable(parts, &joined, label)?;
        let buffer = DmaBuf::join(self, parts, label)?;
        joined.extend(serials);
        Ok(buffer)
    }

    /// Does cache maintenance on parts of several buffers, (buffer, first byte, length) each, in one
    /// call. An Orin is I/O coherent, so its kernel checks the list and does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] before any call; [`Error::Query`].
    pub fn maintain_cache_list(
        &self,
        operation: CacheOperation,
        ranges: &[(&DmaBuf, usize, usize)],
    ) -> Result<(), Error> {
        if ranges.is_empty() {
            return Ok(());
        }
        for (buffer, offset, len) in ranges {
            buffer.check(*offset, *len)?;
        }
        let handles: Vec<u32> = ranges.iter().map(|(buffer, ..)| buffer.handle()).collect();
        // CAST: offsets and lengths have at most 64 bits.
        let offsets: Vec<u64> = ranges.iter().map(|(_, offset, _)| *offset as u64).collect();
        let sizes: Vec<u64> = ranges.iter().map(|(.., len)| *len as u64).collect();
        sys::cache_list(&self.fd, operation.raw(), &handles, &offsets, &sizes)
            .map_err(|errno| query_error(sys::CACHE_LIST.name(), errno))
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

    /// The descriptor, shared with the buffers.
    pub(crate) fn fd(&self) -> &Arc<DoorFd> {
        &self.fd
    }
}

/// The bit of a single heap; the kernel prints a stack trace for several.
fn one(heap: sys::Heaps) -> Result<u32, Error> {
    if heap.bits().count_ones() == 1 { Ok(heap.bits()) } else { Err(Error::Heap { heaps: heap }) }
}

fn query_error(call: &'static str, errno: Errno) -> Error {
    Error::Query { call, path: NODE, errno }
}
