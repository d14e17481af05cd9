//! Texture headers.

use super::{Components, Format, Numbers, Source, TextureError, WORDS, fields, values};
use crate::error::FieldError;

fields! {
    COMPONENTS 6 0;
    R_DATA_TYPE 9 7;
    G_DATA_TYPE 12 10;
    B_DATA_TYPE 15 13;
    A_DATA_TYPE 18 16;
    X_SOURCE 21 19;
    Y_SOURCE 24 22;
    Z_SOURCE 27 25;
    W_SOURCE 30 28;
    PACK_COMPONENTS 31 31;
    ADDRESS_BITS48TO32 80 64;
    HEADER_VERSION 87 85;
    LOD_ANISO_QUALITY 113 113;
    LOD_ISO_QUALITY 114 114;
    MAX_MIP_LEVEL 127 124;
    WIDTH_MINUS_ONE 144 128;
    HEIGHT_MINUS_ONE_BIT16 146 146;
    S_R_G_B_CONVERSION 150 150;
    TEXTURE_TYPE 154 151;
    BORDER_SIZE 159 157;
    HEIGHT_MINUS_ONE 175 160;
    DEPTH_MINUS_ONE 189 176;
    NORMALIZED_COORDS 191 191;
    RES_VIEW_MIN_MIP_LEVEL 227 224;
    RES_VIEW_MAX_MIP_LEVEL 231 228;
    MULTI_SAMPLE_COUNT 235 232;
    // ONE_D_BUFFER.
    ADDRESS_BITS31TO0 63 32;
    WIDTH_MINUS_ONE_BITS31TO16 111 96;
    WIDTH_MINUS_ONE_BITS15TO0 143 128;
    // PITCH.
    ADDRESS_BITS31TO5 63 37;
    PITCH_BITS20TO5 111 96;
    PITCH_BIT21 145 145;
    // BLOCKLINEAR.
    ADDRESS_BITS31TO9 63 41;
    GOBS_PER_BLOCK_HEIGHT 101 99;
    GOBS_PER_BLOCK_DEPTH 104 102;
    TILE_WIDTH_IN_GOBS 108 106;
    GOB3D 109 109;
    DEPTH_TEXTURE 123 123;
    DEPTH_MINUS_ONE_BIT14 145 145;
}

/// HEADER_VERSION.
const BUFFER: u32 = 0;
const PITCH: u32 = 2;
const BLOCKS: u32 = 3;
/// BORDER_SIZE: the border's colour is that of the sampler.
const BORDER_OF_SAMPLER: u64 = 7;
/// Largest logarithm of a block's height and depth: 32 GOBs.
const MAX_BLOCK_LOG2: u32 = 5;

values! {
    /// Dimensions of a texture.
    Dimension of "TEXTURE_TYPE" {
        /// A line.
        OneD = 0,
        /// A rectangle.
        TwoD = 1,
        /// A cuboid.
        ThreeD = 2,
        /// Six squares.
        Cube = 3,
        /// Layers of lines.
        OneDArray = 4,
        /// Layers of rectangles.
        TwoDArray = 5,
        /// Elements in a row, without layout.
        Buffer = 6,
        /// A rectangle without levels, in lines that are a pitch apart.
        TwoDNoMipmap = 7,
        /// Layers of six squares.
        CubeArray = 8,
    }
}

/// Where the texels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// One after another, aligned to a texel.
    Buffer {
        /// GPU address.
        va: u64,
    },
    /// In lines.
    Pitch {
        /// GPU address, a multiple of 32.
        va: u64,
        /// Bytes from one line to the next: a multiple of 32 below 4 MiB.
        pitch: u32,
    },
    /// In blocks of GOBs that are one GOB wide: see [`blocks`](super::blocks).
    Blocks {
        /// GPU address, a multiple of 512.
        va: u64,
        /// Logarithm of the height of a block of the first level in GOBs, at most 5.
        height_log2: u32,
        /// Logarithm of the depth of a block in slices, at most 5.
        depth_log2: u32,
    },
}

/// A texture header. `width`, `height` and `depth` are those of the first level.
///
/// ```
/// use ampere_cmd::texture::{Components, Dimension, Format, Header, Numbers, Storage};
///
/// let header = Header {
///     format: Format::new(Components::R8G8B8A8, Numbers::Unorm),
///     storage: Storage::Blocks { va: 0x1_0000_0200, height_log2: 4, depth_log2: 0 },
///     dimension: Dimension::TwoD,
///     width: 640,
///     height: 480,
///     depth: 1,
///     levels: 1,
///     first_level: 0,
///     last_level: 0,
///     normalized: true,
/// };
/// let words = header.encode()?;
/// assert_eq!(Header::decode(&words)?, header);
/// # Ok::<(), ampere_cmd::texture::TextureError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Format of the texels.
    pub format: Format,
    /// Where they are.
    pub storage: Storage,
    /// Dimensions.
    pub dimension: Dimension,
    /// Texels of a line: 1 to 131,072; of a buffer 1 to 2^32.
    pub width: u64,
    /// Lines: 1 to 131,072.
    pub height: u32,
    /// Slices, layers, or cubes: 1 to 16,384 (32,768 in blocks).
    pub depth: u32,
    /// Levels of the texture in memory: 1 to 16.
    pub levels: u32,
    /// First level that lookups see.
    pub first_level: u32,
    /// Last level that lookups see.
    pub last_level: u32,
    /// Whether coordinates go from 0 to 1.
    pub normalized: bool,
}

/// A size less one.
fn less_one(field: &'static str, size: u64, bits: u32) -> Result<u64, FieldError> {
    let less = size.checked_sub(1).filter(|less| less >> bits == 0);
    less.ok_or(FieldError::TooWide { field, value: size, bits })
}

/// An address in units.
fn in_units(field: &'static str, value: u64, shift: u32) -> Result<u64, FieldError> {
    if value & ((1 << shift) - 1) == 0 {
        Ok(value >> shift)
    } else {
        Err(FieldError::LostBits { field, value, shift })
    }
}

impl Header {
    /// The words of the header.
    ///
    /// # Errors
    ///
    /// [`TextureError::Field`] for a size, address, pitch or level that its field cannot hold.
    pub fn encode(&self) -> Result<[u32; WORDS], TextureError> {
        let mut words = [0; WORDS];
        let w = &mut words;
        COMPONENTS.set(w, self.format.components.bits().into())?;
        for field in [R_DATA_TYPE, G_DATA_TYPE, B_DATA_TYPE, A_DATA_TYPE] {
            field.set(w, self.format.numbers.bits().into())?;
        }
        for (field, source) in [X_SOURCE, Y_SOURCE, Z_SOURCE, W_SOURCE].into_iter().zip(self.format.sources) {
            field.set(w, source.bits().into())?;
        }
        S_R_G_B_CONVERSION.set(w, self.format.srgb.into())?;
        TEXTURE_TYPE.set(w, self.dimension.bits().into())?;
        match self.storage {
            Storage::Buffer { va } => {
                let last = less_one("WIDTH", self.width, 32)?;
                HEADER_VERSION.set(w, BUFFER.into())?;
                ADDRESS_BITS31TO0.set(w, va & 0xffff_ffff)?;
                ADDRESS_BITS48TO32.set(w, va >> 32)?;
                WIDTH_MINUS_ONE_BITS31TO16.set(w, last >> 16)?;
                WIDTH_MINUS_ONE_BITS15TO0.set(w, last & 0xffff)?;
                return Ok(words);
            }
            Storage::Pitch { va, pitch } => {
                HEADER_VERSION.set(w, PITCH.into())?;
                ADDRESS_BITS31TO5.set(w, in_units("ADDRESS", va, 5)? & ((1 << 27) - 1))?;
                ADDRESS_BITS48TO32.set(w, va >> 32)?;
                let pitch = in_units("PITCH", pitch.into(), 5)?;
                PITCH_BITS20TO5.set(w, pitch & 0xffff)?;
                PITCH_BIT21.set(w, pitch >> 16)?;
                DEPTH_MINUS_ONE.set(w, less_one("DEPTH", self.depth.into(), 14)?)?;
            }
            Storage::Blocks { va, height_log2, depth_log2 } => {
                HEADER_VERSION.set(w, BLOCKS.into())?;
                ADDRESS_BITS31TO9.set(w, in_units("ADDRESS", va, 9)? & ((1 << 23) - 1))?;
                ADDRESS_BITS48TO32.set(w, va >> 32)?;
                for (field, log2) in
                    [(GOBS_PER_BLOCK_HEIGHT, height_log2), (GOBS_PER_BLOCK_DEPTH, depth_log2)]
                {
                    if log2 > MAX_BLOCK_LOG2 {
                        return Err(TextureError::Unsupported { field: field.name, value: log2 });
                    }
                    field.set(w, log2.into())?;
                }
                let last = less_one("DEPTH", self.depth.into(), 15)?;
                DEPTH_MINUS_ONE.set(w, last & 0x3fff)?;
                DEPTH_MINUS_ONE_BIT14.set(w, last >> 14)?;
            }
        }
        LOD_ANISO_QUALITY.set(w, 1)?;
        LOD_ISO_QUALITY.set(w, 1)?;
        WIDTH_MINUS_ONE.set(w, less_one("WIDTH", self.width, 17)?)?;
        let last = less_one("HEIGHT", self.height.into(), 17)?;
        HEIGHT_MINUS_ONE.set(w, last & 0xffff)?;
        HEIGHT_MINUS_ONE_BIT16.set(w, last >> 16)?;
        BORDER_SIZE.set(w, BORDER_OF_SAMPLER)?;
        NORMALIZED_COORDS.set(w, self.normalized.into())?;
        MAX_MIP_LEVEL.set(w, less_one("LEVELS", self.levels.into(), 4)?)?;
        RES_VIEW_MIN_MIP_LEVEL.set(w, self.first_level.into())?;
        RES_VIEW_MAX_MIP_LEVEL.set(w, self.last_level.into())?;
        Ok(words)
    }

    /// The header in words.
    ///
    /// # Errors
    ///
    /// [`TextureError::Unsupported`] for a format, version or property that is not supported. A header of zeros has no
    /// format.
    pub fn decode(words: &[u32; WORDS]) -> Result<Self, TextureError> {
        let flag = |field: super::Field| field.get(words) != 0;
        let size = |field: super::Field| u64::from(field.get(words));
        let version = HEADER_VERSION.get(words);
        let numbers = R_DATA_TYPE.get(words);
        for other in [G_DATA_TYPE, B_DATA_TYPE, A_DATA_TYPE] {
            if other.get(words) != numbers {
                return Err(TextureError::Unsupported { field: other.name, value: other.get(words) });
            }
        }
        // A buffer has the first, lines the first two.
        let refused = [PACK_COMPONENTS, MULTI_SAMPLE_COUNT, TILE_WIDTH_IN_GOBS, GOB3D, DEPTH_TEXTURE];
        let count = match version {
            BUFFER => 1,
            PITCH => 2,
            _ => refused.len(),
        };
        if let Some(field) = refused[..count].iter().find(|field| field.get(words) != 0) {
            return Err(TextureError::Unsupported { field: field.name, value: field.get(words) });
        }
        let mut sources = [Source::Zero; 4];
        for (source, field) in sources.iter_mut().zip([X_SOURCE, Y_SOURCE, Z_SOURCE, W_SOURCE]) {
            *source = Source::decode(field.get(words))?;
        }
        let format = Format {
            components: Components::decode(COMPONENTS.get(words))?,
            numbers: Numbers::decode(numbers)?,
            sources,
            srgb: flag(S_R_G_B_CONVERSION),
        };
        let upper = size(ADDRESS_BITS48TO32) << 32;
        let dimension = Dimension::decode(TEXTURE_TYPE.get(words))?;
        let mut depth = DEPTH_MINUS_ONE.get(words);
        let storage = match version {
            BUFFER => {
                let width = (size(WIDTH_MINUS_ONE_BITS31TO16) << 16 | size(WIDTH_MINUS_ONE_BITS15TO0)) + 1;
                let storage = Storage::Buffer { va: upper | size(ADDRESS_BITS31TO0) };
                let one = Self { width, height: 1, depth: 1, levels: 1, ..Self::EMPTY };
                return Ok(Self { format, storage, dimension, ..one });
            }
            PITCH => {
                let pitch = (PITCH_BIT21.get(words) << 16 | PITCH_BITS20TO5.get(words)) << 5;
                Storage::Pitch { va: upper | size(ADDRESS_BITS31TO5) << 5, pitch }
            }
            BLOCKS => {
                depth |= DEPTH_MINUS_ONE_BIT14.get(words) << 14;
                Storage::Blocks {
                    va: upper | size(ADDRESS_BITS31TO9) << 9,
                    height_log2: GOBS_PER_BLOCK_HEIGHT.get(words),
                    depth_log2: GOBS_PER_BLOCK_DEPTH.get(words),
                }
            }
            value => return Err(TextureError::Unsupported { field: HEADER_VERSION.name, value }),
        };
        if let Storage::Blocks { height_log2, depth_log2, .. } = storage {
            for (field, value) in [(GOBS_PER_BLOCK_HEIGHT, height_log2), (GOBS_PER_BLOCK_DEPTH, depth_log2)] {
                if value > MAX_BLOCK_LOG2 {
                    return Err(TextureError::Unsupported { field: field.name, value });
                }
            }
        }
        Ok(Self {
            format,
            storage,
            dimension,
            width: size(WIDTH_MINUS_ONE) + 1,
            height: (HEIGHT_MINUS_ONE_BIT16.get(words) << 16 | HEIGHT_MINUS_ONE.get(words)) + 1,
            depth: depth + 1,
            levels: MAX_MIP_LEVEL.get(words) + 1,
            first_level: RES_VIEW_MIN_MIP_LEVEL.get(words),
            last_level: RES_VIEW_MAX_MIP_LEVEL.get(words),
            normalized: flag(NORMALIZED_COORDS),
        })
    }

    const EMPTY: Self = Self {
        format: Format::new(Components::R8, Numbers::Uint),
        storage: Storage::Buffer { va: 0 },
        dimension: Dimension::Buffer,
        width: 0,
        height: 0,
        depth: 0,
        levels: 0,
        first_level: 0,
        last_level: 0,
        normalized: false,
    };
}
