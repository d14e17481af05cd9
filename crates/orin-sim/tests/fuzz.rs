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
fn whatever_a_channel_is_fed_has_an_outcome() {
    runner::run(&seeds("channel"), channel::run);
}

#[test]
fn arbitrary_bytes_at_the_door_break_nothing() {
    runner::run(&seeds("door"), door::run);
}

#[test]
fn no_launch_descriptor_stops_the_gpu() {
    runner::run(&seeds("launch"), launch::run);
}

#[test]
fn no_program_stops_the_model() {
    runner::run(&seeds("program"), program::run);
}
