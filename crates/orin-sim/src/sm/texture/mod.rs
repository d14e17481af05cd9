//! Textures and surfaces: headers and samplers in memory, places of texels, filters.
//!
//! A lookup reads the header and the sampler that its handle names ([`Bound`]; kept until the grid ends, as in the
//! header caches of an SM), finds its texels ([`address`]), converts and filters them ([`format`],
//! [`filter`], [`blend`]).
//! The descriptors' layout and that of the texels in memory are `ampere_cmd::texture`'s.

mod address;
mod blend;
mod bound;
mod cube;
mod filter;
mod format;
mod surface;

pub(super) use bound::{Bound, Cache, Failure};
pub(super) use filter::{Coordinates, Level};
pub(super) use surface::{Outside, Spot};

/// A table of headers or samplers in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// GPU address.
    pub va: u64,
    /// Number of the last entry.
    pub last: u32,
}

/// The tables that handles of textures and surfaces index. A kernel without textures needs none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Texture headers.
    pub headers: Option<Table>,
    /// Samplers.
    pub samplers: Option<Table>,
    /// Whether a lookup uses the sampler with the number of its header, whatever its handle says (SAMPLER_INDEX of the
    /// launch descriptor).
    pub sampler_by_header: bool,
}

/// Why a texture or surface cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextureRefusal {
    /// No table has an entry with this number.
    #[error("there is no {0} with its number")]
    Absent(&'static str),
    /// A field of the header or sampler has a value that is not valid, or not modelled.
    #[error("{field} {value:#x} is not valid, or not modelled")]
    Field {
        /// Name in the class header.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// The texture does not have the dimensions of the instruction.
    #[error("the texture has other dimensions")]
    Dimensions,
    /// The lookup is not modelled for such a texture.
    #[error("{0} are not modelled")]
    Unmodelled(&'static str),
    /// A surface access with trap is outside.
    #[error("the access is outside of the surface")]
    Outside,
}
