//! The uniform datapath: one value for the whole path.

use super::{Context, Outcome, Trap, integer, unmodelled};
use crate::sm::decode::table::Op;
use crate::sm::decode::{Instruction, Predicate, sign_extend};
use crate::sm::numeric::IntCompare;
use crate::sm::numeric::int::{self, Addend, PermuteMode};
use crate::sm::warp::Warp;

/// Bits 0 to 8 of the constant load whose address has a uniform register in it.
const INDEXED_LOAD: u16 = 0x0bb;

/// A uniform source; registers of the uniform datapath are all uniform.
fn operand(context: &Context, warp: &Warp, source: crate::sm::decode::Source) -> Result<u32, Trap> {
    Ok(context.scalar(warp, source)?.unwrap_or(0))
}

/// Executes an instruction of the uniform datapath.
pub(super) fn execute(context: &Context, warp: &mut Warp, i: &Instruction) -> Outcome {
    if i.op == Op::Uldc {
        let at = if i.base() == INDEXED_LOAD {
            // CAST: two's complement.
            let offset = sign_extend(i.bits(38, 16).into(), 16) as u32;
            warp.uniform(i.a).wrapping_add(offset)
        } else {
            i.bits(38, 16)
        };
        let [low, high] = context.load_constant(i, at)?;
        warp.set_uniform(i.d, low);
        if i.bits(73, 3) == 5 {
            warp.set_uniform(Warp::next_uniform(i.d), high);
        }
        return Ok(());
    }
    let a = warp.uniform(i.a);
    let b = operand(context, warp, i.b)?;
    let c = operand(context, warp, i.c)?;
    let p = warp.uniform_predicate(i.source_predicate(87));
    let value = match i.op {
        Op::Uimad => int::imad(a, b, c, Addend { negate: i.c_sign.negate, carry: i.bit(74).then_some(p) }),
        Op::UimadWide => {
            let high = match i.c {
                crate::sm::decode::Source::Uniform(number) => warp.uniform(Warp::next_uniform(number)),
                _ => 0,
            };
            let addend = Addend { negate: i.c_sign.negate, carry: i.bit(74).then_some(p) };
            let (sum, carry) = int::imad_wide(a, b, u64::from(c) | u64::from(high) << 32, i.bit(73), addend);
            warp.set_uniform_predicate(i.target_predicate(81), carry);
            // CAST: the halves of the sum.
            warp.set_uniform(Warp::next_uniform(i.d), (sum >> 32) as u32);
            sum as u32
        }
        Op::Uiadd3 => {
            let q = warp.uniform_predicate(i.source_predicate(77));
            let sum = integer::add3(i, [a, b, c], [i.bit(72), i.b_sign.negate, i.bit(75)], [p, q]);
            warp.set_uniform_predicate(i.target_predicate(81), sum.carry);
            warp.set_uniform_predicate(i.target_predicate(84), sum.second_carry);
            sum.value
        }
        Op::Ulop3 => {
            // CAST: 8 bits.
            let value = int::lop3(a, b, c, i.bits(72, 8) as u8);
            let nonzero = value != 0;
            warp.set_uniform_predicate(
                i.target_predicate(81),
                if i.bit(80) { nonzero & p } else { nonzero | p },
            );
            value
        }
        Op::Ushf => int::shf(a, b, c, integer::shift_of(i)),
        Op::Ulea => {
            let sum = integer::lea_of(i, a, b, c, p);
            warp.set_uniform_predicate(i.target_predicate(81), sum.carry);
            sum.value
        }
        Op::Uprmt => int::prmt(a, b, c, PermuteMode::Index),
        Op::Umov => b,
        Op::Usel => {
            if p {
                a
            } else {
                b
            }
        }
        Op::Ubmsk | Op::Usgxt => integer::binary_of(i, a, b),
        Op::Uflo | Op::Ubrev | Op::Upopc => integer::unary_of(i, b),
        Op::Up2ur => {
            let shift = 8 * i.bits(76, 2);
            let file = u32::from(warp.path.uniform_predicates & 0x7f);
            a & !(b << shift) | (file & b) << shift
        }
        Op::Uisetp => {
            compare(warp, i, a, b, p);
            return Ok(());
        }
        Op::Uplop3 => {
            plop3(warp, i, p);
            return Ok(());
        }
        Op::Uplop3Sign => {
            plop3_sign(warp, i, [a, b, c], p);
            return Ok(());
        }
        Op::Ur2up => {
            let shift = 8 * i.bits(76, 2);
            for index in (0..7u8).filter(|index| b >> index & 1 != 0) {
                warp.set_uniform_predicate(index, a >> shift >> index & 1 != 0);
            }
            return Ok(());
        }
        _ => return Err(unmodelled(i)),
    };
    warp.set_uniform(i.d, value);
    Ok(())
}

fn compare(warp: &mut Warp, i: &Instruction, a: u32, b: u32, p: bool) {
    let op = IntCompare::from_field(i.bits(76, 3));
    let low = warp.uniform_predicate(i.source_predicate(68));
    let outcome = if i.bit(72) {
        int::compare_extended(op, a, b, i.bit(73), low)
    } else {
        int::compare(op, a, b, i.bit(73))
    };
    let combine = |outcome: bool| match i.bits(74, 2) {
        0 => outcome & p,
        1 => outcome | p,
        _ => outcome ^ p,
    };
    warp.set_uniform_predicate(i.target_predicate(81), combine(outcome));
    warp.set_uniform_predicate(i.target_predicate(84), combine(!outcome));
}

fn plop3(warp: &mut Warp, i: &Instruction, a: bool) {
    let read = |at: u32| -> Predicate { i.source_predicate(at) };
    let b = warp.uniform_predicate(read(77));
    let c = warp.uniform_predicate(read(68));
    // CAST: 8 bits.
    let (first, second) = (integer::truth_table(i), i.bits(16, 8) as u8);
    warp.set_uniform_predicate(i.target_predicate(81), int::plop3(a, b, c, first));
    warp.set_uniform_predicate(i.target_predicate(84), int::plop3(a, b, c, second));
}

/// UPLOP3 whose inputs are signs of registers: B, besides C, or all three.
fn plop3_sign(warp: &mut Warp, i: &Instruction, registers: [u32; 3], first: bool) {
    let mut inputs = registers.map(|value| value >> 31 != 0);
    if i.base() & 3 != 3 {
        inputs[0] = first;
    }
    if i.base() & 3 == 1 {
        inputs[2] = warp.uniform_predicate(i.source_predicate(68));
    }
    let [a, b, c] = inputs;
    // CAST: 8 bits each.
    let (first, second) = (i.bits(72, 8) as u8, i.bits(16, 8) as u8);
    warp.set_uniform_predicate(i.target_predicate(81), int::plop3(a, b, c, first));
    warp.set_uniform_predicate(i.target_predicate(84), int::plop3(a, b, c, second));
}
