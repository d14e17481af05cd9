//! Integers: IADD3, IMAD, LOP3, PLOP3, SHF, LEA, PRMT, BMSK, SGXT, FLO, BREV, POPC, IABS, IMNMX,
//! ISETP, IDP, VABSDIFF and VABSDIFF4.
//!
//! Registers are 32 bits wide and wrap. A negated operand of an addition contributes `!x + 1`
//! computed without wrapping, so that negating zero carries: the carry of a subtraction says "no
//! borrow". Extended (`.X`) forms complement instead and take the carry of the lower word, which
//! chains words into wider numbers.

use super::IntCompare;

/// The result of an addition with its carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The low 32 bits.
    pub value: u32,
    /// The sum reached 2^32: the first predicate destination.
    pub carry: bool,
    /// The sum reached 2^33: the second predicate destination.
    pub second_carry: bool,
}

impl Sum {
    #[inline]
    const fn from_wide(sum: u64) -> Self {
        Self { value: sum as u32, carry: sum >= 1 << 32, second_carry: sum >= 2 << 32 }
    }
}

#[inline]
const fn negated(x: u32, negate: bool) -> u64 {
    if negate { !x as u64 + 1 } else { x as u64 }
}

#[inline]
const fn complemented(x: u32, complement: bool) -> u32 {
    if complement { !x } else { x }
}

/// `a + b + c`, each negated where `negate` says so (IADD3).
#[inline]
#[must_use]
pub const fn iadd3(a: u32, b: u32, c: u32, negate: [bool; 3]) -> Sum {
    Sum::from_wide(negated(a, negate[0]) + negated(b, negate[1]) + negated(c, negate[2]))
}

/// `a + b + c + carries`, each operand complemented where `complement` says so (IADD3.X).
#[inline]
#[must_use]
pub const fn iadd3_x(a: u32, b: u32, c: u32, complement: [bool; 3], carries: [bool; 2]) -> Sum {
    Sum::from_wide(
        complemented(a, complement[0]) as u64
            + complemented(b, complement[1]) as u64
            + complemented(c, complement[2]) as u64
            + carries[0] as u64
            + carries[1] as u64,
    )
}

/// What IMAD does to its addend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addend {
    /// Negate it; complement it in an extended form.
    pub negate: bool,
    /// The carry-in of an extended (`.X`) form; `None` for the plain form.
    pub carry: Option<bool>,
}

impl Addend {
    /// The addend as it enters a 64-bit addition, with one bit of room.
    #[inline]
    const fn wide(self, c: u64) -> u128 {
        match self.carry {
            None if self.negate => !c as u128 + 1,
            None => c as u128,
            Some(carry) => (if self.negate { !c } else { c }) as u128 + carry as u128,
        }
    }
}

/// The low 32 bits of `a * b`, plus `c` (IMAD). Signedness does not matter here.
#[inline]
#[must_use]
pub const fn imad(a: u32, b: u32, c: u32, addend: Addend) -> u32 {
    a.wrapping_mul(b).wrapping_add(addend.wide(c as u64) as u32)
}

/// The 64-bit product of two 32-bit numbers.
#[inline]
#[must_use]
pub const fn multiply_wide(a: u32, b: u32, signed: bool) -> u64 {
    if signed { (a as i32 as i64 * b as i32 as i64) as u64 } else { a as u64 * b as u64 }
}

/// `a * b + c` in 64 bits with the carry of the unsigned addition (IMAD.WIDE).
#[inline]
#[must_use]
pub const fn imad_wide(a: u32, b: u32, c: u64, signed: bool, addend: Addend) -> (u64, bool) {
    let sum = multiply_wide(a, b, signed) as u128 + addend.wide(c);
    (sum as u64, sum >> 64 != 0)
}

/// The high word of [`imad_wide`], and its carry (IMAD.HI). The addend is a register pair.
#[inline]
#[must_use]
pub const fn imad_high(a: u32, b: u32, c: u64, signed: bool, addend: Addend) -> (u32, bool) {
    let (sum, carry) = imad_wide(a, b, c, signed, addend);
    ((sum >> 32) as u32, carry)
}

/// The bitwise function of three operands that the truth table `lut` gives (LOP3.LUT).
///
/// Bit `4a + 2b + c` of the table is the result for the operand bits `a`, `b`, `c`: `0xc0` is
/// `a & b`, `0xfc` is `a | b`, `0x96` the exclusive or of the three.
#[inline]
#[must_use]
pub const fn lop3(a: u32, b: u32, c: u32, lut: u8) -> u32 {
    let mut result = 0;
    let mut row = 0;
    while row < 8 {
        if lut >> row & 1 != 0 {
            result |=
                complemented(a, row & 4 == 0) & complemented(b, row & 2 == 0) & complemented(c, row & 1 == 0);
        }
        row += 1;
    }
    result
}

/// [`lop3`] on predicates (PLOP3, once for each of its two tables).
#[inline]
#[must_use]
pub const fn plop3(a: bool, b: bool, c: bool, lut: u8) -> bool {
    lut >> (4 * a as u32 + 2 * b as u32 + c as u32) & 1 != 0
}

/// The type of a funnel shift (bits 73 and 74 of SHF): how wide amounts may be, and what a right
/// shift brings in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShiftType {
    /// Amounts to 64, arithmetic.
    S64,
    /// Amounts to 64, logical.
    U64,
    /// Amounts to 32, arithmetic.
    S32,
    /// Amounts to 32, logical.
    U32,
}

impl ShiftType {
    /// The type that a two-bit instruction field names.
    ///
    /// # Panics
    ///
    /// When `field` is above 3.
    #[must_use]
    pub const fn from_field(field: u32) -> Self {
        [Self::S64, Self::U64, Self::S32, Self::U32][field as usize]
    }
}

/// The modifiers of SHF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Width of the amount and fill of right shifts.
    pub kind: ShiftType,
    /// Amounts wrap (`.W`) instead of being clamped to the width.
    pub wrap: bool,
    /// Shift right (`.R`) instead of left.
    pub right: bool,
    /// Take the high word of the result (`.HI`) instead of the low one.
    pub high: bool,
}

/// Shifts the 64-bit value `high:low` and takes one word of the result (SHF).
#[inline]
#[must_use]
pub const fn shf(low: u32, amount: u32, high: u32, shift: Shift) -> u32 {
    let width = match shift.kind {
        ShiftType::S64 | ShiftType::U64 => 64,
        ShiftType::S32 | ShiftType::U32 => 32,
    };
    let count = if shift.wrap {
        amount & (width - 1)
    } else if amount > width {
        width
    } else {
        amount
    };
    // In 128 bits a shift by 64 needs no special case.
    let x = (high as u64) << 32 | low as u64;
    let result = if !shift.right {
        ((x as u128) << count) as u64
    } else if matches!(shift.kind, ShiftType::S64 | ShiftType::S32) {
        (x as i64 as i128 >> count) as u64
    } else {
        (x as u128 >> count) as u64
    };
    if shift.high { (result >> 32) as u32 } else { result as u32 }
}

/// The shifted operand of LEA: `a << shift`, or with `.HI` the high word of `c:a << shift`.
/// `shift` is in 0 to 31.
#[inline]
#[must_use]
pub const fn lea_shifted(a: u32, c: u32, shift: u32, high: bool) -> u32 {
    if high { ((((c as u64) << 32 | a as u64) << shift) >> 32) as u32 } else { a << shift }
}

/// The sign extension of `a`, which stands for the third operand of LEA with `.SX32`.
#[inline]
#[must_use]
pub const fn sign_word(a: u32) -> u32 {
    (a as i32 >> 31) as u32
}

/// The addition of LEA: `shifted + b`, where `carry` is the carry-in of an extended form.
///
/// `negate` applies to the shifted operand and to `b`; an extended form complements instead. The
/// predicate destination is [`Sum::carry`].
#[inline]
#[must_use]
pub const fn lea_sum(shifted: u32, b: u32, negate: [bool; 2], carry: Option<bool>) -> Sum {
    match carry {
        None => iadd3(shifted, b, 0, [negate[0], negate[1], false]),
        Some(carry) => iadd3_x(shifted, b, 0, [negate[0], negate[1], false], [carry, false]),
    }
}

/// How PRMT reads its selector (bits 72 to 74).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PermuteMode {
    /// A nibble per result byte: three bits of byte number, one "replicate its sign bit".
    Index,
    /// Four bytes upwards from the selected one (`.F4E`).
    Forward4,
    /// Four bytes downwards from the selected one (`.B4E`).
    Backward4,
    /// The selected byte four times (`.RC8`).
    Replicate8,
    /// Each byte, clamped from the left: at least the selected number (`.ECL`).
    ClampLeft,
    /// Each byte, clamped from the right: at most the selected number (`.ECR`).
    ClampRight,
    /// The selected half twice (`.RC16`).
    Replicate16,
}

impl PermuteMode {
    /// The mode that a three-bit instruction field names; `None` for 7, which is illegal.
    #[must_use]
    pub const fn from_field(field: u32) -> Option<Self> {
        match field {
            0 => Some(Self::Index),
            1 => Some(Self::Forward4),
            2 => Some(Self::Backward4),
            3 => Some(Self::Replicate8),
            4 => Some(Self::ClampLeft),
            5 => Some(Self::ClampRight),
            6 => Some(Self::Replicate16),
            _ => None,
        }
    }
}

/// Picks four of the eight bytes of `c:a` (PRMT).
#[inline]
#[must_use]
pub const fn prmt(a: u32, selector: u32, c: u32, mode: PermuteMode) -> u32 {
    let source = (c as u64) << 32 | a as u64;
    let start = selector & 3;
    let mut result = 0;
    let mut i = 0;
    while i < 4 {
        let nibble = match mode {
            PermuteMode::Index => selector >> (4 * i) & 15,
            PermuteMode::Forward4 => (start + i) & 7,
            PermuteMode::Backward4 => start.wrapping_sub(i) & 7,
            PermuteMode::Replicate8 => start,
            PermuteMode::ClampLeft => {
                if i > start {
                    i
                } else {
                    start
                }
            }
            PermuteMode::ClampRight => {
                if i < start {
                    i
                } else {
                    start
                }
            }
            PermuteMode::Replicate16 => 2 * (start & 1) + (i & 1),
        };
        let byte = (source >> (8 * (nibble & 7))) as u8;
        let byte = if nibble & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        result |= (byte as u32) << (8 * i);
        i += 1;
    }
    result
}

/// `width` ones from bit `position` on (BMSK). Clamped to the word, or with `wrap` (`.W`) both
/// taken modulo 32.
#[inline]
#[must_use]
pub const fn bmsk(position: u32, width: u32, wrap: bool) -> u32 {
    let (position, width) = if wrap { (position & 31, width & 31) } else { (position, width) };
    if position > 31 {
        return 0;
    }
    let ones = if width > 31 { u32::MAX } else { (1 << width) - 1 };
    ones << position
}

/// Extends the low `bits` bits of `x` with their sign or with zeros (SGXT).
///
/// No bits give 0 and 32 or more the value itself; with `wrap` (`.W`) the count is taken modulo 32.
#[inline]
#[must_use]
pub const fn sgxt(x: u32, bits: u32, signed: bool, wrap: bool) -> u32 {
    let bits = if wrap { bits & 31 } else { bits };
    if bits == 0 {
        return 0;
    }
    if bits > 31 {
        return x;
    }
    let shift = 32 - bits;
    if signed { ((x << shift) as i32 >> shift) as u32 } else { x << shift >> shift }
}

/// The number of the leading one (FLO), or of the leading bit that differs from the sign when
/// `signed`; `0xffff_ffff` when there is none.
///
/// With `shift_amount` (`.SH`) it is how far the value can be shifted left: 31 minus the number.
#[inline]
#[must_use]
pub const fn flo(x: u32, signed: bool, shift_amount: bool) -> u32 {
    let x = if signed { x ^ sign_word(x) } else { x };
    if x == 0 {
        u32::MAX
    } else if shift_amount {
        x.leading_zeros()
    } else {
        31 - x.leading_zeros()
    }
}

/// The number of ones (POPC).
#[inline]
#[must_use]
pub const fn popc(x: u32) -> u32 {
    x.count_ones()
}

/// The bits in reverse order (BREV).
#[inline]
#[must_use]
pub const fn brev(x: u32) -> u32 {
    x.reverse_bits()
}

/// The absolute value of a signed number (IABS); the lowest number stays.
#[inline]
#[must_use]
pub const fn iabs(x: u32) -> u32 {
    (x as i32).unsigned_abs()
}

/// The lesser or the greater of two numbers (IMNMX).
#[inline]
#[must_use]
pub const fn imnmx(a: u32, b: u32, signed: bool, minimum: bool) -> u32 {
    let less = if signed { (a as i32) < b as i32 } else { a < b };
    if less == minimum { a } else { b }
}

/// `a op b` (ISETP).
#[inline]
#[must_use]
pub fn compare(op: IntCompare, a: u32, b: u32, signed: bool) -> bool {
    op.holds(if signed { (a as i32).cmp(&(b as i32)) } else { a.cmp(&b) })
}

/// The high half of a wider comparison (ISETP.EX): `low` is the result for the lower words, used
/// when the high words are equal. The constant comparisons ignore it.
#[inline]
#[must_use]
pub fn compare_extended(op: IntCompare, a: u32, b: u32, signed: bool, low: bool) -> bool {
    if a == b && !matches!(op, IntCompare::False | IntCompare::True) {
        low
    } else {
        compare(op, a, b, signed)
    }
}

#[inline]
const fn byte(x: u32, index: u32, signed: bool) -> u32 {
    let byte = (x >> (8 * index)) as u8;
    if signed { byte as i8 as u32 } else { byte as u32 }
}

#[inline]
const fn half(x: u32, index: u32, signed: bool) -> u32 {
    let half = (x >> (16 * index)) as u16;
    if signed { half as i16 as u32 } else { half as u32 }
}

/// `c` plus the dot product of four bytes and four bytes (IDP.4A).
#[inline]
#[must_use]
pub const fn idp4a(a: u32, b: u32, c: u32, signed_a: bool, signed_b: bool) -> u32 {
    let mut sum = c;
    let mut i = 0;
    while i < 4 {
        sum = sum.wrapping_add(byte(a, i, signed_a).wrapping_mul(byte(b, i, signed_b)));
        i += 1;
    }
    sum
}

/// `c` plus the dot product of two halves of `a` and the lower or `upper` two bytes of `b`
/// (IDP.2A.LO and IDP.2A.HI).
#[inline]
#[must_use]
pub const fn idp2a(a: u32, b: u32, c: u32, signed_a: bool, signed_b: bool, upper: bool) -> u32 {
    let first = 2 * upper as u32;
    c.wrapping_add(half(a, 0, signed_a).wrapping_mul(byte(b, first, signed_b)))
        .wrapping_add(half(a, 1, signed_a).wrapping_mul(byte(b, first + 1, signed_b)))
}

/// `|a - b| + c` (VABSDIFF); the difference is taken without wrapping.
#[inline]
#[must_use]
pub const fn vabsdiff(a: u32, b: u32, c: u32, signed: bool) -> u32 {
    let difference = if signed { (a as i32).abs_diff(b as i32) } else { a.abs_diff(b) };
    difference.wrapping_add(c)
}

/// `|a - b|` of each of four bytes (VABSDIFF4).
#[inline]
#[must_use]
pub const fn vabsdiff4(a: u32, b: u32, signed: bool) -> u32 {
    let mut result = 0;
    let mut i = 0;
    while i < 4 {
        result |= vabsdiff(byte(a, i, signed), byte(b, i, signed), 0, signed) << (8 * i);
        i += 1;
    }
    result
}

/// `c` plus the sum of `|a - b|` over four bytes (VABSDIFF4.ACC).
#[inline]
#[must_use]
pub const fn vabsdiff4_acc(a: u32, b: u32, c: u32, signed: bool) -> u32 {
    let mut sum = c;
    let mut i = 0;
    while i < 4 {
        sum = sum.wrapping_add(vabsdiff(byte(a, i, signed), byte(b, i, signed), 0, signed));
        i += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Words, half of them near the ends of the range or with few bits set.
    fn word() -> impl Strategy<Value = u32> {
        let edges = prop_oneof![
            0_u32..3,
            (u32::MAX - 2)..=u32::MAX,
            (i32::MAX as u32 - 1)..=(i32::MAX as u32 + 2),
            (0_u32..32).prop_map(|bit| 1 << bit),
            (0_u32..32).prop_map(|bit| (1_u32 << bit).wrapping_sub(1)),
        ];
        prop_oneof![edges, any::<u32>()]
    }

    fn pair() -> impl Strategy<Value = u64> {
        (word(), word()).prop_map(|(low, high)| u64::from(high) << 32 | u64::from(low))
    }

    fn split(x: u64) -> (u32, u32) {
        (x as u32, (x >> 32) as u32)
    }

    const PLAIN: Addend = Addend { negate: false, carry: None };

    /// The shift as multiplication and division by a power of two.
    fn shift_reference(low: u32, amount: u32, high: u32, shift: Shift) -> u32 {
        let x = u64::from(high) << 32 | u64::from(low);
        let width = if matches!(shift.kind, ShiftType::S64 | ShiftType::U64) { 64 } else { 32 };
        let count = if shift.wrap { amount % width } else { amount.min(width) };
        let factor = 1_i128 << count;
        let result = match (shift.right, shift.kind) {
            (false, _) => u128::from(x).wrapping_mul(factor as u128) as u64,
            (true, ShiftType::S32 | ShiftType::S64) => i128::from(x as i64).div_euclid(factor) as u64,
            (true, _) => i128::from(x).div_euclid(factor) as u64,
        };
        if shift.high { (result >> 32) as u32 } else { result as u32 }
    }

    proptest! {
        #[test]
        fn three_operand_sums_carry(a in word(), b in word(), c in word(), negate: [bool; 3]) {
            // A negated operand stands for 2^32 - x, zero included.
            let exact: u64 = [a, b, c].iter().zip(negate)
                .map(|(x, negate)| if negate { (1 << 32) - u64::from(*x) } else { u64::from(*x) })
                .sum();
            let sum = iadd3(a, b, c, negate);
            prop_assert_eq!(u64::from(sum.value), exact % (1 << 32));
            prop_assert_eq!(sum.carry, exact / (1 << 32) >= 1);
            prop_assert_eq!(sum.second_carry, exact / (1 << 32) >= 2);
        }

        #[test]
        fn words_chain_into_64_bit_addition_and_subtraction(a in pair(), b in pair()) {
            let ((al, ah), (bl, bh)) = (split(a), split(b));
            let chain = |negate| {
                let low = iadd3(al, bl, 0, [false, negate, false]);
                let high = iadd3_x(ah, bh, 0, [false, negate, false], [low.carry, false]);
                (u64::from(high.value) << 32 | u64::from(low.value), high.carry)
            };
            prop_assert_eq!(chain(false), a.overflowing_add(b));
            let (difference, borrow) = a.overflowing_sub(b);
            prop_assert_eq!(chain(true), (difference, !borrow));
        }

        #[test]
        fn multiply_and_add(a in word(), b in word(), c in pair(), carry: bool) {
            let unsigned = u128::from(a) * u128::from(b) + u128::from(c);
            let signed = i128::from(a as i32) * i128::from(b as i32);
            prop_assert_eq!(imad_wide(a, b, c, false, PLAIN), (unsigned as u64, unsigned >> 64 != 0));
            prop_assert_eq!(imad_wide(a, b, c, true, PLAIN).0, signed.wrapping_add(i128::from(c)) as u64);
            prop_assert_eq!(imad_high(a, b, 0, true, PLAIN).0, (signed >> 32) as u32);
            let negated = Addend { negate: true, carry: None };
            prop_assert_eq!(imad(a, b, c as u32, negated), a.wrapping_mul(b).wrapping_sub(c as u32));
            prop_assert_eq!(imad_wide(a, b, c, true, negated).0, signed.wrapping_sub(i128::from(c)) as u64);
            let extended = Addend { negate: false, carry: Some(carry) };
            let sum = unsigned + u128::from(carry);
            prop_assert_eq!(imad_wide(a, b, c, false, extended), (sum as u64, sum >> 64 != 0));
            prop_assert_eq!(imad_high(a, b, c, false, extended).0, (sum >> 32) as u32);
            let complemented = Addend { negate: true, carry: Some(carry) };
            prop_assert_eq!(
                imad(a, b, c as u32, complemented),
                a.wrapping_mul(b).wrapping_add(!(c as u32)).wrapping_add(carry.into())
            );
        }

        /// 64 by 64 bits from 32-bit pieces, as compilers chain IMAD.WIDE.
        #[test]
        fn wide_products_chain(a in pair(), b in pair()) {
            let ((al, ah), (bl, bh)) = (split(a), split(b));
            let (middle, _) = imad_wide(al, bh, 0, false, PLAIN);
            let (middle, carry) = imad_wide(ah, bl, middle, false, PLAIN);
            let (low, _) = imad_wide(al, bl, 0, false, PLAIN);
            let second = iadd3((low >> 32) as u32, middle as u32, 0, [false; 3]);
            let rest = u64::from(carry) << 32 | middle >> 32;
            let (high, _) =
                imad_wide(ah, bh, rest, false, Addend { negate: false, carry: Some(second.carry) });
            let product =
                u128::from(high) << 64 | u128::from(second.value) << 32 | u128::from(low as u32);
            prop_assert_eq!(product, u128::from(a) * u128::from(b));
        }

        #[test]
        fn logic_follows_the_table(a: u32, b: u32, c: u32, lut: u8, bit in 0_u32..32) {
            let at = |x: u32| x >> bit & 1 != 0;
            prop_assert_eq!(at(lop3(a, b, c, lut)), plop3(at(a), at(b), at(c), lut));
            prop_assert_eq!(lop3(a, b, c, 0xc0), a & b);
            prop_assert_eq!(lop3(a, b, c, 0xfc), a | b);
            prop_assert_eq!(lop3(a, b, c, 0x3c), a ^ b);
            prop_assert_eq!(lop3(a, b, c, 0x96), a ^ b ^ c);
            prop_assert_eq!(lop3(a, b, c, 0x33), !b);
            prop_assert_eq!(lop3(a, b, c, 0xe8), a & b | a & c | b & c);
            prop_assert_eq!(lop3(a, b, c, 0xf8), a | b & c);
            prop_assert_eq!(lop3(a, b, c, 0xea), a & b | c);
        }

        #[test]
        fn shifts(low in word(), high in word(), small in 0_u32..70, large in word(), kind in 0_u32..4, flags: [bool; 3]) {
            let shift = Shift { kind: ShiftType::from_field(kind), wrap: flags[0], right: flags[1], high: flags[2] };
            for amount in [small, large] {
                prop_assert_eq!(shf(low, amount, high, shift), shift_reference(low, amount, high, shift));
            }
        }

        #[test]
        fn shift_idioms_of_compiled_code(x in word(), y in word(), n in 0_u32..32) {
            let shift = |kind, wrap, right, high| Shift { kind, wrap, right, high };
            prop_assert_eq!(shf(x, n, 0, shift(ShiftType::U32, false, false, false)), x << n);
            prop_assert_eq!(shf(x, 32 + n, 0, shift(ShiftType::U32, false, false, false)), 0);
            prop_assert_eq!(shf(0, n, x, shift(ShiftType::U32, false, true, true)), x >> n);
            prop_assert_eq!(shf(0, 31, x, shift(ShiftType::S32, false, true, true)), sign_word(x));
            prop_assert_eq!(shf(x, n, x, shift(ShiftType::U32, true, true, false)), x.rotate_right(n));
            prop_assert_eq!(shf(x, n, x, shift(ShiftType::U32, true, false, true)), x.rotate_left(n));
            let wide = u64::from(y) << 32 | u64::from(x);
            prop_assert_eq!(shf(x, n, y, shift(ShiftType::U64, false, false, true)), (wide << n >> 32) as u32);
            prop_assert_eq!(shf(x, n, y, shift(ShiftType::S64, false, true, false)), (wide as i64 >> n) as u32);
        }

        /// `LEA ; LEA.HI.X` compute a 64-bit address from a scaled 64-bit index.
        #[test]
        fn addresses(index in pair(), base in pair(), shift in 0_u32..32, negate: bool) {
            let ((il, ih), (bl, bh)) = (split(index), split(base));
            let low = lea_sum(lea_shifted(il, 0, shift, false), bl, [negate, false], None);
            let high = lea_sum(lea_shifted(il, ih, shift, true), bh, [negate, false], Some(low.carry));
            let scaled = index << shift;
            let expected = if negate { base.wrapping_sub(scaled) } else { base.wrapping_add(scaled) };
            prop_assert_eq!(u64::from(high.value) << 32 | u64::from(low.value), expected);
        }

        #[test]
        fn signed_division_by_two_rounds_towards_zero(x in word()) {
            // LEA.HI R, x, x, RZ, 0x1 ; SHF.R.S32.HI R, RZ, 0x1, R
            let adjusted = lea_sum(lea_shifted(x, 0, 1, true), x, [false; 2], None).value;
            prop_assert_eq!((adjusted as i32) >> 1, (x as i32) / 2);
        }

        #[test]
        fn permutations_by_index(a: u32, c: u32, selector: u32) {
            let bytes = [a.to_le_bytes(), c.to_le_bytes()].concat();
            let expected: [u8; 4] = std::array::from_fn(|i| {
                let nibble = selector >> (4 * i) & 15;
                let byte = bytes[nibble as usize & 7];
                if nibble & 8 == 0 { byte } else if byte & 0x80 != 0 { 0xff } else { 0 }
            });
            prop_assert_eq!(prmt(a, selector, c, PermuteMode::Index), u32::from_le_bytes(expected));
            prop_assert_eq!(prmt(a, 0x9910, c, PermuteMode::Index), a as u16 as i16 as u32);
            prop_assert_eq!(prmt(a, 0x5410, c, PermuteMode::Index), c << 16 | a & 0xffff);
        }

        #[test]
        fn extensions(x in word(), bits in 0_u32..40) {
            let count = bits.min(32);
            let zero_extended = (u64::from(x) & ((1_u64 << count) - 1)) as u32;
            prop_assert_eq!(sgxt(x, bits, false, false), zero_extended);
            let negative = count > 0 && x >> (count - 1) & 1 != 0;
            let ones = if negative { !((1_u64 << count) - 1) as u32 } else { 0 };
            prop_assert_eq!(sgxt(x, bits, true, false), zero_extended | ones);
            prop_assert_eq!(sgxt(x, bits + 32, true, true), sgxt(x, bits & 31, true, false));
        }

        #[test]
        fn masks(position in 0_u32..40, width in 0_u32..40) {
            let set = |bit: &u32| *bit >= position && *bit < position + width;
            let expected = (0_u32..32).filter(set).map(|bit| 1 << bit).sum::<u32>();
            prop_assert_eq!(bmsk(position, width, false), expected);
            prop_assert_eq!(bmsk(position, width, true), bmsk(position & 31, width & 31, false));
        }

        #[test]
        fn leading_bits(x in word()) {
            let found = (0_u32..32).rev().find(|bit| x >> bit & 1 != 0);
            prop_assert_eq!(flo(x, false, false), found.unwrap_or(u32::MAX));
            prop_assert_eq!(flo(x, false, true), found.map_or(u32::MAX, |bit| 31 - bit));
            let differs = (0_u32..32).rev().find(|bit| (x >> bit ^ x >> 31) & 1 != 0);
            prop_assert_eq!(flo(x, true, false), differs.unwrap_or(u32::MAX));
            prop_assert_eq!(popc(x) + popc(!x), 32);
            prop_assert_eq!(brev(x) >> 31, x & 1);
        }

        #[test]
        fn comparisons(a in word(), b in word(), field in 0_u32..8, c in pair(), d in pair()) {
            let op = IntCompare::from_field(field);
            let expected = |x: i64, y: i64| match op {
                IntCompare::False => false,
                IntCompare::Lt => x < y,
                IntCompare::Eq => x == y,
                IntCompare::Le => x <= y,
                IntCompare::Gt => x > y,
                IntCompare::Ne => x != y,
                IntCompare::Ge => x >= y,
                IntCompare::True => true,
            };
            prop_assert_eq!(compare(op, a, b, false), expected(a.into(), b.into()));
            prop_assert_eq!(compare(op, a, b, true), expected((a as i32).into(), (b as i32).into()));
            let ((cl, ch), (dl, dh)) = (split(c), split(d));
            let low = compare(op, cl, dl, false);
            prop_assert_eq!(compare_extended(op, ch, dh, true, low), expected(c as i64, d as i64));
        }

        #[test]
        fn minimum_maximum_and_differences(a in word(), b in word(), c in word()) {
            let (x, y) = (a as i32, b as i32);
            prop_assert_eq!(imnmx(a, b, true, true), x.min(y) as u32);
            prop_assert_eq!(imnmx(a, b, true, false), x.max(y) as u32);
            prop_assert_eq!(imnmx(a, b, false, true), a.min(b));
            prop_assert_eq!(imnmx(a, b, false, false), a.max(b));
            prop_assert_eq!(vabsdiff(a, b, c, false), a.abs_diff(b).wrapping_add(c));
            prop_assert_eq!(vabsdiff(a, b, c, true), x.abs_diff(y).wrapping_add(c));
            prop_assert_eq!(iabs(a), x.wrapping_abs() as u32);
        }

        #[test]
        fn dot_products_and_byte_differences(a: u32, b: u32, c: u32, signed_a: bool, signed_b: bool) {
            let read = |x: u32, signed: bool| {
                x.to_le_bytes().map(|byte| if signed { i64::from(byte as i8) } else { i64::from(byte) })
            };
            let (x, y) = (read(a, signed_a), read(b, signed_b));
            let dot: i64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
            prop_assert_eq!(idp4a(a, b, c, signed_a, signed_b), (i64::from(c) + dot) as u32);
            let halves = [a as u16, (a >> 16) as u16]
                .map(|half| if signed_a { i64::from(half as i16) } else { i64::from(half) });
            for (upper, bytes) in [(false, &y[..2]), (true, &y[2..])] {
                let dot = halves[0] * bytes[0] + halves[1] * bytes[1];
                prop_assert_eq!(idp2a(a, b, c, signed_a, signed_b, upper), (i64::from(c) + dot) as u32);
            }
            let (x, y) = (read(a, signed_a), read(b, signed_a));
            let differences: [u8; 4] = std::array::from_fn(|i| (x[i] - y[i]).unsigned_abs() as u8);
            prop_assert_eq!(vabsdiff4(a, b, signed_a), u32::from_le_bytes(differences));
            let total: u32 = differences.map(u32::from).iter().sum();
            prop_assert_eq!(vabsdiff4_acc(a, b, c, signed_a), c.wrapping_add(total));
        }
    }

    #[test]
    fn permutation_modes_pick_bytes() {
        let (a, c) = (0x0302_0100, 0x0706_0504);
        let pick = |field, selector| prmt(a, selector, c, PermuteMode::from_field(field).unwrap());
        assert_eq!(pick(1, 2), 0x0504_0302);
        assert_eq!(pick(2, 2), 0x0700_0102);
        assert_eq!(pick(3, 3), 0x0303_0303);
        assert_eq!(pick(4, 2), 0x0302_0202);
        assert_eq!(pick(5, 2), 0x0202_0100);
        assert_eq!(pick(6, 1), 0x0302_0302);
        assert_eq!(pick(6, 2), 0x0100_0100);
        assert_eq!(PermuteMode::from_field(7), None);
    }

    #[test]
    fn subtracting_zero_does_not_borrow() {
        assert!(iadd3(5, 0, 0, [false, true, false]).carry);
        assert!(!iadd3(5, 6, 0, [false, true, false]).carry);
    }
}
