//! Compiles a CUDA C++ kernel inside the program and runs it. NVIDIA's compiler library NVRTC must be installed.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Parser;
use examples::{Common, Failure, describe, open};
use orin_cli::{ExitStatus, say, within};
use serde_json::json;
use tegra_hcq::{CompileError, Count, Error, Program, Source};

const SOURCE: &str = r#"
extern "C" __global__ void power(float *values, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float result = 1;
    for (int round = 0; round < EXPONENT; ++round) result *= values[i];
    values[i] = result;
}
"#;

/// Compile a kernel at run time for the exponent that the user wants, and run it.
///
/// Exit codes: 0 success; 1 wrong result, GPU fault or time-out; 2 no such device, bad arguments, or NVRTC is not
/// installed.
#[derive(Parser)]
struct Options {
    /// The exponent, a constant for the compiler
    #[arg(long, default_value_t = 3, value_parser = within(0..=6_u32))]
    exponent: u32,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    examples::main(|options: &Options| &options.common, run)
}

fn run(options: &Options) -> Result<ExitStatus, Failure> {
    let device = open(options.common.device)?;
    let source = Source::new(SOURCE).name("power.cu").option(format!("-DEXPONENT={}", options.exponent));
    let program = Program::from_source(&device, &source).map_err(|error| match error {
        Error::Compile(CompileError::NoNvrtc { .. }) => Failure::request(error),
        error => Failure::run(error),
    })?;
    // SAFETY: the kernel reads and writes values[i] for i < n, nothing else.
    let power = unsafe { program.typed::<(&mut [f32], Count<u32>)>("power")? };
    let values: Vec<f32> = (0..1000_u16).map(f32::from).collect();
    let mut buffer = device.alloc_from(&values)?;
    let mut queue = device.queue()?;
    power.launch(&mut queue, 4, 256, (&mut buffer, 1000))?;
    queue.submit()?.wait(Duration::from_secs(10))?;

    let product = |value: &f32| (0..options.exponent).fold(1.0, |product: f32, _| product * value);
    if buffer.to_vec()? != values.iter().map(product).collect::<Vec<_>>() {
        return Err(Failure::run(anyhow!("the powers differ from the CPU's")));
    }
    if options.common.json {
        say!(
            "{}",
            json!({ "device": device.info().kind.name(), "exponent": options.exponent, "elements": 1000 })
        )?;
    } else {
        say!("device  {}", describe(&device))?;
        say!("result  1000 numbers to the power of {} equal the CPU's", options.exponent)?;
    }
    Ok(ExitStatus::Success)
}
