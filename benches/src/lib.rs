//! Benchmarks of the whole stack, as values that a program runs.
//!
//! The bodies live in a library, so that one copied binary (`xtask`) measures a board without cargo or the
//! sources: the kernels are part of it. [`all`] lists the cases, [`run()`] measures those that a device can
//! run and says why it leaves out the others, [`report`] makes a table, JSON and HTML of the outcome. With
//! a [`cuda::Cuda`] the same work goes through NVIDIA's libcuda as well, sample by sample in turns.
//!
//! What each case measures, and what it does not: `docs/benchmarks.md`. The files in `benches/` measure the
//! CPU's side alone, with criterion.

mod bench;
mod cases;
pub mod cuda;
mod error;
pub mod kernels;
pub mod machine;
mod measure;
pub mod report;
mod run;
pub mod start_up;

pub use bench::{Bench, Plan, Rival, Sampler};
pub use cases::{Case, Needs, Unit, all};
pub use error::{Error, Result};
pub use measure::{Bin, Samples, Summary};
pub use run::{Environment, Measurement, Outcome, Progress, RivalOutcome, Run, run};

use std::time::Duration;

/// Longest wait for any one piece of work.
pub const TIMEOUT: Duration = Duration::from_secs(120);
