//! Packets from a wrong peer, for both ends of tegra-share.

#![no_main]

#[path = "../src/share.rs"]
mod share;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    share::run(data);
});
