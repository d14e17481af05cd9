//! A watcher of pushbuffers.

use core::fmt;
use std::sync::Arc;

/// A function of channel, address and words.
type Watch = dyn Fn(u32, u64, &[u32]) + Send + Sync;

/// Receives each pushbuffer segment when the host engine begins to fetch it, on the GPU's thread: the channel id, the
/// GPU address and the words. Words that cannot be read are left out; the fetch then faults.
///
/// ```
/// use orin_sim::SegmentWatcher;
/// use orin_sim::gpu::GpuConfig;
///
/// let print = |channel: u32, va: u64, words: &[u32]| println!("{channel}: {} words at {va:#x}", words.len());
/// let config = GpuConfig { segments: Some(SegmentWatcher::new(print)), ..GpuConfig::default() };
/// assert!(config.segments.is_some());
/// ```
#[derive(Clone)]
pub struct SegmentWatcher(Arc<Watch>);

impl SegmentWatcher {
    /// A watcher that calls a function.
    pub fn new(watch: impl Fn(u32, u64, &[u32]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(watch))
    }

    pub(crate) fn segment(&self, channel: u32, va: u64, words: &[u32]) {
        (self.0)(channel, va, words);
    }
}

impl fmt::Debug for SegmentWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SegmentWatcher")
    }
}
