//! Errors of the crate.

use crate::format::Format;
use crate::surface::MAX_SIDE;

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Errors of this crate's calls.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Width or height is zero or too large.
    #[error("an image of {width}x{height}: width and height are 1 to {MAX_SIDE}")]
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },

    /// A size that the chroma of the format cannot halve.
    #[error(
        "{format} of {width}x{height}: chroma is for 2 pixels, so {what} must be even; describe the padded size"
    )]
    Odd {
        /// The format.
        format: Format,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// What must be even.
        what: &'static str,
    },

    /// Another number of planes than the format has.
    #[error("{format}: the number of planes is {needed}, not {given}")]
    Planes {
        /// The format.
        format: Format,
        /// Its number of planes.
        needed: usize,
        /// The given number.
        given: usize,
    },

    /// A pitch that is smaller than a row.
    #[error(
        "plane {plane}: a pitch of {pitch} bytes, but a row has {row_bytes}: use the driver's pitch (bytesperline)"
    )]
    Pitch {
        /// Index of the plane.
        plane: usize,
        /// Its pitch in bytes.
        pitch: u32,
        /// Bytes of a row.
        row_bytes: u64,
    },

    /// A plane is smaller than its rows or blocks.
    #[error(
        "plane {plane} has {size} bytes, but its rows take {needed}: check height, pitch and block height"
    )]
    PlaneSize {
        /// Index of the plane.
        plane: usize,
        /// Its size in bytes.
        size: u64,
        /// Size of its rows or blocks in bytes.
        needed: u64,
    },

    /// A plane ends beyond the memory of the image.
    #[error(
        "plane {plane} ends at byte {end}, but the memory has {bytes}: check its offset, or map the whole buffer"
    )]
    Outside {
        /// Index of the plane.
        plane: usize,
        /// End of the plane, as an offset in the memory.
        end: u64,
        /// Size of the memory in bytes.
        bytes: u64,
    },

    /// Two planes share bytes.
    #[error("plane 1 begins at byte {offset}, inside plane 0: check the offsets")]
    Overlap {
        /// Offset of plane 1 in bytes.
        offset: u64,
    },

    /// A block-linear plane that consists of no GOBs.
    #[error(
        "plane {plane}: offset {offset}, pitch {pitch}, blocks of 2^{block_height_log2} GOBs; a block-linear plane has \
         an offset that is a multiple of 512, a pitch that is one of 64, and at most 2^5 GOBs per block"
    )]
    Blocks {
        /// Index of the plane.
        plane: usize,
        /// Its offset in bytes.
        offset: u64,
        /// Its pitch in bytes.
        pitch: u32,
        /// Logarithm of the height of its blocks in GOBs.
        block_height_log2: u32,
    },

    /// The planes of an NvBufSurface have other pixels than the format.
    #[error(
        "plane {plane} has {given} bytes per pixel, but {format} has {needed}: is it the surface's colorFormat?"
    )]
    BytesPerPixel {
        /// Index of the plane.
        plane: usize,
        /// The format.
        format: Format,
        /// Bytes per pixel of the surface.
        given: u32,
        /// Bytes per pixel of the format.
        needed: u32,
    },

    /// An unknown layout of an NvBufSurface.
    #[error("layout {0} of an NvBufSurface is unknown: 0 is pitch-linear, 1 block-linear")]
    Layout(u32),

    /// A FourCC that this crate does not describe.
    #[error("the format '{}' is not supported: see Format::from_fourcc", code.escape_ascii())]
    FourCc {
        /// The code.
        code: [u8; 4],
    },

    /// A sample that does not fit its word.
    #[error("a sample of {bits} bits from bit {shift} on does not fit 16 bits: the shift is at most {}", 16 - bits)]
    Shift {
        /// Bits of a sample.
        bits: u32,
        /// Number of bits below it.
        shift: u8,
    },

    /// A call that this format or layout does not support.
    #[error("{format}, {}: {needed}", if *pitch_linear { "pitch-linear" } else { "block-linear" })]
    Unsupported {
        /// The format.
        format: Format,
        /// Whether all planes are pitch-linear.
        pitch_linear: bool,
        /// What the call needs.
        needed: &'static str,
    },

    /// Source and target of a copy differ in format or size.
    #[error("{from} cannot be copied to {to}: format, width and height must be equal")]
    Differs {
        /// The source.
        from: String,
        /// The target.
        to: String,
    },

    /// A slice of another length than the image needs.
    #[error("{what}: a slice of {given} elements; the image needs {needed}")]
    Length {
        /// The argument.
        what: &'static str,
        /// Elements of the slice.
        given: usize,
        /// Elements of the image; for the memory of a surface the least number.
        needed: u64,
    },

    /// A parameter of a kernel is not permitted.
    #[error("{what} is {value}; permitted is {permitted}")]
    Parameter {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The permitted values.
        permitted: &'static str,
    },

    /// A call of the device failed.
    #[error(transparent)]
    Device(#[from] tegra_hcq::Error),
}
