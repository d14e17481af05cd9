//! The context of a case: the device, the rival, and the sampling loop.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tegra_hcq::{Device, Program, Queue, QueueOptions, WaitPolicy};

use crate::cuda::Cuda;
use crate::error::{Error, Result};
use crate::kernels::Kernels;
use crate::measure::Samples;
use crate::start_up::StartUp;

/// Runs one unit of work and returns its duration.
pub type Sampler = dyn FnMut() -> Result<Duration>;

/// Creates the rival's sampler.
pub type Rival<'a> = &'a mut dyn FnMut(&Cuda) -> Result<Box<Sampler>>;

/// The result of the rival in a case.
#[derive(Clone, Debug)]
pub enum RivalOutcome {
    /// Its samples.
    Measured(Samples),
    /// The reason why there are none.
    Missing(String),
}

/// Duration and number of samples of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Minimum duration of the warm-up.
    pub warm_up: Duration,
    /// Duration of the sampling.
    pub budget: Duration,
    /// Minimum number of samples, regardless of their duration.
    pub min_samples: u64,
    /// Maximum number of samples.
    pub max_samples: u64,
    /// Divisor for the rounds of cases that repeat work within a sample.
    pub divide_rounds: u64,
    /// Duration of a turn; this library and the rival take turns. The first sample of a turn includes the GPU's context
    /// switch and is discarded. Zero: one sample per turn.
    pub turn: Duration,
}

impl Plan {
    /// For measurements.
    pub const FULL: Self = Self {
        warm_up: Duration::from_millis(300),
        budget: Duration::from_secs(2),
        min_samples: 10,
        max_samples: 100_000,
        divide_rounds: 1,
        turn: Duration::from_millis(20),
    };

    /// For a functional check with a few samples.
    pub const QUICK: Self = Self {
        warm_up: Duration::ZERO,
        budget: Duration::from_millis(20),
        min_samples: 2,
        max_samples: 50,
        divide_rounds: 100,
        turn: Duration::ZERO,
    };
}

/// The argument of a case's run function.
pub struct Bench<'a> {
    device: &'a Device,
    cuda: Option<&'a Cuda>,
    start_up: Option<&'a StartUp>,
    plan: Plan,
    stop: Option<&'a AtomicBool>,
    size: u64,
    samples: Samples,
    rival: Option<RivalOutcome>,
}

impl fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("plan", &self.plan).field("size", &self.size).finish_non_exhaustive()
    }
}

impl<'a> Bench<'a> {
    /// Creates the context for one case of size `size`.
    pub(crate) fn new(
        device: &'a Device,
        cuda: Option<&'a Cuda>,
        start_up: Option<&'a StartUp>,
        plan: Plan,
        stop: Option<&'a AtomicBool>,
        size: u64,
    ) -> Self {
        Self { device, cuda, start_up, plan, stop, size, samples: Samples::default(), rival: None }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Returns the measurements.
    pub(crate) fn finish(self) -> (Samples, Option<RivalOutcome>) {
        (self.samples, self.rival)
    }

    /// The device.
    pub fn device(&self) -> &'a Device {
        self.device
    }

    /// Another device of the same kind, newly opened.
    ///
    /// # Errors
    ///
    /// [`Error::NoPeer`] if there is none; those of [`Device::open_other`].
    pub fn peer(&self) -> Result<Device> {
        self.device.open_other()?.ok_or(Error::NoPeer)
    }

    /// The size with which the case is registered.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The size as a number of elements or bytes in memory.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX)
    }

    /// The command of the child process that reports its first result.
    pub fn start_up(&self) -> Option<&'a StartUp> {
        self.start_up
    }

    /// Loads kernels.
    ///
    /// # Errors
    ///
    /// Those of [`Kernels::load`].
    pub fn program(&self, kernels: &Kernels) -> Result<Program> {
        kernels.load(self.device)
    }

    /// Opens a queue with the given wait policy.
    ///
    /// # Errors
    ///
    /// Those of [`Device::queue`].
    pub fn queue(&self, policy: WaitPolicy) -> Result<Queue> {
        Ok(self.device.queue_with(&QueueOptions::default().wait(policy))?)
    }

    /// Returns `full`, divided for a quick run, at least 1.
    pub fn rounds(&self, full: u64) -> u64 {
        (full / self.plan.divide_rounds).max(1)
    }

    /// Takes samples of work that has no counterpart in CUDA. Each is divided by `parts`.
    ///
    /// # Errors
    ///
    /// Those of `ours`.
    pub fn measure_alone(&mut self, parts: u64, ours: &mut dyn FnMut() -> Result<Duration>) -> Result<()> {
        self.take(parts, ours, None)
    }

    /// Takes samples of `ours`, alternating with the sampler that `rival` creates if CUDA is present. Each sample is
    /// divided by `parts`. A rival that fails is reported and omitted; the case continues.
    ///
    /// # Errors
    ///
    /// Those of `ours`.
    pub fn measure(
        &mut self,
        parts: u64,
        ours: &mut dyn FnMut() -> Result<Duration>,
        rival: Rival<'_>,
    ) -> Result<()> {
        let sampler = self.cuda.map(rival);
        self.take(parts, ours, sampler)
    }

    fn take(
        &mut self,
        parts: u64,
        ours: &mut dyn FnMut() -> Result<Duration>,
        rival: Option<Result<Box<Sampler>>>,
    ) -> Result<()> {
        let mut turns = Turns::new(rival, self.plan.turn);
        let start = Instant::now();
        loop {
            turns.next(ours, None)?;
            if start.elapsed() >= self.plan.warm_up || self.is_stopped() {
                break;
            }
        }
        let start = Instant::now();
        while !self.is_stopped()
            && self.samples.count() < self.plan.max_samples
            && (self.samples.count() < self.plan.min_samples || start.elapsed() < self.plan.budget)
        {
            turns.next(ours, Some((&mut self.samples, parts)))?;
        }
        self.rival = turns.finish();
        Ok(())
    }
}

/// Alternates between this library's and the rival's work.
struct Turns {
    rival: Option<Result<Box<Sampler>>>,
    samples: Samples,
    length: Duration,
}

impl Turns {
    fn new(rival: Option<Result<Box<Sampler>>>, length: Duration) -> Self {
        Self { rival, samples: Samples::default(), length }
    }

    /// Runs one turn of each, and records it if `record` is set.
    fn next(
        &mut self,
        ours: &mut dyn FnMut() -> Result<Duration>,
        record: Option<(&mut Samples, u64)>,
    ) -> Result<()> {
        let length = if self.rival.is_some() { self.length } else { Duration::ZERO };
        let (samples, parts) = record.unzip();
        turn(length, ours, samples.map(|samples| (samples, parts.unwrap_or(1))))?;
        if let Some(Ok(sampler)) = &mut self.rival {
            let record = parts.map(|parts| (&mut self.samples, parts));
            if let Err(error) = turn(length, sampler, record) {
                self.rival = Some(Err(error));
            }
        }
        Ok(())
    }

    fn finish(self) -> Option<RivalOutcome> {
        Some(match self.rival? {
            Ok(_) => RivalOutcome::Measured(self.samples),
            Err(error) => RivalOutcome::Missing(error.to_string()),
        })
    }
}

/// Takes samples for `length`, or one sample if `length` is zero.
fn turn(
    length: Duration,
    sampler: &mut dyn FnMut() -> Result<Duration>,
    mut record: Option<(&mut Samples, u64)>,
) -> Result<()> {
    let start = Instant::now();
    if length > Duration::ZERO {
        sampler()?;
    }
    loop {
        let elapsed = sampler()?;
        if let Some((samples, parts)) = &mut record {
            samples.add(elapsed, *parts);
        }
        if start.elapsed() >= length {
            return Ok(());
        }
    }
}

/// Runs `work` and returns its duration.
pub(crate) fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// Spins until `done` returns true.
pub(crate) fn spin_until(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    loop {
        for _ in 0..1000 {
            if done() {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        if start.elapsed() >= crate::TIMEOUT {
            return Err(Error::Late(format!("{what} did not happen within {:?}", crate::TIMEOUT)));
        }
        // On a machine with few cores, the awaited thread may need this core.
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    fn sampler(log: &Rc<RefCell<String>>, name: char, fail_at: usize) -> Box<Sampler> {
        let log = Rc::clone(log);
        let mut calls = 0;
        Box::new(move || {
            log.borrow_mut().push(name);
            calls += 1;
            if calls == fail_at { Err(Error::Late("too late".into())) } else { Ok(Duration::from_micros(1)) }
        })
    }

    #[test]
    fn samples_alternate() {
        let log = Rc::default();
        let mut turns = Turns::new(Some(Ok(sampler(&log, 'B', 0))), Duration::ZERO);
        let (mut ours, mut samples) = (sampler(&log, 'A', 0), Samples::default());
        turns.next(&mut *ours, None).unwrap();
        for _ in 0..3 {
            turns.next(&mut *ours, Some((&mut samples, 1))).unwrap();
        }
        assert_eq!(*log.borrow(), "ABABABAB");
        let Some(RivalOutcome::Measured(theirs)) = turns.finish() else { panic!("the rival was measured") };
        assert_eq!((samples.count(), theirs.count()), (3, 3), "the warm-up does not count");
    }

    #[test]
    fn a_rival_that_fails_is_left_out() {
        let log = Rc::default();
        let mut turns = Turns::new(Some(Ok(sampler(&log, 'B', 2))), Duration::ZERO);
        let (mut ours, mut samples) = (sampler(&log, 'A', 0), Samples::default());
        for _ in 0..4 {
            turns.next(&mut *ours, Some((&mut samples, 1))).unwrap();
        }
        assert_eq!(*log.borrow(), "ABABAA");
        assert_eq!(samples.count(), 4);
        assert!(matches!(turns.finish(), Some(RivalOutcome::Missing(why)) if why == "too late"));
    }

    #[test]
    fn a_failure_of_this_library_ends_the_case() {
        let log = Rc::default();
        let mut turns = Turns::new(None, Duration::ZERO);
        assert!(turns.next(&mut *sampler(&log, 'A', 1), None).is_err());
        assert!(turns.finish().is_none());
    }

    #[test]
    fn a_condition_that_never_holds_times_out() {
        let mut looks = 0;
        spin_until("the tenth look", || {
            looks += 1;
            looks == 10
        })
        .unwrap();
    }
}
