//! Block formats of weights: their sizes and their values on the CPU.
//!
//! A row of weights is a sequence of blocks. Each block contains small integers and the scales that they share. All
//! numbers are little-endian; `d` and `dmin` are IEEE halves. The layouts and formulas are those of GGUF files.

use core::fmt;
use core::str::FromStr;

use half::{bf16, f16};

use crate::error::{Error, Result};

/// Largest number of weights in a block of any format.
pub const MAX_BLOCK_WEIGHTS: usize = 256;

/// The format of a tensor's weights.
///
/// ```
/// use infer::blocks::BlockType;
///
/// let format: BlockType = "q6_k".parse()?;
/// assert_eq!((format.weights(), format.bytes()), (256, 210));
/// assert_eq!(format.bytes_for(2048), Some(1680));
/// let mut weights = [0.0; 2];
/// BlockType::F32.dequantise(&[0, 0, 128, 63, 0, 0, 0, 64], &mut weights)?;
/// assert_eq!(weights, [1.0, 2.0]);
/// # Ok::<(), infer::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BlockType {
    /// 32-bit floats.
    F32,
    /// IEEE halves.
    F16,
    /// The upper halves of 32-bit floats.
    Bf16,
    /// 32 integers of 4 bits, one scale.
    Q4_0,
    /// 32 integers of 8 bits, one scale.
    Q8_0,
    /// 256 integers of 4 bits in 8 groups, each with a scale and a minimum of 6 bits.
    Q4K,
    /// 256 integers of 5 bits in 8 groups, each with a scale and a minimum of 6 bits.
    Q5K,
    /// 256 integers of 6 bits in 16 groups, each with a scale of 8 bits.
    Q6K,
}

/// Names of the other formats that GGUF files may have, by number.
const FOREIGN: [(u32, &str); 25] = [
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

/// The name of a format that is not a [`BlockType`]; `None` if the number is unknown.
pub(crate) fn foreign_name(id: u32) -> Option<&'static str> {
    FOREIGN.iter().find(|(known, _)| *known == id).map(|(_, name)| *name)
}

impl BlockType {
    /// All formats.
    pub const ALL: [Self; 8] =
        [Self::F32, Self::F16, Self::Bf16, Self::Q4_0, Self::Q8_0, Self::Q4K, Self::Q5K, Self::Q6K];

    /// The format with a number of GGUF; `None` if it is not supported.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.id() == id)
    }

    /// The number in GGUF files.
    pub const fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::Bf16 => 30,
        }
    }

    /// Weights of a block.
    pub const fn weights(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => MAX_BLOCK_WEIGHTS,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of a number of weights; `None` if they are not whole blocks, or if the result overflows.
    pub const fn bytes_for(self, weights: usize) -> Option<usize> {
        if weights.is_multiple_of(self.weights()) {
            (weights / self.weights()).checked_mul(self.bytes())
        } else {
            None
        }
    }

    /// The name that is usual for GGUF files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Converts whole blocks to 32-bit floats. Only the differences of `Q4_K` and `Q5_K` are rounded.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if `bytes` are not the blocks of exactly `out.len()` weights.
    pub fn dequantise(self, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        let mut exact = [0.0; MAX_BLOCK_WEIGHTS];
        self.check(bytes, out.len())?;
        let blocks = bytes.chunks_exact(self.bytes());
        for (block, out) in blocks.zip(out.chunks_exact_mut(self.weights())) {
            let exact = &mut exact[..self.weights()];
            self.decode(block, exact);
            for (out, exact) in out.iter_mut().zip(exact) {
                *out = *exact as f32;
            }
        }
        Ok(())
    }

    /// Converts whole blocks to 64-bit floats, without any rounding.
    ///
    /// # Errors
    ///
    /// As [`BlockType::dequantise`].
    pub fn dequantise_exactly(self, bytes: &[u8], out: &mut [f64]) -> Result<()> {
        self.check(bytes, out.len())?;
        let blocks = bytes.chunks_exact(self.bytes());
        for (block, out) in blocks.zip(out.chunks_exact_mut(self.weights())) {
            self.decode(block, out);
        }
        Ok(())
    }

    fn check(self, bytes: &[u8], weights: usize) -> Result<()> {
        let needed = self.bytes_for(weights).unwrap_or(usize::MAX);
        let what = "the bytes of a tensor";
        if bytes.len() == needed { Ok(()) } else { Err(Error::Length { what, len: bytes.len(), needed }) }
    }

    /// The weights of one block.
    fn decode(self, block: &[u8], out: &mut [f64]) {
        match self {
            Self::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]).into(),
            Self::F16 => out[0] = half_at(block, 0),
            Self::Bf16 => out[0] = bf16::from_le_bytes([block[0], block[1]]).into(),
            Self::Q4_0 => decode_q4_0(block, out),
            Self::Q8_0 => decode_q8_0(block, out),
            Self::Q4K => decode_q4k_q5k(block, None, &block[16..], out),
            Self::Q5K => decode_q4k_q5k(block, Some(&block[16..48]), &block[48..], out),
            Self::Q6K => decode_q6k(block, out),
        }
    }
}

impl fmt::Display for BlockType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for BlockType {
    type Err = Error;

    /// Reads a name in upper or lower case.
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| Error::UnknownFormat(text.to_owned()))
    }
}

fn half_at(block: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([block[at], block[at + 1]]).into()
}

/// `d` at 0, 16 bytes from 2: the low nibbles are weights 0 to 15, the high ones 16 to 31.
fn decode_q4_0(block: &[u8], out: &mut [f64]) {
    let d = half_at(block, 0);
    for (at, byte) in block[2..].iter().enumerate() {
        out[at] = d * (f64::from(byte & 15) - 8.0);
        out[at + 16] = d * (f64::from(byte >> 4) - 8.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn dequantised(format: BlockType, block: &[u8]) -> Vec<f32> {
        let mut out = vec![0.0; format.weights()];
        format.dequantise(block, &mut out).unwrap();
        out
    }

    const ONE: [u8; 2] = [0x00, 0x3c];

    #[test]
    fn formats_have_the_numbers_and_sizes_of_gguf() {
        let all = BlockType::ALL.map(|format| (format.id(), format.weights(), format.bytes()));
        let known = [
            (0, 1, 4),
            (1, 1, 2),
            (30, 1, 2),
            (2, 32, 18),
            (8, 32, 34),
            (12, 256, 144),
            (13, 256, 176),
            (14, 256, 210),
        ];
        assert_eq!(all, known);
        for format in BlockType::ALL {
            assert_eq!(BlockType::from_id(format.id()), Some(format));
            assert_eq!(format.name().to_lowercase().parse::<BlockType>().unwrap(), format);
            assert!(foreign_name(format.id()).is_none(), "{format}");
        }
        assert_eq!((BlockType::from_id(10), foreign_name(10)), (None, Some("Q2_K")));
        assert_eq!(BlockType::Q6K.bytes_for(usize::MAX - 255), Some((usize::MAX - 255) / 256 * 210));
        assert_eq!(BlockType::F32.bytes_for(usize::MAX / 2), None);
        assert!("q2_k".parse::<BlockType>().unwrap_err().to_string().contains("q2_k"));
    }

    #[test]
    fn lengths_must_agree() {
        let error = BlockType::Q8_0.dequantise(&[0; 34], &mut [0.0; 33]).unwrap_err();
        assert!(matches!(error, Error::Length { len: 34, needed: usize::MAX, .. }));
        assert!(BlockType::Q8_0.dequantise(&[0; 33], &mut [0.0; 32]).is_err());
        BlockType::Q8_0.dequantise(&[0; 68], &mut [0.0; 64]).unwrap();
    }

    #[test]
    fn floats_are_converted_exactly() {
        assert_eq!(dequantised(BlockType::F32, &(-1.25_f32).to_le_bytes()), [-1.25]);
        assert_eq!(dequantised(BlockType::F16, &[0x01, 0x00]), [2.0_f32.powi(-24)]);
        assert_eq!(dequantised(BlockType::Bf16, &[0x80, 0xbf]), [-1.0]);
    }

    #[test]
    fn q4_0_has_low_nibbles_first() {
        let mut block = ONE.to_vec();
        block.extend([0x80; 16]);
        block[2] = 0xf1;
        let out = dequantised(BlockType::Q4_0, &block);
        assert_eq!((out[0], out[1], out[16], out[17]), (-7.0, -8.0, 7.0, 0.0));
    }

    #[test]
    fn q8_0_is_signed() {
        let mut block = vec![0x00, 0x38];
        block.extend((0..32).map(|at| 0x80_u8.wrapping_add(at)));
        let out = dequantised(BlockType::Q8_0, &block);
        assert_eq!((out[0], out[31]), (-64.0, -48.5));
    }

    #[test]
    fn k_scales_have_six_bits() {
        // Group g: scale g + 1 + 16 * (g / 4 * 3), minimum 40 + g.
        let (mut scales, mut minima) = ([0_u8; 8], [0_u8; 8]);
        let mut packed = [0_u8; 12];
        for group in 0..8 {
            scales[group] = (group * 9 % 64) as u8;
            minima[group] = 63 - group as u8;
            if group < 4 {
                packed[group] |= scales[group];
                packed[group + 4] |= minima[group];
            } else {
                packed[group + 4] = scales[group] & 15 | minima[group] << 4;
                packed[group - 4] |= scales[group] >> 4 << 6;
                packed[group] |= minima[group] >> 4 << 6;
            }
        }
        for group in 0..8 {
            assert_eq!(group_scale(&packed, group), (scales[group], minima[group]), "{group}");
        }
    }

    #[test]
    fn q4k_and_q5k_subtract_the_minimum_of_the_group() {
        let mut block = vec![0x00, 0x3c, 0x00, 0x38];
        let mut packed = [0_u8; 12];
        (packed[1], packed[5]) = (3, 8);
        block.extend(packed);
        let mut q5 = block.clone();
        block.extend([0; 128]);
        block[16 + 7] = 0xa0;
        let out = dequantised(BlockType::Q4K, &block);
        assert_eq!((out[31], out[32], out[39], out[64]), (0.0, -4.0, 26.0, 0.0));

        q5.extend([0; 160]);
        (q5[16 + 7], q5[48 + 7]) = (2, 0xa0);
        assert_eq!(dequantised(BlockType::Q5K, &q5)[39], 74.0);
    }

    #[test]
    fn q6k_joins_nibbles_and_bit_pairs() {
        let mut block = vec![0_u8; 210];
        block[208..].copy_from_slice(&ONE);
        block[192..208].fill(1);
        // Weight 128 + 32 * 3 + 5: high nibble of ql[64 + 32 + 5], bits 6 and 7 of qh[32 + 5], scale 14.
        block[64 + 32 + 5] = 0x90;
        block[128 + 32 + 5] = 0x80;
        block[192 + 14] = 0xfe;
        let out = dequantised(BlockType::Q6K, &block);
        assert_eq!((out[0], out[229], out[230], out[165]), (-32.0, -2.0 * (9.0 + 32.0 - 32.0), 64.0, -32.0));
    }
}
