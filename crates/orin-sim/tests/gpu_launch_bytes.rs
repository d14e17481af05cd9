//! The fuzz target of launch descriptors without a fuzzer: the committed seeds, then mutations of them for as
//! long as `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../../fuzz/src/launch.rs"]
mod launch;
#[path = "../../../fuzz/src/runner.rs"]
mod runner;

use std::path::Path;

#[test]
fn no_launch_descriptor_stops_the_gpu() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/launch")], launch::run);
}
