//! Requests of `/dev/nvidia-uvm` (`uvm_ioctl.h`, `uvm_linux_ioctl.h`), the owner of the GPU's page tables.
//!
//! The request code is the number alone; the field `rm_status` contains the result.

use kernel_door::uapi_struct;

/// Request of [`Initialize`].
pub const INITIALIZE: u32 = 0x3000_0001;
/// Request of [`MmInitialize`].
pub const MM_INITIALIZE: u32 = 75;
/// Request of [`RegisterGpu`].
pub const REGISTER_GPU: u32 = 37;
/// Request of [`UnregisterGpu`].
pub const UNREGISTER_GPU: u32 = 38;
/// Request of [`RegisterGpuVaSpace`].
pub const REGISTER_GPU_VASPACE: u32 = 25;
/// Request of [`UnregisterGpuVaSpace`].
pub const UNREGISTER_GPU_VASPACE: u32 = 26;
/// Request of [`CreateExternalRange`].
pub const CREATE_EXTERNAL_RANGE: u32 = 73;
/// Request of [`MapExternalAllocation`].
pub const MAP_EXTERNAL_ALLOCATION: u32 = 33;
/// Request of [`Free`].
pub const FREE: u32 = 34;
/// Request of [`EnablePeerAccess`].
pub const ENABLE_PEER_ACCESS: u32 = 29;
/// Request of [`RegisterChannel`].
pub const REGISTER_CHANNEL: u32 = 27;
/// Request of [`UnregisterChannel`].
pub const UNREGISTER_CHANNEL: u32 = 28;

/// Flag of [`Initialize`]: do not mirror the process's page tables, so that a stray access faults.
pub const INITIALIZE_DISABLE_HMM: u64 = 1;
/// [`MappingAttributes::gpu_mapping_type`]: read, write and atomics.
pub const MAPPING_READ_WRITE_ATOMIC: u32 = 1;

uapi_struct! {
    /// Argument of [`INITIALIZE`]: makes the file a VA space.
    unsafe plain Initialize = "UVM_INITIALIZE_PARAMS", 16 bytes {
        /// Flags; 0 by default.
        0 => flags: u64;
        /// Out: RM status of the call; 0 is success.
        8 => rm_status: u32, "rmStatus";
        /// Must be 0.
        12 => padding0: [u8; 4], "";
    }

    /// Argument of [`MM_INITIALIZE`]: ties the process's memory to a VA space.
    unsafe plain MmInitialize = "UVM_MM_INITIALIZE_PARAMS", 8 bytes {
        /// Descriptor of the VA space's file.
        0 => uvm_fd: i32, "uvmFd";
        /// Out: RM status of the call; 0 is success.
        4 => rm_status: u32, "rmStatus";
    }

    /// Argument of [`REGISTER_GPU`].
    unsafe plain RegisterGpu = "UVM_REGISTER_GPU_PARAMS", 40 bytes {
        /// UUID of the GPU.
        0 => gpu_uuid: [u8; 16];
        /// Out: whether the GPU is a NUMA node.
        16 => numa_enabled: u8, "numaEnabled";
        /// Must be 0.
        17 => padding0: [u8; 3], "";
        /// Out: its NUMA node.
        20 => numa_node_id: i32, "numaNodeId";
        /// Descriptor of the control file.
        24 => rm_ctrl_fd: i32, "rmCtrlFd";
        /// The client.
        28 => client: u32, "hClient";
        /// Partition, for MIG.
        32 => smc_part_ref: u32, "hSmcPartRef";
        /// Out: RM status of the call; 0 is success.
        36 => rm_status: u32, "rmStatus";
    }

    /// Argument of [`UNREGISTER_GPU`].
    unsafe plain UnregisterGpu = "UVM_UNREGISTER_GPU_PARAMS", 20 bytes {
        /// UUID of the GPU.
        0 => gpu_uuid: [u8; 16];
        /// Out: RM status of the call; 0 is success.
        16 => rm_status: u32, "rmStatus";
    }

    /// Argument of [`REGISTER_GPU_VASPACE`]: lets UVM own the page tables of an RM VA space.
    unsafe plain RegisterGpuVaSpace = "UVM_REGISTER_GPU_VASPACE_PARAMS", 32 bytes {
        /// UUID of the GPU.
        0 => gpu_uuid: [u8; 16], "gpuUuid";
        /// Descriptor of the control file.
        16 => rm_ctrl_fd: i32, "rmCtrlFd";
        /// The client.
        20 => client: u32, "hClient";
        /// The VA space object.
        24 => va_space: u32, "hVaSpace";
        /// Out: RM status of the call; 0 is success.
        28 => rm_status: u32, "rmStatus";
    }

    /// Argument of [`UNREGISTER_GPU_VASPACE`].
    unsafe plain UnregisterGpuVaSpace = "UVM_UNREGISTER_GPU_VASPACE_PARAMS", 20 bytes {
        /// UUID of the GPU.
        0 => gpu_uuid: [u8; 16], "gpuUuid";
        /// Out: RM status of the call; 0 is success.
        16 => rm_status: u32, "rmStatus";
    }

    /// Argument of [`CREATE_EXTERNAL_RANGE`]: reserves GPU addresses.
    unsafe plain CreateExternalRange = "UVM_CREATE_EXTERNAL_RANGE_PARAMS", 24 bytes {
        /// First GPU address.
        0 => base: u64;
        /// Length in bytes.
        8 => length: u64;
        /// Out: RM status of the call; 0 is success.
        16 => rm_status: u32, "rmStatus";
        /// Must be 0.
        20 => padding0: [u8; 4], "";
    }

    /// Mapping attributes of an allocation for one GPU.
    unsafe plain MappingAttributes = "UvmGpuMappingAttributes", 36 bytes {
        /// UUID of the GPU.
        0 => gpu_uuid: [u8; 16], "gpuUuid";
        /// Permissions: 0 default, 1 read, write and atomics, 2 read and write, 3 read.
        16 => gpu_mapping_type: u32, "gpuMappingType";
        /// 0 default, 1 uncached, 2 cached.
        20 => gpu_caching_type: u32, "gpuCachingType";
        /// 0: default.
        24 => gpu_format_type: u32, "gpuFormatType";
        /// 0: default.
        28 => gpu_element_bits: u32, "gpuElementBits";
        /// 0: default.
        32 => gpu_compression_type: u32, "gpuCompressionType";
    }

    /// Argument of [`MAP_EXTERNAL_ALLOCATION`]: maps an RM memory object into an external range.
    unsafe plain MapExternalAllocation = "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS", 9264 bytes {
        /// First GPU address.
        0 => base: u64;
        /// Length in bytes.
        8 => length: u64;
        /// Offset in bytes.
        16 => offset: u64;
        /// How each GPU maps it.
        24 => per_gpu_attributes: [MappingAttributes; 256], "perGpuAttributes";
        /// Elements in use.
        9240 => gpu_attributes_count: u64, "gpuAttributesCount";
        /// Descriptor of the control file.
        9248 => rm_ctrl_fd: i32, "rmCtrlFd";
        /// The client.
        9252 => client: u32, "hClient";
        /// The memory object.
        9256 => memory: u32, "hMemory";
        /// Out: RM status of the call; 0 is success.
        9260 => rm_status: u32, "rmStatus";
    }

    /// Argument of [`FREE`]: gives an external range back.
    unsafe plain Free = "UVM_FREE_PARAMS", 24 bytes {
        /// First GPU address.
        0 => base: u64;
        /// Length in bytes.
        8 => length: u64;
        /// Out: RM status of the call; 0 is success.
        16 => rm_status: u32, "rmStatus";
        /// Must be 0.
        20 => padding0: [u8; 4], "";
    }

    /// Argument of [`ENABLE_PEER_ACCESS`]: lets two registered GPUs map each other's memory over PCIe. GPUs connected
    /// by NVLink are peers from their registration on; for these, the status is `NV_ERR_INVALID_DEVICE`.
    unsafe plain EnablePeerAccess = "UVM_ENABLE_PEER_ACCESS_PARAMS", 36 bytes {
        /// UUID of one GPU.
        0 => gpu_uuid_a: [u8; 16], "gpuUuidA";
        /// UUID of the other.
        16 => gpu_uuid_b: [u8; 16], "gpuUuidB";
        /// Out: RM status of the call; 0 is success.
        32 => rm_status: u32, "rmStatus";
    }

    /// Argument of [`REGISTER_CHANNEL`]: lets UVM map what a channel needs.
    unsafe plain RegisterChannel = "UVM_REGISTER_CHANNEL_PARAMS", 56 bytes {
        /// UUID of the GPU.
        0 => gpu_uuid: [u8; 16], "gpuUuid";
        /// Descriptor of the control file.
        16 => rm_ctrl_fd: i32, "rmCtrlFd";
        /// The client.
        20 => client: u32, "hClient";
        /// The channel object.
        24 => channel: u32, "hChannel";
        /// Must be 0.
        28 => padding0: [u8; 4], "";
        /// First GPU address.
        32 => base: u64;
        /// Length in bytes.
        40 => length: u64;
        /// Out: RM status of the call; 0 is success.
        48 => rm_status: u32, "rmStatus";
        /// Must be 0.
        52 => padding1: [u8; 4], "";
    }

    /// Argument of [`UNREGISTER_CHANNEL`]: stops a channel.
    unsafe plain UnregisterChannel = "UVM_UNREGISTER_CHANNEL_PARAMS", 28 bytes {
        /// UUID of the GPU.
        0 => gpu_uuid: [u8; 16], "gpuUuid";
        /// The client.
        16 => client: u32, "hClient";
        /// The channel object.
        20 => channel: u32, "hChannel";
        /// Out: RM status of the call; 0 is success.
        24 => rm_status: u32, "rmStatus";
    }
}
