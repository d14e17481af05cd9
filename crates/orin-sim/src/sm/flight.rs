//! The CTAs of a grid in flight, shared by the threads that run them.
//!
//! Hardware runs CTAs concurrently, in no order that a program may rely on. The model runs them concurrently too, but
//! its results must not depend on the number of host threads. CTAs communicate only through global memory, so a grid
//! runs in *phases* of two parts:
//!
//! 1. Concurrently, every CTA runs until it ends, until its next instruction is *ordered*, or until its share of the
//!    phase is used up. The outcome of an ordered instruction depends on which CTA executes first: atomics that
//!    return the old value or do not commute (exchanges, floating-point sums), and loads used for waiting (`volatile`
//!    and stronger). Commutative reductions are not ordered.
//! 2. Sequentially, in grid order, each CTA that stopped at an ordered instruction gets a turn in which it executes
//!    such instructions. A turn ends after a fixed time, when the CTA executes no ordered instruction for a while, or
//!    when it appears to wait for another CTA.
//!
//! Without data races, the first part of a phase does not depend on other CTAs; the second part has a fixed order. A
//! phase is bounded, so CTAs in flight that wait for each other all make progress, as on hardware. The set of CTAs in
//! flight does not depend on time either: they start in grid order, as many as the chip would hold.
//!
//! A grid can be preempted between CTAs: while it *drains*, no further CTA starts, until the last one in flight has
//! ended.
//!
//! If a CTA faults, the earlier CTAs of the grid finish the first part. The first fault in grid order is reported.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::constants::Constants;
use super::coverage::Counter;
use super::cta::{Cta, Grid, Mode, Turn};
use super::exec::Spent;
use super::port::Port;
use super::program::Program;
use super::{Launch, SmFault, Sms};
use crate::check::GridCheck;
use crate::kernel_profile::{GridProfile, Tally};
use crate::mmu::View;

/// Warp instructions that a CTA executes before another one runs.
const TURN: u64 = 1 << 16;

/// Warp instructions that a CTA executes in the first part of a phase.
const SHARE: u64 = 1 << 20;

/// The launch of a grid and its CTAs in flight.
pub(super) struct Flight {
    pub(super) launch: Launch,
    pub(super) constants: Constants,
    pub(super) sms: Arc<Sms>,
    memory: View,
    /// The grid's checks, if enabled.
    pub(super) check: Option<Arc<GridCheck>>,
    /// The grid's profile, if profiling is enabled.
    pub(super) profile: Option<GridProfile>,
    /// Number of CTAs in the grid.
    total: u64,
    /// Maximum number of CTAs in flight.
    capacity: usize,
    /// No further CTA starts. Changes only between steps.
    draining: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// CTAs started so far, in grid order.
    started: u64,
    /// CTAs in flight.
    flying: usize,
    /// CTAs interrupted within their turn.
    interrupted: Vec<Cta>,
    /// CTAs waiting for their next turn, the longest waiting first.
    ready: VecDeque<Cta>,
    /// CTAs that have completed their part of the phase.
    over: Vec<Cta>,
    /// Ended CTAs, for reuse.
    ended: Vec<Cta>,
    spent: Spent,
    /// The first fault in grid order, and the number of its CTA.
    fault: Option<(u64, SmFault)>,
}

/// State that a thread needs to run CTAs.
pub(super) struct Engine {
    program: Program,
    port: Port,
    counter: Counter,
    /// Counts for the grid's profile, if profiling is enabled.
    pub(super) tally: Option<Tally>,
}

impl Engine {
    fn new(flight: &Flight) -> Self {
        // Registers are allocated in groups of 8 per thread.
        let registers = flight.launch.registers.next_multiple_of(8);
        Self {
            program: Program::new(
                Arc::clone(&flight.sms),
                flight.memory.clone(),
                registers,
                &flight.constants,
            ),
            port: Port::new(flight.memory.clone()),
            counter: Counter::new(flight.sms.options.coverage.clone()),
            tally: flight.profile.is_some().then(Tally::default),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.sms.keep_warps(state.ended.drain(..).flat_map(Cta::into_warps));
    }
}

impl Flight {
    pub(super) fn new(
        sms: Arc<Sms>,
        launch: Launch,
        constants: Constants,
        memory: View,
        capacity: usize,
    ) -> Self {
        let total = launch.grid.iter().map(|&extent| u64::from(extent)).product();
        let checker = sms.options.check.as_ref();
        let profiler = sms.options.profile.as_ref();
        let profile = profiler.and_then(|profiler| profiler.begin(&launch, &memory, checker));
        let checks = checker.filter(|checker| checker.tools().examine_kernels());
        let check = checks.map(|checker| GridCheck::new(checker, &launch, &memory));
        let launch = check.as_ref().map_or(launch, |check| check.launch.clone());
        Self {
            launch,
            constants,
            sms,
            memory,
            check,
            profile,
            total,
            capacity,
            draining: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub(super) fn engine(&self) -> Engine {
        Engine::new(self)
    }

    /// Executed instructions.
    pub(super) fn spent(&self) -> Spent {
        self.state.lock().spent
    }

    /// CTAs started so far.
    pub(super) fn started(&self) -> u64 {
        self.state.lock().started
    }

    /// Allows CTAs to start, or not.
    pub(super) fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether no CTA is in flight.
    pub(super) fn is_between_blocks(&self) -> bool {
        self.state.lock().flying == 0
    }

    /// Whether the grid has further CTAs, but none is in flight and none may start.
    pub(super) fn is_drained(&self) -> bool {
        if !self.is_draining() {
            return false;
        }
        let state = self.state.lock();
        state.flying == 0 && state.started < self.total && state.fault.is_none()
    }

    /// Returns the number of CTAs, at most `most`, that could run concurrently now besides the running ones.
    pub(super) fn waiting(&self, most: usize) -> usize {
        let state = self.state.lock();
        if state.fault.is_some() {
            return 0;
        }
        let new = self.startable(&state);
        most.min(state.interrupted.len() + state.ready.len() + new)
    }

    /// Number of CTAs that may start now.
    fn startable(&self, state: &State) -> usize {
        if self.is_draining() {
            return 0;
        }
        // CAST: bounded by the capacity.
        (self.total - state.started).min((self.capacity - state.flying) as u64) as usize
    }

    /// Runs CTAs until `fuel` is used up or no CTA can run concurrently. Returns the remaining fuel.
    pub(super) fn work(&self, engine: &mut Engine, fuel: u64) -> u64 {
        let mut left = fuel;
        while left > 0
            && let Some(mut cta) = self.take()
        {
            let mut spent = Spent::default();
            let fuel = cta.turn_left.min(left);
            let outcome = self.run(engine, &mut cta, fuel, Mode::SideBySide, &mut spent);
            left = left.saturating_sub(spent.warp);
            cta.turn_left = cta.turn_left.saturating_sub(spent.warp);
            cta.share_left = cta.share_left.saturating_sub(spent.warp);
            self.put_back(cta, outcome, spent);
        }
        left
    }

    fn run(
        &self,
        engine: &mut Engine,
        cta: &mut Cta,
        fuel: u64,
        mode: Mode,
        spent: &mut Spent,
    ) -> Result<Turn, SmFault> {
        let mut grid = Grid {
            launch: &self.launch,
            constants: &self.constants,
            program: &mut engine.program,
            counter: &mut engine.counter,
            port: &mut engine.port,
            tally: engine.tally.as_mut(),
        };
        cta.run(&mut grid, fuel, mode, spent)
    }

    /// Takes a CTA to run concurrently: an interrupted one, else the next of the grid, else the one that has waited
    /// longest.
    fn take(&self) -> Option<Cta> {
        let mut state = self.state.lock();
        if let Some((first, _)) = state.fault {
            // After a fault, only CTAs earlier in grid order run.
            let State { interrupted, ready, .. } = &mut *state;
            let early = |cta: &Cta| cta.number < first;
            return match interrupted.iter().position(early) {
                Some(at) => Some(interrupted.swap_remove(at)),
                None => ready.iter().position(early).and_then(|at| ready.remove(at)),
            };
        }
        if let Some(cta) = state.interrupted.pop() {
            return Some(cta);
        }
        if self.startable(&state) > 0 {
            let number = state.started;
            state.started += 1;
            state.flying += 1;
            let room = state.ended.pop();
            drop(state);
            let mut cta = room.unwrap_or_else(|| Cta::new(&self.launch, &self.sms, self.check.as_ref()));
            cta.start(&self.launch, number, self.sms.options.seed);
            (cta.turn_left, cta.share_left) = (TURN, SHARE);
            return Some(cta);
        }
        state.ready.pop_front()
    }

    /// Takes back a CTA that has run concurrently.
    fn put_back(&self, mut cta: Cta, outcome: Result<Turn, SmFault>, spent: Spent) {
        let mut state = self.state.lock();
        state.spent += spent;
        match outcome {
            Ok(Turn::Done) => state.end(cta),
            Ok(Turn::Ordered) => {
                cta.ordered = true;
                state.over.push(cta);
            }
            Ok(Turn::Fuel) if cta.share_left == 0 => state.over.push(cta),
            Ok(Turn::Fuel) if cta.turn_left == 0 => {
                cta.turn_left = TURN;
                state.ready.push_back(cta);
            }
            Ok(Turn::Fuel) => state.interrupted.push(cta),
            Err(fault) => {
                state.note_fault(cta.number, fault);
                state.end(cta);
            }
        }
    }

    /// Returns whether a CTA can run concurrently. No thread may be running CTAs.
    pub(super) fn is_side_by_side(&self) -> bool {
        let state = self.state.lock();
        match state.fault {
            Some((first, _)) => state.interrupted.iter().chain(&state.ready).any(|cta| cta.number < first),
            None => !state.interrupted.is_empty() || !state.ready.is_empty() || self.startable(&state) > 0,
        }
    }

    /// Runs CTAs sequentially until `fuel` is used up or the next phase begins. Returns the remaining fuel. No thread
    /// may be running CTAs.
    ///
    /// # Errors
    ///
    /// Returns the fault that ends the grid.
    pub(super) fn work_in_order(&self, engine: &mut Engine, fuel: u64) -> Result<u64, SmFault> {
        let mut left = fuel;
        // No other thread needs the lock.
        let mut state = self.state.lock();
        if let Some((_, fault)) = state.fault {
            return Err(fault);
        }
        // The first CTA in grid order is the last of the list.
        state.over.sort_by_key(|cta| core::cmp::Reverse(cta.number));
        while left > 0
            && let Some(mut cta) = state.over.pop()
        {
            if !cta.ordered {
                // Its share is used up; it needs no turn.
                cta.begin_phase(SHARE, TURN);
                state.ready.push_back(cta);
                continue;
            }
            let mut spent = Spent::default();
            let outcome = self.run(engine, &mut cta, left, Mode::InTurn, &mut spent);
            left = left.saturating_sub(spent.warp);
            state.spent += spent;
            match outcome {
                Ok(Turn::Done) => state.end(cta),
                Ok(Turn::Fuel) => state.over.push(cta),
                Ok(Turn::Ordered) => {
                    cta.begin_phase(SHARE, TURN);
                    state.ready.push_back(cta);
                }
                Err(fault) => {
                    state.note_fault(cta.number, fault);
                    return Err(fault);
                }
            }
        }
        Ok(left)
    }

    /// Whether all CTAs have ended.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.started == self.total && state.flying == 0
    }
}

impl State {
    fn end(&mut self, cta: Cta) {
        self.flying -= 1;
        self.ended.push(cta);
    }

    fn note_fault(&mut self, number: u64, fault: SmFault) {
        if self.fault.is_none_or(|(first, _)| number < first) {
            self.fault = Some((number, fault));
        }
    }
}
