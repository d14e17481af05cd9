//! Texture headers and samplers: the descriptors through which the SMs of an Ampere GPU read and write textures and
//! surfaces.
//!
//! A kernel names a texture by 32 bits: the number of a [`Header`] in a table in memory (20 bits), and the number of a
//! [`Sampler`] in another one ([`Handle`]). The methods SET_TEX_HEADER_POOL_A to C and SET_TEX_SAMPLER_POOL_A to C say
//! where the tables are ([`Encoder::texture_headers`](crate::Encoder::texture_headers),
//! [`Encoder::texture_samplers`](crate::Encoder::texture_samplers)).
//!
//! The layouts are those of `clc797tex.h`: headers of the versions ONE_D_BUFFER, PITCH and BLOCKLINEAR. Colour keys,
//! multisampling, compressed and depth formats are not supported. [`blocks`] says where the texels of a block-linear
//! texture are.

use crate::error::FieldError;

pub mod blocks;
mod format;
mod header;
mod sampler;

pub use format::{Components, Format, Numbers, Source};
pub use header::{Dimension, Header, Storage};
pub use sampler::{Addressing, Filter, MipFilter, Sampler};

/// Words of a header, and of a sampler.
pub const WORDS: usize = 8;
/// Bytes of a header, and of a sampler; also the alignment of their tables.
pub const BYTES: u64 = 32;
/// Most headers of a table.
pub const MAX_HEADERS: u32 = 1 << 20;
/// Most samplers of a table.
pub const MAX_SAMPLERS: u32 = 1 << 12;

/// What a kernel names a texture or surface by.
///
/// ```
/// use ampere_cmd::texture::Handle;
///
/// let handle = Handle::new(5, 2)?;
/// assert_eq!(handle.bits(), 0x0020_0005);
/// assert_eq!((handle.header(), handle.sampler()), (5, 2));
/// assert!(Handle::new(1 << 20, 0).is_err());
/// # Ok::<(), ampere_cmd::FieldError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(u32);

impl Handle {
    /// The handle of a header and a sampler, by their numbers.
    ///
    /// # Errors
    ///
    /// [`FieldError::TooWide`] for a number that is not below [`MAX_HEADERS`] or [`MAX_SAMPLERS`].
    pub fn new(header: u32, sampler: u32) -> Result<Self, FieldError> {
        let fits = |field, value: u32, bits: u32| match value >> bits {
            0 => Ok(value),
            _ => Err(FieldError::TooWide { field, value: value.into(), bits }),
        };
        Ok(Self(fits("texture header", header, 20)? | fits("texture sampler", sampler, 12)? << 20))
    }

    /// The handle that a kernel uses.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The 32 bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Number of the header.
    #[must_use]
    pub const fn header(self) -> u32 {
        self.0 & (MAX_HEADERS - 1)
    }

    /// Number of the sampler.
    #[must_use]
    pub const fn sampler(self) -> u32 {
        self.0 >> 20
    }
}

/// A header or sampler that cannot be encoded, or is not one.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TextureError {
    /// A value does not fit its field.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A field has a value that is not supported.
    #[error("{field} {value:#x} of a texture is not supported")]
    Unsupported {
        /// Name in the class header.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// A number is not finite, or beyond what its field can hold.
    #[error("{field} of a texture is {value}; {low} to {high} are possible")]
    Range {
        /// Name in the class header.
        field: &'static str,
        /// The number.
        value: f32,
        /// Least number.
        low: f32,
        /// Largest number.
        high: f32,
    },
}

/// A field of a descriptor of 256 bits that does not cross a word.
#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    hi: u32,
    lo: u32,
}

/// Declares fields by their names and bits in the class header.
macro_rules! fields {
    ($($name:ident $hi:literal $lo:literal;)+) => {
        $(const $name: $crate::texture::Field =
            $crate::texture::Field { name: stringify!($name), hi: $hi, lo: $lo };)+
    };
}
use fields;

impl Field {
    const fn width(self) -> u32 {
        self.hi - self.lo + 1
    }

    const fn get(self, words: &[u32; WORDS]) -> u32 {
        // CAST: below the number of words.
        words[(self.lo / 32) as usize] >> (self.lo % 32) & (u32::MAX >> (32 - self.width()))
    }

    fn set(self, words: &mut [u32; WORDS], value: u64) -> Result<(), FieldError> {
        let bits = self.width();
        if value >> bits != 0 {
            return Err(FieldError::TooWide { field: self.name, value, bits });
        }
        // CAST: at most 32 bits.
        words[(self.lo / 32) as usize] |= (value as u32) << (self.lo % 32);
        Ok(())
    }
}

/// Declares an enum whose values are those of a field.
macro_rules! values {
    ($(#[$meta:meta])* $name:ident of $field:literal { $($(#[$doc:meta])* $variant:ident = $value:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant = $value,)+
        }

        impl $name {
            /// The value in the descriptor.
            #[must_use]
            pub const fn bits(self) -> u32 {
                // CAST: the declared value.
                self as u32
            }

            pub(super) const fn decode(value: u32) -> Result<Self, crate::texture::TextureError> {
                match value {
                    $($value => Ok(Self::$variant),)+
                    _ => Err(crate::texture::TextureError::Unsupported { field: $field, value }),
                }
            }
        }
    };
}
use values;
