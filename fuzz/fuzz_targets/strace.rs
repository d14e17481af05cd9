//! Traces for the decoder of `orin decode strace`.

#![no_main]

#[path = "../src/strace.rs"]
mod strace;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    strace::run(data);
});
