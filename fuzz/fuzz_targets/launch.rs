//! Launch descriptors for the software GPU.

#![no_main]

#[path = "../src/launch.rs"]
mod launch;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    launch::run(data);
});
