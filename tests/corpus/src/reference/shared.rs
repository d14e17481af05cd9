//! `shared.cu` and `async.cu`: shared memory, the barriers of a block, asynchronous copies.

use crate::case::Case;
use crate::data::{Data, Element};

const FILE: &str = "shared";

fn words(kernel: &str, len: usize) -> Vec<u32> {
    let mut numbers = Case::numbers(kernel);
    (0..len).map(|_| u32::random(&mut numbers)).collect()
}

/// The cases of `shared.cu`.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![sizes(), transpose()];
    cases.extend(blocks());
    cases.extend(barriers());
    cases.push(reductions());
    cases
}

fn sizes() -> Case {
    let input = words("shared_sizes", 4 * 96);
    let values = input.clone();
    Case::new(FILE, "shared_sizes").launch(1, 96).input(&input).output::<u32>(4 * 96).gives(move || {
        let v = |t: usize| -> [u32; 4] { core::array::from_fn(|k| values[4 * t + k]) };
        // CAST: values are stored in the sizes of the kernel's arrays.
        let one = |t: usize| {
            let mut r = v((t * 5 + 1) % 96);
            let [x, y, ..] = v((t * 2) % 96);
            r[0] = r[0].wrapping_add(((u64::from(x) << 32 | u64::from(y)) >> 20) as u32);
            r[1] = r[1].wrapping_add(v((t * 33) % 96)[2]);
            let halves = i32::from(v(95 - t)[3] as i16) + i32::from((v(t ^ 1)[3] >> 3) as u16);
            r[2] = r[2].wrapping_add(halves.cast_unsigned());
            let product = i32::from(v((t + 7) % 96)[0] as i8) * i32::from(v((t * 32 + t / 3) % 96)[1] as u8);
            r[3] = r[3].wrapping_add(product.cast_unsigned());
            r
        };
        (0..96).flat_map(one).collect()
    })
}

fn transpose() -> Case {
    let (rows, columns) = (45_usize, 70_usize);
    let input = words("transpose_padded", rows * columns);
    let values = input.clone();
    Case::new(FILE, "transpose_padded")
        .launch3([5, 3, 1], [16, 16, 1])
        .input(&input)
        .output::<u32>(rows * columns)
        .scalar(rows as u32)
        .scalar(columns as u32)
        .gives(move || (0..rows * columns).map(|at| values[at % rows * columns + at / rows]).collect())
}

fn blocks() -> Vec<Case> {
    const N: usize = 1000;
    let (sum, scan) = (words("tree_sum", N), words("block_scan", N));
    let mut numbers = Case::numbers("byte_histogram");
    let bytes: Vec<u8> = (0..4001).map(|_| u8::random(&mut numbers)).collect();
    let block =
        |kernel, input: &[u32], bytes| Case::new(FILE, kernel).launch(8, 128).shared(bytes).input(input);
    vec![
        block("tree_sum", &sum, 512).output::<u32>(8).scalar(N as u32).gives(move || {
            sum.chunks(128).map(|block| block.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x))).collect()
        }),
        block("block_scan", &scan, 1024).output::<u32>(N).scalar(N as u32).gives(move || {
            let mut out = Vec::new();
            for block in scan.chunks(128) {
                let mut sum = 0_u32;
                for x in block {
                    sum = sum.wrapping_add(*x);
                    out.push(sum);
                }
            }
            out
        }),
        Case::new(FILE, "byte_histogram")
            .launch(3, 160)
            .input(&bytes)
            .update(&[0_u32; 256])
            .scalar(bytes.len() as u32)
            .gives(move || {
                let mut counts = vec![0_u32; 256];
                bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
                counts
            }),
    ]
}

fn barriers() -> Vec<Case> {
    let values: Vec<i32> =
        words("combining_barriers", 75).into_iter().map(|x| (x % 41).cast_signed() - 20).collect();
    let (named, phases) = (words("named_barriers", 5 * 64), words("mbarrier_phases", 5 * 64));
    vec![
        Case::new(FILE, "combining_barriers").launch(1, 75).input(&values).output::<i32>(300).gives(
            move || {
                let count = |f: &dyn Fn(&&i32) -> bool| values.iter().filter(f).count() as i32;
                let results =
                    [count(&|v| **v > 0), 1, i32::from(count(&|v| **v == 3) > 0), count(&|v| *v & 1 != 0)];
                results.iter().flat_map(|r| [*r; 75]).collect()
            },
        ),
        Case::new(FILE, "named_barriers").launch(1, 128).input(&named).output::<u32>(64).scalar(5_u32).gives(
            move || {
                let one = |t: usize| {
                    (0..5).fold(0_u32, |sum, k| {
                        sum.wrapping_mul(31).wrapping_add(named[k * 64 + 63 - t].wrapping_mul(3))
                    })
                };
                (0..64).map(one).collect()
            },
        ),
        Case::new(FILE, "mbarrier_phases")
            .launch(1, 64)
            .input(&phases)
            .output::<u32>(64)
            .scalar(5_u32)
            .gives(move || {
                let one = |t: usize| {
                    (0..5).fold(0_u32, |sum, k| sum.wrapping_add(phases[k * 64 + 63 - t] ^ k as u32))
                };
                (0..64).map(one).collect()
            }),
    ]
}

fn reductions() -> Case {
    let values: Vec<i32> =
        words("barrier_reductions", 96).into_iter().map(|x| (x % 13).cast_signed() - 4).collect();
    let input = values.clone();
    Case::new(FILE, "barrier_reductions").launch(1, 96).input(&input).output::<u32>(192).scalar(5_u32).gives(
        move || {
            let (team, rest) = values.split_at(64);
            let large = |v: &i32| *v > 3;
            let first = u32::from(team.iter().all(large)) + 10 * u32::from(team.iter().any(large));
            let second = rest.iter().filter(|v| large(v)).count() as u32;
            let third = values.iter().filter(|v| **v < 0).count() as u32;
            [vec![first; 64], vec![second; 32], vec![third; 96]].concat()
        },
    )
}

/// The cases of `async.cu`.
pub(super) fn async_cases() -> Vec<Case> {
    let (copies, arrival) = (words("async_copy_sizes", 4 * 256), words("async_arrival", 64));
    let mut numbers = Case::numbers("async_pipeline");
    let floats: Vec<f32> = (0..7 * 128).map(|_| numbers.f32()).collect();
    vec![
        Case::new("async", "async_copy_sizes")
            .launch(1, 64)
            .input(&copies)
            .output::<u32>(4 * 384)
            .scalar(7_u32)
            .gives(move || {
                let v = |at: usize| -> [u32; 4] { core::array::from_fn(|k| copies[4 * at + k]) };
                let mut out: Vec<u32> = (0..64).flat_map(|t| v(t ^ 1)).collect();
                out.extend((0..64).flat_map(|t| v(127 - t)));
                out.extend((0..64).flat_map(|t| {
                    let [x, y, ..] = v(128 + t);
                    [x, y, 3, x]
                }));
                // Seven bytes of sixteen; the others become zero.
                out.extend((192..256).flat_map(|at| {
                    let [x, y, z, w] = v(at);
                    if at % 2 == 1 { [x, y & 0x00ff_ffff, 0, 0] } else { [x, y, z, w] }
                }));
                out.extend((0..64).flat_map(|t| v(255 - t)));
                // Twelve bytes or seven.
                out.extend((0..64).flat_map(|t| {
                    let [x, y, z, _] = v(t);
                    if t % 4 != 0 { [x, y, z, 0] } else { [x, y & 0x00ff_ffff, 0, 0] }
                }));
                out
            }),
        {
            let input = floats.clone();
            Case::new("async", "async_pipeline")
                .launch(1, 128)
                .input(&input)
                .output::<f32>(128)
                .scalar(7_u32)
                .gives(move || {
                    let one = |t: usize| {
                        (0..7).fold(0.0_f32, |sum, k| sum.mul_add(0.75, floats[k * 128 + 127 - t]))
                    };
                    (0..128).map(one).collect()
                })
        },
        {
            let input = arrival.clone();
            Case::new("async", "async_arrival").launch(1, 64).input(&input).output::<u32>(64).reference(
                move |_| vec![Data::of(&(0..64).map(|t: usize| arrival[t ^ 3]).collect::<Vec<u32>>())],
            )
        },
    ]
}
