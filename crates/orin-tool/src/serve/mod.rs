//! `orin serve`: runs an unmodified program on the software Orin.

mod files;
mod record;
mod text;

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, value_parser};
use kernel_door::cure;
use nvgpu_sys::Release;
use orin_cli::{UsageError, page, warn};
use orin_sim::check::{Checker, EXIT_VARIABLE, STRICT_VARIABLE, Tools};
use orin_sim::serve::guard::{self, Part, Signals};
use orin_sim::serve::{Observer, Session, SharedBoard};
use orin_sim::{Config, Profile, SegmentWatcher, SettingsError, SoftwareOrin};

use files::{CallFile, KernelLog};

pub(crate) use record::{RecordOptions, ReplayOptions, record, replay};

/// Why a command that joins a board takes few options.
const JOINED: &str = "a board runs at the path of --board-socket already, and this command joins it: give --strict, \
                      --seed, --board, --kernel, --max-processes, --kmsg, --log and --trace to the first command";

/// The board and its kernel, where the command line does not leave them to the environment.
#[derive(Args, Debug)]
struct BoardOptions {
    /// The board, as BOARD or BOARD:MODE: agx-64, nx-16:15w. Default: ORIN_SIM_BOARD, or agx-64:maxn
    #[arg(long, value_name = "BOARD")]
    board: Option<Profile>,
    /// The kernel: r36.4.3, r36.4.7 or r39.2. Default: ORIN_SIM_KERNEL, or r36.4.3
    #[arg(long, value_name = "RELEASE")]
    kernel: Option<Release>,
}

impl BoardOptions {
    fn is_given(&self) -> bool {
        self.board.is_some() || self.kernel.is_some()
    }

    /// Board and configuration. What no option names is that of a record, or else of the environment.
    fn config(&self, record: Option<(Profile, Release)>) -> Result<(Profile, Config), UsageError> {
        let read = || {
            let profile = match self.board.or(record.map(|(board, _)| board)) {
                Some(profile) => profile,
                None => Profile::from_environment()?,
            };
            let release = match self.kernel.or(record.map(|(_, kernel)| kernel)) {
                Some(release) => release,
                None => orin_sim::release::from_environment()?,
            };
            Ok((profile, Config::from_environment_on(profile, release)?))
        };
        read().map_err(|error: SettingsError| UsageError(error.to_string()))
    }
}

/// Options of the command.
#[derive(Args, Debug)]
#[command(after_help = concat!("\
Examples:
  orin serve -- python3 test_nvgpu.py
  orin serve --strict --kmsg kernel.log -- ./program --its-own-option

The program sees /dev/nvmap, /dev/nvgpu/igpu0/ctrl and the other nodes of a Jetson Orin, and so do all programs that it
starts. Its exit code, or the signal that ends it, is that of the command. When it ends, the programs that it has left
behind are killed. Linux 5.14 or later, no privileges. No security boundary: see ", page!("serve"), "."))]
pub(crate) struct Options {
    /// Report uses of the GPU that work on the software Orin by luck
    #[arg(long)]
    strict: bool,
    /// Seed of everything that a board leaves to chance
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    board: BoardOptions,
    /// Share the board with other commands through a socket at this path: the first one creates it
    #[arg(long, value_name = "PATH")]
    board_socket: Option<PathBuf>,
    /// Write the kernel log of the software Orin to this file, line by line
    #[arg(long, value_name = "FILE")]
    kmsg: Option<PathBuf>,
    /// Write what the program opens, maps and is refused to this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write every request with its argument, and the words that channels fetch, to this file, in a form that
    /// `orin decode strace` reads
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Let creations of processes fail with EAGAIN beyond this number of a program. Default: 4096
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    max_processes: Option<u32>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Serves the program. Returns only errors from before its start; otherwise ends like the program.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut config = config(options)?;
    check_program(&options.program)?;
    let joins = options.board_socket.as_ref().is_some_and(|path| UnixStream::connect(path).is_ok());
    if joins && has_board_options(options) {
        return Err(UsageError(JOINED.to_owned()).into());
    }
    let kernel_log = options.kmsg.as_deref().map(KernelLog::create).transpose()?;
    let mut serving = orin_sim::serve::Options::default();
    serving.observer = observer(options, &mut config)?;
    serving.max_processes = options.max_processes.unwrap_or(serving.max_processes);
    // SAFETY: the command line has been parsed, and no thread was started.
    let signals = unsafe { become_supervisor()? };
    if joins {
        return join(options, signals);
    }
    let socket = options.board_socket.as_deref();
    let served = Served { program: &options.program, socket, config, is_strict: options.strict, signals };
    let status = served.run(kernel_log, &serving)?;
    guard::end_like(status)
}

/// Splits this process into guard and supervisor, and returns in the supervisor. The guard ends like it, and runs no
/// destructors.
///
/// # Safety
///
/// As for [`guard::split`].
pub(crate) unsafe fn become_supervisor() -> Result<Signals> {
    // SAFETY: the caller's promise.
    match unsafe { guard::split() }.context("cannot start the supervisor")? {
        Part::Guard(status) => guard::end_like(status),
        Part::Supervisor(signals) => Ok(signals),
    }
}

/// Whether there are options that only the command with the board can have.
fn has_board_options(options: &Options) -> bool {
    let files = [&options.kmsg, &options.log, &options.trace];
    let chosen = options.strict || options.seed.is_some() || options.board.is_given();
    chosen || options.max_processes.is_some() || files.iter().any(|file| file.is_some())
}

fn config(options: &Options) -> Result<Config> {
    let (_, mut config) = options.board.config(None)?;
    if options.strict {
        config = config.with_checks(Tools::ORDERING);
    }
    config.seed = options.seed.unwrap_or(config.seed);
    Ok(config)
}

/// The files of `--log` and `--trace`. The GPU writes to the trace as well.
fn observer(options: &Options, config: &mut Config) -> Result<Option<Arc<dyn Observer>>> {
    if options.log.is_none() && options.trace.is_none() {
        return Ok(None);
    }
    let file = Arc::new(CallFile::create(options.log.as_deref(), options.trace.as_deref())?);
    if options.trace.is_some() {
        let trace = Arc::clone(&file);
        let watch = move |channel, va, words: &[u32]| trace.segment(channel, va, words);
        config.segments = Some(SegmentWatcher::new(watch));
    }
    Ok(Some(file))
}

/// Refuses a program that does not exist, before anything is set up for it.
pub(crate) fn check_program(line: &[OsString]) -> Result<(), UsageError> {
    // PANIC: the command line demands a program.
    let program = Path::new(line.first().expect("a program"));
    let path = std::env::var_os("PATH");
    let reason = if program.components().count() > 1 || path.is_none() {
        match program.metadata() {
            Err(error) => Some(error.to_string()),
            Ok(found) if found.is_dir() => Some("it is a folder".to_owned()),
            Ok(found) if found.permissions().mode() & 0o111 == 0 => Some("it is not executable".to_owned()),
            Ok(_) => None,
        }
    } else {
        let found = path.iter().flat_map(std::env::split_paths).any(|folder| folder.join(program).exists());
        (!found).then(|| "no folder of PATH contains it".to_owned())
    };
    reason.map_or(Ok(()), |reason| Err(UsageError(format!("cannot start {}: {reason}", program.display()))))
}

/// The program of a command line, which demands one.
pub(crate) fn command(line: &[OsString]) -> Command {
    // PANIC: the command line demands a program.
    let (program, arguments) = line.split_first().expect("a program");
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs a program without serving it.
pub(crate) fn plain(command: Command) -> Result<ExitStatus> {
    let name = command.get_program().to_string_lossy().into_owned();
    guard::run(command).map_err(|error| UsageError(format!("cannot start {name}: {error}")).into())
}

/// A program that does not exist is a wrong command line.
fn checked(started: Result<Session, orin_sim::serve::Error>) -> Result<Session> {
    started.map_err(|error| match error {
        orin_sim::serve::Error::Start { program, error } if error.kind() == io::ErrorKind::NotFound => {
            UsageError(format!("cannot start {program}: {error}")).into()
        }
        error => error.into(),
    })
}

/// Runs the program on the board of another command.
fn join(options: &Options, signals: Signals) -> Result<ExitCode> {
    let socket = options.board_socket.as_deref().unwrap_or_else(|| Path::new(""));
    let mut command = command(&options.program);
    signals.restore_in(&mut command);
    let status = finish(checked(Session::join(socket, command))?, signals, |_| {})?;
    guard::end_like(status)
}

/// Serves a program on a board until it ends. `started` receives its process id.
pub(crate) fn host(
    board: &SoftwareOrin,
    mut command: Command,
    signals: Signals,
    options: &orin_sim::serve::Options,
    started: impl FnOnce(u32),
) -> Result<ExitStatus> {
    signals.restore_in(&mut command);
    let status = finish(checked(Session::start(board, command, options))?, signals, started);
    if let Some(text) = cure::of_call(cure::PANICKED) {
        warn(text);
    }
    status
}

/// Waits for the end of a program, and ends what it has left behind.
fn finish(mut session: Session, signals: Signals, started: impl FnOnce(u32)) -> Result<ExitStatus> {
    signals.forward_to(session.id())?;
    started(session.id());
    let status = session.wait();
    // Still served while it dies.
    guard::kill_descendants();
    drop(session);
    Ok(status?)
}

/// A program to serve in the supervisor's process.
struct Served<'a> {
    program: &'a [OsString],
    /// Where other commands join the board.
    socket: Option<&'a Path>,
    config: Config,
    /// Whether `--strict` is given.
    is_strict: bool,
    signals: Signals,
}

impl Served<'_> {
    /// Serves the program to its end. Returns its status.
    fn run(self, kernel_log: Option<KernelLog>, options: &orin_sim::serve::Options) -> Result<ExitStatus> {
        let board = SoftwareOrin::new(self.config).map_err(orin_sim::serve::Error::Board)?;
        let writer = kernel_log.map(|log| log.follow(&board)).transpose()?;
        let shared = self.socket.map(|path| SharedBoard::create(path, &board, options)).transpose()?;
        let mut command = command(self.program);
        if self.is_strict {
            // A program that names the software Orin runs one of its own, which prints its findings.
            command.env(STRICT_VARIABLE, "1").env(EXIT_VARIABLE, "0");
        }
        let status = host(&board, command, self.signals, options, |_| {});
        // Programs started by other commands keep running.
        drop(shared);
        if let Some(writer) = writer {
            writer.finish();
        }
        let status = status?;
        if let Some(checker) = board.checker() {
            report(checker);
        }
        Ok(status)
    }
}

/// Prints the findings of `--strict`.
fn report(checker: &Checker) {
    let findings = checker.findings();
    let findings: Vec<_> = findings.iter().filter(|finding| finding.tool == "ordering").collect();
    for finding in &findings {
        warn(format_args!("orin serve: strict: {}", finding.message));
    }
    if !findings.is_empty() {
        warn(format_args!("orin serve: {} findings of strict mode", findings.len()));
    }
}
