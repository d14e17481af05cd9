//! Threads that cooperate: shuffles, votes, block barriers, asynchronous copies, tensor cores.
//!
//! The programs are `sass/warp.cu` and `sass/tensor.cu`.

use crate::support::{Machine, Params, Random, assert_close};

#[test]
fn shuffles_votes_and_matches() {
    let mut random = Random::new(60);
    let values: Vec<u32> = (0..64).map(|_| random.u32() % 2_000_000).collect();
    let mut machine = Machine::sass("warp");
    let (input, out) = (machine.u32s(&values), machine.zeros(64 * 64));
    machine.run("exchange", [1, 1, 1], [64, 1, 1], &Params::new().buffer(&input).buffer(&out));
    let mut expected = Vec::new();
    for t in 0..64usize {
        let warp = &values[t / 32 * 32..][..32];
        let (lane, own) = (t % 32, values[t]);
        let mask =
            |f: &dyn Fn(u32) -> bool| (0..32).fold(0u32, |mask, at| mask | u32::from(f(warp[at])) << at);
        let segment = lane / 8 * 8;
        let down = lane % 8 + (own as usize & 7);
        expected.extend([
            warp[(lane * 7 + 3) % 32],
            if lane >= 5 { warp[lane - 5] } else { own },
            if lane + 9 < 32 { warp[lane + 9] } else { own },
            warp[lane ^ 21],
            warp[segment + (lane + 1) % 8],
            if lane % 8 >= 3 { warp[lane - 3] } else { own },
            if down < 8 { warp[segment + down] } else { own },
            warp[lane ^ 6],
            mask(&|x| x & 1 != 0),
            u32::from(warp.iter().all(|&x| x < 1_000_000)),
            u32::from(warp.contains(&values[17])),
            mask(&|x| x & 3 == own & 3),
            u32::MAX,
            1,
            warp.iter().map(|&x| x as i32 - 50).min().unwrap() as u32,
            warp.iter().fold(0, |a, b| a ^ b),
        ]);
    }
    assert_eq!(out.u32s(), expected);
}

#[test]
fn votes_at_the_barrier_of_a_block() {
    for (threads, values) in [(70u32, [3u32, 4]), (64, [1, 3]), (33, [2, 8])] {
        let input: Vec<u32> = (0..threads as usize).map(|t| values[t % 2]).collect();
        let odd = input.iter().filter(|&&x| x & 1 != 0).count() as u32;
        let mut machine = Machine::sass("warp");
        let (buffer, out) = (machine.u32s(&input), machine.zeros(12 * threads as usize));
        machine.run("barrier_votes", [1, 1, 1], [threads, 1, 1], &Params::new().buffer(&buffer).buffer(&out));
        for row in out.u32s().chunks_exact(3) {
            assert_eq!(
                (row[0], row[1] != 0, row[2] != 0),
                (odd, odd == threads, odd != 0),
                "{threads} threads"
            );
        }
    }
}

#[test]
fn producers_arrive_and_consumers_wait() {
    let mut machine = Machine::sass("warp");
    let out = machine.zeros(512);
    machine.run("producer", [2, 1, 1], [128, 1, 1], &Params::new().buffer(&out).u32(5));
    let expected: Vec<u32> = (0..128u32).map(|t| if t < 32 { 0 } else { 1000 + 5 * (t & 31) }).collect();
    assert_eq!(out.u32s(), expected);
}

#[test]
fn asynchronous_copies() {
    let values: Vec<u32> = (1..=512).collect();
    for valid in [2048u32, 1104, 0] {
        let mut machine = Machine::sass("warp");
        let (input, out) = (machine.u32s(&values), machine.zeros(2048));
        machine.run(
            "async_copy",
            [1, 1, 1],
            [64, 1, 1],
            &Params::new().buffer(&input).buffer(&out).u32(valid),
        );
        let expected: Vec<u32> = (0..512u32).map(|at| if at * 4 < valid { at + 1 } else { 0 }).collect();
        assert_eq!(out.u32s(), expected, "{valid} bytes");
    }
}

#[test]
fn special_registers() {
    let mut machine = Machine::sass("warp");
    let out = machine.zeros(3 * 80 * 16);
    machine.run("places", [3, 1, 1], [80, 1, 1], &Params::new().buffer(&out));
    for (at, row) in (0u32..).zip(out.u32s().chunks_exact(4)) {
        let thread = at % 80;
        assert_eq!(row, [at / 80, thread / 32, (1 << (thread % 32)) - 1, 1], "thread {at}");
    }
}

#[test]
fn atomics_on_shared_memory() {
    let mut machine = Machine::sass("warp");
    let (sum, largest, wrapped) = (machine.zeros(4), machine.zeros(8), machine.zeros(4));
    let params = Params::new().buffer(&sum).buffer(&largest).buffer(&wrapped);
    machine.run("shared_atomics", [1, 1, 1], [100, 1, 1], &params);
    assert_eq!(sum.f32s(), [25.0]);
    assert_eq!(largest.u64s(), [0x3_0000_0000 + (0..100u64).map(|t| t ^ 0x2a).max().unwrap()]);
    assert_eq!(wrapped.u32s(), [100 % 7]);
}

#[test]
fn half_products_on_the_tensor_core() {
    let mut random = Random::new(61);
    let mut halves = |count: usize| (0..count).map(|_| half::f16::from_f32(random.f32())).collect::<Vec<_>>();
    let (a, b) = (halves(16 * 16), halves(8 * 16));
    let c: Vec<f32> = (0..128).map(|at| at as f32 / 16.0).collect();
    let pack = |values: &[half::f16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let mut machine = Machine::sass("tensor");
    let (da, db, dc, out) =
        (machine.bytes(&pack(&a)), machine.bytes(&pack(&b)), machine.f32s(&c), machine.zeros(512));
    let params = Params::new().buffer(&da).buffer(&db).buffer(&dc).buffer(&out);
    machine.run("f16_f32", [1, 1, 1], [32, 1, 1], &params);
    let expected: Vec<f64> = (0..128)
        .map(|at| {
            let (row, column) = (at / 8, at % 8);
            let products = (0..16).map(|k| a[row * 16 + k].to_f64() * b[column * 16 + k].to_f64());
            f64::from(c[at]) + products.sum::<f64>()
        })
        .collect();
    assert_close(&out.f32s(), &expected, 1e-6, "f16_f32");
}

#[test]
fn integer_and_bit_products_on_the_tensor_core() {
    let mut random = Random::new(62);
    let mut words = |count: usize| (0..count).map(|_| random.u32()).collect::<Vec<_>>();
    let (a, b, c) = (words(16 * 8), words(8 * 8), words(128));
    let mut machine = Machine::sass("tensor");
    let (da, db, dc, out) = (machine.u32s(&a), machine.u32s(&b), machine.u32s(&c), machine.zeros(512));
    let params = Params::new().buffer(&da).buffer(&db).buffer(&dc).buffer(&out);
    let row = |matrix: &[u32], row: usize| matrix[8 * row..][..8].to_vec();
    let check = |name: &str, actual: Vec<u32>, dot: &dyn Fn(u32, u32) -> i32| {
        let expected: Vec<u32> = (0..128)
            .map(|at| {
                let pairs = row(&a, at / 8).into_iter().zip(row(&b, at % 8));
                pairs.fold(c[at], |sum, (x, y)| sum.wrapping_add(dot(x, y) as u32))
            })
            .collect();
        assert_eq!(actual, expected, "{name}");
    };
    machine.run("s8_s32", [1, 1, 1], [32, 1, 1], &params);
    check("s8_s32", out.u32s(), &|x, y| {
        x.to_le_bytes()
            .iter()
            .zip(y.to_le_bytes())
            .map(|(&x, y)| i32::from(x as i8) * i32::from(y as i8))
            .sum()
    });
    machine.run("b1_s32", [1, 1, 1], [32, 1, 1], &params);
    check("b1_s32", out.u32s(), &|x, y| (x ^ y).count_ones() as i32);
}

#[test]
fn double_products_on_the_tensor_core() {
    let mut random = Random::new(63);
    let mut doubles = |count: usize| (0..count).map(|_| f64::from(random.f32())).collect::<Vec<_>>();
    let (a, b, c) = (doubles(32), doubles(32), doubles(64));
    let mut machine = Machine::sass("tensor");
    let (da, db, dc, out) = (machine.f64s(&a), machine.f64s(&b), machine.f64s(&c), machine.zeros(512));
    machine.run(
        "f64_f64",
        [1, 1, 1],
        [32, 1, 1],
        &Params::new().buffer(&da).buffer(&db).buffer(&dc).buffer(&out),
    );
    for (at, actual) in out.f64s().into_iter().enumerate() {
        let expected = (0..4).fold(c[at], |sum, k| a[at / 8 * 4 + k].mul_add(b[at % 8 * 4 + k], sum));
        assert!((actual - expected).abs() < 1e-15, "{at}: {actual}, not {expected}");
    }
}
