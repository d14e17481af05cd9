//! The uniform datapath: one value for the whole path.

use sass::{Instruction, Op, Predicate, Source, field};

use super::{Context, Outcome, Trap, integer, unmodelled};
use crate::sm::numeric::IntCompare;
use crate::sm::numeric::int::{self, Addend, PermuteMode};
use crate::sm::warp::Warp;

/// Returns a uniform source; all registers of the uniform datapath are uniform.
fn operand(context: &Context, warp: &Warp, source: Source) -> Result<u32, Trap> {
    Ok(context.scalar(warp, source)?.unwrap_or(0))
}

/// Executes an instruction of the uniform datapath.
pub(super) fn execute(context: &Context, warp: &mut Warp, i: &Instruction) -> Outcome {
    if matches!(i.op, Op::Uldc | Op::UldcIndexed) {
        let at = if i.op == Op::UldcIndexed {
            // CAST: two's complement.
            let offset = i.signed(field::BANK_OFFSET) as u32;
            warp.uniform(i.a).wrapping_add(offset)
        } else {
            i.bits(field::BANK_OFFSET)
        };
        let [low, high] = context.load_constant(i, at)?;
        warp.set_uniform(i.d, low);
        if i.bits(field::SIZE) == 5 {
            warp.set_uniform(Warp::next_uniform(i.d), high);
        }
        return Ok(());
    }
    let a = warp.uniform(i.a);
    let b = operand(context, warp, i.b)?;
    let c = operand(context, warp, i.c)?;
    let p = warp.uniform_predicate(i.source_predicate(field::CONDITION));
    let value = match i.op {
        Op::Uimad => {
            int::imad(a, b, c, Addend { negate: i.c_sign.negate, carry: i.bit(field::EXTENDED).then_some(p) })
        }
        Op::UimadWide => {
            let high = match i.c {
                Source::Uniform(number) => warp.uniform(Warp::next_uniform(number)),
                _ => 0,
            };
            let addend = Addend { negate: i.c_sign.negate, carry: i.bit(field::EXTENDED).then_some(p) };
            let (sum, carry) =
                int::imad_wide(a, b, u64::from(c) | u64::from(high) << 32, i.bit(field::SIGNED), addend);
            warp.set_uniform_predicate(i.target_predicate(field::TARGET), carry);
            // CAST: the halves of the sum.
            warp.set_uniform(Warp::next_uniform(i.d), (sum >> 32) as u32);
            sum as u32
        }
        Op::Uiadd3 => {
            let q = warp.uniform_predicate(i.source_predicate(field::CONDITION_2));
            let sum = integer::add3(
                i,
                [a, b, c],
                [i.bit(field::A_NEGATE), i.b_sign.negate, i.bit(field::UPPER_NEGATE)],
                [p, q],
            );
            warp.set_uniform_predicate(i.target_predicate(field::TARGET), sum.carry);
            warp.set_uniform_predicate(i.target_predicate(field::TARGET_2), sum.second_carry);
            sum.value
        }
        Op::Ulop3 => {
            // CAST: 8 bits.
            let value = int::lop3(a, b, c, i.bits(field::LUT) as u8);
            let nonzero = value != 0;
            warp.set_uniform_predicate(
                i.target_predicate(field::TARGET),
                if i.bit(field::LUT_AND) { nonzero & p } else { nonzero | p },
            );
            value
        }
        Op::Ushf => int::shf(a, b, c, integer::shift_of(i)),
        Op::Ulea => {
            let sum = integer::lea_of(i, a, b, c, p);
            warp.set_uniform_predicate(i.target_predicate(field::TARGET), sum.carry);
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
            let shift = 8 * i.bits(field::PREDICATE_BYTE);
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
        Op::Uplop3Sign | Op::Uplop3TwoSigns | Op::Uplop3Signs => {
            plop3_sign(warp, i, [a, b, c], p);
            return Ok(());
        }
        Op::Ur2up => {
            let shift = 8 * i.bits(field::PREDICATE_BYTE);
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
    let op = IntCompare::from_field(i.bits(field::COMPARE));
    let low = warp.uniform_predicate(i.source_predicate(field::CONDITION_3));
    let outcome = if i.bit(field::COMPARE_EXTENDED) {
        int::compare_extended(op, a, b, i.bit(field::SIGNED), low)
    } else {
        int::compare(op, a, b, i.bit(field::SIGNED))
    };
    let combine = |outcome| super::combine(i.bits(field::COMBINE), outcome, p);
    warp.set_uniform_predicate(i.target_predicate(field::TARGET), combine(outcome));
    warp.set_uniform_predicate(i.target_predicate(field::TARGET_2), combine(!outcome));
}

fn plop3(warp: &mut Warp, i: &Instruction, a: bool) {
    let read = |at| -> Predicate { i.source_predicate(at) };
    let b = warp.uniform_predicate(read(field::CONDITION_2));
    let c = warp.uniform_predicate(read(field::CONDITION_3));
    // CAST: 8 bits.
    let (first, second) = (integer::truth_table(i), i.bits(field::LUT_2) as u8);
    warp.set_uniform_predicate(i.target_predicate(field::TARGET), int::plop3(a, b, c, first));
    warp.set_uniform_predicate(i.target_predicate(field::TARGET_2), int::plop3(a, b, c, second));
}

/// UPLOP3 with the signs of B, of B and C, or of all sources.
fn plop3_sign(warp: &mut Warp, i: &Instruction, registers: [u32; 3], first: bool) {
    let mut inputs = registers.map(|value| value >> 31 != 0);
    if i.op != Op::Uplop3Signs {
        inputs[0] = first;
    }
    if i.op == Op::Uplop3Sign {
        inputs[2] = warp.uniform_predicate(i.source_predicate(field::CONDITION_3));
    }
    let [a, b, c] = inputs;
    // CAST: 8 bits each.
    let (first, second) = (i.bits(field::LUT) as u8, i.bits(field::LUT_2) as u8);
    warp.set_uniform_predicate(i.target_predicate(field::TARGET), int::plop3(a, b, c, first));
    warp.set_uniform_predicate(i.target_predicate(field::TARGET_2), int::plop3(a, b, c, second));
}
