//! Frames of a camera to a small network on the GPU, without a copy by the CPU: import of dma-bufs, fences as files,
//! kernels of `tegra-image`. See docs/camera.md.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod source;
mod v4l2;

use std::ops::RangeBounds;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use examples::{Common, Failure, describe, open};
use hdrhistogram::Histogram;
use networks::weights::MlpWeights;
use networks::{Mlp, Model};
use orin_cli::{ExitStatus, Progress, Stop, say, within};
use orin_sim::SoftwareOrin;
use source::{Source, now};
use tegra_hcq::{
    Buffer, Device, DeviceKind, Profile, Queue, ReadOnlyBuffer, SharedBuffer, Slice, Span, Work,
};
use tegra_image::{Colour, Fit, Kernels, Shape};

/// Side of the network's input in pixels.
const SIDE: u32 = 32;
/// Number of its results.
const CLASSES: usize = 10;
/// Stages on the GPU.
const STAGES: [&str; 4] = ["NV12 to RGB", "resize", "normalise", "network"];
/// Longest wait for the work on a frame.
const LIMIT: Duration = Duration::from_secs(60);

/// Feed frames of a camera to a small network on the GPU, without a copy, and print how long each stage takes.
///
/// Without --camera, the first /dev/video* is used on a board, or a thread that writes frames if there is none, and the
/// synthetic camera on the software Orin. The network has random weights: it classifies nothing.
///
/// Exit codes: 0 success; 1 wrong result, GPU fault, time-out, or a camera that stops; 2 no such device or camera, bad
/// arguments; 130 interrupted, with the figures of the frames so far.
#[derive(Parser)]
#[command(name = "camera", version)]
struct Options {
    /// V4L2 device to capture from, such as /dev/video0
    #[arg(long)]
    camera: Option<PathBuf>,
    /// Number of frames
    #[arg(long, default_value_t = 30, value_parser = within(1..=10_000_000_u32))]
    frames: u32,
    /// Width in pixels; a V4L2 camera takes the nearest that it has
    #[arg(long, default_value_t = 640, value_parser = within(32..=8192_u32))]
    width: u32,
    /// Height in pixels; likewise
    #[arg(long, default_value_t = 480, value_parser = within(2..=8192_u32))]
    height: u32,
    /// Frames per second of what is not a real camera
    #[arg(long, default_value_t = 5, value_parser = within(1..=1000_u32))]
    rate: u32,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    examples::main(|options: &Options| &options.common, run)
}

/// Opens the device and the camera.
fn open_both(options: &Options) -> Result<(Device, Source), Failure> {
    let size = (options.width, options.height);
    let kind = options.common.device.kind;
    let is_board = std::path::Path::new("/dev/nvgpu/igpu0/ctrl").exists();
    let software = kind == DeviceKind::Sim || (kind == DeviceKind::Auto && !is_board);
    if let Some(path) = options.camera.clone().or_else(|| v4l2::first_node().filter(|_| !software)) {
        let source = Source::v4l2(&path, size).map_err(Failure::Request)?;
        return Ok((open(options.common.device)?, source));
    }
    if !software {
        let device = open(options.common.device)?;
        let source = Source::thread(&device, size, options.rate.into()).map_err(Failure::Request)?;
        return Ok((device, source));
    }
    let orin = SoftwareOrin::from_environment().map_err(Failure::request)?;
    let device = Device::open_through(Arc::new(orin.clone()), DeviceKind::Sim).map_err(Failure::request)?;
    let source = Source::synthetic(&orin, size, options.rate.into()).map_err(Failure::Request)?;
    Ok((device, source))
}

/// A buffer of the camera.
enum Imported {
    ReadOnly(ReadOnlyBuffer<u8>),
    /// Of a driver that has no imports for reading only.
    Shared(SharedBuffer<u8>),
}

impl Imported {
    fn slice(&self, range: impl RangeBounds<usize>) -> tegra_hcq::Result<Slice<'_, u8>> {
        match self {
            Self::ReadOnly(buffer) => buffer.slice(range),
            Self::Shared(buffer) => buffer.slice(range),
        }
    }
}

/// What turns frames into results; made once.
struct Pipeline {
    queue: Queue,
    kernels: Kernels,
    /// The camera's buffers.
    frames: Vec<Imported>,
    rgb: Buffer<f32>,
    network: Mlp,
}

impl Pipeline {
    fn new(device: &Device, source: &Source) -> anyhow::Result<Self> {
        let surface = source.surface();
        let bytes = usize::try_from(surface.bytes())?;
        let import = |file| match device.import_file_read_only(file, ..bytes) {
            Err(error) if error.is_unsupported() => Ok(Imported::Shared(device.import_file(file, ..bytes)?)),
            imported => imported.map(Imported::ReadOnly),
        };
        let frames = source.buffers().into_iter().map(import).collect::<Result<Vec<_>, _>>()?;
        let camera = Shape::rgb(surface.width(), surface.height());
        let rgb = device.alloc(usize::try_from(camera.elements())?)?.named("frame as RGB");
        let inputs = usize::try_from(Shape::rgb(SIDE, SIDE).elements())?;
        let weights = MlpWeights::random(&mut fastrand::Rng::with_seed(1), &[inputs, 64, CLASSES]);
        let network = Mlp::new(device, weights, 1)?;
        let mut queue = device.queue()?;
        queue.profile(true)?;
        Ok(Self { queue, kernels: Kernels::load(device)?, frames, rgb, network })
    }

    /// Adds the work on a frame to the queue.
    fn add(&mut self, source: &Source, index: usize) -> anyhow::Result<()> {
        let Self { queue, kernels, frames, rgb, network } = self;
        let (surface, frame) =
            (source.surface(), frames.get(index).context("the camera has more buffers now")?);
        let (camera, small) = (Shape::rgb(surface.width(), surface.height()), Shape::rgb(SIDE, SIDE));
        let [convert, resize, normalise, infer] = STAGES;
        let stage = queue.span(convert);
        kernels.yuv_to_rgb(queue, frame.slice(..)?, surface, Colour::BT709_LIMITED, &mut *rgb)?;
        drop(stage);
        let (stage, input) = (queue.span(resize), network.input());
        kernels.resize(queue, &*rgb, camera, &mut *input, small, Fit::Letterbox { fill: 0.5 })?;
        drop(stage);
        let stage = queue.span(normalise);
        kernels.normalise(queue, &mut *input, small, &[0.5; 3], &[4.0; 3])?;
        drop(stage);
        let _stage = queue.span(infer);
        Ok(network.forward(queue)?)
    }
}

/// Times in microseconds.
struct Times {
    /// From the camera's time stamp until the frame was taken, its work submitted, the result seen.
    latency: Vec<(&'static str, Histogram<u64>)>,
    /// Durations on the GPU.
    stages: Vec<(&'static str, Histogram<u64>)>,
    /// Bytes that copies of the queue have moved.
    copied: u64,
}

impl Times {
    fn new() -> anyhow::Result<Self> {
        let all = |names: &[&'static str]| {
            names.iter().map(|name| Ok((*name, Histogram::new_with_bounds(1, 600_000_000, 3)?))).collect()
        };
        let made: anyhow::Result<_> = all(&["taken", "submitted", "result"]);
        Ok(Self { latency: made?, stages: all(&STAGES)?, copied: 0 })
    }

    fn note(&mut self, began: Duration, now: [Duration; 3], profile: &Profile) {
        // CAST: saturated by the histogram.
        let micros = |time: Duration| time.as_micros().max(1) as u64;
        for ((_, times), now) in self.latency.iter_mut().zip(now) {
            times.saturating_record(micros(now.saturating_sub(began)));
        }
        let bytes = |span: &Span| if let Work::Copy { bytes } = span.work { bytes } else { 0 };
        self.copied += profile.spans.iter().map(bytes).sum::<u64>();
        for (name, times) in &mut self.stages {
            if let Some((start, end)) =
                profile.ranges.iter().find(|range| range.name == *name).and_then(|range| range.gpu)
            {
                times.saturating_record(micros(Duration::from_nanos(end.saturating_sub(start))));
            }
        }
    }
}

fn run(options: &Options) -> Result<ExitStatus, Failure> {
    let stop = Stop::on_signals().context("waiting for Ctrl-C").map_err(Failure::Run)?;
    let (device, source) = open_both(options)?;
    let mut pipeline = Pipeline::new(&device, &source).map_err(Failure::Run)?;
    let mut times = Times::new().map_err(Failure::Run)?;
    let progress = Progress::new("waiting for the first frame");
    let (mut done, mut lost, mut first, mut last) = (0, 0, None, Vec::new());
    while done < options.frames && !stop.flag().load(Ordering::Relaxed) {
        let (sequence, output) = one(&mut pipeline, &source, &mut times).map_err(Failure::Run)?;
        let first = *first.get_or_insert(sequence);
        done += 1;
        lost = sequence.wrapping_sub(first).saturating_add(1).saturating_sub(done);
        last = output;
        progress.set(&format!("frame {done} of {}", options.frames));
    }
    drop(progress);
    if done == 0 {
        return Ok(ExitStatus::Interrupted);
    }
    print(options, &device, &source, &times, (done, lost), &last)?;
    Ok(if done < options.frames { ExitStatus::Interrupted } else { ExitStatus::Success })
}

/// Processes the next frame; returns its number and the network's output.
fn one(pipeline: &mut Pipeline, source: &Source, times: &mut Times) -> anyhow::Result<(u32, Vec<f32>)> {
    let frame = source.next_frame()?;
    let taken = now();
    if let Some(ready) = &frame.ready {
        // The GPU waits, so the work is there when the frame is complete.
        pipeline.queue.wait_file(ready)?;
    }
    pipeline.add(source, frame.index)?;
    let (read, fence) = match pipeline.queue.submit_to_file() {
        Ok(file) => (Some(file), pipeline.queue.submit()?),
        Err(error) if error.is_unsupported() => (None, pipeline.queue.submit()?),
        Err(error) => return Err(error.into()),
    };
    let submitted = now();
    fence.wait(LIMIT)?;
    let output = pipeline.network.output().to_vec()?;
    let seen = now();
    times.note(frame.timestamp, [taken, submitted, seen], &pipeline.queue.take_profile()?);
    anyhow::ensure!(output.iter().all(|value| value.is_finite()), "frame {}: {output:?}", frame.sequence);
    // 64 bytes, by the CPU.
    let beginning = pipeline.frames[frame.index].slice(..64)?.to_vec()?;
    source.check(frame.sequence, &beginning)?;
    source.give_back(frame.index, read.as_ref())?;
    Ok((frame.sequence, output))
}

fn print(
    options: &Options,
    device: &Device,
    source: &Source,
    times: &Times,
    (done, lost): (u32, u32),
    output: &[f32],
) -> Result<(), Failure> {
    let best = (0..output.len()).max_by(|a, b| output[*a].total_cmp(&output[*b])).unwrap_or_default();
    let surface = source.surface();
    let figures = |times: &Histogram<u64>| {
        [("p50", 0.5), ("p99", 0.99), ("max", 1.0)].map(|(name, at)| (name, times.value_at_quantile(at)))
    };
    if options.common.json {
        let stage = |(name, times): &(&str, Histogram<u64>)| {
            let figures = figures(times).map(|(name, value)| (format!("{name}_us"), value.into()));
            ((*name).to_owned(), figures.into_iter().collect::<serde_json::Map<_, _>>().into())
        };
        type Object = serde_json::Map<String, serde_json::Value>;
        let latency: Object = times.latency.iter().map(stage).collect();
        let stages: Object = times.stages.iter().map(stage).collect();
        return Ok(say!(
            "{}",
            serde_json::json!({
                "device": describe(device),
                "camera": source.name(),
                "width": surface.width(),
                "height": surface.height(),
                "frames": done,
                "lost": lost,
                "bytes_copied": times.copied,
                "latency": latency,
                "gpu": stages,
                "best": best,
                "output": output,
            })
        )?);
    }
    say!("device      {}", describe(device))?;
    say!("camera      {}: NV12, {} x {}", source.name(), surface.width(), surface.height())?;
    say!("frames      {done}, {lost} lost, {} bytes copied", times.copied)?;
    for (what, times) in [("after the beginning of the frame", &times.latency), ("on the GPU", &times.stages)]
    {
        for (name, times) in times {
            let [p50, p99, max] =
                figures(times).map(|(name, us)| format!("{name} {:.2} ms", us as f64 / 1e3));
            say!("{name:<11} {p50}, {p99}, {max} {what}")?;
        }
    }
    say!("result      class {best} of {}, of the last frame", output.len())?;
    Ok(())
}
