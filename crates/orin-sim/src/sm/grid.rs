//! A grid in execution.
//!
//! The hardware keeps as many CTAs on its SMs as their threads, registers and shared memory allow,
//! and starts the next when one ends. The interpreter keeps the same number in flight and gives
//! each a turn, so that CTAs that wait for each other through global memory all advance; a CTA that
//! ends within its turn is replaced in place, so short CTAs run one after the other in warm caches.

use std::sync::Arc;

use super::constants::Constants;
use super::coverage::Counter;
use super::cta::{Cta, Grid, Turn};
use super::exec::Spent;
use super::port::Port;
use super::program::Program;
use super::{GridStats, Launch, SmFault, SmFaultCause, SmOptions, Sms, Step};
use crate::mmu::View;

/// Threads of an SM 8.7 (its data sheet: 48 warps).
const SM_THREADS: u32 = 1536;
/// CTAs of an SM 8.7.
const SM_CTAS: u32 = 16;
/// Registers of an SM.
const SM_REGISTERS: u32 = 65536;
/// Host memory that resident CTAs may take for the local memory of their threads, in bytes.
const LOCAL_BUDGET: u64 = 512 << 20;

/// Warp instructions of a CTA's turn.
const TURN: u64 = 1 << 16;

/// A grid in execution.
pub struct GridRun {
    launch: Launch,
    constants: Constants,
    program: Program,
    counter: Counter,
    port: Port,
    /// CTAs in flight; they take turns in this order.
    resident: Vec<Cta>,
    /// How many may be in flight.
    capacity: usize,
    /// CTA whose turn it is.
    turn: usize,
    /// CTAs started so far, in the order of the grid.
    started: u64,
    total: u64,
    spent: Spent,
    ended: Option<SmFault>,
}

impl core::fmt::Debug for GridRun {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("GridRun")
            .field("launch", &self.launch)
            .field("started", &self.started)
            .field("resident", &self.resident.len())
            .field("spent", &self.spent)
            .finish_non_exhaustive()
    }
}

/// CTAs of `launch` that one SM holds at a time: as many as threads, registers and shared memory allow, and
/// one in any case. The launch has at least one thread and at most 1024 per CTA.
pub(crate) fn ctas_per_sm(launch: &Launch) -> u32 {
    let warps = launch.block.iter().product::<u32>().div_ceil(32).max(1);
    // Registers are given out per warp in units of 256.
    let registers = (launch.registers.max(1) * 32).next_multiple_of(256) * warps;
    SM_CTAS
        .min(SM_THREADS / (warps * 32))
        .min(SM_REGISTERS / registers)
        .min(launch.shared_limit / launch.shared_bytes.max(1))
        .max(1)
}

/// CTAs of `launch` that all SMs hold at a time.
fn capacity(launch: &Launch, threads: u32) -> u32 {
    let local = u64::from(launch.local_bytes) * u64::from(threads.next_multiple_of(32));
    let affordable = LOCAL_BUDGET.checked_div(local).unwrap_or(u64::MAX).max(1);
    // CAST: bounded by the first operand of the minimum.
    u64::from(ctas_per_sm(launch) * launch.sm_count.clamp(1, 256)).min(affordable) as u32
}

impl GridRun {
    /// Prepares a launch on the address space `memory`; nothing is executed yet.
    ///
    /// # Errors
    ///
    /// [`SmFaultCause::InvalidPc`] when the program does not begin on an instruction;
    /// [`SmFaultCause::Mmu`] when a constant bank is not mapped; [`SmFaultCause::OutOfRange`] with
    /// `"block"` when the block has no or more than 1024 threads or does not fit an SM.
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
            return Err(fault(SmFaultCause::InvalidPc));
        }
        let constants = Constants::read(&launch, &memory).map_err(|mmu| fault(SmFaultCause::Mmu(mmu)))?;
        let total = launch.grid.iter().map(|&extent| u64::from(extent)).product();
        // CAST: at most 1024; at most 4096 CTAs.
        let capacity = capacity(&launch, threads as u32) as usize;
        // Registers are allocated in groups of 8 per thread.
        let coverage = sms.options.coverage.clone();
        let program = Program::new(launch.registers.next_multiple_of(8), coverage.clone());
        Ok(Self {
            constants,
            counter: Counter::new(coverage),
            program,
            port: Port::new(memory),
            resident: Vec::new(),
            capacity,
            turn: 0,
            started: 0,
            total,
            spent: Spent::default(),
            ended: None,
            launch,
        })
    }

    /// Executes up to `fuel` warp instructions.
    ///
    /// # Errors
    ///
    /// The fault that ended the grid; further calls return it again.
    pub fn step(&mut self, fuel: u64) -> Result<Step, SmFault> {
        if let Some(fault) = self.ended {
            return Err(fault);
        }
        let limit = self.spent.warp.saturating_add(fuel);
        self.run(limit).inspect_err(|&fault| self.ended = Some(fault))
    }

    /// What has been executed so far.
    pub fn stats(&self) -> GridStats {
        GridStats { warp_instructions: self.spent.warp, lane_instructions: self.spent.lane }
    }

    fn run(&mut self, limit: u64) -> Result<Step, SmFault> {
        loop {
            if self.turn >= self.resident.len() && !self.admit() {
                if self.resident.is_empty() {
                    return Ok(Step::Finished(self.stats()));
                }
                self.turn = 0;
            }
            if self.spent.warp >= limit {
                return Ok(Step::Running);
            }
            let cta = &mut self.resident[self.turn];
            let mut grid = Grid {
                launch: &self.launch,
                constants: &self.constants,
                program: &mut self.program,
                counter: &mut self.counter,
                port: &mut self.port,
            };
            let fuel = TURN.min(limit - self.spent.warp);
            match cta.run(&mut grid, fuel, &mut self.spent)? {
                Turn::Fuel => self.turn += 1,
                Turn::Done => {
                    if !self.restart(self.turn) {
                        self.resident.remove(self.turn);
                    }
                }
            }
        }
    }

    /// Starts one more CTA at the end of the list when there is one and room for it.
    fn admit(&mut self) -> bool {
        if self.started >= self.total || self.resident.len() >= self.capacity {
            return false;
        }
        self.resident.push(Cta::new(&self.launch));
        self.restart(self.resident.len() - 1)
    }

    /// Makes the CTA at `place` the next of the grid, if there is one.
    fn restart(&mut self, place: usize) -> bool {
        if self.started >= self.total {
            return false;
        }
        let [x, y, _] = self.launch.grid.map(u64::from);
        let index = self.started;
        self.started += 1;
        // CAST: each is below an extent of the grid, and the SM below their number.
        let block = [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32];
        let sm = (index % u64::from(self.launch.sm_count.max(1))) as u32;
        let registers = self.launch.registers.next_multiple_of(8) as usize;
        self.resident[place].start(&self.launch, block, sm, registers);
        true
    }
}
