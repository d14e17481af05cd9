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
use ampere_cmd::pushbuffer::MethodStream;

use crate::gpu::compute::Compute;
use crate::gpu::copy::Copy;
use crate::gpu::decoder::MethodWord;
use crate::gpu::host::Host;
use crate::gpu::{Activity, ChannelFault, ChannelSetup, ChannelStatus, Effects, HostCheck};
use crate::mmu::{Access, FaultKind, MmuFault, Span, View};
use crate::sm::Sms;

/// Pushbuffer words that a slice processes at most.
const SLICE_WORDS: u32 = 8192;

/// Whether a method has been executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It has.
    Done,
    /// It waits, and has had no effect yet.
    Wait(Wait),
}

/// What a method waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The engines.
    Idle,
    /// Memory: the activity that shows it.
    Semaphore(Activity),
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
    pub(super) active: bool,
    /// Whether a non-stall interrupt is to be raised.
    pub(super) interrupted: bool,
    /// The fault that halted the channel.
    pub(super) fault: Option<ChannelFault>,
}

/// A bound channel.
#[derive(Debug)]
pub(super) struct Channel {
    id: u32,
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
    pub(super) fn new(setup: ChannelSetup, sms: Arc<Sms>) -> Self {
        let state = State {
            gp_get: 0,
            gp_put: 0,
            segment: None,
            stream: MethodStream::new(),
            stalled: None,
            host: Host::new(),
            engines: Engines { compute: Compute::new(sms), copy: Copy::new(), objects: Vec::new() },
            faulted: false,
            setup,
        };
        Self {
            id: state.setup.channel_id,
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

    /// Runs one slice; `rung` says that a doorbell was written.
    pub(super) fn serve(&self, rung: bool) -> Served {
        self.note_doorbell(rung);
        if self.halted.load(Ordering::Acquire) || self.disabled.load(Ordering::Acquire) {
            return Served::default();
        }
        if self.visitors.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
            return Served { active: true, ..Served::default() };
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
        let result = state.slice(rung, &self.halted, &mut effects);
        let interrupted = effects.interrupts != 0;
        match result {
            Ok(active) => Served { active, interrupted, fault: None },
            Err(fault) => {
                state.faulted = true;
                Served { active: true, interrupted, fault: Some(fault) }
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

/// What is left of the pushbuffer segment in progress.
#[derive(Clone, Copy, Debug)]
struct Remaining {
    va: u64,
    words: u32,
}

#[derive(Debug)]
struct State {
    setup: ChannelSetup,
    gp_get: u32,
    /// GP_PUT as of the last doorbell.
    gp_put: u32,
    segment: Option<Remaining>,
    stream: MethodStream,
    /// A method that waits, and what for.
    stalled: Option<(MethodWord, Wait)>,
    host: Host,
    engines: Engines,
    faulted: bool,
}

impl State {
    /// One turn: host first, then each engine. Returns whether anything was done.
    fn slice(
        &mut self,
        rung: bool,
        halted: &AtomicBool,
        effects: &mut Effects,
    ) -> Result<bool, ChannelFault> {
        if rung {
            self.read_put()?;
        }
        let view = self.setup.address_space.view();
        let mut active = self.fetch(&view, halted, effects)?;
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
        self.gp_put = put;
        Ok(())
    }

    /// Executes methods until one waits, the ring is empty or the slice is over.
    fn fetch(
        &mut self,
        view: &View,
        halted: &AtomicBool,
        effects: &mut Effects,
    ) -> Result<bool, ChannelFault> {
        let mut active = false;
        if let Some((word, _)) = self.stalled.take() {
            if !self.execute(word, view, effects)? {
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
            let write = self.stream.push(word).map_err(|error| ChannelFault::PushbufferEntry {
                check: HostCheck::PushbufferWord,
                va,
                word,
                reason: format!("PBENTRY: {error}"),
            })?;
            if self.segment.is_none() {
                self.stream.end_segment();
            }
            if let Some(write) = write {
                let word = MethodWord {
                    subchannel: write.subchannel.index(),
                    address: write.address,
                    data: write.data,
                };
                if !self.execute(word, view, effects)? {
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }

    /// Executes a method, or notes what it waits for.
    fn execute(
        &mut self,
        word: MethodWord,
        view: &View,
        effects: &mut Effects,
    ) -> Result<bool, ChannelFault> {
        match self.host.method(word, &mut self.engines, &self.setup.userd, view, effects)? {
            Flow::Done => Ok(true),
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
        let refuse = |reason: String| ChannelFault::PushbufferEntry {
            check: HostCheck::RingEntry,
            va: raw & ((1 << ampere_cmd::gpfifo::VA_BITS) - 4),
            word: low,
            reason: format!("GPENTRY: entry {index} of the ring, {raw:#018x}: {reason}"),
        };
        let entry = Entry::decode(raw).map_err(|error| refuse(error.to_string()))?;
        self.gp_get = (index + 1) % self.setup.ring_entries;
        self.setup.userd.store(userd::GP_GET as usize, self.gp_get);
        match entry {
            // SYNC asks for what happens here anyhow: one segment after the other.
            Entry::Segment(segment) if segment.conditional && !self.stream.is_active() => {}
            Entry::Segment(segment) => {
                self.segment = Some(Remaining { va: segment.va, words: segment.words });
            }
            Entry::Control { operation: Operation::Nop(_), .. } => {}
            Entry::Control { operation: Operation::Illegal(_), .. } => {
                return Err(refuse("ILLEGAL".to_owned()));
            }
            Entry::Control { operation: Operation::GpCrc(_) | Operation::PbCrc(_), .. } => {
                return Err(refuse("checksums are not modelled".to_owned()));
            }
            Entry::Control { operation: Operation::SetExtendedBase(_), .. } => {
                return Err(refuse("extended addresses exist from Hopper on".to_owned()));
            }
        }
        Ok(())
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
            Some((_, Wait::Semaphore(activity))) => activity.clone(),
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
