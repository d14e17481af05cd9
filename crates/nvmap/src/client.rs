//! An open `/dev/nvmap`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use kernel_door::{Door, DoorFd, Errno, OpenFlags, RequestInfo};
use nvgpu_sys::{Release, nvmap as sys, paths};
use parking_lot::Mutex;

use crate::error::Error;

/// Path of the node, for messages.
const NODE: &str = paths::text(paths::NVMAP);

/// Opens `/dev/nvmap` for reading and writing, or only for reading if the node's mode permits no more: some releases
/// of L4T give it mode 0440. The driver makes no difference (`nvmap_dev.c`: neither open nor ioctl checks the mode).
///
/// # Errors
///
/// The errno of the first open.
pub fn open_node(door: &Arc<dyn Door>) -> Result<DoorFd, Errno> {
    // NVIDIA's nvmap library also passes O_SYNC.
    let flags = OpenFlags::SYNC | OpenFlags::CLOSE_ON_EXEC;
    DoorFd::open(door, paths::NVMAP, flags | OpenFlags::READ_WRITE).or_else(|errno| match errno {
        Errno::ACCESS => DoorFd::open(door, paths::NVMAP, flags).map_err(|_| errno),
        _ => Err(errno),
    })
}

/// Size and free bytes of a heap.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let nvmap = nvmap::Nvmap::open(&door)?;
/// let usage = nvmap.system_memory()?;
/// assert!(usage.free_bytes <= usage.total_bytes);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUsage {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Free bytes; for system memory, without the contiguous-memory reserve.
    pub free_bytes: u64,
    /// Allocation granularity in bytes.
    pub granule_bytes: u32,
    /// Whether allocations are physically contiguous.
    pub contiguous: bool,
}

impl HeapUsage {
    /// The most that one allocation may take of system memory now, in bytes: a multiple of 2 MiB.
    ///
    /// From r36.4.7 on, the kernel refuses more than 0.999 of the free bytes with `ENOMEM`
    /// (`nvmap_dev.c`, `is_nvmap_memory_available`). Older kernels try up to the size of the machine's memory, and end
    /// other programs if that is not there.
    pub fn largest_allocation(&self) -> u64 {
        const GRANULE: u64 = 2 << 20;
        self.free_bytes / 1000 * 999 / GRANULE * GRANULE
    }
}

/// The memory allocator of a Jetson.
///
/// Clones share the descriptor, which closes with the last clone and the last buffer. The kernel keeps
/// one table of handles per process, even if the node is opened several times.
#[derive(Clone, Debug)]
pub struct Nvmap {
    fd: Arc<DoorFd>,
    /// Release whose form of NVMAP_IOC_ALLOC the kernel has; set by the first allocation.
    interface: Arc<OnceLock<Release>>,
    /// Serial numbers of memory that is or was part of a joined buffer; see [`Nvmap::join`].
    pub(crate) joined: Serials,
    /// Serial numbers of memory that the process has imported from its own; see [`Nvmap::import_host`].
    pub(crate) host: Serials,
    /// Bytes of the living allocations; see [`Nvmap::held_bytes`].
    pub(crate) held: Arc<AtomicU64>,
}

/// A living allocation, counted in [`Nvmap::held_bytes`].
#[derive(Debug)]
pub(crate) struct Held {
    count: Arc<AtomicU64>,
    bytes: u64,
}

impl Held {
    pub(crate) fn new(nvmap: &Nvmap, bytes: u64) -> Self {
        nvmap.held.fetch_add(bytes, Ordering::Relaxed);
        Self { count: Arc::clone(&nvmap.held), bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Serial numbers of memory. The kernel never gives one out twice.
type Serials = Arc<Mutex<BTreeSet<u64>>>;

/// The set of imported memory: one for the process, whose serial numbers are system-wide. Each software kernel has
/// serial numbers of its own, so a client of one has its own set.
fn host_memory(door: &Arc<dyn Door>) -> Serials {
    static OF_LINUX: LazyLock<Serials> = LazyLock::new(Arc::default);
    if door.software().is_none() { Arc::clone(&OF_LINUX) } else { Arc::default() }
}

impl Nvmap {
    /// Opens `/dev/nvmap` through `door`.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; the message includes a remedy.
    pub fn open(door: &Arc<dyn Door>) -> Result<Self, Error> {
        let fd = open_node(door).map_err(|errno| Error::Open { path: NODE, errno })?;
        Ok(Self {
            fd: Arc::new(fd),
            interface: Arc::default(),
            joined: Arc::default(),
            host: host_memory(door),
            held: Arc::default(),
        })
    }

    /// Bytes that this client and its clones have allocated and not freed. Imported memory does not count.
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The door that the node was opened through.
    pub fn door(&self) -> &Arc<dyn Door> {
        self.fd.door()
    }

    /// Oldest known release with the form of NVMAP_IOC_ALLOC that the kernel has; `None` before the first allocation.
    pub fn interface(&self) -> Option<Release> {
        self.interface.get().copied()
    }

    /// Code of NVMAP_IOC_ALLOC in the form that the kernel has; `None` before the first allocation.
    pub fn alloc_code(&self) -> Option<u32> {
        self.interface().map(sys::alloc_code)
    }

    /// Backs a handle with memory, by the form of the request that the kernel has. The first call of a client finds it.
    pub(crate) fn allocate(&self, argument: &sys::AllocHandle) -> Result<(), Errno> {
        let send = |release| match release {
            Release::R39_2 => sys::alloc_r39(&self.fd, argument),
            Release::R36_4_3 | Release::R36_4_7 => sys::ALLOC.send(&self.fd, &mut { *argument }).map(drop),
        };
        if let Some(release) = self.interface.get() {
            return send(*release);
        }
        let (newest, oldest) = (Release::R39_2, Release::R36_4_3);
        let order = if self.has_new_requests() { [newest, oldest] } else { [oldest, newest] };
        for release in order {
            let result = send(release);
            if result != Err(Errno::NOTTY) {
                // Another thread has set the same release.
                let _ = self.interface.set(release);
                return result;
            }
        }
        Err(Errno::NOTTY)
    }

    /// Whether the kernel has a request that is new in R39. R36 refuses a number above its last one silently, but
    /// prints a line for a known number with another size, such as R39's form of NVMAP_IOC_ALLOC (`nvmap_dev.c`).
    fn has_new_requests(&self) -> bool {
        let mut argument =
            sys::QueryHeapParams { heap_mask: sys::Heaps::IOVMM.bits(), ..sys::QueryHeapParams::default() };
        sys::QUERY_HEAP_PARAMS_NUMA.send(&self.fd, &mut argument) != Err(Errno::NOTTY)
    }

    /// Sets the text of an allocation tag in the kernel's statistics, system-wide. The kernel stores 31
    /// bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] since R39; [`Error::Query`].
    pub fn label_tag(&self, tag: u16, text: &str) -> Result<(), Error> {
        sys::set_tag_label(&self.fd, tag, text).map_err(|errno| query_error(sys::SET_TAG_LABEL.info(), errno))
    }

    /// Returns the carveout heaps of this machine. System memory, the default heap, is never included.
    ///
    /// # Errors
    ///
    /// [`Error::Query`].
    pub fn carveouts(&self) -> Result<sys::Heaps, Error> {
        let mut argument = sys::AvailableHeaps::default();
        sys::GET_AVAILABLE_HEAPS
            .send(&self.fd, &mut argument)
            .map_err(|errno| query_error(sys::GET_AVAILABLE_HEAPS.info(), errno))?;
        // CAST: heap bits are defined up to bit 30; higher bits have no name.
        Ok(sys::Heaps::from_bits_truncate((argument.heaps & u64::from(u32::MAX)) as u32))
    }

    /// Returns the size of one carveout heap in bytes. [`Nvmap::heap_usage`] also works on R39.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`] unless `heap` is exactly one heap; [`Error::Removed`] since R39; [`Error::Query`], `ENODEV` for
    /// a carveout that this machine lacks, and for system memory.
    pub fn carveout_bytes(&self, heap: sys::Heaps) -> Result<u64, Error> {
        let mut argument = sys::HeapSize { heap: one(heap)?, ..sys::HeapSize::default() };
        sys::GET_HEAP_SIZE
            .send(&self.fd, &mut argument)
            .map_err(|errno| query_error(sys::GET_HEAP_SIZE.info(), errno))?;
        Ok(argument.size)
    }

    /// Returns size and free bytes of one heap, which may be system memory.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`] unless `heap` is exactly one heap; [`Error::Query`], `ENODEV` for a carveout that this
    /// machine lacks.
    pub fn heap_usage(&self, heap: sys::Heaps) -> Result<HeapUsage, Error> {
        let mut argument = sys::QueryHeapParams { heap_mask: one(heap)?, ..sys::QueryHeapParams::default() };
        sys::QUERY_HEAP_PARAMS
            .send(&self.fd, &mut argument)
            .map_err(|errno| query_error(sys::QUERY_HEAP_PARAMS.info(), errno))?;
        Ok(HeapUsage {
            total_bytes: argument.total,
            free_bytes: argument.free,
            granule_bytes: argument.granule_size,
            contiguous: argument.contig != 0,
        })
    }

    /// Returns size and free bytes of system memory, as nvmap counts them.
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

/// Returns the bit of a single heap; for several bits, the kernel prints a stack trace.
fn one(heap: sys::Heaps) -> Result<u32, Error> {
    if heap.bits().count_ones() == 1 { Ok(heap.bits()) } else { Err(Error::Heap { heaps: heap }) }
}

/// Creates the error of a failed request to the node.
pub(crate) fn query_error(request: RequestInfo, errno: Errno) -> Error {
    match Release::removed_in(request.releases).filter(|_| errno == Errno::NOTTY) {
        Some(since) => Error::Removed { call: request.name, since },
        None => Error::Query { call: request.name, path: NODE, errno },
    }
}
