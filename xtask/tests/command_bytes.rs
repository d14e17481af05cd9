//! The fuzz target of the command decoders without a fuzzer: the committed seeds, then mutations of them
//! for as long as `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../fuzz/src/commands.rs"]
mod commands;
#[path = "../../fuzz/src/runner.rs"]
mod runner;

use std::path::Path;

#[test]
fn arbitrary_words_break_nothing() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/commands")], commands::run);
}
