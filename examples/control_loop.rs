//! A control loop around a neural network: measures how fast and how steadily the GPU answers.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use clap::Parser;
use examples::{Common, Failure, describe, init_log, open, report};
use infer::control::{ControlLoop, Plan, TOLERANCE, Timing, WIDTHS, run as run_loop};
use tegra_hcq::Properties;

/// Cycles before the measured ones, to warm up caches, branch predictors and the GPU clock.
const WARM_UP: u64 = 200;
/// Simulation rate of the plant if the loop runs unpaced, in cycles per second.
const PLANT_RATE: f64 = 1000.0;
/// Interval between progress updates.
const GLANCE: Duration = Duration::from_millis(200);

/// Steer a simulated mass with a neural network on the GPU and measure each cycle.
///
/// The network has 12 inputs, layers of 128, 128 and 4, and 18,692 parameters. It is recorded as a graph and replayed
/// each cycle. Its output is added to that of a PID controller that follows a moving point. Every --check-every cycles
/// it is compared with the CPU's output.
///
/// Exit codes: 0 success; 1 wrong result, GPU fault or time-out; 2 no such device or bad arguments.
#[derive(Parser)]
struct Options {
    /// Number of measured cycles
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    iterations: u64,
    /// Cycles per second: 0 (as fast as possible) or 50 to 1000000
    #[arg(long, default_value_t = 0, value_parser = parse_rate)]
    rate: u32,
    /// Compare the network's output with the CPU's every N cycles
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    check_every: u64,
    /// Seed for the network's weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time limit per cycle, in milliseconds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    timeout_ms: u64,
    #[command(flatten)]
    common: Common,
}

/// Parses a rate that the controller supports, in cycles per second.
fn parse_rate(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(rate @ (0 | 50..=1_000_000)) => Ok(rate),
        _ => Err("a rate is 0 (as fast as possible) or 50 to 1000000 cycles per second".to_owned()),
    }
}

fn main() -> ExitCode {
    init_log();
    let options = Options::parse();
    report(run(&options), options.common.json)
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = open(options.common.device)?;
    let (period, step) = match options.rate {
        0 => (None, 1.0 / PLANT_RATE),
        rate => (Some(Duration::from_secs(1) / rate), 1.0 / f64::from(rate)),
    };
    let timeout = Duration::from_millis(options.timeout_ms);
    let mut control = ControlLoop::new(&device, options.seed, step, timeout).map_err(Failure::run)?;
    if !options.common.json {
        println!("device      {}", describe(&device));
        println!(
            "network     {} parameters, layers {}, one graph per cycle",
            control.parameters(),
            WIDTHS.map(|width| width.to_string()).join(" > ")
        );
    }

    let warm_up = Plan { cycles: WARM_UP, period: None, check_every: WARM_UP };
    let mut unused = Timing::new();
    run_loop(&mut control, &warm_up, &mut unused, &AtomicU64::new(0)).map_err(Failure::run)?;

    let plan = Plan { cycles: options.iterations, period, check_every: options.check_every };
    let mut timing = Timing::new();
    let done = AtomicU64::new(0);
    with_progress(&done, plan.cycles, || run_loop(&mut control, &plan, &mut timing, &done))
        .map_err(Failure::run)?;

    if options.common.json {
        println!("{}", as_json(options, device.info(), control.parameters(), &timing));
    } else {
        print_text(options, &timing);
    }
    Ok(())
}

/// Runs `work` while another thread shows its progress, if standard error is a terminal.
fn with_progress<T>(done: &AtomicU64, total: u64, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let shown = scope.spawn(|| show_progress(done, total, &ended));
        let _stop = Stop { ended: &ended, shower: shown.thread() };
        work()
    })
}

/// Stops the progress thread on drop, also if the work panics.
struct Stop<'a> {
    ended: &'a AtomicBool,
    shower: &'a Thread,
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.shower.unpark();
    }
}

fn show_progress(done: &AtomicU64, total: u64, ended: &AtomicBool) {
    let mut stderr = std::io::stderr();
    // A failed write must not stop the loop.
    while !ended.load(Ordering::Acquire) {
        let done = done.load(Ordering::Relaxed);
        let percent = done as f64 / total as f64 * 100.0;
        let _ = write!(stderr, "\r{percent:5.1} %  {done} of {total} cycles");
        let _ = stderr.flush();
        thread::park_timeout(GLANCE);
    }
    let _ = write!(stderr, "\r\x1b[K");
}

/// Converts nanoseconds to microseconds.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn print_text(options: &Options, timing: &Timing) {
    let cycle = |quantile| micros(timing.cycle.value_at_quantile(quantile));
    let wanted = match options.rate {
        0 => "as fast as possible".to_owned(),
        rate => format!("{rate} wanted, {} ticks missed", timing.missed),
    };
    println!("cycles      {} in {:.2} s", timing.cycle.len(), timing.elapsed.as_secs_f64());
    println!("rate        {:.1} per second ({wanted})", timing.rate());
    println!(
        "cycle       p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, max {:.1} us",
        cycle(0.5),
        cycle(0.99),
        cycle(0.999),
        micros(timing.cycle.max())
    );
    println!(
        "jitter      {:.1} us (standard deviation of the time from one cycle to the next)",
        timing.period.stdev() / 1e3
    );
    println!("distance    {:.3} m from the moving point (root mean square)", timing.distance());
    println!(
        "result      the network agreed with the CPU each of {} times; largest difference {:.1e} (tolerance \
         {TOLERANCE:.0e})",
        timing.checks, timing.largest_difference
    );
}

fn as_json(options: &Options, info: &Properties, parameters: usize, timing: &Timing) -> serde_json::Value {
    let cycle = |quantile| micros(timing.cycle.value_at_quantile(quantile));
    serde_json::json!({
        "device": info.kind.name(),
        "chip": info.chip,
        "parameters": parameters,
        "widths": WIDTHS,
        "iterations": timing.cycle.len(),
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
