//! Context-switch time-outs of a TSG that keeps its engine (`common/fifo/tsg.c`, `common/fifo/channel.c`).
//!
//! Each time-out adds 100 ms to the account of every channel of the TSG. The TSG ends when the account of one channel
//! exceeds its limit: 3 s unless SET_TIMEOUT has changed it. The account of a channel that submits through the kernel
//! restarts when GP_GET has advanced since the previous time-out, and so do the accounts of the other channels of its
//! TSG. The account of a user-mode channel is never reset.

use std::collections::BTreeMap;

use super::{Kernel, State};

/// Time that a time-out adds, in milliseconds (`ctxsw_timeout_period_ms`). [`Config::switch_timeout`](crate::Config)
/// only changes how long it takes in the model.
const PERIOD_MS: u32 = 100;
/// Limit of a new channel in milliseconds (`nvgpu_get_poll_timeout`).
const LIMIT_MS: u32 = 3000;

/// The account of one channel.
#[derive(Debug)]
pub(super) struct Switching {
    limit_ms: u32,
    /// Whether the end of the TSG prints the debug dump.
    dump: bool,
    accumulated_ms: u32,
    /// GP_GET at the last time-out, of a channel that submits through the kernel.
    gp_get: u32,
}

impl Default for Switching {
    fn default() -> Self {
        Self { limit_ms: LIMIT_MS, dump: true, accumulated_ms: 0, gp_get: 0 }
    }
}

impl Switching {
    /// Sets the limit in milliseconds. Any value is accepted.
    pub(super) fn set_limit(&mut self, limit_ms: u32) {
        self.limit_ms = limit_ms;
    }

    /// Sets whether the end of the TSG prints the debug dump.
    pub(super) fn set_dump(&mut self, dump: bool) {
        self.dump = dump;
    }

    /// Accounts for a time-out. `gp_get` is `None` for a user-mode channel. Returns whether GP_GET has advanced.
    fn count(&mut self, gp_get: Option<u32>) -> bool {
        let advanced = gp_get.is_some_and(|now| std::mem::replace(&mut self.gp_get, now) != now);
        self.accumulated_ms =
            if advanced { PERIOD_MS } else { self.accumulated_ms.saturating_add(PERIOD_MS) };
        advanced
    }

    fn is_exceeded(&self) -> bool {
        self.accumulated_ms > self.limit_ms
    }
}

/// The end of a TSG by its time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expired {
    /// Accumulated time in milliseconds.
    pub(super) ms: u32,
    /// Whether the debug dump is printed: one channel with the flag is enough.
    pub(super) dump: bool,
}

impl Kernel {
    /// Accounts for a time-out of a TSG. Returns the end of the TSG if the limit of a channel is exceeded.
    pub(super) fn count_switch_timeout(&self, tsg: u32) -> Option<Expired> {
        let channels = self.state.lock().tsgs.get(&tsg)?.channels.clone();
        let mut gp_gets = BTreeMap::new();
        self.gpu(|gpu| {
            gp_gets.extend(channels.iter().filter_map(|&id| Some((id, gpu.status(id)?.gp_get))));
        });
        self.state.lock().count_switch_timeout(&channels, &gp_gets)
    }
}

impl State {
    fn count_switch_timeout(&mut self, channels: &[u32], gp_gets: &BTreeMap<u32, u32>) -> Option<Expired> {
        let mut advanced = false;
        let mut expired = None;
        for id in channels {
            let Some(channel) = self.channels.get_mut(id) else { continue };
            let by_kernel = channel.ring.as_ref().is_some_and(|ring| ring.kernel.is_some());
            let gp_get = by_kernel.then(|| gp_gets.get(id).copied().unwrap_or_default());
            advanced = channel.switching.count(gp_get);
            if channel.switching.is_exceeded() {
                expired = Some(channel.switching.accumulated_ms);
            }
            if advanced || expired.is_some() {
                break;
            }
        }
        let all = || channels.iter().filter_map(|id| self.channels.get(id));
        if let Some(ms) = expired {
            return Some(Expired { ms, dump: all().any(|channel| channel.switching.dump) });
        }
        if advanced {
            for id in channels {
                if let Some(channel) = self.channels.get_mut(id) {
                    channel.switching.accumulated_ms = PERIOD_MS;
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_exceeds_its_limit_once() {
        let mut user = Switching::default();
        let counts = (1..).find(|_| !user.count(None) && user.is_exceeded());
        assert_eq!((counts, user.accumulated_ms), (Some(31), 3100));
        for (limit, wanted) in [(0, 1), (99, 1), (100, 2), (6000, 61)] {
            let mut user = Switching::default();
            user.set_limit(limit);
            assert_eq!((1..).find(|_| !user.count(None) && user.is_exceeded()), Some(wanted), "{limit} ms");
        }
        let mut endless = Switching { accumulated_ms: u32::MAX - 50, ..Switching::default() };
        endless.set_limit(nvgpu_sys::channel::NO_TIMEOUT);
        assert!(!endless.count(None) && !endless.is_exceeded(), "no limit");
    }

    #[test]
    fn progress_of_a_kernel_ring_starts_the_account_again() {
        let mut kernel = Switching::default();
        assert!(!kernel.count(Some(0)) && !kernel.count(Some(0)));
        assert_eq!(kernel.accumulated_ms, 200);
        assert!(kernel.count(Some(3)));
        assert_eq!(kernel.accumulated_ms, 100);
        assert!(!kernel.count(Some(3)));
        assert_eq!(kernel.accumulated_ms, 200);
    }
}
