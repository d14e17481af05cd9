//! Weights in the order in which kernels read them.
//!
//! A file stores blocks whose parts have odd sizes: 210 bytes per 256 weights in `Q6_K`. Kernels read 16 bytes at a
//! time, and a warp reads consecutive memory. Packing therefore sorts a matrix into *tiles*: two neighbouring rows and
//! one step of columns, a *unit* for each of a warp's 32 lanes. The tiles of a pair of rows follow each other; the
//! last one has fewer units if the row is not a multiple of 32 units. A tile's bytes are padded to a multiple of 16.
//! No bit of a weight is added, lost or rounded.
//!
//! | format | unit | parts of a tile |
//! |---|---|---|
//! | F32 | 4 weights | the weights |
//! | F16, BF16 | 8 weights | the weights |
//! | `Q4_0` | 32 weights | 16 bytes of integers, as in the file; `d` |
//! | `Q8_0` | 16 weights | 16 integers; `d` for two units |
//! | `Q4_K` | 32 weights | 16 bytes of integers; 16 bytes of scales for eight units |
//! | `Q5_K` | 32 weights | 16 bytes of lower bits; 4 bytes of upper bits; 16 bytes of scales for eight units |
//! | `Q6_K` | 32 weights | words 0 to 3 of the integers; words 4 and 5; 2 scales; `d` for eight units |
//!
//! A part has all units of the first row, then those of the second. A word and a mask give four weights that are
//! neighbours. In `Q4_K` and `Q5_K`, byte `b` of word `j` has weight `8 j + b` in its lower and weight `8 j + 4 + b`
//! in its upper half; the upper bits of these weights are bits `2 j` and `2 j + 1` of byte `b` of their word. In
//! `Q6_K`, byte `b` of word `j` has weight `4 j + b` in six bits. The other two bits of words 0 to 2 have the bits
//! 0-1, 2-3 and 4-5 of weight `24 + b`, those of words 3 to 5 the bits of weight `28 + b`. The 16 bytes of scales are
//! `d`, `dmin`, four bits of each of eight scales, four bits of each of eight minima, and the upper two bits of the
//! scales and of the minima.

use crate::blocks::{BlockType, group_scale};
use crate::model::Matrix;

/// Weights of a unit of formats with 4 to 6 bits.
const GROUP: usize = 32;
/// Lanes of a warp.
const LANES: usize = 32;
/// Alignment of a matrix in bytes.
const ALIGNMENT: usize = 256;
/// Number of parts of a tile; formats leave some empty.
const PARTS: usize = 4;

/// The units of a format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Weights.
    pub(crate) weights: usize,
    /// Bytes of each part in 8 units of a row.
    parts: [usize; PARTS],
}

impl Unit {
    pub(crate) const fn of(block: BlockType) -> Self {
        let (weights, parts) = match block {
            BlockType::F32 => (4, [128, 0, 0, 0]),
            BlockType::F16 | BlockType::Bf16 => (8, [128, 0, 0, 0]),
            BlockType::Q4_0 => (32, [128, 0, 0, 16]),
            BlockType::Q8_0 => (16, [128, 0, 0, 8]),
            BlockType::Q4K => (32, [128, 0, 16, 0]),
            BlockType::Q5K => (32, [128, 32, 16, 0]),
            BlockType::Q6K => (32, [128, 64, 16, 2]),
        };
        Self { weights, parts }
    }

    /// Bytes of 8 units of a row.
    const fn bytes(self) -> usize {
        self.parts[0] + self.parts[1] + self.parts[2] + self.parts[3]
    }

    /// Bytes of a tile whose rows have `units` units.
    pub(crate) const fn tile_bytes(self, units: usize) -> usize {
        (2 * units * self.bytes() / 8).next_multiple_of(16)
    }

    /// Bytes of the tiles of two rows.
    fn pair_bytes(self, columns: usize) -> usize {
        let units = columns / self.weights;
        let rest = units % LANES;
        units / LANES * self.tile_bytes(LANES) + if rest == 0 { 0 } else { self.tile_bytes(rest) }
    }
}

/// The rows of a packed matrix, from one or several matrices of the same format and width.
#[derive(Clone, Debug)]
pub(crate) enum Rows<'a> {
    /// All rows of the first matrix, then those of the next.
    Chain(Vec<Matrix<'a>>),
    /// Row 0 of the first, row 0 of the second, row 1 of the first, and so on.
    Pairs([Matrix<'a>; 2]),
}

impl<'a> Rows<'a> {
    /// The rows of one matrix.
    pub(crate) fn of(matrix: Matrix<'a>) -> Self {
        Self::Chain(vec![matrix])
    }

    /// The matrices.
    pub(crate) fn matrices(&self) -> &[Matrix<'a>] {
        match self {
            Self::Chain(matrices) => matrices,
            Self::Pairs(matrices) => matrices,
        }
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.matrices().iter().map(|matrix| matrix.outputs).sum()
    }

    /// The file's bytes of `count` rows from `first` on, an even number: a part of each matrix, perhaps empty.
    pub(super) fn parts(&self, first: usize, count: usize) -> impl Iterator<Item = &'a [u8]> {
        let of_pairs = matches!(self, Self::Pairs(_));
        let mut before = 0;
        self.matrices().iter().map(move |matrix| {
            let rows = |row: usize| {
                let row = if of_pairs { row / 2 } else { row.saturating_sub(before) };
                row.min(matrix.outputs) * matrix.row_bytes()
            };
            let part = &matrix.bytes[rows(first)..rows(first + count)];
            before += matrix.outputs;
            part
        })
    }

    fn row(&self, mut row: usize) -> &'a [u8] {
        match self {
            Self::Pairs(matrices) => matrices[row % 2].row(row / 2),
            Self::Chain(matrices) => {
                for matrix in matrices {
                    if row < matrix.outputs {
                        return matrix.row(row);
                    }
                    row -= matrix.outputs;
                }
                // PANIC: callers stay below `len`.
                unreachable!("the matrices have {} rows", self.len())
            }
        }
    }
}

/// The place of a packed matrix in the buffer of all weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) block: BlockType,
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    /// Where it starts and ends.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Place {
    /// A place from the next suitable address on.
    pub(crate) fn new(start: usize, rows: &Rows<'_>) -> Self {
        let Matrix { block, inputs: columns, .. } = rows.matrices()[0];
        let start = start.next_multiple_of(ALIGNMENT);
        let end = start + rows.len().div_ceil(2) * Unit::of(block).pair_bytes(columns);
        Self { block, columns, rows: rows.len(), start, end }
    }

    /// Bytes of two rows.
    pub(crate) fn pair_bytes(&self) -> usize {
        Unit::of(self.block).pair_bytes(self.columns)
    }

    /// Number of pairs of rows.
    pub(crate) fn pairs(&self) -> usize {
        self.rows.div_ceil(2)
    }
}

/// Packs the pairs of rows from pair `first` on, as many as `out` has room for. A missing last row becomes zeros.
pub(crate) fn pack(rows: &Rows<'_>, first: usize, out: &mut [u8]) {
    let Matrix { block, inputs, .. } = rows.matrices()[0];
    let unit = Unit::of(block);
    for (at, out) in out.chunks_exact_mut(unit.pair_bytes(inputs)).enumerate() {
        let pair = first + at;
        out.fill(0);
        pack_row(block, rows.row(2 * pair), 0, out);
        if 2 * pair + 1 < rows.len() {
            pack_row(block, rows.row(2 * pair + 1), 1, out);
        }
    }
}

/// Packs row `row` (0 or 1) of a pair.
fn pack_row(block: BlockType, from: &[u8], row: usize, out: &mut [u8]) {
    let unit = Unit::of(block);
    // Bytes of the file for a whole tile of a row.
    let step = LANES * unit.weights / block.weights() * block.bytes();
    for (from, out) in from.chunks(step).zip(out.chunks_mut(unit.tile_bytes(LANES))) {
        let units = from.len() / block.bytes() * block.weights() / unit.weights;
        let mut rest = out;
        let parts = unit.parts.map(|bytes| {
            let both = front(&mut rest, 2 * units * bytes / 8);
            &mut both[row * units * bytes / 8..][..units * bytes / 8]
        });
        if block.weights() == 1 {
            parts[0].copy_from_slice(from);
            continue;
        }
        let mut parts = parts;
        for from in from.chunks_exact(block.bytes()) {
            let mut next = 0;
            let own = parts.each_mut().map(|part| {
                let bytes = unit.parts[next] * (block.weights() / unit.weights) / 8;
                next += 1;
                front(part, bytes)
            });
            pack_block(block, from, own);
        }
    }
}

/// Packs a block into its share of each part.
fn pack_block(block: BlockType, from: &[u8], [quants, high, scales, factors]: [&mut [u8]; PARTS]) {
    match block {
        // Rows of floats are copied as a whole.
        BlockType::F32 | BlockType::F16 | BlockType::Bf16 => {}
        BlockType::Q4_0 | BlockType::Q8_0 => {
            factors.copy_from_slice(&from[..2]);
            quants.copy_from_slice(&from[2..]);
        }
        BlockType::Q4K => {
            scales.copy_from_slice(&header(from));
            for (group, out) in quants.chunks_exact_mut(16).enumerate() {
                join(&nibbles(&from[16 + 32 * (group / 2)..], group % 2), out);
            }
        }
        BlockType::Q5K => {
            scales.copy_from_slice(&header(from));
            for (group, (quants, high)) in
                quants.chunks_exact_mut(16).zip(high.chunks_exact_mut(4)).enumerate()
            {
                join(&nibbles(&from[48 + 32 * (group / 2)..], group % 2), quants);
                join_bits(&from[16..48], group, high);
            }
        }
        BlockType::Q6K => {
            scales.copy_from_slice(&from[192..208]);
            factors.copy_from_slice(&from[208..]);
            for (group, (quants, high)) in
                quants.chunks_exact_mut(16).zip(high.chunks_exact_mut(8)).enumerate()
            {
                let (half, quarter) = (group / 4, group % 4);
                let low = nibbles(&from[64 * half + 32 * (quarter % 2)..], quarter / 2);
                join_six(&low, &from[128 + 32 * half..], 2 * quarter, quants, high);
            }
        }
    }
}

/// Takes the first bytes of a slice away.
pub(crate) fn front<'a>(slice: &mut &'a mut [u8], bytes: usize) -> &'a mut [u8] {
    let (front, rest) = core::mem::take(slice).split_at_mut(bytes);
    *slice = rest;
    front
}

/// The lower or upper halves of the first 32 bytes.
fn nibbles(bytes: &[u8], upper: usize) -> [u8; GROUP] {
    let mut out = [0; GROUP];
    for (out, byte) in out.iter_mut().zip(bytes) {
        *out = byte >> (4 * upper) & 15;
    }
    out
}

/// The lower bits of a group: see the module.
fn join(nibbles: &[u8; GROUP], out: &mut [u8]) {
    for (out, eight) in out.chunks_exact_mut(4).zip(nibbles.chunks_exact(8)) {
        for byte in 0..4 {
            out[byte] = eight[byte] | eight[4 + byte] << 4;
        }
    }
}

/// Bit `group` of each of 32 bytes: bit `k` of byte `b` is that of weight `4 k + b`.
fn join_bits(bytes: &[u8], group: usize, out: &mut [u8]) {
    for (byte, out) in out.iter_mut().enumerate() {
        *out = (0..8).fold(0, |bits, k| bits | (bytes[4 * k + byte] >> group & 1) << k);
    }
}

/// The integers of a `Q6_K` unit, from four bits each and two bits of 32 bytes, at `shift`: see the module.
fn join_six(low: &[u8; GROUP], high: &[u8], shift: usize, front: &mut [u8], back: &mut [u8]) {
    let six = |at: usize| low[at] | (high[at] >> shift & 3) << 4;
    for (at, out) in front.iter_mut().chain(back).enumerate() {
        // Bits of weight 24 + b in words 0 to 2, of weight 28 + b in words 3 to 5.
        let (word, byte) = (at / 4, at % 4);
        *out = six(at) | six(24 + word / 3 * 4 + byte) >> (2 * (word % 3)) << 6;
    }
}

/// The 16 bytes of scales of a `Q4_K` or `Q5_K` block.
fn header(block: &[u8]) -> [u8; 16] {
    let mut packed = [0; 12];
    packed.copy_from_slice(&block[4..16]);
    let mut words = [0_u32; 3];
    for group in 0..8 {
        let (scale, minimum) = group_scale(&packed, group);
        let (scale, minimum) = (u32::from(scale), u32::from(minimum));
        words[0] |= (scale & 15) << (4 * group);
        words[1] |= (minimum & 15) << (4 * group);
        words[2] |= scale >> 4 << (2 * group) | minimum >> 4 << (16 + 2 * group);
    }
    let mut header = [0; 16];
    header[..4].copy_from_slice(&block[..4]);
    for (out, word) in header[4..].chunks_exact_mut(4).zip(words) {
        out.copy_from_slice(&word.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns that are no whole tiles in any format.
    const COLUMNS: usize = 1280;

    fn matrix(block: BlockType, bytes: &[u8]) -> Matrix<'_> {
        Matrix { name: "test", inputs: COLUMNS, outputs: 3, block, bytes }
    }

    /// Three rows of random bytes.
    fn bytes_of(block: BlockType) -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(7);
        (0..3 * block.bytes_for(COLUMNS).unwrap()).map(|_| rng.u8(..)).collect()
    }

    fn packed(rows: &Rows<'_>) -> Vec<u8> {
        let place = Place::new(0, rows);
        let mut out = vec![0; place.end];
        pack(rows, 0, &mut out);
        out
    }

    #[test]
    fn a_packed_matrix_has_the_bits_of_the_file() {
        for block in BlockType::ALL {
            let bytes = bytes_of(block);
            let tiles = packed(&Rows::of(matrix(block, &bytes)));
            // The last pair has one row; the last tiles of Q6_K rows are padded.
            let padding = if block == BlockType::Q6K { 2 * 12 } else { 0 };
            assert_eq!(tiles.len(), bytes.len() / 3 * 4 + padding, "{block}");
            let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
            assert_eq!(ones(&tiles), ones(&bytes), "{block}");
        }
    }

    #[test]
    fn each_bit_of_a_file_has_its_own_bit_in_a_tile() {
        for block in [BlockType::Q4K, BlockType::Q5K, BlockType::Q6K] {
            let mut seen = std::collections::BTreeSet::new();
            for bit in 0..8 * block.bytes() {
                let mut bytes = vec![0; block.bytes()];
                bytes[bit / 8] = 1 << (bit % 8);
                let one = Matrix { inputs: 256, outputs: 1, ..matrix(block, &bytes) };
                let tiles = packed(&Rows::of(one));
                let at = tiles.iter().position(|byte| *byte != 0).unwrap();
                assert!(seen.insert((at, tiles[at])), "{block}: bit {bit}");
            }
        }
    }

    #[test]
    fn rows_are_chained_or_paired_and_parts_give_the_same_bytes() {
        let block = BlockType::Q6K;
        let (first, mut second) = (bytes_of(block), bytes_of(block));
        second.reverse();
        let (first, second) = (matrix(block, &first), matrix(block, &second));
        let chain = Rows::Chain(vec![first, second]);
        assert_eq!((chain.len(), chain.row(1), chain.row(4)), (6, first.row(1), second.row(1)));
        let pairs = Rows::Pairs([first, second]);
        assert_eq!((pairs.len(), pairs.row(2), pairs.row(5)), (6, first.row(1), second.row(2)));

        let whole = packed(&pairs);
        let parts: Vec<_> = chain.parts(2, 2).collect();
        assert_eq!(parts, [first.row(2), second.row(0)]);
        assert!(pairs.parts(2, 100).eq([first, second].map(|matrix| &matrix.bytes[matrix.row_bytes()..])));

        let mut end = vec![0; whole.len() / 3 * 2];
        pack(&pairs, 1, &mut end);
        assert_eq!(end, whole[whole.len() / 3..]);
    }

    #[test]
    fn matrices_are_aligned() {
        let bytes = bytes_of(BlockType::Q6K);
        let place = Place::new(300, &Rows::of(matrix(BlockType::Q6K, &bytes)));
        // 40 units: a tile of 32 and one of 8, padded from 420 to 432 bytes.
        assert_eq!((place.start, place.pair_bytes(), place.end), (512, 1680 + 432, 512 + 2 * 2112));
    }
}
