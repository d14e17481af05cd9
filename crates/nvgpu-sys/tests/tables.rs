//! Holds every struct, request code and constant of the crate against the tables read off the
//! kernel's headers (L4T r36.4.3), which lie in `tests/abi`.

use std::collections::BTreeSet;

use nvgpu_sys::headers::Header;
use nvgpu_sys::layout::StructInfo;
use nvgpu_sys::{RequestInfo, address_space, channel, ctrl, headers, host1x, nvmap, tsg};
use serde_json::Value;

fn table(name: &str) -> Value {
    let path = format!("{}/tests/abi/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|entry| entry["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in the table"))
}

/// The table that a header was read into.
fn table_of(header: &Header) -> Value {
    match header.path.rsplit('/').next().unwrap() {
        "nvmap.h" => table("nvmap"),
        "host1x-fence.h" => table("host1x"),
        _ => table("nvgpu"),
    }
}

/// One struct: size, name, header, offset and size of every field, padding, user-space addresses.
fn check_struct(table: &Value, header: &str, ours: &StructInfo) {
    let name = ours.name;
    let expected = named(&table["structs"], name);
    assert_eq!(ours.size as u64, expected["size"], "size of {name}");
    assert_eq!(expected["header"], header, "header of {name}");

    let place = |entry: &Value| (entry["offset"].as_u64().unwrap(), entry["size"].as_u64().unwrap());
    let fields = expected["fields"].as_array().unwrap();
    let no_padding = Vec::new();
    let padding = expected["padding"].as_array().unwrap_or(&no_padding);
    let mut points = false;
    for field in ours.fields {
        let at = (field.offset as u64, field.size as u64);
        if let Some(entry) = fields.iter().find(|entry| entry["name"] == field.name) {
            assert!(!field.implicit, "{name}.{} is in the header", field.name);
            assert_eq!(at, place(entry), "{name}.{}", field.name);
            points |= entry.get("user_ptr").is_some();
        } else {
            assert!(field.implicit, "{name}.{} unknown", field.name);
            assert!(padding.iter().any(|gap| at == place(gap)), "{name}.{} unknown", field.name);
        }
    }
    assert_eq!(ours.points, points, "{name} holds user-space addresses");

    // A field outside unions and bit-fields must be there under its own name.
    for entry in fields.iter().filter(|entry| entry.get("union").is_none() && entry.get("bits").is_none()) {
        let field = entry["name"].as_str().unwrap();
        assert!(ours.fields.iter().any(|known| known.name == field), "{name}.{field} missing");
    }
}

#[test]
fn every_struct_lies_as_in_the_kernels_headers() {
    for header in headers::ALL {
        let table = table_of(header);
        for ours in header.structs.iter().copied().flatten() {
            check_struct(&table, header.path, ours);
        }
    }
}

/// A struct declared but not listed by header would escape the test above.
#[test]
fn every_struct_is_listed_under_a_header() {
    let sources = [
        include_str!("../src/address_space.rs"),
        include_str!("../src/channel.rs"),
        include_str!("../src/ctrl/characteristics.rs"),
        include_str!("../src/ctrl/clocks.rs"),
        include_str!("../src/ctrl/graphics.rs"),
        include_str!("../src/ctrl/objects.rs"),
        include_str!("../src/ctrl/topology.rs"),
        include_str!("../src/host1x.rs"),
        include_str!("../src/nvmap.rs"),
        include_str!("../src/tsg.rs"),
    ];
    let declared: usize = sources.iter().map(|source| source.matches("\nuapi_struct! {").count()).sum();
    let listed: usize = headers::ALL.iter().flat_map(|header| header.structs).map(|list| list.len()).sum();
    assert_eq!(listed, declared);
}

#[test]
fn every_request_is_listed_under_its_header() {
    for header in headers::ALL {
        let table = table_of(header);
        for request in header.requests.iter().copied().flatten() {
            assert_eq!(named(&table["ioctls"], request.name)["header"], header.path, "{}", request.name);
        }
    }
}

/// One family: every request of the crate has the table's code, and every request of the table is
/// in the crate, except those named.
fn check_family(table: &Value, prefixes: &[&str], requests: &[RequestInfo], left_out: &[&str]) {
    for request in requests {
        let code = named(&table["ioctls"], request.name)["code"].as_str().unwrap();
        assert_eq!(format!("{:#010x}", request.code), code, "{}", request.name);
    }
    let ours: BTreeSet<&str> =
        requests.iter().map(|request| request.name).chain(left_out.iter().copied()).collect();
    for entry in table["ioctls"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            assert!(ours.contains(name), "{name} missing");
        }
    }
}

#[test]
fn every_request_has_the_kernels_code() {
    let nvgpu = table("nvgpu");
    check_family(&nvgpu, &["NVGPU_GPU_IOCTL_"], ctrl::ALL, &[]);
    // The driver has no case for the two requests about compression bits.
    let compbits = ["NVGPU_AS_IOCTL_GET_BUFFER_COMPBITS_INFO", "NVGPU_AS_IOCTL_MAP_BUFFER_COMPBITS"];
    check_family(&nvgpu, &["NVGPU_AS_IOCTL_"], address_space::ALL, &compbits);
    // The driver has no case for reading all SMs at once.
    let all_sms = ["NVGPU_TSG_IOCTL_READ_ALL_SM_ERROR_STATES"];
    check_family(&nvgpu, &["NVGPU_TSG_IOCTL_", "NVGPU_IOCTL_TSG_"], tsg::ALL, &all_sms);
    check_family(&nvgpu, &["NVGPU_IOCTL_CHANNEL_"], channel::ALL, &[]);
    let other_uses = [
        // Refused by r36.
        "NVMAP_IOC_FROM_ID",
        "NVMAP_IOC_GET_ID",
        "NVMAP_IOC_PARAM",
        // Memory shared between virtual machines, protected memory, SCI-IPC.
        "NVMAP_IOC_FROM_IVC_ID",
        "NVMAP_IOC_GET_IVC_ID",
        "NVMAP_IOC_GET_IVM_HEAPS",
        "NVMAP_IOC_ALLOC_IVM",
        "NVMAP_IOC_VPR_FLOOR_SIZE",
        "NVMAP_IOC_GET_SCIIPCID",
        "NVMAP_IOC_HANDLE_FROM_SCIIPCID",
        // What the kernel accepts from 32-bit processes.
        "NVMAP_IOC_WRITE_32",
        "NVMAP_IOC_READ_32",
        "NVMAP_IOC_PARAM_32",
        "NVMAP_IOC_CACHE_32",
    ];
    check_family(&table("nvmap"), &["NVMAP_IOC_"], nvmap::ALL, &other_uses);
    check_family(&table("host1x"), &["HOST1X_IOCTL_"], host1x::ALL, &[]);
}

/// The codes once more as literals, as a system-call trace of an Orin shows them, so that an error
/// in the encoder cannot hide behind an equal error in the table.
#[test]
fn request_codes_are_these_numbers() {
    for (code, literal) in [
        (ctrl::code::GET_CHARACTERISTICS, 0xc010_4705_u32),
        (ctrl::code::ALLOC_AS, 0xc040_4708),
        (ctrl::code::OPEN_TSG, 0xc018_4709),
        (ctrl::code::GET_TPC_MASKS, 0xc010_470a),
        (ctrl::code::OPEN_CHANNEL, 0xc004_470b),
        (ctrl::code::FLUSH_L2, 0xc005_470c),
        (ctrl::code::NUM_VSMS, 0xc008_4712),
        (ctrl::code::GET_GPU_TIME, 0xc010_4719),
        (address_space::code::BIND_CHANNEL, 0xc004_4101),
        (address_space::code::FREE_SPACE, 0xc020_4103),
        (address_space::code::UNMAP_BUFFER, 0xc008_4105),
        (address_space::code::ALLOC_SPACE, 0xc020_4106),
        (address_space::code::MAP_BUFFER_EX, 0xc028_4107),
        (address_space::code::GET_VA_REGIONS, 0xc010_4108),
        (tsg::code::BIND_CHANNEL, 0x4004_5401),
        (tsg::code::UNBIND_CHANNEL, 0x4004_5402),
        (tsg::code::BIND_CHANNEL_EX, 0xc018_540b),
        (tsg::code::CREATE_SUBCONTEXT, 0xc010_5412),
        (channel::code::ALLOC_OBJ_CTX, 0xc010_486c),
        (channel::code::SET_ERROR_NOTIFIER, 0xc018_486f),
        (channel::code::WDT, 0x4008_4877),
        (channel::code::GET_USER_SYNCPOINT, 0x8010_487e),
        (channel::code::SETUP_BIND, 0xc068_4880),
        (nvmap::code::CREATE, 0xc008_4e00),
        (nvmap::code::CREATE_64, 0xc008_4e01),
        (nvmap::code::ALLOC, 0x4014_4e03),
        (nvmap::code::FREE, 0x0000_4e04),
        (nvmap::code::WRITE, 0x4038_4e06),
        (nvmap::code::READ, 0x4038_4e07),
        (nvmap::code::GET_FD, 0xc008_4e0f),
        (nvmap::code::FROM_VA, 0xc018_4e16),
        (nvmap::code::GET_AVAILABLE_HEAPS, 0x8008_4e19),
        (host1x::code::CREATE_POLLFD, 0xc008_5810),
    ] {
        assert_eq!(code, literal);
    }
}

/// Checks pairs of a constant's name in the header and its value here.
fn check_constants(table: &Value, pairs: &[(&str, u64)]) {
    for (name, value) in pairs {
        let hex = named(&table["constants"], name)["hex"].as_str().unwrap();
        let expected = u64::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(*value, expected, "{name}");
    }
}

/// Every flag of a set, by the header's prefix and the flag's own name; both ways.
fn check_flags<F: bitflags::Flags + 'static>(table: &Value, prefix: &str, bits: impl Fn(&F) -> u64) {
    let mut ours = BTreeSet::new();
    for flag in F::FLAGS {
        let name = format!("{prefix}{}", flag.name());
        check_constants(table, &[(&name, bits(flag.value()))]);
        ours.insert(name);
    }
    for entry in table["constants"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        assert!(
            !name.starts_with(prefix) || ours.contains(name) || NOT_FLAGS.contains(&name),
            "{name} missing"
        );
    }
}

/// Constants under a flag prefix that are masks, positions or other sets.
const NOT_FLAGS: [&str; 3] = [
    "NVGPU_GPU_FLAGS_ALL_ECC_ENABLED",
    "NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET",
    "NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_SIZE",
];

#[test]
fn every_flag_has_the_kernels_value() {
    let nvgpu = table("nvgpu");
    check_flags::<ctrl::GpuFlags>(&nvgpu, "NVGPU_GPU_FLAGS_", |flag| flag.bits());
    check_flags::<ctrl::AllocAsFlags>(&nvgpu, "NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_", |flag| flag.bits().into());
    check_flags::<ctrl::OpenTsgFlags>(&nvgpu, "NVGPU_GPU_IOCTL_OPEN_TSG_FLAGS_", |flag| flag.bits().into());
    check_flags::<ctrl::DeterministicOpts>(&nvgpu, "NVGPU_GPU_SET_DETERMINISTIC_OPTS_FLAGS_", |flag| {
        flag.bits().into()
    });
    check_flags::<ctrl::RegisterBufferFlags>(&nvgpu, "NVGPU_GPU_REGISTER_BUFFER_FLAGS_", |flag| {
        flag.bits().into()
    });
    check_flags::<address_space::AllocSpaceFlags>(&nvgpu, "NVGPU_AS_ALLOC_SPACE_FLAGS_", |flag| {
        flag.bits().into()
    });
    check_flags::<address_space::MapBufferFlags>(&nvgpu, "NVGPU_AS_MAP_BUFFER_FLAGS_", |flag| {
        flag.bits().into()
    });
    check_flags::<address_space::RemapFlags>(&nvgpu, "NVGPU_AS_REMAP_OP_FLAGS_", |flag| flag.bits().into());
    check_flags::<channel::SetupBindFlags>(&nvgpu, "NVGPU_CHANNEL_SETUP_BIND_FLAGS_", |flag| {
        flag.bits().into()
    });
    check_flags::<channel::SubmitFlags>(&nvgpu, "NVGPU_SUBMIT_GPFIFO_FLAGS_", |flag| flag.bits().into());
    check_flags::<channel::AllocObjCtxFlags>(&nvgpu, "NVGPU_ALLOC_OBJ_FLAGS_", |flag| flag.bits().into());
    check_flags::<channel::GraphicsPreemption>(&nvgpu, "NVGPU_GRAPHICS_PREEMPTION_MODE_", |flag| {
        flag.bits().into()
    });
    check_flags::<channel::ComputePreemption>(&nvgpu, "NVGPU_COMPUTE_PREEMPTION_MODE_", |flag| {
        flag.bits().into()
    });
    use nvmap::{HandleFlags, Heaps};
    check_constants(
        &table("nvmap"),
        &[
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
        ],
    );
}

#[test]
fn every_constant_has_the_kernels_value() {
    check_constants(
        &table("nvgpu"),
        &[
            ("NVGPU_GPU_IOCTL_MAGIC", ctrl::FAMILY.into()),
            ("NVGPU_GPU_IOCTL_LAST", ctrl::LAST.into()),
            ("NVGPU_AS_IOCTL_MAGIC", address_space::FAMILY.into()),
            ("NVGPU_AS_IOCTL_LAST", address_space::LAST.into()),
            ("NVGPU_TSG_IOCTL_MAGIC", tsg::FAMILY.into()),
            ("NVGPU_TSG_IOCTL_LAST", tsg::LAST.into()),
            ("NVGPU_IOCTL_MAGIC", channel::FAMILY.into()),
            ("NVGPU_IOCTL_CHANNEL_LAST", channel::LAST.into()),
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
            (
                "NVGPU_IOCTL_CHANNEL_EVENT_ID_CILP_PREEMPTION_STARTED",
                tsg::EVENT_CILP_PREEMPTION_STARTED.into(),
            ),
            (
                "NVGPU_IOCTL_CHANNEL_EVENT_ID_CILP_PREEMPTION_COMPLETE",
                tsg::EVENT_CILP_PREEMPTION_COMPLETE.into(),
            ),
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
        ],
    );
    check_constants(&table("nvmap"), &[("NVMAP_IOC_MAGIC", nvmap::FAMILY.into())]);
}

#[test]
fn error_codes_have_the_kernels_values() {
    use channel::ErrorCode;
    let pairs = [
        ("NVGPU_CHANNEL_SUBMIT_TIMEOUT", ErrorCode::SubmitTimeout),
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
    check_constants(&table("nvgpu"), &pairs.map(|(name, code)| (name, code.raw().into())));
}

/// The first 128 bytes as an Orin answered GET_CHARACTERISTICS, through this crate's struct.
#[test]
fn a_real_boards_characteristics_decode_to_what_it_printed() {
    let board = table("ga10b-characteristics");
    let mut bytes = [0_u8; size_of::<ctrl::Characteristics>()];
    for (place, word) in bytes.chunks_exact_mut(4).zip(board["raw_words_le32"].as_array().unwrap()) {
        let word = u32::from_str_radix(word.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        place.copy_from_slice(&word.to_le_bytes());
    }
    let decoded: ctrl::Characteristics = bytemuck::pod_read_unaligned(&bytes);
    let values = &board["values"];
    assert_eq!(values["arch"], decoded.arch);
    assert_eq!(values["numa_domain_id"], decoded.numa_domain_id);
    assert_eq!(values["L2_cache_size"], decoded.l2_cache_size);
    assert_eq!(values["compute_class"], decoded.compute_class);
    assert_eq!(values["gpfifo_class"], decoded.gpfifo_class);
    assert_eq!(values["dma_copy_class"], decoded.dma_copy_class);
    assert_eq!(values["sm_arch_sm_version"], decoded.sm_arch_sm_version);
    assert_eq!(values["gpu_ioctl_nr_last"], decoded.gpu_ioctl_nr_last);
    assert_eq!(values["as_ioctl_nr_last"], decoded.as_ioctl_nr_last);
    assert_eq!(values["gpu_va_bit_count"], decoded.gpu_va_bit_count);
    assert_eq!(values["flags"], decoded.flags);
    let set: BTreeSet<String> = ctrl::GpuFlags::from_bits(decoded.flags)
        .expect("every bit of the board has a name")
        .iter_names()
        .map(|(name, _)| format!("NVGPU_GPU_FLAGS_{name}"))
        .collect();
    let printed: BTreeSet<String> =
        board["flags_set"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    assert_eq!(set, printed);
}
