//! Tensor cores: HMMA, IMMA, BMMA, DMMA.
//!
//! `D = A * B + C`, where A has M rows of K elements, B has K rows of N columns (stored column by
//! column) and C and D are M by N. M is 8 or 16, N is 8. The matrices are spread over the 32 lanes
//! of a warp; lane `4g + t` holds parts of row `g` of A and of column `g` of B:
//!
//! * a register of A or B holds 32 bits of consecutive elements along k, lowest k in the lowest
//!   bits: word number `t` of the row or column. Further registers hold word `t + 4` and so on; a
//!   16-row A alternates between row `g` and row `g + 8` first;
//! * a 32-bit element of C and D is at row `g`, columns `2t` and `2t + 1`, then at row `g + 8`. With
//!   binary16 accumulation both columns share a register. A binary64 element takes a pair.
//!
//! The register order is that of the operands of PTX `mma`.
//!
//! Floating-point products are exact. The width of the hardware's accumulator is not published (it
//! is not a chain of binary32 additions). The model sums the products and the addend of one
//! instruction in binary64, in the order of k with the addend last, and rounds once. Integer sums
//! are exact.

use super::f16::{self, Half};
use super::{Rounding, f32 as single, f64 as double};

/// One register of all lanes of a warp.
pub(crate) type Row = [u32; 32];

/// Element type of HMMA operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HalfType {
    /// binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// The upper 19 bits of a binary32; the others are ignored.
    Tf32,
}

impl HalfType {
    /// Decodes a two-bit instruction field; `None` for 3, which is illegal.
    #[must_use]
    pub(crate) const fn from_field(field: u32) -> Option<Self> {
        match field {
            0 => Some(Self::F16),
            1 => Some(Self::Bf16),
            2 => Some(Self::Tf32),
            _ => None,
        }
    }

    const fn bits(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 => 32,
        }
    }

    #[inline(always)]
    pub(super) fn value(self, element: u32) -> f64 {
        let bits = match self {
            Self::F16 => f16::widen(Half::F16, element as u16),
            Self::Bf16 => f16::widen(Half::Bf16, element as u16),
            Self::Tf32 => element & 0xffff_e000,
        };
        f64::from(f32::from_bits(bits))
    }
}

/// Element type of IMMA operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IntegerType {
    /// Width: 4 or 8 bits.
    pub(crate) bits: u32,
    /// Two's complement instead of unsigned.
    pub(crate) signed: bool,
}

impl IntegerType {
    pub(super) const fn value(self, element: u32) -> i32 {
        let unused = 32 - self.bits;
        let top = element << unused;
        if self.signed { top as i32 >> unused } else { (top >> unused) as i32 }
    }
}

/// How BMMA combines the bits of A and B before counting ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BitOp {
    /// Exclusive or.
    Xor,
    /// And.
    And,
}

/// Longest row in elements: 64 elements of 4 bits.
pub(super) const MAX_K: usize = 64;

/// Longest row in elements of floating-point products.
const HALF_K: usize = 16;

/// The rows of A (`a` registers of a matrix of `rows` rows) or, with `rows` 8, the columns of B,
/// element by element, of which there are at most `K`.
#[inline(always)]
pub(super) fn rows_of<T: Copy + Default, const K: usize>(
    registers: &[Row],
    rows: usize,
    bits: u32,
    value: impl Fn(u32) -> T,
) -> [[T; K]; 16] {
    let mut matrix = [[T::default(); K]; 16];
    let halves = rows / 8;
    let per_word = 32 / bits as usize;
    for (index, register) in registers.iter().enumerate() {
        for (lane, word) in register.iter().enumerate() {
            let row = lane / 4 + 8 * (index % halves);
            let first = (lane % 4 + 4 * (index / halves)) * per_word;
            for element in 0..per_word {
                let element_bits = word >> (bits as usize * element);
                let masked = if bits == 32 { element_bits } else { element_bits & ((1 << bits) - 1) };
                matrix[row][first + element] = value(masked);
            }
        }
    }
    matrix
}

/// Row and column of element `index` of C or D in `lane`.
pub(super) const fn place(lane: usize, index: usize) -> (usize, usize) {
    (lane / 4 + 8 * (index / 2), 2 * (lane % 4) + index % 2)
}

fn check(a: &[Row], b: &[Row], rows: usize) {
    assert!(matches!(rows, 8 | 16), "a tensor core multiplies 8 or 16 rows, not {rows}");
    assert_eq!(a.len(), b.len() * rows / 8, "A and B must have the same number of elements along k");
}

/// HMMA with binary32 accumulation: 16 rows, `c` and the result in four registers.
///
/// `a` and `b` have 2 and 1 registers (k of 8, or 4 for TF32) or 4 and 2 (k of 16, or 8 for TF32).
/// A NaN result is canonical; subnormals are kept.
///
/// # Panics
///
/// If `a` does not have twice as many registers as `b`.
#[inline(always)]
#[must_use]
pub(crate) fn hmma_f32(kind: HalfType, a: &[Row], b: &[Row], c: &[Row; 4]) -> [Row; 4] {
    let products = half_products(kind, a, b);
    let mut d = [[0; 32]; 4];
    for (index, register) in d.iter_mut().enumerate() {
        for (lane, word) in register.iter_mut().enumerate() {
            let (row, column) = place(lane, index);
            let sum = products[row][column] + f64::from(f32::from_bits(c[index][lane]));
            let rounded = sum as f32;
            *word = if rounded.is_nan() { single::NAN } else { rounded.to_bits() };
        }
    }
    d
}

/// HMMA with binary16 accumulation: 16 rows, `c` and the result in two registers. The operands are
/// binary16 too; see [`hmma_f32`].
///
/// # Panics
///
/// If `a` does not have twice as many registers as `b`.
#[must_use]
pub(crate) fn hmma_f16(a: &[Row], b: &[Row], c: &[Row; 2]) -> [Row; 2] {
    let products = half_products(HalfType::F16, a, b);
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

/// The sums of products of a 16-row HMMA.
#[inline(always)]
fn half_products(kind: HalfType, a: &[Row], b: &[Row]) -> [[f64; 8]; 16] {
    check(a, b, 16);
    let a = rows_of::<_, HALF_K>(a, 16, kind.bits(), |element| kind.value(element));
    let k = 4 * b.len() * (32 / kind.bits()) as usize;
    let b = rows_of::<_, HALF_K>(b, 8, kind.bits(), |element| kind.value(element));
    let mut turned = [[0.0; 8]; HALF_K];
    for (step, row) in turned.iter_mut().enumerate() {
        for (column, to) in row.iter_mut().enumerate() {
            *to = b[column][step];
        }
    }
    // All columns of a row at once, each in the order of k.
    let mut sums = [[-0.0; 8]; 16];
    for (sums, row) in sums.iter_mut().zip(&a) {
        for (x, columns) in row[..k].iter().zip(&turned) {
            for (sum, y) in sums.iter_mut().zip(columns) {
                *sum += x * y;
            }
        }
    }
    sums
}

/// IMMA: `c` and the result in two registers for 8 rows, four for 16 (the rest of the array is
/// ignored and zero).
///
/// With `saturate` the sum is clamped to 32 bits; otherwise it wraps.
///
/// # Panics
///
/// If `rows` is not 8 or 16, if the types differ in width, or if `a` does not have `rows / 8` times as many registers
/// as `b`.
#[must_use]
pub(crate) fn imma(
    (a_type, a): (IntegerType, &[Row]),
    (b_type, b): (IntegerType, &[Row]),
    c: &[Row; 4],
    rows: usize,
    saturate: bool,
) -> [Row; 4] {
    check(a, b, rows);
    assert_eq!(a_type.bits, b_type.bits, "A and B must have elements of one width");
    let k = 4 * b.len() * (32 / a_type.bits) as usize;
    let a = rows_of::<_, MAX_K>(a, rows, a_type.bits, |element| a_type.value(element));
    let b = rows_of::<_, MAX_K>(b, 8, b_type.bits, |element| b_type.value(element));
    each_word(rows, |index, lane| {
        let (row, column) = place(lane, index);
        // 64 products of 8 bits cannot overflow.
        let dot: i32 = a[row][..k].iter().zip(&b[column]).map(|(x, y)| x * y).sum();
        let addend = c[index][lane] as i32;
        (if saturate { addend.saturating_add(dot) } else { addend.wrapping_add(dot) }) as u32
    })
}

/// BMMA: counts the ones of each row of A combined with each column of B, and adds `c`; registers
/// as in [`imma`], 128 or 256 bits along k.
///
/// # Panics
///
/// If `rows` is not 8 or 16, or if `a` does not have `rows / 8` times as many registers as `b`.
#[must_use]
pub(crate) fn bmma(op: BitOp, a: &[Row], b: &[Row], c: &[Row; 4], rows: usize) -> [Row; 4] {
    check(a, b, rows);
    let words = 4 * b.len();
    let a = rows_of::<_, MAX_K>(a, rows, 32, |word| word);
    let b = rows_of::<_, MAX_K>(b, 8, 32, |word| word);
    each_word(rows, |index, lane| {
        let (row, column) = place(lane, index);
        let pairs = a[row][..words].iter().zip(&b[column]);
        let ones: u32 = pairs
            .map(|(x, y)| match op {
                BitOp::Xor => (x ^ y).count_ones(),
                BitOp::And => (x & y).count_ones(),
            })
            .sum();
        c[index][lane].wrapping_add(ones)
    })
}

/// Computes every word of a 32-bit D; the registers of an 8-row D above the second stay zero.
fn each_word(rows: usize, element: impl Fn(usize, usize) -> u32) -> [Row; 4] {
    let mut d = [[0; 32]; 4];
    for (index, register) in d.iter_mut().enumerate().take(rows / 4) {
        for (lane, word) in register.iter_mut().enumerate() {
            *word = element(index, lane);
        }
    }
    d
}

/// DMMA.884: 8 rows and a k of 4. `a` and `b` are the binary64 of each lane, `c` and the result two
/// of them.
///
/// Computed as a chain of fused multiply-adds in the order of k, each rounded by `rounding`.
#[must_use]
pub(crate) fn dmma(a: &[u64; 32], b: &[u64; 32], c: &[[u64; 32]; 2], rounding: Rounding) -> [[u64; 32]; 2] {
    core::array::from_fn(|index| {
        core::array::from_fn(|lane| {
            let (row, column) = place(lane, index);
            (0..4)
                .fold(c[index][lane], |sum, k| double::fma(a[4 * row + k], b[4 * column + k], sum, rounding))
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row() -> impl Strategy<Value = Row> {
        proptest::array::uniform32(any::<u32>())
    }

    /// Small integers, exact in every format and in every order of summation.
    fn small() -> impl Strategy<Value = Vec<i32>> {
        proptest::collection::vec(-8_i32..8, 16 * 16)
    }

    /// Each lane `4g + t` with its `g` and `t`.
    fn lanes() -> impl Iterator<Item = (usize, usize, usize)> {
        (0..32).map(|lane| (lane, lane / 4, lane % 4))
    }

    fn f16_bits(x: i32) -> u32 {
        f16::narrow(Half::F16, (x as f32).to_bits()).into()
    }

    fn bf16_bits(x: i32) -> u32 {
        f16::narrow(Half::Bf16, (x as f32).to_bits()).into()
    }

    fn pair(low: u32, high: u32) -> u32 {
        low | high << 16
    }

    /// `A * B + C` of integers.
    fn product(a: &[i32], b: &[i32], k: usize, c: i32, row: usize, column: usize) -> i32 {
        (0..k).map(|i| a[row * k + i] * b[i * 8 + column]).sum::<i32>() + c
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Fragments as PTX documents them for m16n8k16, written out register by register.
        #[test]
        fn halves_16816(a in small(), b in small(), c in -8_i32..8, bfloat: bool) {
            let bits = if bfloat { bf16_bits } else { f16_bits };
            let at = |row: usize, k: usize| pair(bits(a[row * 16 + k]), bits(a[row * 16 + k + 1]));
            let bt = |k: usize, n: usize| pair(bits(b[k * 8 + n]), bits(b[(k + 1) * 8 + n]));
            let spread = |f: &dyn Fn(usize, usize) -> u32| -> Row { core::array::from_fn(|l| f(l >> 2, l & 3)) };
            let a_registers = [
                spread(&|g, t| at(g, 2 * t)),
                spread(&|g, t| at(g + 8, 2 * t)),
                spread(&|g, t| at(g, 2 * t + 8)),
                spread(&|g, t| at(g + 8, 2 * t + 8)),
            ];
            let b_registers = [spread(&|g, t| bt(2 * t, g)), spread(&|g, t| bt(2 * t + 8, g))];
            let kind = if bfloat { HalfType::Bf16 } else { HalfType::F16 };
            let d = hmma_f32(kind, &a_registers, &b_registers, &[[(c as f32).to_bits(); 32]; 4]);
            for (l, g, t) in lanes() {
                for (register, row, column) in
                    [(0, g, 2 * t), (1, g, 2 * t + 1), (2, g + 8, 2 * t), (3, g + 8, 2 * t + 1)]
                {
                    let expected = product(&a, &b, 16, c, row, column) as f32;
                    prop_assert_eq!(f32::from_bits(d[register][l]), expected);
                }
            }
            if !bfloat {
                let addend = pair(f16_bits(c), f16_bits(c));
                let d = hmma_f16(&a_registers, &b_registers, &[[addend; 32]; 2]);
                for (l, g, t) in lanes() {
                    for (register, row) in [(0, g), (1, g + 8)] {
                        let expected = pair(
                            f16_bits(product(&a, &b, 16, c, row, 2 * t)),
                            f16_bits(product(&a, &b, 16, c, row, 2 * t + 1)),
                        );
                        prop_assert_eq!(d[register][l], expected);
                    }
                }
            }
        }

        #[test]
        fn a_long_k_is_the_sum_of_its_halves(
            a in proptest::array::uniform4(row()),
            b in proptest::array::uniform2(row()),
            bits in prop_oneof![Just(4_u32), Just(8)],
            signed: [bool; 2],
        ) {
            // 16832 is two 16816, and the upper 8 rows of A do not touch the lower 8 of D.
            let types = signed.map(|signed| IntegerType { bits, signed });
            let zero = [[0; 32]; 4];
            let whole = imma((types[0], &a), (types[1], &b), &zero, 16, false);
            let first = imma((types[0], &a[..2]), (types[1], &b[..1]), &zero, 16, false);
            let both = imma((types[0], &a[2..]), (types[1], &b[1..]), &first, 16, false);
            prop_assert_eq!(whole, both);
            let upper = imma((types[0], &a[..1]), (types[1], &b[..1]), &zero, 8, false);
            let lower = imma((types[0], &a[1..2]), (types[1], &b[..1]), &zero, 8, false);
            prop_assert_eq!([upper[0], upper[1], lower[0], lower[1]], first);
            let xor = bmma(BitOp::Xor, &a, &b, &zero, 16);
            let first = bmma(BitOp::Xor, &a[..2], &b[..1], &zero, 16);
            prop_assert_eq!(xor, bmma(BitOp::Xor, &a[2..], &b[1..], &first, 16));
        }

        #[test]
        fn integers_16832(
            a in proptest::array::uniform4(row()),
            b in proptest::array::uniform2(row()),
            c in proptest::array::uniform4(row()),
        ) {
            let types = (IntegerType { bits: 8, signed: false }, IntegerType { bits: 8, signed: true });
            let d = imma((types.0, &a), (types.1, &b), &c, 16, false);
            let saturated = imma((types.0, &a), (types.1, &b), &c, 16, true);
            let byte = |word: u32, index: usize| (word >> (8 * index)) as u8;
            for (l, g, t) in lanes() {
                for (register, row, column) in
                    [(0, g, 2 * t), (1, g, 2 * t + 1), (2, g + 8, 2 * t), (3, g + 8, 2 * t + 1)]
                {
                    let dot: i64 = (0..32)
                        .map(|k: usize| {
                            let holder = (row % 8) * 4 + k % 16 / 4;
                            let x = byte(a[row / 8 + 2 * (k / 16)][holder], k % 4);
                            let y = byte(b[k / 16][column * 4 + k % 16 / 4], k % 4);
                            i64::from(x) * i64::from(y as i8)
                        })
                        .sum();
                    let sum = dot + i64::from(c[register][l] as i32);
                    prop_assert_eq!(d[register][l], sum as u32);
                    let clamped = sum.clamp(i32::MIN.into(), i32::MAX.into());
                    prop_assert_eq!(i64::from(saturated[register][l] as i32), clamped);
                }
            }
        }

        #[test]
        fn doubles_multiply(a in small(), b in small(), c in -8_i32..8) {
            let bits = |x: i32| f64::from(x).to_bits();
            let a_lanes = core::array::from_fn(|l| bits(a[(l >> 2) * 4 + (l & 3)]));
            let b_lanes = core::array::from_fn(|l| bits(b[(l & 3) * 8 + (l >> 2)]));
            let d = dmma(&a_lanes, &b_lanes, &[[bits(c); 32]; 2], Rounding::Nearest);
            for (l, g, t) in lanes() {
                for (index, register) in d.iter().enumerate() {
                    let expected = product(&a, &b, 4, c, g, 2 * t + index);
                    prop_assert_eq!(f64::from_bits(register[l]), f64::from(expected));
                }
            }
        }

        #[test]
        fn tf32_ignores_the_low_bits(a in small(), b in small(), noise in 0_u32..0x2000) {
            let bits = |x: i32| (x as f32).to_bits() | noise;
            let spread = |f: &dyn Fn(usize, usize) -> u32| -> Row { core::array::from_fn(|l| f(l >> 2, l & 3)) };
            let at = |row: usize, k: usize| bits(a[row * 8 + k]);
            let bt = |k: usize, n: usize| bits(b[k * 8 + n]);
            let a_registers = [
                spread(&|g, t| at(g, t)),
                spread(&|g, t| at(g + 8, t)),
                spread(&|g, t| at(g, t + 4)),
                spread(&|g, t| at(g + 8, t + 4)),
            ];
            let b_registers = [spread(&|g, t| bt(t, g)), spread(&|g, t| bt(t + 4, g))];
            let d = hmma_f32(HalfType::Tf32, &a_registers, &b_registers, &[[0; 32]; 4]);
            for (l, g, t) in lanes() {
                let expected = product(&a, &b, 8, 0, g, 2 * t) as f32;
                prop_assert_eq!(f32::from_bits(d[0][l]), expected);
            }
        }
    }

    #[test]
    fn ones_are_counted() {
        let (a, b) = ([[u32::MAX; 32]; 4], [[0x0f; 32]; 2]);
        let c = [[1; 32]; 4];
        assert_eq!(bmma(BitOp::And, &a, &b, &c, 16), [[1 + 8 * 4; 32]; 4]);
        assert_eq!(bmma(BitOp::Xor, &a, &b, &c, 16), [[1 + 8 * 28; 32]; 4]);
        let d = bmma(BitOp::Xor, &a[..1], &b[..1], &c, 8);
        assert_eq!(d, [[1 + 4 * 28; 32], [1 + 4 * 28; 32], [0; 32], [0; 32]]);
    }

    #[test]
    fn a_binary16_sum_is_rounded_once() {
        // 1 + 2^-11 + 2^-20 is above the tie between 1 and the next number.
        let one = 0x3c00;
        let mut a = [[0; 32]; 2];
        let mut b = [[0; 32]; 1];
        // Row 0: [1, 2^-10], column 0: [2^-11, 2^-10].
        a[0][0] = pair(one, 0x1400);
        b[0][0] = pair(0x1000, 0x1400);
        let d = hmma_f16(&a, &b, &[[one; 32]; 2]);
        assert_eq!(d[0][0] & 0xffff, 0x3c01);
        assert_eq!(d[1][0], one);
    }

    #[test]
    fn nan_and_infinity_reach_the_result() {
        let mut a = [[0; 32]; 2];
        a[0][0] = 0x7c00;
        let mut b = [[0; 32]; 1];
        b[0][0] = 0x3c00;
        let d = hmma_f32(HalfType::F16, &a, &b, &[[0; 32]; 4]);
        assert_eq!(d[0][0], f32::INFINITY.to_bits());
        // Column 1 of B is zero: infinity times zero.
        assert_eq!(d[1][0], single::NAN);
        assert_eq!(d[2][0], 0);
    }
}
