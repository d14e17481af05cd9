//! The values of blocks.

use half::{bf16, f16};

use super::BlockType;

/// The values of `IQ4_NL` and `IQ4_XS`.
const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Twice the values of a float of 4 bits: a sign, two bits of exponent, one of mantissa.
const FP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The weights of one block.
pub(super) fn decode(format: BlockType, block: &[u8], out: &mut [f64]) {
    match format {
        BlockType::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]).into(),
        BlockType::F16 => out[0] = half_at(block, 0),
        BlockType::Bf16 => out[0] = bf16::from_le_bytes([block[0], block[1]]).into(),
        BlockType::Q4_0 => decode_linear(block, false, false, out),
        BlockType::Q4_1 => decode_linear(block, false, true, out),
        BlockType::Q5_0 => decode_linear(block, true, false, out),
        BlockType::Q5_1 => decode_linear(block, true, true, out),
        BlockType::Q8_0 => decode_q8_0(block, out),
        BlockType::Q2K => decode_q2k(block, out),
        BlockType::Q3K => decode_q3k(block, out),
        BlockType::Q4K => decode_q4k_q5k(block, None, &block[16..], out),
        BlockType::Q5K => decode_q4k_q5k(block, Some(&block[16..48]), &block[48..], out),
        BlockType::Q6K => decode_q6k(block, out),
        BlockType::Iq4Nl => decode_listed(half_at(block, 0), &IQ4_VALUES, &block[2..], out),
        BlockType::Iq4Xs => decode_iq4_xs(block, out),
        BlockType::Mxfp4 => decode_listed(half_power(block[0]), &FP4_VALUES, &block[1..], out),
    }
}

fn half_at(block: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([block[at], block[at + 1]]).into()
}

/// Half of the power of two with an exponent of 8 bits, as in a 32-bit float: 2^(exponent - 128).
fn half_power(exponent: u8) -> f64 {
    f64::from_bits((u64::from(exponent) + 1023 - 128) << 52)
}

/// 16 bytes: the low nibbles are weights 0 to 15, the high ones 16 to 31.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4))
}

/// `d` at 0, then `m` if there is a minimum, then four bytes with bit 4 of each weight if there are `fifth` bits, then
/// the nibbles. Integers without a minimum are signed, with an offset of half their range.
fn decode_linear(block: &[u8], fifth: bool, minimum: bool, out: &mut [f64]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let mut rest = if minimum { &block[4..] } else { &block[2..] };
    let mut high = 0;
    if fifth {
        high = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        rest = &rest[4..];
    }
    let middle = if fifth { 16.0 } else { 8.0 };
    for (at, (out, nibble)) in out.iter_mut().zip(nibbles(rest)).enumerate() {
        let integer = f64::from(u32::from(nibble) | (high >> at & 1) << 4);
        *out = if minimum { d * integer + m } else { d * (integer - middle) };
    }
}

/// 16 bytes of places in a table.
fn decode_listed(scale: f64, values: &[i8; 16], bytes: &[u8], out: &mut [f64]) {
    for (out, place) in out.iter_mut().zip(nibbles(bytes)) {
        *out = scale * f64::from(values[usize::from(place)]);
    }
}

/// `d` at 0, the upper two bits of 8 scales at 2, their lower four bits at 4, places in the table from 8 on.
fn decode_iq4_xs(block: &[u8], out: &mut [f64]) {
    let d = half_at(block, 0);
    let (upper, lower) = (u16::from_le_bytes([block[2], block[3]]), &block[4..8]);
    for (group, (out, places)) in out.chunks_exact_mut(32).zip(block[8..].chunks_exact(16)).enumerate() {
        let low = lower[group / 2] >> (4 * (group % 2)) & 15;
        let scale = u16::from(low) | (upper >> (2 * group) & 3) << 4;
        decode_listed(d * (f64::from(scale) - 32.0), &IQ4_VALUES, places, out);
    }
}

/// The integer of two bits of weight `at`: 64 bytes have those of lanes 0 to 31 of four groups of 32, and of four more.
fn two_bits(bytes: &[u8], at: usize) -> u8 {
    bytes[at / 128 * 32 + at % 32] >> (at / 32 % 4 * 2) & 3
}

/// 16 scales and minima of 4 bits each at 0, 64 bytes of bit pairs at 16, `d` at 80, `dmin` at 82.
fn decode_q2k(block: &[u8], out: &mut [f64]) {
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (at, out) in out.iter_mut().enumerate() {
        let scales = block[at / 16];
        let scale = d * f64::from(scales & 15);
        *out = scale * f64::from(two_bits(&block[16..], at)) - dmin * f64::from(scales >> 4);
    }
}

/// 32 bytes with the upper bits of 8 groups of 32 at 0, 64 bytes of bit pairs at 32, 12 bytes of scales at 96, `d` at
/// 108.
fn decode_q3k(block: &[u8], out: &mut [f64]) {
    let (d, scales) = (half_at(block, 108), &block[96..108]);
    for (at, out) in out.iter_mut().enumerate() {
        let group = at / 16;
        let low = scales[group % 8] >> (group / 8 * 4) & 15;
        let scale = low | (scales[8 + group % 4] >> (group / 4 * 2) & 3) << 4;
        let integer = two_bits(&block[32..], at) | (block[at % 32] >> (at / 32) & 1) << 2;
        *out = d * (f64::from(scale) - 32.0) * (f64::from(integer) - 4.0);
    }
}

/// `d` at 0, 32 signed bytes from 2.
fn decode_q8_0(block: &[u8], out: &mut [f64]) {
    let d = half_at(block, 0);
    for (out, byte) in out.iter_mut().zip(&block[2..]) {
        *out = d * f64::from(byte.cast_signed());
    }
}

/// Scale and minimum of group `group` of a `Q4_K` or `Q5_K` block, each 0 to 63; `packed` are its 12 bytes of scales.
pub fn group_scale(packed: &[u8; 12], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        (low & 15 | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4)
    }
}

/// `d` at 0, `dmin` at 2, 12 bytes of scales at 4. 32 bytes of `low` contain the low nibbles of two groups of 32; bit
/// `group` of byte `i` of `high` is bit 4 of weight `i` of that group.
fn decode_q4k_q5k(block: &[u8], high: Option<&[u8]>, low: &[u8], out: &mut [f64]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let mut packed = [0; 12];
    packed.copy_from_slice(&block[4..16]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = group_scale(&packed, group);
        let (scale, minimum) = (d * f64::from(scale), dmin * f64::from(minimum));
        for (at, out) in out.iter_mut().enumerate() {
            let byte = low[group / 2 * 32 + at];
            let nibble = if group % 2 == 0 { byte & 15 } else { byte >> 4 };
            let fifth = high.map_or(0, |high| (high[at] >> group & 1) << 4);
            *out = scale * f64::from(nibble | fifth) - minimum;
        }
    }
}

/// 128 bytes of low nibbles at 0, 64 bytes of bit pairs at 128, 16 signed scales at 192, `d` at 208.
fn decode_q6k(block: &[u8], out: &mut [f64]) {
    let d = half_at(block, 208);
    for (at, out) in out.iter_mut().enumerate() {
        let (part, quarter, lane) = (at / 128, at / 32 % 4, at % 32);
        let byte = block[64 * part + 32 * (quarter % 2) + lane];
        let low = if quarter < 2 { byte & 15 } else { byte >> 4 };
        let high = block[128 + 32 * part + lane] >> (2 * quarter) & 3;
        let scale = f64::from(block[192 + at / 16].cast_signed());
        *out = d * scale * (f64::from(low | high << 4) - 32.0);
    }
}
