//! Records what the GPU runs and when.
//!
//! The descriptor of each launch writes the GPU's time when its grid has ended (the release of a descriptor, with time
//! stamp). A launch that is chained to another begins when that one ends, so a chain needs no other stamp and is not
//! interrupted. Work that begins otherwise gets a release of the host engine before it, which waits for the engine to
//! be idle (`SEM_EXECUTE` of class C76F with RELEASE_TIMESTAMP); copies and fills get one after as well. The
//! descriptors of a graph write their times to memory of the graph's instance.
//!
//! The stamps are in slots of a ring. A slot is read after the timeline has passed its submission, and reused only
//! then; if no slot is free, the call waits for the oldest. Slots are cleared before use, which distinguishes work that
//! a fault cut off from work that ended.

use core::sync::atomic::{Ordering, fence};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ampere_cmd::command::{Payload, SemaphoreRelease};
use parking_lot::Mutex;

use super::Queue;
use super::schedule::Engine;
use crate::error::{Error, Result};
use crate::heap::{Content, Mapped};
use crate::launch::record::{Record, Release};
use crate::launch::shape::Shape;
use crate::limits::{DEFAULT_TIMEOUT, Dim3};
use crate::profile::clock::{self, Conversion, Pair};
use crate::profile::collect;
use crate::profile::{Profile, Range, Span, Unfinished, Work};
use crate::program::Kernel;
use crate::shared::Shared;
use crate::wait::Health;
use gpu_hal::MemoryUse;

/// Number of operations whose times the GPU may still have to write.
const SLOTS: usize = 4096;
/// Longest delay of a time stamp after the timeline's value.
const STAMP_TIMEOUT: Duration = Duration::from_millis(2);
/// Two releases of 16 bytes: value and time at the start, then value and time at the end.
const SLOT_BYTES: usize = 32;

/// What was recorded. Launches are described when they are taken: a reference is cheaper than a copied name.
#[derive(Debug)]
enum Recorded {
    Launch(Kernel, Dim3, Dim3),
    Other(Work),
}

impl Recorded {
    fn work(self) -> Work {
        match self {
            Self::Launch(kernel, grid, block) => {
                Work::Launch { kernel: kernel.name().to_owned(), grid, block }
            }
            Self::Other(work) => work,
        }
    }
}

/// An operation whose times have not been read yet.
#[derive(Debug)]
struct Pending {
    work: Recorded,
    slot: usize,
    /// Whether it begins when the operation before it ends, as a chained launch does.
    follows: bool,
    called: u64,
    /// 0 if not known yet.
    encoded: u64,
    /// 0 until just before the doorbell.
    submitted: u64,
    /// Timeline value released after the end time stamp.
    value: u64,
    /// The stamps of a graph's steps, instead of an end in the slot.
    steps: Option<Steps>,
}

/// The time stamps of the steps of one replay.
#[derive(Debug)]
pub(crate) struct Steps {
    /// A release of 16 bytes per step. A graph does not reuse it while it is referred to here.
    pub(crate) stamps: Arc<Mapped>,
    /// Kernel, grid and block of each step.
    pub(crate) launches: Arc<[(Kernel, Dim3, Dim3)]>,
}

/// Size of the time stamp of a step, in bytes.
pub(crate) const STEP_BYTES: usize = 16;

impl Steps {
    /// Reads the time stamps; empty if one is missing.
    fn read(&self, over: bool) -> Vec<u64> {
        let time = |step| {
            // SAFETY: the graph has allocated a release per launch, each 16 bytes with the time in its second half.
            let stamp = unsafe { self.stamps.cpu().add(step * STEP_BYTES + 8) }.cast::<u64>();
            Some(read_stamp(stamp, over)).filter(|time| *time != 0)
        };
        (0..self.launches.len()).map(time).collect::<Option<_>>().unwrap_or_default()
    }
}

/// An operation with the times that the GPU wrote, by the GPU's clock.
#[derive(Debug)]
struct Ended {
    pending: Pending,
    start: u64,
    end: u64,
    /// Ends of the steps of a graph.
    steps: Vec<u64>,
}

/// A named range of the program.
#[derive(Debug)]
struct Named {
    number: u64,
    name: String,
    called: u64,
    /// 0 until it ends.
    ended: u64,
}

/// The named ranges of a queue.
type Ranges = Arc<Mutex<Vec<Named>>>;

/// A range of the program in the profile of a queue; see [`Queue::span`]. It ends when this is dropped.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// queue.profile(true)?;
/// {
///     let _step = queue.span("step 1");
///     // Calls of the queue. The range ends with the guard.
/// }
/// assert_eq!(queue.take_profile()?.ranges.len(), 1);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct SpanGuard(Option<(Ranges, u64)>);

impl Drop for SpanGuard {
    fn drop(&mut self) {
        if let Some((ranges, number)) = &self.0 {
            let mut ranges = ranges.lock();
            if let Some(range) = ranges.iter_mut().rfind(|range| range.number == *number) {
                range.ended = clock::now();
            }
        }
    }
}

/// Recording of a queue.
#[derive(Debug, Default)]
pub(crate) struct Profiling {
    /// Whether launches, copies, fills and replays are being recorded.
    pub(crate) enabled: bool,
    recorder: Option<Box<Recorder>>,
}

impl Profiling {
    /// Whether anything was recorded; it may be submitted after recording is switched off.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.recorder.is_some()
    }
}

/// Recorded operations that have not been returned.
#[derive(Debug)]
struct Recorder {
    memory: Mapped,
    /// Slot of the next operation.
    next: usize,
    /// An operation that has started and whose end is not encoded.
    open: Option<Pending>,
    pending: VecDeque<Pending>,
    ended: Vec<Ended>,
    unfinished: Vec<Pending>,
    ranges: Ranges,
    /// Number of operations that were read and not kept.
    left_out: usize,
    /// Number of the next range.
    next_range: u64,
    /// End of the last operation read, by the GPU's clock; 0 if it did not end.
    last_end: u64,
    /// Both clocks at the start of the recording, or when recorded operations were last taken.
    first: Pair,
}

impl Recorder {
    fn new(device: &Arc<Shared>) -> Result<Self> {
        let bytes = (SLOTS * SLOT_BYTES) as u64;
        Ok(Self {
            memory: device.allocate_mapped(bytes, MemoryUse::ReadBack, Content::Profile)?,
            next: 0,
            open: None,
            pending: VecDeque::with_capacity(SLOTS),
            ended: Vec::new(),
            unfinished: Vec::new(),
            ranges: Ranges::default(),
            left_out: 0,
            next_range: 0,
            last_end: 0,
            first: clock::pair(device)?,
        })
    }

    fn is_full(&self) -> bool {
        self.pending.len() == SLOTS
    }

    /// The two time stamps of a slot.
    fn stamps(&self, slot: usize) -> [*mut u64; 2] {
        assert!(slot < SLOTS);
        // SAFETY: the slot lies inside the ring's memory.
        let first = unsafe { self.memory.cpu().add(slot * SLOT_BYTES) }.cast::<u64>();
        // SAFETY: as above; each release writes its value, then its time.
        unsafe { [first.add(1), first.add(3)] }
    }

    /// Takes the next slot, which is free, for an operation that starts. Returns the address of its first release.
    fn begin(&mut self, work: Recorded, follows: bool, called: u64) -> u64 {
        let slot = self.next;
        for stamp in self.stamps(slot) {
            // SAFETY: inside the ring's memory, which `self` keeps alive; volatile, since the GPU writes it.
            unsafe { stamp.write_volatile(0) };
        }
        self.open =
            Some(Pending { work, slot, follows, called, encoded: 0, submitted: 0, value: 0, steps: None });
        self.memory.gpu_va() + (slot * SLOT_BYTES) as u64
    }

    /// Address of the second release of the operation that has started.
    fn end_va(&self) -> Option<u64> {
        let slot = self.open.as_ref()?.slot;
        Some(self.memory.gpu_va() + (slot * SLOT_BYTES + SLOT_BYTES / 2) as u64)
    }

    /// Records that the second release is encoded, in a batch that ends with `value`.
    fn end(&mut self, value: u64) {
        self.end_with(value, None);
    }

    /// As [`Recorder::end`]; with the stamps of a graph's steps, nothing else marks the end.
    fn end_with(&mut self, value: u64, steps: Option<Steps>) {
        if let Some(open) = self.open.take() {
            self.next = (open.slot + 1) % SLOTS;
            let encoded = if open.encoded == 0 { clock::now() } else { open.encoded };
            self.pending.push_back(Pending { encoded, value, steps, ..open });
        }
    }

    /// Reads the slots of submissions up to `seen`, or all slots if no more work will end.
    fn harvest(&mut self, seen: u64, all: bool) {
        // Work that was lost has no stamps: one wait shows that.
        let mut over = all;
        while self.pending.front().is_some_and(|oldest| all || oldest.value <= seen)
            && let Some(pending) = self.pending.pop_front()
        {
            fence(Ordering::Acquire);
            let [start, end] = self.stamps(pending.slot);
            let start = if pending.follows { self.last_end } else { read_stamp(start, over) };
            let lost = over || start == 0;
            let steps = pending.steps.as_ref().map_or_else(Vec::new, |steps| steps.read(lost));
            let end = match pending.steps {
                Some(_) => steps.last().copied().unwrap_or(0),
                None => read_stamp(end, lost),
            };
            over |= end == 0;
            self.last_end = end;
            if collect::is_on() && self.ended.len() >= collect::LIMIT {
                self.left_out += 1;
            } else if start != 0 && end != 0 {
                self.ended.push(Ended { pending, start, end, steps });
            } else {
                self.unfinished.push(pending);
            }
        }
    }

    /// Returns everything that was read.
    fn take(&mut self, queue: usize, last: Pair) -> Profile {
        let conversion = Conversion::new(self.first, last);
        self.first = last;
        let mut spans = Vec::with_capacity(self.ended.len());
        for Ended { pending, start, end, steps } in self.ended.drain(..) {
            let Pending { work, called, encoded, submitted, steps: described, .. } = pending;
            let span = |work, start, end, step| Span {
                work,
                queue,
                called,
                encoded,
                submitted,
                start: conversion.to_cpu(start),
                end: conversion.to_cpu(end),
                step,
            };
            spans.push(span(work.work(), start, end, None));
            let launches = described.iter().flat_map(|described| described.launches.iter());
            let mut start = start;
            for (step, ((kernel, grid, block), end)) in launches.zip(steps).enumerate() {
                let work = Recorded::Launch(kernel.clone(), *grid, *block).work();
                spans.push(span(work, start, end, Some(step)));
                start = end;
            }
        }
        let cut_off = |pending: Pending| Unfinished {
            work: pending.work.work(),
            queue,
            called: pending.called,
            submitted: (pending.submitted != 0).then_some(pending.submitted),
        };
        Profile {
            ranges: self.take_ranges(queue, &spans),
            spans,
            left_out: core::mem::take(&mut self.left_out),
            unfinished: self.unfinished.drain(..).map(cut_off).collect(),
        }
    }
}

impl Recorder {
    /// Takes the ranges that have ended, with the GPU times of the spans called within.
    fn take_ranges(&self, queue: usize, spans: &[Span]) -> Vec<Range> {
        let mut ranges = self.ranges.lock();
        let ended = ranges.extract_if(.., |range| range.ended != 0);
        let range = |Named { name, called, ended, .. }| {
            let within = || spans.iter().filter(|span| (called..=ended).contains(&span.called));
            let gpu = within().map(|span| span.start).min().zip(within().map(|span| span.end).max());
            Range { name, queue, called, ended, gpu }
        };
        ended.map(range).collect()
    }
}

/// Reads a time stamp of work that has ended; 0 if it never ended. A descriptor's stamp has no barrier of its own and
/// may arrive a moment after the timeline's value. With `over`, no stamp arrives any more.
fn read_stamp(stamp: *mut u64, over: bool) -> u64 {
    let begun = Instant::now();
    loop {
        // SAFETY: `Recorder::stamps` returned the pointer, and the recorder keeps its memory alive; volatile, since the
        // GPU writes it.
        let time = unsafe { stamp.read_volatile() };
        if time != 0 || over || begun.elapsed() > STAMP_TIMEOUT {
            return time;
        }
        core::hint::spin_loop();
    }
}

/// A release that writes the time after all earlier work has ended.
fn stamp(va: u64) -> SemaphoreRelease {
    SemaphoreRelease { va, payload: Payload::Bits64(1), wait_for_idle: true, timestamp: true }
}

impl Queue {
    /// Switches the recording of launches, copies, fills and graph replays on or off; see [`Queue::take_profile`].
    /// Operations recorded so far are kept.
    ///
    /// Launches remain chained: the descriptor of each writes the time at its end, and a chained launch begins when the
    /// one before it ends. Other operations wait for the previous one, which costs a few microseconds each, and a
    /// replay is submitted in two parts, without a change inside. Up to 4096 operations may be in flight; beyond that,
    /// calls wait for the oldest. Each recorded operation takes some hundred bytes until it is taken.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], or an error if the driver cannot read the clocks.
    pub fn profile(&mut self, enabled: bool) -> Result<()> {
        if enabled && self.profiling.recorder.is_none() {
            self.profiling.recorder = Some(Box::new(Recorder::new(&self.state.device)?));
        }
        self.profiling.enabled = enabled;
        Ok(())
    }

    /// Names the calls until the returned guard is dropped, for the profile: a range in the trace of [`Profile`], on
    /// the CPU and around the operations on the GPU. Ranges may be nested. Costs nothing while the queue does not
    /// record.
    ///
    /// ```
    /// # use tegra_hcq::{Device, DeviceKind};
    /// # fn main() -> tegra_hcq::Result<()> {
    /// # #[cfg(feature = "sim")] {
    /// # let device = Device::open(DeviceKind::Sim)?;
    /// let mut queue = device.queue()?;
    /// queue.profile(true)?;
    /// let mut data = device.alloc_zeroed::<u32>(1000)?;
    /// {
    ///     let _frame = queue.span("frame");
    ///     queue.fill(&mut data, 7)?;
    /// }
    /// let profile = queue.take_profile()?;
    /// assert_eq!(profile.ranges[0].name, "frame");
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    pub fn span(&mut self, name: impl Into<String>) -> SpanGuard {
        let Some(recorder) = self.profiling.recorder.as_mut().filter(|_| self.profiling.enabled) else {
            return SpanGuard(None);
        };
        let number = recorder.next_range;
        recorder.next_range += 1;
        let named = Named { number, name: name.into(), called: clock::now(), ended: 0 };
        recorder.ranges.lock().push(named);
        SpanGuard(Some((Arc::clone(&recorder.ranges), number)))
    }

    /// Adds the profile of a queue whose work has ended, or been lost, to that of the process.
    #[cold]
    pub(crate) fn collect(&mut self) {
        let (seen, queue) = (self.state.timeline.value(), self.state.slot);
        let Some(recorder) = &mut self.profiling.recorder else { return };
        recorder.harvest(seen, true);
        if let Ok(last) = clock::pair(&self.state.device) {
            collect::add(recorder.take(queue, last));
        }
    }

    /// Reads the time stamps of ended work, so that their memory can be reused.
    #[cold]
    pub(crate) fn read_spans(&mut self) {
        let seen = self.state.timeline.value();
        if let Some(recorder) = &mut self.profiling.recorder {
            recorder.harvest(seen, false);
        }
    }

    /// Records that the steps of the replay that has started write their times, before the timeline's `value`.
    #[cold]
    pub(crate) fn end_graph_span(&mut self, value: u64, steps: Steps) {
        if let Some(recorder) = &mut self.profiling.recorder {
            recorder.end_with(value, Some(steps));
        }
    }

    /// Submits and waits for the recorded operations, and returns them. Recording continues if it is on.
    ///
    /// Operations that a fault or [`Device::recover`](crate::Device::recover) has cut off are returned as unfinished
    /// and are not an error.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if the work does not end within [`DEFAULT_TIMEOUT`], or the driver's error if it cannot read
    /// the clocks. Nothing is lost in either case; a later call returns the operations.
    pub fn take_profile(&mut self) -> Result<Profile> {
        if self.profiling.recorder.is_none() {
            return Ok(Profile::default());
        }
        let over = match self.state.health() {
            Health::Working => match self.submit().and_then(|fence| fence.wait(DEFAULT_TIMEOUT)) {
                Ok(()) => false,
                Err(Error::Fault(_)) => true,
                Err(error) => return Err(error),
            },
            Health::Faulted | Health::Forgiven => true,
        };
        let seen = self.state.timeline.value();
        let last = clock::pair(&self.state.device)?;
        let queue = self.state.slot;
        Ok(self.profiling.recorder.as_mut().map_or_else(Profile::default, |recorder| {
            recorder.harvest(seen, over);
            recorder.take(queue, last)
        }))
    }

    /// Encodes the time stamp before an operation on `engine`.
    #[cold]
    pub(crate) fn begin_span(&mut self, engine: Engine, work: Work) -> Result<()> {
        self.begin_recorded(engine, Recorded::Other(work))
    }

    /// As [`Queue::begin_span`], for a launch. A launch that will be chained needs no time stamp before it.
    #[cold]
    pub(crate) fn begin_launch_span(&mut self, kernel: &Kernel, shape: &Shape) -> Result<()> {
        let work = Recorded::Launch(kernel.clone(), shape.grid, shape.block);
        if self.encodings.chain.is_some() && self.batch.stamped {
            let called = clock::now();
            self.make_span_room()?;
            // Room may have been made by a submission, which ends the chain.
            if self.batch.stamped
                && self.batch.chain_end.is_some()
                && let Some(recorder) = &mut self.profiling.recorder
            {
                recorder.begin(work, true, called);
                return Ok(());
            }
        }
        self.begin_recorded(Engine::Compute, work)
    }

    /// Makes the descriptor of a launch write the time at its end.
    #[cold]
    pub(crate) fn end_launch_span(&mut self, record: Record) -> Result<()> {
        if self.encodings.chain.is_none() {
            return self.end_span(Engine::Compute);
        }
        let Some(va) = self.profiling.recorder.as_ref().and_then(|recorder| recorder.end_va()) else {
            return Ok(());
        };
        self.records.release(record, Release::stamp(va))?;
        self.batch.stamped = true;
        self.note_recorder();
        let value = self.next_value();
        if let Some(recorder) = &mut self.profiling.recorder {
            recorder.end(value);
        }
        Ok(())
    }

    fn begin_recorded(&mut self, engine: Engine, work: Recorded) -> Result<()> {
        let called = clock::now();
        // Rebuilds a recovered queue before anything is encoded.
        self.begin(engine)?;
        self.make_span_room()?;
        self.begin(engine)?;
        let Some(recorder) = &mut self.profiling.recorder else { return Ok(()) };
        let release = stamp(recorder.begin(work, false, called));
        self.encode(|encoder| encoder.semaphore_release(&release))?;
        self.note_recorder();
        Ok(())
    }

    /// Encodes the time stamp after the operation that has started.
    #[cold]
    pub(crate) fn end_span(&mut self, engine: Engine) -> Result<()> {
        self.begin(engine)?;
        let Some(va) = self.profiling.recorder.as_ref().and_then(|recorder| recorder.end_va()) else {
            return Ok(());
        };
        self.encode(|encoder| encoder.semaphore_release(&stamp(va)))?;
        self.note_recorder();
        let value = self.next_value();
        if let Some(recorder) = &mut self.profiling.recorder {
            recorder.end(value);
        }
        Ok(())
    }

    /// Records the time just before the doorbell, for the operation that has started or else for all encoded ones.
    #[cold]
    pub(crate) fn stamp_spans(&mut self, begun: bool) {
        let now = clock::now();
        let Some(recorder) = &mut self.profiling.recorder else { return };
        if begun {
            if let Some(open) = &mut recorder.open {
                (open.encoded, open.submitted) = (now, now);
            }
            return;
        }
        for pending in recorder.pending.iter_mut().rev().take_while(|pending| pending.submitted == 0) {
            pending.submitted = now;
        }
    }

    /// Records that the open batch writes to the ring of slots.
    fn note_recorder(&self) {
        if let Some(recorder) = &self.profiling.recorder {
            self.note(&recorder.memory);
        }
    }

    /// Reads the oldest slots until one is free.
    fn make_span_room(&mut self) -> Result<()> {
        loop {
            let seen = self.state.timeline.value();
            let Some(recorder) = &mut self.profiling.recorder else { return Ok(()) };
            if !recorder.is_full() {
                return Ok(());
            }
            recorder.harvest(seen, false);
            if let Some(oldest) = recorder.pending.front().map(|oldest| oldest.value)
                && recorder.is_full()
            {
                if oldest > self.schedule.queued {
                    self.submit()?;
                }
                self.release_held();
                // The timeline also passes lost work; its cleared slots show that it never finished.
                match self.state.wait(oldest, DEFAULT_TIMEOUT) {
                    Err(Error::Fault(_)) if self.state.timeline.value() >= oldest => {}
                    result => result?,
                }
            }
        }
    }
}
