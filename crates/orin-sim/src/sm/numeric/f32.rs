//! binary32: FADD, FMUL, FFMA, FMNMX, FSETP, FSET, FSEL, FCHK, FSWZADD.
//!
//! Rounding to nearest without flushing uses the host's arithmetic. Everything else is computed in binary64, where a
//! product of two binary32 is exact and a sum is rounded to odd, and then rounded once. The result is exact for all
//! four modes, including subnormal results.
//!
//! Operand modifiers apply first: [`modify`] applies `|x|` and then `-x` to the sign bit, including that of a NaN.
//! FTZ then flushes the modified operand.

use super::soft::add_to_odd;
use super::{FloatCompare, Rounding};

/// The NaN that arithmetic returns.
pub(crate) const NAN: u32 = 0x7fff_ffff;
/// One.
pub(crate) const ONE: u32 = 0x3f80_0000;
/// 2^31, the least number above all signed words.
pub(crate) const TWO_TO_31: u32 = 0x4f00_0000;
/// Added to the pattern of a normal number, doubles it.
pub(crate) const DOUBLE: u32 = 1 << 23;

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;
const MIN_NORMAL: u32 = 0x0080_0000;

/// Returns the scale of FMUL as the power of two that multiplies the product.
///
/// Field values 1 to 7 are `.D8 .D4 .D2`, none, `.M2 .M4 .M8`; `None` for 0, which is illegal, and for values above
/// 7.
#[must_use]
pub(crate) const fn multiply_scale(field: u32) -> Option<i32> {
    if field == 0 || field > 7 { None } else { Some(field as i32 - 4) }
}

/// Applies operand modifiers: absolute value, then negation, both on the sign bit alone.
#[inline]
#[must_use]
pub(crate) const fn modify(x: u32, absolute: bool, negate: bool) -> u32 {
    (if absolute { x & !SIGN } else { x }) ^ ((negate as u32) << 31)
}

/// Replaces a subnormal by zero of the same sign.
#[inline]
#[must_use]
pub(crate) const fn flush(x: u32) -> u32 {
    if x & INFINITY == 0 { x & SIGN } else { x }
}

/// Whether `x` is a NaN.
#[inline]
#[must_use]
pub(crate) const fn is_nan(x: u32) -> bool {
    x & !SIGN > INFINITY
}

/// Clamps to `[+0, 1]`; NaN gives `+0`.
#[inline]
#[must_use]
pub(crate) const fn saturate(x: u32) -> u32 {
    // Patterns of positive numbers are ordered like integers.
    if x & SIGN != 0 || is_nan(x) {
        0
    } else if x > ONE {
        ONE
    } else {
        x
    }
}

#[inline]
fn canonical(x: f32) -> u32 {
    if x.is_nan() { NAN } else { x.to_bits() }
}

/// Rounds a binary64 that is exact, or rounded to odd, to binary32.
#[inline]
pub(super) fn narrow(x: f64, rounding: Rounding) -> f32 {
    let nearest = x as f32;
    if rounding == Rounding::Nearest {
        return nearest;
    }
    let back = f64::from(nearest);
    let down = match rounding {
        Rounding::Down => true,
        Rounding::Zero => x > 0.0,
        Rounding::Up | Rounding::Nearest => false,
    };
    // The other neighbour if nearest rounded in the wrong direction; comparisons with NaN are false.
    if down && back > x {
        nearest.next_down()
    } else if !down && back < x {
        nearest.next_up()
    } else {
        nearest
    }
}

/// Rounds as [`narrow`]; with `ftz` a result that is below the normal range when rounded to an
/// unbounded exponent becomes zero.
#[inline]
pub(super) fn finish(x: f64, rounding: Rounding, ftz: bool) -> u32 {
    let result = canonical(narrow(x, rounding));
    if !ftz || result & !SIGN > MIN_NORMAL {
        return result;
    }
    // Rounding on the subnormal grid may have produced the smallest normal number. Scaled up, away from the lower
    // end of the exponent range, the same significand is rounded at full precision.
    let lifted = narrow(x * (1_u64 << 32) as f64, rounding);
    if lifted.abs() < f32::from_bits(MIN_NORMAL) * (1_u64 << 32) as f32 { result & SIGN } else { result }
}

#[inline]
fn widen(x: u32) -> f64 {
    f64::from(f32::from_bits(x))
}

/// The exact sum of two values rounded to odd, with the sign that a zero has under `rounding`.
#[inline]
fn sum(a: f64, b: f64, rounding: Rounding) -> f64 {
    let sum = add_to_odd(a, b);
    if sum == 0.0 && rounding == Rounding::Down && (a.is_sign_negative() || b.is_sign_negative()) {
        -0.0
    } else {
        sum
    }
}

/// `a + b` (FADD).
#[inline]
#[must_use]
pub(crate) fn add(a: u32, b: u32, rounding: Rounding, ftz: bool) -> u32 {
    let (a, b) = if ftz { (flush(a), flush(b)) } else { (a, b) };
    if rounding == Rounding::Nearest {
        // Sums are multiples of the smallest subnormal: a sum below the normal range is exact.
        let result = canonical(f32::from_bits(a) + f32::from_bits(b));
        return if ftz { flush(result) } else { result };
    }
    finish(sum(widen(a), widen(b), rounding), rounding, ftz)
}

/// `a * b * 2^scale` in one rounding (FMUL with a scale, see [`multiply_scale`]).
///
/// `scale` is in -3 to 3. That FTZ applies to the scaled product is an assumption.
#[inline]
#[must_use]
pub(crate) fn mul_scaled(a: u32, b: u32, scale: i32, rounding: Rounding, ftz: bool) -> u32 {
    let (a, b) = if ftz { (flush(a), flush(b)) } else { (a, b) };
    let power = f64::from_bits(((1023 + scale) as u64) << 52);
    finish(widen(a) * widen(b) * power, rounding, ftz)
}

/// `a * b + c` in one rounding (FFMA).
#[inline]
#[must_use]
pub(crate) fn fma(a: u32, b: u32, c: u32, rounding: Rounding, ftz: bool) -> u32 {
    let (a, b, c) = if ftz { (flush(a), flush(b), flush(c)) } else { (a, b, c) };
    finish(sum(widen(a) * widen(b), widen(c), rounding), rounding, ftz)
}

/// Returns whether a product is zero under FMZ: one factor is zero or subnormal, whatever the other is.
#[inline]
#[must_use]
pub(crate) const fn fmz_product_is_zero(a: u32, b: u32) -> bool {
    a & INFINITY == 0 || b & INFINITY == 0
}

/// `a * b * 2^scale` with `.FMZ`: FTZ, and zero times anything, infinity and NaN included, is `+0`.
#[inline]
#[must_use]
pub(crate) fn mul_fmz(a: u32, b: u32, scale: i32, rounding: Rounding) -> u32 {
    if fmz_product_is_zero(a, b) { 0 } else { mul_scaled(a, b, scale, rounding, true) }
}

/// `a * b + c` with `.FMZ`: FTZ, and zero times anything, infinity and NaN included, is `+0`.
#[inline]
#[must_use]
pub(crate) fn fma_fmz(a: u32, b: u32, c: u32, rounding: Rounding) -> u32 {
    if fmz_product_is_zero(a, b) { add(0, c, rounding, true) } else { fma(a, b, c, rounding, true) }
}

/// Compares for [`FloatCompare::holds`]; `None` if an operand is NaN.
#[inline]
#[must_use]
pub(crate) fn order(a: u32, b: u32, ftz: bool) -> Option<core::cmp::Ordering> {
    let (a, b) = if ftz { (flush(a), flush(b)) } else { (a, b) };
    f32::from_bits(a).partial_cmp(&f32::from_bits(b))
}

/// `a op b` (FSETP, FSET).
#[inline]
#[must_use]
pub(crate) fn compare(op: FloatCompare, a: u32, b: u32, ftz: bool) -> bool {
    op.holds(order(a, b, ftz))
}

/// Returns the binary32 that FSET writes for a predicate: one or zero.
#[inline]
#[must_use]
pub(crate) const fn set(predicate: bool) -> u32 {
    if predicate { ONE } else { 0 }
}

/// `if predicate { a } else { b }` (FSEL); a NaN keeps its payload.
#[inline]
#[must_use]
pub(crate) const fn select(predicate: bool, a: u32, b: u32, ftz: bool) -> u32 {
    let chosen = if predicate { a } else { b };
    if ftz { flush(chosen) } else { chosen }
}

/// The lesser of two values (FMNMX with a true predicate): `-0` is below `+0`.
///
/// Returns the number if one operand is NaN, and the canonical NaN if both are. With `nan` (`.NAN`) the
/// result is NaN if either operand is.
#[inline]
#[must_use]
pub(crate) const fn min(a: u32, b: u32, nan: bool, ftz: bool) -> u32 {
    let (a, b) = if ftz { (flush(a), flush(b)) } else { (a, b) };
    if is_nan(a) || is_nan(b) {
        one_of_two_is_nan(a, b, nan)
    } else if rank(a) < rank(b) {
        a
    } else {
        b
    }
}

/// The greater of two values (FMNMX with a false predicate); see [`min`].
#[inline]
#[must_use]
pub(crate) const fn max(a: u32, b: u32, nan: bool, ftz: bool) -> u32 {
    let (a, b) = if ftz { (flush(a), flush(b)) } else { (a, b) };
    if is_nan(a) || is_nan(b) {
        one_of_two_is_nan(a, b, nan)
    } else if rank(a) > rank(b) {
        a
    } else {
        b
    }
}

const fn one_of_two_is_nan(a: u32, b: u32, nan: bool) -> u32 {
    if nan || (is_nan(a) && is_nan(b)) {
        NAN
    } else if is_nan(a) {
        b
    } else {
        a
    }
}

/// Orders patterns like their values, `-0` below `+0`.
const fn rank(x: u32) -> i32 {
    let x = x as i32;
    x ^ ((x >> 31) & i32::MAX)
}

/// Sets the sign of `result` to the exclusive or of the signs of two registers (`.XORSIGN` of FMNMX).
///
/// PTX `min.xorsign.abs` compiles to `FMNMX.XORSIGN d, |a|, |b|`, so `a` and `b` are the operands
/// before their modifiers. A NaN stays canonical.
#[inline]
#[must_use]
pub(crate) const fn xor_sign(result: u32, a: u32, b: u32) -> u32 {
    if is_nan(result) { result } else { (result & !SIGN) | ((a ^ b) & SIGN) }
}

/// Returns whether `a / b` needs the slow division routine (FCHK).
///
/// True unless one Newton step from the reciprocal of `b` gives the correctly rounded quotient without leaving the
/// normal range. The hardware's rule is not published. Code is correct with any rule that is true at least where
/// necessary. This rule is conservative: it is true for an exponent of the divisor at the ends of the range, a small
/// dividend (whose remainder would be subnormal), or an extreme quotient.
#[inline]
#[must_use]
pub(crate) const fn division_check(a: u32, b: u32) -> bool {
    let (a, b) = (((a >> 23) & 0xff) as i32, ((b >> 23) & 0xff) as i32);
    let quotient = a - b;
    a < 24 || a == 0xff || b <= 1 || b >= 253 || quotient < -125 || quotient > 126
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::reference::{Dyadic, Shape, edge_f32};
    use super::*;

    const MAX: u32 = 0x7f7f_ffff;

    fn mul(a: u32, b: u32, rounding: Rounding, ftz: bool) -> u32 {
        mul_scaled(a, b, 0, rounding, ftz)
    }

    fn decode(x: u32, ftz: bool) -> Option<Dyadic> {
        Dyadic::decode(Shape::F32, u64::from(if ftz && x & INFINITY == 0 { x & SIGN } else { x }))
    }

    fn expected(value: &Dyadic, rounding: Rounding, ftz: bool) -> u32 {
        if ftz {
            value.round_flushing(Shape::F32, rounding) as u32
        } else {
            value.round(Shape::F32, rounding) as u32
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn finite_sums_products_and_fused_are_rounded_once(a in edge_f32(), b in edge_f32(), c in edge_f32()) {
            for ftz in [false, true] {
                let (Some(x), Some(y), Some(z)) = (decode(a, ftz), decode(b, ftz), decode(c, ftz)) else {
                    return Ok(());
                };
                let product = x.times(&y);
                for rounding in Rounding::ALL {
                    let sum = x.plus(&y, rounding);
                    let fused = product.plus(&z, rounding);
                    let expected = |value| expected(value, rounding, ftz);
                    prop_assert_eq!(add(a, b, rounding, ftz), expected(&sum), "add {:?}", rounding);
                    prop_assert_eq!(mul(a, b, rounding, ftz), expected(&product), "mul {:?}", rounding);
                    prop_assert_eq!(fma(a, b, c, rounding, ftz), expected(&fused), "fma {:?}", rounding);
                }
            }
        }

        #[test]
        fn tiny_fused_results_are_rounded_once(
            a in 0x1f00_0000_u32..0x2100_0000, b in 0x1f00_0000_u32..0x2100_0000, c in 0_u32..0x0100_0000,
            negative: bool,
        ) {
            // Products around the smallest subnormal, where binary64 sums would round twice.
            let c = c | u32::from(negative) << 31;
            let (x, y, z) = (decode(a, false).unwrap(), decode(b, false).unwrap(), decode(c, false).unwrap());
            for rounding in Rounding::ALL {
                let fused = x.times(&y).plus(&z, rounding);
                prop_assert_eq!(fma(a, b, c, rounding, false), expected(&fused, rounding, false));
                prop_assert_eq!(fma(a, b, c, rounding, true), {
                    let z = decode(c, true).unwrap();
                    expected(&x.times(&y).plus(&z, rounding), rounding, true)
                });
            }
        }

        #[test]
        fn nearest_agrees_with_the_host(a in edge_f32(), b in edge_f32(), c in edge_f32()) {
            let host = |x: f32| if x.is_nan() { NAN } else { x.to_bits() };
            let (x, y, z) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            prop_assert_eq!(add(a, b, Rounding::Nearest, false), host(x + y));
            prop_assert_eq!(mul(a, b, Rounding::Nearest, false), host(x * y));
            prop_assert_eq!(fma(a, b, c, Rounding::Nearest, false), host(x.mul_add(y, z)));
        }

        #[test]
        fn scaled_products_are_rounded_once(a in edge_f32(), b in edge_f32(), field in 1_u32..8) {
            let scale = multiply_scale(field).unwrap();
            if let (Some(x), Some(y)) = (decode(a, false), decode(b, false)) {
                let power = Dyadic::new(false, 1, scale);
                for rounding in Rounding::ALL {
                    let exact = x.times(&y).times(&power);
                    let result = mul_scaled(a, b, scale, rounding, false);
                    prop_assert_eq!(result, expected(&exact, rounding, false));
                }
            }
        }

        #[test]
        fn minimum_and_maximum_choose_an_operand(a in edge_f32(), b in edge_f32()) {
            let (x, y) = (f32::from_bits(a), f32::from_bits(b));
            let (low, high) = (min(a, b, false, false), max(a, b, false, false));
            if x.is_nan() || y.is_nan() {
                let number = if x.is_nan() { if y.is_nan() { NAN } else { b } } else { a };
                prop_assert_eq!((low, high), (number, number));
                prop_assert_eq!(min(a, b, true, false), NAN);
                prop_assert_eq!(max(a, b, true, false), NAN);
            } else {
                prop_assert!(f32::from_bits(low) <= f32::from_bits(high));
                prop_assert!((low, high) == (a, b) || (low, high) == (b, a));
                prop_assert_eq!((low, high), (min(b, a, true, false), max(b, a, true, false)));
            }
        }

        #[test]
        fn saturation_clamps(x in edge_f32()) {
            let value = f32::from_bits(x);
            let clamped = if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
            prop_assert_eq!(saturate(x) & !SIGN, clamped.to_bits() & !SIGN);
            prop_assert_eq!(saturate(x) & SIGN, 0);
        }

        #[test]
        fn comparisons_flush_when_asked(a in edge_f32(), b in edge_f32()) {
            let (x, y) = (f32::from_bits(a), f32::from_bits(b));
            prop_assert_eq!(compare(FloatCompare::Lt, a, b, false), x < y);
            prop_assert_eq!(compare(FloatCompare::Neu, a, b, false), x != y);
            let ordered_not_equal = x.partial_cmp(&y).is_some_and(core::cmp::Ordering::is_ne);
            prop_assert_eq!(compare(FloatCompare::Ne, a, b, false), ordered_not_equal);
            prop_assert_eq!(
                compare(FloatCompare::Gt, a, b, true), f32::from_bits(flush(a)) > f32::from_bits(flush(b))
            );
        }

        /// The division that compilers build: reciprocal, Newton steps, FCHK for the rest.
        #[test]
        fn a_checked_division_is_correctly_rounded(a in edge_f32(), b in edge_f32()) {
            if !division_check(a, b) {
                let nearest = |x, y, z| fma(x, y, z, Rounding::Nearest, false);
                let reciprocal = super::super::mufu::mufu(super::super::mufu::Function::Rcp, b);
                let minus_b = b ^ SIGN;
                let error = nearest(minus_b, reciprocal, ONE);
                let refined = nearest(reciprocal, error, reciprocal);
                let quotient = nearest(a, refined, 0);
                let rest = nearest(minus_b, quotient, a);
                let quotient = nearest(refined, rest, quotient);
                let rest = nearest(minus_b, quotient, a);
                let result = nearest(refined, rest, quotient);
                prop_assert_eq!(result, (f32::from_bits(a) / f32::from_bits(b)).to_bits());
            }
        }
    }

    #[test]
    fn infinities_and_nans_do_not_depend_on_the_rounding() {
        let minus_infinity = INFINITY | SIGN;
        for rounding in Rounding::ALL {
            for ftz in [false, true] {
                assert_eq!(add(INFINITY, minus_infinity, rounding, ftz), NAN);
                assert_eq!(add(INFINITY, MAX | SIGN, rounding, ftz), INFINITY);
                assert_eq!(mul(0, minus_infinity, rounding, ftz), NAN);
                assert_eq!(fma(minus_infinity, ONE, MAX, rounding, ftz), minus_infinity);
                assert_eq!(fma(ONE, ONE, 0xffc0_0001, rounding, ftz), NAN);
                assert_eq!(fma(INFINITY, ONE, minus_infinity, rounding, ftz), NAN);
            }
        }
    }

    #[test]
    fn exact_zero_sums_are_negative_only_when_rounding_down() {
        for rounding in Rounding::ALL {
            let zero = if rounding == Rounding::Down { SIGN } else { 0 };
            assert_eq!(add(ONE, ONE | SIGN, rounding, false), zero);
            assert_eq!(add(0, SIGN, rounding, true), zero);
            assert_eq!(add(SIGN, SIGN, rounding, false), SIGN);
            assert_eq!(add(0, 0, rounding, false), 0);
            assert_eq!(fma(SIGN, 0, 0, rounding, false), zero);
            assert_eq!(fma(SIGN, 0, SIGN, rounding, false), SIGN);
        }
    }

    #[test]
    fn fmz_makes_zero_of_zero_times_infinity() {
        assert_eq!(mul_fmz(0, INFINITY, 0, Rounding::Nearest), 0);
        assert_eq!(mul_fmz(SIGN, NAN, 0, Rounding::Nearest), 0);
        assert_eq!(fma_fmz(1, INFINITY, ONE, Rounding::Nearest), ONE);
        assert_eq!(mul_fmz(ONE, INFINITY, 0, Rounding::Nearest), INFINITY);
    }

    #[test]
    fn exclusive_or_of_signs() {
        assert_eq!(xor_sign(ONE, SIGN, 0), ONE | SIGN);
        assert_eq!(xor_sign(ONE, SIGN, SIGN), ONE);
        assert_eq!(xor_sign(NAN, SIGN, 0), NAN);
    }

    #[test]
    fn division_check_covers_what_the_fast_path_cannot() {
        for special in [0, SIGN, 1, INFINITY, NAN, 0x7f00_0000] {
            assert!(division_check(ONE, special), "{special:#x}");
        }
        for special in [0, SIGN, 1, INFINITY, NAN] {
            assert!(division_check(special, ONE), "{special:#x}");
        }
        assert!(!division_check(ONE, 3.0_f32.to_bits()));
    }
}
