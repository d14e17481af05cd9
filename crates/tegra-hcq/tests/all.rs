//! Tests on the software Orin.
//!
//! One program: linking one is faster than linking many.

mod chips;
#[cfg(feature = "nvrtc")]
mod compile;
mod features;
mod kernels;
