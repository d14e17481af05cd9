//! Single-precision instructions.
//!
//! Round-to-nearest without flushing is the common case and uses the host's arithmetic in vector loops. All other
//! modes use [`crate::sm::numeric::f32`].

use sass::{Instruction, Op, Sign, Source, field};

use super::{Context, Outcome, lanes_where, map1, map2, map3, set_compared};
use crate::sm::numeric::mufu::{Function, mufu as table, mufu_f16};
use crate::sm::numeric::{FloatCompare, Rounding, f32 as single};
use crate::sm::warp::{Row, Warp};

/// A sign modifier as masks to AND and to XOR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SignMask(pub(super) u32, pub(super) u32);

impl SignMask {
    /// No modifier.
    pub(super) const NONE: Self = Self(!0, 0);

    #[inline(always)]
    pub(super) fn of(sign: Sign) -> Self {
        Self(if sign.absolute { 0x7fff_ffff } else { !0 }, if sign.negate { 0x8000_0000 } else { 0 })
    }

    #[inline(always)]
    pub(super) fn bits(self, x: u32) -> u32 {
        x & self.0 ^ self.1
    }

    #[inline(always)]
    fn value(self, x: u32) -> f32 {
        f32::from_bits(self.bits(x))
    }
}

/// Returns the bits of a result with canonical NaN.
#[inline(always)]
fn canonical(x: f32) -> u32 {
    if x.is_nan() { single::NAN } else { x.to_bits() }
}

/// Returns whether a result is rounded to nearest without flushing and saturation.
#[inline(always)]
pub(super) fn plain(i: &Instruction) -> bool {
    i.bits(field::ARITHMETIC) == 0
}

/// Returns whether a result is rounded to nearest and saturated, without flushing.
pub(super) fn only_saturates(i: &Instruction) -> bool {
    i.bits(field::ARITHMETIC) == 1
}

/// Returns whether a result is rounded down, without flushing and saturation.
pub(super) fn only_rounds_down(i: &Instruction) -> bool {
    rounding(i) == Rounding::Down && !i.bit(field::FTZ) && !i.bit(field::SATURATE)
}

/// Returns the rounding mode.
#[inline(always)]
fn rounding(i: &Instruction) -> Rounding {
    Rounding::from_field(i.bits(field::ROUND))
}

#[inline(always)]
fn saturated(i: &Instruction, x: u32) -> u32 {
    if i.bit(field::SATURATE) { single::saturate(x) } else { x }
}

#[inline(always)]
pub(super) fn ffma(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let (sa, sb, sc) = (SignMask::of(i.a_sign()), SignMask::of(i.b_sign), SignMask::of(i.c_sign));
    if plain(i) && !i.bit(field::FMZ) {
        return map3(context, warp, i, active, |a, b, c| {
            canonical(sa.value(a).mul_add(sb.value(b), sc.value(c)))
        });
    }
    ffma_rounded(context, warp, i, active, [sa, sb, sc])
}

#[inline(never)]
fn ffma_rounded(
    context: &Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    [sa, sb, sc]: [SignMask; 3],
) -> Outcome {
    let (rounding, ftz, fmz) = (rounding(i), i.bit(field::FTZ), i.bit(field::FMZ));
    map3(context, warp, i, active, |a, b, c| {
        let (a, b, c) = (sa.bits(a), sb.bits(b), sc.bits(c));
        let sum = if fmz { single::fma_fmz(a, b, c, rounding) } else { single::fma(a, b, c, rounding, ftz) };
        saturated(i, sum)
    })
}

#[inline(always)]
pub(super) fn fadd(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let (sa, sb) = (SignMask::of(i.a_sign()), SignMask::of(i.b_sign));
    if plain(i) {
        return map2(context, warp, i, active, |a, b| canonical(sa.value(a) + sb.value(b)));
    }
    fadd_rounded(context, warp, i, active, sa, sb)
}

#[inline(never)]
fn fadd_rounded(
    context: &Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    sa: SignMask,
    sb: SignMask,
) -> Outcome {
    let (rounding, ftz) = (rounding(i), i.bit(field::FTZ));
    map2(context, warp, i, active, |a, b| saturated(i, single::add(sa.bits(a), sb.bits(b), rounding, ftz)))
}

#[inline(always)]
pub(super) fn fmul(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let (sa, sb) = (SignMask::of(i.a_sign()), SignMask::of(i.b_sign));
    // Scale 4 is a factor of one.
    if plain(i) && !i.bit(field::FMZ) && i.bits(field::SCALE) == 4 {
        return map2(context, warp, i, active, |a, b| canonical(sa.value(a) * sb.value(b)));
    }
    fmul_rounded(context, warp, i, active, sa, sb)
}

#[inline(never)]
fn fmul_rounded(
    context: &Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    sa: SignMask,
    sb: SignMask,
) -> Outcome {
    let (rounding, ftz, fmz) = (rounding(i), i.bit(field::FTZ), i.bit(field::FMZ));
    let scale = single::multiply_scale(i.bits(field::SCALE)).unwrap_or(0);
    map2(context, warp, i, active, |a, b| {
        let (a, b) = (sa.bits(a), sb.bits(b));
        let product = if fmz {
            single::mul_fmz(a, b, scale, rounding)
        } else {
            single::mul_scaled(a, b, scale, rounding, ftz)
        };
        saturated(i, product)
    })
}

/// Returns the lanes in which the comparison holds.
#[inline(always)]
fn compare(i: &Instruction, a: &Row, b: &Row) -> u32 {
    let (sa, sb) = (SignMask::of(i.a_sign()), SignMask::of(i.b_sign));
    if i.bit(field::FTZ) {
        let op = FloatCompare::from_field(i.bits(field::FLOAT_COMPARE));
        return lanes_where(a, b, |a, b| single::compare(op, sa.bits(a), sb.bits(b), true));
    }
    let less = lanes_where(a, b, |a, b| sa.value(a) < sb.value(b));
    let equal = lanes_where(a, b, |a, b| sa.value(a) == sb.value(b));
    let greater = lanes_where(a, b, |a, b| sa.value(a) > sb.value(b));
    // The field is a truth table of less, equal, greater and unordered.
    let compare = i.bits(field::FLOAT_COMPARE);
    let when = |bit: u32, lanes: u32| if compare >> bit & 1 != 0 { lanes } else { 0 };
    when(0, less) | when(1, equal) | when(2, greater) | when(3, !(less | equal | greater))
}

#[inline(always)]
pub(super) fn fsetp(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let outcome = compare(i, warp.row(i.a), b);
    set_compared(warp, i, active, outcome, i.bits(field::COMBINE));
    Ok(())
}

pub(super) fn fset(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let outcome = compare(i, warp.row(i.a), b);
    let with = warp.predicate(i.source_predicate(field::CONDITION));
    let outcome = super::combine(i.bits(field::COMBINE), outcome, with);
    let out = core::array::from_fn(|lane| single::set(outcome >> lane & 1 != 0));
    warp.write(i.d, active, &out);
    Ok(())
}

/// FMNMX and FSEL: select one of two sources.
#[inline(always)]
pub(super) fn select(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let p = warp.predicate(i.source_predicate(field::CONDITION));
    let (sa, sb) = (SignMask::of(i.a_sign()), SignMask::of(i.b_sign));
    let (ftz, nan, xor) = (i.bit(field::FTZ), i.bit(field::KEEP_NAN), i.bit(field::XOR_SIGN));
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let a = warp.row(i.a);
    let mut out = [0; 32];
    for lane in 0..32 {
        let (raw_a, raw_b, p) = (a[lane], b[lane], p >> lane & 1 != 0);
        let (a, b) = (sa.bits(raw_a), sb.bits(raw_b));
        out[lane] = if i.op == Op::Fsel {
            single::select(p, a, b, ftz)
        } else {
            let result = if p { single::min(a, b, nan, ftz) } else { single::max(a, b, nan, ftz) };
            if xor { single::xor_sign(result, raw_a, raw_b) } else { result }
        };
    }
    warp.write(i.d, active, &out);
    Ok(())
}

pub(super) fn mufu(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let function = Function::from_field(i.bits(field::FUNCTION)).ok_or_else(|| super::unmodelled(i))?;
    if i.bit(field::FUNCTION_HALF) {
        // Half precision: the selected half of the source; the result goes to the lower half.
        let shift = match i.b {
            Source::Immediate(_) => 0,
            _ => 16 * (i.bits(field::SLOT_PART) & 1),
        };
        let (and, xor) =
            (if i.b_sign.absolute { 0x7fff } else { 0xffff }, if i.b_sign.negate { 0x8000 } else { 0 });
        // CAST: the chosen half.
        return map1(context, warp, i, active, |b| {
            mufu_f16(function, (b >> shift) as u16 & and ^ xor).into()
        });
    }
    let sign = SignMask::of(i.b_sign);
    map1(context, warp, i, active, |b| table(function, sign.bits(b)))
}

pub(super) fn fchk(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let (sa, sb) = (SignMask::of(i.a_sign()), SignMask::of(i.b_sign));
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let slow = lanes_where(warp.row(i.a), b, |a, b| single::division_check(sa.bits(a), sb.bits(b)));
    warp.set_predicate(i.target_predicate(field::TARGET), active, slow);
    Ok(())
}
