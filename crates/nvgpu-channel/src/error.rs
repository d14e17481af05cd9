//! Errors of the driver interface, with remedies.

use nvgpu_sys::cure::{self, Tail};
use nvgpu_sys::{Errno, paths};

use crate::fault::Fault;
use crate::va::GpuVa;

/// Path of the control node, for messages.
pub(crate) const NODE: &str = paths::text(paths::CTRL);

/// A failed call, or an unsupported GPU.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The control node could not be opened.
    #[error("cannot open {path}: {errno}{}", Tail(cure::of_open(*errno, ABSENT)))]
    Open {
        /// Path of the node.
        path: &'static str,
        /// The kernel's errno.
        errno: Errno,
    },
    /// A request failed.
    #[error("{call} on {object} failed: {errno}{}", Tail(call_cure(*errno)))]
    Call {
        /// The request, as the kernel's headers name it, or the system call.
        call: &'static str,
        /// The object of the call.
        object: String,
        /// The kernel's errno.
        errno: Errno,
    },
    /// Memory for the channel itself could not be allocated.
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
    /// The driver lacks a required request.
    #[error(
        "the GPU driver's {node} requests end at number {last}, but {request} is number {needed}: the driver is too \
         old; L4T r36 has it"
    )]
    DriverTooOld {
        /// Kind of descriptor.
        node: &'static str,
        /// The required request.
        request: &'static str,
        /// Its number.
        needed: i16,
        /// Highest request number of the driver.
        last: i16,
    },
    /// GPU virtual addresses are too narrow for the ranges that this crate uses.
    #[error("the GPU driver supports {bits}-bit GPU addresses; 40 bits are needed")]
    NarrowAddresses {
        /// Bits of a GPU virtual address.
        bits: u8,
    },
    /// The number of ring entries is invalid.
    #[error("a GPFIFO ring cannot have {entries} entries: the number must be a power of two from 2 to {max}")]
    RingSize {
        /// Requested number of entries.
        entries: u32,
        /// Maximum number of entries of this GPU.
        max: u32,
    },
    /// A size, address or time is outside its range, or not a multiple of the GPU page size.
    #[error("{what} {value:#x} does not fit: {rule}")]
    Range {
        /// Name of the value.
        what: &'static str,
        /// The value.
        value: u64,
        /// Requirement.
        rule: &'static str,
    },
    /// The kernel mapped a buffer at another address than requested.
    #[error("the kernel placed a mapping at {got} instead of {wanted}")]
    Misplaced {
        /// Requested address.
        wanted: GpuVa,
        /// Address returned.
        got: GpuVa,
    },
    /// The addresses overlap an existing mapping.
    #[error("{len} bytes at {va} overlap a mapping of the same reservation: unmap that first")]
    Overlap {
        /// First requested address.
        va: GpuVa,
        /// Length in bytes.
        len: u64,
    },
    /// A file of the system could not be read or written.
    #[error("cannot {action} {}: {reason}{}", path.display(), Tail(file_cure(*kind)))]
    File {
        /// The operation: `read` or `write`.
        action: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// Kind of the system's error.
        kind: std::io::ErrorKind,
        /// The system's error.
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

/// Creates the error of a failed request; for `map_err`.
pub(crate) fn call(call: &'static str, object: impl Into<String>) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::Call { call, object: object.into(), errno }
}

/// The meaning of a missing control node.
const ABSENT: &str =
    "there is no nvgpu: this is not a Jetson Orin with L4T r34 or later, or its nvgpu module is not loaded";

/// Remedies for a file that cannot be read or written.
fn file_cure(kind: std::io::ErrorKind) -> Option<&'static str> {
    match kind {
        std::io::ErrorKind::PermissionDenied => Some("run as root"),
        std::io::ErrorKind::NotFound => Some("this is not a Jetson Orin with L4T r34 or later"),
        _ => None,
    }
}

/// Remedies for a failed request.
fn call_cure(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::NODEV => "the driver has disabled the GPU after an unrecoverable error: reboot",
        Errno::TIMEDOUT => "the channel is out of service: drop it with its TSG and create new ones",
        Errno::PERM => "another process holds the GPU's scheduling control (/dev/nvgpu/igpu0/sched)",
        Errno::NOMEM => "free GPU addresses or memory, or request less",
        _ => return cure::of_call(errno),
    })
}
