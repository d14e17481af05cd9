//! Integer, logic and predicate instructions.
//!
//! The computation on one lane is in [`crate::sm::numeric::int`]. This module has the operands, the carries, and
//! loops that vectorise for the plain forms.

use sass::{Instruction, Op, PT, Predicate, Source, field};

use super::{Context, Outcome, lanes_where, map1, map2, map3, map3p, set_compared};
use crate::sm::numeric::convert::{self, Integer};
use crate::sm::numeric::int::{self, Addend, PermuteMode, Shift, ShiftType, Sum};
use crate::sm::warp::{Row, Warp};

#[inline(always)]
pub(super) fn imad(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    if !i.bit(field::EXTENDED) {
        // IMAD.MOV and similar.
        if i.a == 255 || i.b == Source::Register(255) {
            let flip = if i.c_sign.negate { !0 } else { 0 };
            return map3(context, warp, i, active, |_, _, c| (c ^ flip).wrapping_sub(flip));
        }
        if i.c_sign.negate {
            return map3(context, warp, i, active, |a, b, c| a.wrapping_mul(b).wrapping_sub(c));
        }
        return map3(context, warp, i, active, |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    }
    let negate = i.c_sign.negate;
    map3p(context, warp, i, active, i.source_predicate(field::CONDITION), |a, b, c, p| {
        int::imad(a, b, c, Addend { negate, carry: Some(p) })
    })
}

#[inline(always)]
pub(super) fn imad_wide(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    wide(context, warp, i, active, false)
}

#[inline(always)]
pub(super) fn imad_high(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    wide(context, warp, i, active, true)
}

#[inline(always)]
fn wide(context: &Context, warp: &mut Warp, i: &Instruction, active: u32, high: bool) -> Outcome {
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let a = warp.row(i.a);
    let (signed, negate, extended) = (i.bit(field::SIGNED), i.c_sign.negate, i.bit(field::EXTENDED));
    let [c_low, c_high] = match i.c {
        // An immediate addend is the low word; the high word is 0.
        Source::Immediate(value) => [[value; 32], [0; 32]],
        source => context.pairs(warp, source)?,
    };
    let carry_in = warp.predicate(i.source_predicate(field::CONDITION));
    let (mut low, mut top, mut carries) = ([0; 32], [0; 32], 0);
    if !extended && !negate && i.target_predicate(field::TARGET) == PT {
        for lane in 0..32 {
            let product = int::multiply_wide(a[lane], b[lane], signed);
            let sum = product.wrapping_add(u64::from(c_low[lane]) | u64::from(c_high[lane]) << 32);
            // CAST: the halves of the sum.
            (low[lane], top[lane]) = (sum as u32, (sum >> 32) as u32);
        }
    } else {
        for lane in 0..32 {
            let carry = extended.then_some(carry_in >> lane & 1 != 0);
            let c = u64::from(c_low[lane]) | u64::from(c_high[lane]) << 32;
            let (sum, carry) = int::imad_wide(a[lane], b[lane], c, signed, Addend { negate, carry });
            // CAST: the halves of the sum.
            (low[lane], top[lane]) = (sum as u32, (sum >> 32) as u32);
            carries |= u32::from(carry) << lane;
        }
    }
    if high {
        warp.write(i.d, active, &top);
    } else {
        warp.write(i.d, active, &low);
        warp.write(Warp::next(i.d, 1), active, &top);
    }
    warp.set_predicate(i.target_predicate(field::TARGET), active, carries);
    Ok(())
}

/// Returns the masks with which a sum without carries negates operands: `(x ^ flip) - flip`.
#[inline(always)]
pub(super) fn flips(negate: [bool; 3]) -> [u32; 3] {
    negate.map(|negate| if negate { !0 } else { 0 })
}

#[inline(always)]
pub(super) fn iadd3(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let negate = [i.bit(field::A_NEGATE), i.b_sign.negate, i.bit(field::UPPER_NEGATE)];
    let (carry, second) = (i.target_predicate(field::TARGET), i.target_predicate(field::TARGET_2));
    if !i.bit(field::EXTENDED) && carry == PT && second == PT {
        let flips = flips(negate);
        return map3(context, warp, i, active, |a, b, c| {
            let signed = |x: u32, flip: u32| (x ^ flip).wrapping_sub(flip);
            signed(a, flips[0]).wrapping_add(signed(b, flips[1])).wrapping_add(signed(c, flips[2]))
        });
    }
    let (mut room_b, mut room_c) = ([0; 32], [0; 32]);
    let b = context.values(warp, i.b, &mut room_b)?;
    let c = context.values(warp, i.c, &mut room_c)?;
    let a = warp.row(i.a);
    let p = warp.predicate(i.source_predicate(field::CONDITION));
    let q = warp.predicate(i.source_predicate(field::CONDITION_2));
    let (mut out, mut carries, mut second_carries) = ([0; 32], 0, 0);
    for lane in 0..32 {
        let sum = add3(i, [a[lane], b[lane], c[lane]], negate, [p >> lane & 1 != 0, q >> lane & 1 != 0]);
        out[lane] = sum.value;
        carries |= u32::from(sum.carry) << lane;
        second_carries |= u32::from(sum.second_carry) << lane;
    }
    warp.write(i.d, active, &out);
    warp.set_predicate(carry, active, carries);
    warp.set_predicate(second, active, second_carries);
    Ok(())
}

/// IADD3 and UIADD3 on one lane.
#[inline(always)]
pub(super) fn add3(i: &Instruction, [a, b, c]: [u32; 3], negate: [bool; 3], carries: [bool; 2]) -> Sum {
    if i.bit(field::EXTENDED) { int::iadd3_x(a, b, c, negate, carries) } else { int::iadd3(a, b, c, negate) }
}

#[inline(always)]
pub(super) fn lop3(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    // CAST: 8 bits.
    let lut = i.bits(field::LUT) as u8;
    let rows = truth_rows(lut);
    map3(context, warp, i, active, |a, b, c| by_table(&rows, a, b, c))?;
    let target = i.target_predicate(field::TARGET);
    if target != PT {
        // The row just written; the predicate write masks inactive lanes.
        let (mut room_b, mut room_c) = ([0; 32], [0; 32]);
        let nonzero = if i.d == 255 {
            let b = context.values(warp, i.b, &mut room_b)?;
            let c = context.values(warp, i.c, &mut room_c)?;
            let a = warp.row(i.a);
            (0..32).fold(0, |mask, lane| {
                mask | u32::from(int::lop3(a[lane], b[lane], c[lane], lut) != 0) << lane
            })
        } else {
            let row = warp.row(i.d);
            lanes_where(row, row, |value, _| value != 0)
        };
        let with = warp.predicate(i.source_predicate(field::CONDITION));
        warp.set_predicate(
            target,
            active,
            if i.bit(field::LUT_AND) { nonzero & with } else { nonzero | with },
        );
    }
    Ok(())
}

/// Returns one mask per row of a truth table.
#[inline(always)]
fn truth_rows(lut: u8) -> [u32; 8] {
    let mut rows = [0; 8];
    for (row, mask) in rows.iter_mut().enumerate() {
        *mask = if lut >> row & 1 != 0 { !0 } else { 0 };
    }
    rows
}

/// Looks up row 4a + 2b + c of a truth table for each bit, without a branch.
#[inline(always)]
fn by_table(rows: &[u32; 8], a: u32, b: u32, c: u32) -> u32 {
    let by_c = |row: usize| rows[row] & !c | rows[row + 1] & c;
    let by_b = |row: usize| by_c(row) & !b | by_c(row + 2) & b;
    by_b(0) & !a | by_b(4) & a
}

/// Returns the modifiers of SHF and USHF.
#[inline(always)]
pub(super) fn shift_of(i: &Instruction) -> Shift {
    Shift {
        kind: ShiftType::from_field(i.bits(field::SHIFT_TYPE)),
        wrap: i.bit(field::WRAP),
        right: i.bit(field::SHIFT_RIGHT),
        high: i.bit(field::SHIFT_HIGH),
    }
}

/// A shift of one word by an immediate of at most 31, the common case.
#[derive(Clone, Copy, Debug)]
pub(super) enum PlainShift {
    /// A to the left.
    Left,
    /// C to the right.
    Right,
    /// C to the right, with copies of its sign.
    RightSigned,
}

/// Returns the plain shift that a SHF is, if it is one.
#[inline(always)]
pub(super) fn plain_shift(i: &Instruction) -> Option<PlainShift> {
    let shift = shift_of(i);
    if shift.wrap || !matches!(i.b, Source::Immediate(0..=31)) {
        return None;
    }
    match shift {
        Shift { right: false, high: false, .. } => Some(PlainShift::Left),
        Shift { kind: ShiftType::U32 | ShiftType::U64, right: true, high: true, .. } => {
            Some(PlainShift::Right)
        }
        Shift { kind: ShiftType::S32 | ShiftType::S64, right: true, high: true, .. } => {
            Some(PlainShift::RightSigned)
        }
        _ => None,
    }
}

/// Returns by how much SHF shifts the pair of C and A to the left if its result is the upper word of that, and has
/// bits of both.
pub(super) fn funnel_shift(i: &Instruction) -> Option<u32> {
    let (shift, Source::Immediate(amount @ 1..=31)) = (shift_of(i), i.b) else { return None };
    match (shift.right, shift.high) {
        (false, true) => Some(amount),
        (true, false) => Some(32 - amount),
        _ => None,
    }
}

#[inline(always)]
pub(super) fn shf(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    if let (Some(kind), Source::Immediate(amount)) = (plain_shift(i), i.b) {
        return match kind {
            PlainShift::Left => map3(context, warp, i, active, |a, _, _| a << amount),
            PlainShift::Right => map3(context, warp, i, active, |_, _, c| c >> amount),
            // CAST: reinterprets the word as signed and back.
            PlainShift::RightSigned => map3(context, warp, i, active, |_, _, c| (c as i32 >> amount) as u32),
        };
    }
    let shift = shift_of(i);
    map3(context, warp, i, active, |a, b, c| int::shf(a, b, c, shift))
}

/// Whether a LEA only adds A, shifted to the left, and B.
#[inline(always)]
pub(super) fn is_plain_lea(i: &Instruction) -> bool {
    !i.bit(field::EXTENDED)
        && !i.bit(field::LEA_HIGH)
        && i.target_predicate(field::TARGET) == PT
        && !i.bit(field::A_NEGATE)
        && !i.b_sign.negate
}

#[inline(always)]
pub(super) fn lea(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let carry = i.target_predicate(field::TARGET);
    if is_plain_lea(i) {
        let amount = i.bits(field::LEA_SHIFT);
        return map2(context, warp, i, active, |a, b| (a << amount).wrapping_add(b));
    }
    let (mut room_b, mut room_c) = ([0; 32], [0; 32]);
    let b = context.values(warp, i.b, &mut room_b)?;
    let c = context.values(warp, i.c, &mut room_c)?;
    let a = warp.row(i.a);
    let p = warp.predicate(i.source_predicate(field::CONDITION));
    let (mut out, mut carries) = ([0; 32], 0);
    for lane in 0..32 {
        let sum = lea_of(i, a[lane], b[lane], c[lane], p >> lane & 1 != 0);
        out[lane] = sum.value;
        carries |= u32::from(sum.carry) << lane;
    }
    warp.write(i.d, active, &out);
    warp.set_predicate(carry, active, carries);
    Ok(())
}

/// LEA and ULEA on one lane.
#[inline(always)]
pub(super) fn lea_of(i: &Instruction, a: u32, b: u32, c: u32, carry: bool) -> Sum {
    let c = if i.bit(field::LEA_SIGN_EXTENDS) { int::sign_word(a) } else { c };
    let shifted = int::lea_shifted(a, c, i.bits(field::LEA_SHIFT), i.bit(field::LEA_HIGH));
    int::lea_sum(
        shifted,
        b,
        [i.bit(field::A_NEGATE), i.b_sign.negate],
        i.bit(field::EXTENDED).then_some(carry),
    )
}

#[inline(always)]
pub(super) fn prmt(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let mode = PermuteMode::from_field(i.bits(field::PERMUTE)).unwrap_or(PermuteMode::Index);
    map3(context, warp, i, active, |a, b, c| int::prmt(a, b, c, mode))
}

#[inline(always)]
pub(super) fn mov(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    // The byte mask of each quad.
    let lanes = i.bits(field::MOV_MASK) * 0x1111_1111;
    map1(context, warp, i, active & lanes, |b| b)
}

#[inline(always)]
pub(super) fn sel(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let p = warp.predicate(i.source_predicate(field::CONDITION));
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let a = warp.row(i.a);
    let mut out = [0; 32];
    for lane in 0..32 {
        out[lane] = if p >> lane & 1 != 0 { a[lane] } else { b[lane] };
    }
    warp.write(i.d, active, &out);
    Ok(())
}

#[inline(always)]
pub(super) fn imnmx(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let p = warp.predicate(i.source_predicate(field::CONDITION));
    let signed = i.bit(field::SIGNED);
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let a = warp.row(i.a);
    let mut out = [0; 32];
    for lane in 0..32 {
        out[lane] = int::imnmx(a[lane], b[lane], signed, p >> lane & 1 != 0);
    }
    warp.write(i.d, active, &out);
    Ok(())
}

/// Returns the mask with which both operands of a comparison are compared as unsigned: a signed comparison is one with
/// inverted sign bits.
#[inline(always)]
pub(super) fn order_flip(i: &Instruction) -> u32 {
    if i.bit(field::SIGNED) { 0x8000_0000 } else { 0 }
}

#[inline(always)]
pub(super) fn isetp(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let a = warp.row(i.a);
    let flip = order_flip(i);
    let less = lanes_where(a, b, |a, b| a ^ flip < b ^ flip);
    let equal = lanes_where(a, b, |a, b| a == b);
    // The field is a truth table: bit 0 less, bit 1 equal, bit 2 greater.
    let compare = i.bits(field::COMPARE);
    let when = |bit: u32, lanes: u32| if compare >> bit & 1 != 0 { lanes } else { 0 };
    let mut outcome = when(0, less) | when(1, equal) | when(2, !(less | equal));
    if i.bit(field::COMPARE_EXTENDED) && !matches!(compare, 0 | 7) {
        outcome = outcome & !equal | warp.predicate(i.source_predicate(field::CONDITION_3)) & equal;
    }
    set_compared(warp, i, active, outcome, i.bits(field::COMBINE));
    Ok(())
}

pub(super) fn unary(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    map1(context, warp, i, active, |b| unary_of(i, b))
}

/// One-source integer operations on one lane.
pub(super) fn unary_of(i: &Instruction, b: u32) -> u32 {
    let inverted = if i.b_sign.negate { !b } else { b };
    match i.op {
        Op::Flo | Op::Uflo => int::flo(inverted, i.bit(field::SIGNED), i.bit(field::FLO_SHIFT)),
        Op::Popc | Op::Upopc => int::popc(inverted),
        Op::Brev | Op::Ubrev => int::brev(b),
        Op::I2i => convert::i2i(b, Integer::from_field(i.bits(field::I2I_SIZE), i.bit(field::NARROW_SIGNED))),
        _ => int::iabs(b),
    }
}

pub(super) fn binary(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    map2(context, warp, i, active, |a, b| binary_of(i, a, b))
}

/// BMSK, SGXT and their uniform twins on one lane.
pub(super) fn binary_of(i: &Instruction, a: u32, b: u32) -> u32 {
    match i.op {
        Op::Bmsk | Op::Ubmsk => int::bmsk(a, b, i.bit(field::WRAP)),
        _ => int::sgxt(a, b, i.bit(field::SIGNED), i.bit(field::WRAP)),
    }
}

pub(super) fn ternary(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    map3(context, warp, i, active, |a, b, c| match i.op {
        Op::Vabsdiff => int::vabsdiff(a, b, c, i.bit(field::SIGNED)),
        Op::Vabsdiff4 if i.bit(field::ACCUMULATE) => int::vabsdiff4_acc(a, b, c, i.bit(field::SIGNED)),
        Op::Vabsdiff4 => int::vabsdiff4(a, b, i.bit(field::SIGNED)),
        Op::I2ip => i2ip(i, a, b, c),
        _ => {
            let c = if i.bit(field::UPPER_NEGATE) { c.wrapping_neg() } else { c };
            match i.join(&[field::DOT_TWO, field::DOT_HIGH]) {
                0 => int::idp4a(a, b, c, i.bit(field::SIGNED), i.bit(field::DOT_B_SIGNED)),
                mode => int::idp2a(a, b, c, i.bit(field::SIGNED), i.bit(field::DOT_B_SIGNED), mode == 3),
            }
        }
    })
}

/// I2IP on one lane.
fn i2ip(i: &Instruction, a: u32, b: u32, c: u32) -> u32 {
    let format = i.bits(field::I2IP_TYPE);
    let to = Integer { bits: [8, 16, 2, 4][format as usize / 2], signed: format & 1 != 0 };
    // For 4-bit and 2-bit results the field says how much of C is shown, not which half.
    let upper = to.bits == 8 && i.bit(field::I2IP_PLACE);
    convert::i2ip(a, b, c, to, true, false, upper)
}

pub(super) fn p2r(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let a = warp.row(i.a);
    let shift = 8 * i.bits(field::PREDICATE_BYTE);
    let predicates: [u32; 7] = core::array::from_fn(|index| {
        // CAST: 0 to 6.
        warp.predicate(Predicate { index: index as u8, not: false })
    });
    let mut out = [0; 32];
    for lane in 0..32 {
        let file = (0..7).fold(0, |file, index| file | (predicates[index] >> lane & 1) << index);
        let mask = b[lane];
        out[lane] = a[lane] & !(mask << shift) | (file & mask) << shift;
    }
    warp.write(i.d, active, &out);
    Ok(())
}

pub(super) fn r2p(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let mut room = [0; 32];
    let mask = *context.values(warp, i.b, &mut room)?;
    let a = *warp.row(i.a);
    let shift = 8 * i.bits(field::PREDICATE_BYTE);
    for index in 0..7u8 {
        let wanted = lanes_where(&mask, &mask, |mask, _| mask >> index & 1 != 0);
        let values = lanes_where(&a, &a, |a, _| a >> shift >> index & 1 != 0);
        warp.set_predicate(index, active & wanted, values);
    }
    Ok(())
}

pub(super) fn plop3(warp: &mut Warp, i: &Instruction, active: u32) {
    let a = warp.predicate(i.source_predicate(field::CONDITION));
    let b = warp.predicate(i.source_predicate(field::CONDITION_2));
    let third = i.source_predicate(field::CONDITION_3);
    let c = if i.bit(field::CONDITION_3_UNIFORM) {
        if warp.uniform_predicate(third) { !0 } else { 0 }
    } else {
        warp.predicate(third)
    };
    let first = truth_table(i);
    // CAST: 8 bits.
    let second = i.bits(field::LUT_2) as u8;
    warp.set_predicate(i.target_predicate(field::TARGET), active, int::lop3(a, b, c, first));
    warp.set_predicate(i.target_predicate(field::TARGET_2), active, int::lop3(a, b, c, second));
}

/// PLOP3 with signs of registers instead of its last one, two or three predicates. The compiler uses it to detect
/// overflow of a sum. Both truth tables are contiguous here.
pub(super) fn plop3_signs(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let signs = |row: &Row| lanes_where(row, row, |value, _| value.cast_signed() < 0);
    let (mut room_b, mut room_c) = ([0; 32], [0; 32]);
    let b = signs(context.values(warp, i.b, &mut room_b)?);
    let (a, c) = match i.op {
        Op::Plop3Sign => (
            warp.predicate(i.source_predicate(field::CONDITION)),
            warp.predicate(i.source_predicate(field::CONDITION_3)),
        ),
        op => {
            let c = signs(context.values(warp, i.c, &mut room_c)?);
            let first = i.source_predicate(field::CONDITION);
            let a = if op == Op::Plop3TwoSigns { warp.predicate(first) } else { signs(warp.row(i.a)) };
            (a, c)
        }
    };
    // CAST: 8 bits.
    let (first, second) = (i.bits(field::LUT) as u8, i.bits(field::LUT_2) as u8);
    warp.set_predicate(i.target_predicate(field::TARGET), active, int::lop3(a, b, c, first));
    warp.set_predicate(i.target_predicate(field::TARGET_2), active, int::lop3(a, b, c, second));
    Ok(())
}

/// Returns the first truth table of PLOP3 and UPLOP3.
pub(super) fn truth_table(i: &Instruction) -> u8 {
    // CAST: 8 bits.
    (i.join(&field::TRUTH_TABLE)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_tables_select_the_row_of_each_bit() {
        for lut in 0..=255u8 {
            let rows = truth_rows(lut);
            let (a, b, c) = (0x0f0f_1234, 0x3333_5678, 0x5555_9abc);
            assert_eq!(by_table(&rows, a, b, c), int::lop3(a, b, c, lut), "{lut:#x}");
        }
    }
}
