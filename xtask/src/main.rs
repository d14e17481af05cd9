//! `cargo xtask`: the project's own commands.

use std::fmt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use tegra_hcq::DeviceKind;

mod check_headers;
mod ci;
mod decode;
mod doctor;
mod gen_classes;
mod info;
mod kernels;

/// Project commands of the Orin GPU driver workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Print everything that the device says about itself
    Info {
        /// Which device to ask: auto, nvgpu or sim
        #[arg(long, default_value_t = DeviceKind::Auto)]
        device: DeviceKind,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Say what keeps kernels from running on this machine, and what helps
    Doctor(doctor::Options),
    /// Compare the ioctl tables with the headers of an L4T release
    CheckHeaders(check_headers::Options),
    /// Explain recordings of what a program asked of the driver
    #[command(subcommand)]
    Decode(decode::Recording),
    /// Rebuild kernels/*.cubin from kernels/*.cu with NVRTC 12.6
    Kernels(kernels::Options),
    /// Regenerate the command tables of ampere-cmd from its class tables
    GenClasses {
        /// Only compare; fail when the generated files are out of date
        #[arg(long)]
        check: bool,
    },
    /// Run everything that continuous integration runs
    Ci,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let result = match Options::parse().command {
        Task::Info { device, json } => success(info::run(device, json)),
        Task::Doctor(options) => doctor::run(&options),
        Task::CheckHeaders(options) => check_headers::run(&options),
        Task::Decode(recording) => success(decode::run(&recording)),
        Task::Kernels(options) => success(kernels::run(&options)),
        Task::GenClasses { check } => success(gen_classes::run(check)),
        Task::Ci => success(ci::run()),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<WrongUse>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Exit code 0 for a command that has no other on success.
fn success(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}

/// A command was asked for something that it cannot do: exit code 2, like a wrong option. The text
/// says what is wrong and how to put it right.
#[derive(Debug)]
struct WrongUse(String);

impl fmt::Display for WrongUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUse {}

/// Runs a program in the workspace root and fails when it does.
fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// The workspace root, where the top-level Cargo.toml is.
fn workspace_root() -> Result<std::path::PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["locate-project", "--workspace", "--message-format=plain"])
        .output()
        .context("asking cargo for the workspace")?;
    let manifest = String::from_utf8(output.stdout).context("path of the workspace")?;
    let root = std::path::Path::new(manifest.trim()).parent().context("not inside the workspace")?;
    Ok(root.to_owned())
}
