//! Results do not depend on the number of host threads that run a grid, and not on the tier.

use crate::support::{Buffer, Machine, Params, Random};
use orin_sim::sm::{GridRun, GridStats, SmFault, Sms, Step, Tier};

/// Runs a kernel of a file on one to seven threads, in small steps, and by the interpreter alone. Memory, the executed
/// instructions and the fault, if any, must be the same each time. Returns the final contents of the buffers.
fn compare(
    what: &str,
    (load, file): (fn(&str) -> Machine, &str),
    grid: [u32; 3],
    block: [u32; 3],
    prepare: impl Fn(&mut Machine) -> (Params, Vec<Buffer>),
) -> Vec<Vec<u32>> {
    let run = |threads: usize, fuel: u64, tier: Tier| -> (Result<GridStats, SmFault>, Vec<Vec<u32>>) {
        let mut machine = load(file);
        (machine.options.threads, machine.options.tier) = (Some(threads), tier);
        let (params, buffers) = prepare(&mut machine);
        let mut run = machine.grid(what, grid, block, &params, 0);
        let outcome = loop {
            match run.step(fuel) {
                Ok(Step::Finished(stats)) => break Ok(stats),
                Ok(Step::Running) => assert!(fuel < u64::MAX, "{what} runs without end"),
                Err(fault) => break Err(fault),
            }
        };
        (outcome, buffers.iter().map(Buffer::u32s).collect())
    };
    let expected = run(1, u64::MAX, Tier::Interpreter);
    for (threads, fuel) in [(1, u64::MAX), (2, u64::MAX), (3, 5000), (7, u64::MAX), (2, 777), (1, 10_000)] {
        assert_eq!(
            run(threads, fuel, Tier::Compiled),
            expected,
            "{what} with {threads} threads in steps of {fuel}"
        );
    }
    expected.1
}

fn numbers(seed: u64, count: usize) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.u32()).collect()
}

/// Numbers of very different magnitude, so that the order of additions is visible.
fn floats(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.f32() * 2f32.powi((random.u32() % 40) as i32 - 20)).collect()
}

#[test]
fn independent_blocks() {
    let n = 96;
    let out = compare("matmul_tiled", (Machine::kernels, "matmul"), [6, 6, 1], [16, 16, 1], |machine| {
        let (a, b) = (machine.f32s(&floats(1, n * n)), machine.f32s(&floats(2, n * n)));
        let c = machine.zeros(4 * n * n);
        let size = n as u32;
        (Params::new().buffer(&a).buffer(&b).buffer(&c).u32(size).u32(size).u32(size), vec![c])
    });
    assert!(out[0].iter().any(|word| *word != 0));
    let out = compare("mandelbrot", (Machine::kernels, "mandelbrot"), [6, 12, 1], [16, 8, 1], |machine| {
        let out = machine.zeros(4 * 96 * 96);
        (Params::new().buffer(&out).u32(96).u32(96).f32(-2.0).f32(-1.25).f32(0.03).u32(150), vec![out])
    });
    assert!(out[0].iter().any(|word| *word > 1));
    compare("transpose", (Machine::kernels, "transpose"), [4, 4, 1], [32, 8, 1], |machine| {
        let (input, out) = (machine.u32s(&numbers(3, 128 * 128)), machine.zeros(4 * 128 * 128));
        (Params::new().buffer(&input).buffer(&out).u32(128).u32(128), vec![out])
    });
    compare("softmax_rows", (Machine::kernels, "softmax"), [64, 1, 1], [128, 1, 1], |machine| {
        let (input, out) = (machine.f32s(&floats(4, 64 * 200)), machine.zeros(4 * 64 * 200));
        (Params::new().buffer(&input).buffer(&out).u32(200), vec![out])
    });
    compare("call_fibonacci", (Machine::kernels, "calls"), [16, 1, 1], [64, 1, 1], |machine| {
        let depths: Vec<u32> = numbers(5, 1024).iter().map(|number| number % 9).collect();
        let (input, out) = (machine.u32s(&depths), machine.zeros(4 * 1024));
        (Params::new().buffer(&input).buffer(&out).u32(1024), vec![out])
    });
}

/// A fault inside of generated code is that of the interpreter: address, instruction and thread.
#[test]
fn faults_of_loops() {
    compare("saxpy", (Machine::kernels, "saxpy"), [2, 1, 1], [64, 1, 1], |machine| {
        let (x, y) = (machine.zeros(1 << 16), machine.zeros(1 << 16));
        // The grid goes through four times the memory.
        (Params::new().f32(2.0).buffer(&x).buffer(&y).u32(1 << 16), vec![x, y])
    });
}

/// A loop in generated code ends when its fuel does.
#[test]
fn loops_without_end() {
    for tier in [Tier::Interpreter, Tier::Compiled] {
        let mut machine = Machine::kernels("mandelbrot");
        (machine.options.threads, machine.options.tier) = (Some(1), tier);
        let out = machine.zeros(4096);
        // The starting point is in the set.
        let params = Params::new().buffer(&out).u32(32).u32(1).f32(0.0).f32(0.0).f32(0.0).u32(u32::MAX);
        let mut run = machine.grid("mandelbrot", [1; 3], [32, 1, 1], &params, 0);
        for steps in 1..=3 {
            assert_eq!(run.step(100_000), Ok(Step::Running));
            assert_eq!(run.stats().warp_instructions, steps * 100_000);
        }
    }
}

#[test]
fn reductions_that_commute() {
    let values = numbers(6, 64 * 256);
    let out = compare("commuting", (Machine::sass, "order"), [64, 1, 1], [256, 1, 1], |machine| {
        let (input, out) =
            (machine.u32s(&values), machine.u32s(&[0, !0, 0, !0, 0, 0, i32::MAX as u32, 1 << 31]));
        (Params::new().buffer(&input).buffer(&out), vec![out])
    });
    let signed = values.iter().map(|value| *value as i32);
    let expected = [
        values.iter().fold(0, |a: u32, b| a.wrapping_add(*b)),
        *values.iter().min().unwrap(),
        *values.iter().max().unwrap(),
        values.iter().fold(!0, |a, b| a & (b | 0xff)),
        values.iter().fold(0, |a, b| a | b & 0x0f0f_0f0f),
        values.iter().fold(0, |a, b| a ^ b),
        signed.clone().min().unwrap() as u32,
        signed.max().unwrap() as u32,
    ];
    assert_eq!(out[0], expected);
    compare("histogram_u8", (Machine::kernels, "histogram"), [32, 1, 1], [256, 1, 1], |machine| {
        let (data, bins) = (machine.u32s(&numbers(7, 8192)), machine.zeros(4 * 256));
        (Params::new().buffer(&data).buffer(&bins).u32(4 * 8192), vec![bins])
    });
}

#[test]
fn sums_that_depend_on_their_order() {
    let values = floats(8, 48 * 128);
    let out = compare("sum_atomic", (Machine::sass, "order"), [48, 1, 1], [128, 1, 1], |machine| {
        let (input, sum) = (machine.f32s(&values), machine.zeros(4));
        (Params::new().buffer(&input).buffer(&sum), vec![sum])
    });
    let exact: f64 = values.iter().map(|value| f64::from(*value)).sum();
    let error = (f64::from(f32::from_bits(out[0][0])) - exact).abs();
    assert!(error < exact.abs().max(1.0) * 0.05, "{error} of {exact}");
    compare("atomics_wide", (Machine::kernels, "atomics"), [40, 1, 1], [96, 1, 1], |machine| {
        let (a, b, c) = (machine.zeros(8), machine.f32s(&[0.1]), machine.f64s(&[0.1]));
        (Params::new().buffer(&a).buffer(&b).buffer(&c), vec![a, b, c])
    });
    compare("reduce_sum_f32", (Machine::kernels, "reduce"), [40, 1, 1], [256, 1, 1], |machine| {
        let (input, sum) = (machine.f32s(&floats(9, 40 * 256)), machine.zeros(4));
        (Params::new().buffer(&input).buffer(&sum).u32(40 * 256), vec![sum])
    });
}

#[test]
fn tickets_exchanges_and_last_writers() {
    let out = compare("atomic_tickets", (Machine::kernels, "atomics"), [50, 1, 1], [100, 1, 1], |machine| {
        let (counter, order) = (machine.zeros(4), machine.zeros(4 * 5000));
        (Params::new().buffer(&counter).buffer(&order), vec![counter, order])
    });
    let mut tickets = out[1].clone();
    tickets.sort_unstable();
    assert_eq!(tickets, (0..5000).collect::<Vec<_>>());
    compare("atomics_u32", (Machine::kernels, "atomics"), [30, 1, 1], [64, 1, 1], |machine| {
        let words = machine.u32s(&[7; 10]);
        (Params::new().buffer(&words), vec![words])
    });
    let out = compare("last_writer", (Machine::sass, "order"), [30, 1, 1], [64, 1, 1], |machine| {
        let (word, cell) = (machine.zeros(8), machine.zeros(4));
        (Params::new().buffer(&word).buffer(&cell), vec![word, cell])
    });
    assert_eq!((out[0][1], out[1][0] % 7), (30 * 64 % 1001, 0));
}

#[test]
fn blocks_that_work_for_each_other() {
    let values = floats(10, 64 * 100);
    let out = compare("last_block", (Machine::sass, "order"), [100, 1, 1], [32, 1, 1], |machine| {
        let (input, partial) = (machine.f32s(&values), machine.zeros(400));
        let (arrived, sum, who) = (machine.zeros(4), machine.zeros(4), machine.u32s(&[!0]));
        let params = Params::new().buffer(&input).buffer(&partial).buffer(&arrived).buffer(&sum).buffer(&who);
        (params, vec![partial, sum, who])
    });
    let partial: Vec<f32> = values.chunks(64).map(|part| part.iter().sum()).collect();
    assert_eq!(out[1][0], partial.iter().sum::<f32>().to_bits());
    assert!(out[2][0] < 100);
    let pieces = 300u32;
    let out = compare("work_queue", (Machine::sass, "order"), [20, 1, 1], [64, 1, 1], |machine| {
        let (next, owner) = (machine.zeros(4), machine.u32s(&[!0; 300]));
        let result = machine.zeros(4 * 300 * 64);
        (Params::new().buffer(&next).u32(pieces).buffer(&owner).buffer(&result), vec![next, owner, result])
    });
    assert_eq!(out[0][0], pieces + 20, "each block asks once too often");
    assert!(out[1].iter().all(|owner| *owner < 20));
}

#[test]
fn blocks_that_wait_for_each_other() {
    let out = compare("chain", (Machine::sass, "order"), [90, 1, 1], [32, 1, 1], |machine| {
        let (flags, values) = (machine.zeros(360), machine.zeros(360));
        (Params::new().buffer(&flags).buffer(&values), vec![flags, values])
    });
    let expected = (0..90u32).scan(1u32, |carried, block| {
        *carried = carried.wrapping_mul(3).wrapping_add(block);
        Some(*carried)
    });
    assert_eq!(out[1], expected.collect::<Vec<_>>());
    compare("grid_barrier", (Machine::sass, "lock"), [60, 1, 1], [64, 1, 1], |machine| {
        let (arrived, out) = (machine.zeros(4), machine.zeros(4 * 60));
        (Params::new().buffer(&arrived).buffer(&out), vec![arrived, out])
    });
    compare("lock_each", (Machine::sass, "lock"), [12, 1, 1], [48, 1, 1], |machine| {
        let words = machine.zeros(8);
        (Params::new().buffer(&words), vec![words])
    });
}

#[test]
fn the_first_fault_in_the_order_of_the_grid_counts() {
    compare("fault_no_bound", (Machine::kernels, "faults"), [64, 1, 1], [256, 1, 1], |machine| {
        // The buffers end in the middle of the grid.
        let (input, out) = (machine.zeros(4096 * 9), machine.zeros(4096 * 20));
        (Params::new().buffer(&input).buffer(&out), Vec::new())
    });
}

#[test]
fn random_orders_of_warps_are_the_same_for_a_seed() {
    let run = |seed: Option<u64>, threads: usize| {
        let mut machine = Machine::kernels("atomics");
        (machine.options.seed, machine.options.threads) = (seed, Some(threads));
        let (counter, order) = (machine.zeros(4), machine.zeros(4 * 1024));
        machine.run("atomic_tickets", [4, 1, 1], [256, 1, 1], &Params::new().buffer(&counter).buffer(&order));
        order.u32s()
    };
    assert_eq!(run(Some(1), 1), run(Some(1), 3));
    assert_ne!(run(Some(1), 1), run(Some(2), 1));
    assert_ne!(run(Some(1), 1), run(None, 1));
}

#[test]
fn a_missing_barrier_shows_under_seeds() {
    // The sums of scan_blocks, with and without its barriers, for several seeds.
    let run = |seed: u64, barriers: bool| {
        let mut machine = Machine::kernels("scan");
        machine.options.seed = Some(seed);
        if !barriers {
            // NOP in place of each BAR.
            machine
                .patch(|word| (word & 0x1ff == 0x11d).then_some(0x000f_c000_0000_0000_0000_0000_0000_7918));
        }
        let (input, out) = (machine.u32s(&numbers(11, 1024)), machine.zeros(4096));
        let sums = machine.zeros(64);
        let kernel = machine.cubin().kernel("scan_blocks").unwrap();
        let block = 256;
        assert!(kernel.shared_bytes > 0);
        let params = Params::new().buffer(&input).buffer(&out).buffer(&sums).u32(1024);
        machine.run("scan_blocks", [1024 / block, 1, 1], [block, 1, 1], &params);
        out.u32s()
    };
    let right = run(0, true);
    assert!((1..8).all(|seed| run(seed, true) == right));
    assert!((0..8).any(|seed| run(seed, false) != right));
}

#[test]
fn code_is_decoded_once_and_again_when_it_changes() {
    let mut machine = Machine::kernels("basics");
    let out = machine.zeros(4 * 64);
    let kernel = machine.cubin().kernel("fill_u32").unwrap().clone();
    let params = Params::new().buffer(&out).u32(5).u32(64);
    let launch = machine.launch_of(&kernel, [2, 1, 1], [32, 1, 1], &params, 0);
    let sms = Sms::new(8, machine.options.clone());
    let fill = |machine: &Machine| {
        let mut run = GridRun::on(&sms, launch.clone(), machine.view()).unwrap();
        assert!(matches!(run.step(u64::MAX).unwrap(), Step::Finished(_)));
        sms.decoded_pages()
    };
    let first = fill(&machine);
    assert!(first > 0);
    assert_eq!((fill(&machine), out.u32s()), (first, vec![5; 64]));
    // EXIT in place of the store, so nothing is written any more.
    machine.patch(|word| (word & 0xfff == 0x986).then_some(0x000f_ea00_0380_0000_0000_0000_0000_794d));
    out.memory.store(0, 9);
    assert!(fill(&machine) > first);
    assert_eq!(out.u32s()[..2], [9, 5]);
}
