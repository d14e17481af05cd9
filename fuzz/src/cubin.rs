//! Cubins and fat binaries for the parsers and for `orin decode cubin`.
//!
//! For any input, parsing and listing end with a value or an error, the parser's guarantees about its result hold, the
//! listing has no control characters and is at most a small multiple of the file's length, and text and JSON agree.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use cubin::fatbin::FatBinary;
use cubin::{Contents, Cubin, Extent, FileKind};
use orin_tool::code;
use orin_tool::commands::Verdict;
use serde_json::Value;

/// Maximum bytes of output per byte of input: a row of two names and words for each record of four bytes.
const OUTPUT_FACTOR: usize = 256;

/// Maximum bytes of output for an empty input.
const OUTPUT_BASE: usize = 1024;

/// Maximum bytes of the initialised part of an image per byte of input: a section header of 64 bytes can add
/// padding of 4,350 bytes, and sections do not overlap.
const FRONT_FACTOR: u64 = 70;

/// Largest image that is built, in bytes, because one field can make a zeroed variable huge.
const IMAGE_LIMIT: u64 = 1 << 20;

fn listed(data: &[u8], json: bool) -> (String, Verdict) {
    let mut output = Vec::new();
    let verdict = code::cubin(data, &mut output, json).expect("memory takes everything");
    let limit = OUTPUT_BASE + OUTPUT_FACTOR * data.len();
    assert!(output.len() <= limit, "{} bytes of input made {} of output", data.len(), output.len());
    (String::from_utf8(output).expect("text"), verdict)
}

/// The end of a file is known after at most four answers, unless the file is shorter than its headers claim.
fn check_extent(data: &[u8]) {
    let mut known = 4;
    for _ in 0..4 {
        match Extent::of(&data[..known.min(data.len())]) {
            Extent::AtLeast(bytes) => known = usize::try_from(bytes).unwrap_or(usize::MAX),
            _ => return,
        }
    }
    assert!(known > data.len(), "no end after four answers: {known} of {} bytes", data.len());
}

/// Parses and lists a file. Returns the behaviour for the fuzzer.
pub(crate) fn run(data: &[u8]) -> BTreeSet<u64> {
    let (text, verdict) = listed(data, false);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "control characters in {text:?}");
    let (json, same) = listed(data, true);
    let object: Value = serde_json::from_str(&json).expect("an object");
    assert_eq!(verdict, same, "text and JSON find the same");
    assert_eq!(object["error"].is_string(), verdict == Verdict::Damaged);
    if let Ok(contents) = Contents::read(data) {
        let rows = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(rows("relocation of "), contents.relocations.len(), "one row each");
        assert_eq!(rows("attribute of "), contents.attributes.len(), "one row each");
        assert_eq!(object["sections"].as_array().map(Vec::len), Some(contents.sections.len()));
    }

    check_extent(data);
    let mut behaviours = BTreeSet::new();
    let mut new = |behaviour: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        behaviour(&mut hasher);
        behaviours.insert(hasher.finish());
    };
    if let Ok(fat) = FatBinary::parse(data) {
        assert!(fat.entries().len() <= data.len() / 64);
        for entry in fat.entries().iter().filter(|entry| entry.bytes <= IMAGE_LIMIT) {
            let unpacked = entry.data().map(|data| {
                assert!(data.len() as u64 <= entry.bytes);
                FileKind::of(&data)
            });
            new(&|hasher| {
                (format!("{entry} {:?}", entry.compression), entry.is_debug()).hash(hasher);
                (entry.name.is_some(), entry.options.is_some(), format!("{unpacked:?}")).hash(hasher);
            });
        }
    }
    match Cubin::parse(data) {
        Err(error) => {
            // The kind of error. Longer texts are reduced to the part without numbers and names.
            let said: String = error.to_string().chars().filter(|c| !c.is_ascii_digit()).collect();
            new(&|hasher| {
                std::mem::discriminant(&error).hash(hasher);
                said.rsplit(':').next().hash(hasher);
            });
        }
        Ok(module) => {
            for kernel in module.kernels() {
                assert_eq!(module.kernel(&kernel.name), Ok(kernel));
                assert!(kernel.code_offset + kernel.code_bytes <= module.image_bytes());
                assert!(kernel.param_base + kernel.param_bytes <= kernel.constant0_bytes);
                let log = |number: u32| number.checked_ilog2();
                new(&|hasher| {
                    (log(kernel.registers), log(kernel.shared_bytes), log(kernel.local_bytes)).hash(hasher);
                    (kernel.params.len(), kernel.constants.len(), kernel.barriers).hash(hasher);
                    let threads = (kernel.max_threads.is_some(), kernel.required_threads.is_some());
                    (threads, kernel.cluster.is_some(), kernel.unbounded_stack).hash(hasher);
                });
            }
            assert!(module.initialised_bytes() <= FRONT_FACTOR * data.len() as u64, "bounded by the file");
            if let Ok(front) = module.initialised_at(module.image_align() << 20) {
                assert_eq!(front.len() as u64, module.initialised_bytes());
            }
            if module.image_bytes() <= IMAGE_LIMIT
                && let Ok(image) = module.image_at(module.image_align() << 20)
            {
                assert_eq!(image.len() as u64, module.image_bytes());
            }
            new(&|hasher| (module.sm(), module.is_accelerated(), module.globals().len()).hash(hasher));
        }
    }
    behaviours
}

/// The seeds: cubins and fat binaries of the repository of every ABI version, below the given folder.
pub(crate) fn seeds(root: &std::path::Path) -> Vec<std::path::PathBuf> {
    const SEEDS: [&str; 14] = [
        "kernels/globals.cubin",
        "kernels/square_plus_one.cubin",
        "crates/cubin/tests/data/calls.cubin",
        "crates/cubin/tests/data/features/features.13.0.88.sm_90.cubin",
        "crates/cubin/tests/data/features/large.12.6.85.sm_87.cubin",
        "crates/cubin/tests/data/features/linked.13.0.88.sm_90.cubin",
        "crates/cubin/tests/data/group.fatbin",
        "crates/cubin/tests/data/huge.cubin",
        "crates/cubin/tests/data/limits.13_0.cubin",
        "crates/cubin/tests/data/lz4.fatbin",
        "crates/cubin/tests/data/plain.fatbin",
        "crates/cubin/tests/data/tiny.relocatable.cubin",
        "crates/cubin/tests/data/tiny.sm_90a.cubin",
        "crates/cubin/tests/data/zstd.fatbin",
    ];
    SEEDS.iter().map(|seed| root.join(seed)).collect()
}
