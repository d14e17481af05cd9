//! `cargo xtask`: checks and generators that only read sources, continuous integration, and the door to the programs
//! `orin-dev` and `orin`.
//!
//! This program has few dependencies, so that a check of the format begins seconds after a clone. What needs the
//! driver or the software Orin is in `orin-dev`, which cargo builds when one of its commands is used.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use orin_cli::UsageError;
use xtask::workspace::{self, success};
use xtask::{FORWARDED, ORIN_ONLY};

mod check_source;
mod ci;
mod gen_classes;
mod import_graph;
mod markdown;
mod site;
mod tokens;

/// Project commands of the Orin GPU driver workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = after_help())]
struct Options {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Regenerate the command tables of ampere-cmd from its class tables
    GenClasses {
        /// Only compare; fail if the generated files are out of date
        #[arg(long)]
        check: bool,
    },
    /// Print the largest circle of modules of each crate; exit code 1 if one has more than 6 files
    ImportGraph(import_graph::Options),
    /// Check line widths, comments on calls that panic, documentation and links; exit code 1 if a line is at fault
    CheckSource,
    /// Build the documentation as a site of HTML pages and check its links; exit code 1 if one leads nowhere
    Site(site::Options),
    /// Run the steps of continuous integration
    Ci(ci::Options),
    /// Print a completion script for bash, to be sourced after that of cargo
    Completions,
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

fn main() -> ExitCode {
    let options: Options = match orin_cli::parse(<Options as clap::CommandFactory>::command()) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let result = match options.command {
        Task::GenClasses { check } => success(gen_classes::run(check)),
        Task::ImportGraph(options) => import_graph::run(&options),
        Task::CheckSource => check_source::run(),
        Task::Site(options) => site::run(&options),
        Task::Ci(options) => success(ci::run(&options)),
        Task::Completions => success(orin_cli::say!("{}", completions()).map_err(Into::into)),
        Task::Other(arguments) => forward(&arguments),
    };
    result.unwrap_or_else(|error| orin_cli::report(&error))
}

/// The part of the help about the commands of other programs.
fn after_help() -> String {
    let mut text =
        "Commands of other programs, which cargo builds first; --help after one explains it:\n".to_owned();
    for (package, commands) in FORWARDED {
        text += &format!("  {package:<10} {}\n", commands.join(", "));
    }
    text + "\nExit codes: 0 success, 1 failure, 2 usage error, 130 interrupted."
}

/// The script for bash: the commands after `cargo xtask`; all else is left to cargo's own completion.
fn completions() -> String {
    let own = <Options as clap::CommandFactory>::command();
    let own = own.get_subcommands().map(clap::Command::get_name);
    let names: Vec<&str> =
        own.chain(FORWARDED.iter().flat_map(|(_, commands)| commands.iter().copied())).collect();
    format!(
        r#"type _completion_loader &> /dev/null && _completion_loader cargo
_before_xtask=$(complete -p cargo 2> /dev/null | sed -n 's/.* -F \([^ ]*\) .*/\1/p')
_cargo_xtask() {{
    if [[ ${{COMP_WORDS[1]}} == xtask && $COMP_CWORD == 2 ]]; then
        mapfile -t COMPREPLY < <(compgen -W "{}" -- "$2")
    elif [[ -n $_before_xtask && $_before_xtask != _cargo_xtask ]]; then
        "$_before_xtask" "$@"
    fi
}}
complete -o default -F _cargo_xtask cargo"#,
        names.join(" ")
    )
}

/// Becomes the program that has the command.
fn forward(arguments: &[OsString]) -> Result<ExitCode> {
    let name = arguments.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let Some((package, _)) = FORWARDED.iter().find(|(_, commands)| commands.contains(&&*name)) else {
        let program = if ORIN_ONLY.contains(&&*name) {
            format!("`{name}` is a command of orin: cargo run --release -p orin-tool -- {name}")
        } else {
            "`cargo xtask --help` lists all".to_owned()
        };
        let reason = format!("no command '{name}'; {program}");
        return Err(UsageError(reason).into());
    };
    let mut command = Command::new(workspace::cargo());
    // On a terminal cargo shows what it builds, which may take minutes.
    let quiet = (!std::io::stderr().is_terminal()).then_some("--quiet");
    command.arg("run").args(quiet).args(["--package", package, "--"]).args(arguments);
    Err(command.exec()).with_context(|| format!("starting {command:?}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn bash_completes_the_commands() {
        let before = "_cargo() { COMPREPLY=(before \"$@\"); }; complete -F _cargo cargo\n";
        let run = "\nfor COMP_CWORD in 2 3; do COMP_WORDS=(cargo xtask ben x); _cargo_xtask cargo ben xtask; echo \
                   \"${COMPREPLY[@]}\"; done";
        let script = format!("{before}{}{run}", super::completions());
        let output = std::process::Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text, "bench\nbefore cargo ben xtask\n", "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn the_page_lists_the_commands() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/xtask.md");
        orin_cli::reference::check_page(&page, "xtask", <super::Options as clap::CommandFactory>::command());
    }
}
