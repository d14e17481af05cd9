//! What a thread's last launch and last record named: most calls name the same, and need not look it up.
//!
//! Counting references is a read-modify-write too: see [`lock`](crate::lock). What a thread remembers it borrows.

use core::cell::RefCell;
use std::sync::Arc;
use std::thread::LocalKey;

use tegra_hcq::Fence;

use crate::code::{Code, Result};
use crate::context::{Context, current_handle};
use crate::driver::driver;
use crate::event::Event;
use crate::module::Function;
use crate::stream::Stream;

/// What a launch needs.
#[derive(Clone, Debug)]
pub struct Target {
    /// The context of the stream.
    pub context: Arc<Context>,
    /// The stream.
    pub stream: Arc<Stream>,
    /// The kernel.
    pub function: Arc<Function>,
}

/// What the record of an event needs.
#[derive(Debug)]
pub struct Recording {
    /// The context of the stream.
    pub context: Arc<Context>,
    /// The stream.
    pub stream: Arc<Stream>,
    /// The event.
    pub event: Arc<Event>,
    /// What the event was recorded in, and its [`Event::version`] then.
    recorded: Option<(Fence, u64)>,
}

impl Recording {
    /// Creates one without a record.
    pub fn new(context: Arc<Context>, stream: Arc<Stream>, event: Arc<Event>) -> Self {
        Self { context, stream, event, recorded: None }
    }
}

/// The handles of a call as the program gives them: stream, function or event, and a number that says how to read the
/// stream.
pub type Names = (u64, u64, u8);

/// What a call named, and when that is valid.
#[derive(Debug)]
struct Remembered<T> {
    names: Names,
    /// The current context at that time.
    current: u64,
    /// [`removals`](crate::objects::Objects::removals) at that time.
    removals: u64,
    named: T,
}

impl<T: AsRef<Context>> Remembered<T> {
    /// Whether the handles that are remembered still name the same, in the thread's current context.
    fn is_valid(&self, current: u64, removals: u64) -> bool {
        self.current == current && self.removals == removals && current == self.named.as_ref().handle
    }
}

impl AsRef<Context> for Target {
    fn as_ref(&self) -> &Context {
        &self.context
    }
}

impl AsRef<Context> for Recording {
    fn as_ref(&self) -> &Context {
        &self.context
    }
}

/// A place for what a thread's last call of a kind named.
type Place<T> = RefCell<Option<Remembered<T>>>;

thread_local! {
    static LAUNCH: Place<Target> = const { RefCell::new(None) };
    static RECORD: Place<Recording> = const { RefCell::new(None) };
}

/// Calls `work` with what `names` name: that of the thread's last launch, or what `find` finds.
///
/// # Errors
///
/// Those of `find`, the state of the contexts, and [`Code::Deinitialized`] at the end of the thread.
pub fn with_target<R>(
    names: Names,
    find: impl FnOnce() -> Result<Target>,
    work: impl FnOnce(&Target) -> Result<R>,
) -> Result<R> {
    with_place(&LAUNCH, names, find, |target| work(target))
}

/// Records the event in the stream that `names` name: those of the thread's last record, or what `find` finds.
///
/// # Errors
///
/// Those of [`with_target`]; [`Code::InvalidHandle`] if event and stream belong to different contexts; the stream's
/// fault.
pub fn record(names: Names, find: impl FnOnce() -> Result<Recording>) -> Result<()> {
    with_place(&RECORD, names, find, |Recording { context, stream, event, recorded }| {
        event.record(context, stream, recorded)
    })
}

/// [`Event::query`] of the event that the thread has recorded last, if its handle is `event` and nobody has recorded it
/// since; `None` for others.
///
/// # Errors
///
/// Those of [`Event::query`], and the state of the context.
pub fn query_recorded(event: u64) -> Option<Result<()>> {
    let (current, removals) = (current_handle().ok()?, driver().ok()?.objects.removals());
    let query = |record: &Remembered<Recording>| {
        let Recording { context, event, recorded, .. } = &record.named;
        let (fence, version) = recorded.as_ref()?;
        let query = || context.check().and_then(|()| Event::query_fence(context, fence));
        (event.version() == *version).then(query)
    };
    let place = |place: &Place<Recording>| {
        let place = place.try_borrow().ok()?;
        place
            .as_ref()
            .filter(|last| last.names.1 == event && last.is_valid(current, removals))
            .and_then(query)
    };
    RECORD.try_with(place).ok()?
}

fn with_place<T: AsRef<Context> + 'static, R>(
    place: &'static LocalKey<Place<T>>,
    names: Names,
    find: impl FnOnce() -> Result<T>,
    work: impl FnOnce(&mut T) -> Result<R>,
) -> Result<R> {
    let objects = &driver()?.objects;
    let (current, removals) = (current_handle()?, objects.removals());
    place
        .try_with(|place| {
            let mut place = place.borrow_mut();
            let old = match &mut *place {
                Some(last) if last.names == names && last.is_valid(current, removals) => {
                    last.named.as_ref().check()?;
                    return work(&mut last.named);
                }
                _ => place.take(),
            };
            // Dropped before the work; it may free a module.
            drop(old);
            let named = find()?;
            work(&mut place.insert(Remembered { names, current, removals, named }).named)
        })
        .map_err(|_| Code::Deinitialized)?
}
