//! nvmap: handles, memory, dma-bufs.
//!
//! A handle number belongs to the process, regardless of the `/dev/nvmap` descriptor that created it. The buffer behind
//! it lives on while a descriptor, a CPU or GPU mapping or a channel uses it. CREATE creates the buffer (and its
//! dma-buf), ALLOC allocates its memory (`nvmap_ioctl.c`, `nvmap_handle.c`, `nvmap_alloc.c`).
//!
//! The host's file behind a buffer is created when a descriptor or a mapping needs it. A handle alone costs no
//! descriptor and no mapping of the host, so a program can have as many as on a board.

mod import;
mod maintenance;
mod range;
mod requests;
mod transfer;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use gpu_log::{Level, MemoryLine, NoteLine};
use nvgpu_sys::nvmap::{
    self as abi, AllocHandle, DuplicateHandle, HandleFlags, HandleParameters, HeapSize, Heaps,
    QueryHeapParams,
};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use crate::check::Tools;
use crate::config::Config;
use crate::memory::Memory;
use crate::release::{self, Estimate};

use super::fence::Fence;
use super::log::Log;
use super::process::ProcessId;
use super::process::task::Task;

pub(super) use requests::export;

/// Page size of handles, in bytes.
const PAGE: u64 = abi::PAGE_SIZE;
/// First handle number of a machine (`nvmap_id_array.c` starts its search at U32_MAX / 2).
const FIRST_ID: u32 = u32::MAX / 2;
/// Maximum number of NUMA nodes of an arm64 kernel.
const MAX_NODES: i32 = 16;
/// Heaps that cannot be combined with others.
const EXCLUSIVE: [Heaps; 2] = [Heaps::IVM, Heaps::VIDMEM];
/// All heaps that are carveouts, except GENERIC.
const CARVEOUT_BITS: Heaps = Heaps::from_bits_retain((Heaps::IOVMM.bits() - 1) & !Heaps::GENERIC.bits());
/// The peer of a buffer that is not shared between virtual machines (`NVMAP_IVM_INVALID_PEER`).
const NO_PEER: u32 = u32::MAX;
/// Largest buffer that is poisoned for the order check. Poisoning takes real memory even if the buffer is never used.
const POISONED_BYTES: u64 = 16 << 20;
/// System memory. GENERIC counts as system memory if there is no generic carveout.
const SYSTEM: Heaps = Heaps::IOVMM.union(Heaps::GENERIC);

/// Metadata that REGISTER_BUFFER attached to a buffer.
#[derive(Clone, Debug)]
pub(super) struct Metadata {
    pub(super) bytes: Vec<u8>,
    pub(super) mutable: bool,
}

/// One kind of memory and its usage.
#[derive(Debug)]
struct Pool {
    total: u64,
    /// Bytes of it that nvmap can have: at most all.
    limit: AtomicU64,
    used: AtomicU64,
}

impl Pool {
    fn new(total: u64, limit: u64) -> Self {
        Self { total, limit: AtomicU64::new(limit.min(total)), used: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.limit.load(Ordering::Acquire))
        });
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    fn free(&self) -> u64 {
        self.limit.load(Ordering::Acquire).saturating_sub(self.used.load(Ordering::Acquire))
    }
}

/// The memory of a buffer.
#[derive(Debug)]
pub(super) struct Storage {
    /// The bytes, mapped when they are first needed.
    memory: OnceLock<Arc<Memory>>,
    /// Name of the memory.
    label: String,
    /// Strict mode: whether fresh memory is poisoned.
    watched: Option<bool>,
    heap: Heaps,
    align: u32,
    cache: u32,
    /// The flags of the request: options in the low half, the tag in the high half.
    flags: u32,
    bytes: u64,
    pool: Arc<Pool>,
    /// The buffers that provided the pages, kept alive with them.
    _sources: range::Sources,
}

impl Storage {
    /// Returns whether the CPU may map it; protected memory cannot be mapped.
    pub(super) fn cpu_access(&self) -> bool {
        self.heap != Heaps::VPR
    }

    /// Returns whether nvmap regards the pages as physically contiguous: those of a carveout always, those of system
    /// memory if requested.
    fn contiguous(&self) -> bool {
        self.heap != Heaps::IOVMM || self.flags & HandleFlags::PHYS_CONTIG.bits() != 0
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.pool.give_back(self.bytes);
    }
}

/// The driver that a dma-buf belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exporter {
    Nvmap,
    /// Another driver of the board, or a file that stands for one.
    Other,
    /// A driver of the host.
    Host,
}

/// A buffer: the target of handle numbers and dma-bufs, or a dma-buf of another exporter.
#[derive(Debug)]
pub(super) struct Handle {
    exporter: Exporter,
    size: u64,
    /// Requested size in bytes.
    requested: u64,
    /// The host's file, created when it is first needed.
    file: OnceLock<Arc<OwnedFd>>,
    storage: OnceLock<Storage>,
    serial: u64,
    live: Arc<AtomicUsize>,
    /// Number of other buffers that contain some of its pages.
    linked: AtomicUsize,
    /// Metadata that REGISTER_BUFFER attached to the dma-buf, and to its read-only twin.
    metadata: [Mutex<Option<Metadata>>; 2],
    /// Fences of accesses to the dma-buf, and whether each is the end of a write.
    fences: Mutex<Vec<(bool, Arc<Fence>)>>,
}

impl Handle {
    /// A buffer of `requested` bytes in whole pages; `None` if its size does not fit 64 bits.
    fn new(requested: u64, storage: OnceLock<Storage>, nvmap: &mut Nvmap) -> Option<Self> {
        let size = requested.checked_next_multiple_of(PAGE)?;
        nvmap.live.fetch_add(1, Ordering::AcqRel);
        nvmap.next_serial += 1;
        let (serial, live) = (nvmap.next_serial, Arc::clone(&nvmap.live));
        Some(Self {
            exporter: Exporter::Nvmap,
            size,
            requested,
            file: OnceLock::new(),
            storage,
            serial,
            live,
            linked: AtomicUsize::new(0),
            metadata: Default::default(),
            fences: Mutex::default(),
        })
    }

    /// A dma-buf of another exporter, with `size` bytes in `file`.
    pub(super) fn foreign(exporter: Exporter, size: u64, file: OwnedFd) -> Self {
        Self::other(exporter, size, OnceLock::from(Arc::new(file)), OnceLock::new())
    }

    /// A dma-buf of another exporter with this memory. Its own file is empty.
    pub(super) fn of_parts(memory: Arc<Memory>) -> Self {
        // CAST: a length fits 64 bits.
        Self::other(Exporter::Other, memory.len() as u64, OnceLock::new(), OnceLock::from(memory))
    }

    fn other(
        exporter: Exporter,
        size: u64,
        file: OnceLock<Arc<OwnedFd>>,
        memory: OnceLock<Arc<Memory>>,
    ) -> Self {
        let storage = Storage {
            memory,
            label: "dma-buf of another driver".to_owned(),
            watched: None,
            heap: Heaps::IOVMM,
            align: 0,
            cache: abi::CACHE_INNER_CACHEABLE,
            flags: 0,
            bytes: 0,
            pool: Arc::new(Pool::new(0, 0)),
            _sources: range::Sources::default(),
        };
        Self {
            exporter,
            size,
            requested: size,
            file,
            storage: OnceLock::from(storage),
            serial: 0,
            live: Arc::new(AtomicUsize::new(1)),
            linked: AtomicUsize::new(0),
            metadata: Default::default(),
            fences: Mutex::default(),
        }
    }

    /// Fences of accesses to the dma-buf, and whether each is the end of a write.
    pub(super) fn fences(&self) -> MutexGuard<'_, Vec<(bool, Arc<Fence>)>> {
        self.fences.lock()
    }

    /// The driver that it belongs to.
    pub(super) fn exporter(&self) -> Exporter {
        self.exporter
    }

    /// Size in bytes, a multiple of the page size for nvmap's buffers.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The memory; `None` before ALLOC.
    pub(super) fn storage(&self) -> Option<&Storage> {
        self.storage.get()
    }

    /// The host's file of the buffer.
    ///
    /// # Errors
    ///
    /// The errno of memfd_create, for example if the host has no free descriptor.
    pub(super) fn file(&self) -> Result<&Arc<OwnedFd>, Errno> {
        if self.file.get().is_none() {
            // If another thread was faster, its file is used.
            let _ = self.file.set(Arc::new(Memory::file("dmabuf", self.size)?));
        }
        self.file.get().ok_or(Errno::NFILE)
    }

    /// The bytes; `None` before ALLOC, or if the host cannot map them.
    pub(super) fn memory(&self) -> Option<&Arc<Memory>> {
        let storage = self.storage.get()?;
        if storage.memory.get().is_none() {
            let file = Arc::clone(self.file().ok()?);
            let len = usize::try_from(self.size).ok()?;
            // What another exporter's file is has been inspected.
            let memory = match self.exporter {
                Exporter::Nvmap => Memory::map(file, len),
                Exporter::Other | Exporter::Host => Memory::map_lasting(file, len),
            };
            let memory = memory.ok()?;
            let memory = memory.labelled(storage.label.clone()).requested_as(self.requested);
            let memory = match storage.watched {
                Some(poison) => memory.watched(poison),
                None => memory,
            };
            // As in `file`.
            let _ = storage.memory.set(Arc::new(memory));
        }
        storage.memory.get()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A dma-buf: a buffer, or the read-only twin of one.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) handle: Arc<Handle>,
    pub(super) read_only: bool,
}

impl Buffer {
    /// Metadata that REGISTER_BUFFER attached to the dma-buf.
    pub(super) fn metadata(&self) -> MutexGuard<'_, Option<Metadata>> {
        let metadata = &self.handle.metadata[usize::from(self.read_only)];
        metadata.lock()
    }

    /// Returns whether both are the same dma-buf.
    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle) && self.read_only == other.read_only
    }
}

/// The nvmap client of a process.
#[derive(Debug, Default)]
struct Client {
    /// Number of open `/dev/nvmap` descriptors of the process.
    opens: usize,
    ids: BTreeMap<u32, Buffer>,
    warned_of_tag: bool,
    warned_of_uncached: bool,
}

/// All clients, and the machine's memory.
#[derive(Debug)]
pub(super) struct Nvmap {
    clients: BTreeMap<ProcessId, Client>,
    /// The process whose request is being handled.
    active: ProcessId,
    next_id: u32,
    next_serial: u64,
    live: Arc<AtomicUsize>,
    system: Arc<Pool>,
    /// Length of the longest free range of system memory, in bytes.
    longest_range: u64,
    protected: Arc<Pool>,
    estimate: Estimate,
    /// Texts of allocation tags, set by SET_TAG_LABEL.
    labels: BTreeMap<u16, String>,
    /// Whether the order check is on.
    watched: bool,
}

impl Nvmap {
    pub(super) fn new(config: &Config) -> Self {
        // Earlier programs on the machine have used up numbers. CAST: the remainder is below 2^16.
        let before = if config.seed == 0 { 0 } else { (config.seed % 0x1_0000) as u32 };
        Self {
            clients: BTreeMap::new(),
            active: ProcessId::default(),
            next_id: FIRST_ID + before,
            next_serial: 0,
            live: Arc::default(),
            longest_range: config.largest_free_range,
            system: Arc::new(Pool::new(config.memory_bytes, config.available_bytes.unwrap_or(u64::MAX))),
            protected: Arc::new(Pool::new(config.vpr_bytes, u64::MAX)),
            estimate: release::facts(config.release).estimate,
            labels: BTreeMap::new(),
            watched: config.checks(Tools::ORDERING),
        }
    }

    pub(super) fn add_client(&mut self, process: ProcessId) {
        self.clients.entry(process).or_default().opens += 1;
    }

    /// Removes one descriptor. Removing the last one frees all handle numbers of the process.
    pub(super) fn remove_client(&mut self, process: ProcessId) {
        let Some(client) = self.clients.get_mut(&process) else { return };
        client.opens -= 1;
        if client.opens == 0 {
            self.clients.remove(&process);
        }
    }

    /// Makes `process` the active process.
    fn activate(&mut self, process: ProcessId) {
        self.active = process;
    }

    /// The active client; `None` if its last descriptor has just been closed.
    fn client(&mut self) -> Option<&mut Client> {
        self.clients.get_mut(&self.active)
    }

    pub(super) fn handles_of(&self, process: ProcessId) -> usize {
        self.clients.get(&process).map_or(0, |client| client.ids.len())
    }

    /// Sets the available system memory, including memory in use.
    pub(super) fn limit(&self, bytes: u64) {
        self.system.limit.store(bytes.min(self.system.total), Ordering::Release);
    }

    /// Bytes of system memory, and the free ones among them.
    pub(super) fn system_memory(&self) -> (u64, u64) {
        (self.system.total, self.system.free())
    }

    pub(super) fn handles(&self) -> usize {
        self.clients.values().map(|client| client.ids.len()).sum()
    }

    pub(super) fn buffers(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.system.used.load(Ordering::Acquire) + self.protected.used.load(Ordering::Acquire)
    }

    /// Called for each CPU mapping of a dma-buf.
    pub(super) fn mapped(&mut self, task: &Task<'_>, log: &Log, buffer: &Buffer) {
        let uncached = buffer.handle.storage().filter(|storage| storage.cache == abi::CACHE_UNCACHED);
        let client = self.clients.get_mut(&task.process);
        if let (Some(storage), Some(client)) = (uncached, client)
            && !std::mem::replace(&mut client.warned_of_uncached, true)
        {
            log.nvmap(
                Level::Warning,
                "__nvmap_map",
                NoteLine::UncachedMapping {
                    pid: task.host_id(),
                    command: task.command(),
                    tag: storage.flags >> abi::TAG_SHIFT,
                },
            );
        }
    }

    fn lookup(&self, id: u32) -> Result<&Buffer, Errno> {
        self.clients.get(&self.active).and_then(|client| client.ids.get(&id)).ok_or(Errno::INVAL)
    }

    /// Assigns a number to a buffer: the next free one, machine-wide.
    fn enter(&mut self, buffer: Buffer) -> u32 {
        while self.next_id == 0 || self.lookup(self.next_id).is_ok() {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        if let Some(client) = self.client() {
            client.ids.insert(id, buffer);
        }
        id
    }

    /// Frees a number.
    fn forget(&mut self, id: u32) -> Option<Buffer> {
        self.client()?.ids.remove(&id)
    }

    fn create(&mut self, bytes: u64) -> Result<u32, Errno> {
        if bytes == 0 {
            return Err(Errno::INVAL);
        }
        let handle = Handle::new(bytes, OnceLock::new(), self).ok_or(Errno::NOMEM)?;
        Ok(self.enter(Buffer { handle: Arc::new(handle), read_only: false }))
    }

    fn alloc(&mut self, task: &Task<'_>, log: &Log, args: &AllocHandle) -> Result<(), Errno> {
        if !args.align.is_power_of_two() && args.align != 0 || args.handle == 0 {
            return Err(Errno::INVAL);
        }
        if args.numa_nid > MAX_NODES || args.numa_nid < -1 {
            log.nvmap(Level::Error, "nvmap_ioctl_alloc", MemoryLine::NumaNode { node: args.numa_nid });
            return Err(Errno::INVAL);
        }
        let handle = Arc::clone(&self.lookup(args.handle)?.handle);
        let heaps = Heaps::from_bits_retain(args.heap_mask);
        if self.watched && heaps.contains(Heaps::GPU) {
            // The kernel sets the size of the handle to 0 before it looks for memory (`nvmap_ioctl.c`).
            log.model(MemoryLine::GpuCarveout { bytes: handle.size });
            return Err(Errno::NOMEM);
        }
        if !self.available(heaps, handle.size) {
            return Err(Errno::NOMEM);
        }
        if handle.storage().is_some() {
            return Err(Errno::EXIST);
        }
        self.check_tag(task, log, args.flags);
        check_exclusive(task, log, heaps)?;
        // The kernel tries protected memory first, then system memory. The other carveout serves only the safety
        // island.
        let (heap, pool) = if heaps.contains(Heaps::VPR) && self.protected.take(handle.size) {
            (Heaps::VPR, &self.protected)
        } else if heaps.intersects(SYSTEM)
            && handle.size <= self.longest_range
            && self.system.take(handle.size)
        {
            (Heaps::IOVMM, &self.system)
        } else {
            return Err(Errno::NOMEM);
        };
        let pool = Arc::clone(pool);
        let protected = heaps.contains(Heaps::VPR);
        let storage = Storage {
            memory: OnceLock::new(),
            label: self.label(args.flags),
            watched: self.watches(handle.size, args.flags),
            heap,
            align: args.align.max(4096),
            cache: if protected { abi::CACHE_UNCACHED } else { args.flags & abi::CACHE_MASK },
            flags: args.flags,
            bytes: handle.size,
            pool,
            _sources: range::Sources::default(),
        };
        // Allocation runs under the state mutex, so no other thread can have set it.
        handle.storage.set(storage).map_err(|_| Errno::EXIST)
    }

    /// Stores the text of an allocation tag.
    fn label_tag(&mut self, tag: u32, text: &[u8]) {
        // The tag field of an allocation has 16 bits.
        if let Ok(tag) = u16::try_from(tag) {
            self.labels.insert(tag, String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
        }
    }

    /// The name of fresh memory.
    fn label(&self, flags: u32) -> String {
        // CAST: the field's width.
        let tag = ((flags & abi::TAG_MASK) >> abi::TAG_SHIFT) as u16;
        let text = self.labels.get(&tag).map_or_else(String::new, |text| format!(" ({text})"));
        format!("nvmap buffer of tag {tag:#06x}{text}")
    }

    /// Adds shadow memory for the order check, and poison unless zeroed memory is requested.
    fn watches(&self, bytes: u64, flags: u32) -> Option<bool> {
        let zeroed = flags & HandleFlags::ZEROED_PAGES.bits() != 0;
        self.watched.then_some(bytes <= POISONED_BYTES && !zeroed)
    }

    /// The largest buffer of system memory that the kernel tries to allocate.
    fn largest(&self) -> u64 {
        match self.estimate {
            Estimate::Total => self.system.total,
            Estimate::Available => {
                let free = self.system.free();
                (free - free / 1000) & !(PAGE - 1)
            }
        }
    }

    /// The kernel's estimate before it allocates.
    fn available(&self, heaps: Heaps, bytes: u64) -> bool {
        if heaps.intersects(SYSTEM) {
            return bytes <= self.largest();
        }
        heaps.contains(Heaps::VPR) && bytes <= self.protected.free()
    }

    /// Warns once about an allocation without a tag.
    fn check_tag(&mut self, task: &Task<'_>, log: &Log, flags: u32) {
        let Some(client) = self.client() else { return };
        if flags & abi::TAG_MASK == 0 && !std::mem::replace(&mut client.warned_of_tag, true) {
            log.nvmap(
                Level::Warning,
                "nvmap_alloc_handle",
                NoteLine::MissingTag { pid: task.host_id(), command: task.command() },
            );
        }
    }

    fn duplicate(&mut self, task: &Task<'_>, log: &Log, args: &mut DuplicateHandle) -> Result<(), Errno> {
        let function = "nvmap_ioctl_dup_handle";
        let Ok(buffer) = self.lookup(args.handle).cloned() else {
            log.nvmap(Level::Error, function, MemoryLine::HandleReadOnly);
            return Err(Errno::INVAL);
        };
        // Only this exact value means a read-only duplicate; with further bits it is an ordinary one.
        let read_only = args.access_flags == HandleFlags::READ_ONLY.bits();
        if buffer.read_only && !read_only {
            log.nvmap(Level::Error, function, MemoryLine::DuplicateReadOnly {});
            return Err(Errno::PERM);
        }
        refuse_unallocated(task, log, &buffer)?;
        args.dup_handle = self.enter(Buffer { handle: buffer.handle, read_only });
        Ok(())
    }

    /// PARAMETERS. Fields that the kernel does not set keep the caller's value: `import_id`, and `access_flags` of a
    /// number that allows writing.
    fn parameters(&self, args: &mut HandleParameters) -> Result<(), Errno> {
        let buffer = self.lookup(args.handle).map_err(|_| Errno::NODEV)?;
        let storage = buffer.handle.storage();
        args.contig = storage.is_some_and(Storage::contiguous).into();
        args.heap_number = NO_PEER;
        if buffer.read_only {
            args.access_flags = HandleFlags::READ_ONLY.bits();
        }
        args.heap = storage.map_or(0, |storage| u64::from(storage.heap.bits()));
        args.align = storage.map_or(0, |storage| u64::from(storage.align));
        args.coherency = u64::from(storage.map_or(abi::CACHE_WRITE_COMBINED, |storage| storage.cache));
        args.size = buffer.handle.size;
        args.offset = 0;
        args.serial_id = buffer.handle.serial;
        Ok(())
    }

    /// QUERY_HEAP_PARAMS. A carveout in the mask takes precedence; GENERIC counts as system memory. `contig` is never
    /// set, and the granule only for system memory.
    fn heap_params(&self, task: &Task<'_>, log: &Log, args: &mut QueryHeapParams) -> Result<(), Errno> {
        let heaps = Heaps::from_bits_retain(args.heap_mask);
        if args.heap_mask.count_ones() > 1 {
            log.kernel_warning(task, "nvmap_ioctl.c:0", "nvmap_ioctl_query_heap_params", None);
        }
        args.largest_free_block = PAGE;
        if heaps.intersects(CARVEOUT_BITS) {
            (args.total, args.free) = if heaps.contains(Heaps::VPR) {
                (self.protected.total, self.protected.free())
            } else if heaps.contains(Heaps::FSI) {
                (0, 0)
            } else {
                return Err(Errno::NODEV);
            };
        } else if heaps.intersects(SYSTEM) {
            // Where the estimate uses the available memory, this query reports the same.
            (args.total, args.free) = (self.system.total, self.largest().min(self.system.free()));
            // CAST: 4096.
            args.granule_size = PAGE as u32;
        } else {
            (args.total, args.free) = (0, 0);
        }
        Ok(())
    }

    /// GET_HEAP_SIZE: the first carveout in the mask is used. That the protected one is first is an assumption.
    fn heap_size(&self, args: &mut HeapSize) -> Result<(), Errno> {
        let heaps = Heaps::from_bits_retain(args.heap);
        args.size = if heaps.contains(Heaps::VPR) {
            self.protected.total
        } else if heaps.contains(Heaps::FSI) {
            0
        } else {
            return Err(Errno::NODEV);
        };
        Ok(())
    }
}

/// Checks that exclusive heaps are not combined with others.
fn check_exclusive(task: &Task<'_>, log: &Log, heaps: Heaps) -> Result<(), Errno> {
    for alone in EXCLUSIVE {
        if heaps.contains(alone) && heaps != alone {
            let (name, bit) = (task.command(), alone.bits());
            log.nvmap(
                Level::Error,
                "nvmap_alloc_handle",
                MemoryLine::ExclusiveHeap { command: name, heap: bit },
            );
            return Err(Errno::INVAL);
        }
    }
    Ok(())
}

/// Refuses buffers without memory, for FROM_FD and DUP_HANDLE.
fn refuse_unallocated(task: &Task<'_>, log: &Log, buffer: &Buffer) -> Result<(), Errno> {
    if buffer.handle.storage().is_some() {
        return Ok(());
    }
    log.nvmap(Level::Error, "nvmap_duplicate_handle", MemoryLine::Unallocated { command: task.command() });
    Err(Errno::INVAL)
}
