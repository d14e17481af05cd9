//! Tensor cores with a sparse A: HMMA.SP and IMMA.SP.
//!
//! Of every four units along k, A holds two, in the layout of a dense A with half the k; *metadata* identifies them.
//! A unit has 16 bits for HMMA and 8 for IMMA: one element, half of a TF32 element, or a pair of 4-bit elements. For
//! each four units the metadata has four bits: the index of the first unit held, then that of the second, lowest k in
//! the lowest bits.
//!
//! One or two of the four lanes `4g` to `4g + 3` hold the metadata of rows `g` and `g + 8`, depending on the selector
//! of the instruction:
//!
//! * 16-bit units, 16 of them along k: lane `selector` holds both rows, row `g` in its lower half;
//! * 16-bit units, 32 along k: lanes `2 selector` and the next hold the first and the second 16 units of
//!   both rows;
//! * 8-bit units, 32 along k: lanes `2 selector` and the next hold row `g` and row `g + 8`;
//! * 8-bit units, 64 along k: two such pairs of lanes, for the first and the second 32 units.
//!
//! Source: PTX ISA, sections on `mma.sp` and its metadata. Sums are rounded as in [`super::mma`].

use super::f16::{self, Half};
use super::f32 as single;
use super::mma::{HalfType, IntegerType, MAX_K, Row, place, rows_of};

/// The metadata operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metadata<'a> {
    /// The register of all lanes.
    pub(crate) register: &'a Row,
    /// Selects the lanes of each four that hold it.
    pub(crate) selector: u32,
}

impl Metadata<'_> {
    /// Indices of the two units that A holds of group `chunk` in `row`. There are `units` units of `bits` bits along k.
    fn kept(&self, row: usize, chunk: usize, units: usize, bits: u32) -> [usize; 2] {
        let selector = self.selector as usize;
        let lane = match (bits, units) {
            (16, 16) => selector,
            (16, _) => 2 * (selector & 1) + chunk / 4,
            (_, 32) => 2 * (selector & 1) + row / 8,
            _ => 2 * (chunk / 8) + row / 8,
        };
        let shift = if bits == 16 { 4 * (chunk % 4) + 16 * (row / 8) } else { 4 * (chunk % 8) };
        let indices = self.register[4 * (row % 8) + lane % 4] >> shift;
        [(indices & 3) as usize, (indices >> 2 & 3) as usize]
    }
}

/// For each element of a 16-row D, the units of A with the matching units of B, four units of k at a time.
fn each_element<T>(
    a: &[Row],
    b: &[Row],
    bits: u32,
    metadata: Metadata,
    element: impl Fn(&mut dyn Iterator<Item = ([u32; 2], [u32; 2])>) -> T,
) -> Vec<Vec<T>> {
    assert_eq!(a.len(), b.len(), "a sparse A of 16 rows has as many registers as B");
    let units = 4 * b.len() * (32 / bits) as usize;
    let (a, b) =
        (rows_of::<_, MAX_K>(a, 16, bits, |unit| unit), rows_of::<_, MAX_K>(b, 8, bits, |unit| unit));
    let dot = |row: usize, column: usize| {
        element(&mut (0..units / 4).map(|chunk| {
            let kept = metadata.kept(row, chunk, units, bits);
            ([0, 1].map(|unit| a[row][2 * chunk + unit]), kept.map(|unit| b[column][4 * chunk + unit]))
        }))
    };
    (0..16).map(|row| (0..8).map(|column| dot(row, column)).collect()).collect()
}

/// The sums of products of a sparse HMMA.
fn products(kind: HalfType, a: &[Row], b: &[Row], metadata: Metadata) -> Vec<Vec<f64>> {
    each_element(a, b, 16, metadata, |pairs| {
        pairs
            .map(|(a, b)| match kind {
                // Both halves of one element.
                HalfType::Tf32 => kind.value(a[0] | a[1] << 16) * kind.value(b[0] | b[1] << 16),
                _ => kind.value(a[0]) * kind.value(b[0]) + kind.value(a[1]) * kind.value(b[1]),
            })
            .sum()
    })
}

/// HMMA.SP with binary32 accumulation: 16 rows, `c` and the result in four registers, `a` and `b` in two or
/// four.
///
/// # Panics
///
/// If `a` and `b` differ in length.
#[must_use]
pub(crate) fn hmma_f32(kind: HalfType, a: &[Row], b: &[Row], c: &[Row; 4], metadata: Metadata) -> [Row; 4] {
    let products = products(kind, a, b, metadata);
    core::array::from_fn(|index| {
        core::array::from_fn(|lane| {
            let (row, column) = place(lane, index);
            let rounded = (products[row][column] + f64::from(f32::from_bits(c[index][lane]))) as f32;
            if rounded.is_nan() { single::NAN } else { rounded.to_bits() }
        })
    })
}

/// HMMA.SP of binary16 with binary16 accumulation; `c` and the result in two registers.
///
/// # Panics
///
/// If `a` and `b` differ in length.
#[must_use]
pub(crate) fn hmma_f16(a: &[Row], b: &[Row], c: &[Row; 2], metadata: Metadata) -> [Row; 2] {
    let products = products(HalfType::F16, a, b, metadata);
    core::array::from_fn(|register| {
        core::array::from_fn(|lane| {
            let addends = f16::unpack(c[register][lane]);
            f16::pack(core::array::from_fn(|half| {
                let (row, column) = place(lane, 2 * register + half);
                let sum = products[row][column] + HalfType::F16.value(addends[half].into());
                f16::narrow_wide(Half::F16, sum)
            }))
        })
    })
}

/// IMMA.SP: 16 rows, `c` and the result in four registers, `a` and `b` in two or four. With `saturate` the
/// sum is clamped to 32 bits, else it wraps.
///
/// # Panics
///
/// If `a` and `b` differ in length.
#[must_use]
pub(crate) fn imma(
    (a_type, a): (IntegerType, &[Row]),
    (b_type, b): (IntegerType, &[Row]),
    c: &[Row; 4],
    saturate: bool,
    metadata: Metadata,
) -> [Row; 4] {
    let product = |a: u32, b: u32| match a_type.bits {
        4 => a_type.value(a & 15) * b_type.value(b & 15) + a_type.value(a >> 4) * b_type.value(b >> 4),
        _ => a_type.value(a) * b_type.value(b),
    };
    let dots: Vec<Vec<i32>> = each_element(a, b, 8, metadata, |pairs| {
        pairs.map(|(a, b)| product(a[0], b[0]) + product(a[1], b[1])).sum()
    });
    core::array::from_fn(|index| {
        core::array::from_fn(|lane| {
            let (row, column) = place(lane, index);
            // CAST: reinterprets the word as signed and back.
            let addend = c[index][lane] as i32;
            let dot = dots[row][column];
            (if saturate { addend.saturating_add(dot) } else { addend.wrapping_add(dot) }) as u32
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::mma;
    use super::*;

    /// Pseudo-random numbers below 2^24.
    fn numbers(seed: u64, count: usize) -> Vec<u32> {
        let mut state = seed;
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as u32
            })
            .collect()
    }

    /// A dense A with two units of each four, its compressed registers and its metadata for `selector`, all
    /// written out by the rules of the module.
    fn sparse(
        units: usize,
        bits: u32,
        selector: u32,
        unit: impl Fn(u32) -> u32,
    ) -> (Vec<Row>, Vec<Row>, Row) {
        let per_word = 32 / bits as usize;
        let words = units / per_word;
        let mut dense = vec![[0u32; 32]; words / 4 * 2];
        let mut held = vec![[0u32; 32]; words / 8 * 2];
        let mut metadata = [0u32; 32];
        let random = numbers(units as u64 + u64::from(bits), 16 * units);
        let put = |registers: &mut Vec<Row>, row: usize, k: usize, value: u32| {
            let word = k / per_word;
            registers[2 * (word / 4) + row / 8][4 * (row % 8) + word % 4] |=
                value << (bits as usize * (k % per_word));
        };
        for row in 0..16 {
            for chunk in 0..units / 4 {
                let choice = random[row * units + chunk] as usize % 6;
                let kept = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][choice];
                let lane = match (bits, units) {
                    (16, 16) => selector as usize,
                    (16, _) => 2 * selector as usize + chunk / 4,
                    (_, 32) => 2 * selector as usize + row / 8,
                    _ => 2 * (chunk / 8) + row / 8,
                };
                let at = if bits == 16 { 4 * (chunk % 4) + 16 * (row / 8) } else { 4 * (chunk % 8) };
                metadata[4 * (row % 8) + lane] |= ((kept[0] | kept[1] << 2) as u32) << at;
                for (half, index) in kept.into_iter().enumerate() {
                    let value = unit(random[row * units + units / 2 + 2 * chunk + half]);
                    put(&mut dense, row, 4 * chunk + index, value);
                    put(&mut held, row, 2 * chunk + half, value);
                }
            }
        }
        (dense, held, metadata)
    }

    fn columns(registers: usize, word: impl Fn(u32) -> u32) -> Vec<Row> {
        let random = numbers(99, 32 * registers);
        random.chunks(32).map(|lanes| core::array::from_fn(|lane| word(lanes[lane]))).collect()
    }

    #[test]
    fn halves_equal_the_dense_product() {
        let f16_of = |number: u32| u32::from(half::f16::from_f32((number % 17) as f32 - 8.0).to_bits());
        let c = [[1.5f32.to_bits(); 32]; 4];
        for (units, selectors) in [(16, 4), (32, 2)] {
            for selector in 0..selectors {
                let (dense, held, register) = sparse(units, 16, selector, f16_of);
                let b = columns(units / 8, |word| f16_of(word) | f16_of(word >> 8) << 16);
                let metadata = Metadata { register: &register, selector };
                let d = hmma_f32(HalfType::F16, &held, &b, &c, metadata);
                // The dense product in pieces of 16 along k.
                let expected = (0..units / 16).fold(c, |sum, part| {
                    mma::hmma_f32(HalfType::F16, &dense[4 * part..][..4], &b[2 * part..][..2], &sum)
                });
                assert_eq!(d, expected, "{units} units, selector {selector}");
                let c = [[0x3c00_3c00; 32]; 2];
                let d = hmma_f16(&held, &b, &c, metadata);
                let expected = (0..units / 16)
                    .fold(c, |sum, part| mma::hmma_f16(&dense[4 * part..][..4], &b[2 * part..][..2], &sum));
                assert_eq!(d, expected, "{units} units, selector {selector}");
            }
        }
    }

    #[test]
    fn integers_equal_the_dense_product() {
        let c = [[5; 32], [u32::MAX; 32], [0; 32], [7; 32]];
        for bits in [8, 4] {
            for (units, selectors) in [(32, 2), (64, 1)] {
                for selector in 0..selectors {
                    let (dense, held, register) = sparse(units, 8, selector, |number| number & 0xff);
                    let b = columns(units / 16, |word| word.wrapping_mul(0x0101_0301));
                    let (left, right) =
                        (IntegerType { bits, signed: true }, IntegerType { bits, signed: false });
                    let metadata = Metadata { register: &register, selector };
                    let d = imma((left, &held), (right, &b), &c, false, metadata);
                    let expected = (0..units / 32).fold(c, |sum, part| {
                        let (a, b) = (&dense[4 * part..][..4], &b[2 * part..][..2]);
                        mma::imma((left, a), (right, b), &sum, 16, false)
                    });
                    assert_eq!(d, expected, "{units} units of {bits} bits, selector {selector}");
                }
            }
        }
        // Saturation.
        let (_, held, register) = sparse(32, 8, 0, |_| 0x7f);
        let metadata = Metadata { register: &register, selector: 0 };
        let kind = IntegerType { bits: 8, signed: true };
        let b = vec![[0x7f7f_7f7f; 32]; 2];
        let d = imma((kind, &held), (kind, &b), &[[i32::MAX as u32; 32]; 4], true, metadata);
        assert_eq!(d, [[i32::MAX as u32; 32]; 4]);
    }

    #[test]
    fn one_of_two_tf32_elements() {
        // Row 0 holds 3 and 5 at k 1 and 2; B is 10 times k.
        let mut register = [0; 32];
        register[0] = 0b0100_1110;
        let mut held = vec![[0; 32]; 2];
        (held[0][0], held[0][1]) = (3f32.to_bits(), 5f32.to_bits());
        let b: Vec<Row> = (0..2)
            .map(|part| core::array::from_fn(|lane| (10.0 * (lane % 4 + 4 * part) as f32).to_bits()))
            .collect();
        let metadata = Metadata { register: &register, selector: 0 };
        let d = hmma_f32(HalfType::Tf32, &held, &b, &[[0; 32]; 4], metadata);
        assert_eq!(f32::from_bits(d[0][0]), 3.0 * 10.0 + 5.0 * 20.0);
    }
}
