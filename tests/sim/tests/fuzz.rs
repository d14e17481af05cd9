//! Runs the fuzz targets of the model without a fuzzer: the committed seeds, then mutations of them for
//! `NVGPU_FUZZ_SECONDS`, by default one second each.

#[path = "../../../fuzz/src/channel.rs"]
mod channel;
#[path = "../../../fuzz/src/door.rs"]
mod door;
#[path = "../../../fuzz/src/launch.rs"]
mod launch;
#[path = "../../../fuzz/src/program.rs"]
mod program;
#[path = "../../../fuzz/src/runner.rs"]
mod runner;

use std::path::{Path, PathBuf};

/// The folder with the seeds of a target.
fn seeds(target: &str) -> [PathBuf; 1] {
    [Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target)]
}

#[test]
fn every_channel_input_has_a_defined_outcome() {
    runner::run(&seeds("channel"), channel::run);
}

#[test]
fn arbitrary_requests_do_not_break_the_kernel() {
    runner::run(&seeds("door"), door::run);
}

#[test]
fn no_launch_descriptor_stops_the_gpu() {
    runner::run(&seeds("launch"), launch::run);
}

#[test]
fn no_program_crashes_the_model() {
    runner::run(&seeds("program"), program::run);
}
