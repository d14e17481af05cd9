//! Options of a queue: how it waits, what ends its submissions, and the conditions it polls for.

use std::time::Duration;

use crate::encodings::ReleaseBy;
use crate::limits::DEFAULT_TIMEOUT;
use crate::wait::WaitPolicy;

/// Options of a queue.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QueueOptions {
    /// How the CPU waits.
    pub wait: WaitPolicy,
    /// The unit that releases the timeline at the end of a submission.
    pub release: ReleaseBy,
    /// Whether the queue holds its engine while it waits for a signal or a word: SEM_EXECUTE without
    /// ACQUIRE_SWITCH_TSG. The queue then continues immediately after the CPU sets the value: 1.7 instead of 2.8 µs
    /// from the store to the answer on an H200. Meanwhile all other users of that engine, including other processes,
    /// get at most every other time slice of one or two milliseconds. A value set by another queue is delayed
    /// by the same time. Use it only if the program has the GPU to itself. Waits for fences never hold the engine.
    pub hold: bool,
    /// Whether the queue's work may use any memory of its device, not only what its calls name: for users of addresses
    /// ([`Queue::launch_raw`](crate::Queue::launch_raw)). The memory of every buffer that is dropped then waits for
    /// the work that the queue was given before. Costs a launch nothing, and a drop one load per such queue.
    pub any_memory: bool,
    /// Start value of the timeline if it exceeds the current value: submissions count from here. For tests of the
    /// behaviour after billions of submissions.
    pub first_value: u64,
    /// Longest wait for the set-up work when the queue is opened, and for unfinished work when it is dropped;
    /// [`DEFAULT_TIMEOUT`] by default. Opening takes long if another program's kernel keeps the engine.
    pub timeout: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            wait: WaitPolicy::default(),
            release: ReleaseBy::default(),
            hold: false,
            any_memory: false,
            first_value: 0,
            timeout: DEFAULT_TIMEOUT,
        }
    }
}

impl QueueOptions {
    /// Sets how the CPU waits.
    #[must_use]
    pub fn wait(mut self, policy: WaitPolicy) -> Self {
        self.wait = policy;
        self
    }

    /// Sets what releases the timeline at the end of submissions.
    #[must_use]
    pub fn release(mut self, by: ReleaseBy) -> Self {
        self.release = by;
        self
    }

    /// Sets whether the queue holds its engine while it waits; see [`QueueOptions::hold`].
    #[must_use]
    pub fn hold(mut self, hold: bool) -> Self {
        self.hold = hold;
        self
    }

    /// Sets whether the queue's work may use any memory; see [`QueueOptions::any_memory`].
    #[must_use]
    pub fn any_memory(mut self, any: bool) -> Self {
        self.any_memory = any;
        self
    }

    /// Sets the longest wait when the queue is opened and dropped.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the start value of the timeline.
    #[must_use]
    pub fn first_value(mut self, value: u64) -> Self {
        self.first_value = value;
        self
    }
}

/// Condition that ends [`Queue::poll`](crate::Queue::poll).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The word equals the value.
    Equal(u32),
    /// The word, as a wrapping counter, is at or beyond the value.
    AtLeast(u32),
    /// At least one of these bits is set in the word.
    AnySet(u32),
}
