//! Commands to RM objects and their parameters (`ctrl/*.h`).

use kernel_door::uapi_struct;

use super::number::Command;

/// Client: the device of a GPU.
pub const GPU_GET_ID_INFO_V2: Command<IdInfo> = Command::new(0x205, "GPU_GET_ID_INFO_V2");
/// Device: its classes.
pub const GPU_GET_CLASSLIST_V2: Command<ClassList> = Command::new(0x0080_0292, "GPU_GET_CLASSLIST_V2");
/// Subdevice: the UUID.
pub const GPU_GET_GID_INFO: Command<GidInfo> = Command::new(0x2080_014a, "GPU_GET_GID_INFO");
/// Subdevice: the name of the product.
pub const GPU_GET_NAME_STRING: Command<NameString> = Command::new(0x2080_0110, "GPU_GET_NAME_STRING");
/// Subdevice: unit counts of the graphics engine.
pub const GR_GET_INFO: Command<GrInfo> = Command::new(0x2080_1201, "GR_GET_INFO");
/// Subdevice: where each SM is. Releases before 580 have smaller parameters and refuse these.
pub const GR_GET_GLOBAL_SM_ORDER: Command<SmOrder> = Command::new(0x2080_121b, "GR_GET_GLOBAL_SM_ORDER");
/// Subdevice: sizes of video memory and its aperture.
pub const FB_GET_INFO_V2: Command<FbInfo> = Command::new(0x2080_1303, "FB_GET_INFO_V2");
/// Subdevice: raise the clocks under load.
pub const PERF_BOOST: Command<PerfBoost> = Command::new(0x2080_200a, "PERF_BOOST");
/// Channel: the token to ring the doorbell with.
pub const GPFIFO_GET_WORK_SUBMIT_TOKEN: Command<WorkSubmitToken> =
    Command::new(0xc36f_0108, "GPFIFO_GET_WORK_SUBMIT_TOKEN");
/// Group: start and stop.
pub const GPFIFO_SCHEDULE: Command<GpfifoSchedule> = Command::new(0xa06c_0101, "GPFIFO_SCHEDULE");
/// Debugger: the last MMU faults of kernels in the debugged context.
pub const READ_MMU_FAULT_INFO: Command<MmuFaults> = Command::new(0x83de_0328, "READ_MMU_FAULT_INFO");
/// Debugger: the error state of each SM.
pub const READ_ALL_SM_ERROR_STATES: Command<SmErrorStates> =
    Command::new(0x83de_030c, "READ_ALL_SM_ERROR_STATES");
/// Subdevice: capabilities of the copy engines.
pub const CE_GET_ALL_CAPS: Command<CeAllCaps> = Command::new(0x2080_2a0a, "CE_GET_ALL_CAPS");

/// Client: a file that stands for a memory object.
pub const OS_UNIX_EXPORT_OBJECT_TO_FD: Command<ExportObject> =
    Command::new(0x3d05, "OS_UNIX_EXPORT_OBJECT_TO_FD");
/// Client: a memory object of the one behind a file.
pub const OS_UNIX_IMPORT_OBJECT_FROM_FD: Command<ImportObject> =
    Command::new(0x3d06, "OS_UNIX_IMPORT_OBJECT_FROM_FD");
/// Memory: size and place.
pub const GET_SURFACE_INFO: Command<SurfaceInfo> = Command::new(0x41_0110, "GET_SURFACE_INFO");

/// First word of [`ExportObject::object`]: an object of RM.
pub const EXPORT_RM_OBJECT: u32 = 1;
/// Index of [`SurfaceInfo`]: size in units of [`SURFACE_UNIT`].
pub const SURFACE_SIZE: u32 = 0x07;
/// Index of [`SurfaceInfo`]: address space.
pub const SURFACE_ADDRESS_SPACE: u32 = 0x09;
/// Unit of [`SURFACE_SIZE`] in bytes.
pub const SURFACE_UNIT: u64 = 0x1000;
/// Value of [`SURFACE_ADDRESS_SPACE`]: system memory (`ctrl0000client.h`).
pub const ADDRESS_SPACE_SYSTEM: u32 = 1;
/// Value of [`SURFACE_ADDRESS_SPACE`]: video memory.
pub const ADDRESS_SPACE_VIDEO: u32 = 2;

/// First byte of [`CeAllCaps::capabilities`]: the engine is tied to graphics.
pub const CE_GRAPHICS: u8 = 0x01;
/// First byte of [`CeAllCaps::capabilities`]: the engine shares hardware with others.
pub const CE_SHARED: u8 = 0x02;
/// First byte of [`CeAllCaps::capabilities`]: the engine is meant for copies over NVLink.
pub const CE_NVLINK: u8 = 0x10;
/// First byte of [`CeAllCaps::capabilities`]: the engine copies between GPUs.
pub const CE_PEERS: u8 = 0x40;
/// First byte of [`CeAllCaps::capabilities`]: the engine accesses system memory.
pub const CE_SYSTEM_MEMORY: u8 = 0x20;

/// [`PerfBoost::flags`]: to the maximum, for compute, at high priority.
pub const PERF_BOOST_COMPUTE: u32 = 0x52;
/// [`PerfBoost::duration`]: until the client is freed.
pub const PERF_BOOST_FOREVER: u32 = u32::MAX;
/// Index of [`GrInfo`]: number of TPCs present (SHADER_PIPE_SUB_COUNT).
pub const GR_TPC_COUNT: u32 = 0x09;
/// Index of [`GrInfo`]: SM version.
pub const GR_SM_VERSION: u32 = 0x0c;
/// Index of [`GrInfo`]: warps per SM.
pub const GR_MAX_WARPS_PER_SM: u32 = 0x0d;
/// Index of [`GrInfo`]: number of GPCs.
pub const GR_NUM_GPCS: u32 = 0x14;
/// Index of [`GrInfo`]: TPCs per GPC.
pub const GR_NUM_TPC_PER_GPC: u32 = 0x17;
/// Index of [`GrInfo`]: SMs per TPC.
pub const GR_NUM_SM_PER_TPC: u32 = 0x20;
/// Index in an element of [`SmOrder::sms`]: the GPC, as the scheduler of clusters sees it. Numbers from 8 on have one
/// TPC.
pub const SM_ORDER_VIRTUAL_GPC: usize = 4;
/// Index of [`FbInfo`]: size of BAR1 in KiB.
pub const FB_BAR1_SIZE: u32 = 0x05;
/// Index of [`FbInfo`]: video memory for allocations in KiB.
pub const FB_HEAP_SIZE: u32 = 0x09;
/// Index of [`FbInfo`]: free video memory in KiB.
pub const FB_HEAP_FREE: u32 = 0x16;
/// Index of [`FbInfo`]: size of the L2 cache in bytes.
pub const FB_L2_SIZE: u32 = 0x1b;
/// Maximum number of SMs per [`READ_ALL_SM_ERROR_STATES`].
pub const SM_STATES: usize = 100;

uapi_struct! {
    /// Parameters of [`OS_UNIX_EXPORT_OBJECT_TO_FD`].
    unsafe plain ExportObject = "NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS", 24 bytes {
        /// [`EXPORT_RM_OBJECT`], the object's device, its parent, its number.
        0 => object: [u32; 4], "object";
        /// A file of the control node that stands for nothing yet.
        16 => fd: i32, "fd";
        /// 0.
        20 => flags: u32, "flags";
    }

    /// Parameters of [`OS_UNIX_IMPORT_OBJECT_FROM_FD`].
    unsafe plain ImportObject = "NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS", 20 bytes {
        /// The file.
        0 => fd: i32, "fd";
        /// [`EXPORT_RM_OBJECT`], the new object's device, its parent, its number.
        4 => object: [u32; 4], "object";
    }

    /// Parameters of [`GET_SURFACE_INFO`].
    pointing(list) SurfaceInfo = "NV0041_CTRL_GET_SURFACE_INFO_PARAMS", 16 bytes {
        /// Elements of the list.
        0 => count: u32, "surfaceInfoListSize";
        /// Must be 0.
        4 => padding0: [u8; 4], "";
        /// Address of pairs of index and value.
        8 => list: u64, "surfaceInfoList";
    }

    /// Parameters of [`GR_GET_GLOBAL_SM_ORDER`].
    unsafe plain SmOrder = "NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS", 9240 bytes {
        /// The place of each SM: [`SM_ORDER_VIRTUAL_GPC`] and others.
        0 => sms: [[u16; 9]; 512], "globalSmId";
        /// Number of SMs.
        9216 => sm_count: u16, "numSm";
        /// Number of TPCs.
        9218 => tpc_count: u16, "numTpc";
        /// Must be 0.
        9220 => padding0: [u8; 4], "";
        /// Which graphics engine: 0 for the only one (flags, padding, route).
        9224 => route: [u64; 2], "grRouteInfo";
    }

    /// Parameters of [`GR_GET_INFO`].
    pointing(list) GrInfo = "NV2080_CTRL_GR_GET_INFO_PARAMS", 32 bytes {
        /// Elements of the list.
        0 => count: u32, "grInfoListSize";
        /// Must be 0.
        4 => padding0: [u8; 4], "";
        /// Address of pairs of index and value.
        8 => list: u64, "grInfoList";
        /// 0: the graphics engine.
        16 => route: [u32; 4], "grRouteInfo";
    }

    /// An MMU fault of a kernel.
    unsafe plain MmuFault = "NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY", 16 bytes {
        /// The accessed address.
        0 => address: u64, "faultAddress";
        /// Type of the fault, `NV_PFAULT_FAULT_TYPE_*` (`dev_fault.h`).
        8 => fault_type: u32, "faultType";
        /// Type of the access, `NV_PFAULT_ACCESS_TYPE_*` (`dev_fault.h`).
        12 => access_type: u32, "accessType";
    }

    /// Error state of one SM.
    unsafe plain SmErrorState = "NV83DE_SM_ERROR_STATE_REGISTERS", 48 bytes {
        /// Global error status register.
        0 => global_esr: u32, "hwwGlobalEsr";
        /// Warp error status register; the low byte is the error code.
        4 => warp_esr: u32, "hwwWarpEsr";
        /// Low word of the program counter.
        8 => warp_esr_pc: u32, "hwwWarpEsrPc";
        /// Mask of reported errors.
        12 => global_esr_report_mask: u32, "hwwGlobalEsrReportMask";
        /// Mask of reported errors.
        16 => warp_esr_report_mask: u32, "hwwWarpEsrReportMask";
        /// Must be 0.
        20 => padding0: [u8; 4], "";
        /// Address of the access.
        24 => esr_address: u64, "hwwEsrAddr";
        /// Program counter.
        32 => warp_esr_pc64: u64, "hwwWarpEsrPc64";
        /// Errors of a cluster.
        40 => cga_esr: u32, "hwwCgaEsr";
        /// Mask of reported errors.
        44 => cga_esr_report_mask: u32, "hwwCgaEsrReportMask";
    }

    /// Parameters of [`GPU_GET_ID_INFO_V2`].
    unsafe plain IdInfo = "NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS", 32 bytes {
        /// RM id of the GPU.
        0 => gpu_id: u32, "gpuId";
        /// Out: flags.
        4 => gpu_flags: u32, "gpuFlags";
        /// Out: instance of the device.
        8 => device_instance: u32, "deviceInstance";
        /// Out: instance of the subdevice.
        12 => subdevice_instance: u32, "subDeviceInstance";
        /// Out: 0.
        16 => sli_status: u32, "sliStatus";
        /// Out: board.
        20 => board_id: u32, "boardId";
        /// Out: instance of the GPU.
        24 => gpu_instance: u32, "gpuInstance";
        /// Out: NUMA node, -1 for none.
        28 => numa_id: i32, "numaId";
    }

    /// Parameters of [`GPU_GET_CLASSLIST_V2`].
    unsafe plain ClassList = "NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS", 804 bytes {
        /// Out: number of classes.
        0 => count: u32, "numClasses";
        /// Out: the classes.
        4 => classes: [u32; 200], "classList";
    }

    /// Parameters of [`GPU_GET_GID_INFO`].
    unsafe plain GidInfo = "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", 268 bytes {
        /// 0.
        0 => index: u32;
        /// 2: binary.
        4 => flags: u32;
        /// In: 16. Out: length of the identifier in bytes.
        8 => length: u32;
        /// Out: the identifier.
        12 => data: [u8; 256];
    }

    /// Parameters of [`FB_GET_INFO_V2`].
    unsafe plain FbInfo = "NV2080_CTRL_FB_GET_INFO_V2_PARAMS", 1028 bytes {
        /// Elements in use.
        0 => count: u32, "fbInfoListSize";
        /// Pairs of index (NV2080_CTRL_FB_INFO_INDEX_*) and value.
        4 => list: [[u32; 2]; 128], "fbInfoList";
    }

    /// Parameters of [`GPU_GET_NAME_STRING`].
    unsafe plain NameString = "NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS", 132 bytes {
        /// 0: ASCII.
        0 => flags: u32, "gpuNameStringFlags";
        /// Out: the name, zero-terminated.
        4 => name: [u8; 64], "gpuNameString.ascii";
        /// Must be 0.
        68 => padding0: [u8; 64], "";
    }

    /// Parameters of [`PERF_BOOST`].
    unsafe plain PerfBoost = "NV2080_CTRL_PERF_BOOST_PARAMS", 8 bytes {
        /// The clock to boost.
        0 => flags: u32;
        /// Duration in seconds; 0xffffffff: until the client is freed.
        4 => duration: u32;
    }

    /// Parameters of [`GPFIFO_GET_WORK_SUBMIT_TOKEN`].
    unsafe plain WorkSubmitToken = "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS", 4 bytes {
        /// Out: the work-submit token.
        0 => token: u32, "workSubmitToken";
    }

    /// Parameters of [`GPFIFO_SCHEDULE`].
    unsafe plain GpfifoSchedule = "NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS", 3 bytes {
        /// 1 to run the group, 0 to stop it.
        0 => enable: u8, "bEnable";
        /// 0.
        1 => skip_submit: u8, "bSkipSubmit";
        /// 0.
        2 => skip_enable: u8, "bSkipEnable";
    }

    /// Parameters of [`READ_MMU_FAULT_INFO`].
    unsafe plain MmuFaults = "NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS", 72 bytes {
        /// Out: the faults, the latest last.
        0 => faults: [MmuFault; 4], "mmuFaultInfoList";
        /// Out: number of faults.
        64 => count: u32, "count";
        /// Must be 0.
        68 => padding0: [u8; 4], "";
    }

    /// Parameters of [`READ_ALL_SM_ERROR_STATES`].
    unsafe plain SmErrorStates = "NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS", 4824 bytes {
        /// The channel.
        0 => target_channel: u32, "hTargetChannel";
        /// Number of SMs to read, at most 100.
        4 => count: u32, "numSMsToRead";
        /// Out: the state of each SM.
        8 => states: [SmErrorState; 100], "smErrorStateArray";
        /// Out: obsolete.
        4808 => mmu_fault_info: u32, "mmuFaultInfo";
        /// Out: MMU fault information.
        4812 => mmu_fault: [u32; 2], "mmuFault";
        /// First SM to read.
        4820 => first: u32, "startingSM";
    }

    /// Parameters of [`CE_GET_ALL_CAPS`].
    unsafe plain CeAllCaps = "NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS", 136 bytes {
        /// Out: two bytes of capabilities for each engine.
        0 => capabilities: [u8; 128], "capsTbl";
        /// Out: bit mask of the engines.
        128 => present: u64;
    }
}
