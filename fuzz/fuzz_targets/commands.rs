//! Words for the decoders of `orin decode pushbuf`, `qmd` and `gpfifo`.

#![no_main]

#[path = "../src/commands.rs"]
mod commands;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    commands::run(data);
});
