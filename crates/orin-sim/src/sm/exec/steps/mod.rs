//! Runs of instructions prepared for repeated execution: the second tier.
//!
//! The interpreter's loop fetches each instruction, examines its modifiers and checks the fuel. Kernels repeat few
//! instructions, so the second tier does this once: a [`Step`] is an instruction with the address of a handler and its
//! operands, and a *run* is a sequence of steps of which only the last may jump. Each handler is compiled by itself,
//! for the processor's vector extensions: the compiler vectorises small functions better than the arms of a loop.
//!
//! Most handlers call the interpreter's function of an instruction. The most frequent forms have handlers of their own,
//! which compute eight lanes at a time; a test compares them with the interpreter. Faults, the order of instructions,
//! fuel and turns are those of the interpreter. It executes what may stop a warp, and all jumps other than BRA.

#[allow(clippy::needless_range_loop, reason = "adapters of iterators take closures, which have no vectors")]
mod arithmetic;
mod choice;
#[cfg(target_arch = "x86_64")]
mod code;
#[cfg(not(target_arch = "x86_64"))]
#[path = "code_absent.rs"]
mod code;
mod eight;
mod handlers;
#[allow(clippy::needless_range_loop, reason = "as for arithmetic")]
mod memory;
mod operands;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sass::{Instruction, Predicate};

use super::{Context, Spent, Trap, place};
use crate::mmu::PAGE_BYTES;
use crate::sm::constants::Constants;
use crate::sm::program::{Program, Slot};
use crate::sm::warp::{Row, Warp};
use crate::sm::{SmFault, Tier};
use code::Block;
pub(in crate::sm) use code::{Compiled, Frame};
use handlers::Handler;
pub(in crate::sm) use operands::Pool;
use operands::{Operand, REGISTERS};

/// Instructions that the interpreter executes from a page before runs are prepared. Preparing a step costs as much as
/// executing a few instructions.
const HOT: u32 = 64;

/// Length of a run that has not been prepared.
const UNKNOWN: u16 = u16::MAX;

/// Returns the bytes of generated code of the process.
pub(in crate::sm) fn generated_bytes() -> usize {
    code::bytes()
}

/// Whether the processor has the vectors of the handlers.
pub(in crate::sm) fn is_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return super::has_vectors();
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// An instruction of a run.
#[derive(Clone, Copy, Debug)]
pub(in crate::sm) struct Step {
    run: Handler,
    /// Whether all lanes of the path execute it.
    always: bool,
    /// Whether the guard is a uniform predicate.
    uniform_guard: bool,
    guard: Predicate,
    /// Number of the block that begins here; 0 for none.
    block: u16,
    /// Destination register.
    d: u8,
    /// Uniform register of an address, or URZ.
    base: u8,
    /// Uniform registers that are copied to [`Pool::SPREAD`] first; URZ for none.
    spread: [u8; 2],
    a: Operand,
    b: Operand,
    c: Operand,
    /// Upper words of `c`.
    upper: Operand,
    /// Predicate operands, packed.
    predicates: [u8; 3],
    /// Destination predicates.
    targets: [u8; 2],
    /// What else the handler needs.
    extra: [u32; 6],
}

/// What a handler works on.
struct Machine<'m, 'c> {
    context: &'m mut Context<'c>,
    warp: &'m mut Warp,
    /// Rows of constants.
    pool: &'m mut [Row],
    /// The instructions of the run.
    slots: &'m [Slot],
    /// Index of the step in the run.
    at: usize,
    /// Address of the first step.
    pc: u64,
    /// Lanes that execute the step.
    active: u32,
    /// Whether the step has set the warp's program counter.
    moved: bool,
    /// Reason why the step failed.
    trap: Option<Trap>,
}

impl<'m> Machine<'m, '_> {
    /// Returns the instruction.
    #[inline(always)]
    fn instruction(&self) -> &'m Instruction {
        match &self.slots[self.at] {
            Ok(fetched) => fetched,
            Err(_) => unreachable!("a step without an instruction"),
        }
    }

    /// Returns the address of the instruction.
    #[inline(always)]
    fn address(&self) -> u64 {
        self.pc + 16 * self.at as u64
    }

    /// Returns the values of an operand.
    #[inline(always)]
    fn row(&self, operand: Operand) -> &Row {
        let at = usize::from(operand);
        // CAST: below 256.
        if at < REGISTERS { self.warp.row(at as u8) } else { &self.pool[at - REGISTERS] }
    }
}

/// The runs of one page of code, prepared on demand.
#[derive(Debug, Default)]
pub(in crate::sm) struct Steps {
    /// Instructions that the interpreter has executed.
    heat: u32,
    /// One step for each slot; only those of runs are used.
    steps: Vec<Step>,
    /// Length of the run that begins at each slot; 0 if the interpreter must execute the instruction.
    runs: Vec<u16>,
    /// Whether there is code for the run that begins at each slot, or can be none.
    settled: Vec<bool>,
    /// The blocks that steps name.
    blocks: Vec<Arc<Block>>,
    /// The addresses of their code by slot, which refers to this table.
    entries: Vec<[usize; 2]>,
}

/// What runs are prepared from and for.
pub(in crate::sm) struct Source<'s, 'c> {
    /// The instructions of the page.
    pub(in crate::sm) slots: &'s [Slot],
    /// Code for them.
    pub(in crate::sm) compiled: &'s Compiled,
    /// Registers per thread of the launch.
    pub(in crate::sm) registers: u32,
    pub(in crate::sm) constants: &'c Constants,
    /// Whether code is generated at once.
    pub(in crate::sm) eager: bool,
}

/// A run.
pub(in crate::sm) struct Run<'r> {
    steps: &'r [Step],
    /// The instructions from the first on.
    slots: &'r [Slot],
    blocks: &'r [Arc<Block>],
    entries: &'r [[usize; 2]],
}

impl Steps {
    /// Returns the run that begins at slot `at`; `None` if the interpreter must execute it.
    #[inline(always)]
    pub(in crate::sm) fn run_at<'r>(
        &'r mut self,
        source: &Source<'r, '_>,
        at: usize,
        pool: &mut Pool,
    ) -> Option<Run<'r>> {
        let length = match self.runs.get(at) {
            Some(&length) if length != UNKNOWN => length.into(),
            _ => self.prepare(source, at, pool),
        };
        if length == 0 {
            return None;
        }
        if !self.settled[at] {
            self.compile(source, at, length);
        }
        let steps = self.steps.get(at..at + length)?;
        Some(Run { steps, slots: &source.slots[at..], blocks: &self.blocks, entries: &self.entries })
    }

    /// Prepares the run that begins at slot `at` if the page is hot. Returns its length.
    #[cold]
    #[inline(never)]
    fn prepare(&mut self, source: &Source, at: usize, pool: &mut Pool) -> usize {
        self.heat += 1;
        if self.heat < HOT {
            return 0;
        }
        let slots = source.slots;
        if self.runs.is_empty() {
            self.steps = vec![Step::NONE; slots.len()];
            self.runs = vec![UNKNOWN; slots.len()];
            self.settled = vec![false; slots.len()];
            self.entries = vec![[0; 2]; slots.len()];
        }
        let mut end = at;
        let mut rest = 0;
        while let Some(slot) = slots.get(end) {
            if self.runs[end] != UNKNOWN {
                rest = self.runs[end];
                break;
            }
            let fits = |i: &Instruction| i.top_register().is_none_or(|top| u32::from(top) < source.registers);
            let step = match slot {
                Ok(i) if fits(i) => handlers::prepare(i, pool, source.constants),
                _ => None,
            };
            let Some(step) = step else {
                self.runs[end] = 0;
                break;
            };
            self.steps[end] = step;
            end += 1;
            if matches!(slot, Ok(i) if handlers::may_jump(i)) {
                break;
            }
        }
        for slot in (at..end).rev() {
            rest += 1;
            self.runs[slot] = rest;
        }
        self.runs[at].into()
    }

    /// Generates code for the run of `length` instructions that begins at slot `at` if it is hot, and uses what code
    /// there is.
    #[cold]
    #[inline(never)]
    fn compile(&mut self, source: &Source, at: usize, length: usize) {
        self.settled[at] = source.compiled.warm(source.slots, at, length, source.eager);
        for slot in at..at + length {
            if self.steps[slot].block == 0
                && let Some(block) = source.compiled.block(slot)
                && block.length() <= at + length - slot
                && block.fits(source.constants)
            {
                self.blocks.push(Arc::clone(block));
                self.entries[slot] = block.addresses();
                // CAST: at most one for each slot of a page.
                self.steps[slot].block = self.blocks.len() as u16;
            }
        }
    }
}

/// Executes the run at the warp's program counter, or the part of it that fuel and turn permit. Returns whether
/// there was one. With `alone`, executes one step, or a block and those after it.
///
/// # Errors
///
/// Returns the fault of the step that could not be executed.
#[inline(always)]
pub(super) fn advance(
    program: &mut Program,
    context: &mut Context,
    warp: &mut Warp,
    fuel: u64,
    spent: &mut Spent,
    alone: bool,
) -> Result<bool, SmFault> {
    let pc = warp.path.pc;
    let Some((Run { steps, slots, blocks, entries }, pool, frame)) = program.run_at(pc, context.constants)
    else {
        return Ok(false);
    };
    // CAST: bounded.
    let budget = warp.permitted(fuel.min(1 << 24) as usize);
    let count = budget.min(steps.len());
    if count == 0 {
        return Ok(false);
    }
    let mask = warp.path.mask;
    let whole = u64::from(mask.count_ones());
    warp.begin_run(count);
    let mut machine =
        Machine { context, warp, pool, slots, at: 0, pc, active: mask, moved: false, trap: None };
    let mut at = 0;
    while at < count {
        let step = &steps[at];
        if step.block != 0
            && let block = &blocks[usize::from(step.block) - 1]
            // SAFETY: the processor has the features of handlers, and blocks that do not fit are not used.
            && let Some(done) = unsafe { block.execute(&mut machine, frame, entries, budget - at) }
        {
            spent.lane += done.lanes;
            at += done.instructions;
            let next = pc - pc % PAGE_BYTES + 16 * done.slot as u64;
            if alone || next != pc + 16 * at as u64 {
                // The code has gone through a branch.
                spent.warp += at as u64;
                warp.correct_run(count, at);
                warp.path.pc = next;
                warp.tick();
                return Ok(true);
            }
            continue;
        }
        machine.at = at;
        at += 1;
        machine.active = mask;
        if step.always {
            spent.lane += whole;
        } else {
            machine.active &= machine.guard(step);
            spent.lane += u64::from(machine.active.count_ones());
            if machine.active == 0 {
                if alone {
                    break;
                }
                continue;
            }
            machine.spread(step);
        }
        // SAFETY: the handler was chosen for the features of this processor.
        if !unsafe { (step.run)(&mut machine, step) } {
            spent.warp += at as u64;
            return Err(machine.fault());
        }
        if alone {
            break;
        }
    }
    let moved = machine.moved;
    spent.warp += at as u64;
    if !moved {
        // Blocks may have gone beyond the run.
        warp.correct_run(count, at);
        warp.path.pc = pc + 16 * at as u64;
    }
    warp.tick();
    Ok(true)
}

/// As [`advance`] for one instruction, or a block and those after it, which the interpreter executes again. Panics if
/// it does not change the warp in the same way. Jumps outside of blocks, and instructions that only the interpreter's
/// functions execute, are not compared.
///
/// # Errors
///
/// As [`advance`].
#[cold]
#[inline(never)]
pub(super) fn compare(
    program: &mut Program,
    context: &mut Context,
    warp: &mut Warp,
    fuel: u64,
    spent: &mut Spent,
) -> Result<bool, SmFault> {
    let pc = warp.path.pc;
    let Some((Run { steps: [step, ..], slots: [Ok(fetched), ..], .. }, ..)) =
        program.run_at(pc, context.constants)
    else {
        return Ok(false);
    };
    let in_block = step.block != 0;
    let (text, own) = (sass::disassemble(fetched.word(), pc), handlers::has_own(fetched));
    let before = warp.snapshot();
    let mut done = Spent::default();
    let fuel = if in_block { fuel.min(1000) } else { fuel.min(1) };
    program.frame().start_journal();
    let advanced = advance(program, context, warp, fuel, &mut done, true);
    let mut journal = program.frame().take_journal();
    *spent += done;
    if !advanced? {
        return Ok(false);
    }
    if own || in_block {
        let prepared = warp.snapshot();
        warp.restore(&before);
        journal.exchange();
        let tier = program.set_tier(Tier::Interpreter);
        let mut again = Spent::default();
        let outcome = super::run(program, context, warp, done.warp, &mut again);
        program.set_tier(tier);
        let difference = match outcome {
            Ok(_) if again.lane != done.lane => Some(format!("{} and {} lanes", done.lane, again.lane)),
            Ok(_) if journal.differs() => Some("the stored words".to_owned()),
            Ok(_) => prepared.difference(&warp.snapshot()),
            Err(fault) => Some(format!("the interpreter faults: {fault}")),
        };
        if let Some(difference) = difference {
            let (count, text) = (done.warp, text.unwrap_or_default());
            panic!("the tiers differ after {count} instructions from {pc:#x}, {text}: {difference}");
        }
    }
    Ok(true)
}

impl Machine<'_, '_> {
    /// Returns the lanes whose guard is true.
    #[inline(always)]
    fn guard(&self, step: &Step) -> u32 {
        if !step.uniform_guard {
            self.warp.predicate(step.guard)
        } else if self.warp.uniform_predicate(step.guard) {
            !0
        } else {
            0
        }
    }

    /// Copies uniform registers to rows.
    #[inline(always)]
    fn spread(&mut self, step: &Step) {
        for (row, uniform) in self.pool.iter_mut().zip(step.spread) {
            if uniform != sass::URZ {
                *row = [self.warp.uniform(uniform); 32];
            }
        }
    }

    /// Returns the fault of the step that has failed.
    #[cold]
    fn fault(self) -> SmFault {
        let pc = self.address();
        // PANIC: a handler that fails says why.
        place(self.context, self.warp, pc, self.active, self.trap.expect("the reason of a failed step"))
    }
}
