//! Tests on the software Orin.
//!
//! One program: linking one is faster than linking many.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

mod chips;
#[cfg(feature = "nvrtc")]
mod compile;
mod features;
mod kernels;
#[cfg(feature = "nvrtc")]
mod link;
