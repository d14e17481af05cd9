//! The control node `/dev/nvgpu/igpu0/ctrl` (family `G`).
//!
//! The only node a compute driver opens: it answers queries about the chip, hands out descriptors
//! for address spaces, TSGs and channels, and its mmap is the doorbell page. Layouts:
//! `nvgpu/include/uapi/linux/nvgpu-ctrl.h`.

mod characteristics;
mod clocks;
mod graphics;
mod objects;
mod topology;

use crate::Errno;
use crate::door::DoorFd;
use crate::request::requests;

pub use characteristics::{Characteristics, GetCharacteristics, GpuFlags};
pub use clocks::{
    ClkGetInfo, ClkInfo, ClkRange, ClkRangeArgs, ClkSetInfo, ClkVfPoint, ClkVfPointsArgs,
    CpuTimeCorrelationSample, GetCpuTimeCorrelationInfo, GetCurrent, GetEventFd, GetGpuTime, GetPower,
    GetTemperature, GetVoltage, SetThermAlertLimit,
};
pub use graphics::{
    AllocVidmem, GetMemoryState, MarkCompressibleWrite, PrepareCompressibleRead, ZbcQueryTable, ZbcSetTable,
    ZcullGetCtxSize, ZcullGetInfo,
};
pub use objects::{
    AllocAs, AllocAsFlags, BufferInfoIn, BufferInfoOut, DeterministicOpts, FlushL2, FlushL2Operations,
    MmuDebugMode, OpenChannel, OpenTsg, OpenTsgFlags, RegisterBuffer, RegisterBufferFlags,
    SetDeterministicOpts, SmDebugMode, TpcExceptionEnStatus, WaitPause, WarpState,
};
pub use topology::{
    EngineInfoItem, GetEngineInfo, GetFbpL2Masks, GetGpcLogicalMap, GetGpcPhysicalMap, GetTpcMasks, NumVsms,
    VsmsMapping, VsmsMappingEntry,
};

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
