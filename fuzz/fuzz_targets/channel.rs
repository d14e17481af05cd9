//! Ring entries and pushbuffers for a channel of the software Orin.

#![no_main]

#[path = "../src/channel.rs"]
mod channel;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    channel::run(data);
});
