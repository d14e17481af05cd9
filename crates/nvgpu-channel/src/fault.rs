//! The reason why a channel stopped.

use std::time::SystemTime;

use gpu_hal::ErrorCode;

/// Why the kernel took a channel out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}")]
pub struct Fault {
    /// What happened.
    pub code: ErrorCode,
    /// When, by the system's clock.
    pub time: SystemTime,
}
