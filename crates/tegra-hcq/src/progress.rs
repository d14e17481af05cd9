//! The queue operations that waits need, for modules below the queue.

use core::any::Any;
use core::fmt::Debug;
use std::time::Duration;

use crate::error::{Error, Result};

/// A queue whose timeline can be waited for.
pub(crate) trait Progress: Any + Debug + Send + Sync {
    /// Waits until the submission with timeline value `value` has ended.
    fn wait(&self, value: u64, timeout: Duration) -> Result<()>;

    /// The outcome of a submission; `None` while it runs. Never blocks.
    fn peek(&self, value: u64) -> Option<Result<()>>;

    /// Returns an error if the kernel has stopped the channels.
    fn check(&self) -> Result<()>;

    /// The most recent value that the GPU has released.
    fn value(&self) -> u64;

    /// Whether the queue's submissions raise no interrupt when they end.
    fn spins(&self) -> bool;

    /// Sleeps until the GPU reports an event, for at most `longest`.
    fn sleep(&self, longest: Duration);

    /// The error of a wait that has timed out.
    fn time_out(&self, wanted: u64, seen: u64, timeout: Duration) -> Error;
}
