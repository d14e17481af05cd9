//! Exact values and their rounding into a binary format, in integers.
//!
//! The host computes binary32 and binary64 to nearest. All other operations of the SM (directed rounding of binary64,
//! narrow formats, integer sources) use this module: a value is held exactly as `significand * 2^exponent` and
//! rounded once.

use super::Rounding;

/// A binary interchange format: sign, exponent and fraction from the top bit down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    fraction_bits: u32,
    exponent_bits: u32,
}

/// IEEE 754 binary16.
pub(super) const F16: Format = Format { fraction_bits: 10, exponent_bits: 5 };
/// bfloat16: the upper half of a binary32.
pub(super) const BF16: Format = Format { fraction_bits: 7, exponent_bits: 8 };
/// IEEE 754 binary32.
pub(super) const F32: Format = Format { fraction_bits: 23, exponent_bits: 8 };
/// IEEE 754 binary64.
pub(super) const F64: Format = Format { fraction_bits: 52, exponent_bits: 11 };

impl Format {
    /// The pattern of plus infinity.
    pub(super) const fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    /// The sign bit.
    pub(super) const fn sign(self) -> u64 {
        1 << (self.fraction_bits + self.exponent_bits)
    }

    /// Exponent of the smallest normal number.
    const fn min_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }

    /// Returns the magnitude that a number beyond the largest finite one rounds to.
    const fn overflow(self, negative: bool, rounding: Rounding) -> u64 {
        let to_infinity = match rounding {
            Rounding::Nearest => true,
            Rounding::Zero => false,
            Rounding::Down => negative,
            Rounding::Up => !negative,
        };
        if to_infinity { self.infinity() } else { self.infinity() - 1 }
    }

    /// Whether the pattern is a NaN.
    pub(super) const fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }
}

/// A finite value `(-1)^negative * significand * 2^exponent`.
///
/// After an addition the lowest bit of a significand of more than 120 bits may be a
/// sticky bit, far below the rounding position of every format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exact {
    pub(super) negative: bool,
    pub(super) exponent: i32,
    pub(super) significand: u128,
}

impl Exact {
    /// The value of a finite pattern of `format`; `None` for infinities and NaN.
    pub(super) const fn from_bits(format: Format, bits: u64) -> Option<Self> {
        let magnitude = bits & (format.sign() - 1);
        if magnitude >= format.infinity() {
            return None;
        }
        let field = (magnitude >> format.fraction_bits) as i32;
        let fraction = magnitude & ((1 << format.fraction_bits) - 1);
        let hidden = if field == 0 { 0 } else { 1 << format.fraction_bits };
        let scale = if field == 0 { 0 } else { field - 1 };
        Some(Self {
            negative: bits & format.sign() != 0,
            exponent: format.min_exponent() - format.fraction_bits as i32 + scale,
            significand: (fraction | hidden) as u128,
        })
    }

    /// The value of an integer.
    pub(super) const fn from_integer(negative: bool, magnitude: u64) -> Self {
        Self { negative, exponent: 0, significand: magnitude as u128 }
    }

    /// The product. Both significands must have at most 64 bits.
    pub(super) const fn times(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            exponent: self.exponent + other.exponent,
            significand: self.significand * other.significand,
        }
    }

    /// The sum; a sum of zero has the sign that IEEE 754 gives it under `rounding`. One
    /// significand may have up to 106 bits, the other up to 64.
    pub(super) fn plus(self, other: Self, rounding: Rounding) -> Self {
        let zero_sign =
            if self.negative == other.negative { self.negative } else { rounding == Rounding::Down };
        if self.significand == 0 && other.significand == 0 {
            return Self { negative: zero_sign, ..self };
        }
        if self.significand == 0 {
            return other;
        }
        if other.significand == 0 {
            return self;
        }
        let (x, y) = (self.normalised(), other.normalised());
        let (big, small) =
            if (x.exponent, x.significand) >= (y.exponent, y.significand) { (x, y) } else { (y, x) };
        let aligned = shift_right_sticky(small.significand, (big.exponent - small.exponent).unsigned_abs());
        let significand = if big.negative == small.negative {
            big.significand + aligned
        } else {
            big.significand - aligned
        };
        let negative = if significand == 0 { zero_sign } else { big.negative };
        Self { negative, exponent: big.exponent, significand }
    }

    /// The same nonzero value with its highest significand bit at 126: one bit of room for a carry.
    const fn normalised(self) -> Self {
        let shift = self.significand.leading_zeros() as i32 - 1;
        Self { exponent: self.exponent - shift, significand: self.significand << shift, ..self }
    }

    /// Rounds into `format`; overflow gives infinity or the largest number, as the rounding mode requires.
    pub(super) const fn round(self, format: Format, rounding: Rounding) -> u64 {
        let sign = if self.negative { format.sign() } else { 0 };
        if self.significand == 0 {
            return sign;
        }
        let top = self.exponent + 127 - self.significand.leading_zeros() as i32;
        let exponent = if top > format.min_exponent() { top } else { format.min_exponent() };
        let drop = exponent - format.fraction_bits as i32 - self.exponent;
        let rounded = shift_right_rounded(self.significand, drop, rounding, self.negative);
        // The hidden bit of a normal number adds 1 to the exponent field; so does a carry out of the
        // fraction.
        let magnitude = if exponent > 1 << format.exponent_bits {
            format.infinity()
        } else {
            (((exponent - format.min_exponent()) as u64) << format.fraction_bits) + rounded as u64
        };
        if magnitude < format.infinity() {
            return sign | magnitude;
        }
        sign | format.overflow(self.negative, rounding)
    }

    /// Rounds to an integer. Returns the sign and the magnitude; `None` if the magnitude needs more than 127 bits.
    pub(super) const fn round_to_integer(self, rounding: Rounding) -> Option<u128> {
        let bits = 128 - self.significand.leading_zeros() as i32;
        if bits + self.exponent > 127 {
            return None;
        }
        Some(shift_right_rounded(self.significand, -self.exponent, rounding, self.negative))
    }
}

/// `value >> count`, with the lowest bit set when a one was lost.
const fn shift_right_sticky(value: u128, count: u32) -> u128 {
    if count == 0 {
        value
    } else if count > 127 {
        (value != 0) as u128
    } else {
        (value >> count) | (value << (128 - count) != 0) as u128
    }
}

/// `value * 2^-count` rounded to an integer, as the magnitude of a value of the given sign.
/// A negative `count` shifts left and must not lose bits.
const fn shift_right_rounded(value: u128, count: i32, rounding: Rounding, negative: bool) -> u128 {
    if count <= 0 {
        return if value == 0 { 0 } else { value << -count };
    }
    let (kept, rest, half) = if count > 127 {
        // Everything is below the rounding position; at 128 the top bit is the half.
        let half = if count == 128 { 1 << 127 } else { u128::MAX };
        (0, value, half)
    } else {
        (value >> count, value & ((1 << count) - 1), 1 << (count - 1))
    };
    let up = match rounding {
        Rounding::Nearest => rest > half || (rest == half && kept & 1 != 0),
        Rounding::Zero => false,
        Rounding::Down => rest != 0 && negative,
        Rounding::Up => rest != 0 && !negative,
    };
    kept + up as u128
}

/// Rounds a binary64 that is exact, or rounded to odd, into a narrower format. A NaN gives the
/// pattern with all bits but the sign set, the canonical NaN of every narrow format.
#[inline]
pub(super) fn narrow(x: f64, format: Format, rounding: Rounding) -> u64 {
    let bits = x.to_bits();
    let magnitude = bits & !F64.sign();
    let negative = bits != magnitude;
    let sign = if negative { format.sign() } else { 0 };
    if magnitude >= F64.infinity() {
        return if magnitude > F64.infinity() { format.sign() - 1 } else { sign | format.infinity() };
    }
    // Exponents count from the smallest normal one of the format; a subnormal binary64 is far
    // below every narrow format, where the missing hidden bit makes no difference.
    let exponent = (magnitude >> 52) as i32 - 1023 - format.min_exponent();
    let significand = (magnitude & ((1 << 52) - 1)) | if magnitude == 0 { 0 } else { 1 << 52 };
    let drop = 52 - format.fraction_bits + if exponent < 0 { exponent.unsigned_abs() } else { 0 };
    let drop = drop.min(63);
    let rest = significand & ((1 << drop) - 1);
    let half = 1 << (drop - 1);
    let kept = significand >> drop;
    let up = match rounding {
        Rounding::Nearest => rest > half || (rest == half && kept & 1 != 0),
        Rounding::Zero => false,
        Rounding::Down => rest != 0 && negative,
        Rounding::Up => rest != 0 && !negative,
    };
    let result = ((exponent.max(0) as u64) << format.fraction_bits) + kept + u64::from(up);
    sign | if result < format.infinity() { result } else { format.overflow(negative, rounding) }
}

/// Returns `value + error`, where `value` is the nearest binary64 of a sum and `error` its rounding error, rounded to
/// odd: if the sum is not representable, the neighbour with an odd significand. Rounding the result again, in any
/// mode and to any format of at most 51 significant bits, equals one rounding of the exact sum.
#[inline]
pub(super) fn round_to_odd(value: f64, error: f64) -> f64 {
    let bits = value.to_bits();
    // The error of an infinite sum is NaN and is ignored.
    let inexact = error.abs() > 0.0;
    if !inexact || bits & 1 != 0 {
        return value;
    }
    // Nearest-even left an even significand: the odd neighbour is one step towards the error.
    let away = (error > 0.0) == (value > 0.0);
    f64::from_bits(if away { bits + 1 } else { bits - 1 })
}

/// `a + b` rounded to odd, see [`round_to_odd`]. Neither may be so large that the sum overflows.
#[inline]
pub(super) fn add_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let b_seen = sum - a;
    let error = (a - (sum - b_seen)) + (b - b_seen);
    round_to_odd(sum, error)
}
