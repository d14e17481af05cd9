//! The thread that waits for futures.
//!
//! There is one thread per device, started by the first future that has to wait. It polls the timelines for all futures
//! and wakes those whose work has ended. It waits as a queue does (`wait.rs`): it spins briefly, then yields, then
//! sleeps in the kernel until the GPU reports an event, in bounded slices. It sleeps while no future waits. It holds
//! only weak references to queues, so it keeps no device alive, and it exits with the device.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::heap::timeline::Progress;
use crate::limits::{LOOK, SPINS, YIELD_FOR};

/// Longest sleep while all futures wait for one queue; a future added later is noticed after it.
const SLEEP: Duration = Duration::from_millis(1);
/// Longest sleep while futures wait for several queues.
const SLEEP_SHARED: Duration = Duration::from_micros(250);
/// Sleep while a queue raises no interrupts.
const SLEEP_BLIND: Duration = Duration::from_micros(50);
/// Longest wait of [`Waiter::settle`]: several sleeps.
const SETTLE: Duration = Duration::from_millis(100);

/// The work that a future waits for.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) state: Weak<dyn Progress>,
    pub(crate) value: u64,
    pub(crate) start: Instant,
    pub(crate) timeout: Duration,
}

/// A future that waits.
#[derive(Debug)]
struct Entry {
    work: Work,
    /// `Some` until the future is woken.
    waker: Option<Waker>,
    /// The outcome of the work; the future takes it at its next poll.
    outcome: Option<Result<()>>,
}

/// Result of a poll.
pub(crate) enum Step {
    Waiting(u64),
    Ended(Result<()>),
}

#[derive(Debug, Default)]
struct Table {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    started: bool,
    /// The device is gone.
    closed: bool,
    /// A future was added since the thread last checked.
    fresh: bool,
    /// The thread waits for a future and holds no queue.
    idle: bool,
    /// Number of times that the thread has started a round, holding no queue.
    rounds: u64,
}

#[derive(Debug, Default)]
struct Inner {
    table: Mutex<Table>,
    /// Signalled when a future is added or the device is gone.
    changed: Condvar,
    /// Signalled when the thread holds no queue.
    settled: Condvar,
}

/// The thread that the futures of a device wait with.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    inner: Arc<Inner>,
}

impl Waiter {
    /// Registers a future, or polls the outcome of one that is `known`.
    pub(crate) fn poll(&self, known: Option<u64>, work: Work, waker: &Waker) -> Result<Step> {
        // Wakers are cloned and dropped outside the lock, because they may run foreign code.
        let waker = waker.clone();
        let mut table = self.inner.table.lock();
        if let Some(id) = known
            && let Some(entry) = table.entries.get_mut(&id)
        {
            let outcome = entry.outcome.take();
            let old = entry.waker.replace(waker);
            let removed = outcome.is_some().then(|| table.entries.remove(&id));
            drop(table);
            drop((old, removed));
            return Ok(outcome.map_or(Step::Waiting(id), Step::Ended));
        }
        if !table.started {
            let inner = Arc::clone(&self.inner);
            let thread = std::thread::Builder::new().name("hcq-waiter".to_owned());
            thread.spawn(move || run(&inner)).map_err(Error::Thread)?;
            table.started = true;
        }
        let id = table.next;
        table.next += 1;
        table.entries.insert(id, Entry { work, waker: Some(waker), outcome: None });
        table.fresh = true;
        self.inner.changed.notify_one();
        Ok(Step::Waiting(id))
    }

    /// Removes a future.
    pub(crate) fn forget(&self, id: u64) {
        let entry = self.inner.table.lock().entries.remove(&id);
        drop(entry);
    }

    /// Waits until the thread no longer holds a queue whose futures and other owners are gone.
    pub(crate) fn settle(&self) {
        let mut table = self.inner.table.lock();
        let seen = table.rounds;
        let busy = |table: &mut Table| table.started && !table.idle && table.rounds == seen;
        self.inner.settled.wait_while_for(&mut table, busy, SETTLE);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // The thread itself may drop the device, so this code does not join it.
        self.inner.table.lock().closed = true;
        self.inner.changed.notify_one();
    }
}

/// The work of a future while the thread examines it.
struct Watched {
    id: u64,
    state: Arc<dyn Progress>,
    work: Work,
}

impl Watched {
    /// The outcome of the work. Reads the error notifier if requested.
    fn outcome(&self, look: bool) -> Option<Result<()>> {
        let Work { value, start, timeout, .. } = self.work;
        if let Some(outcome) = self.state.peek(value) {
            return Some(outcome);
        }
        let over = start.elapsed() >= timeout;
        if (look || over)
            && let Err(error) = self.state.check()
        {
            return Some(Err(error));
        }
        let seen = self.state.value();
        (over && seen < value).then(|| Err(self.state.time_out(value, seen, timeout)))
    }
}

/// The thread's loop: poll, wake, rest.
fn run(inner: &Inner) {
    let mut pace = Pace::new();
    while let Some(watched) = next_round(inner, &mut pace) {
        let look = pace.should_look();
        let ended: Vec<_> =
            watched.iter().filter_map(|watched| Some((watched.id, watched.outcome(look)?))).collect();
        if ended.is_empty() {
            pace.rest(&watched);
        } else {
            wake(inner, ended);
        }
    }
}

/// Waits until a future is registered; `None` if the device is gone.
fn next_round(inner: &Inner, pace: &mut Pace) -> Option<Vec<Watched>> {
    let mut table = inner.table.lock();
    table.rounds += 1;
    table.idle = true;
    inner.settled.notify_all();
    let waiting = |table: &Table| table.entries.values().any(|entry| entry.outcome.is_none());
    inner.changed.wait_while(&mut table, |table| !table.closed && !waiting(table));
    table.idle = false;
    if table.closed {
        return None;
    }
    if core::mem::take(&mut table.fresh) {
        pace.restart();
    }
    let mut watched = Vec::new();
    let mut gone = Vec::new();
    for (&id, entry) in table.entries.iter().filter(|(_, entry)| entry.outcome.is_none()) {
        match entry.work.state.upgrade() {
            Some(state) => watched.push(Watched { id, state, work: entry.work.clone() }),
            // The future was leaked.
            None => gone.push(id),
        }
    }
    let gone: Vec<_> = gone.into_iter().map(|id| table.entries.remove(&id)).collect();
    drop(table);
    drop(gone);
    Some(watched)
}

/// Stores the outcomes for the futures and wakes them.
fn wake(inner: &Inner, ended: Vec<(u64, Result<()>)>) {
    let mut wakers = Vec::new();
    let mut table = inner.table.lock();
    for (id, outcome) in ended {
        if let Some(entry) = table.entries.get_mut(&id) {
            entry.outcome = Some(outcome);
            wakers.extend(entry.waker.take());
        }
    }
    drop(table);
    for waker in wakers {
        // A panic in one executor must not keep all other futures asleep.
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            tracing::warn!("an executor panicked when it was woken");
        }
    }
}

/// How the thread rests between two polls.
struct Pace {
    since: Instant,
    looked: Instant,
    has_spun: bool,
    turn: usize,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self { since: now, looked: now, has_spun: false, turn: 0 }
    }

    /// A future was added; its work may end soon.
    fn restart(&mut self) {
        self.since = Instant::now();
        self.has_spun = false;
    }

    /// Whether the error notifiers are due for a check.
    fn should_look(&mut self) -> bool {
        let look = self.looked.elapsed() >= LOOK;
        if look {
            self.looked = Instant::now();
        }
        look
    }

    fn rest(&mut self, watched: &[Watched]) {
        if !self.has_spun {
            self.has_spun = true;
            for _ in 0..SPINS {
                if watched.iter().any(|watched| watched.state.value() >= watched.work.value) {
                    return;
                }
                core::hint::spin_loop();
            }
        } else if self.since.elapsed() < YIELD_FOR {
            std::thread::yield_now();
        } else {
            self.sleep(watched);
        }
    }

    fn sleep(&mut self, watched: &[Watched]) {
        if watched.iter().any(|watched| watched.state.spins()) {
            std::thread::sleep(SLEEP_BLIND);
            return;
        }
        self.turn = (self.turn + 1) % watched.len().max(1);
        let Some(chosen) = watched.get(self.turn) else { return };
        let shared = watched.iter().any(|other| !Arc::ptr_eq(&other.state, &chosen.state));
        let left = watched.iter().map(|other| other.work.timeout.saturating_sub(other.work.start.elapsed()));
        let longest = if shared { SLEEP_SHARED } else { SLEEP };
        chosen.state.sleep(left.min().map_or(longest, |left| left.min(longest)));
    }
}
