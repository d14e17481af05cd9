//! What becomes of a register after an instruction, by the code that follows.
//!
//! Compilers load more than a program reads: they join a `float2` and a `float` behind it into one load of 16 bytes,
//! and copy structs with their padding. Whether such bytes matter is decided by the instructions that read the
//! registers.

use std::collections::HashSet;

use sass::{Instruction, Op, PT, field};

use crate::mmu::View;

/// Maximum number of instructions that are looked at. Beyond, the register counts as used.
const MOST: u32 = 1 << 13;

/// Maximum number of results that are followed.
const STEPS: u32 = 3;

/// Use of a register, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// It is overwritten, or the thread exits, before an instruction reads it.
    Unread,
    /// It is only stored to global or shared memory.
    Copied,
    /// It is only stored; the address decides where.
    Moved,
    /// It is only read under a guard, or selected by a predicate.
    Guarded,
    /// It is read, or the code that follows is not known.
    Used,
}

/// The instruction at `pc`; `None` if it cannot be decoded.
pub(super) fn fetch(view: &View, pc: u64) -> Option<Instruction> {
    let mut word = [0; 16];
    view.read(pc, &mut word).ok()?;
    sass::decode(u128::from_le_bytes(word)).ok()
}

fn overlaps((first, count): (u8, u8), register: u8) -> bool {
    register.checked_sub(first).is_some_and(|distance| distance < count)
}

/// The fate of a register that the instruction stores; `None` if it does not.
pub(super) fn stored(i: &Instruction, register: u8) -> Option<Fate> {
    let fate = match i.op {
        Op::Stg | Op::Sts => Fate::Copied,
        Op::St => Fate::Moved,
        _ => return None,
    };
    let [address, data @ ..] = i.read();
    let is_data = data.into_iter().any(|group| overlaps(group, register));
    (is_data && !overlaps(address, register)).then_some(fate)
}

/// Whether another operand may decide the result: a selection takes the other value, or a comparison is combined with
/// one that excludes it.
pub(super) fn may_ignore(i: &Instruction) -> bool {
    let compares = matches!(i.op, Op::Isetp | Op::Fsetp | Op::Dsetp | Op::Hsetp2);
    let combined = compares && i.source_predicate(field::CONDITION).index != PT;
    combined || matches!(i.op, Op::Sel | Op::Fsel)
}

/// What an instruction does with a register.
fn use_of(i: &Instruction, register: u8) -> Fate {
    let reads = i.read().into_iter().any(|group| overlaps(group, register));
    let guarded = i.guard.index != PT || may_ignore(i);
    match stored(i, register) {
        Some(fate) => fate,
        None if !reads => Fate::Unread,
        None if guarded => Fate::Guarded,
        None => Fate::Used,
    }
}

/// Whether an instruction only computes a register from others, and what it reads matters only if that is used.
pub(super) fn computes(i: &Instruction) -> bool {
    let integer =
        matches!(i.op, Op::Iadd3 | Op::Imad | Op::Lop3 | Op::Shf | Op::Lea | Op::Prmt | Op::Imnmx | Op::Mov);
    let float = matches!(i.op, Op::Fadd | Op::Fmul | Op::Ffma | Op::Fmnmx | Op::Mufu | Op::I2f | Op::F2i);
    (integer || float) && i.written().1 == 1
}

/// What becomes of a register after the instruction at `pc`, on all paths.
pub(super) fn of(view: &View, pc: u64, register: u8) -> Fate {
    follow(view, pc, register, STEPS, &mut { MOST })
}

/// As [`of`], through at most `steps` results and `left` instructions.
fn follow(view: &View, pc: u64, register: u8, steps: u32, left: &mut u32) -> Fate {
    let mut fate = Fate::Unread;
    let (mut open, mut seen) = (vec![pc + 16], HashSet::new());
    while let Some(at) = open.pop() {
        if fate == Fate::Used || !seen.insert(at) {
            continue;
        }
        *left = left.saturating_sub(1);
        let Some(i) = fetch(view, at).filter(|_| *left > 0) else { return Fate::Used };
        let used = match use_of(&i, register) {
            // The result may be selected, or not be used.
            Fate::Used if steps > 0 && computes(&i) => match follow(view, at, i.written().0, steps - 1, left)
            {
                Fate::Unread | Fate::Guarded => Fate::Guarded,
                _ => Fate::Used,
            },
            used => used,
        };
        fate = fate.max(used);
        let always = i.guard.index == PT && !i.guard.not;
        match i.op {
            Op::Bra => {
                // CAST: two's complement.
                open.push((at + 16).wrapping_add(i.branch_offset() as u64));
                if !always || i.source_predicate(field::CONDITION).index != PT || i.bit(field::BRANCH_KIND) {
                    open.push(at + 16);
                }
            }
            Op::Exit if always => {}
            // Where the code continues is not known.
            Op::Jmp | Op::Jmx | Op::Brx | Op::Brxu | Op::Ret => return Fate::Used,
            Op::Call | Op::CallAbsolute | Op::CallRegister | Op::CallAbsoluteRegister => return Fate::Used,
            _ if always
                && [i.written(), i.written_too()].into_iter().any(|group| overlaps(group, register)) => {}
            _ => open.push(at + 16),
        }
    }
    fate
}
