//! Submission state of a queue, and the order of work between its engines.

use super::engine::Engine;
use super::in_flight::InFlight;
use crate::wait::Fence;

/// The state of a queue between submissions.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Value of the last submission that is in a ring.
    pub(super) queued: u64,
    pub(super) in_flight: InFlight,
    /// The engine of the last submission.
    pub(super) last_engine: Engine,
    /// Whether the descriptor of the last launch releases a submission that ends with a launch.
    pub(crate) release_by_descriptor: bool,
    /// Whether the last submission was released by its last launch; the engine may be busy until the value has been
    /// seen.
    pub(super) trailing: bool,
    /// The fence of the open batch.
    pub(super) prepared: Option<Fence>,
    /// The lap of the launch records since whose begin the scheduler's caches contain none of its descriptors;
    /// `u64::MAX` if they may contain some of each.
    pub(super) swept_lap: u64,
    /// Number of programs loaded when the shader caches were last invalidated; `u64::MAX` if never. Launch descriptors
    /// invalidate the data and constant caches.
    pub(super) invalidated: u64,
}

impl Schedule {
    /// Creates the schedule of a new queue whose last value is `queued`, with room for `capacity` submissions.
    pub(super) fn new(queued: u64, capacity: usize, release_by_descriptor: bool) -> Self {
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
    pub(super) fn restart(&mut self) {
        self.in_flight.clear();
        self.last_engine = Engine::Compute;
        self.trailing = false;
        self.swept_lap = u64::MAX;
        self.invalidated = u64::MAX;
    }
}
