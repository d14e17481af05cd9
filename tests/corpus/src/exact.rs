//! Floating-point arithmetic by definition: the exact result, rounded once.
//!
//! A second implementation of IEEE 754 for operations that the host lacks: rounding modes of single
//! instructions, half precision and bfloat16. A number is an integer of at most 128 bits times a power of
//! two, with a flag for dropped low bits.

/// A binary floating-point format of IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the significand, including the hidden one.
    pub precision: u32,
    /// Bits of the exponent.
    pub exponent_bits: u32,
}

/// Half precision.
pub const F16: Format = Format { precision: 11, exponent_bits: 5 };
/// bfloat16.
pub const BF16: Format = Format { precision: 8, exponent_bits: 8 };
/// Single precision.
pub const F32: Format = Format { precision: 24, exponent_bits: 8 };
/// Double precision.
pub const F64: Format = Format { precision: 53, exponent_bits: 11 };

/// Rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To nearest, ties to even (`.rn`).
    Nearest,
    /// Towards zero (`.rz`).
    Zero,
    /// Towards minus infinity (`.rm`, `_rd`).
    Down,
    /// Towards plus infinity (`.rp`, `_ru`).
    Up,
}

/// The four modes in the kernels' order.
pub const MODES: [Mode; 4] = [Mode::Nearest, Mode::Zero, Mode::Down, Mode::Up];

/// `(-1)^negative * (magnitude + something below 1 if inexact) * 2^exponent`.
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    negative: bool,
    magnitude: u128,
    exponent: i32,
    inexact: bool,
}

/// Decoded bits.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// Not a number.
    Nan,
    /// Plus or minus infinity.
    Infinite {
        /// Whether it is minus infinity.
        negative: bool,
    },
    /// A number, including zero.
    Finite(Exact),
}

impl Exact {
    /// An integer.
    pub fn integer(value: i128) -> Self {
        Self { negative: value < 0, magnitude: value.unsigned_abs(), exponent: 0, inexact: false }
    }

    fn top(self) -> i32 {
        // CAST: at most 128.
        self.exponent + (128 - self.magnitude.leading_zeros()) as i32
    }

    /// Moves the lowest bit to `exponent`; drops bits if `exponent` is higher.
    fn at(self, exponent: i32) -> Self {
        let distance = exponent - self.exponent;
        if self.magnitude == 0 {
            return Self { exponent, ..self };
        }
        if distance <= 0 {
            return Self { magnitude: self.magnitude << distance.unsigned_abs(), exponent, ..self };
        }
        let (kept, dropped) = match distance.unsigned_abs() {
            by @ 0..128 => (self.magnitude >> by, self.magnitude & ((1 << by) - 1)),
            _ => (0, self.magnitude),
        };
        Self { magnitude: kept, exponent, inexact: self.inexact || dropped != 0, ..self }
    }

    fn times(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            magnitude: self.magnitude * other.magnitude,
            exponent: self.exponent + other.exponent,
            inexact: false,
        }
    }

    /// The sum of two exact numbers, at least one of them not zero.
    fn plus(self, other: Self) -> Self {
        let (large, small) = if self.top() >= other.top() && self.magnitude != 0 || other.magnitude == 0 {
            (self, other)
        } else {
            (other, self)
        };
        // Aligns to the larger number. Bits that the smaller one loses matter only for the inexact flag,
        // because at most one leading bit cancels in that case.
        let large = large.at(large.top() - 126);
        let small = small.at(large.exponent);
        if large.negative == small.negative {
            return Self { magnitude: large.magnitude + small.magnitude, inexact: small.inexact, ..large };
        }
        let (a, b) = (large.magnitude, small.magnitude + u128::from(small.inexact));
        if a >= b {
            Self { magnitude: a - b, inexact: small.inexact, ..large }
        } else {
            Self { magnitude: b - a, negative: small.negative, ..large }
        }
    }
}

impl Format {
    fn fraction_bits(self) -> u32 {
        self.precision - 1
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The bits of plus infinity.
    pub fn infinity_bits(self) -> u64 {
        self.infinity(false)
    }

    fn infinity(self, negative: bool) -> u64 {
        self.signed(((1 << self.exponent_bits) - 1) << self.fraction_bits(), negative)
    }

    fn signed(self, bits: u64, negative: bool) -> u64 {
        bits | (u64::from(negative) << (self.fraction_bits() + self.exponent_bits))
    }

    fn nan(self) -> u64 {
        ((1 << (self.exponent_bits + 1)) - 1) << (self.fraction_bits() - 1)
    }

    /// Decodes bits of this format.
    pub fn decode(self, bits: u64) -> Number {
        let negative = (bits >> (self.fraction_bits() + self.exponent_bits)) & 1 == 1;
        let exponent = (bits >> self.fraction_bits()) & ((1 << self.exponent_bits) - 1);
        let fraction = bits & ((1 << self.fraction_bits()) - 1);
        if exponent == (1 << self.exponent_bits) - 1 {
            return if fraction == 0 { Number::Infinite { negative } } else { Number::Nan };
        }
        let hidden = u64::from(exponent != 0) << self.fraction_bits();
        // CAST: an exponent has at most 11 bits, a precision is at most 53.
        let exponent = (exponent.max(1) as i32) - self.bias() - self.fraction_bits() as i32;
        Number::Finite(Exact { negative, magnitude: u128::from(hidden | fraction), exponent, inexact: false })
    }

    /// The representable number for an exact one.
    pub fn round(self, exact: Exact, mode: Mode) -> u64 {
        if exact.magnitude == 0 && !exact.inexact {
            return self.signed(0, exact.negative);
        }
        // CAST: a precision is at most 53.
        let precision = self.precision as i32;
        let lowest = 2 - self.bias() - precision;
        let exponent = (exact.top() - precision).max(lowest);
        // One extra bit, for rounding.
        let kept = exact.at(exponent - 1);
        let (mut magnitude, half) = (kept.magnitude >> 1, kept.magnitude & 1 == 1);
        let up = match mode {
            Mode::Nearest => half && (kept.inexact || magnitude & 1 == 1),
            Mode::Zero => false,
            Mode::Down => exact.negative && (half || kept.inexact),
            Mode::Up => !exact.negative && (half || kept.inexact),
        };
        magnitude += u128::from(up);
        // CAST: at most 53 bits and one.
        let magnitude = magnitude as u64;
        // A significand one bit longer carries into the exponent.
        let normal = magnitude >> self.fraction_bits() != 0;
        let biased = if normal { i64::from(exponent - lowest) + 1 } else { 0 };
        let bits = if normal {
            // CAST: not negative, `exponent` is at least `lowest`.
            (((biased - 1) as u64) << self.fraction_bits()) + magnitude
        } else {
            magnitude
        };
        if bits >= self.infinity(false) {
            let stays = match mode {
                Mode::Nearest => false,
                Mode::Zero => true,
                Mode::Down => !exact.negative,
                Mode::Up => exact.negative,
            };
            return self.signed(self.infinity(false) - u64::from(stays), exact.negative);
        }
        self.signed(bits, exact.negative)
    }

    /// `a + b`.
    pub fn add(self, a: u64, b: u64, mode: Mode) -> u64 {
        self.sum(self.decode(a), self.decode(b), mode)
    }

    fn sum(self, a: Number, b: Number, mode: Mode) -> u64 {
        match (a, b) {
            (Number::Nan, _) | (_, Number::Nan) => self.nan(),
            (Number::Infinite { negative: a }, Number::Infinite { negative: b }) if a != b => self.nan(),
            (Number::Infinite { negative }, _) | (_, Number::Infinite { negative }) => {
                self.infinity(negative)
            }
            (Number::Finite(a), Number::Finite(b)) => {
                if a.magnitude == 0 && b.magnitude == 0 {
                    let negative =
                        if mode == Mode::Down { a.negative || b.negative } else { a.negative && b.negative };
                    return self.signed(0, negative);
                }
                let sum = a.plus(b);
                if sum.magnitude == 0 && !sum.inexact {
                    return self.signed(0, mode == Mode::Down);
                }
                self.round(sum, mode)
            }
        }
    }

    fn product(self, a: u64, b: u64) -> Number {
        match (self.decode(a), self.decode(b)) {
            (Number::Finite(a), Number::Finite(b)) => Number::Finite(a.times(b)),
            (Number::Nan, _) | (_, Number::Nan) => Number::Nan,
            (Number::Infinite { negative }, Number::Finite(x))
            | (Number::Finite(x), Number::Infinite { negative }) => {
                if x.magnitude == 0 {
                    Number::Nan
                } else {
                    Number::Infinite { negative: negative != x.negative }
                }
            }
            (Number::Infinite { negative: a }, Number::Infinite { negative: b }) => {
                Number::Infinite { negative: a != b }
            }
        }
    }

    fn encode(self, number: Number, mode: Mode) -> u64 {
        match number {
            Number::Nan => self.nan(),
            Number::Infinite { negative } => self.infinity(negative),
            Number::Finite(exact) => self.round(exact, mode),
        }
    }

    /// `a * b`.
    pub fn mul(self, a: u64, b: u64, mode: Mode) -> u64 {
        self.encode(self.product(a, b), mode)
    }

    /// `a * b + c`, rounded once.
    pub fn fma(self, a: u64, b: u64, c: u64, mode: Mode) -> u64 {
        self.sum(self.product(a, b), self.decode(c), mode)
    }

    /// `a / b`.
    pub fn div(self, a: u64, b: u64, mode: Mode) -> u64 {
        match (self.decode(a), self.decode(b)) {
            (Number::Nan, _) | (_, Number::Nan) => self.nan(),
            (Number::Infinite { .. }, Number::Infinite { .. }) => self.nan(),
            (Number::Infinite { negative }, Number::Finite(b)) => self.infinity(negative != b.negative),
            (Number::Finite(a), Number::Infinite { negative }) => self.signed(0, a.negative != negative),
            (Number::Finite(a), Number::Finite(b)) if b.magnitude == 0 => {
                if a.magnitude == 0 {
                    self.nan()
                } else {
                    self.infinity(a.negative != b.negative)
                }
            }
            (Number::Finite(a), Number::Finite(b)) => {
                // Shifts the dividend so that the quotient has enough bits.
                let a = a.at(a.top() - 53);
                let wide = a.magnitude << 74;
                let quotient = Exact {
                    negative: a.negative != b.negative,
                    magnitude: wide / b.magnitude,
                    exponent: a.exponent - b.exponent - 74,
                    inexact: wide % b.magnitude != 0,
                };
                self.round(quotient, mode)
            }
        }
    }

    /// The square root of `a`.
    pub fn sqrt(self, a: u64, mode: Mode) -> u64 {
        match self.decode(a) {
            Number::Nan => self.nan(),
            Number::Infinite { negative: false } => self.infinity(false),
            Number::Infinite { negative: true } => self.nan(),
            Number::Finite(x) if x.magnitude == 0 => a,
            Number::Finite(x) if x.negative => self.nan(),
            Number::Finite(x) => {
                // An even exponent, with the significand shifted as far as possible.
                let x = x.at(x.top() - 53);
                let room = 70 + (x.exponent & 1);
                let wide = x.at(x.exponent - room);
                let root = wide.magnitude.isqrt();
                let inexact = root * root != wide.magnitude;
                self.round(
                    Exact { negative: false, magnitude: root, exponent: wide.exponent / 2, inexact },
                    mode,
                )
            }
        }
    }

    /// Converts bits of this format to another.
    pub fn convert(self, bits: u64, to: Self, mode: Mode) -> u64 {
        to.encode(self.decode(bits), mode)
    }

    /// The nearest integral number, in the same format.
    pub fn integral(self, bits: u64, mode: Mode) -> u64 {
        match self.decode(bits) {
            Number::Finite(x) if x.exponent < 0 => {
                let whole = Self::whole(x, mode);
                self.round(Exact { negative: x.negative, ..Exact::integer(whole) }, Mode::Nearest)
            }
            number => self.encode(number, Mode::Nearest),
        }
    }

    /// The nearest integer to a number below about 2^100.
    fn whole(x: Exact, mode: Mode) -> i128 {
        let kept = x.at(-1);
        let (mut magnitude, half) = (kept.magnitude >> 1, kept.magnitude & 1 == 1);
        let rest = half || kept.inexact;
        magnitude += u128::from(match mode {
            Mode::Nearest => half && (kept.inexact || magnitude & 1 == 1),
            Mode::Zero => false,
            Mode::Down => x.negative && rest,
            Mode::Up => !x.negative && rest,
        });
        // CAST: at most 127 bits.
        if x.negative { -(magnitude as i128) } else { magnitude as i128 }
    }

    /// The nearest integer, clamped to `lowest..=highest`; `None` for NaN.
    pub fn to_integer(self, bits: u64, mode: Mode, lowest: i128, highest: i128) -> Option<i128> {
        match self.decode(bits) {
            Number::Nan => None,
            Number::Infinite { negative } => Some(if negative { lowest } else { highest }),
            Number::Finite(x) if x.top() > 100 => Some(if x.negative { lowest } else { highest }),
            Number::Finite(x) => Some(Self::whole(x, mode).clamp(lowest, highest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Element;
    use test_support::Numbers;

    fn same(got: u64, want: f32) -> bool {
        f32::from_word(got).to_bits() == want.to_bits() || (f32::from_word(got).is_nan() && want.is_nan())
    }

    /// With rounding to nearest, the host's arithmetic is the same.
    #[test]
    fn the_hosts_arithmetic_agrees() {
        let mut numbers = Numbers::new(77);
        for _ in 0..20_000 {
            let (a, b, c) = (f32::random(&mut numbers), f32::random(&mut numbers), f32::random(&mut numbers));
            let (x, y, z) = (a.to_word(), b.to_word(), c.to_word());
            assert!(same(F32.add(x, y, Mode::Nearest), a + b), "{a} + {b}");
            assert!(same(F32.mul(x, y, Mode::Nearest), a * b), "{a} * {b}");
            assert!(same(F32.div(x, y, Mode::Nearest), a / b), "{a} / {b}");
            assert!(same(F32.sqrt(x, Mode::Nearest), a.sqrt()), "sqrt {a}");
            assert!(same(F32.fma(x, y, z, Mode::Nearest), a.mul_add(b, c)), "{a} * {b} + {c}");
            assert!(same(F32.integral(x, Mode::Nearest), a.round_ties_even()), "rint {a}");
            assert!(same(F32.integral(x, Mode::Down), a.floor()), "floor {a}");
            assert!(same(F32.integral(x, Mode::Up), a.ceil()), "ceil {a}");
            // CAST: Rust's conversions saturate, and NaN becomes 0.
            let int = F32.to_integer(x, Mode::Zero, i128::from(i32::MIN), i128::from(i32::MAX));
            assert_eq!(int.unwrap_or(0), i128::from(a as i32), "{a} as an integer");
            let (a, b, c) = (f64::random(&mut numbers), f64::random(&mut numbers), f64::random(&mut numbers));
            let (x, y, z) = (a.to_word(), b.to_word(), c.to_word());
            let same = |got: u64, want: f64| got == want.to_bits() || want.is_nan();
            assert!(same(F64.add(x, y, Mode::Nearest), a + b), "{a} + {b}");
            assert!(same(F64.mul(x, y, Mode::Nearest), a * b), "{a} * {b}");
            assert!(same(F64.div(x, y, Mode::Nearest), a / b), "{a} / {b}");
            assert!(same(F64.sqrt(x, Mode::Nearest), a.sqrt()), "sqrt {a}");
            assert!(same(F64.fma(x, y, z, Mode::Nearest), a.mul_add(b, c)), "{a} * {b} + {c}");
            // CAST: Rust's conversion rounds to nearest.
            assert!(self::same(F64.convert(x, F32, Mode::Nearest), a as f32), "{a} in single precision");
        }
    }

    /// Rounding down and up encloses the exact result; rounding towards zero gives one of the two.
    #[test]
    fn directed_roundings_enclose() {
        let mut numbers = Numbers::new(78);
        for _ in 0..5000 {
            let (a, b) = (f64::random(&mut numbers), f64::random(&mut numbers));
            let [near, zero, down, up] =
                MODES.map(|mode| f64::from_bits(F64.mul(a.to_bits(), b.to_bits(), mode)));
            if near.is_nan() {
                continue;
            }
            assert!(down <= near && near <= up, "{a} * {b}");
            assert!(zero == if a.is_sign_negative() == b.is_sign_negative() { down } else { up });
        }
        assert_eq!(F32.add(1.0_f32.to_word(), 1.0e-30_f32.to_word(), Mode::Up), 0x3f80_0001);
        assert_eq!(F32.add(1.0_f32.to_word(), (-1.0e-30_f32).to_word(), Mode::Zero), 0x3f7f_ffff);
        assert_eq!(F32.mul(f32::MAX.to_word(), 2.0_f32.to_word(), Mode::Zero), f32::MAX.to_word());
    }
}
