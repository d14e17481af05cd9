//! The channel watchdog (`common/fifo/watchdog.c`) and the time limit of an acquire (`hal/fifo/pbdma_ga10b_fusa.c`),
//! both for kernel-mode submission.
//!
//! A job is stuck if the channel makes no progress within the limit of its watchdog. The timer starts with a job that
//! is submitted to an idle channel while the watchdog is on, with the limit at that time. When a check finds progress,
//! it restarts with the limit at the time of the check. It stops when the channel is idle; turning the watchdog off
//! does not stop it. A semaphore acquire times out earlier, after 80 % of the watchdog's limit at the creation of the
//! ring. Without a watchdog at that time it never times out.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpu_log::HangLine;
use nvgpu_sys::channel::{WDT_DISABLE, WDT_DISABLE_DUMP, WDT_ENABLE, WDT_SET_TIMEOUT, Wdt};
use rustix::io::Errno;

use crate::gpu::Activity;

use super::recovery;
use super::{Kernel, State};

/// Limit of a new channel on ga10b.
const LIMIT: Duration = Duration::from_millis(5000);
/// Interval between checks of the channels.
const INTERVAL: Duration = Duration::from_millis(100);

/// Settings of one channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watchdog {
    pub(super) on: bool,
    limit: Duration,
    /// Whether to print the channels when a job is stuck.
    dump: bool,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self { on: true, limit: LIMIT, dump: true }
    }
}

impl Watchdog {
    /// WDT. For a deterministic channel the watchdog can only be off.
    ///
    /// # Errors
    ///
    /// EINVAL; nothing changes.
    pub(super) fn set(&mut self, deterministic: bool, args: &Wdt) -> Result<(), Errno> {
        self.on = match args.wdt_status & (WDT_DISABLE | WDT_ENABLE) {
            WDT_DISABLE => false,
            WDT_ENABLE if !deterministic => true,
            _ => return Err(Errno::INVAL),
        };
        if args.wdt_status & WDT_SET_TIMEOUT != 0 {
            self.limit = Duration::from_millis(u64::from(args.timeout_ms));
        }
        self.dump = args.wdt_status & WDT_DISABLE_DUMP == 0;
        Ok(())
    }

    /// The time limit of acquires on a ring that is created now.
    pub(super) fn acquire_limit(&self) -> Option<Duration> {
        self.on.then(|| self.limit * 4 / 5)
    }
}

/// The position of a ring at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    since: Instant,
    gp_get: u32,
    fence: u32,
}

/// A running timer of a watchdog.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    /// The position at its start.
    progress: Progress,
    limit: Duration,
}

impl Progress {
    pub(super) fn new(gp_get: u32, fence: u32) -> Self {
        Self { since: Instant::now(), gp_get, fence }
    }

    fn is_at(&self, (gp_get, fence): (u32, u32)) -> bool {
        (self.gp_get, self.fence) == (gp_get, fence)
    }
}

impl Timer {
    /// Starts a timer with the current limit of a watchdog.
    pub(super) fn start(watchdog: &Watchdog, progress: Progress) -> Self {
        Self { progress, limit: watchdog.limit }
    }
}

/// A channel that has made no progress.
struct Stuck {
    id: u32,
    serial: u64,
    tsg: u32,
    /// The time without progress exceeds the limit of an acquire.
    acquire: bool,
    /// The watchdog's timer has expired.
    job: bool,
    dump: bool,
}

impl State {
    /// The channels with unfinished kernel-mode work that have made no progress within a limit.
    fn stuck(&mut self) -> Vec<Stuck> {
        let State { channels, syncpoints, .. } = self;
        let mut stuck = Vec::new();
        for (id, channel) in channels.iter_mut().filter(|(_, channel)| !channel.unserviceable) {
            let (serial, watchdog, tsg) = (channel.serial, channel.watchdog, channel.tsg);
            let Some(ring) = channel.ring.as_mut().and_then(|ring| ring.kernel.as_mut()) else { continue };
            let (Some(tsg), Some((syncpoint, end))) = (tsg, ring.fence) else { continue };
            let fence = syncpoints.value(syncpoint.id);
            if end.wrapping_sub(fence).cast_signed() <= 0 {
                (ring.progress, ring.timer) = (None, None);
                continue;
            }
            let now = (ring.gp_get(), fence);
            let seen = *ring.progress.get_or_insert_with(|| Progress::new(now.0, now.1));
            if !seen.is_at(now) {
                ring.progress = Some(Progress::new(now.0, now.1));
            }
            if ring.timer.is_some_and(|timer| !timer.progress.is_at(now)) {
                ring.timer = Some(Timer::start(&watchdog, Progress::new(now.0, now.1)));
            }
            let for_long = |progress: Progress| progress.since.elapsed();
            let acquire = seen.is_at(now) && ring.acquire_limit.is_some_and(|limit| for_long(seen) >= limit);
            let job = ring.timer.is_some_and(|timer| for_long(timer.progress) >= timer.limit);
            if acquire || job {
                stuck.push(Stuck { id: *id, serial, tsg, acquire, job, dump: watchdog.dump });
            }
        }
        stuck
    }
}

impl Kernel {
    /// Starts the monitoring of channels; once per board.
    pub(super) fn start_watchdog(&self) {
        if self.watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let kernel = self.me.clone();
        let look = move || {
            while let Some(kernel) = kernel.upgrade() {
                kernel.check_watchdogs();
                drop(kernel);
                std::thread::sleep(INTERVAL);
            }
        };
        if self.spawn("orin-watchdog", look).is_err() {
            self.watched.store(false, Ordering::Release);
        }
    }

    fn check_watchdogs(&self) {
        let stuck = self.state.lock().stuck();
        for channel in stuck {
            let mut waits = false;
            self.gpu(|gpu| {
                let status = gpu.status(channel.id);
                waits = status
                    .is_some_and(|status| matches!(status.activity, Activity::WaitingForSemaphore { .. }));
            });
            let same =
                self.state.lock().channel(channel.id, channel.serial).is_ok_and(|now| now.tsg.is_some());
            if same && waits && channel.acquire {
                self.acquire_timed_out(channel.tsg);
            } else if same && channel.job {
                self.job_timed_out(channel.id, channel.tsg, channel.dump);
            }
        }
    }

    fn job_timed_out(&self, id: u32, tsg: u32, dump: bool) {
        self.with_fault_log(|log| {
            log.error("nvgpu_channel_recover_from_wdt", HangLine::JobTimeout { channel: id });
            if dump {
                self.dump(log);
            }
            self.end_tsg_with(log, tsg, Some(recovery::IDLE_TIMEOUT));
        });
    }

    fn acquire_timed_out(&self, tsg: u32) {
        self.with_fault_log(|log| {
            recovery::print_pbdma(log, recovery::pbdma::ACQUIRE, 0, 0);
            log.error("ga10b_pbdma_handle_intr_0_acquire", HangLine::AcquireTimeout);
            self.end_tsg_with(log, tsg, Some(recovery::ACQUIRE_TIMEOUT));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(
        watchdog: &mut Watchdog,
        deterministic: bool,
        wdt_status: u32,
        timeout_ms: u32,
    ) -> Result<(), Errno> {
        watchdog.set(deterministic, &Wdt { wdt_status, timeout_ms })
    }

    #[test]
    fn a_refused_setting_changes_nothing() {
        let mut watchdog = Watchdog::default();
        assert_eq!(watchdog.acquire_limit(), Some(Duration::from_secs(4)));
        for status in [0, WDT_DISABLE | WDT_ENABLE, WDT_SET_TIMEOUT] {
            assert_eq!(set(&mut watchdog, false, status, 7), Err(Errno::INVAL));
        }
        assert_eq!(set(&mut watchdog, true, WDT_ENABLE | WDT_SET_TIMEOUT, 7), Err(Errno::INVAL));
        assert!(watchdog.on && watchdog.limit == LIMIT && watchdog.dump);
    }

    #[test]
    fn the_limit_needs_its_flag() {
        let mut watchdog = Watchdog::default();
        assert_eq!(set(&mut watchdog, false, WDT_ENABLE, 7), Ok(()));
        assert_eq!(watchdog.limit, LIMIT);
        assert_eq!(set(&mut watchdog, false, WDT_ENABLE | WDT_SET_TIMEOUT | WDT_DISABLE_DUMP, 10), Ok(()));
        assert_eq!(watchdog.acquire_limit(), Some(Duration::from_millis(8)));
        assert!(!watchdog.dump);
        assert_eq!(set(&mut watchdog, true, WDT_DISABLE, 0), Ok(()));
        assert_eq!(watchdog.acquire_limit(), None);
    }
}
