//! Code shared by the example programs: options, the device, results and exit codes.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nvgpu_sys::{Door, LinuxDoor};
use orin_sim::{SettingsError, SoftwareOrin};
use tegra_hcq::{Device, DeviceKind};

pub mod arguments;
mod table;

pub use table::Table;

/// Options of every program.
#[derive(clap::Args)]
pub struct Common {
    /// Where to run: auto (the Orin's GPU, else a desktop GPU that can be driven, else the software Orin), nvgpu, nvrm
    /// or sim
    #[arg(long, default_value_t = DeviceKind::Auto)]
    pub device: DeviceKind,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Logs to standard error as `RUST_LOG` requests; logs nothing by default.
pub fn init_log() {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
}

/// A failure of a program. The kind determines the exit code.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 1: wrong result, GPU fault or time-out.
    Run(anyhow::Error),
    /// Exit code 2: bad arguments or no such device. No output file was written.
    Request(anyhow::Error),
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
/// object to standard output.
pub fn report(result: Result<(), Failure>, json: bool) -> ExitCode {
    let (error, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Run(error)) => (error, 1),
        Err(Failure::Request(error)) => (error, 2),
    };
    if json {
        println!("{}", serde_json::json!({ "error": format!("{error:#}") }));
    }
    eprintln!("error: {error:#}");
    ExitCode::from(code)
}

/// Opens the device.
///
/// # Errors
///
/// [`Failure::Request`] if the device cannot be opened.
pub fn open(kind: DeviceKind) -> Result<Device, Failure> {
    Device::open(kind).map_err(Failure::request)
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
