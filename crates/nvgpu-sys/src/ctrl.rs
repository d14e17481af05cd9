//! The control node `/dev/nvgpu/igpu0/ctrl` (family `G`).
//!
//! The only node a compute driver opens: it answers queries about the chip, hands out descriptors
//! for address spaces, TSGs and channels, and its mmap is the doorbell page. Layouts:
//! `nvgpu/include/uapi/linux/nvgpu-ctrl.h`.

use crate::Errno;
use crate::door::DoorFd;
use crate::layout::uapi_struct;
use crate::request::requests;

/// Family letter of the requests.
pub const FAMILY: u8 = b'G';
/// Highest request number that r36.4 knows.
pub const LAST: u32 = 44;

requests! {
    family FAMILY;
    /// Size of a depth-culling context.
    Read 1 ZCULL_GET_CTX_SIZE ("NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE"): ZcullGetCtxSize;
    /// Geometry of depth culling.
    Read 2 ZCULL_GET_INFO ("NVGPU_GPU_IOCTL_ZCULL_GET_INFO"): ZcullGetInfo;
    /// Adds a clear value to the zero-bandwidth-clear table; graphics.
    Write 3 ZBC_SET_TABLE ("NVGPU_GPU_IOCTL_ZBC_SET_TABLE"): ZbcSetTable;
    /// Reads an entry of that table.
    ReadWrite 4 ZBC_QUERY_TABLE ("NVGPU_GPU_IOCTL_ZBC_QUERY_TABLE"): ZbcQueryTable;
    /// Properties of the GPU, through a pointer; see [`get_characteristics`].
    ReadWrite 5 GET_CHARACTERISTICS ("NVGPU_GPU_IOCTL_GET_CHARACTERISTICS"): GetCharacteristics;
    /// Makes a compressed buffer readable for an engine that knows no compression.
    ReadWrite 6 PREPARE_COMPRESSIBLE_READ ("NVGPU_GPU_IOCTL_PREPARE_COMPRESSIBLE_READ"):
        PrepareCompressibleRead;
    /// States what compression a write left behind.
    ReadWrite 7 MARK_COMPRESSIBLE_WRITE ("NVGPU_GPU_IOCTL_MARK_COMPRESSIBLE_WRITE"):
        MarkCompressibleWrite;
    /// Creates an address space.
    ReadWrite 8 ALLOC_AS ("NVGPU_GPU_IOCTL_ALLOC_AS"): AllocAs;
    /// Creates a TSG.
    ReadWrite 9 OPEN_TSG ("NVGPU_GPU_IOCTL_OPEN_TSG"): OpenTsg;
    /// Which TPCs are present, one mask per GPC; see [`get_tpc_masks`].
    ReadWrite 10 GET_TPC_MASKS ("NVGPU_GPU_IOCTL_GET_TPC_MASKS"): GetTpcMasks;
    /// Creates a channel.
    ReadWrite 11 OPEN_CHANNEL ("NVGPU_GPU_IOCTL_OPEN_CHANNEL"): OpenChannel;
    /// Flushes or invalidates the L2 cache. The argument is 5 bytes.
    ReadWrite 12 FLUSH_L2 ("NVGPU_GPU_IOCTL_FLUSH_L2"): FlushL2;
    /// MMU debug mode of the whole GPU.
    ReadWrite 14 SET_MMUDEBUG_MODE ("NVGPU_GPU_IOCTL_SET_MMUDEBUG_MODE"): MmuDebugMode;
    /// SM debug mode of a channel.
    ReadWrite 15 SET_SM_DEBUG_MODE ("NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE"): SmDebugMode;
    /// Waits until the SMs pause; ga10b lacks it.
    ReadWrite 16 WAIT_FOR_PAUSE ("NVGPU_GPU_IOCTL_WAIT_FOR_PAUSE"): WaitPause;
    /// Which SMs raise exceptions.
    ReadWrite 17 GET_TPC_EXCEPTION_EN_STATUS ("NVGPU_GPU_IOCTL_GET_TPC_EXCEPTION_EN_STATUS"):
        TpcExceptionEnStatus;
    /// Number of SMs.
    ReadWrite 18 NUM_VSMS ("NVGPU_GPU_IOCTL_NUM_VSMS"): NumVsms;
    /// Where each SM sits; the memory must hold [`NUM_VSMS`] entries.
    ReadWrite 19 VSMS_MAPPING ("NVGPU_GPU_IOCTL_VSMS_MAPPING"): VsmsMapping;
    /// Resumes paused SMs; ga10b lacks it.
    None 21 RESUME_FROM_PAUSE ("NVGPU_GPU_IOCTL_RESUME_FROM_PAUSE");
    /// Suspends the SMs; ga10b lacks it.
    None 22 TRIGGER_SUSPEND ("NVGPU_GPU_IOCTL_TRIGGER_SUSPEND");
    /// Clears the error registers of all SMs.
    None 23 CLEAR_SM_ERRORS ("NVGPU_GPU_IOCTL_CLEAR_SM_ERRORS");
    /// Pairs of CPU and GPU timestamps taken together.
    ReadWrite 24 GET_CPU_TIME_CORRELATION_INFO ("NVGPU_GPU_IOCTL_GET_CPU_TIME_CORRELATION_INFO"):
        GetCpuTimeCorrelationInfo;
    /// The GPU's clock.
    ReadWrite 25 GET_GPU_TIME ("NVGPU_GPU_IOCTL_GET_GPU_TIME"): GetGpuTime;
    /// Engines and their runlists; see [`get_engine_info`].
    ReadWrite 26 GET_ENGINE_INFO ("NVGPU_GPU_IOCTL_GET_ENGINE_INFO"): GetEngineInfo;
    /// Allocates video memory; Orin has none.
    ReadWrite 27 ALLOC_VIDMEM ("NVGPU_GPU_IOCTL_ALLOC_VIDMEM"): AllocVidmem;
    /// Range of a clock domain.
    ReadWrite 28 CLK_GET_RANGE ("NVGPU_GPU_IOCTL_CLK_GET_RANGE"): ClkRangeArgs;
    /// Frequencies of a clock domain.
    ReadWrite 29 CLK_GET_VF_POINTS ("NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS"): ClkVfPointsArgs;
    /// Current frequencies.
    ReadWrite 30 CLK_GET_INFO ("NVGPU_GPU_IOCTL_CLK_GET_INFO"): ClkGetInfo;
    /// Asks for a frequency.
    ReadWrite 31 CLK_SET_INFO ("NVGPU_GPU_IOCTL_CLK_SET_INFO"): ClkSetInfo;
    /// Opens a descriptor for clock and thermal events; ga10b refuses it.
    ReadWrite 32 GET_EVENT_FD ("NVGPU_GPU_IOCTL_GET_EVENT_FD"): GetEventFd;
    /// Free video memory; Orin has none.
    ReadWrite 33 GET_MEMORY_STATE ("NVGPU_GPU_IOCTL_GET_MEMORY_STATE"): GetMemoryState;
    /// Reads a voltage; ga10b refuses it.
    ReadWrite 34 GET_VOLTAGE ("NVGPU_GPU_IOCTL_GET_VOLTAGE"): GetVoltage;
    /// Reads a current; ga10b refuses it.
    ReadWrite 35 GET_CURRENT ("NVGPU_GPU_IOCTL_GET_CURRENT"): GetCurrent;
    /// Reads the power drawn; ga10b refuses it.
    ReadWrite 36 GET_POWER ("NVGPU_GPU_IOCTL_GET_POWER"): GetPower;
    /// Reads the temperature; ga10b refuses it.
    ReadWrite 37 GET_TEMPERATURE ("NVGPU_GPU_IOCTL_GET_TEMPERATURE"): GetTemperature;
    /// Which L2 slices are present, one mask per FBP.
    ReadWrite 38 GET_FBP_L2_MASKS ("NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS"): GetFbpL2Masks;
    /// Sets the temperature that raises an alert; ga10b refuses it.
    ReadWrite 39 SET_THERM_ALERT_LIMIT ("NVGPU_GPU_IOCTL_SET_THERM_ALERT_LIMIT"): SetThermAlertLimit;
    /// Lets the GPU power down under idle deterministic channels, or not.
    ReadWrite 40 SET_DETERMINISTIC_OPTS ("NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS"):
        SetDeterministicOpts;
    /// Attaches metadata to a dma-buf.
    ReadWrite 41 REGISTER_BUFFER ("NVGPU_GPU_IOCTL_REGISTER_BUFFER"): RegisterBuffer;
    /// Reads the metadata of a dma-buf; input and output overlap, see [`BufferInfoOut`].
    ReadWrite 42 GET_BUFFER_INFO ("NVGPU_GPU_IOCTL_GET_BUFFER_INFO"): BufferInfoIn;
    /// Physical index of each logical GPC.
    ReadWrite 43 GET_GPC_LOCAL_TO_PHYSICAL_MAP ("NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP"):
        GetGpcPhysicalMap;
    /// Logical index of each local GPC.
    ReadWrite 44 GET_GPC_LOCAL_TO_LOGICAL_MAP ("NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP"):
        GetGpcLogicalMap;
}

uapi_struct! {
    /// Properties of the GPU. The struct only ever grows at its end; the kernel copies as much as
    /// both sides know.
    plain Characteristics = "nvgpu_gpu_characteristics", 328 bytes {
        /// Architecture; 0x170 for ga10x.
        0 => arch: u32;
        /// Implementation; 0xb for ga10b.
        4 => impl_: u32, "impl";
        /// Revision.
        8 => rev: u32;
        /// GPCs present.
        12 => num_gpc: u32;
        /// NUMA node of the memory, or -1.
        16 => numa_domain_id: i32;
        /// Not written.
        20 => padding: u32;
        /// L2 cache in bytes.
        24 => l2_cache_size: u64, "L2_cache_size";
        /// Video memory in bytes; 0 on Orin.
        32 => on_board_video_memory_size: u64;
        /// TPCs in each GPC.
        40 => num_tpc_per_gpc: u32;
        /// Bus; 0x20 is AXI.
        44 => bus_type: u32;
        /// Default big page in bytes; 0 where there are none.
        48 => big_page_size: u32;
        /// Page size that compression needs, in bytes.
        52 => compression_page_size: u32;
        /// Lowest address bit of the top page-directory level.
        56 => pde_coverage_bit_count: u32;
        /// Mask of the big page sizes.
        60 => available_big_page_sizes: u32;
        /// [`GpuFlags`].
        64 => flags: u64;
        /// 2D class.
        72 => twod_class: u32;
        /// 3D class.
        76 => threed_class: u32;
        /// Compute class; 0xC7C0 on ga10b.
        80 => compute_class: u32;
        /// Host (GPFIFO) class; 0xC76F on ga10b.
        84 => gpfifo_class: u32;
        /// Inline-to-memory class.
        88 => inline_to_memory_class: u32;
        /// Copy class; 0xC7B5 on ga10b.
        92 => dma_copy_class: u32;
        /// Mask of the GPCs present.
        96 => gpc_mask: u32;
        /// SM version, major in bits 15:8, minor in 7:0; 0x807 is SM 8.7.
        100 => sm_arch_sm_version: u32;
        /// Shader program version in the same form.
        104 => sm_arch_spa_version: u32;
        /// Warps per SM as the driver reports them (96 on Orin, above what SM 8.7 runs).
        108 => sm_arch_warp_count: u32;
        /// Highest request of the control node.
        112 => gpu_ioctl_nr_last: i16;
        /// Highest request of TSGs.
        114 => tsg_ioctl_nr_last: i16;
        /// Highest request of debugger sessions.
        116 => dbg_gpu_ioctl_nr_last: i16;
        /// Highest request of channels.
        118 => ioctl_channel_nr_last: i16;
        /// Highest request of address spaces.
        120 => as_ioctl_nr_last: i16;
        /// Bits of a GPU virtual address that user space may use.
        122 => gpu_va_bit_count: u8;
        /// Not used.
        123 => reserved: u8;
        /// FBPs at most.
        124 => max_fbps_count: u32;
        /// Mask of the FBPs present.
        128 => fbp_en_mask: u32;
        /// Memory-controller mask.
        132 => emc_en_mask: u32;
        /// L2 partitions per FBP.
        136 => max_ltc_per_fbp: u32;
        /// L2 slices per partition.
        140 => max_lts_per_ltc: u32;
        /// Texture units per TPC; never set.
        144 => max_tex_per_tpc: u32;
        /// GPCs at most.
        148 => max_gpc_count: u32;
        /// Not used.
        152 => rop_l2_en_mask_deprecated: [u32; 2], "rop_l2_en_mask_DEPRECATED";
        /// Name of the chip, zero-padded.
        160 => chipname: [u8; 8];
        /// Base of the compression-bit store.
        168 => gr_compbit_store_base_hw: u64;
        /// Compression geometry.
        176 => gr_gobs_per_comptagline_per_slice: u32;
        /// L2 partitions.
        180 => num_ltc: u32;
        /// L2 slices per partition.
        184 => lts_per_ltc: u32;
        /// Line of the compression-bit cache.
        188 => cbc_cache_line_size: u32;
        /// Compression tags per such line.
        192 => cbc_comptags_per_line: u32;
        /// Operations that one batched map takes.
        196 => map_buffer_batch_limit: u32;
        /// Highest GPC clock in Hz.
        200 => max_freq: u64;
        /// Supported [`crate::channel::GraphicsPreemption`].
        208 => graphics_preemption_mode_flags: u32;
        /// Supported [`crate::channel::ComputePreemption`].
        212 => compute_preemption_mode_flags: u32;
        /// Default of the former.
        216 => default_graphics_preempt_mode: u32;
        /// Default of the latter.
        220 => default_compute_preempt_mode: u32;
        /// Local video memory in bytes.
        224 => local_video_memory_size: u64;
        /// PCI vendor.
        232 => pci_vendor_id: u16;
        /// PCI device.
        234 => pci_device_id: u16;
        /// PCI subsystem vendor.
        236 => pci_subsystem_vendor_id: u16;
        /// PCI subsystem device.
        238 => pci_subsystem_device_id: u16;
        /// PCI class.
        240 => pci_class: u16;
        /// PCI revision.
        242 => pci_revision: u8;
        /// VBIOS version of the board maker.
        243 => vbios_oem_version: u8;
        /// VBIOS version.
        244 => vbios_version: u32;
        /// Register operations that one call takes.
        248 => reg_ops_limit: u32;
        /// Not used.
        252 => reserved1: u32;
        /// Highest request of event descriptors.
        256 => event_ioctl_nr_last: i16;
        /// Not used.
        258 => pad: u16;
        /// Largest cycle-stats buffer.
        260 => max_css_buffer_size: u32;
        /// Highest request of context-switch traces.
        264 => ctxsw_ioctl_nr_last: i16;
        /// Highest request of profilers.
        266 => prof_ioctl_nr_last: i16;
        /// Highest request of scheduling domains.
        268 => nvs_ioctl_nr_last: i16;
        /// Not used.
        270 => reserved2: [u8; 2];
        /// Largest context-switch trace ring.
        272 => max_ctxsw_ring_buffer_size: u32;
        /// Not used.
        276 => reserved3: u32;
        /// Identity of this very chip.
        280 => per_device_identifier: u64;
        /// PPCs in each GPC.
        288 => num_ppc_per_gpc: u32;
        /// Subcontexts that one TSG can have.
        292 => max_veid_count_per_tsg: u32;
        /// Sub-partitions per FBPA.
        296 => num_sub_partition_per_fbpa: u32;
        /// GPU instance; 0 without MIG.
        300 => gpu_instance_id: u32;
        /// Graphics instance; 0 without MIG.
        304 => gr_instance_id: u32;
        /// Entries of the largest GPFIFO.
        308 => max_gpfifo_entries: u32;
        /// Longest time slice under a debugger.
        312 => max_dbg_tsg_timeslice: u32;
        /// Not used.
        316 => reserved5: u32;
        /// Identity of this open of the control node.
        320 => device_instance_id: u64;
    }
}

uapi_struct! {
    /// Argument of [`GET_CHARACTERISTICS`].
    pointing GetCharacteristics = "nvgpu_gpu_get_characteristics", 16 bytes {
        /// In: bytes at the address. Out: bytes the kernel has.
        0 => gpu_characteristics_buf_size: u64;
        /// A [`Characteristics`].
        8 => gpu_characteristics_buf_addr: u64;
    }
}

uapi_struct! {
    /// Result of [`ZCULL_GET_CTX_SIZE`].
    plain ZcullGetCtxSize = "nvgpu_gpu_zcull_get_ctx_size_args", 4 bytes {
        /// Bytes.
        0 => size: u32;
    }
}

uapi_struct! {
    /// Result of [`ZCULL_GET_INFO`].
    plain ZcullGetInfo = "nvgpu_gpu_zcull_get_info_args", 40 bytes {
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
}

uapi_struct! {
    /// Argument of [`ALLOC_AS`].
    plain AllocAs = "nvgpu_alloc_as_args", 64 bytes {
        /// Big page in bytes; 0 on ga10b, which has none.
        0 => big_page_size: u32;
        /// Out: descriptor of the address space.
        4 => as_fd: i32;
        /// [`AllocAsFlags`].
        8 => flags: u32;
        /// Not used.
        12 => reserved: u32;
        /// First user address, a nonzero multiple of 2 MiB.
        16 => va_range_start: u64;
        /// End of the user range, a multiple of 2 MiB; the kernel's own 4 GiB follow.
        24 => va_range_end: u64;
        /// Split between small and big pages; 0 on ga10b.
        32 => va_range_split: u64;
        /// Not used.
        40 => padding: [u32; 6];
    }
}

uapi_struct! {
    /// Argument of [`OPEN_TSG`].
    plain OpenTsg = "nvgpu_gpu_open_tsg_args", 24 bytes {
        /// Out: descriptor of the TSG.
        0 => tsg_fd: u32;
        /// [`OpenTsgFlags`].
        4 => flags: u32;
        /// With [`OpenTsgFlags::SHARE`]: instance that issued the token; else 0.
        8 => source_device_instance_id: u64;
        /// With [`OpenTsgFlags::SHARE`]: the token; else 0.
        16 => share_token: u64;
    }
}

uapi_struct! {
    /// Argument of [`GET_TPC_MASKS`].
    pointing GetTpcMasks = "nvgpu_gpu_get_tpc_masks_args", 16 bytes {
        /// In: bytes at the address. Out: bytes there are.
        0 => mask_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit masks.
        8 => mask_buf_addr: u64;
    }
}

uapi_struct! {
    /// Argument of [`GET_GPC_LOCAL_TO_PHYSICAL_MAP`].
    pointing GetGpcPhysicalMap = "nvgpu_gpu_get_gpc_physical_map_args", 16 bytes {
        /// Bytes at the address: 4 for each GPC present, exactly.
        0 => map_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit indices.
        8 => physical_gpc_buf_addr: u64;
    }
}

uapi_struct! {
    /// Argument of [`GET_GPC_LOCAL_TO_LOGICAL_MAP`].
    pointing GetGpcLogicalMap = "nvgpu_gpu_get_gpc_logical_map_args", 16 bytes {
        /// Bytes at the address: 4 for each GPC present, exactly.
        0 => map_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit indices.
        8 => logical_gpc_buf_addr: u64;
    }
}

uapi_struct! {
    /// Argument of [`OPEN_CHANNEL`].
    plain OpenChannel = "nvgpu_gpu_open_channel_args", 4 bytes {
        /// In: runlist, [`RUNLIST_GR`] for the graphics and compute engine. Out: descriptor of the
        /// channel.
        0 => runlist_id_or_fd: i32, "channel_fd";
    }
}

uapi_struct! {
    /// Argument of [`FLUSH_L2`]: packed, 5 bytes.
    plain FlushL2 = "nvgpu_gpu_l2_fb_args", 5 bytes {
        /// [`FlushL2Operations`].
        0 => operations: u8, "l2_flush";
        /// Not used.
        1 => reserved: [u8; 4];
    }
}

uapi_struct! {
    /// Argument of [`SET_MMUDEBUG_MODE`].
    plain MmuDebugMode = "nvgpu_gpu_mmu_debug_mode_args", 8 bytes {
        /// 1 on, anything else off.
        0 => state: u32;
        /// Not used.
        4 => reserved: u32;
    }
}

uapi_struct! {
    /// Argument of [`SET_SM_DEBUG_MODE`].
    plain SmDebugMode = "nvgpu_gpu_sm_debug_mode_args", 16 bytes {
        /// Channel descriptor.
        0 => channel_fd: i32;
        /// 1 on, 0 off.
        4 => enable: u32;
        /// Mask of SMs.
        8 => sms: u64;
    }
}

uapi_struct! {
    /// Result of [`NUM_VSMS`].
    plain NumVsms = "nvgpu_gpu_num_vsms", 8 bytes {
        /// Number of SMs.
        0 => num_vsms: u32;
        /// Not used.
        4 => reserved: u32;
    }
}

uapi_struct! {
    /// Where one SM sits; result of [`VSMS_MAPPING`].
    plain VsmsMappingEntry = "nvgpu_gpu_vsms_mapping_entry", 6 bytes {
        /// Logical GPC.
        0 => gpc_logical_index: u8;
        /// Virtual GPC.
        1 => gpc_virtual_index: u8;
        /// TPC within its GPC.
        2 => tpc_local_logical_index: u8;
        /// TPC within the GPU.
        3 => tpc_global_logical_index: u8;
        /// SM within its TPC.
        4 => sm_local_id: u8;
        /// Migratable TPC.
        5 => tpc_migratable_index: u8;
    }
}

uapi_struct! {
    /// Argument of [`VSMS_MAPPING`].
    pointing VsmsMapping = "nvgpu_gpu_vsms_mapping", 8 bytes {
        /// Array of [`VsmsMappingEntry`], as many as there are SMs.
        0 => vsms_map_buf_addr: u64;
    }
}

uapi_struct! {
    /// A pair of timestamps.
    plain CpuTimeCorrelationSample = "nvgpu_gpu_get_cpu_time_correlation_sample", 16 bytes {
        /// CPU clock, in the units of the source.
        0 => cpu_timestamp: u64;
        /// GPU clock in nanoseconds.
        8 => gpu_timestamp: u64;
    }
}

uapi_struct! {
    /// Argument of [`GET_CPU_TIME_CORRELATION_INFO`].
    plain GetCpuTimeCorrelationInfo = "nvgpu_gpu_get_cpu_time_correlation_info_args", 264 bytes {
        /// Out: the pairs.
        0 => samples: [CpuTimeCorrelationSample; 16];
        /// Pairs wanted, at most 16.
        256 => count: u32;
        /// [`TIME_SOURCE_TSC`] or [`TIME_SOURCE_OSTIME`].
        260 => source_id: u32;
    }
}

uapi_struct! {
    /// Result of [`GET_GPU_TIME`].
    plain GetGpuTime = "nvgpu_gpu_get_gpu_time_args", 16 bytes {
        /// PTIMER in nanoseconds, in steps of 32.
        0 => gpu_timestamp: u64;
        /// Not used.
        8 => reserved: u64;
    }
}

uapi_struct! {
    /// One engine; result of [`GET_ENGINE_INFO`].
    plain EngineInfoItem = "nvgpu_gpu_get_engine_info_item", 16 bytes {
        /// One of the `ENGINE_*` ids.
        0 => engine_id: u32;
        /// Instance of that engine.
        4 => engine_instance: u32;
        /// Runlist that feeds it.
        8 => runlist_id: i32;
        /// Not used.
        12 => reserved: u32;
    }
}

uapi_struct! {
    /// Argument of [`GET_ENGINE_INFO`].
    pointing GetEngineInfo = "nvgpu_gpu_get_engine_info_args", 16 bytes {
        /// In: bytes at the address. Out: bytes there are.
        0 => engine_info_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of [`EngineInfoItem`].
        8 => engine_info_buf_addr: u64;
    }
}

uapi_struct! {
    /// Range of a clock domain; result of [`CLK_GET_RANGE`].
    plain ClkRange = "nvgpu_gpu_clk_range", 24 bytes {
        /// Not used.
        0 => flags: u32;
        /// Clock domain.
        4 => clk_domain: u32;
        /// Lowest frequency in Hz.
        8 => min_hz: u64;
        /// Highest frequency in Hz.
        16 => max_hz: u64;
    }
}

uapi_struct! {
    /// Argument of [`CLK_GET_RANGE`].
    pointing ClkRangeArgs = "nvgpu_gpu_clk_range_args", 16 bytes {
        /// 0, or [`CLK_FLAG_SPECIFIC_DOMAINS`].
        0 => flags: u32;
        /// Not used.
        4 => pad0: u16;
        /// Entries at the address; 0 asks for their number.
        6 => num_entries: u16;
        /// Array of [`ClkRange`].
        8 => clk_range_entries: u64;
    }
}

uapi_struct! {
    /// One frequency; result of [`CLK_GET_VF_POINTS`].
    plain ClkVfPoint = "nvgpu_gpu_clk_vf_point", 8 bytes {
        /// Frequency in Hz.
        0 => freq_hz: u64;
    }
}

uapi_struct! {
    /// Argument of [`CLK_GET_VF_POINTS`].
    pointing ClkVfPointsArgs = "nvgpu_gpu_clk_vf_points_args", 24 bytes {
        /// 0.
        0 => flags: u32;
        /// Clock domain.
        4 => clk_domain: u32;
        /// Entries at the address; 0 asks for their number.
        8 => max_entries: u16;
        /// Out: entries there are.
        10 => num_entries: u16;
        /// Not used.
        12 => reserved: u32;
        /// Array of [`ClkVfPoint`].
        16 => clk_vf_point_entries: u64;
    }
}

uapi_struct! {
    /// A frequency of a clock domain.
    plain ClkInfo = "nvgpu_gpu_clk_info", 16 bytes {
        /// Not used.
        0 => flags: u16;
        /// One of the `CLK_TYPE_*` values.
        2 => clk_type: u16;
        /// Clock domain.
        4 => clk_domain: u32;
        /// Frequency in Hz.
        8 => freq_hz: u64;
    }
}

uapi_struct! {
    /// Argument of [`CLK_GET_INFO`].
    pointing ClkGetInfo = "nvgpu_gpu_clk_get_info_args", 16 bytes {
        /// 0, or [`CLK_FLAG_SPECIFIC_DOMAINS`].
        0 => flags: u32;
        /// One of the `CLK_TYPE_*` values, or 0 for all.
        4 => clk_type: u16;
        /// Entries at the address; 0 asks for their number.
        6 => num_entries: u16;
        /// Array of [`ClkInfo`].
        8 => clk_info_entries: u64;
    }
}

uapi_struct! {
    /// Argument of [`CLK_SET_INFO`].
    pointing ClkSetInfo = "nvgpu_gpu_clk_set_info_args", 24 bytes {
        /// 0.
        0 => flags: u32;
        /// Not used.
        4 => pad0: u16;
        /// Entries at the address: 1.
        6 => num_entries: u16;
        /// Array of [`ClkInfo`].
        8 => clk_info_entries: u64;
        /// Out: a descriptor that becomes readable once the clock has changed.
        16 => completion_fd: i32;
        /// Not read.
        20 => padding: u32;
    }
}

uapi_struct! {
    /// Argument of [`GET_FBP_L2_MASKS`].
    pointing GetFbpL2Masks = "nvgpu_gpu_get_fbp_l2_masks_args", 16 bytes {
        /// In: bytes at the address. Out: bytes there are.
        0 => mask_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit masks.
        8 => mask_buf_addr: u64;
    }
}

uapi_struct! {
    /// Argument of [`SET_DETERMINISTIC_OPTS`].
    pointing SetDeterministicOpts = "nvgpu_gpu_set_deterministic_opts_args", 16 bytes {
        /// Elements of `channels`.
        0 => num_channels: u32;
        /// [`DeterministicOpts`].
        4 => flags: u32;
        /// Array of channel descriptors.
        8 => channels: u64;
    }
}

uapi_struct! {
    /// Argument of [`REGISTER_BUFFER`].
    pointing RegisterBuffer = "nvgpu_gpu_register_buffer_args", 24 bytes {
        /// dma-buf descriptor.
        0 => dmabuf_fd: i32;
        /// Compression tags: 0 none, 1 wanted, 2 required.
        4 => comptags_alloc_control: u8;
        /// Not used.
        5 => reserved0: u8;
        /// Not used.
        6 => reserved1: u16;
        /// Bytes of the caller's own choice.
        8 => metadata_addr: u64;
        /// How many, at most 256.
        16 => metadata_size: u32;
        /// [`RegisterBufferFlags`].
        20 => flags: u32;
    }
}

uapi_struct! {
    /// Argument of [`ZBC_SET_TABLE`].
    plain ZbcSetTable = "nvgpu_gpu_zbc_set_table_args", 48 bytes {
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
        /// 1 colour, 2 depth, 3 stencil.
        44 => kind: u32, "type";
    }
}

uapi_struct! {
    /// Argument of [`ZBC_QUERY_TABLE`].
    plain ZbcQueryTable = "nvgpu_gpu_zbc_query_table_args", 56 bytes {
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
        /// 0 asks for the table's size, 1 colour, 2 depth, 3 stencil.
        48 => kind: u32, "type";
        /// In: index of the entry. Out: size of the table.
        52 => index_size: u32;
    }
}

uapi_struct! {
    /// Argument of [`PREPARE_COMPRESSIBLE_READ`].
    plain PrepareCompressibleRead = "nvgpu_gpu_prepare_compressible_read_args", 80 bytes {
        /// dma-buf descriptor.
        0 => handle: u32;
        /// In: compression wanted. Out: compression valid.
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
        /// Syncpoint to wait for, or a sync-file; then the one returned.
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
}

uapi_struct! {
    /// Argument of [`MARK_COMPRESSIBLE_WRITE`].
    plain MarkCompressibleWrite = "nvgpu_gpu_mark_compressible_write_args", 32 bytes {
        /// dma-buf descriptor.
        0 => handle: u32;
        /// Compression that is valid now.
        4 => valid_compbits: u32;
        /// Offset of the image.
        8 => offset: u64;
        /// Clear colour.
        16 => zbc_color: u32;
        /// Must be 0.
        20 => reserved: [u32; 3];
    }
}

uapi_struct! {
    /// Warps of one SM; result of [`WAIT_FOR_PAUSE`].
    plain WarpState = "warpstate", 48 bytes {
        /// Mask of the resident warps.
        0 => valid_warps: [u64; 2];
        /// Mask of the trapped warps.
        16 => trapped_warps: [u64; 2];
        /// Mask of the paused warps.
        32 => paused_warps: [u64; 2];
    }
}

uapi_struct! {
    /// Argument of [`WAIT_FOR_PAUSE`].
    pointing WaitPause = "nvgpu_gpu_wait_pause_args", 8 bytes {
        /// Array of [`WarpState`], one per SM.
        0 => pwarpstate: u64;
    }
}

uapi_struct! {
    /// Result of [`GET_TPC_EXCEPTION_EN_STATUS`].
    plain TpcExceptionEnStatus = "nvgpu_gpu_tpc_exception_en_status_args", 8 bytes {
        /// Mask of SMs.
        0 => tpc_exception_en_sm_mask: u64;
    }
}

uapi_struct! {
    /// Argument of [`ALLOC_VIDMEM`]; the descriptor comes back in the low 32 bits of `size_or_fd`.
    plain AllocVidmem = "nvgpu_gpu_alloc_vidmem_args", 32 bytes {
        /// In: size in bytes. Out: dma-buf descriptor in the low half.
        0 => size_or_fd: u64, "in.size";
        /// Bit 0: contiguous.
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
}

uapi_struct! {
    /// Argument of [`GET_EVENT_FD`].
    plain GetEventFd = "nvgpu_gpu_get_event_fd_args", 8 bytes {
        /// 0.
        0 => flags: u32;
        /// Out: the descriptor.
        4 => event_fd: i32;
    }
}

uapi_struct! {
    /// Result of [`GET_MEMORY_STATE`].
    plain GetMemoryState = "nvgpu_gpu_get_memory_state_args", 40 bytes {
        /// Free bytes.
        0 => total_free_bytes: u64;
        /// Must be 0.
        8 => reserved: [u64; 4];
    }
}

uapi_struct! {
    /// Argument of [`GET_VOLTAGE`].
    plain GetVoltage = "nvgpu_gpu_get_voltage_args", 16 bytes {
        /// Not used.
        0 => reserved: u64;
        /// Rail: 1 core, 2 SRAM, 3 bus.
        8 => which: u32;
        /// Out: microvolts.
        12 => voltage: u32;
    }
}

uapi_struct! {
    /// Result of [`GET_CURRENT`].
    plain GetCurrent = "nvgpu_gpu_get_current_args", 16 bytes {
        /// Not used.
        0 => reserved: [u32; 3];
        /// Milliamperes.
        12 => current: u32, "currnt";
    }
}

uapi_struct! {
    /// Result of [`GET_POWER`].
    plain GetPower = "nvgpu_gpu_get_power_args", 16 bytes {
        /// Not used.
        0 => reserved: [u32; 3];
        /// Milliwatts.
        12 => power: u32;
    }
}

uapi_struct! {
    /// Result of [`GET_TEMPERATURE`].
    plain GetTemperature = "nvgpu_gpu_get_temperature_args", 16 bytes {
        /// Not used.
        0 => reserved: [u32; 3];
        /// Degrees Celsius with 8 fraction bits.
        12 => temp_f24_8: i32;
    }
}

uapi_struct! {
    /// Argument of [`SET_THERM_ALERT_LIMIT`].
    plain SetThermAlertLimit = "nvgpu_gpu_set_therm_alert_limit_args", 16 bytes {
        /// Not used.
        0 => reserved: [u32; 3];
        /// Degrees Celsius with 8 fraction bits.
        12 => temp_f24_8: i32;
    }
}

uapi_struct! {
    /// Argument of [`GET_BUFFER_INFO`] on the way in.
    pointing BufferInfoIn = "nvgpu_gpu_get_buffer_info_args", 24 bytes {
        /// dma-buf descriptor.
        0 => dmabuf_fd: i32, "in.dmabuf_fd";
        /// Bytes at `metadata_addr`.
        4 => metadata_size: u32, "in.metadata_size";
        /// Where the metadata goes.
        8 => metadata_addr: u64, "in.metadata_addr";
        /// Written by the kernel, see [`BufferInfoOut::size`].
        16 => size: u64, "out.size";
    }
}

uapi_struct! {
    /// The same bytes on the way out.
    plain BufferInfoOut = "nvgpu_gpu_get_buffer_info_args", 24 bytes {
        /// Bit 0 registered, bit 1 compression tags allocated, bit 2 metadata mutable.
        0 => flags: u64, "out.flags";
        /// Bytes of metadata there are.
        8 => metadata_size: u32, "out.metadata_size";
        /// Not used.
        12 => reserved: u32, "out.reserved";
        /// Size of the buffer in bytes.
        16 => size: u64, "out.size";
    }
}

bitflags::bitflags! {
    /// What the GPU and its driver can do ([`Characteristics::flags`]).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct GpuFlags: u64 {
        /// Syncpoints.
        const HAS_SYNCPOINTS = 1;
        /// Sparse address ranges.
        const SUPPORT_SPARSE_ALLOCS = 1 << 2;
        /// Sync-file fences.
        const SUPPORT_SYNC_FENCE_FDS = 1 << 3;
        /// Cycle statistics.
        const SUPPORT_CYCLE_STATS = 1 << 4;
        /// Snapshots of cycle statistics.
        const SUPPORT_CYCLE_STATS_SNAPSHOT = 1 << 6;
        /// Time-slice groups.
        const SUPPORT_TSG = 1 << 8;
        /// Clock requests.
        const SUPPORT_CLOCK_CONTROLS = 1 << 9;
        /// Voltage queries.
        const SUPPORT_GET_VOLTAGE = 1 << 10;
        /// Current queries.
        const SUPPORT_GET_CURRENT = 1 << 11;
        /// Power queries.
        const SUPPORT_GET_POWER = 1 << 12;
        /// Temperature queries.
        const SUPPORT_GET_TEMPERATURE = 1 << 13;
        /// Thermal alerts.
        const SUPPORT_SET_THERM_ALERT_LIMIT = 1 << 14;
        /// Device events.
        const SUPPORT_DEVICE_EVENTS = 1 << 15;
        /// Context-switch traces.
        const SUPPORT_FECS_CTXSW_TRACE = 1 << 16;
        /// Mapping of compression bits.
        const SUPPORT_MAP_COMPBITS = 1 << 17;
        /// Deterministic submits without job tracking.
        const SUPPORT_DETERMINISTIC_SUBMIT_NO_JOBTRACKING = 1 << 18;
        /// Deterministic submits with job tracking.
        const SUPPORT_DETERMINISTIC_SUBMIT_FULL = 1 << 19;
        /// The GPU snoops CPU caches where asked to.
        const SUPPORT_IO_COHERENCE = 1 << 20;
        /// Rescheduling of the runlist on request.
        const SUPPORT_RESCHEDULE_RUNLIST = 1 << 21;
        /// Subcontexts.
        const SUPPORT_TSG_SUBCONTEXTS = 1 << 22;
        /// Power-down under idle deterministic channels.
        const SUPPORT_DETERMINISTIC_OPTS = 1 << 24;
        /// Simultaneous compute and graphics.
        const SUPPORT_SCG = 1 << 25;
        /// GPU addresses of syncpoints.
        const SUPPORT_SYNCPOINT_ADDRESS = 1 << 26;
        /// Protected video memory.
        const SUPPORT_VPR = 1 << 27;
        /// Syncpoints owned by user space.
        const SUPPORT_USER_SYNCPOINT = 1 << 28;
        /// The GPU can be powered down.
        const CAN_RAILGATE = 1 << 29;
        /// Submits from user space: own ring, own doorbell.
        const SUPPORT_USERMODE_SUBMIT = 1 << 30;
        /// Driver with reduced functions.
        const DRIVER_REDUCED_PROFILE = 1 << 31;
        /// MMU debug mode per context.
        const SUPPORT_SET_CTX_MMU_DEBUG_MODE = 1 << 32;
        /// A fault stops the TSG, not the machine.
        const SUPPORT_FAULT_RECOVERY = 1 << 33;
        /// Changing the kind of a mapping.
        const SUPPORT_MAPPING_MODIFY = 1 << 34;
        /// Remapping inside sparse ranges.
        const SUPPORT_REMAP = 1 << 35;
        /// Compression.
        const SUPPORT_COMPRESSION = 1 << 36;
        /// Ray-traversal units in the SMs.
        const SUPPORT_SM_TTU = 1 << 37;
        /// Compression behind the L2.
        const SUPPORT_POST_L2_COMPRESSION = 1 << 38;
        /// Access type per mapping.
        const SUPPORT_MAP_ACCESS_TYPE = 1 << 39;
        /// 2D class.
        const SUPPORT_2D = 1 << 40;
        /// 3D class.
        const SUPPORT_3D = 1 << 41;
        /// Compute class.
        const SUPPORT_COMPUTE = 1 << 42;
        /// Inline-to-memory class.
        const SUPPORT_I2M = 1 << 43;
        /// Zero-bandwidth clears.
        const SUPPORT_ZBC = 1 << 44;
        /// Profiling of the device.
        const SUPPORT_PROFILER_V2_DEVICE = 1 << 46;
        /// Profiling of a context.
        const SUPPORT_PROFILER_V2_CONTEXT = 1 << 47;
        /// Global mode of SM performance counters.
        const SUPPORT_SMPC_GLOBAL_MODE = 1 << 48;
        /// Reading a graphics context.
        const SUPPORT_GET_GR_CONTEXT = 1 << 49;
        /// Metadata on buffers.
        const SUPPORT_BUFFER_METADATA = 1 << 50;
        /// A limit on evict-last ways of the L2.
        const L2_MAX_WAYS_EVICT_LAST_ENABLED = 1 << 51;
        /// Access counting on video memory.
        const SUPPORT_VAB = 1 << 52;
        /// Scheduling domains.
        const SUPPORT_NVS = 1 << 53;
        /// Waiting for an error barrier at the end of a time slice.
        const SCHED_EXIT_WAIT_FOR_ERRBAR_SUPPORTED = 1 << 55;
        /// TSGs shared between processes.
        const MULTI_PROCESS_TSG_SHARING = 1 << 56;
        /// Mapping of GPU registers for the GPU.
        const SUPPORT_GPU_MMIO = 1 << 57;
        /// ECC on SM register files.
        const ECC_ENABLED_SM_LRF = 1 << 60;
        /// ECC on SM shared memory.
        const ECC_ENABLED_SM_SHM = 1 << 61;
        /// ECC on texture caches.
        const ECC_ENABLED_TEX = 1 << 62;
        /// ECC on the L2.
        const ECC_ENABLED_LTC = 1 << 63;
    }
}

bitflags::bitflags! {
    /// Flags of [`AllocAs::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct AllocAsFlags: u32 {
        /// One range for all page sizes.
        const UNIFIED_VA = 2;
    }
}

bitflags::bitflags! {
    /// Flags of [`OpenTsg::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct OpenTsgFlags: u32 {
        /// Open a TSG of another process with a token.
        const SHARE = 1;
    }
}

bitflags::bitflags! {
    /// Operations of [`FlushL2::operations`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct FlushL2Operations: u8 {
        /// Write the L2 back.
        const L2_FLUSH = 1;
        /// Discard the L2's lines; only together with `L2_FLUSH`.
        const L2_INVALIDATE = 2;
        /// Wait for writes to reach memory.
        const FB_FLUSH = 4;
    }
}

bitflags::bitflags! {
    /// Flags of [`SetDeterministicOpts::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct DeterministicOpts: u32 {
        /// The GPU may power down; the doorbell page vanishes with it.
        const ALLOW_RAILGATING = 1;
        /// The GPU stays powered.
        const DISALLOW_RAILGATING = 2;
    }
}

bitflags::bitflags! {
    /// Flags of [`RegisterBuffer::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct RegisterBufferFlags: u32 {
        /// Out: compression tags were allocated.
        const COMPTAGS_ALLOCATED = 1;
        /// The metadata may be changed later.
        const MUTABLE = 2;
        /// Change the metadata of a registered buffer.
        const MODIFY = 4;
    }
}

/// Runlist argument for the graphics and compute engine, whatever its number.
pub const RUNLIST_GR: i32 = -1;
/// Engine id: graphics and compute.
pub const ENGINE_GR: u32 = 0;
/// Engine id: a copy engine on the runlist of the graphics engine.
pub const ENGINE_GR_COPY: u32 = 1;
/// Engine id: a copy engine with its own runlist.
pub const ENGINE_ASYNC_COPY: u32 = 2;
/// CPU clock of a correlation: raw counter ticks.
pub const TIME_SOURCE_TSC: u32 = 1;
/// CPU clock of a correlation: microseconds since the epoch.
pub const TIME_SOURCE_OSTIME: u32 = 2;
/// Pairs that one correlation call returns at most.
pub const TIME_CORRELATION_MAX_COUNT: u32 = 16;
/// The clock queries look only at the domains named in the array.
pub const CLK_FLAG_SPECIFIC_DOMAINS: u32 = 1;
/// Clock domain of the memory.
pub const CLK_DOMAIN_MCLK: u32 = 0;
/// Clock domain of the GPCs, where kernels run.
pub const CLK_DOMAIN_GPCCLK: u32 = 1;
/// Frequency asked for.
pub const CLK_TYPE_TARGET: u16 = 1;
/// Frequency set.
pub const CLK_TYPE_ACTUAL: u16 = 2;
/// Frequency counted.
pub const CLK_TYPE_EFFECTIVE: u16 = 3;
/// Length of the doorbell page in bytes, the most that mmap of the node takes.
pub const USERMODE_PAGE_SIZE: usize = 0x1_0000;
/// Offset of the 64-bit PTIMER's low half in the doorbell page (`hw_usermode_tu104.h`).
pub const USERMODE_TIME_0: usize = 0x80;
/// Offset of the PTIMER's high half in the doorbell page.
pub const USERMODE_TIME_1: usize = 0x84;
/// Offset of the doorbell in the doorbell page (`hw_func_ga10b.h`): takes a channel's token.
pub const USERMODE_DOORBELL: usize = 0x90;

/// Reads the characteristics. Fields that an older kernel does not know stay 0; the second value
/// is the size of the kernel's own struct in bytes.
///
/// # Errors
///
/// `EINVAL` also when the GPU cannot be powered on; `EFAULT` if the kernel could not copy out.
pub fn get_characteristics(fd: &DoorFd) -> Result<(Characteristics, u64), Errno> {
    let mut characteristics = Characteristics::default();
    let mut argument = GetCharacteristics {
        // CAST: addresses and sizes have at most 64 bits.
        gpu_characteristics_buf_size: size_of::<Characteristics>() as u64,
        gpu_characteristics_buf_addr: core::ptr::from_mut(&mut characteristics).expose_provenance() as u64,
    };
    // SAFETY: the address is that of the local struct, which outlives the call; the size is its own.
    let residue = unsafe { GET_CHARACTERISTICS.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    Ok((characteristics, argument.gpu_characteristics_buf_size))
}

/// Reads the TPC masks into `masks`, one per GPC; returns how many there are, which may be more
/// than fit.
///
/// # Errors
///
/// The kernel's errno; `EFAULT` if the kernel could not copy out.
pub fn get_tpc_masks(fd: &DoorFd, masks: &mut [u32]) -> Result<usize, Errno> {
    let mut argument = GetTpcMasks {
        mask_buf_size: u32::try_from(size_of_val(masks)).map_err(|_| Errno::OVERFLOW)?,
        // CAST: an address has at most 64 bits.
        mask_buf_addr: masks.as_mut_ptr().expose_provenance() as u64,
        ..GetTpcMasks::default()
    };
    // SAFETY: the address is the exclusively borrowed `masks`, the size is its own.
    let residue = unsafe { GET_TPC_MASKS.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    // CAST: a u32 fits a usize on every supported target.
    Ok(argument.mask_buf_size as usize / size_of::<u32>())
}

/// Lists the engines into `items`; returns how many there are, which may be more than fit.
///
/// # Errors
///
/// The kernel's errno; `EFAULT` if the kernel could not copy out.
pub fn get_engine_info(fd: &DoorFd, items: &mut [EngineInfoItem]) -> Result<usize, Errno> {
    let mut argument = GetEngineInfo {
        engine_info_buf_size: u32::try_from(size_of_val(items)).map_err(|_| Errno::OVERFLOW)?,
        // CAST: an address has at most 64 bits.
        engine_info_buf_addr: items.as_mut_ptr().expose_provenance() as u64,
        ..GetEngineInfo::default()
    };
    // SAFETY: the address is the exclusively borrowed `items`, the size is its own.
    let residue = unsafe { GET_ENGINE_INFO.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    // CAST: a u32 fits a usize on every supported target.
    Ok(argument.engine_info_buf_size as usize / size_of::<EngineInfoItem>())
}

/// The control node reports a faulted copy-out as a positive result: the bytes left over.
fn complete(residue: i32) -> Result<(), Errno> {
    if residue == 0 { Ok(()) } else { Err(Errno::FAULT) }
}
