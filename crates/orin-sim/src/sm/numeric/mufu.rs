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

/// The function that MUFU computes (bits 74 to 77).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
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
    /// The function that a four-bit instruction field names; `None` for 10 to 15, which are
    /// illegal.
    #[must_use]
    pub const fn from_field(field: u32) -> Option<Self> {
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
#[must_use]
pub fn mufu(function: Function, x: u32) -> u32 {
    match function {
        Function::Rcp64h => rcp64h(x),
        Function::Rsq64h => rsq64h(x),
        _ => {
            let x = f64::from(core::primitive::f32::from_bits(f32::flush(x)));
            f32::finish(evaluate(function, x), Rounding::Nearest, true)
        }
    }
}

/// Computes `function` of a binary16, with a binary16 result (`.F16`).
///
/// Subnormal halves are neither flushed on the way in nor out: they are normal numbers of the
/// binary32 datapath.
#[must_use]
pub fn mufu_f16(function: Function, x: u16) -> u16 {
    let x = f64::from(core::primitive::f32::from_bits(convert::f16_to_f32(x)));
    let result = evaluate(function, x).to_bits();
    convert::f2f(Float::F64, Float::F16, result, Rounding::Nearest, false) as u16
}

/// The function in binary64. The high-word functions are those of the whole number here.
fn evaluate(function: Function, x: f64) -> f64 {
    match function {
        Function::Cos => cos_turns(x),
        Function::Sin => sin_turns(x),
        Function::Ex2 => x.exp2(),
        Function::Lg2 => x.log2(),
        Function::Rcp | Function::Rcp64h => x.recip(),
        Function::Rsq | Function::Rsq64h => x.sqrt().recip(),
        Function::Sqrt => x.sqrt(),
        Function::Tanh => x.tanh(),
    }
}

/// Splits an angle in turns into a number of quarter turns and a rest of at most an eighth, in
/// radians. Infinity leaves NaN.
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
/// The low word of the operand is taken as 0 and that of the result dropped: about 20 significant
/// bits, which compiled division refines by Newton steps. A zero or subnormal operand gives
/// infinity.
#[must_use]
pub fn rcp64h(high: u32) -> u32 {
    to_high_word(from_high_word(high).recip())
}

/// High word of the reciprocal square root, see [`rcp64h`] (MUFU.RSQ64H).
#[must_use]
pub fn rsq64h(high: u32) -> u32 {
    let x = from_high_word(high);
    // The square root of -0 is -0, its reciprocal minus infinity.
    to_high_word(x.sqrt().recip())
}
