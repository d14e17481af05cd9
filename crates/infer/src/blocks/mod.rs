//! Block formats of weights: their sizes and their values on the CPU.
//!
//! A row of weights is a sequence of blocks. Each block contains small integers and the scales that they share. All
//! numbers are little-endian; `d`, `m` and `dmin` are IEEE halves. The layouts and formulas are those of GGUF files.

mod values;

use core::fmt;
use core::str::FromStr;

use crate::error::{Error, Result};

pub use values::group_scale;

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
    /// 32 integers of 4 bits, a scale and a minimum.
    Q4_1,
    /// 32 integers of 5 bits, one scale.
    Q5_0,
    /// 32 integers of 5 bits, a scale and a minimum.
    Q5_1,
    /// 32 integers of 8 bits, one scale.
    Q8_0,
    /// 256 integers of 2 bits in 16 groups, each with a scale and a minimum of 4 bits.
    Q2K,
    /// 256 integers of 3 bits in 16 groups, each with a scale of 6 bits.
    Q3K,
    /// 256 integers of 4 bits in 8 groups, each with a scale and a minimum of 6 bits.
    Q4K,
    /// 256 integers of 5 bits in 8 groups, each with a scale and a minimum of 6 bits.
    Q5K,
    /// 256 integers of 6 bits in 16 groups, each with a scale of 8 bits.
    Q6K,
    /// 32 places in a table of 16 values, one scale.
    Iq4Nl,
    /// 256 places in the same table in 8 groups, each with a scale of 6 bits.
    Iq4Xs,
    /// 32 floats of 4 bits, and the exponent of a scale: the microscaling format of the Open Compute Project.
    Mxfp4,
}

/// Names of the other formats that GGUF files may have, by number.
const FOREIGN: [(u32, &str); 17] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
];

/// The name of a format that is not a [`BlockType`]; `None` if the number is unknown.
pub(crate) fn foreign_name(id: u32) -> Option<&'static str> {
    FOREIGN.iter().find(|(known, _)| *known == id).map(|(_, name)| *name)
}

impl BlockType {
    /// All formats.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Mxfp4,
    ];

    /// The number in GGUF files, the weights and the bytes of a block, and the name that is usual for GGUF files.
    const fn facts(self) -> (u32, usize, usize, &'static str) {
        match self {
            Self::F32 => (0, 1, 4, "F32"),
            Self::F16 => (1, 1, 2, "F16"),
            Self::Q4_0 => (2, 32, 18, "Q4_0"),
            Self::Q4_1 => (3, 32, 20, "Q4_1"),
            Self::Q5_0 => (6, 32, 22, "Q5_0"),
            Self::Q5_1 => (7, 32, 24, "Q5_1"),
            Self::Q8_0 => (8, 32, 34, "Q8_0"),
            Self::Q2K => (10, 256, 84, "Q2_K"),
            Self::Q3K => (11, 256, 110, "Q3_K"),
            Self::Q4K => (12, 256, 144, "Q4_K"),
            Self::Q5K => (13, 256, 176, "Q5_K"),
            Self::Q6K => (14, 256, 210, "Q6_K"),
            Self::Iq4Nl => (20, 32, 18, "IQ4_NL"),
            Self::Iq4Xs => (23, 256, 136, "IQ4_XS"),
            Self::Bf16 => (30, 1, 2, "BF16"),
            Self::Mxfp4 => (39, 32, 17, "MXFP4"),
        }
    }

    /// The format with a number of GGUF; `None` if it is not supported.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.id() == id)
    }

    /// The number in GGUF files.
    pub const fn id(self) -> u32 {
        self.facts().0
    }

    /// Weights of a block.
    pub const fn weights(self) -> usize {
        self.facts().1
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        self.facts().2
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
        self.facts().3
    }

    /// Converts whole blocks to 32-bit floats. Only values with a minimum are rounded.
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
            values::decode(self, block, exact);
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
            values::decode(self, block, out);
        }
        Ok(())
    }

    fn check(self, bytes: &[u8], weights: usize) -> Result<()> {
        let needed = self.bytes_for(weights).unwrap_or(usize::MAX);
        let what = "the bytes of a tensor";
        if bytes.len() == needed { Ok(()) } else { Err(Error::Length { what, len: bytes.len(), needed }) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn dequantised(format: BlockType, block: &[u8]) -> Vec<f32> {
        let mut out = vec![0.0; format.weights()];
        format.dequantise(block, &mut out).unwrap();
        out
    }

    /// A format, its number, weights and bytes, where halves are, and a hash of the values of two blocks of
    /// [`bytes_of`].
    type Known = (BlockType, u32, usize, usize, &'static [usize], u64);

    /// All formats of quantised weights. The values are those of the Python package `gguf`.
    const KNOWN: [Known; 13] = [
        (BlockType::Q4_0, 2, 32, 18, &[0], 0xd69a_da09_ac7c_103f),
        (BlockType::Q4_1, 3, 32, 20, &[0, 2], 0xbc46_9700_841e_bcc5),
        (BlockType::Q5_0, 6, 32, 22, &[0], 0xad4c_6809_decf_3ece),
        (BlockType::Q5_1, 7, 32, 24, &[0, 2], 0xd512_60c1_4156_58c8),
        (BlockType::Q8_0, 8, 32, 34, &[0], 0x771e_237c_218f_1b5f),
        (BlockType::Q2K, 10, 256, 84, &[80, 82], 0x16c9_73ff_3619_5d92),
        (BlockType::Q3K, 11, 256, 110, &[108], 0x8da8_be3e_2d18_2055),
        (BlockType::Q4K, 12, 256, 144, &[0, 2], 0x9c05_edb0_a333_fb44),
        (BlockType::Q5K, 13, 256, 176, &[0, 2], 0x7d4c_9953_3950_fdd4),
        (BlockType::Q6K, 14, 256, 210, &[208], 0xed70_7271_2053_99f2),
        (BlockType::Iq4Nl, 20, 32, 18, &[0], 0xe716_bac1_48f6_6425),
        (BlockType::Iq4Xs, 23, 256, 136, &[0], 0x66ba_304a_337c_be3b),
        (BlockType::Mxfp4, 39, 32, 17, &[], 0x80c2_7ef9_82fb_db89),
    ];

    /// Two blocks of pseudo-random bytes, with halves below 2.
    fn bytes_of(format: BlockType, halves: &[usize]) -> Vec<u8> {
        let mut state = format.id();
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut bytes: Vec<u8> = (0..2 * format.bytes()).map(|_| next()).collect();
        for block in bytes.chunks_exact_mut(format.bytes()) {
            halves.iter().for_each(|at| block[at + 1] &= 0xbf);
        }
        bytes
    }

    #[test]
    fn quantised_blocks_have_the_sizes_and_values_of_gguf() {
        assert!(
            KNOWN.map(|known| known.0).into_iter().eq(BlockType::ALL.into_iter().filter(|b| b.weights() > 1))
        );
        for (format, id, weights, bytes, halves, expected) in KNOWN {
            assert_eq!((format.id(), format.weights(), format.bytes()), (id, weights, bytes), "{format}");
            let mut values = vec![0.0; 2 * weights];
            format.dequantise(&bytes_of(format, halves), &mut values).unwrap();
            // The hash of Fowler, Noll and Vo.
            let hash = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
                });
            assert_eq!(hash, expected, "{format}");
        }
    }

    #[test]
    fn formats_have_names_and_numbers() {
        for format in BlockType::ALL {
            assert_eq!(BlockType::from_id(format.id()), Some(format));
            assert_eq!(format.name().to_lowercase().parse::<BlockType>().unwrap(), format);
            assert!(foreign_name(format.id()).is_none(), "{format}");
        }
        assert_eq!((BlockType::from_id(16), foreign_name(16)), (None, Some("IQ2_XXS")));
        assert_eq!(BlockType::Q6K.bytes_for(usize::MAX - 255), Some((usize::MAX - 255) / 256 * 210));
        assert_eq!(BlockType::F32.bytes_for(usize::MAX / 2), None);
        assert!("iq2_xxs".parse::<BlockType>().unwrap_err().to_string().contains("iq2_xxs"));
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
}
