//! Where the texels of a block-linear texture are.
//!
//! A level of a layer is a surface of blocks, which are one GOB wide: see
//! [`BlockSurface`](crate::command::BlockSurface). Its blocks are as high and deep as those of the first level, or as
//! low and flat as possible where that suffices for the level. The levels of a layer follow each other; layers begin at
//! multiples of a block of the first level. Open drivers use this layout since Maxwell.

use crate::command::{GOB_BYTES, GOB_HEIGHT, GOB_WIDTH};

/// Contiguous bytes of a row of a GOB.
const RUN: u64 = 16;

/// The levels of a layer of a block-linear texture.
///
/// ```
/// use ampere_cmd::texture::blocks::Layout;
///
/// // 100 by 40 texels of 4 bytes, in blocks of 2 GOBs.
/// let layout = Layout { width_bytes: 400, height: 40, depth: 1, height_log2: 1, depth_log2: 0 };
/// assert_eq!(layout.level(0, 4).bytes(), 7 * 3 * 1024);
/// assert_eq!(layout.layer_bytes(1, 4), 7 * 3 * 1024);
/// assert_eq!(layout.level(0, 4).offset(16, 0, 0), 64); // the second run of 16 bytes of the first row
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a row of the first level.
    pub width_bytes: u64,
    /// Rows of the first level.
    pub height: u32,
    /// Slices of the first level; 1 if it has no depth.
    pub depth: u32,
    /// Logarithm of the height of a block in GOBs.
    pub height_log2: u32,
    /// Logarithm of the depth of a block in slices.
    pub depth_log2: u32,
}

/// A level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Bytes of a row.
    pub width_bytes: u64,
    /// Rows.
    pub height: u32,
    /// Slices.
    pub depth: u32,
    /// Logarithm of the height of a block in GOBs.
    pub height_log2: u32,
    /// Logarithm of the depth of a block in slices.
    pub depth_log2: u32,
    /// Byte of the layer at which it begins.
    pub start: u64,
}

/// The least logarithm of a power of two that is not less than `count`.
const fn log2_above(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

impl Layout {
    /// A level of a texture whose texels have `texel` bytes.
    #[must_use]
    pub fn level(&self, number: u32, texel: u64) -> Level {
        let mut start = 0;
        for before in 0..number {
            start += self.at(before, texel, start).bytes();
        }
        self.at(number, texel, start)
    }

    fn at(&self, number: u32, texel: u64, start: u64) -> Level {
        let smaller = |size: u32| size.checked_shr(number).unwrap_or(0).max(1);
        let width = (self.width_bytes / texel).checked_shr(number).unwrap_or(0).max(1);
        let (height, depth) = (smaller(self.height), smaller(self.depth));
        Level {
            width_bytes: width * texel,
            height,
            depth,
            height_log2: self.height_log2.min(log2_above(height.div_ceil(GOB_HEIGHT))),
            depth_log2: self.depth_log2.min(log2_above(depth)),
            start,
        }
    }

    /// Bytes from one layer to the next, of a texture with this many levels and bytes of a texel.
    #[must_use]
    pub fn layer_bytes(&self, levels: u32, texel: u64) -> u64 {
        let last = self.level(levels.max(1) - 1, texel);
        let first = self.at(0, texel, 0);
        (last.start + last.bytes()).next_multiple_of(GOB_BYTES << (first.height_log2 + first.depth_log2))
    }
}

impl Level {
    const fn across(&self) -> u64 {
        // CAST: widening.
        self.width_bytes.div_ceil(GOB_WIDTH as u64)
    }

    const fn down(&self) -> u64 {
        // CAST: widening.
        self.height.div_ceil(GOB_HEIGHT << self.height_log2) as u64
    }

    /// Memory in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        // CAST: widening.
        let slabs = self.depth.div_ceil(1 << self.depth_log2) as u64;
        self.across() * self.down() * slabs * (GOB_BYTES << (self.height_log2 + self.depth_log2))
    }

    /// Byte of the layer that holds byte `x` of row `y` of slice `z`, which are inside of the level.
    #[must_use]
    pub const fn offset(&self, x: u64, y: u32, z: u32) -> u64 {
        // CAST: widening.
        let (y, z) = (y as u64, z as u64);
        let rows = (GOB_HEIGHT as u64) << self.height_log2;
        let width = GOB_WIDTH as u64;
        let block = ((z >> self.depth_log2) * self.down() + y / rows) * self.across() + x / width;
        let gob = ((z % (1 << self.depth_log2)) << self.height_log2) + y % rows / GOB_HEIGHT as u64;
        let (x, y) = (x % width, y % GOB_HEIGHT as u64);
        let inside = x / 32 * 256 + y / 4 * 128 + x % 32 / RUN * 64 + y % 4 * RUN + x % RUN;
        self.start + (block << (self.height_log2 + self.depth_log2)) * GOB_BYTES + gob * GOB_BYTES + inside
    }
}
