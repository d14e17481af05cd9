//! Compares integer instructions with wide arithmetic and with the sequences that compilers build.

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
        // A negated operand is 2^32 - x, including zero.
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
        let negated = Addend { negate: true, carry: None };
        prop_assert_eq!(imad(a, b, c as u32, negated), a.wrapping_mul(b).wrapping_sub(c as u32));
        prop_assert_eq!(imad_wide(a, b, c, true, negated).0, signed.wrapping_sub(i128::from(c)) as u64);
        let extended = Addend { negate: false, carry: Some(carry) };
        let sum = unsigned + u128::from(carry);
        prop_assert_eq!(imad_wide(a, b, c, false, extended), (sum as u64, sum >> 64 != 0));
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
    fn shifts(
        low in word(), high in word(), small in 0_u32..70, large in word(), kind in 0_u32..4, flags: [bool; 3],
    ) {
        let kind = ShiftType::from_field(kind);
        let shift = Shift { kind, wrap: flags[0], right: flags[1], high: flags[2] };
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
