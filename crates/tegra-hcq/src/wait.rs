//! Queues as their fences see them: waiting for the GPU, always bounded.
//!
//! A wait first spins on the timeline (a cached line; a launch ends within microseconds), then yields,
//! then sleeps in the kernel until the GPU reports that it has finished something. Now and then it looks at
//! the error notifier: a channel that the kernel has stopped never reaches its value. A wake-up alone says
//! nothing, the kernel also wakes those who wait for dead channels; only the timeline's value counts.

use core::fmt::Debug;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpu_hal::{ChannelGroup, ErrorCode, RingView};

use crate::error::{Error, Result};
use crate::fault::{CodeLocation, Fault};
use crate::heap::timeline::Timeline;
use crate::heap::{Heap, lock};
use crate::limits::{LOOK, SPINS, YIELD_FOR};
use crate::progress::Progress;
use crate::shared::Shared;

/// Reads of the timeline between two later reads of the clock.
const LOOKS: u32 = 32;
/// How long a wait that never sleeps keeps its core busy.
const SPIN_FOR: Duration = Duration::from_millis(1);
/// Longest sleep between two checks of value and notifier.
const SLEEP: Duration = Duration::from_millis(5);

/// How the CPU waits for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitPolicy {
    /// Spin for a moment, then sleep until an interrupt of the GPU. Each submission raises one.
    #[default]
    Sleep,
    /// Keep spinning: the shortest latency, no interrupt, one core busy. What takes longer than a
    /// millisecond lets other threads run between two looks; nothing else enters the kernel.
    Spin,
}

/// In which condition the channels of a queue are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Health {
    /// As far as is known, they work.
    Working = 0,
    /// The kernel has stopped them.
    Faulted = 1,
    /// `Device::recover` has stopped and forgiven them: the queue opens new ones at its next use.
    Forgiven = 2,
}

/// Reports about lost work that a queue keeps with the log and the commands; older ones keep the rest.
const WHOLE_REPORTS: usize = 16;

/// Work that will never end: the timeline values above `after` up to `through`.
#[derive(Clone, Debug)]
struct Lost {
    after: u64,
    through: u64,
    fault: Arc<Fault>,
}

/// What went wrong on a queue.
#[derive(Debug, Default)]
struct Trouble {
    /// Why the channels that are open now were stopped.
    fault: Option<Arc<Fault>>,
    /// What earlier channels never finished, in the order of their values.
    lost: Vec<Lost>,
}

impl Trouble {
    /// Adds lost work. Fences may ask for it as long as the queue exists, so nothing is ever removed, but what
    /// takes much memory is.
    fn add_lost(&mut self, lost: Lost) {
        self.lost.push(lost);
        if let Some(old) = self.lost.len().checked_sub(WHOLE_REPORTS + 1) {
            let fault = &mut self.lost[old].fault;
            let log = fault.log.as_ref().map(|_| Vec::new()).map_err(Clone::clone);
            *fault = Arc::new(Fault { submissions: Vec::new(), log, ..Fault::clone(fault) });
        }
    }

    /// Why the submission with this value never ended, if it did not.
    fn lost_at(&self, value: u64) -> Option<&Arc<Fault>> {
        let at = self.lost.partition_point(|lost| lost.through < value);
        self.lost.get(at).filter(|lost| lost.after < value).map(|lost| &lost.fault)
    }
}

/// The channels of a queue while they are open.
#[derive(Clone, Debug)]
pub(crate) struct OpenChannels {
    pub(crate) group: Arc<dyn ChannelGroup>,
    /// Rings of the compute and the copy channel.
    pub(crate) rings: [RingView; 2],
}

/// How a queue stands.
#[derive(Debug)]
#[cfg(feature = "reports")]
pub(crate) struct Snapshot {
    pub(crate) slot: usize,
    pub(crate) health: Health,
    pub(crate) policy: WaitPolicy,
    /// Value of the last submission.
    pub(crate) submitted: u64,
    /// Value that the GPU has released last, and when.
    pub(crate) timeline: u64,
    pub(crate) gpu_time_ns: u64,
    pub(crate) last_kernel: Option<String>,
    pub(crate) timed_out: bool,
    /// Whether fault and lost work could be read; else somebody is examining the queue.
    pub(crate) complete: bool,
    pub(crate) fault: Option<Arc<Fault>>,
    /// Values above the first up to the second that never ended.
    pub(crate) lost: Vec<(u64, u64, Arc<Fault>)>,
}

/// Explains why channels stopped or stay silent. Its implementation reads what the modules above queues know.
pub(crate) trait Explain: Debug + Send + Sync {
    /// The fault of a queue whose channels the kernel has stopped.
    fn fault(&self, queue: &QueueState, code: ErrorCode, channels: &OpenChannels) -> Fault;

    /// Writes a crash bundle about a wait that has timed out, if the user wants bundles.
    fn time_out(&self, queue: &QueueState, timeout: Duration, text: &str) -> Option<PathBuf>;
}

/// What a queue and its fences share.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) device: Arc<Shared>,
    heap: Arc<Heap>,
    explain: &'static dyn Explain,
    /// Index of the queue's timeline.
    pub(crate) slot: usize,
    pub(crate) timeline: Timeline,
    pub(crate) policy: WaitPolicy,
    /// Value of the last submission whose doorbell was rung.
    submitted: AtomicU64,
    /// Code address of the kernel launched last.
    last_kernel: AtomicU64,
    /// The largest value for which a wait has run out; 0 when none has. Until the timeline gets there, the queue
    /// hangs.
    timed_out: AtomicU64,
    health: AtomicU8,
    /// There is lost work: a value of the timeline alone does not say that a submission has ended well.
    has_lost: AtomicBool,
    trouble: Mutex<Trouble>,
    /// The bundle about the last wait that has run out, and the value that was waited for.
    timeout_bundle: Mutex<Option<(u64, PathBuf)>>,
    // Always `Some` until `drop` or a failed rebuild takes them.
    channels: Mutex<Option<OpenChannels>>,
}

impl QueueState {
    pub(crate) fn new(
        device: &Arc<Shared>,
        slot: usize,
        policy: WaitPolicy,
        channels: OpenChannels,
        explain: &'static dyn Explain,
    ) -> Self {
        let heap = Arc::clone(device.heap());
        let timeline = heap.timeline(slot);
        Self {
            device: Arc::clone(device),
            heap,
            explain,
            slot,
            timeline,
            policy,
            submitted: AtomicU64::new(timeline.value()),
            last_kernel: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            health: AtomicU8::new(Health::Working as u8),
            has_lost: AtomicBool::new(false),
            trouble: Mutex::default(),
            timeout_bundle: Mutex::default(),
            channels: Mutex::new(Some(channels)),
        }
    }

    /// Reads the timeline.
    #[inline]
    pub(crate) fn look(&self) -> u64 {
        self.heap.look(self.slot)
    }

    /// The last value seen on the timeline.
    #[inline]
    pub(crate) fn seen(&self) -> u64 {
        self.heap.seen(self.slot)
    }

    /// Whether the timeline has reached `value`. What was written before is then visible.
    #[inline]
    pub(crate) fn reached(&self, value: u64) -> bool {
        self.heap.reached(self.slot, value)
    }

    /// The device's memory and timelines.
    #[inline]
    pub(crate) fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    #[inline]
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_submitted(&self, value: u64) {
        self.submitted.store(value, Ordering::Release);
    }

    #[inline]
    pub(crate) fn set_last_kernel(&self, code_va: u64) {
        self.last_kernel.store(code_va, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn health(&self) -> Health {
        match self.health.load(Ordering::Acquire) {
            0 => Health::Working,
            1 => Health::Faulted,
            _ => Health::Forgiven,
        }
    }

    /// Whether a wait for the queue has run out, and what it was for has not ended since.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.look() < self.timed_out.load(Ordering::Relaxed)
    }

    /// The open channels, if there are any.
    pub(crate) fn channels(&self) -> Option<OpenChannels> {
        lock(&self.channels).clone()
    }

    /// Waits until the submission with timeline value `value` has ended.
    #[inline]
    pub(crate) fn wait(&self, value: u64, timeout: Duration) -> Result<()> {
        if self.seen() >= value {
            return self.ended(value);
        }
        if self.spin(value, SPINS) {
            return self.ended(value);
        }
        self.wait_long(value, timeout)
    }

    /// Looks at the timeline up to `times` times; whether it has reached `value`.
    #[inline]
    fn spin(&self, value: u64, times: u32) -> bool {
        for _ in 0..times {
            if self.look() >= value {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    /// What became of a submission whose value has passed.
    #[inline]
    fn ended(&self, value: u64) -> Result<()> {
        if self.has_lost.load(Ordering::Acquire)
            && let Some(fault) = lock(&self.trouble).lost_at(value)
        {
            return Err(Error::Fault(Arc::clone(fault)));
        }
        Ok(())
    }

    #[cold]
    fn wait_long(&self, value: u64, timeout: Duration) -> Result<()> {
        if value > self.submitted() {
            return Err(Error::NotSubmitted);
        }
        let _span = tracing::trace_span!("wait", queue = self.slot, value, ?timeout).entered();
        let start = Instant::now();
        let mut looked = start;
        loop {
            if self.look() >= value {
                return self.ended(value);
            }
            let elapsed = start.elapsed();
            if looked.elapsed() >= LOOK || elapsed >= timeout {
                self.check()?;
                looked = Instant::now();
            }
            let seen = self.timeline.value();
            if elapsed >= timeout && seen < value {
                return Err(self.time_out(value, seen, timeout, None));
            }
            if self.policy == WaitPolicy::Spin && elapsed < SPIN_FOR {
                self.spin(value, LOOKS);
            } else if self.policy == WaitPolicy::Spin || elapsed < YIELD_FOR {
                std::thread::yield_now();
            } else {
                self.sleep(SLEEP.min(timeout - elapsed));
            }
        }
    }

    /// What became of a submission, if it has ended. Never waits.
    pub(crate) fn peek(&self, value: u64) -> Option<Result<()>> {
        if self.timeline.value() >= value {
            return Some(self.ended(value));
        }
        (value > self.submitted()).then_some(Err(Error::NotSubmitted))
    }

    /// Sleeps until the GPU reports something, at most for `longest`.
    pub(crate) fn sleep(&self, longest: Duration) {
        // The group is taken out of the lock, so that sleepers neither block each other nor a recovery.
        let slept = self.channels().is_some_and(|channels| channels.group.sleep(longest));
        if !slept {
            std::thread::sleep(longest.min(Duration::from_micros(100)));
        }
    }

    /// Fails when the kernel has stopped the channels.
    pub(crate) fn check(&self) -> Result<()> {
        let mut trouble = lock(&self.trouble);
        if trouble.fault.is_none()
            && self.health() == Health::Working
            && let Some(channels) = self.channels()
            && let Some(code) = channels.group.error()
        {
            trouble.fault = Some(Arc::new(self.explain.fault(self, code, &channels)));
            self.health.store(Health::Faulted as u8, Ordering::Release);
        }
        if self.health() == Health::Forgiven {
            self.lose(&mut trouble, self.submitted());
        }
        match &trouble.fault {
            Some(fault) if self.health() == Health::Faulted => Err(Error::Fault(Arc::clone(fault))),
            _ => Ok(()),
        }
    }

    pub(crate) fn last_location(&self) -> Option<CodeLocation> {
        match self.last_kernel.load(Ordering::Relaxed) {
            0 => None,
            va => self.device.locate(va),
        }
    }

    /// The error of a wait that has run out; `reason` is what the caller knows about it.
    pub(crate) fn time_out(&self, wanted: u64, seen: u64, timeout: Duration, reason: Option<&str>) -> Error {
        self.timed_out.fetch_max(wanted, Ordering::Relaxed);
        let mut cause = self.describe_silence();
        if let Some(reason) = reason {
            cause = format!("{reason}; {cause}");
        }
        // One bundle for each submission: a wait is often repeated.
        let mut told = lock(&self.timeout_bundle);
        if told.as_ref().is_none_or(|(value, _)| *value != wanted) {
            let text = format!("waited for timeline value {wanted}, saw {seen}: {cause}");
            *told = self.explain.time_out(self, timeout, &text).map(|path| (wanted, path));
        }
        if let Some((_, path)) = &*told {
            cause.push_str("; crash bundle: ");
            cause.push_str(&path.display().to_string());
        }
        tracing::debug!(queue = self.slot, wanted, seen, ?timeout, cause, "wait has run out");
        Error::Timeout { timeout, wanted, seen, cause }
    }

    /// How the queue stands, for a report. Never waits for whoever examines the queue.
    #[cfg(feature = "reports")]
    pub(crate) fn snapshot(&self) -> Snapshot {
        let trouble = match self.trouble.try_lock() {
            Ok(trouble) => Some(trouble),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        };
        let lost = |lost: &Lost| (lost.after, lost.through, Arc::clone(&lost.fault));
        Snapshot {
            slot: self.slot,
            health: self.health(),
            policy: self.policy,
            submitted: self.submitted(),
            timeline: self.timeline.value(),
            gpu_time_ns: self.timeline.timestamp(),
            last_kernel: self.last_location().map(|location| location.kernel),
            timed_out: self.has_timed_out(),
            complete: trouble.is_some(),
            fault: trouble.as_ref().and_then(|trouble| trouble.fault.clone()),
            lost: trouble.map_or_else(Vec::new, |trouble| trouble.lost.iter().map(lost).collect()),
        }
    }

    /// What can be told about a GPU that neither finishes nor faults.
    fn describe_silence(&self) -> String {
        let kernel = match self.last_location() {
            Some(location) => format!("kernel {}, launched last, is still running", location.kernel),
            None => "no kernel was launched".to_owned(),
        };
        // Reports about channels that were stopped are left to those who explain their ends.
        let log = match self.device.kernel_log_rest() {
            Ok(lines) if lines.is_empty() => "the kernel log is silent".to_owned(),
            Ok(lines) => format!("the kernel log says: {}", lines.join(" | ")),
            Err(reason) => format!("the kernel log cannot be read: {reason}"),
        };
        format!("no error notifier is set; {kernel}; {log}")
    }

    /// Whether waiting for the rest of the work makes sense.
    pub(crate) fn may_finish(&self) -> bool {
        !self.has_timed_out() && self.health() == Health::Working && self.check().is_ok()
    }

    /// Stops the channels for good and lets everything pass that they never finished. The fences of that
    /// work report `fault`.
    pub(crate) fn forgive(&self, make_fault: impl FnOnce() -> Fault) -> Result<()> {
        let mut trouble = lock(&self.trouble);
        if let Some(channels) = self.channels() {
            channels.group.abort()?;
        }
        let fault = trouble.fault.take().unwrap_or_else(|| Arc::new(make_fault()));
        let (after, through) = (self.timeline.value(), self.submitted());
        // Also where nothing is lost so far: what is submitted until the queue has new channels is.
        trouble.add_lost(Lost { after, through, fault });
        self.has_lost.store(true, Ordering::Release);
        self.health.store(Health::Forgiven as u8, Ordering::Release);
        // The GPU no longer writes it.
        self.timeline.set(through);
        Ok(())
    }

    /// Lets work up to `through` pass that was submitted to channels which a recovery had stopped.
    fn lose(&self, trouble: &mut Trouble, through: u64) {
        if let Some(last) = trouble.lost.last_mut().filter(|last| last.through < through) {
            last.through = through;
            self.timeline.set(through);
        }
    }

    /// Replaces the channels of a forgiven queue. `self` belongs to the queue that calls.
    pub(crate) fn adopt(&self, channels: OpenChannels) {
        let mut trouble = lock(&self.trouble);
        *lock(&self.channels) = Some(channels);
        // What was encoded or submitted after the recovery began never ran either, and objects have
        // noted its values.
        let through = self.submitted() + 1;
        self.set_submitted(through);
        self.lose(&mut trouble, through);
        self.health.store(Health::Working as u8, Ordering::Release);
    }
}

impl Progress for QueueState {
    fn wait(&self, value: u64, timeout: Duration) -> Result<()> {
        self.wait(value, timeout)
    }

    fn peek(&self, value: u64) -> Option<Result<()>> {
        self.peek(value)
    }

    fn check(&self) -> Result<()> {
        self.check()
    }

    fn value(&self) -> u64 {
        self.timeline.value()
    }

    fn spins(&self) -> bool {
        self.policy == WaitPolicy::Spin
    }

    fn sleep(&self, longest: Duration) {
        self.sleep(longest);
    }

    fn time_out(&self, wanted: u64, seen: u64, timeout: Duration) -> Error {
        self.time_out(wanted, seen, timeout, None)
    }
}

impl Drop for QueueState {
    fn drop(&mut self) {
        // Closing the channels ends their work, finished or not: from here on nothing of the queue
        // touches memory, so its timeline may pass everything that was ever handed out, which is at
        // most one value beyond the last submission.
        *lock(&self.channels) = None;
        self.timeline.set(self.submitted() + 1);
        self.heap.release_queue(self.slot);
        self.heap.sweep();
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
    #[inline]
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.state.wait(self.value, timeout)
    }

    /// Whether the submission has ended, well or (after [`Device::recover`](crate::Device::recover))
    /// not; [`Fence::wait`] tells which.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state.reached(self.value)
    }

    /// GPU time of the queue's last completed submission, in nanoseconds of the GPU's own clock:
    /// the one of this submission as long as it is the queue's newest.
    pub fn gpu_time_ns(&self) -> u64 {
        self.state.timeline.timestamp()
    }
}
