//! Characteristics of the GPU, as its driver reports them.

use kernel_door::layout::{Field, StructInfo, Uapi};
use kernel_door::uapi_struct;
use zerocopy::IntoBytes;

use crate::Release::{self, R36_4_3, R36_4_7, R39_2};
use crate::release::{since, until};

uapi_struct! {
    /// Properties of the GPU, of every release.
    ///
    /// The layout is that of R39. R36 lacks `huge_page_size` and the last two fields and has the others at lower
    /// offsets ([`CHARACTERISTICS_R36`]); [`Characteristics::read`] and [`Characteristics::write`] convert. The kernel
    /// copies as many bytes as fit the buffer and reports the size of its own struct.
    unsafe plain Characteristics = "nvgpu_gpu_characteristics", 344 bytes [since(R39_2)] {
        /// Architecture; 0x170 for ga10x, the others are `ARCH_*`.
        0 => arch: u32;
        /// Implementation; 0xb for ga10b, the others are `IMPL_*`.
        4 => impl_: u32, "impl";
        /// Revision.
        8 => rev: u32;
        /// GPCs present.
        12 => num_gpc: u32;
        /// NUMA node of the memory, or [`NO_NUMA_INFO`].
        16 => numa_domain_id: i32;
        /// Not written.
        20 => padding: u32, "";
        /// L2 cache in bytes.
        24 => l2_cache_size: u64, "L2_cache_size";
        /// Video memory in bytes; 0 on Orin.
        32 => on_board_video_memory_size: u64;
        /// TPCs in each GPC.
        40 => num_tpc_per_gpc: u32;
        /// Bus: [`BUS_TYPE_AXI`] on a Tegra.
        44 => bus_type: u32;
        /// Default big page size in bytes; 0 if there are none.
        48 => big_page_size: u32;
        /// Size of a huge page in bytes; 0 before R39.
        52 => huge_page_size: u32;
        /// Page size required for compression, in bytes.
        56 => compression_page_size: u32;
        /// Lowest address bit of the top page-directory level.
        60 => pde_coverage_bit_count: u32;
        /// Mask of the big page sizes.
        64 => available_big_page_sizes: u32;
        /// Not written.
        68 => padding1: u32, "";
        /// [`GpuFlags`].
        72 => flags: u64;
        /// 2D class.
        80 => twod_class: u32;
        /// 3D class.
        84 => threed_class: u32;
        /// Compute class; 0xC7C0 on ga10b.
        88 => compute_class: u32;
        /// Host (GPFIFO) class; 0xC76F on ga10b.
        92 => gpfifo_class: u32;
        /// Inline-to-memory class.
        96 => inline_to_memory_class: u32;
        /// Copy class; 0xC7B5 on ga10b.
        100 => dma_copy_class: u32;
        /// Mask of the GPCs present.
        104 => gpc_mask: u32;
        /// SM version, major in bits 15:8, minor in 7:0; 0x807 is SM 8.7.
        108 => sm_arch_sm_version: u32;
        /// Shader program version in the same form.
        112 => sm_arch_spa_version: u32;
        /// Warps per SM as the driver reports them (96 on Orin; SM 8.7 runs fewer).
        116 => sm_arch_warp_count: u32;
        /// Highest request of the control node.
        120 => gpu_ioctl_nr_last: i16;
        /// Highest request of TSGs.
        122 => tsg_ioctl_nr_last: i16;
        /// Highest request of debugger sessions.
        124 => dbg_gpu_ioctl_nr_last: i16;
        /// Highest request of channels.
        126 => ioctl_channel_nr_last: i16;
        /// Highest request of address spaces.
        128 => as_ioctl_nr_last: i16;
        /// Number of bits of a GPU virtual address in user space.
        130 => gpu_va_bit_count: u8;
        /// Not used.
        131 => reserved: u8;
        /// FBPs at most.
        132 => max_fbps_count: u32;
        /// Mask of the FBPs present.
        136 => fbp_en_mask: u32;
        /// Memory-controller mask.
        140 => emc_en_mask: u32;
        /// L2 partitions per FBP.
        144 => max_ltc_per_fbp: u32;
        /// L2 slices per partition.
        148 => max_lts_per_ltc: u32;
        /// Texture units per TPC; never set.
        152 => max_tex_per_tpc: u32;
        /// GPCs at most.
        156 => max_gpc_count: u32;
        /// Not used.
        160 => rop_l2_en_mask_deprecated: [u32; 2], "rop_l2_en_mask_DEPRECATED";
        /// Name of the chip, zero-padded.
        168 => chipname: [u8; 8];
        /// Base of the compression-bit store.
        176 => gr_compbit_store_base_hw: u64;
        /// Compression geometry.
        184 => gr_gobs_per_comptagline_per_slice: u32;
        /// L2 partitions.
        188 => num_ltc: u32;
        /// L2 slices per partition.
        192 => lts_per_ltc: u32;
        /// Line of the compression-bit cache.
        196 => cbc_cache_line_size: u32;
        /// Compression tags per such line.
        200 => cbc_comptags_per_line: u32;
        /// Maximum number of operations per batched map.
        204 => map_buffer_batch_limit: u32;
        /// Highest GPC clock in Hz.
        208 => max_freq: u64;
        /// Supported [`crate::channel::GraphicsPreemption`].
        216 => graphics_preemption_mode_flags: u32;
        /// Supported [`crate::channel::ComputePreemption`].
        220 => compute_preemption_mode_flags: u32;
        /// Default of the former.
        224 => default_graphics_preempt_mode: u32;
        /// Default of the latter.
        228 => default_compute_preempt_mode: u32;
        /// Local video memory in bytes.
        232 => local_video_memory_size: u64;
        /// PCI vendor.
        240 => pci_vendor_id: u16;
        /// PCI device.
        242 => pci_device_id: u16;
        /// PCI subsystem vendor.
        244 => pci_subsystem_vendor_id: u16;
        /// PCI subsystem device.
        246 => pci_subsystem_device_id: u16;
        /// PCI class.
        248 => pci_class: u16;
        /// PCI revision.
        250 => pci_revision: u8;
        /// VBIOS version of the board maker.
        251 => vbios_oem_version: u8;
        /// VBIOS version.
        252 => vbios_version: u32;
        /// Maximum number of register operations per call.
        256 => reg_ops_limit: u32;
        /// Not used.
        260 => reserved1: u32;
        /// Highest request of event descriptors.
        264 => event_ioctl_nr_last: i16;
        /// Not used.
        266 => pad: u16;
        /// Largest cycle-stats buffer.
        268 => max_css_buffer_size: u32;
        /// Highest request of context-switch traces.
        272 => ctxsw_ioctl_nr_last: i16;
        /// Highest request of profilers.
        274 => prof_ioctl_nr_last: i16;
        /// Highest request of scheduling domains.
        276 => nvs_ioctl_nr_last: i16;
        /// Not used.
        278 => reserved2: [u8; 2];
        /// Largest context-switch trace ring.
        280 => max_ctxsw_ring_buffer_size: u32;
        /// Not used.
        284 => reserved3: u32;
        /// Identity of this very chip.
        288 => per_device_identifier: u64;
        /// PPCs in each GPC.
        296 => num_ppc_per_gpc: u32;
        /// Subcontexts that one TSG can have.
        300 => max_veid_count_per_tsg: u32;
        /// Sub-partitions per FBPA.
        304 => num_sub_partition_per_fbpa: u32;
        /// GPU instance; 0 without MIG.
        308 => gpu_instance_id: u32;
        /// Graphics instance; 0 without MIG.
        312 => gr_instance_id: u32;
        /// Entries of the largest GPFIFO.
        316 => max_gpfifo_entries: u32;
        /// Longest time slice under a debugger.
        320 => max_dbg_tsg_timeslice: u32;
        /// Not used.
        324 => reserved5: u32;
        /// Instance id of this open control node.
        328 => device_instance_id: u64;
        /// Number of hardware channels; 0 before R39.
        336 => hw_num_channels: u32;
        /// Number of the GPU's syncpoints; 0 before R39.
        340 => gpu_num_syncpts: u32;
    }
}

/// The parts of [`Characteristics`] that R36 has: offset in the layout of R36, offset in that of R39, length. Together
/// they are all bytes of R36's layout.
const PARTS: [(usize, usize, usize); 3] = [(0, 0, 52), (52, 56, 12), (64, 72, 264)];

/// Fields of [`Characteristics`] that R36 lacks: `huge_page_size`, the padding before `flags`, the last two.
const NEW_FIELDS: usize = 4;
/// The fields that R36 has.
const OLD_FIELDS: usize = <Characteristics as Uapi>::FIELDS.len() - NEW_FIELDS;

/// The fields of R36's layout, from [`PARTS`].
const FIELDS_R36: [Field; OLD_FIELDS] = {
    let all = <Characteristics as Uapi>::FIELDS;
    let mut fields = [all[0]; OLD_FIELDS];
    let (mut count, mut index) = (0, 0);
    while index < all.len() {
        let mut part = 0;
        while part < PARTS.len() {
            let (old, new, len) = PARTS[part];
            if new <= all[index].offset && all[index].offset < new + len {
                fields[count] = Field { offset: all[index].offset - new + old, ..all[index] };
                count += 1;
            }
            part += 1;
        }
        index += 1;
    }
    assert!(count == OLD_FIELDS);
    fields
};

/// The layout of [`Characteristics`] up to R36.
pub const CHARACTERISTICS_R36: StructInfo = StructInfo {
    name: <Characteristics as Uapi>::C_NAME,
    size: 328,
    pointers: &[],
    fields: &FIELDS_R36,
    releases: until(R36_4_7),
};

impl Characteristics {
    /// Release with the oldest interface among those whose struct has `size` bytes; `None` if no known release has
    /// this size. 336 bytes are R39's layout without the last two fields, as some headers of its time declare it.
    pub fn release_of(size: u64) -> Option<Release> {
        match size {
            328 => Some(R36_4_3),
            336 | 344 => Some(R39_2),
            _ => None,
        }
    }

    /// The struct from bytes in the layout of `release`. Fields beyond the bytes, and those that the release lacks, are
    /// 0.
    ///
    /// ```
    /// use nvgpu_sys::Release;
    /// use nvgpu_sys::ctrl::Characteristics;
    ///
    /// let seen = Characteristics { compute_class: 0xc7c0, device_instance_id: 5, ..Characteristics::default() };
    /// for release in Release::ALL {
    ///     assert_eq!(Characteristics::read(&seen.write(release), release), seen);
    /// }
    /// assert_eq!(seen.write(Release::R36_4_3)[80..82], [0xc0, 0xc7]);
    /// assert_eq!(seen.write(Release::R39_2)[88..90], [0xc0, 0xc7]);
    /// ```
    pub fn read(bytes: &[u8], release: Release) -> Self {
        let mut all = Self::default();
        let target = all.as_mut_bytes();
        for (old, new, len) in Self::parts(release) {
            let source = bytes.get(*old..).unwrap_or_default();
            let len = source.len().min(*len);
            target[*new..*new + len].copy_from_slice(&source[..len]);
        }
        all
    }

    /// The struct's bytes in the layout of `release`.
    pub fn write(&self, release: Release) -> Vec<u8> {
        let parts = Self::parts(release).iter();
        parts.flat_map(|(_, new, len)| &self.as_bytes()[*new..*new + *len]).copied().collect()
    }

    /// As [`PARTS`], for any release.
    fn parts(release: Release) -> &'static [(usize, usize, usize)] {
        const ALL: [(usize, usize, usize); 1] = [(0, 0, size_of::<Characteristics>())];
        if release < R39_2 { &PARTS } else { &ALL }
    }
}

uapi_struct! {
    /// Argument of [`GET_CHARACTERISTICS`](super::GET_CHARACTERISTICS).
    pointing(gpu_characteristics_buf_addr) GetCharacteristics = "nvgpu_gpu_get_characteristics", 16 bytes {
        /// In: size of the buffer in bytes. Out: size of the kernel's struct in bytes.
        0 => gpu_characteristics_buf_size: u64;
        /// A [`Characteristics`].
        8 => gpu_characteristics_buf_addr: u64;
    }
}

bitflags::bitflags! {
    /// Features of the GPU and its driver ([`Characteristics::flags`]).
    ///
    /// ```
    /// use nvgpu_sys::ctrl::GpuFlags;
    ///
    /// let flags = GpuFlags::from_bits_retain(0x105);
    /// assert!(flags.contains(GpuFlags::HAS_SYNCPOINTS | GpuFlags::SUPPORT_TSG));
    /// ```
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
        /// The GPU snoops CPU caches on request.
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
        /// A fault stops the TSG only.
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

/// No NUMA node is known.
pub const NO_NUMA_INFO: i32 = -1;
/// Bus not known.
pub const BUS_TYPE_NONE: u32 = 0;
/// On-chip AXI.
pub const BUS_TYPE_AXI: u32 = 0x20;
/// Architecture: Kepler.
pub const ARCH_GK100: u32 = 0xe0;
/// Architecture: Maxwell.
pub const ARCH_GM200: u32 = 0x120;
/// Architecture: Pascal.
pub const ARCH_GP100: u32 = 0x130;
/// Architecture: Volta.
pub const ARCH_GV100: u32 = 0x140;
/// Architecture: Volta of a Tegra.
pub const ARCH_GV110: u32 = 0x150;
/// Implementation of Kepler: Tegra K1.
pub const IMPL_GK20A: u32 = 0xa;
/// Implementation of Maxwell.
pub const IMPL_GM204: u32 = 0x4;
/// Implementation of Maxwell.
pub const IMPL_GM206: u32 = 0x6;
/// Implementation of Maxwell: Tegra X1.
pub const IMPL_GM20B: u32 = 0xb;
/// Implementation of Maxwell: the later Tegra X1.
pub const IMPL_GM20B_B: u32 = 0xe;
/// Implementation of Pascal.
pub const IMPL_GP104: u32 = 0x4;
/// Implementation of Pascal.
pub const IMPL_GP106: u32 = 0x6;
/// Implementation of Pascal: Tegra X2.
pub const IMPL_GP10B: u32 = 0xb;
/// Implementation of Volta: Xavier.
pub const IMPL_GV11B: u32 = 0xb;
/// Implementation of Volta.
pub const IMPL_GV100: u32 = 0x0;
