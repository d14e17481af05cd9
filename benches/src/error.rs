//! Errors of the benchmarks.

use std::io;

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Errors of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call on the device failed.
    #[error(transparent)]
    Device(#[from] tegra_hcq::Error),

    /// A matrix product was refused.
    #[error(transparent)]
    Gemm(#[from] infer::Error),

    /// The control loop or its network failed.
    #[error(transparent)]
    Network(#[from] networks::Error),

    /// A call of the C library failed.
    #[error("the C library: {0}")]
    CLibrary(String),

    /// An embedded kernel cannot be read.
    #[error("kernels/{file}.cubin: {source}")]
    Cubin {
        /// Name of the file, without its ending.
        file: &'static str,
        /// The parser's error.
        source: cubin::Error,
    },

    /// No embedded cubin runs on this GPU.
    #[error("kernels/{file}.cu is not compiled for sm_{sm} in this program")]
    NoImage {
        /// Name of the file, without its ending.
        file: &'static str,
        /// The GPU's SM version, ten times the major number plus the minor.
        sm: u32,
    },

    /// The baseline cannot be used.
    #[error("the baseline is not a JSON report of this program: {0}")]
    Baseline(String),

    /// There is no second GPU.
    #[error("there is no second GPU")]
    NoPeer,

    /// The GPU's result differs from the CPU's.
    #[error("wrong result: {0}")]
    WrongResult(String),

    /// A time limit was exceeded.
    #[error("{0}")]
    Late(String),

    /// libcuda cannot be found.
    #[error(
        "NVIDIA's CUDA driver library cannot be loaded; tried:\n  {}\n\
         install it (JetPack: package nvidia-l4t-cuda; elsewhere: the GPU driver), or set NVGPU_LIBCUDA to \
         the file libcuda.so.1",
        tried.join("\n  ")
    )]
    NoCuda {
        /// Each attempted file and its error, one line each.
        tried: Vec<String>,
    },

    /// The CUDA library of this project cannot be found.
    #[error(
        "there is no {}: run `cargo build --release -p orin-libcuda`, or set ORIN_LIBCUDA to the file",
        path.display()
    )]
    NoOwnCuda {
        /// Where it was expected.
        path: std::path::PathBuf,
    },

    /// cuBLAS cannot be found.
    #[error("cuBLAS cannot be loaded; tried:\n  {}\nadd its folder to LD_LIBRARY_PATH", tried.join("\n  "))]
    NoBlas {
        /// Each attempted name and its error, one line each.
        tried: Vec<String>,
    },

    /// A call of libcuda or cuBLAS failed.
    #[error("{call}: {reason}")]
    Cuda {
        /// Name of the call.
        call: &'static str,
        /// libcuda's name and number of the error.
        reason: String,
    },

    /// The arguments do not match the kernel's parameters.
    #[error("kernel {kernel} takes parameters of {wanted:?} bytes, got {given:?}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// Sizes that the kernel declares.
        wanted: Vec<usize>,
        /// Sizes of the given arguments.
        given: Vec<usize>,
    },

    /// A child process could not be started or failed.
    #[error("child process {program}: {reason}")]
    Child {
        /// Path of the program.
        program: String,
        /// The reason.
        reason: String,
    },

    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
