//! Pixel formats.

use core::fmt;

/// Colours of the upper left 2 x 2 pixels of a sensor, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bayer {
    /// Red, green; green, blue.
    Rggb,
    /// Green, red; blue, green.
    Grbg,
    /// Green, blue; red, green.
    Gbrg,
    /// Blue, green; green, red.
    Bggr,
}

impl Bayer {
    /// Column and row, 0 or 1, of the red pixel.
    pub fn red(self) -> (u32, u32) {
        match self {
            Self::Rggb => (0, 0),
            Self::Grbg => (1, 0),
            Self::Gbrg => (0, 1),
            Self::Bggr => (1, 1),
        }
    }
}

/// Bits of a raw sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// 10 bits.
    Ten,
    /// 12 bits.
    Twelve,
}

impl Depth {
    /// Number of bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::Ten => 10,
            Self::Twelve => 12,
        }
    }
}

/// How raw samples lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// A little-endian 16-bit word per sample, whose lowest bit is bit `shift` of the word; the other bits are ignored.
    ///
    /// V4L2 defines 0 (`SRGGB10`, `SRGGB12`). The capture engine (VI) of a Jetson may write another layout under the
    /// same FourCC. NVIDIA's forum (topic 223616) reports 0 on a Nano. On a Xavier NX it reports samples in the high
    /// bits, with copies of their own high bits below: 6 for 10 bits and 4 for 12. The manual of Xavier says that bit
    /// 15 is 0: 5 and 3. A wrong shift scales a frame by a power of two, or wraps its bright parts.
    Words {
        /// Number of bits below the sample.
        shift: u8,
    },
    /// MIPI CSI-2's packing: four samples of 10 bits in five bytes (V4L2's `SRGGB10P`), or two of 12 in three
    /// (`SRGGB12P`).
    Mipi,
}

/// What the bytes of an image are. Bytes are in memory order: `Rgba8` has red first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// One byte per pixel.
    Gray8,
    /// A plane of luma bytes, then one of (Cb, Cr) pairs for 2 x 2 pixels each.
    Nv12,
    /// As `Nv12`, with a pair for 2 x 1 pixels.
    Nv16,
    /// As `Nv12`, with a pair for each pixel.
    Nv24,
    /// Red, green, blue, alpha.
    Rgba8,
    /// Blue, green, red, alpha.
    Bgra8,
    /// Samples of a sensor behind a Bayer filter.
    Raw {
        /// Bits of a sample.
        depth: Depth,
        /// How samples lie in memory.
        packing: Packing,
        /// Order of colours.
        order: Bayer,
    },
}

impl Format {
    /// Number of planes, 1 or 2.
    pub fn planes(self) -> usize {
        if self.chroma_shift().is_some() { 2 } else { 1 }
    }

    /// For a format with chroma, the logarithms of the pixels per pair in a row and in a column.
    pub fn chroma_shift(self) -> Option<(u32, u32)> {
        match self {
            Self::Nv12 => Some((1, 1)),
            Self::Nv16 => Some((1, 0)),
            Self::Nv24 => Some((0, 0)),
            _ => None,
        }
    }

    /// Bytes per row and number of rows of a plane of an image of this size.
    ///
    /// ```
    /// use tegra_image::Format;
    ///
    /// assert_eq!(Format::Nv12.plane_size(0, 640, 480), (640, 480));
    /// assert_eq!(Format::Nv12.plane_size(1, 640, 480), (640, 240));
    /// ```
    pub fn plane_size(self, plane: usize, width: u32, height: u32) -> (u64, u32) {
        let wide = u64::from(width);
        match (self, self.chroma_shift()) {
            (_, Some((x, y))) if plane > 0 => (2 * (wide >> x), height >> y),
            (Self::Rgba8 | Self::Bgra8, _) => (4 * wide, height),
            (Self::Raw { packing: Packing::Words { .. }, .. }, _) => (2 * wide, height),
            (Self::Raw { depth: Depth::Ten, .. }, _) => (wide.div_ceil(4) * 5, height),
            (Self::Raw { depth: Depth::Twelve, .. }, _) => (wide.div_ceil(2) * 3, height),
            _ => (wide, height),
        }
    }

    /// The format of a V4L2 FourCC (`videodev2.h`). Raw samples in 16-bit words have V4L2's shift of 0: see
    /// [`Packing::Words`]. `None` for other formats, also for those whose planes are separate buffers (`NM12`).
    ///
    /// ```
    /// use tegra_image::Format;
    ///
    /// assert_eq!(Format::from_fourcc(*b"NV12"), Some(Format::Nv12));
    /// assert_eq!(Format::from_fourcc(*b"MJPG"), None);
    /// ```
    pub fn from_fourcc(code: [u8; 4]) -> Option<Self> {
        let raw = |depth, packing, order| Some(Self::Raw { depth, packing, order });
        let words = Packing::Words { shift: 0 };
        match &code {
            b"GREY" => Some(Self::Gray8),
            b"NV12" => Some(Self::Nv12),
            b"NV16" => Some(Self::Nv16),
            b"NV24" => Some(Self::Nv24),
            b"AB24" | b"XB24" => Some(Self::Rgba8),
            b"AR24" | b"XR24" => Some(Self::Bgra8),
            b"RG10" => raw(Depth::Ten, words, Bayer::Rggb),
            b"BA10" => raw(Depth::Ten, words, Bayer::Grbg),
            b"GB10" => raw(Depth::Ten, words, Bayer::Gbrg),
            b"BG10" => raw(Depth::Ten, words, Bayer::Bggr),
            b"RG12" => raw(Depth::Twelve, words, Bayer::Rggb),
            b"BA12" => raw(Depth::Twelve, words, Bayer::Grbg),
            b"GB12" => raw(Depth::Twelve, words, Bayer::Gbrg),
            b"BG12" => raw(Depth::Twelve, words, Bayer::Bggr),
            b"pRAA" => raw(Depth::Ten, Packing::Mipi, Bayer::Rggb),
            b"pgAA" => raw(Depth::Ten, Packing::Mipi, Bayer::Grbg),
            b"pGAA" => raw(Depth::Ten, Packing::Mipi, Bayer::Gbrg),
            b"pBAA" => raw(Depth::Ten, Packing::Mipi, Bayer::Bggr),
            b"pRCC" => raw(Depth::Twelve, Packing::Mipi, Bayer::Rggb),
            b"pgCC" => raw(Depth::Twelve, Packing::Mipi, Bayer::Grbg),
            b"pGCC" => raw(Depth::Twelve, Packing::Mipi, Bayer::Gbrg),
            b"pBCC" => raw(Depth::Twelve, Packing::Mipi, Bayer::Bggr),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gray8 => f.write_str("GRAY8"),
            Self::Nv12 => f.write_str("NV12"),
            Self::Nv16 => f.write_str("NV16"),
            Self::Nv24 => f.write_str("NV24"),
            Self::Rgba8 => f.write_str("RGBA8"),
            Self::Bgra8 => f.write_str("BGRA8"),
            Self::Raw { depth, packing, order } => {
                write!(f, "RAW{} {}", depth.bits(), format!("{order:?}").to_uppercase())?;
                if *packing == Packing::Mipi { f.write_str(", MIPI-packed") } else { Ok(()) }
            }
        }
    }
}
