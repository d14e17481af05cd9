//! The fuzz target of the trace decoder without a fuzzer: the committed seeds, then mutations of them for
//! as long as `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../../../fuzz/src/strace.rs"]
mod strace;

use std::path::Path;

use crate::runner;

#[test]
fn arbitrary_traces_break_nothing() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/strace")], strace::run);
}
