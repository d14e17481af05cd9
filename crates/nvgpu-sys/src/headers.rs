//! Contents of this crate by kernel header.
//!
//! Five headers in two source trees of an L4T release define the interface of the GPU driver:
//! `nvgpu`, the GPU driver, and `nvidia-oot`, the other out-of-tree drivers. This module lists the
//! requests and structs of this crate by header, for tools that compare them with a release.

use crate::channel::SETUP_BIND_R39;
use crate::ctrl::CHARACTERISTICS_R36;
use crate::{address_space, channel, ctrl, dma_buf, dma_heap, host1x, nvmap, sync_file, tsg, udmabuf};
use kernel_door::layout::StructInfo;
use kernel_door::{RequestInfo, structs};

/// One header, with the requests and structs of this crate that it defines.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Path in the sources of an L4T r36 release.
    pub path: &'static str,
    /// The requests, family by family.
    pub requests: &'static [&'static [RequestInfo]],
    /// The structs: arguments of the requests, and the types that arguments contain or point to.
    pub structs: &'static [&'static [StructInfo]],
}

/// Structs of the control node.
const CTRL: &[StructInfo] = structs!(
    ctrl:
    Characteristics GetCharacteristics ZcullGetCtxSize ZcullGetInfo ZbcSetTable ZbcQueryTable
    PrepareCompressibleRead MarkCompressibleWrite AllocAs OpenTsg OpenTsgR39 GetTpcMasks GetPpcMasks GetRopMasks
    GetGpcPhysicalMap GetGpcLogicalMap GetFbpPhysicalMap GetFbpLogicalMap OpenChannel FlushL2 MmuDebugMode
    SmDebugMode WarpState WaitPause
    TpcExceptionEnStatus NumVsms VsmsMappingEntry VsmsMapping CpuTimeCorrelationSample
    GetCpuTimeCorrelationInfo GetGpuTime EngineInfoItem GetEngineInfo AllocVidmem ClkRange ClkRangeArgs
    ClkVfPoint ClkVfPointsArgs ClkInfo ClkGetInfo ClkSetInfo GetEventFd GetMemoryState GetVoltage
    GetCurrent GetPower GetTemperature SetThermAlertLimit GetFbpL2Masks SetDeterministicOpts
    RegisterBuffer BufferInfoIn BufferInfoOut
);
/// Structs of address spaces.
const ADDRESS_SPACE: &[StructInfo] = structs!(
    address_space:
    BindChannel AllocSpace32 FreeSpace UnmapBuffer AllocSpace MapBufferEx VaRegion GetVaRegions
    MapBufferBatch GetSyncRoMap SyncpointRegion GetSyncRoMapV2
    MappingModify RemapOp Remap
);
/// Structs of TSGs.
const TSG: &[StructInfo] = structs!(
    tsg:
    EventIdCtrl RunlistInterleave Timeslice BindChannelEx SmErrorStateRecord SmErrorStateRecordR39
    ReadSingleSmErrorState L2MaxWaysEvictLast SetL2SectorPromotion BindSchedulingDomain
    CreateSubcontext DeleteSubcontext GetShareToken GetShareTokenR39 RevokeShareToken RevokeShareTokenR39
);
/// Structs of channels.
const CHANNEL: &[StructInfo] = structs!(
    channel:
    SetNvmapFd SetTimeout SetTimeoutEx GetParam Wait Gpfifo SubmitGpfifo Fence AllocObjCtx ZcullBind
    SetErrorNotifier Notification Open Wdt PreemptionMode AllocGpfifoEx AllocGpfifoExR39 BoostedCtx GetUserSyncpoint
    RescheduleRunlist SetupBind
);
/// Structs of nvmap.
const NVMAP: &[StructInfo] = structs!(
    nvmap:
    CreateHandle CreateHandle64 AllocHandle AllocHandleR39 CreateHandleFromVa RwHandle RwHandle32 CacheOp CacheOp32
    CacheOp64 CacheOpList SetTagLabel AvailableHeaps HeapSize HandleParameters
    QueryHeapParams DuplicateHandle GupTest FdForRangeFromList AllocIvmHandle SciIpcMap
);
/// Structs of syncpoint fences.
const HOST1X: &[StructInfo] = structs!(
    host1x:
    CreateFence FenceExtractFence FenceExtract CreatePollfd TriggerPollfd
);

/// Structs of Linux itself, header by header.
const SYNC_FILE: &[StructInfo] = structs!(sync_file: Merge FileInfo);
const DMA_BUF: &[StructInfo] = structs!(dma_buf: Sync ExportSyncFile ImportSyncFile);
const DMA_HEAP: &[StructInfo] = structs!(dma_heap: AllocationData);
const UDMABUF: &[StructInfo] = structs!(udmabuf: Create CreateItem CreateList);

/// The headers of Linux itself with requests of this crate. They are not part of an L4T release's drivers.
pub const LINUX: &[Header] = &[
    Header { path: "linux/sync_file.h", requests: &[sync_file::ALL], structs: &[SYNC_FILE] },
    Header { path: "linux/dma-buf.h", requests: &[dma_buf::ALL], structs: &[DMA_BUF] },
    Header { path: "linux/dma-heap.h", requests: &[dma_heap::ALL], structs: &[DMA_HEAP] },
    Header { path: "linux/udmabuf.h", requests: &[udmabuf::ALL], structs: &[UDMABUF] },
];

/// Every header of NVIDIA's drivers with requests of this crate.
pub const ALL: &[Header] = &[
    Header {
        path: "nvgpu/include/uapi/linux/nvgpu-ctrl.h",
        requests: &[ctrl::ALL],
        structs: &[CTRL, &[CHARACTERISTICS_R36]],
    },
    Header {
        path: "nvgpu/include/uapi/linux/nvgpu-as.h",
        requests: &[address_space::ALL],
        structs: &[ADDRESS_SPACE],
    },
    Header {
        path: "nvgpu/include/uapi/linux/nvgpu.h",
        requests: &[tsg::ALL, channel::ALL],
        structs: &[TSG, CHANNEL, &[SETUP_BIND_R39]],
    },
    Header { path: "nvidia-oot/include/uapi/linux/nvmap.h", requests: &[nvmap::ALL], structs: &[NVMAP] },
    Header {
        path: "nvidia-oot/drivers/gpu/host1x-fence/include/uapi/linux/host1x-fence.h",
        requests: &[host1x::ALL],
        structs: &[HOST1X],
    },
];
