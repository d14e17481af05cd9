//! One channel: its GPFIFO ring, its pushbuffer, and the engines that its methods drive.
//!
//! Host fetches entries from GP_GET to GP_PUT, moves GP_GET on as soon as it has an entry (so GP_GET
//! says nothing about the work behind it) and feeds the segment's words to the method decoder. A
//! method that cannot be executed yet, an acquire or a wait for idle, stays where it is and is tried
//! again in the next slice. The engines work behind host: a launch or a copy is queued and host goes
//! on at once, as it does on silicon, so that a wait that a driver forgot is missed here too.
//!
//! The graphics runlist has one copy engine and one compute engine behind one host; when methods go
//! to the other one, host first waits for idle (GA100 `dev_pbdma`).

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ampere_cmd::gpfifo::{ENTRY_BYTES, Entry, Operation, userd};
use ampere_cmd::pushbuffer::{Header, MethodStream};

use crate::gpu::checksum;
use crate::gpu::compute::Compute;
use crate::gpu::copy::Copy;
use crate::gpu::decoder::MethodWord;
use crate::gpu::host::Host;
use crate::gpu::pointers::{Pointers, Remaining};
use crate::gpu::{
    Activity, ChannelFault, ChannelGroup, ChannelSetup, ChannelStatus, Effects, HostCheck, Waiter,
};
use crate::mmu::{Access, FaultKind, MmuFault, Span, View};
use crate::sm::Sms;
use crate::strict::{Strict, Watch};

/// Pushbuffer words that a slice processes at most.
const SLICE_WORDS: u32 = 8192;

/// Whether a method has been executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It has.
    Done,
    /// It has, and the methods behind it have to wait for the channel's next slice.
    Yield,
    /// It waits, and has had no effect yet.
    Wait(Wait),
}

/// What a method waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The engines.
    Idle,
    /// Memory: the activity that shows it.
    Semaphore {
        activity: Activity,
        /// Whether the TSG gives its time away meanwhile.
        switch_tsg: bool,
    },
}

/// The channels of a TSG as one of them sees them: what the engines do for the others.
pub(super) struct Siblings<'a> {
    channel: &'a Channel,
    all: &'a [Arc<Channel>],
}

impl<'a> Siblings<'a> {
    /// `all` are the channels of the TSG, `channel` itself among them.
    pub(super) fn new(channel: &'a Channel, all: &'a [Arc<Channel>]) -> Self {
        Self { channel, all }
    }

    fn any(&self, busy: impl Fn(&Channel) -> bool) -> bool {
        self.all.iter().any(|other| other.id != self.channel.id && busy(other))
    }

    /// Whether the compute engine works for another channel, of any subcontext or of the same.
    pub(super) fn are_computing(&self, any_veid: bool) -> bool {
        let veid = self.channel.group.veid;
        self.any(|other| other.computing.load(Ordering::Relaxed) && (any_veid || other.group.veid == veid))
    }

    /// Whether the copy engine, which knows no subcontexts, works for another channel.
    pub(super) fn are_copying(&self) -> bool {
        self.any(|other| other.copying.load(Ordering::Relaxed))
    }
}

/// What keeps a channel from having nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing, or a fault that it will not get over.
    Idle,
    /// A semaphore alone.
    Waiting(Waiter),
    /// Work.
    Busy,
}

/// The engines behind host.
#[derive(Debug)]
pub(super) struct Engines {
    pub(super) compute: Compute,
    pub(super) copy: Copy,
    /// Classes that ALLOC_OBJ_CTX has allowed.
    pub(super) objects: Vec<u32>,
}

impl Engines {
    /// Whether nothing is left to do.
    pub(super) fn are_idle(&self) -> bool {
        self.compute.is_idle() && self.copy.is_idle()
    }
}

/// What came of a slice.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Whether anything was done.
    pub(super) moved: bool,
    /// The slice was left out for another thread that looks at the channel.
    pub(super) visited: bool,
    /// The channel waits for a semaphore and keeps the TSG's time slice.
    pub(super) held: bool,
    /// Whether a non-stall interrupt is to be raised.
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
    /// Whether the copy engine has.
    copying: AtomicBool,
    /// Ends the slice in progress soon and keeps others from beginning.
    halted: AtomicBool,
    /// Taken off the runlist for a while.
    disabled: AtomicBool,
    /// A doorbell was written and GP_PUT has not been read since.
    rung: AtomicBool,
    /// Threads that wait for `state`. The GPU's thread gives way to them: it would otherwise take the
    /// lock again before any of them has woken up.
    visitors: AtomicUsize,
    /// `None` once the channel has been stopped.
    state: Mutex<Option<Box<State>>>,
}

impl Channel {
    pub(super) fn new(setup: ChannelSetup, sms: Arc<Sms>, strict: Option<&Arc<Strict>>) -> Self {
        let state = State {
            gp_get: 0,
            gp_put: 0,
            segment: None,
            pointers: Pointers::default(),
            sums: Sums::default(),
            stream: MethodStream::new(),
            stalled: None,
            host: Host::new(),
            engines: Engines { compute: Compute::new(sms), copy: Copy::new(), objects: Vec::new() },
            faulted: false,
            watch: strict.map(|strict| strict.channel(setup.channel_id)),
            setup,
        };
        Self {
            id: state.setup.channel_id,
            group: state.setup.group,
            computing: AtomicBool::new(false),
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

    /// Makes the slice in progress the last one.
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Release);
    }

    /// Lets slices begin, or not. Returns after the slice in progress.
    pub(super) fn set_enabled(&self, enabled: bool) {
        self.disabled.store(!enabled, Ordering::Release);
        if enabled {
            self.rung.store(true, Ordering::Relaxed);
        } else {
            drop(self.visit());
        }
    }

    /// Waits for the slice in progress and drops all that the channel holds.
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

    /// Remembers that a doorbell was written, if `rung`.
    pub(super) fn note_doorbell(&self, rung: bool) {
        if rung {
            self.rung.store(true, Ordering::Relaxed);
        }
    }

    /// What the channel waits for, for the GPU's thread.
    pub(super) fn standing(&self) -> Standing {
        // A channel off the runlist may come back, and one that was rung for has not been looked at.
        if self.disabled.load(Ordering::Acquire) || self.rung.load(Ordering::Relaxed) {
            return Standing::Busy;
        }
        self.lock().as_ref().map_or(Standing::Idle, |state| state.standing())
    }

    /// What the channel waits for, for any other thread.
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
        let mut guard = self.lock();
        // Looked at once more: whoever disabled the channel since has had the lock, and relies on no
        // slice beginning after that.
        if self.disabled.load(Ordering::Acquire) {
            return Served::default();
        }
        let Some(state) = guard.as_mut().filter(|state| !state.faulted) else { return Served::default() };
        let rung = self.rung.swap(false, Ordering::Relaxed);
        let mut effects = Effects::default();
        let result = state.slice(rung, &self.halted, siblings, &mut effects);
        state.pointers.show(state.segment, &state.setup.userd);
        self.computing.store(!state.engines.compute.is_idle(), Ordering::Relaxed);
        self.copying.store(!state.engines.copy.is_idle(), Ordering::Relaxed);
        let held = matches!(state.stalled, Some((_, Wait::Semaphore { switch_tsg: false, .. })));
        let served = Served { held, interrupted: effects.interrupts != 0, ..Served::default() };
        match result {
            Ok(moved) => Served { moved, ..served },
            Err(fault) => {
                state.faulted = true;
                Served { moved: true, held: false, fault: Some(fault), ..served }
            }
        }
    }

    /// The lock for any other than the GPU's thread.
    fn visit(&self) -> MutexGuard<'_, Option<Box<State>>> {
        self.visitors.fetch_add(1, Ordering::AcqRel);
        let guard = self.lock();
        self.visitors.fetch_sub(1, Ordering::AcqRel);
        guard
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<State>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checksums of what was fetched.
#[derive(Debug, Default)]
struct Sums {
    /// Of the ring's entries since the last comparison.
    ring: u32,
    /// Of the words of the last segment. `None` after END_PB_SEGMENT, where silicon may have fetched on.
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
    /// A method that waits, and what for.
    stalled: Option<(MethodWord, Wait)>,
    host: Host,
    engines: Engines,
    faulted: bool,
    /// Strict mode's account of the channel.
    watch: Option<Arc<Watch>>,
}

impl State {
    /// One turn: host first, then each engine. Returns whether anything was done.
    fn slice(
        &mut self,
        rung: bool,
        halted: &AtomicBool,
        siblings: &Siblings<'_>,
        effects: &mut Effects,
    ) -> Result<bool, ChannelFault> {
        if rung {
            self.read_put()?;
        }
        let view = self.setup.address_space.view().watched_by(self.watch.clone());
        let mut active = self.fetch(&view, halted, siblings, effects)?;
        active |= self.engines.compute.step(&view, effects)?;
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
        if let Some((word, _)) = self.stalled.take() {
            if !self.execute(word, view, siblings, effects)? {
                return Ok(false);
            }
            active = true;
        }
        let mut words = Words { view, span: None };
        let mut budget = SLICE_WORDS;
        while budget > 0 && !halted.load(Ordering::Relaxed) {
            budget -= 1;
            let Some(Remaining { va, words: left }) = self.segment else {
                if self.gp_get == self.gp_put {
                    return Ok(active);
                }
                active = true;
                self.next_entry()?;
                continue;
            };
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

    /// Decodes a pushbuffer word; `segment` is already what is left behind it.
    fn decode(&mut self, va: u64, word: u32) -> Result<Option<MethodWord>, ChannelFault> {
        self.sums.segment = self.sums.segment.map(|sum| checksum::add(sum, word));
        let refuse = |error: ampere_cmd::Error| ChannelFault::PushbufferEntry {
            check: HostCheck::PushbufferWord,
            va,
            word,
            reason: format!("PBENTRY: {error}"),
        };
        if self.stream.owed() == 0 && !self.stream.is_dropping() {
            // A run that leaves the methods is refused as a whole, before any of it is executed.
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

    /// Executes a method, or notes what it waits for. Returns whether host goes on with the next one.
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

    /// Takes the entry at GP_GET.
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
            // SYNC asks for what happens here anyhow: one segment after the other.
            Entry::Segment(segment) if segment.conditional && !self.stream.is_active() => {}
            Entry::Segment(segment) if segment.conditional && self.stream.owed() > 0 => {
                let reason = "it would begin with the data of a method in the segment before".to_owned();
                return Err(fault(HostCheck::SplitSegment, "PBSEG", reason));
            }
            Entry::Segment(segment) => {
                self.pointers.begin(&segment);
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

/// Pushbuffer words of one slice: translates once per mapping.
struct Words<'a> {
    view: &'a View,
    span: Option<Span>,
}

impl Words<'_> {
    fn fetch(&mut self, va: u64) -> Result<u32, MmuFault> {
        let pointer = match self.span.and_then(|span| span.at(va, 4)) {
            Some(pointer) => pointer,
            None => {
                let span = self.view.span(va, Access::Read)?;
                self.span = Some(span);
                let fault = MmuFault { va: span.end, kind: FaultKind::InvalidPte, access: Access::Read };
                span.at(va, 4).ok_or(fault)?
            }
        };
        // SAFETY: valid as long as the view that the span was taken from, which `self` borrows, and
        // aligned because entries carry multiples of 4; user space may write the word meanwhile.
        Ok(unsafe { AtomicU32::from_ptr(pointer.cast()) }.load(Ordering::Relaxed))
    }
}
