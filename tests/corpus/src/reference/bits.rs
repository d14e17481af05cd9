//! `bits.cu`: bits, fields, bytes and the packed operations.

use crate::case::{Case, any, map1, map2, map3};

const FILE: &str = "bits";

/// Any function of three bits, given its table of eight results.
fn lop3(table: u8, a: u32, b: u32, c: u32) -> u32 {
    (0..32).fold(0, |word, bit| {
        let row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
        word | u32::from(table >> row & 1) << bit
    })
}

/// Index of the highest set bit; all ones if there is none.
fn find(x: u32) -> u32 {
    31_u32.wrapping_sub(x.leading_zeros())
}

/// Distance of the highest set bit from the top; all ones if there is none.
fn shift_amount(x: u32) -> u32 {
    if x == 0 { u32::MAX } else { x.leading_zeros() }
}

/// The bits that differ from the sign.
fn unsigned_part(x: u32) -> u32 {
    if x >> 31 == 1 { !x } else { x }
}

/// A mask of `len` bits starting at `position`, truncated to the word.
fn mask(position: u64, len: u64) -> u32 {
    (((1_u64 << len.min(32)) - 1) << position.min(32)) as u32
}

/// PTX `bfe`: the field of `len` bits at `position`, zero or sign extended.
fn extract(a: u32, position: u32, len: u32, signed: bool) -> u32 {
    let top = 31.min(position + len.saturating_sub(1));
    let sign = signed && len != 0 && (a >> top) & 1 == 1;
    (0..32).fold(0, |word, bit| {
        let from = u64::from(bit) + u64::from(position);
        let set = if bit < len && from <= 31 { (a >> from) & 1 == 1 } else { sign };
        word | u32::from(set) << bit
    })
}

fn insert(a: u32, b: u32, position: u32, len: u32) -> u32 {
    let mask = mask(u64::from(position), u64::from(len));
    let moved = a.checked_shl(position).unwrap_or(0);
    (b & !mask) | (moved & mask)
}

/// Sign or zero extension from `bits` bits; values above 31 leave the word unchanged.
fn extend(a: u32, bits: u32, signed: bool) -> u32 {
    if bits >= 32 {
        return a;
    }
    if bits == 0 {
        return 0;
    }
    let up = a << (32 - bits);
    if signed { (up.cast_signed() >> (32 - bits)).cast_unsigned() } else { up >> (32 - bits) }
}

/// PTX `prmt` in its default mode: a nibble selects a byte, or with its top bit the byte's sign.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    u32::from_le_bytes(core::array::from_fn(|i| {
        let nibble = selector >> (4 * i) & 15;
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 == 0 { byte } else { (byte.cast_signed() >> 7).cast_unsigned() }
    }))
}

/// The special modes of `prmt` as selectors of the default mode.
fn permute_mode(a: u32, b: u32, mode: &str, c: u32) -> u32 {
    let k = c & 3;
    let pick = |f: &dyn Fn(u32) -> u32| (0..4).fold(0, |selector, i| selector | f(i) << (4 * i));
    let selector = match mode {
        "f4e" => pick(&|i| k + i),
        "b4e" => pick(&|i| (8 + k - i) % 8),
        "rc8" => pick(&|_| k),
        "ecl" => pick(&|i| i.max(k)),
        "ecr" => pick(&|i| i.min(k)),
        _ => pick(&|i| (k & 1) * 2 + i % 2),
    };
    permute(a, b, selector)
}

/// Combines the bytes of two words with a function.
fn by_bytes(a: u32, b: u32, f: impl Fn(u8, u8) -> u8) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    u32::from_le_bytes(core::array::from_fn(|i| f(a[i], b[i])))
}

/// Combines the halfwords of two words with a function.
fn by_halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    let low = f(a as u16, b as u16);
    let high = f((a >> 16) as u16, (b >> 16) as u16);
    u32::from(high) << 16 | u32::from(low)
}

fn ones8(set: bool) -> u8 {
    if set { 0xff } else { 0 }
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        map3(FILE, "logic", any(), |a: u32, b, c| {
            [
                a & b,
                a | b,
                a ^ b,
                !a,
                (a & b) | (!a & c),
                a ^ b ^ c,
                (a & b) | (a & c) | (b & c),
                (a | 0xff00) & !c,
            ]
        }),
        map3(FILE, "lop3_tables", any(), |a: u32, b, c| {
            core::array::from_fn::<u32, 52, _>(|i| lop3((i * 5) as u8, a, b, c))
        }),
        map1(FILE, "count_bits", any(), |a: u32| {
            let first = if a == 0 { 0 } else { a.trailing_zeros() + 1 };
            [
                a.count_ones(),
                a.leading_zeros(),
                first,
                a.reverse_bits(),
                find(a),
                find(unsigned_part(a)),
                shift_amount(a),
                shift_amount(unsigned_part(a)),
            ]
        }),
    ];
    cases.extend(fields());
    cases.extend(packed());
    cases
}

fn fields() -> Vec<Case> {
    vec![
        map3(FILE, "extract_field", any(), |a: u32, b, c| {
            let (position, len) = (b & 255, c & 255);
            [
                extract(a, position, len, false),
                extract(a, position, len, true),
                (a >> 5) & 0x7ff,
                ((a << 9).cast_signed() >> 17).cast_unsigned(),
            ]
        }),
        map3(FILE, "insert_field", any(), |a: u32, b, c| {
            [insert(a, b, c & 255, (c >> 8) & 255), insert(a, b, 7, 12)]
        }),
        map2(FILE, "bit_masks", (any(), any()), |a: u32, b: u32| {
            [mask(u64::from(a), u64::from(b)), mask(u64::from(a & 31), u64::from(b & 31))]
        }),
        map2(FILE, "sign_extensions", (any(), any()), |a: u32, b: u32| {
            [extend(a, b, true), extend(a, b & 31, true), extend(a, b, false), extend(a, b & 31, false)]
        }),
        map3(FILE, "permute_bytes", any(), |a: u32, b, c| {
            [
                permute(a, b, c & 0x7777),
                permute(a, b, 0x5410),
                permute(a, b, 0x0123),
                permute_mode(a, b, "f4e", c),
                permute_mode(a, b, "b4e", c),
                permute_mode(a, b, "rc8", c),
                permute_mode(a, b, "ecl", c),
                permute_mode(a, b, "ecr", c),
                permute_mode(a, b, "rc16", c),
            ]
        }),
    ]
}

fn packed() -> Vec<Case> {
    let signed8 = |x: u8| i32::from(x.cast_signed());
    vec![
        map2(FILE, "packed_sums", (any(), any()), |a: u32, b: u32| {
            [
                by_halves(a, b, u16::wrapping_add),
                by_bytes(a, b, u8::wrapping_add),
                by_halves(a, b, u16::wrapping_sub),
                by_bytes(a, b, u8::wrapping_sub),
                by_halves(a, b, |a, b| a.cast_signed().saturating_add(b.cast_signed()).cast_unsigned()),
            ]
        }),
        map2(FILE, "packed_extremes", (any(), any()), |a: u32, b: u32| {
            [
                by_halves(a, b, |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned()),
                by_bytes(a, b, u8::min),
                by_bytes(a, b, |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned()),
                by_halves(a, b, u16::min),
                by_bytes(a, 0, |a, _| a.cast_signed().wrapping_abs().cast_unsigned()),
                by_bytes(a, b, |a, b| (u16::from(a) + u16::from(b)).div_ceil(2) as u8),
            ]
        }),
        map2(FILE, "packed_comparisons", (any(), any()), |a: u32, b: u32| {
            [
                by_bytes(a, b, |a, b| ones8(a.cast_signed() > b.cast_signed())),
                by_halves(a, b, |a, b| if a == b { 0xffff } else { 0 }),
                by_bytes(a, b, |a, b| ones8(a < b)),
                by_halves(a, b, |a, b| u16::from(a.cast_signed() >= b.cast_signed())),
            ]
        }),
        map3(FILE, "packed_differences", any(), move |a: u32, b, c| {
            let pairs = || a.to_le_bytes().into_iter().zip(b.to_le_bytes());
            let unsigned: u32 = pairs().map(|(a, b)| u32::from(a.abs_diff(b))).sum();
            let signed: u32 = pairs().map(|(a, b)| signed8(a).abs_diff(signed8(b))).sum();
            let word = a.cast_signed().abs_diff(b.cast_signed());
            [by_bytes(a, b, u8::abs_diff), unsigned, signed, unsigned.wrapping_add(c), word.wrapping_add(c)]
        }),
        map3(FILE, "pack_saturating", any(), |a: i32, b, c| {
            let pack = |low: i32, high: i32, bits: u32| -> u32 {
                let field = |x: i32| x.clamp(low, high).cast_unsigned() & ((1 << bits) - 1);
                let joined = field(a) << bits | field(b);
                let rest = c.cast_unsigned();
                if bits == 16 { joined } else { rest << (2 * bits) | joined }
            };
            [
                pack(-0x8000, 0x7fff, 16),
                pack(0, 0xffff, 16),
                pack(-128, 127, 8),
                pack(0, 255, 8),
                pack(-8, 7, 4),
                pack(0, 15, 4),
            ]
        }),
    ]
}
