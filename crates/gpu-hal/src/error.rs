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
    #[error(transparent)]
    OutOfMemory(Source),

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
    pub fn out_of_memory(source: impl Into<Source>) -> Self {
        Self::OutOfMemory(source.into())
    }

    /// Whether the driver lacked memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }

    /// The driver's own error, if it is an `E`: for example `nvrm::Error`.
    pub fn driver_error<E: StdError + 'static>(&self) -> Option<&E> {
        match self {
            Self::Driver(source) | Self::OutOfMemory(source) => source.downcast_ref(),
            _ => None,
        }
    }
}
