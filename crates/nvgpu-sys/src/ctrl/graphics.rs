//! Depth culling, clears, compression and video memory: not used by compute on Orin.

use kernel_door::uapi_struct;

uapi_struct! {
    /// Result of [`ZCULL_GET_CTX_SIZE`](super::ZCULL_GET_CTX_SIZE).
    unsafe plain ZcullGetCtxSize = "nvgpu_gpu_zcull_get_ctx_size_args", 4 bytes {
        /// Bytes.
        0 => size: u32;
    }

    /// Result of [`ZCULL_GET_INFO`](super::ZCULL_GET_INFO).
    unsafe plain ZcullGetInfo = "nvgpu_gpu_zcull_get_info_args", 40 bytes {
        /// Alignment of the width in pixels.
        0 => width_align_pixels: u32;
        /// Alignment of the height in pixels.
        4 => height_align_pixels: u32;
        /// Pixels per aliquot.
        8 => pixel_squares_by_aliquots: u32;
        /// Aliquots in all.
        12 => aliquot_total: u32;
        /// Bytes per region unit.
        16 => region_byte_multiplier: u32;
        /// Bytes of a region's header.
        20 => region_header_size: u32;
        /// Bytes of a subregion's header.
        24 => subregion_header_size: u32;
        /// Alignment of a subregion's width in pixels.
        28 => subregion_width_align_pixels: u32;
        /// Alignment of a subregion's height in pixels.
        32 => subregion_height_align_pixels: u32;
        /// Number of subregions.
        36 => subregion_count: u32;
    }

    /// Argument of [`ZBC_SET_TABLE`](super::ZBC_SET_TABLE).
    unsafe plain ZbcSetTable = "nvgpu_gpu_zbc_set_table_args", 48 bytes {
        /// Colour in the form the shader backend uses.
        0 => color_ds: [u32; 4];
        /// Colour in the form the L2 uses.
        16 => color_l2: [u32; 4];
        /// Depth.
        32 => depth: u32;
        /// Stencil.
        36 => stencil: u32;
        /// Format of the value.
        40 => format: u32;
        /// One of the `ZBC_TYPE_*` values.
        44 => kind: u32, "type";
    }

    /// Argument of [`ZBC_QUERY_TABLE`](super::ZBC_QUERY_TABLE).
    unsafe plain ZbcQueryTable = "nvgpu_gpu_zbc_query_table_args", 56 bytes {
        /// Out: colour in the form the shader backend uses.
        0 => color_ds: [u32; 4];
        /// Out: colour in the form the L2 uses.
        16 => color_l2: [u32; 4];
        /// Out: depth.
        32 => depth: u32;
        /// Out: stencil.
        36 => stencil: u32;
        /// Out: users of the entry.
        40 => ref_cnt: u32;
        /// Out: format of the value.
        44 => format: u32;
        /// One of the `ZBC_TYPE_*` values; [`ZBC_TYPE_INVALID`] requests the size of the table.
        48 => kind: u32, "type";
        /// In: index of the entry. Out: size of the table.
        52 => index_size: u32;
    }

    /// Argument of [`PREPARE_COMPRESSIBLE_READ`](super::PREPARE_COMPRESSIBLE_READ).
    unsafe plain PrepareCompressibleRead = "nvgpu_gpu_prepare_compressible_read_args", 80 bytes {
        /// dma-buf descriptor.
        0 => handle: u32;
        /// [`Compbits`]: in, wanted; out, valid.
        4 => compbits: u32, "request_compbits";
        /// Offset of the image.
        8 => offset: u64;
        /// Offset of the horizontal compression bits.
        16 => compbits_hoffset: u64;
        /// Offset of the vertical compression bits.
        24 => compbits_voffset: u64;
        /// Width in pixels.
        32 => width: u32;
        /// Height in pixels.
        36 => height: u32;
        /// Block height, log 2.
        40 => block_height_log2: u32;
        /// [`crate::channel::SubmitFlags`].
        44 => submit_flags: u32;
        /// In: syncpoint or sync-file to wait for. Out: the returned one.
        48 => fence_id: u32, "fence.syncpt_id";
        /// Its value.
        52 => fence_value: u32, "fence.syncpt_value";
        /// Out: clear colour.
        56 => zbc_color: u32;
        /// Must be 0.
        60 => reserved: u32;
        /// Offset of the scatter buffer.
        64 => scatterbuffer_offset: u64;
        /// Must be 0.
        72 => reserved2: [u32; 2];
    }

    /// Argument of [`MARK_COMPRESSIBLE_WRITE`](super::MARK_COMPRESSIBLE_WRITE).
    unsafe plain MarkCompressibleWrite = "nvgpu_gpu_mark_compressible_write_args", 32 bytes {
        /// dma-buf descriptor.
        0 => handle: u32;
        /// [`Compbits`] that are valid now.
        4 => valid_compbits: u32;
        /// Offset of the image.
        8 => offset: u64;
        /// Clear colour.
        16 => zbc_color: u32;
        /// Must be 0.
        20 => reserved: [u32; 3];
    }

    /// Argument of [`ALLOC_VIDMEM`](super::ALLOC_VIDMEM); the descriptor comes back in the low 32 bits of `size_or_fd`.
    unsafe plain AllocVidmem = "nvgpu_gpu_alloc_vidmem_args", 32 bytes {
        /// In: size in bytes. Out: dma-buf descriptor in the low half.
        0 => size_or_fd: u64, "in.size";
        /// [`AllocVidmemFlags`].
        8 => flags: u32, "in.flags";
        /// Allocation tag.
        12 => memtag: u16, "in.memtag";
        /// Not used.
        14 => reserved0: u16, "in.reserved0";
        /// Alignment in bytes.
        16 => alignment: u32, "in.alignment";
        /// Not used.
        20 => reserved1: [u32; 3], "in.reserved1";
    }

    /// Result of [`GET_MEMORY_STATE`](super::GET_MEMORY_STATE).
    unsafe plain GetMemoryState = "nvgpu_gpu_get_memory_state_args", 40 bytes {
        /// Free bytes.
        0 => total_free_bytes: u64;
        /// Must be 0.
        8 => reserved: [u64; 4];
    }
}

bitflags::bitflags! {
    /// Kinds of compression bits.
    ///
    /// ```
    /// use nvgpu_sys::ctrl::Compbits;
    ///
    /// assert_eq!((Compbits::GPU | Compbits::CDEV).bits(), 5);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Compbits: u32 {
        /// For the GPU.
        const GPU = 1;
        /// For the display, horizontal.
        const CDEH = 2;
        /// For the display, vertical.
        const CDEV = 4;
    }

    /// Flags of [`AllocVidmem::flags`]. The field [`CPU_ACCESS_MASK`] selects the kind of CPU mapping;
    /// 0 means none.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct AllocVidmemFlags: u32 {
        /// Contiguous memory.
        const CONTIGUOUS = 1;
        /// The CPU maps it write-combined.
        const CPU_WRITE_COMBINE = 2;
        /// The CPU maps it cached.
        const CPU_CACHED = 4;
        /// Protected memory.
        const VPR = 1 << 4;
    }
}

/// Mask of the CPU access field in [`AllocVidmem::flags`].
pub const CPU_ACCESS_MASK: u32 = 0xe;
/// Words of a colour in the zero-bandwidth-clear table.
pub const ZBC_COLOR_VALUE_SIZE: usize = 4;
/// No clear value: requests the size of the table.
pub const ZBC_TYPE_INVALID: u32 = 0;
/// Clear value of a colour.
pub const ZBC_TYPE_COLOR: u32 = 1;
/// Clear value of a depth.
pub const ZBC_TYPE_DEPTH: u32 = 2;
/// Clear value of a stencil.
pub const ZBC_TYPE_STENCIL: u32 = 3;
