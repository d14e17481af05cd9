//! Branches, calls, convergence barriers and the barriers of a CTA.
//!
//! CALL is a jump: the compiler has put the return address into a register pair. RET and the indexed branches may
//! send each lane to a different address.
//!
//! Source: compiled code for sm_87 and its disassembly.

use sass::field::{self, Field};
use sass::{Instruction, Op, Source};

use super::memory::uniform_pair;
use super::{Context, Flow, Stop, Trap, lanes, unmodelled};
use crate::sm::SmFaultCause;
use crate::sm::arrival::{Arrival, Reduction};
use crate::sm::warp::{State, Warp, blend};

/// Number of polls that a YIELD or NANOSLEEP counts as.
const YIELD_WEIGHT: u32 = 64;

/// Returns the target of an immediate relative branch.
fn relative(warp: &Warp, i: &Instruction) -> u64 {
    // CAST: two's complement.
    (warp.path.pc + 16).wrapping_add(i.branch_offset() as u64)
}

/// Returns the active lanes whose predicate operand is true.
fn taken(warp: &Warp, i: &Instruction, active: u32) -> u32 {
    active & warp.predicate(i.source_predicate(field::CONDITION))
}

#[inline(always)]
pub(super) fn bra(warp: &mut Warp, i: &Instruction, active: u32) -> Result<Flow, Trap> {
    let mut taken = taken(warp, i, active);
    let condition = i.bits(field::BRANCH_KIND);
    if condition != 0 {
        if condition == 1 {
            if !warp.uniform_predicate(i.source_predicate(field::BRANCH_CONDITION)) {
                taken = 0;
            }
        } else {
            // CAST: 6 bits.
            let mask = warp.uniform(i.register(field::UNIFORM_A))
                ^ if i.bit(field::BRANCH_COMPLEMENT) { !0 } else { 0 };
            let converged = taken & mask == mask & warp.live;
            // The guard selects the lanes that are compared; all lanes of the path branch, or none.
            taken = if taken != 0 && converged == (condition == 3) { warp.path.mask } else { 0 };
        }
    }
    let (target, next) = (relative(warp, i), warp.path.pc + 16);
    // A branch to itself whose lanes no other thread can release never ends, but uses fuel.
    warp.branch(taken, target, next);
    Ok(Flow::Moved)
}

/// Returns the targets of a register branch: the pair A of each lane plus `base`.
fn targets(warp: &Warp, i: &Instruction, base: u64) -> [u64; 32] {
    core::array::from_fn(|lane| warp.pair(i.a, lane).wrapping_add(base))
}

pub(super) fn execute(
    context: &mut Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
) -> Result<Flow, Trap> {
    let next = warp.path.pc + 16;
    count_calls(warp, i)?;
    match i.op {
        Op::Call | Op::Jmp | Op::CallAbsolute => {
            let target = if i.op == Op::Call {
                relative(warp, i)
            } else {
                // CAST: addresses are not negative.
                i.branch_offset() as u64
            };
            let taken = taken(warp, i, active);
            warp.branch(taken, target, next);
        }
        Op::Brxu => {
            // CAST: 6 bits.
            let base = uniform_pair(warp, i.register(field::UNIFORM_A));
            let (taken, target) = (taken(warp, i, active), base.wrapping_add(relative(warp, i)));
            warp.branch(taken, target, next);
        }
        Op::Brx | Op::CallRegister | Op::Ret | Op::Jmx | Op::CallAbsoluteRegister => {
            let absolute = match i.op {
                Op::Ret => i.bit(field::RET_ABSOLUTE),
                Op::Jmx | Op::CallAbsoluteRegister => true,
                _ => false,
            };
            // CAST: two's complement.
            let base = if absolute { i.branch_offset() as u64 } else { relative(warp, i) };
            let (taken, targets) = (taken(warp, i, active), targets(warp, i, base));
            warp.branch_indirect(taken, &targets, next);
        }
        Op::Exit => {
            let taken = taken(warp, i, active);
            if taken == 0 {
                return Ok(Flow::Next);
            }
            warp.exit(taken, next);
            return Ok(Flow::Stop(Stop::Exited));
        }
        Op::Bssy => {
            let entering = taken(warp, i, active);
            blend(&mut warp.barriers[barrier(i)], entering, &[entering; 32]);
            return Ok(Flow::Next);
        }
        Op::Bsync => {
            let arriving = taken(warp, i, active);
            if arriving == 0 {
                return Ok(Flow::Next);
            }
            // CAST: 0 to 15.
            warp.converge(arriving, barrier(i) as u8, next);
        }
        Op::Break => {
            let leaving = taken(warp, i, active);
            warp.path.pc = next;
            if leaving != 0 {
                // CAST: 0 to 15.
                warp.leave(leaving, barrier(i) as u8);
            }
        }
        Op::BmovToRegister | Op::BmovFromBarrier | Op::Bmov => return bmov(context, warp, i, active),
        Op::Warpsync => {
            let arriving = taken(warp, i, active);
            let mut room = [0; 32];
            let masks = *context.values(warp, i.b, &mut room)?;
            return warpsync(warp, i, arriving, &masks, next);
        }
        Op::Yield | Op::Nanosleep => {
            warp.path.pc = next;
            warp.poll(YIELD_WEIGHT);
            warp.rotate();
        }
        Op::Bpt => return Err(SmFaultCause::Trap.into()),
        Op::Lepc => {
            // Calls compute their return address from it: it is the instruction's own, not that of the next.
            for lane in lanes(active) {
                warp.write_pair(i.d, lane, warp.path.pc);
            }
            return Ok(Flow::Next);
        }
        Op::Bar => return bar(context, warp, i, active, next),
        Op::B2r => {
            let (count, truth) = warp.reduction;
            warp.write(i.d, active, &[count; 32]);
            warp.set_predicate(i.target_predicate(field::TARGET), active, if truth { !0 } else { 0 });
            return Ok(Flow::Next);
        }
        _ => return Err(unmodelled(i)),
    }
    Ok(Flow::Moved)
}

/// Updates the depth of counted calls. Compilers mark all calls and returns as not counted (NOINC and NODEC). That an
/// excess return is an error is inferred from the name of the hardware's error.
fn count_calls(warp: &mut Warp, i: &Instruction) -> Result<(), Trap> {
    let depth = match i.op {
        _ if i.bit(field::DEPTH_KEPT) => return Ok(()),
        Op::Call | Op::CallAbsolute | Op::CallRegister | Op::CallAbsoluteRegister => {
            warp.path.depth.checked_add(1)
        }
        Op::Ret => warp.path.depth.checked_sub(1),
        _ => return Ok(()),
    };
    warp.path.depth = depth.ok_or(SmFaultCause::StackError)?;
    Ok(())
}

/// Returns the convergence barrier of BSSY, BSYNC and BREAK.
fn barrier(i: &Instruction) -> usize {
    i.bits(field::BARRIER) as usize
}

/// Moves a convergence barrier.
fn bmov(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Result<Flow, Trap> {
    // Numbers from 16 on are registers of the trap handler.
    let of = |at: Field| match i.bits(at) {
        number @ 0..=15 => Ok(number as usize),
        _ => Err(unmodelled(i)),
    };
    match i.op {
        Op::BmovToRegister => {
            let from = of(field::STATE)?;
            let row = warp.barriers[from];
            warp.write(i.d, active, &row);
            if i.bit(field::STATE_CLEAR) {
                blend(&mut warp.barriers[from], active, &[0; 32]);
            }
        }
        Op::BmovFromBarrier => {
            let (to, from) = (i.bits(field::STATE_2) as usize, of(field::STATE)?);
            let values = warp.barriers[from];
            if i.bit(field::STATE_CLEAR) {
                blend(&mut warp.barriers[from], active, &[0; 32]);
            }
            blend(&mut warp.barriers[to], active, &values);
        }
        _ => {
            // The field of the destination register is 0 in compiled code.
            let to = of(field::STATE)?;
            let mut room = [0; 32];
            let values = *context.values(warp, i.b, &mut room)?;
            blend(&mut warp.barriers[to], active, &values);
        }
    }
    Ok(Flow::Next)
}

/// Makes lanes wait for the lanes of their masks. Lanes with the same mask form a group, as EXCLUSIVE requires.
fn warpsync(
    warp: &mut Warp,
    i: &Instruction,
    arriving: u32,
    masks: &[u32; 32],
    next: u64,
) -> Result<Flow, Trap> {
    if arriving == 0 {
        return Ok(Flow::Next);
    }
    let first = masks[arriving.trailing_zeros() as usize];
    let uniform = lanes(arriving).all(|lane| masks[lane] == first);
    // The usual case: all lanes are here.
    if uniform && arriving == warp.path.mask && first & warp.live & !arriving == 0 {
        return Ok(Flow::Next);
    }
    let mut left = arriving;
    while left != 0 {
        let mask = masks[left.trailing_zeros() as usize];
        let group = lanes(left).filter(|&lane| masks[lane] == mask).fold(0, |group, lane| group | 1 << lane);
        warp.wait(group, State::Lanes { mask, exclusive: i.bit(field::EXCLUSIVE) }, next);
        left &= !group;
        if left != 0 {
            // The other lanes are at this instruction too.
            warp.path.pc = next - 16;
        }
    }
    warp.settle();
    Ok(Flow::Moved)
}

/// BAR: arrival at a barrier of the CTA.
fn bar(context: &Context, warp: &mut Warp, i: &Instruction, active: u32, next: u64) -> Result<Flow, Trap> {
    let lane = active.trailing_zeros() as usize;
    let register = |warp: &Warp| match i.b {
        Source::Register(number) => warp.row(number)[lane],
        _ => 0,
    };
    let (number, threads) = match i.form {
        // Both in one register.
        1 => (register(warp) & 15, register(warp) >> 16 & 0xfff),
        // Barrier in a register, count immediate.
        2 => (register(warp), i.bits(field::BAR_THREADS)),
        // Barrier immediate, count in a register.
        4 => (i.bits(field::BAR_NUMBER), register(warp)),
        _ => (i.bits(field::BAR_NUMBER), i.bits(field::BAR_THREADS)),
    };
    // The launch sets how many of the 16 barriers the block has.
    if number >= context.launch.barriers.min(16) {
        return Err(SmFaultCause::OutOfRange { space: "barrier", offset: number.into(), bytes: 0 }.into());
    }
    let truth = warp.predicate(i.source_predicate(field::CONDITION)) & active;
    let reduction = match (i.bits(field::BAR_MODE), i.bits(field::BAR_REDUCTION)) {
        (2, 0) => Some(Reduction::Count),
        (2, 1) => Some(Reduction::And),
        (2, _) => Some(Reduction::Or),
        _ => None,
    };
    let pc = warp.path.pc;
    // CAST: 0 to 15.
    let number = number as u8;
    let waits = i.bits(field::BAR_MODE) != 1;
    if waits {
        warp.wait(active, State::Barrier(number), next);
    } else {
        warp.path.pc = next;
    }
    Ok(Flow::Stop(Stop::Arrived(Arrival { barrier: number, lanes: active, threads, reduction, truth, pc })))
}
