//! A control loop with a neural network in it: how fast, and how steadily, the GPU answers.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use clap::Parser;
use examples::{Failure, describe, init_log, open, report};
use tegra_hcq::{DeviceKind, Properties};
use tests::control::{ControlLoop, Plan, TOLERANCE, Timing, WIDTHS, run as run_loop};

/// Cycles before those that are measured: caches, branch predictors and the clock of the GPU warm up.
const WARM_UP: u64 = 200;
/// Rate of the plant's clock when the loop runs as fast as it goes, in cycles per second.
const PLANT_RATE: f64 = 1000.0;
/// How often the progress is shown.
const GLANCE: Duration = Duration::from_millis(200);

/// Steer a simulated mass with a neural network on the GPU, cycle after cycle, and measure the cycles.
///
/// The network (12 numbers in, layers of 128, 128 and 4; 18,692 parameters) is a recorded graph that is
/// replayed each cycle. Its output is added to a PID controller that follows a moving point, and is held
/// against the CPU's every so often.
///
/// Exit code 0: right; 1: wrong result or GPU fault; 2: no such device or bad arguments.
#[derive(Parser)]
struct Options {
    /// Number of cycles that are measured
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    iterations: u64,
    /// Cycles per second: 0 (as fast as it goes) or 50 to 1000000
    #[arg(long, default_value_t = 0, value_parser = parse_rate)]
    rate: u32,
    /// Where to run: auto (the Orin's GPU where there is one, else the software Orin), nvgpu, nvrm or sim
    #[arg(long, default_value_t = DeviceKind::Auto)]
    device: DeviceKind,
    /// Compare the network's output with the CPU's every so many cycles
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    check_every: u64,
    /// Chooses the network's weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long the GPU may take for a cycle, in milliseconds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    timeout_ms: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Cycles per second that the controller can handle.
fn parse_rate(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(rate @ (0 | 50..=1_000_000)) => Ok(rate),
        _ => Err("a rate is 0 (as fast as it goes) or 50 to 1000000 cycles per second".to_owned()),
    }
}

fn main() -> ExitCode {
    init_log();
    let options = Options::parse();
    report(run(&options), options.json)
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = open(options.device)?;
    let (period, step) = match options.rate {
        0 => (None, 1.0 / PLANT_RATE),
        rate => (Some(Duration::from_secs(1) / rate), 1.0 / f64::from(rate)),
    };
    let timeout = Duration::from_millis(options.timeout_ms);
    let mut control = ControlLoop::new(&device, options.seed, step, timeout).map_err(Failure::run)?;
    if !options.json {
        println!("device      {}", describe(&device));
        println!(
            "network     {} parameters, layers {}, one graph per cycle",
            control.parameters(),
            WIDTHS.map(|width| width.to_string()).join(" > ")
        );
    }

    let warm_up = Plan { cycles: WARM_UP, period: None, check_every: WARM_UP };
    let mut unused = Timing::new().map_err(Failure::run)?;
    run_loop(&mut control, &warm_up, &mut unused, &AtomicU64::new(0)).map_err(Failure::run)?;

    let plan = Plan { cycles: options.iterations, period, check_every: options.check_every };
    let mut timing = Timing::new().map_err(Failure::run)?;
    let done = AtomicU64::new(0);
    with_progress(&done, plan.cycles, || run_loop(&mut control, &plan, &mut timing, &done))
        .map_err(Failure::run)?;

    if options.json {
        println!("{}", as_json(options, device.info(), control.parameters(), &timing));
    } else {
        print_text(options, &timing);
    }
    Ok(())
}

/// Runs `work` while another thread shows how much of it is done, where a person is looking.
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

/// Ends the progress, also when the work has panicked.
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
    // Progress that cannot be shown is no reason to stop.
    while !ended.load(Ordering::Acquire) {
        let done = done.load(Ordering::Relaxed);
        let percent = done as f64 / total as f64 * 100.0;
        let _ = write!(stderr, "\r{percent:5.1} %  {done} of {total} cycles");
        let _ = stderr.flush();
        thread::park_timeout(GLANCE);
    }
    let _ = write!(stderr, "\r\x1b[K");
}

/// Nanoseconds as microseconds.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn print_text(options: &Options, timing: &Timing) {
    let cycle = |quantile| micros(timing.cycle.value_at_quantile(quantile));
    let wanted = match options.rate {
        0 => "as fast as it goes".to_owned(),
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
