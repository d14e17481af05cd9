//! A control loop around a neural network: measures how fast and how steadily the GPU answers.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use examples::{Common, Failure, describe, open};
use networks::control::{ControlLoop, Plan, TOLERANCE, Timing, WIDTHS, run as run_loop};
use orin_cli::{ExitStatus, Progress, Stop, number, say, within};
use tegra_hcq::Properties;

/// Cycles before the measured ones, to warm up caches, branch predictors and the GPU clock.
const WARM_UP: u64 = 200;
/// Simulation rate of the plant if the loop runs unpaced, in cycles per second.
const PLANT_RATE: f64 = 1000.0;

/// Steer a simulated mass with a neural network on the GPU and measure each cycle.
///
/// The network has 12 inputs, layers of 128, 128 and 4, and 18,692 parameters. It is recorded as a graph and replayed
/// each cycle. Its output is added to that of a PID controller that follows a moving point. Every --check-every cycles
/// it is compared with the CPU's output.
///
/// Ctrl-C and SIGTERM end the loop early; the statistics cover the cycles so far.
///
/// Exit codes: 0 success; 1 wrong result, GPU fault or time-out; 2 no such device or bad arguments; 130 interrupted.
#[derive(Parser)]
struct Options {
    /// Number of measured cycles
    #[arg(long, default_value_t = 2000, value_parser = within(1..=1_u64 << 40))]
    iterations: u64,
    /// Cycles per second: 0 (as fast as possible) or 50 to 1000000
    #[arg(long, default_value_t = 0, value_parser = parse_rate)]
    rate: u32,
    /// Compare the network's output with the CPU's every N cycles
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = within(1..=u64::MAX))]
    check_every: u64,
    /// Seed for the network's weights
    #[arg(long, default_value_t = 1, value_parser = within(0..=u64::MAX))]
    seed: u64,
    /// Time limit per cycle, in milliseconds
    #[arg(long, default_value_t = 10_000, value_parser = within(1..=u64::MAX))]
    timeout_ms: u64,
    #[command(flatten)]
    common: Common,
}

/// Parses a rate that the controller supports, in cycles per second.
fn parse_rate(text: &str) -> Result<u32, String> {
    match number(text, u32::MIN..=u32::MAX) {
        Ok(rate @ (0 | 50..=1_000_000)) => Ok(rate),
        _ => Err("a rate is 0 (as fast as possible) or 50 to 1000000 cycles per second".to_owned()),
    }
}

fn main() -> ExitCode {
    examples::main(|options: &Options| &options.common, run)
}

fn run(options: &Options) -> Result<ExitStatus, Failure> {
    let stop = Stop::on_signals().context("waiting for Ctrl-C").map_err(Failure::Run)?;
    let device = open(options.common.device)?;
    let (period, step) = match options.rate {
        0 => (None, 1.0 / PLANT_RATE),
        rate => (Some(Duration::from_secs(1) / rate), 1.0 / f64::from(rate)),
    };
    let timeout = Duration::from_millis(options.timeout_ms);
    let mut control = ControlLoop::new(&device, options.seed, step, timeout).map_err(Failure::run)?;
    if !options.common.json {
        say!("device      {}", describe(&device))?;
        say!(
            "network     {} parameters, layers {}, one graph per cycle",
            control.parameters(),
            WIDTHS.map(|width| width.to_string()).join(" > ")
        )?;
    }

    let warm_up = Plan { cycles: WARM_UP, period: None, check_every: WARM_UP };
    let mut unused = Timing::new();
    run_loop(&mut control, &warm_up, &mut unused, &AtomicU64::new(0), stop.flag()).map_err(Failure::run)?;

    let plan = Plan { cycles: options.iterations, period, check_every: options.check_every };
    let mut timing = Timing::new();
    let done = Arc::new(AtomicU64::new(0));
    let progress = show_progress(&done, plan.cycles);
    run_loop(&mut control, &plan, &mut timing, &done, stop.flag()).map_err(Failure::run)?;
    drop(progress);

    let status = if timing.cycle.len() < plan.cycles { ExitStatus::Interrupted } else { ExitStatus::Success };
    if options.common.json {
        say!("{}", as_json(options, device.info(), control.parameters(), &timing))?;
    } else {
        print_text(options, &timing)?;
    }
    Ok(status)
}

/// Shows the number of cycles on a terminal.
fn show_progress(done: &Arc<AtomicU64>, total: u64) -> Progress {
    let done = Arc::clone(done);
    Progress::of(move || {
        let done = done.load(Ordering::Relaxed);
        format!("{:5.1} %  {done} of {total} cycles", done as f64 / total as f64 * 100.0)
    })
}

/// Converts nanoseconds to microseconds.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn print_text(options: &Options, timing: &Timing) -> io::Result<()> {
    let cycle = |quantile| micros(timing.cycle.value_at_quantile(quantile));
    let wanted = match options.rate {
        0 => "as fast as possible".to_owned(),
        rate => format!("{rate} wanted, {} ticks missed", timing.missed),
    };
    let (done, all) = (timing.cycle.len(), options.iterations);
    let missing = if done < all { format!(", interrupted before {all}") } else { String::new() };
    say!("cycles      {done} in {:.2} s{missing}", timing.elapsed.as_secs_f64())?;
    say!("rate        {:.1} per second ({wanted})", timing.rate())?;
    say!(
        "cycle       p50 {:.1} µs, p99 {:.1} µs, p99.9 {:.1} µs, max {:.1} µs",
        cycle(0.5),
        cycle(0.99),
        cycle(0.999),
        micros(timing.cycle.max())
    )?;
    say!(
        "jitter      {:.1} µs (standard deviation of the time from one cycle to the next)",
        timing.period.stdev() / 1e3
    )?;
    say!("distance    {:.3} m from the moving point (root mean square)", timing.distance())?;
    say!(
        "result      the network agreed with the CPU each of {} times; largest difference {:.1e} (tolerance \
         {TOLERANCE:.0e})",
        timing.checks,
        timing.largest_difference
    )
}

fn as_json(options: &Options, info: &Properties, parameters: usize, timing: &Timing) -> serde_json::Value {
    let cycle = |quantile| micros(timing.cycle.value_at_quantile(quantile));
    serde_json::json!({
        "device": info.kind.name(),
        "chip": info.chip,
        "parameters": parameters,
        "widths": WIDTHS,
        "iterations": timing.cycle.len(),
        "interrupted": timing.cycle.len() < options.iterations,
        "elapsed_s": timing.elapsed.as_secs_f64(),
        "rate_wanted_hz": options.rate,
        "rate_hz": timing.rate(),
        "missed_ticks": timing.missed,
        "cycle_us": {
            "p50": cycle(0.5),
            "p99": cycle(0.99),
            "p99_9": cycle(0.999),
            "max": micros(timing.cycle.max()),
            "mean": timing.cycle.mean() / 1e3,
        },
        "jitter_us": timing.period.stdev() / 1e3,
        "distance_rms_m": timing.distance(),
        "checks": timing.checks,
        "largest_difference": timing.largest_difference,
        "tolerance": TOLERANCE,
    })
}
