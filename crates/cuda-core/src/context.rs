//! Contexts, and each thread's stack of them.
//!
//! All contexts of a GPU use one open device: one address space and one set of allocations. A context owns streams,
//! modules and allocations, and keeps the first fault of its work.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use parking_lot::{Mutex, RwLock};
use tegra_hcq::{Device, DeviceKind, Fence, Queue, QueueOptions, WaitPolicy};

use crate::array::{self, Owner};
use crate::code::{Code, Failure, Result};
use crate::driver::{Gpu, driver};
use crate::graph::Graph;
use crate::ids::next_id;
use crate::module::{Library, Module};
use crate::objects::Kind;
use crate::stream::{self, Stream};

/// Scheduling flags that `cuCtxCreate` takes: the kind of wait (7), mapped host memory (8), unlimited local memory
/// (0x10), core dumps (0x20, 0x40), synchronous copies (0x80).
const FLAGS: u32 = 0xff;
/// The scheduling bits of the flags; at most one may be set.
const SCHEDULE: u32 = 7;
/// CU_CTX_SCHED_BLOCKING_SYNC.
const SLEEPING: u32 = 4;

/// The primary context of a GPU.
#[derive(Debug, Default)]
struct Primary {
    context: Option<Arc<Context>>,
    retained: usize,
    flags: u32,
}

/// Each thread's default stream, and what lives as long as the thread.
type Threads = HashMap<ThreadId, (Weak<()>, Arc<Stream>)>;

/// A context.
#[derive(Debug)]
pub struct Context {
    /// Its handle.
    pub handle: u64,
    /// Its number, never used again.
    pub id: u64,
    /// Its GPU.
    pub gpu: &'static Gpu,
    /// The open GPU.
    pub device: Device,
    /// Whether it is the primary one.
    pub primary: bool,
    flags: AtomicU32,
    /// The legacy default stream.
    pub legacy: Arc<Stream>,
    threads: Mutex<Threads>,
    /// The streams that the program has created.
    pub(crate) streams: RwLock<Vec<Arc<Stream>>>,
    /// A fence of the first queue, whose channel group the others share.
    group: Mutex<Option<Fence>>,
    /// Whether there are several.
    overlap: AtomicBool,
    /// Queues of destroyed streams, with their last work.
    spare: Mutex<Vec<(Queue, Option<Fence>)>>,
    /// Limits that were set (`CUlimit`), by number.
    limits: Mutex<HashMap<u32, usize>>,
    alive: AtomicBool,
    /// How often the program has attached to it, its creation included.
    users: AtomicU32,
    /// Number of the first fault; 0 without.
    fault: AtomicU32,
    fault_reason: Mutex<String>,
}

/// The primary contexts by ordinal.
static PRIMARIES: Mutex<BTreeMap<usize, Primary>> = Mutex::new(BTreeMap::new());

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
    /// Lives as long as the thread.
    static THREAD: Arc<()> = Arc::default();
}

/// Works on the thread's stack.
///
/// # Errors
///
/// [`Code::Deinitialized`] while the thread's variables are destroyed.
fn with_stack<R>(work: impl FnOnce(&mut Vec<Arc<Context>>) -> R) -> Result<R> {
    STACK.try_with(|stack| work(&mut stack.borrow_mut())).map_err(|_| Code::Deinitialized.into())
}

/// The thread's current context, whatever its state; `None` without one.
///
/// # Errors
///
/// [`Code::Deinitialized`] at the end of the thread.
pub fn peek() -> Result<Option<Arc<Context>>> {
    with_stack(|stack| stack.last().cloned())
}

/// Handle of the thread's current context, whatever its state; 0 without one.
pub(crate) fn current_handle() -> Result<u64> {
    with_stack(|stack| stack.last().map_or(0, |context| context.handle))
}

/// The thread's current context.
///
/// # Errors
///
/// [`Code::InvalidContext`] without one, [`Code::ContextIsDestroyed`], or the context's fault.
pub fn current() -> Result<Arc<Context>> {
    driver()?;
    let context = peek()?.ok_or(Code::InvalidContext)?;
    context.check()?;
    Ok(context)
}

/// Puts a context on the thread's stack.
///
/// # Errors
///
/// As [`peek`].
pub fn push(context: Arc<Context>) -> Result<()> {
    with_stack(|stack| stack.push(context))
}

/// Takes the current context off the thread's stack.
///
/// # Errors
///
/// [`Code::InvalidContext`] if the stack is empty.
pub fn pop() -> Result<Arc<Context>> {
    with_stack(Vec::pop)?.ok_or_else(|| Code::InvalidContext.into())
}

/// Replaces the thread's current context.
///
/// # Errors
///
/// As [`peek`].
pub fn set_current(context: Option<Arc<Context>>) -> Result<()> {
    // What is replaced is dropped outside of the borrow.
    let old = with_stack(|stack| {
        let old = stack.pop();
        stack.extend(context);
        old
    })?;
    drop(old);
    Ok(())
}

fn check_flags(flags: u32) -> Result<()> {
    if flags & !FLAGS != 0 || (flags & SCHEDULE).count_ones() > 1 {
        return Err(Failure::invalid(format!("{flags:#x} is no combination of context flags")));
    }
    Ok(())
}

impl Kind for Context {
    const UNKNOWN: Code = Code::InvalidContext;
}

impl Context {
    /// Creates a context; it is not made current.
    ///
    /// # Errors
    ///
    /// If the flags are invalid or the GPU cannot be opened.
    pub fn create(gpu: &'static Gpu, flags: u32, primary: bool) -> Result<Arc<Self>> {
        check_flags(flags)?;
        let device = gpu.device()?;
        driver()?.objects.insert(|handle| {
            Ok(Self {
                handle,
                id: next_id(),
                gpu,
                device,
                primary,
                flags: AtomicU32::new(flags),
                legacy: Arc::new(Stream::default_of(handle, stream::Kind::Legacy)),
                threads: Mutex::default(),
                streams: RwLock::default(),
                group: Mutex::default(),
                overlap: AtomicBool::new(false),
                spare: Mutex::default(),
                limits: Mutex::default(),
                alive: AtomicBool::new(true),
                users: AtomicU32::new(1),
                fault: AtomicU32::new(0),
                fault_reason: Mutex::default(),
            })
        })
    }

    /// The flags of its creation.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Changes the flags.
    ///
    /// # Errors
    ///
    /// If they are invalid.
    pub fn set_flags(&self, flags: u32) -> Result<()> {
        check_flags(flags)?;
        self.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    /// Returns an error if the context was destroyed or has a fault.
    ///
    /// # Errors
    ///
    /// [`Code::ContextIsDestroyed`] or the fault.
    pub fn check(&self) -> Result<()> {
        if !self.alive.load(Ordering::Acquire) {
            return Err(Code::ContextIsDestroyed.into());
        }
        match self.fault.load(Ordering::Acquire) {
            0 => Ok(()),
            number => {
                let code = Code::from_number(number).unwrap_or(Code::Unknown);
                Err(Failure::new(code, self.fault_reason.lock().clone()))
            }
        }
    }

    /// Keeps a fault of the context's work, if `failure` is one and the first. Returns the failure.
    pub fn keep(&self, failure: Failure) -> Failure {
        let sticks = matches!(failure.code.number(), 214 | 220 | 226 | 700..=702 | 710 | 714..=719);
        let mut reason = self.fault_reason.lock();
        if sticks && self.fault.load(Ordering::Acquire) == 0 {
            reason.clone_from(&failure.reason);
            self.fault.store(failure.code.number(), Ordering::Release);
            tracing::error!(target: "cuda", "{failure}");
        }
        failure
    }

    /// The calling thread's default stream.
    pub fn thread_stream(&self) -> Arc<Stream> {
        let id = thread::current().id();
        let mut threads = self.threads.lock();
        if let Some((_, stream)) = threads.get(&id) {
            return Arc::clone(stream);
        }
        // The queues of threads that have ended serve other streams.
        let ended: Vec<_> = threads.extract_if(|_, (thread, _)| thread.strong_count() == 0).collect();
        ended.into_iter().for_each(|(_, (_, stream))| stream.retire(self));
        let thread = THREAD.try_with(Arc::downgrade).unwrap_or_default();
        let stream = Arc::new(Stream::default_of(self.handle, stream::Kind::PerThread));
        threads.insert(id, (thread, Arc::clone(&stream)));
        stream
    }

    /// The default streams of all threads.
    pub(crate) fn thread_streams(&self) -> Vec<Arc<Stream>> {
        self.threads.lock().values().map(|(_, stream)| Arc::clone(stream)).collect()
    }

    /// An idle queue: that of a destroyed stream, or a new one.
    pub(crate) fn open_queue(&self) -> Result<Queue> {
        let mut spare = self.spare.lock();
        let idle = spare.iter().position(|(_, last)| last.as_ref().is_none_or(Fence::is_done));
        if let Some(idle) = idle {
            return Ok(spare.swap_remove(idle).0);
        }
        drop(spare);
        let options = QueueOptions::default().any_memory(true).wait(self.wait_policy());
        let mut group = self.group.lock();
        if let Some(first) = &*group {
            let queue = self.device.queue_beside(first, &options)?;
            self.overlap.store(self.shares_group(), Ordering::Relaxed);
            return Ok(queue);
        }
        let mut queue = self.device.queue_with(&options)?;
        *group = Some(queue.submit()?);
        Ok(queue)
    }

    /// Whether queues share a channel group: the driver can.
    pub(crate) fn shares_group(&self) -> bool {
        self.device.info().name().kind == DeviceKind::Nvrm
    }

    /// Whether work of several streams may overlap; read without a lock. A launch then waits for the one before by the
    /// timeline, which takes 2.8 instead of 1.5 µs on an H100.
    pub(crate) fn overlaps(&self) -> bool {
        self.overlap.load(Ordering::Relaxed)
    }

    /// How the CPU waits for streams that get their queue from now on: as the flags say, by default spinning. The
    /// software Orin works on the cores that would spin.
    fn wait_policy(&self) -> WaitPolicy {
        let sleeps = self.flags() & SCHEDULE == SLEEPING || self.device.info().name().kind == DeviceKind::Sim;
        if sleeps { WaitPolicy::Sleep } else { WaitPolicy::Spin }
    }

    /// Keeps the queue of a destroyed stream, whose work goes on.
    pub(crate) fn keep_queue(&self, queue: Queue, last: Option<Fence>) {
        self.spare.lock().push((queue, last));
    }

    /// All streams.
    pub(crate) fn all_streams(&self) -> Vec<Arc<Stream>> {
        let mut all = vec![Arc::clone(&self.legacy)];
        all.extend(self.thread_streams());
        all.extend(self.streams.read().iter().cloned());
        all
    }

    /// Waits for all work.
    ///
    /// # Errors
    ///
    /// [`Code::StreamCaptureUnsupported`] while a stream captures; the fault of the work.
    pub fn synchronize(&self) -> Result<()> {
        self.all_streams().iter().try_for_each(|stream| stream.refuse_capture())?;
        self.settle()
    }

    /// Waits for all work that was submitted, also while streams capture.
    ///
    /// # Errors
    ///
    /// The first fault of the work; all of it has ended nevertheless.
    pub fn settle(&self) -> Result<()> {
        let mut first = Ok(());
        for stream in self.all_streams() {
            first = first.and(stream.settle(self));
        }
        let destroyed: Vec<_> = self.spare.lock().iter().filter_map(|(_, last)| last.clone()).collect();
        for fence in destroyed {
            first = first.and(stream::wait(self, &fence));
        }
        first
    }

    /// A limit that was set; `default` otherwise.
    pub fn limit(&self, limit: u32, default: usize) -> usize {
        self.limits.lock().get(&limit).copied().unwrap_or(default)
    }

    /// Sets a limit.
    pub fn set_limit(&self, limit: u32, value: usize) {
        self.limits.lock().insert(limit, value);
    }

    /// Where its arrays and texture objects are created.
    ///
    /// # Errors
    ///
    /// [`Code::NotInitialized`] before `cuInit`.
    pub fn owner(&self) -> Result<Owner<'_>> {
        Ok(Owner { device: &self.device, context: self.handle, objects: &driver()?.objects })
    }

    /// Ends the context: waits for its work, frees its memory, and removes its objects.
    fn end(&self) -> Result<()> {
        let waited = self.settle();
        self.alive.store(false, Ordering::Release);
        let objects = &driver()?.objects;
        for module in objects.all::<Module>(|module| module.context() == self.handle) {
            let _ = module.unload(self);
        }
        for library in objects.all::<Library>(|_| true) {
            library.forget(self.handle);
        }
        for graph in objects.all::<Graph>(|graph| graph.context() == self.handle) {
            let _ = graph.destroy();
        }
        objects.remove_of(self.handle);
        self.gpu.textures.free_of(self.handle);
        let _ = array::free_of(objects, self.handle);
        self.gpu.memory.free_of(self.handle);
        self.streams.write().clear();
        self.threads.lock().clear();
        self.legacy.close();
        self.group.lock().take();
        self.spare.lock().clear();
        if waited.is_err() || self.fault.load(Ordering::Acquire) != 0 {
            self.device.recover()?;
        }
        let _ = objects.remove::<Self>(self.handle);
        Ok(())
    }

    /// Counts a user of the context.
    pub fn attach(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// A user of the context less; the last one destroys it.
    ///
    /// # Errors
    ///
    /// As [`Context::destroy`].
    pub fn detach(context: &Arc<Self>) -> Result<()> {
        let subtract = |users: u32| users.checked_sub(1);
        match context.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, subtract) {
            Ok(0 | 1) => Self::destroy(context),
            Ok(_) => Ok(()),
            Err(_) => Err(Failure::new(Code::InvalidContext, "the context has no users")),
        }
    }

    /// Destroys a context that the program has created.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidContext`] for the primary context, or if it was destroyed already.
    pub fn destroy(context: &Arc<Self>) -> Result<()> {
        if context.primary {
            return Err(Failure::new(Code::InvalidContext, "a primary context is released, not destroyed"));
        }
        if !context.alive.swap(false, Ordering::AcqRel) {
            return Err(Failure::new(Code::InvalidContext, "another thread has destroyed the context"));
        }
        with_stack(|stack| {
            if stack.last().is_some_and(|top| Arc::ptr_eq(top, context)) {
                stack.pop();
            }
        })?;
        context.end()
    }
}

impl Gpu {
    /// Counts a user of the primary context, which the first creates.
    ///
    /// # Errors
    ///
    /// If the GPU cannot be opened.
    pub fn retain_primary(&'static self) -> Result<Arc<Context>> {
        let mut primaries = PRIMARIES.lock();
        let primary = primaries.entry(self.ordinal).or_default();
        let context = match &primary.context {
            Some(context) => Arc::clone(context),
            None => Context::create(self, primary.flags, true)?,
        };
        primary.context = Some(Arc::clone(&context));
        primary.retained += 1;
        Ok(context)
    }

    /// The users of the primary context; the last ends it.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidContext`] if it has no users.
    pub fn release_primary(&self) -> Result<()> {
        let ended = {
            let mut primaries = PRIMARIES.lock();
            let primary = primaries.entry(self.ordinal).or_default();
            if primary.retained == 0 {
                return Err(Failure::new(Code::InvalidContext, "the primary context is not retained"));
            }
            primary.retained -= 1;
            if primary.retained == 0 { primary.context.take() } else { None }
        };
        ended.map_or(Ok(()), |context| context.end())
    }

    /// Ends the primary context, whoever uses it.
    ///
    /// # Errors
    ///
    /// If the GPU cannot be recovered.
    pub fn reset_primary(&self) -> Result<()> {
        let ended = {
            let mut primaries = PRIMARIES.lock();
            let primary = primaries.entry(self.ordinal).or_default();
            primary.retained = 0;
            primary.context.take()
        };
        ended.map_or(Ok(()), |context| context.end())
    }

    /// Flags of the primary context, and whether it exists.
    pub fn primary_state(&self) -> (u32, bool) {
        let mut primaries = PRIMARIES.lock();
        let primary = primaries.entry(self.ordinal).or_default();
        (primary.context.as_ref().map_or(primary.flags, |context| context.flags()), primary.context.is_some())
    }

    /// Sets the flags of the primary context.
    ///
    /// # Errors
    ///
    /// If they are invalid.
    pub fn set_primary_flags(&self, flags: u32) -> Result<()> {
        check_flags(flags)?;
        let mut primaries = PRIMARIES.lock();
        let primary = primaries.entry(self.ordinal).or_default();
        primary.flags = flags;
        primary.context.as_ref().map_or(Ok(()), |context| context.set_flags(flags))
    }
}
