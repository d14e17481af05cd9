//! MUFU: reciprocal, roots, exponential, logarithm, sine, cosine, hyperbolic tangent.
//!
//! The hardware interpolates in tables that are not published; its results are within one or two
//! units in the last place of the exact value (relative 2^-22.5 for the exponential, absolute
//! 2^-20.5 for sine and cosine, relative 2^-11 for the hyperbolic tangent). These functions compute
//! in binary64 and round to nearest, which lies inside all of those bounds. The division and square
//! root sequences that compilers build on MUFU give IEEE results with it.
//!
//! There is no FTZ modifier: subnormal operands always read as zero of the same sign and
//! subnormal results are flushed. Sine and cosine take the angle in turns: compiled code
//! multiplies radians by 1/(2 pi) first. NaN results are canonical.

use super::Rounding;
use super::convert::{self, Float};
use super::f32;

/// Function of MUFU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    /// Cosine of an angle in turns.
    Cos,
    /// Sine of an angle in turns.
    Sin,
    /// Two to the power of the operand.
    Ex2,
    /// Logarithm to base two.
    Lg2,
    /// Reciprocal.
    Rcp,
    /// Reciprocal of the square root.
    Rsq,
    /// High word of the reciprocal of the binary64 whose high word is the operand.
    Rcp64h,
    /// High word of the reciprocal square root of the binary64 whose high word is the operand.
    Rsq64h,
    /// Square root.
    Sqrt,
    /// Hyperbolic tangent.
    Tanh,
}

impl Function {
    /// Decodes a four-bit instruction field; `None` for 10 to 15, which are illegal.
    #[must_use]
    pub(crate) const fn from_field(field: u32) -> Option<Self> {
        Some(match field {
            0 => Self::Cos,
            1 => Self::Sin,
            2 => Self::Ex2,
            3 => Self::Lg2,
            4 => Self::Rcp,
            5 => Self::Rsq,
            6 => Self::Rcp64h,
            7 => Self::Rsq64h,
            8 => Self::Sqrt,
            9 => Self::Tanh,
            _ => return None,
        })
    }
}

/// Computes `function` of a register.
#[inline(always)]
#[must_use]
pub(crate) fn mufu(function: Function, x: u32) -> u32 {
    match function {
        Function::Rcp64h => rcp64h(x),
        Function::Rsq64h => rsq64h(x),
        _ => finish(evaluate(function, f64::from(core::primitive::f32::from_bits(f32::flush(x))))),
    }
}

/// Computes `function` of each word. The compiler makes vectors of the functions that have no branches.
#[inline(always)]
pub(crate) fn mufu_each(function: Function, words: &mut [u32; 8]) {
    macro_rules! each {
        ($($name:ident),+) => {
            match function {
                $(Function::$name => words.iter_mut().for_each(|x| *x = mufu(Function::$name, *x)),)+
                _ => words.iter_mut().for_each(|x| *x = mufu(function, *x)),
            }
        };
    }
    each!(Ex2, Rcp, Rsq, Sqrt);
}

/// Rounds to binary32. A result that is below the normal range when rounded to an unbounded exponent becomes zero.
#[inline(always)]
fn finish(x: f64) -> u32 {
    /// Half way between the smallest normal number and what would precede it.
    const LIMIT: f64 = core::primitive::f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / (1 << 25) as f64);
    let bits = (x as core::primitive::f32).to_bits();
    let bits = if x.abs() < LIMIT { bits & 1 << 31 } else { bits };
    if x.is_nan() { f32::NAN } else { bits }
}

/// Computes `function` of a binary16, with a binary16 result (`.F16`).
///
/// Subnormal halves are not flushed, neither as operands nor as results: they are normal numbers of the binary32
/// datapath.
#[must_use]
pub(crate) fn mufu_f16(function: Function, x: u16) -> u16 {
    let x = f64::from(core::primitive::f32::from_bits(convert::f16_to_f32(x)));
    let result = evaluate(function, x).to_bits();
    convert::f2f(Float::F64, Float::F16, result, Rounding::Nearest, false) as u16
}

/// Computes the function in binary64. The high-word functions compute on the whole number here.
#[inline(always)]
fn evaluate(function: Function, x: f64) -> f64 {
    match function {
        Function::Cos => cos_turns(x),
        Function::Sin => sin_turns(x),
        Function::Ex2 => exp2(x),
        Function::Lg2 => x.log2(),
        Function::Rcp | Function::Rcp64h => x.recip(),
        Function::Rsq | Function::Rsq64h => x.sqrt().recip(),
        Function::Sqrt => x.sqrt(),
        Function::Tanh => x.tanh(),
    }
}

/// Two to the power of a number whose result as binary32 or binary16 matters: beyond 200 it stays the same.
#[inline(always)]
fn exp2(x: f64) -> f64 {
    /// The powers of the logarithm of 2, divided by the factorials of 1 to 13.
    const SERIES: [f64; 13] = [
        core::f64::consts::LN_2,
        0.24022650695910072,
        0.05550410866482158,
        0.009618129107628477,
        0.0013333558146428443,
        0.0001540353039338161,
        1.5252733804059841e-05,
        1.321548679014431e-06,
        1.01780860092397e-07,
        7.054911620801123e-09,
        4.4455382718708116e-10,
        2.5678435993488206e-11,
        1.3691488853904128e-12,
    ];
    /// A number whose last place is 1, so that adding it rounds to an integer.
    const UNITS: f64 = 1.5 * (1_u64 << 52) as f64;
    let x = x.clamp(-200.0, 200.0);
    let shifted = x + UNITS;
    let rest = x - (shifted - UNITS);
    let mut sum = 0.0;
    for factor in SERIES.iter().rev() {
        sum = sum * rest + factor;
    }
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0_f64.to_bits()));
    (sum * rest + 1.0) * power
}

/// Splits an angle in turns into a number of quarter turns and a remainder of at most an eighth, in radians. Returns
/// NaN for infinity.
fn quarter_turns(x: f64) -> (u32, f64) {
    // Both steps are exact: the operand has 24 significant bits.
    let turn = x - x.round_ties_even();
    let quarters = (4.0 * turn).round_ties_even();
    let rest = turn - quarters / 4.0;
    (quarters as i32 as u32 & 3, rest * core::f64::consts::TAU)
}

fn sin_turns(x: f64) -> f64 {
    if x == 0.0 {
        return x;
    }
    match quarter_turns(x) {
        (0, rest) => rest.sin(),
        (1, rest) => rest.cos(),
        (2, rest) => -rest.sin(),
        (_, rest) => -rest.cos(),
    }
}

fn cos_turns(x: f64) -> f64 {
    match quarter_turns(x) {
        (0, rest) => rest.cos(),
        (1, rest) => -rest.sin(),
        (2, rest) => -rest.cos(),
        (_, rest) => rest.sin(),
    }
}

/// The binary64 with the high word `high`; subnormals read as zero of the same sign.
fn from_high_word(high: u32) -> f64 {
    let high = if high & 0x7ff0_0000 == 0 { high & 0x8000_0000 } else { high };
    f64::from_bits(u64::from(high) << 32)
}

fn to_high_word(x: f64) -> u32 {
    if x.is_nan() { 0x7ff8_0000 } else { (x.to_bits() >> 32) as u32 }
}

/// High word of the reciprocal of the binary64 with the high word `high` (MUFU.RCP64H).
///
/// The low word of the operand is taken as 0 and that of the result is dropped. This gives about 20 significant bits,
/// which compiled division refines by Newton steps. A zero or subnormal operand gives infinity.
fn rcp64h(high: u32) -> u32 {
    to_high_word(from_high_word(high).recip())
}

/// High word of the reciprocal square root, see [`rcp64h`] (MUFU.RSQ64H).
fn rsq64h(high: u32) -> u32 {
    let x = from_high_word(high);
    // The square root of -0 is -0, its reciprocal minus infinity.
    to_high_word(x.sqrt().recip())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::reference::{edge_f16, edge_f32};
    use super::*;

    type Single = core::primitive::f32;

    const INFINITY: u32 = 0x7f80_0000;
    const MINUS: u32 = 0x8000_0000;
    const TINY: u32 = 0x0000_0001;

    fn single(function: Function, x: Single) -> Single {
        Single::from_bits(mufu(function, x.to_bits()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn algebraic_functions_are_correctly_rounded(x in edge_f32()) {
            // The host's division and square root are correctly rounded.
            let host = |y: Single| if y.is_nan() { f32::NAN } else { f32::flush(y.to_bits()) };
            let value = Single::from_bits(f32::flush(x));
            prop_assert_eq!(mufu(Function::Sqrt, x), host(value.sqrt()));
            let reciprocal = mufu(Function::Rcp, x);
            // One value differs: it is tiny before but not after rounding.
            prop_assert_eq!(reciprocal, host(1.0 / value));
            if value > 0.0 && value.is_finite() {
                let root = f64::from(single(Function::Rsq, value));
                let exact = f64::from(value).sqrt().recip();
                prop_assert!((root - exact).abs() <= exact * 2.0_f64.powi(-24));
            }
        }

        #[test]
        fn transcendental_functions_stay_in_the_published_bounds(x in -120.0_f32..120.0, y in 1e-30_f32..1e30) {
            let wide = f64::from(x);
            let relative = |result: Single, exact: f64| (f64::from(result) - exact).abs() / exact.abs();
            prop_assert!(relative(single(Function::Ex2, x), wide.exp2()) < 2.0_f64.powi(-23));
            prop_assert!(relative(single(Function::Tanh, x), wide.tanh()) < 2.0_f64.powi(-11) || x == 0.0);
            let logarithm = f64::from(y).log2();
            let error = (f64::from(single(Function::Lg2, y)) - logarithm).abs();
            prop_assert!(error <= logarithm.abs() * 2.0_f64.powi(-23));
            // Radians as compiled code passes them: turns rounded to binary32.
            let turns = Single::from_bits(f32::mul_scaled(
                x.to_bits(), core::f32::consts::FRAC_1_PI.to_bits() - (1 << 23), 0, Rounding::Zero, false));
            let angle = f64::from(turns) * core::f64::consts::TAU;
            prop_assert!((f64::from(single(Function::Sin, turns)) - angle.sin()).abs() < 2.0_f64.powi(-23));
            prop_assert!((f64::from(single(Function::Cos, turns)) - angle.cos()).abs() < 2.0_f64.powi(-23));
        }

        #[test]
        fn subnormals_are_flushed(x in 1_u32..0x0080_0000, function in 0_u32..10) {
            let function = Function::from_field(function).unwrap();
            if !matches!(function, Function::Rcp64h | Function::Rsq64h) {
                prop_assert_eq!(mufu(function, x), mufu(function, 0));
                prop_assert_eq!(mufu(function, x | MINUS), mufu(function, MINUS));
            }
        }

        #[test]
        fn results_are_never_subnormal(x in edge_f32(), function in 0_u32..10) {
            let function = Function::from_field(function).unwrap();
            if !matches!(function, Function::Rcp64h | Function::Rsq64h) {
                let result = mufu(function, x);
                prop_assert_eq!(result, f32::flush(result));
                prop_assert!(!f32::is_nan(result) || result == f32::NAN);
            }
        }

        /// The binary64 division that compilers build on RCP64H.
        #[test]
        fn newton_steps_on_the_high_word_divide(a in 1.0_f64..2.0, b in 1.0_f64..2.0, scale in -200_i32..200) {
            let b = b * 2.0_f64.powi(scale);
            let start = f64::from_bits(u64::from(rcp64h((b.to_bits() >> 32) as u32)) << 32 | 1);
            let error = (-b).mul_add(start, 1.0);
            let error = error.mul_add(error, error);
            let refined = start.mul_add(error, start);
            let refined = refined.mul_add((-b).mul_add(refined, 1.0), refined);
            let quotient = a * refined;
            let result = refined.mul_add((-b).mul_add(quotient, a), quotient);
            prop_assert_eq!(result, a / b);
        }

        #[test]
        fn half_results_are_close(x in edge_f16()) {
            let wide = f64::from(Single::from_bits(convert::f16_to_f32(x)));
            let result = f64::from(Single::from_bits(convert::f16_to_f32(mufu_f16(Function::Tanh, x))));
            let close = (result - wide.tanh()).abs() < 2.0_f64.powi(-11);
            prop_assert!(close || (wide.is_nan() && result.is_nan()));
        }
    }

    /// Compares with the library's functions, for one in `step` of all words.
    fn compare_with_library(step: usize) {
        for x in (0..=u32::MAX).step_by(step) {
            let value = f64::from(Single::from_bits(f32::flush(x)));
            for (function, exact) in [
                (Function::Ex2, value.exp2()),
                (Function::Rcp, value.recip()),
                (Function::Rsq, value.sqrt().recip()),
                (Function::Sqrt, value.sqrt()),
            ] {
                assert_eq!(
                    mufu(function, x),
                    f32::finish(exact, Rounding::Nearest, true),
                    "{function:?} {x:#x}"
                );
            }
        }
    }

    #[test]
    fn functions_are_those_of_the_library_rounded_once() {
        // A step of 1, all words, takes three minutes.
        compare_with_library(4001);
    }

    #[test]
    fn eight_words_are_computed_like_one() {
        for number in 0..10 {
            let function = Function::from_field(number).unwrap();
            for x in (0..=u32::MAX - 8).step_by(1_000_003) {
                let mut words = core::array::from_fn(|lane| x + lane as u32);
                let single = words.map(|x| mufu(function, x));
                mufu_each(function, &mut words);
                assert_eq!(words, single, "{function:?} {x:#x}");
            }
        }
    }

    #[test]
    fn special_values() {
        use Function::{Cos, Ex2, Lg2, Rcp, Rsq, Sin, Sqrt, Tanh};
        let one = 1.0_f32.to_bits();
        for (function, x, expected) in [
            (Rcp, 0, INFINITY),
            (Rcp, MINUS, INFINITY | MINUS),
            (Rcp, INFINITY | MINUS, MINUS),
            (Rcp, TINY, INFINITY),
            (Rcp, 0x7f00_0000, 0),
            (Rsq, 0, INFINITY),
            (Rsq, MINUS, INFINITY | MINUS),
            (Rsq, INFINITY, 0),
            (Rsq, one | MINUS, f32::NAN),
            (Sqrt, MINUS, MINUS),
            (Sqrt, one | MINUS, f32::NAN),
            (Sqrt, INFINITY, INFINITY),
            (Lg2, 0, INFINITY | MINUS),
            (Lg2, MINUS | TINY, INFINITY | MINUS),
            (Lg2, one | MINUS, f32::NAN),
            (Lg2, one, 0),
            (Ex2, INFINITY | MINUS, 0),
            (Ex2, INFINITY, INFINITY),
            (Ex2, (-126.5_f32).to_bits(), 0),
            (Ex2, 128.0_f32.to_bits(), INFINITY),
            (Ex2, TINY, one),
            (Sin, INFINITY, f32::NAN),
            (Cos, INFINITY | MINUS, f32::NAN),
            (Sin, MINUS, MINUS),
            (Cos, 0, one),
            (Sin, 0.25_f32.to_bits(), one),
            (Sin, 0.75_f32.to_bits(), one | MINUS),
            (Cos, 0.5_f32.to_bits(), one | MINUS),
            (Cos, 1e30_f32.to_bits(), one),
            (Tanh, INFINITY | MINUS, one | MINUS),
            (Sin, 0xffff_0000, f32::NAN),
        ] {
            assert_eq!(mufu(function, x), expected, "{function:?} {x:#x}");
        }
        for function in [Cos, Ex2, Lg2, Rcp, Rsq, Sin, Sqrt, Tanh] {
            assert_eq!(mufu(function, f32::NAN), f32::NAN, "{function:?}");
        }
    }

    #[test]
    fn high_word_special_values() {
        let infinity = 0x7ff0_0000;
        for (x, expected) in [(0, infinity), (MINUS, infinity | MINUS), (infinity, 0), (1, infinity)] {
            assert_eq!(rcp64h(x), expected, "{x:#x}");
        }
        assert_eq!(rcp64h(0x7ff8_0000), 0x7ff8_0000);
        assert_eq!(rcp64h(0x4000_0000), 0x3fe0_0000);
        assert_eq!(rsq64h(0x4010_0000), 0x3fe0_0000);
        assert_eq!(rsq64h(0xc010_0000), 0x7ff8_0000);
        assert_eq!(rsq64h(0), infinity);
    }

    #[test]
    fn fields() {
        assert_eq!(Function::from_field(4), Some(Function::Rcp));
        assert_eq!(Function::from_field(9), Some(Function::Tanh));
        assert_eq!(Function::from_field(10), None);
    }
}
