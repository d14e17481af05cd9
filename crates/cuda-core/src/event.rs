//! Events: points in a stream's work, with the GPU's time.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tegra_hcq::{Fence, Queue, Signal};

use crate::code::{Code, Failure, Result};
use crate::context::Context;
use crate::driver::driver;
use crate::exports::{Export, Place};
use crate::graph::Capture;
use crate::lock::QuickMutex;
use crate::objects::Kind;
use crate::shared_event::SharedEvent;
use crate::stream::{Stream, wait};

/// CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING, CU_EVENT_INTERPROCESS.
const FLAGS: u32 = 7;
/// CU_EVENT_DISABLE_TIMING.
const NO_TIMES: u32 = 2;
/// CU_EVENT_INTERPROCESS.
const INTERPROCESS: u32 = 4;

/// An event.
#[derive(Debug)]
pub struct Event {
    handle: u64,
    context: u64,
    /// Where the GPU writes the time; `None` without times.
    signal: Option<Signal>,
    /// What other processes have of it, if it was created for them, and the number of this process' last record.
    shared: Option<(SharedEvent, AtomicU64)>,
    state: QuickMutex<State>,
    /// How often the state was set; written under its lock.
    version: AtomicU64,
}

/// What an event was last recorded in.
#[derive(Debug, Default)]
pub(crate) enum State {
    /// It never was.
    #[default]
    Never,
    /// A stream; `None` if the stream had no work, and the event no times.
    Work(Option<Fence>),
    /// A capture, at these nodes.
    Captured(Arc<Capture>, Vec<usize>),
}

impl Kind for Event {
    const REMEMBERED: bool = true;
}

impl Export for Event {
    fn place(&self) -> Result<Place> {
        let shared = self.shared.as_ref().ok_or_else(|| {
            Failure::new(Code::InvalidHandle, "the event was not created for other processes")
        })?;
        let (file, bytes) = shared.0.export()?;
        Ok(Place { file, offset: 0, bytes })
    }
}

impl Event {
    /// Creates an event.
    ///
    /// # Errors
    ///
    /// If the flags are invalid, or memory is short.
    pub fn create(context: &Context, flags: u32) -> Result<Arc<Self>> {
        if flags & !FLAGS != 0 || flags & INTERPROCESS != 0 && flags & NO_TIMES == 0 {
            return Err(Failure::invalid(format!("{flags:#x} is no combination of event flags")));
        }
        let signal = if flags & NO_TIMES == 0 { Some(context.device.signal(0)?) } else { None };
        let shared =
            if flags & INTERPROCESS != 0 { Some(SharedEvent::create(&context.device)?) } else { None };
        Self::enter(context, signal, shared)
    }

    /// The event of another process behind a file.
    pub(crate) fn open(context: &Context, file: OwnedFd) -> Result<Arc<Self>> {
        Self::enter(context, None, Some(SharedEvent::over(&context.device, file)?))
    }

    fn enter(context: &Context, signal: Option<Signal>, shared: Option<SharedEvent>) -> Result<Arc<Self>> {
        let shared = shared.map(|shared| (shared, AtomicU64::new(0)));
        driver()?.objects.insert_for(context.handle, |handle| {
            let (state, version) = (QuickMutex::default(), AtomicU64::new(0));
            Ok(Self { handle, context: context.handle, signal, shared, state, version })
        })
    }

    /// Whether it was created for other processes, or by one.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether it has no times, and is of this process alone.
    pub fn is_plain(&self) -> bool {
        self.signal.is_none() && self.shared.is_none()
    }

    /// The number of the latest record, if another process has made it.
    pub(crate) fn elsewhere(&self) -> Option<(&SharedEvent, u64)> {
        let (shared, own) = self.shared.as_ref()?;
        let latest = shared.latest();
        (latest > own.load(Ordering::Acquire)).then_some((shared, latest))
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Handle of its context.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Changes with each record.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Records the work of a stream so far. `recorded` becomes its end and the [`Event::version`], `None` for captures
    /// and streams without work.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidHandle`] if event and stream belong to different contexts; the stream's fault.
    pub(crate) fn record(
        &self,
        context: &Context,
        stream: &Stream,
        recorded: &mut Option<(Fence, u64)>,
    ) -> Result<()> {
        if self.context != context.handle {
            return Err(Failure::new(Code::InvalidHandle, "the event belongs to another context"));
        }
        // Locked before the work, and set after it by plain stores alone if the stream is that of the last record: see
        // `lock`.
        let mut state = self.state.lock();
        if let Some((capture, frontier)) = stream.captured()? {
            *recorded = None;
            self.set(&mut state, State::Captured(capture, frontier));
            return Ok(());
        }
        let value = match (&self.signal, &self.shared) {
            (Some(_), _) => stream.work(context, |queue| self.encode(queue))?,
            (None, Some((shared, own))) => {
                let (number, value) = shared
                    .record(&|| context.check(), |encode| stream.work(context, |queue| encode(queue)))?;
                own.store(number, Ordering::Release);
                value
            }
            (None, None) => stream.last_value(),
        };
        let Some(timeline) = stream.timeline().filter(|_| value != 0) else {
            *recorded = None;
            self.set(&mut state, State::Work(None));
            return Ok(());
        };
        if let State::Work(Some(fence)) = &mut *state {
            fence.set_to(timeline, value);
            self.version.store(self.version() + 1, Ordering::Release);
        } else {
            self.set(&mut state, State::Work(Some(timeline.at(value))));
        }
        match recorded {
            Some((fence, version)) => {
                fence.set_to(timeline, value);
                *version = self.version();
            }
            None => *recorded = Some((timeline.at(value), self.version())),
        }
        Ok(())
    }

    /// Replaces the state, whose lock the caller holds.
    fn set(&self, state: &mut State, new: State) {
        *state = new;
        self.version.store(self.version() + 1, Ordering::Release);
    }

    /// Adds the time to work that is encoded for a queue.
    pub(crate) fn encode(&self, queue: &mut Queue) -> Result<()> {
        self.signal.as_ref().map_or(Ok(()), |signal| Ok(queue.timestamp(signal, 1)?))
    }

    /// Notes that a graph has recorded the event, whose work ends with `last`.
    pub(crate) fn recorded(&self, last: Option<Fence>) {
        self.set(&mut self.state.lock(), State::Work(last));
    }

    /// Whether it was ever recorded.
    pub(crate) fn was_recorded(&self) -> bool {
        self.elsewhere().is_some() || !matches!(*self.state.lock(), State::Never)
    }

    /// What the event was recorded in.
    pub(crate) fn fence(&self) -> Result<Option<Fence>> {
        match &*self.state.lock() {
            State::Never => Ok(None),
            State::Work(fence) => Ok(fence.clone()),
            State::Captured(..) => Err(Code::CapturedEvent.into()),
        }
    }

    /// The capture that the event was recorded in.
    pub(crate) fn capture(&self) -> Option<(Arc<Capture>, Vec<usize>)> {
        match &*self.state.lock() {
            State::Captured(capture, frontier) => Some((Arc::clone(capture), frontier.clone())),
            _ => None,
        }
    }

    /// Whether the recorded work has ended.
    ///
    /// # Errors
    ///
    /// [`Code::NotReady`] while it runs; the fault of the work.
    pub fn query(&self, context: &Context) -> Result<()> {
        if let Some((shared, number)) = self.elsewhere() {
            context.check()?;
            return if shared.is_done(number) { Ok(()) } else { Err(Code::NotReady.into()) };
        }
        self.fence()?.map_or(Ok(()), |fence| Self::query_fence(context, &fence))
    }

    /// Whether the work that ends with a fence has ended.
    ///
    /// # Errors
    ///
    /// As [`Event::query`].
    pub(crate) fn query_fence(context: &Context, fence: &Fence) -> Result<()> {
        if fence.is_done() { wait(context, fence) } else { Err(Code::NotReady.into()) }
    }

    /// Waits for the recorded work.
    ///
    /// # Errors
    ///
    /// The fault of the work.
    pub fn synchronize(&self, context: &Context) -> Result<()> {
        if let Some((shared, number)) = self.elsewhere() {
            return shared.wait(&|| context.check(), number);
        }
        self.fence()?.map_or(Ok(()), |fence| wait(context, &fence))
    }

    /// Time from this event to `end`, in milliseconds.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidHandle`] for events without times, or not recorded; [`Code::NotReady`] while work runs.
    pub fn elapsed_ms(&self, context: &Context, end: &Self) -> Result<f32> {
        let time = |event: &Self| -> Result<u64> {
            let signal = event.signal.as_ref().ok_or(Code::InvalidHandle)?;
            if !event.was_recorded() {
                return Err(Failure::new(Code::InvalidHandle, "the event was not recorded"));
            }
            event.query(context)?;
            Ok(signal.gpu_time_ns())
        };
        let (from, to) = (time(self)?, time(end)?);
        // CAST: the difference of two times of one run fits 64 bits; a float keeps 24 of them, as the interface does.
        Ok((to.wrapping_sub(from).cast_signed() as f64 / 1e6) as f32)
    }
}
