//! Errors of the library.

mod request;

use std::sync::Arc;
use std::time::Duration;

use crate::fault::Fault;
use gpu_hal::MemoryInfo;
pub use request::{CompileRequestError, LaunchError, RangeError};

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What can go wrong between opening a device and reading a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library was built without the software Orin.
    #[error(
        "no Orin GPU here (/dev/nvgpu/igpu0/ctrl is absent) and the software Orin is not built in; \
             build with the feature `sim`"
    )]
    NoSoftwareOrin,

    /// The library was built without a driver.
    #[error("the driver {kind} is not built in; build with the feature {feature}")]
    NoDriver {
        /// Kind of the device.
        kind: &'static str,
        /// The feature of `tegra-hcq` that adds the driver.
        feature: &'static str,
    },

    /// No kind of device has this name.
    #[error("there is no device kind '{0}'; there are auto, nvgpu, nvrm and sim")]
    UnknownKind(String),

    /// The software Orin could not be started.
    #[error("starting the software Orin: {0}")]
    SoftwareOrin(rustix::io::Errno),

    /// The driver could not do what it was asked for. [`gpu_hal::Error::driver_error`] returns the error of its own
    /// layer.
    #[error(transparent)]
    Driver(#[from] gpu_hal::Error),

    /// The GPU belongs to a generation that the chip table does not contain.
    #[error("the GPU has SM version {major}.{minor}; supported are {}", gpu_hal::chip::versions())]
    UnknownChip {
        /// Major SM version.
        major: u32,
        /// Minor SM version.
        minor: u32,
    },

    /// There is not enough memory, even after idle memory was given back.
    #[error(
        "no memory for {wanted} bytes: buffers of this device use {in_use} bytes{}; free buffers that are \
         not needed, or close other programs", free_text(*free)
    )]
    OutOfMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that this device's buffers use.
        in_use: u64,
        /// Free and total bytes of the machine or GPU, if the driver tells.
        free: Option<MemoryInfo>,
        /// What the driver said.
        source: Box<Error>,
    },

    /// A cubin was refused.
    #[error(transparent)]
    Cubin(#[from] cubin::Error),

    /// A value does not fit its hardware field.
    #[error(transparent)]
    Encoding(#[from] ampere_cmd::Error),

    /// Grid, block or resources of a launch do not fit kernel or chip.
    #[error(transparent)]
    Launch(#[from] LaunchError),

    /// Number or size of the arguments differ from the kernel's parameters.
    #[error("kernel {kernel}: {reason}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// What differs.
        reason: String,
    },

    /// Lengths, ranges or counts of a request make no sense.
    #[error(transparent)]
    Range(#[from] RangeError),

    /// Objects of different devices were mixed.
    #[error("{0} belongs to another device")]
    OtherDevice(&'static str),

    /// The GPU still has to run a launch that was never submitted.
    #[error("the buffer is used by work that was launched but not submitted: call submit first")]
    NotSubmitted,

    /// A graph was to be replayed while a view of one of its buffers exists.
    #[error("a buffer of the graph is being viewed by the CPU: drop the view first")]
    Viewed,

    /// All queues that the device offers are open.
    #[error("all {0} queues of the device are open; drop one first")]
    TooManyQueues(usize),

    /// The GPU stopped the work; the queue is dead, the device and its memory are not.
    #[error("{0}")]
    Fault(Arc<Fault>),

    /// NVRTC, the compiler, is nowhere to be found.
    #[error(
        "NVIDIA's run-time compiler NVRTC cannot be loaded; tried:\n  {}\n\
         install it (JetPack: package cuda-nvrtc of the CUDA toolkit; PyPI: nvidia-cuda-nvrtc-cu12), or set \
         NVGPU_NVRTC to the file libnvrtc.so.12 or to its folder",
        tried.join("\n  ")
    )]
    NoNvrtc {
        /// What was tried and why it will not do, one line each.
        tried: Vec<String>,
    },

    /// A call of NVRTC failed for another reason than the source.
    #[error("{call}: {reason}")]
    Nvrtc {
        /// Name of the call.
        call: &'static str,
        /// NVRTC's name of the error, and its log.
        reason: String,
    },

    /// Source does not compile.
    #[error("{name} does not compile:\n{}", log.trim_end())]
    Compilation {
        /// Name of the source.
        name: String,
        /// The compiler's log, with file names and lines.
        log: String,
    },

    /// A compilation was refused before it began.
    #[error(transparent)]
    CompileRequest(#[from] CompileRequestError),

    /// The thread that wakes futures could not be started.
    #[error("starting the thread that waits for futures: {0}")]
    Thread(std::io::Error),

    /// A file or folder that the library was to write could not be written.
    #[error("writing {}: {source}", path.display())]
    File {
        /// What was to be written.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// The work has not ended in time.
    #[error(
        "the GPU did not finish within {timeout:?} (waited for timeline value {wanted}, saw {seen}): {cause}"
    )]
    Timeout {
        /// How long was waited.
        timeout: Duration,
        /// Timeline value waited for.
        wanted: u64,
        /// Timeline value seen last.
        seen: u64,
        /// What the GPU was doing, as far as can be told.
        cause: String,
    },
}

/// The part of a message that tells what the machine has.
fn free_text(info: Option<MemoryInfo>) -> String {
    info.map_or_else(String::new, |info| {
        format!(", the system has {} of {} bytes free", info.free, info.total)
    })
}

impl Error {
    /// Whether the driver lacked memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Driver(error) if error.is_out_of_memory())
    }
}

impl From<ampere_cmd::FieldError> for Error {
    fn from(error: ampere_cmd::FieldError) -> Self {
        Self::Encoding(error.into())
    }
}
