//! What waits need of a queue, for modules below queues.

use core::any::Any;
use core::fmt::Debug;
use std::time::Duration;

use crate::error::{Error, Result};

/// A queue whose timeline somebody waits for.
pub(crate) trait Progress: Any + Debug + Send + Sync {
    /// Waits until the submission with timeline value `value` has ended.
    fn wait(&self, value: u64, timeout: Duration) -> Result<()>;

    /// The outcome of a submission; `None` while it runs. Never waits.
    fn peek(&self, value: u64) -> Option<Result<()>>;

    /// Fails if the kernel has stopped the channels.
    fn check(&self) -> Result<()>;

    /// The value that the GPU has released last.
    fn value(&self) -> u64;

    /// Whether no interrupt reports the end of the queue's submissions.
    fn spins(&self) -> bool;

    /// Sleeps until the GPU reports something, at most for `longest`.
    fn sleep(&self, longest: Duration);

    /// The error of a wait that has timed out.
    fn time_out(&self, wanted: u64, seen: u64, timeout: Duration) -> Error;
}
