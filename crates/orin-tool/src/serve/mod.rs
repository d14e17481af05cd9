//! `orin serve`: runs an unmodified program on the software Orin.

mod files;
mod text;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use orin_cli::{UsageError, warn};
use orin_serve::guard::{self, Part, Signals};
use orin_serve::{Observer, Session};
use orin_sim::{Config, Profile, SoftwareOrin};

use files::{CallFile, KernelLog};

/// Options of the command.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  orin serve -- python3 test_nvgpu.py
  orin serve --strict --kmsg kernel.log -- ./program --its-own-option

The program sees /dev/nvmap, /dev/nvgpu/igpu0/ctrl and the other nodes of a Jetson Orin, and so do all programs that it
starts. Its exit code, or the signal that ends it, is that of the command. When it ends, the programs that it has left
behind are killed. Linux 5.14 or later, no privileges. No security boundary: see docs/serve.md.")]
pub(crate) struct Options {
    /// Report uses of the GPU that work on the software Orin by luck; see docs/strict.md
    #[arg(long)]
    strict: bool,
    /// Seed of everything that a board leaves to chance
    #[arg(long)]
    seed: Option<u64>,
    /// The board, as BOARD or BOARD:MODE: agx-64, nx-16:15w. Default: ORIN_SIM_BOARD, or agx-64:maxn
    #[arg(long, value_name = "BOARD")]
    board: Option<Profile>,
    /// Write the kernel log of the software Orin to this file, line by line
    #[arg(long, value_name = "FILE")]
    kmsg: Option<PathBuf>,
    /// Write what the program opens, maps and is refused to this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write every request with its argument to this file, in a form that `orin decode strace` reads
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Serves the program. Returns only errors from before its start; otherwise ends like the program.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let config = config(options)?;
    let kernel_log = options.kmsg.as_deref().map(KernelLog::create).transpose()?;
    let observer = observer(options)?;
    // SAFETY: the command line has been parsed, and no thread was started.
    match unsafe { guard::split() } {
        Ok(Part::Guard(status)) => guard::end_like(status),
        Ok(Part::Supervisor(signals)) => supervise(options, config, signals, (kernel_log, observer)),
        Err(error) => Err(anyhow::Error::from(error).context("cannot start the supervisor")),
    }
}

fn config(options: &Options) -> Result<Config> {
    let profile = match options.board {
        Some(profile) => profile,
        None => Profile::from_environment().map_err(|error| UsageError(error.to_string()))?,
    };
    let mut config = Config::from_environment_on(profile).map_err(|error| UsageError(error.to_string()))?;
    config.strict |= options.strict;
    config.seed = options.seed.unwrap_or(config.seed);
    Ok(config)
}

/// The files of `--log` and `--trace`.
fn observer(options: &Options) -> Result<Option<Arc<dyn Observer>>> {
    if options.log.is_none() && options.trace.is_none() {
        return Ok(None);
    }
    Ok(Some(Arc::new(CallFile::create(options.log.as_deref(), options.trace.as_deref())?)))
}

/// Serves the program in the supervisor's process.
fn supervise(
    options: &Options,
    config: Config,
    signals: Signals,
    (kernel_log, observer): (Option<KernelLog>, Option<Arc<dyn Observer>>),
) -> Result<ExitCode> {
    let board = SoftwareOrin::new(config).map_err(orin_serve::Error::Board)?;
    let writer = kernel_log.map(|log| log.follow(&board)).transpose()?;
    let status = host(&board, command(&options.program), signals, observer, |_| {});
    if let Some(writer) = writer {
        writer.finish();
    }
    let status = status?;
    report(&board);
    guard::end_like(status)
}

/// The program of a command line, which demands one.
pub(crate) fn command(line: &[OsString]) -> Command {
    // PANIC: the command line demands a program.
    let (program, arguments) = line.split_first().expect("a program");
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Serves a program on a board until it ends. `started` receives its process id.
pub(crate) fn host(
    board: &SoftwareOrin,
    mut command: Command,
    signals: Signals,
    observer: Option<Arc<dyn Observer>>,
    started: impl FnOnce(u32),
) -> Result<ExitStatus> {
    signals.restore_in(&mut command);
    let mut session = match Session::start(board, command, observer) {
        Ok(session) => session,
        Err(orin_serve::Error::Start { program, error }) if error.kind() == io::ErrorKind::NotFound => {
            return Err(UsageError(format!("cannot start {program}: {error}")).into());
        }
        Err(error) => return Err(error.into()),
    };
    signals.forward_to(session.id())?;
    started(session.id());
    let status = session.wait();
    // What the program has left behind is still served while it dies.
    guard::kill_descendants();
    drop(session);
    Ok(status?)
}

/// Prints the findings of strict mode.
fn report(board: &SoftwareOrin) {
    let reports = board.strict_reports();
    for report in &reports {
        warn(format_args!("orin serve: strict: {report}"));
    }
    if !reports.is_empty() {
        warn(format_args!("orin serve: {} findings of strict mode", reports.len()));
    }
}
