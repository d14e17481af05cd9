//! The memory of one replay of a graph, and what has to be written into it before the next one.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::words::Start;
use crate::descriptor::Latches;
use crate::heap::Mapped;
use crate::launch::record::GRAPH_LATCHES;

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

/// How a step begins that the GPU places before the end of the step before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Early {
    /// Its kernel waits where it needs to ([`GraphBuilder::begin_early`](super::GraphBuilder::begin_early)).
    Kernel,
    /// The gate of its kernel waits.
    Gate,
}

/// The latches of step `at` of an instance whose first step has latch `first`; none if the numbers do not fit the
/// field, so that steps do not overlap.
pub(super) fn latches(first: u64, at: usize, early: impl Fn(usize) -> Option<Early>) -> Latches {
    // CAST: usize is at most 64 bits.
    let latch = |at: usize| u32::try_from(first + at as u64).ok().filter(|latch| *latch < GRAPH_LATCHES);
    // The first step begins when the work before the graph has ended.
    let own = early(at).filter(|_| at > 0);
    let wait = own.and_then(|_| latch(at - 1));
    let arrive = early(at + 1).and_then(|_| latch(at));
    Latches { arrive, wait, at_gate: wait.is_some() && own == Some(Early::Gate) }
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
        let early = [true, true, false, true, true].map(|early| early.then_some(Early::Kernel));
        let of = |first: u64, at: usize| {
            let Latches { arrive, wait, at_gate } = latches(first, at, |at| early.get(at).copied().flatten());
            assert!(!at_gate, "the kernel waits");
            (arrive, wait)
        };
        let steps: Vec<_> = (0..early.len()).map(|at| of(10, at)).collect();
        assert_eq!(
            steps,
            [(Some(10), None), (None, Some(10)), (Some(12), None), (Some(13), Some(12)), (None, Some(13)),]
        );
        // The last number that fits, and one that does not: neither step takes part.
        let (max, last) = (GRAPH_LATCHES - 1, u64::from(GRAPH_LATCHES) - 4);
        assert_eq!((of(last, 3), of(last, 4)), ((Some(max), Some(max - 1)), (None, Some(max))));
        assert_eq!((of(last + 1, 3), of(last + 1, 4)), ((None, Some(max)), (None, None)));
    }

    #[test]
    fn a_step_begins_at_its_gate_if_it_waits_for_a_latch() {
        let at_gate = |first: u64, at: usize| latches(first, at, |_| Some(Early::Gate)).at_gate;
        assert!(!at_gate(1, 0), "the first step waits for nothing");
        assert!(at_gate(1, 1));
        assert!(!at_gate(GRAPH_LATCHES.into(), 2), "no latch has that number");
    }
}
