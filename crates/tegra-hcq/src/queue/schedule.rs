//! What a queue has submitted, and in which order engines work.

use gpu_hal::Engine;

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
    /// A submission that ends with a launch is released by the launch's descriptor.
    pub(crate) release_by_descriptor: bool,
    /// The last submission was released by its last launch: the engine may be busy until the value has been seen.
    pub(super) trailing: bool,
    /// The fence of the open batch.
    pub(super) prepared: Option<Fence>,
    /// Number of programs loaded when the shader caches were last invalidated; `u64::MAX` for never. Launch descriptors
    /// invalidate data and constants.
    pub(super) invalidated: u64,
}

impl Schedule {
    /// The schedule of a fresh queue whose last value is `queued`, with room for `capacity` submissions.
    pub(super) fn new(queued: u64, capacity: usize, release_by_descriptor: bool) -> Self {
        Self {
            queued,
            in_flight: InFlight::new(capacity),
            last_engine: Engine::Compute,
            release_by_descriptor,
            trailing: false,
            prepared: None,
            invalidated: u64::MAX,
        }
    }

    /// Forgets the submissions of channels that are gone.
    pub(super) fn restart(&mut self) {
        self.in_flight.clear();
        self.last_engine = Engine::Compute;
        self.trailing = false;
        self.invalidated = u64::MAX;
    }
}
