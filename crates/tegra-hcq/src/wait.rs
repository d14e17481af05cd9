//! Waiting for the GPU, always bounded.
//!
//! A wait first spins on the timeline (a cached line; a launch ends within microseconds), then yields,
//! then sleeps in growing steps. While it sleeps it looks at the error notifier: a channel that the
//! kernel has stopped never reaches its value.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nvgpu_channel::ErrorCode;

use crate::backend::ChannelGroup;
use crate::device::Shared;
use crate::error::{Error, Result};
use crate::fault::{CodeLocation, Fault};
use crate::timeline::Timeline;

/// Polls of the timeline before the clock is looked at.
const SPINS: u32 = 2000;
/// How long a wait yields before it sleeps.
const YIELD_FOR: Duration = Duration::from_micros(200);
/// Shortest and longest sleep between two looks.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));
/// How long the kernel log may lag behind the notifier.
const LOG_DELAY: Duration = Duration::from_millis(50);

/// What a queue and its fences share.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) device: Arc<Shared>,
    /// Index of the queue's timeline.
    pub(crate) slot: usize,
    pub(crate) timeline: Timeline,
    /// Value of the last submission whose doorbell was rung.
    submitted: AtomicU64,
    /// Code address of the kernel launched last.
    last_kernel: AtomicU64,
    /// A wait has run out: dropping the queue need not wait again.
    timed_out: AtomicBool,
    fault: Mutex<Option<Arc<Fault>>>,
    // Always `Some` until `drop` takes it.
    channels: Option<Box<dyn ChannelGroup>>,
}

impl QueueState {
    pub(crate) fn new(device: &Arc<Shared>, slot: usize, channels: Box<dyn ChannelGroup>) -> Self {
        let timeline = device.timeline(slot);
        Self {
            device: Arc::clone(device),
            slot,
            timeline,
            submitted: AtomicU64::new(timeline.value()),
            last_kernel: AtomicU64::new(0),
            timed_out: AtomicBool::new(false),
            fault: Mutex::new(None),
            channels: Some(channels),
        }
    }

    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    pub(crate) fn set_submitted(&self, value: u64) {
        self.submitted.store(value, Ordering::Release);
    }

    pub(crate) fn set_last_kernel(&self, code_va: u64) {
        self.last_kernel.store(code_va, Ordering::Relaxed);
    }

    /// Waits until the timeline has reached `value`.
    pub(crate) fn wait(&self, value: u64, timeout: Duration) -> Result<()> {
        for _ in 0..SPINS {
            if self.timeline.value() >= value {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        if value > self.submitted() {
            return Err(Error::NotSubmitted);
        }
        let start = Instant::now();
        let mut pause = SLEEP.0;
        loop {
            self.check()?;
            let elapsed = start.elapsed();
            let seen = self.timeline.value();
            if seen >= value {
                return Ok(());
            }
            if elapsed >= timeout {
                self.timed_out.store(true, Ordering::Relaxed);
                return Err(Error::Timeout { timeout, wanted: value, seen, cause: self.describe_silence() });
            }
            if elapsed < YIELD_FOR {
                std::thread::yield_now();
            } else {
                std::thread::sleep(pause.min(timeout - elapsed));
                pause = (pause * 2).min(SLEEP.1);
            }
        }
    }

    /// Fails when the kernel has stopped the channels.
    pub(crate) fn check(&self) -> Result<()> {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if fault.is_none()
            && let Some(code) = self.channels.as_ref().and_then(|channels| channels.error())
        {
            *fault = Some(Arc::new(self.explain(code)));
        }
        match &*fault {
            Some(fault) => Err(Error::Fault(Arc::clone(fault))),
            None => Ok(()),
        }
    }

    /// Reads the kernel log until it has told about the fault, or stays silent for [`LOG_DELAY`].
    fn explain(&self, notifier: ErrorCode) -> Fault {
        let start = Instant::now();
        let mut lines: Vec<String> = Vec::new();
        let log = loop {
            let told = lines.iter().any(|line| line.contains("error notifier set to"));
            let more = match self.device.backend().kernel_log() {
                Ok(more) => more,
                Err(reason) => break Err(reason),
            };
            let silent = more.is_empty();
            lines.extend(more);
            if (told && silent) || start.elapsed() >= LOG_DELAY {
                break Ok(lines);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let mut fault = Fault::decode(notifier, log);
        fault.location = match fault.pc {
            Some(pc) => self.device.locate(pc),
            None => self.last_location(),
        };
        tracing::debug!(%fault, log = ?fault.log, "channel group stopped");
        fault
    }

    fn last_location(&self) -> Option<CodeLocation> {
        match self.last_kernel.load(Ordering::Relaxed) {
            0 => None,
            va => self.device.locate(va),
        }
    }

    /// What can be told about a GPU that neither finishes nor faults.
    fn describe_silence(&self) -> String {
        let kernel = match self.last_location() {
            Some(location) => format!("kernel {}, launched last, is still running", location.kernel),
            None => "no kernel was launched".to_owned(),
        };
        let log = match self.device.backend().kernel_log() {
            Ok(lines) if lines.is_empty() => "the kernel log is silent".to_owned(),
            Ok(lines) => format!("the kernel log says: {}", lines.join(" | ")),
            Err(reason) => format!("the kernel log cannot be read: {reason}"),
        };
        format!("no error notifier is set; {kernel}; {log}")
    }

    /// Whether waiting for the rest of the work makes sense.
    pub(crate) fn may_finish(&self) -> bool {
        !self.timed_out.load(Ordering::Relaxed) && self.check().is_ok()
    }
}

impl Drop for QueueState {
    fn drop(&mut self) {
        // Closing the channels ends their work, finished or not: from here on nothing of the queue
        // touches memory, so its timeline may pass everything that was ever handed out, which is at
        // most one value beyond the last submission.
        self.channels = None;
        self.timeline.set(self.submitted() + 1);
        self.device.release_queue(self.slot);
        self.device.sweep();
    }
}

/// The end of a submission.
#[derive(Clone, Debug)]
pub struct Fence {
    pub(crate) state: Arc<QueueState>,
    pub(crate) value: u64,
}

impl Fence {
    /// Waits until the submission has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Fault`] when the GPU stopped it, [`Error::Timeout`] when it has not ended within
    /// `timeout`; it may still end later.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.state.wait(self.value, timeout)
    }

    /// Whether the submission has ended.
    pub fn is_done(&self) -> bool {
        self.state.timeline.value() >= self.value
    }

    /// GPU time of the queue's last completed submission, in nanoseconds of the GPU's own clock:
    /// the one of this submission as long as it is the queue's newest.
    pub fn gpu_time_ns(&self) -> u64 {
        self.state.timeline.timestamp()
    }
}
