//! Classes of RM objects, and their allocation parameters (`class/*.h`, `alloc/*.h`,
//! `nvos.h`).

use gpu_hal::chip::ClassId;
use kernel_door::uapi_struct;

use super::number::Class;

/// The client: the root of the objects of a process.
pub const ROOT_CLIENT: Class<()> = Class::new(0x41, "NV01_ROOT_CLIENT");
/// One GPU.
pub const DEVICE: Class<Device> = Class::new(0x80, "NV01_DEVICE_0");
/// One GPU of a device; a device has only one here.
pub const SUBDEVICE: Class<Subdevice> = Class::new(0x2080, "NV20_SUBDEVICE_0");
/// The page with the doorbell, mapped through BAR0 or BAR1. From Hopper on.
pub const fn usermode(class: ClassId) -> Class<Usermode> {
    Class::new(class.number, class.name)
}
/// The page with the doorbell, mapped through BAR0. Before Hopper.
pub const fn usermode_bar0(class: ClassId) -> Class<()> {
    Class::new(class.number, class.name)
}
/// GPU page tables.
pub const VA_SPACE: Class<VaSpace> = Class::new(0x90f1, "FERMI_VASPACE_A");
/// Video memory.
pub const MEMORY_VIDEO: Class<Memory> = Class::new(0x40, "NV01_MEMORY_LOCAL_USER");
/// System memory.
pub const MEMORY_SYSTEM: Class<Memory> = Class::new(0x3e, "NV01_MEMORY_SYSTEM");
/// Memory of the process.
pub const MEMORY_HOST: u32 = 0x71;
/// A group of channels that are scheduled together.
pub const CHANNEL_GROUP: Class<ChannelGroup> = Class::new(0xa06c, "KEPLER_CHANNEL_GROUP_A");
/// A subcontext: gives channels of a group their VA space.
pub const CONTEXT_SHARE: Class<ContextShare> = Class::new(0x9067, "FERMI_CONTEXT_SHARE_A");
/// A channel with a GPFIFO ring.
pub const fn channel_gpfifo(class: ClassId) -> Class<ChannelGpfifo> {
    Class::new(class.number, class.name)
}
/// The compute engine, or the copy engine tied to graphics, on a channel.
pub const fn engine(class: ClassId) -> Class<()> {
    Class::new(class.number, class.name)
}
/// A selected copy engine on a channel.
pub const fn copy_engine(class: ClassId) -> Class<CopyEngine> {
    Class::new(class.number, class.name)
}
/// Access to the state of the SMs.
pub const DEBUGGER: Class<Debugger> = Class::new(0x83de, "GT200_DEBUGGER");
/// An event that a file reports.
pub const EVENT: Class<Event> = Class::new(0x79, "NV01_EVENT_OS_EVENT");

/// [`VaSpace::flags`]: UVM owns the page tables.
pub const VA_SPACE_EXTERNALLY_OWNED: u32 = 0x8;
/// [`VaSpace::flags`]: faults of shaders are replayable.
pub const VA_SPACE_PAGE_FAULTING: u32 = 0x40;
/// Engine type of graphics and compute (NV2080_ENGINE_TYPE_GRAPHICS).
pub const ENGINE_GRAPHICS: u32 = 1;
/// Engine type of copy engine 0 (NV2080_ENGINE_TYPE_COPY0); nine more follow.
pub const ENGINE_COPY0: u32 = 9;
/// [`CopyEngine::version`]: `engine_type` selects the engine.
pub const COPY_ENGINE_BY_TYPE: u32 = 1;
/// [`ContextShare::flags`]: an asynchronous subcontext.
pub const CONTEXT_SHARE_ASYNC: u32 = 1;
/// [`Event::notify_index`]: an engine has executed NON_STALL_INTERRUPT (NV2080_NOTIFIERS_FIFO_EVENT_MTHD).
pub const NOTIFIER_FIFO_EVENT: u32 = 35;
/// [`Event::notify_index`]: event of a non-stalling interrupt.
pub const EVENT_NON_STALL: u32 = 0x0800_0000;
/// [`Event::notify_index`]: the file becomes ready without data to read.
pub const EVENT_WITHOUT_DATA: u32 = 0x1000_0000;

uapi_struct! {
    /// Parameters of NV01_DEVICE_0.
    unsafe plain Device = "NV0080_ALLOC_PARAMETERS", 56 bytes {
        /// Instance of the device.
        0 => device_id: u32, "deviceId";
        /// The client whose VA spaces are shared.
        4 => client_share: u32, "hClientShare";
        /// 0.
        8 => target_client: u32, "hTargetClient";
        /// 0.
        12 => target_device: u32, "hTargetDevice";
        /// Flags; 0 by default.
        16 => flags: u32;
        /// Must be 0.
        20 => padding0: [u8; 4], "";
        /// 0: the default.
        24 => va_space_size: u64, "vaSpaceSize";
        /// 0.
        32 => va_start_internal: u64, "vaStartInternal";
        /// 0.
        40 => va_limit_internal: u64, "vaLimitInternal";
        /// 0: several VA spaces are allowed.
        48 => va_mode: u32, "vaMode";
        /// Must be 0.
        52 => padding1: [u8; 4], "";
    }

    /// Parameters of NV20_SUBDEVICE_0.
    unsafe plain Subdevice = "NV2080_ALLOC_PARAMETERS", 4 bytes {
        /// Instance of the subdevice.
        0 => subdevice_id: u32, "subDeviceId";
    }

    /// Parameters of HOPPER_USERMODE_A.
    unsafe plain Usermode = "NV_HOPPER_USERMODE_A_PARAMS", 2 bytes {
        /// 1 for a write-only mapping through BAR1.
        0 => bar1_mapping: u8, "bBar1Mapping";
        /// 0: only used by the kernel.
        1 => privileged: u8, "bPriv";
    }

    /// Parameters of FERMI_VASPACE_A.
    unsafe plain VaSpace = "NV_VASPACE_ALLOCATION_PARAMETERS", 56 bytes {
        /// 0: a new VA space.
        0 => index: u32;
        /// NV_VASPACE_ALLOCATION_FLAGS_*.
        4 => flags: u32;
        /// Size of the VA space in bytes.
        8 => va_size: u64, "vaSize";
        /// 0.
        16 => va_start_internal: u64, "vaStartInternal";
        /// 0.
        24 => va_limit_internal: u64, "vaLimitInternal";
        /// 0: the default.
        32 => big_page_size: u32, "bigPageSize";
        /// Must be 0.
        36 => padding0: [u8; 4], "";
        /// First address.
        40 => va_base: u64, "vaBase";
        /// 0: none.
        48 => pasid: u32;
        /// Must be 0.
        52 => padding1: [u8; 4], "";
    }

    /// Parameters of KEPLER_CHANNEL_GROUP_A.
    unsafe plain ChannelGroup = "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", 20 bytes {
        /// Memory of the error notifier, or 0.
        0 => object_error: u32, "hObjectError";
        /// Memory of the ECC error notifier, or 0.
        4 => object_ecc_error: u32, "hObjectEccError";
        /// The VA space object, or 0.
        8 => va_space: u32, "hVASpace";
        /// Engine (NV2080_ENGINE_TYPE_*).
        12 => engine_type: u32, "engineType";
        /// 0.
        16 => is_vgpu_plugin: u8, "bIsCallingContextVgpuPlugin";
        /// Must be 0.
        17 => padding0: [u8; 3], "";
    }

    /// Parameters of FERMI_CONTEXT_SHARE_A.
    unsafe plain ContextShare = "NV_CTXSHARE_ALLOCATION_PARAMETERS", 12 bytes {
        /// The VA space object, or 0.
        0 => va_space: u32, "hVASpace";
        /// 0 synchronous, 1 asynchronous subcontext.
        4 => flags: u32;
        /// Out: number of the subcontext.
        8 => subcontext_id: u32, "subctxId";
    }

    /// Parameters of NV01_MEMORY_LOCAL_USER and NV01_MEMORY_SYSTEM.
    unsafe plain Memory = "NV_MEMORY_ALLOCATION_PARAMS", 128 bytes {
        /// The client.
        0 => owner: u32;
        /// NVOS32_TYPE_*: 0 for an image, 13 for a notifier.
        4 => kind: u32, "type";
        /// NVOS32_ALLOC_FLAGS_*.
        8 => flags: u32;
        /// 0.
        12 => width: u32;
        /// 0.
        16 => height: u32;
        /// 0.
        20 => pitch: i32;
        /// NVOS32_ATTR_*: location, page size, coherency.
        24 => attr: u32;
        /// NVOS32_ATTR2_*.
        28 => attr2: u32;
        /// Out: kind of the pages.
        32 => format: u32;
        /// 0.
        36 => compression_coverage: u32, "comprCovg";
        /// 0.
        40 => zcull_coverage: u32, "zcullCovg";
        /// Must be 0.
        44 => padding0: [u8; 4], "";
        /// 0.
        48 => range_lo: u64, "rangeLo";
        /// 0.
        56 => range_hi: u64, "rangeHi";
        /// Size in bytes. Out: rounded up.
        64 => size: u64;
        /// Alignment in bytes.
        72 => alignment: u64;
        /// Offset in bytes.
        80 => offset: u64;
        /// Size less 1.
        88 => limit: u64;
        /// 0.
        96 => address: u64;
        /// 0.
        104 => ctag_offset: u32, "ctagOffset";
        /// The VA space object, or 0.
        108 => va_space: u32, "hVASpace";
        /// 0.
        112 => internal_flags: u32, "internalflags";
        /// 0.
        116 => tag: u32;
        /// 0: any.
        120 => numa_node: i32, "numaNode";
        /// Must be 0.
        124 => padding1: [u8; 4], "";
    }

    /// Parameters of HOPPER_CHANNEL_GPFIFO_A.
    unsafe plain ChannelGpfifo = "NV_CHANNEL_ALLOC_PARAMS", 368 bytes {
        /// Memory of the error notifier, or 0.
        0 => object_error: u32, "hObjectError";
        /// 0: ignored.
        4 => object_buffer: u32, "hObjectBuffer";
        /// GPU address of the ring.
        8 => gpfifo_va: u64, "gpFifoOffset";
        /// Entries of the ring, a power of two.
        16 => gpfifo_entries: u32, "gpFifoEntries";
        /// Flags; 0 by default.
        20 => flags: u32;
        /// The context share.
        24 => context_share: u32, "hContextShare";
        /// The VA space object, or 0.
        28 => va_space: u32, "hVASpace";
        /// Memory with USERD, for each subdevice.
        32 => userd_memory: [u32; 8], "hUserdMemory";
        /// Offset of USERD in that memory, a multiple of 512, for each subdevice.
        64 => userd_offset: [u64; 8], "userdOffset";
        /// Engine (NV2080_ENGINE_TYPE_*).
        128 => engine_type: u32, "engineType";
        /// Out: 0.
        132 => cid: u32;
        /// 0.
        136 => subdevice_id: u32, "subDeviceId";
        /// Memory of the ECC error notifier, or 0.
        140 => object_ecc_error: u32, "hObjectEccError";
        /// 0.
        144 => instance_memory: [u32; 6], "instanceMem";
        /// 0.
        168 => userd_memory_descriptor: [u32; 6], "userdMem";
        /// 0.
        192 => ramfc_memory: [u32; 6], "ramfcMem";
        /// 0.
        216 => method_buffer_memory: [u32; 6], "mthdbufMem";
        /// 0.
        240 => phys_channel_group: u32, "hPhysChannelGroup";
        /// 0.
        244 => internal_flags: u32, "internalFlags";
        /// 0.
        248 => error_notifier_memory: [u32; 6], "errorNotifierMem";
        /// 0.
        272 => ecc_error_notifier_memory: [u32; 6], "eccErrorNotifierMem";
        /// 0.
        296 => process_id: u32, "ProcessID";
        /// 0.
        300 => sub_process_id: u32, "SubProcessID";
        /// 0.
        304 => encrypt_iv: [u32; 3], "encryptIv";
        /// 0.
        316 => decrypt_iv: [u32; 3], "decryptIv";
        /// 0.
        328 => hmac_nonce: [u32; 8], "hmacNonce";
        /// 0.
        360 => tpc_config_id: u32, "tpcConfigID";
        /// Must be 0.
        364 => padding0: [u8; 4], "";
    }

    /// Parameters of GT200_DEBUGGER.
    unsafe plain Debugger = "NV83DE_ALLOC_PARAMETERS", 12 bytes {
        /// 0.
        0 => obsolete: u32, "hDebuggerClient_Obsolete";
        /// The debugged client.
        4 => app_client: u32, "hAppClient";
        /// Its compute object.
        8 => compute_object: u32, "hClass3dObject";
    }

    /// Parameters of NV01_EVENT_OS_EVENT.
    unsafe plain Event = "NV0005_ALLOC_PARAMETERS", 24 bytes {
        /// The client.
        0 => parent_client: u32, "hParentClient";
        /// Source object of the event.
        4 => source: u32, "hSrcResource";
        /// Class of the event.
        8 => class: u32, "hClass";
        /// Index of the event, and flags.
        12 => notify_index: u32, "notifyIndex";
        /// Descriptor of the file that reports it.
        16 => data: u64;
    }

    /// Parameters of HOPPER_DMA_COPY_A.
    unsafe plain CopyEngine = "NVB0B5_ALLOCATION_PARAMETERS", 8 bytes {
        /// 1: `engine_type` is valid.
        0 => version: u32;
        /// Engine (NV2080_ENGINE_TYPE_*).
        4 => engine_type: u32, "engineType";
    }
}
