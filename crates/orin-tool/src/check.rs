//! `orin check`: runs a program on the software Orin and checks its kernels.
//!
//! The program is served, so it may use any driver code. A program that opens a software Orin of its own, such as one
//! that uses `tegra-hcq` with the feature `sim`, checks itself: it gets the tools by environment variables, and its
//! findings come back in a file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use orin_cli::{ExitStatus as Status, Output, UsageError, warn, write_all};
use orin_sim::check::{
    AUTO_VARIABLE, CHECK_VARIABLE, Checker, EXIT_VARIABLE, Finding, REPORT_VARIABLE, SUPPRESSIONS_VARIABLE,
    Suppressions, Tools, Work, json, sarif,
};
use orin_sim::serve::guard::{self, Signals};
use orin_sim::{Config, SoftwareOrin};
use rustix::process::{Pid, Signal, kill_process};

use crate::{cubins, serve};

/// Pause between two looks at the findings, for `--fail-fast`.
const LOOK: Duration = Duration::from_millis(20);

/// Options of the command.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  orin check -- python3 test_nvgpu.py
  orin check --tool memcheck,racecheck --sarif report.sarif -- ./program
  orin check --cubin kernels/ -- ./program
  orin check --no-serve -- cargo test

A program that uses tegra-hcq with the feature sim, and does not name a device, opens a software Orin of its own,
which knows its buffers. Any other program is served. If an output of this command goes to standard output, the
program prints to standard error.

Exit codes: 1 if anything is found, or the GPU stops a channel; otherwise the program's own. See docs/check.md.")]
pub(crate) struct Options {
    /// The tools: memcheck, racecheck, initcheck, synccheck, leakcheck, ordering, warpcheck, several separated by
    /// commas, or all, which is all but ordering and warpcheck
    #[arg(long, value_name = "TOOLS", default_value = "all")]
    tool: Tools,
    /// Print the findings as one JSON object on standard output instead of text on standard error; with FILE, write
    /// it to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the findings to this file, in SARIF 2.1.0; - is standard output
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Leave out the findings that the lines of this file match
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    /// A cubin with kernels of the program, or a folder of cubins, to know their names, source lines and arguments.
    /// Not needed for cubins that a served program has in its memory; may be given several times
    #[arg(long, value_name = "FILE", conflicts_with = "no_serve")]
    cubin: Vec<PathBuf>,
    /// Kill the program at the first finding
    #[arg(long)]
    fail_fast: bool,
    /// Do not serve the program, only set the environment: for systems where programs cannot be served
    #[arg(long, conflicts_with = "fail_fast")]
    no_serve: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the program. Ends like it if nothing is found.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    serve::check_program(&options.program)?;
    let checker = Checker::new(options.tool);
    if let Some(path) = &options.suppressions {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
        let text = text.map_err(|error| UsageError(format!("{error:#}")))?;
        let parsed = Suppressions::parse(&text);
        checker.suppress(parsed.map_err(|error| UsageError(format!("{}: {error}", path.display())))?);
    }
    cubins::add(&options.cubin, |file| checker.add_cubin(file))?;
    let outputs = Output::prepare_all([&options.sarif, &options.json].into_iter().flatten());
    let outputs = outputs.map_err(UsageError::from)?;
    let inputs = options.suppressions.iter().chain(&options.cubin).map(PathBuf::as_path);
    let inputs: Vec<&Path> = inputs.chain(options.program.first().map(Path::new)).collect();
    outputs.iter().try_for_each(|output| output.spare(&inputs)).map_err(UsageError::from)?;
    let mut config = Config::from_environment().map_err(|error| UsageError(error.to_string()))?;
    config.sm.check = Some(checker.clone());
    let folder = tempfile::tempdir().context("making a folder for the findings")?;
    let mut command = prepared(options, &folder.path().join("findings"));
    if outputs.iter().any(Output::is_stdout) {
        command.stdout(std::io::stderr());
    }
    let status = if options.no_serve {
        serve::plain(command)?
    } else {
        // SAFETY: the command line has been parsed, and no thread was started.
        let signals = unsafe { serve::become_supervisor()? };
        supervise(options, config, &checker, command, signals)?
    };
    let (mut findings, mut work) = (checker.findings_at_end(), checker.work());
    own_findings(&folder.path().join("findings"), &mut findings, &mut work)?;
    let log = options.sarif.as_ref().map(|_| format!("{:#}\n", sarif(&findings)));
    let object = options.json.as_ref().map(|_| format!("{:#}\n", json(&findings, options.tool, &work)));
    let contents = log.iter().chain(&object).map(String::as_bytes);
    write_all(&outputs.iter().zip(contents).collect::<Vec<_>>())?;
    if object.is_none() {
        findings.iter().for_each(warn);
        warn(work.summary(options.tool, findings.len()));
    }
    // `end_like` runs no destructors.
    drop(folder);
    if !findings.is_empty() || !work.faults.is_empty() {
        return Ok(Status::Failure.into());
    }
    guard::end_like(status)
}

/// The program with the variables for a software Orin of its own.
fn prepared(options: &Options, report: &std::path::Path) -> Command {
    let mut command = serve::command(&options.program);
    let tools: Vec<String> = options.tool.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    command.env(CHECK_VARIABLE, tools.join(",")).env(REPORT_VARIABLE, report).env(EXIT_VARIABLE, "0");
    if let Some(path) = &options.suppressions {
        // The program may change its folder.
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        command.env(SUPPRESSIONS_VARIABLE, absolute);
    }
    // Only a served board can kill the program at its first finding.
    if !options.fail_fast {
        command.env(AUTO_VARIABLE, "1");
    }
    command
}

/// Serves the program in the supervisor's process.
fn supervise(
    options: &Options,
    config: Config,
    checker: &Checker,
    command: Command,
    signals: Signals,
) -> Result<ExitStatus> {
    checker.search_cubins_by(orin_sim::serve::cubins_of_descendants);
    let board = SoftwareOrin::new(config).map_err(orin_sim::serve::Error::Board)?;
    let ended = Arc::new(AtomicBool::new(false));
    let watch = |process: u32| {
        if options.fail_fast {
            let (checker, ended) = (checker.clone(), Arc::clone(&ended));
            std::thread::spawn(move || kill_at_first(&checker, process, &ended));
        }
    };
    let status = serve::host(&board, command, signals, &orin_sim::serve::Options::default(), watch);
    ended.store(true, Ordering::Relaxed);
    status
}

/// Kills the program when there is a finding.
fn kill_at_first(checker: &Checker, process: u32, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        if !checker.findings().is_empty() {
            // CAST: the kernel's process ids are positive and below 2^22.
            if let Some(process) = Pid::from_raw(process as i32) {
                // It may have ended by itself.
                let _ = kill_process(process, Signal::KILL);
            }
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// Adds the findings of software Orins that the program has opened itself, and what they have looked at.
fn own_findings(path: &std::path::Path, findings: &mut Vec<Finding>, work: &mut Work) -> Result<()> {
    let Ok(lines) = fs::read_to_string(path) else { return Ok(()) };
    for line in lines.lines() {
        match serde_json::from_str::<Work>(line) {
            Ok(own) => work.add(own),
            Err(_) => {
                findings.push(serde_json::from_str(line).context("reading the findings of the program")?);
            }
        }
    }
    Ok(())
}
