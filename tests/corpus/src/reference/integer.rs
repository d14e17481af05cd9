//! `integer.cu`: integers of 8 to 32 bits.

use crate::case::{Case, Source, any, map1, map2, map3};
use crate::data::{Data, Element};
use test_support::Numbers;

const FILE: &str = "integer";

/// 32-bit operands as signed.
fn s(x: u32) -> i32 {
    x.cast_signed()
}

/// The low 24 bits, zero and sign extended.
fn low24(x: u32) -> (u32, i32) {
    (x & 0x00ff_ffff, s(x << 8) >> 8)
}

/// Four bytes, zero and sign extended.
fn bytes(x: u32) -> ([i64; 4], [i64; 4]) {
    let bytes = x.to_le_bytes();
    (bytes.map(i64::from), bytes.map(|byte| i64::from(byte.cast_signed())))
}

/// Two halfwords, zero and sign extended.
fn halves(x: u32) -> ([i64; 2], [i64; 2]) {
    let low = |x: u32| (x & 0xffff) as u16;
    let halves = [low(x), low(x >> 16)];
    (halves.map(i64::from), halves.map(|half| i64::from(half.cast_signed())))
}

/// `c` plus the products, modulo 2^32.
fn dot(c: u32, a: &[i64], b: &[i64]) -> u32 {
    let sum: i64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
    // CAST: only the low bits are used.
    c.wrapping_add(sum as u32)
}

fn wide(a: u32, b: u32) -> u64 {
    u64::from(a) * u64::from(b)
}

fn wide_signed(a: i32, b: i32) -> i64 {
    i64::from(a) * i64::from(b)
}

/// The upper half of a 64-bit product.
fn high(product: i64) -> u32 {
    (product >> 32) as u32
}

/// The funnel shift to the left: the upper word of `high:low << by`.
fn funnel_left(low: u32, high: u32, by: u32) -> u32 {
    (((u64::from(high) << 32 | u64::from(low)) << by) >> 32) as u32
}

fn funnel_right(low: u32, high: u32, by: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) >> by) as u32
}

/// Additions or subtractions of words with carry propagation.
fn chain(a: [u32; 4], b: [u32; 4], subtract: bool) -> [u32; 4] {
    let mut carry = i64::from(subtract);
    core::array::from_fn(|i| {
        let b = if subtract { !b[i] } else { b[i] };
        let sum = i64::from(a[i]) + i64::from(b) + carry;
        carry = sum >> 32;
        sum as u32
    })
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = arithmetic();
    cases.extend(shifts());
    cases.extend(combined());
    cases.extend(narrow());
    cases
}

fn words() -> (Source<u32>, Source<u32>) {
    (any(), any())
}

fn arithmetic() -> Vec<Case> {
    vec![
        map2(FILE, "add_sub_u32", words(), |a: u32, b: u32| {
            [a.wrapping_add(b), a.wrapping_sub(b), a.wrapping_neg(), a.wrapping_add(b).wrapping_add(12345)]
        }),
        map2(FILE, "mul_lo_u32", words(), |a: u32, b: u32| {
            [
                a.wrapping_mul(b),
                a.wrapping_mul(7).wrapping_add(b),
                a.wrapping_mul(0x9e37_79b9).wrapping_sub(b),
            ]
        }),
        map2(FILE, "mul_hi_u32", words(), |a: u32, b: u32| {
            [(wide(a, b) >> 32) as u32, ((wide(a, 0x1234_5679) >> 32) as u32).wrapping_add(b)]
        }),
        map2(FILE, "mul_hi_s32", (any(), any()), |a: i32, b: i32| {
            [
                high(wide_signed(a, b)).cast_signed(),
                high(wide_signed(a, -1_234_567)).cast_signed().wrapping_add(b),
            ]
        }),
        map2(FILE, "mul24", words(), |a: u32, b: u32| {
            let ((ua, sa), (ub, sb)) = (low24(a), low24(b));
            [ua.wrapping_mul(ub), sa.wrapping_mul(sb).cast_unsigned()]
        }),
        map3(FILE, "mad_u32", any(), |a: u32, b, c| {
            let product = a.wrapping_mul(b);
            [
                product.wrapping_add(c),
                product.wrapping_sub(c),
                (a << 5).wrapping_add(c),
                product.wrapping_add(1_000_003),
            ]
        }),
        map2(FILE, "divide_u32", words(), |a: u32, b: u32| {
            let d = b.max(1);
            [a / d, a % d]
        }),
        map2(FILE, "divide_s32", (any(), any()), |a: i32, b: i32| {
            let d = if b == 0 || b == -1 { 7 } else { b };
            [a / d, a % d]
        }),
        map1(FILE, "divide_by_constants", any(), |a: u32| {
            let s = |x: i32| x.cast_unsigned();
            let i = a.cast_signed();
            [a / 7, a % 1000, s(i / 10), s(i % 127), a / 641, s(i / -8)]
        }),
    ]
}

fn shifts() -> Vec<Case> {
    vec![
        map2(FILE, "minimum_maximum", (any(), any()), |a: i32, b: i32| {
            let (ua, ub) = (a.cast_unsigned(), b.cast_unsigned());
            [
                a.min(b),
                a.max(b),
                ua.min(ub).cast_signed(),
                ua.max(ub).cast_signed(),
                a.wrapping_abs(),
                a.clamp(-100, 100),
                a.max(b.wrapping_neg()),
                ua.min(77).cast_signed(),
            ]
        }),
        map2(FILE, "shifts_32", words(), |a: u32, b: u32| {
            let by = b & 31;
            [
                a << by,
                a >> by,
                (s(a) >> by).cast_unsigned(),
                a.checked_shl(b).unwrap_or(0),
                a.checked_shr(b).unwrap_or(0),
                (s(a) >> b.min(31)).cast_unsigned(),
                a << 13,
                (s(a) >> 7).cast_unsigned(),
            ]
        }),
        map3(FILE, "funnel_shifts", any(), |a: u32, b, c| {
            [
                funnel_left(a, b, c & 31),
                funnel_right(a, b, c & 31),
                funnel_left(a, b, c.min(32)),
                funnel_right(a, b, c.min(32)),
                funnel_left(a, b, 11),
                a.rotate_right(c & 31),
            ]
        }),
    ]
}

fn combined() -> Vec<Case> {
    vec![
        map3(FILE, "sums_of_differences", any(), |a: u32, b, c| {
            [
                a.abs_diff(b).wrapping_add(c),
                s(a).abs_diff(s(b)).wrapping_add(c),
                a.abs_diff(b),
                a.abs_diff(b).wrapping_add(c),
            ]
        }),
        map2(FILE, "averages", words(), |a: u32, b: u32| {
            let unsigned = u64::from(a) + u64::from(b);
            let signed = i64::from(s(a)) + i64::from(s(b));
            [
                (unsigned >> 1) as u32,
                ((unsigned + 1) >> 1) as u32,
                (signed >> 1) as u32,
                ((signed + 1) >> 1) as u32,
            ]
        }),
        map2(FILE, "saturating_s32", (any(), any()), |a: i32, b: i32| {
            [a.saturating_add(b), a.saturating_sub(b)]
        }),
        map3(FILE, "mad_hi_saturating", any(), |a: i32, b, c| {
            let high = high(wide_signed(a, b)).cast_signed();
            [high.saturating_add(c), high.wrapping_add(c)]
        }),
        map3(FILE, "dot_4_bytes", any(), |a: u32, b, c| {
            let ((ua, sa), (ub, sb)) = (bytes(a), bytes(b));
            [dot(c, &sa, &sb), dot(c, &ua, &ub), dot(c, &sa, &ub), dot(c, &ua, &sb)]
        }),
        map3(FILE, "dot_2_halfwords", any(), |a: u32, b, c| {
            let ((ua, sa), (ub, sb)) = (halves(a), bytes(b));
            [
                dot(c, &sa, &sb[..2]),
                dot(c, &sa, &sb[2..]),
                dot(c, &ua, &ub[..2]),
                dot(c, &ua, &ub[2..]),
                dot(c, &sa, &ub[..2]),
                dot(c, &ua, &sb[2..]),
            ]
        }),
        map2(FILE, "carry_chain", (any(), any()), |a: u64, b: u64| {
            let (al, ah, bl, bh) = (a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32);
            let (x, y) = ([al, ah, al, ah], [bl, bh, bh, bl]);
            let (sums, differences) = (chain(x, y, false), chain(x, y, true));
            core::array::from_fn::<u32, 8, _>(|i| if i < 4 { sums[i] } else { differences[i - 4] })
        }),
    ]
}

fn narrow() -> Vec<Case> {
    let stores: Vec<u32> = {
        let mut numbers: Numbers = Case::numbers("store_narrow");
        (0..777).map(|_| u32::random(&mut numbers)).collect()
    };
    vec![
        map2(FILE, "narrow_bytes", (any(), any()), |a: i8, b: u8| {
            let (x, y) = (i32::from(a), i32::from(b));
            [
                x + y,
                x * y,
                i32::from((x << 1) as i8),
                i32::from((x - y) as u8),
                i32::from(a < b.cast_signed()),
                (x >> 2) ^ (y >> 3),
            ]
        }),
        map2(FILE, "narrow_halfwords", (any(), any()), |a: i16, b: u16| {
            let (x, y, z) = (i32::from(a), i32::from(b), i32::from(b.cast_signed()));
            [
                x + y,
                x * z,
                i32::from((x << 3) as i16),
                i32::from((x - y) as u16),
                x.max(z),
                i32::from(x.wrapping_mul(y) as i16) >> 4,
            ]
        }),
        Case::new(FILE, "store_narrow")
            .launch(7, 111)
            .input(&stores)
            .output::<u8>(stores.len())
            .output::<i16>(stores.len())
            .scalar(stores.len() as u32)
            .reference(move |_| {
                let bytes: Vec<u8> = stores.iter().map(|a| a.wrapping_mul(3) as u8).collect();
                let halfwords: Vec<i16> = stores.iter().map(|a| (a >> 5) as i16).collect();
                vec![Data::of(&bytes), Data::of(&halfwords)]
            }),
    ]
}
