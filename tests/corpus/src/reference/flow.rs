//! `flow.cu`: predicates, divergence, loops, switches, calls.

use crate::case::{Case, any, made, map3};
use crate::data::{Data, Element};
use test_support::Numbers;

const FILE: &str = "flow";
/// Elements of these kernels: not a multiple of the block size.
const N: usize = 611;

fn words(kernel: &str) -> Vec<u32> {
    let mut numbers = Case::numbers(kernel);
    (0..N).map(|_| u32::random(&mut numbers)).collect()
}

/// A case on words with one output, from a function of all inputs and an index; `None` leaves the output
/// unchanged.
fn over(
    kernel: &'static str,
    len: usize,
    f: impl Fn(&[u32], usize) -> Option<u32> + Send + Sync + 'static,
) -> Case {
    let input = words(kernel);
    Case::new(FILE, kernel)
        .launch(8, 83)
        .input(&input)
        .output::<u32>(len)
        .scalar(N as u32)
        .gives(move || (0..len).map(|i| f(&input, i).unwrap_or(0xa5a5_a5a5)).collect())
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = predicates();
    cases.extend(branches());
    cases.extend(loops());
    cases.extend(called());
    cases.extend(indirect());
    cases.push(many_predicates());
    cases
}

fn predicates() -> Vec<Case> {
    let small = || made(&[0_u32, 1, 100, 101], |n: &mut Numbers| n.u32() % 300);
    vec![
        map3(FILE, "select", any(), |a: i32, b, c| {
            [
                if a > b { c } else { b },
                if a & 1 != 0 { a } else { c.wrapping_neg() },
                a.signum(),
                if a > b && b > c || c == a { 1 } else { 2 },
            ]
        }),
        map3(FILE, "predicate_logic", small(), |a: u32, b, c| {
            let (p, q, r, s, t) = (a > 100, b > a, c & 3 == 1, a == b, c > b);
            let facts =
                [(p && q) || ((r && !s) ^ (t || p)), if p { q } else { r }, !(p ^ q ^ r), (s | t) & (p | r)];
            let mask = facts.iter().rev().fold(0, |mask, fact| mask << 1 | u32::from(*fact));
            [mask, [p, q, r, s, t].into_iter().map(u32::from).sum::<u32>() * u32::from(q != r)]
        }),
    ]
}

fn branches() -> Vec<Case> {
    vec![
        over("nested_branches", N, |input, i| {
            let at = |i: usize| input[i % N].cast_signed();
            let v = at(i);
            let r = if v > 0 {
                if v & 1 == 1 {
                    (0..v & 15).fold(v.wrapping_mul(3), |r, k| r.wrapping_add(at(i + k as usize) ^ k))
                } else if v > 1000 {
                    v / 7
                } else {
                    v - 1000
                }
            } else if v < -500 {
                let bits = v.count_ones().cast_signed();
                if bits > 16 { -bits } else { bits }
            } else {
                77
            };
            Some(r.wrapping_add(v).cast_unsigned())
        }),
        over("jump_table", 2 * N, |input, at| {
            let i = at % N;
            let v = input[i];
            if at >= N {
                return (v % 13 == 7).then_some(1);
            }
            let near = |k: usize| input[(i + k) % N];
            Some(match v % 13 {
                0 => near(1).wrapping_mul(3),
                1 => near(2) / 7,
                2 => v.reverse_bits(),
                3 => near(9) ^ 0x55,
                4 => v.count_ones().wrapping_add(input[4]),
                5 => input[v as usize % N],
                6 => v.wrapping_mul(v).wrapping_mul(v),
                7 => 2,
                8 => input[(v >> 3) as usize % N].wrapping_sub(1),
                9 => (input[3] ^ v).leading_zeros(),
                10 => v.rotate_left(7),
                _ => !v,
            })
        }),
    ]
}

fn loops() -> Vec<Case> {
    vec![
        over("ragged_loops", N, |input, i| {
            let (mut v, mut steps, mut odd) = (input[i] % 5000 + 1, 0_u32, 0_u32);
            while v != 1 {
                steps += 1;
                if steps > 150 {
                    steps = 9999;
                    break;
                }
                if v & 1 == 1 {
                    v = 3 * v + 1;
                    odd += 1;
                    continue;
                }
                v >>= 1;
                if v == 8 && odd & 3 == 2 {
                    return Some(0x8000_0000 | steps);
                }
            }
            Some(steps << 8 | odd)
        }),
        over("two_level_exit", N, |input, i| {
            let mut sum = 0_u32;
            'outer: for x in 0..12 {
                for y in x..12 {
                    let v = input[(i + x * 12 + y) % N];
                    sum += v & 1023;
                    if sum > 20_000 {
                        break 'outer;
                    }
                    if v & 7 == 3 {
                        break;
                    }
                }
                if sum % 5 == 4 {
                    sum += 100;
                }
            }
            Some(sum)
        }),
        over("early_exit", N, |input, i| {
            if input[i] % 11 == 0 {
                return None;
            }
            let mut sum = 0;
            for other in &input[..(input[i] % 37) as usize] {
                if other % 97 == 5 {
                    return None;
                }
                sum += other & 0xff;
            }
            Some(sum)
        }),
    ]
}

fn mix(x: u32, y: u32) -> u32 {
    let x = x ^ y.wrapping_mul(0x9e37_79b9);
    let x = x ^ (x >> 15);
    x.wrapping_mul(0x85eb_ca6b).wrapping_add(1)
}

fn fibonacci(n: u32) -> u32 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

fn ackermann(m: u32, n: u32) -> u32 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

fn called() -> Vec<Case> {
    let input = words("calls");
    let coefficients = [0.5_f32, -1.25, 3.0, 0.1, -0.7, 2.0, 1.0e-3, 9.0];
    vec![
        Case::new(FILE, "calls")
            .launch(8, 83)
            .input(&input)
            .input(&coefficients)
            .output::<u32>(N)
            .output::<f32>(N)
            .scalar(N as u32)
            .reference(move |_| {
                let word = |i: usize| {
                    let v = mix(input[i], i as u32);
                    if v & 4 != 0 {
                        mix(v, 99)
                    } else if v & 8 != 0 {
                        mix(mix(v, 3), v)
                    } else {
                        v
                    }
                };
                let value = |v: &u32| {
                    let x = (v >> 20).cast_signed() as f32 * 0.001;
                    coefficients[..1 + (v & 7) as usize].iter().fold(0.0_f32, |sum, p| sum.mul_add(x, *p))
                };
                let out: Vec<u32> = (0..N).map(word).collect();
                vec![Data::of(&out), Data::of(&out.iter().map(value).collect::<Vec<f32>>())]
            }),
        Case::new(FILE, "recursion").launch(1, 45).output::<u32>(90).gives(|| {
            (0..45).map(|i| fibonacci(3 + i % 7)).chain((0..45).map(|i| ackermann(i % 3, i % 4))).collect()
        }),
    ]
}

fn indirect() -> Vec<Case> {
    let mut numbers = Case::numbers("virtual_functions");
    let floats: Vec<f32> = (0..N).map(|_| numbers.f32()).collect();
    vec![
        over("function_pointers", N, |input, i| {
            let (a, b) = (input[i], i as u32);
            Some(match a % 4 {
                0 => a.wrapping_add(2 * b),
                1 => a.wrapping_mul(b).wrapping_sub(1),
                2 => a ^ (b << 2),
                _ => mix(a, b).wrapping_add(mix(b, a)),
            })
        }),
        over("branch_targets", N, |input, i| {
            let v = input[i];
            Some([v.wrapping_add(1), v.wrapping_mul(5), v ^ 9, v.wrapping_sub(4)][(v & 3) as usize])
        }),
        Case::new(FILE, "virtual_functions")
            .launch(8, 83)
            .input(&floats)
            .output::<f32>(N)
            .scalar(N as u32)
            .gives(move || {
                let area = |x: &f32| {
                    let disc = x + 1.0;
                    if *x > 0.25 { 3.0_f32.mul_add(disc * disc, 1.5) } else { x * x * 1.5 }
                };
                floats.iter().map(area).collect()
            }),
    ]
}

fn many_predicates() -> Case {
    const ROUNDS: i32 = 7;
    let input = words("many_predicates");
    let values = input.clone();
    Case::new(FILE, "many_predicates")
        .launch(8, 83)
        .input(&input)
        .output::<u32>(N)
        .scalar(N as u32)
        .scalar(ROUNDS)
        .gives(move || {
            let one = |i: usize| {
                let v = values[i].cast_signed();
                let mut r = 0_i32;
                for k in 0..ROUNDS {
                    let near = values[(i + k as usize) % N].cast_signed();
                    r = if v > 0 { r.wrapping_add(1 + k) } else { r };
                    r = if v > 10 { r ^ 0x22 } else { r };
                    r = if v & 1 != 0 { r.wrapping_mul(3) } else { r };
                    r = if v & 2 != 0 { r.wrapping_sub(v) } else { r };
                    r = if v & 4 != 0 { r.wrapping_add(near) } else { r };
                    r = if v < -7 { r ^ (k << 4) } else { r };
                    r = if v & 16 != 0 { r.wrapping_add(6) } else { r };
                    r = if v % 3 == 0 { r.wrapping_neg() } else { r };
                    r = if v % 5 == 0 { r.wrapping_add(8 * k) } else { r };
                    r = if v & 64 != 0 { r ^ 0x999 } else { r };
                }
                r.cast_unsigned()
            };
            (0..N).map(one).collect()
        })
}
