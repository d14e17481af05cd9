//! What a queue remembers between submissions: engines, timeline values, submissions that have not been seen to end.

use crate::ring::Mark;
use crate::wait::Fence;

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

/// The state of a queue between submissions.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Value of the last submission that is in a ring.
    pub(crate) queued: u64,
    pub(crate) in_flight: InFlight,
    /// The engine of the last submission.
    pub(crate) last_engine: Engine,
    /// Whether the descriptor of the last launch releases a submission that ends with a launch.
    pub(crate) release_by_descriptor: bool,
    /// Whether the last submission was released by its last launch; the engine may be busy until the value has been
    /// seen.
    pub(crate) trailing: bool,
    /// The fence of the open batch.
    pub(crate) prepared: Option<Fence>,
    /// The lap of the launch records since whose begin the scheduler's caches contain none of its descriptors;
    /// `u64::MAX` if they may contain some of each.
    pub(crate) swept_lap: u64,
    /// Number of programs loaded when the shader caches were last invalidated; `u64::MAX` if never. Launch descriptors
    /// invalidate the data and constant caches.
    pub(crate) invalidated: u64,
}

impl Schedule {
    /// Creates the schedule of a new queue whose last value is `queued`, with room for `capacity` submissions.
    pub(crate) fn new(queued: u64, capacity: usize, release_by_descriptor: bool) -> Self {
        Self {
            queued,
            in_flight: InFlight::new(capacity),
            last_engine: Engine::Compute,
            release_by_descriptor,
            trailing: false,
            prepared: None,
            swept_lap: u64::MAX,
            invalidated: u64::MAX,
        }
    }

    /// Discards the submissions of closed channels.
    pub(crate) fn restart(&mut self) {
        self.in_flight.clear();
        self.last_engine = Engine::Compute;
        self.trailing = false;
        self.swept_lap = u64::MAX;
        self.invalidated = u64::MAX;
    }
}

/// Resources that a submission holds until its timeline value has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submission {
    pub(crate) value: u64,
    pub(crate) engine: Engine,
    pub(crate) pushbuffer: Mark,
    pub(crate) launches: Mark,
}

/// A fixed-size queue of submissions.
///
/// Entries are written right after the doorbell, while the CPU's store buffer is full of stores to write-combined
/// memory and to the doorbell, which take about 0.4 µs to reach an H200. A load whose bytes come from several stores in
/// that buffer waits until the buffer has drained, and moving a structure is such a load. Entries are therefore written
/// in place, field by field.
#[derive(Debug)]
pub(crate) struct InFlight {
    slots: Box<[Submission]>,
    first: usize,
    len: usize,
}

impl InFlight {
    /// Creates a queue with room for `capacity` submissions, at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        let empty = Submission {
            value: 0,
            engine: Engine::Compute,
            pushbuffer: Mark::default(),
            launches: Mark::default(),
        };
        Self { slots: vec![empty; capacity.max(1)].into(), first: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == self.slots.len()
    }

    /// Number of submissions that fit.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a submission.
    ///
    /// # Panics
    ///
    /// If the queue is full.
    #[inline]
    pub(crate) fn push(&mut self, value: u64, engine: Engine, pushbuffer: Mark, launches: Mark) {
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
    pub(crate) fn oldest(&self) -> Option<&Submission> {
        (self.len > 0).then(|| &self.slots[self.first])
    }

    /// Removes the oldest submission, if there is one.
    #[inline]
    pub(crate) fn pop(&mut self) {
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
