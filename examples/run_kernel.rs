//! Runs any kernel of any cubin, with arguments from the command line and from files.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use examples::arguments::{Argument, Contents, FORMS, parse_dim};
use examples::{Common, Failure, describe, open};
use memmap2::Mmap;
use orin_cli::{ExitStatus, Output, Progress, say, within, write_all};
use serde_json::json;
use tegra_hcq::{Arg, Buffer, Device, Error, Program};

/// Run a kernel of a cubin.
///
/// Exit codes: 0 success; 1 GPU fault or time-out; 2 bad arguments, cubin or device. Output files are written only
/// after the kernel has completed without error, all of them or none.
#[derive(Parser)]
struct Options {
    /// Compiled kernels (CUDA ELF, for example from `nvcc -cubin -arch=sm_87`)
    #[arg(long, value_name = "FILE")]
    cubin: PathBuf,
    /// Name of the kernel
    #[arg(long)]
    kernel: String,
    /// Number of blocks: X, X,Y or X,Y,Z
    #[arg(long, value_parser = parse_dim)]
    grid: [u32; 3],
    /// Threads per block: X, X,Y or X,Y,Z
    #[arg(long, value_parser = parse_dim)]
    block: [u32; 3],
    /// Dynamic shared memory per block, in bytes
    #[arg(long, default_value_t = 0, value_name = "BYTES", value_parser = within(0..=u32::MAX))]
    shared: u32,
    /// Time limit of the kernel, in milliseconds
    #[arg(long, default_value_t = 30_000, value_parser = within(1..=u64::MAX))]
    timeout_ms: u64,
    #[command(flatten)]
    common: Common,
    /// A kernel argument, in order
    #[arg(
        long = "arg",
        value_name = "TYPE:VALUE",
        help = format!("A kernel argument, in order: {FORMS}"),
        allow_hyphen_values = true
    )]
    arguments: Vec<Argument>,
}

fn main() -> ExitCode {
    examples::main(|options: &Options| &options.common, run)
}

fn run(options: &Options) -> Result<ExitStatus, Failure> {
    // Check the whole request before touching the device or any output file.
    let cubin = content(&options.cubin)
        .with_context(|| format!("reading {}", options.cubin.display()))
        .map_err(Failure::Request)?;
    let contents: Vec<Option<Contents>> = options
        .arguments
        .iter()
        .map(Argument::contents)
        .collect::<anyhow::Result<_>>()
        .map_err(Failure::Request)?;
    let targets = options.arguments.iter().filter_map(Argument::target);
    let outputs = Output::prepare_all(targets).map_err(Failure::request)?;

    let device = open(options.common.device)?;
    let program = Program::load(&device, &cubin)
        .with_context(|| options.cubin.display().to_string())
        .map_err(Failure::Request)?;
    drop(cubin);
    let kernel = program.kernel(&options.kernel).map_err(Failure::request)?;
    let buffers: Vec<Option<Buffer<u8>>> = contents
        .iter()
        .map(|contents| contents.as_ref().map(|contents| upload(&device, contents)).transpose())
        .collect::<Result<_, _>>()
        .map_err(Failure::request)?;
    let arguments: Vec<Arg<'_>> = options
        .arguments
        .iter()
        .zip(&buffers)
        .map(|(argument, buffer)| match (argument, buffer) {
            (Argument::Scalar(scalar), _) => Arg::from(*scalar),
            (Argument::Struct(bytes), _) => Arg::Bytes(bytes),
            (Argument::Buffer { .. }, Some(buffer)) => Arg::from(buffer),
            (Argument::Buffer { .. }, None) => Arg::U64(0),
        })
        .collect();

    let progress = Progress::new("running the kernel");
    let mut queue = device.queue().map_err(Failure::request)?;
    let start = Instant::now();
    // SAFETY: the user asks for this kernel with these arguments. This program has no views, and keeps its buffers
    // until the work has ended; a kernel that leaves them can change results, or memory of the GPU's commands.
    unsafe { queue.launch_with_shared(&kernel, options.grid, options.block, options.shared, &arguments) }
        .map_err(Failure::request)?;
    let fence = queue.submit()?;
    fence.wait(Duration::from_millis(options.timeout_ms))?;
    let elapsed = start.elapsed();

    drop(progress);

    let sources = options.arguments.iter().zip(&buffers).filter(|(argument, _)| argument.target().is_some());
    let results = sources.filter_map(|(_, buffer)| buffer.as_ref()).map(Buffer::to_vec);
    let results = results.collect::<Result<Vec<_>, _>>()?;
    let written: Vec<(&Output, &[u8])> = outputs.iter().zip(results.iter().map(Vec::as_slice)).collect();
    write_all(&written).map_err(Failure::run)?;
    print_report(options, &device, elapsed, &written)?;
    Ok(ExitStatus::Success)
}

/// The content of the cubin's file.
enum Content {
    Mapped(Mmap),
    Read(Vec<u8>),
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Read(bytes) => bytes,
        }
    }
}

/// Maps a regular file, and reads anything else, such as a pipe (`/dev/stdin`).
fn content(path: &Path) -> io::Result<Content> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        return Ok(Content::Read(bytes));
    }
    // SAFETY: this program does not write to the file, and loads the program from it before it writes any output. The
    // file belongs to the user, and no lock keeps other programs away: like a shared library, a cubin that is rewritten
    // in place while it is loaded yields mixed contents, or SIGBUS if it becomes shorter.
    unsafe { Mmap::map(&file) }.map(Content::Mapped)
}

/// Allocates a buffer with the given contents.
fn upload(device: &Device, contents: &Contents) -> Result<Buffer<u8>, Error> {
    match contents {
        Contents::Bytes(bytes) => device.alloc_from(bytes),
        Contents::Zeros(bytes) => device.alloc_zeroed(*bytes),
    }
}

fn print_report(
    options: &Options,
    device: &Device,
    elapsed: Duration,
    written: &[(&Output, &[u8])],
) -> io::Result<()> {
    if written.iter().any(|(output, _)| output.is_stdout()) {
        // The bytes of a buffer have gone there.
        return Ok(());
    }
    let micros = elapsed.as_secs_f64() * 1e6;
    if options.common.json {
        let files: Vec<_> = written
            .iter()
            .map(|(file, bytes)| json!({ "file": file.path(), "bytes": bytes.len() }))
            .collect();
        let report = json!({
            "device": device.info().kind.name(),
            "kernel": options.kernel,
            "grid": options.grid,
            "block": options.block,
            "time_us": micros,
            "written": files,
        });
        return say!("{report}");
    }
    say!("device  {}", describe(device))?;
    say!("kernel  {} grid {:?} block {:?}", options.kernel, options.grid, options.block)?;
    say!("time    {micros:.2} µs (launch to completion seen by the CPU)")?;
    for (file, bytes) in written {
        say!("wrote   {} ({} bytes)", file.path().display(), bytes.len())?;
    }
    Ok(())
}
