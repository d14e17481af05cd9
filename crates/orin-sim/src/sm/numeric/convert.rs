//! Conversions: F2F, F2FP, F2I, F2IP, I2F, I2FP, FRND, I2I, I2IP.
//!
//! Every conversion is exact up to one final rounding. Floating-point sources and results are
//! patterns in the low bits of a `u64`, as wide as [`Float`] says; integers likewise.

use super::Rounding;
use super::soft::{self, Exact, Format};

/// A floating-point format of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// IEEE 754 binary16.
    F16,
    /// bfloat16, the upper half of a binary32.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl Float {
    /// The format that a size field (bits 75 and 76, or 84 and 85) names: 1 is binary16, 2
    /// binary32, 3 binary64; `None` for other values. bfloat16 is not reached by these fields.
    #[must_use]
    pub const fn from_field(field: u32) -> Option<Self> {
        match field {
            1 => Some(Self::F16),
            2 => Some(Self::F32),
            3 => Some(Self::F64),
            _ => None,
        }
    }

    /// The canonical NaN.
    #[must_use]
    pub const fn nan(self) -> u64 {
        match self {
            Self::F16 | Self::Bf16 => 0x7fff,
            Self::F32 => super::f32::NAN as u64,
            Self::F64 => 0x7ff8_0000_0000_0000,
        }
    }

    const fn format(self) -> Format {
        match self {
            Self::F16 => soft::F16,
            Self::Bf16 => soft::BF16,
            Self::F32 => soft::F32,
            Self::F64 => soft::F64,
        }
    }
}

/// Applies operand modifiers to a pattern: absolute value, then negation.
#[inline]
#[must_use]
pub const fn modify(format: Float, bits: u64, absolute: bool, negate: bool) -> u64 {
    let sign = format.format().sign();
    (if absolute { bits & !sign } else { bits }) ^ if negate { sign } else { 0 }
}

/// What a pattern stands for.
enum Value {
    Nan,
    Infinite { negative: bool },
    Finite(Exact),
}

fn decode(format: Float, bits: u64) -> Value {
    let shape = format.format();
    match Exact::from_bits(shape, bits) {
        Some(value) => Value::Finite(value),
        None if shape.is_nan(bits) => Value::Nan,
        None => Value::Infinite { negative: bits & shape.sign() != 0 },
    }
}

/// Flushes binary32, the only format that FTZ applies to in conversions.
const fn flush_if(format: Float, bits: u64, ftz: bool) -> u64 {
    if ftz && matches!(format, Float::F32) { super::f32::flush(bits as u32) as u64 } else { bits }
}

/// Converts between formats (F2F, HADD2.F32 as a widening, F2F.BF16.F32).
///
/// Overflow gives infinity or the largest number as the rounding wants. `ftz` flushes binary32
/// sources and results.
#[must_use]
pub fn f2f(from: Float, to: Float, bits: u64, rounding: Rounding, ftz: bool) -> u64 {
    let x = widen(from, flush_if(from, bits, ftz));
    match to {
        _ if x.is_nan() => to.nan(),
        Float::F64 => x.to_bits(),
        Float::F32 => u64::from(super::f32::finish(x, rounding, ftz)),
        Float::F16 | Float::Bf16 => soft::narrow(x, to.format(), rounding),
    }
}

/// The value of a pattern: every format fits binary64.
#[inline]
fn widen(from: Float, bits: u64) -> f64 {
    match from {
        Float::F16 => f64::from(f32::from_bits(f16_to_f32(bits as u16))),
        Float::Bf16 => f64::from(f32::from_bits(bf16_to_f32(bits as u16))),
        Float::F32 => f64::from(f32::from_bits(bits as u32)),
        Float::F64 => f64::from_bits(bits),
    }
}

/// binary16 to binary32, exactly.
#[inline]
#[must_use]
pub const fn f16_to_f32(x: u16) -> u32 {
    let sign = ((x & 0x8000) as u32) << 16;
    let magnitude = (x & 0x7fff) as u32;
    if magnitude > 0x7c00 {
        super::f32::NAN
    } else if magnitude == 0x7c00 {
        sign | 0x7f80_0000
    } else if magnitude >= 0x0400 {
        sign | ((magnitude << 13) + (112 << 23))
    } else if magnitude == 0 {
        sign
    } else {
        let shift = magnitude.leading_zeros() - 21;
        sign | ((113 - shift) << 23) | ((magnitude << (13 + shift)) & 0x007f_ffff)
    }
}

/// bfloat16 to binary32, exactly.
#[inline]
#[must_use]
pub const fn bf16_to_f32(x: u16) -> u32 {
    if x & 0x7fff > 0x7f80 { super::f32::NAN } else { (x as u32) << 16 }
}

/// binary32 to binary16 or bfloat16, as F2FP converts each of its halves: with `relu` a negative
/// value becomes `+0`.
#[must_use]
pub fn f32_to_half(to: Float, x: u32, rounding: Rounding, relu: bool) -> u16 {
    let half = f2f(Float::F32, to, u64::from(x), rounding, false) as u16;
    if relu && half & 0x8000 != 0 { 0 } else { half }
}

/// Packs two binary32 into halves: the first operand is the high one (F2FP.PACK_AB).
#[must_use]
pub fn f2fp(to: Float, a: u32, b: u32, rounding: Rounding, relu: bool) -> u32 {
    u32::from(f32_to_half(to, a, rounding, relu)) << 16 | u32::from(f32_to_half(to, b, rounding, relu))
}

/// An integer type of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Integer {
    /// Width in bits: 8, 16, 32 or 64 (2 and 4 for [`i2ip`]).
    pub bits: u32,
    /// Two's complement instead of unsigned.
    pub signed: bool,
}

impl Integer {
    /// The type that a size field (0 to 3: 8, 16, 32, 64 bits) and a signedness bit name.
    ///
    /// # Panics
    ///
    /// When `size` is above 3.
    #[must_use]
    pub const fn from_field(size: u32, signed: bool) -> Self {
        assert!(size < 4, "a size field has two bits");
        Self { bits: 8 << size, signed }
    }

    const fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    const fn max(self) -> i128 {
        (1 << (self.bits - self.signed as u32)) - 1
    }

    /// Clamps to the type; the result is sign- or zero-extended to 64 bits.
    const fn clamp(self, value: i128) -> u64 {
        if value < self.min() {
            self.min() as u64
        } else if value > self.max() {
            self.max() as u64
        } else {
            value as u64
        }
    }

    /// The value of the low bits of a register or register pair.
    const fn read(self, bits: u64) -> i128 {
        let unused = 64 - self.bits;
        if self.signed {
            ((bits << unused) as i64 >> unused) as i128
        } else {
            (bits << unused >> unused) as i128
        }
    }
}

/// Floating point to integer (F2I).
///
/// Values out of range give the nearest end of the range. NaN gives 0 with `nan_to_zero` (`.NTZ`),
/// else the pattern with only the highest bit set: of 64 bits for a 64-bit result, of 32 bits for
/// all others. The result is sign- or zero-extended to 64 bits; a result of at most 32 bits is the
/// low word.
#[must_use]
pub fn f2i(from: Float, to: Integer, bits: u64, rounding: Rounding, ftz: bool, nan_to_zero: bool) -> u64 {
    match decode(from, flush_if(from, bits, ftz)) {
        Value::Nan if nan_to_zero => 0,
        Value::Nan if to.bits == 64 => 1 << 63,
        Value::Nan => 1 << 31,
        Value::Infinite { negative } => to.clamp(if negative { i128::MIN } else { i128::MAX }),
        Value::Finite(value) => match value.round_to_integer(rounding) {
            Some(magnitude) if value.negative => to.clamp(-(magnitude as i128)),
            Some(magnitude) => to.clamp(magnitude as i128),
            None => to.clamp(if value.negative { i128::MIN } else { i128::MAX }),
        },
    }
}

/// Two binary32 to saturated 8-bit integers, NaN to 0, packed below the low half of `c` (F2IP).
///
/// `relu` clamps negative values to 0 and `upper` (`.H1`) takes the high half of `c`.
#[must_use]
pub fn f2ip(a: u32, b: u32, c: u32, signed: bool, rounding: Rounding, relu: bool, upper: bool) -> u32 {
    let to = Integer { bits: 8, signed };
    let byte = |x: u32| {
        let value = f2i(Float::F32, to, u64::from(x), rounding, false, true) as u32;
        if relu && value as i32 <= 0 { 0 } else { value & 0xff }
    };
    c >> (16 * u32::from(upper)) << 16 | byte(a) << 8 | byte(b)
}

/// Integer to floating point (I2F, I2FP): the low bits of `bits` that `from` says.
#[must_use]
pub fn i2f(from: Integer, to: Float, bits: u64, rounding: Rounding) -> u64 {
    let value = from.read(bits);
    Exact::from_integer(value < 0, value.unsigned_abs() as u64).round(to.format(), rounding)
}

/// A 32-bit integer to binary32 (I2FP.F32).
#[inline]
#[must_use]
pub fn i2fp(x: u32, signed: bool, rounding: Rounding) -> u32 {
    if rounding == Rounding::Nearest {
        return if signed { x as i32 as f32 } else { x as f32 }.to_bits();
    }
    // binary64 holds every 32-bit integer.
    let exact = if signed { f64::from(x as i32) } else { f64::from(x) };
    super::f32::narrow(exact, rounding).to_bits()
}

/// Rounds to an integral value of the same format (FRND); the sign of a zero is kept.
#[must_use]
pub fn frnd(format: Float, bits: u64, rounding: Rounding, ftz: bool) -> u64 {
    let bits = flush_if(format, bits, ftz);
    let shape = format.format();
    match decode(format, bits) {
        Value::Nan => format.nan(),
        Value::Infinite { .. } => bits,
        // No fraction: nothing to round, and perhaps too large for an integer.
        Value::Finite(value) if value.exponent >= 0 => bits,
        Value::Finite(value) => {
            // Below 2^53: the integral value is exact in the format.
            let magnitude = value.round_to_integer(rounding).unwrap_or(0) as u64;
            Exact::from_integer(value.negative, magnitude).round(shape, Rounding::Zero)
        }
    }
}

/// Narrows a signed 32-bit integer with saturation (I2I); the result is extended to the register.
#[must_use]
pub const fn i2i(x: u32, to: Integer) -> u32 {
    to.clamp(x as i32 as i128) as u32
}

/// Packs two signed 32-bit integers, each narrowed to `to.bits` bits (I2IP).
///
/// 16-bit results fill the register; narrower ones are put below the low bits of `c`: its low half
/// (the high half with `upper`, `.H1`) for 8 bits, all of it for 4 and 2 bits. With `saturate` they
/// are clamped, else cut off; `relu` also clamps negative values to 0.
#[must_use]
pub const fn i2ip(a: u32, b: u32, c: u32, to: Integer, saturate: bool, relu: bool, upper: bool) -> u32 {
    let mask = (1 << to.bits) - 1;
    let first = pack_operand(a, to, saturate, relu) & mask;
    let second = pack_operand(b, to, saturate, relu) & mask;
    let c = if upper { c >> 16 } else { c };
    let above = if to.bits == 16 { 0 } else { c << (2 * to.bits) };
    above | first << to.bits | second
}

const fn pack_operand(x: u32, to: Integer, saturate: bool, relu: bool) -> u32 {
    let x = if relu && (x as i32) < 0 { 0 } else { x };
    if saturate { i2i(x, to) } else { x }
}
