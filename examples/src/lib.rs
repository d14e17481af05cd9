//! What the example programs share: opening the device and reporting how a program ended.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nvgpu_sys::{Door, Errno, LinuxDoor};
use orin_sim::{Config, SoftwareOrin};
use tegra_hcq::{Device, DeviceKind};

pub mod arguments;

/// Logs to standard error what `RUST_LOG` asks for; nothing by default.
pub fn init_log() {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
}

/// How a program failed; decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// The work was done and is wrong, or the GPU refused it: exit code 1.
    Run(anyhow::Error),
    /// The request makes no sense or the device is not there: exit code 2, nothing was written.
    Request(anyhow::Error),
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

/// Prints a failure to standard error, and as JSON to standard output when asked for; returns the
/// exit code.
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

/// Opens the chosen device.
///
/// # Errors
///
/// [`Failure::Request`] when it cannot be opened.
pub fn open(kind: DeviceKind) -> Result<Device, Failure> {
    Device::open(kind).map_err(Failure::request)
}

/// The door to the kernel where there is an Orin's GPU, else to a software Orin: for programs that use the
/// layers below `tegra-hcq`.
///
/// # Errors
///
/// When no software Orin can be started: no descriptors or threads are left.
pub fn door() -> Result<Arc<dyn Door>, Errno> {
    if Path::new("/dev/nvgpu/igpu0/ctrl").exists() {
        return Ok(Arc::new(LinuxDoor));
    }
    Ok(Arc::new(SoftwareOrin::new(Config::from_environment())?))
}

/// One line that says which device answers.
pub fn describe(device: &Device) -> String {
    let info = device.info();
    let which = match info.kind {
        DeviceKind::Sim => "software Orin (no /dev/nvgpu/igpu0/ctrl needed)",
        DeviceKind::Nvrm => "GPU of NVIDIA's desktop driver",
        _ => "Jetson Orin GPU (nvgpu kernel driver)",
    };
    format!("{which}: {}", info.chip)
}
