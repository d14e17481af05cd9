//! The library's version.

use core::ffi::{CStr, c_char};

use crate::types::TEGRA_HCQ_ABI;

/// Version of the library that the program runs with, for example "0.1.0". The string is never freed. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    CStr::from_bytes_with_nul(VERSION.as_bytes()).unwrap_or(c"").as_ptr()
}

/// ABI of the library that the program runs with. A program compares it with TEGRA_HCQ_ABI, which it was compiled
/// with: they must be equal. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_abi() -> u32 {
    TEGRA_HCQ_ABI
}
