//! Fences: the ends of work of an engine (the kernel's `struct dma_fence`).

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::memory::Memory;

use super::pulse::Pulse;
use super::syncpoint::offset;

/// A value that a syncpoint must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Threshold {
    pub(super) id: u32,
    pub(super) threshold: u32,
}

/// Who signals a fence.
#[derive(Debug)]
enum Source {
    /// Host1x, through the shim of its syncpoints. `limit` is the longest time from the first wait on.
    Syncpoint { threshold: Threshold, aperture: Arc<Memory>, limit: Option<Duration> },
    /// Another driver, with this name.
    Driver(String),
}

/// Signals once and permanently: when its syncpoint reaches its threshold, or when its driver says so.
#[derive(Debug)]
pub(super) struct Fence {
    source: Source,
    /// The deadline of waits; set by the first wait.
    deadline: OnceLock<Instant>,
    result: OnceLock<Result<(), Errno>>,
}

impl Fence {
    /// A fence of host1x. `limit` is the time limit of a wait for it.
    pub(super) fn of_syncpoint(threshold: Threshold, aperture: Arc<Memory>, limit: Option<Duration>) -> Self {
        Self::new(Source::Syncpoint { threshold, aperture, limit })
    }

    /// A fence of another driver, without a time limit.
    pub(super) fn of_driver(name: &str) -> Self {
        Self::new(Source::Driver(name.to_owned()))
    }

    /// A fence that has signalled (`dma_fence_get_stub`).
    pub(super) fn stub() -> Self {
        let fence = Self::of_driver("stub");
        let _ = fence.result.set(Ok(()));
        fence
    }

    fn new(source: Source) -> Self {
        Self { source, deadline: OnceLock::new(), result: OnceLock::new() }
    }

    /// What it waits for, if it is one of host1x.
    pub(super) fn threshold(&self) -> Option<Threshold> {
        match &self.source {
            Source::Syncpoint { threshold, .. } => Some(*threshold),
            Source::Driver(_) => None,
        }
    }

    /// Name of the driver.
    pub(super) fn driver(&self) -> &str {
        match &self.source {
            Source::Syncpoint { .. } => "host1x",
            Source::Driver(name) => name,
        }
    }

    /// The result, if it has ended.
    pub(super) fn result(&self) -> Option<Result<(), Errno>> {
        if let Source::Syncpoint { threshold: Threshold { id, threshold }, aperture, .. } = &self.source {
            let value = aperture.load(offset(*id));
            if value.wrapping_sub(*threshold).cast_signed() >= 0 {
                let _ = self.result.set(Ok(()));
            } else if self.deadline.get().is_some_and(|deadline| *deadline <= Instant::now()) {
                let _ = self.result.set(Err(Errno::TIMEDOUT));
            }
        }
        self.result.get().copied()
    }

    /// Starts the time limit of waits. Returns the deadline.
    pub(super) fn arm(&self) -> Option<Instant> {
        let Source::Syncpoint { limit, .. } = &self.source else { return None };
        let end = Instant::now().checked_add((*limit)?)?;
        Some(*self.deadline.get_or_init(|| end))
    }

    /// Signals a fence of a driver, once.
    pub(super) fn signal(&self, result: Result<(), Errno>, pulse: &Pulse) {
        let _ = self.result.set(result);
        pulse.beat();
    }
}
