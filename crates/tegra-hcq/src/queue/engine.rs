//! The engines of a queue.

/// An engine that a queue feeds, by a channel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Runs kernels.
    Compute,
    /// Copies and fills.
    Copy,
    /// Copies to and from memory of other GPUs. Its channel is opened at the first use, and not every GPU has one.
    Link,
}
