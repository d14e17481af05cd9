//! Memory spaces, atomics and parameters of compiled kernels.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Machine, Params, Random, assert_close, assert_same};

#[test]
fn threads_read_their_ids() {
    for (grid, block) in [([3, 2, 2], [5, 3, 2]), ([1, 1, 7], [33, 1, 1]), ([2, 3, 1], [4, 4, 4])] {
        let mut machine = Machine::kernels("basics");
        let threads: u32 = block.iter().product();
        let blocks: u32 = grid.iter().product();
        let out = machine.zeros((threads * blocks * 32) as usize);
        machine.run("thread_ids", grid, block, &Params::new().buffer(&out));
        let mut expected = Vec::new();
        for block_index in 0..blocks {
            for thread in 0..threads {
                expected.extend([
                    block_index % grid[0],
                    block_index / grid[0] % grid[1],
                    block_index / grid[0] / grid[1],
                ]);
                expected.extend([
                    thread % block[0],
                    thread / block[0] % block[1],
                    thread / block[0] / block[1],
                ]);
                expected.extend([threads, blocks]);
            }
        }
        assert_eq!(out.u32s(), expected);
    }
}

#[test]
fn elementwise_basics() {
    let mut machine = Machine::kernels("basics");
    let out = machine.zeros(4000);
    machine.run("empty", [3, 1, 1], [32, 1, 1], &Params::new());
    machine.run_1d("fill_u32", 900, 64, &Params::new().buffer(&out).u32(7).u32(900));
    assert!(
        out.u32s()[..900].iter().all(|&word| word == 7) && out.u32s()[900..].iter().all(|&word| word == 0)
    );
    machine.run_1d("square_plus_one", 1000, 128, &Params::new().buffer(&out).u32(1000));
    machine.run_1d("increment", 1000, 128, &Params::new().buffer(&out).u32(1000));
    assert_eq!(out.u32s(), (0..1000).map(|i| i * i + 2).collect::<Vec<u32>>());
}

#[test]
fn histogram_of_bytes() {
    let mut random = Random::new(40);
    let data: Vec<u8> = (0..5000).map(|_| (random.u32() & random.u32() >> 8) as u8).collect();
    for (grid, block) in [(1, 32), (3, 100), (8, 256)] {
        let mut machine = Machine::kernels("histogram");
        let (input, bins) = (machine.bytes(&data), machine.zeros(1024));
        machine.run(
            "histogram_u8",
            [grid, 1, 1],
            [block, 1, 1],
            &Params::new().buffer(&input).buffer(&bins).u32(5000),
        );
        let mut expected = vec![0; 256];
        data.iter().for_each(|&byte| expected[usize::from(byte)] += 1);
        assert_eq!(bins.u32s(), expected);
    }
}

#[test]
fn transpose_through_a_tile() {
    for (rows, columns) in [(32u32, 32u32), (70, 45), (1, 100)] {
        let mut machine = Machine::kernels("transpose");
        let values: Vec<f32> = (0..rows * columns).map(|at| at as f32).collect();
        let (input, out) = (machine.f32s(&values), machine.zeros(values.len() * 4));
        let params = Params::new().buffer(&input).buffer(&out).u32(rows).u32(columns);
        machine.run("transpose", [columns.div_ceil(32), rows.div_ceil(32), 1], [32, 8, 1], &params);
        let expected: Vec<f32> =
            (0..rows * columns).map(|at| (at % rows * columns + at / rows) as f32).collect();
        assert_same(&out.f32s(), &expected, "transpose");
    }
}

#[test]
fn scans_and_softmax() {
    let mut random = Random::new(41);
    let (n, block) = (3000usize, 256usize);
    let values: Vec<u32> = (0..n).map(|_| random.u32() % 1000).collect();
    let mut machine = Machine::kernels("scan");
    let blocks = n.div_ceil(block);
    let (input, out, sums) = (machine.u32s(&values), machine.zeros(4 * n), machine.zeros(4 * blocks));
    machine.run_1d(
        "scan_blocks",
        n,
        256,
        &Params::new().buffer(&input).buffer(&out).buffer(&sums).u32(n as u32),
    );
    let totals: Vec<u32> = values.chunks(block).map(|chunk| chunk.iter().sum()).collect();
    assert_eq!(sums.u32s(), totals);
    let running: Vec<u32> = totals
        .iter()
        .scan(0, |sum, &total| {
            *sum += total;
            Some(*sum)
        })
        .collect();
    let scanned = machine.u32s(&running);
    machine.run_1d("scan_add_offsets", n, 256, &Params::new().buffer(&out).buffer(&scanned).u32(n as u32));
    assert_eq!(
        out.u32s(),
        values
            .iter()
            .scan(0, |sum, &value| {
                *sum += value;
                Some(*sum)
            })
            .collect::<Vec<u32>>()
    );

    for (columns, block) in [(7usize, 32u32), (500, 128), (1000, 256)] {
        let mut machine = Machine::kernels("softmax");
        let values: Vec<f32> = (0..3 * columns).map(|_| random.f32() * 20.0).collect();
        let (input, out) = (machine.f32s(&values), machine.zeros(12 * columns));
        let params = Params::new().buffer(&input).buffer(&out).u32(columns as u32);
        machine.run("softmax_rows", [3, 1, 1], [block, 1, 1], &params);
        let expected: Vec<f64> = values
            .chunks_exact(columns)
            .flat_map(|row| {
                let largest = row.iter().copied().fold(f32::MIN, f32::max);
                let terms: Vec<f64> = row.iter().map(|&x| f64::from(x - largest).exp()).collect();
                let sum: f64 = terms.iter().sum();
                terms.into_iter().map(move |term| term / sum)
            })
            .collect();
        assert_close(&out.f32s(), &expected, 5e-6, "softmax");
    }
}

#[test]
fn dynamic_shared_memory() {
    let mut machine = Machine::kernels("dynamic_shared");
    let values: Vec<f32> = (0..256).map(|at| at as f32).collect();
    let input = machine.f32s(&values);
    let out = machine.zeros(16);
    machine
        .try_run("dynamic_sum", [4, 1, 1], [64, 1, 1], &Params::new().buffer(&input).buffer(&out), 256)
        .unwrap();
    let sums: Vec<f32> = values.chunks(64).map(|chunk| chunk.iter().sum()).collect();
    assert_same(&out.f32s(), &sums, "dynamic_sum");
    let out = machine.zeros(4 * 257);
    machine
        .try_run("dynamic_reverse", [2, 1, 1], [128, 1, 1], &Params::new().buffer(&input).buffer(&out), 512)
        .unwrap();
    let mut expected: Vec<f32> =
        values.chunks(128).flat_map(|chunk| chunk.iter().rev().map(|x| x + 0.5)).collect();
    expected.push(512.0);
    assert_same(&out.f32s(), &expected, "dynamic_reverse");
}

#[test]
fn local_arrays_and_generic_pointers() {
    let mut random = Random::new(42);
    let mut machine = Machine::kernels("local_memory");
    let seeds: Vec<u32> = (0..64).map(|_| random.u32()).collect();
    let (input, out) = (machine.u32s(&seeds), machine.zeros(4 * 200));
    machine.run_1d("local_table", 200, 64, &Params::new().buffer(&input).buffer(&out).u32(200));
    let expected: Vec<u32> = (0..200u32)
        .map(|i| {
            let table = |j: u32| seeds[j as usize].wrapping_mul(7).wrapping_add(i);
            table((0..3).fold(i & 63, |at, _| table(at) & 63))
        })
        .collect();
    assert_eq!(out.u32s(), expected);

    let mut words: Vec<u32> = (0..8 * 100).map(|_| random.u32()).collect();
    let data = machine.u32s(&words);
    machine.run_1d("local_sort8", 100, 32, &Params::new().buffer(&data).u32(100));
    words.chunks_exact_mut(8).for_each(<[u32]>::sort_unstable);
    assert_eq!(data.u32s(), words);

    for which in 0..3u32 {
        let out = machine.zeros(4 * 40);
        machine.run(
            "generic_pointer",
            [1, 1, 1],
            [40, 1, 1],
            &Params::new().buffer(&input).buffer(&out).u32(which),
        );
        let add = [100, 200, 0][which as usize];
        let expected: Vec<u32> = (0..40).map(|t| seeds[t & 7].wrapping_add(add)).collect();
        assert_eq!(out.u32s(), expected, "pointer of kind {which}");
    }
}

#[test]
fn variables_of_the_module() {
    let mut machine = Machine::kernels("globals");
    let values: Vec<f32> = (0..50).map(|at| at as f32 * 0.5).collect();
    let (input, out) = (machine.f32s(&values), machine.zeros(200));
    machine.run_1d("filter5", 50, 32, &Params::new().buffer(&input).buffer(&out).i32(50));
    const TAPS: [f32; 5] = [0.0625, 0.25, 0.375, 0.25, 0.0625];
    let expected: Vec<f32> = (0..50usize)
        .map(|at| {
            (0..5)
                .filter(|k| (2..52).contains(&(at + k)))
                .fold(0.0, |sum, k| TAPS[k].mul_add(values[at + k - 2], sum))
        })
        .collect();
    assert_same(&out.f32s(), &expected, "filter5");

    let words: Vec<u32> = (0..50).map(|at| at * 37).collect();
    let (input, out) = (machine.u32s(&words), machine.zeros(200));
    machine.run_1d("look_up", 50, 32, &Params::new().buffer(&input).buffer(&out).u32(50));
    const PALETTE: [u32; 16] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3];
    const PRIMES: [u32; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
    let expected: Vec<u32> =
        words.iter().enumerate().map(|(at, word)| PALETTE[*word as usize & 15] + PRIMES[at & 7]).collect();
    assert_eq!(out.u32s(), expected);

    let out = machine.zeros(4 * 65);
    for launch in 1..=3 {
        machine.run("remember", [1, 1, 1], [64, 1, 1], &Params::new().buffer(&out));
        let mut expected = vec![41 + launch];
        expected.extend((0..64).map(|t| t * launch));
        assert_eq!(out.u32s(), expected);
    }
    machine.run("remember_by_pointer", [1, 1, 1], [64, 1, 1], &Params::new().buffer(&out));
    assert_eq!(out.u32s()[0], 45);
}

#[test]
fn parameters_of_every_size() {
    let mut machine = Machine::kernels("params");
    let out = machine.zeros(64);
    let params = Params::new()
        .bytes(&[0x85])
        .bytes(&(-300i16).to_le_bytes())
        .i32(-7)
        .u64(0x1122_3344_5566_7788)
        .f32(1.5)
        .f64(-2.25)
        .bytes(&[0xfe])
        .buffer(&out)
        .bytes(&0xbeefu16.to_le_bytes());
    machine.run("mixed_params", [1, 1, 1], [32, 1, 1], &params);
    let expected = [
        0xffff_ffff_ffff_ff85,
        -300i64 as u64,
        -7i64 as u64,
        0x1122_3344_5566_7788,
        u64::from(1.5f32.to_bits()),
        (-2.25f64).to_bits(),
        0xfe,
        0xbeef,
    ];
    assert_eq!(out.u64s(), expected);

    let mut large = Params::new().buffer(&out);
    for word in 0..960u32 {
        large = large.u32(word * word);
    }
    machine.run("large_param", [1, 1, 1], [1, 1, 1], &large);
    assert_eq!(out.u32s()[0], (0..960u32).map(|word| word * word).sum::<u32>());

    let bytes: Vec<u8> = (0..=255).collect();
    let (a, b, c) = (machine.bytes(&bytes), machine.zeros(512), machine.zeros(2048));
    machine.run_1d("pointer_params", 256, 128, &Params::new().buffer(&a).buffer(&b).buffer(&c).u32(256));
    assert_eq!(b.bytes(), bytes.iter().flat_map(|&x| i16::from(x as i8).to_le_bytes()).collect::<Vec<_>>());
    assert_eq!(c.f64s(), bytes.iter().map(|&x| f64::from(x as i8).powi(2)).collect::<Vec<_>>());
}

#[test]
fn atomics_on_global_memory() {
    let threads = 96 * 3u32;
    let mut machine = Machine::kernels("atomics");
    let words = machine.u32s(&[0, 1000, u32::MAX, 0, u32::MAX, 0, 0, 77, 5, 0]);
    machine.run("atomics_u32", [3, 1, 1], [96, 1, 1], &Params::new().buffer(&words));
    let all = 0..threads;
    let result = words.u32s();
    assert_eq!(result[0], all.clone().sum::<u32>());
    assert_eq!(result[1], 1000 - threads);
    assert_eq!(result[2], all.clone().map(|i| i ^ 0x55).min().unwrap());
    assert_eq!(result[3], all.clone().map(|i| i ^ 0x55).max().unwrap());
    assert_eq!((result[4], result[5]), (0, u32::MAX));
    assert_eq!(result[6], all.clone().fold(0, |a, b| a ^ b));
    assert!(result[7] < threads);
    assert_eq!(result[8], 5 + 3 * threads);
    assert_eq!(result[9], threads % 1000);

    let (counter, order) = (machine.zeros(4), machine.zeros(4 * threads as usize));
    machine.run("atomic_tickets", [3, 1, 1], [96, 1, 1], &Params::new().buffer(&counter).buffer(&order));
    let mut order = order.u32s();
    order.sort_unstable();
    assert_eq!(order, all.clone().collect::<Vec<_>>());

    let (a, b, c) = (machine.zeros(8), machine.zeros(4), machine.zeros(8));
    machine.run("atomics_wide", [3, 1, 1], [96, 1, 1], &Params::new().buffer(&a).buffer(&b).buffer(&c));
    assert_eq!(a.u64s()[0], all.map(|i| 0x1_0000_0001 * u64::from(i)).sum::<u64>());
    assert_eq!((b.f32s()[0], c.f64s()[0]), (threads as f32 * 0.5, f64::from(threads) * 0.25));
}

#[test]
fn atomics_race_with_the_host() {
    let mut machine = Machine::kernels("atomics");
    let (counter, order) = (machine.zeros(4), machine.zeros(4 << 20));
    let mut grid = machine.grid(
        "atomic_tickets",
        [64, 1, 1],
        [256, 1, 1],
        &Params::new().buffer(&counter).buffer(&order),
        0,
    );
    let stop = AtomicBool::new(false);
    let memory = &counter.memory;
    let added = std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let mut added = 0u32;
            while !stop.load(Ordering::Relaxed) && added < 200_000 {
                memory.word(0).fetch_add(1, Ordering::Relaxed);
                added += 1;
            }
            added
        });
        assert!(matches!(grid.step(u64::MAX).unwrap(), orin_sim::sm::Step::Finished(_)));
        stop.store(true, Ordering::Relaxed);
        host.join().unwrap()
    });
    assert_eq!(counter.u32s()[0], 64 * 256 + added);
}
