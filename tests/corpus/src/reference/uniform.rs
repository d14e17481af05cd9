//! `uniform.cu`: values that are uniform across threads.

use crate::case::Case;
use crate::data::Element;

const FILE: &str = "uniform";

fn words(kernel: &str, len: usize) -> Vec<u32> {
    let mut numbers = Case::numbers(kernel);
    (0..len).map(|_| u32::random(&mut numbers)).collect()
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    vec![arithmetic(), addresses(), halves(), parts()]
}

/// PTX `prmt` in its default mode, without sign bits.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = ((u64::from(b) << 32) | u64::from(a)).to_le_bytes();
    u32::from_le_bytes(core::array::from_fn(|i| bytes[(selector >> (4 * i) & 7) as usize]))
}

fn arithmetic() -> Case {
    let (n, m, k) = (13_i32, 37_i32, 1234_u32);
    let input = words("uniform_arithmetic", 128);
    let given = input.clone();
    Case::new(FILE, "uniform_arithmetic")
        .launch(2, 40)
        .input(&given)
        .output::<u32>(80)
        .scalar(n)
        .scalar(m)
        .scalar(k)
        .gives(move || {
            let mut sum = 0_u32;
            for i in 0..n {
                let b = (i * m + (k >> 3).cast_signed()) ^ (m << (i & 7));
                sum = sum.wrapping_mul(3).wrapping_add(input[(b & 127) as usize]);
                if i & m == 3 {
                    sum = sum.wrapping_add(2);
                }
                let wide = i64::from(i - m) * i64::from(m);
                let places = [
                    (i * m).count_ones(),
                    (i + m).cast_unsigned().reverse_bits() & 127,
                    31 - (i | 1).leading_zeros(),
                    i.min(m).cast_unsigned() & 127,
                    ((i * m).cast_unsigned() / 9) & 63,
                    ((i64::from(i) * i64::from(m)) >> 5 & 63) as u32,
                    (i - m).unsigned_abs() & 31,
                    permute(i.cast_unsigned(), m.cast_unsigned(), 0x3210 + i.cast_unsigned()) & 31,
                    ((i - m) >> 2 & 63).cast_unsigned(),
                    ((wide << 3) >> 35 & 63) as u32,
                ];
                sum = places.iter().fold(sum, |sum, at| sum.wrapping_add(input[*at as usize]));
            }
            (0..80).map(|at| sum.wrapping_add(at % 40)).collect()
        })
}

fn addresses() -> Case {
    let (rows, columns) = (5_i32, 31_i32);
    let input = words("uniform_addresses", (rows * columns) as usize);
    let wide: Vec<u64> = words("uniform_wide", 5).into_iter().map(|x| u64::from(x) << 9).collect();
    let given = (input.clone(), wide.clone());
    Case::new(FILE, "uniform_addresses")
        .launch(5, 33)
        .input(&given.0)
        .input(&given.1)
        .output::<u32>(5 * 33)
        .scalar(rows)
        .scalar(columns)
        .gives(move || {
            let block = |at: i32| {
                let row = at - 2;
                let line = (if row < 0 { rows + row } else { row } * columns) as usize;
                let at = u64::from(at.cast_unsigned());
                let base = wide[at as usize].wrapping_add(at << 37).wrapping_add(31 * at);
                let sum = (at as i32..columns).step_by(2).fold(0_u32, |sum, k| {
                    sum.wrapping_add(input[line + k as usize] ^ input[((k * 5 + row * 4) & 63) as usize])
                });
                (0..33).map(move |thread: u32| {
                    sum.wrapping_add(((base >> 32) as u32).wrapping_mul(thread)).wrapping_add(base as u32)
                })
            };
            (0..5).flat_map(block).collect()
        })
}

fn halves() -> Case {
    let (n, m, base) = (-7_i32, 9_i32, 0x1234_5678_9abc_def0_u64);
    let input = words("uniform_halves", 64);
    let given = input.clone();
    Case::new(FILE, "uniform_halves")
        .launch(4, 35)
        .input(&given)
        .output::<u32>(140)
        .scalar(n)
        .scalar(m)
        .scalar(base)
        .gives(move || {
            let block = |at: i32| {
                let part = at * m / 7;
                let more = if part > n / 2 { 5 } else { 0 };
                let q = ((base + u64::from(at.cast_unsigned())) << 3).wrapping_add(more);
                let word = input[((q >> 32) & 63) as usize]
                    .wrapping_add(q as u32)
                    .wrapping_add_signed(part)
                    .wrapping_add((base >> 7) as u32)
                    .wrapping_add((base >> 32) as u32);
                [word; 35]
            };
            (0..4).flat_map(block).collect()
        })
}

fn parts() -> Case {
    let (k, blocks) = (0x0765_4321_i32, 3);
    let input: Vec<i32> = words("uniform_parts", 32).into_iter().map(|x| (x >> 20).cast_signed()).collect();
    let given = input.clone();
    Case::new(FILE, "uniform_parts")
        .launch(blocks, 32)
        .input(&given)
        .output::<f32>(160 * blocks as usize)
        .scalar(k)
        .gives(move || {
            let block = |at: u32| {
                let u = k.wrapping_mul(blocks as i32).wrapping_add(at as i32 * 196_611);
                let first: Vec<f32> = input.iter().map(|x| f32::from((u >> 16) as i16) + *x as f32).collect();
                let rest = [
                    f32::from(u as i16),
                    f32::from((u >> 16) as u16),
                    f32::from((u >> 8) as i8),
                    f32::from((u >> 24) as u8),
                ];
                first.into_iter().chain(rest.into_iter().flat_map(|part| [part; 32]))
            };
            (0..blocks).flat_map(block).collect()
        })
}
