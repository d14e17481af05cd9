//! `atomics.cu`: atomics of every operation and type.

use half::{bf16, f16};

use crate::case::Case;
use crate::data::{Data, Element};

const FILE: &str = "atomics";
/// Threads of kernels over a grid.
const N: usize = 301;

fn words(kernel: &str, len: usize) -> Vec<u32> {
    let mut numbers = Case::numbers(kernel);
    (0..len).map(|_| u32::random(&mut numbers)).collect()
}

/// Small integers as floats: their sums are the same in every order.
fn small(kernel: &str, most: u32) -> Vec<f32> {
    words(kernel, N).into_iter().map(|x| (x % most) as f32).collect()
}

/// `atomicInc`: counts up to a bound, then wraps to 0.
fn increment(old: u32, bound: u32) -> u32 {
    if old >= bound { 0 } else { old + 1 }
}

/// `atomicDec`: counts down from a bound.
fn decrement(old: u32, bound: u32) -> u32 {
    if old == 0 || old > bound { bound } else { old - 1 }
}

fn signed_min(a: u32, b: u32) -> u32 {
    a.cast_signed().min(b.cast_signed()).cast_unsigned()
}

fn signed_max(a: u32, b: u32) -> u32 {
    a.cast_signed().max(b.cast_signed()).cast_unsigned()
}

/// The words of `global_reductions` after one value; `bound` is that of the counters.
fn reduce(words: &mut [u32], v: u32, bound: u32) {
    words[0] = words[0].wrapping_add(v);
    words[1] = words[1].wrapping_sub(v);
    words[2] = words[2].min(v);
    words[3] = words[3].max(v);
    words[4] = signed_min(words[4], v);
    words[5] = signed_max(words[5], v);
    words[6] &= v | 0x10101;
    words[7] |= v & 0x00ff_0ff0;
    words[8] ^= v;
    words[9] = increment(words[9], bound);
    words[10] = decrement(words[10], bound);
}

const START: [u32; 13] = [5, 6, u32::MAX, 0, 0, 0, u32::MAX, 0, 0, 7, 8, 9, 10];

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = reductions();
    cases.push(old_values());
    cases.extend(floats());
    cases.push(shared());
    cases.extend(locks());
    cases.extend(scopes());
    cases
}

fn reductions() -> Vec<Case> {
    let input = words("global_reductions", N);
    let wide: Vec<u64> = {
        let mut numbers = Case::numbers("global_reductions_64");
        (0..N).map(|_| u64::random(&mut numbers)).collect()
    };
    let start = [5, u64::MAX, 0, 0, 0, u64::MAX, 0, 9];
    vec![
        Case::new(FILE, "global_reductions")
            .launch(5, 64)
            .input(&input)
            .update(&START)
            .scalar(N as u32)
            .gives(move || {
                let mut words = START.to_vec();
                input.iter().for_each(|v| reduce(&mut words, *v, 100));
                words
            }),
        Case::new(FILE, "global_reductions_64")
            .launch(5, 64)
            .input(&wide)
            .update(&start)
            .scalar(N as u32)
            .gives(move || {
                wide.iter().fold(start.to_vec(), |w: Vec<u64>, v| {
                    let s = v.cast_signed();
                    vec![
                        w[0].wrapping_add(*v),
                        w[1].min(*v),
                        w[2].max(*v),
                        w[3].cast_signed().min(s).cast_unsigned(),
                        w[4].cast_signed().max(s).cast_unsigned(),
                        w[5] & (v | 0x8001),
                        w[6] | (v & 0xff00_ff00_ff00),
                        w[7] ^ v,
                    ]
                })
            }),
        Case::new(FILE, "tickets")
            .launch(5, 64)
            .update(&[0_u32])
            .update(&[0_u32; N])
            .scalar(N as u32)
            .reference(|_| vec![Data::of(&[N as u32]), Data::of(&[1_u32; N])]),
    ]
}

fn old_values() -> Case {
    const LEN: usize = 23;
    let input = words("global_old_values", LEN);
    let wide_start = [3_u64, 0, 0, 0, 77];
    let values = input.clone();
    Case::new(FILE, "global_old_values")
        .launch(1, 1)
        .input(&input)
        .update(&START)
        .output::<u32>(13 * LEN)
        .update(&wide_start)
        .output::<u64>(5 * LEN)
        .scalar(LEN as u32)
        .reference(move |_| {
            let (mut words, mut old) = (START.to_vec(), Vec::new());
            let (mut wide, mut wide_old) = (wide_start.to_vec(), Vec::new());
            for (i, v) in values.iter().copied().enumerate() {
                old.extend_from_slice(&words);
                reduce(&mut words, v, 3);
                words[11] = v;
                let expected = if i % 2 == 1 { v } else { words[12] };
                words[12] = if words[12] == expected { v.wrapping_add(1) } else { words[12] };
                let w = u64::from(v) << 29;
                wide_old.extend_from_slice(&wide);
                let expected = if i % 2 == 1 { 0 } else { wide[3] };
                wide = vec![
                    wide[0].wrapping_add(w),
                    wide[1].max(w),
                    w,
                    if wide[3] == expected { w } else { wide[3] },
                    wide[4].cast_signed().min(w.cast_signed()).cast_unsigned(),
                ];
            }
            vec![Data::of(&words), Data::of(&old), Data::of(&wide), Data::of(&wide_old)]
        })
}

fn floats() -> Vec<Case> {
    let (single, halves) = (small("float_sums", 100), small("half_sums", 4));
    let (f_start, d_start) = ([0.5_f32; 6 + N], [0.25_f64; 1 + N]);
    let (h_start, b_start) = (vec![f16::ZERO; 4 * N + 2], vec![bf16::ZERO; 14]);
    vec![
        Case::new(FILE, "float_sums")
            .launch(5, 64)
            .input(&single)
            .update(&f_start)
            .update(&d_start)
            .scalar(N as u32)
            .reference(move |_| {
                let (mut f, mut d) = (f_start, d_start);
                for (i, x) in single.iter().enumerate() {
                    f[0] += x;
                    f[1 + i % 5] += x;
                    d[0] += f64::from(*x) * 0.5;
                    d[1 + i] = f64::from(f[6 + i]);
                    f[6 + i] = *x;
                }
                vec![Data::of(&f), Data::of(&d)]
            }),
        Case::new(FILE, "half_sums")
            .launch(5, 64)
            .input(&halves)
            .update(&h_start)
            .update(&b_start)
            .update(&[f16::ONE; 4])
            .scalar(N as u32)
            .reference(move |_| {
                let to = f16::from_f32;
                let mut h = vec![f16::ZERO; 4 * N + 2];
                h[0] = to(halves.iter().sum());
                h[1] = to(N as f32);
                let (mut b, mut single) = ([0.0_f32; 14], [1.0_f32; 4]);
                for (i, x) in halves.iter().enumerate() {
                    h[2 * (N + 1 + i)] = to(*x);
                    h[2 * (N + 1 + i) + 1] = f16::ZERO - to(*x);
                    b[2 * (i % 7)] += 1.0;
                    b[2 * (i % 7) + 1] -= x;
                    single[i % 3] += 1.0;
                }
                let b: Vec<bf16> = b.iter().map(|x| bf16::from_f32(*x)).collect();
                let single: Vec<f16> = single.iter().map(|x| to(*x)).collect();
                vec![Data::of(&h), Data::of(&b), Data::of(&single)]
            }),
    ]
}

fn shared() -> Case {
    const THREADS: u32 = 150;
    let input = words("shared_atomics", THREADS as usize);
    let values = input.clone();
    Case::new(FILE, "shared_atomics")
        .launch(1, THREADS)
        .input(&input)
        .output::<u32>(16)
        .output::<u64>(3)
        .reference(move |_| {
            let mut s = [0_u32; 16];
            [s[2], s[4], s[6]] = [u32::MAX; 3];
            let mut w = [0, u64::MAX, 0];
            let mut floats = 0;
            for v in values.iter().copied() {
                let mut words = s;
                reduce(&mut words, v, 20);
                (words[6], words[7]) = (s[6] & (v | 0x404), s[7] | (v & 0xffff));
                s = words;
                let v64 = u64::from(v);
                w = [w[0].wrapping_add(v64 << 20), w[1].min(v64 << 13), w[2] ^ (v64 * v64)];
                floats += v & 15;
                s[13] = s[13].max(v);
            }
            (s[11], s[12]) = (THREADS, THREADS * (THREADS - 1) / 2);
            (s[14], s[15]) = (1 + floats, 1);
            vec![Data::of(&s), Data::of(&w)]
        })
}

fn locks() -> Vec<Case> {
    vec![
        Case::new(FILE, "spin_lock")
            .launch(6, 40)
            .update(&[0_u32])
            .update(&[100_u32])
            .scalar(5_u32)
            .reference(|_| vec![Data::of(&[0_u32]), Data::of(&[130_u32])]),
        Case::new(FILE, "spin_lock_in_a_warp").launch(2, 32).update(&[0_u32]).update(&[1_u32]).reference(
            |_| {
                let count = (0..64).fold(1_u32, |count, _| count.wrapping_mul(3).wrapping_add(1));
                vec![Data::of(&[0_u32]), Data::of(&[count])]
            },
        ),
    ]
}

fn scopes() -> Vec<Case> {
    const LEN: usize = 70;
    let start = words("atomic_scopes", 6 * LEN);
    let initial = start.clone();
    let generic = words("generic_atomics", 96);
    let given = generic.clone();
    vec![
        Case::new(FILE, "atomic_scopes")
            .launch(2, 35)
            .update(&start)
            .update(&vec![0_u32; 7 * LEN])
            .scalar(LEN as u32)
            .reference(move |_| {
                let (mut words, mut old) = (Vec::new(), Vec::new());
                for (i, w) in (0..).zip(initial.chunks(6)) {
                    let added = w[0].wrapping_add(i);
                    let sum = w[5].wrapping_add(i);
                    let fourth = w[4].wrapping_add(i).wrapping_add(i + 2);
                    old.extend([w[0], w[1], w[2], w[3], fourth, sum, added & 0xffff]);
                    words.extend([
                        added & 0xffff_0000 | 77,
                        w[1].wrapping_add(2 * i),
                        w[2].wrapping_add(i + 5),
                        i,
                        i + 13,
                        sum.wrapping_add(7),
                    ]);
                }
                vec![Data::of(&words), Data::of(&old)]
            }),
        Case::new(FILE, "generic_atomics")
            .launch(1, 96)
            .input(&given)
            .update(&[1_u32, 2, 3, 4])
            .output::<u32>(100)
            .reference(move |_| {
                let (mut global, mut shared) = ([1_u32, 2, 3, 4], vec![0_u32; 100]);
                for (t, v) in generic.iter().enumerate() {
                    let word = if v & 1 == 1 { &mut shared[t & 3] } else { &mut global[t & 3] };
                    *word = word.wrapping_add(*v);
                }
                vec![Data::of(&global), Data::of(&shared)]
            }),
    ]
}
