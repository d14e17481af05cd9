//! Errors of the benchmarks.

use std::io;

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] tegra_hcq::Error),

    /// The control loop ended early.
    #[error(transparent)]
    Control(#[from] tests::control::Error),

    /// An embedded kernel cannot be read.
    #[error("kernels/{file}.cubin: {source}")]
    Cubin {
        /// Name of the file, without its ending.
        file: &'static str,
        /// What is wrong with it.
        source: cubin::Error,
    },

    /// No embedded kernel is for this GPU.
    #[error("kernels/{file}.cu is not compiled for sm_{sm} in this program")]
    NoImage {
        /// Name of the file, without its ending.
        file: &'static str,
        /// The GPU's SM version, ten times the major number plus the minor.
        sm: u32,
    },

    /// The GPU computed something else than the CPU.
    #[error("wrong result: {0}")]
    WrongResult(String),

    /// Something did not happen in time.
    #[error("{0}")]
    Late(String),

    /// libcuda is nowhere to be found.
    #[error(
        "NVIDIA's CUDA driver library cannot be loaded; tried:\n  {}\n\
         install it (JetPack: package nvidia-l4t-cuda; elsewhere: the GPU driver), or set NVGPU_LIBCUDA to \
         the file libcuda.so.1",
        tried.join("\n  ")
    )]
    NoCuda {
        /// What was tried and why it will not do, one line each.
        tried: Vec<String>,
    },

    /// A call of libcuda failed.
    #[error("{call}: {reason}")]
    Cuda {
        /// Name of the call.
        call: &'static str,
        /// libcuda's name and number of the error.
        reason: String,
    },

    /// Arguments do not fit a kernel.
    #[error("kernel {kernel} takes parameters of {wanted:?} bytes, not of {given:?}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// Sizes that the kernel declares.
        wanted: Vec<usize>,
        /// Sizes that were given.
        given: Vec<usize>,
    },

    /// A child process could not be started or did not do its work.
    #[error("child process {program}: {reason}")]
    Child {
        /// Its file.
        program: String,
        /// What went wrong.
        reason: String,
    },

    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was asked for.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },

    /// A plot could not be drawn.
    #[error("drawing a plot: {0}")]
    Plot(String),
}
