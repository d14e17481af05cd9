//! Conversions: F2F, F2FP, F2I, F2IP, I2F, I2FP, FRND, I2I, I2IP.
//!
//! Every conversion is exact up to one final rounding. Sources and results are in the low bits of a `u64`:
//! bit patterns of the width of the [`Float`], or integers of the width of the [`Integer`].

use super::Rounding;
use super::soft::{self, Exact, Format};

/// A floating-point format of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Float {
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
    /// Decodes a size field: 1 is binary16, 2 binary32, 3 binary64; `None` for other values. These fields cannot
    /// select bfloat16.
    #[must_use]
    pub(crate) const fn from_field(field: u32) -> Option<Self> {
        match field {
            1 => Some(Self::F16),
            2 => Some(Self::F32),
            3 => Some(Self::F64),
            _ => None,
        }
    }

    /// The canonical NaN.
    #[must_use]
    pub(crate) const fn nan(self) -> u64 {
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
pub(crate) const fn modify(format: Float, bits: u64, absolute: bool, negate: bool) -> u64 {
    let sign = format.format().sign();
    (if absolute { bits & !sign } else { bits }) ^ if negate { sign } else { 0 }
}

/// Value of a pattern.
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
/// Overflow gives infinity or the largest number, as the rounding mode requires. `ftz` flushes binary32 sources and
/// results.
#[must_use]
pub(crate) fn f2f(from: Float, to: Float, bits: u64, rounding: Rounding, ftz: bool) -> u64 {
    let x = widen(from, flush_if(from, bits, ftz));
    match to {
        _ if x.is_nan() => to.nan(),
        Float::F64 => x.to_bits(),
        Float::F32 => u64::from(super::f32::finish(x, rounding, ftz)),
        Float::F16 | Float::Bf16 => soft::narrow(x, to.format(), rounding),
    }
}

/// Returns the value of a pattern; binary64 contains every format.
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
pub(crate) const fn f16_to_f32(x: u16) -> u32 {
    let sign = ((x & 0x8000) as u32) << 16;
    let magnitude = (x & 0x7fff) as u32;
    // The exponents of the formats differ by 112. The product is exact, for subnormal halves as well.
    let scale = core::primitive::f32::from_bits((127 + 112) << 23);
    let value = (core::primitive::f32::from_bits(magnitude << 13) * scale).to_bits();
    let value = if magnitude == 0x7c00 { 0x7f80_0000 } else { value };
    if magnitude > 0x7c00 { super::f32::NAN } else { sign | value }
}

/// bfloat16 to binary32, exactly.
#[inline]
#[must_use]
pub(crate) const fn bf16_to_f32(x: u16) -> u32 {
    if x & 0x7fff > 0x7f80 { super::f32::NAN } else { (x as u32) << 16 }
}

/// binary32 to binary16 or bfloat16, as F2FP converts each of its halves: with `relu` a negative
/// value becomes `+0`.
#[must_use]
pub(crate) fn f32_to_half(to: Float, x: u32, rounding: Rounding, relu: bool) -> u16 {
    let half = f2f(Float::F32, to, u64::from(x), rounding, false) as u16;
    if relu && half & 0x8000 != 0 { 0 } else { half }
}

/// Packs two binary32 into halves: the first operand is the high one (F2FP.PACK_AB).
#[must_use]
pub(crate) fn f2fp(to: Float, a: u32, b: u32, rounding: Rounding, relu: bool) -> u32 {
    u32::from(f32_to_half(to, a, rounding, relu)) << 16 | u32::from(f32_to_half(to, b, rounding, relu))
}

/// Converts one binary32 to the low half, and puts the low half of `c` above it (F2FP.MERGE_C, measured on an H100).
#[must_use]
pub(crate) fn f2fp_merge(to: Float, b: u32, c: u32, rounding: Rounding, relu: bool) -> u32 {
    c << 16 | u32::from(f32_to_half(to, b, rounding, relu))
}

/// An integer type of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Integer {
    /// Width in bits: 8, 16, 32 or 64 (2 and 4 for [`i2ip`]).
    pub(crate) bits: u32,
    /// Two's complement instead of unsigned.
    pub(crate) signed: bool,
}

impl Integer {
    /// Decodes a size field (0 to 3: 8, 16, 32, 64 bits) and a signedness bit.
    ///
    /// # Panics
    ///
    /// If `size` is above 3.
    #[must_use]
    pub(crate) const fn from_field(size: u32, signed: bool) -> Self {
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

    /// Returns the value of the low bits of a register or register pair.
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
pub(crate) fn f2i(
    from: Float,
    to: Integer,
    bits: u64,
    rounding: Rounding,
    ftz: bool,
    nan_to_zero: bool,
) -> u64 {
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
pub(crate) fn f2ip(a: u32, b: u32, c: u32, signed: bool, rounding: Rounding, relu: bool, upper: bool) -> u32 {
    let to = Integer { bits: 8, signed };
    let byte = |x: u32| {
        let value = f2i(Float::F32, to, u64::from(x), rounding, false, true) as u32;
        if relu && value as i32 <= 0 { 0 } else { value & 0xff }
    };
    c >> (16 * u32::from(upper)) << 16 | byte(a) << 8 | byte(b)
}

/// Integer to floating point (I2F, I2FP): converts the low bits of `bits`, as many as `from` has.
#[must_use]
pub(crate) fn i2f(from: Integer, to: Float, bits: u64, rounding: Rounding) -> u64 {
    let value = from.read(bits);
    Exact::from_integer(value < 0, value.unsigned_abs() as u64).round(to.format(), rounding)
}

/// A 32-bit integer to binary32 (I2FP.F32).
#[inline]
#[must_use]
pub(crate) fn i2fp(x: u32, signed: bool, rounding: Rounding) -> u32 {
    if rounding == Rounding::Nearest {
        return if signed { x as i32 as f32 } else { x as f32 }.to_bits();
    }
    // binary64 holds every 32-bit integer.
    let exact = if signed { f64::from(x as i32) } else { f64::from(x) };
    super::f32::narrow(exact, rounding).to_bits()
}

/// Rounds to an integral value of the same format (FRND); the sign of a zero is kept.
#[must_use]
pub(crate) fn frnd(format: Float, bits: u64, rounding: Rounding, ftz: bool) -> u64 {
    let bits = flush_if(format, bits, ftz);
    let shape = format.format();
    match decode(format, bits) {
        Value::Nan => format.nan(),
        Value::Infinite { .. } => bits,
        // There is no fraction, and the value may be too large for an integer.
        Value::Finite(value) if value.exponent >= 0 => bits,
        Value::Finite(value) => {
            // Below 2^53: the integral value is exact in the format.
            let magnitude = value.round_to_integer(rounding).unwrap_or(0) as u64;
            Exact::from_integer(value.negative, magnitude).round(shape, Rounding::Zero)
        }
    }
}

/// Narrows a signed 32-bit integer with saturation (I2I); the result is extended to 32 bits.
#[must_use]
pub(crate) const fn i2i(x: u32, to: Integer) -> u32 {
    to.clamp(x as i32 as i128) as u32
}

/// Packs two signed 32-bit integers, each narrowed to `to.bits` bits (I2IP).
///
/// 16-bit results fill the register; narrower ones are placed below the kept bits of `c`: its low
/// half (the high half with `upper`, `.H1`) for 8 bits, all of it for 4 and 2 bits. With `saturate` they
/// are clamped, else truncated; `relu` also clamps negative values to 0.
#[must_use]
pub(crate) const fn i2ip(
    a: u32,
    b: u32,
    c: u32,
    to: Integer,
    saturate: bool,
    relu: bool,
    upper: bool,
) -> u32 {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::reference::{Dyadic, Shape, edge_bf16, edge_f16, edge_f32, edge_f64};
    use super::*;

    const FLOATS: [(Float, Shape); 4] = [
        (Float::F16, Shape::F16),
        (Float::Bf16, Shape::BF16),
        (Float::F32, Shape::F32),
        (Float::F64, Shape::F64),
    ];

    const fn integer(bits: u32, signed: bool) -> Integer {
        Integer { bits, signed }
    }

    /// A pattern of every format.
    fn patterns() -> impl Strategy<Value = [u64; 4]> {
        (edge_f16(), edge_bf16(), edge_f32(), edge_f64()).prop_map(|(half, bfloat, single, double)| {
            [u64::from(half), u64::from(bfloat), u64::from(single), double]
        })
    }

    fn word64() -> impl Strategy<Value = u64> {
        let edge = (0_u32..64, -2_i64..3).prop_map(|(bit, step)| (1_u64 << bit).wrapping_add_signed(step));
        prop_oneof![edge.clone(), edge.prop_map(|x| !x), any::<u64>(), any::<u32>().prop_map(u64::from)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn float_to_float_rounds_once(patterns in patterns()) {
            for ((from, shape), bits) in FLOATS.into_iter().zip(patterns) {
                let Some(value) = Dyadic::decode(shape, bits) else { continue };
                for (to, target) in FLOATS {
                    for rounding in Rounding::ALL {
                        let expected = value.round(target, rounding);
                        prop_assert_eq!(f2f(from, to, bits, rounding, false), expected, "{:?} {:?}", from, to);
                    }
                }
            }
        }

        #[test]
        fn binary64_to_flushed_binary32(bits in edge_f64()) {
            if let Some(value) = Dyadic::decode(Shape::F64, bits) {
                for rounding in Rounding::ALL {
                    let expected = value.round_flushing(Shape::F32, rounding);
                    prop_assert_eq!(f2f(Float::F64, Float::F32, bits, rounding, true), expected);
                }
            }
        }

        #[test]
        fn float_to_integer_saturates(patterns in patterns(), signed: bool, size in 0_u32..4) {
            let to = Integer::from_field(size, signed);
            let (low, high) = match (signed, to.bits) {
                (false, bits) => (0, (1_i128 << bits) - 1),
                (true, bits) => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
            };
            for ((from, shape), bits) in FLOATS.into_iter().zip(patterns) {
                let Some(value) = Dyadic::decode(shape, bits) else { continue };
                for rounding in Rounding::ALL {
                    // The reference clamps at 2^100, which is out of range of every integer type.
                    let rounded = value.clamped_to_integer(rounding);
                    let expected = rounded.clamp(low, high) as u64;
                    prop_assert_eq!(f2i(from, to, bits, rounding, false, true), expected);
                }
            }
        }

        #[test]
        fn round_to_integral(patterns in patterns()) {
            for ((format, shape), bits) in FLOATS.into_iter().zip(patterns) {
                let Some(value) = Dyadic::decode(shape, bits) else { continue };
                for rounding in Rounding::ALL {
                    let result = frnd(format, bits, rounding, false);
                    let expected = value.rounded_to_integral(rounding).round(shape, Rounding::Zero);
                    prop_assert_eq!(result, expected, "{:?} {:?}", format, rounding);
                }
            }
        }

        #[test]
        fn integer_to_float_rounds_once(bits in word64(), signed: bool, size in 0_u32..4) {
            let from = Integer::from_field(size, signed);
            let value = match (signed, from.bits) {
                (false, 8) => i128::from(bits as u8),
                (true, 8) => i128::from(bits as i8),
                (false, 16) => i128::from(bits as u16),
                (true, 16) => i128::from(bits as i16),
                (false, 32) => i128::from(bits as u32),
                (true, 32) => i128::from(bits as i32),
                (false, _) => i128::from(bits),
                (true, _) => i128::from(bits as i64),
            };
            let exact = Dyadic::new(value < 0, value.unsigned_abs() as u64, 0);
            for (to, shape) in FLOATS {
                for rounding in Rounding::ALL {
                    prop_assert_eq!(i2f(from, to, bits, rounding), exact.round(shape, rounding), "{:?}", to);
                }
            }
            if from.bits == 32 {
                for rounding in [Rounding::Nearest, Rounding::Zero] {
                    let expected = exact.round(Shape::F32, rounding) as u32;
                    prop_assert_eq!(i2fp(bits as u32, signed, rounding), expected);
                }
            }
        }

        #[test]
        fn nearest_conversions_agree_with_the_half_crate(x in edge_f32()) {
            let value = f32::from_bits(x);
            if !value.is_nan() {
                let nearest = |to| f32_to_half(to, x, Rounding::Nearest, false);
                prop_assert_eq!(nearest(Float::F16), half::f16::from_f32(value).to_bits());
                prop_assert_eq!(nearest(Float::Bf16), half::bf16::from_f32(value).to_bits());
            }
        }

        #[test]
        fn saturating_narrowing(x: u32) {
            let value = x as i32;
            prop_assert_eq!(i2i(x, integer(8, true)), value.clamp(-128, 127) as u32);
            prop_assert_eq!(i2i(x, integer(8, false)), value.clamp(0, 255) as u32);
            prop_assert_eq!(i2i(x, integer(16, true)), value.clamp(-32768, 32767) as u32);
            prop_assert_eq!(i2i(x, integer(16, false)), value.clamp(0, 65535) as u32);
        }
    }

    #[test]
    fn every_half_widens_and_rounds() {
        for x in 0..=u16::MAX {
            let bits = u64::from(x);
            let single = f16_to_f32(x);
            assert_eq!(f2f(Float::F16, Float::F32, bits, Rounding::Nearest, false), u64::from(single));
            let value = f32::from_bits(single);
            if value.is_nan() {
                assert_eq!(f2f(Float::F16, Float::F64, bits, Rounding::Nearest, false), Float::F64.nan());
                assert_eq!(frnd(Float::F16, bits, Rounding::Up, false), 0x7fff);
                continue;
            }
            assert_eq!(f2f(Float::F32, Float::F16, single.into(), Rounding::Zero, false), bits);
            let floor = f32::from_bits(f16_to_f32(frnd(Float::F16, bits, Rounding::Down, false) as u16));
            assert_eq!(floor.to_bits(), value.floor().to_bits());
            let integer = f2i(Float::F16, integer(32, true), bits, Rounding::Zero, false, true) as i32;
            assert_eq!(integer, value as i32);
        }
    }

    #[test]
    fn nan_converts_to_zero_or_the_indefinite_integer() {
        let convert = |from: Float, to, ntz| f2i(from, to, from.nan(), Rounding::Zero, false, ntz);
        assert_eq!(convert(Float::F32, integer(32, true), true), 0);
        assert_eq!(convert(Float::F64, integer(32, true), false), 0x8000_0000);
        assert_eq!(convert(Float::F32, integer(64, false), false), 1 << 63);
        for (format, _) in FLOATS {
            let infinity = f2f(Float::F32, format, 0x7f80_0000, Rounding::Zero, false);
            assert_eq!(
                f2i(format, integer(64, true), infinity, Rounding::Nearest, false, true),
                i64::MAX as u64
            );
            assert_eq!(frnd(format, infinity, Rounding::Zero, false), infinity);
            let minus = modify(format, infinity, true, true);
            assert_eq!(
                f2i(format, integer(16, true), minus, Rounding::Nearest, false, true),
                -32768_i64 as u64
            );
            assert_eq!(f2f(format, Float::F16, minus, Rounding::Nearest, false), 0xfc00);
        }
    }

    #[test]
    fn flushing_applies_to_binary32_sources() {
        let tiny = 0x8000_0001;
        assert_eq!(f2i(Float::F32, integer(32, true), tiny, Rounding::Down, false, true) as i32, -1);
        assert_eq!(f2i(Float::F32, integer(32, true), tiny, Rounding::Down, true, true) as i32, 0);
        assert_eq!(frnd(Float::F32, tiny, Rounding::Down, true), 0x8000_0000);
        assert_eq!(f2f(Float::F32, Float::F64, tiny, Rounding::Nearest, true), 1 << 63);
    }

    #[test]
    fn packed_halves_have_the_first_operand_on_top() {
        let bits = |x: f32| x.to_bits();
        let pack = |to, a, b, relu| f2fp(to, bits(a), bits(b), Rounding::Nearest, relu);
        assert_eq!(pack(Float::F16, 1.0, -2.0, false), 0x3c00_c000);
        assert_eq!(pack(Float::Bf16, 1.0, -2.0, true), 0x3f80_0000);
        assert_eq!(pack(Float::F16, f32::NAN, -f32::NAN, true), 0x7fff_7fff);
        assert_eq!(f2fp(Float::F16, bits(1e9), bits(-1e9), Rounding::Zero, false), 0x7bff_fbff);
        let merge = |b, relu| f2fp_merge(Float::Bf16, bits(b), 0x89ab_cdef, Rounding::Zero, relu);
        assert_eq!([merge(core::f32::consts::PI, true), merge(-2.0, true)], [0xcdef_4049, 0xcdef_0000]);
    }

    #[test]
    fn packed_integers() {
        let word = |x: i32| x as u32;
        let pack = |a, b, c, to| i2ip(word(a), word(b), c, to, true, false, false);
        assert_eq!(pack(300, -300, 0xabcd_1234, integer(8, true)), 0x1234_7f80);
        assert_eq!(pack(70000, -5, 0, integer(16, false)), 0xffff_0000);
        assert_eq!(pack(-70000, 5, 0xffff_ffff, integer(16, true)), 0x8000_0005);
        assert_eq!(pack(20, 3, 0x56, integer(4, false)), 0x56f3);
        assert_eq!(pack(-20, 3, 0x56, integer(4, true)), 0x5683);
        assert_eq!(pack(-3, 1, 0x56, integer(2, true)), 0x569 - 0x569 % 16 + 0x9);
        assert_eq!(i2ip(word(-3), 7, 0xabcd_1234, integer(8, true), true, true, true), 0xabcd_0007);
        assert_eq!(i2ip(0x1ff, 0x102, 0, integer(8, false), false, false, false), 0xff02);
        let converted =
            f2ip(2.7_f32.to_bits(), (-1e9_f32).to_bits(), 0x9876, true, Rounding::Zero, false, false);
        assert_eq!(converted, 0x9876_0280);
    }
}
