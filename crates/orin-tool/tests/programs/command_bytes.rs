//! The fuzz target of the command decoders without a fuzzer: the committed seeds, then mutations of them
//! for as long as `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../../../fuzz/src/commands.rs"]
mod commands;

use std::path::Path;

use crate::runner;

#[test]
fn arbitrary_words_break_nothing() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/commands")], commands::run);
}
