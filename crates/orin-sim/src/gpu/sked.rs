//! The compute scheduler: the order of launch descriptors, and the actions at a grid's end.
//!
//! Grids of a channel run one after the other, in the order in which they were scheduled. Silicon may overlap them;
//! running in order is one of the legal outcomes.
//!
//! SKED works on copies of descriptors in its own cache. The effect of an action on the cache is inferred from its name
//! (`clc7c0.h`):
//!
//! | action | reads memory | cache state afterwards |
//! |---|---|---|
//! | PREFETCH | unless the descriptor is cached | cached |
//! | SCHEDULE | when the grid starts, unless it is cached | cached until the grid has ended |
//! | PREFETCH_SCHEDULE | immediately, unless it is cached | cached until the grid has ended |
//! | INVALIDATE | no | not cached |
//! | INVALIDATE_COPY_SCHEDULE, INVALIDATE_PREFETCH_COPY_SCHEDULE | at once | not cached: the grid has a copy |
//!
//! So a descriptor that is rewritten in place between PREFETCH and the end of its grid runs with its old contents. That
//! a copy does not outlive its grid is known from a board: a driver that launches by PREFETCH_SCHEDULE rewrites its
//! descriptors in place between runs. A dependent descriptor with PREFETCH is cached when the previous grid starts. The
//! cache size of a board is unknown; here the oldest of [`CACHE_DEPTH`] entries is evicted.
//!
//! A grid's end is: memory barrier, releases 0 to 2, then the dependent descriptor.

use core::sync::atomic::{Ordering, fence};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ampere_cmd::qmd::QmdV3_0;

use crate::check::{Unit, Watch};
use crate::gpu::qmd::{self, Dependent, DependentAction, Environment, Grid, refuse};
use crate::gpu::{Activity, ChannelFault, Effects};
use crate::mmu::{Access, MmuFault, View};
use crate::quirks::{ChainEffect, Quirks};
use crate::sm::{GridRun, Sms, Step};

/// Maximum number of warp instructions per slice: some hundred microseconds.
const SLICE_FUEL: u64 = 16_384;

/// Maximum number of queued descriptors; beyond that host stalls.
const QUEUE_DEPTH: usize = 64;

/// Number of descriptors in the cache.
const CACHE_DEPTH: usize = 64;

/// SKED ESR: an active descriptor is invalidated.
const ESR_ACTIVE_INVALIDATED: u32 = 29;

/// Whether the scheduler copies the descriptor for the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduling {
    /// The descriptor is used through the cache, and is active until the grid has ended.
    InPlace,
    /// The cached descriptor is dropped. Memory is read now and may be reused immediately.
    Copy,
}

/// A scheduled launch.
#[derive(Debug)]
struct Task {
    va: u64,
    copy: Option<QmdV3_0>,
    environment: Environment,
    /// The grid's watch, with the order check.
    watch: Option<Arc<Watch>>,
}

/// The grid in progress.
#[derive(Debug)]
struct Running {
    task: Task,
    grid: Grid,
    run: GridRun,
}

/// Descriptors by address.
#[derive(Debug, Default)]
struct Cache {
    entries: BTreeMap<u64, QmdV3_0>,
    /// Addresses in insertion order.
    order: VecDeque<u64>,
}

impl Cache {
    /// Returns the cached descriptor, or reads it if it is not cached.
    ///
    /// # Errors
    ///
    /// The fault of a read that fails.
    fn load(&mut self, va: u64, view: &View) -> Result<QmdV3_0, ChannelFault> {
        if let Some(cached) = self.entries.get(&va) {
            if let Some(watch) = view.watch()
                && qmd::read(va, &view.watched_by(None)).is_ok_and(|memory| memory != *cached)
            {
                watch.as_unit(Unit::Scheduler).stale_descriptor(va, QmdV3_0::BYTES as u64);
            }
            return Ok(*cached);
        }
        let descriptor = qmd::read(va, view)?;
        if self.order.len() == CACHE_DEPTH
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.order.push_back(va);
        self.entries.insert(va, descriptor);
        Ok(descriptor)
    }

    fn drop(&mut self, va: u64) {
        if self.entries.remove(&va).is_some() {
            self.order.retain(|&other| other != va);
        }
    }
}

/// The scheduler's state in one channel.
#[derive(Debug)]
pub(super) struct Sked {
    queue: VecDeque<Task>,
    running: Option<Box<Running>>,
    cache: Cache,
    /// Dependence counters of descriptors that have been counted and not invalidated.
    dependences: BTreeMap<u64, u64>,
    sms: Arc<Sms>,
    quirks: Arc<Quirks>,
    /// The descriptor at which the scheduler hangs because of a quirk.
    hung: Option<u64>,
}

impl Sked {
    pub(super) fn new(sms: Arc<Sms>, quirks: Arc<Quirks>) -> Self {
        let (queue, cache, dependences) = (VecDeque::new(), Cache::default(), BTreeMap::new());
        Self { queue, running: None, cache, dependences, sms, quirks, hung: None }
    }

    /// Stops the scheduler permanently at a descriptor.
    pub(super) fn hang(&mut self, va: u64) {
        self.hung = self.hung.or(Some(va));
    }

    /// Returns whether all scheduled grids have finished. Descriptors that still have dependences are not scheduled.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty() && self.hung.is_none()
    }

    /// Returns whether another launch can be queued.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE_DEPTH
    }

    /// The current grid, or the next one.
    pub(super) fn activity(&self) -> Option<Activity> {
        if let Some(running) = &self.running {
            return Some(Activity::RunningGrid {
                qmd_va: running.task.va,
                program_va: running.grid.program_va,
                queued: self.queue.len(),
            });
        }
        let queued = self.queue.len();
        let waiting = |va, queued| Activity::RunningGrid { qmd_va: va, program_va: 0, queued };
        match (self.hung, self.queue.front()) {
            (Some(va), _) => Some(waiting(va, queued)),
            (None, Some(task)) => Some(waiting(task.va, queued - 1)),
            (None, None) => None,
        }
    }

    /// Returns whether an unfinished grid uses the cached descriptor.
    fn is_active(&self, va: u64) -> bool {
        let running = self.running.as_deref().map(|running| &running.task);
        self.queue.iter().chain(running).any(|task| task.va == va && task.copy.is_none())
    }

    /// Drops the cached copy of a descriptor, with its dependence counter.
    ///
    /// # Errors
    ///
    /// The fault for an active descriptor.
    pub(super) fn invalidate(&mut self, va: u64) -> Result<(), ChannelFault> {
        if self.is_active(va) {
            return Err(refuse(va, Some(ESR_ACTIVE_INVALIDATED), "an active descriptor is invalidated"));
        }
        self.cache.drop(va);
        self.dependences.remove(&va);
        Ok(())
    }

    /// INVALIDATE_SKED_CACHES: drops all entries that no grid uses.
    pub(super) fn invalidate_all(&mut self) {
        let cached: Vec<u64> = self.cache.order.iter().copied().collect();
        for va in cached {
            if !self.is_active(va) {
                self.cache.drop(va);
            }
        }
    }

    /// Reads a descriptor into the cache.
    ///
    /// # Errors
    ///
    /// The fault of a read that fails.
    pub(super) fn prefetch(&mut self, va: u64, view: &View) -> Result<(), ChannelFault> {
        self.cache.load(va, view).map(drop)
    }

    /// Queues a launch.
    ///
    /// # Errors
    ///
    /// The fault if the descriptor cannot be read (when copied), or is already active.
    pub(super) fn schedule(
        &mut self,
        va: u64,
        scheduling: Scheduling,
        environment: Environment,
        view: &View,
    ) -> Result<(), ChannelFault> {
        let copy = match scheduling {
            Scheduling::Copy => {
                self.invalidate(va)?;
                Some(qmd::read(va, view)?)
            }
            Scheduling::InPlace if self.is_active(va) => {
                return Err(refuse(va, None, "the descriptor is scheduled again while it is active"));
            }
            Scheduling::InPlace => None,
        };
        let watch =
            view.watch().map(|watch| watch.issue(format!("the grid of descriptor {va:#x}"), Unit::Sm));
        self.queue.push_back(Task { va, copy, environment, watch });
        Ok(())
    }

    /// Adds one dependence to a descriptor.
    ///
    /// # Errors
    ///
    /// The fault if the descriptor cannot be read, or its counter overflows.
    pub(super) fn increment(&mut self, va: u64, view: &View) -> Result<(), ChannelFault> {
        let counter = self.dependence(va, view)?;
        if *counter == qmd::MAX_DEPENDENCE {
            return Err(refuse(va, None, "DEPENDENCE_COUNTER overflows"));
        }
        *counter += 1;
        Ok(())
    }

    /// Removes one dependence of a descriptor, which is scheduled when none is left.
    ///
    /// # Errors
    ///
    /// The fault if the descriptor cannot be read, or has no dependence.
    pub(super) fn decrement(
        &mut self,
        va: u64,
        environment: Environment,
        view: &View,
    ) -> Result<(), ChannelFault> {
        let counter = self.dependence(va, view)?;
        match *counter {
            0 => Err(refuse(va, None, "DEPENDENCE_COUNTER falls below zero")),
            1 => {
                self.dependences.remove(&va);
                self.schedule(va, Scheduling::InPlace, environment, view)
            }
            _ => {
                *counter -= 1;
                Ok(())
            }
        }
    }

    /// The counter of a descriptor, initialised with the value in the descriptor.
    fn dependence(&mut self, va: u64, view: &View) -> Result<&mut u64, ChannelFault> {
        use std::collections::btree_map::Entry;
        match self.dependences.entry(va) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(qmd::dependence_counter(&self.cache.load(va, view)?))),
        }
    }

    /// Returns whether blocks of a grid are on the SMs, or the scheduler hangs.
    pub(super) fn has_blocks(&self) -> bool {
        self.hung.is_some() || self.running.as_ref().is_some_and(|running| !running.run.is_between_blocks())
    }

    /// Runs a slice. While the scheduler is `draining`, no block starts. Returns whether there was anything to run.
    ///
    /// # Errors
    ///
    /// The fault of the descriptor, of the grid, or of its release writes.
    pub(super) fn step(
        &mut self,
        view: &View,
        effects: &mut Effects,
        draining: bool,
    ) -> Result<bool, ChannelFault> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None if draining => return Ok(false),
            None if self.hung.is_some() => return Ok(false),
            None => match self.queue.pop_front() {
                Some(task) => Box::new(self.begin(task, view)?),
                None => return Ok(false),
            },
        };
        running.run.drain(draining);
        if draining && running.run.is_between_blocks() {
            self.running = Some(running);
            return Ok(false);
        }
        match running.run.step(SLICE_FUEL).map_err(ChannelFault::Sm)? {
            Step::Running => self.running = Some(running),
            Step::Finished(_) => self.finish(&running, view, effects)?,
        }
        Ok(true)
    }

    /// Checks a descriptor and prepares its grid.
    fn begin(&mut self, task: Task, view: &View) -> Result<Running, ChannelFault> {
        let descriptor = match task.copy {
            Some(copy) => copy,
            None => self.cache.load(task.va, view)?,
        };
        let grid = qmd::check(task.va, &descriptor, &task.environment, view)?;
        if let Some((mut va, end)) = grid.prefetch {
            while va < end {
                va = view.span(va, Access::Read).map_err(refused_access)?.end;
            }
        }
        if let Some(Dependent { va, prefetch: true, .. }) = grid.dependent {
            self.cache.load(va, view)?;
        }
        let view = view.watched_by(task.watch.clone());
        if let (Some(watch), Some(dependent)) = (view.watch(), grid.dependent) {
            dependent.check_proven(watch);
        }
        let run = GridRun::on(&self.sms, grid.launch.clone(), view).map_err(ChannelFault::Sm)?;
        if let Some(checker) = self.sms.checker() {
            checker.count_launch();
        }
        Ok(Running { task, grid, run })
    }

    fn finish(&mut self, running: &Running, view: &View, effects: &mut Effects) -> Result<(), ChannelFault> {
        fence(Ordering::SeqCst);
        if running.task.copy.is_none() {
            self.cache.drop(running.task.va);
        }
        if let Some(watch) = &running.task.watch {
            watch.finished();
        }
        let view = &view.watched_by(running.task.watch.clone());
        for release in running.grid.releases.iter().flatten() {
            release.write.perform(view).map_err(refused_access)?;
            effects.interrupts += u32::from(release.interrupt);
        }
        let Some(Dependent { va, action, prefetch }) = running.grid.dependent else { return Ok(()) };
        match self.quirks.chain(action.number(), prefetch) {
            None => {}
            Some(ChainEffect::Lost) => return Ok(()),
            Some(ChainEffect::Hang) => {
                self.hang(va);
                return Ok(());
            }
        }
        let environment = running.task.environment;
        match action {
            DependentAction::Schedule => self.schedule(va, Scheduling::InPlace, environment, view),
            DependentAction::InvalidateCopySchedule => self.schedule(va, Scheduling::Copy, environment, view),
            DependentAction::DecrementDependence => {
                if let Some(watch) = &running.task.watch {
                    // The last decrement starts the grid, which is ordered after all decrements.
                    watch.finished_in_order();
                }
                self.decrement(va, environment, view)
            }
        }
    }
}

/// The fault of a refused access.
fn refused_access(fault: MmuFault) -> ChannelFault {
    ChannelFault::Mmu { client: "compute", fault }
}
