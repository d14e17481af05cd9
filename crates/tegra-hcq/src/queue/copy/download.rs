//! Results of staged copies to the process.

use std::time::Duration;

use crate::error::Result;
use crate::memory::{Buffer, Pod};
use crate::wait::Fence;

/// Elements on their way from a buffer to the process. Created by [`Queue::download`](crate::Queue::download).
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// let buffer = device.alloc_from(&[1_u8, 2, 3, 4])?;
/// let download = queue.download(&buffer)?;
/// assert_eq!(download.wait(timeout)?, [1, 2, 3, 4]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Debug)]
#[must_use = "the elements are read by `wait`"]
pub struct Download<T: Pod> {
    staged: Buffer<T>,
    fence: Fence,
}

impl<T: Pod> Download<T> {
    pub(in crate::queue) fn new(staged: Buffer<T>, fence: Fence) -> Self {
        Self { staged, fence }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.staged.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    /// The end of the copy. To await it, clone it.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Waits for the copy and returns the elements.
    ///
    /// # Errors
    ///
    /// Those of [`Fence::wait`].
    pub fn wait(self, timeout: Duration) -> Result<Vec<T>> {
        self.fence.wait(timeout)?;
        self.staged.to_vec()
    }

    /// Waits for the copy and writes the elements to `target`.
    ///
    /// # Errors
    ///
    /// Those of [`Fence::wait`]; [`Error::Range`](crate::Error::Range) if the lengths differ.
    pub fn wait_into(self, target: &mut [T], timeout: Duration) -> Result<()> {
        self.fence.wait(timeout)?;
        self.staged.copy_to_slice(target)
    }
}
