//! Frames from one process to others without copies: docs/share.md.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{Parser, Subcommand};
use examples::{Common, Failure, open};
use orin_cli::{ExitStatus, Stop, say, warn, within};
use serde_json::{Value, json};
use tegra_hcq::{Count, Device, Program, TypedKernel};
use tegra_share::wire::{FrameMessage, ReleaseMessage};
use tegra_share::{
    Cause, Ended, Error, Event, FrameInfo, GpuConsumer, GpuProducer, Policy, ProducerOptions, monotonic_ns,
};

/// kernels/vector_add.cu, compiled by `cargo xtask kernels` for the Orin's GPU and for the Hopper generation.
const CUBINS: [&[u8]; 2] =
    [include_bytes!("../kernels/vector_add.cubin"), include_bytes!("../kernels/sm_90/vector_add.cubin")];
/// Buffers of the ring.
const BUFFERS: usize = 4;
/// Longest time for one frame.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two looks at Ctrl-C.
const STEP: Duration = Duration::from_millis(100);

type Add = TypedKernel<(&'static [f32], &'static [f32], &'static mut [f32], Count<u32>)>;

/// Hand frames from one process to others without copies.
///
/// The producer's GPU writes each frame with a kernel, the consumers' GPUs read it in place with another one, and the
/// result is compared. Ctrl-C ends a part, which then prints what it has done.
///
/// Exit codes: 0 success; 1 wrong result, GPU fault, time-out or lost producer; 2 no such device or bad arguments; 130
/// interrupted.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Produce frames for the consumers that connect
    Produce(Produce),
    /// Consume the frames of a producer until it ends
    Consume(Consume),
    /// Produce frames, and start a second process that consumes them
    Both(Produce),
}

#[derive(clap::Args)]
struct Produce {
    /// The socket, which consumers connect to
    #[arg(long, default_value = "share.socket")]
    socket: PathBuf,
    /// Number of frames
    #[arg(long, default_value_t = 100, value_parser = within(1..=100_000_000_u64))]
    frames: u64,
    /// Elements of a frame, of 4 bytes each
    #[arg(long, default_value_t = 4096, value_parser = within(1..=1_u32 << 26))]
    elements: u32,
    /// Time from one frame to the next, in microseconds
    #[arg(long, default_value_t = 10_000, value_parser = within(0..=10_000_000_u64))]
    period_us: u64,
    /// Wait for slow consumers instead of dropping frames
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Consume {
    /// The producer's socket
    #[arg(long, default_value = "share.socket")]
    socket: PathBuf,
    /// How long to wait for the producer, in milliseconds
    #[arg(long, default_value_t = 10_000, value_parser = within(0..=3_600_000_u64))]
    timeout_ms: u64,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    examples::main(common, |options| run(&options.part))
}

fn common(options: &Options) -> &Common {
    match &options.part {
        Part::Produce(part) | Part::Both(part) => &part.common,
        Part::Consume(part) => &part.common,
    }
}

fn run(part: &Part) -> Result<ExitStatus, Failure> {
    let stop = Stop::on_signals().context("waiting for Ctrl-C").map_err(Failure::Run)?;
    let (mut report, json, end) = match part {
        Part::Produce(part) => {
            let (report, end) = produce(part, &stop, 0)?;
            (json!({ "producer": report }), part.common.json, end)
        }
        Part::Both(part) => {
            let (report, end) = both(part, &stop)?;
            (report, part.common.json, end)
        }
        Part::Consume(part) => {
            let (report, end) = consume(part, &stop)?;
            (json!({ "consumer": report }), part.common.json, end)
        }
    };
    if let End::Lost(error) = &end {
        report["error"] = error.to_string().into();
    }
    print(&report, json)?;
    match end {
        End::Done => Ok(ExitStatus::Success),
        End::Interrupted => Ok(ExitStatus::Interrupted),
        End::Lost(error) => {
            warn(format_args!("error: {error}"));
            Ok(ExitStatus::Failure)
        }
    }
}

/// How a part has ended, after which its report is printed.
enum End {
    Done,
    Interrupted,
    Lost(Error),
}

fn load(device: &Device) -> Result<Add, Failure> {
    let program = Program::load_fitting(device, &CUBINS)?;
    // SAFETY: the kernel reads x[i] and y[i] and writes sum[i] for i < n, nothing else.
    Ok(unsafe { program.typed("vector_add") }?)
}

/// What frame `sequence` contains; the frame before it, plus one. Exact in an f32.
fn value_of(sequence: u64) -> f32 {
    (sequence % 10_000_000) as f32
}

/// Produces frames once `consumers` have connected.
fn produce(options: &Produce, stop: &Stop, consumers: usize) -> Result<(Value, End), Failure> {
    let (device, n) = (open(options.common.device)?, options.elements);
    let add = load(&device)?;
    let mut numbers = device.alloc_zeroed::<f32>(n as usize)?;
    let ones = device.alloc_from(&vec![1.0_f32; n as usize])?;
    let mut queue = device.queue()?;
    let policy = if options.wait { Policy::Wait } else { Policy::DropOldest };
    let settings = ProducerOptions { policy, ..ProducerOptions::default() };
    let mut camera =
        GpuProducer::<f32>::bind(&device, &options.socket, (BUFFERS, n as usize), b"f32", settings)
            .map_err(Failure::request)?;
    let stopped = || stop.flag().load(Ordering::Relaxed);
    let begun = Instant::now();
    while camera.producer().consumers().count() < consumers && !stopped() {
        if begun.elapsed() > LIMIT {
            return Err(Failure::run(anyhow!("no consumer has connected in {LIMIT:?}")));
        }
        camera.producer().wait(STEP).map_err(Failure::run)?;
    }
    let (mut next, mut frames) = (Instant::now(), 0);
    while frames < options.frames && !stopped() {
        let left = next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            camera.producer().wait(left.min(STEP)).map_err(Failure::run)?;
            continue;
        }
        next = next.max(Instant::now() - Duration::from_secs(1)) + Duration::from_micros(options.period_us);
        let buffer = match camera.acquire(&mut queue, STEP) {
            Err(Error::NoBuffer { .. }) => continue,
            buffer => buffer.map_err(Failure::run)?,
        };
        queue.fill(&mut numbers, value_of(frames))?;
        let target = camera.memory(&buffer).map_err(Failure::run)?;
        add.launch(&mut queue, n.div_ceil(256), 256, (&numbers, &ones, target, n))?;
        let info = FrameInfo { bytes: 4 * u64::from(n), time_ns: Some(monotonic_ns()), flags: 0 };
        camera.publish(&mut queue, buffer, info, LIMIT).map_err(Failure::run)?;
        frames += 1;
    }
    camera.producer().flush(LIMIT).map_err(Failure::run)?;
    let mut events = Vec::new();
    while let Some(event) = camera.producer().next_event() {
        events.push(match event {
            Event::Left { consumer, cause: Cause::HungUp } => format!("consumer {consumer} has left"),
            Event::Left { consumer, cause } => format!("consumer {consumer} was ended: {cause}"),
            Event::Joined(consumer) => format!("consumer {consumer} has joined"),
            other => format!("{other:?}"),
        });
    }
    let device = device.info().kind.name();
    let report = json!({ "device": device, "frames": frames, "frame_bytes": 4 * n, "events": events });
    Ok((report, if frames < options.frames { End::Interrupted } else { End::Done }))
}

/// Produces frames for a second process, and returns what both have to say.
fn both(options: &Produce, stop: &Stop) -> Result<(Value, End), Failure> {
    let program = std::env::current_exe().context("the path of this program").map_err(Failure::Run)?;
    let device = options.common.device.to_string();
    let mut command = Command::new(program);
    command.args(["consume", "--json", "--device", &device, "--socket"]).arg(&options.socket);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child = child.context("starting the consumer").map_err(Failure::Run)?;
    // The consumer ends with the producer, and says so.
    let produced = produce(options, stop, 1);
    let output = child.wait_with_output().context("the consumer's output").map_err(Failure::Run)?;
    let (report, end) = produced?;
    if !output.status.success() {
        return Err(Failure::run(anyhow!("the consumer has failed: {}", output.status)));
    }
    let consumed: Value = serde_json::from_slice(&output.stdout).map_err(Failure::run)?;
    Ok((json!({ "producer": report, "consumer": consumed["consumer"] }), end))
}

fn consume(options: &Consume, stop: &Stop) -> Result<(Value, End), Failure> {
    let device = open(options.common.device)?;
    let add = load(&device)?;
    let timeout = Duration::from_millis(options.timeout_ms);
    let mut reader =
        GpuConsumer::<f32>::connect(&device, &options.socket, 2, timeout).map_err(Failure::run)?;
    let bytes = reader.consumer().layout().bytes;
    let n = u32::try_from(bytes / 4).map_err(Failure::run)?;
    let zeros = device.alloc_zeroed::<f32>(n as usize)?;
    let mut sum = device.alloc::<f32>(n as usize)?;
    let mut queue = device.queue()?;
    let (mut received, mut done, mut dropped) = (Vec::new(), Vec::new(), 0);
    let end = loop {
        if stop.flag().load(Ordering::Relaxed) {
            break End::Interrupted;
        }
        let frame = match reader.recv(&mut queue, STEP) {
            Ok(Some(frame)) => frame,
            Ok(None) => continue,
            Err(Error::Ended(Ended::Closed)) => break End::Done,
            Err(error) => break End::Lost(error),
        };
        let (sequence, sent) = (frame.sequence(), frame.time_ns());
        received.push(monotonic_ns().saturating_sub(sent));
        dropped += u64::from(frame.dropped());
        // The GPU reads the frame where the producer's GPU has written it.
        let source = reader.memory(&frame).map_err(Failure::run)?;
        add.launch(&mut queue, n.div_ceil(256), 256, (source, &zeros, &mut sum, n))?;
        if let Err(error) = reader.release(&mut queue, frame, LIMIT) {
            break End::Lost(error);
        }
        let wrong = sum.to_vec()?.into_iter().find(|value| *value != value_of(sequence));
        done.push(monotonic_ns().saturating_sub(sent));
        if let Some(value) = wrong {
            return Err(Failure::run(anyhow!("frame {sequence} contains {value}")));
        }
    };
    let report = json!({
        "device": device.info().kind.name(),
        "frames": done.len(),
        "dropped": dropped,
        "received_us": quantiles(&mut received),
        "result_us": quantiles(&mut done),
        "socket_bytes_per_frame": size_of::<FrameMessage>() + size_of::<ReleaseMessage>(),
    });
    Ok((report, end))
}

/// Median, 99 % and maximum of times in nanoseconds, in microseconds; nothing without times.
fn quantiles(times: &mut [u64]) -> Value {
    times.sort_unstable();
    let at = |per_mille: usize| {
        times.get(times.len().saturating_sub(1) * per_mille / 1000).map(|time| *time as f64 / 1e3)
    };
    json!({ "p50": at(500), "p99": at(990), "max": at(1000) })
}

fn print(report: &Value, json: bool) -> std::io::Result<()> {
    if json {
        return say!("{report}");
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let producer = &report["producer"];
    if producer.is_object() {
        let (frames, bytes) = (&producer["frames"], &producer["frame_bytes"]);
        say!("produced     {frames} frames of {bytes} bytes on {}", text(&producer["device"]))?;
        for event in producer["events"].as_array().into_iter().flatten() {
            say!("             {}", text(event))?;
        }
    }
    let consumer = &report["consumer"];
    if consumer.is_object() {
        let (frames, dropped) = (&consumer["frames"], &consumer["dropped"]);
        say!("consumed     {frames} frames on {}, all right; {dropped} dropped", text(&consumer["device"]))?;
        for (name, field) in [("received", "received_us"), ("result", "result_us")] {
            let time = |name: &str| consumer[field][name].as_f64().unwrap_or(f64::NAN);
            let [p50, p99, max] = ["p50", "p99", "max"].map(time);
            say!("{name:<12} p50 {p50:.1} µs, p99 {p99:.1} µs, max {max:.1} µs after the time stamp")?;
        }
        say!("socket       {} bytes a frame", consumer["socket_bytes_per_frame"])?;
    }
    Ok(())
}
