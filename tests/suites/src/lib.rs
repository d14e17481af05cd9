//! The test suites that run on a device.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

pub mod device_calls;
pub mod edge_cases;
pub mod faults;
mod fixtures;
pub mod hcq;
pub mod ioctl;
pub mod isolation;
pub mod jit;
pub mod models;
pub mod silicon;
pub mod soak;
pub mod stress;
pub mod submissions;
mod survivor;

use test_harness::Suite;

/// The suites of an ordinary run, in execution order.
pub static ALL: [&Suite; 11] = [
    &ioctl::SUITE,
    &hcq::SUITE,
    &edge_cases::SUITE,
    &submissions::SUITE,
    &faults::SUITE,
    &device_calls::SUITE,
    &stress::SUITE,
    &models::SUITE,
    &silicon::SUITE,
    &jit::SUITE,
    &isolation::SUITE,
];

/// Suites that run only if named.
pub static ON_REQUEST: [&Suite; 2] = [&soak::SUITE, &isolation::NEIGHBOUR];

/// All suites.
pub fn everything() -> Vec<&'static Suite> {
    ALL.into_iter().chain(ON_REQUEST).collect()
}

/// The suites available to a run with these names; without names, those of an ordinary run.
pub fn for_names(names: &[String]) -> Vec<&'static Suite> {
    if names.is_empty() { ALL.to_vec() } else { everything() }
}
