//! Code shared by the example programs: options, the device, results and exit codes.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches, Parser};
use kernel_door::{Door, LinuxDoor};
use orin_cli::profile::{DEVICE, ProfileOptions};
use orin_cli::{ExitStatus, UsageError, is_closed_pipe, say, warn};
use orin_sim::{SettingsError, SoftwareOrin};
use tegra_hcq::{Device, DeviceKind, DeviceName};

mod table;

pub use table::Table;

/// Options of every program.
#[derive(clap::Args)]
pub struct Common {
    /// The device.
    #[arg(long, help = DEVICE, default_value_t = DeviceKind::Auto.into())]
    pub device: DeviceName,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Whether to profile the run.
    #[command(flatten)]
    pub profile: ProfileOptions,
}

/// Runs a program with options: parses them, starts the log that `RUST_LOG` requests, runs `body` and reports a
/// failure. `common` returns the options of every program.
pub fn main<T: CommandFactory + FromArgMatches>(
    common: impl FnOnce(&T) -> &Common,
    body: impl FnOnce(&T) -> Result<ExitStatus, Failure>,
) -> ExitCode {
    orin_cli::main(|options: &T| {
        let common = common(options);
        let recording = common.profile.begin().map_err(UsageError::from)?;
        let result = body(options);
        // Also of a run that has failed.
        let written = recording.finish().map_err(Failure::Run);
        Ok(report(result.and_then(|status| written.map(|()| status)), common.json))
    })
}

/// Runs a program of docs/guide.md, which has no options but `--help`.
pub fn run(program: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    /// A program of docs/guide.md. It has no options.
    #[derive(Parser)]
    struct NoOptions;

    orin_cli::main(|_: &NoOptions| {
        program()?;
        Ok(ExitStatus::Success.into())
    })
}

/// A failure of a program. The kind determines the exit code.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 1: wrong result, GPU fault or time-out.
    Run(anyhow::Error),
    /// Exit code 2: bad arguments or no such device. No output file was written.
    Request(anyhow::Error),
}

/// Errors of standard output are failures of the run.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::run(error)
    }
}

/// Errors of the library are failures of the run, unless the caller wraps them as [`Failure::Request`].
impl From<tegra_hcq::Error> for Failure {
    fn from(error: tegra_hcq::Error) -> Self {
        Self::run(error)
    }
}

impl Failure {
    /// Wraps an error as [`Failure::Run`].
    pub fn run(error: impl Into<anyhow::Error>) -> Self {
        Self::Run(error.into())
    }

    /// Wraps an error as [`Failure::Request`].
    pub fn request(error: impl Into<anyhow::Error>) -> Self {
        Self::Request(error.into())
    }
}

/// Returns the exit code of a program, after printing its failure to standard error and, if `json` is set, as a JSON
/// object to standard output. A closed output pipe is not a failure.
fn report(result: Result<ExitStatus, Failure>, json: bool) -> ExitCode {
    let (error, status) = match result {
        Ok(status) => return status.into(),
        Err(Failure::Run(error)) if is_closed_pipe(&error) => return ExitStatus::Success.into(),
        Err(Failure::Run(error)) => (error, ExitStatus::Failure),
        Err(Failure::Request(error)) => (error, ExitStatus::Usage),
    };
    if json {
        // The failure is reported below, also if this output fails.
        let _ = say!("{}", serde_json::json!({ "error": format!("{error:#}") }));
    }
    warn(format_args!("error: {error:#}"));
    status.into()
}

/// Opens the device.
///
/// # Errors
///
/// [`Failure::Request`] if the device cannot be opened.
pub fn open(name: impl Into<DeviceName>) -> Result<Device, Failure> {
    Device::open(name).map_err(Failure::request)
}

/// Returns the door to the kernel if the machine has an Orin's GPU, else the door of a new software Orin. For programs
/// that use the layers below `tegra-hcq`.
///
/// # Errors
///
/// Fails if the software Orin cannot start because the process has no file descriptors or threads left, or if the file
/// that `ORIN_SIM_SETTINGS` names is not valid.
pub fn door() -> Result<Arc<dyn Door>, SettingsError> {
    if Path::new("/dev/nvgpu/igpu0/ctrl").exists() {
        return Ok(Arc::new(LinuxDoor));
    }
    Ok(Arc::new(SoftwareOrin::from_environment()?))
}

/// Describes the device in one line.
pub fn describe(device: &Device) -> String {
    let info = device.info();
    let which = match info.kind {
        DeviceKind::Sim => "software Orin (no /dev/nvgpu/igpu0/ctrl needed)",
        DeviceKind::Nvrm => "GPU of NVIDIA's desktop driver",
        _ => "Jetson Orin GPU (nvgpu kernel driver)",
    };
    format!("{which}: {}", info.chip)
}
