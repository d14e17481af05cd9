//! The part of a queue that its fences use: bounded waits for the GPU.
//!
//! A wait first spins on the timeline (a cached line; a launch ends within microseconds), then yields, then sleeps in
//! the kernel until the GPU reports that work has finished. It checks the error notifier periodically, because a
//! channel that the kernel has stopped never reaches its value. A wake-up alone proves nothing, because the kernel also
//! wakes waiters of dead channels; only the timeline's value counts.

use core::fmt::{self, Debug};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_hal::{ChannelGroup, ErrorCode, RingView};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::fault::{CodeLocation, Fault};
use crate::heap::Heap;
use crate::heap::timeline::Progress;
use crate::heap::timeline::Timeline;
use crate::interrupt::Interrupts;
use crate::limits::{LOOK, SPINS, YIELD_FOR};
use crate::shared::Shared;

/// Number of timeline reads between two later clock reads.
const LOOKS: u32 = 32;
/// How long a wait that never sleeps spins without yielding.
const SPIN_FOR: Duration = Duration::from_millis(1);
/// Longest sleep between two checks of timeline and notifier.
const SLEEP: Duration = Duration::from_millis(5);

/// How the CPU waits for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitPolicy {
    /// Spin briefly, then sleep until an interrupt of the GPU. Each submission raises one interrupt.
    #[default]
    Sleep,
    /// Keep spinning: lowest latency, no interrupts, one core busy. A wait longer than a millisecond yields to other
    /// threads between two reads; it makes no other system call.
    Spin,
}

/// State of the channels of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Health {
    /// No fault is known.
    Working = 0,
    /// The kernel has stopped them.
    Faulted = 1,
    /// `Device::recover` has stopped them; the queue opens new channels at its next use.
    Forgiven = 2,
}

/// Number of reports about lost work that a queue keeps with log and commands; older reports keep the rest.
const WHOLE_REPORTS: usize = 16;

/// Work that will never end: the timeline values above `after` up to and including `through`.
#[derive(Clone, Debug)]
struct Lost {
    after: u64,
    through: u64,
    fault: Arc<Fault>,
}

/// Faults and lost work of a queue.
#[derive(Debug, Default)]
struct Trouble {
    /// Why the current channels were stopped.
    fault: Option<Arc<Fault>>,
    /// Unfinished work of earlier channels, in the order of the timeline values.
    lost: Vec<Lost>,
}

impl Trouble {
    /// Adds lost work. Fences may query it as long as the queue exists, so entries are never removed; old entries lose
    /// the parts that take much memory.
    fn add_lost(&mut self, lost: Lost) {
        self.lost.push(lost);
        if let Some(old) = self.lost.len().checked_sub(WHOLE_REPORTS + 1) {
            let fault = &mut self.lost[old].fault;
            let log = fault.log.as_ref().map(|_| Vec::new()).map_err(Clone::clone);
            *fault = Arc::new(Fault { submissions: Vec::new(), log, ..Fault::clone(fault) });
        }
    }

    /// Why the submission with this value never ended; `None` if it was not lost.
    fn lost_at(&self, value: u64) -> Option<&Arc<Fault>> {
        let at = self.lost.partition_point(|lost| lost.through < value);
        self.lost.get(at).filter(|lost| lost.after < value).map(|lost| &lost.fault)
    }
}

/// The channels of a queue while they are open.
#[derive(Clone, Debug)]
pub(crate) struct OpenChannels {
    /// Rings of the compute and the copy channel, and of the channel for copies between GPUs once it is open. Shared,
    /// because waits clone the channels.
    pub(crate) rings: Arc<[RingView]>,
    pub(crate) group: Arc<dyn ChannelGroup>,
}

/// State of a queue.
#[derive(Debug)]
#[cfg(feature = "reports")]
pub(crate) struct Snapshot {
    pub(crate) slot: usize,
    pub(crate) health: Health,
    pub(crate) policy: WaitPolicy,
    /// Value of the last submission.
    pub(crate) submitted: u64,
    /// Last value that the GPU has released, and its time.
    pub(crate) timeline: u64,
    pub(crate) gpu_time_ns: u64,
    pub(crate) last_kernel: Option<String>,
    pub(crate) timed_out: bool,
    /// Whether fault and lost work could be read; `false` if another thread is examining the queue.
    pub(crate) complete: bool,
    pub(crate) fault: Option<Arc<Fault>>,
    /// Ranges of values that never ended: above the first, up to and including the second.
    pub(crate) lost: Vec<(u64, u64, Arc<Fault>)>,
}

/// Explains why channels stopped or make no progress. Implemented above the queues, because it reads their data.
pub(crate) trait Explain: Debug + Send + Sync {
    /// The fault of a queue whose channels the kernel has stopped.
    fn fault(&self, queue: &QueueState, code: ErrorCode, channels: &OpenChannels) -> Fault;

    /// Writes a crash bundle about a wait that has timed out, if bundles are enabled.
    fn time_out(&self, queue: &QueueState, timeout: Duration, text: &str) -> Option<PathBuf>;
}

/// State shared by a queue and its fences.
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
    /// Code address of the most recently launched kernel.
    last_kernel: AtomicU64,
    /// The counter of the last fence file that the queue waits for, and the value in the upper half; 0 for none.
    awaited: AtomicU64,
    /// The largest value for which a wait has timed out or was interrupted; 0 if there is none. The queue counts as
    /// hanging until its timeline reaches the value.
    timed_out: AtomicU64,
    health: AtomicU8,
    /// Whether there is more to do at the end of a wait: there is lost work, so a timeline value alone does not prove
    /// that a submission has succeeded, or kernels may have printed.
    has_more: AtomicBool,
    trouble: Mutex<Trouble>,
    /// The bundle about the last wait that timed out, and the value that was waited for.
    timeout_bundle: Mutex<Option<(u64, PathBuf)>>,
    // `Some` until `drop` or a failed rebuild takes the channels.
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
            awaited: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            health: AtomicU8::new(Health::Working as u8),
            has_more: AtomicBool::new(device.heap().has_output()),
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

    /// The most recent value seen on the timeline.
    #[inline]
    pub(crate) fn seen(&self) -> u64 {
        self.heap.seen(self.slot)
    }

    /// Whether the timeline has reached `value`. Writes made before the release are then visible.
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

    /// Records a wait of the queue for a fence as a file.
    pub(crate) fn set_awaited(&self, id: u32, value: u32) {
        self.awaited.store(u64::from(value) << 32 | u64::from(id), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn health(&self) -> Health {
        match self.health.load(Ordering::Acquire) {
            0 => Health::Working,
            1 => Health::Faulted,
            _ => Health::Forgiven,
        }
    }

    /// Whether a wait for the queue has timed out and the work has still not ended.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.look() < self.timed_out.load(Ordering::Relaxed)
    }

    /// The open channels; `None` if they are closed.
    pub(crate) fn channels(&self) -> Option<OpenChannels> {
        self.channels.lock().clone()
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

    /// Reads the timeline up to `times` times; returns whether it has reached `value`.
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

    /// The outcome of a submission whose value has passed.
    #[inline]
    fn ended(&self, value: u64) -> Result<()> {
        if self.has_more.load(Ordering::Acquire) { self.ended_with_more(value) } else { Ok(()) }
    }

    #[cold]
    fn ended_with_more(&self, value: u64) -> Result<()> {
        self.heap.drain();
        match self.trouble.lock().lost_at(value) {
            Some(fault) => Err(Error::Fault(Arc::clone(fault))),
            None => Ok(()),
        }
    }

    #[cold]
    fn wait_long(&self, value: u64, timeout: Duration) -> Result<()> {
        if value > self.submitted() {
            return Err(Error::NotSubmitted);
        }
        let _span = tracing::trace_span!("wait", queue = self.slot, value, ?timeout).entered();
        let start = Instant::now();
        let (mut looked, mut interrupts) = (start, Interrupts::since(start));
        loop {
            if self.look() >= value {
                return self.ended(value);
            }
            if let Err(interrupted) = interrupts.check() {
                self.timed_out.fetch_max(value, Ordering::Relaxed);
                return Err(interrupted);
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

    /// The outcome of a submission; `None` while it runs. Never blocks.
    pub(crate) fn peek(&self, value: u64) -> Option<Result<()>> {
        if self.timeline.value() >= value {
            return Some(self.ended(value));
        }
        (value > self.submitted()).then_some(Err(Error::NotSubmitted))
    }

    /// Sleeps until the GPU reports an event, for at most `longest`.
    pub(crate) fn sleep(&self, longest: Duration) {
        // The group is cloned out of the lock, so sleepers block neither each other nor a recovery.
        let slept = self.channels().is_some_and(|channels| channels.group.sleep(longest));
        if !slept {
            std::thread::sleep(longest.min(Duration::from_micros(100)));
        }
    }

    /// Returns an error if the kernel has stopped the channels.
    pub(crate) fn check(&self) -> Result<()> {
        let mut trouble = self.trouble.lock();
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

    /// The error of a wait that has timed out; `reason` is the cause as known to the caller.
    pub(crate) fn time_out(&self, wanted: u64, seen: u64, timeout: Duration, reason: Option<&str>) -> Error {
        self.timed_out.fetch_max(wanted, Ordering::Relaxed);
        let mut cause = self.describe_silence();
        if let Some(reason) = reason {
            cause = format!("{reason}; {cause}");
        }
        // One bundle per submission, because waits are often repeated.
        let mut reported = self.timeout_bundle.lock();
        if reported.as_ref().is_none_or(|(value, _)| *value != wanted) {
            let text = format!("waited for timeline value {wanted}, saw {seen}: {cause}");
            *reported = self.explain.time_out(self, timeout, &text).map(|path| (wanted, path));
        }
        if let Some((_, path)) = &*reported {
            cause.push_str("; crash bundle: ");
            cause.push_str(&path.display().to_string());
        }
        tracing::debug!(queue = self.slot, wanted, seen, ?timeout, cause, "wait timed out");
        Error::Timeout { timeout, wanted, seen, cause }
    }

    /// State of the queue, for a report. Never blocks on a thread that examines the queue.
    #[cfg(feature = "reports")]
    pub(crate) fn snapshot(&self) -> Snapshot {
        let trouble = self.trouble.try_lock();
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

    /// Describes a GPU that neither finishes nor faults.
    fn describe_silence(&self) -> String {
        let kernel = match self.last_location() {
            Some(location) => format!("kernel {}, launched last, is still running", location.kernel),
            None => "no kernel was launched".to_owned(),
        };
        // Log reports about stopped channels are left for the code that explains their faults.
        let log = match self.device.kernel_log_rest() {
            Ok(lines) if lines.is_empty() => "the kernel log has no lines about the GPU".to_owned(),
            Ok(lines) => format!("kernel log: {}", lines.join(" | ")),
            Err(reason) => format!("the kernel log cannot be read: {reason}"),
        };
        let awaited = match self.awaited.load(Ordering::Relaxed) {
            0 => String::new(),
            // CAST: two halves.
            both => format!(
                "; the queue was told to wait for a fence as a file: value {} of syncpoint {}, whose producer may \
                 not have signalled",
                both >> 32,
                both as u32
            ),
        };
        format!("no error notifier is set; {kernel}{awaited}; {log}")
    }

    /// Whether the remaining work can still end.
    pub(crate) fn may_finish(&self) -> bool {
        !self.has_timed_out() && self.health() == Health::Working && self.check().is_ok()
    }

    /// Stops the channels permanently and completes the timeline past their unfinished work. The fences of that work
    /// report `fault`.
    pub(crate) fn forgive(&self, make_fault: impl FnOnce() -> Fault) -> Result<()> {
        let mut trouble = self.trouble.lock();
        if let Some(channels) = self.channels() {
            channels.group.abort()?;
        }
        let fault = trouble.fault.take().unwrap_or_else(|| Arc::new(make_fault()));
        let (after, through) = (self.timeline.value(), self.submitted());
        // Needed even if nothing is lost yet: submissions are lost until the queue has new channels.
        trouble.add_lost(Lost { after, through, fault });
        self.has_more.store(true, Ordering::Release);
        self.health.store(Health::Forgiven as u8, Ordering::Release);
        // The GPU no longer writes it.
        self.timeline.set(through);
        Ok(())
    }

    /// Completes the timeline up to `through` for work that was submitted to channels stopped by a recovery.
    fn lose(&self, trouble: &mut Trouble, through: u64) {
        if let Some(last) = trouble.lost.last_mut().filter(|last| last.through < through) {
            last.through = through;
            self.timeline.set(through);
        }
    }

    /// Adds the ring of a channel that was opened later.
    pub(crate) fn add_ring(&self, ring: RingView) {
        if let Some(channels) = &mut *self.channels.lock() {
            channels.rings = channels.rings.iter().cloned().chain([ring]).collect();
        }
    }

    /// Replaces the channels after a recovery. The caller is the queue that owns `self`.
    pub(crate) fn adopt(&self, channels: OpenChannels) {
        let mut trouble = self.trouble.lock();
        *self.channels.lock() = Some(channels);
        // Work encoded or submitted after the start of the recovery did not run either, and objects have
        // recorded its values.
        let through = self.submitted() + 1;
        self.set_submitted(through);
        self.lose(&mut trouble, through);
        self.health.store(Health::Working as u8, Ordering::Release);
    }
}

impl Debug for QueueState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("number", &self.slot)
            .field("wait", &self.policy)
            .field("health", &self.health())
            .field("submitted", &self.submitted())
            .field("done", &self.timeline.value())
            .finish_non_exhaustive()
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

    fn expect_output(&self) {
        self.has_more.store(true, Ordering::Release);
    }

    fn time_out(&self, wanted: u64, seen: u64, timeout: Duration) -> Error {
        self.time_out(wanted, seen, timeout, None)
    }
}

impl Drop for QueueState {
    fn drop(&mut self) {
        if let Some(channels) = self.channels.lock().take() {
            // The kernel cannot take unfinished work off the engine without preemption, and closing its channels then
            // leaves the engine stuck. A reset does not depend on preemption.
            if self.health() == Health::Working
                && self.timeline.value() < self.submitted()
                && let Err(error) = channels.group.abort()
            {
                tracing::warn!(queue = self.slot, %error, "unfinished work is closed without a reset");
            }
        }
        // Closing the channels ends their work, finished or not. After that the queue accesses no memory, so its
        // timeline may pass every value ever handed out: at most one beyond the last submission.
        self.timeline.set(self.submitted() + 1);
        self.heap.release_queue(self.slot);
        self.heap.sweep_all();
    }
}

/// The end of a submission.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// # let program = tegra_hcq::Program::load(&device, cubin)?;
/// # type VectorAdd = (&'static [f32], &'static [f32], &'static mut [f32], tegra_hcq::Count<u32>);
/// # // SAFETY: reads a[i] and b[i] and writes c[i] for i < n.
/// # let add = unsafe { program.typed::<VectorAdd>("vector_add")? };
/// # let (a, b) = (device.alloc_from(&[1.0_f32; 256])?, device.alloc_from(&[2.0_f32; 256])?);
/// # let mut c = device.alloc::<f32>(256)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// add.launch(&mut queue, 1, 256, (&a, &b, &mut c, 256))?;
/// let fence = queue.submit()?;
/// // The CPU is free until here.
/// fence.wait(timeout)?;
/// assert!(fence.is_done());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone)]
pub struct Fence {
    pub(crate) state: Arc<QueueState>,
    pub(crate) value: u64,
}

impl Fence {
    /// Waits until the submission has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Fault`] if the GPU stopped the submission. [`Error::Timeout`] if it has not ended within `timeout`; it
    /// may still end later.
    #[inline]
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.state.wait(self.value, timeout)
    }

    /// The fence of another submission of the same queue, by the value that [`Queue::send`](crate::Queue::send) has
    /// returned. A value that was not returned yet is refused by [`Fence::wait`].
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// let mut queue = device.queue()?;
    /// let (any, mut words) = (queue.submit()?, device.alloc_zeroed::<u32>(1)?);
    /// queue.fill(&mut words, 7)?;
    /// let value = queue.send()?;
    /// any.at(value).wait(tegra_hcq::DEFAULT_TIMEOUT)?;
    /// assert_eq!(words.to_vec()?, [7]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    #[must_use]
    pub fn at(&self, value: u64) -> Self {
        Self { state: Arc::clone(&self.state), value }
    }

    /// Becomes `other.at(value)`. That counts no references, with the locked instructions that this takes, if both are
    /// fences of one queue.
    #[inline]
    pub fn set_to(&mut self, other: &Self, value: u64) {
        if !Arc::ptr_eq(&self.state, &other.state) {
            self.state = Arc::clone(&other.state);
        }
        self.value = value;
    }

    /// Whether the submission has ended, successfully or (after [`Device::recover`](crate::Device::recover)) not;
    /// [`Fence::wait`] returns the outcome.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state.reached(self.value)
    }

    /// GPU time of the queue's last completed submission, in nanoseconds of the GPU's clock. It is the time of this
    /// submission while that is the queue's newest.
    pub fn gpu_time_ns(&self) -> u64 {
        self.state.timeline.timestamp()
    }
}

impl Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("queue", &self.state.slot)
            .field("value", &self.value)
            .field("done", &self.is_done())
            .finish()
    }
}
