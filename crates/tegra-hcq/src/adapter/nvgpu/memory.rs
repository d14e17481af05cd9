//! Memory of an Orin: one nvmap buffer, or several that appear as one.
//!
//! From r36.4.7 on, the kernel refuses a buffer that is larger than what it regards as available, and on any release a
//! large buffer fails if the memory is fragmented. Memory above [`PART_BYTES`] therefore consists of several buffers,
//! the parts, mapped side by side on the GPU and on the CPU. Everything above this module sees one range of addresses.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use gpu_hal::{AddressRange, DeviceMemory, Error, FileAccess, FileId, Result, Shortage};
use kernel_door::{Door, DoorRange};
use nvgpu_channel::{Access, AddressSpace, GpuVa, MapOptions, Mapping, Placement, Reservation};
use nvmap::{Buffer, BufferBuilder, DmaBuf, DmaBufFile, Nvmap};

/// Size of a part in bytes; the last part of a buffer is smaller. A multiple of 2 MiB, the alignment of large nvmap
/// buffers.
///
/// Smaller parts survive more fragmentation. But each costs its requests, and a descriptor, of which a process has 1024
/// by default: 64 GiB are 256 parts.
pub(super) const PART_BYTES: u64 = 256 << 20;

/// nvmap buffers with consecutive addresses on the GPU and on the CPU.
#[derive(Debug)]
pub(super) struct NvgpuMemory {
    first: Mapping,
    others: Vec<Mapping>,
}

impl NvgpuMemory {
    /// Maps one buffer at an address that the kernel chooses.
    pub(super) fn map(space: &AddressSpace, buffer: Buffer, options: MapOptions) -> Result<Self> {
        Ok(Self { first: space.map(&Arc::new(buffer), options)?, others: Vec::new() })
    }

    /// Allocates at least `bytes` bytes; `buffer` creates a builder for a size.
    pub(super) fn allocate<'a>(
        nvmap: &'a Nvmap,
        space: &AddressSpace,
        bytes: u64,
        buffer: impl Fn(u64) -> BufferBuilder<'a>,
        options: MapOptions,
    ) -> Result<Self> {
        if bytes <= PART_BYTES {
            return Self::map(space, buffer(bytes).allocate()?, options);
        }
        let (parts, len) = allocate_parts(nvmap, bytes, buffer)?;
        Self::compose(&space.reserve(len, false)?, Buffer::side_by_side(parts)?, options)
    }

    /// As [`NvgpuMemory::allocate`], for memory that the CPU sees at the address that the GPU has for it.
    pub(super) fn unified<'a>(
        nvmap: &'a Nvmap,
        space: &AddressSpace,
        bytes: u64,
        buffer: impl Fn(u64) -> BufferBuilder<'a>,
        options: MapOptions,
    ) -> Result<Self> {
        let (parts, len) = allocate_parts(nvmap, bytes, buffer)?;
        let (reservation, range) = reserve_common(space, len)?;
        Self::compose(&reservation, Buffer::side_by_side_in(range, parts)?, options)
    }

    /// Maps buffers side by side on the GPU.
    fn compose(reservation: &Reservation, buffers: Vec<Buffer>, options: MapOptions) -> Result<Self> {
        let buffers: Vec<_> = buffers.into_iter().map(Arc::new).collect();
        let (mut places, mut len) = (Vec::new(), 0);
        for buffer in &buffers {
            places.push(Placement { offset: len, buffer, buffer_offset: 0, len: size(buffer), options });
            len += size(buffer);
        }
        let mut mappings = reservation.map_batch(&places)?.into_iter();
        match mappings.next() {
            Some(first) => Ok(Self { first, others: mappings.collect() }),
            None => Err(Error::ShortAllocation { wanted: len, returned: 0 }),
        }
    }
}

/// Allocates the parts of at least `bytes` bytes, and returns the sum of their sizes.
fn allocate_parts<'a>(
    nvmap: &'a Nvmap,
    bytes: u64,
    buffer: impl Fn(u64) -> BufferBuilder<'a>,
) -> Result<(Vec<DmaBuf>, u64)> {
    // Without this check, the kernel would evict its caches, and on old releases end programs, before it fails.
    if bytes > PART_BYTES
        && let Ok(available) = nvmap.system_memory().map(|usage| usage.largest_allocation())
        && bytes > available
    {
        return Err(nvmap::Error::Unavailable { size: bytes, available }.into());
    }
    let (mut parts, mut len) = (Vec::new(), 0);
    // CAST: a part fits in 32 bits.
    for done in (0..bytes.max(1)).step_by(PART_BYTES as usize) {
        let part = buffer(PART_BYTES.min(bytes - done)).allocate_unmapped();
        let part = part.map_err(|error| Error::from(error).fitting(done))?;
        len += part.size() as u64;
        parts.push(part);
    }
    Ok((parts, len))
}

/// Where the search for an address begins that the process has free as well, if it uses those that the kernel chose:
/// below all that the kernel chooses, and above what a process has there.
const COMMON_BELOW: u64 = 0xe0_0000_0000;
/// Distance between two addresses of the search in bytes.
const COMMON_STEP: u64 = 64 << 20;
/// Number of addresses that are tried.
const COMMON_ATTEMPTS: u64 = 256;
/// Number of addresses that the process has tried. Several devices have separate GPU addresses, but one process.
static COMMON_TRIED: AtomicU64 = AtomicU64::new(0);

/// Reserves `len` bytes of addresses on the GPU that the process has free as well, in both.
fn reserve_common(space: &AddressSpace, len: u64) -> Result<(Reservation, DoorRange)> {
    // CAST: a process has 64-bit addresses.
    let on_cpu = |reservation: &Reservation| DoorRange::reserve_at(reservation.va().0 as usize, len as usize);
    let reservation = space.reserve(len, false)?;
    if let Ok(range) = on_cpu(&reservation) {
        return Ok((reservation, range));
    }
    drop(reservation);
    let steps = len.div_ceil(COMMON_STEP);
    let most = COMMON_BELOW / COMMON_STEP - 1;
    for _ in 0..COMMON_ATTEMPTS {
        // The search begins anew when it has reached the lowest addresses.
        let below = COMMON_TRIED.fetch_add(steps, Ordering::Relaxed) % most + steps;
        let Some(va) = COMMON_BELOW.checked_sub(below.saturating_mul(COMMON_STEP)) else { continue };
        if let Ok(reservation) = space.reserve_fixed(GpuVa(va), len, false)
            && let Ok(range) = on_cpu(&reservation)
        {
            return Ok((reservation, range));
        }
    }
    let text = format!("the process itself uses the addresses that the GPU has free for {len} bytes");
    Err(Error::out_of_memory(text, Some(Shortage::Addresses)))
}

/// Size in bytes.
fn size(buffer: &Buffer) -> u64 {
    // CAST: usize is at most 64 bits.
    buffer.size() as u64
}

// SAFETY: the mappings keep the buffers allocated, mapped for the CPU and mapped at their GPU addresses. Both kinds of
// addresses are consecutive: `side_by_side` and the places in the reservation.
unsafe impl DeviceMemory for NvgpuMemory {
    fn gpu_va(&self) -> u64 {
        self.first.va().0
    }

    fn cpu(&self) -> Result<NonNull<u8>> {
        Ok(self.first.buffer().pointer())
    }

    fn bytes(&self) -> u64 {
        size(self.first.buffer()) + self.others.iter().map(Mapping::len).sum::<u64>()
    }

    fn export(&self, access: FileAccess) -> Result<OwnedFd> {
        let buffer = self.first.buffer();
        if !self.others.is_empty() {
            return Err(Error::Unsupported("one file of memory that consists of several dma-bufs"));
        }
        if access.is_writable() {
            return super::duplicate(buffer.as_fd()).map_err(Into::into);
        }
        let read_only = buffer.as_dma_buf().duplicate(nvmap::Access::ReadOnly)?;
        super::duplicate(read_only.as_fd()).map_err(Into::into)
    }

    fn file_id(&self) -> Option<FileId> {
        file_id(self.first.buffer().as_fd()).ok()
    }
}

/// Identity of a dma-buf: its inode, which all of its descriptors have.
pub(super) fn file_id(file: BorrowedFd<'_>) -> Result<FileId> {
    let stat = rustix::fs::fstat(file).map_err(super::refused("fstat"))?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A dma-buf of any driver.
#[derive(Debug)]
pub(super) struct NvgpuFile {
    mapping: Mapping<DmaBufFile>,
    /// Offset of the mapping in the file in bytes.
    from: usize,
}

impl NvgpuFile {
    /// Maps a file at an address that the kernel chooses.
    pub(super) fn map(
        space: &AddressSpace,
        file: DmaBufFile,
        access: FileAccess,
        options: MapOptions,
    ) -> Result<Self> {
        let options = with_access(&file, access, options)?;
        Ok(Self { mapping: space.map(&Arc::new(file), options)?, from: 0 })
    }

    fn file(&self) -> &DmaBufFile {
        self.mapping.buffer()
    }
}

/// Options for an access that a file must allow.
fn with_access(file: &DmaBufFile, access: FileAccess, options: MapOptions) -> Result<MapOptions> {
    if access.is_writable() && !file.access().is_writable() {
        return Err(nvmap::Error::ReadOnly { label: file.label().to_owned() }.into());
    }
    let access = if access.is_writable() { Access::ReadWrite } else { Access::ReadOnly };
    Ok(MapOptions { access, ..options })
}

/// Reserved addresses.
#[derive(Debug)]
pub(super) struct NvgpuRange {
    reservation: Reservation,
    door: Arc<dyn Door>,
    options: MapOptions,
}

impl NvgpuRange {
    pub(super) fn new(reservation: Reservation, door: Arc<dyn Door>, options: MapOptions) -> Self {
        Self { reservation, door, options }
    }
}

// SAFETY: as for `NvgpuFile`; a mapping keeps the reservation.
unsafe impl AddressRange for NvgpuRange {
    fn gpu_va(&self) -> u64 {
        self.reservation.va().0
    }

    fn map_file(
        &self,
        file: BorrowedFd<'_>,
        access: FileAccess,
        offset: u64,
        from: u64,
        bytes: u64,
    ) -> Result<Box<dyn DeviceMemory>> {
        let file = DmaBufFile::new(&self.door, file, "mapped memory")?;
        let options = with_access(&file, access, self.options)?;
        let mapping = self.reservation.map(offset, &Arc::new(file), from, bytes, options)?;
        // CAST: inside of the file, whose size is a usize.
        Ok(Box::new(NvgpuFile { mapping, from: from as usize }))
    }
}

fn cpu_access(access: FileAccess) -> nvmap::Access {
    if access.is_writable() { nvmap::Access::ReadWrite } else { nvmap::Access::ReadOnly }
}

// SAFETY: the mappings keep the memory allocated, at one address each for the CPU and the GPU.
unsafe impl DeviceMemory for NvgpuFile {
    fn gpu_va(&self) -> u64 {
        self.mapping.va().0
    }

    fn cpu(&self) -> Result<NonNull<u8>> {
        let first = self.file().map()?.pointer();
        // SAFETY: the driver has checked that the mapping is inside of the file.
        Ok(unsafe { first.add(self.from) })
    }

    fn bytes(&self) -> u64 {
        self.mapping.len()
    }

    fn export(&self, access: FileAccess) -> Result<OwnedFd> {
        if access.is_writable() && !self.file().access().is_writable() {
            return Err(nvmap::Error::ReadOnly { label: self.file().label().to_owned() }.into());
        }
        if !access.is_writable() && self.file().access().is_writable() {
            return Err(Error::Unsupported("a read-only file of memory that another driver has allocated"));
        }
        super::duplicate(self.file().as_fd()).map_err(Into::into)
    }

    fn file_id(&self) -> Option<FileId> {
        file_id(self.file().as_fd()).ok()
    }

    fn begin_cpu(&self, access: FileAccess) -> Result<()> {
        Ok(self.file().begin_cpu(cpu_access(access))?)
    }

    fn end_cpu(&self, access: FileAccess) -> Result<()> {
        Ok(self.file().end_cpu(cpu_access(access))?)
    }
}
