//! The commands of `orin`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use orin_cli::profile::DEVICE;
use orin_cli::{ExitStatus, Output, UsageError, plain_stdout, stdout, unless_closed, write_all};
use tegra_hcq::{DeviceKind, DeviceName};

use crate::{
    bring_up, check, compile, cuda, decode, dmesg, doctor, documents, info, llm, new, profile_kernel, run,
    serve, timeline,
};

/// Run, check and profile kernels, CUDA programs and language models on a Jetson Orin's GPU, and diagnose a board.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use clap::CommandFactory;
/// use orin_tool::Cli;
///
/// assert_eq!(Cli::command().get_name(), "orin");
/// let documents = Cli::documents()?;
/// assert!(documents.iter().any(|(name, _)| name == "man/orin.1"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Parser)]
#[command(
    name = "orin",
    version,
    // The example above is for readers of the crate.
    long_about = None,
    after_help = concat!("Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted. \
                  NO_COLOR=1 turns colours off; RUST_LOG=debug \
                  prints what the library does. \
                  Documentation: ", env!("CARGO_PKG_REPOSITORY"))
)]
pub struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Print the properties of a device
    Info(DeviceOptions),
    /// Diagnose why kernels cannot run here, and suggest fixes
    Doctor(DeviceOptions),
    /// Explain the kernel log's lines about the GPU; exit code 1 if there are errors
    Dmesg(dmesg::Options),
    /// Decode what a program sent to the driver and wrote for the GPU; exit code 1 if the input is damaged
    #[command(subcommand)]
    Decode(decode::Input),
    /// Run the first steps on a board, stage by stage, and write a report of what was seen
    BringUp(bring_up::Options),
    /// Make a crate with a kernel, a build script that compiles it, a test under checks and a CI file
    New(new::Options),
    /// Compile CUDA C++ or PTX to a cubin, with NVIDIA's NVRTC or nvJitLink
    Compile(compile::Options),
    /// Run a kernel of a cubin or a source, with arguments from the command line and from files
    Run(run::Options),
    /// Run an unmodified program on the software Orin
    Serve(serve::Options),
    /// Record what a program asks of the software Orin, and the answers
    Record(serve::RecordOptions),
    /// Compare the answers of the software Orin with those of a record; exit code 1 if they differ
    Replay(serve::ReplayOptions),
    /// Run a program on the software Orin and check its kernels; exit code 1 if anything is found
    Check(check::Options),
    /// Run an unmodified program that uses CUDA's driver API, without CUDA
    Cuda(cuda::Options),
    /// Run a program on the software Orin and count what its kernels do: instructions, transactions, bank conflicts
    ProfileKernel(profile_kernel::Options),
    /// Show queues, graphs and spans of a program, or of a trace, as a page for the browser
    Timeline(timeline::Options),
    /// Run, measure and examine language models
    #[command(subcommand)]
    Llm(llm::Command),
    /// Run one stage of bring-up
    #[command(hide = true)]
    BringUpStage(bring_up::child::Options),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  orin completions bash > ~/.local/share/bash-completion/completions/orin
  orin completions zsh > ~/.zfunc/_orin
  orin completions fish > ~/.config/fish/completions/orin.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands
    #[command(after_help = "\
Examples:
  orin man | man -l -
  orin man --command 'decode pushbuf' | man -l -
  orin man --out ~/.local/share/man/man1           then: man orin-decode-pushbuf")]
    Man {
        /// The command whose page to print, for example `dmesg` or `decode qmd`
        #[arg(long, value_name = "COMMAND")]
        command: Option<String>,
        /// Write the page of each command into this folder, which is made if it is missing
        #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
        out: Option<PathBuf>,
    },
}

/// Options of the commands that examine a device.
#[derive(Debug, Args)]
pub(crate) struct DeviceOptions {
    /// The device
    #[arg(long, help = DEVICE, default_value_t = DeviceKind::Auto.into())]
    pub(crate) device: DeviceName,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The command line of `orin run` as a program of its own: the example `run_kernel`.
#[derive(Debug, Parser)]
#[command(
    name = "run_kernel",
    version,
    about = "Run a kernel of a cubin or a source: the command `orin run`"
)]
pub struct RunKernel {
    #[command(flatten)]
    options: run::Options,
}

impl RunKernel {
    /// Runs the kernel.
    ///
    /// # Errors
    ///
    /// As [`Cli::run`].
    pub fn run(&self) -> Result<ExitCode> {
        run::run(&self.options)
    }
}

impl Cli {
    /// Runs the command of the command line.
    ///
    /// # Errors
    ///
    /// Returns a [`UsageError`] if the arguments ask for something impossible, and any other error if the command
    /// fails.
    pub fn run(&self) -> Result<ExitCode> {
        let text = match &self.task {
            Task::Info(options) => return info::run(options),
            Task::Doctor(options) => return doctor::run(options),
            Task::Dmesg(options) => return dmesg::run(options),
            Task::Decode(input) => return decode::run(input),
            Task::BringUp(options) => return bring_up::run(options),
            Task::New(options) => return new::run(options),
            Task::Compile(options) => return compile::run(options),
            Task::Run(options) => return run::run(options),
            Task::Serve(options) => return serve::run(options),
            Task::Record(options) => return serve::record(options),
            Task::Replay(options) => return serve::replay(options),
            Task::Check(options) => return check::run(options),
            Task::Cuda(options) => return cuda::run(options),
            Task::ProfileKernel(options) => return profile_kernel::run(options),
            Task::Timeline(options) => return timeline::run(options),
            Task::Llm(command) => return llm::run(command),
            Task::BringUpStage(options) => return bring_up::child::run(options),
            Task::Completions { shell } => documents::completions(*shell),
            Task::Man { out: Some(folder), .. } => return write_pages(folder),
            Task::Man { command, .. } => documents::man(command.as_deref().unwrap_or_default())?,
        };
        let mut out = plain_stdout();
        out.write_all(&text)?;
        out.flush()?;
        Ok(ExitStatus::Success.into())
    }

    /// The completion scripts and manual pages by file name, for a package.
    ///
    /// # Errors
    ///
    /// Returns an error if a page cannot be rendered.
    pub fn documents() -> Result<Vec<(String, Vec<u8>)>> {
        documents::all()
    }
}

/// Writes all manual pages into a folder.
fn write_pages(folder: &Path) -> Result<ExitCode> {
    std::fs::create_dir_all(folder).map_err(|error| UsageError(format!("{}: {error}", folder.display())))?;
    let pages = documents::pages()?;
    let outputs =
        Output::prepare_all(pages.iter().map(|(name, _)| folder.join(name))).map_err(UsageError::from)?;
    let contents: Vec<_> =
        outputs.iter().zip(&pages).map(|(output, (_, page))| (output, page.as_slice())).collect();
    write_all(&contents)?;
    let said = writeln!(stdout(), "{}: {} pages", folder.display(), pages.len());
    unless_closed(said.map_err(Into::into))?;
    Ok(ExitStatus::Success.into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_page_lists_the_commands() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/orin.md");
        orin_cli::reference::check_page(&page, "orin", Cli::command());
    }
}
