//! The fuzz targets of the decoders without a fuzzer: the committed seeds, then mutations of them for as long as
//! `NVGPU_FUZZ_SECONDS` says, by default one second each.

#[path = "../../../../fuzz/src/commands.rs"]
mod commands;
#[path = "../../../../fuzz/src/cubin.rs"]
mod cubin;
#[path = "../../../../fuzz/src/strace.rs"]
mod strace;

use std::path::{Path, PathBuf};

use crate::runner;

/// A path below the root of the repository.
fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn arbitrary_words_break_nothing() {
    runner::run(&[root("fuzz/seeds/commands")], commands::run);
}

#[test]
fn arbitrary_cubins_break_nothing() {
    runner::run(&cubin::seeds(&root("")), cubin::run);
}

#[test]
fn arbitrary_traces_break_nothing() {
    runner::run(&[root("fuzz/seeds/strace")], strace::run);
}
