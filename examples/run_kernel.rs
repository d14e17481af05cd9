//! Runs any kernel of any cubin, with arguments from the command line and from files.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Parser;
use examples::arguments::{Argument, Contents, FORMS, parse_dim};
use examples::{Common, Failure, describe, open};
use memmap2::Mmap;
use orin_cli::{ExitStatus, Output, Progress, say, warn, within, write_all};
use serde_json::json;
use tegra_hcq::check::{self, Finding, Suppressions, Tools};
use tegra_hcq::{Arg, Buffer, Compiler, Device, DeviceKind, Error, Program, Source};

/// Run a kernel of a cubin or of a CUDA source.
///
/// Exit codes: 0 success; 1 GPU fault, time-out, or findings of --check; 2 bad arguments, cubin, source or device.
/// Output files are written only after the kernel has completed without error, all of them or none.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    input: Input,
    /// Search this folder for headers of --source; may be given several times
    #[arg(short = 'I', long, value_name = "FOLDER", requires = "source")]
    include: Vec<PathBuf>,
    /// Define a macro of --source: NAME or NAME=VALUE; may be given several times
    #[arg(short = 'D', long, value_name = "NAME[=VALUE]", requires = "source")]
    define: Vec<String>,
    /// Pass an option to the compiler of --source, for example --option=--use_fast_math; may be given several times
    #[arg(long, value_name = "OPTION", requires = "source", allow_hyphen_values = true)]
    option: Vec<String>,
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
    /// Leave out the findings that the lines of this file match (docs/check.md)
    #[arg(long, value_name = "FILE", requires = "check")]
    suppressions: Option<PathBuf>,
    /// Write the findings to this file, in SARIF 2.1.0
    #[arg(long, value_name = "FILE", requires = "check")]
    sarif: Option<PathBuf>,
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

/// The kernels: exactly one of the two.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Input {
    /// Compiled kernels (CUDA ELF, for example from `orin compile` or `nvcc -cubin -arch=sm_87`)
    #[arg(long, value_name = "FILE")]
    cubin: Option<PathBuf>,
    /// CUDA C++, compiled for the device by NVIDIA's NVRTC (docs/compiling.md)
    #[arg(long, value_name = "FILE.cu")]
    source: Option<PathBuf>,
}

fn main() -> ExitCode {
    examples::main(|options: &Options| &options.common, run)
}

fn run(options: &Options) -> Result<ExitStatus, Failure> {
    // Check the whole request before touching the device or any output file.
    let path = options.input.cubin.as_ref().or(options.input.source.as_ref());
    let path = path.map(PathBuf::as_path).unwrap_or(Path::new(""));
    let file =
        content(path).with_context(|| format!("reading {}", path.display())).map_err(Failure::Request)?;
    let contents: Vec<Option<Contents>> = options
        .arguments
        .iter()
        .map(Argument::contents)
        .collect::<anyhow::Result<_>>()
        .map_err(Failure::Request)?;
    let targets = options.arguments.iter().filter_map(Argument::target);
    let outputs = Output::prepare_all(targets).map_err(Failure::request)?;
    let sarif = options.sarif.as_deref().map(Output::prepare).transpose().map_err(Failure::request)?;

    let device = match options.check {
        Some(tools) => open_checked(options, tools)?,
        None => open(options.common.device)?,
    };
    let program = if options.input.source.is_some() {
        compile(options, &device, path, &file)
    } else {
        Program::load(&device, &file).with_context(|| path.display().to_string())
    };
    let program = program.map_err(Failure::Request)?;
    drop(file);
    let kernel = program.kernel(&options.kernel).map_err(Failure::request)?;
    let buffers: Vec<Option<Buffer<u8>>> = contents
        .iter()
        .map(|contents| contents.as_ref().map(|contents| upload(&device, contents)).transpose())
        .collect::<Result<_, _>>()
        .map_err(Failure::request)?;
    for ((index, argument), buffer) in (0..).zip(&options.arguments).zip(&buffers) {
        if let (Some(name), Some(buffer)) = (argument.name(index), buffer) {
            buffer.set_name(&name);
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
    let mut queue = device.queue().map_err(Failure::request)?;
    let start = Instant::now();
    // SAFETY: the user asks for this kernel with these arguments. This program has no views, and keeps its buffers
    // until the work has ended; a kernel that leaves them can change results, or memory of the GPU's commands.
    unsafe { queue.launch_with_shared(&kernel, options.grid, options.block, options.shared, &arguments) }
        .map_err(Failure::request)?;
    let fence = queue.submit()?;
    let outcome = fence.wait(Duration::from_millis(options.timeout_ms));
    let elapsed = start.elapsed();

    drop(progress);
    let findings = options.check.map_or_else(Vec::new, |_| check::findings(&device));
    if let Some(sarif) = &sarif {
        let text = format!("{:#}\n", check::sarif(&findings));
        write_all(&[(sarif, text.as_bytes())]).map_err(Failure::run)?;
    }
    if !findings.is_empty() {
        warn(check::text(&findings).trim_end());
    }
    outcome?;

    let sources = options.arguments.iter().zip(&buffers).filter(|(argument, _)| argument.target().is_some());
    let results = sources.filter_map(|(_, buffer)| buffer.as_ref()).map(Buffer::to_vec);
    let results = results.collect::<Result<Vec<_>, _>>()?;
    let written: Vec<(&Output, &[u8])> = outputs.iter().zip(results.iter().map(Vec::as_slice)).collect();
    write_all(&written).map_err(Failure::run)?;
    print_report(options, &device, elapsed, &written, &findings)?;
    Ok(ExitStatus::failed_if(!findings.is_empty()))
}

/// Opens a software Orin that checks.
fn open_checked(options: &Options, tools: Tools) -> Result<Device, Failure> {
    let kind = options.common.device.kind;
    if !matches!(kind, DeviceKind::Auto | DeviceKind::Sim) {
        return Err(Failure::Request(anyhow!(
            "--check needs the software Orin, not {}; give --device sim",
            kind.name()
        )));
    }
    let suppressions = match &options.suppressions {
        None => Suppressions::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
            let parsed = text.and_then(|text| Ok(Suppressions::parse(&text)?));
            parsed.with_context(|| path.display().to_string()).map_err(Failure::Request)?
        }
    };
    check::open_with(tools, suppressions).map_err(Failure::request)
}

/// Compiles a source with the options of the command line.
fn compile(options: &Options, device: &Device, path: &Path, text: &[u8]) -> anyhow::Result<Program> {
    let text = std::str::from_utf8(text).with_context(|| path.display().to_string())?;
    let compiler = Compiler::shared()?;
    let includes = options.include.iter().map(|folder| format!("--include-path={}", folder.display()));
    let defines = options.define.iter().map(|text| format!("--define-macro={text}"));
    let all = includes.chain(defines).chain(options.option.iter().cloned());
    let source = all.fold(Source::new(text).name(path.to_string_lossy()), Source::option);
    let compiled = compiler.compile(&source, device.info().sm_version)?;
    if !compiled.log.trim().is_empty() {
        warn(compiled.log.trim_end());
    }
    Ok(Program::load(device, &compiled.cubin)?)
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
    if options.common.json {
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
