//! Raw requests at the door of the software Orin.

#![no_main]

#[path = "../src/door.rs"]
mod door;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    door::run(data);
});
