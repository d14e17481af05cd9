//! Weighted sums of texels, with the precision of hardware.
//!
//! Results of an H100 for thousands of lookups lead to these rules. The weights of the texels around a place are
//! integers with the sum 256. Floating-point texels are cut, toward zero, to 4 bits below the last one of the largest
//! texel that counts; their sum is rounded to nearest, a tie away from zero. Halves give halves. Integers that stand
//! for 0 or -1 to 1 are summed as such, and the sum is rounded to 16 bits.

use super::address;

/// The sum of the weights of a lookup.
// CAST: 256.
const ONE: i32 = address::ONE as i32;
/// Bits that are kept below the last one of the largest texel.
const EXTRA: i32 = 4;

/// The numbers that a component consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of single precision.
    Single,
    /// Of half precision.
    Half,
    /// Unsigned integers of this many bits that stand for 0 to 1.
    Unsigned(u32),
    /// Signed ones that stand for -1 to 1.
    Signed(u32),
}

/// A product of weights, rounded to a weight.
const fn product(a: i32, b: i32) -> i32 {
    (a * b + ONE / 2) / ONE
}

/// The weights of the corners around a place on two axes whose weights sum to `whole`. Bit 0 of a corner's number is
/// the first axis.
const fn corners(x: i32, y: i32, both: i32, whole: i32) -> [i32; 4] {
    [whole + both - x - y, x - both, y - both, both]
}

/// The weights of the texels around a place, from those of the second texels of up to three axes.
pub(super) fn weights(axes: usize, weights: [u32; 3]) -> [i32; 8] {
    // CAST: 8 bits.
    let [x, y, z] = weights.map(|weight| weight as i32);
    let mut out = [0; 8];
    match axes {
        1 => out[..2].copy_from_slice(&[ONE - x, x]),
        2 => out[..4].copy_from_slice(&corners(x, y, product(x, y), ONE)),
        _ => {
            out[..4].copy_from_slice(&first_of_two([x, y], z));
            out[4..].copy_from_slice(&second_of_two([x, y], z));
        }
    }
    out
}

/// The weights in the first of two slices or levels, the second of which has the weight `z`.
fn first_of_two([x, y]: [i32; 2], z: i32) -> [i32; 4] {
    corners(x - product(x, z), y - product(y, z), product(product(x, y), ONE - z), ONE - z)
}

/// The weights in the second one.
fn second_of_two([x, y]: [i32; 2], z: i32) -> [i32; 4] {
    corners(product(x, z), product(y, z), product(product(x, y), z), z)
}

/// The weights of the texels of a level of two, as [`weights`]; `share` is the weight of the second level.
pub(super) fn weights_of_level(axes: usize, own: [u32; 3], share: u32, is_second: bool) -> [i32; 8] {
    // CAST: 8 bits.
    let ([x, y, _], share) = (own.map(|weight| weight as i32), share as i32);
    let mut out = [0; 8];
    match (axes, is_second) {
        (1 | 2, false) => out[..4].copy_from_slice(&first_of_two([x, y], share)),
        (1 | 2, true) => out[..4].copy_from_slice(&second_of_two([x, y], share)),
        _ => {
            let part = if is_second { share } else { ONE - share };
            out = weights(axes, own).map(|weight| product(weight, part));
            // The rest is the nearest texel's.
            let rest = part - out.iter().sum::<i32>();
            let largest = (0..8).max_by_key(|corner| out[*corner]).unwrap_or(0);
            out[largest] += rest;
        }
    }
    out
}

/// Exponent of the power of two above a number that is not 0, and not subnormal.
fn exponent(value: f64) -> i32 {
    // CAST: 11 bits.
    (value.to_bits() >> 52 & 0x7ff) as i32 - 1022
}

/// Rounds to `bits` significant bits, in units of `least` at least. A tie is rounded away from zero.
fn rounded(value: f64, bits: i32, least: i32) -> f64 {
    if value == 0.0 {
        return value;
    }
    let unit = f64::from((exponent(value) - bits).max(least)).exp2();
    (value / unit).round() * unit
}

/// Texels that are cut together: those of a slice of a level.
const SLICE: usize = 4;

/// The weighted sum of floating-point numbers of `bits` significant bits in units of 2^`least` at least.
fn floating(texels: &[(f64, i32)], bits: i32, least: i32) -> f64 {
    if texels.iter().any(|(value, _)| !value.is_finite()) {
        return texels.iter().map(|(value, weight)| value * f64::from(*weight)).sum::<f64>() / f64::from(ONE);
    }
    let sums = texels.chunks(SLICE).map(|texels| {
        let used = texels.iter().filter(|(value, weight)| *value != 0.0 && *weight != 0);
        let Some(top) = used.map(|(value, _)| exponent(*value).max(least + bits)).max() else { return 0.0 };
        let unit = f64::from(top - bits - EXTRA).exp2();
        unit * texels.iter().map(|(value, weight)| (value / unit).trunc() * f64::from(*weight)).sum::<f64>()
    });
    rounded(sums.sum::<f64>() / f64::from(ONE), bits, least)
}

/// The weighted sum of a component.
pub(super) fn blend(kind: Kind, texels: &[(f64, i32)]) -> f32 {
    let sum =
        || texels.iter().map(|(value, weight)| value * f64::from(*weight)).sum::<f64>() / f64::from(ONE);
    // CAST: the numbers have at most 24 bits; quotients are rounded to nearest.
    match kind {
        Kind::Single => floating(texels, 24, -149) as f32,
        Kind::Half => floating(texels, 11, -24) as f32,
        Kind::Unsigned(bits) => {
            let scale = f64::from(0xffff_u32 / ((1 << bits) - 1));
            ((sum() * scale + 0.5).floor() / 65535.0) as f32
        }
        Kind::Signed(bits) => {
            let scale = 32767.0 / f64::from((1_u32 << (bits - 1)) - 1);
            ((sum() * scale + 0.5).floor() / 32767.0) as f32
        }
    }
}

/// A component alone.
pub(super) fn alone(kind: Kind, value: f64) -> f32 {
    // CAST: as above.
    match kind {
        Kind::Single | Kind::Half => value as f32,
        Kind::Unsigned(bits) => (value / f64::from((1_u32 << bits) - 1)) as f32,
        Kind::Signed(bits) => (value / f64::from((1_u32 << (bits - 1)) - 1)) as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one() {
        for x in 0..address::ONE {
            for y in 0..address::ONE {
                assert_eq!(weights(2, [x, y, 0]).iter().sum::<i32>(), ONE);
                assert_eq!(weights(3, [x, y, (x * 7 + y) % address::ONE]).iter().sum::<i32>(), ONE);
            }
        }
    }

    /// Results of an H100.
    #[test]
    fn sums_have_the_precision_of_hardware() {
        let single = |texels: [(f32, i32); 4]| {
            blend(Kind::Single, &texels.map(|(value, weight)| (value.into(), weight))).to_bits()
        };
        let texels = [(-0.399_300_1, 126), (-27.999_748, 2), (-0.484_476_3, 126), (105.691_91, 2)];
        assert_eq!(single(texels), 0x3e30_1d35);
        assert_eq!(blend(Kind::Unsigned(8), &[(255.0, 128), (0.0, 128)]).to_bits(), 0x3f00_0080);
        assert_eq!(blend(Kind::Unsigned(16), &[(65535.0, 127), (0.0, 129)]).to_bits(), 0x3efe_00fe);
        assert_eq!(blend(Kind::Signed(8), &[(1.0, 256)]).to_bits(), 0x3c01_0102);
        let halves = [(0.013_633_728, 64), (0.027_389_526, 64), (-0.996_093_75, 64), (0.001_732_826_2, 64)];
        assert_eq!(blend(Kind::Half, &halves), -0.238_403_32);
    }
}
