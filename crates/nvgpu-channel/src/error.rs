//! What can go wrong between the process and the GPU's driver, and what helps.

use nvgpu_sys::cure::{self, Tail};
use nvgpu_sys::{Errno, paths};

use crate::fault::Fault;
use crate::va::GpuVa;

/// Path of the control node, for messages.
pub(crate) const NODE: &str = paths::text(paths::CTRL);

/// A failed call, or a GPU that this crate cannot drive.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The control node could not be opened.
    #[error("cannot open {path}: {errno}{}", Tail(cure::of_open(*errno, ABSENT)))]
    Open {
        /// Path of the node.
        path: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A request failed.
    #[error("{call} on {object} failed: {errno}{}", Tail(call_cure(*errno)))]
    Call {
        /// The request, as the kernel's headers name it, or the system call.
        call: &'static str,
        /// What it was about.
        object: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Memory for the driver's own use could not be had.
    #[error(transparent)]
    Memory(#[from] nvmap::Error),
    /// The GPU has another engine class than an Orin.
    #[error(
        "this GPU's {engine} class is {found:#06x}, an Orin's is {known:#06x}: the chip is not an Orin, or newer than \
         this crate"
    )]
    UnknownClass {
        /// The engine.
        engine: &'static str,
        /// Class number that the driver reports.
        found: u32,
        /// Class number of an Orin.
        known: u32,
    },
    /// The driver lacks features that every launch needs.
    #[error(
        "the GPU driver lacks {missing}: it is too old, or runs in a reduced profile; L4T r36 has all of it"
    )]
    MissingFeature {
        /// Names of the missing feature flags.
        missing: String,
    },
    /// The driver does not know a request that is needed.
    #[error(
        "the GPU driver's {node} requests end at number {last}, but {request} is number {needed}: the driver is too old; L4T r36 has it"
    )]
    DriverTooOld {
        /// Kind of descriptor.
        node: &'static str,
        /// The request that is needed.
        request: &'static str,
        /// Its number.
        needed: i16,
        /// Highest number that the driver knows.
        last: i16,
    },
    /// GPU virtual addresses are too narrow for the ranges that this crate uses.
    #[error("the GPU driver gives user space {bits}-bit addresses, 40 are needed")]
    NarrowAddresses {
        /// Bits of a GPU virtual address.
        bits: u8,
    },
    /// The ring cannot have that many entries.
    #[error("a GPFIFO ring cannot have {entries} entries: it takes a power of two from 2 to {max}")]
    RingSize {
        /// Entries asked for.
        entries: u32,
        /// Most entries that this GPU takes.
        max: u32,
    },
    /// A size or address is not a whole number of GPU pages, or 0, or leaves its range.
    #[error("{what} {value:#x} does not fit: {rule}")]
    Range {
        /// What the value is.
        what: &'static str,
        /// The value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// The kernel mapped a buffer where another was wanted.
    #[error("the kernel placed a mapping at {got} instead of {wanted}")]
    Misplaced {
        /// Address asked for.
        wanted: GpuVa,
        /// Address returned.
        got: GpuVa,
    },
    /// Something is mapped at the addresses already.
    #[error("{len} bytes at {va} overlap a mapping of the same reservation: unmap that first")]
    Overlap {
        /// First address asked for.
        va: GpuVa,
        /// Length in bytes.
        len: u64,
    },
    /// A file of the system could not be read or written.
    #[error("cannot {action} {}: {reason}{}", path.display(), Tail(file_cure(*kind)))]
    File {
        /// What was to be done: `read` or `write`.
        action: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// Kind of the system's answer.
        kind: std::io::ErrorKind,
        /// The system's answer.
        reason: String,
    },
    /// The kernel took the channel out of service.
    #[error("the channel was taken out of service: {0}")]
    Fault(#[from] Fault),
    /// The ring has no free entry.
    #[error(transparent)]
    RingFull(#[from] gpu_hal::RingFull),
}

impl Error {
    /// The kernel's errno, if a call failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open { errno, .. } | Self::Call { errno, .. } => Some(*errno),
            Self::Memory(error) => error.errno(),
            _ => None,
        }
    }
}

impl From<Error> for gpu_hal::Error {
    fn from(error: Error) -> Self {
        if error.errno() == Some(Errno::NOMEM) { Self::out_of_memory(error) } else { Self::driver(error) }
    }
}

/// Makes the error of a failed request; for `map_err`.
pub(crate) fn call(call: &'static str, object: impl Into<String>) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::Call { call, object: object.into(), errno }
}

/// What a missing control node means.
const ABSENT: &str =
    "there is no nvgpu: this is not a Jetson Orin with L4T r34 or later, or its nvgpu module is not loaded";

/// What to do when a file cannot be used.
fn file_cure(kind: std::io::ErrorKind) -> Option<&'static str> {
    match kind {
        std::io::ErrorKind::PermissionDenied => Some("it takes root"),
        std::io::ErrorKind::NotFound => Some("this is not a Jetson Orin with L4T r34 or later"),
        _ => None,
    }
}

/// What to do when a request fails.
fn call_cure(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::NODEV => "the driver has given the GPU up after an unrecoverable error: reboot",
        Errno::TIMEDOUT => "the channel is out of service: drop it with its TSG and make new ones",
        Errno::PERM => "another process holds the GPU's scheduling control (/dev/nvgpu/igpu0/sched)",
        Errno::NOMEM => "free GPU addresses or memory, or ask for less",
        _ => return cure::of_call(errno),
    })
}
