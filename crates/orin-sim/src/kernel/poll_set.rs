//! Poll descriptors of `/dev/host1x-fence`.

use std::sync::Arc;

use parking_lot::Mutex;

use super::fence::Fence;

/// A descriptor that reports each fence once.
#[derive(Debug, Default)]
pub(super) struct PollSet {
    armed: Mutex<Vec<Arc<Fence>>>,
}

impl PollSet {
    /// Adds a fence.
    pub(super) fn arm(&self, fence: Arc<Fence>) {
        self.armed.lock().push(fence);
    }

    /// Removes the fences that have signalled. Returns whether there were any.
    pub(super) fn take_signalled(&self) -> bool {
        let mut armed = self.armed.lock();
        let before = armed.len();
        armed.retain(|fence| fence.result().is_none());
        armed.len() < before
    }
}
