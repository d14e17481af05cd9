//! The fuzz target of the cubin parser without a fuzzer: cubins of the repository, then mutations of them
//! for as long as `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../../../fuzz/src/cubin.rs"]
mod cubin_target;

use std::path::Path;

use crate::runner;

#[test]
fn arbitrary_cubins_break_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    runner::run(&cubin_target::seeds(&root), cubin_target::run);
}
