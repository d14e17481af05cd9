//! Stress tests: many launches, submissions, copies and allocations.

use std::time::{Duration, Instant};

use tegra_hcq::args;

use super::fixtures::{blocks, case, close, ensure, kernel, patience};
use test_harness::{Check, Context, Suite};
use test_support::Numbers;
use test_support::process;

/// A test of this suite with a long time limit.
macro_rules! long_test {
    ($function:ident, $about:literal) => {
        case!($function, $about).limited_to(Duration::from_secs(240))
    };
}

/// The suite. On a model, durations and rounds are scaled down by the run's factor.
pub static SUITE: Suite = Suite {
    name: "stress",
    about: "10,000 launches, a minute of matrix products, memory churn",
    orin_only: false,
    tests: &[
        long_test!(rapid_kernel_launches_10k, "10,000 launches, each of which adds 1"),
        long_test!(signal_chain_pipeline, "1,000 submissions, each of which waits for the previous one"),
        long_test!(sustained_matmul_60s, "products of large matrices for a minute"),
        long_test!(mixed_compute_copy, "1,000 rounds of launch and copy, with sampled checks"),
        long_test!(backpressure, "500 launches into rings that fill up"),
        long_test!(shared_memory_kernel, "products through shared memory"),
        long_test!(concurrent_tensor_ops, "layers of a network on several queues"),
        long_test!(many_queues, "128 concurrent queues, one launch each"),
        long_test!(memory_churn, "buffers of random sizes for half a minute"),
    ],
};

fn rapid_kernel_launches_10k(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let add = kernel!(device, "suites", "add_f32")?;
    let data = device.alloc_zeroed::<f32>(32)?;
    // A model runs the same number: they are small.
    for _ in 0..10_000 {
        unsafe { queue.launch(&add, 1, 32, &args![&data, 1.0_f32, 32_u32]) }?;
        queue.submit()?;
    }
    queue.wait(patience(context))?;
    close("the sum", &data.to_vec()?, &[10_000.0; 32], 1e-4)
}

fn signal_chain_pipeline(context: &Context) -> Check {
    let device = context.device()?;
    let mut queues = [device.queue()?, device.queue()?];
    let add = kernel!(device, "suites", "add_f32")?;
    let data = device.alloc_from(&[1.0_f32; 32])?;
    let signal = device.signal(0)?;
    for step in 0..1000_u64 {
        let queue = &mut queues[(step % 2) as usize];
        queue.wait_signal(&signal, step)?;
        unsafe { queue.launch(&add, 1, 32, &args![&data, 0.001_f32, 32_u32]) }?;
        queue.signal(&signal, step + 1)?;
        queue.submit()?;
    }
    signal.wait(1000, patience(context))?;
    close("the sum", &data.to_vec()?, &[2.0; 32], 0.1)
}

/// Multiplies two matrices of `size` for `time` and compares a few elements each time.
fn products(context: &Context, size: usize, time: Duration, least: u64) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let matmul = kernel!(device, "matmul", "matmul_tiled")?;
    let mut numbers = Numbers::new(size as u64);
    let (a, b) = (numbers.vec_f32(size * size), numbers.vec_f32(size * size));
    let (left, right) = (device.alloc_from(&a)?, device.alloc_from(&b)?);
    let product = device.alloc_zeroed::<f32>(size * size)?;
    // CAST: sizes are far below 2^32.
    let (tiles, n) = (size.div_ceil(16) as u32, size as u32);
    let start = Instant::now();
    let mut rounds = 0_u64;
    while rounds < least || start.elapsed() < time {
        unsafe { queue.launch(&matmul, (tiles, tiles), (16, 16), &args![&left, &right, &product, n, n, n]) }?;
        queue.wait(patience(context))?;
        rounds += 1;
        let got = product.to_vec()?;
        for _ in 0..16 {
            let at = numbers.u32() as usize % (size * size);
            let (row, column) = (at / size, at % size);
            let wanted: f32 = (0..size).map(|k| a[row * size + k] * b[k * size + column]).sum();
            close(&format!("element {row}, {column} of product {rounds}"), &[got[at]], &[wanted], 1e-2)?;
        }
    }
    context.note(format!("{rounds} products of {size}x{size} in {:.1} s", start.elapsed().as_secs_f64()));
    Ok(())
}

fn sustained_matmul_60s(context: &Context) -> Check {
    let size = if context.is_model() { 96 } else { 1024 };
    products(context, size, context.scaled(Duration::from_secs(60)), 1)
}

fn shared_memory_kernel(context: &Context) -> Check {
    products(context, if context.is_model() { 80 } else { 256 }, Duration::ZERO, context.rounds(10, 3))
}

fn mixed_compute_copy(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let add = kernel!(device, "suites", "add_f32")?;
    let data = device.alloc_zeroed::<f32>(4096)?;
    let mut copy = device.alloc_zeroed::<f32>(4096)?;
    let rounds = context.rounds(1000, 200);
    for round in 1..=rounds {
        unsafe { queue.launch(&add, 16, 256, &args![&data, 0.5_f32, 4096_u32]) }?;
        queue.copy(&data, &mut copy)?;
        queue.submit()?;
        if round % (rounds / 5) == 0 {
            let wanted = vec![0.5 * round as f32; 4096];
            close(&format!("the copy of round {round}"), &copy.to_vec()?, &wanted, 1e-3)?;
        }
    }
    Ok(())
}

fn backpressure(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let add = kernel!(device, "suites", "add_f32")?;
    let data = device.alloc_from(&[1.0_f32; 32])?;
    // Batches of all sizes, up to far more than the rings hold.
    for batch in [1_u32, 9, 40, 450] {
        for _ in 0..batch {
            unsafe { queue.launch(&add, 1, 32, &args![&data, 1.0_f32, 32_u32]) }?;
        }
        queue.submit()?;
    }
    for _ in 0..3000 {
        unsafe { queue.launch(&add, 1, 32, &args![&data, 0.0_f32, 32_u32]) }?;
        queue.submit()?;
    }
    queue.wait(patience(context))?;
    close("the sum", &data.to_vec()?, &[501.0; 32], 1e-4)
}

fn concurrent_tensor_ops(context: &Context) -> Check {
    const ROWS: usize = 64;
    const INNER: usize = 32;
    const COLUMNS: usize = 16;
    let device = context.device()?;
    let layer = kernel!(device, "suites", "linear_relu")?;
    let steps = context.rounds(100, 10);
    let results = std::thread::scope(|scope| {
        let run = |seed: u64| -> Check {
            let mut queue = device.queue()?;
            let mut numbers = Numbers::new(seed);
            let (x, w) = (numbers.vec_f32(ROWS * INNER), numbers.vec_f32(INNER * COLUMNS));
            let bias = numbers.vec_f32(COLUMNS);
            let buffers = (device.alloc_from(&x)?, device.alloc_from(&w)?, device.alloc_from(&bias)?);
            let out = device.alloc_zeroed::<f32>(ROWS * COLUMNS)?;
            let shape = (ROWS as u32, INNER as u32, COLUMNS as u32);
            for _ in 0..steps {
                unsafe {
                    queue.launch(
                        &layer,
                        blocks(ROWS * COLUMNS, 128),
                        128,
                        &args![&out, &buffers.0, &buffers.1, &buffers.2, shape.0, shape.1, shape.2],
                    )
                }?;
                queue.submit()?;
            }
            queue.wait(patience(context))?;
            let wanted: Vec<f32> = (0..ROWS * COLUMNS)
                .map(|i| {
                    let dot = |k: usize| x[i / COLUMNS * INNER + k] * w[k * COLUMNS + i % COLUMNS];
                    (bias[i % COLUMNS] + (0..INNER).map(dot).sum::<f32>()).max(0.0)
                })
                .collect();
            close("the layer", &out.to_vec()?, &wanted, 1e-4)
        };
        let threads: Vec<_> = (1..=4).map(|seed| scope.spawn(move || run(seed))).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for result in results {
        result.map_err(|_| "a thread panicked")??;
    }
    Ok(())
}

/// Queues open at a time.
const QUEUES: usize = 128;

fn many_queues(context: &Context) -> Check {
    let device = context.device()?;
    let add = kernel!(device, "suites", "add_f32")?;
    let before = device.memory_usage().reserved;
    let mut queues = (0..QUEUES).map(|_| device.queue()).collect::<Result<Vec<_>, _>>()?;
    let each = (device.memory_usage().reserved - before) / QUEUES as u64;
    context.note(format!("{QUEUES} queues, {each} bytes of memory each"));
    let sums: Vec<_> = (0..QUEUES).map(|_| device.alloc_zeroed::<f32>(32)).collect::<Result<_, _>>()?;
    // All queues also use one shared buffer, which is free once the last of them finishes.
    let shared = device.alloc_zeroed::<f32>(32)?;
    for round in 0..3 {
        let mut fences = Vec::with_capacity(QUEUES);
        for (number, (queue, sum)) in queues.iter_mut().zip(&sums).enumerate() {
            unsafe { queue.launch(&add, 1, 32, &args![sum, number as f32, 32_u32]) }?;
            unsafe { queue.launch(&add, 1, 32, &args![&shared, 0.0_f32, 32_u32]) }?;
            fences.push(queue.submit()?);
        }
        for fence in fences {
            fence.wait(patience(context))?;
        }
        for (number, sum) in sums.iter().enumerate() {
            close("a queue's sum", &sum.to_vec()?, &[number as f32 * (round + 1) as f32; 32], 1e-4)?;
        }
    }
    ensure(shared.to_vec()? == [0.0; 32], || "the shared buffer changed".to_owned())
}

fn memory_churn(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let fill = kernel!(device, "basics", "fill_u32")?;
    let mut numbers = Numbers::new(11);
    let time = context.scaled(Duration::from_secs(30));
    let before = process::resources();
    let mut kept = Vec::new();
    let (start, mut rounds) = (Instant::now(), 0_u32);
    while rounds < 200 || start.elapsed() < time {
        rounds += 1;
        let words = 16 + numbers.u32() as usize % 65_536;
        let buffer = device.alloc::<u32>(words)?;
        unsafe { queue.launch(&fill, 1, 64, &args![buffer.slice(words - 16..)?, rounds, 16_u32]) }?;
        queue.submit()?;
        kept.push((rounds, buffer));
        if kept.len() > 24 {
            let (value, buffer) = kept.swap_remove(numbers.u32() as usize % 24);
            let end = buffer.slice(buffer.len() - 16..)?.to_vec()?;
            ensure(end.iter().all(|word| *word == value), || format!("buffer {value} holds {}", end[0]))?;
        }
        if rounds % 64 == 0 {
            device.trim();
        }
    }
    drop(kept);
    queue.wait(patience(context))?;
    device.trim();
    context.note(format!("{rounds} buffers"));
    Ok(process::within(before, 100)?)
}
