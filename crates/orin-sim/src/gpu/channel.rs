//! One channel: its GPFIFO ring, its pushbuffer, and the engines that its methods drive.
//!
//! Host fetches entries from GP_GET to GP_PUT and feeds the segments' words to the method decoder. It advances GP_GET
//! as soon as it has fetched an entry, so GP_GET does not indicate whether the entry's work is done. A method that
//! cannot execute yet, an acquire or a wait for idle, stays pending and is retried in the next slice. The engines run
//! asynchronously to host: a launch or a copy is queued and host continues immediately, as on silicon, so a missing
//! wait in the driver is visible in the model.
//!
//! The graphics runlist has one copy engine and one compute engine behind one host. When methods go to the other
//! engine, host first waits for idle (GA100 `dev_pbdma`).

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use ampere_cmd::gpfifo::{ENTRY_BYTES, Entry, Operation, userd};
use ampere_cmd::pushbuffer::{Header, MethodStream};
use parking_lot::{Mutex, MutexGuard};

use crate::check::{OrderCheck, Watch};
use crate::gpu::checksum;
use crate::gpu::compute::Compute;
use crate::gpu::copy::Copy;
use crate::gpu::decoder::MethodWord;
use crate::gpu::fetch::{Fetching, Pace, Words};
use crate::gpu::host::Host;
use crate::gpu::pointers::{Pointers, Remaining};
use crate::gpu::{
    Activity, ChannelFault, ChannelGroup, ChannelSetup, ChannelStatus, Effects, HostCheck, Preemption, Waiter,
};
use crate::mmu::View;
use crate::quirks::Quirks;
use crate::segments::SegmentWatcher;
use crate::sm::Sms;

/// Maximum number of pushbuffer words per slice.
const SLICE_WORDS: u32 = 8192;

/// The result of executing a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Executed.
    Done,
    /// Executed; later methods wait for the channel's next slice.
    Yield,
    /// The method waits, and has had no effect yet.
    Wait(Wait),
}

/// The condition that a method waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The engines are idle.
    Idle,
    /// A semaphore in memory, with the [`Activity`] to report.
    Semaphore {
        activity: Activity,
        /// Whether the TSG yields its time slice while waiting.
        switch_tsg: bool,
    },
}

/// The other channels of a channel's TSG, and whether they have work on the engines.
pub(super) struct Siblings<'a> {
    channel: &'a Channel,
    all: &'a [Arc<Channel>],
}

impl<'a> Siblings<'a> {
    /// `all` are the channels of the TSG, including `channel`.
    pub(super) fn new(channel: &'a Channel, all: &'a [Arc<Channel>]) -> Self {
        Self { channel, all }
    }

    fn any(&self, busy: impl Fn(&Channel) -> bool) -> bool {
        self.all.iter().any(|other| other.id != self.channel.id && busy(other))
    }

    /// Returns whether the compute engine works for another channel, of any subcontext or only of the same one.
    pub(super) fn are_computing(&self, any_veid: bool) -> bool {
        let veid = self.channel.group.veid;
        self.any(|other| other.computing.load(Ordering::Relaxed) && (any_veid || other.group.veid == veid))
    }

    /// Returns whether the copy engine, which has no subcontexts, works for another channel.
    pub(super) fn are_copying(&self) -> bool {
        self.any(|other| other.copying.load(Ordering::Relaxed))
    }
}

/// The pending work of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No pending work, or halted by a fault.
    Idle,
    /// Only a semaphore.
    Waiting(Waiter),
    /// Pending work.
    Busy,
}

/// The engines behind host.
#[derive(Debug)]
pub(super) struct Engines {
    pub(super) compute: Compute,
    pub(super) copy: Copy,
    /// Classes allowed by ALLOC_OBJ_CTX.
    pub(super) objects: Vec<u32>,
}

impl Engines {
    /// Returns whether the engines have no work left.
    pub(super) fn are_idle(&self) -> bool {
        self.compute.is_idle() && self.copy.is_idle()
    }
}

/// The result of a slice.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Whether progress was made.
    pub(super) moved: bool,
    /// The slice was skipped because another thread is inspecting the channel.
    pub(super) visited: bool,
    /// The channel waits for a semaphore and keeps the TSG's time slice.
    pub(super) held: bool,
    /// Whether to raise a non-stall interrupt.
    pub(super) interrupted: bool,
    /// The fault that halted the channel.
    pub(super) fault: Option<ChannelFault>,
}

/// A bound channel.
#[derive(Debug)]
pub(super) struct Channel {
    id: u32,
    group: ChannelGroup,
    /// Whether the compute engine has work of the channel, as of its last slice.
    computing: AtomicBool,
    /// Whether blocks of a grid are on the SMs, as of the last slice.
    has_blocks: AtomicBool,
    /// Whether blocks may not start because another TSG waits for the engine.
    yielding: AtomicBool,
    /// Whether blocks may not start because the kernel preempts the TSG.
    preempted: AtomicBool,
    /// Whether the copy engine has work of the channel, as of its last slice.
    copying: AtomicBool,
    /// Makes the current slice end early and prevents further slices.
    halted: AtomicBool,
    /// Temporarily removed from the runlist.
    disabled: AtomicBool,
    /// Whether a doorbell was rung and GP_PUT has not been read since.
    rung: AtomicBool,
    /// Number of threads that wait for `state`. The GPU's thread yields to them; otherwise it would retake the lock
    /// before they wake up.
    visitors: AtomicUsize,
    /// `None` after the channel has been stopped.
    state: Mutex<Option<Box<State>>>,
}

impl Channel {
    pub(super) fn new(
        setup: ChannelSetup,
        sms: Arc<Sms>,
        quirks: Arc<Quirks>,
        order: Option<&Arc<OrderCheck>>,
        fetching: Fetching,
    ) -> Self {
        let state = State {
            gp_get: 0,
            gp_put: 0,
            segment: None,
            pointers: Pointers::default(),
            sums: Sums::default(),
            stream: MethodStream::new(),
            stalled: None,
            host: Host::new(),
            engines: Engines {
                copy: Copy::new(sms.checker()),
                compute: Compute::new(sms, quirks),
                objects: Vec::new(),
            },
            faulted: false,
            watch: order.map(|order| order.channel(setup.channel_id)),
            pace: Pace::new(&fetching),
            segments: fetching.segments,
            setup,
        };
        Self {
            id: state.setup.channel_id,
            group: state.setup.group,
            computing: AtomicBool::new(false),
            has_blocks: AtomicBool::new(false),
            yielding: AtomicBool::new(false),
            preempted: AtomicBool::new(false),
            copying: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            disabled: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            visitors: AtomicUsize::new(0),
            state: Mutex::new(Some(Box::new(state))),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn group(&self) -> ChannelGroup {
        self.group
    }

    /// Makes the current slice the last one.
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Release);
    }

    /// Allows or prevents slices. Returns after the current slice.
    pub(super) fn set_enabled(&self, enabled: bool) {
        self.disabled.store(!enabled, Ordering::Release);
        if enabled {
            self.rung.store(true, Ordering::Relaxed);
        } else {
            drop(self.visit());
        }
    }

    /// Waits for the current slice and drops everything that the channel holds.
    pub(super) fn release(&self) {
        let state = self.visit().take();
        drop(state);
    }

    pub(super) fn add_object(&self, class: u32) {
        if let Some(state) = self.visit().as_mut() {
            state.engines.objects.push(class);
        }
    }

    pub(super) fn status(&self) -> Option<ChannelStatus> {
        self.visit().as_ref().map(|state| state.status())
    }

    /// Records that a doorbell was rung, if `rung` is set.
    pub(super) fn note_doorbell(&self, rung: bool) {
        if rung {
            self.rung.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the compute engine has work of the channel, as of its last slice, and may continue it.
    pub(super) fn is_computing(&self) -> bool {
        self.computing.load(Ordering::Relaxed)
            && !self.disabled.load(Ordering::Relaxed)
            && !self.halted.load(Ordering::Relaxed)
    }

    /// Returns whether blocks of the channel are on the SMs, as of its last slice.
    pub(super) fn has_blocks(&self) -> bool {
        self.is_computing() && self.has_blocks.load(Ordering::Relaxed)
    }

    /// Returns whether the channel's work cannot be preempted now.
    pub(super) fn occupies_engine(&self, preemption: Preemption) -> bool {
        match preemption {
            Preemption::Wait => self.is_computing(),
            Preemption::Block => self.has_blocks(),
            Preemption::Instruction => false,
        }
    }

    /// Allows blocks to start, or not, on behalf of the GPU's scheduler.
    pub(super) fn set_yielding(&self, yielding: bool) {
        self.yielding.store(yielding, Ordering::Relaxed);
    }

    /// Allows blocks to start, or not, on behalf of the kernel.
    pub(super) fn set_preempted(&self, preempted: bool) {
        self.preempted.store(preempted, Ordering::Relaxed);
    }

    /// Returns the channel's pending work; for the GPU's thread.
    pub(super) fn standing(&self) -> Standing {
        // A disabled channel may be enabled again, and after a doorbell the channel must be served first.
        if self.disabled.load(Ordering::Acquire) || self.rung.load(Ordering::Relaxed) {
            return Standing::Busy;
        }
        self.state.lock().as_ref().map_or(Standing::Idle, |state| state.standing())
    }

    /// Returns the channel's pending work; for other threads.
    pub(super) fn visited_standing(&self) -> Standing {
        self.visit().as_ref().map_or(Standing::Idle, |state| state.standing())
    }

    /// Runs one slice.
    pub(super) fn serve(&self, siblings: &Siblings<'_>) -> Served {
        if self.halted.load(Ordering::Acquire) || self.disabled.load(Ordering::Acquire) {
            return Served::default();
        }
        if self.visitors.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
            return Served { visited: true, ..Served::default() };
        }
        let mut guard = self.state.lock();
        // Checked again under the lock: a thread that disabled the channel has held the lock since, and relies on no
        // further slice.
        if self.disabled.load(Ordering::Acquire) {
            return Served::default();
        }
        let Some(state) = guard.as_mut().filter(|state| !state.faulted) else { return Served::default() };
        let rung = self.rung.swap(false, Ordering::Relaxed);
        let mut effects = Effects::default();
        let draining = self.yielding.load(Ordering::Relaxed) || self.preempted.load(Ordering::Relaxed);
        let result = state.slice(rung, &self.halted, siblings, &mut effects, draining);
        state.pointers.show(state.segment, &state.setup.userd);
        self.has_blocks.store(state.engines.compute.has_blocks(), Ordering::Relaxed);
        self.computing.store(!state.engines.compute.is_idle(), Ordering::Relaxed);
        self.copying.store(!state.engines.copy.is_idle(), Ordering::Relaxed);
        let held = matches!(state.stalled, Some((_, Wait::Semaphore { switch_tsg: false, .. })));
        let served = Served { held, interrupted: effects.interrupts != 0, ..Served::default() };
        match result {
            Ok(moved) => Served { moved, ..served },
            Err(fault) => {
                state.faulted = true;
                self.computing.store(false, Ordering::Relaxed);
                Served { moved: true, held: false, fault: Some(fault), ..served }
            }
        }
    }

    /// Takes the lock on behalf of a thread other than the GPU's.
    fn visit(&self) -> MutexGuard<'_, Option<Box<State>>> {
        self.visitors.fetch_add(1, Ordering::AcqRel);
        let guard = self.state.lock();
        self.visitors.fetch_sub(1, Ordering::AcqRel);
        guard
    }
}

/// Checksums of fetched data.
#[derive(Debug, Default)]
struct Sums {
    /// Checksum of the ring's entries since the last comparison.
    ring: u32,
    /// Checksum of the words of the last segment. `None` after END_PB_SEGMENT, because silicon may have fetched more
    /// words.
    segment: Option<u32>,
}

#[derive(Debug)]
struct State {
    setup: ChannelSetup,
    gp_get: u32,
    /// GP_PUT as of the last doorbell.
    gp_put: u32,
    segment: Option<Remaining>,
    pointers: Pointers,
    sums: Sums,
    stream: MethodStream,
    /// A waiting method and its condition.
    stalled: Option<(MethodWord, Wait)>,
    host: Host,
    engines: Engines,
    faulted: bool,
    /// The channel's watch, with the order check.
    watch: Option<Arc<Watch>>,
    pace: Pace,
    segments: Option<SegmentWatcher>,
}

impl State {
    /// Runs one slice: host first, then each engine. Returns whether progress was made.
    fn slice(
        &mut self,
        rung: bool,
        halted: &AtomicBool,
        siblings: &Siblings<'_>,
        effects: &mut Effects,
        draining: bool,
    ) -> Result<bool, ChannelFault> {
        if rung {
            self.read_put()?;
        }
        let view = self.setup.address_space.view().watched_by(self.watch.clone());
        let mut active = self.fetch(&view, halted, siblings, effects)?;
        active |= self.engines.compute.step(&view, effects, draining)?;
        active |= self.engines.copy.step(&view, effects)?;
        Ok(active)
    }

    fn read_put(&mut self) -> Result<(), ChannelFault> {
        let put = self.setup.userd.load(userd::GP_PUT as usize);
        if put >= self.setup.ring_entries {
            return Err(ChannelFault::PushbufferEntry {
                check: HostCheck::Pointer,
                va: 0,
                word: put,
                reason: format!("GPPTR: GP_PUT is not an index of {} entries", self.setup.ring_entries),
            });
        }
        if let Some(watch) = self.watch.as_ref().filter(|_| put != self.gp_put) {
            watch.learn_finished();
        }
        if self.gp_get == self.gp_put && put != self.gp_put {
            self.pace.rung();
        }
        self.gp_put = put;
        Ok(())
    }

    /// Executes methods until one waits, the ring is empty or the slice is over.
    fn fetch(
        &mut self,
        view: &View,
        halted: &AtomicBool,
        siblings: &Siblings<'_>,
        effects: &mut Effects,
    ) -> Result<bool, ChannelFault> {
        let mut active = false;
        if self.pace.is_held() {
            return Ok(false);
        }
        if let Some((word, _)) = self.stalled.take() {
            if !self.execute(word, view, siblings, effects)? {
                return Ok(false);
            }
            active = true;
        }
        let mut words = Words::new(view);
        let mut budget = SLICE_WORDS;
        while budget > 0 && !halted.load(Ordering::Relaxed) {
            budget -= 1;
            let Some(Remaining { va, words: left }) = self.segment else {
                if self.gp_get == self.gp_put {
                    return Ok(active);
                }
                active = true;
                self.next_entry()?;
                if let (Some(watcher), Some(Remaining { va, words: count })) = (&self.segments, self.segment)
                {
                    let fetched = (0..u64::from(count)).map_while(|at| words.fetch(va + 4 * at).ok());
                    watcher.segment(self.setup.channel_id, va, &fetched.collect::<Vec<_>>());
                }
                continue;
            };
            if !self.pace.has_arrived(va) {
                return Ok(active);
            }
            active = true;
            let word = words.fetch(va).map_err(|fault| ChannelFault::Mmu { client: "host", fault })?;
            self.segment = (left > 1).then_some(Remaining { va: va + 4, words: left - 1 });
            if let Some(word) = self.decode(va, word)?
                && !self.execute(word, view, siblings, effects)?
            {
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Decodes a pushbuffer word; `segment` is already the remainder after it.
    fn decode(&mut self, va: u64, word: u32) -> Result<Option<MethodWord>, ChannelFault> {
        self.sums.segment = self.sums.segment.map(|sum| checksum::add(sum, word));
        let refuse = |error: ampere_cmd::Error| ChannelFault::PushbufferEntry {
            check: HostCheck::PushbufferWord,
            va,
            word,
            reason: format!("PBENTRY: {error}"),
        };
        if self.stream.owed() == 0 && !self.stream.is_dropping() {
            // A run beyond the last method is refused as a whole, before any of it executes.
            if let header @ Header::Methods { count: 1.., .. } = Header::decode(word).map_err(refuse)? {
                header.encode().map_err(refuse)?;
            }
        }
        let write = self.stream.push(word).map_err(refuse)?;
        if self.stream.is_dropping() {
            self.sums.segment = None;
        }
        if self.segment.is_none() {
            self.stream.end_segment();
        }
        Ok(write.map(|write| MethodWord {
            subchannel: write.subchannel.index(),
            address: write.address,
            data: write.data,
        }))
    }

    /// Executes a method, or records what it waits for. Returns whether host continues with the next one.
    fn execute(
        &mut self,
        word: MethodWord,
        view: &View,
        siblings: &Siblings<'_>,
        effects: &mut Effects,
    ) -> Result<bool, ChannelFault> {
        let userd = &self.setup.userd;
        match self.host.method(word, &mut self.engines, userd, view, siblings, effects)? {
            Flow::Done => Ok(true),
            Flow::Yield => Ok(false),
            Flow::Wait(wait) => {
                self.stalled = Some((word, wait));
                Ok(false)
            }
        }
    }

    /// Fetches the entry at GP_GET.
    fn next_entry(&mut self) -> Result<(), ChannelFault> {
        let index = self.gp_get;
        // CAST: the ring lies in memory, so its offsets fit usize.
        let at = (u64::from(index) * ENTRY_BYTES) as usize;
        let (low, high) = (self.setup.ring.load(at), self.setup.ring.load(at + 4));
        let raw = u64::from(high) << 32 | u64::from(low);
        let fault = |check, interrupt: &str, reason: String| ChannelFault::PushbufferEntry {
            check,
            va: raw & ((1 << ampere_cmd::gpfifo::VA_BITS) - 4),
            word: low,
            reason: format!("{interrupt}: entry {index} of the ring, {raw:#018x}: {reason}"),
        };
        let refuse = |reason: String| fault(HostCheck::RingEntry, "GPENTRY", reason);
        let entry = Entry::decode(raw).map_err(|error| refuse(error.to_string()))?;
        self.gp_get = (index + 1) % self.setup.ring_entries;
        self.setup.userd.store(userd::GP_GET as usize, self.gp_get);
        let before = self.sums.ring;
        self.sums.ring = checksum::add(checksum::add(before, low), high);
        match entry {
            // SYNC requires sequential segments, which the model always guarantees.
            Entry::Segment(segment) if segment.conditional && !self.stream.is_active() => {}
            Entry::Segment(segment) if segment.conditional && self.stream.owed() > 0 => {
                let reason = "it would begin with the data of a method in the segment before".to_owned();
                return Err(fault(HostCheck::SplitSegment, "PBSEG", reason));
            }
            Entry::Segment(segment) => {
                self.pointers.begin(&segment);
                self.pace.begin();
                self.sums.segment = Some(0);
                self.segment = Some(Remaining { va: segment.va, words: segment.words });
            }
            Entry::Control { operation: Operation::Nop(_), .. } => {}
            Entry::Control { operation: Operation::Illegal(_), .. } => {
                return Err(refuse("ILLEGAL".to_owned()));
            }
            Entry::Control { operation: Operation::GpCrc(expected), .. } => {
                self.sums.ring = 0;
                if expected != before {
                    let reason = format!("the checksum of the entries before is {before:#010x}");
                    return Err(fault(HostCheck::RingChecksum, "GPCRC", reason));
                }
            }
            Entry::Control { operation: Operation::PbCrc(expected), .. } => {
                let sum = self.sums.segment.replace(0);
                if sum != Some(expected) {
                    let reason = match sum {
                        Some(sum) => format!("the checksum of the segment before is {sum:#010x}"),
                        None => "the segment before ended early: its checksum is not defined".to_owned(),
                    };
                    return Err(fault(HostCheck::SegmentChecksum, "PBCRC", reason));
                }
            }
            Entry::Control { operation: Operation::SetExtendedBase(_), .. } => {
                return Err(refuse("extended addresses exist from Hopper on".to_owned()));
            }
        }
        Ok(())
    }

    fn standing(&self) -> Standing {
        if self.faulted {
            return Standing::Idle;
        }
        if !self.engines.are_idle() {
            return Standing::Busy;
        }
        match self.stalled {
            Some((_, Wait::Semaphore { ref activity, switch_tsg })) => match *activity {
                Activity::WaitingForSemaphore { va, condition, payload, memory } => {
                    let channel_id = self.setup.channel_id;
                    Standing::Waiting(Waiter { channel_id, va, condition, payload, memory, switch_tsg })
                }
                _ => Standing::Busy,
            },
            Some((_, Wait::Idle)) => Standing::Busy,
            None if self.segment.is_some() || self.gp_get != self.gp_put => Standing::Busy,
            None => Standing::Idle,
        }
    }

    fn status(&self) -> ChannelStatus {
        ChannelStatus {
            gp_get: self.gp_get,
            gp_put: self.gp_put,
            pushbuffer_get: self.segment.map_or(0, |segment| segment.va),
            activity: self.activity(),
        }
    }

    fn activity(&self) -> Activity {
        if self.faulted {
            return Activity::Faulted;
        }
        if let Some(grid) = self.engines.compute.activity() {
            return grid;
        }
        if !self.engines.copy.is_idle() {
            return Activity::Copying { jobs: self.engines.copy.pending() };
        }
        match &self.stalled {
            Some((_, Wait::Semaphore { activity, .. })) => activity.clone(),
            Some((_, Wait::Idle)) => Activity::Fetching,
            None if self.segment.is_some() || self.gp_get != self.gp_put => Activity::Fetching,
            None => Activity::Idle,
        }
    }
}
