//! What a caller chooses: how a queue waits, what ends its submissions, what it polls for.

use crate::wait::WaitPolicy;

/// What tells that a submission of launches has ended, by writing the queue's timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseBy {
    /// The descriptor of its last launch if the chip table says so (Hopper), else the host engine.
    #[default]
    Auto,
    /// The host engine, once the compute engine is idle.
    Host,
    /// The descriptor of its last launch, where the queue spins and the submission ends with a launch; else the host
    /// engine. That is faster, because nothing waits for the engine to be idle unless there is more to do before the
    /// CPU has seen the value. Tried on an H200 and on the software Orin; on an Orin nobody has tried it.
    Descriptor,
}

/// How a queue behaves.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct QueueOptions {
    /// How the CPU waits.
    pub wait: WaitPolicy,
    /// What tells that a submission has ended.
    pub release: ReleaseBy,
    /// Whether the queue holds its engine while it waits for a signal or a word: SEM_EXECUTE without
    /// ACQUIRE_SWITCH_TSG. It then goes on at once when the CPU has raised what it waits for: 1.7 instead of 2.8 us
    /// from the store to the answer on an H200. Meanwhile everybody else on that engine, other processes too, gets no
    /// more than every other time slice of a millisecond or two, and what another queue is to raise comes that late.
    /// For a program that has the GPU to itself. Waits for fences never hold.
    pub hold: bool,
    /// Value at which the timeline starts, if it is beyond the value that it has: submissions count from
    /// here. For tests of what happens after billions of submissions.
    pub first_value: u64,
}

impl QueueOptions {
    /// With another way to wait.
    #[must_use]
    pub fn wait(mut self, policy: WaitPolicy) -> Self {
        self.wait = policy;
        self
    }

    /// With another release at the end of submissions.
    #[must_use]
    pub fn release(mut self, by: ReleaseBy) -> Self {
        self.release = by;
        self
    }

    /// Holding its engine while it waits, or not; see [`QueueOptions::hold`].
    #[must_use]
    pub fn hold(mut self, hold: bool) -> Self {
        self.hold = hold;
        self
    }

    /// With another start of the timeline.
    #[must_use]
    pub fn first_value(mut self, value: u64) -> Self {
        self.first_value = value;
        self
    }
}

/// When [`Queue::poll`](crate::Queue::poll) lets the queue go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The word equals the value.
    Equal(u32),
    /// The word, as a counter that may wrap, is at or beyond the value.
    AtLeast(u32),
    /// The word has one of these bits set.
    AnySet(u32),
}
