//! Memory and fences as files: what other drivers and processes share with a device.

use core::fmt::Debug;
use std::os::fd::OwnedFd;

use crate::error::Result;

/// Access to the memory behind a file.
///
/// ```
/// use gpu_hal::FileAccess;
///
/// assert!(FileAccess::ReadWrite.is_writable() && !FileAccess::ReadOnly.is_writable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileAccess {
    /// Loads only; a store of a kernel is a fault.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

impl FileAccess {
    /// Whether stores are allowed.
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::ReadWrite)
    }
}

/// Identity of the memory behind a file: device and inode. All descriptors of one dma-buf have the same.
pub type FileId = (u64, u64);

/// A 32-bit counter in GPU memory, and the value that it has when a fence has signalled. The counter wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencePoint {
    /// GPU address of the counter; a queue waits there with an acquire.
    pub va: u64,
    /// The value to wait for.
    pub value: u32,
    /// Number of the counter, for messages: the syncpoint on an Orin.
    pub id: u32,
}

/// A counter that a queue increments, and whose values other drivers wait for through files.
///
/// # Safety
///
/// Each write of a word to [`FenceCounter::gpu_va`] by the GPU increments the counter by one and changes no other
/// memory.
pub unsafe trait FenceCounter: Send + Debug {
    /// GPU address of the counter.
    fn gpu_va(&self) -> u64;

    /// A file that signals, and polls readable, when the counter has been incremented `increments` times since it was
    /// opened. Values wrap: at most 2^31 - 1 increments may be outstanding.
    ///
    /// # Errors
    ///
    /// If the driver refuses the file, for example because the process has too many.
    fn file(&self, increments: u32) -> Result<OwnedFd>;
}
