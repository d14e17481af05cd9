//! Compares every flag and constant of the crate with the headers.

use std::collections::{BTreeMap, BTreeSet};

use bitflags::Flags;
use nvgpu_sys::{Release, address_space, channel, ctrl, nvmap, tsg};

use super::{left_out, table};

/// Every flag of a set, by the header's prefix and the flag's own name.
fn flags<F: Flags<Bits: Copy + Into<u64>> + 'static>(prefix: &str) -> Vec<(String, u64)> {
    F::FLAGS.iter().map(|flag| (format!("{prefix}{}", flag.name()), flag.value().bits().into())).collect()
}

/// The header's value of one name.
const ECC: ctrl::GpuFlags = ctrl::GpuFlags::ECC_ENABLED_SM_LRF
    .union(ctrl::GpuFlags::ECC_ENABLED_SM_SHM)
    .union(ctrl::GpuFlags::ECC_ENABLED_TEX)
    .union(ctrl::GpuFlags::ECC_ENABLED_LTC);

fn nvgpu_flags() -> Vec<(String, u64)> {
    [
        flags::<ctrl::GpuFlags>("NVGPU_GPU_FLAGS_"),
        flags::<ctrl::AllocAsFlags>("NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_"),
        flags::<ctrl::OpenTsgFlags>("NVGPU_GPU_IOCTL_OPEN_TSG_FLAGS_"),
        flags::<ctrl::DeterministicOpts>("NVGPU_GPU_SET_DETERMINISTIC_OPTS_FLAGS_"),
        flags::<ctrl::RegisterBufferFlags>("NVGPU_GPU_REGISTER_BUFFER_FLAGS_"),
        flags::<ctrl::BufferInfoFlags>("NVGPU_GPU_BUFFER_INFO_FLAGS_"),
        flags::<ctrl::Compbits>("NVGPU_GPU_COMPBITS_"),
        flags::<ctrl::AllocVidmemFlags>("NVGPU_GPU_ALLOC_VIDMEM_FLAG_"),
        flags::<address_space::AllocSpaceFlags>("NVGPU_AS_ALLOC_SPACE_FLAGS_"),
        flags::<address_space::MapBufferFlags>("NVGPU_AS_MAP_BUFFER_FLAGS_"),
        flags::<address_space::RemapFlags>("NVGPU_AS_REMAP_OP_FLAGS_"),
        flags::<channel::SetupBindFlags>("NVGPU_CHANNEL_SETUP_BIND_FLAGS_"),
        flags::<channel::AllocGpfifoExFlags>("NVGPU_ALLOC_GPFIFO_EX_FLAGS_"),
        flags::<channel::SubmitFlags>("NVGPU_SUBMIT_GPFIFO_FLAGS_"),
        flags::<channel::AllocObjCtxFlags>("NVGPU_ALLOC_OBJ_FLAGS_"),
        flags::<channel::GraphicsPreemption>("NVGPU_GRAPHICS_PREEMPTION_MODE_"),
        flags::<channel::ComputePreemption>("NVGPU_COMPUTE_PREEMPTION_MODE_"),
    ]
    .concat()
}

fn nvgpu_constants() -> Vec<(&'static str, u64)> {
    vec![
        ("NVGPU_GPU_IOCTL_MAGIC", ctrl::FAMILY.into()),
        ("NVGPU_GPU_IOCTL_LAST", Release::R36_4_3.last(ctrl::ALL).into()),
        ("NVGPU_AS_IOCTL_MAGIC", address_space::FAMILY.into()),
        ("NVGPU_AS_IOCTL_LAST", Release::R36_4_3.last(address_space::ALL).into()),
        ("NVGPU_TSG_IOCTL_MAGIC", tsg::FAMILY.into()),
        ("NVGPU_TSG_IOCTL_LAST", Release::R36_4_3.last(tsg::ALL).into()),
        ("NVGPU_IOCTL_MAGIC", channel::FAMILY.into()),
        ("NVGPU_IOCTL_CHANNEL_LAST", Release::R36_4_3.last(channel::ALL).into()),
        ("NVGPU_GPU_ENGINE_ID_GR", ctrl::ENGINE_GR.into()),
        ("NVGPU_GPU_ENGINE_ID_GR_COPY", ctrl::ENGINE_GR_COPY.into()),
        ("NVGPU_GPU_ENGINE_ID_ASYNC_COPY", ctrl::ENGINE_ASYNC_COPY.into()),
        ("NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_SRC_ID_TSC", ctrl::TIME_SOURCE_TSC.into()),
        ("NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_SRC_ID_OSTIME", ctrl::TIME_SOURCE_OSTIME.into()),
        ("NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_MAX_COUNT", ctrl::TIME_CORRELATION_MAX_COUNT.into()),
        ("NVGPU_GPU_CLK_FLAG_SPECIFIC_DOMAINS", ctrl::CLK_FLAG_SPECIFIC_DOMAINS.into()),
        ("NVGPU_GPU_CLK_DOMAIN_MCLK", ctrl::CLK_DOMAIN_MCLK.into()),
        ("NVGPU_GPU_CLK_DOMAIN_GPCCLK", ctrl::CLK_DOMAIN_GPCCLK.into()),
        ("NVGPU_GPU_CLK_TYPE_TARGET", ctrl::CLK_TYPE_TARGET.into()),
        ("NVGPU_GPU_CLK_TYPE_ACTUAL", ctrl::CLK_TYPE_ACTUAL.into()),
        ("NVGPU_GPU_CLK_TYPE_EFFECTIVE", ctrl::CLK_TYPE_EFFECTIVE.into()),
        ("NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET", address_space::ACCESS_SHIFT.into()),
        ("NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_SIZE", address_space::ACCESS_BITS.into()),
        ("NVGPU_AS_MAP_BUFFER_ACCESS_DEFAULT", address_space::ACCESS_DEFAULT.into()),
        ("NVGPU_AS_MAP_BUFFER_ACCESS_READ_ONLY", address_space::ACCESS_READ_ONLY.into()),
        ("NVGPU_AS_MAP_BUFFER_ACCESS_READ_WRITE", address_space::ACCESS_READ_WRITE.into()),
        ("NV_KIND_INVALID", i32::from(address_space::KIND_INVALID).cast_unsigned().into()),
        ("NVGPU_TSG_SUBCONTEXT_TYPE_SYNC", tsg::SUBCONTEXT_SYNC.into()),
        ("NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC", tsg::SUBCONTEXT_ASYNC.into()),
        ("NVGPU_IOCTL_CHANNEL_EVENT_ID_CMD_ENABLE", tsg::EVENT_CMD_ENABLE.into()),
        ("NVGPU_IOCTL_CHANNEL_EVENT_ID_BPT_INT", tsg::EVENT_BPT_INT.into()),
        ("NVGPU_IOCTL_CHANNEL_EVENT_ID_BPT_PAUSE", tsg::EVENT_BPT_PAUSE.into()),
        ("NVGPU_IOCTL_CHANNEL_EVENT_ID_BLOCKING_SYNC", tsg::EVENT_BLOCKING_SYNC.into()),
        ("NVGPU_IOCTL_CHANNEL_EVENT_ID_CILP_PREEMPTION_STARTED", tsg::EVENT_CILP_PREEMPTION_STARTED.into()),
        ("NVGPU_IOCTL_CHANNEL_EVENT_ID_CILP_PREEMPTION_COMPLETE", tsg::EVENT_CILP_PREEMPTION_COMPLETE.into()),
        (
            "NVGPU_IOCTL_CHANNEL_EVENT_ID_GR_SEMAPHORE_WRITE_AWAKEN",
            tsg::EVENT_GR_SEMAPHORE_WRITE_AWAKEN.into(),
        ),
        ("NVGPU_IOCTL_CHANNEL_EVENT_ID_MAX", tsg::EVENT_COUNT.into()),
        ("NVGPU_RUNLIST_INTERLEAVE_LEVEL_LOW", tsg::INTERLEAVE_LOW.into()),
        ("NVGPU_RUNLIST_INTERLEAVE_LEVEL_MEDIUM", tsg::INTERLEAVE_MEDIUM.into()),
        ("NVGPU_RUNLIST_INTERLEAVE_LEVEL_HIGH", tsg::INTERLEAVE_HIGH.into()),
        ("NVGPU_GPU_IOCTL_TSG_L2_SECTOR_PROMOTE_FLAG_NONE", tsg::L2_SECTOR_PROMOTE_NONE.into()),
        ("NVGPU_GPU_IOCTL_TSG_L2_SECTOR_PROMOTE_FLAG_64B", tsg::L2_SECTOR_PROMOTE_64B.into()),
        ("NVGPU_GPU_IOCTL_TSG_L2_SECTOR_PROMOTE_FLAG_128B", tsg::L2_SECTOR_PROMOTE_128B.into()),
        ("NVGPU_IOCTL_CHANNEL_DISABLE_WDT", channel::WDT_DISABLE.into()),
        ("NVGPU_IOCTL_CHANNEL_ENABLE_WDT", channel::WDT_ENABLE.into()),
        ("NVGPU_IOCTL_CHANNEL_WDT_FLAG_SET_TIMEOUT", channel::WDT_SET_TIMEOUT.into()),
        ("NVGPU_IOCTL_CHANNEL_WDT_FLAG_DISABLE_DUMP", channel::WDT_DISABLE_DUMP.into()),
        ("NVGPU_NO_TIMEOUT", channel::NO_TIMEOUT.into()),
        ("NVGPU_WAIT_TYPE_NOTIFIER", channel::WAIT_NOTIFIER.into()),
        ("NVGPU_WAIT_TYPE_SEMAPHORE", channel::WAIT_SEMAPHORE.into()),
        ("NVGPU_GPU_FLAGS_ALL_ECC_ENABLED", ECC.bits()),
        ("NVGPU_GPU_CHARACTERISTICS_NO_NUMA_INFO", ctrl::NO_NUMA_INFO.cast_unsigned().into()),
        ("NVGPU_GPU_BUS_TYPE_NONE", ctrl::BUS_TYPE_NONE.into()),
        ("NVGPU_GPU_BUS_TYPE_AXI", ctrl::BUS_TYPE_AXI.into()),
        ("NVGPU_GPU_ARCH_GK100", ctrl::ARCH_GK100.into()),
        ("NVGPU_GPU_ARCH_GM200", ctrl::ARCH_GM200.into()),
        ("NVGPU_GPU_ARCH_GP100", ctrl::ARCH_GP100.into()),
        ("NVGPU_GPU_ARCH_GV110", ctrl::ARCH_GV110.into()),
        ("NVGPU_GPU_ARCH_GV100", ctrl::ARCH_GV100.into()),
        ("NVGPU_GPU_IMPL_GK20A", ctrl::IMPL_GK20A.into()),
        ("NVGPU_GPU_IMPL_GM204", ctrl::IMPL_GM204.into()),
        ("NVGPU_GPU_IMPL_GM206", ctrl::IMPL_GM206.into()),
        ("NVGPU_GPU_IMPL_GM20B", ctrl::IMPL_GM20B.into()),
        ("NVGPU_GPU_IMPL_GM20B_B", ctrl::IMPL_GM20B_B.into()),
        ("NVGPU_GPU_IMPL_GP104", ctrl::IMPL_GP104.into()),
        ("NVGPU_GPU_IMPL_GP106", ctrl::IMPL_GP106.into()),
        ("NVGPU_GPU_IMPL_GP10B", ctrl::IMPL_GP10B.into()),
        ("NVGPU_GPU_IMPL_GV11B", ctrl::IMPL_GV11B.into()),
        ("NVGPU_GPU_IMPL_GV100", ctrl::IMPL_GV100.into()),
        ("NVGPU_GPU_COMPBITS_NONE", ctrl::Compbits::empty().bits().into()),
        ("NVGPU_ZBC_COLOR_VALUE_SIZE", ctrl::ZBC_COLOR_VALUE_SIZE as u64),
        ("NVGPU_ZBC_TYPE_INVALID", ctrl::ZBC_TYPE_INVALID.into()),
        ("NVGPU_ZBC_TYPE_COLOR", ctrl::ZBC_TYPE_COLOR.into()),
        ("NVGPU_ZBC_TYPE_DEPTH", ctrl::ZBC_TYPE_DEPTH.into()),
        ("NVGPU_ZBC_TYPE_STENCIL", ctrl::ZBC_TYPE_STENCIL.into()),
        ("NVGPU_GPU_ENGINE_ID_NVENC", ctrl::ENGINE_NVENC.into()),
        ("NVGPU_GPU_ENGINE_ID_OFA", ctrl::ENGINE_OFA.into()),
        ("NVGPU_GPU_ENGINE_ID_NVDEC", ctrl::ENGINE_NVDEC.into()),
        ("NVGPU_GPU_ENGINE_ID_NVJPG", ctrl::ENGINE_NVJPG.into()),
        ("NVGPU_GPU_VOLTAGE_CORE", ctrl::VOLTAGE_CORE.into()),
        ("NVGPU_GPU_VOLTAGE_SRAM", ctrl::VOLTAGE_SRAM.into()),
        ("NVGPU_GPU_VOLTAGE_BUS", ctrl::VOLTAGE_BUS.into()),
        ("NVGPU_GPU_COMPTAGS_ALLOC_NONE", ctrl::COMPTAGS_ALLOC_NONE.into()),
        ("NVGPU_GPU_COMPTAGS_ALLOC_REQUESTED", ctrl::COMPTAGS_ALLOC_REQUESTED.into()),
        ("NVGPU_GPU_COMPTAGS_ALLOC_REQUIRED", ctrl::COMPTAGS_ALLOC_REQUIRED.into()),
        ("NVGPU_GPU_REGISTER_BUFFER_METADATA_MAX_SIZE", ctrl::REGISTER_BUFFER_METADATA_MAX_SIZE.into()),
        ("NVGPU_GPU_ALLOC_VIDMEM_FLAG_CPU_NOT_MAPPABLE", 0),
        ("NVGPU_GPU_ALLOC_VIDMEM_FLAG_CPU_MASK", ctrl::CPU_ACCESS_MASK.into()),
        ("NVGPU_GPU_IOCTL_MAX_ARG_SIZE", Release::R36_4_3.longest_argument(ctrl::ALL).into()),
        ("NVGPU_AS_IOCTL_MAX_ARG_SIZE", Release::R36_4_3.longest_argument(address_space::ALL).into()),
        ("NVGPU_TSG_IOCTL_MAX_ARG_SIZE", Release::R36_4_3.longest_argument(tsg::ALL).into()),
        ("NVGPU_RUNLIST_INTERLEAVE_NUM_LEVELS", tsg::INTERLEAVE_LEVELS.into()),
        ("NVGPU_IOCTL_CHANNEL_MAX_ARG_SIZE", Release::R36_4_3.longest_argument(channel::ALL).into()),
        ("NVGPU_TIMEOUT_FLAG_DISABLE_DUMP", channel::TIMEOUT_DISABLE_DUMP_BIT.into()),
        ("NVGPU_ZCULL_MODE_GLOBAL", channel::ZCULL_MODE_GLOBAL.into()),
        ("NVGPU_ZCULL_MODE_NO_CTXSW", channel::ZCULL_MODE_NO_CTXSW.into()),
        ("NVGPU_ZCULL_MODE_SEPARATE_BUFFER", channel::ZCULL_MODE_SEPARATE_BUFFER.into()),
        ("NVGPU_ZCULL_MODE_PART_OF_REGULAR_BUF", channel::ZCULL_MODE_PART_OF_REGULAR_BUFFER.into()),
        ("NVGPU_BOOSTED_CTX_MODE_NORMAL", channel::BOOSTED_CTX_NORMAL.into()),
        ("NVGPU_BOOSTED_CTX_MODE_BOOSTED_EXECUTION", channel::BOOSTED_CTX_BOOSTED.into()),
        ("NVGPU_RESCHEDULE_RUNLIST_PREEMPT_NEXT", channel::RESCHEDULE_PREEMPT_NEXT.into()),
    ]
}

fn error_codes() -> Vec<(&'static str, u64)> {
    use gpu_hal::ErrorCode;
    let pairs = [
        ("NVGPU_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT", ErrorCode::IdleTimeout),
        ("NVGPU_CHANNEL_GR_ERROR_SW_METHOD", ErrorCode::SoftwareMethod),
        ("NVGPU_CHANNEL_GR_EXCEPTION", ErrorCode::EngineException),
        ("NVGPU_CHANNEL_GR_ERROR_SW_NOTIFY", ErrorCode::EngineException),
        ("NVGPU_CHANNEL_GR_SEMAPHORE_TIMEOUT", ErrorCode::SemaphoreTimeout),
        ("NVGPU_CHANNEL_GR_ILLEGAL_NOTIFY", ErrorCode::IllegalNotify),
        ("NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT", ErrorCode::MmuFault),
        ("NVGPU_CHANNEL_PBDMA_ERROR", ErrorCode::PbdmaError),
        ("NVGPU_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD", ErrorCode::UnimplementedFirmwareMethod),
        ("NVGPU_CHANNEL_RESETCHANNEL_VERIF_ERROR", ErrorCode::ChannelReset),
        ("NVGPU_CHANNEL_PBDMA_PUSHBUFFER_CRC_MISMATCH", ErrorCode::PushbufferCrcMismatch),
    ];
    let own = [("NVGPU_CHANNEL_SUBMIT_TIMEOUT", channel::ERROR_SUBMIT_TIMEOUT.into())];
    let shared = pairs.map(|(name, code)| (name, code.raw().unwrap().into()));
    own.into_iter().chain(shared).collect()
}

fn nvmap_constants() -> Vec<(&'static str, u64)> {
    use nvmap::{HandleFlags, Heaps};
    vec![
        ("NVMAP_HEAP_IOVMM", Heaps::IOVMM.bits().into()),
        ("NVMAP_HEAP_CARVEOUT_VPR", Heaps::VPR.bits().into()),
        ("NVMAP_HEAP_CARVEOUT_TSEC", Heaps::TSEC.bits().into()),
        ("NVMAP_HEAP_CARVEOUT_VIDMEM", Heaps::VIDMEM.bits().into()),
        ("NVMAP_HEAP_CARVEOUT_CVSRAM", Heaps::CVSRAM.bits().into()),
        ("NVMAP_HEAP_CARVEOUT_GPU", Heaps::GPU.bits().into()),
        ("NVMAP_HEAP_CARVEOUT_FSI", Heaps::FSI.bits().into()),
        ("NVMAP_HEAP_CARVEOUT_IVM", Heaps::IVM.bits().into()),
        ("NVMAP_HEAP_CARVEOUT_GENERIC", Heaps::GENERIC.bits().into()),
        ("NVMAP_HANDLE_SECURE", HandleFlags::SECURE.bits().into()),
        ("NVMAP_HANDLE_KIND_SPECIFIED", HandleFlags::KIND_SPECIFIED.bits().into()),
        ("NVMAP_HANDLE_COMPR_SPECIFIED", HandleFlags::COMPR_SPECIFIED.bits().into()),
        ("NVMAP_HANDLE_ZEROED_PAGES", HandleFlags::ZEROED_PAGES.bits().into()),
        ("NVMAP_HANDLE_PHYS_CONTIG", HandleFlags::PHYS_CONTIG.bits().into()),
        ("NVMAP_HANDLE_CACHE_SYNC", HandleFlags::CACHE_SYNC.bits().into()),
        ("NVMAP_HANDLE_CACHE_SYNC_AT_RESERVE", HandleFlags::CACHE_SYNC_AT_RESERVE.bits().into()),
        ("NVMAP_HANDLE_RO", HandleFlags::READ_ONLY.bits().into()),
        ("NVMAP_HANDLE_UNCACHEABLE", nvmap::CACHE_UNCACHED.into()),
        ("NVMAP_HANDLE_WRITE_COMBINE", nvmap::CACHE_WRITE_COMBINED.into()),
        ("NVMAP_HANDLE_INNER_CACHEABLE", nvmap::CACHE_INNER_CACHEABLE.into()),
        ("NVMAP_HANDLE_CACHEABLE", nvmap::CACHE_CACHEABLE.into()),
        ("NVMAP_HANDLE_CACHE_FLAG", nvmap::CACHE_MASK.into()),
        ("NVMAP_ELEM_SIZE_U64", nvmap::CACHE_LIST_ELEM_SIZE_U64.cast_unsigned().into()),
        ("NVMAP_CACHE_OP_WB", nvmap::CACHE_OP_WB.cast_unsigned().into()),
        ("NVMAP_CACHE_OP_INV", nvmap::CACHE_OP_INV.cast_unsigned().into()),
        ("NVMAP_CACHE_OP_WB_INV", nvmap::CACHE_OP_WB_INV.cast_unsigned().into()),
        ("NVMAP_IOC_MAGIC", nvmap::FAMILY.into()),
        ("NVMAP_IOC_MAXNR", Release::R36_4_3.last(nvmap::ALL).into()),
        ("NVMAP_HEAP_CARVEOUT_MASK", nvmap::HEAP_CARVEOUT_MASK.into()),
        ("NVMAP_PAGES_UNRESERVE", nvmap::PAGES_UNRESERVE.into()),
        ("NVMAP_PAGES_RESERVE", nvmap::PAGES_RESERVE.into()),
        ("NVMAP_INSERT_PAGES_ON_UNRESERVE", nvmap::INSERT_PAGES_ON_UNRESERVE.into()),
        ("NVMAP_PAGES_PROT_AND_CLEAN", nvmap::PAGES_PROT_AND_CLEAN.into()),
    ]
}

/// Every constant has the header's value, and every constant of the header is there, except those
/// left out.
fn check(table_name: &str, ours: impl IntoIterator<Item = (String, u64)>) {
    let table = table(table_name);
    let mut theirs = BTreeMap::new();
    for entry in table["constants"].as_array().unwrap() {
        let hex = entry["hex"].as_str().unwrap().trim_start_matches("0x");
        theirs.insert(entry["name"].as_str().unwrap(), u64::from_str_radix(hex, 16).unwrap());
    }
    let mut seen = BTreeSet::new();
    for (name, value) in ours {
        let expected = theirs.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(value, *expected, "{name}");
        seen.insert(name);
    }
    for name in theirs.keys() {
        assert!(seen.contains(*name) != left_out(name), "{name} is missing, or left out for nothing");
    }
}

#[test]
fn every_constant_of_nvgpu_has_the_kernels_value() {
    let named = nvgpu_constants().into_iter().chain(error_codes());
    check("nvgpu", named.map(|(name, value)| (name.to_owned(), value)).chain(nvgpu_flags()));
}

#[test]
fn every_constant_of_nvmap_has_the_kernels_value() {
    check("nvmap", nvmap_constants().into_iter().map(|(name, value)| (name.to_owned(), value)));
}

/// All constants of that table belong to earlier releases.
#[test]
fn the_fence_header_has_no_constants() {
    check("host1x", []);
}
