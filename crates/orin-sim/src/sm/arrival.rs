//! Arrivals of threads at the barriers of a CTA.

/// How BAR.RED combines the predicates of the arriving threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// Number of true predicates.
    Count,
    /// Whether all are true.
    And,
    /// Whether any is true.
    Or,
}

/// Threads of a warp that arrive at a barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Number of the barrier, 0 to 15.
    pub(crate) barrier: u8,
    /// Lanes that arrive.
    pub(crate) lanes: u32,
    /// Threads that the barrier waits for; 0 for the whole CTA.
    pub(crate) threads: u32,
    /// Reduction over the arriving threads, if any.
    pub(crate) reduction: Option<Reduction>,
    /// Lanes whose predicate is true.
    pub(crate) truth: u32,
    /// GPU address of the instruction.
    pub(crate) pc: u64,
}
