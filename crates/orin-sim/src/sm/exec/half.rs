//! Half-precision instructions: two lanes of binary16 or bfloat16 in each register.
//!
//! The swizzle of each operand selects which half feeds which lane. The modifiers of a register belong to its place
//! in the word: the slot, or the register above it.

use sass::{Instruction, Op, PT, Predicate, RZ, Source, field};

use super::{Context, Outcome, Trap, unmodelled};
use crate::sm::numeric::FloatCompare;
use crate::sm::numeric::f16::{self, Half, Operand, Swizzle};
use crate::sm::numeric::f32 as single;
use crate::sm::warp::{Row, Warp};

/// Two lanes as binary32 patterns, for each of the 32 threads.
type Lanes = [[u32; 2]; 32];

/// The format of the operands.
fn kind(i: &Instruction) -> Half {
    let flag = match i.op {
        Op::Hset2 | Op::Hsetp2 => field::COMPARE_BFLOAT16,
        _ => field::BFLOAT16,
    };
    if i.bit(flag) { Half::Bf16 } else { Half::F16 }
}

/// How the operand in the slot is read.
fn slot(i: &Instruction, source: Source, plain: Operand) -> Operand {
    if matches!(source, Source::Immediate(_)) {
        return plain;
    }
    Operand {
        swizzle: Swizzle::from_field(i.bits(field::SLOT_HALVES)),
        absolute: i.bit(field::SLOT_ABSOLUTE),
        negate: i.bit(field::SLOT_NEGATE),
        ..plain
    }
}

/// How the register above the slot is read.
fn upper(i: &Instruction, plain: Operand) -> Operand {
    Operand {
        swizzle: Swizzle::from_field(i.bits(field::UPPER_HALVES)),
        absolute: i.bit(field::UPPER_HALF_ABSOLUTE),
        negate: i.bit(field::UPPER_HALF_NEGATE),
        ..plain
    }
}

/// Returns an operand of the first `threads` threads.
fn read(row: &Row, how: Operand, threads: usize) -> Lanes {
    let mut out = [[0; 2]; 32];
    for (lanes, register) in out.iter_mut().zip(&row[..threads]) {
        *lanes = f16::operand(*register, how);
    }
    out
}

/// Returns one half of an operand, or the whole register with `.F32`, of each thread as binary32.
fn read_low(row: &Row, how: Operand) -> Row {
    let shift = if how.swizzle == Swizzle::H1H1 { 16 } else { 0 };
    let mut out = *row;
    // Loops without calls or conditions, so that they are compiled to vectors.
    match (how.swizzle, how.kind) {
        (Swizzle::F32, _) => {}
        (_, kind) if how.ftz => {
            out.iter_mut().for_each(|x| *x = f16::widen(kind, f16::flush(kind, (*x >> shift) as u16)));
        }
        (_, Half::F16) => out.iter_mut().for_each(|x| *x = f16::widen(Half::F16, (*x >> shift) as u16)),
        (_, Half::Bf16) => out.iter_mut().for_each(|x| *x = f16::widen(Half::Bf16, (*x >> shift) as u16)),
    }
    out.iter_mut().for_each(|x| *x = single::modify(*x, how.absolute, how.negate));
    out
}

/// HADD2.F32. `HADD2.F32 d, -RZ, x.H0_H0` is how the compiler converts a half to binary32, so this one is frequent.
fn add_to_single(context: &Context, warp: &mut Warp, i: &Instruction, ftz: bool, active: u32) -> Outcome {
    let [a, b, _] = places(i, ftz);
    let mut room = [0; 32];
    let b = read_low(context.values(warp, i.b, &mut room)?, b);
    let mut out = read_low(warp.row(i.a), a);
    if ftz {
        out.iter_mut().zip(b).for_each(|(a, b)| *a = f16::add_f32(*a, b, true));
    } else {
        out.iter_mut().zip(b).for_each(|(a, b)| *a = f16::add_f32(*a, b, false));
    }
    warp.write(i.d, active, &out);
    Ok(())
}

/// How the operands A, B and C are read.
fn places(i: &Instruction, ftz: bool) -> [Operand; 3] {
    let plain = Operand { kind: kind(i), swizzle: Swizzle::H1H0, absolute: false, negate: false, ftz };
    let a = Operand {
        swizzle: Swizzle::from_field(i.bits(field::A_HALVES)),
        absolute: i.bit(field::A_ABSOLUTE),
        negate: i.bit(field::A_NEGATE),
        ..plain
    };
    let ternary = i.op == Op::Hfma2;
    let (b, c) = if ternary && matches!(i.form, 2 | 3 | 7) {
        (upper(i, plain), slot(i, i.c, plain))
    } else if ternary {
        (slot(i, i.b, plain), upper(i, plain))
    } else {
        (slot(i, i.b, plain), plain)
    };
    [a, b, c]
}

/// Returns the operands A, B and C of the first `threads` threads.
fn operands(
    context: &Context,
    warp: &Warp,
    i: &Instruction,
    ftz: bool,
    threads: usize,
) -> Result<[Lanes; 3], Trap> {
    let [a, b, c] = places(i, ftz);
    let (mut room_b, mut room_c) = ([0; 32], [0; 32]);
    Ok([
        read(warp.row(i.a), a, threads),
        read(context.values(warp, i.b, &mut room_b)?, b, threads),
        read(context.values(warp, i.c, &mut room_c)?, c, threads),
    ])
}

/// Returns the sign bits of A and B of all threads before absolute values and negations, as XORSIGN requires. Each is
/// the top bit of a word.
fn signs(context: &Context, warp: &Warp, i: &Instruction) -> Result<[Lanes; 2], Trap> {
    let of = |row: &Row, swizzle| {
        row.map(|word| match swizzle {
            Swizzle::H1H0 => [word << 16, word],
            Swizzle::H0H0 => [word << 16; 2],
            Swizzle::H1H1 | Swizzle::F32 => [word; 2],
        })
    };
    let second = match i.b {
        Source::Immediate(_) => Swizzle::H1H0,
        _ => Swizzle::from_field(i.bits(field::SLOT_HALVES)),
    };
    let mut room = [0; 32];
    let b = of(context.values(warp, i.b, &mut room)?, second);
    Ok([of(warp.row(i.a), Swizzle::from_field(i.bits(field::A_HALVES))), b])
}

/// Sets the sign of a result to the exclusive or of two signs, the top bits of words; a NaN does not change.
fn xor_sign(kind: Half, result: u16, a: u32, b: u32) -> u16 {
    let infinity = if kind == Half::Bf16 { 0x7f80 } else { 0x7c00 };
    // CAST: one bit.
    let sign = (((a ^ b) >> 31) << 15) as u16;
    if result & 0x7fff > infinity { result } else { result & 0x7fff | sign }
}

/// Returns the result of HFMA2 of RZ and an immediate, with which the compiler loads constants.
pub(super) fn constant(i: &Instruction) -> Option<u32> {
    let word = |source: Source| match source {
        Source::Register(RZ) => Some(0),
        Source::Immediate(value) => Some(value),
        _ => None,
    };
    let modified = [field::FTZ, field::FMZ, field::RELU, field::SATURATE].into_iter().any(|at| i.bit(at));
    if i.op != Op::Hfma2 || i.a != RZ || modified {
        return None;
    }
    let [a, b, c] = places(i, false);
    let [a, b, c] = [f16::operand(0, a), f16::operand(word(i.b)?, b), f16::operand(word(i.c)?, c)];
    Some(f16::pack([0, 1].map(|half| f16::fma(kind(i), a[half], b[half], c[half], false))))
}

/// The half that `HADD2.F32 d, -RZ, x`, the conversion of a half to binary32, reads; `None` for other instructions.
pub(super) fn widened(i: &Instruction) -> Option<Swizzle> {
    let modified = [field::FTZ, field::SATURATE].into_iter().any(|at| i.bit(at));
    if i.op != Op::Hadd2 || !i.bit(field::HALF_TO_SINGLE) || i.a != RZ || modified || kind(i) != Half::F16 {
        return None;
    }
    let [a, b, _] = places(i, false);
    let is_conversion =
        a.negate && !a.absolute && !b.negate && !b.absolute && matches!(i.b, Source::Register(_));
    (is_conversion && matches!(b.swizzle, Swizzle::H0H0 | Swizzle::H1H1)).then_some(b.swizzle)
}

/// HADD2, HMUL2, HFMA2, HMNMX2 and HSET2.
#[inline(always)]
pub(super) fn arithmetic(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let kind = kind(i);
    let fmz = matches!(i.op, Op::Hmul2 | Op::Hfma2) && i.bit(field::FMZ);
    let ftz = i.bit(field::FTZ) || fmz;
    if i.op == Op::Hadd2 && i.bit(field::HALF_TO_SINGLE) {
        if i.bit(field::SATURATE) {
            return Err(unmodelled(i));
        }
        return add_to_single(context, warp, i, ftz, active);
    }
    // The compiler loads constants with HFMA2.MMA of RZ and an immediate: all threads get the same result.
    let same = |source: Source| !matches!(source, Source::Register(number) if number != RZ);
    let alike = i.op == Op::Hfma2 && i.a == RZ && same(i.b) && same(i.c);
    let threads = if alike { 1 } else { 32 };
    let [a, b, c] = operands(context, warp, i, ftz, threads)?;
    let relu = i.op == Op::Hfma2 && i.bit(field::RELU);
    if relu && (i.source_predicate(field::CONDITION) != (Predicate { index: PT, not: false })) {
        return Err(unmodelled(i));
    }
    let xor = i.op == Op::Hmnmx2 && i.bit(field::XOR_SIGN);
    let [raw_a, raw_b] = if xor { signs(context, warp, i)? } else { [[[0; 2]; 32]; 2] };
    let with = warp.predicate(i.source_predicate(field::CONDITION));
    let compare = FloatCompare::from_field(i.bits(field::FLOAT_COMPARE));
    let mut out = [0; 32];
    for thread in 0..threads {
        let with = with >> thread & 1 != 0;
        let lanes = [0, 1].map(|lane| {
            let (a, b, c) = (a[thread][lane], b[thread][lane], c[thread][lane]);
            let value = match i.op {
                Op::Hadd2 => f16::add(kind, a, b, ftz),
                Op::Hmul2 if fmz => f16::mul_fmz(kind, a, b),
                Op::Hmul2 => f16::mul(kind, a, b, ftz),
                Op::Hfma2 if fmz => f16::fma_fmz(kind, a, b, c),
                Op::Hfma2 => f16::fma(kind, a, b, c, ftz),
                Op::Hmnmx2 => {
                    let value = f16::min_max(kind, a, b, with, i.bit(field::KEEP_NAN));
                    if xor { xor_sign(kind, value, raw_a[thread][lane], raw_b[thread][lane]) } else { value }
                }
                _ => {
                    let outcome = single::compare(compare, a, b, ftz);
                    return f16::set(
                        kind,
                        super::combine(i.bits(field::HALF_COMBINE), outcome, with),
                        i.bit(field::HALF_SET_ONE),
                    );
                }
            };
            let saturates = matches!(i.op, Op::Hadd2 | Op::Hmul2 | Op::Hfma2) && i.bit(field::SATURATE);
            let value = if saturates { f16::saturate(kind, value) } else { value };
            if relu { f16::relu(kind, value) } else { value }
        });
        out[thread] = f16::pack(lanes);
    }
    if alike {
        out = [out[0]; 32];
    }
    warp.write(i.d, active, &out);
    Ok(())
}

pub(super) fn hsetp2(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let ftz = i.bit(field::FTZ);
    let [a, b, _] = operands(context, warp, i, ftz, 32)?;
    let with = warp.predicate(i.source_predicate(field::CONDITION));
    let op = FloatCompare::from_field(i.bits(field::FLOAT_COMPARE));
    let (mut first, mut second) = (0, 0);
    for thread in 0..32 {
        let with = with >> thread & 1 != 0;
        let [low, high] = [0, 1].map(|lane| single::compare(op, a[thread][lane], b[thread][lane], ftz));
        // With H_AND both lanes form one outcome; the second predicate gets its complement.
        let (low, high) = if i.bit(field::HALF_AND) { (low & high, !(low & high)) } else { (low, high) };
        first |= u32::from(super::combine(i.bits(field::HALF_COMBINE), low, with)) << thread;
        second |= u32::from(super::combine(i.bits(field::HALF_COMBINE), high, with)) << thread;
    }
    warp.set_predicate(i.target_predicate(field::TARGET), active, first);
    warp.set_predicate(i.target_predicate(field::TARGET_2), active, second);
    Ok(())
}
