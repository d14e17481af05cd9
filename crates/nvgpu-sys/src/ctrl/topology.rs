//! Units of the chip and their locations.

use kernel_door::uapi_struct;

use crate::Release::R39_2;
use crate::release::since;

uapi_struct! {
    /// Argument of [`GET_TPC_MASKS`](super::GET_TPC_MASKS).
    pointing(mask_buf_addr) GetTpcMasks = "nvgpu_gpu_get_tpc_masks_args", 16 bytes {
        /// In: size of the buffer in bytes. Out: size of the list in bytes.
        0 => mask_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit masks.
        8 => mask_buf_addr: u64;
    }

    /// Argument of [`GET_GPC_LOCAL_TO_PHYSICAL_MAP`](super::GET_GPC_LOCAL_TO_PHYSICAL_MAP).
    pointing(physical_gpc_buf_addr) GetGpcPhysicalMap = "nvgpu_gpu_get_gpc_physical_map_args", 16 bytes {
        /// Size of the buffer in bytes: exactly 4 per GPC present.
        0 => map_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit indices.
        8 => physical_gpc_buf_addr: u64;
    }

    /// Argument of [`GET_GPC_LOCAL_TO_LOGICAL_MAP`](super::GET_GPC_LOCAL_TO_LOGICAL_MAP).
    pointing(logical_gpc_buf_addr) GetGpcLogicalMap = "nvgpu_gpu_get_gpc_logical_map_args", 16 bytes {
        /// Size of the buffer in bytes: exactly 4 per GPC present.
        0 => map_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit indices.
        8 => logical_gpc_buf_addr: u64;
    }

    /// Result of [`NUM_VSMS`](super::NUM_VSMS).
    unsafe plain NumVsms = "nvgpu_gpu_num_vsms", 8 bytes {
        /// Number of SMs.
        0 => num_vsms: u32;
        /// Not used.
        4 => reserved: u32;
    }

    /// Location of one SM; result of [`VSMS_MAPPING`](super::VSMS_MAPPING).
    unsafe plain VsmsMappingEntry = "nvgpu_gpu_vsms_mapping_entry", 6 bytes {
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

    /// Argument of [`VSMS_MAPPING`](super::VSMS_MAPPING).
    pointing(vsms_map_buf_addr) VsmsMapping = "nvgpu_gpu_vsms_mapping", 8 bytes {
        /// Array of [`VsmsMappingEntry`], one per SM.
        0 => vsms_map_buf_addr: u64;
    }

    /// One engine; result of [`GET_ENGINE_INFO`](super::GET_ENGINE_INFO).
    unsafe plain EngineInfoItem = "nvgpu_gpu_get_engine_info_item", 16 bytes {
        /// One of the `ENGINE_*` ids.
        0 => engine_id: u32;
        /// Instance of that engine.
        4 => engine_instance: u32;
        /// Runlist that feeds it.
        8 => runlist_id: i32;
        /// Not used.
        12 => reserved: u32;
    }

    /// Argument of [`GET_ENGINE_INFO`](super::GET_ENGINE_INFO).
    pointing(engine_info_buf_addr) GetEngineInfo = "nvgpu_gpu_get_engine_info_args", 16 bytes {
        /// In: size of the buffer in bytes. Out: size of the list in bytes.
        0 => engine_info_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of [`EngineInfoItem`].
        8 => engine_info_buf_addr: u64;
    }

    /// Argument of [`GET_FBP_L2_MASKS`](super::GET_FBP_L2_MASKS).
    pointing(mask_buf_addr) GetFbpL2Masks = "nvgpu_gpu_get_fbp_l2_masks_args", 16 bytes {
        /// In: size of the buffer in bytes. Out: size of the list in bytes.
        0 => mask_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit masks.
        8 => mask_buf_addr: u64;
    }

    /// Argument of [`GET_PPC_MASKS`](super::GET_PPC_MASKS).
    pointing(mask_buf_addr) GetPpcMasks = "nvgpu_gpu_get_ppc_masks_args", 16 bytes [since(R39_2)] {
        /// In: size of the buffer in bytes. Out: size of the list in bytes.
        0 => mask_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit masks.
        8 => mask_buf_addr: u64;
    }

    /// Argument of [`GET_ROP_MASKS`](super::GET_ROP_MASKS).
    pointing(mask_buf_addr) GetRopMasks = "nvgpu_gpu_get_rop_masks_args", 16 bytes [since(R39_2)] {
        /// In: size of the buffer in bytes. Out: size of the list in bytes.
        0 => mask_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit masks.
        8 => mask_buf_addr: u64;
    }

    /// Argument of [`GET_FBP_LOCAL_TO_PHYSICAL_MAP`](super::GET_FBP_LOCAL_TO_PHYSICAL_MAP).
    pointing(physical_fbp_buf_addr) GetFbpPhysicalMap = "nvgpu_gpu_get_fbp_physical_map_args", 16 bytes [since(R39_2)] {
        /// Size of the buffer in bytes: 4 for each FBP present.
        0 => map_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit indices.
        8 => physical_fbp_buf_addr: u64;
    }

    /// Argument of [`GET_FBP_LOCAL_TO_LOGICAL_MAP`](super::GET_FBP_LOCAL_TO_LOGICAL_MAP).
    pointing(logical_fbp_buf_addr) GetFbpLogicalMap = "nvgpu_gpu_get_fbp_logical_map_args", 16 bytes [since(R39_2)] {
        /// Size of the buffer in bytes: 4 for each FBP present.
        0 => map_buf_size: u32;
        /// Not used.
        4 => reserved: u32;
        /// Array of 32-bit indices.
        8 => logical_fbp_buf_addr: u64;
    }
}
