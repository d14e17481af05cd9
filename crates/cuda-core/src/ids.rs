//! Numbers of objects.

use core::sync::atomic::{AtomicU64, Ordering};

static IDS: AtomicU64 = AtomicU64::new(1);

/// A number that no context, stream, capture or allocation of the process has yet.
pub(crate) fn next_id() -> u64 {
    IDS.fetch_add(1, Ordering::Relaxed)
}
