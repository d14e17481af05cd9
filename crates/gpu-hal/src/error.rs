//! Errors of a driver, as its users see them.

use core::error::Error as StdError;

/// Result of a driver's calls.
///
/// ```
/// fn allocate() -> gpu_hal::Result<()> {
///     Err(gpu_hal::Error::Unsupported("imports"))
/// }
/// assert!(allocate().is_err());
/// ```
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The error of a driver's own layer, which describes call, object, cause and cure.
pub type Source = Box<dyn StdError + Send + Sync>;

/// What an allocation ran out of.
///
/// ```
/// use gpu_hal::Shortage;
///
/// assert_eq!(Shortage::Addresses.to_string(), "no range of GPU addresses is free for it");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shortage {
    /// The machine or GPU has less memory.
    Total,
    /// Other memory is in use: [`MemoryInfo::largest`](crate::MemoryInfo::largest) is less.
    Available,
    /// The memory is available, but not in pieces that the driver can use.
    Fragments,
    /// No range of GPU addresses is free.
    Addresses,
}

impl core::fmt::Display for Shortage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Total => "it is more than the total memory",
            Self::Available => "it is more than the available memory",
            Self::Fragments => "the available memory is too fragmented for it",
            Self::Addresses => "no range of GPU addresses is free for it",
        })
    }
}

/// Why a call to a driver failed.
///
/// The text comes from the driver. [`Error::driver_error`] returns the driver's own error for matching.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call to the driver failed.
    #[error(transparent)]
    Driver(Source),

    /// The driver has no memory left for the call. Freeing buffers may help.
    #[error("{error}")]
    OutOfMemory {
        /// The driver's own error.
        error: Source,
        /// What is short; `None` if unknown.
        shortage: Option<Shortage>,
        /// Size in bytes of an allocation that the driver could have made; 0 if unknown.
        fits: u64,
    },

    /// The driver returned less memory than the caller requested.
    #[error("the driver returned {returned} bytes of memory, {wanted} were requested")]
    ShortAllocation {
        /// Requested size in bytes.
        wanted: u64,
        /// Size of the returned memory in bytes.
        returned: u64,
    },

    /// The driver does not implement the call.
    #[error("the driver does not support {0}")]
    Unsupported(&'static str),
}

impl Error {
    /// The error of a call that failed for another reason than a lack of memory.
    pub fn driver(source: impl Into<Source>) -> Self {
        Self::Driver(source.into())
    }

    /// The error of a call for which the driver has no memory.
    pub fn out_of_memory(error: impl Into<Source>, shortage: Option<Shortage>) -> Self {
        Self::OutOfMemory { error: error.into(), shortage, fits: 0 }
    }

    /// The same error, of a driver that could have allocated `bytes` bytes at once; 0 if that is not known.
    #[must_use]
    pub fn fitting(mut self, bytes: u64) -> Self {
        if let Self::OutOfMemory { fits, .. } = &mut self {
            *fits = bytes;
        }
        self
    }

    /// Whether the driver lacked memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }

    /// The driver's own error, if it is an `E`: for example `nvrm::Error`.
    pub fn driver_error<E: StdError + 'static>(&self) -> Option<&E> {
        match self {
            Self::Driver(error) | Self::OutOfMemory { error, .. } => error.downcast_ref(),
            _ => None,
        }
    }
}
