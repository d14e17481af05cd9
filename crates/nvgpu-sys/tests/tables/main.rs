//! Compares every struct, request code and constant of the crate with the tables in `tests/abi`, which
//! were extracted from the kernel's headers (L4T r36.4.3, and what differs from it in headers of the time of r39).
//! The structs and requests of Linux itself are compared with a table of its own headers.
//! Everything in the tables that belongs to the families of this crate must be in the crate.

mod constants;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use kernel_door::RequestInfo;
use kernel_door::layout::{Releases, StructInfo};
use nvgpu_sys::Release::{self, R36_4_3, R39_2};
use nvgpu_sys::headers::{self, Header};
use nvgpu_sys::{address_space, channel, ctrl, dma_buf, dma_heap, host1x, nvmap, tsg, udmabuf};
use serde_json::Value;

/// The tables by name, each read once.
static TABLES: LazyLock<BTreeMap<&str, Value>> = LazyLock::new(|| {
    let read = |name| {
        let path = format!("{}/tests/abi/{name}.json", env!("CARGO_MANIFEST_DIR"));
        (name, serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    };
    ["ga10b-characteristics", "host1x", "linux", "nvgpu", "nvmap", "r39"].map(read).into()
});

fn table(name: &str) -> &'static Value {
    &TABLES[name]
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|entry| entry["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in the table"))
}

/// The table with the row of a request or struct: the first release's, if it has the row.
fn table_of(header: &Header, releases: Releases) -> &'static Value {
    if header.path.starts_with("linux/") {
        return table("linux");
    }
    if !R36_4_3.has(releases) {
        return table("r39");
    }
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
    let mut pointers = Vec::new();
    for field in ours.fields {
        let at = (field.offset as u64, field.size as u64);
        if let Some(entry) = fields.iter().find(|entry| entry["name"] == field.name) {
            assert!(!field.implicit, "{name}.{} is in the header", field.name);
            assert_eq!(at, place(entry), "{name}.{}", field.name);
            pointers.extend(entry.get("user_ptr").map(|_| field.offset));
        } else {
            assert!(field.implicit, "{name}.{} unknown", field.name);
            assert!(padding.iter().any(|gap| at == place(gap)), "{name}.{} unknown", field.name);
        }
    }
    assert_eq!(ours.pointers, pointers, "user-space addresses in {name}");

    // A field outside unions and bit-fields must be there under its own name.
    for entry in fields.iter().filter(|entry| entry.get("union").is_none() && entry.get("bits").is_none()) {
        let field = entry["name"].as_str().unwrap();
        assert!(ours.fields.iter().any(|known| known.name == field), "{name}.{field} missing");
    }
}

#[test]
fn every_struct_lies_as_in_the_kernels_headers() {
    for header in headers::ALL.iter().chain(headers::LINUX) {
        for ours in header.structs.iter().copied().flatten() {
            check_struct(table_of(header, ours.releases), header.path, ours);
        }
    }
}

/// A struct declared but not listed by header would escape the test above.
#[test]
fn every_struct_is_listed_under_a_header() {
    let sources = [
        include_str!("../../src/address_space.rs"),
        include_str!("../../src/channel.rs"),
        include_str!("../../src/ctrl/characteristics.rs"),
        include_str!("../../src/ctrl/clocks.rs"),
        include_str!("../../src/ctrl/graphics.rs"),
        include_str!("../../src/ctrl/objects.rs"),
        include_str!("../../src/ctrl/topology.rs"),
        include_str!("../../src/dma_buf.rs"),
        include_str!("../../src/dma_heap.rs"),
        include_str!("../../src/host1x.rs"),
        include_str!("../../src/nvmap/mod.rs"),
        include_str!("../../src/nvmap/rare.rs"),
        include_str!("../../src/sync_file.rs"),
        include_str!("../../src/tsg.rs"),
        include_str!("../../src/udmabuf.rs"),
    ];
    let lines =
        sources.iter().flat_map(|source| source.lines()).filter(|line| !line.trim().starts_with("//"));
    let declared = lines.filter(|line| line.contains(" bytes {") || line.contains(" bytes [")).count();
    let headers = headers::ALL.iter().chain(headers::LINUX);
    let listed: usize = headers.flat_map(|header| header.structs).map(|list| list.len()).sum();
    // Derived from the other release's layout: the characteristics of R36, SETUP_BIND's argument of R39.
    assert_eq!(listed, declared + 2);
}

#[test]
fn every_request_is_listed_under_its_header() {
    for header in headers::ALL.iter().chain(headers::LINUX) {
        for request in header.requests.iter().copied().flatten() {
            let table = table_of(header, request.releases);
            assert_eq!(named(&table["ioctls"], request.name)["header"], header.path, "{}", request.name);
        }
    }
}

/// Prefixes of structs and constants of nodes and features that this crate omits.
const LEFT_OUT: [&str; 13] = [
    // Debugger, profiler, context-switch traces, scheduler control and scheduling domains.
    "nvgpu_dbg_",
    "nvgpu_profiler_",
    "nvgpu_ctxsw_",
    "nvgpu_sched_",
    "nvgpu_nvs_",
    // Descriptors of GET_EVENT_FD, which ga10b does not support.
    "nvgpu_gpu_event_",
    "nvgpu_gpu_set_event_filter_args",
    "nvgpu_event_ioctl_",
    // Values in arguments of requests without a driver case.
    "nvgpu_as_get_buffer_compbits_info_flags_",
    "nvgpu_as_map_buffer_compbits_flags_",
    "nvmap_handle_param_",
    // Files of debugfs.
    "nvmap_debugfs_",
    // Requests of earlier releases that no node of this release implements.
    "nvhost",
];

fn left_out(name: &str) -> bool {
    let name = name.to_lowercase();
    LEFT_OUT.iter().any(|prefix| name.starts_with(prefix))
}

#[test]
fn no_struct_of_the_headers_is_missing() {
    for (name, release) in [("nvgpu", R36_4_3), ("nvmap", R36_4_3), ("host1x", R36_4_3), ("r39", R39_2)] {
        let listed = headers::ALL.iter().flat_map(|header| header.structs).copied().flatten();
        let ours: BTreeSet<&str> =
            listed.filter(|info| release.has(info.releases)).map(|info| info.name).collect();
        let table = table(name);
        let has_case = |name: &Value| named(&table["ioctls"], name.as_str().unwrap())["driver_case"] != false;
        for entry in table["structs"].as_array().unwrap() {
            let name = entry["name"].as_str().unwrap();
            // What only requests without a driver case take has no struct: no kernel reads its fields.
            let is_taken = |requests: &Vec<Value>| requests.is_empty() || requests.iter().any(has_case);
            let left_out = left_out(name) || !entry["ioctls"].as_array().is_none_or(is_taken);
            assert!(ours.contains(name) != left_out, "struct {name} is missing, or left out for nothing");
        }
    }
}

/// One family in one release: every request of the crate has the table's code, and every request of the table is
/// in the crate.
fn check_family(table: &Value, family: char, requests: &[&RequestInfo]) {
    for request in requests {
        let entry = named(&table["ioctls"], request.name);
        assert_eq!(entry["code"], format!("{:#010x}", request.code), "{}", request.name);
        if let Some(argument) = request.argument {
            assert_eq!(entry["arg"], format!("struct {}", argument.name), "{}", request.name);
        }
    }
    let ours: BTreeSet<&str> = requests.iter().map(|request| request.name).collect();
    assert_eq!(ours.len(), requests.len(), "each request once");
    for entry in table["ioctls"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let theirs = entry["type_char"] == family.to_string();
        assert!(!theirs || ours.contains(name), "{name} missing");
    }
}

#[test]
fn every_request_has_the_kernels_code() {
    // The header of host1x also declares requests of earlier releases that no node implements any more.
    for (name, family, requests) in [
        ("nvgpu", 'G', ctrl::ALL),
        ("nvgpu", 'A', address_space::ALL),
        ("nvgpu", 'T', tsg::ALL),
        ("nvgpu", 'H', channel::ALL),
        ("nvmap", 'N', nvmap::ALL),
        ("host1x", 'X', host1x::ALL),
    ] {
        check_family(table(name), family, &R36_4_3.requests(requests).collect::<Vec<_>>());
        let only_newer = R39_2.requests(requests).filter(|request| !R36_4_3.has(request.releases));
        check_family(table("r39"), family, &only_newer.collect::<Vec<_>>());
    }
}

/// A request that a release lacks was removed, or has another form there.
#[test]
fn removed_and_changed_requests_are_those_of_the_newer_headers() {
    let newer = table("r39");
    let removed: BTreeSet<&str> =
        newer["removed"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let has = |name: &str, release: Release| {
        nvgpu_sys::requests().any(|request| request.name == name && release.has(request.releases))
    };
    for request in nvgpu_sys::requests() {
        assert_eq!(has(request.name, R39_2), !removed.contains(request.name), "{}", request.name);
        assert_eq!(R36_4_3.has(request.releases), Release::R36_4_7.has(request.releases), "{}", request.name);
    }
    assert!(removed.iter().all(|name| has(name, R36_4_3)));
    for (name, family) in [
        ("NVGPU_GPU_IOCTL_LAST", ctrl::ALL),
        ("NVGPU_AS_IOCTL_LAST", address_space::ALL),
        ("NVGPU_TSG_IOCTL_LAST", tsg::ALL),
        ("NVGPU_IOCTL_CHANNEL_LAST", channel::ALL),
        ("NVMAP_IOC_MAXNR", nvmap::ALL),
    ] {
        assert_eq!(newer["last"][name], R39_2.last(family), "{name}");
    }
    assert_eq!(R39_2.longest_argument(address_space::ALL), 72);
}

/// Headers of Linux also declare requests that this crate leaves out.
#[test]
fn requests_of_linux_have_its_codes() {
    let table = table("linux");
    for request in headers::LINUX.iter().flat_map(|header| header.requests).copied().flatten() {
        let entry = named(&table["ioctls"], request.name);
        assert_eq!(entry["code"], format!("{:#010x}", request.code), "{}", request.name);
        assert_eq!(entry["arg"], format!("struct {}", request.argument.unwrap().name), "{}", request.name);
    }
    let list = format!("{:#010x}", udmabuf::CREATE_LIST);
    assert_eq!(named(&table["ioctls"], "UDMABUF_CREATE_LIST")["code"], list);
    for (name, value) in [
        ("DMA_BUF_SYNC_READ", dma_buf::SyncFlags::READ.bits()),
        ("DMA_BUF_SYNC_WRITE", dma_buf::SyncFlags::WRITE.bits()),
        ("DMA_BUF_SYNC_END", dma_buf::SyncFlags::END.bits()),
        ("UDMABUF_FLAGS_CLOEXEC", udmabuf::CLOEXEC),
        ("DMA_HEAP_VALID_FD_FLAGS", dma_heap::CLOEXEC | dma_heap::READ_WRITE | 1),
    ] {
        assert_eq!(named(&table["constants"], name)["value"], value, "{name}");
    }
}

/// The README lists the same requests without a driver case as the table.
#[test]
fn the_readme_names_the_requests_without_a_driver_case() {
    let readme = include_str!("../../README.md");
    let named: BTreeSet<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split_once('`').map(|(name, _)| name))
        .collect();
    let families = [ctrl::ALL, address_space::ALL, tsg::ALL, channel::ALL, nvmap::ALL, host1x::ALL];
    let ours: BTreeSet<&str> = families.into_iter().flatten().map(|request| request.name).collect();
    let tables = ["nvgpu", "nvmap", "host1x"].map(table);
    let without: BTreeSet<&str> = tables
        .iter()
        .flat_map(|table| table["ioctls"].as_array().unwrap())
        .filter(|entry| entry["driver_case"] == false)
        .map(|entry| entry["name"].as_str().unwrap())
        .filter(|name| ours.contains(name))
        .collect();
    assert_eq!(named, without);
}

/// Decodes the first 128 bytes that an Orin returned for GET_CHARACTERISTICS.
#[test]
fn a_real_boards_characteristics_decode_to_what_it_printed() {
    let board = table("ga10b-characteristics");
    let mut bytes = [0_u8; ctrl::CHARACTERISTICS_R36.size];
    for (place, word) in bytes.chunks_exact_mut(4).zip(board["raw_words_le32"].as_array().unwrap()) {
        let word = u32::from_str_radix(word.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        place.copy_from_slice(&word.to_le_bytes());
    }
    let decoded = ctrl::Characteristics::read(&bytes, R36_4_3);
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
