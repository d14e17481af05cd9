//! The reason why a channel stopped.

use std::time::SystemTime;

use gpu_hal::ErrorCode;

/// The fault that took a channel out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}")]
#[non_exhaustive]
pub struct Fault {
    /// Error code.
    pub code: ErrorCode,
    /// System time of the fault.
    pub time: SystemTime,
}
