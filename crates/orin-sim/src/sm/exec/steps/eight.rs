//! Values of eight lanes: arrays, or vector registers of x86-64 with AVX2 and FMA.
//!
//! The compiler vectorises loops over rows only if it can prove that rows do not overlap, so the handlers name vectors.
//! They have no closures over vectors: the compiler would not inline vector instructions into them.

use crate::sm::numeric::mufu::{Function, mufu_each};
use crate::sm::warp::Row;

/// Eight lanes in order.
pub(super) type Part = [u32; 8];

/// Operations on values of lanes. Comparisons return all ones in the lanes where they hold.
pub(super) trait Lanes: Copy {
    fn splat(value: u32) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    /// Lower words of products.
    fn mul(self, other: Self) -> Self;
    /// Lower and upper words of products.
    fn mul_wide(self, other: Self, signed: bool) -> [Self; 2];
    /// Shifts by 0 to 31.
    fn shift_left(self, amount: u32) -> Self;
    fn shift_right(self, amount: u32) -> Self;
    fn shift_right_signed(self, amount: u32) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn equal(self, other: Self) -> Self;
    /// Compares as signed.
    fn below(self, other: Self) -> Self;
    fn add_float(self, other: Self) -> Self;
    fn mul_float(self, other: Self) -> Self;
    /// `self * other + third`, rounded once.
    fn fma(self, other: Self, third: Self) -> Self;
    /// `self * other + third`, rounded once towards minus infinity.
    fn fma_down(self, other: Self, third: Self) -> Self;
    /// Floats from signed words, rounded to nearest.
    fn signed_to_float(self) -> Self;
    /// The nearest integer, or the next one towards 0; `1 << 31` for NaN and what is outside of the range.
    fn float_to_signed(self, towards_zero: bool) -> Self;
    /// The function of MUFU with a number below 10.
    fn mufu(self, function: u32) -> Self;
    /// Shifts each half.
    fn halves_right_signed(self, amount: u32) -> Self;
    /// The sum of the products of the halves, which have a sign.
    fn mul_halves(self, other: Self) -> Self;
    fn is_nan(self) -> Self;
    fn equal_float(self, other: Self) -> Self;
    fn less_float(self, other: Self) -> Self;
    fn at_most_float(self, other: Self) -> Self;
    /// `yes` in the lanes where `self` is all ones, `no` where it is zero.
    fn select(self, yes: Self, no: Self) -> Self;
    /// In each lane the bytes with the numbers in `selector`, one in each byte; 0 where its top bit is set.
    fn bytes(self, selector: u32) -> Self;
}

/// Values of eight lanes.
pub(super) trait Eight: Lanes {
    fn load(from: &Part) -> Self;
    fn store(self, to: &mut Part);
    /// The sign bits; lane 0 has the lowest.
    fn bits(self) -> u32;
}

/// All ones in the lanes of each mask of eight.
pub(super) static LANES: [Part; 256] = {
    let mut table = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let mut lane = 0;
        while lane < 8 {
            table[mask][lane] = if mask >> lane & 1 != 0 { !0 } else { 0 };
            lane += 1;
        }
        mask += 1;
    }
    table
};

/// Values of the control register of float operations that round to nearest, and down.
#[cfg(target_arch = "x86_64")]
pub(super) static ROUNDING: [u32; 2] = [0x1f80, 0x3f80];

/// Returns all ones in the lanes of the low eight bits of `mask`.
#[inline(always)]
pub(super) fn lanes_of<V: Eight>(mask: u32) -> V {
    V::load(&LANES[mask as usize & 255])
}

/// Returns eight lanes of a row.
#[inline(always)]
pub(super) fn part<V: Eight>(row: &Row, at: usize) -> V {
    V::load(&row.as_chunks().0[at])
}

/// Writes the lanes of `mask` of a row.
#[inline(always)]
pub(super) fn write<V: Eight>(row: &mut Row, mask: u32, values: [V; 4]) {
    let parts = row.as_chunks_mut::<8>().0;
    if mask == !0 {
        for at in 0..4 {
            values[at].store(&mut parts[at]);
        }
    } else {
        for at in 0..4 {
            // Not `select`: the compiler would make a masked store of it, which takes AMD dozens of clocks.
            let kept = V::load(&parts[at]);
            let changed = kept.xor(values[at]).and(lanes_of(mask >> (8 * at)));
            kept.xor(changed).store(&mut parts[at]);
        }
    }
}

/// MUFU of eight lanes in memory, for handlers and generated code.
///
/// # Safety
///
/// The processor must have the features. Nothing else may use the words meanwhile.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe extern "sysv64" fn mufu_in_place(words: *mut Part, function: u32) {
    if let Some(function) = Function::from_field(function) {
        // SAFETY: as the caller guarantees.
        mufu_each(function, unsafe { &mut *words });
    }
}

/// Applies `f` to eight lanes.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn each(f: impl Fn(usize) -> u32) -> Part {
    let mut out = [0; 8];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = f(lane);
    }
    out
}

/// All ones if `holds`.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn ones(holds: bool) -> u32 {
    if holds { !0 } else { 0 }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn float(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// The lower and the upper half.
// CAST: halves of a word, reinterpreted as signed.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn halves(word: u32) -> [i16; 2] {
    [word as i16, (word >> 16) as i16]
}

// CAST: in the functions below, reinterprets words as signed and back, or takes halves of products.
#[cfg(any(test, not(target_arch = "x86_64")))]
impl Lanes for Part {
    #[inline(always)]
    fn splat(value: u32) -> Self {
        [value; 8]
    }
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        each(|lane| self[lane] & other[lane])
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        each(|lane| self[lane] | other[lane])
    }
    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        each(|lane| self[lane] ^ other[lane])
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        each(|lane| self[lane].wrapping_add(other[lane]))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        each(|lane| self[lane].wrapping_sub(other[lane]))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        each(|lane| self[lane].wrapping_mul(other[lane]))
    }
    #[inline(always)]
    fn mul_wide(self, other: Self, signed: bool) -> [Self; 2] {
        let product = |lane: usize| {
            if signed {
                (i64::from(self[lane] as i32) * i64::from(other[lane] as i32)) as u64
            } else {
                u64::from(self[lane]) * u64::from(other[lane])
            }
        };
        [each(|lane| product(lane) as u32), each(|lane| (product(lane) >> 32) as u32)]
    }
    #[inline(always)]
    fn shift_left(self, amount: u32) -> Self {
        each(|lane| self[lane] << amount)
    }
    #[inline(always)]
    fn shift_right(self, amount: u32) -> Self {
        each(|lane| self[lane] >> amount)
    }
    #[inline(always)]
    fn shift_right_signed(self, amount: u32) -> Self {
        each(|lane| (self[lane] as i32 >> amount) as u32)
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        each(|lane| Ord::min(self[lane], other[lane]))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        each(|lane| Ord::max(self[lane], other[lane]))
    }
    #[inline(always)]
    fn equal(self, other: Self) -> Self {
        each(|lane| ones(self[lane] == other[lane]))
    }
    #[inline(always)]
    fn below(self, other: Self) -> Self {
        each(|lane| ones((self[lane] as i32) < other[lane] as i32))
    }
    #[inline(always)]
    fn add_float(self, other: Self) -> Self {
        each(|lane| (float(self[lane]) + float(other[lane])).to_bits())
    }
    #[inline(always)]
    fn mul_float(self, other: Self) -> Self {
        each(|lane| (float(self[lane]) * float(other[lane])).to_bits())
    }
    #[inline(always)]
    fn fma(self, other: Self, third: Self) -> Self {
        each(|lane| float(self[lane]).mul_add(float(other[lane]), float(third[lane])).to_bits())
    }
    #[inline(always)]
    fn fma_down(self, other: Self, third: Self) -> Self {
        each(|lane| {
            crate::sm::numeric::f32::fma(
                self[lane],
                other[lane],
                third[lane],
                crate::sm::numeric::Rounding::Down,
                false,
            )
        })
    }
    #[inline(always)]
    fn signed_to_float(self) -> Self {
        each(|lane| (self[lane] as i32 as f32).to_bits())
    }
    #[inline(always)]
    fn float_to_signed(self, towards_zero: bool) -> Self {
        each(|lane| {
            let x = float(self[lane]);
            let x = if towards_zero { x.trunc() } else { x.round_ties_even() };
            if (-2147483648.0..2147483648.0).contains(&x) { x as i32 as u32 } else { 1 << 31 }
        })
    }
    #[inline(always)]
    fn mufu(mut self, function: u32) -> Self {
        if let Some(function) = Function::from_field(function) {
            mufu_each(function, &mut self);
        }
        self
    }
    #[inline(always)]
    fn halves_right_signed(self, amount: u32) -> Self {
        each(|lane| {
            let [low, high] = halves(self[lane]).map(|half| u32::from((half >> amount) as u16));
            high << 16 | low
        })
    }
    #[inline(always)]
    fn mul_halves(self, other: Self) -> Self {
        each(|lane| {
            let ([a, b], [c, d]) = (halves(self[lane]), halves(other[lane]));
            (i32::from(a) * i32::from(c)).wrapping_add(i32::from(b) * i32::from(d)) as u32
        })
    }
    #[inline(always)]
    fn is_nan(self) -> Self {
        each(|lane| ones(float(self[lane]).is_nan()))
    }
    #[inline(always)]
    fn equal_float(self, other: Self) -> Self {
        each(|lane| ones(float(self[lane]) == float(other[lane])))
    }
    #[inline(always)]
    fn less_float(self, other: Self) -> Self {
        each(|lane| ones(float(self[lane]) < float(other[lane])))
    }
    #[inline(always)]
    fn at_most_float(self, other: Self) -> Self {
        each(|lane| ones(float(self[lane]) <= float(other[lane])))
    }
    #[inline(always)]
    fn select(self, yes: Self, no: Self) -> Self {
        each(|lane| yes[lane] & self[lane] | no[lane] & !self[lane])
    }
    #[inline(always)]
    fn bytes(self, selector: u32) -> Self {
        each(|lane| {
            let from = self[lane].to_le_bytes();
            u32::from_le_bytes(
                selector
                    .to_le_bytes()
                    .map(|number| if number & 0x80 != 0 { 0 } else { from[usize::from(number & 3)] }),
            )
        })
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
impl Eight for Part {
    #[inline(always)]
    fn load(from: &Part) -> Self {
        *from
    }
    #[inline(always)]
    fn store(self, to: &mut Part) {
        *to = self;
    }
    #[inline(always)]
    fn bits(self) -> u32 {
        (0..8).fold(0, |bits, lane| bits | self[lane] >> 31 << lane)
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use Part as Native;
#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2 as Native;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::*;

    use super::{Eight, Lanes, Part, ROUNDING, mufu_in_place};

    /// Eight lanes in a vector register. Only handlers that were chosen because the processor has AVX2 and FMA use it.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2(__m256i);

    /// Applies intrinsics, which need no more than the features of the processor.
    macro_rules! vector {
        ($value:expr) => {
            // SAFETY: the processor has AVX2 and FMA: see `Avx2`.
            Avx2(unsafe { $value })
        };
    }

    /// Applies an intrinsic for floats to vectors of integers.
    macro_rules! floats {
        ($function:ident $(::<$mode:ident>)?, $($operand:expr),+) => {
            vector!(_mm256_castps_si256($function$(::<$mode>)?($(_mm256_castsi256_ps($operand.0)),+)))
        };
    }

    // CAST: in the functions below, reinterprets words as signed, as the intrinsics take them.
    impl Lanes for Avx2 {
        #[inline(always)]
        fn splat(value: u32) -> Self {
            vector!(_mm256_set1_epi32(value as i32))
        }
        #[inline(always)]
        fn and(self, other: Self) -> Self {
            vector!(_mm256_and_si256(self.0, other.0))
        }
        #[inline(always)]
        fn or(self, other: Self) -> Self {
            vector!(_mm256_or_si256(self.0, other.0))
        }
        #[inline(always)]
        fn xor(self, other: Self) -> Self {
            vector!(_mm256_xor_si256(self.0, other.0))
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            vector!(_mm256_add_epi32(self.0, other.0))
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            vector!(_mm256_sub_epi32(self.0, other.0))
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            vector!(_mm256_mullo_epi32(self.0, other.0))
        }
        #[inline(always)]
        fn mul_wide(self, other: Self, signed: bool) -> [Self; 2] {
            let a = vector!(_mm256_srli_epi64::<32>(self.0));
            let b = vector!(_mm256_srli_epi64::<32>(other.0));
            let (even, odd) = if signed {
                (vector!(_mm256_mul_epi32(self.0, other.0)), vector!(_mm256_mul_epi32(a.0, b.0)))
            } else {
                (vector!(_mm256_mul_epu32(self.0, other.0)), vector!(_mm256_mul_epu32(a.0, b.0)))
            };
            let low = vector!(_mm256_blend_epi32::<0xaa>(even.0, _mm256_slli_epi64::<32>(odd.0)));
            let high = vector!(_mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(even.0), odd.0));
            [low, high]
        }
        #[inline(always)]
        fn shift_left(self, amount: u32) -> Self {
            vector!(_mm256_sll_epi32(self.0, _mm_cvtsi32_si128(amount as i32)))
        }
        #[inline(always)]
        fn shift_right(self, amount: u32) -> Self {
            vector!(_mm256_srl_epi32(self.0, _mm_cvtsi32_si128(amount as i32)))
        }
        #[inline(always)]
        fn shift_right_signed(self, amount: u32) -> Self {
            vector!(_mm256_sra_epi32(self.0, _mm_cvtsi32_si128(amount as i32)))
        }
        #[inline(always)]
        fn min(self, other: Self) -> Self {
            vector!(_mm256_min_epu32(self.0, other.0))
        }
        #[inline(always)]
        fn max(self, other: Self) -> Self {
            vector!(_mm256_max_epu32(self.0, other.0))
        }
        #[inline(always)]
        fn equal(self, other: Self) -> Self {
            vector!(_mm256_cmpeq_epi32(self.0, other.0))
        }
        #[inline(always)]
        fn below(self, other: Self) -> Self {
            vector!(_mm256_cmpgt_epi32(other.0, self.0))
        }
        #[inline(always)]
        fn add_float(self, other: Self) -> Self {
            floats!(_mm256_add_ps, self, other)
        }
        #[inline(always)]
        fn mul_float(self, other: Self) -> Self {
            floats!(_mm256_mul_ps, self, other)
        }
        #[inline(always)]
        fn fma(self, other: Self, third: Self) -> Self {
            floats!(_mm256_fmadd_ps, self, other, third)
        }
        #[inline(always)]
        fn fma_down(self, other: Self, third: Self) -> Self {
            let (mut a, mut b, mut c): (Part, Part, Part) = ([0; 8], [0; 8], [0; 8]);
            self.store(&mut a);
            other.store(&mut b);
            third.store(&mut c);
            // SAFETY: the processor has AVX2 and FMA. The control register has its usual value outside of the block,
            // and the memory that the instructions access is that of the arrays and constants.
            unsafe {
                core::arch::asm!(
                    "vmovups ymm0, [{a}]",
                    "vmovups ymm1, [{c}]",
                    "vldmxcsr [{down}]",
                    "vfmadd231ps ymm1, ymm0, [{b}]",
                    "vldmxcsr [{nearest}]",
                    "vmovups [{c}], ymm1",
                    a = in(reg) a.as_ptr(),
                    b = in(reg) b.as_ptr(),
                    c = in(reg) c.as_mut_ptr(),
                    down = in(reg) &raw const ROUNDING[1],
                    nearest = in(reg) &raw const ROUNDING[0],
                    out("xmm0") _,
                    out("xmm1") _,
                    options(nostack, preserves_flags),
                );
            }
            Self::load(&c)
        }
        #[inline(always)]
        fn signed_to_float(self) -> Self {
            vector!(_mm256_castps_si256(_mm256_cvtepi32_ps(self.0)))
        }
        #[inline(always)]
        fn float_to_signed(self, towards_zero: bool) -> Self {
            if towards_zero {
                vector!(_mm256_cvttps_epi32(_mm256_castsi256_ps(self.0)))
            } else {
                vector!(_mm256_cvtps_epi32(_mm256_castsi256_ps(self.0)))
            }
        }
        #[inline(always)]
        fn mufu(self, function: u32) -> Self {
            let mut words = [0; 8];
            self.store(&mut words);
            // SAFETY: the processor has the features: see `Avx2`. The pointer is that of eight words.
            unsafe { mufu_in_place(&raw mut words, function) };
            Self::load(&words)
        }
        #[inline(always)]
        fn halves_right_signed(self, amount: u32) -> Self {
            vector!(_mm256_sra_epi16(self.0, _mm_cvtsi32_si128(amount as i32)))
        }
        #[inline(always)]
        fn mul_halves(self, other: Self) -> Self {
            vector!(_mm256_madd_epi16(self.0, other.0))
        }
        #[inline(always)]
        fn is_nan(self) -> Self {
            floats!(_mm256_cmp_ps::<_CMP_UNORD_Q>, self, self)
        }
        #[inline(always)]
        fn equal_float(self, other: Self) -> Self {
            floats!(_mm256_cmp_ps::<_CMP_EQ_OQ>, self, other)
        }
        #[inline(always)]
        fn less_float(self, other: Self) -> Self {
            floats!(_mm256_cmp_ps::<_CMP_LT_OQ>, self, other)
        }
        #[inline(always)]
        fn at_most_float(self, other: Self) -> Self {
            floats!(_mm256_cmp_ps::<_CMP_LE_OQ>, self, other)
        }
        #[inline(always)]
        fn select(self, yes: Self, no: Self) -> Self {
            floats!(_mm256_blendv_ps, no, yes, self)
        }
        #[inline(always)]
        fn bytes(self, selector: u32) -> Self {
            // The instruction counts bytes from the start of each group of four lanes.
            let first = [0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c];
            let first: Part =
                [first[0], first[1], first[2], first[3], first[0], first[1], first[2], first[3]];
            let order = Self::load(&first).add(Self::splat(selector));
            vector!(_mm256_shuffle_epi8(self.0, order.0))
        }
    }
    // CAST: as above.
    impl Eight for Avx2 {
        #[inline(always)]
        fn load(from: &Part) -> Self {
            // The pointer is that of eight words.
            vector!(_mm256_loadu_si256(from.as_ptr().cast()))
        }
        #[inline(always)]
        fn store(self, to: &mut Part) {
            // SAFETY: the processor has AVX2; the pointer is that of eight words.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), self.0) }
        }
        #[inline(always)]
        fn bits(self) -> u32 {
            // SAFETY: the processor has AVX.
            unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(self.0)) as u32 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::sm::exec::steps::tests::SPECIAL;

    /// Values with many special cases.
    #[cfg(target_arch = "x86_64")]
    fn samples() -> Vec<Part> {
        let word = |at: usize| SPECIAL[at % SPECIAL.len()];
        (0..64).map(|at| core::array::from_fn(|lane| word(at * 5 + lane * (at % 7 + 1)))).collect()
    }

    /// All operations on three values.
    #[cfg(target_arch = "x86_64")]
    fn all<V: Eight>([a, b, c]: [&Part; 3]) -> Vec<Part> {
        let [a, b, c] = [a, b, c].map(V::load);
        let [low, high] = a.mul_wide(b, false);
        let [low_signed, high_signed] = a.mul_wide(b, true);
        // NaN results are compared as such: processors disagree about their bits.
        let canonical = |x: V| x.is_nan().select(V::splat(0x7fff_ffff), x);
        let results = [
            a.and(b),
            a.or(b),
            a.xor(b),
            a.add(b),
            a.sub(b),
            a.mul(b),
            low,
            high,
            low_signed,
            high_signed,
            a.shift_left(7),
            a.shift_right(7),
            a.shift_right_signed(31),
            a.min(b),
            a.max(b),
            a.equal(b),
            a.below(b),
            canonical(a.add_float(b)),
            canonical(a.mul_float(b)),
            canonical(a.fma(b, c)),
            canonical(a.fma_down(b, c)),
            a.signed_to_float(),
            a.float_to_signed(false),
            a.float_to_signed(true),
            a.mufu(2),
            a.mufu(5),
            a.halves_right_signed(8),
            a.mul_halves(b),
            a.is_nan(),
            a.equal_float(b),
            a.less_float(b),
            a.at_most_float(b),
            a.below(b).select(b, c),
            V::splat(a.bits()),
            lanes_of(a.bits()),
            a.bytes(0x0080_0103),
        ];
        let stored = |value: V| {
            let mut to = [0; 8];
            value.store(&mut to);
            to
        };
        results.map(stored).to_vec()
    }

    #[test]
    fn lanes_of_a_mask_are_all_ones() {
        assert_eq!(lanes_of::<Part>(0x105), [!0, 0, !0, 0, 0, 0, 0, 0]);
        let mut row = [7; 32];
        write(&mut row, 0x8000_0001, [[1; 8]; 4]);
        assert_eq!((row[0], row[1], row[30], row[31]), (1, 7, 7, 1));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn vectors_compute_what_arrays_do() {
        if !crate::sm::exec::steps::is_supported() {
            return;
        }
        let samples = samples();
        for (at, a) in samples.iter().enumerate() {
            let operands =
                [a, &samples[(at * 3 + 1) % samples.len()], &samples[(at * 7 + 2) % samples.len()]];
            assert_eq!(all::<Native>(operands), all::<Part>(operands), "{operands:x?}");
        }
    }
}
