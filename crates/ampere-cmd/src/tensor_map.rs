//! Tensor maps: descriptors with which the SMs of a Hopper GPU copy boxes of an array between global and shared memory
//! (`cp.async.bulk.tensor` of PTX).
//!
//! No public header contains the layout. It follows from descriptors that CUDA 13.0 made for arrays that differ in one
//! property each; the tests contain them. Interleaved arrays and steps over elements are not supported.
//!
//! | words | contents |
//! |---|---|
//! | 0, 1 | address of the first element |
//! | 2 | rank - 1 (bits 4 to 6), element (7 to 10), swizzle (13, 14), rounding (16), L2 fetch of a read (17, 18) |
//! | 3 to 6 | distances along the second to fifth axis, in units of 16 bytes |
//! | 7 | 4 more bits of each distance |
//! | 8 to 12 | extents - 1 |
//! | 13 | extent of the box along the first axis - 1 (bits 24 to 31) |
//! | 14 | those along the other axes (8 bits each) |
//! | 16 | bytes of a box |
//! | 18 | bytes after which the order in shared memory repeats |

use crate::words::lower_upper;

/// Words of a descriptor.
pub const WORDS: usize = 32;
/// Alignment of a descriptor in memory, in bytes.
pub const ALIGNMENT: u64 = 64;
/// Most axes of an array.
pub const MAX_AXES: usize = 5;

/// Unit of addresses and distances in bytes.
const UNIT: u64 = 16;
/// First address and distance beyond those that were seen in a descriptor.
const END: (u64, u64) = (1 << 48, 1 << 40);
/// Largest extent of a box.
const MAX_BOX: u32 = 256;
/// Singles are rounded to 11 bits, to nearest.
const ROUND: u32 = 1 << 16;
/// A read fetches 256 bytes into the L2 cache.
const PROMOTE_256: u32 = 3 << 17;

/// Type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Element {
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
    /// Upper half of a single.
    Bf16,
    /// Single, which copies to shared memory round to 11 bits.
    Tf32,
}

impl Element {
    /// Size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::Tf32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    const fn code(self) -> u32 {
        match self {
            Self::U8 => 0,
            Self::U16 => 1,
            Self::U32 => 2,
            Self::I32 => 3,
            Self::U64 => 4,
            Self::I64 => 5,
            Self::F16 => 6,
            Self::F32 | Self::Tf32 => 7,
            Self::F64 => 9,
            Self::Bf16 => 10,
        }
    }
}

/// Order of the pieces of 16 bytes of a row of a box in shared memory, which avoids conflicts of banks. Row `r` has its
/// piece `p` at place `p ^ x`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// As in memory: `x` is 0.
    #[default]
    None,
    /// Rows of 32 bytes: `x` is `r / 4 % 2`.
    Bytes32,
    /// Rows of 64 bytes: `x` is `r / 2 % 4`.
    Bytes64,
    /// Rows of 128 bytes: `x` is `r % 8`.
    Bytes128,
}

impl Swizzle {
    /// The value of the field, the longest row of a box in bytes, and the bytes after which the order repeats.
    const fn fields(self) -> (u32, u64, u32) {
        match self {
            Self::None => (0, u64::MAX, 16),
            Self::Bytes32 => (1, 32, 256),
            Self::Bytes64 => (2, 64, 512),
            Self::Bytes128 => (3, 128, 1024),
        }
    }
}

/// An axis of an array, and of the boxes that a copy moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Elements of the array: 1 to 2^32. A copy writes zeros for elements outside.
    pub extent: u64,
    /// Bytes from one element to the next: a multiple of 16 below 2^40. Not used for the first axis, whose elements are
    /// neighbours.
    pub stride: u64,
    /// Elements of a box: 1 to 256.
    pub tile: u32,
}

/// A tensor map that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorMapError {
    /// The number of axes is not 1 to 5.
    #[error("a tensor map has 1 to {MAX_AXES} axes, not {0}")]
    Rank(usize),
    /// The address is not a multiple of 16 below 2^48.
    #[error("a tensor map's array begins at a multiple of {UNIT} below 2^48, not at {0:#x}")]
    Address(u64),
    /// The extent of an axis is 0 or above 2^32.
    #[error("axis {axis} of a tensor map has {extent} elements; 1 to 2^32 are possible")]
    Extent {
        /// Number of the axis.
        axis: usize,
        /// Its extent.
        extent: u64,
    },
    /// The distance along an axis is not a multiple of 16 below 2^40.
    #[error(
        "axis {axis} of a tensor map has a stride of {stride} bytes; multiples of {UNIT} below 2^40 are possible"
    )]
    Stride {
        /// Number of the axis.
        axis: usize,
        /// Its stride.
        stride: u64,
    },
    /// A box has no elements along an axis, or over 256.
    #[error("a box has {tile} elements along axis {axis}; 1 to {MAX_BOX} are possible")]
    Tile {
        /// Number of the axis.
        axis: usize,
        /// Elements of the box.
        tile: u32,
    },
    /// The rows of a box are not multiples of 16 bytes, or longer than the swizzle's.
    #[error("a box has rows of {bytes} bytes; multiples of {UNIT} up to {limit} are possible")]
    Row {
        /// Bytes of a row.
        bytes: u64,
        /// Longest row.
        limit: u64,
    },
}

/// A descriptor, in 64-byte aligned memory or as a kernel's parameter (`const __grid_constant__`).
///
/// ```
/// use ampere_cmd::tensor_map::{Axis, Element, Swizzle, TensorMap};
///
/// // Boxes of 64 columns and 128 rows of a matrix of 8,192 rows of 4,096 halves.
/// let columns = Axis { extent: 4096, stride: 0, tile: 64 };
/// let rows = Axis { extent: 8192, stride: 8192, tile: 128 };
/// let map = TensorMap::new(Element::F16, 0x1_0000_0000, &[columns, rows], Swizzle::Bytes128)?;
/// assert_eq!(map.words()[16], 64 * 128 * 2);
/// # Ok::<(), ampere_cmd::tensor_map::TensorMapError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap([u32; WORDS]);

impl TensorMap {
    /// A map of the array at `va`. The first axis is the one whose elements are neighbours.
    ///
    /// # Errors
    ///
    /// The variants of [`TensorMapError`].
    pub fn new(element: Element, va: u64, axes: &[Axis], swizzle: Swizzle) -> Result<Self, TensorMapError> {
        let (swizzled, limit, repeats) = swizzle.fields();
        let Some(first) = axes.first().filter(|_| axes.len() <= MAX_AXES) else {
            return Err(TensorMapError::Rank(axes.len()));
        };
        if !va.is_multiple_of(UNIT) || va >= END.0 {
            return Err(TensorMapError::Address(va));
        }
        let mut words = [0; WORDS];
        [words[0], words[1]] = lower_upper(va);
        let bytes = u64::from(first.tile) * u64::from(element.bytes());
        let mut box_bytes = element.bytes();
        for (axis, &Axis { extent, stride, tile }) in axes.iter().enumerate() {
            let last = extent.checked_sub(1).and_then(|last| u32::try_from(last).ok());
            words[8 + axis] = last.ok_or(TensorMapError::Extent { axis, extent })?;
            if !(1..=MAX_BOX).contains(&tile) {
                return Err(TensorMapError::Tile { axis, tile });
            }
            // Five factors of 256 and 8 bytes exceed 32 bits.
            box_bytes = box_bytes.checked_mul(tile).ok_or(TensorMapError::Tile { axis, tile })?;
            if axis == 0 {
                words[13] = (tile - 1) << 24;
                continue;
            }
            if !stride.is_multiple_of(UNIT) || stride >= END.1 {
                return Err(TensorMapError::Stride { axis, stride });
            }
            let [low, high] = lower_upper(stride / UNIT);
            words[2 + axis] = low;
            words[7] |= high << (4 * (axis - 1));
            words[14] |= (tile - 1) << (8 * (axis - 1));
        }
        if !bytes.is_multiple_of(UNIT) || bytes > limit {
            return Err(TensorMapError::Row { bytes, limit });
        }
        // CAST: at most 4.
        words[2] = ((axes.len() - 1) as u32) << 4 | element.code() << 7 | swizzled << 13 | PROMOTE_256;
        if element == Element::Tf32 {
            words[2] |= ROUND;
        }
        words[16] = box_bytes;
        words[18] = repeats;
        Ok(Self(words))
    }

    /// The words of the descriptor.
    #[must_use]
    pub const fn words(&self) -> &[u32; WORDS] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const VA: u64 = 0x7f12_3456_0000;

    fn plane() -> [Axis; 2] {
        [Axis { extent: 4096, stride: 0, tile: 64 }, Axis { extent: 8192, stride: 8192, tile: 128 }]
    }

    /// The words that are not 0, with the L2 fetch of CUDA's descriptors below.
    fn words(map: TensorMap) -> Vec<(usize, u32)> {
        assert_eq!(map.0[2] & PROMOTE_256, PROMOTE_256);
        let mut words = map.0;
        words[2] &= !PROMOTE_256;
        words.into_iter().enumerate().filter(|word| word.1 != 0).collect()
    }

    fn swizzled(axes: &[Axis]) -> Vec<(usize, u32)> {
        words(TensorMap::new(Element::F16, VA, axes, Swizzle::Bytes128).unwrap())
    }

    /// CUDA's words for `plane`, with changes.
    fn seen(changes: &[(usize, u32)]) -> Vec<(usize, u32)> {
        let mut words = [0; WORDS];
        for (at, word) in [(0, 0x3456_0000), (1, 0x7f12), (2, 0x6310), (3, 0x200), (8, 0xfff), (9, 0x1fff)] {
            words[at] = word;
        }
        for &(at, word) in [(13, 0x3f00_0000), (14, 0x7f), (16, 0x4000), (18, 0x400)].iter().chain(changes) {
            words[at] = word;
        }
        words.into_iter().enumerate().filter(|word| word.1 != 0).collect()
    }

    #[test]
    fn maps_have_the_words_of_cuda() {
        let with = |change: fn(&mut [Axis; 2])| {
            let mut axes = plane();
            change(&mut axes);
            swizzled(&axes)
        };
        assert_eq!(with(|_| ()), seen(&[]));
        assert_eq!(with(|axes| axes[0].extent += 1), seen(&[(8, 0x1000)]));
        assert_eq!(with(|axes| axes[1].extent += 1), seen(&[(9, 0x2000)]));
        assert_eq!(with(|axes| axes[1].stride += 16), seen(&[(3, 0x201)]));
        assert_eq!(with(|axes| axes[1].stride = 1 << 36), seen(&[(3, 0), (7, 1)]));
        assert_eq!(with(|axes| axes[0].tile = 32), seen(&[(13, 0x1f00_0000), (16, 0x2000)]));
        assert_eq!(with(|axes| axes[1].tile = 256), seen(&[(14, 0xff), (16, 0x8000)]));
        let [columns, rows] = plane();
        let cube = |extent, stride, tile| swizzled(&[columns, rows, Axis { extent, stride, tile }]);
        let third = [(2, 0x6320), (4, 0x40_0000), (10, 4)];
        assert_eq!(cube(5, 8192 * 8192, 1), seen(&third));
        let more = [(4, 0x40_0001), (10, 5), (14, 0x17f), (16, 0x8000)];
        assert_eq!(cube(6, 8192 * 8192 + 16, 2), seen(&[third.as_slice(), &more].concat()));
        let line = [(2, 0x6300), (3, 0), (9, 0), (14, 0), (16, 0x80)];
        assert_eq!(swizzled(&[columns]), seen(&line));
        let moved = TensorMap::new(Element::F16, VA + 16, &plane(), Swizzle::Bytes128).unwrap();
        assert_eq!(words(moved), seen(&[(0, 0x3456_0010)]));
    }

    #[test]
    fn elements_and_swizzles_have_the_codes_of_cuda() {
        let [mut columns, mut rows] = plane();
        columns.tile = 8;
        let map = |swizzle| words(TensorMap::new(Element::F16, VA, &[columns, rows], swizzle).unwrap());
        let narrow = |flags, repeats| seen(&[(2, flags), (13, 0x700_0000), (16, 0x800), (18, repeats)]);
        assert_eq!(map(Swizzle::None), narrow(0x310, 0x10));
        assert_eq!(map(Swizzle::Bytes32), narrow(0x2310, 0x100));
        assert_eq!(map(Swizzle::Bytes64), narrow(0x4310, 0x200));
        assert_eq!(map(Swizzle::Bytes128), narrow(0x6310, 0x400));
        (columns.tile, rows.stride) = (16, 65536);
        for (element, flags, bytes) in [
            (Element::U8, 0x6010, 0x800),
            (Element::U16, 0x6090, 0x1000),
            (Element::U32, 0x6110, 0x2000),
            (Element::I32, 0x6190, 0x2000),
            (Element::U64, 0x6210, 0x4000),
            (Element::I64, 0x6290, 0x4000),
            (Element::F16, 0x6310, 0x1000),
            (Element::F32, 0x6390, 0x2000),
            (Element::F64, 0x6490, 0x4000),
            (Element::Bf16, 0x6510, 0x1000),
            (Element::Tf32, 0x1_6390, 0x2000),
        ] {
            let map = TensorMap::new(element, VA, &[columns, rows], Swizzle::Bytes128).unwrap();
            let changes = [(2, flags), (3, 0x1000), (13, 0xf00_0000), (16, bytes)];
            assert_eq!(words(map), seen(&changes), "{element:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let map = |axes: &[Axis]| TensorMap::new(Element::F16, VA, axes, Swizzle::Bytes128);
        let with = |axis: usize, change: fn(&mut Axis)| {
            let mut axes = plane();
            change(&mut axes[axis]);
            map(&axes).map(|_| ())
        };
        let [columns, rows] = plane();
        assert_eq!(map(&[]), Err(TensorMapError::Rank(0)));
        assert!(map(&[columns, rows, rows, rows, rows]).is_err(), "boxes of 2^35 bytes");
        let thin = Axis { tile: 1, ..rows };
        assert!(map(&[columns, thin, thin, thin, thin]).is_ok());
        assert_eq!(map(&[columns, thin, thin, thin, thin, thin]), Err(TensorMapError::Rank(6)));
        for va in [VA + 8, 1 << 48] {
            let refused = TensorMap::new(Element::F16, va, &plane(), Swizzle::Bytes128);
            assert_eq!(refused, Err(TensorMapError::Address(va)));
        }
        for axis in [0, 1] {
            assert_eq!(with(axis, |a| a.extent = 0), Err(TensorMapError::Extent { axis, extent: 0 }));
            assert_eq!(with(axis, |a| a.extent = 1 << 32), Ok(()));
            let extent = (1 << 32) + 1;
            assert_eq!(
                with(axis, |a| a.extent = (1 << 32) + 1),
                Err(TensorMapError::Extent { axis, extent })
            );
            assert_eq!(with(axis, |a| a.tile = 0), Err(TensorMapError::Tile { axis, tile: 0 }));
            assert_eq!(with(axis, |a| a.tile = 257), Err(TensorMapError::Tile { axis, tile: 257 }));
        }
        for stride in [8200, 1 << 40] {
            let mut axes = plane();
            axes[1].stride = stride;
            assert_eq!(map(&axes), Err(TensorMapError::Stride { axis: 1, stride }));
        }
        assert_eq!(with(1, |a| a.stride = (1 << 40) - 16), Ok(()));
        assert_eq!(with(0, |a| a.tile = 72), Err(TensorMapError::Row { bytes: 144, limit: 128 }));
        assert_eq!(with(0, |a| a.tile = 4), Err(TensorMapError::Row { bytes: 8, limit: 128 }));
        let wide = Axis { tile: 256, ..columns };
        assert!(TensorMap::new(Element::F16, VA, &[wide, rows], Swizzle::None).is_ok());
    }
}
