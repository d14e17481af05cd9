//! `cargo xtask`: the project's own commands.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{CommandFactory, Parser, Subcommand};
use orin_cli::ExitStatus;

mod bench;
mod check_features;
mod check_headers;
mod check_source;
mod ci;
mod compare_board;
mod coverage;
mod dist;
mod gen_classes;
mod import_graph;
mod kernels;
mod silicon;
mod test_device;
mod tokens;
mod vendor_tools;
mod workspace;

/// Project commands of the Orin GPU driver workspace.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted."
)]
struct Options {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    #[command(flatten)]
    Tool(orin_tool::Command),
    /// Run the device tests on a board or on the software Orin; exit code 1 if one fails
    TestDevice(test_device::Options),
    /// Measure launches, graphs, copies, memory, kernels and start-up; exit code 1 if a case fails
    Bench(bench::Options),
    /// Compare the ioctl tables with the headers of an L4T release
    CheckHeaders(check_headers::Options),
    /// Rebuild kernels/*.cubin from kernels/*.cu with NVRTC 12.6
    Kernels(kernels::Options),
    /// List the instructions that the corpus executes on the software Orin; exit code 1 if a required one is missing
    Coverage(coverage::Options),
    /// Exchange kernels and results with a GPU under NVIDIA's own driver
    #[command(subcommand)]
    Silicon(silicon::Exchange),
    /// Compare checks and profiles with NVIDIA's compute-sanitizer and ncu
    #[command(subcommand)]
    VendorTools(vendor_tools::Exchange),
    /// Regenerate the command tables of ampere-cmd from its class tables
    GenClasses {
        /// Only compare; fail if the generated files are out of date
        #[arg(long)]
        check: bool,
    },
    /// Print the largest circle of modules of each crate; exit code 1 if one has more than 6 files
    ImportGraph(import_graph::Options),
    /// Check line widths, comments on calls that panic, and examples of public types; exit code 1 if one is at fault
    CheckSource,
    /// Run a program on the software Orin and compare its output with the log of a board; exit code 1 if they differ
    CompareBoard(compare_board::Options),
    /// Check that every library builds with none, one, two and all of its features; exit code 1 if one does not
    CheckFeatures,
    /// Build a pack for a board without cargo: orin, these commands, the examples and the kernels
    Dist(dist::Options),
    /// Build the C library and write it, its header and its file for pkg-config below a prefix
    InstallLibrary(dist::library::Options),
    /// Build the Python package with the C library as a wheel
    Wheel(dist::wheel::Options),
    /// Run all steps of continuous integration
    Ci,
}

fn main() -> ExitCode {
    orin_cli::init_log();
    let options: Options = match orin_cli::parse(command()) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let result = match options.command {
        Task::Tool(command) => command.run(),
        Task::TestDevice(options) => test_device::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::CheckHeaders(options) => check_headers::run(&options),
        Task::Kernels(options) => success(kernels::run(&options)),
        Task::Coverage(options) => coverage::run(&options),
        Task::Silicon(exchange) => success(silicon::run(&exchange)),
        Task::VendorTools(exchange) => success(vendor_tools::run(&exchange)),
        Task::GenClasses { check } => success(gen_classes::run(check)),
        Task::ImportGraph(options) => import_graph::run(&options),
        Task::CheckSource => check_source::run(),
        Task::CompareBoard(options) => compare_board::run(&options),
        Task::CheckFeatures => check_features::run(),
        Task::Dist(options) => success(dist::run(&options)),
        Task::InstallLibrary(options) => success(dist::library::run(&options)),
        Task::Wheel(options) => success(dist::wheel::run(&options)),
        Task::Ci => success(ci::run()),
    };
    result.unwrap_or_else(|error| orin_cli::report(&error))
}

/// The command line. Help shows the program as the user called it: through cargo, or by its own name if it was copied.
fn command() -> clap::Command {
    let command = Options::command();
    if std::env::var_os("CARGO").is_none() { command.name("xtask").bin_name("xtask") } else { command }
}

/// Exit code 0 for a command without another exit code on success.
fn success(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitStatus::Success.into())
}

/// Runs a program; a failure of the program is an error.
fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
