//! `warp.cu`: operations across the 32 lanes of a warp.

use crate::case::Case;
use crate::data::{Data, Element};

const FILE: &str = "warp";

fn words(kernel: &str, len: usize) -> Vec<u32> {
    let mut numbers = Case::numbers(kernel);
    (0..len).map(|_| u32::random(&mut numbers)).collect()
}

/// How a lane selects its source lane.
#[derive(Clone, Copy)]
enum Shuffle {
    Up,
    Down,
    Xor,
    Index,
}

/// PTX `shfl`: the source lane and whether it is in range; `clamp` contains the segment mask and the bound.
fn source(mode: Shuffle, lane: u32, b: u32, clamp: u32) -> (u32, bool) {
    let segment = clamp >> 8 & 31;
    let most = (lane & segment) | (clamp & 31 & !segment);
    let least = lane & segment;
    let b = b & 31;
    let (from, good) = match mode {
        // For `shfl.up` the bound is the lowest lane.
        Shuffle::Up => (lane.wrapping_sub(b), lane >= b && (lane - b) >= most),
        Shuffle::Down => (lane + b, lane + b <= most),
        Shuffle::Xor => (lane ^ b, (lane ^ b) <= most),
        Shuffle::Index => {
            let from = least | (b & !segment);
            (from, from <= most)
        }
    };
    (if good { from } else { lane }, good)
}

/// The bound that CUDA's functions pass for a width.
fn clamp(width: u32, mode: Shuffle) -> u32 {
    let low = if matches!(mode, Shuffle::Up) { 0 } else { 31 };
    (32 - width) << 8 | low
}

fn shuffled(values: &[u32], mode: Shuffle, b: impl Fn(u32) -> u32, width: u32) -> Vec<u32> {
    (0..32).map(|lane| values[source(mode, lane, b(lane), clamp(width, mode)).0 as usize]).collect()
}

/// The same word for every lane.
fn all(word: u32) -> Vec<u32> {
    vec![word; 32]
}

/// Mask of the lanes for which a condition holds.
fn ballot(f: impl Fn(usize) -> bool) -> u32 {
    (0..32).filter(|lane| f(*lane)).fold(0, |mask, lane| mask | 1 << lane)
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = shuffles();
    cases.extend(votes());
    cases.extend(reductions());
    cases.extend(together());
    cases
}

fn shuffles() -> Vec<Case> {
    let (a, b) = (words("shuffles", 32), words("shuffle_predicates", 32));
    let doubles: Vec<f64> = words("shuffle_wide", 32).into_iter().map(f64::from).collect();
    // Three lanes up, in segments of 16, bounded at lane 11 of each.
    let (distance, bound) = (3, 0x100b_u32);
    vec![
        Case::new(FILE, "shuffles").input(&a).output::<u32>(256).scalar(distance).scalar(21_u32).gives(
            move || {
                [
                    shuffled(&a, Shuffle::Index, |_| 21, 32),
                    shuffled(&a, Shuffle::Index, |t| t * 7 + 3, 32),
                    shuffled(&a, Shuffle::Up, |_| distance, 32),
                    shuffled(&a, Shuffle::Down, |_| distance, 16),
                    shuffled(&a, Shuffle::Xor, |_| 5, 32),
                    shuffled(&a, Shuffle::Index, |_| 21, 8),
                    shuffled(&a, Shuffle::Up, |_| 2, 4),
                    shuffled(&a, Shuffle::Xor, |_| distance, 8),
                ]
                .concat()
            },
        ),
        Case::new(FILE, "shuffle_predicates")
            .input(&b)
            .output::<u32>(256)
            .scalar(distance)
            .scalar(bound)
            .gives(move || {
                let modes = [Shuffle::Up, Shuffle::Down, Shuffle::Xor, Shuffle::Index];
                let mut out = Vec::new();
                for mode in modes {
                    let sources: Vec<_> = (0..32).map(|lane| source(mode, lane, distance, bound)).collect();
                    out.extend(sources.iter().map(|(from, _)| b[*from as usize]));
                    out.extend(sources.iter().map(|(_, good)| u32::from(*good)));
                }
                out
            }),
        Case::new(FILE, "shuffle_wide").input(&doubles).output::<f64>(64).gives(move || {
            let down = (0..32).map(|t| doubles[if t + 3 < 32 { t + 3 } else { t }]);
            let split =
                (0..32).map(|t| if t % 2 == 1 { doubles[t ^ 2] + 1.0 } else { doubles[(t + 4) & 31] });
            down.chain(split).collect()
        }),
    ]
}

fn votes() -> Vec<Case> {
    let values: Vec<i32> = words("votes", 32).into_iter().map(|x| (x % 29).cast_signed() - 12).collect();
    let narrow: Vec<u32> = words("matches", 32).into_iter().map(|x| x % 5).collect();
    let wide: Vec<u64> = words("matches_wide", 32).into_iter().map(|x| 7 << 32 | u64::from(x % 3)).collect();
    vec![
        Case::new(FILE, "votes").input(&values).output::<u32>(192).gives(move || {
            let v = |t: usize| values[t];
            let low = v(0) & 1;
            let large = ballot(|t| v(t) > 5);
            let fours = ballot(|t| v(t) & 4 != 0);
            let mut out = [
                all(u32::from(values.iter().all(|v| *v > -1000))),
                all(u32::from(values.contains(&7))),
                all(ballot(|t| v(t) < 0)),
                all(u32::from(values.iter().all(|v| v & 1 == low))),
            ]
            .concat();
            let second = ballot(|t| v(t) > 5 && v(t) & 2 != 0);
            out.extend(values.iter().map(|v| if *v > 5 { second } else { !large }));
            out.extend((0..32).map(|t| (fours & ((1 << t) - 1)).count_ones()));
            out
        }),
        Case::new(FILE, "matches").input(&narrow).input(&wide).output::<u32>(192).gives(move || {
            let equal = narrow.iter().all(|x| *x == narrow[0]);
            let mut out: Vec<u32> = narrow.iter().map(|x| ballot(|t| narrow[t] == *x)).collect();
            out.extend(wide.iter().map(|x| ballot(|t| wide[t] == *x)));
            out.extend(all(if equal { u32::MAX } else { 0 }));
            out.extend(all(u32::from(equal)));
            out.extend(all(u32::MAX));
            out.extend(all(1));
            out
        }),
    ]
}

fn reductions() -> Vec<Case> {
    let (a, b) = (words("reductions", 32), words("divergent_reductions", 32));
    vec![
        Case::new(FILE, "reductions").input(&a).output::<u32>(288).gives(move || {
            let fold = |f: fn(u32, u32) -> u32| all(a.iter().copied().reduce(f).unwrap_or(0));
            let signed = |x: u32| x.cast_signed();
            let least = a.iter().copied().min_by_key(|x| signed(*x)).unwrap_or(0);
            let most = a.iter().copied().max_by_key(|x| signed(*x)).unwrap_or(0);
            [
                fold(u32::wrapping_add),
                fold(u32::min),
                fold(u32::max),
                all(least),
                all(most),
                fold(|a, b| a & b),
                fold(|a, b| a | b),
                fold(|a, b| a ^ b),
                fold(u32::wrapping_add),
            ]
            .concat()
        }),
        Case::new(FILE, "divergent_reductions").input(&b).output::<u32>(32).gives(move || {
            let group = |v: u32| b.iter().copied().filter(move |x| x & 3 == v & 3);
            let one = |v: &u32| match v & 3 {
                0 => group(*v).fold(0, u32::wrapping_add),
                1 => group(*v).max().unwrap_or(0),
                _ => group(*v).next().unwrap_or(0),
            };
            b.iter().map(one).collect()
        }),
    ]
}

fn together() -> Vec<Case> {
    let (scan, rendezvous) = (words("warp_scan", 5 * 96), words("warp_rendezvous", 32));
    let values: Vec<i32> =
        words("aggregated_counter", 500).into_iter().map(|x| (x % 7).cast_signed() - 2).collect();
    vec![
        Case::new(FILE, "warp_scan").launch(5, 96).input(&scan).output::<u32>(scan.len()).gives(move || {
            let sums = |warp: &[u32]| -> Vec<u32> {
                warp.iter()
                    .scan(0_u32, |sum, x| {
                        *sum = sum.wrapping_add(*x);
                        Some(*sum)
                    })
                    .collect()
            };
            scan.chunks(32).flat_map(sums).collect()
        }),
        Case::new(FILE, "warp_rendezvous").input(&rendezvous).output::<u32>(32).scalar(u32::MAX).gives(
            move || {
                let v = |t: usize| rendezvous[t ^ 1];
                let one = |t: usize| {
                    if t < 16 {
                        v(t).wrapping_add(v(t ^ 2).wrapping_add(3))
                    } else {
                        v(t) ^ v(t ^ 3).wrapping_mul(5)
                    }
                };
                (0..32).map(one).collect()
            },
        ),
        Case::new(FILE, "aggregated_counter")
            .launch(6, 96)
            .input(&values)
            .update(&[0_u32])
            .update(&[0_u32; 500])
            .scalar(500_u32)
            .reference(move |_| {
                let positive = values.iter().filter(|v| **v > 0).count();
                let flags: Vec<u32> = (0..500).map(|i| u32::from(i < positive)).collect();
                vec![Data::of(&[positive as u32]), Data::of(&flags)]
            }),
        Case::new(FILE, "lane_registers").output::<u32>(192).gives(|| {
            let masks: [fn(u32) -> u32; 6] = [
                |t| t,
                |t| 1 << t,
                |t| (1 << t) - 1,
                |t| (1 << t) | ((1 << t) - 1),
                |t| !((1 << t) | ((1_u32 << t) - 1)),
                |t| !((1_u32 << t) - 1),
            ];
            masks.iter().flat_map(|mask| (0..32).map(mask)).collect()
        }),
    ]
}
