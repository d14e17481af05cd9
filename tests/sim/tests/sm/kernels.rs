//! Runs the workspace's kernels on the interpreter and compares the results with the CPU's.

use crate::support::{Machine, Params, Random, assert_same};

#[test]
fn vector_add() {
    let mut random = Random::new(1);
    for (n, block) in [(1, 32), (1000, 256), (4099, 96), (33, 1), (5000, 1024)] {
        let mut machine = Machine::kernels("vector_add");
        let a: Vec<f32> = (0..n).map(|_| random.f32_any()).collect();
        let b: Vec<f32> = (0..n).map(|_| random.f32_any()).collect();
        let (da, db, dc) = (machine.f32s(&a), machine.f32s(&b), machine.zeros(4 * n));
        let params = Params::new().buffer(&da).buffer(&db).buffer(&dc).u32(n as u32);
        machine.run_1d("vector_add", n, block, &params);
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_same(&dc.f32s(), &expected, "vector_add");
    }
}

#[test]
fn saxpy() {
    let mut random = Random::new(2);
    for (n, grid, block) in [(1, 1, 32), (10_000, 3, 256), (4099, 7, 100)] {
        let mut machine = Machine::kernels("saxpy");
        let a = random.f32();
        let x: Vec<f32> = (0..n).map(|_| random.f32_any()).collect();
        let y: Vec<f32> = (0..n).map(|_| random.f32_any()).collect();
        let (dx, dy) = (machine.f32s(&x), machine.f32s(&y));
        machine.run(
            "saxpy",
            [grid, 1, 1],
            [block, 1, 1],
            &Params::new().f32(a).buffer(&dx).buffer(&dy).u32(n as u32),
        );
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| a.mul_add(*x, *y)).collect();
        assert_same(&dy.f32s(), &expected, "saxpy");
    }
}

#[test]
fn matmul_tiled() {
    let mut random = Random::new(3);
    for (m, n, k) in [(16, 16, 16), (64, 48, 80), (33, 17, 29)] {
        let mut machine = Machine::kernels("matmul");
        let a: Vec<f32> = (0..m * k).map(|_| random.f32()).collect();
        let b: Vec<f32> = (0..k * n).map(|_| random.f32()).collect();
        let (da, db, dc) = (machine.f32s(&a), machine.f32s(&b), machine.zeros(4 * m * n));
        let params =
            Params::new().buffer(&da).buffer(&db).buffer(&dc).u32(m as u32).u32(n as u32).u32(k as u32);
        machine.run(
            "matmul_tiled",
            [(n as u32).div_ceil(16), (m as u32).div_ceil(16), 1],
            [16, 16, 1],
            &params,
        );
        // The compiler contracts to fused multiply-adds in source order; the zeros that pad the last tile do not change
        // the sum.
        let expected: Vec<f32> = (0..m * n)
            .map(|at| (0..k).fold(0.0, |sum, j| a[at / n * k + j].mul_add(b[j * n + at % n], sum)))
            .collect();
        assert_same(&dc.f32s(), &expected, "matmul");
    }
}

/// The effect of the kernel's `warp_sum` on the 32 values of a warp.
fn warp_sum(values: &mut [f32; 32]) -> f32 {
    for offset in [16, 8, 4, 2, 1] {
        let before = *values;
        for lane in 0..32 {
            // A lane without a source adds its own value.
            let from = if lane + offset < 32 { lane + offset } else { lane };
            values[lane] = before[lane] + before[from];
        }
    }
    values[0]
}

#[test]
fn reductions() {
    let mut random = Random::new(4);
    for (n, block) in [(1000usize, 256usize), (4096, 1024), (77, 32)] {
        let mut machine = Machine::kernels("reduce");
        let values: Vec<f32> = (0..n).map(|_| random.f32()).collect();
        let (input, out) = (machine.f32s(&values), machine.zeros(4));
        let params = Params::new().buffer(&input).buffer(&out).u32(n as u32);
        machine.run("reduce_sum_f32", [1, 1, 1], [block as u32, 1, 1], &params);
        let mut threads = vec![0.0f32; block];
        for (at, value) in values.iter().enumerate() {
            threads[at % block] += value;
        }
        let mut partial = [0.0f32; 32];
        for (warp, lanes) in threads.chunks_exact(32).enumerate() {
            partial[warp] = warp_sum(&mut lanes.try_into().unwrap());
        }
        assert_same(&out.f32s(), &[warp_sum(&mut partial)], "reduce_sum_f32");

        let words: Vec<u32> = (0..n).map(|_| random.u32()).collect();
        let (input, out) = (machine.u32s(&words), machine.zeros(4));
        machine.run_1d("reduce_max_u32", 96, 96, &Params::new().buffer(&input).buffer(&out).u32(n as u32));
        assert_eq!(out.u32s()[0], *words.iter().max().unwrap());

        let flags: Vec<u32> =
            (0..n).map(|at| u32::from(at < 64 || !random.u32().is_multiple_of(3))).collect();
        let (input, out) = (machine.u32s(&flags), machine.zeros(8));
        machine.run_1d("count_votes", n, 64, &Params::new().buffer(&input).buffer(&out).u32(n as u32));
        let all =
            flags.chunks(32).filter(|warp| warp.len() == 32 && warp.iter().all(|&flag| flag != 0)).count();
        assert_eq!(out.u32s(), [flags.iter().sum::<u32>(), all as u32]);
    }
}
