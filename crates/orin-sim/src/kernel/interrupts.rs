//! The GPU's non-stall interrupts: events of TSGs, after the time that a board takes to report them.

use std::sync::Weak;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use parking_lot::Mutex;

use super::Kernel;

/// An interrupt that is not reported yet: when it is due, and its channel.
type Pending = (Instant, u32);

/// Interrupts not yet reported to the programs. Empty, and without a thread, unless events have a latency.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    pending: Mutex<Option<Sender<Pending>>>,
}

impl Interrupts {
    /// Reports an interrupt later. Returns whether that is possible.
    fn send(&self, kernel: &Kernel, interrupt: Pending) -> bool {
        let mut pending = self.pending.lock();
        if pending.is_none() {
            *pending = start(kernel);
        }
        pending.as_ref().is_some_and(|sender| sender.send(interrupt).is_ok())
    }
}

/// Starts the thread that reports interrupts in their order. It ends with the kernel.
fn start(owner: &Kernel) -> Option<Sender<Pending>> {
    let (sender, inbox): (_, Receiver<Pending>) = channel();
    let kernel = Weak::clone(&owner.me);
    let report = move || {
        for (due, channel) in inbox {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let Some(kernel) = kernel.upgrade() else { return };
            kernel.report_interrupt(channel);
        }
    };
    owner.spawn("orin-interrupts", report).is_ok().then_some(sender)
}

impl Kernel {
    /// Reports an interrupt of a channel, at once or after [`Config::event_latency`](crate::Config::event_latency).
    pub(super) fn interrupted(&self, channel: u32) {
        let latency = self.config.event_latency;
        if latency.is_zero() || !self.interrupts.send(self, (Instant::now() + latency, channel)) {
            self.report_interrupt(channel);
        }
    }

    fn report_interrupt(&self, channel: u32) {
        self.state.lock().interrupt(channel);
        self.log.pulse.beat();
    }
}
