//! binary16 and bfloat16: HADD2, HMUL2, HFMA2, HMNMX2, HSET2, HSETP2.
//!
//! The instructions work on two lanes of 16 bits. Both formats are subsets of binary32, so an
//! operand is first widened to binary32 patterns, one per lane ([`operand`]), which also covers an
//! operand that is a single binary32 (`.F32`). The operation is done exactly, or rounded to odd, in
//! binary64 and rounded once to the half format, to nearest even. A binary64 sum
//! rounded to nearest would be rounded twice; this fails for a bfloat16 product near a tie plus a tiny addend.

use super::convert::{bf16_to_f32, f16_to_f32};
use super::soft::{self, Format, add_to_odd};
use super::{Rounding, f32};

/// A 16-bit floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    /// IEEE 754 binary16.
    F16,
    /// bfloat16 (`.BF16_V2`).
    Bf16,
}

/// The NaN that arithmetic returns, in both formats.
pub(crate) const NAN: u16 = 0x7fff;

impl Half {
    /// One.
    #[must_use]
    pub(crate) const fn one(self) -> u16 {
        match self {
            Self::F16 => 0x3c00,
            Self::Bf16 => 0x3f80,
        }
    }

    /// Plus infinity.
    #[must_use]
    pub(crate) const fn infinity(self) -> u16 {
        match self {
            Self::F16 => 0x7c00,
            Self::Bf16 => 0x7f80,
        }
    }

    /// The smallest positive normal number.
    const fn min_normal(self) -> u16 {
        match self {
            Self::F16 => 0x0400,
            Self::Bf16 => 0x0080,
        }
    }

    const fn format(self) -> Format {
        match self {
            Self::F16 => soft::F16,
            Self::Bf16 => soft::BF16,
        }
    }
}

/// Replaces a subnormal half by zero of the same sign.
#[inline]
#[must_use]
pub(crate) const fn flush(kind: Half, x: u16) -> u16 {
    if x & kind.infinity() == 0 { x & 0x8000 } else { x }
}

/// The binary32 with the value of a half.
#[inline]
#[must_use]
pub(crate) const fn widen(kind: Half, x: u16) -> u32 {
    match kind {
        Half::F16 => f16_to_f32(x),
        Half::Bf16 => bf16_to_f32(x),
    }
}

/// The half of a register that each lane of an operand reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Swizzle {
    /// Each lane reads its own half.
    H1H0,
    /// Both lanes read the register as one binary32.
    F32,
    /// Both lanes read the low half.
    H0H0,
    /// Both lanes read the high half.
    H1H1,
}

impl Swizzle {
    /// Decodes a two-bit instruction field.
    ///
    /// # Panics
    ///
    /// If `field` is above 3.
    #[must_use]
    pub(crate) const fn from_field(field: u32) -> Self {
        [Self::H1H0, Self::F32, Self::H0H0, Self::H1H1][field as usize]
    }
}

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// Format of the halves.
    pub(crate) kind: Half,
    /// Half that each lane reads.
    pub(crate) swizzle: Swizzle,
    /// Take the absolute value.
    pub(crate) absolute: bool,
    /// Negate, after the absolute value.
    pub(crate) negate: bool,
    /// Read subnormal halves as zero.
    pub(crate) ftz: bool,
}

/// Reads the operand of a two-lane instruction: the binary32 values of lane 0 (low) and lane 1.
#[inline]
#[must_use]
pub(crate) const fn operand(register: u32, how: Operand) -> [u32; 2] {
    let [low, high] = unpack(register);
    let lanes = match how.swizzle {
        Swizzle::F32 => {
            let x = if how.ftz { f32::flush(register) } else { register };
            [x, x]
        }
        Swizzle::H1H0 => [read_half(low, how), read_half(high, how)],
        Swizzle::H0H0 => [read_half(low, how); 2],
        Swizzle::H1H1 => [read_half(high, how); 2],
    };
    [f32::modify(lanes[0], how.absolute, how.negate), f32::modify(lanes[1], how.absolute, how.negate)]
}

const fn read_half(x: u16, how: Operand) -> u32 {
    widen(how.kind, if how.ftz { flush(how.kind, x) } else { x })
}

/// The low and the high half of a register.
#[inline]
#[must_use]
pub(crate) const fn unpack(register: u32) -> [u16; 2] {
    [register as u16, (register >> 16) as u16]
}

/// The register with the given low and high half.
#[inline]
#[must_use]
pub(crate) const fn pack(lanes: [u16; 2]) -> u32 {
    (lanes[1] as u32) << 16 | lanes[0] as u32
}

#[inline]
fn value(x: u32) -> f64 {
    f64::from(core::primitive::f32::from_bits(x))
}

/// Rounds a binary64 that is exact, or rounded to odd, to nearest even; with `ftz` a result that is
/// below the normal range when rounded to an unbounded exponent becomes zero.
#[inline]
fn finish(kind: Half, x: f64, ftz: bool) -> u16 {
    let result = soft::narrow(x, kind.format(), Rounding::Nearest) as u16;
    if !ftz || result & 0x7fff > kind.min_normal() {
        return result;
    }
    // As in binary32: scaled up by 2^8, rounding has full precision.
    let lifted = soft::narrow(x * 256.0, kind.format(), Rounding::Nearest) as u16 & 0x7fff;
    if lifted < 9 * kind.min_normal() { result & 0x8000 } else { result }
}

/// Rounds a binary64 to a half, to nearest even.
#[inline]
pub(super) fn narrow_wide(kind: Half, x: f64) -> u16 {
    finish(kind, x, false)
}

/// Rounds a binary32 to a half, to nearest even.
#[inline]
#[must_use]
pub(crate) fn narrow(kind: Half, x: u32) -> u16 {
    finish(kind, value(x), false)
}

/// `a + b` of one lane, operands as binary32 (HADD2).
#[inline]
#[must_use]
pub(crate) fn add(kind: Half, a: u32, b: u32, ftz: bool) -> u16 {
    finish(kind, add_to_odd(value(a), value(b)), ftz)
}

/// `a * b` of one lane, operands as binary32 (HMUL2).
#[inline]
#[must_use]
pub(crate) fn mul(kind: Half, a: u32, b: u32, ftz: bool) -> u16 {
    finish(kind, value(a) * value(b), ftz)
}

/// `a * b + c` of one lane in one rounding, operands as binary32 (HFMA2).
#[inline]
#[must_use]
pub(crate) fn fma(kind: Half, a: u32, b: u32, c: u32, ftz: bool) -> u16 {
    finish(kind, add_to_odd(value(a) * value(b), value(c)), ftz)
}

/// `a * b` with `.FMZ`: flushing, and zero times anything, infinity and NaN included, is `+0`.
/// Operands are binary32, already read with FTZ.
#[inline]
#[must_use]
pub(crate) fn mul_fmz(kind: Half, a: u32, b: u32) -> u16 {
    if f32::fmz_product_is_zero(a, b) { 0 } else { mul(kind, a, b, true) }
}

/// `a * b + c` with `.FMZ`, see [`mul_fmz`].
#[inline]
#[must_use]
pub(crate) fn fma_fmz(kind: Half, a: u32, b: u32, c: u32) -> u16 {
    if f32::fmz_product_is_zero(a, b) { add(kind, 0, c, true) } else { fma(kind, a, b, c, true) }
}

/// `a + b` of one lane as a binary32 (HADD2.F32), operands as binary32.
///
/// `HADD2.F32 d, -RZ, x.H0_H0` is how a half is converted to binary32.
#[inline]
#[must_use]
pub(crate) fn add_f32(a: u32, b: u32, ftz: bool) -> u32 {
    f32::add(a, b, Rounding::Nearest, ftz)
}

/// The lesser or the greater of two lanes, operands as binary32 (HMNMX2); NaN as in [`f32::min`].
#[inline]
#[must_use]
pub(crate) fn min_max(kind: Half, a: u32, b: u32, minimum: bool, nan: bool) -> u16 {
    narrow(kind, if minimum { f32::min(a, b, nan, false) } else { f32::max(a, b, nan, false) })
}

/// Clamps to `[+0, 1]`; NaN gives `+0` (`.SAT`).
#[inline]
#[must_use]
pub(crate) const fn saturate(kind: Half, x: u16) -> u16 {
    if x & 0x8000 != 0 || x > kind.infinity() {
        0
    } else if x > kind.one() {
        kind.one()
    } else {
        x
    }
}

/// Clamps negative results to `+0` (`.RELU`); a NaN becomes the canonical one.
#[inline]
#[must_use]
pub(crate) const fn relu(kind: Half, x: u16) -> u16 {
    if x & 0x7fff > kind.infinity() {
        NAN
    } else if x & 0x8000 != 0 {
        0
    } else {
        x
    }
}

/// Returns the half that HSET2 writes for a predicate: all ones or zeros, or one and zero with `.BF`.
#[inline]
#[must_use]
pub(crate) const fn set(kind: Half, predicate: bool, as_float: bool) -> u16 {
    match (predicate, as_float) {
        (false, _) => 0,
        (true, false) => 0xffff,
        (true, true) => kind.one(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::FloatCompare;
    use super::super::reference::{Dyadic, Shape, edge_bf16, edge_f16};
    use super::*;

    type Single = core::primitive::f32;

    const KINDS: [Half; 2] = [Half::F16, Half::Bf16];

    fn shape(kind: Half) -> Shape {
        match kind {
            Half::F16 => Shape::F16,
            Half::Bf16 => Shape::BF16,
        }
    }

    fn read(kind: Half, x: u16, ftz: bool) -> u32 {
        operand(x.into(), Operand { kind, swizzle: Swizzle::H0H0, absolute: false, negate: false, ftz })[0]
    }

    fn check(kind: Half, a: u16, b: u16, c: u16) -> Result<(), TestCaseError> {
        for ftz in [false, true] {
            let decode = |x: u16| {
                let x = if ftz { flush(kind, x) } else { x };
                Dyadic::decode(shape(kind), x.into())
            };
            let (Some(x), Some(y), Some(z)) = (decode(a), decode(b), decode(c)) else { return Ok(()) };
            let round = |value: Dyadic| {
                if ftz {
                    value.round_flushing(shape(kind), Rounding::Nearest) as u16
                } else {
                    value.round(shape(kind), Rounding::Nearest) as u16
                }
            };
            let (p, q, r) = (read(kind, a, ftz), read(kind, b, ftz), read(kind, c, ftz));
            prop_assert_eq!(add(kind, p, q, ftz), round(x.plus(&y, Rounding::Nearest)));
            prop_assert_eq!(mul(kind, p, q, ftz), round(x.times(&y)));
            prop_assert_eq!(fma(kind, p, q, r, ftz), round(x.times(&y).plus(&z, Rounding::Nearest)));
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn binary16_results_are_rounded_once(a in edge_f16(), b in edge_f16(), c in edge_f16()) {
            check(Half::F16, a, b, c)?;
        }

        #[test]
        fn bfloat16_results_are_rounded_once(a in edge_bf16(), b in edge_bf16(), c in edge_bf16()) {
            check(Half::Bf16, a, b, c)?;
        }
    }

    #[test]
    fn a_small_addend_next_to_a_bfloat16_tie_counts() {
        // (1 + 2^-7) * (1 + 2^-7) = 1 + 2^-6 + 2^-14; 1.5 * (1 + 2^-7) = 1.5 + 1.5 * 2^-7 is a tie.
        let product = [1.5, 1.0 + Single::powi(2.0, -7)].map(Single::to_bits);
        let tiny = Single::powi(2.0, -100).to_bits();
        let fused = |c| fma(Half::Bf16, product[0], product[1], c, false);
        assert_eq!(fused(tiny), 0x3fc2);
        assert_eq!(fused(tiny | 0x8000_0000), 0x3fc1);
        assert_eq!(fused(0), 0x3fc2);
    }

    #[test]
    fn widening_and_narrowing_are_inverse() {
        for kind in KINDS {
            for x in 0..=u16::MAX {
                let nan = x & 0x7fff > kind.infinity();
                assert_eq!(narrow(kind, widen(kind, x)), if nan { NAN } else { x }, "{kind:?} {x:#x}");
            }
        }
    }

    #[test]
    fn widening_is_that_of_the_format() {
        for x in 0..=u16::MAX {
            let (half, bfloat) = (half::f16::from_bits(x), half::bf16::from_bits(x));
            if !half.is_nan() {
                assert_eq!(widen(Half::F16, x), half.to_f32().to_bits());
            }
            if !bfloat.is_nan() {
                assert_eq!(widen(Half::Bf16, x), bfloat.to_f32().to_bits());
            }
        }
    }

    #[test]
    fn every_half_saturates_clamps_and_compares() {
        for kind in KINDS {
            for x in 0..=u16::MAX {
                let value = Single::from_bits(widen(kind, x));
                let saturated = Single::from_bits(widen(kind, saturate(kind, x)));
                assert_eq!(saturated, if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) });
                assert_eq!(saturate(kind, x) & 0x8000, 0);
                let clamped = Single::from_bits(widen(kind, relu(kind, x)));
                assert!(if value.is_nan() { clamped.is_nan() } else { clamped == value.max(0.0) });
                let zero = read(kind, 0, false);
                assert_eq!(f32::compare(FloatCompare::Gt, widen(kind, x), zero, false), value > 0.0);
                assert_eq!(min_max(kind, widen(kind, x), zero, false, true) == NAN, value.is_nan());
            }
        }
    }

    #[test]
    fn a_constant_load_by_fused_multiply_keeps_every_half() {
        // Compilers load constants with HFMA2 d, -RZ, RZ, constant: subnormals must survive.
        let minus_zero = 0x8000_0000;
        for x in 0..0x7c00 {
            assert_eq!(fma(Half::F16, minus_zero, 0, widen(Half::F16, x), false), x);
        }
    }

    #[test]
    fn operands_select_and_modify_halves() {
        let read = |swizzle, absolute, negate| {
            operand(0x3c00_c000, Operand { kind: Half::F16, swizzle, absolute, negate, ftz: false })
        };
        let bits = |lanes: [Single; 2]| lanes.map(Single::to_bits);
        assert_eq!(read(Swizzle::H1H0, false, false), bits([-2.0, 1.0]));
        assert_eq!(read(Swizzle::H0H0, true, true), bits([-2.0, -2.0]));
        assert_eq!(read(Swizzle::H1H1, false, true), bits([-1.0, -1.0]));
        assert_eq!(read(Swizzle::F32, false, false), [0x3c00_c000; 2]);
        assert_eq!(pack(unpack(0x1234_5678)), 0x1234_5678);
    }

    #[test]
    fn infinities_and_nans() {
        for kind in KINDS {
            let infinity = widen(kind, kind.infinity());
            let minus = infinity | 0x8000_0000;
            assert_eq!(add(kind, infinity, minus, false), NAN);
            assert_eq!(mul(kind, 0, minus, true), NAN);
            assert_eq!(mul_fmz(kind, 0, minus), 0);
            assert_eq!(fma(kind, infinity, minus, 0, false), kind.infinity() | 0x8000);
            assert_eq!(fma_fmz(kind, 0, minus, widen(kind, kind.one())), kind.one());
            assert_eq!(set(kind, true, true), kind.one());
            assert_eq!((set(kind, true, false), set(kind, false, true)), (0xffff, 0));
        }
        assert_eq!(add_f32(0x3f80_0000, 0x3f80_0000, false), 0x4000_0000);
    }
}
