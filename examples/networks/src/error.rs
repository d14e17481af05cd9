//! Errors of this crate.

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a network could not be built or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device refused a request, faulted or timed out.
    #[error(transparent)]
    Gpu(#[from] tegra_hcq::Error),

    /// Weights, buffers and sizes do not fit each other; the text names them.
    #[error("{0}")]
    Sizes(String),

    /// The GPU's output of the control loop's network differs from the CPU's.
    #[error(
        "cycle {cycle}: output {output} of the network is {got} instead of {want} (tolerance {tolerance:e})"
    )]
    Disagrees {
        /// Index of the cycle, from 0.
        cycle: u64,
        /// Index of the output.
        output: usize,
        /// The GPU's result.
        got: f32,
        /// The CPU's result.
        want: f64,
        /// Largest difference that is accepted.
        tolerance: f64,
    },
}

/// An error about sizes, with a formatted text.
macro_rules! sizes {
    ($($text:tt)+) => { $crate::Error::Sizes(format!($($text)+)) };
}
pub(crate) use sizes;
