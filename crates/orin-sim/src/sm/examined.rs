//! Selection of the instructions that the checks of `crate::check` examine.

use sass::{Instruction, Op, field};

use crate::check::{Fence, Scope, Tools};

/// Whether a tool examines the instruction.
pub(super) fn is_examined(tools: Tools, i: &Instruction) -> bool {
    match i.op {
        Op::Ldg | Op::Stg => tools.examine_global(),
        Op::Ld | Op::St | Op::Ldgsts => tools.examine_global() || tools.contains(Tools::WARPCHECK),
        Op::Atom | Op::AtomSwap | Op::Atomg | Op::AtomgSwap | Op::Red => tools.examine_global(),
        Op::Ldl | Op::Stl | Op::Ldc | Op::UldcIndexed => tools.contains(Tools::MEMCHECK),
        Op::Shfl => tools.contains(Tools::SYNCCHECK),
        Op::Lds | Op::Sts | Op::Ldsm | Op::Atoms | Op::AtomsSwap | Op::AtomsInc | Op::Arrives => {
            tools.intersects(Tools::RACECHECK | Tools::WARPCHECK)
        }
        Op::Nothing => tools.intersects(Tools::RACECHECK | Tools::WARPCHECK) && fence(i).is_some(),
        Op::Depbar => tools.contains(Tools::RACECHECK) && groups_left(i).is_some(),
        Op::Warpsync => tools.intersects(Tools::SYNCCHECK | Tools::WARPCHECK),
        _ => false,
    }
}

/// The number of groups of copies that may be in flight after a DEPBAR; `None` if it does not wait for copies.
/// LDGDEPBAR counts them with scoreboard 0.
pub(super) fn groups_left(i: &Instruction) -> Option<u32> {
    let awaits = i.bit(field::DEPENDS_ON_COUNT) && i.bits(field::SCOREBOARD) == 0;
    awaits.then(|| i.bits(field::SCOREBOARD_COUNT))
}

/// The fence that an instruction is. The invalidation of the L1 follows an acquire. Compilers replace `__syncwarp()`
/// and the end of an acquire of the block by NOP where the warp has one path.
pub(super) fn fence(i: &Instruction) -> Option<Fence> {
    let of = |scope, releases| Some(Fence { scope, releases });
    match i.mnemonic() {
        "MEMBAR" if i.bits(field::FENCE_SCOPE) < 2 => of(Scope::Block, true),
        "MEMBAR" => of(Scope::Device, true),
        "CCTL" => of(Scope::Device, false),
        "NOP" => of(Scope::Block, false),
        _ => None,
    }
}
