//! The main job: adds two vectors with a CUDA kernel on the Orin's GPU, or on the software Orin
//! where there is none, and checks the result against the CPU.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Parser;
use examples::{Failure, describe, init_log, open, report};
use tegra_hcq::{DeviceKind, Program, args};

/// Compiled from kernels/vector_add.cu by `cargo xtask kernels`, for the Orin's GPU and for the Hopper generation.
const CUBINS: [&[u8]; 2] =
    [include_bytes!("../kernels/vector_add.cubin"), include_bytes!("../kernels/sm_90/vector_add.cubin")];
const KERNEL: &str = "vector_add";
const BLOCK: u32 = 256;

/// Add two vectors of f32 with a CUDA kernel and check the sum against the CPU.
///
/// Exit code 0: right; 1: wrong result or GPU fault; 2: no such device or bad arguments.
#[derive(Parser)]
struct Options {
    /// Number of elements
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 28))]
    n: u32,
    /// Where to run: auto (the Orin's GPU or another that can be driven, else the software Orin), nvgpu, nvrm or sim
    #[arg(long, default_value_t = DeviceKind::Auto)]
    device: DeviceKind,
    /// How long the GPU may take, in milliseconds
    #[arg(long, default_value_t = 60_000)]
    timeout_ms: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    init_log();
    let options = Options::parse();
    report(run(&options), options.json)
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = open(options.device)?;
    let info = device.info();
    if !options.json {
        println!("device      {}", describe(&device));
        println!(
            "classes     compute {:#06x}, copy {:#06x}, channel {:#06x}",
            info.compute_class, info.copy_class, info.gpfifo_class
        );
        println!("SMs         {} (SM {}.{})", info.sm_count, info.sm_version.0, info.sm_version.1);
    }

    let n = options.n as usize;
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let y: Vec<f32> = (0..n).map(|i| 1000.0 - i as f32 * 0.25).collect();
    let mut gpu_x = device.alloc::<f32>(n).map_err(Failure::run)?;
    let mut gpu_y = device.alloc::<f32>(n).map_err(Failure::run)?;
    let gpu_sum = device.alloc::<f32>(n).map_err(Failure::run)?;
    gpu_x.copy_from_slice(&x).map_err(Failure::run)?;
    gpu_y.copy_from_slice(&y).map_err(Failure::run)?;

    let program = Program::load_fitting(&device, &CUBINS).map_err(Failure::run)?;
    let kernel = program.kernel(KERNEL).map_err(Failure::run)?;
    let mut queue = device.queue().map_err(Failure::run)?;
    let timeout = Duration::from_millis(options.timeout_ms);

    // The first launch pays for cold caches on either side; the second one is the figure of interest.
    let arguments = args![&gpu_x, &gpu_y, &gpu_sum, options.n];
    let grid = options.n.div_ceil(BLOCK);
    queue.launch(&kernel, grid, BLOCK, &arguments).map_err(Failure::run)?;
    queue.submit().and_then(|fence| fence.wait(timeout)).map_err(Failure::run)?;

    let start = Instant::now();
    queue.launch(&kernel, grid, BLOCK, &arguments).map_err(Failure::run)?;
    let fence = queue.submit().map_err(Failure::run)?;
    let submitted = start.elapsed();
    fence.wait(timeout).map_err(Failure::run)?;
    let completed = start.elapsed();

    let mut sum = vec![0.0_f32; n];
    gpu_sum.copy_to_slice(&mut sum).map_err(Failure::run)?;
    let wrong: Vec<usize> = (0..n).filter(|&i| sum[i].to_bits() != (x[i] + y[i]).to_bits()).collect();

    if options.json {
        let report = serde_json::json!({
            "device": info.kind.name(),
            "chip": info.chip,
            "compute_class": info.compute_class,
            "copy_class": info.copy_class,
            "gpfifo_class": info.gpfifo_class,
            "sm_count": info.sm_count,
            "kernel": KERNEL,
            "elements": n,
            "wrong_elements": wrong.len(),
            "submit_us": micros(submitted),
            "completion_us": micros(completed),
        });
        println!("{report}");
    } else {
        println!("kernel      {KERNEL}, grid {grid}, block {BLOCK}");
        println!("elements    {n}");
        println!("submit      {:.2} us (launch encoded, doorbell rung)", micros(submitted));
        println!("completion  {:.2} us (seen by the CPU)", micros(completed));
    }
    if let Some(&first) = wrong.first() {
        let (got, want) = (sum[first], x[first] + y[first]);
        return Err(Failure::Run(anyhow!(
            "{} of {n} elements are wrong; the first is [{first}]: {got} instead of {want}",
            wrong.len()
        )));
    }
    if !options.json {
        println!("result      all {n} elements equal the CPU's");
    }
    Ok(())
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
