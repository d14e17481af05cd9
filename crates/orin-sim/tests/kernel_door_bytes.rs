//! The fuzz target of the door without a fuzzer: the committed seeds, then mutations of them for as long
//! as `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../../fuzz/src/door.rs"]
mod door;
#[path = "../../../fuzz/src/runner.rs"]
mod runner;

use std::path::Path;

#[test]
fn arbitrary_bytes_break_nothing() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/door")], door::run);
}
