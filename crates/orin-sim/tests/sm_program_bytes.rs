//! The fuzz target of programs without a fuzzer: the committed seeds, which are code of kernels, then mutations of
//! them for as long as `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../../fuzz/src/program.rs"]
mod program;
#[path = "../../../fuzz/src/runner.rs"]
mod runner;

use std::path::Path;

#[test]
fn no_program_stops_the_model() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/program")], program::run);
}
