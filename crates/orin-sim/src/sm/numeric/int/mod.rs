//! Integers: IADD3, IMAD, LOP3, PLOP3, SHF, LEA, PRMT, BMSK, SGXT, FLO, BREV, POPC, IABS, IMNMX,
//! ISETP, IDP, VABSDIFF and VABSDIFF4.
//!
//! Registers are 32 bits wide and wrap. A negated operand of an addition contributes `!x + 1`
//! computed without wrapping, so that negating zero carries: the carry of a subtraction means "no
//! borrow". Extended (`.X`) forms complement instead and take the carry of the lower word, which
//! chains words into wider numbers.

use super::IntCompare;

/// The result of an addition with its carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// The low 32 bits.
    pub(crate) value: u32,
    /// The sum reached 2^32: the first predicate destination.
    pub(crate) carry: bool,
    /// The sum reached 2^33: the second predicate destination.
    pub(crate) second_carry: bool,
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

/// `a + b + c`, each negated if its element of `negate` is set (IADD3).
#[inline]
#[must_use]
pub(crate) const fn iadd3(a: u32, b: u32, c: u32, negate: [bool; 3]) -> Sum {
    Sum::from_wide(negated(a, negate[0]) + negated(b, negate[1]) + negated(c, negate[2]))
}

/// `a + b + c + carries`, each operand complemented if its element of `complement` is set (IADD3.X).
#[inline]
#[must_use]
pub(crate) const fn iadd3_x(a: u32, b: u32, c: u32, complement: [bool; 3], carries: [bool; 2]) -> Sum {
    Sum::from_wide(
        complemented(a, complement[0]) as u64
            + complemented(b, complement[1]) as u64
            + complemented(c, complement[2]) as u64
            + carries[0] as u64
            + carries[1] as u64,
    )
}

/// Modifiers of IMAD's addend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addend {
    /// Negate it; complement it in an extended form.
    pub(crate) negate: bool,
    /// Carry-in of an extended (`.X`) form; `None` for the plain form.
    pub(crate) carry: Option<bool>,
}

impl Addend {
    /// The addend of a 64-bit addition, with one bit of headroom.
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
pub(crate) const fn imad(a: u32, b: u32, c: u32, addend: Addend) -> u32 {
    a.wrapping_mul(b).wrapping_add(addend.wide(c as u64) as u32)
}

/// The 64-bit product of two 32-bit numbers.
#[inline]
#[must_use]
pub(crate) const fn multiply_wide(a: u32, b: u32, signed: bool) -> u64 {
    if signed { (a as i32 as i64 * b as i32 as i64) as u64 } else { a as u64 * b as u64 }
}

/// `a * b + c` in 64 bits with the carry of the unsigned addition (IMAD.WIDE).
#[inline]
#[must_use]
pub(crate) const fn imad_wide(a: u32, b: u32, c: u64, signed: bool, addend: Addend) -> (u64, bool) {
    let sum = multiply_wide(a, b, signed) as u128 + addend.wide(c);
    (sum as u64, sum >> 64 != 0)
}

/// The bitwise function of three operands that the truth table `lut` gives (LOP3.LUT).
///
/// Bit `4a + 2b + c` of the table is the result for the operand bits `a`, `b`, `c`: `0xc0` is
/// `a & b`, `0xfc` is `a | b`, `0x96` the exclusive or of the three.
#[inline]
#[must_use]
pub(crate) const fn lop3(a: u32, b: u32, c: u32, lut: u8) -> u32 {
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
pub(crate) const fn plop3(a: bool, b: bool, c: bool, lut: u8) -> bool {
    lut >> (4 * a as u32 + 2 * b as u32 + c as u32) & 1 != 0
}

/// Type of a funnel shift: the maximum amount and the fill of right shifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ShiftType {
    /// Amounts up to 64, arithmetic.
    S64,
    /// Amounts up to 64, logical.
    U64,
    /// Amounts up to 32, arithmetic.
    S32,
    /// Amounts up to 32, logical.
    U32,
}

impl ShiftType {
    /// Decodes a two-bit instruction field.
    ///
    /// # Panics
    ///
    /// If `field` is above 3.
    #[must_use]
    pub(crate) const fn from_field(field: u32) -> Self {
        [Self::S64, Self::U64, Self::S32, Self::U32][field as usize]
    }
}

/// The modifiers of SHF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shift {
    /// Width of the amount and fill of right shifts.
    pub(crate) kind: ShiftType,
    /// Amounts wrap (`.W`) instead of being clamped to the width.
    pub(crate) wrap: bool,
    /// Shift right (`.R`) instead of left.
    pub(crate) right: bool,
    /// Take the high word of the result (`.HI`) instead of the low one.
    pub(crate) high: bool,
}

/// Shifts the 64-bit value `high:low` and takes one word of the result (SHF).
#[inline]
#[must_use]
pub(crate) const fn shf(low: u32, amount: u32, high: u32, shift: Shift) -> u32 {
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
pub(crate) const fn lea_shifted(a: u32, c: u32, shift: u32, high: bool) -> u32 {
    if high { ((((c as u64) << 32 | a as u64) << shift) >> 32) as u32 } else { a << shift }
}

/// Returns the sign extension of `a`, which replaces the third operand of LEA with `.SX32`.
#[inline]
#[must_use]
pub(crate) const fn sign_word(a: u32) -> u32 {
    (a as i32 >> 31) as u32
}

/// The addition of LEA: `shifted + b`, where `carry` is the carry-in of an extended form.
///
/// `negate` applies to the shifted operand and to `b`; an extended form complements instead. The
/// predicate destination is [`Sum::carry`].
#[inline]
#[must_use]
pub(crate) const fn lea_sum(shifted: u32, b: u32, negate: [bool; 2], carry: Option<bool>) -> Sum {
    match carry {
        None => iadd3(shifted, b, 0, [negate[0], negate[1], false]),
        Some(carry) => iadd3_x(shifted, b, 0, [negate[0], negate[1], false], [carry, false]),
    }
}

/// How PRMT reads its selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PermuteMode {
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
    /// Decodes a three-bit instruction field; `None` for 7, which is illegal.
    #[must_use]
    pub(crate) const fn from_field(field: u32) -> Option<Self> {
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
pub(crate) const fn prmt(a: u32, selector: u32, c: u32, mode: PermuteMode) -> u32 {
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
pub(crate) const fn bmsk(position: u32, width: u32, wrap: bool) -> u32 {
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
pub(crate) const fn sgxt(x: u32, bits: u32, signed: bool, wrap: bool) -> u32 {
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

/// The index of the leading one (FLO), or of the leading bit that differs from the sign when
/// `signed`; `0xffff_ffff` when there is none.
///
/// With `shift_amount` (`.SH`) it is how far the value can be shifted left: 31 minus the number.
#[inline]
#[must_use]
pub(crate) const fn flo(x: u32, signed: bool, shift_amount: bool) -> u32 {
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
pub(crate) const fn popc(x: u32) -> u32 {
    x.count_ones()
}

/// The bits in reverse order (BREV).
#[inline]
#[must_use]
pub(crate) const fn brev(x: u32) -> u32 {
    x.reverse_bits()
}

/// The absolute value of a signed number (IABS); the most negative number is unchanged.
#[inline]
#[must_use]
pub(crate) const fn iabs(x: u32) -> u32 {
    (x as i32).unsigned_abs()
}

/// The lesser or the greater of two numbers (IMNMX).
#[inline]
#[must_use]
pub(crate) const fn imnmx(a: u32, b: u32, signed: bool, minimum: bool) -> u32 {
    let less = if signed { (a as i32) < b as i32 } else { a < b };
    if less == minimum { a } else { b }
}

/// `a op b` (ISETP).
#[inline]
#[must_use]
pub(crate) fn compare(op: IntCompare, a: u32, b: u32, signed: bool) -> bool {
    op.holds(if signed { (a as i32).cmp(&(b as i32)) } else { a.cmp(&b) })
}

/// The high half of a wider comparison (ISETP.EX): `low` is the result for the lower words, used
/// when the high words are equal. The constant comparisons ignore it.
#[inline]
#[must_use]
pub(crate) fn compare_extended(op: IntCompare, a: u32, b: u32, signed: bool, low: bool) -> bool {
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
pub(crate) const fn idp4a(a: u32, b: u32, c: u32, signed_a: bool, signed_b: bool) -> u32 {
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
pub(crate) const fn idp2a(a: u32, b: u32, c: u32, signed_a: bool, signed_b: bool, upper: bool) -> u32 {
    let first = 2 * upper as u32;
    c.wrapping_add(half(a, 0, signed_a).wrapping_mul(byte(b, first, signed_b)))
        .wrapping_add(half(a, 1, signed_a).wrapping_mul(byte(b, first + 1, signed_b)))
}

/// `|a - b| + c` (VABSDIFF); the difference is taken without wrapping.
#[inline]
#[must_use]
pub(crate) const fn vabsdiff(a: u32, b: u32, c: u32, signed: bool) -> u32 {
    let difference = if signed { (a as i32).abs_diff(b as i32) } else { a.abs_diff(b) };
    difference.wrapping_add(c)
}

/// `|a - b|` of each of four bytes (VABSDIFF4).
#[inline]
#[must_use]
pub(crate) const fn vabsdiff4(a: u32, b: u32, signed: bool) -> u32 {
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
pub(crate) const fn vabsdiff4_acc(a: u32, b: u32, c: u32, signed: bool) -> u32 {
    let mut sum = c;
    let mut i = 0;
    while i < 4 {
        sum = sum.wrapping_add(vabsdiff(byte(a, i, signed), byte(b, i, signed), 0, signed));
        i += 1;
    }
    sum
}

#[cfg(test)]
mod tests;
