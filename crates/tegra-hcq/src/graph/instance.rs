//! The memory of one replay of a graph, and what has to be written into it before the next one.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::words::Start;
use crate::descriptor::Latches;
use crate::heap::Mapped;

/// Number of changed arguments that an instance tracks individually. With more, it rewrites whole records.
const MAX_PATCHES: usize = 32;

/// Number of the next latch. Each step that can overlap has its own, so replays on several queues do not wait for each
/// other.
static NEXT_LATCH: AtomicU64 = AtomicU64::new(1);

/// Memory of one replay.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) memory: Mapped,
    /// Number of the first step's latch; the other steps have the following ones.
    pub(super) latch: u64,
    /// The commands; `None` until they have been written for a queue.
    pub(super) start: Option<Start>,
    /// Timeline value and queue of the last replay.
    pub(super) value: u64,
    pub(super) slot: usize,
    /// Records to write before the next replay.
    pub(super) dirty: Range<usize>,
    /// Arguments in other records to write before the next replay.
    pub(super) patches: Vec<Patch>,
    /// Time stamps of the steps; `None` before the first recorded replay.
    pub(super) stamps: Option<Arc<Mapped>>,
    /// Whether the descriptors write them.
    pub(super) stamped: bool,
}

/// The latches of step `at` of an instance whose first step has latch `first`; none if the numbers do not fit the
/// field, so that steps do not overlap.
pub(super) fn latches(first: u64, at: usize, is_early: impl Fn(usize) -> bool) -> Latches {
    // CAST: usize is at most 64 bits.
    let latch = |at: usize| u32::try_from(first + at as u64).ok();
    // The first step begins when the work before the graph has ended.
    let wait = if at > 0 && is_early(at) { latch(at - 1) } else { None };
    let arrive = if is_early(at + 1) { latch(at) } else { None };
    Latches { arrive, wait }
}

/// A range of bytes in a record's constant bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patch {
    pub(super) node: usize,
    pub(super) place: Range<usize>,
}

impl Instance {
    /// An instance in `memory` of a graph with a number of steps, none of which is written yet.
    pub(super) fn new(memory: Mapped, steps: usize) -> Self {
        Self {
            memory,
            // CAST: usize is at most 64 bits.
            latch: NEXT_LATCH.fetch_add(steps as u64, Ordering::Relaxed),
            start: None,
            value: 0,
            slot: 0,
            dirty: 0..steps,
            patches: Vec::with_capacity(MAX_PATCHES),
            stamps: None,
            stamped: false,
        }
    }

    /// Marks the record of a step for rewriting.
    pub(super) fn soil(&mut self, node: usize) {
        self.dirty = if self.dirty.is_empty() {
            node..node + 1
        } else {
            self.dirty.start.min(node)..self.dirty.end.max(node + 1)
        };
    }

    /// Marks an argument for rewriting.
    pub(super) fn patch(&mut self, node: usize, place: &Range<usize>) {
        let patch = Patch { node, place: place.clone() };
        if self.dirty.contains(&node) || self.patches.contains(&patch) {
            return;
        }
        if self.patches.len() == MAX_PATCHES {
            self.soil(node);
        } else {
            self.patches.push(patch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_arrives_where_an_early_one_waits() {
        let early = [true, true, false, true, true];
        let of = |first: u64, at: usize| {
            let Latches { arrive, wait } =
                latches(first, at, |at| early.get(at).copied().unwrap_or_default());
            (arrive, wait)
        };
        let steps: Vec<_> = (0..early.len()).map(|at| of(10, at)).collect();
        assert_eq!(
            steps,
            [(Some(10), None), (None, Some(10)), (Some(12), None), (Some(13), Some(12)), (None, Some(13)),]
        );
        // The last number that fits, and one that does not: neither step takes part.
        let last = u64::from(u32::MAX) - 3;
        assert_eq!(
            (of(last, 3), of(last, 4)),
            ((Some(u32::MAX), Some(u32::MAX - 1)), (None, Some(u32::MAX)))
        );
        assert_eq!((of(last + 1, 3), of(last + 1, 4)), ((None, Some(u32::MAX)), (None, None)));
    }
}
