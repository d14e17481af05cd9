//! GPU address spaces.
//!
//! The kernel hands out addresses of the user range and keeps the 4 GiB behind it for itself: rings,
//! engine contexts and syncpoints are mapped there. All pages are 4 KiB on ga10b.

mod reservation;

use std::sync::Arc;

use nvgpu_sys::DoorFd;
use nvgpu_sys::address_space::{self as sys, MapBufferFlags};
use nvgpu_sys::ctrl;
use nvmap::Buffer;

use crate::error::{self, Error};
use crate::gpu::Gpu;
use crate::va::{GPU_PAGE, GpuVa, VA_END, VA_START};

pub use reservation::{Placement, Reservation};

/// Unmaps or maps of one MAP_BUFFER_BATCH (`ioctl_as.c`).
const BATCH: usize = 256;

/// What the GPU may do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Access {
    /// What the dma-buf's descriptor allows; read and write for every buffer of `nvmap`.
    #[default]
    FromBuffer,
    /// Read only; a write is an MMU fault.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// How a buffer is mapped. The default is what was measured to work for every kind of buffer on an
/// Orin: no caching in the GPU's L2, access as the buffer allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MapOptions {
    /// Cache in the GPU's L2. The CPU's writes are then not seen, nor the GPU's by the CPU, without
    /// [`Gpu::flush_l2`] or a cache method between.
    pub gpu_cached: bool,
    /// Snoop the CPU's caches through the coherent aperture.
    pub coherent: bool,
    /// Allocate in the system cache.
    pub system_cached: bool,
    /// What the GPU may do.
    pub access: Access,
}

impl MapOptions {
    fn flags(self) -> u32 {
        let mut flags = MapBufferFlags::empty();
        flags.set(MapBufferFlags::CACHEABLE, self.gpu_cached);
        flags.set(MapBufferFlags::SYSTEM_COHERENT, self.coherent);
        flags.set(MapBufferFlags::L3_ALLOC, self.system_cached);
        let access = match self.access {
            Access::FromBuffer => sys::ACCESS_DEFAULT,
            Access::ReadOnly => sys::ACCESS_READ_ONLY,
            Access::ReadWrite => sys::ACCESS_READ_WRITE,
        };
        flags.bits() | access << sys::ACCESS_SHIFT
    }
}

/// A GPU address space.
///
/// Cloning is cheap and means the same address space. It lives until the last clone, mapping,
/// reservation and channel is gone.
#[derive(Clone, Debug)]
pub struct AddressSpace {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fd: DoorFd,
}

impl Gpu {
    /// Creates an address space.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn address_space(&self) -> Result<AddressSpace, Error> {
        let mut argument = ctrl::AllocAs {
            flags: ctrl::AllocAsFlags::UNIFIED_VA.bits(),
            va_range_start: VA_START.0,
            va_range_end: VA_END.0,
            ..ctrl::AllocAs::default()
        };
        ctrl::ALLOC_AS
            .send(self.ctrl(), &mut argument)
            .map_err(error::call(ctrl::ALLOC_AS.name(), "the address space"))?;
        Ok(AddressSpace { shared: Arc::new(Shared { fd: DoorFd::from_raw(self.door(), argument.as_fd) }) })
    }
}

impl AddressSpace {
    /// Maps all of `buffer` at an address of the kernel's choice. Mapping a buffer again with the
    /// same options gives the same address.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENOMEM` when no range of addresses is left.
    pub fn map(&self, buffer: &Arc<Buffer>, options: MapOptions) -> Result<Mapping, Error> {
        let argument = sys::MapBufferEx { flags: options.flags(), ..plain(buffer) };
        let va = self.send_map(buffer, argument)?;
        // CAST: a size has at most 64 bits.
        Ok(Mapping::new(va, buffer.size() as u64, buffer, self, None))
    }

    /// Undoes many mappings with one system call for each 256 of them.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; what is then left is undone one by one. [`Error::Range`] for a mapping of
    /// another address space, without any effect.
    pub fn unmap_batch(&self, mut mappings: Vec<Mapping>) -> Result<(), Error> {
        let foreign = mappings.iter().find(|mapping| !Arc::ptr_eq(&mapping.space.shared, &self.shared));
        if let Some(mapping) = foreign {
            let rule = "it belongs to another address space";
            return Err(Error::Range { what: "mapping", value: mapping.va.0, rule });
        }
        for batch in mappings.chunks_mut(BATCH) {
            let unmaps: Vec<_> =
                batch.iter().map(|mapping| sys::UnmapBuffer { offset: mapping.va.0 }).collect();
            sys::map_buffer_batch(&self.shared.fd, &unmaps, &[])
                .map_err(error::call(sys::MAP_BUFFER_BATCH.name(), format!("{} mappings", unmaps.len())))?;
            batch.iter_mut().for_each(|mapping| mapping.mapped = false);
        }
        Ok(())
    }

    /// Where the GPU reads all syncpoints: the kernel maps the window with the first call.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENOMEM` when the kernel's range has no room for its 64 MiB.
    pub fn syncpoint_window(&self) -> Result<SyncpointWindow, Error> {
        let mut argument = sys::GetSyncRoMap::default();
        sys::GET_SYNC_RO_MAP
            .send(&self.shared.fd, &mut argument)
            .map_err(error::call(sys::GET_SYNC_RO_MAP.name(), "the address space"))?;
        Ok(SyncpointWindow {
            base: GpuVa(argument.base_gpuva),
            stride: argument.sync_size,
            count: argument.num_syncpoints,
        })
    }

    /// The user range as the kernel reports it: first address and length in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn user_range(&self) -> Result<(GpuVa, u64), Error> {
        let mut regions = [sys::VaRegion::default(); 2];
        sys::get_va_regions(&self.shared.fd, &mut regions)
            .map_err(error::call(sys::GET_VA_REGIONS.name(), "the address space"))?;
        // ga10b has one page size and one region.
        let region = regions[0];
        Ok((GpuVa(region.offset), region.pages * u64::from(region.page_size)))
    }

    /// The descriptor, for requests that take one.
    pub(crate) fn fd(&self) -> &DoorFd {
        &self.shared.fd
    }

    fn send_map(&self, buffer: &Buffer, mut argument: sys::MapBufferEx) -> Result<GpuVa, Error> {
        sys::MAP_BUFFER_EX
            .send(&self.shared.fd, &mut argument)
            .map_err(|errno| error::call(sys::MAP_BUFFER_EX.name(), describe(buffer))(errno))?;
        Ok(GpuVa(argument.offset))
    }
}

/// The argument common to all mappings of `buffer`.
fn plain(buffer: &Buffer) -> sys::MapBufferEx {
    sys::MapBufferEx {
        compr_kind: sys::KIND_INVALID,
        incompr_kind: sys::KIND_PITCH,
        dmabuf_fd: buffer.dma_buf().cast_unsigned(),
        page_size: sys::PAGE_SIZE,
        ..sys::MapBufferEx::default()
    }
}

fn describe(buffer: &Buffer) -> String {
    format!("buffer \"{}\" ({} bytes)", buffer.label(), buffer.size())
}

pub(crate) fn whole_pages(what: &'static str, value: u64) -> Result<(), Error> {
    if value == 0 || !value.is_multiple_of(GPU_PAGE) {
        return Err(Error::Range {
            what,
            value,
            rule: "it must be a whole number of 4096-byte pages, not 0",
        });
    }
    Ok(())
}

/// The read-only window over all syncpoints, in which a semaphore acquire waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncpointWindow {
    /// Address of syncpoint 0.
    pub base: GpuVa,
    /// Bytes from one to the next.
    pub stride: u32,
    /// Number of syncpoints.
    pub count: u32,
}

impl SyncpointWindow {
    /// Address of syncpoint `id`, if there is one.
    pub fn address(&self, id: u32) -> Option<GpuVa> {
        if id < self.count { self.base.checked_add(u64::from(id) * u64::from(self.stride)) } else { None }
    }
}

/// A buffer in a GPU address space; unmapped on drop.
///
/// Keeps the buffer and the address space alive. The kernel does not wait for the GPU when a mapping
/// goes: dropping one that work in flight uses is an MMU fault, which takes the channel down.
#[derive(Debug)]
pub struct Mapping {
    va: GpuVa,
    len: u64,
    buffer: Arc<Buffer>,
    space: AddressSpace,
    /// Kept so that the range outlives the mapping, with the offset in it.
    reservation: Option<(Reservation, u64)>,
    /// Whether the kernel has it, or may have.
    mapped: bool,
}

impl Mapping {
    fn new(
        va: GpuVa,
        len: u64,
        buffer: &Arc<Buffer>,
        space: &AddressSpace,
        reservation: Option<(Reservation, u64)>,
    ) -> Self {
        let (buffer, space) = (Arc::clone(buffer), space.clone());
        Self { va, len, buffer, space, reservation, mapped: true }
    }

    /// First address.
    pub fn va(&self) -> GpuVa {
        self.va
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the mapping has no bytes; never the case.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The buffer that is mapped.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// The reservation that it lies in, if it was mapped at a chosen address.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref().map(|(range, _)| range)
    }

    /// Undoes the mapping now, and says what became of it; dropping does the same and only logs.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]. The kernel reports no failure of the unmapping itself.
    pub fn unmap(mut self) -> Result<(), Error> {
        self.send_unmap().map_err(error::call(sys::UNMAP_BUFFER.name(), describe(&self.buffer)))
    }

    fn send_unmap(&mut self) -> Result<(), nvgpu_sys::Errno> {
        if !core::mem::take(&mut self.mapped) {
            return Ok(());
        }
        let mut argument = sys::UnmapBuffer { offset: self.va.0 };
        sys::UNMAP_BUFFER.send(&self.space.shared.fd, &mut argument).map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Err(errno) = self.send_unmap() {
            tracing::warn!(va = %self.va, %errno, "NVGPU_AS_IOCTL_UNMAP_BUFFER failed");
        }
        if let Some((range, offset)) = &self.reservation {
            range.forget(*offset);
        }
    }
}
