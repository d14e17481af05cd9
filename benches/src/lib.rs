//! Benchmarks of the whole stack, as a library.
//!
//! One copied binary (`orin-dev`) measures a board without cargo or the sources, because the kernels are embedded.
//! [`all`] lists the cases. [`run()`] measures those that a device can run and reports why it skips the others.
//! [`report`] prints the results as a table or JSON. With a [`cuda::Cuda`], it alternates with the same work through
//! NVIDIA's libcuda.
//!
//! `docs/benchmarks.md` describes what each case measures. The files in `benches/` measure only the CPU's side, with
//! criterion.

pub mod baseline;
mod bench;
mod case;
mod cases;
pub mod cuda;
mod error;
pub mod kernels;
pub mod machine;
mod measure;
pub mod report;
mod run;
pub mod served;
pub mod start_up;

pub use baseline::Baseline;
pub use bench::{Bench, Plan, Rival, RivalOutcome, Sampler};
pub use case::{Case, Needs, Unit};
pub use cases::all;
pub use error::{Error, Result};
pub use measure::{Bin, Samples, Summary};
pub use run::{Environment, Measurement, Outcome, Progress, Run, run};

use std::time::Duration;

/// Time limit of each wait.
pub const TIMEOUT: Duration = Duration::from_secs(120);
