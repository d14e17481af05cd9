//! Possession of the graphics engine by one TSG at a time.
//!
//! The engine holds the context of one TSG. To serve another one, host preempts the first. With instruction preemption
//! (CILP) this succeeds at once. With block preemption (CTA) no further block starts, and host waits for the blocks on
//! the SMs; otherwise (WFI) it waits for the grids. While the TSG cannot be preempted and another TSG has work,
//! every [`GpuConfig::switch_timeout`](crate::gpu::GpuConfig) is one context-switch time-out of the first, which the
//! kernel counts. A TSG that was closed without a reset keeps the engine permanently: the kernel finds no channel
//! to recover.

use std::time::{Duration, Instant};

/// The TSG that occupies the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// It has unfinished grids or blocks and cannot be preempted.
    Running(u32),
    /// It was closed while it occupied the engine.
    Abandoned(u32),
}

/// A context-switch time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SwitchTimeout {
    /// The TSG that keeps the engine.
    pub(super) tsg: u32,
    /// Whether the kernel still knows the TSG.
    pub(super) abandoned: bool,
}

/// The TSG that occupies the engine, and the start of the wait of other TSGs.
#[derive(Debug)]
pub(super) struct Possession {
    period: Duration,
    holder: Option<Holder>,
    /// Start of the current period in which another TSG waits.
    waiting_since: Option<Instant>,
}

impl Possession {
    pub(super) fn new(period: Duration) -> Self {
        Self { period, holder: None, waiting_since: None }
    }

    /// Whether the TSG can be served.
    pub(super) fn admits(&self, tsg: u32) -> bool {
        match self.holder {
            None => true,
            Some(Holder::Running(holder)) => holder == tsg,
            Some(Holder::Abandoned(_)) => false,
        }
    }

    /// Whether the TSG keeps the engine, and another one waits for it.
    pub(super) fn must_yield(&self, tsg: u32) -> bool {
        self.waiting_since.is_some() && self.holder == Some(Holder::Running(tsg))
    }

    /// Records after the turn of a TSG whether it still occupies the engine.
    pub(super) fn after_turn(&mut self, tsg: u32, occupies: bool) {
        match self.holder {
            None if occupies => self.holder = Some(Holder::Running(tsg)),
            Some(Holder::Running(holder)) if holder == tsg && !occupies => self.release(),
            _ => {}
        }
    }

    /// Records which TSGs exist, and the one that was closed with unfinished grids, if any.
    pub(super) fn update(&mut self, exists: impl Fn(u32) -> bool, abandoned: Option<u32>) {
        if let Some(tsg) = abandoned {
            self.holder = Some(Holder::Abandoned(tsg));
        } else if let Some(Holder::Running(tsg)) = self.holder
            && !exists(tsg)
        {
            self.release();
        }
    }

    fn release(&mut self) {
        (self.holder, self.waiting_since) = (None, None);
    }

    /// Updates the waiting time; `waits` is whether another TSG waits. Returns a time-out if one is due.
    pub(super) fn tick(&mut self, waits: bool, now: Instant) -> Option<SwitchTimeout> {
        let holder = self.holder.filter(|_| waits);
        let Some(holder) = holder else {
            self.waiting_since = None;
            return None;
        };
        let since = *self.waiting_since.get_or_insert(now);
        if now - since < self.period {
            return None;
        }
        self.waiting_since = Some(now);
        let (tsg, abandoned) = match holder {
            Holder::Running(tsg) => (tsg, false),
            Holder::Abandoned(tsg) => (tsg, true),
        };
        Some(SwitchTimeout { tsg, abandoned })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);

    #[test]
    fn a_tsg_with_unfinished_grids_keeps_the_engine_until_they_end() {
        let mut engine = Possession::new(PERIOD);
        engine.after_turn(1, true);
        assert!(engine.admits(1) && !engine.admits(2));
        engine.after_turn(2, false);
        assert!(!engine.admits(2), "only its owner frees it");
        engine.after_turn(1, false);
        assert!(engine.admits(2));
        engine.after_turn(1, true);
        engine.update(|tsg| tsg == 2, None);
        assert!(engine.admits(2), "a TSG that was reset is gone");
    }

    #[test]
    fn each_period_in_which_another_tsg_waits_is_a_time_out() {
        let mut engine = Possession::new(PERIOD);
        let start = Instant::now();
        engine.after_turn(1, true);
        let at = |engine: &mut Possession, ms, waits| {
            engine.tick(waits, start + Duration::from_millis(ms)).map(|timeout| timeout.tsg)
        };
        assert_eq!(at(&mut engine, 0, true), None);
        assert!(engine.must_yield(1) && !engine.must_yield(2));
        assert_eq!(at(&mut engine, 99, true), None);
        assert_eq!(at(&mut engine, 100, true), Some(1));
        assert_eq!(at(&mut engine, 150, false), None);
        assert!(!engine.must_yield(1));
        assert_eq!(at(&mut engine, 249, true), None, "the period begins again");
        assert_eq!(at(&mut engine, 349, true), Some(1));
        engine.after_turn(1, false);
        assert_eq!(at(&mut engine, 500, true), None);
        engine.after_turn(1, true);
        assert_eq!(at(&mut engine, 600, true), None);
        assert_eq!(at(&mut engine, 700, true), Some(1), "another grid of the same TSG");
    }

    #[test]
    fn an_abandoned_engine_is_never_free_again() {
        let mut engine = Possession::new(PERIOD);
        engine.update(|_| false, Some(1));
        assert!(!engine.admits(1) && !engine.admits(2));
        engine.after_turn(2, false);
        engine.update(|_| true, Some(1));
        let start = Instant::now();
        assert_eq!(engine.tick(true, start), None);
        let late = engine.tick(true, start + PERIOD).unwrap();
        assert_eq!(late, SwitchTimeout { tsg: 1, abandoned: true });
    }
}
