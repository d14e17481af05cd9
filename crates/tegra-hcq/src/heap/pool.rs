//! The allocator: size classes over large blocks of driver memory. Freed blocks are kept for reuse.
//!
//! Allocating through the driver takes several system calls and up to a millisecond (create, allocate, map to the GPU,
//! map to the CPU; `docs/memory.md`), and GPU addresses are worth reusing. Small blocks are therefore cut from slabs,
//! with one size class per power of two. Larger blocks are separate driver allocations. A freed small block goes to the
//! free list of its class, a large one to a list sorted by size. They stay there until [`Pool::trim`] returns the
//! memory or the limit of idle memory is reached.
//!
//! A [`Memory`] is never freed while the GPU may use it: the heap frees it after the timelines have passed its
//! [`Uses`].

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Uses;
use super::peers::PeerMappings;
use crate::error::{RangeError, Result};
use gpu_hal::{DeviceMemory, Driver, FileAccess, MemoryUse};

/// Smallest block in bytes; also the alignment of every block.
const MIN_BYTES: u64 = 256;
/// Largest block that is cut from a slab.
const MAX_SMALL: u64 = 64 << 10;
/// Number of small size classes.
const SMALL_CLASSES: usize = (MAX_SMALL / MIN_BYTES).ilog2() as usize + 1;
/// Number of blocks in a slab, within the bounds below.
const SLAB_PIECES: u64 = 32;
/// Smallest and largest slab in bytes.
const SLAB_BYTES: (u64, u64) = (64 << 10, 1 << 20);
/// Sizes of large blocks are multiples of this.
const LARGE_GRANULE: u64 = 64 << 10;
/// A reused large block may exceed the requested size by one part in this many.
const LARGE_SLACK: u64 = 4;
/// Idle memory that a pool may always keep, in bytes.
const MIN_IDLE: u64 = 512 << 20;
/// The share of the GPU's memory that may be idle: one part in this many.
const IDLE_SHARE: u64 = 8;

/// Content of a block of memory, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Content {
    Buffer,
    Program,
    Pushbuffer,
    LaunchRecords,
    LocalMemory,
    Signal,
    Graph,
    Profile,
    Runtime,
    KernelHeap,
    Textures,
    Shared,
    Imported,
}

impl Content {
    const ALL: [(Self, &'static str); 13] = [
        (Self::Buffer, "buffer"),
        (Self::Program, "program"),
        (Self::Pushbuffer, "pushbuffer"),
        (Self::LaunchRecords, "launch records"),
        (Self::LocalMemory, "local memory"),
        (Self::Signal, "signal"),
        (Self::Graph, "graph"),
        (Self::Profile, "profile"),
        (Self::Runtime, "run time of kernels"),
        (Self::KernelHeap, "heap of kernels"),
        (Self::Textures, "descriptors of textures"),
        (Self::Shared, "shared buffer"),
        (Self::Imported, "imported file"),
    ];

    /// Name of the content in reports.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Destination of freed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// The free list of a size class.
    Small(usize),
    /// The list of large blocks.
    Large,
    /// Returned to its owner: imported memory of the process or of a file.
    Nowhere,
    /// Returned to the driver: other processes may have it.
    Driver,
}

/// A block of memory that the CPU and the GPU access. It is held by a handle, a free list or the list of parked memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Offset in the slab.
    offset: u64,
    gpu_va: u64,
    /// Size of the block.
    bytes: u64,
    /// Requested size; 0 if the block is free.
    wanted: AtomicU64,
    content: AtomicU8,
    /// Name given by the user.
    name: Mutex<Option<Box<str>>>,
    /// Whether there is a name. Freeing a block without one takes no lock.
    named: AtomicBool,
    /// Whether the CPU has a view of the block; if so, no work may use it.
    viewed: AtomicBool,
    purpose: MemoryUse,
    home: Home,
    /// Access of this device: read-only for some files.
    access: FileAccess,
    pub(super) handles: AtomicU32,
    pub(crate) uses: Uses,
    // Keeps the pointer and the address valid.
    slab: Arc<Slab>,
}

impl Memory {
    /// CPU address of the first byte, aligned to 256 bytes; valid for [`Memory::bytes`] while `self` lives. Every
    /// access through it is volatile or ordered by the timeline (see `Buffer`). The first call may map the memory.
    ///
    /// # Errors
    ///
    /// As [`DeviceMemory::cpu`].
    #[inline]
    pub(crate) fn map(&self) -> Result<NonNull<u8>> {
        // SAFETY: the offset is inside the slab, which `self` keeps alive.
        Ok(unsafe { self.slab.memory.cpu()?.add(self.offset as usize) })
    }

    /// GPU address, aligned to 256 bytes.
    #[inline]
    pub(crate) fn gpu_va(&self) -> u64 {
        self.gpu_va
    }

    /// Size of the block in bytes, at least the requested size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Requested size in bytes; 0 if the block is free.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Content of the block.
    pub(crate) fn content(&self) -> Content {
        Content::ALL[usize::from(self.content.load(Ordering::Relaxed)) % Content::ALL.len()].0
    }

    /// Name given by the user, if any.
    pub(crate) fn user_name(&self) -> Option<String> {
        self.name.lock().as_deref().map(str::to_owned)
    }

    /// Name given by the user; otherwise the name of the content.
    pub(crate) fn name(&self) -> String {
        self.user_name().unwrap_or_else(|| self.content().name().to_owned())
    }

    /// Names the block until it is freed.
    pub(crate) fn set_name(&self, name: &str) {
        *self.name.lock() = Some(name.into());
        self.named.store(true, Ordering::Relaxed);
    }

    /// Whether the CPU has a view of the block.
    #[inline]
    pub(crate) fn is_viewed(&self) -> bool {
        self.viewed.load(Ordering::Acquire)
    }

    /// Sets or clears the mark of a view.
    pub(crate) fn set_viewed(&self, viewed: bool) {
        self.viewed.store(viewed, Ordering::Release);
    }

    /// Whether it does not come back for reuse: its owner wants it back, or other processes may have it.
    pub(crate) fn is_imported(&self) -> bool {
        matches!(self.home, Home::Nowhere | Home::Driver)
    }

    /// Access that this device has.
    pub(crate) fn access(&self) -> FileAccess {
        self.access
    }

    /// A file of the memory.
    ///
    /// # Errors
    ///
    /// As [`DeviceMemory::export`].
    pub(crate) fn export(&self, access: FileAccess) -> gpu_hal::Result<OwnedFd> {
        if self.purpose != MemoryUse::Shared {
            return Err(gpu_hal::Error::Unsupported("files of memory that is not shared: allocate it so"));
        }
        self.slab.memory.export(access)
    }

    /// A file of the driver's memory that contains the block, and the offset of the block there in bytes.
    ///
    /// # Errors
    ///
    /// As [`DeviceMemory::export`].
    pub(crate) fn export_whole(&self) -> gpu_hal::Result<(OwnedFd, u64)> {
        Ok((self.slab.memory.export(FileAccess::ReadWrite)?, self.offset))
    }

    /// Begins accesses of the CPU, until [`Memory::end_cpu`]. Does nothing for memory that only this process and its
    /// devices access.
    ///
    /// # Errors
    ///
    /// As [`DeviceMemory::begin_cpu`].
    #[inline]
    pub(crate) fn begin_cpu(&self, access: FileAccess) -> Result<()> {
        if self.purpose == MemoryUse::Shared { Ok(self.slab.memory.begin_cpu(access)?) } else { Ok(()) }
    }

    /// Ends the accesses of [`Memory::begin_cpu`].
    ///
    /// # Errors
    ///
    /// As [`DeviceMemory::end_cpu`].
    #[inline]
    pub(crate) fn end_cpu(&self, access: FileAccess) -> Result<()> {
        if self.purpose == MemoryUse::Shared { Ok(self.slab.memory.end_cpu(access)?) } else { Ok(()) }
    }

    /// As [`Memory::begin_cpu`], until the result is dropped.
    ///
    /// # Errors
    ///
    /// As [`Memory::begin_cpu`].
    #[inline]
    pub(crate) fn access_cpu(&self, access: FileAccess) -> Result<CpuAccess<'_>> {
        self.begin_cpu(access)?;
        Ok(CpuAccess(self, access))
    }

    /// Sets the requested size, if more was allocated.
    pub(super) fn set_wanted(&self, bytes: u64) {
        self.wanted.store(bytes.max(1), Ordering::Relaxed);
    }

    /// Gives the block to its first handle.
    #[inline]
    fn begin(&self, bytes: u64, content: Content) {
        self.wanted.store(bytes.max(1), Ordering::Relaxed);
        self.content.store(content as u8, Ordering::Relaxed);
        self.handles.store(1, Ordering::Relaxed);
    }

    /// The driver's memory that contains the block.
    pub(super) fn slab(&self) -> &Arc<Slab> {
        &self.slab
    }

    /// The purpose of the memory.
    pub(crate) fn purpose(&self) -> MemoryUse {
        self.purpose
    }
}

/// Accesses of the CPU to memory that devices of other drivers access; ends them when it is dropped.
#[derive(Debug)]
pub(crate) struct CpuAccess<'a>(&'a Memory, FileAccess);

impl Drop for CpuAccess<'_> {
    #[inline]
    fn drop(&mut self) {
        let Self(memory, access) = *self;
        if let Err(error) = memory.end_cpu(access) {
            tracing::warn!(%error, "the end of accesses by the CPU was not taken: devices may see old data");
        }
    }
}

/// One driver allocation, cut into blocks of equal size.
#[derive(Debug)]
pub(super) struct Slab {
    /// Before `memory`: the mappings on other devices.
    pub(super) peers: PeerMappings,
    pub(super) memory: Box<dyn DeviceMemory>,
    /// Number of blocks cut so far.
    cut: AtomicU32,
}

impl Slab {
    /// A slab of which `cut` blocks are cut.
    fn new(memory: Box<dyn DeviceMemory>, cut: u32) -> Arc<Self> {
        Arc::new(Self { peers: PeerMappings::default(), memory, cut: AtomicU32::new(cut) })
    }
}

/// The blocks of one size class.
#[derive(Debug, Default)]
struct Class {
    free: Vec<Arc<Memory>>,
    /// The slab that is being cut, and its remaining bytes.
    current: Option<(Arc<Slab>, u64)>,
}

/// The memory of one use.
#[derive(Debug)]
struct UsePool {
    small: [Mutex<Class>; SMALL_CLASSES],
    large: Mutex<BTreeMap<u64, Vec<Arc<Memory>>>>,
}

/// Usage of an allocator, in bytes.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// let buffer = device.alloc::<u8>(1 << 20)?;
/// let usage = device.memory_usage();
/// assert!(usage.in_use >= 1 << 20 && usage.reserved >= usage.in_use);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Allocated from the driver.
    pub reserved: u64,
    /// In use, rounded up to size classes.
    pub in_use: u64,
    /// Kept for reuse.
    pub idle: u64,
}

/// The allocator of a device.
#[derive(Debug)]
pub(crate) struct Pool {
    uses: [UsePool; MemoryUse::ALL.len()],
    idle_large: AtomicU64,
    /// Maximum of `idle_large`, in bytes.
    max_idle: u64,
    /// Every existing block, by GPU address.
    registry: Mutex<BTreeMap<u64, Weak<Memory>>>,
}

/// Allocates from the driver and checks the size.
pub(super) fn driver_memory(
    driver: &dyn Driver,
    bytes: u64,
    purpose: MemoryUse,
    label: &str,
) -> Result<Box<dyn DeviceMemory>> {
    let memory = driver.allocate(bytes, purpose, label)?;
    let returned = memory.bytes();
    if returned < bytes {
        return Err(gpu_hal::Error::ShortAllocation { wanted: bytes, returned }.into());
    }
    if purpose == MemoryUse::Unified && memory.cpu()?.as_ptr().addr() as u64 != memory.gpu_va() {
        return Err(gpu_hal::Error::Unsupported("memory at one address for CPU and GPU").into());
    }
    Ok(memory)
}

/// Index of the small class for `bytes`.
fn class_of(bytes: u64) -> usize {
    (bytes.max(MIN_BYTES).next_power_of_two() / MIN_BYTES).ilog2() as usize
}

impl Pool {
    /// An empty pool for a GPU with `total` bytes of memory, 0 if unknown.
    pub(crate) fn new(total: u64) -> Self {
        Self {
            max_idle: MIN_IDLE.max(total / IDLE_SHARE),
            uses: core::array::from_fn(|_| UsePool { small: Default::default(), large: Mutex::default() }),
            idle_large: AtomicU64::new(0),
            registry: Mutex::default(),
        }
    }

    /// Takes a free block of at least `bytes` bytes, if there is one.
    // Apart from `allocate`: a `Result` with a large error is returned in memory, which costs 5 ns.
    #[inline]
    pub(crate) fn reuse(&self, bytes: u64, purpose: MemoryUse, content: Content) -> Option<Arc<Memory>> {
        let pool = &self.uses[purpose as usize];
        let memory = if bytes <= MAX_SMALL {
            pool.small[class_of(bytes)].lock().free.pop()?
        } else {
            self.reuse_large(pool, bytes)?
        };
        memory.begin(bytes, content);
        Some(memory)
    }

    fn reuse_large(&self, pool: &UsePool, bytes: u64) -> Option<Arc<Memory>> {
        let bytes = bytes.checked_next_multiple_of(LARGE_GRANULE)?;
        let limit = bytes.saturating_add(bytes / LARGE_SLACK);
        let mut large = pool.large.lock();
        // Empty lists are kept: the next block of the same size needs no allocation.
        let mut lists = large.range_mut(bytes..=limit);
        let (size, memory) = lists.find_map(|(size, list)| list.pop().map(|memory| (*size, memory)))?;
        self.idle_large.fetch_sub(size, Ordering::Relaxed);
        Some(memory)
    }

    /// Takes a new block of at least `bytes` bytes.
    pub(crate) fn allocate(
        &self,
        driver: &dyn Driver,
        bytes: u64,
        purpose: MemoryUse,
        content: Content,
    ) -> Result<Arc<Memory>> {
        let memory = if bytes <= MAX_SMALL {
            self.cut_small(driver, class_of(bytes), purpose)?
        } else {
            let bytes =
                bytes.checked_next_multiple_of(LARGE_GRANULE).ok_or(RangeError::TooLarge { bytes })?;
            let memory = self.driver_memory(driver, bytes, purpose, content.name())?;
            let slab = Slab::new(memory, 1);
            self.register(&slab, (0, bytes), (purpose, FileAccess::ReadWrite), Home::Large)
        };
        memory.begin(bytes, content);
        Ok(memory)
    }

    /// Cuts a block from a slab.
    fn cut_small(&self, driver: &dyn Driver, index: usize, purpose: MemoryUse) -> Result<Arc<Memory>> {
        let mut class = self.uses[purpose as usize].small[index].lock();
        let bytes = MIN_BYTES << index;
        let (slab, left) = match class.current.take() {
            Some(current) => current,
            None => {
                let slab_bytes = (bytes * SLAB_PIECES).clamp(SLAB_BYTES.0, SLAB_BYTES.1);
                let memory = self.driver_memory(driver, slab_bytes, purpose, "small buffers")?;
                (Slab::new(memory, 0), slab_bytes)
            }
        };
        let cut = u64::from(slab.cut.fetch_add(1, Ordering::Relaxed));
        let memory = {
            let place = (cut * bytes, bytes);
            self.register(&slab, place, (purpose, FileAccess::ReadWrite), Home::Small(index))
        };
        if left > bytes {
            class.current = Some((slab, left - bytes));
        }
        Ok(memory)
    }

    /// Allocates from the driver. If the driver has no memory, returns idle memory to it and retries.
    fn driver_memory(
        &self,
        driver: &dyn Driver,
        bytes: u64,
        purpose: MemoryUse,
        label: &str,
    ) -> Result<Box<dyn DeviceMemory>> {
        match driver_memory(driver, bytes, purpose, label) {
            Err(error) if error.is_out_of_memory() && self.trim_large() > 0 => {
                driver_memory(driver, bytes, purpose, label)
            }
            result => result,
        }
    }

    fn register(
        &self,
        slab: &Arc<Slab>,
        (offset, bytes): (u64, u64),
        (purpose, access): (MemoryUse, FileAccess),
        home: Home,
    ) -> Arc<Memory> {
        let memory = Arc::new(Memory {
            offset,
            gpu_va: slab.memory.gpu_va() + offset,
            bytes,
            wanted: AtomicU64::new(0),
            content: AtomicU8::new(0),
            name: Mutex::default(),
            named: AtomicBool::new(false),
            viewed: AtomicBool::new(false),
            purpose,
            home,
            access,
            handles: AtomicU32::new(1),
            uses: Uses::default(),
            slab: Arc::clone(slab),
        });
        self.registry.lock().insert(memory.gpu_va, Arc::downgrade(&memory));
        memory
    }

    /// Takes ownership of memory that the driver has imported.
    pub(crate) fn adopt(&self, memory: Box<dyn DeviceMemory>, bytes: u64) -> Arc<Memory> {
        let slab = Slab::new(memory, 1);
        // Memory of the process is system memory, even if the GPU has its own memory.
        let kind = (MemoryUse::ReadBack, FileAccess::ReadWrite);
        let memory = self.register(&slab, (0, bytes), kind, Home::Nowhere);
        memory.begin(bytes, Content::Buffer);
        memory
    }

    /// Takes ownership of memory that files stand for: imported from one, or allocated here for others to import.
    pub(crate) fn adopt_shared(
        &self,
        memory: Box<dyn DeviceMemory>,
        content: Content,
        access: FileAccess,
    ) -> Arc<Memory> {
        let (bytes, slab) = (memory.bytes(), Slab::new(memory, 1));
        let home = if content == Content::Imported { Home::Nowhere } else { Home::Driver };
        let memory = self.register(&slab, (0, bytes), (MemoryUse::Shared, access), home);
        memory.begin(bytes, content);
        memory
    }

    /// Frees a block that neither a handle nor the GPU uses any more.
    pub(crate) fn free(&self, memory: Arc<Memory>) {
        memory.wanted.store(0, Ordering::Relaxed);
        // A load and a store: nothing else has the block, and an atomic exchange would double the time of this path.
        if memory.named.load(Ordering::Relaxed) {
            memory.named.store(false, Ordering::Relaxed);
            *memory.name.lock() = None;
        }
        let pool = &self.uses[memory.purpose as usize];
        match memory.home {
            Home::Small(index) => pool.small[index].lock().free.push(memory),
            Home::Large => {
                let bytes = memory.bytes;
                if self.idle_large.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max_idle {
                    self.idle_large.fetch_sub(bytes, Ordering::Relaxed);
                    return;
                }
                pool.large.lock().entry(bytes).or_default().push(memory);
            }
            Home::Nowhere | Home::Driver => {}
        }
    }

    /// Returns idle memory to the driver: large blocks, and slabs whose blocks are all idle. Returns the number of
    /// bytes.
    pub(crate) fn trim(&self) -> u64 {
        let mut bytes = self.trim_large();
        for pool in &self.uses {
            bytes += pool.small.iter().map(|class| trim_class(&mut class.lock())).sum::<u64>();
        }
        self.registry.lock().retain(|_, memory| memory.strong_count() > 0);
        bytes
    }

    fn trim_large(&self) -> u64 {
        let mut freed = 0;
        for pool in &self.uses {
            let idle = core::mem::take(&mut *pool.large.lock());
            freed += idle.iter().map(|(size, list)| size * list.len() as u64).sum::<u64>();
        }
        self.idle_large.fetch_sub(freed, Ordering::Relaxed);
        freed
    }

    /// Usage over all kinds of memory.
    pub(crate) fn usage(&self) -> PoolUsage {
        let mut usage = PoolUsage::default();
        let mut slabs = std::collections::BTreeSet::new();
        for memory in self.registry.lock().values().filter_map(Weak::upgrade) {
            if slabs.insert(Arc::as_ptr(&memory.slab).addr()) && memory.home != Home::Nowhere {
                usage.reserved += slab_bytes(&memory);
            }
            if memory.wanted() > 0 {
                usage.in_use += memory.bytes;
            }
        }
        usage.idle = usage.reserved.saturating_sub(usage.in_use);
        usage
    }

    /// Every block in use, by address.
    pub(crate) fn live(&self) -> Vec<Arc<Memory>> {
        let registry = self.registry.lock();
        registry.values().filter_map(Weak::upgrade).filter(|memory| memory.wanted() > 0).collect()
    }

    /// The block, used or idle, that contains a GPU address.
    pub(crate) fn at(&self, va: u64) -> Option<Arc<Memory>> {
        let registry = self.registry.lock();
        let memory = registry.range(..=va).rev().find_map(|(_, memory)| memory.upgrade())?;
        (va - memory.gpu_va < memory.bytes).then_some(memory)
    }
}

/// Size of the slab that a block was cut from.
fn slab_bytes(memory: &Memory) -> u64 {
    match memory.home {
        Home::Small(_) => (memory.bytes * SLAB_PIECES).clamp(SLAB_BYTES.0, SLAB_BYTES.1),
        Home::Large | Home::Nowhere | Home::Driver => memory.bytes,
    }
}

/// Frees the slabs of a class whose blocks are all idle; returns their bytes.
fn trim_class(class: &mut Class) -> u64 {
    let mut idle: BTreeMap<usize, u32> = BTreeMap::new();
    for memory in &class.free {
        *idle.entry(Arc::as_ptr(&memory.slab).addr()).or_default() += 1;
    }
    idle.retain(|_, count| *count > 0);
    let whole = |slab: &Arc<Slab>| {
        idle.get(&Arc::as_ptr(slab).addr()).is_some_and(|count| *count == slab.cut.load(Ordering::Relaxed))
    };
    let mut freed = BTreeMap::new();
    for memory in class.free.iter().filter(|memory| whole(&memory.slab)) {
        freed.insert(Arc::as_ptr(&memory.slab).addr(), slab_bytes(memory));
    }
    class.free.retain(|memory| !whole(&memory.slab));
    if class.current.as_ref().is_some_and(|(slab, _)| whole(slab)) {
        class.current = None;
    }
    freed.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_to_the_smallest_class_that_holds_them() {
        assert_eq!(class_of(1), 0);
        assert_eq!(class_of(256), 0);
        assert_eq!(class_of(257), 1);
        assert_eq!(class_of(MAX_SMALL), SMALL_CLASSES - 1);
        for bytes in 1..=MAX_SMALL {
            let class = MIN_BYTES << class_of(bytes);
            assert!(class >= bytes && (class == MIN_BYTES || class / 2 < bytes), "{bytes}");
        }
    }
}
