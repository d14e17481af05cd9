//! A running grid.
//!
//! The hardware keeps as many CTAs on its SMs as their threads, registers and shared memory allow, and starts the
//! next one when one ends. The interpreter keeps the same number in flight (see `flight`) and runs them on the
//! calling thread and on helper threads (`pool`). Between two steps no helper works, so a grid that is not stepped
//! accesses no memory.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::channel;

use gpu_hal::chip::{Sm, WARP};

use super::constants::Constants;
use super::flight::{Engine, Flight};
use super::pool::reporting;
use super::{GridStats, Launch, SmFault, SmFaultCause, SmOptions, Sms, Step};
use crate::chip::CHIP;
use crate::mmu::View;

/// Resources of an SM.
const SM: Sm = CHIP.sm;
/// Limit of host memory for the local memory of resident CTAs, in bytes.
const LOCAL_BUDGET: u64 = 512 << 20;

/// Warp instructions that the calling thread executes before it requests helpers. Short grids end before a helper
/// wakes up.
const ALONE: u64 = 4096;

/// The current part of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// CTAs run concurrently. Contains the number of instructions that the calling thread still executes alone.
    SideBySide(u64),
    /// CTAs run sequentially.
    InOrder,
}

/// A running grid.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # use orin_sim::sm::Launch;
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("code", 0x1000)?);
/// # for (at, word) in [0x794d_u32, 0, 0x0380_0000, 0x000f_ea00].into_iter().enumerate() {
/// #     memory.store(4 * at, word);
/// # }
/// # space.map(MappedRange { va: 0x20_0000, len: 0x1000, memory, offset: 0, writable: false, cached: false });
/// # let launch = Launch {
/// #     program_va: 0x20_0000,
/// #     grid: [4, 1, 1],
/// #     block: [32, 1, 1],
/// #     registers: 16,
/// #     shared_bytes: 0,
/// #     shared_limit: 164 << 10,
/// #     local_bytes: 0,
/// #     barriers: 0,
/// #     constants: [None; 8],
/// #     shared_window: 0xfe << 32,
/// #     local_window: 0xff << 32,
/// #     sm_count: 16,
/// #     textures: Default::default(),
/// # };
/// use orin_sim::sm::{GridRun, Step};
///
/// // A kernel of one instruction, EXIT, on four blocks of one warp.
/// let mut grid = GridRun::new(launch, space.view())?;
/// let Step::Finished(stats) = grid.step(u64::MAX)? else { panic!("fuel without end") };
/// assert_eq!((stats.warp_instructions, stats.lane_instructions), (4, 128));
/// # Ok(())
/// # }
/// ```
pub struct GridRun {
    flight: Arc<Flight>,
    /// One per thread.
    engines: Vec<Engine>,
    part: Part,
    ended: Option<SmFault>,
}

impl Drop for GridRun {
    fn drop(&mut self) {
        // The channel was removed before the grid ended.
        self.end_profile(false);
    }
}

impl core::fmt::Debug for GridRun {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("GridRun")
            .field("launch", &self.flight.launch)
            .field("started", &self.flight.started())
            .field("spent", &self.flight.spent())
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}

/// Returns the number of CTAs of `launch` that one SM holds at a time, as threads, registers and shared memory allow,
/// but at least one. The launch has 1 to 1024 threads per CTA.
pub(crate) fn ctas_per_sm(launch: &Launch) -> u32 {
    let warps = launch.block.iter().product::<u32>().div_ceil(WARP).max(1);
    SM.blocks
        .min(SM.warps / warps)
        .min(SM.registers / (SM.warp_registers(launch.registers) * warps))
        .min(launch.shared_limit / launch.shared_bytes.max(1))
        .max(1)
}

/// Returns the number of CTAs of `launch` that all SMs hold at a time.
fn capacity(launch: &Launch, threads: u32) -> u32 {
    let local = u64::from(launch.local_bytes) * u64::from(threads.next_multiple_of(32));
    let affordable = LOCAL_BUDGET.checked_div(local).unwrap_or(u64::MAX).max(1);
    // CAST: bounded by the first operand of the minimum.
    u64::from(ctas_per_sm(launch) * launch.sm_count.clamp(1, 256)).min(affordable) as u32
}

impl GridRun {
    /// Prepares a launch on the address space `memory` without executing anything.
    ///
    /// # Errors
    ///
    /// [`SmFaultCause::MisalignedPc`] if the program's address is not a multiple of 16; [`SmFaultCause::OutOfRange`]
    /// with `"block"` if the block has no threads, more than 1024, or does not fit an SM.
    pub fn new(launch: Launch, memory: View) -> Result<Self, SmFault> {
        let sms = Sms::new(launch.sm_count, SmOptions::default());
        Self::on(&sms, launch, memory)
    }

    /// As [`GridRun::new`], on the SMs of a GPU.
    ///
    /// # Errors
    ///
    /// As [`GridRun::new`].
    pub fn on(sms: &Arc<Sms>, launch: Launch, memory: View) -> Result<Self, SmFault> {
        let fault = |cause| SmFault { pc: launch.program_va, block: [0; 3], thread: [0; 3], cause };
        let threads = launch.block.iter().map(|&extent| u64::from(extent)).product::<u64>();
        if threads == 0 || threads > 1024 {
            return Err(fault(SmFaultCause::OutOfRange { space: "block", offset: threads, bytes: 0 }));
        }
        if !launch.program_va.is_multiple_of(16) {
            return Err(fault(SmFaultCause::MisalignedPc));
        }
        let constants = Constants::read(&launch, &memory);
        // CAST: at most 1024; at most 4096 CTAs.
        let capacity = capacity(&launch, threads as u32) as usize;
        let flight = Arc::new(Flight::new(Arc::clone(sms), launch, constants, memory, capacity));
        let engines = vec![flight.engine()];
        Ok(Self { flight, engines, part: Part::SideBySide(ALONE), ended: None })
    }

    /// Executes up to `fuel` warp instructions on each participating thread.
    ///
    /// # Errors
    ///
    /// Returns the fault that ended the grid; so do further calls.
    pub fn step(&mut self, fuel: u64) -> Result<Step, SmFault> {
        match self.ended {
            Some(fault) => Err(fault),
            None => self.run(fuel).inspect_err(|&fault| {
                if let Some(check) = &self.flight.check {
                    check.finish();
                    check.fault(&fault);
                }
                self.end_profile(false);
                self.ended = Some(fault);
            }),
        }
    }

    /// Allows further CTAs to start, or not. Without them the grid makes progress until the last CTA in flight has
    /// ended.
    pub(crate) fn drain(&mut self, draining: bool) {
        self.flight.set_draining(draining);
    }

    /// Whether no CTA is in flight.
    pub(crate) fn is_between_blocks(&self) -> bool {
        self.flight.is_between_blocks()
    }

    /// Returns the instructions executed so far.
    pub fn stats(&self) -> GridStats {
        let spent = self.flight.spent();
        GridStats { warp_instructions: spent.warp, lane_instructions: spent.lane }
    }

    fn run(&mut self, fuel: u64) -> Result<Step, SmFault> {
        let mut left = fuel;
        loop {
            if self.flight.is_drained() {
                return Ok(Step::Running);
            }
            if let Part::SideBySide(alone) = self.part {
                left = self.side_by_side(alone, left);
                if self.flight.is_side_by_side() {
                    return Ok(Step::Running);
                }
                self.part = Part::InOrder;
            }
            left = self.flight.work_in_order(&mut self.engines[0], left)?;
            if self.flight.is_done() {
                if let Some(check) = &self.flight.check {
                    check.finish();
                }
                self.end_profile(true);
                return Ok(Step::Finished(self.stats()));
            }
            if left == 0 {
                return Ok(Step::Running);
            }
            self.part = Part::SideBySide(ALONE);
        }
    }

    /// Ends the profile, if profiling is enabled. No helper runs between two steps, so the counts are complete.
    fn end_profile(&mut self, complete: bool) {
        let Some(profile) = &self.flight.profile else { return };
        let mut tallies = self.engines.iter_mut().filter_map(|engine| engine.tally.take()).peekable();
        if tallies.peek().is_none() {
            // The profile has already ended.
            return;
        }
        tallies.for_each(|tally| profile.add(tally));
        profile.finish(complete);
    }

    /// Runs CTAs concurrently, with helpers if the work is long enough. Returns the remaining fuel.
    fn side_by_side(&mut self, alone: u64, fuel: u64) -> u64 {
        let mut left = fuel;
        if alone > 0 {
            let share = alone.min(left);
            let rest = self.flight.work(&mut self.engines[0], share);
            self.part = Part::SideBySide(rest.min(alone - share));
            left -= share - rest;
            if rest > 0 || left == 0 {
                return left;
            }
        }
        let pool = &self.flight.sms.pool;
        // This thread runs one of the CTAs itself.
        let helpers = self.flight.waiting(pool.limit() + 1).saturating_sub(1);
        if helpers == 0 || self.flight.check.as_ref().is_some_and(|check| check.needs_order()) {
            return self.flight.work(&mut self.engines[0], left);
        }
        while self.engines.len() < helpers + 1 {
            self.engines.push(self.flight.engine());
        }
        let (give_back, returned) = channel();
        let jobs = self.engines.drain(1..=helpers).map(|mut engine| {
            let (flight, give_back) = (Arc::clone(&self.flight), give_back.clone());
            let work = move || {
                flight.work(&mut engine, left);
                engine
            };
            reporting(work, give_back)
        });
        let undone = pool.start(jobs.collect());
        drop(give_back);
        let rest = self.flight.work(&mut self.engines[0], left);
        for job in undone {
            job();
        }
        for engine in returned {
            // A block that has panicked never ends, so the grid must not go on.
            self.engines.push(engine.unwrap_or_else(|panic| resume_unwind(panic)));
        }
        rest
    }
}
