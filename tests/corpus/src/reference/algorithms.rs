//! `algorithms.cu`: small programs.

use sha2::{Digest, Sha256};

use crate::case::Case;
use crate::compare::Tolerance;
use crate::data::{Data, Element};

const FILE: &str = "algorithms";

fn words(kernel: &str, len: usize) -> Vec<u32> {
    let mut numbers = Case::numbers(kernel);
    (0..len).map(|_| u32::random(&mut numbers)).collect()
}

fn floats(kernel: &str, len: usize) -> Vec<f32> {
    let mut numbers = Case::numbers(kernel);
    (0..len).map(|_| numbers.f32()).collect()
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = hashes();
    cases.extend([sort(), fft(), escape(), heat(), gemm(), sparse()]);
    cases.extend(rows());
    cases.extend([graph(), gravity(), philox(), quantised()]);
    cases
}

fn hashes() -> Vec<Case> {
    const BLOCKS: usize = 71;
    let (rows, length) = (67_usize, 45_usize);
    let input = words("sha256_block", 16 * BLOCKS);
    let mut numbers = Case::numbers("crc32_rows");
    let bytes: Vec<u8> = (0..rows * length).map(|_| u8::random(&mut numbers)).collect();
    // A message of at most 55 bytes fills one block: its bits, a one, zeros, and its length.
    let padded: Vec<u32> = input
        .chunks(16)
        .flat_map(|block| {
            let mut block = block.to_vec();
            block[11] = 0x8000_0000;
            block[12..].fill(0);
            block[15] = 44 * 8;
            block
        })
        .collect();
    let given = padded.clone();
    vec![
        Case::new(FILE, "sha256_block")
            .launch(3, 30)
            .input(&given)
            .output::<u32>(8 * BLOCKS)
            .scalar(BLOCKS as u32)
            .gives(move || {
                let digest = |block: &[u32]| -> Vec<u32> {
                    let message: Vec<u8> = block[..11].iter().flat_map(|word| word.to_be_bytes()).collect();
                    let digest = Sha256::digest(message);
                    digest
                        .chunks(4)
                        .map(|word| word.iter().fold(0, |w, byte| w << 8 | u32::from(*byte)))
                        .collect()
                };
                padded.chunks(16).flat_map(digest).collect()
            }),
        Case::new(FILE, "crc32_rows")
            .launch(3, 30)
            .input(&bytes)
            .output::<u32>(rows)
            .scalar(rows as u32)
            .scalar(length as u32)
            .gives(move || {
                // With the table of remainders of single bytes.
                let table: Vec<u32> = (0..256)
                    .map(|byte| {
                        (0..8).fold(byte, |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
                    })
                    .collect();
                let crc = |row: &[u8]| {
                    !row.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ table[usize::from(crc as u8 ^ byte)])
                };
                bytes.chunks(length).map(crc).collect()
            }),
    ]
}

fn sort() -> Case {
    let input = words("bitonic_sort", 3 * 256);
    let given = input.clone();
    Case::new(FILE, "bitonic_sort").launch(3, 256).input(&given).output::<u32>(3 * 256).gives(move || {
        let mut out = input.clone();
        out.chunks_mut(256).for_each(<[u32]>::sort_unstable);
        out
    })
}

fn fft() -> Case {
    const BLOCKS: usize = 3;
    let input = floats("fft_64", 2 * 64 * BLOCKS);
    let roots: Vec<f32> = (0..32)
        .flat_map(|k| {
            let angle = -core::f64::consts::TAU * f64::from(k) / 64.0;
            [angle.cos() as f32, angle.sin() as f32]
        })
        .collect();
    let given = (input.clone(), roots.clone());
    Case::new(FILE, "fft_64")
        .launch(BLOCKS as u32, 32)
        .input(&given.0)
        .output::<f32>(input.len())
        .input(&given.1)
        .within(
            Tolerance::Near { relative: 0.0, absolute: 1.0e-5 },
            "compared with the defining sum in double precision",
        )
        .gives(move || {
            let line = |x: &[f32]| -> Vec<f32> {
                let term = |k: usize, n: usize| {
                    let angle = -core::f64::consts::TAU * ((k * n) % 64) as f64 / 64.0;
                    let (re, im) = (f64::from(x[2 * n]), f64::from(x[2 * n + 1]));
                    (re * angle.cos() - im * angle.sin(), re * angle.sin() + im * angle.cos())
                };
                let bin = |k: usize| {
                    let (re, im) =
                        (0..64).map(|n| term(k, n)).fold((0.0, 0.0), |s, t| (s.0 + t.0, s.1 + t.1));
                    [re as f32, im as f32]
                };
                (0..64).flat_map(bin).collect()
            };
            input.chunks(128).flat_map(line).collect()
        })
}

fn escape() -> Case {
    let (width, height, limit) = (61_u32, 43_u32, 120_u32);
    Case::new(FILE, "escape_times")
        .launch3([8, 6, 1], [8, 8, 1])
        .output::<u32>((width * height) as usize)
        .scalar(width)
        .scalar(height)
        .scalar(limit)
        .gives(move || {
            let one = |at: u32| {
                let (x, y) = ((at % width) as f32, (at / width) as f32);
                let (cx, cy) = (x.mul_add(0.05, -2.0), y.mul_add(0.05, -1.0));
                let (mut a, mut b) = (0.0_f32, 0.0_f32);
                for k in 0..limit {
                    let (aa, bb) = (a * a, b * b);
                    if aa + bb > 4.0 {
                        return k;
                    }
                    (a, b) = (aa - bb + cx, (2.0 * a).mul_add(b, cy));
                }
                limit
            };
            (0..width * height).map(one).collect()
        })
}

fn heat() -> Case {
    let (width, height) = (37_usize, 29_usize);
    let input = floats("heat_step", width * height);
    let given = input.clone();
    Case::new(FILE, "heat_step")
        .launch3([5, 8, 1], [8, 4, 1])
        .input(&given)
        .output::<f32>(width * height)
        .scalar(width as u32)
        .scalar(height as u32)
        .gives(move || {
            let one = |at: usize| {
                let (x, y, centre) = (at % width, at / width, input[at]);
                let inside = x > 0 && y > 0 && x + 1 < width && y + 1 < height;
                let sum = if inside {
                    ((input[at - 1] + input[at + 1]) + input[at - width]) + input[at + width]
                } else {
                    4.0 * centre
                };
                0.2_f32.mul_add((-4.0_f32).mul_add(centre, sum), centre)
            };
            (0..width * height).map(one).collect()
        })
}

fn gemm() -> Case {
    let (m, n, k) = (35_usize, 27_usize, 45_usize);
    let (a, b) = (floats("gemm_f32", m * k), floats("gemm_f32_b", k * n));
    let given = (a.clone(), b.clone());
    Case::new(FILE, "gemm_f32")
        .launch3([4, 5, 1], [8, 8, 1])
        .input(&given.0)
        .input(&given.1)
        .output::<f32>(m * n)
        .scalar(m as u32)
        .scalar(n as u32)
        .scalar(k as u32)
        .gives(move || {
            let one = |at: usize| {
                let (row, column) = (at / n, at % n);
                (0..k).fold(0.0_f32, |sum, i| a[row * k + i].mul_add(b[i * n + column], sum))
            };
            (0..m * n).map(one).collect()
        })
}

fn sparse() -> Case {
    const ROWS: usize = 83;
    let mut numbers = Case::numbers("spmv_rows");
    let mut starts = vec![0_u32];
    for _ in 0..ROWS {
        starts.push(starts[starts.len() - 1] + numbers.u32() % 14);
    }
    let filled = starts[ROWS] as usize;
    let columns: Vec<u32> = (0..filled).map(|_| numbers.u32() % 83).collect();
    let (values, x) = (floats("spmv_values", filled), floats("spmv_x", 83));
    Case::new(FILE, "spmv_rows")
        .launch(3, 37)
        .input(&starts)
        .input(&columns)
        .input(&values)
        .input(&x)
        .output::<f32>(ROWS)
        .scalar(ROWS as u32)
        .gives(move || {
            let row = |r: usize| {
                let range = starts[r] as usize..starts[r + 1] as usize;
                range.fold(0.0_f32, |sum, k| values[k].mul_add(x[columns[k] as usize], sum))
            };
            (0..ROWS).map(row).collect()
        })
}

fn rows() -> Vec<Case> {
    let (rows, columns) = (7_usize, 100_usize);
    let (soft, norm) = (floats("softmax_rows", rows * columns), floats("layer_norm_rows", rows * columns));
    let (gain, points) = (floats("layer_norm_gain", columns), floats("gelu", 503));
    let given = (soft.clone(), norm.clone(), gain.clone(), points.clone());
    let wide = |row: &[f32]| row.iter().copied().map(f64::from).collect::<Vec<f64>>();
    vec![
        Case::new(FILE, "softmax_rows")
            .launch(rows as u32, 32)
            .input(&given.0)
            .output::<f32>(rows * columns)
            .scalar(columns as u32)
            .within(
                Tolerance::Near { relative: 2.0e-6, absolute: 0.0 },
                "approximate exponentials, sums in another order",
            )
            .gives(move || {
                let row = |row: &[f32]| {
                    let row = wide(row);
                    let sum: f64 = row.iter().map(|x| x.exp()).sum();
                    row.iter().map(|x| (x.exp() / sum) as f32).collect::<Vec<f32>>()
                };
                soft.chunks(columns).flat_map(row).collect()
            }),
        Case::new(FILE, "layer_norm_rows")
            .launch(rows as u32, 32)
            .input(&given.1)
            .input(&given.2)
            .output::<f32>(rows * columns)
            .scalar(columns as u32)
            .within(
                Tolerance::Near { relative: 2.0e-6, absolute: 1.0e-6 },
                "approximate root, sums in another order",
            )
            .gives(move || {
                let row = |row: &[f32]| {
                    let row = wide(row);
                    let n = row.len() as f64;
                    let mean = row.iter().sum::<f64>() / n;
                    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
                    let scale = 1.0 / (variance + 1.0e-5).sqrt();
                    row.iter()
                        .zip(&gain)
                        .map(|(x, gain)| ((x - mean) * scale * f64::from(*gain)) as f32)
                        .collect::<Vec<f32>>()
                };
                norm.chunks(columns).flat_map(row).collect()
            }),
        Case::new(FILE, "gelu")
            .launch(8, 64)
            .input(&given.3)
            .output::<f32>(503)
            .scalar(503_u32)
            .within(
                Tolerance::Near { relative: 2.0e-6, absolute: 1.0e-7 },
                "the compiler may fuse products and sums",
            )
            .gives(move || points.iter().map(|x| gelu(f64::from(*x)) as f32).collect()),
    ]
}

/// The GELU activation, tanh form.
fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

fn graph() -> Case {
    const VERTICES: usize = 211;
    let mut numbers = Case::numbers("breadth_first");
    let mut starts = vec![0_u32];
    for _ in 0..VERTICES {
        starts.push(starts[starts.len() - 1] + numbers.u32() % 4);
    }
    let edges: Vec<u32> = (0..starts[VERTICES]).map(|_| numbers.u32() % VERTICES as u32).collect();
    Case::new(FILE, "breadth_first")
        .launch(1, 96)
        .input(&starts)
        .input(&edges)
        .output::<u32>(VERTICES)
        .scalar(VERTICES as u32)
        .gives(move || {
            let mut distance = vec![u32::MAX; VERTICES];
            distance[0] = 0;
            let mut queue = std::collections::VecDeque::from([0_usize]);
            while let Some(v) = queue.pop_front() {
                for edge in &edges[starts[v] as usize..starts[v + 1] as usize] {
                    let next = *edge as usize;
                    if distance[next] == u32::MAX {
                        distance[next] = distance[v] + 1;
                        queue.push_back(next);
                    }
                }
            }
            distance
        })
}

fn gravity() -> Case {
    const N: usize = 61;
    let bodies = floats("gravity", 4 * N);
    let given = bodies.clone();
    Case::new(FILE, "gravity")
        .launch(2, 45)
        .input(&given)
        .output::<f32>(4 * N)
        .scalar(N as u32)
        .within(
            Tolerance::Near { relative: 2.0e-5, absolute: 2.0e-3 },
            "the compiler may fuse products and sums; large pulls of close bodies cancel",
        )
        .gives(move || {
            let body = |i: usize| -> [f64; 4] { core::array::from_fn(|k| bodies[4 * i + k].into()) };
            let one = |i: usize| {
                let (me, mut pull) = (body(i), [0.0; 3]);
                for other in (0..N).map(body) {
                    let d = [0, 1, 2].map(|k| other[k] - me[k]);
                    let r = 1.0 / (d.iter().map(|x| x * x).sum::<f64>() + f64::from(0.01_f32)).sqrt();
                    for k in 0..3 {
                        pull[k] += other[3] * r.powi(3) * d[k];
                    }
                }
                [pull[0] as f32, pull[1] as f32, pull[2] as f32, me[3] as f32]
            };
            (0..N).flat_map(one).collect()
        })
}

fn philox() -> Case {
    const N: usize = 133;
    let seed = 0x0123_4567_89ab_cdef_u64;
    Case::new(FILE, "philox").launch(3, 50).output::<u32>(4 * N).scalar(N as u32).scalar(seed).reference(
        move |_| {
            let one = |i: u32| {
                let (mut c, mut k) = ([i, 0, i * 3, 1], [seed as u32, (seed >> 32) as u32]);
                for _ in 0..10 {
                    let [p, q] = [u64::from(c[0]) * 0xd251_1f53, u64::from(c[2]) * 0xcd9e_8d57];
                    c = [(q >> 32) as u32 ^ c[1] ^ k[0], q as u32, (p >> 32) as u32 ^ c[3] ^ k[1], p as u32];
                    k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
                }
                c
            };
            vec![Data::of(&(0..N as u32).flat_map(one).collect::<Vec<u32>>())]
        },
    )
}

fn quantised() -> Case {
    let (rows, groups) = (59_usize, 3_usize);
    let weights = words("quantised_dot", rows * groups * 4);
    let vector = words("quantised_vector", groups * 8);
    let scales = floats("quantised_scales", rows * groups);
    let given = (weights.clone(), vector.clone(), scales.clone());
    Case::new(FILE, "quantised_dot")
        .launch(2, 45)
        .input(&given.0)
        .input(&given.1)
        .input(&given.2)
        .output::<f32>(rows)
        .scalar(rows as u32)
        .scalar(groups as u32)
        .gives(move || {
            let byte = |word: u32, k: usize| i32::from(word.to_le_bytes()[k].cast_signed());
            let group = |at: usize, g: usize| -> i32 {
                let half = |k: usize, j: usize, shift: u32, place: usize| {
                    byte(weights[at * 4 + k] >> shift & 0x0f0f_0f0f, j) * byte(vector[g * 8 + place], j)
                };
                (0..4)
                    .flat_map(|k| (0..4).map(move |j| (k, j)))
                    .map(|(k, j)| half(k, j, 0, 2 * k) + half(k, j, 4, 2 * k + 1))
                    .sum()
            };
            let row = |row: usize| {
                (0..groups).fold(0.0_f32, |sum, g| {
                    let at = row * groups + g;
                    (group(at, g) as f32).mul_add(scales[at], sum)
                })
            };
            (0..rows).map(row).collect()
        })
}
