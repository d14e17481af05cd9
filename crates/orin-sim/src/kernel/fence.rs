//! Fences: the ends of work of an engine (the kernel's `struct dma_fence`), and files of them.

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

/// A zero-padded text in a field of fixed size.
pub(super) fn padded(text: &str) -> [u8; 32] {
    let mut field = [0; 32];
    let len = text.len().min(31);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

/// The fences of one sync-file.
#[derive(Debug)]
pub(super) struct SyncFile {
    pub(super) name: [u8; 32],
    pub(super) fences: Vec<Arc<Fence>>,
}

impl SyncFile {
    /// A file of one fence.
    pub(super) fn new(fence: Arc<Fence>) -> Arc<Self> {
        let name = match fence.threshold() {
            Some(Threshold { id, threshold }) => padded(&format!("host1x-{id}:{threshold}")),
            None => padded(fence.driver()),
        };
        Arc::new(Self { name, fences: vec![fence] })
    }

    /// A file of all these fences (`sync_file_merge`, `dma_resv_get_singleton`): those that have ended are left out,
    /// unless all have. No two are of the same context, so none replaces another.
    pub(super) fn of_all(name: [u8; 32], fences: impl Iterator<Item = Arc<Fence>>) -> Arc<Self> {
        let (mut active, mut ended) = (Vec::new(), None);
        for fence in fences {
            if fence.result().is_none() { active.push(fence) } else { ended = ended.or(Some(fence)) }
        }
        if active.is_empty() {
            active.push(ended.unwrap_or_else(|| Arc::new(Fence::stub())));
        }
        Arc::new(Self { name, fences: active })
    }

    /// The result, if all fences have ended: the first error, if there is one.
    pub(super) fn result(&self) -> Option<Result<(), Errno>> {
        let results: Option<Vec<_>> = self.fences.iter().map(|fence| fence.result()).collect();
        results.map(|results| results.into_iter().collect())
    }

    /// Starts the time limit of waits. Returns the next deadline.
    pub(super) fn arm(&self) -> Option<Instant> {
        self.fences.iter().filter(|fence| fence.result().is_none()).filter_map(|fence| fence.arm()).min()
    }

    /// The thresholds in it. Fences of other drivers are left out if they have ended (`dev_file_ioctl_fence_extract`).
    ///
    /// # Errors
    ///
    /// EINVAL if one of another driver is active.
    pub(super) fn thresholds(&self) -> Result<Vec<Threshold>, Errno> {
        let all = self.fences.iter().filter_map(|fence| match fence.threshold() {
            None if fence.result().is_some() => None,
            threshold => Some(threshold.ok_or(Errno::INVAL)),
        });
        all.collect()
    }
}

/// Returns whether a sync-file is readable; if not, its deadline.
pub(super) fn poll(file: &SyncFile) -> Result<(), Option<Instant>> {
    // The first poll starts the time limit.
    let deadline = file.arm();
    if file.result().is_some() { Ok(()) } else { Err(deadline) }
}
