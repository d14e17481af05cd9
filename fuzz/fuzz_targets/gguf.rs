//! Files of language models for the reader, and for what is made of them.

#![no_main]

#[path = "../src/gguf.rs"]
mod gguf;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    gguf::run(data);
});
