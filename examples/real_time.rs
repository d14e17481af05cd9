//! The recipe of docs/real-time.md: a periodic loop on the GPU with a real-time thread, an own core, locked memory and
//! busy polling.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use examples::{Common, Failure, describe, open};
use orin_cli::{ExitStatus, Stop, say, within};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::thread::{CpuSet, sched_setaffinity};
use tegra_hcq::{Count, Program, QueueOptions, WaitPolicy};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// kernels/vector_add.cu, compiled by `cargo xtask kernels` for the Orin's GPU and for the Hopper generation.
const CUBINS: [&[u8]; 2] =
    [include_bytes!("../kernels/vector_add.cubin"), include_bytes!("../kernels/sm_90/vector_add.cubin")];
/// Elements per cycle.
const N: u32 = 256;
/// Cycles before the measured ones.
const WARM_UP: u32 = 100;
/// Time limit per cycle.
const LIMIT: Duration = Duration::from_secs(10);
/// Time before a cycle during which the thread polls the clock, because a timer may wake it that late.
const POLL: Duration = Duration::from_micros(60);

/// Run a periodic loop on the GPU as a real-time thread and measure how late it wakes and how long a cycle takes.
///
/// Needs the right to lock memory and to use real-time priorities: see docs/real-time.md. A step that the system
/// refuses is reported, and the loop runs without it, unless --require is given.
///
/// Exit codes: 0 success; 1 wrong result, GPU fault or time-out; 2 no such device, bad arguments, or a refused step
/// with --require; 130 interrupted.
#[derive(Parser)]
struct Options {
    /// Core to run on; without it any core
    #[arg(long, value_parser = within(0..=CpuSet::MAX_CPU - 1))]
    core: Option<usize>,
    /// Priority under SCHED_FIFO, below that of the interrupt threads of the kernel, which have 50
    #[arg(long, default_value_t = 40, value_parser = within(1..=99_u8))]
    priority: u8,
    /// Time from one cycle to the next, in microseconds
    #[arg(long, default_value_t = 1000, value_parser = within(50..=10_000_000_u64))]
    period_us: u64,
    /// Number of measured cycles
    #[arg(long, default_value_t = 2000, value_parser = within(1..=10_000_000_u32))]
    cycles: u32,
    /// End with an error if the system refuses a step
    #[arg(long)]
    require: bool,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    examples::main(|options: &Options| &options.common, run)
}

/// Takes effect for the calling thread and the memory of the process. Returns each step with its result.
fn become_real_time(options: &Options) -> Vec<(&'static str, anyhow::Result<()>)> {
    let mut steps = Vec::new();
    if let Some(core) = options.core {
        let mut cores = CpuSet::new();
        cores.set(core);
        let pinned = sched_setaffinity(None, &cores).with_context(|| format!("core {core} cannot be used"));
        steps.push(("own core", pinned));
    }
    // Also pages that are mapped later: a page fault in a cycle takes longer than the cycle.
    let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)
        .map_err(|error| anyhow::anyhow!("{error}; raise the limit of locked memory (ulimit -l unlimited)"));
    steps.push(("locked memory", locked));
    steps.push(("SCHED_FIFO", first_in_first_out(options.priority)));
    steps
}

/// Runs the calling thread under SCHED_FIFO.
fn first_in_first_out(priority: u8) -> anyhow::Result<()> {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let level = ThreadPriority::try_from(priority).map_err(anyhow::Error::msg)?;
    set_thread_priority_and_policy(thread_native_id(), level, policy).map_err(|error| {
        let reason = match error {
            thread_priority::Error::OS(code) => io::Error::from_raw_os_error(code).to_string(),
            other => format!("{other:?}"),
        };
        anyhow::anyhow!("{reason}; raise the limit of priorities (ulimit -r 99)")
    })
}

fn run(options: &Options) -> Result<ExitStatus, Failure> {
    // Threads, memory and the graph are made before the thread has its priority: a new thread inherits it, and the
    // software Orin's must not.
    let stop = Stop::on_signals().context("waiting for Ctrl-C").map_err(Failure::Run)?;
    let device = open(options.common.device)?;
    let program = Program::load_fitting(&device, &CUBINS)?;
    // SAFETY: the kernel reads x[i] and y[i] and writes sum[i] for i < n, nothing else.
    let add = unsafe { program.typed::<(&[f32], &[f32], &mut [f32], Count<u32>)>("vector_add")? };
    let (mut x, y) = (device.alloc_zeroed::<f32>(N as usize)?, device.alloc_from(&[1.0_f32; N as usize])?);
    let mut sum = device.alloc_zeroed::<f32>(N as usize)?;
    let mut recording = device.graph();
    add.record(&mut recording, 1, N, (&x, &y, &mut sum, N))?;
    let mut graph = recording.build()?;
    // The thread polls for the result: no interrupt, no system call, no sleep within a cycle.
    let mut queue = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin))?;
    let measured = options.cycles as usize;
    let (mut late, mut cycle) = (Vec::with_capacity(measured), Vec::with_capacity(measured));

    let steps = become_real_time(options);
    if let Some((step, Err(error))) = steps.iter().find(|(_, result)| options.require && result.is_err()) {
        return Err(Failure::request(anyhow::anyhow!("{step}: {error:#}")));
    }

    let period = Duration::from_micros(options.period_us);
    let (mut next, mut missed) = (Instant::now() + period, 0);
    for number in 0..WARM_UP + options.cycles {
        if stop.flag().load(Ordering::Relaxed) {
            break;
        }
        sleep_until(next);
        let woken = Instant::now();
        x.view_within(LIMIT)?[0] = number as f32;
        queue.replay(&mut graph)?.wait(LIMIT)?;
        let result = sum.view_within(LIMIT)?[0];
        let done = Instant::now();
        if result != number as f32 + 1.0 {
            return Err(Failure::run(anyhow::anyhow!("cycle {number}: {result} is wrong")));
        }
        // A late cycle does not make the following ones late: missed ticks are skipped.
        let skipped = u32::try_from((done - next).as_nanos() / period.as_nanos()).unwrap_or(u32::MAX - 1);
        if number >= WARM_UP {
            late.push(woken - next);
            cycle.push(done - woken);
            missed += skipped;
        }
        next += period * (skipped + 1);
    }
    let times = [&mut late, &mut cycle];
    if times[0].is_empty() {
        return Ok(ExitStatus::Interrupted);
    }
    let done = times[0].len();
    print(options, &describe(&device), &steps, times, missed)?;
    Ok(if done < measured { ExitStatus::Interrupted } else { ExitStatus::Success })
}

/// Sleeps until shortly before `next`, then polls the clock.
fn sleep_until(next: Instant) {
    if let Some(left) = next.checked_duration_since(Instant::now() + POLL) {
        std::thread::sleep(left);
    }
    while Instant::now() < next {
        std::hint::spin_loop();
    }
}

type Object = serde_json::Map<String, serde_json::Value>;
type Steps = [(&'static str, anyhow::Result<()>)];

fn print(
    options: &Options,
    device: &str,
    steps: &Steps,
    times: [&mut Vec<Duration>; 2],
    missed: u32,
) -> io::Result<()> {
    let done = times[0].len();
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let [late, cycle] = times.map(|times| {
        times.sort_unstable();
        let at = |per_mille: usize| micros(times[(times.len() - 1) * per_mille / 1000]);
        [("p50", at(500)), ("p99", at(990)), ("max", at(1000))]
    });
    if options.common.json {
        let taken = |(name, result): &(&str, anyhow::Result<()>)| (name.to_string(), result.is_ok().into());
        let figures = |figures: [(&str, f64); 3]| {
            figures.map(|(name, us)| (format!("{name}_us"), us.into())).into_iter().collect::<Object>()
        };
        return say!(
            "{}",
            serde_json::json!({
                "device": device,
                "steps": steps.iter().map(taken).collect::<Object>(),
                "cycles": done,
                "missed": missed,
                "period_us": options.period_us,
                "late": figures(late),
                "cycle": figures(cycle),
            })
        );
    }
    say!("device         {device}")?;
    for (name, result) in steps {
        match result {
            Ok(()) => say!("{name:<14} yes")?,
            Err(error) => say!("{name:<14} no: {error:#}")?,
        }
    }
    for (name, figures) in [("woken late by", late), ("cycle", cycle)] {
        let [p50, p99, max] = figures.map(|(quantile, us)| format!("{quantile} {us:.1} µs"));
        say!("{name:<14} {p50}, {p99}, {max}")?;
    }
    say!("ticks missed   {missed}")?;
    say!("result         right in all {done} cycles")
}
