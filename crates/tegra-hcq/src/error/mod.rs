//! Errors of the library.

mod request;

use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::fault::Fault;
use crate::kind::DeviceName;
use gpu_hal::{MemoryInfo, Shortage};
pub use request::{LaunchError, RangeError};

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Errors of this crate's calls. `{:?}` prints the same text as `{}`, because a `main` that returns the error prints it
/// so.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library was built without the software Orin.
    #[error(
        "no Orin GPU found (/dev/nvgpu/igpu0/ctrl is absent) and the software Orin is not built in; \
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
    #[error(
        "unknown device kind '{0}'; known are auto, nvgpu, nvrm and sim, with an index (nvrm:1) or a PCI address \
         (nvrm:0000:19:00.0) behind it"
    )]
    UnknownKind(String),

    /// There are fewer devices of the kind, or they have no PCI addresses.
    #[error("there is no device {name}: {kind} has {count}, numbered from 0", kind = name.kind)]
    NoSuchDevice {
        /// The name.
        name: DeviceName,
        /// Number of devices of the kind.
        count: usize,
    },

    /// An environment variable has a value that is not permitted; see [`DeviceOptions`](crate::DeviceOptions).
    #[error("{name} is '{value}'; permitted values are {permitted}")]
    Variable {
        /// Name of the variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The permitted values.
        permitted: String,
    },

    /// The action in [`DeviceOptions::pcas_action`](crate::DeviceOptions::pcas_action) does not start a launch.
    #[error("PCAS action {0:?} does not start a launch; permitted are 9, 10 and 3")]
    PcasAction(ampere_cmd::command::PcasAction),

    /// The software Orin could not be started.
    #[error("starting the software Orin: {0}")]
    SoftwareOrin(Box<dyn core::error::Error + Send + Sync>),

    /// The driver returned an error. [`gpu_hal::Error::driver_error`] returns the error of its own layer.
    #[error(transparent)]
    Driver(#[from] gpu_hal::Error),

    /// The chip table does not contain the GPU's SM version.
    #[error("the GPU has SM version {major}.{minor}; supported are {}", gpu_hal::chip::versions())]
    UnknownChip {
        /// Major SM version.
        major: u32,
        /// Minor SM version.
        minor: u32,
    },

    /// There is not enough memory, even after idle memory was returned to the driver.
    #[error(
        "cannot allocate {wanted} bytes of memory: {}buffers of this device use {in_use} bytes{}; free buffers that \
         are not needed, or close other programs", shortage_text(*shortage, *memory), memory_text(*memory)
    )]
    OutOfMemory {
        /// Requested size in bytes.
        wanted: u64,
        /// Bytes used by this device's buffers.
        in_use: u64,
        /// What was short; `None` if unknown.
        shortage: Option<Shortage>,
        /// Memory of the machine or GPU, if the driver reports it. `largest` is the size that would fit now, in bytes;
        /// 0 if that is unknown.
        memory: Option<MemoryInfo>,
        /// The driver's error.
        source: Box<Error>,
    },

    /// A cubin was refused.
    #[error(transparent)]
    Cubin(#[from] cubin::Error),

    /// A texture cannot be described so.
    #[error(transparent)]
    Texture(#[from] ampere_cmd::texture::TextureError),

    /// All descriptors are in use.
    #[error("{0} textures exist, or samplers that differ; drop some")]
    TooManyTextures(u32),

    /// The kernel uses textures or surfaces, which the GPU's generation does not support here.
    #[error(
        "kernel {kernel}: uses textures or surfaces (instruction {instruction}), which are not supported on this GPU: \
         read the data from a buffer, through `const __restrict__` pointers, and interpolate in the kernel"
    )]
    TexturesAbsent {
        /// Name of the kernel.
        kernel: String,
        /// The first such instruction.
        instruction: &'static str,
    },

    /// A value does not fit its hardware field.
    #[error(transparent)]
    Encoding(#[from] ampere_cmd::Error),

    /// Grid, block or resources of a launch do not fit kernel or chip.
    #[error(transparent)]
    Launch(#[from] LaunchError),

    /// The number or size of the arguments differs from the kernel's parameters.
    #[error("kernel {kernel}: {reason}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// The difference.
        reason: String,
    },

    /// A length, range or count of a request is invalid.
    #[error(transparent)]
    Range(#[from] RangeError),

    /// The call mixes objects of different devices; names the object.
    #[error("{0} belongs to another device")]
    OtherDevice(String),

    /// An object of a connected device is in memory that this device cannot map.
    #[error(
        "{what} belongs to another device, and this device cannot map its memory: {reason}; copy buffers with \
         Link::copy, and use signals of Device::shared_signal"
    )]
    NotMapped {
        /// The object.
        what: String,
        /// The driver's error.
        reason: Box<Error>,
    },

    /// The buffer is used by a launch that has not been submitted.
    #[error("the buffer is used by work that was launched but not submitted: call submit first")]
    NotSubmitted,

    /// A replay of a graph while a view of one of its buffers exists.
    #[error("a buffer of the graph is being viewed by the CPU: drop the view first")]
    Viewed,

    /// All queues that the device offers are open.
    #[error("all {0} queues of the device are open; drop one first")]
    TooManyQueues(usize),

    /// The GPU stopped the work. The queue is unusable; the device and its memory remain valid.
    #[error("{0}")]
    Fault(Arc<Fault>),

    /// A source or image could not be compiled.
    #[cfg(feature = "nvrtc")]
    #[error(transparent)]
    Compile(orin_compile::Error),

    /// The thread that wakes futures could not be started.
    #[error("starting the thread that waits for futures: {0}")]
    Thread(std::io::Error),

    /// A file or folder could not be written.
    #[error("writing {}: {source}", path.display())]
    File {
        /// Path of the file or folder.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },

    /// The work did not end in time.
    #[error(
        "the GPU did not finish within {timeout:?} (waited for timeline value {wanted}, saw {seen}): {cause}"
    )]
    Timeout {
        /// Time-out of the wait.
        timeout: Duration,
        /// Timeline value waited for.
        wanted: u64,
        /// Last timeline value seen.
        seen: u64,
        /// The state of the GPU, as far as known.
        cause: String,
    },

    /// The function set by [`set_interrupt`](crate::set_interrupt) has ended the wait.
    #[error("the wait was interrupted; the work may still end, and Device::recover stops it")]
    Interrupted,
}

/// The part of a message that gives what is short, and what would fit.
fn shortage_text(shortage: Option<Shortage>, info: Option<MemoryInfo>) -> String {
    let short = shortage.map_or_else(String::new, |shortage| format!("{shortage}; "));
    match info.map_or(0, |info| info.largest) {
        0 => short,
        fits => format!("{short}{fits} bytes would fit now; "),
    }
}

/// The part of a message that gives the machine's memory.
fn memory_text(info: Option<MemoryInfo>) -> String {
    info.map_or_else(String::new, |info| {
        format!(", the system has {} of {} bytes available", info.available, info.total)
    })
}

impl Error {
    /// Whether the device's driver does not offer what was asked for ([`gpu_hal::Error::Unsupported`]).
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Driver(gpu_hal::Error::Unsupported(_)))
    }

    /// Whether the driver ran out of memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Driver(error) => error.is_out_of_memory(),
            _ => false,
        }
    }
}

#[cfg(feature = "nvrtc")]
impl From<orin_compile::Error> for Error {
    fn from(error: orin_compile::Error) -> Self {
        match error {
            orin_compile::Error::Cubin(error) => Self::Cubin(error),
            error => Self::Compile(error),
        }
    }
}

impl From<ampere_cmd::FieldError> for Error {
    fn from(error: ampere_cmd::FieldError) -> Self {
        Self::Encoding(error.into())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
