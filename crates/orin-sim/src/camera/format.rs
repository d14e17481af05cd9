//! Layout and content of the frames.

/// Pixels of a frame, all planes with the same pitch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameFormat {
    /// A plane of 8-bit luma, and one of half the height with pairs of 8-bit Cb and Cr (V4L2's `NV12`).
    #[default]
    Nv12,
    /// One plane of Bayer samples of 10 bits, in the low bits of 16-bit words (V4L2's `RG10`). How the VI of an Orin
    /// aligns the bits was not seen.
    Raw10,
    /// One plane of four bytes per pixel: red, green, blue, and alpha, which is 255.
    Rgba,
}

/// One plane of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePlane {
    /// First byte in the buffer.
    pub offset: u64,
    /// Bytes of a row without its padding.
    pub row_bytes: u32,
    /// Number of rows.
    pub rows: u32,
}

/// Layout of a frame in its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// Distance of two rows in bytes, of every plane.
    pub pitch: u32,
    /// The planes, one after the other.
    pub planes: Vec<FramePlane>,
    /// Bytes of all planes. A buffer has at least as many, in whole pages of 4 KiB.
    pub bytes: u64,
}

/// Number of samples at the beginning of the first row that show the bits of the frame's number.
pub(super) const NUMBER_BITS: u32 = u32::BITS;

impl FrameFormat {
    /// Bytes of one sample in the first plane.
    pub(super) const fn sample_bytes(self) -> u32 {
        match self {
            Self::Nv12 => 1,
            Self::Raw10 => 2,
            Self::Rgba => 4,
        }
    }

    /// The layout of `width` by `height` pixels with rows `pitch` bytes apart.
    pub(super) fn layout(self, width: u32, height: u32, pitch: u32) -> FrameLayout {
        let row_bytes = width * self.sample_bytes();
        let first = FramePlane { offset: 0, row_bytes, rows: height };
        let size = |rows: u32| u64::from(pitch) * u64::from(rows);
        let mut planes = vec![first];
        if self == Self::Nv12 {
            planes.push(FramePlane { offset: size(height), row_bytes, rows: height / 2 });
        }
        FrameLayout { pitch, bytes: planes.iter().map(|plane| size(plane.rows)).sum(), planes }
    }

    /// Writes row `y` of plane `plane` of a frame: gradients that move with the number, and in the first row the bits
    /// of the number, the lowest first, as darkest and brightest samples.
    pub(super) fn row(self, sequence: u32, plane: usize, y: u32, row: &mut [u8]) {
        let bit = |x: u32| {
            let marked = plane == 0 && y == 0 && x < NUMBER_BITS;
            marked.then(|| if sequence >> x & 1 == 1 { u8::MAX } else { 0 })
        };
        // CAST: patterns are taken modulo 256, and a row has at most 2^17 bytes.
        match self {
            Self::Nv12 => {
                let slope = if plane == 0 { 2 } else { 5 };
                for (x, byte) in (0_u32..).zip(row) {
                    let value = x.wrapping_add(slope * y).wrapping_add(sequence.wrapping_mul(3)) as u8;
                    *byte = bit(x).unwrap_or(value);
                }
            }
            Self::Raw10 => {
                for (x, word) in (0_u32..).zip(row.chunks_exact_mut(2)) {
                    let value = x.wrapping_mul(3).wrapping_add(5 * y).wrapping_add(sequence.wrapping_mul(7));
                    let value = bit(x).map_or(value & 1023, |bright| u32::from(bright != 0) * 1023);
                    word.copy_from_slice(&(value as u16).to_le_bytes());
                }
            }
            Self::Rgba => {
                for (x, pixel) in (0_u32..).zip(row.chunks_exact_mut(4)) {
                    let colour =
                        [x.wrapping_add(sequence) as u8, y.wrapping_add(sequence) as u8, (x ^ y) as u8];
                    let colour = bit(x).map_or(colour, |bright| [bright; 3]);
                    pixel[..3].copy_from_slice(&colour);
                    pixel[3] = u8::MAX;
                }
            }
        }
    }

    /// The number in a frame that begins with these bytes; `None` if there are too few, or if a sample is neither the
    /// darkest nor the brightest.
    pub(super) fn number(self, frame: &[u8]) -> Option<u32> {
        // CAST: at most 4.
        let samples = frame.chunks_exact(self.sample_bytes() as usize).take(NUMBER_BITS as usize);
        let mut number = 0;
        let mut seen = 0;
        for (at, sample) in samples.enumerate() {
            let value = if self == Self::Raw10 {
                u16::from_le_bytes([sample[0], sample[1]])
            } else {
                sample[0].into()
            };
            let brightest = if self == Self::Raw10 { 1023 } else { u16::from(u8::MAX) };
            match value {
                0 => {}
                value if value == brightest => number |= 1 << at,
                _ => return None,
            }
            seen += 1;
        }
        (seen == NUMBER_BITS).then_some(number)
    }
}
