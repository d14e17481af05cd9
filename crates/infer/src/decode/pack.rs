//! Weights in the order in which kernels read them.
//!
//! A file stores blocks whose parts have odd sizes: 210 bytes per 256 weights in `Q6_K`. Kernels read 16 bytes at a
//! time, and a warp reads consecutive memory. Packing therefore sorts a matrix into *tiles*: a *unit* of two
//! neighbouring rows for each of a warp's 32 lanes. A tile of floats has two rows of 32 units. A tile of a quantised
//! format has eight rows of 8 units, so that eight warps share rows of 2,048 columns. The tiles of the same rows, a
//! *band*, follow each other; the last one has fewer units if a row is not a whole number of tiles. A tile's bytes are
//! padded to a multiple of 16. No bit of a weight is added, lost or rounded.
//!
//! | format | unit | parts of a tile |
//! |---|---|---|
//! | F32 | 4 weights | the weights |
//! | F16, BF16 | 8 weights | the weights |
//! | `Q4_0`, `Q4_1` | 32 weights | 16 bytes of integers, as in the file; `d`, or `d` and `m` |
//! | `Q5_0`, `Q5_1` | 32 weights | 16 bytes of lower bits, as in the file; 4 bytes of upper bits; `d`, or `d` and `m` |
//! | `Q8_0` | 32 weights | the integers; `d` |
//! | `Q4_K` | 32 weights | 16 bytes of integers; 16 bytes of scales for eight units |
//! | `Q5_K` | 32 weights | 16 bytes of lower bits; 4 bytes of upper bits; 16 bytes of scales for eight units |
//! | `Q6_K` | 32 weights | words 0 to 3 of the integers; words 4 and 5; 2 scales; `d` for eight units |
//! | `Q3_K` | 32 weights | 8 bytes of lower bits; 4 bytes of upper bits; 12 bytes of scales and `d` for eight units |
//! | `Q2_K` | 32 weights | 8 bytes of integers; 2 scales; `d` and `dmin` for eight units |
//! | `IQ4_NL`, `MXFP4` | 32 weights | 16 bytes of places in the table; the scale |
//! | `IQ4_XS` | 32 weights | 16 bytes of places in the table; 8 bytes of scales for eight units, as in the file |
//!
//! A part with 16 bytes for a unit has the units of the first rows of all pairs, then those of the second rows; the
//! other parts have both rows of a pair next to each other. The integers of `Q8_0` are four times 16 bytes for all
//! pairs of units: word 0 of the first row, of the second row, word 1 of the first row, of the second row; words 2 and
//! 3; and so on.
//!
//! A word and a mask give four weights that are neighbours. In `Q4_K` and `Q5_K`, byte `b` of word `j` has weight
//! `8 j + b` in its lower and weight `8 j + 4 + b` in its upper half; the upper bits of these weights are bits `2 j`
//! and `2 j + 1` of byte `b` of their word: that of weight `4 k + b` is bit `k` of byte `b`, also in `Q5_0`,
//! `Q5_1` and `Q3_K`. The lower two bits of `Q2_K` and `Q3_K` are bits `2 k` and `2 k + 1` of byte `b` of two words.
//! Places in a table are in the order of the weights. In `Q6_K`, byte `b` of word `j` has weight `4 j + b` in six bits.
//! The other two bits of words 0 to 2 have the bits 0-1, 2-3 and 4-5 of weight `24 + b`, those of words 3 to 5 the bits
//! of weight `28 + b`. The 16 bytes of scales are `d`, `dmin`, a byte for each of eight units, with its scale and the
//! upper two bits of its minimum, and the lower four bits of each minimum.

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
/// Bytes of the largest block.
const BLOCK_BYTES: usize = 210;
/// Pairs of rows in a tile of a quantised format.
const QUANTISED_PAIRS: usize = 4;

/// How a part of a tile orders the two rows of its pairs.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// First rows of all pairs, then second rows.
    Rows,
    /// Both rows of a unit next to each other.
    Units,
    /// Two words of both rows, in turn, for all units, then the next two.
    Words,
}

/// A part of a tile.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Bytes of an element of a row.
    element: usize,
    /// Units that share an element.
    units: usize,
    order: Order,
}

impl Part {
    const NONE: Self = Self::new(0, 1, Order::Rows);

    const fn new(element: usize, units: usize, order: Order) -> Self {
        Self { element, units, order }
    }

    /// Bytes of 8 units of a row.
    const fn bytes(self) -> usize {
        8 / self.units * self.element
    }

    /// Copies the elements `from` to those of row `row` (0 or 1) of a pair, from the tile's unit `slot` on. `all` has
    /// `slots` units of each row.
    fn scatter(self, from: &[u8], all: &mut [u8], slots: usize, slot: usize, row: usize) {
        let (first, slots) = (slot / self.units, slots / self.units);
        match (self.order, self.element) {
            (_, 0) => {}
            (Order::Rows, bytes) => {
                let start = (row * slots + first) * bytes;
                all[start..start + from.len()].copy_from_slice(from);
            }
            (Order::Units, 1) => scatter_units::<1>(from, all, first, row),
            (Order::Units, 2) => scatter_units::<2>(from, all, first, row),
            (Order::Units, 4) => scatter_units::<4>(from, all, first, row),
            (Order::Units, _) => scatter_units::<8>(from, all, first, row),
            (Order::Words, bytes) => {
                for (element, from) in (first..).zip(from.chunks_exact(bytes)) {
                    for (word, from) in from.as_chunks::<4>().0.iter().enumerate() {
                        let start = (word / 2 * slots + element) * 16 + word % 2 * 8 + row * 4;
                        all[start..start + 4].copy_from_slice(from);
                    }
                }
            }
        }
    }
}

/// Copies elements of `N` bytes to those of row `row` of the units from `first` on.
fn scatter_units<const N: usize>(from: &[u8], all: &mut [u8], first: usize, row: usize) {
    for (to, from) in
        all[2 * first * N..].as_chunks_mut::<N>().0[row..].iter_mut().step_by(2).zip(from.as_chunks().0)
    {
        *to = *from;
    }
}

/// The units of a format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Weights.
    pub(crate) weights: usize,
    /// Pairs of rows in a tile.
    pub(crate) pairs: usize,
    parts: [Part; PARTS],
}

impl Unit {
    pub(crate) const fn of(block: BlockType) -> Self {
        const NONE: Part = Part::NONE;
        const INTEGERS: Part = Part::new(16, 1, Order::Rows);
        const SCALES: Part = Part::new(16, 8, Order::Rows);
        /// A number of bytes for each unit.
        const fn each(bytes: usize) -> Part {
            Part::new(bytes, 1, Order::Units)
        }
        let (weights, parts) = match block {
            BlockType::F32 => (4, [INTEGERS, NONE, NONE, NONE]),
            BlockType::F16 | BlockType::Bf16 => (8, [INTEGERS, NONE, NONE, NONE]),
            BlockType::Q4_0 | BlockType::Iq4Nl => (32, [INTEGERS, NONE, NONE, each(2)]),
            BlockType::Q4_1 => (32, [INTEGERS, NONE, NONE, each(4)]),
            BlockType::Q5_0 => (32, [INTEGERS, each(4), NONE, each(2)]),
            BlockType::Q5_1 => (32, [INTEGERS, each(4), NONE, each(4)]),
            BlockType::Q8_0 => (32, [Part::new(32, 1, Order::Words), NONE, NONE, each(2)]),
            BlockType::Mxfp4 => (32, [INTEGERS, NONE, NONE, each(1)]),
            BlockType::Q2K => (32, [each(8), NONE, each(2), Part::new(4, 8, Order::Units)]),
            BlockType::Q3K => {
                (32, [each(8), each(4), Part::new(12, 8, Order::Rows), Part::new(2, 8, Order::Units)])
            }
            BlockType::Iq4Xs => (32, [INTEGERS, NONE, NONE, Part::new(8, 8, Order::Units)]),
            BlockType::Q4K => (32, [INTEGERS, NONE, SCALES, NONE]),
            BlockType::Q5K => (32, [INTEGERS, each(4), SCALES, NONE]),
            BlockType::Q6K => (32, [INTEGERS, each(8), each(2), Part::new(2, 8, Order::Units)]),
        };
        let pairs = if block.weights() == 1 { 1 } else { QUANTISED_PAIRS };
        Self { weights, pairs, parts }
    }

    /// Bytes of 8 units of a row.
    const fn bytes(self) -> usize {
        self.parts[0].bytes() + self.parts[1].bytes() + self.parts[2].bytes() + self.parts[3].bytes()
    }

    /// Units of a row in a whole tile.
    const fn across(self) -> usize {
        LANES / self.pairs
    }

    /// Bytes of a whole tile.
    pub(crate) const fn tile_bytes(self) -> usize {
        self.bytes_of(self.across())
    }

    /// Bytes of a tile whose rows have `units` units.
    const fn bytes_of(self, units: usize) -> usize {
        (2 * self.pairs * units * self.bytes() / 8).next_multiple_of(16)
    }

    /// Bytes of a band.
    fn band_bytes(self, columns: usize) -> usize {
        let units = columns / self.weights;
        let rest = units % self.across();
        units / self.across() * self.tile_bytes() + if rest == 0 { 0 } else { self.bytes_of(rest) }
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
        let unit = Unit::of(block);
        let end = start + rows.len().div_ceil(2 * unit.pairs) * unit.band_bytes(columns);
        Self { block, columns, rows: rows.len(), start, end }
    }

    /// Bytes of a band.
    pub(crate) fn band_bytes(&self) -> usize {
        Unit::of(self.block).band_bytes(self.columns)
    }

    /// Rows of a band.
    pub(crate) fn band_rows(&self) -> usize {
        2 * Unit::of(self.block).pairs
    }

    /// Number of bands.
    pub(crate) fn bands(&self) -> usize {
        self.rows.div_ceil(self.band_rows())
    }
}

/// Packs the bands from `first` on, as many as `out` has room for. Missing last rows become zeros.
pub(crate) fn pack(rows: &Rows<'_>, first: usize, out: &mut [u8]) {
    let Matrix { block, inputs, .. } = rows.matrices()[0];
    let unit = Unit::of(block);
    for (at, out) in out.chunks_exact_mut(unit.band_bytes(inputs)).enumerate() {
        let start = (first + at) * 2 * unit.pairs;
        out.fill(0);
        for row in start..(start + 2 * unit.pairs).min(rows.len()) {
            pack_row(block, rows.row(row), row - start, out);
        }
    }
}

/// Packs row `row` of a band.
fn pack_row(block: BlockType, from: &[u8], row: usize, out: &mut [u8]) {
    let unit = Unit::of(block);
    // Bytes of the file for a whole tile of a row.
    let step = unit.across() * unit.weights / block.weights() * block.bytes();
    for (from, out) in from.chunks(step).zip(out.chunks_mut(unit.tile_bytes())) {
        let units = from.len() / block.bytes() * block.weights() / unit.weights;
        let (slots, first) = (unit.pairs * units, row / 2 * units);
        let mut rest = out;
        let mut all = unit.parts.map(|part| front(&mut rest, 2 * slots * part.bytes() / 8));
        if block.weights() == 1 {
            unit.parts[0].scatter(from, all[0], slots, first, row % 2);
            continue;
        }
        let mut sorted = [0; BLOCK_BYTES];
        for (at, from) in from.chunks_exact(block.bytes()).enumerate() {
            let mut rest = &mut sorted[..block.bytes()];
            let own =
                unit.parts.map(|part| front(&mut rest, part.bytes() * (block.weights() / unit.weights) / 8));
            pack_block(block, from, own);
            let (mut rest, slot) = (&sorted[..], first + at * (block.weights() / unit.weights));
            for (part, all) in unit.parts.iter().zip(&mut all) {
                let (own, others) = rest.split_at(part.bytes() * (block.weights() / unit.weights) / 8);
                part.scatter(own, all, slots, slot, row % 2);
                rest = others;
            }
        }
    }
}

/// Packs a block into its share of each part.
fn pack_block(block: BlockType, from: &[u8], [quants, high, scales, factors]: [&mut [u8]; PARTS]) {
    match block {
        // Rows of floats are copied as a whole.
        BlockType::F32 | BlockType::F16 | BlockType::Bf16 => {}
        BlockType::Q4_0 | BlockType::Q4_1 | BlockType::Q5_0 | BlockType::Q5_1 | BlockType::Q8_0 => {
            let (scale, rest) = from.split_at(factors.len());
            factors.copy_from_slice(scale);
            let (upper, rest) = rest.split_at(high.len());
            spread_bits(upper, high);
            quants.copy_from_slice(rest);
        }
        BlockType::Iq4Nl | BlockType::Iq4Xs | BlockType::Mxfp4 => {
            let (scale, rest) = from.split_at(factors.len());
            factors.copy_from_slice(scale);
            for (from, out) in rest.chunks_exact(16).zip(quants.chunks_exact_mut(16)) {
                in_order(from, out);
            }
        }
        BlockType::Q2K => {
            scales.copy_from_slice(&from[..16]);
            factors.copy_from_slice(&from[80..]);
            for (group, quants) in quants.chunks_exact_mut(8).enumerate() {
                join_pairs(&from[16 + 32 * (group / 4)..], group % 4, quants);
            }
        }
        BlockType::Q3K => {
            scales.copy_from_slice(&from[96..108]);
            factors.copy_from_slice(&from[108..]);
            for (group, (quants, high)) in
                quants.chunks_exact_mut(8).zip(high.chunks_exact_mut(4)).enumerate()
            {
                join_pairs(&from[32 + 32 * (group / 4)..], group % 4, quants);
                join_bits(&from[..32], group, high);
            }
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

/// The words of a group: four weights each.
type Words = [u32; GROUP / 4];

/// The lower or upper halves of the first 32 bytes.
fn nibbles(bytes: &[u8], upper: usize) -> Words {
    words(bytes).map(|word| word >> (4 * upper) & 0x0f0f_0f0f)
}

/// The first 32 bytes, in words.
fn words(bytes: &[u8]) -> Words {
    let mut words = [0; GROUP / 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// Writes words to bytes.
fn put(words: impl IntoIterator<Item = u32>, out: &mut [u8]) {
    for (out, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
        *out = word.to_le_bytes();
    }
}

/// The lower bits of a group: see the module.
fn join(nibbles: &Words, out: &mut [u8]) {
    put(nibbles.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4), out);
}

/// Bits `2 group` and `2 group + 1` of each of 32 bytes: see the module.
fn join_pairs(bytes: &[u8], group: usize, out: &mut [u8]) {
    let pairs = words(bytes).map(|word| word >> (2 * group) & 0x0303_0303);
    put(pairs.as_chunks::<4>().0.iter().map(|four| (0..4).fold(0, |all, k| all | four[k] << (2 * k))), out);
}

/// Bit `group` of each of 32 bytes: bit `k` of byte `b` is that of weight `4 k + b`.
fn join_bits(bytes: &[u8], group: usize, out: &mut [u8]) {
    let bits = words(bytes).into_iter().enumerate();
    put([bits.fold(0, |all, (k, word)| all | (word >> group & 0x0101_0101) << k)], out);
}

/// Bit `4 k + b` of a word becomes bit `k` of byte `b`. There may be no word.
fn spread_bits(from: &[u8], out: &mut [u8]) {
    let spread = |bytes: &[u8; 4]| {
        let word = u32::from_le_bytes(*bytes);
        (0..8).fold(0, |all, k| all | (((word >> (4 * k) & 15) * 0x0020_4081) & 0x0101_0101) << k)
    };
    put(from.as_chunks().0.iter().map(spread), out);
}

/// Half bytes in the order of the weights, from 16 bytes that have weights 0 to 15 in their lower halves.
fn in_order(from: &[u8], out: &mut [u8]) {
    let (first, second) = out.split_at_mut(out.len() / 2);
    for ((from, first), second) in from.as_chunks::<2>().0.iter().zip(first).zip(second) {
        *first = from[0] & 15 | from[1] << 4;
        *second = from[0] >> 4 | from[1] & 0xf0;
    }
}

/// The integers of a `Q6_K` unit, from four bits each and two bits of 32 bytes, at `shift`: see the module.
fn join_six(low: &Words, high: &[u8], shift: usize, front: &mut [u8], back: &mut [u8]) {
    let mut six = words(high);
    for (six, low) in six.iter_mut().zip(low) {
        *six = low | (*six >> shift & 0x0303_0303) << 4;
    }
    // Bits of weights 24 to 27 in words 0 to 2, of weights 28 to 31 in words 3 to 5.
    let joined = |word: usize| six[word] | (six[6 + word / 3] >> (2 * (word % 3)) & 0x0303_0303) << 6;
    put((0..4).map(joined), front);
    put((4..6).map(joined), back);
}

/// The 16 bytes of scales of a `Q4_K` or `Q5_K` block.
fn header(block: &[u8]) -> [u8; 16] {
    let mut packed = [0; 12];
    packed.copy_from_slice(&block[4..16]);
    let mut minima = 0_u32;
    let mut header = [0; 16];
    header[..4].copy_from_slice(&block[..4]);
    for group in 0..8 {
        let (scale, minimum) = group_scale(&packed, group);
        header[4 + group] = scale | minimum >> 4 << 6;
        minima |= u32::from(minimum & 15) << (4 * group);
    }
    header[12..].copy_from_slice(&minima.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns of whole tiles in each format.
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
            // The last pair of floats has one row; the other formats have eight rows in a tile.
            let rows = if block.weights() == 1 { 4 } else { 8 };
            assert_eq!(tiles.len(), bytes.len() / 3 * rows, "{block}");
            let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
            assert_eq!(ones(&tiles), ones(&bytes), "{block}");
        }
    }

    #[test]
    fn each_bit_of_a_file_has_its_own_bit_in_a_tile() {
        for block in BlockType::ALL.into_iter().filter(|block| block.weights() > 1) {
            let mut seen = std::collections::BTreeSet::new();
            for bit in 0..8 * block.bytes() {
                let mut bytes = vec![0; block.bytes()];
                bytes[bit / 8] = 1 << (bit % 8);
                let one = Matrix { inputs: block.weights(), outputs: 1, ..matrix(block, &bytes) };
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

        let parts: Vec<_> = chain.parts(2, 2).collect();
        assert_eq!(parts, [first.row(2), second.row(0)]);
        assert!(pairs.parts(2, 100).eq([first, second].map(|matrix| &matrix.bytes[matrix.row_bytes()..])));
    }

    #[test]
    fn bands_are_packed_apart_or_together() {
        for block in BlockType::ALL {
            let bytes = bytes_of(block);
            let rows = Rows::Chain(vec![matrix(block, &bytes); 4]);
            let place = Place::new(0, &rows);
            let whole = packed(&rows);
            let mut end = vec![0; whole.len() - place.band_bytes()];
            pack(&rows, 1, &mut end);
            assert_eq!(end, whole[place.band_bytes()..], "{block}");
            assert!(place.bands() > 1);
        }
    }

    #[test]
    fn a_partial_tile_has_the_units_of_its_columns() {
        // 5 units of 32 columns: fewer than the 8 of a whole tile.
        let bytes: Vec<u8> = (0..8 * 5 * 34).map(|at| (at / 34 + 1) as u8).collect();
        let one = Matrix { name: "test", inputs: 160, outputs: 8, block: BlockType::Q8_0, bytes: &bytes };
        let tiles = packed(&Rows::of(one));
        assert_eq!(tiles.len(), bytes.len());
        // Row 6 is the first one of the last pair; its unit 2 is block 32 of the file, and that of row 7 block 37.
        let unit = 3 * 5 + 2;
        let expected: Vec<u8> = [[33; 4], [38; 4], [33; 4], [38; 4]].concat();
        for quarter in 0..4 {
            assert_eq!(tiles[16 * (20 * quarter + unit)..][..16], expected);
        }
        assert_eq!(tiles[64 * 20 + 4 * unit..][..4], [33, 33, 38, 38]);
    }

    #[test]
    fn matrices_are_aligned() {
        let bytes = bytes_of(BlockType::Q6K);
        let place = Place::new(300, &Rows::of(matrix(BlockType::Q6K, &bytes)));
        // 40 units of each row: five tiles of 8 rows.
        assert_eq!((place.start, place.band_bytes(), place.end), (512, 5 * 1680, 512 + 5 * 1680));
    }
}
