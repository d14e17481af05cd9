//! The compute scheduler: which launch descriptor runs next, and what follows a grid's end.
//!
//! Grids of a channel run one after the other, in the order in which they were scheduled; silicon
//! may overlap them, and in order is one of the legal outcomes. A descriptor is read when its grid
//! begins, unless the action asked for a copy: the actions without COPY leave it to the driver not
//! to touch the descriptor until the grid is done, so a driver that reuses one too early runs the
//! wrong launch here as on a board.
//!
//! A grid's end is: memory barrier, releases 0 to 2, then the dependent descriptor.

use core::sync::atomic::{Ordering, fence};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ampere_cmd::qmd::QmdV3_0;

use crate::gpu::qmd::{self, Dependent, DependentAction, Environment, Grid, refuse};
use crate::gpu::{Activity, ChannelFault, Effects};
use crate::mmu::View;
use crate::sm::{GridRun, Sms, Step};

/// Warp instructions that a slice executes at most: some hundred microseconds.
const SLICE_FUEL: u64 = 16_384;

/// Descriptors that may wait; host stalls beyond that.
const QUEUE_DEPTH: usize = 64;

/// SKED ESR: an active descriptor is invalidated.
const ESR_ACTIVE_INVALIDATED: u32 = 29;

/// Whether the scheduler makes a copy of the descriptor of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduling {
    /// The descriptor is read when the grid begins.
    InPlace,
    /// The descriptor is read now and may be reused at once.
    Copy,
}

/// A scheduled launch.
#[derive(Debug)]
struct Task {
    va: u64,
    copy: Option<QmdV3_0>,
    environment: Environment,
}

/// The grid in progress.
#[derive(Debug)]
struct Running {
    task: Task,
    grid: Grid,
    run: GridRun,
}

/// The scheduler's state in one channel.
#[derive(Debug)]
pub(super) struct Sked {
    queue: VecDeque<Task>,
    running: Option<Box<Running>>,
    /// Dependence counters of descriptors that have been counted but not scheduled.
    dependences: BTreeMap<u64, u64>,
    sms: Arc<Sms>,
}

impl Sked {
    pub(super) fn new(sms: Arc<Sms>) -> Self {
        Self { queue: VecDeque::new(), running: None, dependences: BTreeMap::new(), sms }
    }

    /// Whether all scheduled grids have finished. Descriptors that wait for others to count them
    /// down are not scheduled.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty()
    }

    /// Whether another launch can be queued.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE_DEPTH
    }

    /// The grid in progress, or the next.
    pub(super) fn activity(&self) -> Option<Activity> {
        if let Some(running) = &self.running {
            return Some(Activity::RunningGrid {
                qmd_va: running.task.va,
                program_va: running.grid.program_va,
                queued: self.queue.len(),
            });
        }
        self.queue.front().map(|task| Activity::RunningGrid {
            qmd_va: task.va,
            program_va: 0,
            queued: self.queue.len() - 1,
        })
    }

    /// Whether the scheduler still refers to the descriptor in memory.
    fn is_active(&self, va: u64) -> bool {
        let running = self.running.as_deref().map(|running| &running.task);
        self.queue.iter().chain(running).any(|task| task.va == va && task.copy.is_none())
    }

    /// Drops the cached copy of a descriptor.
    ///
    /// # Errors
    ///
    /// The descriptor is active.
    pub(super) fn invalidate(&self, va: u64) -> Result<(), ChannelFault> {
        if self.is_active(va) {
            return Err(refuse(va, Some(ESR_ACTIVE_INVALIDATED), "an active descriptor is invalidated"));
        }
        Ok(())
    }

    /// Reads a descriptor ahead; nothing is kept, as the model has no caches.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub(super) fn prefetch(&self, va: u64, view: &View) -> Result<(), ChannelFault> {
        qmd::read(va, view).map(drop)
    }

    /// Queues a launch.
    ///
    /// # Errors
    ///
    /// The descriptor cannot be read (when copied), or is active already.
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
        self.queue.push_back(Task { va, copy, environment });
        Ok(())
    }

    /// Adds one dependence to a descriptor.
    ///
    /// # Errors
    ///
    /// The descriptor cannot be read, or its counter overflows.
    pub(super) fn increment(&mut self, va: u64, view: &View) -> Result<(), ChannelFault> {
        let counter = self.dependence(va, view)?;
        if *counter == qmd::MAX_DEPENDENCE {
            return Err(refuse(va, None, "DEPENDENCE_COUNTER overflows"));
        }
        *counter += 1;
        Ok(())
    }

    /// Takes one dependence off a descriptor, which is scheduled when none is left.
    ///
    /// # Errors
    ///
    /// The descriptor cannot be read, or depends on nothing.
    pub(super) fn decrement(
        &mut self,
        va: u64,
        environment: Environment,
        view: &View,
    ) -> Result<(), ChannelFault> {
        let counter = self.dependence(va, view)?;
        match *counter {
            0 => Err(refuse(va, None, "DEPENDENCE_COUNTER is counted below zero")),
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

    fn dependence(&mut self, va: u64, view: &View) -> Result<&mut u64, ChannelFault> {
        use std::collections::btree_map::Entry;
        match self.dependences.entry(va) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(qmd::dependence_counter(&qmd::read(va, view)?))),
        }
    }

    /// Runs a slice; returns whether there was anything to run.
    ///
    /// # Errors
    ///
    /// The fault of the descriptor, of the grid, or of what it writes when done.
    pub(super) fn step(&mut self, view: &View, effects: &mut Effects) -> Result<bool, ChannelFault> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => match self.queue.pop_front() {
                Some(task) => Box::new(begin(task, &self.sms, view)?),
                None => return Ok(false),
            },
        };
        match running.run.step(SLICE_FUEL).map_err(ChannelFault::Sm)? {
            Step::Running => self.running = Some(running),
            Step::Finished(_) => self.finish(&running, view, effects)?,
        }
        Ok(true)
    }

    fn finish(&mut self, running: &Running, view: &View, effects: &mut Effects) -> Result<(), ChannelFault> {
        fence(Ordering::SeqCst);
        for release in running.grid.releases.iter().flatten() {
            release.write.perform(view).map_err(|fault| ChannelFault::Mmu { client: "compute", fault })?;
            effects.interrupts += u32::from(release.interrupt);
        }
        let Some(Dependent { va, action }) = running.grid.dependent else { return Ok(()) };
        let environment = running.task.environment;
        match action {
            DependentAction::Schedule => self.schedule(va, Scheduling::InPlace, environment, view),
            DependentAction::InvalidateCopySchedule => self.schedule(va, Scheduling::Copy, environment, view),
            DependentAction::DecrementDependence => self.decrement(va, environment, view),
        }
    }
}

/// Checks a descriptor and prepares its grid.
fn begin(task: Task, sms: &Arc<Sms>, view: &View) -> Result<Running, ChannelFault> {
    let descriptor = match task.copy {
        Some(copy) => copy,
        None => qmd::read(task.va, view)?,
    };
    let grid = qmd::check(task.va, &descriptor, &task.environment, view)?;
    let run = GridRun::on(sms, grid.launch.clone(), view.clone()).map_err(ChannelFault::Sm)?;
    Ok(Running { task, grid, run })
}
