//! A wake-up counter for sleeping threads. It changes with every event that they may wait for.
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Changes with every record of the log, every interrupt of the GPU and every end of a channel.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    count: Mutex<u64>,
    moved: Condvar,
}

impl Pulse {
    /// The current count. Read it, then check the condition, then call [`Pulse::wait`].
    pub(super) fn count(&self) -> u64 {
        *self.count.lock()
    }

    /// Signals an event.
    pub(super) fn beat(&self) {
        let mut count = self.count.lock();
        *count = count.wrapping_add(1);
        drop(count);
        self.moved.notify_all();
    }

    /// Sleeps until the count differs from `seen`, for at most `timeout`. Returns whether it changed.
    pub(super) fn wait(&self, seen: u64, timeout: Duration) -> bool {
        let mut count = self.count.lock();
        self.moved.wait_while_for(&mut count, |count| *count == seen, timeout);
        *count != seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_between_look_and_wait_is_not_lost() {
        let pulse = Pulse::default();
        let seen = pulse.count();
        assert!(!pulse.wait(seen, Duration::from_millis(1)));
        pulse.beat();
        assert!(pulse.wait(seen, Duration::ZERO));
    }
}
