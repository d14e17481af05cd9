//! Cubins and fat binaries for the parsers and for `orin decode cubin`.

#![no_main]

#[path = "../src/cubin.rs"]
#[expect(dead_code, reason = "the seeds are given on the command line here")]
mod cubin;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    cubin::run(data);
});
