//! The GPU's thread: doorbells, time, and turns.
//!
//! A doorbell is a plain word of shared memory in the model, so only the second of two tokens written in quick
//! succession may be seen. Therefore a token never selects a channel: any doorbell write makes the thread read GP_PUT
//! of every bound channel again. As on a board, GP_PUT alone has no effect. The word is taken by an atomic exchange
//! with all ones; a token written after the exchange is found by the next one.
//!
//! A round gives each TSG its turn (`runlist`). Doorbells are polled before each traversal of a turn, so a long time
//! slice does not delay them. If no progress has been made for a while and only waits for semaphores are left, the
//! handler receives the list of waiters.
//!
//! Waiting is adaptive: after activity the thread spins for a few tens of microseconds, then sleeps for increasing
//! periods. Without a bound channel it sleeps until it is woken.
//!
//! Locks: `lists` protects what is bound and is never held while a channel works. Each channel has its own lock, which
//! the thread holds for one slice. [`FaultHandler`] is called with neither held.

use core::any::Any;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ampere_cmd::{Method, usermode_c561 as usermode};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::caller::guard;
use crate::check::{Checker, OrderCheck};
use crate::config::Stall;
use crate::gpu::channel::{Channel, Siblings, Standing};
use crate::gpu::fetch::{Fetching, HOLD};
use crate::gpu::possession::Possession;
use crate::gpu::runlist::{self, Group, Traversal};
use crate::gpu::{ChannelSetup, ChannelStatus, FaultHandler, GpuConfig, Preemption, Waiter, ptimer_ns};
use crate::memory::Memory;
use crate::quirks::Quirks;
use crate::sm::Sms;

/// Value of the doorbell word without a pending token.
const NO_TOKEN: u32 = u32::MAX;

/// Duration of spinning after the last activity.
const SPIN: Duration = Duration::from_micros(40);

/// Shortest and longest nap; a longer one follows after [`LONG_IDLE`] without activity.
const NAP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(200));
const LONG_IDLE: Duration = Duration::from_millis(50);
const LONG_NAP: Duration = Duration::from_millis(1);

/// The bound channels and pages.
#[derive(Debug, Default)]
struct Lists {
    /// Number of changes, which shows whether the thread's copy is stale.
    generation: u32,
    pages: Vec<Arc<Memory>>,
    channels: Vec<Arc<Channel>>,
    /// Time slices of TSGs in microseconds.
    timeslices: BTreeMap<u32, u32>,
    /// Where the grids of TSGs can be preempted.
    preemption: BTreeMap<u32, Preemption>,
    /// TSG that keeps the engine permanently: see [`Gpu::abandon_engine`].
    abandoned: Option<u32>,
    quit: bool,
}

/// Injected disturbances.
#[derive(Debug, Default)]
struct Disturbances {
    /// Number of doorbell writes seen so far.
    doorbells: u64,
    lost: Vec<u64>,
    /// Number of further doorbell writes to lose.
    lost_next: u64,
    stalls: Vec<Stall>,
    stalled: bool,
    stalled_until: Option<Instant>,
}

impl Disturbances {
    /// Counts a doorbell write. Returns whether it is noticed.
    fn doorbell(&mut self) -> bool {
        self.doorbells += 1;
        for stall in self.stalls.iter().filter(|stall| stall.doorbell == self.doorbells) {
            self.stalled_until = Some(Instant::now() + stall.length);
        }
        if self.lost_next > 0 {
            self.lost_next -= 1;
            return false;
        }
        !self.lost.contains(&self.doorbells)
    }

    fn is_stalled(&self) -> bool {
        self.stalled || self.stalled_until.is_some_and(|until| Instant::now() < until)
    }
}

#[derive(Debug, Default)]
struct Shared {
    disturbances: Mutex<Disturbances>,
    /// Whether `disturbances` contains anything.
    disturbed: AtomicBool,
    lists: Mutex<Lists>,
    /// Copy of `Lists::generation`, readable without the lock.
    generation: AtomicU32,
    /// Wakes the thread.
    wake: Condvar,
}

impl Shared {
    fn is_stalled(&self) -> bool {
        self.disturbed.load(Ordering::Acquire) && self.disturbances.lock().is_stalled()
    }

    fn change<R>(&self, change: impl FnOnce(&mut Lists) -> R) -> R {
        let mut lists = self.lists.lock();
        let result = change(&mut lists);
        lists.generation = lists.generation.wrapping_add(1);
        self.generation.store(lists.generation, Ordering::Release);
        drop(lists);
        self.wake.notify_all();
        result
    }
}

/// Owner of the thread.
#[derive(Debug)]
pub(super) struct Scheduler {
    shared: Arc<Shared>,
    sms: Arc<Sms>,
    quirks: Arc<Quirks>,
    fetching: Fetching,
    order: Option<Arc<OrderCheck>>,
    thread: Option<JoinHandle<()>>,
}

impl Scheduler {
    pub(super) fn start(config: GpuConfig, faults: Arc<dyn FaultHandler>) -> Result<Self, Errno> {
        let shared = Arc::new(Shared::default());
        let order = config.sm.check.as_ref().and_then(Checker::order_check);
        let worker = Worker {
            shared: Arc::clone(&shared),
            faults,
            seed: config.seed,
            deadlock_after: config.deadlock_after,
            pages: Vec::new(),
            channels: Vec::new(),
            groups: Vec::new(),
            preemption: BTreeMap::new(),
            engine: Possession::new(config.switch_timeout),
            seen: None,
            unseen: Cell::new(false),
            round: 0,
            standstill: None,
            order: order.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("orin-gpu".to_owned())
            .spawn(move || {
                let _inside = guard::enter();
                let faults = Arc::clone(&worker.faults);
                // The locks do not poison, and nothing runs on the engines after a panic, so no state is used again.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| worker.run())) {
                    faults.panicked(panic_text(&*panic));
                }
            })
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Self {
            shared,
            sms: Sms::new(config.sm_count, config.sm),
            quirks: Arc::new(config.quirks),
            fetching: Fetching {
                line_time: config.slow_fetch,
                hold: if order.is_some() { HOLD } else { Duration::ZERO },
                segments: config.segments,
            },
            order,
            thread: Some(thread),
        })
    }

    pub(super) fn add_page(&self, page: Arc<Memory>) {
        page.store(offset(usermode::Cfg0::ADDRESS), u32::from(usermode::CLASS));
        page.store(offset(usermode::Doorbell::ADDRESS), NO_TOKEN);
        show_time(&page, ptimer_ns());
        self.shared.change(|lists| lists.pages.push(page));
    }

    pub(super) fn remove_page(&self, page: &Arc<Memory>) {
        self.shared.change(|lists| lists.pages.retain(|other| !Arc::ptr_eq(other, page)));
    }

    pub(super) fn bind(&self, setup: ChannelSetup) {
        self.stop(&[setup.channel_id]);
        let channel = Arc::new(Channel::new(
            setup,
            Arc::clone(&self.sms),
            Arc::clone(&self.quirks),
            self.order.as_ref(),
            self.fetching.clone(),
        ));
        let group = channel.group();
        self.shared.change(|lists| {
            lists.timeslices.insert(group.tsg, group.timeslice_us);
            lists.channels.push(channel);
        });
    }

    pub(super) fn add_object(&self, channel_id: u32, class: u32) {
        if let Some(channel) = self.find(channel_id) {
            channel.add_object(class);
        }
    }

    fn disturbances(&self) -> MutexGuard<'_, Disturbances> {
        self.shared.disturbed.store(true, Ordering::Release);
        self.shared.disturbances.lock()
    }

    pub(super) fn disturb(&self, lost_doorbells: &[u64], stalls: &[Stall]) {
        if lost_doorbells.is_empty() && stalls.is_empty() {
            return;
        }
        let mut disturbances = self.disturbances();
        disturbances.lost.extend_from_slice(lost_doorbells);
        disturbances.stalls.extend_from_slice(stalls);
    }

    pub(super) fn lose_doorbells(&self, count: u64) {
        self.disturbances().lost_next += count;
    }

    pub(super) fn doorbells_to_lose(&self) -> u64 {
        self.disturbances().lost_next
    }

    pub(super) fn stall(&self, stalled: bool) {
        let mut disturbances = self.disturbances();
        (disturbances.stalled, disturbances.stalled_until) = (stalled, None);
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.shared.is_stalled()
    }

    pub(super) fn set_enabled(&self, channel_ids: &[u32], enabled: bool) {
        let lists = self.shared.lists.lock();
        for channel in lists.channels.iter().filter(|channel| channel_ids.contains(&channel.id())) {
            channel.set_enabled(enabled);
        }
    }

    pub(super) fn stop(&self, channel_ids: &[u32]) {
        let mut stopped = Vec::new();
        self.shared.change(|lists| {
            lists.channels.retain(|channel| {
                let stays = !channel_ids.contains(&channel.id());
                if !stays {
                    stopped.push(Arc::clone(channel));
                }
                stays
            });
        });
        // Halt all first, then wait for each, so that their slices end concurrently.
        stopped.iter().for_each(|channel| channel.halt());
        stopped.iter().for_each(|channel| channel.release());
    }

    pub(super) fn set_timeslice(&self, tsg: u32, timeslice_us: u32) {
        self.shared.change(|lists| lists.timeslices.insert(tsg, timeslice_us));
    }

    pub(super) fn set_preemption(&self, tsg: u32, preemption: Preemption) {
        self.shared.change(|lists| lists.preemption.insert(tsg, preemption));
    }

    pub(super) fn preempt(&self, tsg: u32, preempt: bool) {
        let lists = self.shared.lists.lock();
        let between_blocks = lists.preemption.get(&tsg) == Some(&Preemption::Block);
        for channel in lists.channels.iter().filter(|channel| channel.group().tsg == tsg) {
            channel.set_preempted(preempt && between_blocks);
        }
    }

    pub(super) fn occupies_engine(&self, tsg: u32) -> bool {
        let lists = self.shared.lists.lock();
        let preemption = lists.preemption.get(&tsg).copied().unwrap_or_default();
        let mut channels = lists.channels.iter().filter(|channel| channel.group().tsg == tsg);
        channels.any(|channel| channel.occupies_engine(preemption))
    }

    pub(super) fn abandon_engine(&self, tsg: u32) {
        self.shared.change(|lists| lists.abandoned = Some(tsg));
    }

    pub(super) fn waiters(&self) -> Vec<Waiter> {
        let channels = self.shared.lists.lock().channels.clone();
        let waiter = |channel: &Arc<Channel>| match channel.visited_standing() {
            Standing::Waiting(waiter) => Some(waiter),
            Standing::Idle | Standing::Busy => None,
        };
        channels.iter().filter_map(waiter).collect()
    }

    pub(super) fn status(&self, channel_id: u32) -> Option<ChannelStatus> {
        self.find(channel_id)?.status()
    }

    fn find(&self, channel_id: u32) -> Option<Arc<Channel>> {
        self.shared.lists.lock().channels.iter().find(|channel| channel.id() == channel_id).cloned()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let channels = self.shared.change(|lists| {
            lists.quit = true;
            std::mem::take(&mut lists.channels)
        });
        channels.iter().for_each(|channel| channel.halt());
        if let Some(thread) = self.thread.take() {
            // The last handle may be dropped on the thread itself, in the fault handler. The thread cannot join itself,
            // and ends by `quit`.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("the handler of a panic has panicked");
            }
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

/// The thread's state.
struct Worker {
    shared: Arc<Shared>,
    faults: Arc<dyn FaultHandler>,
    seed: u64,
    deadlock_after: Duration,
    pages: Vec<Arc<Memory>>,
    channels: Vec<Arc<Channel>>,
    groups: Vec<Group>,
    preemption: BTreeMap<u32, Preemption>,
    engine: Possession,
    /// Generation of the lists from which the fields above were copied.
    seen: Option<u32>,
    /// A doorbell was rung, possibly for a channel that only newer lists contain.
    unseen: Cell<bool>,
    /// Number of rounds with progress.
    round: u64,
    standstill: Option<Standstill>,
    order: Option<Arc<OrderCheck>>,
}

/// All channels with work wait for semaphores.
struct Standstill {
    waiters: Vec<Waiter>,
    since: Instant,
    reported: bool,
}

impl Worker {
    fn run(mut self) {
        let mut active_at = Instant::now();
        loop {
            // Poll doorbells before copying the lists: a channel is bound before its doorbell is rung, so the lists
            // below contain the channel of any token seen here.
            let mut rung = self.poll_pages();
            if !self.is_current() {
                let lists = self.shared.lists.lock();
                if lists.quit {
                    return;
                }
                self.seen = Some(lists.generation);
                self.pages.clone_from(&lists.pages);
                self.channels.clone_from(&lists.channels);
                self.groups = runlist::groups(&lists.channels, &lists.timeslices);
                self.preemption.clone_from(&lists.preemption);
                let abandoned = lists.abandoned;
                drop(lists);
                self.engine.update(|tsg| self.groups.iter().any(|group| group.tsg == tsg), abandoned);
                active_at = Instant::now();
            }
            rung |= self.unseen.take();
            self.channels.iter().for_each(|channel| channel.note_doorbell(rung));
            let stalled = self.shared.is_stalled();
            let active = rung | (!stalled && self.serve_groups());
            if active {
                self.standstill = None;
                active_at = Instant::now();
                continue;
            }
            if !stalled {
                self.look_for_deadlock();
            }
            self.wait(active_at.elapsed());
        }
    }

    /// Returns whether the thread's copy of the lists is current.
    fn is_current(&self) -> bool {
        self.seen == Some(self.shared.generation.load(Ordering::Acquire))
    }

    /// Runs the turn of each TSG. Returns whether the thread should continue immediately.
    fn serve_groups(&mut self) -> bool {
        let (mut moved, visited, mut waits) = (false, Cell::new(false), false);
        let first = runlist::first(self.seed, self.round, self.groups.len());
        let mut engine = core::mem::replace(&mut self.engine, Possession::new(Duration::ZERO));
        for group in self.groups[first..].iter().chain(&self.groups[..first]) {
            if !engine.admits(group.tsg) {
                waits |= group.channels.iter().any(|channel| channel.standing() == Standing::Busy);
                continue;
            }
            let preemption = self.preemption.get(&group.tsg).copied().unwrap_or_default();
            let yields = preemption == Preemption::Block && engine.must_yield(group.tsg);
            group.channels.iter().for_each(|channel| channel.set_yielding(yields));
            let mut begun = false;
            moved |= runlist::turn(group.traversals, || {
                // The doorbells were polled just before the first traversal.
                if core::mem::replace(&mut begun, true) {
                    self.look();
                }
                self.traverse(group, &visited)
            });
            let occupies = group.channels.iter().any(|channel| channel.occupies_engine(preemption));
            engine.after_turn(group.tsg, occupies);
        }
        let timeout = engine.tick(waits, Instant::now());
        self.engine = engine;
        if let Some(timeout) = timeout {
            self.faults.switch_timeout(timeout.tsg, timeout.abandoned);
        }
        self.round += u64::from(moved);
        moved || visited.get()
    }

    /// Polls the doorbells in the middle of a round.
    fn look(&self) {
        if self.poll_pages() {
            self.channels.iter().for_each(|channel| channel.note_doorbell(true));
            if !self.is_current() {
                self.unseen.set(true);
            }
        }
    }

    /// Runs one slice of each channel of a TSG.
    fn traverse(&self, group: &Group, visited: &Cell<bool>) -> Traversal {
        if !self.is_current() || self.shared.is_stalled() {
            return Traversal { cut: true, ..Traversal::default() };
        }
        let mut traversal = Traversal::default();
        for channel in &group.channels {
            let served = channel.serve(&Siblings::new(channel, &group.channels));
            for finding in self.order.as_ref().map_or_else(Vec::new, |order| order.take_unlogged()) {
                self.faults.finding(&finding);
            }
            if served.interrupted {
                self.faults.non_stall_interrupt(channel.id());
            }
            if let Some(fault) = served.fault {
                tracing::debug!(channel = channel.id(), %fault, "channel fault");
                self.faults.fault(channel.id(), fault);
            }
            traversal.moved |= served.moved;
            traversal.held |= served.held;
            visited.set(visited.get() | served.visited);
        }
        traversal
    }

    /// Called without progress: checks whether all channels wait for semaphores, and for how long.
    fn look_for_deadlock(&mut self) {
        let mut waiters = Vec::new();
        for channel in &self.channels {
            match channel.standing() {
                Standing::Idle => {}
                Standing::Waiting(waiter) => waiters.push(waiter),
                Standing::Busy => {
                    self.standstill = None;
                    return;
                }
            }
        }
        if waiters.is_empty() {
            self.standstill = None;
            return;
        }
        let Some(standstill) = self.standstill.as_mut().filter(|known| known.waiters == waiters) else {
            self.standstill = Some(Standstill { waiters, since: Instant::now(), reported: false });
            return;
        };
        if !standstill.reported && standstill.since.elapsed() >= self.deadlock_after {
            standstill.reported = true;
            self.faults.deadlock(&waiters);
        }
    }

    /// Updates the time on all pages. Returns whether a doorbell was rung.
    fn poll_pages(&self) -> bool {
        let now = ptimer_ns();
        let mut rung = false;
        for page in &self.pages {
            show_time(page, now);
            let doorbell = page.word(offset(usermode::Doorbell::ADDRESS));
            // Reading first keeps the cache line in the writer's cache while there is no token.
            if doorbell.load(Ordering::Relaxed) == NO_TOKEN {
                continue;
            }
            let token = doorbell.swap(NO_TOKEN, Ordering::AcqRel);
            tracing::trace!(token, "doorbell");
            rung |=
                !self.shared.disturbed.load(Ordering::Acquire) || self.shared.disturbances.lock().doorbell();
        }
        rung
    }

    fn wait(&self, idle: Duration) {
        if self.channels.is_empty() {
            let mut lists = self.shared.lists.lock();
            while self.seen == Some(lists.generation) {
                self.shared.wake.wait(&mut lists);
            }
        } else if idle < SPIN {
            // Yields the core to other threads at little cost.
            std::thread::yield_now();
        } else {
            let nap = if idle > LONG_IDLE { LONG_NAP } else { (idle / 8).clamp(NAP.0, NAP.1) };
            let mut lists = self.shared.lists.lock();
            if self.seen == Some(lists.generation) {
                self.shared.wake.wait_for(&mut lists, nap);
            }
        }
    }
}

/// Writes TIME_0 and TIME_1 at once, as the halves of one 64-bit word. A reader that reads the high half before and
/// after the low one never sees halves of different times.
fn show_time(page: &Memory, now: u64) {
    const _: () = assert!(usermode::Time1::ADDRESS == usermode::Time0::ADDRESS + 4);
    const _: () = assert!(usermode::Time0::ADDRESS.is_multiple_of(8));
    let at = offset(usermode::Time0::ADDRESS);
    assert!(at + 8 <= page.len(), "a user-mode page has 64 KiB");
    // SAFETY: in bounds, aligned to 8 bytes because mappings are page aligned, and valid while `page` lives.
    let time = unsafe { AtomicU64::from_ptr(page.pointer().as_ptr().add(at).cast()) };
    let high = u64::from(usermode::Time1::INFO.named_bits());
    let low = u64::from(usermode::Time0::INFO.named_bits());
    time.store(now & (high << 32 | low), Ordering::Release);
}

/// CAST: register offsets are below 64 KiB.
const fn offset(address: u32) -> usize {
    address as usize
}
