//! Block-linear surfaces: the location of byte `x` of row `y` of a layer.
//!
//! A surface is divided into GOBs of 64 bytes by 8 rows (512 bytes of memory). GOBs form blocks: one GOB wide, 1 to 32
//! GOBs high and 1 to 32 layers deep. Inside a block the GOBs of a layer are stored top to bottom, layer after layer.
//! Blocks fill the surface row by row, and slab by slab of layers. Width, height and depth are rounded up to whole
//! blocks.
//!
//! Sizes and block sizes are those of SET_SRC_* and SET_DST_* of `clc7b5.h`. Inside a GOB, 16 bytes of a row are
//! contiguous: two columns of 32 bytes, each of two halves of four rows, each of two columns of 16 bytes. Open drivers
//! use this order for colour surfaces since Turing. The headers do not document it. The copy engine of an H100 (C8B5)
//! uses it (`hcq/copy_block_linear` of `cargo xtask test-device`); for C7B5 it is an assumption.

use ampere_cmd::copy_c7b5 as class;
use ampere_cmd::method::Method;

/// Width of a GOB in bytes.
const GOB_WIDTH: u64 = 64;
/// Height of a GOB in rows.
const GOB_HEIGHT: u64 = 8;
/// Memory of a GOB in bytes.
const GOB_BYTES: u64 = GOB_WIDTH * GOB_HEIGHT;
/// Contiguous bytes of a row.
const RUN: u64 = 16;
/// Address bits of the engine.
const VA_BITS: u32 = 49;
/// Maximum logarithm of a block's height and depth: 32 GOBs.
const MAX_LOG2: u32 = 5;

/// The method words that describe the surface of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct SurfaceState {
    /// GPU address of the surface.
    pub(super) va: u64,
    /// SET_SRC_BLOCK_SIZE or SET_DST_BLOCK_SIZE, which have the same layout.
    pub(super) block_size: u32,
    /// Elements per row.
    pub(super) width: u32,
    /// Number of rows.
    pub(super) height: u32,
    /// Number of layers.
    pub(super) depth: u32,
    /// The copied layer.
    pub(super) layer: u32,
    /// First element of the lines.
    pub(super) x: u32,
    /// Row of the first line.
    pub(super) y: u32,
}

/// A rectangle of rows in one layer of a surface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surface {
    va: u64,
    /// Logarithm of the height of a block in GOBs.
    height_log2: u32,
    /// Logarithm of the depth of a block in layers.
    depth_log2: u32,
    /// Number of blocks horizontally.
    across: u64,
    /// Number of blocks vertically.
    down: u64,
    layer: u64,
    /// First byte of the lines.
    x: u64,
    /// Row of the first line.
    y: u64,
}

impl Surface {
    /// Creates the rectangle of `lines` lines of `length` elements of `element` bytes.
    ///
    /// # Errors
    ///
    /// The reason why there is no such surface or rectangle: an invalid block size, an address that is not a multiple
    /// of a GOB, lines that leave the surface, or a surface that leaves the engine's 49-bit address range. The headers
    /// do not specify these cases; silicon may continue into other memory.
    pub(super) fn new(
        state: &SurfaceState,
        element: u64,
        (length, lines): (u64, u32),
    ) -> Result<Self, String> {
        let block = class::SetSrcBlockSize::decode(state.block_size);
        let (height_log2, depth_log2) = (block.height.bits(), block.depth.bits());
        if block.width != class::SetSrcBlockSizeWidth::OneGob
            || block.gob_height != class::SetSrcBlockSizeGobHeight::GobHeightFermi8
            || height_log2 > MAX_LOG2
            || depth_log2 > MAX_LOG2
        {
            return Err(format!("there is no block size {:#x}", state.block_size));
        }
        if !state.va.is_multiple_of(GOB_BYTES) {
            return Err(format!("the surface at {:#x} is not aligned to {GOB_BYTES} bytes", state.va));
        }
        let (x, y) = (u64::from(state.x), u64::from(state.y));
        let inside = x + length <= u64::from(state.width)
            && y + u64::from(lines) <= u64::from(state.height)
            && state.layer < state.depth;
        if !inside {
            return Err(format!(
                "{lines} lines of {length} from ({x}, {y}) of layer {} leave a surface of {} by {} by {}",
                state.layer, state.width, state.height, state.depth
            ));
        }
        let surface = Self {
            va: state.va,
            height_log2,
            depth_log2,
            across: (u64::from(state.width) * element).div_ceil(GOB_WIDTH),
            down: u64::from(state.height).div_ceil(GOB_HEIGHT << height_log2),
            layer: u64::from(state.layer),
            x: x * element,
            y,
        };
        let slabs = u64::from(state.depth).div_ceil(1 << depth_log2);
        let bytes =
            u128::from(surface.across * surface.down) * u128::from(slabs) * u128::from(surface.block_bytes());
        if u128::from(state.va) + bytes > 1 << VA_BITS {
            return Err(format!("a surface of {bytes:#x} bytes at {:#x} leaves the address space", state.va));
        }
        Ok(surface)
    }

    fn block_bytes(&self) -> u64 {
        GOB_BYTES << (self.height_log2 + self.depth_log2)
    }

    /// GPU address of byte `offset` of line `line`, and the number of contiguous bytes from there.
    pub(super) fn at(&self, line: u32, offset: u64) -> (u64, u64) {
        let (x, y, z) = (self.x + offset, self.y + u64::from(line), self.layer);
        let rows = GOB_HEIGHT << self.height_log2;
        let block = ((z >> self.depth_log2) * self.down + y / rows) * self.across + x / GOB_WIDTH;
        let gob = ((z % (1 << self.depth_log2)) << self.height_log2) + y % rows / GOB_HEIGHT;
        let (x, y) = (x % GOB_WIDTH, y % GOB_HEIGHT);
        let inside = x / 32 * 256 + y / 4 * 128 + x % 32 / RUN * 64 + y % 4 * RUN + x % RUN;
        (self.va + block * self.block_bytes() + gob * GOB_BYTES + inside, RUN - x % RUN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: SurfaceState = SurfaceState {
        va: 0x1000,
        block_size: 1 << 12,
        width: 64,
        height: 8,
        depth: 1,
        layer: 0,
        x: 0,
        y: 0,
    };

    fn address(state: SurfaceState, x: u32, y: u32) -> u64 {
        Surface::new(&SurfaceState { x, y, ..state }, 1, (1, 1)).unwrap().at(0, 0).0
    }

    #[test]
    fn a_gob_holds_sixteen_sectors_of_two_half_rows() {
        // The first byte of each 16-byte run, row by row, listed explicitly.
        let expected = [
            [0x000, 0x040, 0x100, 0x140],
            [0x010, 0x050, 0x110, 0x150],
            [0x020, 0x060, 0x120, 0x160],
            [0x030, 0x070, 0x130, 0x170],
            [0x080, 0x0c0, 0x180, 0x1c0],
            [0x090, 0x0d0, 0x190, 0x1d0],
            [0x0a0, 0x0e0, 0x1a0, 0x1e0],
            [0x0b0, 0x0f0, 0x1b0, 0x1f0],
        ];
        for (y, row) in (0..).zip(expected) {
            for (run, offset) in (0..).zip(row) {
                assert_eq!(address(PLAIN, run * 16, y), 0x1000 + offset);
                assert_eq!(address(PLAIN, run * 16 + 15, y), 0x1000 + offset + 15);
            }
        }
    }

    #[test]
    fn blocks_stack_gobs_then_layers_then_go_across_and_down() {
        // Blocks of 2 GOBs by 2 layers; 100 by 40 by 3 makes 2 by 3 blocks in each of 2 slabs.
        let state = SurfaceState { block_size: 0x1110, width: 100, height: 40, depth: 3, ..PLAIN };
        let layer = |layer| SurfaceState { layer, ..state };
        assert_eq!(address(state, 0, 8), 0x1000 + 0x200, "the GOB below");
        assert_eq!(address(layer(1), 0, 0), 0x1000 + 0x400, "the next layer of the block");
        assert_eq!(address(state, 64, 0), 0x1000 + 0x800, "the block to the right");
        assert_eq!(address(state, 0, 16), 0x1000 + 2 * 0x800, "the row of blocks below");
        assert_eq!(address(layer(2), 0, 0), 0x1000 + 6 * 0x800, "the slab behind");
        assert_eq!(address(layer(2), 99, 39), 0x1000 + 11 * 0x800 + 0x100 + 0xb3);
    }

    #[test]
    fn surfaces_that_do_not_exist_are_refused() {
        let refused =
            |state, length, lines| Surface::new(&state, 4, (length, lines)).err().unwrap_or_default();
        for block_size in [0, 1 << 12 | 1, 1 << 12 | 6 << 4, 1 << 12 | 6 << 8, 2 << 12] {
            let reason = refused(SurfaceState { block_size, ..PLAIN }, 1, 1);
            assert!(reason.contains("no block size"), "{block_size:#x}: {reason}");
        }
        assert!(refused(SurfaceState { va: 0x1100, ..PLAIN }, 1, 1).contains("not aligned"));
        assert!(refused(PLAIN, 65, 1).contains("leave a surface"));
        assert!(refused(PLAIN, 1, 9).contains("leave a surface"));
        assert!(refused(SurfaceState { x: 63, ..PLAIN }, 2, 1).contains("leave a surface"));
        assert!(refused(SurfaceState { y: u32::MAX, ..PLAIN }, 1, u32::MAX).contains("leave a surface"));
        assert!(refused(SurfaceState { layer: 1, ..PLAIN }, 1, 1).contains("leave a surface"));
        let huge = SurfaceState { width: u32::MAX, height: u32::MAX, depth: u32::MAX, ..PLAIN };
        assert!(refused(huge, 1, 1).contains("leaves the address space"));
        assert_eq!(refused(PLAIN, 64, 8), "");
    }
}
