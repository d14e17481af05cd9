//! Runs a loop at a steady rate and measures it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::ControlLoop;
use crate::error::Result;

/// Longest time that the histograms resolve, in nanoseconds: a minute.
const LONGEST: u64 = 60_000_000_000;
/// Significant digits of the histograms.
const DIGITS: u8 = 3;

/// Options of a loop.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of cycles.
    pub cycles: u64,
    /// Time between the starts of two cycles; `None` to run as fast as possible.
    pub period: Option<Duration>,
    /// Number of cycles between two comparisons of the network's output with the CPU's; the last cycle is always
    /// checked. The time of a check is not part of a cycle.
    pub check_every: u64,
}

/// Measurements. Times are in nanoseconds; times above a minute count as a minute.
#[derive(Clone, Debug)]
pub struct Timing {
    /// From the start of a cycle to its end.
    pub cycle: Histogram<u64>,
    /// From the start of a cycle to the start of the next.
    pub period: Histogram<u64>,
    /// From the first cycle to the end of the last, checks included.
    pub elapsed: Duration,
    /// Ticks at which a cycle was due while an earlier one was still running.
    pub missed: u64,
    /// Number of comparisons with the CPU's output.
    pub checks: u64,
    /// Largest difference found.
    pub largest_difference: f64,
    /// Sum of the squared distances between the masses and their target.
    squares: f64,
}

impl Timing {
    /// Empty histograms.
    pub fn new() -> Self {
        // PANIC: the bounds and the digits are constants that the library accepts.
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("valid bounds");
        Self {
            cycle: histogram.clone(),
            period: histogram,
            elapsed: Duration::ZERO,
            missed: 0,
            checks: 0,
            largest_difference: 0.0,
            squares: 0.0,
        }
    }

    /// Cycles per second.
    pub fn rate(&self) -> f64 {
        self.cycle.len() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Root mean square of the distance between the masses and their target, in metres.
    pub fn distance(&self) -> f64 {
        (self.squares / self.cycle.len().max(1) as f64).sqrt()
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::new()
    }
}

/// Nanoseconds for a histogram.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(LONGEST)
}

/// Runs the loop. `done` is the number of cycles that have ended, for other threads. Once `stop` is true, the loop ends
/// after the current cycle, and the measurements cover the cycles so far.
///
/// Waits for ticks by reading the clock. Neither the loop nor the wait makes a system call (the clock is read in user
/// space) or an allocation.
///
/// # Errors
///
/// Returns the errors of [`ControlLoop::cycle`] and [`ControlLoop::check`].
pub fn run(
    control: &mut ControlLoop,
    plan: &Plan,
    timing: &mut Timing,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let first = Instant::now();
    let (mut tick, mut last) = (first, None::<Instant>);
    for cycle in 0..plan.cycles {
        while Instant::now() < tick && !stop.load(Ordering::Relaxed) {
            core::hint::spin_loop();
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        control.cycle()?;
        let end = Instant::now();

        timing.cycle.saturating_record(nanos(end - start));
        if let Some(last) = last.replace(start) {
            timing.period.saturating_record(nanos(start - last));
        }
        timing.squares += control.distance().powi(2);
        if (cycle + 1).is_multiple_of(plan.check_every.max(1)) || cycle + 1 == plan.cycles {
            timing.largest_difference = timing.largest_difference.max(control.check()?);
            timing.checks += 1;
        }
        done.store(cycle + 1, Ordering::Relaxed);
        if let Some(period) = plan.period.filter(|period| !period.is_zero()) {
            tick += period;
            // Missed ticks are skipped, not caught up.
            let late = nanos(Instant::now().saturating_duration_since(tick)) / nanos(period);
            timing.missed += late;
            tick += Duration::from_nanos(late * nanos(period));
        }
    }
    timing.elapsed += first.elapsed();
    Ok(())
}

#[cfg(test)]
mod tests {
    use tegra_hcq::{Device, DeviceKind};

    use super::*;

    fn control() -> ControlLoop {
        let device = Device::open(DeviceKind::Sim).unwrap();
        ControlLoop::new(&device, 3, 1e-3, Duration::from_secs(120)).unwrap()
    }

    #[test]
    fn every_cycle_is_counted_once() {
        let mut timing = Timing::new();
        let done = AtomicU64::new(0);
        let plan = Plan { cycles: 25, period: None, check_every: 10 };
        run(&mut control(), &plan, &mut timing, &done, &AtomicBool::new(false)).unwrap();
        assert_eq!((timing.cycle.len(), timing.period.len()), (25, 24));
        assert_eq!((timing.checks, timing.missed, done.into_inner()), (3, 0, 25));
        assert!(timing.rate() > 0.0 && timing.cycle.min() > 0);
    }

    #[test]
    fn ticks_that_are_over_are_counted_and_left_out() {
        let mut timing = Timing::new();
        // No cycle ends within a nanosecond.
        let plan = Plan { cycles: 5, period: Some(Duration::from_nanos(1)), check_every: 1 };
        run(&mut control(), &plan, &mut timing, &AtomicU64::new(0), &AtomicBool::new(false)).unwrap();
        assert!(timing.missed >= 5, "{}", timing.missed);
        assert_eq!(timing.cycle.len(), 5);
    }

    #[test]
    fn cycles_begin_no_earlier_than_their_ticks() {
        let mut timing = Timing::new();
        let period = Duration::from_millis(50);
        let plan = Plan { cycles: 4, period: Some(period), check_every: 1 };
        run(&mut control(), &plan, &mut timing, &AtomicU64::new(0), &AtomicBool::new(false)).unwrap();
        assert!(timing.elapsed >= period * 3, "{:?}", timing.elapsed);
    }
}
