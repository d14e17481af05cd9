//! Selection of the instructions that the checks of `crate::check` examine.

use sass::{Instruction, Op};

use crate::check::Tools;

/// Whether a tool examines the instruction.
pub(super) fn is_examined(tools: Tools, i: &Instruction) -> bool {
    match i.op {
        Op::Ldg | Op::Stg | Op::Ld | Op::St | Op::Ldgsts => tools.examine_global(),
        Op::Atom | Op::AtomSwap | Op::Atomg | Op::AtomgSwap | Op::Red => tools.examine_global(),
        Op::Ldl | Op::Stl => tools.contains(Tools::MEMCHECK),
        Op::Lds | Op::Sts | Op::Ldsm | Op::Atoms | Op::AtomsSwap | Op::AtomsInc | Op::Arrives => {
            tools.contains(Tools::RACECHECK)
        }
        Op::Nothing => tools.contains(Tools::RACECHECK) && is_fence(i),
        Op::Warpsync => tools.contains(Tools::SYNCCHECK),
        _ => false,
    }
}

/// Whether the instruction orders accesses: fences, and the invalidation of the L1 that follows an acquire.
fn is_fence(i: &Instruction) -> bool {
    matches!(i.mnemonic(), "MEMBAR" | "CCTL")
}
