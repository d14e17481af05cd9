//! Shared test support.
//!
//! - [`allocations`]: an allocator that counts, for tests of code that must not allocate. It has no dependencies.
//! - [`block_linear_offset`]: the block-linear layout.
#![cfg_attr(
    feature = "device",
    doc = "- [`Bench`], [`try_open`], [`cubin`], [`Numbers`], [`assert_live`]: devices on software Orins, fixture \
           kernels, reproducible data.
- [`probe`]: a door that counts calls. [`counting_driver`]: a GPU driver that counts calls.
- [`process`]: resources of the process, for leak tests."
)]

pub mod allocations;
#[cfg(feature = "device")]
mod bench;
mod blocks;
#[cfg(feature = "device")]
pub mod counting_driver;
#[cfg(feature = "device")]
pub mod probe;
#[cfg(feature = "device")]
pub mod process;

pub use blocks::block_linear_offset;

#[cfg(feature = "device")]
pub use bench::{Bench, Numbers, TIMEOUT, assert_live, config, cubin, try_open, workspace};
