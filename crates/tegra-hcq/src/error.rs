//! Errors of the library.

use std::sync::Arc;
use std::time::Duration;

use crate::fault::Fault;

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

    /// No kind of device has this name.
    #[error("there is no device kind '{0}'; there are auto, nvgpu and sim")]
    UnknownKind(String),

    /// The software Orin could not be started.
    #[error("starting the software Orin: {0}")]
    SoftwareOrin(nvgpu_sys::Errno),

    /// A call to the kernel driver failed.
    #[error(transparent)]
    Driver(#[from] nvgpu_channel::Error),

    /// Memory could not be created or mapped.
    #[error(transparent)]
    Memory(#[from] nvmap::Error),

    /// A cubin was refused.
    #[error(transparent)]
    Cubin(#[from] cubin::Error),

    /// A value does not fit its hardware field.
    #[error(transparent)]
    Encoding(#[from] ampere_cmd::Error),

    /// Grid, block or resources of a launch are outside what the GPU can do.
    #[error("{0}")]
    Launch(String),

    /// Number or size of the arguments differ from the kernel's parameters.
    #[error("kernel {kernel}: {reason}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// What differs.
        reason: String,
    },

    /// Source and target of a transfer differ in length, or a range lies outside of its buffer.
    #[error("{0}")]
    Range(String),

    /// Objects of different devices were mixed.
    #[error("{0} belongs to another device")]
    OtherDevice(&'static str),

    /// The GPU still has to run a launch that was never submitted.
    #[error("the buffer is used by work that was launched but not submitted: call submit first")]
    NotSubmitted,

    /// All queues that the device offers are open.
    #[error("all {0} queues of the device are open; drop one first")]
    TooManyQueues(usize),

    /// The GPU stopped the work; the queue is dead, the device and its memory are not.
    #[error("{0}")]
    Fault(Arc<Fault>),

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

impl From<ampere_cmd::FieldError> for Error {
    fn from(error: ampere_cmd::FieldError) -> Self {
        Self::Encoding(error.into())
    }
}
