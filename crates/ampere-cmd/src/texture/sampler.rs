//! Samplers.

use super::{Field, TextureError, WORDS, fields, values};

fields! {
    ADDRESS_U 2 0;
    ADDRESS_V 5 3;
    ADDRESS_P 8 6;
    DEPTH_COMPARE 9 9;
    S_R_G_B_CONVERSION 13 13;
    MAX_ANISOTROPY 22 20;
    FORCED_INVALID 31 31;
    MAG_FILTER 34 32;
    MIN_FILTER 37 36;
    MIP_FILTER 39 38;
    CUBEMAP_INTERFACE_FILTERING 41 40;
    REDUCTION_FILTER 43 42;
    MIP_LOD_BIAS 56 44;
    FLOAT_COORD_NORMALIZATION 57 57;
    TRILIN_OPT 62 58;
    MIN_LOD_CLAMP 75 64;
    MAX_LOD_CLAMP 87 76;
    S_R_G_B_BORDER_COLOR_R 95 88;
    S_R_G_B_BORDER_COLOR_G 115 108;
    S_R_G_B_BORDER_COLOR_B 123 116;
}
/// The first word of the border's colour.
const BORDER: usize = 4;
/// Fractional bits of levels.
const LEVEL_FRACTION: u32 = 8;
/// CUBEMAP_INTERFACE_FILTERING: as the addressing says, or across the edges of the faces.
const USE_WRAP: u64 = 0;
const AUTO_SPAN_SEAM: u64 = 2;

values! {
    /// What is outside of the texture.
    Addressing of "ADDRESS_U" {
        /// The texture again.
        Wrap = 0,
        /// The mirrored texture.
        Mirror = 1,
        /// The texels of the edge.
        Clamp = 2,
        /// The border's colour.
        Border = 3,
    }
}

values! {
    /// What a lookup between texels returns.
    Filter of "MAG_FILTER" {
        /// The nearest texel.
        Point = 1,
        /// The mean of the nearest texels, weighted.
        Linear = 2,
    }
}

values! {
    /// What a lookup between levels returns.
    MipFilter of "MIP_FILTER" {
        /// The first level.
        None = 1,
        /// The nearest level.
        Point = 2,
        /// The mean of the nearest levels, weighted.
        Linear = 3,
    }
}

/// A sampler.
///
/// ```
/// use ampere_cmd::texture::{Addressing, Filter, MipFilter, Sampler};
///
/// let sampler = Sampler { filter: Filter::Linear, bias: -1.5, ..Sampler::default() };
/// assert_eq!(Sampler::decode(&sampler.encode()?)?, sampler);
/// assert!(Sampler { bias: 16.0, ..sampler }.encode().is_err());
/// # Ok::<(), ampere_cmd::texture::TextureError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// What is outside of the texture, along each axis.
    pub addressing: [Addressing; 3],
    /// Filter between texels.
    pub filter: Filter,
    /// Filter between levels.
    pub mip_filter: MipFilter,
    /// Added to the level of a lookup: -16 to 15.99, in units of 1/256.
    pub bias: f32,
    /// Least level of a lookup: 0 to 15.99, in units of 1/256.
    pub min_level: f32,
    /// Largest level of a lookup, likewise.
    pub max_level: f32,
    /// The code of the largest ratio of the axes of an anisotropic lookup: 0 for 1, 1 for 2, 2 for 4, 3 for 6, 4 for 8,
    /// 5 for 10, 6 for 12, 7 for 16.
    pub anisotropy: u32,
    /// Whether lookups at the edge of a cube's face use the neighbouring face.
    pub seamless: bool,
    /// Whether textures of sRGB are converted to linear numbers.
    pub srgb: bool,
    /// The border's colour: bits of floating-point numbers, or integers.
    pub border: [u32; 4],
}

impl Default for Sampler {
    /// The nearest texel; the texels of the edge outside.
    fn default() -> Self {
        Self {
            addressing: [Addressing::Clamp; 3],
            filter: Filter::Point,
            mip_filter: MipFilter::None,
            bias: 0.0,
            min_level: 0.0,
            max_level: 0.0,
            anisotropy: 0,
            seamless: false,
            srgb: true,
            border: [0; 4],
        }
    }
}

/// Bits of a fixed-point number with 8 fractional bits, cut toward zero as by CUDA. The field is signed if `low` is
/// negative.
fn fixed(field: Field, value: f32, low: f32) -> Result<u64, TextureError> {
    let unit = (1_u32 << LEVEL_FRACTION) as f32;
    // CAST: small integers are exact.
    let (units, high) = (value * unit, low + (1_u32 << (field.width() - LEVEL_FRACTION)) as f32);
    // CAST: truncates; out of range numbers saturate, and are refused.
    let cut = units as i32;
    let limit = 1_i32 << field.width();
    // CAST: a small integer.
    let first = (low * unit) as i32;
    if value.is_nan() || cut < first || cut >= first + limit {
        return Err(TextureError::Range { field: field.name, value, low, high });
    }
    // CAST: not negative.
    Ok(cut.rem_euclid(limit) as u64)
}

/// The inverse of [`fixed`].
fn real(field: Field, words: &[u32; WORDS], signed: bool) -> f32 {
    let shift = 32 - field.width();
    let bits = field.get(words);
    // CAST: sign extension; small integers are exact.
    let value = if signed { (bits << shift) as i32 >> shift } else { bits as i32 };
    value as f32 / (1_u32 << LEVEL_FRACTION) as f32
}

impl Sampler {
    /// The words of the sampler.
    ///
    /// # Errors
    ///
    /// [`TextureError::Range`] for a level, [`TextureError::Field`] for a ratio that its field cannot hold.
    pub fn encode(&self) -> Result<[u32; WORDS], TextureError> {
        let mut words = [0; WORDS];
        let w = &mut words;
        for (field, mode) in [ADDRESS_U, ADDRESS_V, ADDRESS_P].into_iter().zip(self.addressing) {
            field.set(w, mode.bits().into())?;
        }
        S_R_G_B_CONVERSION.set(w, self.srgb.into())?;
        MAX_ANISOTROPY.set(w, self.anisotropy.into())?;
        MAG_FILTER.set(w, self.filter.bits().into())?;
        MIN_FILTER.set(w, self.filter.bits().into())?;
        MIP_FILTER.set(w, self.mip_filter.bits().into())?;
        CUBEMAP_INTERFACE_FILTERING.set(w, if self.seamless { AUTO_SPAN_SEAM } else { USE_WRAP })?;
        MIP_LOD_BIAS.set(w, fixed(MIP_LOD_BIAS, self.bias, -16.0)?)?;
        MIN_LOD_CLAMP.set(w, fixed(MIN_LOD_CLAMP, self.min_level, 0.0)?)?;
        MAX_LOD_CLAMP.set(w, fixed(MAX_LOD_CLAMP, self.max_level, 0.0)?)?;
        words[BORDER..].copy_from_slice(&self.border);
        Ok(words)
    }

    /// The sampler in words.
    ///
    /// # Errors
    ///
    /// [`TextureError::Unsupported`] for a filter, an addressing or a property that is not supported.
    pub fn decode(words: &[u32; WORDS]) -> Result<Self, TextureError> {
        let unsupported =
            |field: Field| TextureError::Unsupported { field: field.name, value: field.get(words) };
        let refused = [
            DEPTH_COMPARE,
            FORCED_INVALID,
            REDUCTION_FILTER,
            FLOAT_COORD_NORMALIZATION,
            TRILIN_OPT,
            S_R_G_B_BORDER_COLOR_R,
            S_R_G_B_BORDER_COLOR_G,
            S_R_G_B_BORDER_COLOR_B,
        ];
        if let Some(field) = refused.into_iter().find(|field| field.get(words) != 0) {
            return Err(unsupported(field));
        }
        let mut addressing = [Addressing::Wrap; 3];
        for (mode, field) in addressing.iter_mut().zip([ADDRESS_U, ADDRESS_V, ADDRESS_P]) {
            *mode = Addressing::decode(field.get(words))?;
        }
        let filter = Filter::decode(MAG_FILTER.get(words))?;
        if MIN_FILTER.get(words) != filter.bits() {
            return Err(unsupported(MIN_FILTER));
        }
        let seam = u64::from(CUBEMAP_INTERFACE_FILTERING.get(words));
        if ![USE_WRAP, AUTO_SPAN_SEAM].contains(&seam) {
            return Err(unsupported(CUBEMAP_INTERFACE_FILTERING));
        }
        let mut border = [0; 4];
        border.copy_from_slice(&words[BORDER..]);
        Ok(Self {
            addressing,
            filter,
            mip_filter: MipFilter::decode(MIP_FILTER.get(words))?,
            bias: real(MIP_LOD_BIAS, words, true),
            min_level: real(MIN_LOD_CLAMP, words, false),
            max_level: real(MAX_LOD_CLAMP, words, false),
            anisotropy: MAX_ANISOTROPY.get(words),
            seamless: seam == AUTO_SPAN_SEAM,
            srgb: S_R_G_B_CONVERSION.get(words) != 0,
            border,
        })
    }
}
