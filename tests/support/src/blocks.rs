//! The block-linear layout, as a reference for copies.

/// Offset of byte `x` of row `y` in a surface of `width` bytes per row, whose blocks are one GOB wide and
/// `1 << block_height_log2` GOBs high. The bits of an offset inside a GOB are x0 to x3, y0, y1, x4, y2, x5, from the
/// lowest up: the sector layout that `drm_fourcc.h` calls that of desktop GPUs and Tegra Xavier and later.
pub fn block_linear_offset(width: usize, block_height_log2: u32, x: usize, y: usize) -> usize {
    let rows = 8 << block_height_log2;
    let block = y / rows * width.div_ceil(64) + x / 64;
    let gob = (block << block_height_log2) + y % rows / 8;
    gob * 512 + (x & 15 | (y & 3) << 4 | (x >> 4 & 1) << 6 | (y >> 2 & 1) << 7 | (x >> 5 & 1) << 8)
}
