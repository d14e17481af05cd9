//! `memory.cu` and `grid.cu`: memory of all kinds, special registers.

use crate::case::Case;
use crate::data::{Data, Element};

const FILE: &str = "memory";

fn words(kernel: &str, len: usize) -> Vec<u32> {
    let mut numbers = Case::numbers(kernel);
    (0..len).map(|_| u32::random(&mut numbers)).collect()
}

fn floats(kernel: &str, len: usize) -> Vec<f32> {
    let mut numbers = Case::numbers(kernel);
    (0..len).map(|_| numbers.f32()).collect()
}

/// The cases of `memory.cu`.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = sizes();
    cases.extend(caches());
    cases.extend(constants());
    cases.extend(local());
    cases.extend([generic(), parameters(), far_offsets()]);
    cases
}

fn sizes() -> Vec<Case> {
    let mut numbers = Case::numbers("load_sizes");
    let bytes: Vec<u8> = (0..16 * 77).map(|_| u8::random(&mut numbers)).collect();
    let wide: Vec<u64> = (0..59).map(|_| u64::random(&mut numbers)).collect();
    let given = bytes.clone();
    vec![
        Case::new(FILE, "load_sizes").launch(1, 77).input(&given).output::<i64>(770).gives(move || {
            let row = |p: &[u8]| -> [i64; 10] {
                let word = |at: usize| u32::from_le_bytes(core::array::from_fn(|k| p[at + k]));
                let half = |at: usize| u16::from_le_bytes([p[at], p[at + 1]]);
                let long = u64::from(word(8)) | u64::from(word(12)) << 32;
                let weighted: u32 = (0..4).map(|k| u32::from(p[12 + k]) * (k as u32 + 1)).sum();
                [
                    p[0].into(),
                    p[1].cast_signed().into(),
                    half(2).into(),
                    half(4).cast_signed().into(),
                    word(4).into(),
                    word(8).cast_signed().into(),
                    long.cast_signed(),
                    (word(0) ^ word(12)).into(),
                    word(8).wrapping_add(word(12)).into(),
                    weighted.into(),
                ]
            };
            bytes.chunks(16).flat_map(row).collect()
        }),
        Case::new(FILE, "store_sizes").launch(1, 59).input(&wide).output::<u8>(32 * 59).gives(move || {
            let row = |v: &u64| {
                let mut row = vec![*v as u8, (v >> 56) as u8];
                row.extend(((v >> 8) as u16).to_le_bytes());
                row.extend(((v >> 16) as u32).to_le_bytes());
                row.extend(v.wrapping_mul(3).to_le_bytes());
                let words = [*v as u32, (v >> 32) as u32, !(*v as u32), (v ^ 0x1234) as u32];
                row.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                row
            };
            wide.iter().flat_map(row).collect()
        }),
    ]
}

fn caches() -> Vec<Case> {
    const N: usize = 203;
    let input = words("cache_operators", 6 * N);
    let given = input.clone();
    vec![
        Case::new(FILE, "cache_operators")
            .launch(3, 71)
            .input(&given)
            .output::<u32>(7 * N)
            .scalar(N as u32)
            .gives(move || {
                let places = [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1];
                let sum = |i: usize| {
                    places.iter().fold(0_u32, |sum, at| sum.wrapping_mul(3).wrapping_add(input[i + at * N]))
                };
                (0..7 * N).map(|at| sum(at % N).wrapping_add((at / N) as u32)).collect()
            }),
        Case::new(FILE, "fences").update(&[0_u32; 96]).output::<u32>(32).reference(|_| {
            let row = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<u32>>();
            let last = row(|i| 2 * (i + 1));
            vec![Data::of(&[row(|i| i), row(|i| i + 1), last.clone()].concat()), Data::of(&last)]
        }),
    ]
}

fn constants() -> Vec<Case> {
    const N: usize = 222;
    let (a, b) = (words("constants", N), words("module_variables", N));
    let case = |kernel, input: &[u32]| {
        Case::new(FILE, kernel).launch(4, 57).input(input).output::<u32>(N).scalar(N as u32)
    };
    vec![
        case("constants", &a).gives(move || {
            // id, tag, flag, and whether the weight is positive.
            let records = [(7_u32, -3_i32, 1, 1), (8, 400, 0, 0), (9, 0, 255, 1)];
            let one = |v: &u32| {
                let (id, tag, flag, positive) = records[(v % 3) as usize];
                let square = (v & 15).pow(2);
                (square + 25 + id * 1000 + flag + positive).wrapping_add_signed(tag) + (square & 0xff)
            };
            a.iter().map(one).collect()
        }),
        case("module_variables", &b).gives(move || {
            let (primes, powers) = ([2, 3, 5, 7, 11, 13, 17, 19], [1, 10, 100, 1000, 10_000]);
            let one = |v: &u32| {
                let fifth = (v % 5) as usize;
                primes[(v & 7) as usize] * 3 + powers[fifth] + primes[3 + fifth] + 1
            };
            b.iter().map(one).collect()
        }),
    ]
}

fn local() -> Vec<Case> {
    const N: usize = 165;
    const ROUNDS: u32 = 40;
    const SHIFT: usize = 2;
    let (arrays, last) = (words("local_arrays", N), words("local_last_use", 4 * N));
    let (vectors, spilled) = (floats("local_vectors", 4 * N), floats("spills", N));
    vec![
        Case::new(FILE, "local_arrays")
            .launch(3, 60)
            .input(&arrays)
            .output::<u32>(N)
            .scalar(N as u32)
            .scalar(ROUNDS)
            .gives(move || (0..N).map(|i| walk(&arrays, i, ROUNDS)).collect()),
        Case::new(FILE, "local_vectors")
            .launch(3, 60)
            .input(&vectors)
            .output::<f32>(4 * N)
            .scalar(N as u32)
            .scalar(SHIFT as u32)
            .gives(move || {
                let at = |i: usize, k: usize| &vectors[(i + k) % N * 4..][..4];
                let one = |i: usize| {
                    let (a, b) = (at(i, (i + SHIFT) % 5), at(i, (i * 3 + SHIFT) % 5));
                    [a[0] + b[3], a[1] + b[2], a[2] + b[1], a[3] + b[0]]
                };
                (0..N).flat_map(one).collect()
            }),
        Case::new(FILE, "local_last_use")
            .launch(3, 60)
            .input(&last)
            .output::<u32>(4 * N)
            .scalar(N as u32)
            .scalar(SHIFT as u32)
            .gives(move || {
                let one = |i: usize| {
                    let v = &last[(i + (i + SHIFT) % 3) % N * 4..][..4];
                    // The last load reads all four again, over the previous load's result.
                    [v[0].wrapping_add(v[1]), v[1] ^ v[0], v[2].wrapping_add(v[3]), v[3] ^ v[2]]
                };
                (0..N).flat_map(one).collect()
            }),
        Case::new(FILE, "spills").launch(3, 60).input(&spilled).output::<f32>(N).scalar(N as u32).gives(
            move || {
                let one = |i: usize| {
                    let mut v: Vec<f32> = (0..48).map(|k| spilled[(i + 7 * k) % N]).collect();
                    for round in 0..3 {
                        for k in 0..48 {
                            v[k] = v[k].mul_add(0.5, v[(k * 5 + round + 1) % 48]);
                        }
                    }
                    v.iter().fold(0.0_f32, |sum, x| sum + x)
                };
                (0..N).map(one).collect()
            },
        ),
    ]
}

/// The array operations of a thread of `local_arrays`.
fn walk(input: &[u32], i: usize, rounds: u32) -> u32 {
    let mut words: Vec<u32> = (0..24).map(|k| input[(i + k) % input.len()]).collect();
    // CAST: values are stored in the sizes of the kernel's arrays.
    let mut bytes: Vec<u8> = words.iter().map(|w| (w >> 9) as u8).collect();
    let halves: Vec<i16> = words.iter().map(|w| (w >> 3) as i16).collect();
    let wide: Vec<u64> = (18..24).map(|k| u64::from(words[k]) << k).collect();
    let mut sum = 0_u32;
    for k in 0..rounds {
        let at = (words[(sum.wrapping_add(k) % 24) as usize] % 24) as usize;
        words[at] = words[at].wrapping_add(sum);
        let next = (at + 1) % 24;
        bytes[next] = bytes[next].wrapping_add(3);
        sum = sum
            .wrapping_add(words[at * 7 % 24])
            .wrapping_add(u32::from(bytes[at]))
            .wrapping_add_signed(i32::from(halves[23 - at]))
            .wrapping_add((wide[at % 6] >> 17) as u32);
    }
    sum
}

fn generic() -> Case {
    let start = words("generic_pointers", 288);
    let given = start.clone();
    Case::new(FILE, "generic_pointers").launch(1, 96).update(&given).output::<u32>(384).reference(move |_| {
        let mut global = start.clone();
        let (mut out, mut shared) = (Vec::new(), (0..96).map(|t| t * 3).collect::<Vec<u32>>());
        let stored = |v: u32| (v.wrapping_add(1)) & 0xffff_00ff | 0x5a00;
        for t in 0..96_usize {
            let v = [shared[t], t as u32, global[t]][t % 3];
            match t % 3 {
                0 => shared[t] = stored(v),
                1 => {}
                _ => global[t] = stored(v),
            }
            // Only generic addresses of shared and local memory are in their windows.
            let space = [1, 2, 4][t % 3];
            out.push([v, stored(v), space, 0]);
        }
        for t in (0..96).step_by(2) {
            // The top bit of a pair: its upper word is small.
            out[t][3] = shared[t + 1] >> 31;
        }
        vec![Data::of(&global), Data::of(&out.concat())]
    })
}

fn parameters() -> Case {
    const LEN: usize = 44;
    let table = words("struct_parameter", LEN);
    let given = table.clone();
    // C layout: a byte, a double, three halfwords, four words.
    let mut structure = vec![0_u8; 40];
    structure[0] = (-5_i8).cast_unsigned();
    structure[8..16].copy_from_slice(&1234.75_f64.to_le_bytes());
    for (k, half) in [7_u16, 700, 65_000].iter().enumerate() {
        structure[16 + 2 * k..][..2].copy_from_slice(&half.to_le_bytes());
    }
    for (k, word) in [1_u32, 1 << 20, u32::MAX, 17].iter().enumerate() {
        structure[24 + 4 * k..][..4].copy_from_slice(&word.to_le_bytes());
    }
    Case::new(FILE, "struct_parameter")
        .launch(1, 44)
        .scalar(200_u8)
        .bytes(structure)
        .scalar(40_000_u16)
        .scalar(99_u64 << 32 | 5)
        .input(&given)
        .output::<u32>(LEN)
        .gives(move || {
            let one = |(t, word): (usize, &u32)| {
                [200, 1234, [7, 700, 65_000][t % 3], [1, 1 << 20, u32::MAX, 17][t & 3], *word, 40_000, 99]
                    .iter()
                    .fold(0_u32.wrapping_sub(5), |sum, x| sum.wrapping_add(*x))
            };
            table.iter().enumerate().map(one).collect()
        })
}

fn far_offsets() -> Case {
    const N: usize = 90;
    let input = words("far_offsets", 2 * N);
    let given = input.clone();
    Case::new(FILE, "far_offsets").launch(2, 45).input(&given).output::<u32>(3 * N).scalar(N as u32).gives(
        move || {
            let mut out = vec![0xa5a5_a5a5_u32; 3 * N];
            for i in 0..N {
                out[i] = input[N + i].wrapping_add(input[i]).wrapping_add(input[2 * N - 1 - i]);
                out[2 * N - 1 - i] = input[N - 1 - i];
            }
            out
        },
    )
}

/// The cases of `grid.cu`.
pub(super) fn grid_cases() -> Vec<Case> {
    let (grid, block) = ([3_u32, 2, 2], [5_u32, 3, 2]);
    let (nx, ny, nz) = (13_usize, 7_usize, 5_usize);
    let cells = floats("volume", nx * ny * nz);
    let packed = |[x, y, z]: [u32; 3]| x | y << 8 | z << 16;
    let split = |at: u32, [x, y, _]: [u32; 3]| [at % x, at / x % y, at / x / y];
    vec![
        Case::new("grid", "places").launch3(grid, block).output::<u32>(4 * 12 * 30).gives(move || {
            let one = |at: u32| {
                [packed(split(at / 30, grid)), packed(split(at % 30, block)), packed(grid), packed(block)]
            };
            (0..12 * 30).flat_map(one).collect()
        }),
        Case::new("grid", "volume")
            .launch3([3, 2, 2], [5, 4, 3])
            .input(&cells)
            .output::<f32>(nx * ny * nz)
            .scalar(nx as u32)
            .scalar(ny as u32)
            .scalar(nz as u32)
            .gives(move || {
                let one = |at: usize| {
                    let (x, y, z) = (at % nx, at / nx % ny, at / nx / ny);
                    let mut sum = cells[at];
                    for (inside, distance) in [(x > 0, 1), (y > 0, nx), (z > 0, nx * ny)] {
                        sum += if inside { cells[at - distance] } else { continue };
                    }
                    sum
                };
                (0..nx * ny * nz).map(one).collect()
            }),
        Case::new("grid", "clocks").launch(1, 40).output::<u32>(40).gives(|| vec![63; 40]),
        Case::new("grid", "launch_registers")
            .launch(1, 40)
            .shared(240)
            .output::<u32>(120)
            .gives(|| (0..40).flat_map(|t| [240, 1, 1 + 2 + 4 * (39 - t)]).collect()),
    ]
}
