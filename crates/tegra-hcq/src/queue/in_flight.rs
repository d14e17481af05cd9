//! Submissions that have not been seen to end.
//!
//! Entries are written right after the doorbell, while the CPU's store buffer is full of stores to write-combined
//! memory and to the doorbell, which take about 0.4 µs to reach an H200. A load whose bytes come from several stores in
//! that buffer waits until the buffer has drained, and moving a structure is such a load. Entries are therefore written
//! in place, field by field.

use super::engine::Engine;
use crate::ring::Mark;

/// Resources that a submission holds until its timeline value has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    pub(super) value: u64,
    pub(super) engine: Engine,
    pub(super) pushbuffer: Mark,
    pub(super) launches: Mark,
}

/// A fixed-size queue of submissions.
#[derive(Debug)]
pub(super) struct InFlight {
    slots: Box<[Submission]>,
    first: usize,
    len: usize,
}

impl InFlight {
    /// Creates a queue with room for `capacity` submissions, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        let empty = Submission {
            value: 0,
            engine: Engine::Compute,
            pushbuffer: Mark::default(),
            launches: Mark::default(),
        };
        Self { slots: vec![empty; capacity.max(1)].into(), first: 0, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.slots.len()
    }

    /// Number of submissions that fit.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a submission.
    ///
    /// # Panics
    ///
    /// If the queue is full.
    #[inline]
    pub(super) fn push(&mut self, value: u64, engine: Engine, pushbuffer: Mark, launches: Mark) {
        // PANIC: the caller has made room before it submits.
        assert!(!self.is_full(), "no room for a submission");
        let end = self.first + self.len;
        let slot = if end < self.slots.len() { end } else { end - self.slots.len() };
        let slot = &mut self.slots[slot];
        slot.value = value;
        slot.engine = engine;
        slot.pushbuffer = pushbuffer;
        slot.launches = launches;
        self.len += 1;
    }

    /// The oldest submission.
    #[inline]
    pub(super) fn oldest(&self) -> Option<&Submission> {
        (self.len > 0).then(|| &self.slots[self.first])
    }

    /// Removes the oldest submission, if there is one.
    #[inline]
    pub(super) fn pop(&mut self) {
        if self.len > 0 {
            self.len -= 1;
            self.first = if self.first + 1 < self.slots.len() { self.first + 1 } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_queue(capacity in 1_usize..9, steps in prop::collection::vec(any::<bool>(), 0..200)) {
            let mut in_flight = InFlight::new(capacity);
            let (mut expected, mut value) = (VecDeque::new(), 0);
            for push in steps {
                if push && !in_flight.is_full() {
                    value += 1;
                    in_flight.push(value, Engine::Copy, Mark::default(), Mark::default());
                    expected.push_back(value);
                } else {
                    in_flight.pop();
                    expected.pop_front();
                }
                prop_assert_eq!(in_flight.len(), expected.len());
                prop_assert_eq!(in_flight.is_empty(), expected.is_empty());
                prop_assert_eq!(in_flight.is_full(), expected.len() == capacity);
                prop_assert_eq!(in_flight.oldest().map(|oldest| oldest.value), expected.front().copied());
            }
        }
    }
}
