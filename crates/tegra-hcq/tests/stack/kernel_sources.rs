//! The committed cubins match their sources and can be loaded.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

const CURE: &str = "run `cargo xtask kernels` and commit the result";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels")
}

fn lock() -> serde_json::Value {
    let text = fs::read_to_string(folder().join("kernels.lock")).expect("kernels/kernels.lock is readable");
    serde_json::from_str(&text).expect("kernels/kernels.lock is JSON")
}

/// Stems of the kernel files with this extension, also of those in folders.
fn stems(extension: &str) -> BTreeSet<String> {
    let named = |path: &str| {
        let files = fs::read_dir(folder().join(path)).expect("the folder exists");
        let paths = files.map(|entry| entry.expect("a directory entry").path());
        let stem = |path: PathBuf| path.file_stem().expect("a file name").to_str().expect("UTF-8").to_owned();
        let fitting = paths.filter(|path| path.extension().is_some_and(|e| e == extension)).map(stem);
        fitting.map(|stem| format!("{path}{stem}")).collect::<Vec<_>>()
    };
    ["", "blas/", "gemm/", "llm/", "runtime/"].into_iter().flat_map(named).collect()
}

fn sha256(path: &Path) -> String {
    hash(&fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hash of a source, and of the headers in its folder, and then of those in the folder of all kernels.
fn source_hash(name: &str) -> String {
    let source = sha256(&folder().join(name).with_extension("cu"));
    let beside = name.rsplit_once('/').map_or(String::new(), |(beside, _)| format!("{beside}/"));
    let (common, others): (Vec<_>, Vec<_>) =
        stems("cuh").into_iter().partition(|header| !header.contains('/'));
    let own = others.iter().filter(|header| !beside.is_empty() && header.starts_with(&beside));
    let headers = own.chain(&common).map(|header| sha256(&folder().join(header).with_extension("cuh")));
    let headers: Vec<_> = headers.collect();
    if headers.is_empty() { source } else { hash((source + &headers.concat()).as_bytes()) }
}

#[test]
fn every_source_has_a_cubin_and_a_lock_entry() {
    let sources = stems("cu");
    assert!(sources.contains("vector_add"), "vector_add is missing: {sources:?}");
    let locked: BTreeSet<String> =
        lock()["kernels"].as_object().expect("an object of kernels").keys().cloned().collect();
    let common: BTreeSet<String> = sources.iter().filter(|name| only(name).is_none()).cloned().collect();
    assert_eq!(common, stems("cubin"), "sources and cubins do not match one to one: {CURE}");
    assert_eq!(sources, locked, "sources and kernels.lock do not match one to one: {CURE}");
}

#[test]
fn sources_and_cubins_are_those_of_the_lock_file() {
    let lock = lock();
    let mut drift = Vec::new();
    for (name, entry) in lock["kernels"].as_object().expect("an object of kernels") {
        let mut check = |file: String, found: String, hash: &serde_json::Value| {
            if Some(found.as_str()) != hash.as_str() {
                drift.push(file);
            }
        };
        check(format!("{name}.cu"), source_hash(name), &entry["source"]);
        for (arch, hash) in entry["cubins"].as_object().expect("an object of cubins") {
            // The Orin's cubins are next to their sources, others in a folder named after the chip.
            let generation = arch.trim_end_matches('a');
            let place = if arch == "sm_87" { String::new() } else { format!("{generation}/") };
            let file = format!("{place}{name}.cubin");
            check(file.clone(), sha256(&folder().join(file)), hash);
        }
    }
    assert!(drift.is_empty(), "not as recorded in kernels.lock: {}; {CURE}", drift.join(", "));
}

#[test]
fn the_lock_file_records_how_the_cubins_were_compiled() {
    let lock = lock();
    let compiler = lock["compiler"].as_str().expect("the name of the compiler");
    assert!(compiler.starts_with("NVRTC 12.6"), "compiled by {compiler}");
    for (name, entry) in lock["kernels"].as_object().expect("an object of kernels") {
        assert!(entry["options"].is_array(), "{name}: a list of options");
        let is_compiled = entry["cubins"]["sm_87"].is_string();
        assert_eq!(is_compiled, only(name).is_none(), "{name} is compiled for the Orin");
    }
}

/// The architecture that a source says it is only for.
fn only(name: &str) -> Option<String> {
    let source = fs::read_to_string(folder().join(name).with_extension("cu")).expect("a readable source");
    source.lines().find_map(|line| line.strip_prefix("// only: ")).map(str::to_owned)
}

/// Each `extern "C"` kernel of a source is in its cubin under its own name, compiled for the Orin or the only
/// chip that it is for.
#[test]
fn cubins_hold_the_kernels_of_their_sources() {
    for name in stems("cu") {
        let (place, arch) = if only(&name).is_some() { ("sm_90", 90) } else { ("", 87) };
        let file = folder().join(place).join(&name).with_extension("cubin");
        let bytes = fs::read(file).expect("the cubin is readable");
        if name.starts_with("runtime/") {
            let object = cubin::Cubin::parse_object(&bytes).unwrap();
            assert!(object.kernels().is_empty() && !object.functions().is_empty(), "{name}.cubin");
            continue;
        }
        let cubin = cubin::Cubin::parse(&bytes).unwrap_or_else(|error| panic!("{name}.cubin: {error}"));
        cubin.check_arch(arch).unwrap_or_else(|error| panic!("{name}.cubin: {error}"));
        assert!(!cubin.kernels().is_empty(), "{name}.cubin has no kernel");
        let source =
            fs::read_to_string(folder().join(&name).with_extension("cu")).expect("a readable source");
        for kernel in cubin.kernels() {
            let is_named = source.contains(&kernel.name) || is_pasted(&source, &kernel.name);
            assert!(is_named, "{name}.cubin: `{}` is not in the source", kernel.name);
        }
        for declared in declared_kernels(&source) {
            cubin.kernel(&declared).unwrap_or_else(|error| panic!("{name}.cubin: {error}"));
        }
    }
}

/// Whether a macro of the source pastes the name together, as `product_##name##_small`. Pieces with an underscore at an
/// end are text; others are parameters of the macro.
fn is_pasted(source: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '#';
    let makes = |pasted: &str| {
        let mut rest = Some(name);
        for piece in pasted.split("##") {
            let is_text = piece.starts_with('_') || piece.ends_with('_');
            rest = rest.and_then(|rest| {
                if is_text { rest.split_once(piece).map(|(_, rest)| rest) } else { Some(rest) }
            });
        }
        let begins = pasted.split("##").next().is_some_and(|first| name.starts_with(first));
        begins && rest.is_some()
    };
    source.split(|c| !is_part(c)).filter(|word| word.contains("##")).any(makes)
}

#[test]
fn pasted_names_are_recognised() {
    let source = "KERNEL(product_##name##_rows_any, 3) KERNEL(attention_##heads##_##lanes, heads)";
    for name in ["product_f16_rows_any", "attention_4_16"] {
        assert!(is_pasted(source, name), "{name}");
    }
    for name in ["product_f16_columns_any", "attention", "softmax_4_16"] {
        assert!(!is_pasted(source, name), "{name}");
    }
}

/// Names after `extern "C" __global__ void`, without parameters of a macro.
fn declared_kernels(source: &str) -> Vec<String> {
    source
        .lines()
        .filter_map(|line| line.strip_prefix("extern \"C\" __global__ void "))
        .map(|rest| match rest.strip_prefix("__launch_bounds__(") {
            Some(bounds) => bounds.split_once(") ").expect("a name after the bounds").1,
            None => rest,
        })
        .map(|rest| rest.split('(').next().expect("a name").to_owned())
        .collect()
}
