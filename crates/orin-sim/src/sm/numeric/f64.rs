//! binary64: DADD, DMUL, DFMA, DSETP.
//!
//! Rounding to nearest uses the host's arithmetic. The directed modes are rare (division and conversion sequences)
//! and are computed in integers. There is no FTZ for binary64.

use super::soft::{Exact, F64};
use super::{FloatCompare, Rounding};

/// The NaN that arithmetic returns.
pub(crate) const NAN: u64 = 0x7ff8_0000_0000_0000;

const SIGN: u64 = 1 << 63;

/// Applies operand modifiers: absolute value, then negation, both on the sign bit alone.
#[inline]
#[must_use]
pub(crate) const fn modify(x: u64, absolute: bool, negate: bool) -> u64 {
    (if absolute { x & !SIGN } else { x }) ^ ((negate as u64) << 63)
}

/// Whether `x` is a NaN.
#[inline]
#[must_use]
pub(crate) const fn is_nan(x: u64) -> bool {
    F64.is_nan(x)
}

#[inline]
fn canonical(x: f64) -> u64 {
    if x.is_nan() { NAN } else { x.to_bits() }
}

/// `a + b` (DADD).
#[inline]
#[must_use]
pub(crate) fn add(a: u64, b: u64, rounding: Rounding) -> u64 {
    let nearest = f64::from_bits(a) + f64::from_bits(b);
    match (Exact::from_bits(F64, a), Exact::from_bits(F64, b)) {
        (Some(a), Some(b)) if rounding != Rounding::Nearest => a.plus(b, rounding).round(F64, rounding),
        // An infinity or a NaN needs no rounding.
        _ => canonical(nearest),
    }
}

/// `a * b` (DMUL).
#[inline]
#[must_use]
pub(crate) fn mul(a: u64, b: u64, rounding: Rounding) -> u64 {
    let nearest = f64::from_bits(a) * f64::from_bits(b);
    match (Exact::from_bits(F64, a), Exact::from_bits(F64, b)) {
        (Some(a), Some(b)) if rounding != Rounding::Nearest => a.times(b).round(F64, rounding),
        _ => canonical(nearest),
    }
}

/// `a * b + c` in one rounding (DFMA).
#[inline]
#[must_use]
pub(crate) fn fma(a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    if rounding != Rounding::Nearest
        && let (Some(a), Some(b), Some(c)) =
            (Exact::from_bits(F64, a), Exact::from_bits(F64, b), Exact::from_bits(F64, c))
    {
        return a.times(b).plus(c, rounding).round(F64, rounding);
    }
    let (a, b, c) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
    let product = a * b;
    // The sum of a zero and a product that underflows has the product's sign; musl's fma returns the zero.
    let underflow = c == 0.0 && product == 0.0 && a != 0.0 && b != 0.0;
    canonical(if underflow { product } else { a.mul_add(b, c) })
}

/// `a op b` (DSETP, all comparisons but `.MIN` and `.MAX`).
#[inline]
#[must_use]
pub(crate) fn compare(op: FloatCompare, a: u64, b: u64) -> bool {
    op.holds(f64::from_bits(a).partial_cmp(&f64::from_bits(b)))
}

/// Returns whether the lesser (`minimum`) or the greater of two values is the first one: the first predicate of
/// DSETP.MIN and DSETP.MAX.
///
/// `-0` is below `+0`, and a number is preferred to a NaN. Of two NaN the second is selected; the second predicate
/// ([`both_nan`]) lets the code convert it to a quiet NaN.
#[inline]
#[must_use]
pub(crate) const fn selects_first(a: u64, b: u64, minimum: bool) -> bool {
    if is_nan(a) {
        false
    } else if is_nan(b) {
        true
    } else if minimum {
        rank(a) < rank(b)
    } else {
        rank(a) > rank(b)
    }
}

/// Returns whether both values are NaN: the second predicate of DSETP.MIN and DSETP.MAX.
#[inline]
#[must_use]
pub(crate) const fn both_nan(a: u64, b: u64) -> bool {
    is_nan(a) && is_nan(b)
}

/// Orders patterns like their values, `-0` below `+0`.
const fn rank(x: u64) -> i64 {
    let x = x as i64;
    x ^ ((x >> 63) & i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::reference::{Dyadic, Shape, edge_f64};
    use super::*;

    const MIN_SUBNORMAL: u64 = 1;
    const MAX: u64 = 0x7fef_ffff_ffff_ffff;
    const INFINITY: u64 = 0x7ff0_0000_0000_0000;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn finite_sums_products_and_fused_are_rounded_once(a in edge_f64(), b in edge_f64(), c in edge_f64()) {
            let decode = |x| Dyadic::decode(Shape::F64, x);
            if let (Some(x), Some(y), Some(z)) = (decode(a), decode(b), decode(c)) {
                for rounding in Rounding::ALL {
                    let expected = |v: Dyadic| v.round(Shape::F64, rounding);
                    prop_assert_eq!(add(a, b, rounding), expected(x.plus(&y, rounding)), "{:?}", rounding);
                    prop_assert_eq!(mul(a, b, rounding), expected(x.times(&y)), "{:?}", rounding);
                    prop_assert_eq!(
                        fma(a, b, c, rounding), expected(x.times(&y).plus(&z, rounding)), "{:?}", rounding
                    );
                }
            }
        }

        #[test]
        fn comparisons_agree_with_the_host(a in edge_f64(), b in edge_f64()) {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            prop_assert_eq!(compare(FloatCompare::Lt, a, b), x < y);
            prop_assert_eq!(compare(FloatCompare::Geu, a, b), x >= y || x.is_nan() || y.is_nan());
            prop_assert_eq!(compare(FloatCompare::Nan, a, b), x.is_nan() || y.is_nan());
            if !x.is_nan() && !y.is_nan() && x != y {
                prop_assert_eq!(selects_first(a, b, true), x < y);
                prop_assert_eq!(selects_first(a, b, false), x > y);
            }
        }
    }

    #[test]
    fn infinities_and_nans_do_not_depend_on_the_rounding() {
        let minus_infinity = INFINITY | SIGN;
        for rounding in Rounding::ALL {
            assert_eq!(add(INFINITY, minus_infinity, rounding), NAN);
            assert_eq!(add(INFINITY, MAX | SIGN, rounding), INFINITY);
            assert_eq!(mul(0, minus_infinity, rounding), NAN);
            assert_eq!(fma(INFINITY, MIN_SUBNORMAL | SIGN, MAX, rounding), minus_infinity);
            assert_eq!(fma(1, 1, NAN | 5, rounding), NAN);
        }
        for (sign, zero) in [(SIGN, 0), (SIGN, SIGN), (0, 0), (0, SIGN)] {
            let sum = fma(MIN_SUBNORMAL, MIN_SUBNORMAL | sign, zero, Rounding::Nearest);
            assert_eq!(sum, sign, "{sign:#x} {zero:#x}");
        }
    }

    #[test]
    fn overflow_and_cancellation_follow_the_rounding() {
        assert_eq!(add(MAX, MAX, Rounding::Zero), MAX);
        assert_eq!(add(MAX | SIGN, MAX | SIGN, Rounding::Up), MAX | SIGN);
        assert_eq!(add(MAX, MAX, Rounding::Up), INFINITY);
        assert_eq!(add(MAX, MAX | SIGN, Rounding::Down), SIGN);
        assert_eq!(add(MAX, MAX | SIGN, Rounding::Zero), 0);
        assert_eq!(mul(MIN_SUBNORMAL, MIN_SUBNORMAL, Rounding::Up), MIN_SUBNORMAL);
        assert_eq!(mul(MIN_SUBNORMAL, MIN_SUBNORMAL | SIGN, Rounding::Up), SIGN);
    }

    #[test]
    fn the_selected_of_zeros_and_nans() {
        assert!(selects_first(SIGN, 0, true) && !selects_first(0, SIGN, true));
        assert!(selects_first(0, SIGN, false) && !selects_first(SIGN, 0, false));
        assert!(selects_first(0, NAN, true) && !selects_first(NAN, 0, true));
        assert!(!selects_first(NAN, NAN, false) && both_nan(NAN, NAN | SIGN) && !both_nan(NAN, 0));
    }
}
