//! `orin run`: runs any kernel of a cubin or a source, with arguments from the command line and from files.

mod arguments;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memmap2::Mmap;
use orin_cli::profile::{DEVICE, ProfileOptions};
use orin_cli::{
    ExitStatus, Output, OutputError, Progress, UsageError, chain, is_closed_pipe, say, warn, within,
    write_all,
};
use serde_json::json;
use tegra_hcq::check::{self, Finding, Suppressions, Tools};
use tegra_hcq::{Arg, Buffer, Device, DeviceKind, DeviceName, Error, Program};

use crate::compile::{self, CompilerOptions};
use crate::files;
use arguments::{Argument, Contents, FORMS, names, parse_dim};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples, y = 2 * x + y for 1,000 floats:
  orin run --cubin saxpy.cubin --kernel saxpy --grid 4 --block 256 \\
      --arg f32:2 --arg in:x.bin --arg inout:y.bin:z.bin --arg u32:1000
  orin run --source saxpy.cu --kernel saxpy --grid 4 --block 256 ... --check

Exit codes: 0 success; 1 GPU fault, time-out, or findings of --check; 2 bad arguments, cubin, source or device.
Output files are written only after the kernel has completed without error, all of them or none.")]
pub(crate) struct Options {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    compiler: CompilerOptions,
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
    /// Check the kernel on the software Orin: memcheck, racecheck, initcheck, synccheck, leakcheck or all, several
    /// separated by commas; exit code 1 if anything is found
    #[arg(long, value_name = "TOOLS", num_args = 0..=1, require_equals = true, default_missing_value = "memcheck")]
    check: Option<Tools>,
    /// Leave out the findings that the lines of this file match
    #[arg(long, value_name = "FILE", requires = "check")]
    suppressions: Option<PathBuf>,
    /// Write the findings to this file, in SARIF 2.1.0
    #[arg(long, value_name = "FILE", requires = "check")]
    sarif: Option<PathBuf>,
    /// Time limit of the kernel, in milliseconds
    #[arg(long, default_value_t = 30_000, value_parser = within(1..=u64::MAX))]
    timeout_ms: u64,
    /// The device
    #[arg(long, help = DEVICE, default_value_t = DeviceKind::Auto.into())]
    device: DeviceName,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    profile: ProfileOptions,
    /// A kernel argument, in order
    #[arg(
        long = "arg",
        value_name = "TYPE:VALUE",
        help = format!("A kernel argument, in order: {FORMS}"),
        allow_hyphen_values = true
    )]
    arguments: Vec<Argument>,
}

/// The kernels: exactly one of the two.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Input {
    /// Compiled kernels (CUDA ELF, for example from `orin compile` or `nvcc -cubin -arch=sm_87`)
    #[arg(long, value_name = "FILE")]
    cubin: Option<PathBuf>,
    /// CUDA C++ or PTX, compiled for the device by NVIDIA's NVRTC or nvJitLink, with line information
    #[arg(long, value_name = "FILE.cu")]
    source: Option<PathBuf>,
}

impl Input {
    fn path(&self) -> &Path {
        let path = self.cubin.as_ref().or(self.source.as_ref());
        path.map_or(Path::new(""), PathBuf::as_path)
    }
}

/// Runs a kernel. A failure is also printed as a JSON object with `--json`.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let result = record(options);
    if let Err(error) = &result
        && options.json
        && !is_closed_pipe(error)
    {
        // The failure is reported by the caller, also if this output fails.
        let _ = say!("{}", json!({ "error": chain(error) }));
    }
    result
}

/// An error of a request that cannot be fulfilled.
fn refused(error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    // The text of a lack of memory has the driver's cause in other words.
    let is_memory = matches!(error.downcast_ref(), Some(Error::OutOfMemory { .. }));
    UsageError(if is_memory { error.to_string() } else { chain(&error) }).into()
}

fn record(options: &Options) -> Result<ExitCode> {
    // Before the trace, which is also written of a run that has failed.
    let outputs = outputs(options).map_err(UsageError::from)?;
    let recording = options.profile.begin().map_err(UsageError::from)?;
    let result = launch(options, &outputs);
    let written = recording.finish();
    result.and_then(|status| written.map(|()| status.into()))
}

/// The files of the buffers, then that of `--sarif`. None may be that of `--trace` or one with kernels, and a report
/// none that fills a buffer.
fn outputs(options: &Options) -> Result<Vec<Output>, OutputError> {
    let targets = options.arguments.iter().filter_map(Argument::target);
    let results = targets.clone().count();
    let mut outputs = Output::prepare_all(targets.chain(&options.sarif).chain(&options.profile.trace))?;
    let inputs = || std::iter::once(options.input.path()).chain(options.suppressions.as_deref());
    outputs.iter().try_for_each(|output| output.spare(inputs()))?;
    let sources = || options.arguments.iter().filter_map(Argument::source);
    outputs[results..].iter().try_for_each(|output| output.spare(sources()))?;
    outputs.truncate(results + usize::from(options.sarif.is_some()));
    Ok(outputs)
}

fn launch(options: &Options, outputs: &[Output]) -> Result<ExitStatus> {
    // Check the whole request before touching the device or any output file.
    let path = options.input.path();
    if options.input.cubin.is_some() && options.compiler.is_given() {
        let text = "a cubin is compiled already: omit -I, -D, --option and --line-info, or give --source";
        return Err(UsageError(text.to_owned()).into());
    }
    let text = options.input.source.as_deref().map(compile::source).transpose()?;
    let file = options.input.cubin.as_deref().map(content).transpose();
    let file = file.map_err(|error| files::wrong(path, error))?;
    let contents: Vec<Option<Contents>> =
        options.arguments.iter().map(Argument::contents).collect::<Result<_>>().map_err(refused)?;
    let (outputs, sarif) = outputs.split_at(outputs.len() - usize::from(options.sarif.is_some()));

    let device = match options.check {
        Some(tools) => open_checked(options, tools)?,
        None => Device::open(options.device).map_err(refused)?,
    };
    // Buffers are those of the command line: this program's calls say nothing to its user.
    check::set_calls(Some(Vec::new()));
    let program = match (&text, &file) {
        (Some(text), _) => {
            let made =
                options.compiler.compile_with_lines(path, text, device.info().sm_version).map_err(refused)?;
            if !made.log.trim().is_empty() {
                warn(made.log.trim_end());
            }
            Program::load(&device, &made.cubin)
        }
        (None, file) => Program::load(&device, file.as_deref().unwrap_or_default()),
    };
    let program = program.with_context(|| path.display().to_string()).map_err(refused)?;
    drop(file);
    let kernel = program.kernel(&options.kernel).map_err(refused)?;
    let buffers: Vec<Option<Buffer<u8>>> = contents
        .iter()
        .map(|contents| contents.as_ref().map(|contents| upload(&device, contents)).transpose())
        .collect::<Result<_, _>>()
        .map_err(refused)?;
    for (name, buffer) in names(&options.arguments).iter().zip(&buffers) {
        if let (Some(name), Some(buffer)) = (name, buffer) {
            buffer.set_name(name);
        }
    }
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
    let mut queue = device.queue().map_err(refused)?;
    let start = Instant::now();
    // SAFETY: the user asks for this kernel with these arguments. This program has no views, and keeps its buffers
    // until the work has ended; a kernel that leaves them can change results, or memory of the GPU's commands.
    unsafe { queue.launch_with_shared(&kernel, options.grid, options.block, options.shared, &arguments) }
        .map_err(refused)?;
    let fence = queue.submit()?;
    let outcome = fence.wait(Duration::from_millis(options.timeout_ms));
    let elapsed = start.elapsed();

    drop(progress);
    let findings = options.check.map_or_else(Vec::new, |_| check::findings(&device));
    if let [sarif] = sarif {
        let text = format!("{:#}\n", check::sarif(&findings, &path.to_string_lossy()));
        write_all(&[(sarif, text.as_bytes())])?;
    }
    findings.iter().for_each(warn);
    if let (Some(tools), Some(checker)) = (options.check, check::checker(&device)) {
        warn(checker.work().summary(tools, findings.len()));
    }
    outcome?;

    let sources = options.arguments.iter().zip(&buffers).filter(|(argument, _)| argument.target().is_some());
    let results = sources.filter_map(|(_, buffer)| buffer.as_ref()).map(Buffer::to_vec);
    let results = results.collect::<Result<Vec<_>, _>>()?;
    let written: Vec<(&Output, &[u8])> = outputs.iter().zip(results.iter().map(Vec::as_slice)).collect();
    write_all(&written)?;
    print_report(options, &device, elapsed, &written, &findings)?;
    Ok(ExitStatus::failed_if(!findings.is_empty()))
}

/// Opens a software Orin that checks.
fn open_checked(options: &Options, tools: Tools) -> Result<Device> {
    let kind = options.device.kind;
    if !matches!(kind, DeviceKind::Auto | DeviceKind::Sim) {
        let text = format!("--check needs the software Orin, not {}; give --device sim", kind.name());
        return Err(UsageError(text).into());
    }
    let suppressions = match &options.suppressions {
        None => Suppressions::default(),
        Some(path) => crate::check::suppressions(path)?,
    };
    check::open_with(tools, suppressions).map_err(refused)
}

/// The content of the file with the kernels.
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
    findings: &[Finding],
) -> io::Result<()> {
    if written.iter().any(|(output, _)| output.is_stdout()) {
        // The bytes of a buffer have gone there.
        return Ok(());
    }
    let micros = elapsed.as_secs_f64() * 1e6;
    if options.json {
        let files: Vec<_> = written
            .iter()
            .map(|(file, bytes)| json!({ "file": file.path(), "bytes": bytes.len() }))
            .collect();
        let mut report = json!({
            "device": device.info().kind.name(),
            "kernel": options.kernel,
            "grid": options.grid,
            "block": options.block,
            "time_us": micros,
            "written": files,
        });
        if options.check.is_some() {
            report["findings"] = json!(findings);
        }
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

/// Describes the device in one line.
fn describe(device: &Device) -> String {
    let info = device.info();
    let which = match info.kind {
        DeviceKind::Sim => "software Orin (no /dev/nvgpu/igpu0/ctrl needed)",
        DeviceKind::Nvrm => "GPU of NVIDIA's desktop driver",
        _ => "Jetson Orin GPU (nvgpu kernel driver)",
    };
    format!("{which}: {}", info.chip)
}
