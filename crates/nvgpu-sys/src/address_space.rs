//! GPU address spaces: descriptors of `ALLOC_AS` (family `A`).
//!
//! An address space is a set of page tables. Its user range is set at creation; the kernel reserves
//! the 4 GiB above it for its own mappings. On ga10b all pages are 4 KiB. Layouts:
//! `nvgpu/include/uapi/linux/nvgpu-as.h`.

use kernel_door::{DoorFd, Errno, requests, uapi_struct};

use crate::Release::R39_2;
use crate::release::since;

/// Family letter of the requests.
pub const FAMILY: u8 = b'A';

requests! {
    unsafe family FAMILY;
    /// Binds a channel to this address space; required before the channel joins a TSG.
    ReadWrite 1 BIND_CHANNEL ("NVGPU_AS_IOCTL_BIND_CHANNEL"): BindChannel;
    /// Reserves a range: the variant for 32-bit processes.
    ReadWrite 2 ALLOC_SPACE_32 ("NVGPU32_AS_IOCTL_ALLOC_SPACE"): AllocSpace32;
    /// Frees a reserved range.
    ReadWrite 3 FREE_SPACE ("NVGPU_AS_IOCTL_FREE_SPACE"): FreeSpace;
    /// Unmaps the mapping at an address. Always succeeds.
    ReadWrite 5 UNMAP_BUFFER ("NVGPU_AS_IOCTL_UNMAP_BUFFER"): UnmapBuffer;
    /// Reserves a range. Mappings at fixed addresses are only allowed in a reserved range.
    ReadWrite 6 ALLOC_SPACE ("NVGPU_AS_IOCTL_ALLOC_SPACE"): AllocSpace;
    /// Maps a dma-buf.
    ReadWrite 7 MAP_BUFFER_EX ("NVGPU_AS_IOCTL_MAP_BUFFER_EX"): MapBufferEx;
    /// Lists the user ranges; one on ga10b.
    ReadWrite 8 GET_VA_REGIONS ("NVGPU_AS_IOCTL_GET_VA_REGIONS"): GetVaRegions;
    /// Returns the location of the compression bits of a mapping. No driver case: `ENOTTY`.
    ReadWrite 9 GET_BUFFER_COMPBITS_INFO ("NVGPU_AS_IOCTL_GET_BUFFER_COMPBITS_INFO"): [u32; 8];
    /// Maps the compression bits of a mapping. No driver case: `ENOTTY`.
    ReadWrite 10 MAP_BUFFER_COMPBITS ("NVGPU_AS_IOCTL_MAP_BUFFER_COMPBITS"): [u32; 10];
    /// Unmaps several mappings, then makes several, in one call.
    ReadWrite 11 MAP_BUFFER_BATCH ("NVGPU_AS_IOCTL_MAP_BUFFER_BATCH"): MapBufferBatch;
    /// Maps the read-only window over all syncpoints and returns its address.
    Read 12 GET_SYNC_RO_MAP ("NVGPU_AS_IOCTL_GET_SYNC_RO_MAP"): GetSyncRoMap;
    /// Changes the kind of a mapping's pages.
    ReadWrite 13 MAPPING_MODIFY ("NVGPU_AS_IOCTL_MAPPING_MODIFY"): MappingModify;
    /// Maps and unmaps pages inside a sparse range.
    ReadWrite 14 REMAP ("NVGPU_AS_IOCTL_REMAP"): Remap;
    /// Maps the read-only window over the syncpoints of each host1x instance and returns their addresses.
    Read 15 GET_SYNC_RO_MAP_V2 ("NVGPU_AS_IOCTL_GET_SYNC_RO_MAP_V2"): GetSyncRoMapV2;
}

uapi_struct! {
    /// Argument of [`BIND_CHANNEL`].
    unsafe plain BindChannel = "nvgpu_as_bind_channel_args", 4 bytes {
        /// Channel descriptor.
        0 => channel_fd: u32;
    }

    /// Argument of [`FREE_SPACE`].
    unsafe plain FreeSpace = "nvgpu_as_free_space_args", 32 bytes {
        /// Any GPU address inside the range; the kernel ignores the rest of the struct.
        0 => offset: u64;
        /// Number of pages.
        8 => pages: u64;
        /// Page size in bytes.
        16 => page_size: u32;
        /// Not read.
        20 => padding: [u32; 3];
    }

    /// Argument of [`UNMAP_BUFFER`].
    unsafe plain UnmapBuffer = "nvgpu_as_unmap_buffer_args", 8 bytes {
        /// First GPU address of the mapping.
        0 => offset: u64;
    }

    /// Argument of [`ALLOC_SPACE`].
    unsafe plain AllocSpace = "nvgpu_as_alloc_space_args", 32 bytes {
        /// Number of pages.
        0 => pages: u64;
        /// Page size in bytes; 4096 on ga10b.
        8 => page_size: u32;
        /// [`AllocSpaceFlags`].
        12 => flags: u32;
        /// Out: first GPU address. In, with [`AllocSpaceFlags::FIXED_OFFSET`]: the requested address.
        16 => offset: u64, "o_a.offset";
        /// Not read.
        24 => padding: [u32; 2];
    }

    /// Argument of [`ALLOC_SPACE_32`].
    unsafe plain AllocSpace32 = "nvgpu32_as_alloc_space_args", 24 bytes {
        /// Number of pages.
        0 => pages: u32;
        /// Page size in bytes; 4096 on ga10b.
        4 => page_size: u32;
        /// [`AllocSpaceFlags`].
        8 => flags: u32;
        /// Not read.
        12 => padding: u32, "";
        /// As in [`AllocSpace`].
        16 => offset: u64, "o_a.offset";
    }

    /// Argument of [`MAP_BUFFER_EX`].
    unsafe plain MapBufferEx = "nvgpu_as_map_buffer_ex_args", 40 bytes {
        /// [`MapBufferFlags`].
        0 => flags: u32;
        /// Compressible page kind, or [`KIND_INVALID`].
        4 => compr_kind: i16;
        /// Incompressible page kind; 0 is pitch, for ordinary memory.
        6 => incompr_kind: i16;
        /// dma-buf descriptor.
        8 => dmabuf_fd: u32;
        /// Ignored on input, unchanged on output.
        12 => page_size: u32;
        /// First byte of the buffer to map; only with [`MapBufferFlags::FIXED_OFFSET`].
        16 => buffer_offset: u64;
        /// Bytes to map, 0 for all; only with [`MapBufferFlags::FIXED_OFFSET`].
        24 => mapping_size: u64;
        /// Out: first GPU address. In, with [`MapBufferFlags::FIXED_OFFSET`]: the requested address,
        /// inside a range reserved with [`ALLOC_SPACE`].
        32 => offset: u64;
    }

    /// One range of [`GET_VA_REGIONS`].
    unsafe plain VaRegion = "nvgpu_as_va_region", 24 bytes {
        /// First GPU address.
        0 => offset: u64;
        /// Page size in bytes.
        8 => page_size: u32;
        /// Not used.
        12 => reserved: u32;
        /// Length in pages.
        16 => pages: u64;
    }

    /// Argument of [`GET_VA_REGIONS`].
    pointing(buf_addr) GetVaRegions = "nvgpu_as_get_va_regions_args", 16 bytes {
        /// Array of [`VaRegion`].
        0 => buf_addr: u64;
        /// In: capacity of `buf_addr` in bytes. Out: size of the list in bytes.
        8 => buf_size: u32;
        /// Not used.
        12 => reserved: u32;
    }

    /// Argument of [`MAP_BUFFER_BATCH`]. The kernel does not write addresses back, so only maps at
    /// fixed addresses are useful.
    pointing(unmaps, maps) MapBufferBatch = "nvgpu_as_map_buffer_batch_args", 32 bytes {
        /// Array of [`UnmapBuffer`].
        0 => unmaps: u64;
        /// Array of [`MapBufferEx`].
        8 => maps: u64;
        /// Elements of `unmaps`, at most 256.
        16 => num_unmaps: u32;
        /// Elements of `maps`, at most 256.
        20 => num_maps: u32;
        /// Not used.
        24 => reserved: u64;
    }

    /// Result of [`GET_SYNC_RO_MAP`].
    unsafe plain GetSyncRoMap = "nvgpu_as_get_sync_ro_map_args", 16 bytes {
        /// GPU address of syncpoint 0.
        0 => base_gpuva: u64;
        /// Distance between two syncpoints in bytes.
        8 => sync_size: u32;
        /// Number of syncpoints.
        12 => num_syncpoints: u32;
    }

    /// The syncpoints of one host1x instance.
    unsafe plain SyncpointRegion = "nvgpu_as_syncpoint_region_description", 16 bytes [since(R39_2)] {
        /// GPU address of its syncpoint 0.
        0 => base_gpuva: u64;
        /// Distance between two syncpoints in bytes.
        8 => sync_size: u32;
        /// Number of syncpoints.
        12 => num_syncpoints: u32;
    }

    /// Result of [`GET_SYNC_RO_MAP_V2`].
    unsafe plain GetSyncRoMapV2 = "nvgpu_as_get_sync_ro_map_v2_args", 72 bytes [since(R39_2)] {
        /// Number of regions that are set.
        0 => num_syncpoint_regions: u32;
        /// Not written.
        4 => padding: u32, "";
        /// The regions, by host1x instance.
        8 => regions: [SyncpointRegion; 4];
    }

    /// Argument of [`MAPPING_MODIFY`].
    unsafe plain MappingModify = "nvgpu_as_mapping_modify_args", 32 bytes {
        /// Compressible page kind, or [`KIND_INVALID`].
        0 => compr_kind: i16;
        /// Incompressible page kind, or [`KIND_INVALID`].
        2 => incompr_kind: i16;
        /// Not read.
        4 => padding: u32, "";
        /// First byte of the mapping to change; whole pages.
        8 => buffer_offset: u64;
        /// Bytes to change; whole pages.
        16 => buffer_size: u64;
        /// First GPU address of the mapping.
        24 => map_address: u64;
    }

    /// One operation of [`REMAP`].
    unsafe plain RemapOp = "nvgpu_as_remap_op", 40 bytes {
        /// [`RemapFlags`].
        0 => flags: u32;
        /// Compressible page kind, or [`KIND_INVALID`].
        4 => compr_kind: i16;
        /// Incompressible page kind, or [`KIND_INVALID`].
        6 => incompr_kind: i16;
        /// dma-buf descriptor, or 0 to unmap.
        8 => mem_handle: u32;
        /// Not used.
        12 => reserved: i32;
        /// First page of the buffer.
        16 => mem_offset_in_pages: u64;
        /// First GPU page.
        24 => virt_offset_in_pages: u64;
        /// Number of pages.
        32 => num_pages: u64;
    }

    /// Argument of [`REMAP`].
    pointing(ops) Remap = "nvgpu_as_remap_args", 16 bytes {
        /// Array of [`RemapOp`]; the kernel writes it back after success.
        0 => ops: u64;
        /// In: elements of `ops`. Out: number of operations done, also after an error.
        8 => num_ops: u32;
        /// Not read.
        12 => padding: u32, "";
    }
}

bitflags::bitflags! {
    /// Flags of [`AllocSpace::flags`].
    ///
    /// ```
    /// use nvgpu_sys::address_space::AllocSpaceFlags;
    ///
    /// let flags = AllocSpaceFlags::FIXED_OFFSET | AllocSpaceFlags::SPARSE;
    /// assert_eq!(flags.bits(), 3);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct AllocSpaceFlags: u32 {
        /// Reserve at the given address.
        const FIXED_OFFSET = 1;
        /// Unmapped pages of the range read as zero and discard writes instead of faulting.
        const SPARSE = 2;
    }

    /// Flags of [`MapBufferEx::flags`], without the access field ([`MapAccess`]).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct MapBufferFlags: u32 {
        /// Map at the given address.
        const FIXED_OFFSET = 1;
        /// Cache in the GPU's L2.
        const CACHEABLE = 1 << 2;
        /// Write invalid page-table entries.
        const UNMAPPED_PTE = 1 << 5;
        /// Deprecated; accepted and ignored.
        const MAPPABLE_COMPBITS = 1 << 6;
        /// Allocate in the system cache.
        const L3_ALLOC = 1 << 7;
        /// Snoop the CPU caches.
        const SYSTEM_COHERENT = 1 << 9;
        /// Raw page kinds; refused on ga10b.
        const TEGRA_RAW = 1 << 12;
    }

    /// Flags of [`RemapOp::flags`]; set exactly one page size.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct RemapFlags: u32 {
        /// Cache in the GPU's L2.
        const CACHEABLE = 1 << 2;
        /// Read-only for the GPU.
        const ACCESS_NO_WRITE = 1 << 10;
        /// 4 KiB pages.
        const PAGESIZE_4K = 1 << 15;
        /// 64 KiB pages.
        const PAGESIZE_64K = 1 << 16;
        /// 128 KiB pages.
        const PAGESIZE_128K = 1 << 17;
    }
}

/// Position of the access field in [`MapBufferEx::flags`].
pub const ACCESS_SHIFT: u32 = 10;
/// Width of the access field in bits.
pub const ACCESS_BITS: u32 = 2;
/// Access field: the access that the dma-buf's descriptor allows.
pub const ACCESS_DEFAULT: u32 = 0;
/// Access field: the GPU may only read.
pub const ACCESS_READ_ONLY: u32 = 1;
/// Access field: the GPU may read and write.
pub const ACCESS_READ_WRITE: u32 = 2;
/// No page kind.
pub const KIND_INVALID: i16 = -1;
/// Pitch: the page kind of ordinary memory.
pub const KIND_PITCH: i16 = 0;
/// The page size of every mapping on ga10b, in bytes.
pub const PAGE_SIZE: u32 = 4096;

/// Writes the user ranges of an address space to `regions` and returns their number, which may exceed
/// the length of `regions`.
///
/// # Errors
///
/// The kernel's errno; `EOVERFLOW` if the size of `regions` does not fit 32 bits.
pub fn get_va_regions(fd: &DoorFd, regions: &mut [VaRegion]) -> Result<usize, Errno> {
    let buf_size = u32::try_from(size_of_val(regions)).map_err(|_| Errno::OVERFLOW)?;
    // CAST: an address has at most 64 bits.
    let buf_addr = regions.as_mut_ptr().expose_provenance() as u64;
    let mut argument = GetVaRegions { buf_addr, buf_size, ..GetVaRegions::default() };
    // SAFETY: `buf_addr` is the exclusively borrowed `regions`, `buf_size` bytes long.
    unsafe { GET_VA_REGIONS.send_pointing(fd, &mut argument) }?;
    // CAST: a u32 fits a usize on every supported target.
    Ok(argument.buf_size as usize / size_of::<VaRegion>())
}

/// Unmaps `unmaps`, then maps `maps`, at most 256 each. The kernel stops at the first error without
/// reporting its position, and does not undo the operations before it. It does not return addresses,
/// so `maps` are only useful at fixed addresses.
///
/// # Errors
///
/// `EINVAL` for more than 256; otherwise the errno of the first map that fails.
pub fn map_buffer_batch(fd: &DoorFd, unmaps: &[UnmapBuffer], maps: &[MapBufferEx]) -> Result<(), Errno> {
    let mut argument = MapBufferBatch {
        // CAST: addresses have at most 64 bits.
        unmaps: unmaps.as_ptr().expose_provenance() as u64,
        maps: maps.as_ptr().expose_provenance() as u64,
        num_unmaps: u32::try_from(unmaps.len()).map_err(|_| Errno::OVERFLOW)?,
        num_maps: u32::try_from(maps.len()).map_err(|_| Errno::OVERFLOW)?,
        reserved: 0,
    };
    // SAFETY: both arrays are borrowed for the call, which only reads the stated number of elements.
    unsafe { MAP_BUFFER_BATCH.send_pointing(fd, &mut argument) }.map(drop)
}
