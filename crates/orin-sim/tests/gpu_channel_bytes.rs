//! The fuzz target of channels without a fuzzer: the committed seeds, then mutations of them for as long as
//! `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../../fuzz/src/channel.rs"]
mod channel;
#[path = "../../../fuzz/src/runner.rs"]
mod runner;

use std::path::Path;

#[test]
fn whatever_a_channel_is_fed_has_an_outcome() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/channel")], channel::run);
}
