//! Start of a program: command line, log, exit code.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, FromArgMatches};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::exit::{ExitStatus, report, warn};
use crate::stdout::stdout;

/// The whole of a program: parses its command line, starts the log, runs `body`, and reports its error.
pub fn main<T: CommandFactory + FromArgMatches>(
    body: impl FnOnce(&T) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    init_log();
    match parse(T::command()) {
        Ok(options) => body(&options).unwrap_or_else(|error| report(&error)),
        Err(code) => code,
    }
}

/// Parses the command line.
///
/// # Errors
///
/// Returns the exit code if there is nothing to run: 0 after printing help or the version, 1 if these cannot be
/// printed, 2 after reporting an invalid command line.
pub fn parse<T: FromArgMatches>(command: Command) -> Result<T, ExitCode> {
    let mut command = with_negative_numbers(command);
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.and_then(|mut matches| T::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = write!(stdout(), "{}", error.render().ansi());
            printed.map_or_else(|error| report(&error.into()), |()| ExitStatus::Success.into())
        }
        _ => {
            let _ = write!(anstream::stderr(), "{}", error.render().ansi());
            ExitStatus::Usage.into()
        }
    })
}

/// Lets every option take a negative number. The option's parser then reports the accepted range, instead of clap an
/// unexpected argument.
fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|argument| {
            let takes_value = argument.get_action().takes_values() && !argument.is_positional();
            if takes_value && !argument.is_allow_hyphen_values_set() {
                argument.allow_negative_numbers(true)
            } else {
                argument
            }
        })
        .mut_subcommands(with_negative_numbers)
}

/// The path of this program, to start it again. In a root file system without `/proc`, it is the path that the program
/// was started with.
///
/// # Errors
///
/// Returns an error if neither is known.
pub fn own_program() -> io::Result<PathBuf> {
    let started = || std::env::args_os().next().map(PathBuf::from).filter(|path| path.is_file());
    std::env::current_exe().or_else(|error| started().ok_or(error))
}

/// Logs to standard error as `RUST_LOG` requests, for example `debug` or `warn,tegra_hcq=trace`; logs nothing by
/// default, and warns about a value that it cannot read. Colours are used on a terminal, unless `NO_COLOR` is set.
pub fn init_log() {
    let colours =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let wanted = std::env::var("RUST_LOG").unwrap_or_default();
    let filter: Targets = wanted.parse().unwrap_or_else(|error| {
        warn(format_args!("RUST_LOG={wanted} is ignored: {error}"));
        Targets::new()
    });
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}
