//! Kernels with planted errors and their repaired twins: `kernels/check/*.cu`, as their comments describe them.

use orin_sim::check::Kind;
use serde::{Deserialize, Serialize};

/// The sources in `kernels/check`, without extension, and the tool that finds the errors of each.
pub const FILES: [(&str, &str); 6] = [
    ("mem", "memcheck"),
    ("race", "racecheck"),
    ("init", "initcheck"),
    ("sync", "synccheck"),
    ("frames", "memcheck"),
    ("warp", "warpcheck"),
];

/// A planted error, or a repaired kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planted {
    /// `kernels/check/FILE.cu`.
    pub file: String,
    /// Name; planted errors begin with `bug_`, their repaired twins with `fix_`.
    pub kernel: String,
    /// The tool that finds the error.
    pub tool: String,
    /// Blocks.
    pub grid: u32,
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Ints in each buffer.
    pub n: u32,
    /// Kind and line of the error; `None` for a repaired kernel.
    pub error: Option<(Kind, u32)>,
}

/// The kernels of all sources in `kernels/check`.
///
/// # Panics
///
/// If a source cannot be read or has a comment that is not understood.
pub fn all() -> Vec<Planted> {
    let folder = test_support::workspace().join("kernels/check");
    let of_file = |(file, tool)| {
        // PANIC: the sources are part of the repository.
        let source = std::fs::read_to_string(folder.join(file).with_extension("cu"))
            .expect("a source of the repository");
        parse(file, tool, &source)
    };
    FILES.into_iter().flat_map(of_file).collect()
}

/// Kernels whose error has several findings.
const SEVERAL: [(&str, &[&str]); 6] = [
    ("bug_one_warp", &["exited-threads", "shared-race"]),
    ("bug_large_count", &["barrier-count", "deadlock"]),
    ("bug_different_counts", &["barrier-count", "deadlock"]),
    ("bug_mask_without_caller", &["warp-mask", "deadlock"]),
    ("bug_different_masks", &["warp-mask", "deadlock"]),
    // The store, and the loads at two lines of what it has stored.
    ("bug_deep_stack", &["beyond-frame", "beyond-frame", "beyond-frame"]),
];

impl Planted {
    /// The kinds of all findings about the kernel, in their order. A race has one for each pair of instructions, which
    /// count as one here.
    pub fn kinds(&self) -> Vec<&'static str> {
        match SEVERAL.iter().find(|(kernel, _)| *kernel == self.kernel) {
            Some((_, kinds)) => kinds.to_vec(),
            None => self.error.iter().map(|(kind, _)| kind.id()).collect(),
        }
    }
}

/// The kernels of a source: `RUN` and `BUG` comments, see `kernels/check/mem.cu`.
fn parse(file: &str, tool: &str, source: &str) -> Vec<Planted> {
    let kind = |id: &str| Kind::of(id).unwrap_or_else(|| panic!("'{id}' is no kind of finding"));
    let value = |words: &str, name: &str| {
        let word = words.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.map_or(0, |number| number.parse().unwrap_or_else(|_| panic!("'{number}' is no number")))
    };
    let (mut all, mut launch, mut early) = (Vec::<Planted>::new(), "", None);
    for (number, line) in (1..).zip(source.lines()) {
        if let Some(words) = line.strip_prefix("// RUN ") {
            launch = words;
        } else if let Some(rest) = line.strip_prefix("KERNEL ") {
            all.push(Planted {
                file: file.to_owned(),
                kernel: rest.split('(').next().unwrap_or_default().to_owned(),
                tool: tool.to_owned(),
                grid: value(launch, "grid"),
                block: value(launch, "block"),
                shared: value(launch, "shared"),
                n: value(launch, "n"),
                error: early.take(),
            });
        } else if let Some((_, id)) = line.split_once("// BUG ") {
            let error = Some((kind(id.trim()), number));
            // A function before its kernel contains the error.
            match all.last_mut().filter(|last| last.kernel.starts_with("bug_") && last.error.is_none()) {
                Some(last) => last.error = error,
                None => early = error,
            }
        }
    }
    all
}
