//! The control node `/dev/nvgpu/igpu0/ctrl` (family `G`).
//!
//! The only GPU node that a compute driver opens. It answers queries about the chip, creates address
//! spaces, TSGs and channels, and maps the doorbell page. Layouts:
//! `nvgpu/include/uapi/linux/nvgpu-ctrl.h`.

mod characteristics;
mod clocks;
mod graphics;
mod objects;
mod topology;

use kernel_door::layout::Releases;
use kernel_door::{DoorFd, Errno, requests};

use crate::Release;

pub use characteristics::{
    ARCH_GK100, ARCH_GM200, ARCH_GP100, ARCH_GV100, ARCH_GV110, BUS_TYPE_AXI, BUS_TYPE_NONE,
    CHARACTERISTICS_R36, Characteristics, GetCharacteristics, GpuFlags, IMPL_GK20A, IMPL_GM20B, IMPL_GM20B_B,
    IMPL_GM204, IMPL_GM206, IMPL_GP10B, IMPL_GP104, IMPL_GP106, IMPL_GV11B, IMPL_GV100, NO_NUMA_INFO,
};
pub use clocks::{
    ClkGetInfo, ClkInfo, ClkRange, ClkRangeArgs, ClkSetInfo, ClkVfPoint, ClkVfPointsArgs,
    CpuTimeCorrelationSample, GetCpuTimeCorrelationInfo, GetCurrent, GetEventFd, GetGpuTime, GetPower,
    GetTemperature, GetVoltage, SetThermAlertLimit, VOLTAGE_BUS, VOLTAGE_CORE, VOLTAGE_SRAM,
};
pub use graphics::{
    AllocVidmem, AllocVidmemFlags, CPU_ACCESS_MASK, Compbits, GetMemoryState, MarkCompressibleWrite,
    PrepareCompressibleRead, ZBC_COLOR_VALUE_SIZE, ZBC_TYPE_COLOR, ZBC_TYPE_DEPTH, ZBC_TYPE_INVALID,
    ZBC_TYPE_STENCIL, ZbcQueryTable, ZbcSetTable, ZcullGetCtxSize, ZcullGetInfo,
};
pub use objects::{
    AllocAs, AllocAsFlags, BufferInfoFlags, BufferInfoIn, BufferInfoOut, COMPTAGS_ALLOC_NONE,
    COMPTAGS_ALLOC_REQUESTED, COMPTAGS_ALLOC_REQUIRED, DeterministicOpts, FlushL2, FlushL2Operations,
    MmuDebugMode, OpenChannel, OpenTsg, OpenTsgFlags, OpenTsgR39, REGISTER_BUFFER_METADATA_MAX_SIZE,
    RegisterBuffer, RegisterBufferFlags, SetDeterministicOpts, SmDebugMode, TpcExceptionEnStatus, WaitPause,
    WarpState,
};
pub use topology::{
    EngineInfoItem, GetEngineInfo, GetFbpL2Masks, GetFbpLogicalMap, GetFbpPhysicalMap, GetGpcLogicalMap,
    GetGpcPhysicalMap, GetPpcMasks, GetRopMasks, GetTpcMasks, NumVsms, VsmsMapping, VsmsMappingEntry,
};

/// Family letter of the requests.
pub const FAMILY: u8 = b'G';

requests! {
    unsafe family FAMILY;
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
    /// Makes a compressed buffer readable for an engine without compression.
    ReadWrite 6 PREPARE_COMPRESSIBLE_READ ("NVGPU_GPU_IOCTL_PREPARE_COMPRESSIBLE_READ"):
        PrepareCompressibleRead;
    /// Declares the compression state that a write leaves.
    ReadWrite 7 MARK_COMPRESSIBLE_WRITE ("NVGPU_GPU_IOCTL_MARK_COMPRESSIBLE_WRITE"):
        MarkCompressibleWrite;
    /// Creates an address space.
    ReadWrite 8 ALLOC_AS ("NVGPU_GPU_IOCTL_ALLOC_AS"): AllocAs;
    /// Creates a TSG.
    ReadWrite 9 OPEN_TSG ("NVGPU_GPU_IOCTL_OPEN_TSG"): OpenTsg [Releases::ALL];
    /// Masks of the TPCs present, one per GPC; see [`get_tpc_masks`].
    ReadWrite 10 GET_TPC_MASKS ("NVGPU_GPU_IOCTL_GET_TPC_MASKS"): GetTpcMasks;
    /// Creates a channel.
    ReadWrite 11 OPEN_CHANNEL ("NVGPU_GPU_IOCTL_OPEN_CHANNEL"): OpenChannel;
    /// Flushes or invalidates the L2 cache. The argument is 5 bytes.
    ReadWrite 12 FLUSH_L2 ("NVGPU_GPU_IOCTL_FLUSH_L2"): FlushL2;
    /// MMU debug mode of the whole GPU.
    ReadWrite 14 SET_MMUDEBUG_MODE ("NVGPU_GPU_IOCTL_SET_MMUDEBUG_MODE"): MmuDebugMode;
    /// SM debug mode of a channel.
    ReadWrite 15 SET_SM_DEBUG_MODE ("NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE"): SmDebugMode;
    /// Waits until the SMs pause; not supported on ga10b.
    ReadWrite 16 WAIT_FOR_PAUSE ("NVGPU_GPU_IOCTL_WAIT_FOR_PAUSE"): WaitPause;
    /// Mask of the SMs with exceptions enabled.
    ReadWrite 17 GET_TPC_EXCEPTION_EN_STATUS ("NVGPU_GPU_IOCTL_GET_TPC_EXCEPTION_EN_STATUS"):
        TpcExceptionEnStatus;
    /// Number of SMs.
    ReadWrite 18 NUM_VSMS ("NVGPU_GPU_IOCTL_NUM_VSMS"): NumVsms;
    /// Location of each SM; the memory must have room for [`NUM_VSMS`] entries.
    ReadWrite 19 VSMS_MAPPING ("NVGPU_GPU_IOCTL_VSMS_MAPPING"): VsmsMapping;
    /// Resumes paused SMs; not supported on ga10b.
    None 21 RESUME_FROM_PAUSE ("NVGPU_GPU_IOCTL_RESUME_FROM_PAUSE");
    /// Suspends the SMs; not supported on ga10b.
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
    /// Requests a frequency.
    ReadWrite 31 CLK_SET_INFO ("NVGPU_GPU_IOCTL_CLK_SET_INFO"): ClkSetInfo;
    /// Opens a descriptor for clock and thermal events; not supported on ga10b.
    ReadWrite 32 GET_EVENT_FD ("NVGPU_GPU_IOCTL_GET_EVENT_FD"): GetEventFd;
    /// Free video memory; Orin has none.
    ReadWrite 33 GET_MEMORY_STATE ("NVGPU_GPU_IOCTL_GET_MEMORY_STATE"): GetMemoryState;
    /// Reads a voltage; not supported on ga10b.
    ReadWrite 34 GET_VOLTAGE ("NVGPU_GPU_IOCTL_GET_VOLTAGE"): GetVoltage;
    /// Reads a current; not supported on ga10b.
    ReadWrite 35 GET_CURRENT ("NVGPU_GPU_IOCTL_GET_CURRENT"): GetCurrent;
    /// Reads the power drawn; not supported on ga10b.
    ReadWrite 36 GET_POWER ("NVGPU_GPU_IOCTL_GET_POWER"): GetPower;
    /// Reads the temperature; not supported on ga10b.
    ReadWrite 37 GET_TEMPERATURE ("NVGPU_GPU_IOCTL_GET_TEMPERATURE"): GetTemperature;
    /// Masks of the L2 slices present, one per FBP.
    ReadWrite 38 GET_FBP_L2_MASKS ("NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS"): GetFbpL2Masks;
    /// Sets the temperature that raises an alert; not supported on ga10b.
    ReadWrite 39 SET_THERM_ALERT_LIMIT ("NVGPU_GPU_IOCTL_SET_THERM_ALERT_LIMIT"): SetThermAlertLimit;
    /// Allows or forbids power-down while deterministic channels are idle.
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
    /// Masks of the pixel-processing clusters present, one per GPC.
    ReadWrite 45 GET_PPC_MASKS ("NVGPU_GPU_IOCTL_GET_PPC_MASKS"): GetPpcMasks;
    /// Masks of the raster-operation units present, one per GPC.
    ReadWrite 46 GET_ROP_MASKS ("NVGPU_GPU_IOCTL_GET_ROP_MASKS"): GetRopMasks;
    /// Physical index of each local FBP.
    ReadWrite 47 GET_FBP_LOCAL_TO_PHYSICAL_MAP ("NVGPU_GPU_IOCTL_GET_FBP_LOCAL_TO_PHYSICAL_MAP"):
        GetFbpPhysicalMap;
    /// Logical index of each local FBP.
    ReadWrite 48 GET_FBP_LOCAL_TO_LOGICAL_MAP ("NVGPU_GPU_IOCTL_GET_FBP_LOCAL_TO_LOGICAL_MAP"):
        GetFbpLogicalMap;
}

/// Runlist argument that selects the runlist of the graphics and compute engine.
pub const RUNLIST_GR: i32 = -1;
/// Engine id: graphics and compute.
pub const ENGINE_GR: u32 = 0;
/// Engine id: a copy engine on the runlist of the graphics engine.
pub const ENGINE_GR_COPY: u32 = 1;
/// Engine id: a copy engine with its own runlist.
pub const ENGINE_ASYNC_COPY: u32 = 2;
/// Engine id: video encoder.
pub const ENGINE_NVENC: u32 = 5;
/// Engine id: optical flow.
pub const ENGINE_OFA: u32 = 6;
/// Engine id: video decoder.
pub const ENGINE_NVDEC: u32 = 7;
/// Engine id: JPEG.
pub const ENGINE_NVJPG: u32 = 8;
/// CPU clock of a correlation: raw counter ticks.
pub const TIME_SOURCE_TSC: u32 = 1;
/// CPU clock of a correlation: microseconds since the epoch.
pub const TIME_SOURCE_OSTIME: u32 = 2;
/// Maximum number of pairs per correlation call.
pub const TIME_CORRELATION_MAX_COUNT: u32 = 16;
/// Flag of the clock queries: only the domains in the array.
pub const CLK_FLAG_SPECIFIC_DOMAINS: u32 = 1;
/// Clock domain of the memory.
pub const CLK_DOMAIN_MCLK: u32 = 0;
/// Clock domain of the GPCs, where kernels run.
pub const CLK_DOMAIN_GPCCLK: u32 = 1;
/// Requested frequency.
pub const CLK_TYPE_TARGET: u16 = 1;
/// Frequency that the clock is set to.
pub const CLK_TYPE_ACTUAL: u16 = 2;
/// Measured frequency.
pub const CLK_TYPE_EFFECTIVE: u16 = 3;
/// Size of the doorbell page in bytes: the maximum length of an mmap of the node.
pub const USERMODE_PAGE_SIZE: usize = 0x1_0000;
/// Offset of the 64-bit PTIMER's low half in the doorbell page (`hw_usermode_tu104.h`).
pub const USERMODE_TIME_0: usize = 0x80;
/// Offset of the PTIMER's high half in the doorbell page.
pub const USERMODE_TIME_1: usize = 0x84;
/// Offset of the doorbell in the doorbell page (`hw_func_ga10b.h`). Write a channel's token there.
pub const USERMODE_DOORBELL: usize = 0x90;

/// The kernel's answer to [`GET_CHARACTERISTICS`].
#[derive(Clone, Debug)]
pub struct CharacteristicsAnswer {
    /// The bytes, in the layout of the kernel's release; 0 beyond `size`.
    pub bytes: [u8; size_of::<Characteristics>()],
    /// Size of the kernel's struct in bytes, which may exceed that of `bytes`.
    pub size: u64,
}

/// Reads the characteristics as bytes. [`Characteristics::release_of`] their size names the layout.
///
/// # Errors
///
/// `EINVAL`, also if the GPU cannot be powered on; `EFAULT` if the copy to user memory failed.
pub fn ask_characteristics(fd: &DoorFd) -> Result<CharacteristicsAnswer, Errno> {
    let mut bytes = [0; size_of::<Characteristics>()];
    let mut argument = GetCharacteristics {
        // CAST: addresses and sizes have at most 64 bits.
        gpu_characteristics_buf_size: size_of_val(&bytes) as u64,
        gpu_characteristics_buf_addr: bytes.as_mut_ptr().expose_provenance() as u64,
    };
    // SAFETY: the address is that of the local array, which outlives the call; the size is its own.
    let residue = unsafe { GET_CHARACTERISTICS.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    Ok(CharacteristicsAnswer { bytes, size: argument.gpu_characteristics_buf_size })
}

/// Reads the characteristics. Fields that the kernel's release lacks are 0. The second value is the size of the
/// kernel's struct in bytes, which selects the layout; R39's for an unknown size.
///
/// # Errors
///
/// As [`ask_characteristics`].
pub fn get_characteristics(fd: &DoorFd) -> Result<(Characteristics, u64), Errno> {
    let CharacteristicsAnswer { bytes, size } = ask_characteristics(fd)?;
    let release = Characteristics::release_of(size).unwrap_or(Release::R39_2);
    Ok((Characteristics::read(&bytes, release), size))
}

/// Reads the TPC masks into `masks`, one per GPC, and returns their number, which may exceed the
/// length of `masks`.
///
/// # Errors
///
/// The kernel's errno; `EFAULT` if the copy to user memory failed.
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

/// Writes the engines to `items` and returns their number, which may exceed the length of `items`.
///
/// # Errors
///
/// The kernel's errno; `EFAULT` if the copy to user memory failed.
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

/// Writes the location of each SM to `entries` and returns the number of SMs.
///
/// The request has no length: the kernel writes one entry for every SM. Therefore this function first
/// reads the number of SMs.
///
/// # Errors
///
/// `EOVERFLOW`, without sending the request, if there are more SMs than `entries`; the kernel's errno;
/// `EFAULT` if the copy to user memory failed.
pub fn get_vsms_mapping(fd: &DoorFd, entries: &mut [VsmsMappingEntry]) -> Result<usize, Errno> {
    let mut count = NumVsms::default();
    complete(NUM_VSMS.send(fd, &mut count)?)?;
    // CAST: a u32 fits a usize on every supported target.
    let count = count.num_vsms as usize;
    if count > entries.len() {
        return Err(Errno::OVERFLOW);
    }
    // CAST: an address has at most 64 bits.
    let mut argument = VsmsMapping { vsms_map_buf_addr: entries.as_mut_ptr().expose_provenance() as u64 };
    // SAFETY: the address is the exclusively borrowed `entries`, and the number of SMs, which is
    // fixed at power-on, is at most its length.
    let residue = unsafe { VSMS_MAPPING.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    Ok(count)
}

/// Reads the masks of L2 slices into `masks`, one per FBP, and returns their number, which may exceed
/// the length of `masks`.
///
/// # Errors
///
/// The kernel's errno; `EFAULT` if the copy to user memory failed.
pub fn get_fbp_l2_masks(fd: &DoorFd, masks: &mut [u32]) -> Result<usize, Errno> {
    let mut argument = GetFbpL2Masks {
        mask_buf_size: u32::try_from(size_of_val(masks)).map_err(|_| Errno::OVERFLOW)?,
        // CAST: an address has at most 64 bits.
        mask_buf_addr: masks.as_mut_ptr().expose_provenance() as u64,
        ..GetFbpL2Masks::default()
    };
    // SAFETY: the address is the exclusively borrowed `masks`, the size is its own.
    let residue = unsafe { GET_FBP_L2_MASKS.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    // CAST: a u32 fits a usize on every supported target.
    Ok(argument.mask_buf_size as usize / size_of::<u32>())
}

/// Reads the physical index of each GPC into `indices`, whose length must be the number of GPCs.
///
/// # Errors
///
/// `EINVAL` if the length differs from the number of GPCs; otherwise the kernel's errno.
pub fn get_gpc_physical_map(fd: &DoorFd, indices: &mut [u32]) -> Result<(), Errno> {
    let mut argument = GetGpcPhysicalMap {
        map_buf_size: u32::try_from(size_of_val(indices)).map_err(|_| Errno::OVERFLOW)?,
        // CAST: an address has at most 64 bits.
        physical_gpc_buf_addr: indices.as_mut_ptr().expose_provenance() as u64,
        ..GetGpcPhysicalMap::default()
    };
    // SAFETY: the address is the exclusively borrowed `indices`, the size is its own.
    let residue = unsafe { GET_GPC_LOCAL_TO_PHYSICAL_MAP.send_pointing(fd, &mut argument) }?;
    complete(residue)
}

/// Reads the logical index of each GPC into `indices`, whose length must be the number of GPCs.
///
/// # Errors
///
/// As [`get_gpc_physical_map`].
pub fn get_gpc_logical_map(fd: &DoorFd, indices: &mut [u32]) -> Result<(), Errno> {
    let mut argument = GetGpcLogicalMap {
        map_buf_size: u32::try_from(size_of_val(indices)).map_err(|_| Errno::OVERFLOW)?,
        // CAST: an address has at most 64 bits.
        logical_gpc_buf_addr: indices.as_mut_ptr().expose_provenance() as u64,
        ..GetGpcLogicalMap::default()
    };
    // SAFETY: the address is the exclusively borrowed `indices`, the size is its own.
    let residue = unsafe { GET_GPC_LOCAL_TO_LOGICAL_MAP.send_pointing(fd, &mut argument) }?;
    complete(residue)
}

/// Returns the frequency range of the clock domain `clk_domain`.
///
/// # Errors
///
/// `EINVAL` for an unknown domain, and for all domains if the driver's clock arbiter is off.
pub fn clk_get_range(fd: &DoorFd, clk_domain: u32) -> Result<ClkRange, Errno> {
    let mut range = ClkRange { clk_domain, ..ClkRange::default() };
    let mut argument = ClkRangeArgs {
        flags: CLK_FLAG_SPECIFIC_DOMAINS,
        num_entries: 1,
        // CAST: an address has at most 64 bits.
        clk_range_entries: core::ptr::from_mut(&mut range).expose_provenance() as u64,
        ..ClkRangeArgs::default()
    };
    // SAFETY: the address is that of the one local entry, which outlives the call.
    let residue = unsafe { CLK_GET_RANGE.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    Ok(range)
}

/// Writes the frequencies of the clock domain `clk_domain` to `points` and returns their number. If
/// `points` is empty, only the number is returned.
///
/// # Errors
///
/// `EINVAL` for an unknown domain, if `points` is not empty but too short, and if the driver's clock
/// arbiter is off.
pub fn clk_get_vf_points(fd: &DoorFd, clk_domain: u32, points: &mut [ClkVfPoint]) -> Result<usize, Errno> {
    let mut argument = ClkVfPointsArgs {
        clk_domain,
        max_entries: u16::try_from(points.len()).map_err(|_| Errno::OVERFLOW)?,
        // CAST: an address has at most 64 bits.
        clk_vf_point_entries: points.as_mut_ptr().expose_provenance() as u64,
        ..ClkVfPointsArgs::default()
    };
    // SAFETY: the address is the exclusively borrowed `points`, `max_entries` long.
    let residue = unsafe { CLK_GET_VF_POINTS.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    // If the capacity is 0, the kernel returns the number in the field of the capacity.
    let count = if points.is_empty() { argument.max_entries } else { argument.num_entries };
    Ok(count.into())
}

/// Returns the frequency of a clock domain; `clk_type` is one of the `CLK_TYPE_*` values.
///
/// # Errors
///
/// As [`clk_get_range`].
pub fn clk_get_info(fd: &DoorFd, clk_domain: u32, clk_type: u16) -> Result<ClkInfo, Errno> {
    let mut info = ClkInfo { clk_type, clk_domain, ..ClkInfo::default() };
    let mut argument = ClkGetInfo {
        flags: CLK_FLAG_SPECIFIC_DOMAINS,
        clk_type,
        num_entries: 1,
        // CAST: an address has at most 64 bits.
        clk_info_entries: core::ptr::from_mut(&mut info).expose_provenance() as u64,
    };
    // SAFETY: the address is that of the one local entry, which outlives the call.
    let residue = unsafe { CLK_GET_INFO.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    Ok(info)
}

/// Requests a frequency. Returns a descriptor, owned by the caller, that polls readable when the
/// request has completed.
///
/// # Errors
///
/// As [`clk_get_range`].
pub fn clk_set_info(fd: &DoorFd, clk_domain: u32, freq_hz: u64) -> Result<DoorFd, Errno> {
    let mut info = ClkInfo { clk_type: CLK_TYPE_TARGET, clk_domain, freq_hz, ..ClkInfo::default() };
    let mut argument = ClkSetInfo {
        num_entries: 1,
        // CAST: an address has at most 64 bits.
        clk_info_entries: core::ptr::from_mut(&mut info).expose_provenance() as u64,
        ..ClkSetInfo::default()
    };
    // SAFETY: the address is that of the one local entry, which outlives the call.
    let residue = unsafe { CLK_SET_INFO.send_pointing(fd, &mut argument) }?;
    complete(residue)?;
    // SAFETY: the request returned a new descriptor.
    Ok(unsafe { DoorFd::from_raw(fd.door(), argument.completion_fd) })
}

/// The control node reports a faulted copy-out as a positive result: the number of bytes not copied.
fn complete(residue: i32) -> Result<(), Errno> {
    if residue == 0 { Ok(()) } else { Err(Errno::FAULT) }
}
