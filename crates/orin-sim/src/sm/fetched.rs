//! Instructions of a program, with the flags by which the interpreter counts, checks and orders them.

use core::num::NonZeroU32;
use core::ops::Deref;

use sass::{Instruction, Op, field};

use super::examined::is_examined;
use crate::check::Tools;

/// A decoded instruction of a program.
///
/// An instruction that is counted, examined or profiled, or whose outcome depends on the order of CTAs, has
/// [`Op::Watched`] as its operation. All other instructions have no overhead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    instruction: Instruction,
    /// Index of the execution counter plus one; `None` if executions are not counted.
    number: Option<NonZeroU32>,
    /// Whether the outcome depends on which CTA comes first.
    ordered: bool,
    /// Whether a check examines it.
    examined: bool,
    /// Whether a profile counts it.
    profiled: bool,
}

impl Deref for Fetched {
    type Target = Instruction;

    #[inline(always)]
    fn deref(&self) -> &Instruction {
        &self.instruction
    }
}

impl Fetched {
    /// Wraps an instruction. `number` is the index of its counter; `tools` examine it; `profiled`: a profile counts it.
    pub(super) fn new(
        mut instruction: Instruction,
        number: Option<u32>,
        tools: Tools,
        profiled: bool,
    ) -> Self {
        let ordered = depends_on_order(&instruction);
        let examined = is_examined(tools, &instruction);
        if ordered || examined || profiled || number.is_some() {
            instruction.op = Op::Watched;
        }
        let number = number.and_then(|number| NonZeroU32::MIN.checked_add(number));
        Self { instruction, number, ordered, examined, profiled }
    }

    /// Returns the instruction with its own operation.
    pub(super) fn unwatched(&self) -> Self {
        let mut own = *self;
        own.instruction.op = own.instruction.row().op;
        own
    }

    /// Returns the index of the execution counter.
    pub(super) fn number(&self) -> Option<u32> {
        self.number.map(|number| number.get() - 1)
    }

    /// Whether a check examines it.
    pub(super) fn is_examined(&self) -> bool {
        self.examined
    }

    /// Whether a profile counts it.
    pub(super) fn is_profiled(&self) -> bool {
        self.profiled
    }

    /// Whether the outcome depends on which CTA comes first.
    pub(super) fn is_ordered(&self) -> bool {
        self.ordered
    }
}

/// Whether the outcome of an instruction depends on the order of CTAs. This holds for atomics that return a value or do
/// not commute, and for `volatile` or stronger accesses, whose memory other CTAs may change concurrently.
fn depends_on_order(i: &Instruction) -> bool {
    let order = i.bits(field::ORDER);
    let strong = matches!(order, 4..=8 | 10 | 12);
    match i.op {
        // Here 4 is a load through the read-only path.
        Op::Ldg | Op::Ld => strong && order != 4,
        Op::Stg | Op::St => strong,
        // Floating point, and wrapping increments and decrements, do not commute.
        Op::Red => {
            matches!(i.bits(field::ATOMIC_TYPE), 3 | 4 | 6) || matches!(i.bits(field::REDUCTION), 3 | 4)
        }
        Op::Atom | Op::AtomSwap | Op::Atomg | Op::AtomgSwap => true,
        _ => false,
    }
}
