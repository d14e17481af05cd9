//! Streams: a queue each, and the rules of the default streams.
//!
//! The legacy default stream waits for the work of all blocking streams of its context before each piece of its own,
//! and they wait for its work. Streams created as non-blocking have no part in this. A stream's queue is opened at its
//! first work, or with the stream where streams share a channel group.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tegra_hcq::{Fence, Priority, Queue};

use crate::code::{Code, Failure, LONGEST, Result};
use crate::context::Context;
use crate::driver::driver;
use crate::event::Event;
use crate::graph::{Capture, Graph, Mode};
use crate::ids::next_id;
use crate::lock::QuickMutex;
use crate::module::Function;
use crate::objects::Kind as ObjectKind;
use crate::recording::Step as _;
use crate::work::{Launch, LaunchSize, MemoryCopy, Parameters, Work};

/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: u32 = 1;
/// Priorities that streams may have, from the lowest to the highest.
pub const PRIORITIES: (i32, i32) = (0, -5);

/// The priority of launches for one of [`PRIORITIES`]; others are taken for the nearest.
pub(crate) fn priority(level: i32) -> Priority {
    let (lowest, highest) = PRIORITIES;
    // CAST: at most 5.
    Priority::above_usual((lowest - level.clamp(highest, lowest)) as u8)
}

/// Which stream of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The default stream of all threads.
    Legacy,
    /// The default stream of one thread.
    PerThread,
    /// One that the program has created.
    Created,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    handle: u64,
    context: u64,
    /// Its number, never used again.
    pub id: u64,
    kind: Kind,
    flags: u32,
    /// Its priority, as the program has set it.
    pub priority: i32,
    queue: QuickMutex<Option<Queue>>,
    /// A fence of the queue, from its opening on.
    timeline: OnceLock<Fence>,
    /// Timeline value of the last submission; 0 before the first.
    last: AtomicU64,
    /// Whether work is captured; read without the lock.
    capturing: AtomicBool,
    capture: Mutex<Option<Capturing>>,
}

/// The part of a stream in a capture.
#[derive(Debug)]
struct Capturing {
    capture: Arc<Capture>,
    /// Whether the capture began here.
    origin: bool,
    /// Nodes that the next one depends on.
    frontier: Vec<usize>,
}

/// Waits for a submission; a fault stays with the context.
///
/// # Errors
///
/// The fault of the work.
pub(crate) fn wait(context: &Context, fence: &Fence) -> Result<()> {
    fence.wait(LONGEST).map_err(|error| context.keep(error.into()))
}

impl ObjectKind for Stream {
    const REMEMBERED: bool = true;
}

impl Stream {
    fn new(handle: u64, context: u64, kind: Kind, flags: u32, priority: i32) -> Self {
        Self {
            handle,
            context,
            id: next_id(),
            kind,
            flags,
            priority,
            queue: QuickMutex::new(None),
            timeline: OnceLock::new(),
            last: AtomicU64::new(0),
            capturing: AtomicBool::new(false),
            capture: Mutex::new(None),
        }
    }

    /// A default stream of the context with a handle.
    pub(crate) fn default_of(context: u64, kind: Kind) -> Self {
        // The handles that stand for default streams: CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
        Self::new(if kind == Kind::Legacy { 1 } else { 2 }, context, kind, 0, 0)
    }

    /// Creates a stream.
    ///
    /// # Errors
    ///
    /// If the flags are invalid.
    pub fn create(context: &Context, flags: u32, priority: i32) -> Result<Arc<Self>> {
        if flags & !NON_BLOCKING != 0 {
            return Err(Failure::invalid(format!("{flags:#x} is no stream flag")));
        }
        let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
        let make = |handle| Ok(Self::new(handle, context.handle, Kind::Created, flags, priority));
        let stream = driver()?.objects.insert_for(context.handle, make)?;
        context.streams.write().push(Arc::clone(&stream));
        if context.shares_group() {
            // A channel that is added to a group waits for the group's work. Without a queue now, the first work tries
            // again.
            let _ = stream.open(context, &mut stream.queue.lock());
        }
        Ok(stream)
    }

    /// Removes a stream that the program has created; its work goes on.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidHandle`] if it was removed already.
    pub fn destroy(self: &Arc<Self>, context: &Context) -> Result<()> {
        driver()?.objects.remove::<Self>(self.handle)?;
        context.streams.write().retain(|stream| !Arc::ptr_eq(stream, self));
        self.retire(context);
        Ok(())
    }

    /// Gives the queue to the context's other streams; its work goes on.
    pub(crate) fn retire(&self, context: &Context) {
        if let Some(queue) = self.queue.lock().take() {
            context.keep_queue(queue, self.last());
        }
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Handle of its context.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Which stream it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The flags of its creation.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Whether the legacy default stream and this one wait for each other.
    fn blocks(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }

    /// The last submission.
    pub(crate) fn last(&self) -> Option<Fence> {
        match self.last_value() {
            0 => None,
            value => self.fence(value),
        }
    }

    /// Timeline value of the last submission; 0 before the first.
    pub(crate) fn last_value(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// A fence of the queue; `None` before its first work.
    pub(crate) fn timeline(&self) -> Option<&Fence> {
        self.timeline.get()
    }

    /// The fence of a submission, by the value that [`Stream::work`] has returned.
    pub(crate) fn fence(&self, value: u64) -> Option<Fence> {
        self.timeline.get().map(|fence| fence.at(value))
    }

    /// The last submission, while it runs.
    fn pending(&self) -> Option<Fence> {
        self.last().filter(|fence| !fence.is_done())
    }

    /// Encodes work with `encode` after what the stream has to wait for, and submits it. Returns its timeline value.
    ///
    /// # Errors
    ///
    /// The errors of `encode`; the fault of the queue, which stays with the context.
    pub fn work(&self, context: &Context, encode: impl FnOnce(&mut Queue) -> Result<()>) -> Result<u64> {
        let mut slot = self.queue.lock();
        let queue = self.open(context, &mut slot)?;
        queue.set_overlap(context.overlaps());
        let encoded = self.order(context, queue).and_then(|()| encode(queue));
        let value = match encoded {
            Ok(()) => queue.send().map_err(Into::into),
            Err(failure) => {
                // What was submitted before the failure is waited for.
                if let Ok(value) = queue.send() {
                    self.last.store(value, Ordering::Release);
                }
                Err(failure)
            }
        };
        // Only plain stores from here on: see `lock`.
        let value = value.map_err(|failure| context.keep(failure))?;
        self.last.store(value, Ordering::Release);
        Ok(value)
    }

    /// The queue, opened at the first call.
    fn open<'a>(&self, context: &Context, slot: &'a mut Option<Queue>) -> Result<&'a mut Queue> {
        if slot.is_none() {
            if self.timeline.get().is_some() {
                // The queue serves another stream.
                return Err(Failure::new(Code::InvalidHandle, "another thread has destroyed the stream"));
            }
            let mut queue = context.open_queue()?;
            queue.set_priority(priority(self.priority));
            let _ = self.timeline.set(queue.submit()?);
            *slot = Some(queue);
        }
        // PANIC: it was set above.
        Ok(slot.as_mut().expect("the queue is open"))
    }

    /// Makes the queue wait as the rules of the default streams say.
    fn order(&self, context: &Context, queue: &mut Queue) -> Result<()> {
        if self.kind == Kind::Legacy {
            for stream in context.streams.read().iter().filter(|stream| stream.blocks()) {
                if let Some(fence) = stream.pending() {
                    queue.wait_fence(&fence)?;
                }
            }
            for fence in context.thread_streams().iter().filter_map(|stream| stream.pending()) {
                queue.wait_fence(&fence)?;
            }
        } else if self.blocks()
            && let Some(fence) = context.legacy.pending()
        {
            queue.wait_fence(&fence)?;
        }
        Ok(())
    }

    /// Does a piece of work, or captures it.
    ///
    /// # Errors
    ///
    /// The errors of the work; those of a capture that has become invalid.
    pub fn run(&self, context: &Context, work: Work) -> Result<()> {
        if self.capturing.load(Ordering::Acquire) {
            return self.capture_work(work);
        }
        self.work(context, |queue| work.encode(queue)).map(drop)
    }

    /// Copies, or captures the copy.
    ///
    /// # Errors
    ///
    /// As [`Stream::run`].
    pub fn copy(&self, context: &Context, copy: &MemoryCopy) -> Result<()> {
        if self.capturing.load(Ordering::Acquire) {
            return self.capture_work(Work::Copy(Box::new(*copy)));
        }
        self.work(context, |queue| copy.encode(queue)).map(drop)
    }

    /// Launches a kernel, or captures the launch. The caller promises that the kernel may run with these parameters.
    ///
    /// # Errors
    ///
    /// Those of [`LaunchSize::check`] and [`Stream::run`].
    pub fn launch(
        &self,
        context: &Context,
        function: &Arc<Function>,
        size: LaunchSize,
        parameters: &[u8],
    ) -> Result<()> {
        // A launch that is refused makes a capture invalid, as with NVIDIA's library; wrong handles and copies do not.
        size.check(function).map_err(|failure| self.invalidate(failure))?;
        if self.capturing.load(Ordering::Acquire) {
            let (function, parameters) = (Arc::clone(function), Parameters::new(parameters));
            let size = LaunchSize { priority: size.priority.or(Some(self.priority)), ..size };
            return self.capture_work(Work::Launch(Launch { function, size, parameters }));
        }
        self.work(context, |queue| size.encode(function, parameters, queue)).map(drop)
    }

    /// Waits for all work of the stream.
    ///
    /// # Errors
    ///
    /// [`Code::StreamCaptureUnsupported`] while it captures; the fault of the work.
    pub fn synchronize(&self, context: &Context) -> Result<()> {
        self.refuse_capture()?;
        self.settle(context)
    }

    /// Waits for the work that was submitted, also while the stream captures.
    pub(crate) fn settle(&self, context: &Context) -> Result<()> {
        if self.kind == Kind::Legacy {
            let streams = context.streams.read().clone();
            for stream in streams.iter().filter(|stream| stream.blocks()) {
                stream.last().map_or(Ok(()), |fence| wait(context, &fence))?;
            }
        }
        self.last().map_or(Ok(()), |fence| wait(context, &fence))
    }

    /// Whether all work has ended.
    ///
    /// # Errors
    ///
    /// [`Code::NotReady`] while it runs; the fault of the work.
    pub fn query(&self, context: &Context) -> Result<()> {
        self.refuse_capture()?;
        if self.pending().is_some() {
            return Err(Code::NotReady.into());
        }
        self.last().map_or(Ok(()), |fence| wait(context, &fence))
    }

    /// Makes later work wait for an event.
    ///
    /// # Errors
    ///
    /// The fault of the stream; [`Code::StreamCaptureIsolation`] if only one of the two is captured.
    pub fn wait_event(&self, context: &Context, event: &Event) -> Result<()> {
        if let Some((capture, frontier)) = event.capture() {
            return self.join(context, &capture, &frontier);
        }
        if !event.was_recorded() {
            return Ok(());
        }
        if self.capturing.load(Ordering::Acquire) {
            return Err(self.invalidate(Code::StreamCaptureIsolation));
        }
        if let Some((shared, number)) = event.elsewhere() {
            if shared.is_done(number) {
                return Ok(());
            }
            return self.work(context, |queue| shared.encode_wait(queue, number)).map(drop);
        }
        let Some(fence) = event.fence()?.filter(|fence| !fence.is_done()) else { return Ok(()) };
        self.work(context, |queue| Ok(queue.wait_fence(&fence)?)).map(drop)
    }

    /// Closes the queue after its work.
    pub(crate) fn close(&self) {
        self.queue.lock().take();
    }
}

// Capture.
impl Stream {
    /// Begins to capture the stream's work.
    ///
    /// # Errors
    ///
    /// [`Code::StreamCaptureUnsupported`] for the legacy default stream, [`Code::IllegalState`] if it captures already.
    pub fn begin_capture(&self, context: &Context, mode: Mode) -> Result<()> {
        self.capture_to(Graph::create(context.handle)?, Vec::new(), mode)
    }

    /// Begins to capture the stream's work into a graph, after some of its nodes.
    ///
    /// # Errors
    ///
    /// As [`Stream::begin_capture`].
    pub fn capture_to(&self, graph: Arc<Graph>, frontier: Vec<usize>, mode: Mode) -> Result<()> {
        if self.kind == Kind::Legacy {
            return Err(Code::StreamCaptureUnsupported.into());
        }
        let mut part = self.capture.lock();
        if part.is_some() {
            return Err(Failure::new(Code::IllegalState, "the stream is capturing"));
        }
        *part = Some(Capturing { capture: Arc::new(Capture::new(graph, mode)), origin: true, frontier });
        self.capturing.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a capture and returns it.
    ///
    /// # Errors
    ///
    /// [`Code::IllegalState`] if the stream does not capture, [`Code::StreamCaptureUnmatched`] if the capture began in
    /// another, [`Code::StreamCaptureInvalidated`] after a failure, [`Code::StreamCaptureUnjoined`] if the work of
    /// another stream was not joined.
    pub fn end_capture(&self) -> Result<Arc<Capture>> {
        let part = {
            let mut part = self.capture.lock();
            match &*part {
                None => return Err(Failure::new(Code::IllegalState, "the stream is not capturing")),
                Some(capturing) if !capturing.origin => return Err(Code::StreamCaptureUnmatched.into()),
                Some(_) => {}
            }
            self.capturing.store(false, Ordering::Release);
            part.take()
        };
        // PANIC: it was there above, under the same lock.
        let part = part.expect("the stream is capturing");
        let objects = &driver()?.objects;
        let joined = |stream: &Self| {
            stream.capture.lock().as_ref().is_some_and(|other| Arc::ptr_eq(&other.capture, &part.capture))
        };
        let mut unjoined = false;
        for stream in objects.all::<Self>(joined) {
            stream.capturing.store(false, Ordering::Release);
            let other = stream.capture.lock().take();
            unjoined |= other.is_some_and(|other| !part.capture.reaches(&part.frontier, &other.frontier));
        }
        part.capture.check()?;
        if unjoined { Err(Code::StreamCaptureUnjoined.into()) } else { Ok(part.capture) }
    }

    /// The capture, and the nodes that the next one depends on; `None` if the stream does not capture.
    ///
    /// # Errors
    ///
    /// [`Code::StreamCaptureInvalidated`] after a failure.
    pub fn captured(&self) -> Result<Option<(Arc<Capture>, Vec<usize>)>> {
        if !self.capturing.load(Ordering::Acquire) {
            return Ok(None);
        }
        let part = self.capture.lock();
        let Some(part) = &*part else { return Ok(None) };
        part.capture.check()?;
        Ok(Some((Arc::clone(&part.capture), part.frontier.clone())))
    }

    /// Replaces the nodes that the next one depends on, or adds to them.
    ///
    /// # Errors
    ///
    /// [`Code::IllegalState`] if the stream does not capture.
    pub fn set_frontier(&self, nodes: Vec<usize>, add: bool) -> Result<()> {
        let mut part = self.capture.lock();
        let part = part.as_mut().ok_or(Code::IllegalState)?;
        if !add {
            part.frontier.clear();
        }
        part.frontier.extend(nodes);
        Ok(())
    }

    /// Returns an error, and makes the capture invalid, if the stream captures: the call cannot be captured.
    ///
    /// # Errors
    ///
    /// [`Code::StreamCaptureUnsupported`].
    pub fn refuse_capture(&self) -> Result<()> {
        if self.capturing.load(Ordering::Acquire) {
            return Err(self.invalidate(Code::StreamCaptureUnsupported));
        }
        Ok(())
    }

    /// Makes the capture invalid, if there is one, and passes the failure on.
    pub fn invalidate(&self, failure: impl Into<Failure>) -> Failure {
        if let Some(part) = &*self.capture.lock() {
            part.capture.invalidate();
        }
        failure.into()
    }

    fn capture_work(&self, work: Work) -> Result<()> {
        let mut part = self.capture.lock();
        let Some(part) = part.as_mut() else { return Err(Code::StreamCaptureInvalidated.into()) };
        part.capture.check()?;
        let node = part.capture.graph.add(work, &part.frontier)?;
        part.frontier.clear();
        part.frontier.push(node);
        Ok(())
    }

    /// Takes the stream into a capture, after the nodes of an event.
    fn join(&self, context: &Context, capture: &Arc<Capture>, frontier: &[usize]) -> Result<()> {
        capture.check()?;
        if self.kind == Kind::Legacy || capture.graph.context() != context.handle {
            capture.invalidate();
            return Err(Code::StreamCaptureImplicit.into());
        }
        let mut part = self.capture.lock();
        match &mut *part {
            Some(part) if !Arc::ptr_eq(&part.capture, capture) => {
                part.capture.invalidate();
                capture.invalidate();
                Err(Code::StreamCaptureMerge.into())
            }
            Some(part) => {
                part.frontier.extend(
                    frontier.iter().filter(|node| !part.frontier.contains(node)).copied().collect::<Vec<_>>(),
                );
                Ok(())
            }
            None => {
                *part = Some(Capturing {
                    capture: Arc::clone(capture),
                    origin: false,
                    frontier: frontier.to_vec(),
                });
                self.capturing.store(true, Ordering::Release);
                Ok(())
            }
        }
    }
}
