//! Control flow: divergence, indirect branches, calls; and launches that run in steps.

use crate::support::{Machine, Params, Random};
use orin_sim::sm::Step;

#[test]
fn switch_through_a_table() {
    let mut random = Random::new(50);
    let n = 300;
    let ops: Vec<u32> = (0..n).map(|_| random.u32() % 14).collect();
    let values: Vec<u32> = (0..n).map(|_| random.u32()).collect();
    let mut machine = Machine::kernels("control_flow");
    let (op, input, out) = (machine.u32s(&ops), machine.u32s(&values), machine.zeros(4 * n));
    machine.run_1d(
        "switch_table",
        n,
        96,
        &Params::new().buffer(&op).buffer(&input).buffer(&out).u32(n as u32),
    );
    let expected: Vec<u32> = (0..n)
        .map(|at| {
            let (x, i) = (values[at], at as u32);
            match ops[at] {
                0 => x.wrapping_add(1),
                1 => x.wrapping_mul(3).wrapping_add(i),
                2 => x / 5,
                3 => (x % 9) ^ 1,
                4 => x.count_ones(),
                5 => x << 4 | 2,
                6 => x.reverse_bits(),
                7 => x.wrapping_mul(x).wrapping_sub(i),
                8 => !x,
                9 => (x >> 3).wrapping_add(x),
                10 => x.wrapping_sub(100),
                11 => x | 0x8000,
                _ => 0xdead,
            }
        })
        .collect();
    assert_eq!(out.u32s(), expected);
}

#[test]
fn a_branch_by_a_uniform_register() {
    let mut machine = Machine::sass("uniform");
    let operations: [fn(u32) -> u32; 4] = [|x| x + 1, |x| x * 3, |x| !x, u32::reverse_bits];
    for (op, operation) in (0..).zip(operations) {
        let out = machine.zeros(4 * 32);
        let params = Params::new().buffer(&out).u32(op);
        machine.run("uniform_branch", [1, 1, 1], [32, 1, 1], &params);
        assert_eq!(out.u32s(), (0..32).map(operation).collect::<Vec<_>>(), "operation {op}");
    }
}

fn collatz(start: u32, limit: u32) -> u32 {
    let (mut x, mut steps) = (u64::from(start), 0);
    while x > 1 && steps < limit {
        x = if x & 1 != 0 { 3 * x + 1 } else { x >> 1 };
        steps += 1;
    }
    steps
}

fn nested(input: i32) -> i32 {
    if input < -100 {
        return -1;
    }
    let x = input.abs();
    let mut sum = 0;
    for j in 0..64 {
        if j % 3 == x % 3 {
            continue;
        }
        if j > x {
            break;
        }
        sum += j;
        if sum > 500 {
            return sum;
        }
    }
    sum + 1000
}

#[test]
fn loops_with_branches() {
    let n = 500usize;
    let mut machine = Machine::kernels("control_flow");
    let starts: Vec<u32> = (0..n as u32).map(|i| i * 7919 % 10_007).collect();
    let (input, out) = (machine.u32s(&starts), machine.zeros(4 * n));
    machine.run_1d("collatz", n, 128, &Params::new().buffer(&input).buffer(&out).u32(200).u32(n as u32));
    assert_eq!(out.u32s(), starts.iter().map(|&start| collatz(start, 200)).collect::<Vec<_>>());

    let values: Vec<u32> = (0..n as i32).map(|i| (i * 37 % 301 - 150) as u32).collect();
    let (input, out) = (machine.u32s(&values), machine.zeros(4 * n));
    machine.run_1d("nested_branches", n, 64, &Params::new().buffer(&input).buffer(&out).u32(n as u32));
    assert_eq!(out.u32s(), values.iter().map(|&x| nested(x as i32) as u32).collect::<Vec<_>>());
}

#[test]
fn lanes_diverge_and_reconverge() {
    let mut random = Random::new(51);
    let n = 128;
    let choices: Vec<u32> = (0..n).map(|_| random.u32()).collect();
    let mut machine = Machine::kernels("control_flow");
    let (input, inside, after) = (machine.u32s(&choices), machine.zeros(4 * n), machine.zeros(4 * n));
    machine.run_1d("reconverge", n, 64, &Params::new().buffer(&input).buffer(&inside).buffer(&after));
    let expected: Vec<u32> = (0..n)
        .map(|at| {
            let choice = choices[at] & 3;
            let warp = &choices[at / 32 * 32..][..32];
            let same = warp.iter().filter(|&&other| other & 3 == choice).count() as u32;
            same * (choice + 1).min(3)
        })
        .collect();
    assert_eq!(inside.u32s(), expected);
    assert_eq!(after.u32s(), vec![32; n]);
}

#[test]
fn mandelbrot() {
    let (width, height, limit) = (61u32, 37u32, 300u32);
    let (x0, y0, step) = (-2.0f32, -1.2f32, 0.05f32);
    let mut machine = Machine::kernels("mandelbrot");
    let out = machine.zeros((width * height * 4) as usize);
    let params = Params::new().buffer(&out).u32(width).u32(height).f32(x0).f32(y0).f32(step).u32(limit);
    machine.run("mandelbrot", [width.div_ceil(16), height.div_ceil(8), 1], [16, 8, 1], &params);
    let expected: Vec<u32> = (0..width * height)
        .map(|at| {
            let (cx, cy) = (x0 + (at % width) as f32 * step, y0 + (at / width) as f32 * step);
            let (mut x, mut y, mut count) = (0.0f32, 0.0f32, 0);
            while count < limit {
                let (xx, yy) = (x * x, y * y);
                if xx + yy > 4.0 {
                    break;
                }
                let xy = x * y;
                (x, y) = (xx - yy + cx, xy + xy + cy);
                count += 1;
            }
            count
        })
        .collect();
    assert_eq!(out.u32s(), expected);
}

fn mix(a: u32, b: u32) -> u32 {
    (a ^ b.wrapping_mul(0x9e37_79b9)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

#[test]
fn calls_recursion_and_function_pointers() {
    let mut random = Random::new(52);
    let n = 100;
    let (a, b): (Vec<u32>, Vec<u32>) = (0..n).map(|_| (random.u32(), random.u32())).unzip();
    let mut machine = Machine::kernels("calls");
    let (da, db, out) = (machine.u32s(&a), machine.u32s(&b), machine.zeros(4 * n));
    machine.run_1d("call_mix", n, 64, &Params::new().buffer(&da).buffer(&out).u32(99).u32(n as u32));
    assert_eq!(out.u32s(), (0..n).map(|i| mix(mix(a[i], i as u32), 99)).collect::<Vec<_>>());

    let depths: Vec<u32> = a.iter().map(|a| a % 12).collect();
    let input = machine.u32s(&depths);
    machine.run_1d("call_fibonacci", n, 64, &Params::new().buffer(&input).buffer(&out).u32(n as u32));
    let fibonacci = |n: u32| (0..n).fold((0u32, 1u32), |(a, b), _| (b, a + b)).0;
    assert_eq!(out.u32s(), depths.iter().map(|&n| fibonacci(n)).collect::<Vec<_>>());

    let ops = machine.u32s(&b.iter().map(|b| b % 3).collect::<Vec<_>>());
    let params = Params::new().buffer(&ops).buffer(&da).buffer(&db).buffer(&out).u32(n as u32);
    machine.run_1d("call_pointer", n, 64, &params);
    let expected: Vec<u32> = (0..n)
        .map(|i| match b[i] % 3 {
            0 => a[i].wrapping_add(b[i]),
            1 => a[i].wrapping_mul(b[i]),
            _ => a[i] ^ b[i],
        })
        .collect();
    assert_eq!(out.u32s(), expected);
}

#[test]
fn steps_add_up_to_the_whole() {
    let run = |fuel: u64| {
        let mut machine = Machine::kernels("basics");
        // Fuel is counted per thread.
        machine.options.threads = Some(1);
        let out = machine.zeros(4 * 256);
        let mut grid = machine.grid("spin", [4, 1, 1], [64, 1, 1], &Params::new().buffer(&out).u32(500), 0);
        let mut steps = 0;
        loop {
            steps += 1;
            let before = grid.stats().warp_instructions;
            match grid.step(fuel).unwrap() {
                Step::Finished(stats) => return (steps, stats, out.u32s()),
                Step::Running => assert_eq!(grid.stats().warp_instructions - before, fuel),
            }
        }
    };
    let (steps, stats, whole) = run(u64::MAX);
    assert_eq!(steps, 1);
    let expected: Vec<u32> = (0..256u32)
        .map(|at| {
            (0..500).fold(at % 64 + 1, |x: u32, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
        })
        .collect();
    assert_eq!(whole, expected);
    // All lanes execute, except for instructions whose guard is false.
    assert!(stats.lane_instructions < stats.warp_instructions * 32);
    assert!(stats.lane_instructions > stats.warp_instructions * 30);
    for fuel in [1, 7, 1000] {
        let (steps, parts, out) = run(fuel);
        assert_eq!((parts, out), (stats, whole.clone()));
        assert_eq!(steps, stats.warp_instructions / fuel + 1);
    }
}

#[test]
fn an_endless_kernel_runs_until_it_is_stopped() {
    let mut machine = Machine::kernels("faults");
    let (stop, out) = (machine.zeros(4), machine.zeros(4));
    let params = Params::new().buffer(&stop).buffer(&out);
    let mut grid = machine.grid("fault_endless", [1, 1, 1], [32, 1, 1], &params, 0);
    for _ in 0..50 {
        assert_eq!(grid.step(1000).unwrap(), Step::Running);
    }
    stop.memory.store(0, 1);
    assert!(matches!(grid.step(1000).unwrap(), Step::Finished(_)));
    assert!(out.u32s()[0] > 1000);
}

#[test]
fn lanes_of_a_warp_take_a_lock_in_turn() {
    for (grid, block) in [(1, 32), (3, 64), (40, 1)] {
        let mut machine = Machine::sass("lock");
        let words = machine.zeros(8);
        machine.run("lock_each", [grid, 1, 1], [block, 1, 1], &Params::new().buffer(&words));
        assert_eq!(words.u32s(), [0, grid * block], "{grid} blocks of {block}");
    }
}

#[test]
fn a_critical_section_inside_the_loop() {
    let mut machine = Machine::sass("lock");
    let words = machine.zeros(8);
    machine.run("lock_inside", [5, 1, 1], [96, 1, 1], &Params::new().buffer(&words));
    assert_eq!(words.u32s(), [0, 480]);
}

#[test]
fn blocks_of_a_grid_wait_for_each_other() {
    let mut machine = Machine::sass("lock");
    let blocks = 16 * 6;
    let (arrived, out) = (machine.zeros(4), machine.zeros(4 * blocks));
    machine.run(
        "grid_barrier",
        [blocks as u32, 1, 1],
        [256, 1, 1],
        &Params::new().buffer(&arrived).buffer(&out),
    );
    assert_eq!(out.u32s(), vec![blocks as u32; blocks]);
}
