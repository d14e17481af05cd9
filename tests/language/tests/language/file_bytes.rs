//! The fuzz target of model files without a fuzzer: the committed seeds, then mutations of them for as long as
//! `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../../../fuzz/src/gguf.rs"]
mod gguf_target;
#[path = "../../../../fuzz/src/runner.rs"]
mod runner;

use std::path::Path;

#[test]
fn arbitrary_files_break_nothing() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/gguf")], gguf_target::run);
}
