//! An independent reference for the tests: exact dyadic numbers as bit strings, rounded bit by bit, and generators of
//! operands biased towards the edges of a format.
//!
//! It shares no code with the functions under test and is written for clarity: a value is a fixed-point number wide
//! enough for the product of any two binary64.

use proptest::prelude::*;

use super::Rounding;

/// Weight of the lowest bit of the fixed-point number, as a power of two.
const LOWEST: i32 = -2200;
/// Number of 32-bit limbs: bits from 2^-2200 to 2^2152.
const LIMBS: usize = 136;

/// A binary floating-point format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) fraction: u32,
    pub(super) exponent: u32,
}

impl Shape {
    pub(super) const F16: Self = Self { fraction: 10, exponent: 5 };
    pub(super) const BF16: Self = Self { fraction: 7, exponent: 8 };
    pub(super) const F32: Self = Self { fraction: 23, exponent: 8 };
    pub(super) const F64: Self = Self { fraction: 52, exponent: 11 };

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn sign(self) -> u64 {
        1 << (self.fraction + self.exponent)
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// Position of the lowest bit of the smallest subnormal.
    fn lowest(self) -> i32 {
        1 - self.bias() - self.fraction as i32
    }
}

/// An exact value: a sign and the bits of a magnitude.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dyadic {
    negative: bool,
    limbs: Vec<u32>,
}

impl Dyadic {
    /// `significand * 2^exponent`.
    pub(super) fn new(negative: bool, significand: u64, exponent: i32) -> Self {
        let mut limbs = vec![0; LIMBS];
        for bit in (0..64).filter(|bit| significand >> bit & 1 != 0) {
            let at = usize::try_from(exponent + bit - LOWEST).expect("the value is in range");
            limbs[at / 32] |= 1 << (at % 32);
        }
        Self { negative, limbs }
    }

    /// The value of a finite pattern.
    pub(super) fn decode(shape: Shape, bits: u64) -> Option<Self> {
        let (significand, exponent) = Self::split(shape, bits)?;
        Some(Self::new(bits & shape.sign() != 0, significand, exponent))
    }

    fn split(shape: Shape, bits: u64) -> Option<(u64, i32)> {
        let field = bits >> shape.fraction & ((1 << shape.exponent) - 1);
        let fraction = bits & ((1 << shape.fraction) - 1);
        match field {
            _ if field == (1 << shape.exponent) - 1 => None,
            0 => Some((fraction, shape.lowest())),
            _ => Some((fraction | 1 << shape.fraction, field as i32 - shape.bias() - shape.fraction as i32)),
        }
    }

    fn is_zero(&self) -> bool {
        self.limbs.iter().all(|limb| *limb == 0)
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        // Schoolbook multiplication of the few nonzero limbs.
        let mut limbs = vec![0_u32; LIMBS];
        let offset = usize::try_from(-LOWEST).expect("the weight is negative");
        let (base, skew) = (offset / 32, offset % 32);
        for (i, x) in self.limbs.iter().enumerate().filter(|(_, x)| **x != 0) {
            for (j, y) in other.limbs.iter().enumerate().filter(|(_, y)| **y != 0) {
                // x*y has weight 2^(32(i+j) + 2 LOWEST): move it to the common lowest weight.
                let product = u128::from(u64::from(*x) * u64::from(*y)) << 64 >> skew;
                let at = i64::try_from(i + j).expect("small") - i64::try_from(base).expect("small") - 2;
                let mut carry = 0_u64;
                for k in 0..LIMBS as i64 {
                    let part = if k < 4 { (product >> (32 * k)) as u32 } else { 0 };
                    if (part == 0 && carry == 0) && k >= 4 {
                        break;
                    }
                    let place = at + k;
                    if place < 0 {
                        assert_eq!(part, 0, "the product is below the lowest bit");
                        continue;
                    }
                    let slot = &mut limbs[usize::try_from(place).expect("not negative")];
                    let sum = u64::from(*slot) + u64::from(part) + carry;
                    *slot = sum as u32;
                    carry = sum >> 32;
                }
            }
        }
        Self { negative: self.negative != other.negative, limbs }
    }

    /// The sum, with the sign of a zero sum under `rounding`.
    pub(super) fn plus(&self, other: &Self, rounding: Rounding) -> Self {
        if self.negative == other.negative {
            let mut carry = 0;
            let limbs = self.limbs.iter().zip(&other.limbs).map(|(x, y)| {
                let sum = u64::from(*x) + u64::from(*y) + carry;
                carry = sum >> 32;
                sum as u32
            });
            return Self { negative: self.negative, limbs: limbs.collect() };
        }
        let greater = self.limbs.iter().rev().ge(other.limbs.iter().rev());
        let (big, small) = if greater { (self, other) } else { (other, self) };
        let mut borrow = 0;
        let limbs = big.limbs.iter().zip(&small.limbs).map(|(x, y)| {
            let difference = i64::from(*x) - i64::from(*y) - borrow;
            borrow = i64::from(difference < 0);
            difference as u32
        });
        let mut sum = Self { negative: big.negative, limbs: limbs.collect() };
        if sum.is_zero() {
            sum.negative = rounding == Rounding::Down;
        }
        sum
    }

    fn bit(&self, weight: i32) -> bool {
        let at = weight - LOWEST;
        at >= 0 && self.limbs.get(at as usize / 32).is_some_and(|limb| limb >> (at % 32) & 1 != 0)
    }

    fn any_below(&self, weight: i32) -> bool {
        let Ok(at) = usize::try_from(weight - LOWEST) else { return false };
        self.limbs[..at / 32].iter().any(|limb| *limb != 0)
            || self.limbs[at / 32] & ((1 << (at % 32)) - 1) != 0
    }

    /// Weight of the leading one.
    fn top(&self) -> Option<i32> {
        let limb = self.limbs.iter().rposition(|limb| *limb != 0)?;
        Some(LOWEST + 32 * limb as i32 + self.limbs[limb].ilog2() as i32)
    }

    /// The magnitude divided by `2^weight`, rounded to an integer.
    fn rounded_at(&self, weight: i32, rounding: Rounding) -> u128 {
        let top = self.top().unwrap_or(LOWEST);
        let kept = (weight..=top).rev().fold(0_u128, |kept, at| kept << 1 | u128::from(self.bit(at)));
        let (half, below) = (self.bit(weight - 1), self.any_below(weight - 1));
        let up = match rounding {
            Rounding::Nearest => half && (below || kept & 1 != 0),
            Rounding::Zero => false,
            Rounding::Down => self.negative && (half || below),
            Rounding::Up => !self.negative && (half || below),
        };
        kept + u128::from(up)
    }

    /// Returns the value rounded to an integer, or +-2^100 if it is beyond that range.
    pub(super) fn clamped_to_integer(&self, rounding: Rounding) -> i128 {
        let magnitude = match self.top() {
            Some(top) if top >= 100 => 1 << 100,
            _ => self.rounded_at(0, rounding) as i128,
        };
        if self.negative { -magnitude } else { magnitude }
    }

    /// The value rounded to an integral one.
    pub(super) fn rounded_to_integral(&self, rounding: Rounding) -> Self {
        if self.top().is_some_and(|top| top >= 63) {
            // No format has 63 significant bits: nothing is below the point.
            return self.clone();
        }
        Self::new(self.negative, self.rounded_at(0, rounding) as u64, 0)
    }

    /// The pattern of the value rounded into `shape`.
    pub(super) fn round(&self, shape: Shape, rounding: Rounding) -> u64 {
        let sign = if self.negative { shape.sign() } else { 0 };
        let Some(top) = self.top() else { return sign };
        // The last place of the result: below the leading one, but not below the subnormals.
        let mut last = (top - shape.fraction as i32).max(shape.lowest());
        let mut kept = self.rounded_at(last, rounding) as u64;
        if kept == 1 << (shape.fraction + 1) {
            kept >>= 1;
            last += 1;
        }
        if kept < 1 << shape.fraction {
            return sign | kept;
        }
        let field = (last - shape.lowest() + 1) as u64;
        if field >= (1 << shape.exponent) - 1 {
            let infinite = match rounding {
                Rounding::Nearest => true,
                Rounding::Zero => false,
                Rounding::Down => self.negative,
                Rounding::Up => !self.negative,
            };
            return sign | if infinite { shape.infinity() } else { shape.infinity() - 1 };
        }
        sign | field << shape.fraction | (kept & ((1 << shape.fraction) - 1))
    }

    /// The pattern of the value rounded into `shape`, results below the normal range after rounding
    /// to an unbounded exponent replaced by zero.
    pub(super) fn round_flushing(&self, shape: Shape, rounding: Rounding) -> u64 {
        let Some(top) = self.top() else { return self.round(shape, rounding) };
        let last = top - shape.fraction as i32;
        let carried = self.rounded_at(last, rounding) == 1 << (shape.fraction + 1);
        let tiny = top + i32::from(carried) < 1 - shape.bias();
        if tiny { if self.negative { shape.sign() } else { 0 } } else { self.round(shape, rounding) }
    }
}

/// Patterns of `shape`, half of them near the edges of the format.
fn edges(shape: Shape) -> impl Strategy<Value = u64> {
    let one = (shape.bias() as u64) << shape.fraction;
    let special = prop_oneof![
        Just(0),
        Just(1),
        Just((1 << shape.fraction) - 1),
        Just(1 << shape.fraction),
        Just(shape.infinity() - 1),
        Just(shape.infinity()),
        Just(shape.infinity() + 1),
        Just(shape.sign() - 1),
        Just(one),
        Just(one + 1),
        Just(one - 1),
    ];
    let exponents = 1_u64 << shape.exponent;
    let fraction_bits = shape.fraction;
    // Few significant bits around any exponent give exact results, ties and near ties.
    let sparse = (0..exponents, 0..=fraction_bits, 0..=fraction_bits, -1_i64..=1).prop_map(
        move |(exponent, high, low, step)| {
            let fraction = (1_u64 << high | 1 << low) & ((1 << fraction_bits) - 1);
            (exponent << fraction_bits | fraction).wrapping_add_signed(step)
        },
    );
    let near_one = one - (12 << shape.fraction)..one + (12 << shape.fraction);
    (any::<bool>(), prop_oneof![special, sparse, near_one, any::<u64>()])
        .prop_map(move |(negative, bits)| bits & (shape.sign() - 1) | if negative { shape.sign() } else { 0 })
}

pub(super) fn edge_f64() -> impl Strategy<Value = u64> {
    edges(Shape::F64)
}

pub(super) fn edge_f32() -> impl Strategy<Value = u32> {
    edges(Shape::F32).prop_map(|bits| bits as u32)
}

pub(super) fn edge_f16() -> impl Strategy<Value = u16> {
    edges(Shape::F16).prop_map(|bits| bits as u16)
}

pub(super) fn edge_bf16() -> impl Strategy<Value = u16> {
    edges(Shape::BF16).prop_map(|bits| bits as u16)
}
