//! `wide.cu`: integers of 64 and 128 bits.

use crate::case::{Case, any, map1, map2};

const FILE: &str = "wide";

fn s(x: u64) -> i64 {
    x.cast_signed()
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = products();
    cases.extend([
        map2(FILE, "shifts_64", (any(), any()), |a: u64, b: u32| {
            let by = b & 63;
            [
                a << by,
                a >> by,
                (s(a) >> by).cast_unsigned(),
                a << 9,
                (s(a) >> 37).cast_unsigned(),
                (a << by) | (a >> ((64 - by) & 63)),
            ]
        }),
        map2(FILE, "compare_u64", (any(), any()), |a: u64, b: u64| {
            [
                a.min(b),
                s(a).max(s(b)).cast_unsigned(),
                u64::from(a < b),
                u64::from(s(a) < s(b)),
                u64::from(a == b),
                if s(a) >= 0 { a } else { b },
            ]
        }),
        map2(FILE, "logic_u64", (any(), any()), |a: u64, b: u64| [a & b, a | !b, a ^ b, (a & b) ^ (a >> 1)]),
        map1(FILE, "count_bits_u64", any(), |a: u64| {
            let first = if a == 0 { 0 } else { a.trailing_zeros() + 1 };
            [a.count_ones(), a.leading_zeros(), first, (a.reverse_bits() >> 32) as u32]
        }),
    ]);
    cases
}

fn products() -> Vec<Case> {
    vec![
        map2(FILE, "add_sub_u64", (any(), any()), |a: u64, b: u64| {
            [a.wrapping_add(b), a.wrapping_sub(b), a.wrapping_neg(), a.wrapping_add(0x1234_5678_9abc)]
        }),
        map2(FILE, "mul_u64", (any(), any()), |a: u64, b: u64| {
            let unsigned = u128::from(a) * u128::from(b);
            let signed = i128::from(s(a)) * i128::from(s(b));
            [unsigned as u64, (unsigned >> 64) as u64, (signed >> 64) as u64]
        }),
        map2(FILE, "mul_wide", (any(), any()), |a: u32, b: u32| {
            let (wa, wb) = (u64::from(a), u64::from(b));
            let (sa, sb) = (i64::from(a.cast_signed()), i64::from(b.cast_signed()));
            [wa * wb, (sa * sb).cast_unsigned(), wa * 1_000_003 + wb, (sa * -5 + sb).cast_unsigned()]
        }),
        map2(FILE, "divide_u64", (any(), any()), |a: u64, b: u64| {
            let d = if b == 0 { 3 } else { b };
            [a / d, a % d]
        }),
        map2(FILE, "divide_s64", (any(), any()), |a: i64, b: i64| {
            let d = if b == 0 || b == -1 { 10 } else { b };
            [a / d, a % d]
        }),
        map1(FILE, "divide_u64_by_constants", any(), |a: u64| {
            [a / 10, a % 1_000_003, (s(a) / 3_600_000).cast_unsigned()]
        }),
        map2(FILE, "product_128", (any(), any()), |a: u64, b: u64| {
            let p = (u128::from(a) * u128::from(b)).wrapping_add(u128::from(a ^ b));
            let q = (p << 13).wrapping_sub(u128::from(b) << 64 | u128::from(a));
            [p as u64, (p >> 64) as u64, q as u64, (q >> 64) as u64]
        }),
    ]
}
