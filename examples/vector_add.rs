//! Adds two vectors with a CUDA kernel on the Orin's GPU, or on the software Orin if there is no GPU to drive.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use examples::{Common, Failure, Table, open};
use orin_cli::{ExitStatus, Progress, within};
use tegra_hcq::{Count, Program};

/// kernels/vector_add.cu, compiled by `cargo xtask kernels` for the Orin's GPU and for the Hopper generation.
const CUBINS: [&[u8]; 2] =
    [include_bytes!("../kernels/vector_add.cubin"), include_bytes!("../kernels/sm_90/vector_add.cubin")];

/// Add two vectors of f32 with a CUDA kernel and compare the sum with the CPU's.
///
/// Exit codes: 0 success; 1 wrong result, GPU fault or time-out; 2 no such device or bad arguments.
#[derive(Parser)]
struct Options {
    /// Number of elements
    #[arg(long, default_value_t = 1 << 20, value_parser = within(1..=1_u32 << 28))]
    n: u32,
    /// Time limit per launch, in milliseconds
    #[arg(long, default_value_t = 60_000, value_parser = within(1..=u64::MAX))]
    timeout_ms: u64,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    examples::main(|options: &Options| &options.common, run)
}

fn run(options: &Options) -> Result<ExitStatus, Failure> {
    let (n, grid, block) = (options.n, options.n.div_ceil(256), 256);
    let device = open(options.common.device)?;
    let mut table = Table::new(&device, options.common.json)?;
    let progress = Progress::new("copying to the GPU");
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let y: Vec<f32> = (0..n).map(|i| 1000.0 - i as f32 * 0.25).collect();
    let (gpu_x, gpu_y) = (device.alloc_from(&x)?, device.alloc_from(&y)?);
    let mut gpu_sum = device.alloc::<f32>(n as usize)?;

    let program = Program::load_fitting(&device, &CUBINS)?;
    // SAFETY: the kernel reads x[i] and y[i] and writes sum[i] for i < n, nothing else.
    let add = unsafe { program.typed::<(&[f32], &[f32], &mut [f32], Count<u32>)>("vector_add")? };
    let mut queue = device.queue()?;
    let mut launch = || -> Result<[Duration; 2], Failure> {
        let start = Instant::now();
        add.launch(&mut queue, grid, block, (&gpu_x, &gpu_y, &mut gpu_sum, n))?;
        let fence = queue.submit()?;
        let submitted = start.elapsed();
        fence.wait(Duration::from_millis(options.timeout_ms))?;
        Ok([submitted, start.elapsed()])
    };
    progress.set("adding");
    launch()?; // The first launch warms up the caches; the second one is measured.
    let times = launch()?;
    progress.set("comparing");

    let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
    let result = gpu_sum.to_vec()?;
    drop(progress);
    table.launch("vector_add", n, [grid, block], times)?;
    table.verdict(&result, &sum)
}
