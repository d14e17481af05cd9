//! Failures, with remedies.

use core::time::Duration;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::ConsumerId;
use crate::wire::{MAX_BUFFERS, MAX_META, Violation};

/// A failed call, or an invalid argument.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{call} failed: {errno}")]
    Io {
        /// The call, and on what.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A call on the socket's path failed.
    #[error("{call} of {} failed: {errno}", path.display())]
    Path {
        /// The call.
        call: &'static str,
        /// The path; at most 107 bytes.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Another producer serves the path.
    #[error("{} is served by another producer: end it, or choose another path", .0.display())]
    InUse(PathBuf),
    /// The number of buffers, their size or the length of the meta is out of range.
    #[error(
        "{buffers} buffers of {bytes} bytes with a meta of {meta} bytes: give 1 to {MAX_BUFFERS} buffers of at least \
         one byte, and at most {MAX_META} bytes of meta"
    )]
    Layout {
        /// Number of buffers.
        buffers: usize,
        /// Size of each in bytes.
        bytes: u64,
        /// Length of the meta in bytes.
        meta: usize,
    },
    /// A buffer is shorter than described.
    #[error("buffer {index} has {actual} bytes instead of {bytes}")]
    Short {
        /// The buffer.
        index: usize,
        /// Size of its descriptor in bytes.
        actual: u64,
        /// Described size in bytes.
        bytes: u64,
    },
    /// More bytes were published than a buffer has.
    #[error("a frame cannot have {used} bytes: a buffer has {bytes}")]
    TooLong {
        /// Bytes of the frame.
        used: u64,
        /// Size of a buffer in bytes.
        bytes: u64,
    },
    /// The buffer was acquired from another producer, or the frame received by another consumer.
    #[error("the buffer is one of another producer")]
    OtherProducer,
    /// No buffer became free.
    #[error("no buffer became free in {waited:?}; consumers that hold frames: {}", names(holders))]
    NoBuffer {
        /// Time waited.
        waited: Duration,
        /// Consumers that hold frames; empty if this process has acquired all buffers itself.
        holders: Vec<ConsumerId>,
    },
    /// No producer answered.
    #[error("no producer serves {} after {waited:?}", path.display())]
    NoProducer {
        /// The path.
        path: PathBuf,
        /// Time waited.
        waited: Duration,
    },
    /// The peer did not answer, or a fence did not signal.
    #[error("{what} after {waited:?}")]
    TimedOut {
        /// What did not happen.
        what: &'static str,
        /// Time waited.
        waited: Duration,
    },
    /// The connection to the producer has ended. Frames that are still held may be overwritten.
    #[error("{0}")]
    Ended(Ended),
    /// A call of a device or a queue failed.
    #[cfg(feature = "tegra-hcq")]
    #[error(transparent)]
    Gpu(#[from] tegra_hcq::Error),
    /// The producer sent a wrong message.
    #[error("the producer is wrong: {0}")]
    Producer(#[from] Violation),
}

/// Why the connection to a producer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The producer's process has died, or it closed the connection without a reason.
    #[error("the producer is gone: connect again when it is back")]
    Died,
    /// The producer has ended.
    #[error("the producer has ended")]
    Closed,
    /// This consumer kept a frame too long.
    #[error(
        "the producer took back a frame that was kept longer than its lease: what was read of it may be torn"
    )]
    Lease,
    /// A fence of this consumer did not signal within the lease.
    #[error("the producer waited for the fence of a release longer than the lease")]
    Fence,
    /// This consumer sent a wrong message.
    #[error("the producer refused a message as wrong")]
    Violation,
    /// The producer has another version of the protocol.
    #[error("the producer has version {theirs} of the protocol: use the same release on both sides")]
    Version {
        /// Its version.
        theirs: u32,
    },
    /// The producer has its largest number of consumers.
    #[error("the producer has as many consumers as it takes")]
    Full,
    /// A reason that this version does not know.
    #[error("the producer ended the connection for reason {0}")]
    Other(u32),
}

fn names(holders: &[ConsumerId]) -> String {
    let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
    if names.is_empty() { "none, this process has acquired all buffers".to_owned() } else { names.join(", ") }
}
