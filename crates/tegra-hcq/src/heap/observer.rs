//! What the checks of a software GPU want to know about memory and launches.

use core::any::Any;
use core::fmt::Debug;
use std::sync::Arc;

use super::pool::Memory;

/// Learns about the memory of a device and its use. The software GPU cannot see where a buffer ends inside of a slab,
/// or which memory a launch was given. A device without checks has no observer.
pub(crate) trait Observer: Any + Debug + Send + Sync {
    /// Bytes to allocate for an object of `bytes` bytes, with its red zone.
    fn with_red_zone(&self, bytes: u64) -> u64;

    /// Memory of the driver that is not a block of the pool.
    fn driver_memory(&self, va: u64, bytes: u64, name: &str);

    /// A block was allocated for `bytes` bytes.
    fn allocated(&self, memory: &Memory, bytes: u64);

    /// Memory of the process was imported.
    fn adopted(&self, memory: &Memory, bytes: u64);

    /// A block was named.
    fn named(&self, memory: &Memory, name: &str);

    /// A block was freed; `is_imported` marks memory of the process, which its owner wants back. Returns the blocks
    /// that may be used again.
    fn freed(&self, memory: Arc<Memory>, is_imported: bool) -> Vec<Arc<Memory>>;

    /// Ends the quarantine of all freed blocks, and returns them.
    fn release_all(&self) -> Vec<Arc<Memory>>;

    /// A launch whose constant bank 0 is at `va` uses `shared` bytes of shared memory, and buffers: offset in the bank,
    /// address and bytes.
    fn launched(&self, va: u64, shared: u32, buffers: &mut dyn Iterator<Item = (usize, u64, usize)>);

    /// A program was loaded into the block at `va`.
    fn loaded(&self, va: u64, cubin: &[u8]);

    /// The CPU opens a view of the block at `va`, or closes it.
    fn viewed(&self, va: u64, viewed: bool);

    /// The CPU has written bytes through this library.
    fn written(&self, va: u64, bytes: usize);
}
