//! Every fixture kernel of the main families runs through the whole stack, from cubin to timeline; results
//! are compared with the CPU's.

use tegra_hcq::{Arg, Error, LaunchError, args};
use test_support::{Bench, Numbers, TIMEOUT};

const N: usize = 5000;

fn blocks(n: usize, block: u32) -> u32 {
    (n as u32).div_ceil(block)
}

#[test]
fn vector_add_with_odd_sizes_and_blocks() {
    let mut bench = Bench::new("vector_add");
    let mut numbers = Numbers::new(1);
    for (n, block) in [(1, 32), (31, 32), (33, 32), (1000, 96), (5000, 256), (4096, 1024), (777, 33)] {
        let (x, y) = (numbers.vec_f32(n), numbers.vec_f32(n));
        let gpu_x = bench.device.alloc_from(&x).unwrap();
        let gpu_y = bench.device.alloc_from(&y).unwrap();
        let sum = bench.device.alloc::<f32>(n).unwrap();
        unsafe { bench.run("vector_add", blocks(n, block), block, &args![&gpu_x, &gpu_y, &sum, n as u32]) };
        let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        assert_eq!(sum.to_vec().unwrap(), want, "{n} elements in blocks of {block}");
    }
}

#[test]
fn saxpy_is_a_fused_multiply_add() {
    let mut bench = Bench::new("saxpy");
    let mut numbers = Numbers::new(2);
    let (x, y) = (numbers.vec_f32(N), numbers.vec_f32(N));
    let gpu_x = bench.device.alloc_from(&x).unwrap();
    let gpu_y = bench.device.alloc_from(&y).unwrap();
    unsafe { bench.run("saxpy", 7, 128, &args![1.7_f32, &gpu_x, &gpu_y, N as u32]) };
    let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 1.7_f32.mul_add(*x, *y)).collect();
    assert_eq!(gpu_y.to_vec().unwrap(), want);
}

/// Runs kernels of the form `(a, b, out, n)` on words.
fn elementwise(bench: &mut Bench, kernel: &str, a: &[u32], b: &[u32], want: impl Fn(u32, u32) -> u32) {
    let gpu_a = bench.device.alloc_from(a).unwrap();
    let gpu_b = bench.device.alloc_from(b).unwrap();
    let out = bench.device.alloc::<u32>(a.len()).unwrap();
    unsafe { bench.run(kernel, blocks(a.len(), 128), 128, &args![&gpu_a, &gpu_b, &out, a.len() as u32]) };
    for (index, got) in out.to_vec().unwrap().into_iter().enumerate() {
        let (a, b) = (a[index], b[index]);
        let want = want(a, b);
        assert_eq!(got, want, "{kernel}({a:#x}, {b:#x}) = {got:#x}, not {want:#x}");
    }
}

const EDGES: [u32; 12] =
    [0, 1, 2, 3, 7, 31, 32, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_fffe, 0xffff_ffff];

/// All pairs of edge values, then random words.
fn words(seed: u64) -> (Vec<u32>, Vec<u32>) {
    let mut numbers = Numbers::new(seed);
    let pairs = EDGES.iter().flat_map(|a| EDGES.iter().map(move |b| (*a, *b)));
    let (mut a, mut b): (Vec<u32>, Vec<u32>) = pairs.unzip();
    a.extend(numbers.vec_u32(N));
    b.extend((0..N).map(|_| numbers.u32() >> (numbers.u32() % 32)));
    (a, b)
}

#[test]
fn integer_operations_equal_the_cpus() {
    let mut bench = Bench::new("int_ops");
    let (a, b) = words(3);
    type Case = (&'static str, fn(u32, u32) -> u32);
    let cases: [Case; 16] = [
        ("i32_add", u32::wrapping_add),
        ("i32_sub", u32::wrapping_sub),
        ("i32_mul", u32::wrapping_mul),
        ("i32_mul_hi", |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        ("u32_mul_hi", |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        ("i32_min", |a, b| (a as i32).min(b as i32) as u32),
        ("i32_max", |a, b| (a as i32).max(b as i32) as u32),
        ("u32_min", u32::min),
        ("u32_max", u32::max),
        ("u32_and", |a, b| a & b),
        ("u32_or", |a, b| a | b),
        ("u32_xor", |a, b| a ^ b),
        ("u32_shl", |a, b| a << (b & 31)),
        ("u32_shr", |a, b| a >> (b & 31)),
        ("i32_shr", |a, b| ((a as i32) >> (b & 31)) as u32),
        ("i32_compare", |a, b| (a as i32).cmp(&(b as i32)) as i32 as u32),
    ];
    for (kernel, want) in cases {
        elementwise(&mut bench, kernel, &a, &b, want);
    }
}

#[test]
fn integer_division_equals_the_cpus() {
    let mut bench = Bench::new("int_ops");
    let (a, b) = words(4);
    let (a, b): (Vec<u32>, Vec<u32>) = a.into_iter().zip(b).filter(|(_, b)| *b != 0).unzip();
    elementwise(&mut bench, "u32_div", &a, &b, |a, b| a / b);
    elementwise(&mut bench, "u32_mod", &a, &b, |a, b| a % b);
    elementwise(&mut bench, "i32_div", &a, &b, |a, b| (a as i32).wrapping_div(b as i32) as u32);
    elementwise(&mut bench, "i32_mod", &a, &b, |a, b| (a as i32).wrapping_rem(b as i32) as u32);
}

fn matmul(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let mut c = vec![0.0_f32; m * n];
    for row in 0..m {
        for column in 0..n {
            // The kernel adds products of a zero-padded tile in the same order, each fused.
            let sum = (0..k).fold(0.0_f32, |sum, i| a[row * k + i].mul_add(b[i * n + column], sum));
            c[row * n + column] = sum;
        }
    }
    c
}

#[test]
fn tiled_matmul_with_sizes_that_are_no_multiples_of_the_tile() {
    let mut bench = Bench::new("matmul");
    let mut numbers = Numbers::new(5);
    for (m, n, k) in [(16, 16, 16), (33, 47, 20), (64, 64, 64), (1, 100, 7)] {
        let (a, b) = (numbers.vec_f32(m * k), numbers.vec_f32(k * n));
        let gpu_a = bench.device.alloc_from(&a).unwrap();
        let gpu_b = bench.device.alloc_from(&b).unwrap();
        let gpu_c = bench.device.alloc::<f32>(m * n).unwrap();
        let arguments = args![&gpu_a, &gpu_b, &gpu_c, m as u32, n as u32, k as u32];
        unsafe { bench.run("matmul_tiled", (blocks(n, 16), blocks(m, 16)), (16, 16), &arguments) };
        assert_eq!(gpu_c.to_vec().unwrap(), matmul(&a, &b, m, n, k), "{m}x{n}x{k}");
    }
}

#[test]
fn reductions_by_shuffles_and_atomics() {
    let mut bench = Bench::new("reduce");
    let mut numbers = Numbers::new(6);
    // Small integers: every order of additions gives the same float.
    let values: Vec<f32> = (0..N).map(|_| (numbers.u32() % 100) as f32).collect();
    let input = bench.device.alloc_from(&values).unwrap();
    let sum = bench.device.alloc_from(&[0.0_f32]).unwrap();
    unsafe { bench.run("reduce_sum_f32", 6, 256, &args![&input, &sum, N as u32]) };
    assert_eq!(sum.to_vec().unwrap(), [values.iter().sum::<f32>()]);

    let words = numbers.vec_u32(N);
    let input = bench.device.alloc_from(&words).unwrap();
    let max = bench.device.alloc_from(&[0_u32]).unwrap();
    unsafe { bench.run("reduce_max_u32", 3, 128, &args![&input, &max, N as u32]) };
    assert_eq!(max.to_vec().unwrap(), [*words.iter().max().unwrap()]);
}

#[test]
fn mandelbrot_diverges_and_meets_again() {
    let mut bench = Bench::new("mandelbrot");
    let (width, height, limit) = (75_u32, 50_u32, 200_u32);
    let (x0, y0, step) = (-2.0_f32, -1.0_f32, 0.04_f32);
    let out = bench.device.alloc::<u32>((width * height) as usize).unwrap();
    let arguments = args![&out, width, height, x0, y0, step, limit];
    unsafe { bench.run("mandelbrot", (width.div_ceil(16), height.div_ceil(8)), (16, 8), &arguments) };
    let got = out.to_vec().unwrap();
    for py in 0..height {
        for px in 0..width {
            let (cx, cy) = (x0 + px as f32 * step, y0 + py as f32 * step);
            let (mut x, mut y, mut count) = (0.0_f32, 0.0_f32, 0);
            while count < limit && x * x + y * y <= 4.0 {
                (x, y) = (x * x - y * y + cx, x * y + x * y + cy);
                count += 1;
            }
            assert_eq!(got[(py * width + px) as usize], count, "pixel {px}, {py}");
        }
    }
}

#[test]
fn softmax_rows_sum_to_one_and_match() {
    let mut bench = Bench::new("softmax");
    let (rows, columns) = (9_usize, 300_usize);
    let input: Vec<f32> = Numbers::new(7).vec_f32(rows * columns).iter().map(|x| x * 10.0).collect();
    let gpu_in = bench.device.alloc_from(&input).unwrap();
    let gpu_out = bench.device.alloc::<f32>(rows * columns).unwrap();
    unsafe { bench.run("softmax_rows", rows as u32, 128, &args![&gpu_in, &gpu_out, columns as u32]) };
    for (got, row) in gpu_out.to_vec().unwrap().chunks(columns).zip(input.chunks(columns)) {
        let largest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let exps: Vec<f64> = row.iter().map(|x| (f64::from(*x) - largest).exp()).collect();
        let sum: f64 = exps.iter().sum();
        for (got, want) in got.iter().zip(exps.iter().map(|exp| exp / sum)) {
            assert!((f64::from(*got) - want).abs() <= want * 1e-5, "{got} instead of {want}");
        }
    }
}

#[test]
fn transposition_through_shared_memory() {
    let mut bench = Bench::new("transpose");
    let (rows, columns) = (70_usize, 45_usize);
    let input = Numbers::new(8).vec_f32(rows * columns);
    let gpu_in = bench.device.alloc_from(&input).unwrap();
    let gpu_out = bench.device.alloc::<f32>(rows * columns).unwrap();
    let arguments = args![&gpu_in, &gpu_out, rows as u32, columns as u32];
    unsafe { bench.run("transpose", (blocks(columns, 32), blocks(rows, 32)), (32, 8), &arguments) };
    let got = gpu_out.to_vec().unwrap();
    for row in 0..rows {
        for column in 0..columns {
            assert_eq!(got[column * rows + row], input[row * columns + column]);
        }
    }
}

#[test]
fn prefix_sum_in_three_launches_of_one_submission() {
    let mut bench = Bench::new("scan");
    let (n, block) = (3000_usize, 256_u32);
    let input: Vec<u32> = Numbers::new(9).vec_u32(n).iter().map(|x| x % 1000).collect();
    let grid = blocks(n, block);
    let gpu_in = bench.device.alloc_from(&input).unwrap();
    let out = bench.device.alloc::<u32>(n).unwrap();
    let sums = bench.device.alloc::<u32>(grid as usize).unwrap();
    let totals = bench.device.alloc_from(&[0_u32]).unwrap();
    let scan = bench.program.kernel("scan_blocks").unwrap();
    let add = bench.program.kernel("scan_add_offsets").unwrap();
    unsafe { bench.queue.launch(&scan, grid, block, &args![&gpu_in, &out, &sums, n as u32]) }.unwrap();
    unsafe { bench.queue.launch(&scan, 1, 32, &args![&sums, &sums, &totals, grid]) }.unwrap();
    unsafe { bench.queue.launch(&add, grid, block, &args![&out, &sums, n as u32]) }.unwrap();
    bench.queue.wait(test_support::TIMEOUT).unwrap();
    let want: Vec<u32> = input
        .iter()
        .scan(0, |sum, x| {
            *sum += x;
            Some(*sum)
        })
        .collect();
    assert_eq!(out.to_vec().unwrap(), want);
    assert_eq!(totals.to_vec().unwrap(), [*want.last().unwrap()]);
}

#[test]
fn global_atomics_of_every_kind() {
    let mut bench = Bench::new("atomics");
    let threads = 64 * 5_u32;
    let start = [0, 1000, u32::MAX, 0, u32::MAX, 0, 0, 7, 0, 0_u32];
    let words = bench.device.alloc_from(&start).unwrap();
    unsafe { bench.run("atomics_u32", 5, 64, &args![&words]) };
    let got = words.to_vec().unwrap();
    let ids = || 0..threads;
    assert_eq!(got[0], ids().sum::<u32>());
    assert_eq!(got[1], 1000 - threads);
    assert_eq!(got[2], ids().map(|i| i ^ 0x55).min().unwrap());
    assert_eq!(got[3], ids().map(|i| i ^ 0x55).max().unwrap());
    assert_eq!(got[4], 0);
    assert_eq!(got[5], u32::MAX);
    assert_eq!(got[6], ids().fold(0, |a, i| a ^ i));
    assert!(got[7] < threads);
    assert_eq!(got[8], 3 * threads);
    assert_eq!(got[9], threads);
}

#[test]
fn dynamic_shared_memory_and_its_size() {
    let mut bench = Bench::new("dynamic_shared");
    let input = Numbers::new(10).vec_f32(512);
    let gpu_in = bench.device.alloc_from(&input).unwrap();
    let out = bench.device.alloc::<f32>(513).unwrap();
    let kernel = bench.program.kernel("dynamic_reverse").unwrap();
    unsafe { bench.queue.launch_with_shared(&kernel, 2, 256, 1024, &args![&gpu_in, &out]) }.unwrap();
    bench.queue.wait(test_support::TIMEOUT).unwrap();
    let got = out.to_vec().unwrap();
    for block in 0..2 {
        for t in 0..256 {
            assert_eq!(got[block * 256 + t], input[block * 256 + 255 - t] + 0.5);
        }
    }
    assert_eq!(got[512], 1024.0);
}

#[test]
fn thread_ids_of_three_dimensional_launches() {
    let mut bench = Bench::new("basics");
    let (grid, block) = ((3, 2, 4), (5, 3, 2));
    let (blocks, threads) = (3 * 2 * 4, 5 * 3 * 2);
    let out = bench.device.alloc::<u32>((blocks * threads * 8) as usize).unwrap();
    unsafe { bench.run("thread_ids", grid, block, &args![&out]) };
    for (index, ids) in out.to_vec().unwrap().chunks(8).enumerate() {
        let (b, t) = (index as u32 / threads, index as u32 % threads);
        let want = [b % 3, b / 3 % 2, b / 6, t % 5, t / 5 % 3, t / 15, threads, blocks];
        assert_eq!(ids, want);
    }
}

#[test]
fn stacks_recursion_and_function_pointers() {
    let mut bench = Bench::new("calls");
    let depth: Vec<u32> = (0..64).map(|i| i % 13).collect();
    let input = bench.device.alloc_from(&depth).unwrap();
    let out = bench.device.alloc::<u32>(64).unwrap();
    unsafe { bench.run("call_fibonacci", 2, 32, &args![&input, &out, 64_u32]) };
    let fibonacci = |n: u32| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
    let want: Vec<u32> = depth.iter().map(|n| fibonacci(*n)).collect();
    assert_eq!(out.to_vec().unwrap(), want);
}

#[test]
fn structs_by_value_and_mixed_sizes() {
    let mut bench = Bench::new("params");
    let out = bench.device.alloc_from(&[0_u64; 8]).unwrap();
    let arguments =
        args![-5_i8, -300_i16, -70_000_i32, i64::MIN, 1.5_f32, -2.25_f64, 200_u8, &out, 65_000_u16];
    unsafe { bench.run("mixed_params", 1, 32, &arguments) };
    let want = [
        -5_i64 as u64,
        -300_i64 as u64,
        -70_000_i64 as u64,
        i64::MIN as u64,
        u64::from(1.5_f32.to_bits()),
        (-2.25_f64).to_bits(),
        200,
        65_000,
    ];
    assert_eq!(out.to_vec().unwrap(), want);

    // The same as a ready block, with the padding that the offsets leave.
    let kernel = bench.program.kernel("mixed_params").unwrap();
    assert_eq!(kernel.parameter_offsets().collect::<Vec<_>>(), [0, 2, 4, 8, 16, 24, 32, 40, 48]);
    let mut block = vec![0xee; kernel.parameter_bytes()];
    for (offset, argument) in kernel.parameter_offsets().zip(&arguments) {
        let bytes = match argument {
            Arg::U8(value) => value.to_le_bytes().to_vec(),
            Arg::U16(value) => value.to_le_bytes().to_vec(),
            Arg::U32(value) => value.to_le_bytes().to_vec(),
            Arg::U64(value) => value.to_le_bytes().to_vec(),
            _ => out.gpu_va().to_le_bytes().to_vec(),
        };
        block[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }
    bench.queue.fill(unsafe { out.slice_mut_unchecked(..) }.unwrap().cast::<u8>().unwrap(), 0).unwrap();
    unsafe { bench.queue.launch_raw(&kernel, 1, 32, 0, &block) }.unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), want);
    let error = unsafe { bench.queue.launch_raw(&kernel, 1, 32, 0, &block[1..]) }.unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel mixed_params: the parameter block has 49 bytes, the parameters have 50"
    );
    let foreign = Bench::new("params").program.kernel("mixed_params").unwrap();
    let error = unsafe { bench.queue.launch_raw(&foreign, 1, 32, 0, &block) }.unwrap_err();
    assert_eq!(error.to_string(), "the kernel belongs to another device");

    let words: Vec<u8> = (0..960_u32).flat_map(|i| (i * i).to_le_bytes()).collect();
    let sum = bench.device.alloc::<u32>(1).unwrap();
    unsafe { bench.run("large_param", 1, 1, &[Arg::from(&sum), Arg::Bytes(&words)]) };
    assert_eq!(sum.to_vec().unwrap(), [(0..960_u32).map(|i| i * i).sum::<u32>()]);
}

#[test]
fn two_kernels_a_hundred_times_lose_no_increment() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 100]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    for _ in 0..100 {
        unsafe { bench.queue.launch(&kernel, 1, 128, &args![&data, 100_u32]) }.unwrap();
        unsafe { bench.queue.launch(&kernel, 1, 128, &args![&data, 100_u32]) }.unwrap();
        bench.queue.submit().unwrap();
    }
    assert_eq!(data.to_vec().unwrap(), [200; 100]);
}

#[test]
fn rings_wrap_many_times() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 1]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    for _ in 0..3000 {
        unsafe { bench.queue.launch(&kernel, 1, 1, &args![&data, 1_u32]) }.unwrap();
        bench.queue.submit().unwrap();
    }
    assert_eq!(data.to_vec().unwrap(), [3000]);
}

#[test]
fn a_batch_longer_than_its_buffer_is_submitted_in_parts() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 1]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    for _ in 0..2000 {
        unsafe { bench.queue.launch(&kernel, 1, 1, &args![&data, 1_u32]) }.unwrap();
    }
    bench.queue.submit().unwrap();
    assert_eq!(data.to_vec().unwrap(), [2000]);
}

#[test]
fn copies_follow_launches_and_launches_follow_copies() {
    let mut bench = Bench::new("basics");
    let kernel = bench.program.kernel("increment").unwrap();
    let n = 3000_u32;
    let mut a = bench.device.alloc_from(&vec![1_u32; n as usize]).unwrap();
    let mut b = bench.device.alloc_from(&vec![0_u32; n as usize]).unwrap();
    for _ in 0..10 {
        unsafe { bench.queue.launch(&kernel, n.div_ceil(256), 256, &args![&a, n]) }.unwrap();
        bench.queue.copy(&a, &mut b).unwrap();
        unsafe { bench.queue.launch(&kernel, n.div_ceil(256), 256, &args![&b, n]) }.unwrap();
        bench.queue.copy(&b, &mut a).unwrap();
    }
    bench.queue.wait(test_support::TIMEOUT).unwrap();
    assert_eq!(a.to_vec().unwrap(), vec![21; n as usize]);
    assert_eq!(b.to_vec().unwrap(), vec![21; n as usize]);
}

#[test]
fn a_grid_with_a_barrier_is_not_part_of_a_graph() {
    let bench = Bench::new("grid");
    let kernel = bench.program.kernel("grid_rotate").unwrap();
    let data = bench.device.alloc::<u32>(64).unwrap();
    let refused = unsafe { bench.device.graph().launch(&kernel, 1, 64, &args![&data, &data, 2_u32]) };
    assert!(matches!(refused, Err(Error::Launch(LaunchError::GridBarrierInGraph { .. }))));
}
