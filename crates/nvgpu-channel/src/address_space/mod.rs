//! GPU address spaces.
//!
//! The kernel allocates addresses in the user range, and reserves the 4 GiB above it for rings, engine
//! contexts and syncpoints. All pages are 4 KiB on ga10b.

mod reservation;

use std::os::fd::RawFd;
use std::sync::Arc;

use kernel_door::DoorFd;
use nvgpu_sys::address_space::{self as sys, MapBufferFlags};
use nvgpu_sys::ctrl;
use nvmap::{Buffer, DmaBufFile};

use crate::error::{self, Error};
use crate::gpu::Gpu;
use crate::va::{GPU_PAGE, GpuVa, VA_END, VA_START};

pub use reservation::{Placement, Reservation};

/// Maximum number of unmaps or maps per MAP_BUFFER_BATCH (`ioctl_as.c`).
const BATCH: usize = 256;

/// Access rights of a GPU mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Access {
    /// The rights of the dma-buf's descriptor; read and write for every buffer of `nvmap`.
    #[default]
    FromBuffer,
    /// Read only; a write raises an MMU fault.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// Options of a GPU mapping. The default works for every kind of buffer on an Orin, as measured: no
/// caching in the GPU's L2, access rights of the buffer.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// # let space = gpu.address_space()?;
/// # let buffer = Arc::new(gpu.nvmap().buffer(8192).allocate()?);
/// use nvgpu_channel::MapOptions;
///
/// let mapping = space.map(&buffer, MapOptions { gpu_cached: true, ..MapOptions::default() })?;
/// assert_eq!(mapping.len(), 8192);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MapOptions {
    /// Cache in the GPU's L2. CPU and GPU then only see each other's writes after [`Gpu::flush_l2`] or a
    /// cache method.
    pub gpu_cached: bool,
    /// Snoop the CPU's caches through the coherent aperture.
    pub coherent: bool,
    /// Allocate in the system cache.
    pub system_cached: bool,
    /// Access rights of the GPU.
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

/// Memory that a GPU address space can map: a dma-buf.
///
/// # Safety
///
/// The descriptor is that of the value's memory, which has the size, and stays open as long as the value.
pub unsafe trait MapSource {
    /// The descriptor.
    fn raw_fd(&self) -> RawFd;
    /// Size in bytes, a whole number of pages.
    fn size(&self) -> usize;
    /// Label for messages.
    fn label(&self) -> &str;
}

/// Implements the trait with the methods of the type.
macro_rules! map_sources {
    ($($source:ty, $fd:ident;)*) => {$(
        // SAFETY: the value owns the descriptor of its memory.
        unsafe impl MapSource for $source {
            fn raw_fd(&self) -> RawFd {
                self.$fd()
            }

            fn size(&self) -> usize {
                self.size()
            }

            fn label(&self) -> &str {
                self.label()
            }
        }
    )*};
}

map_sources! {
    Buffer, dma_buf;
    DmaBufFile, raw_fd;
}

/// A GPU address space.
///
/// Clones refer to the same address space, which exists until the last clone, mapping, reservation and
/// channel are dropped.
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
        // SAFETY: the request returned a new descriptor.
        let fd = unsafe { DoorFd::from_raw(self.door(), argument.as_fd) };
        Ok(AddressSpace { shared: Arc::new(Shared { fd }) })
    }
}

impl AddressSpace {
    /// Maps all of `buffer` at an address that the kernel chooses. Mapping a dma-buf again with the same
    /// options returns the same address.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENOMEM` if no address range is free, `EINVAL` if the descriptor is no dma-buf or does not
    /// allow the access. For memory of another driver also the errno with which that driver refuses the GPU; the kernel
    /// log then has `Failed to attach dma_buf` or `Failed to map attachment` (`dmabuf.c:nvgpu_mm_pin`).
    pub fn map<B: MapSource>(&self, buffer: &Arc<B>, options: MapOptions) -> Result<Mapping<B>, Error> {
        let argument = sys::MapBufferEx { flags: options.flags(), ..plain(&**buffer) };
        let va = self.send_map(&**buffer, argument)?;
        // CAST: a size has at most 64 bits.
        Ok(Mapping::new(va, buffer.size() as u64, buffer, self, None))
    }

    /// Unmaps many mappings, with one system call per 256.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; the remaining mappings are then unmapped one by one. [`Error::Range`] for a mapping
    /// of another address space, before any system call.
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

    /// Returns the read-only window over all syncpoints; the kernel maps it on the first call.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENOMEM` if the kernel's range has no room for 64 MiB.
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

    /// Returns the user range as the kernel reports it: first address and length in bytes.
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
    pub fn fd(&self) -> &DoorFd {
        &self.shared.fd
    }

    fn send_map(&self, buffer: &impl MapSource, mut argument: sys::MapBufferEx) -> Result<GpuVa, Error> {
        sys::MAP_BUFFER_EX
            .send(&self.shared.fd, &mut argument)
            .map_err(|errno| error::call(sys::MAP_BUFFER_EX.name(), describe(buffer))(errno))?;
        Ok(GpuVa(argument.offset))
    }
}

/// The fields of the argument that all mappings of `buffer` share.
fn plain(buffer: &impl MapSource) -> sys::MapBufferEx {
    sys::MapBufferEx {
        compr_kind: sys::KIND_INVALID,
        incompr_kind: sys::KIND_PITCH,
        dmabuf_fd: buffer.raw_fd().cast_unsigned(),
        page_size: sys::PAGE_SIZE,
        ..sys::MapBufferEx::default()
    }
}

fn describe(buffer: &impl MapSource) -> String {
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

/// The read-only window over all syncpoints; a semaphore acquire on an address in it waits for a syncpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncpointWindow {
    /// Address of syncpoint 0.
    pub base: GpuVa,
    /// Distance between two syncpoints in bytes.
    pub stride: u32,
    /// Number of syncpoints.
    pub count: u32,
}

impl SyncpointWindow {
    /// Returns the address of syncpoint `id`; `None` if `id` is out of range.
    pub fn address(&self, id: u32) -> Option<GpuVa> {
        if id < self.count { self.base.checked_add(u64::from(id) * u64::from(self.stride)) } else { None }
    }
}

/// A buffer in a GPU address space; unmapped on drop.
///
/// Keeps the buffer and the address space alive. The kernel does not wait for the GPU before it unmaps:
/// if work in flight still uses a dropped mapping, an MMU fault stops its channel.
#[derive(Debug)]
pub struct Mapping<B: MapSource = Buffer> {
    va: GpuVa,
    len: u64,
    buffer: Arc<B>,
    space: AddressSpace,
    /// The reservation, which must outlive the mapping, and the offset in it.
    reservation: Option<(Reservation, u64)>,
    /// Whether the kernel may have made the mapping.
    mapped: bool,
}

impl<B: MapSource> Mapping<B> {
    fn new(
        va: GpuVa,
        len: u64,
        buffer: &Arc<B>,
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

    /// Whether the mapping is empty; always `false`.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The mapped buffer.
    pub fn buffer(&self) -> &Arc<B> {
        &self.buffer
    }

    /// The reservation that contains the mapping, if it was made at a fixed address.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref().map(|(range, _)| range)
    }

    /// Unmaps the buffer and returns errors; dropping the mapping logs them instead.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]. The kernel does not report a failure to unmap.
    pub fn unmap(mut self) -> Result<(), Error> {
        self.send_unmap().map_err(error::call(sys::UNMAP_BUFFER.name(), describe(&*self.buffer)))
    }

    fn send_unmap(&mut self) -> Result<(), kernel_door::Errno> {
        if !core::mem::take(&mut self.mapped) {
            return Ok(());
        }
        let mut argument = sys::UnmapBuffer { offset: self.va.0 };
        sys::UNMAP_BUFFER.send(&self.space.shared.fd, &mut argument).map(drop)
    }
}

impl<B: MapSource> Drop for Mapping<B> {
    fn drop(&mut self) {
        if let Err(errno) = self.send_unmap() {
            tracing::warn!(va = %self.va, %errno, "NVGPU_AS_IOCTL_UNMAP_BUFFER failed");
        }
        if let Some((range, offset)) = &self.reservation {
            range.forget(*offset);
        }
    }
}
