//! The last use of an object by each queue.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Heap;
use super::peers::UsesOfPeers;
use crate::error::Result;
use crate::limits::MAX_QUEUES;

/// Number of queues whose values are stored in the object itself. Queues get the lowest free slot, so most programs
/// need no more.
const INLINE: usize = 8;

/// The last timeline value of each queue that uses an object.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    inline: [AtomicU64; INLINE],
    /// The values of the other queues; allocated at the first use by one of them.
    others: OnceLock<Box<[AtomicU64; MAX_QUEUES - INLINE]>>,
    /// Uses by queues of other devices; allocated at the first.
    peers: OnceLock<Box<UsesOfPeers>>,
}

impl Uses {
    /// Records that work up to `value` of the queue in `slot` uses the object. Allocates at the first use by a queue in
    /// slot 8 or above.
    #[inline]
    pub(crate) fn note(&self, slot: usize, value: u64) {
        match self.inline.get(slot) {
            Some(inline) => inline.store(value, Ordering::Relaxed),
            None => self.note_other(slot - INLINE, value),
        }
    }

    fn note_other(&self, at: usize, value: u64) {
        let others = self.others.get_or_init(|| Box::new([const { AtomicU64::new(0) }; MAX_QUEUES - INLINE]));
        others[at].store(value, Ordering::Relaxed);
    }

    /// As [`Uses::note`], for a queue of another device, that of `heap`.
    #[cold]
    pub(super) fn note_by_peer(&self, heap: &Arc<Heap>, slot: usize, value: u64) {
        self.peers.get_or_init(Box::default).note(heap, slot, value);
    }

    /// Whether no queue of another device uses the object.
    #[inline]
    pub(super) fn passed_on_peers(&self) -> bool {
        self.peers.get().is_none_or(|peers| peers.passed())
    }

    /// Waits until no queue of another device uses the object.
    pub(super) fn wait_for_peers(&self, timeout: Duration) -> Result<()> {
        self.peers.get().map_or(Ok(()), |peers| peers.wait(timeout))
    }

    /// Whether `test` holds for each queue that has used the object and its last value.
    #[inline]
    pub(crate) fn all(&self, test: impl Fn(usize, u64) -> bool) -> bool {
        let holds = |(slot, value): (usize, &AtomicU64)| {
            let value = value.load(Ordering::Relaxed);
            value == 0 || test(slot, value)
        };
        self.inline.iter().enumerate().all(holds)
            && self.others.get().is_none_or(|others| (INLINE..).zip(others.iter()).all(holds))
    }

    /// The queues that have used the object, each with its last value.
    pub(crate) fn values(&self) -> impl Iterator<Item = (usize, u64)> {
        let others = self.others.get().into_iter().flat_map(|others| others.iter());
        let values = self.inline.iter().chain(others).map(|value| value.load(Ordering::Relaxed));
        values.enumerate().filter(|(_, value)| *value != 0)
    }
}

/// The last timeline value of each queue whose work may use any memory
/// ([`QueueOptions::any_memory`](crate::QueueOptions::any_memory)).
#[derive(Debug)]
pub(super) struct Claims {
    /// 0 for other queues.
    values: Box<[AtomicU64]>,
    /// Number of slots that have had such a queue, and those below them.
    slots: AtomicUsize,
}

impl Default for Claims {
    fn default() -> Self {
        Self { values: (0..MAX_QUEUES).map(|_| AtomicU64::new(0)).collect(), slots: AtomicUsize::new(0) }
    }
}

impl Claims {
    /// Records that work up to `value` of the queue in `slot` may use any memory.
    #[inline]
    pub(super) fn note(&self, slot: usize, value: u64) {
        self.values[slot].store(value, Ordering::Release);
        if self.slots.load(Ordering::Relaxed) <= slot {
            self.slots.fetch_max(slot + 1, Ordering::Release);
        }
    }

    /// The queues, each with its last value.
    #[inline]
    pub(super) fn values(&self) -> impl Iterator<Item = (usize, u64)> {
        let values = &self.values[..self.slots.load(Ordering::Acquire)];
        let values = values.iter().map(|value| value.load(Ordering::Acquire));
        values.enumerate().filter(|(_, value)| *value != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_its_own_value() {
        let uses = Uses::default();
        assert_eq!(uses.values().count(), 0);
        for slot in [0, INLINE - 1, INLINE, MAX_QUEUES - 1] {
            uses.note(slot, slot as u64 + 10);
        }
        uses.note(0, 11);
        let values: Vec<_> = uses.values().collect();
        let seen = std::cell::RefCell::new(Vec::new());
        assert!(uses.all(|slot, value| {
            seen.borrow_mut().push((slot, value));
            true
        }));
        assert_eq!(seen.into_inner(), values);
        assert!(!uses.all(|slot, _| slot != MAX_QUEUES - 1) && !uses.all(|slot, _| slot != 0));
        assert_eq!(values, [(0, 11), (7, 17), (8, 18), (MAX_QUEUES - 1, MAX_QUEUES as u64 + 9)]);
    }
}
