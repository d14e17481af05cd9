//! Memory that the GPU accesses: video memory, system memory of the driver, memory of the process.
//!
//! UVM maps a memory object of RM into the GPU's address space. Except for memory of the process, an mmap of a separate
//! file maps it into the process, when the CPU first needs it. The CPU accesses video memory through BAR1,
//! write-combined: stores are combined and cheap, each load is a round trip over PCIe. The CPU caches system memory;
//! the GPU snoops the CPU caches.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use kernel_door::{DoorMapping, DoorRange};
use parking_lot::Mutex;

use crate::abi::{alloc, control, escape};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::rm::{self, Object};
use crate::space::{LARGE_PAGE, Reserved, SMALL_PAGE};

/// Page size of the CPU in bytes.
const CPU_PAGE: u64 = 4096;

/// Location of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Video memory; stores of the CPU are write-combined, loads are slow.
    Video,
    /// System memory, cached by the CPU; the GPU accesses it over PCIe.
    System,
}

impl Place {
    fn what(self) -> &'static str {
        match self {
            Self::Video => "video memory",
            Self::System => "system memory",
        }
    }
}

/// Flags of an allocation (`NVOS32_ALLOC_FLAGS_*`): any bank, force the alignment, RM chooses the handle, no mapping.
const ALLOC_FLAGS: u32 = 0xc101;
/// Additional flag for video memory: persistent across power management.
const ALLOC_PERSISTENT: u32 = 0x1_0000;
/// Type of an allocation of system memory (`NVOS32_TYPE_NOTIFIER`).
const TYPE_NOTIFIER: u32 = 13;
/// Attributes (`NVOS32_ATTR_*`): contiguous if possible.
const ATTR_PREFER_CONTIGUOUS: u32 = 3 << 27;
/// Attributes: pages of 2 MiB.
const ATTR_PAGE_HUGE: u32 = 3 << 23;
/// Attributes: in system memory.
const ATTR_SYSTEM: u32 = 1 << 25;
/// Attributes: cached by the CPU.
const ATTR_CACHED: u32 = 1 << 29;
/// Attributes (`NVOS32_ATTR2_*`): default zero-bandwidth clears; cached by the GPU.
const ATTR2_GPU_CACHED: u32 = 0x5;
/// Attributes: not cached by the GPU.
const ATTR2_GPU_UNCACHED: u32 = 0x9;
/// Attributes: huge pages have 2 MiB.
const ATTR2_HUGE_2M: u32 = 1 << 20;
/// Kind of the pages: linear.
const FORMAT_PITCH: u32 = 6;

/// An RM memory object.
#[derive(Debug)]
pub(crate) struct RmMemory {
    gpu: Arc<Gpu>,
    object: Object,
    place: Place,
    bytes: u64,
}

impl RmMemory {
    /// Allocates at least `bytes` bytes.
    fn new(gpu: &Arc<Gpu>, place: Place, bytes: u64) -> Result<Self> {
        let page = if bytes < LARGE_PAGE { SMALL_PAGE } else { LARGE_PAGE };
        let size = bytes.max(1).checked_next_multiple_of(page).ok_or(Error::AddressSpace { bytes })?;
        let object = allocate(gpu, place, size, page)?;
        Ok(Self { gpu: Arc::clone(gpu), object, place, bytes: size })
    }
}

impl Drop for RmMemory {
    fn drop(&mut self) {
        self.gpu.rm().free_or_log(self.gpu.device(), self.object, "memory");
    }
}

/// Number of the first imported object. RM chooses the numbers of the others, from 0xcaf00000 on.
const FIRST_IMPORT: u32 = 0x5e00_0000;
/// Number of objects that were imported.
static IMPORTS: AtomicU32 = AtomicU32::new(0);

/// A memory object of a GPU, as the commands for files name it.
fn exported(gpu: &Gpu, object: Object) -> [u32; 4] {
    [control::EXPORT_RM_OBJECT, gpu.device().0, gpu.device().0, object.0]
}

impl RmMemory {
    pub(crate) fn object(&self) -> Object {
        self.object
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A file that stands for the memory in any process.
    fn export(&self) -> Result<OwnedFd> {
        let rm = self.gpu.rm();
        let file = rm::open(rm.door(), rm::CONTROL_NODE)?;
        let mut export = control::ExportObject {
            object: exported(&self.gpu, self.object),
            fd: file.raw(),
            ..Default::default()
        };
        rm.control(rm.client(), &control::OS_UNIX_EXPORT_OBJECT_TO_FD, &mut export)?;
        rustix::io::fcntl_dupfd_cloexec(&file, 0).map_err(|errno| Error::Call { call: "dup", errno })
    }

    /// The memory that a file stands for.
    pub(crate) fn import(gpu: &Arc<Gpu>, file: BorrowedFd<'_>) -> Result<Self> {
        let rm = gpu.rm();
        let object = Object(FIRST_IMPORT + IMPORTS.fetch_add(1, Ordering::Relaxed) % (1 << 24));
        let mut import = control::ImportObject { fd: file.as_raw_fd(), object: exported(gpu, object) };
        rm.control(rm.client(), &control::OS_UNIX_IMPORT_OBJECT_FROM_FD, &mut import)?;
        // Frees the object, whatever follows.
        let mut memory = Self { gpu: Arc::clone(gpu), object, place: Place::System, bytes: 0 };
        let mut list = [[control::SURFACE_SIZE, 0_u32], [control::SURFACE_ADDRESS_SPACE, 0]];
        let mut info = control::SurfaceInfo {
            count: 2,
            list: list.as_mut_ptr().expose_provenance() as u64,
            ..Default::default()
        };
        // SAFETY: the list has the stated number of elements and outlives the call.
        unsafe { rm.control_pointing(object, &control::GET_SURFACE_INFO, &mut info) }?;
        let [[_, size], [_, space]] = list;
        memory.bytes = u64::from(size) * control::SURFACE_UNIT;
        memory.place = match space {
            control::ADDRESS_SPACE_SYSTEM => Place::System,
            control::ADDRESS_SPACE_VIDEO => Place::Video,
            space => return Err(Error::ForeignMemory { space }),
        };
        Ok(memory)
    }
}

/// A mapping of a memory object in the process.
#[derive(Debug)]
struct CpuMapping {
    gpu: Arc<Gpu>,
    object: Object,
    linear: u64,
    // Taken on drop, before RM forgets the mapping.
    mapping: Option<DoorMapping>,
}

impl CpuMapping {
    fn new(memory: &RmMemory) -> Result<Self> {
        Self::new_in(memory, None)
    }

    /// Maps the memory at the first addresses of a range, if there is one.
    fn new_in(memory: &RmMemory, range: Option<&mut DoorRange>) -> Result<Self> {
        let (gpu, place) = (Arc::clone(&memory.gpu), memory.place);
        let is_video = place == Place::Video;
        let (mapping, linear) = gpu.map_object(memory.object, memory.bytes, is_video, place.what(), range)?;
        Ok(Self { gpu, object: memory.object, linear, mapping: Some(mapping) })
    }

    pub(crate) fn pointer(&self) -> NonNull<u8> {
        // PANIC: the mapping exists until the drop.
        self.mapping.as_ref().expect("memory is mapped").pointer()
    }
}

/// A mapping of memory in the process that is made when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct LateMapping {
    mapping: OnceLock<CpuMapping>,
    /// Held while the mapping is made.
    alone: Mutex<()>,
}

impl LateMapping {
    /// Pointer to the first byte of the memory, always the same memory.
    pub(crate) fn pointer(&self, memory: &RmMemory) -> Result<NonNull<u8>> {
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping.pointer());
        }
        let _alone = self.alone.lock();
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping.pointer());
        }
        let mapping = CpuMapping::new(memory)?;
        Ok(self.mapping.get_or_init(|| mapping).pointer())
    }
}

impl Drop for CpuMapping {
    fn drop(&mut self) {
        if self.mapping.take().is_some() {
            self.gpu.unmap_object(self.object, self.linear);
        }
    }
}

/// An RM memory object, mapped for the CPU. A [`GpuMapping`] maps it for the GPU.
#[derive(Debug)]
pub(crate) struct CpuMemory {
    // Before `memory`: RM does not free a mapped object.
    mapping: CpuMapping,
    memory: RmMemory,
}

impl CpuMemory {
    /// Allocates and maps at least `bytes` bytes.
    pub(crate) fn new(gpu: &Arc<Gpu>, place: Place, bytes: u64) -> Result<Self> {
        let memory = RmMemory::new(gpu, place, bytes)?;
        Ok(Self { mapping: CpuMapping::new(&memory)?, memory })
    }

    pub(crate) fn object(&self) -> Object {
        self.memory.object
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.mapping.pointer()
    }
}

fn allocate(gpu: &Gpu, place: Place, size: u64, page: u64) -> Result<Object> {
    let mut parameters = alloc::Memory {
        owner: gpu.rm().client().0,
        flags: ALLOC_FLAGS,
        attr: ATTR_PREFER_CONTIGUOUS,
        format: FORMAT_PITCH,
        size,
        alignment: page,
        limit: size - 1,
        ..Default::default()
    };
    match place {
        Place::Video => {
            parameters.flags |= ALLOC_PERSISTENT;
            parameters.attr2 = ATTR2_GPU_CACHED;
            if page == LARGE_PAGE {
                parameters.attr |= ATTR_PAGE_HUGE;
                parameters.attr2 |= ATTR2_HUGE_2M;
            }
            gpu.rm().alloc(gpu.device(), &alloc::MEMORY_VIDEO, &mut parameters)
        }
        Place::System => {
            parameters.kind = TYPE_NOTIFIER;
            parameters.alignment = CPU_PAGE;
            parameters.attr |= ATTR_SYSTEM | ATTR_CACHED;
            parameters.attr2 = ATTR2_GPU_UNCACHED;
            gpu.rm().alloc(gpu.device(), &alloc::MEMORY_SYSTEM, &mut parameters)
        }
    }
}

/// A mapping of a memory object in the GPU's address space.
#[derive(Debug)]
pub(crate) struct GpuMapping {
    gpu: Arc<Gpu>,
    // Taken on drop.
    reserved: Option<Reserved>,
    bytes: u64,
}

impl GpuMapping {
    /// Maps `bytes` bytes of `object`.
    pub(crate) fn new(gpu: &Arc<Gpu>, object: Object, bytes: u64) -> Result<Self> {
        Self::at(gpu, gpu.space().reserve(bytes)?, object, bytes)
    }

    /// Maps `bytes` bytes of `object` at addresses that were reserved for it.
    fn at(gpu: &Arc<Gpu>, reserved: Reserved, object: Object, bytes: u64) -> Result<Self> {
        match gpu.space().map(reserved.va(), bytes, gpu.rm(), (object, 0)) {
            Ok(()) => Ok(Self { gpu: Arc::clone(gpu), reserved: Some(reserved), bytes }),
            Err(error) => {
                gpu.space().release(reserved);
                Err(error)
            }
        }
    }

    /// First GPU address.
    pub(crate) fn va(&self) -> u64 {
        self.reserved.as_ref().map_or(0, Reserved::va)
    }
}

impl GpuMapping {
    /// Unmaps the memory and frees the addresses; has no effect the second time.
    fn unmap(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.gpu.space().unmap(reserved.va(), self.bytes);
            self.gpu.space().release(reserved);
        }
    }
}

impl Drop for GpuMapping {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// Memory allocated by the driver and mapped for the GPU; mapped for the CPU at the first [`Memory::cpu`].
///
/// Mapping for the CPU takes a file, two system calls and time in proportion to the size. Most buffers of kernels never
/// need it.
#[derive(Debug)]
pub struct Memory {
    // Both mappings before `memory`: RM does not free a mapped object.
    cpu: LateMapping,
    mapped: Arc<Mapped>,
}

/// Memory with its mapping on its own GPU.
#[derive(Debug)]
struct Mapped {
    mapping: GpuMapping,
    memory: RmMemory,
}

/// Memory that other GPUs may map: see [`PeerMemory`]. The memory is allocated, and its address is in use, as long
/// as a value exists.
#[derive(Clone, Debug)]
pub struct SharedMemory(Arc<Mapped>);

impl Memory {
    /// Allocates at least `bytes` bytes, in pages of 64 KiB, or of 2 MiB if the size is at least 2 MiB.
    ///
    /// # Errors
    ///
    /// If memory or addresses are exhausted ([`Error::is_out_of_memory`]), or if the driver rejects a step.
    pub fn new(gpu: &Arc<Gpu>, place: Place, bytes: u64) -> Result<Self> {
        let memory = RmMemory::new(gpu, place, bytes)?;
        let mapping = GpuMapping::new(gpu, memory.object, memory.bytes)?;
        let mapped = Arc::new(Mapped { mapping, memory });
        Ok(Self { cpu: LateMapping::default(), mapped })
    }

    /// Maps the memory that a file of [`Memory::export`] stands for, of this or another process. The file may be closed
    /// afterwards. No privileges are needed.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the file is none of an RM object; [`Error::ForeignMemory`] if the object is neither video
    /// nor system memory; as [`Memory::new`] otherwise.
    pub fn import(gpu: &Arc<Gpu>, file: BorrowedFd<'_>) -> Result<Self> {
        let memory = RmMemory::import(gpu, file)?;
        let mapping = GpuMapping::new(gpu, memory.object, memory.bytes)?;
        let mapped = Arc::new(Mapped { mapping, memory });
        Ok(Self { cpu: LateMapping::default(), mapped })
    }

    /// A file that stands for the memory, for [`Memory::import`] in any process that opens the same GPU. The memory
    /// exists as long as the file.
    ///
    /// # Errors
    ///
    /// If the driver rejects a step, or if the process has too many open files.
    pub fn export(&self) -> Result<OwnedFd> {
        self.mapped.memory.export()
    }

    /// Allocates at least `bytes` bytes of system memory that [`Memory::cpu`] maps at the address that
    /// [`Memory::gpu_va`] has. All GPU addresses are below 2^40, where most processes have no mappings.
    ///
    /// # Errors
    ///
    /// As [`Memory::new`]; [`Error::Occupied`].
    pub fn unified(gpu: &Arc<Gpu>, bytes: u64) -> Result<Self> {
        let memory = RmMemory::new(gpu, Place::System, bytes)?;
        let (reserved, mut range) = gpu.space().reserve_common(memory.bytes)?;
        let mapping = GpuMapping::at(gpu, reserved, memory.object, memory.bytes)?;
        let cpu = CpuMapping::new_in(&memory, Some(&mut range))?;
        let mapped = Arc::new(Mapped { mapping, memory });
        Ok(Self { cpu: LateMapping { mapping: cpu.into(), alone: Mutex::default() }, mapped })
    }

    /// The memory, for a mapping on another GPU.
    pub fn share(&self) -> SharedMemory {
        SharedMemory(Arc::clone(&self.mapped))
    }

    /// First GPU address.
    pub fn gpu_va(&self) -> u64 {
        self.mapped.mapping.va()
    }

    /// Pointer to the first byte, valid for [`Memory::bytes`] bytes while `self` is alive. Maps the memory at the first
    /// call.
    ///
    /// # Errors
    ///
    /// If BAR1 is exhausted ([`Error::is_out_of_memory`]), or if the driver or the kernel rejects the mapping.
    pub fn cpu(&self) -> Result<NonNull<u8>> {
        self.cpu.pointer(&self.mapped.memory)
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.mapped.memory.bytes
    }
}

/// Memory of another GPU, or of the same GPU opened again, mapped at the address where its owner sees it.
///
/// ```
/// use std::sync::Arc;
///
/// use nvrm::{Gpu, Memory, PeerMemory, Place};
///
/// /// Memory of `owner` that `user` accesses as well.
/// fn shared(owner: &Arc<Gpu>, user: &Arc<Gpu>) -> nvrm::Result<(Memory, PeerMemory)> {
///     user.connect(owner)?;
///     let memory = Memory::new(owner, Place::Video, 1 << 20)?;
///     let mapping = PeerMemory::new(user, &memory.share())?;
///     assert_eq!(mapping.gpu_va(), memory.gpu_va());
///     Ok((memory, mapping))
/// }
/// ```
#[derive(Debug)]
pub struct PeerMemory {
    gpu: Arc<Gpu>,
    // Keeps the memory and its address.
    shared: SharedMemory,
}

impl PeerMemory {
    /// Maps memory of another GPU, after [`Gpu::connect`].
    ///
    /// # Errors
    ///
    /// If the GPUs are not connected, or not peers and the memory is video memory: then the driver answers
    /// `NV_ERR_INVALID_DEVICE`.
    pub fn new(gpu: &Arc<Gpu>, shared: &SharedMemory) -> Result<Self> {
        let Mapped { mapping, memory } = &*shared.0;
        gpu.space().map(mapping.va(), memory.bytes, memory.gpu.rm(), (memory.object, 0))?;
        Ok(Self { gpu: Arc::clone(gpu), shared: shared.clone() })
    }

    /// First GPU address, on both GPUs.
    pub fn gpu_va(&self) -> u64 {
        self.shared.0.mapping.va()
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.shared.0.memory.bytes
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        self.gpu.space().unmap(self.gpu_va(), self.bytes());
    }
}

/// Memory of the process, mapped for the GPU.
#[derive(Debug)]
pub struct HostImport {
    mapping: GpuMapping,
    gpu: Arc<Gpu>,
    object: Object,
    pointer: NonNull<u8>,
    bytes: u64,
}

// SAFETY: the pointer is an address of the whole process; code that dereferences it has to synchronise.
unsafe impl Send for HostImport {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostImport {}

impl HostImport {
    /// Pins memory of the process and maps it for the GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Unaligned`]; otherwise if the driver cannot pin the pages.
    ///
    /// # Safety
    ///
    /// `bytes` bytes at `pointer`, and the rest of their last page, are mapped writable, and remain so, with the same
    /// physical pages, until the result is dropped: no unmap, no remap, no fork with later writes.
    pub unsafe fn new(gpu: &Arc<Gpu>, pointer: NonNull<u8>, bytes: usize) -> Result<Self> {
        let address = pointer.as_ptr().expose_provenance();
        if bytes == 0 || !(address as u64).is_multiple_of(CPU_PAGE) {
            return Err(Error::Unaligned { address, bytes, page: CPU_PAGE });
        }
        let size = (bytes as u64).next_multiple_of(CPU_PAGE);
        let object = gpu.next_handle();
        let mut argument = escape::RmAllocMemory {
            root: gpu.rm().client().0,
            parent: gpu.device().0,
            handle: object.0,
            class: alloc::MEMORY_HOST,
            flags: escape::HOST_MEMORY_FLAGS,
            memory: address as u64,
            limit: size - 1,
            fd: -1,
            ..Default::default()
        };
        // SAFETY: the caller guarantees that the memory is mapped.
        unsafe { rm::escape(gpu.file(), "RM_ALLOC_MEMORY", escape::RM_ALLOC_MEMORY, &mut argument) }?;
        rm::check("RM_ALLOC_MEMORY", "memory of the process", argument.status)?;
        match GpuMapping::new(gpu, object, size) {
            Ok(mapping) => Ok(Self { mapping, gpu: Arc::clone(gpu), object, pointer, bytes: size }),
            Err(error) => {
                gpu.rm().free_or_log(gpu.device(), object, "imported memory");
                Err(error)
            }
        }
    }

    /// First GPU address.
    pub fn gpu_va(&self) -> u64 {
        self.mapping.va()
    }

    /// Pointer to the first byte.
    pub fn cpu(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Size in bytes, a multiple of the page size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for HostImport {
    fn drop(&mut self) {
        // RM does not free a mapped object.
        self.mapping.unmap();
        self.gpu.rm().free_or_log(self.gpu.device(), self.object, "imported memory");
    }
}

// SAFETY: the value owns the allocation and both of its mappings, of `bytes` bytes.
unsafe impl gpu_hal::DeviceMemory for Memory {
    fn gpu_va(&self) -> u64 {
        Self::gpu_va(self)
    }

    fn cpu(&self) -> gpu_hal::Result<NonNull<u8>> {
        Ok(Self::cpu(self)?)
    }

    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }

    fn token(&self) -> Option<gpu_hal::Token> {
        Some(Arc::new(self.share()))
    }

    fn export(&self, access: gpu_hal::FileAccess) -> gpu_hal::Result<OwnedFd> {
        if !access.is_writable() {
            return Err(gpu_hal::Error::Unsupported("read-only files of memory"));
        }
        Ok(Self::export(self)?)
    }
}

// SAFETY: the value owns its mapping and keeps the memory, of `bytes` bytes, allocated. The CPU has no mapping.
unsafe impl gpu_hal::DeviceMemory for PeerMemory {
    fn gpu_va(&self) -> u64 {
        Self::gpu_va(self)
    }

    fn cpu(&self) -> gpu_hal::Result<NonNull<u8>> {
        Err(gpu_hal::Error::Unsupported("a CPU mapping of another GPU's memory"))
    }

    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }
}

// SAFETY: the importer keeps the pages mapped while the value is alive, which owns the GPU mapping.
unsafe impl gpu_hal::DeviceMemory for HostImport {
    fn gpu_va(&self) -> u64 {
        Self::gpu_va(self)
    }

    fn cpu(&self) -> gpu_hal::Result<NonNull<u8>> {
        Ok(Self::cpu(self))
    }

    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }
}
