//! Programs for the software GPU's SMs.

#![no_main]

#[path = "../src/program.rs"]
mod program;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    program::run(data);
});
