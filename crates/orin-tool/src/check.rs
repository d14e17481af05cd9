//! `orin check`: runs a program on the software Orin and checks its kernels.
//!
//! The program is served, so it may use any driver code. A program that opens a software Orin of its own, such as one
//! that uses `tegra-hcq` with the feature `sim`, checks itself: it gets the tools by environment variables, and its
//! findings come back in a file.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use cubin::FileKind;
use orin_cli::{ExitStatus as Status, Output, UsageError, page, warn, write_all};
use orin_sim::check::{
    AUTO_VARIABLE, CHECK_VARIABLE, Checker, EXIT_VARIABLE, Finding, REPORT_VARIABLE, SUPPRESSIONS_VARIABLE,
    Suppressions, Tools, Work, json, sarif,
};
use orin_sim::serve::guard::{self, Signals};
use orin_sim::{Config, SoftwareOrin};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{cubins, files, serve};

/// Pause between two looks at the findings, for `--fail-fast`.
const LOOK: Duration = Duration::from_millis(20);

/// Where findings go, and which are left out.
#[derive(Args, Debug)]
pub(crate) struct Report {
    /// Print the findings as one JSON object on standard output instead of text on standard error; with FILE, write
    /// it to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the findings to this file, in SARIF 2.1.0; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) sarif: Option<PathBuf>,
    /// Leave out the findings that the lines of this file match
    #[arg(long, value_name = "FILE")]
    pub(crate) suppressions: Option<PathBuf>,
    /// End with exit code 1 also if no kernel was launched, so that a run that checks nothing fails
    #[arg(long)]
    pub(crate) require_launches: bool,
}

/// Findings, and what was looked at.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) findings: Vec<Finding>,
    pub(crate) work: Work,
}

/// Reads a file of suppressions.
pub(crate) fn suppressions(path: &Path) -> Result<Suppressions, UsageError> {
    let text = files::read_text(path, "suppressions", &[FileKind::Text, FileKind::Cuda, FileKind::Empty])?;
    Suppressions::parse(&text).map_err(|error| files::wrong(path, error))
}

/// Options of the command.
#[derive(Args, Debug)]
#[command(after_help = concat!("\
Examples:
  orin check -- python3 test_nvgpu.py
  orin check --tool memcheck,racecheck --sarif report.sarif -- ./program
  orin check --cubin kernels/ -- ./program
  orin check --no-serve --require-launches -- cargo test

A program that uses tegra-hcq with the feature sim, and does not name a device, opens a software Orin of its own,
which knows its buffers. Any other program is served. If an output of this command goes to standard output, the
program prints to standard error.

Exit codes: 1 if anything is found, the GPU stops a channel, or --require-launches is given and no kernel was launched;
otherwise the program's own. See ", page!("check"), "."))]
pub(crate) struct Options {
    /// The tools: memcheck, racecheck, initcheck, synccheck, leakcheck, ordering, warpcheck, several separated by
    /// commas, or all, which is all but ordering and warpcheck
    #[arg(long, value_name = "TOOLS", default_value = "all")]
    tool: Tools,
    #[command(flatten)]
    report: Report,
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
    checker.suppress(options.report.suppressions()?);
    cubins::add(&options.cubin, |file| checker.add_cubin(file))?;
    let inputs: Vec<&Path> = options.cubin.iter().map(PathBuf::as_path).collect();
    let outputs = options.report.prepare(&options.program, &inputs)?;
    let mut config = Config::from_environment().map_err(|error| UsageError(error.to_string()))?;
    config.sm.check = Some(checker.clone());
    let folder = tempfile::tempdir().context("making a folder for the findings")?;
    let file = folder.path().join("findings");
    let mut command = serve::command(&options.program);
    options.report.check(&mut command, options.tool, &file);
    // Only a served board can kill the program at its first finding.
    if !options.fail_fast {
        command.env(AUTO_VARIABLE, "1");
    }
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
    let mut found = Found { findings: checker.findings_at_end(), work: checker.work() };
    found.add_own(&file)?;
    options.report.write(
        &outputs,
        &options.program,
        &found,
        json(&found.findings, options.tool, &found.work),
    )?;
    if options.report.is_text() {
        found.print(options.tool);
    }
    // `end_like` runs no destructors.
    drop(folder);
    if options.report.is_failure(&found) {
        return Ok(Status::Failure.into());
    }
    guard::end_like(status)
}

impl Report {
    /// The file of `--suppressions`.
    pub(crate) fn suppressions(&self) -> Result<Suppressions> {
        let Some(path) = &self.suppressions else { return Ok(Suppressions::default()) };
        Ok(suppressions(path)?)
    }

    /// The outputs of `--sarif` and `--json`, as far as they are given. None may be the program or another of the
    /// `inputs`.
    pub(crate) fn prepare(&self, program: &[OsString], inputs: &[&Path]) -> Result<Vec<Output>, UsageError> {
        let outputs = Output::prepare_all([&self.sarif, &self.json].into_iter().flatten())?;
        let inputs = inputs.iter().copied().chain(self.suppressions.as_deref());
        let inputs: Vec<&Path> = inputs.chain(program.first().map(Path::new)).collect();
        outputs.iter().try_for_each(|output| output.spare(&inputs))?;
        Ok(outputs)
    }

    /// Sets the variables for a program that opens a software Orin of its own: its findings go to `file`.
    pub(crate) fn check(&self, command: &mut Command, tools: Tools, file: &Path) {
        let tools: Vec<String> = tools.iter_names().map(|(name, _)| name.to_lowercase()).collect();
        command.env(CHECK_VARIABLE, tools.join(",")).env(REPORT_VARIABLE, file).env(EXIT_VARIABLE, "0");
        if let Some(path) = &self.suppressions {
            // The program may change its folder.
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            command.env(SUPPRESSIONS_VARIABLE, absolute);
        }
    }

    /// Whether the findings are printed as text.
    pub(crate) fn is_text(&self) -> bool {
        self.json.is_none()
    }

    /// Writes the outputs of [`prepare`](Self::prepare); `object` is that of `--json`.
    pub(crate) fn write(
        &self,
        outputs: &[Output],
        program: &[OsString],
        found: &Found,
        object: Value,
    ) -> Result<()> {
        let log = self.sarif.as_ref().map(|_| format!("{:#}\n", sarif(&found.findings, &artifact(program))));
        let object = self.json.as_ref().map(|_| format!("{object:#}\n"));
        let contents = log.iter().chain(&object).map(String::as_bytes);
        Ok(write_all(&outputs.iter().zip(contents).collect::<Vec<_>>())?)
    }

    /// Whether there are findings, a fault has stopped a channel, or a launch that is required is missing, which this
    /// prints.
    pub(crate) fn is_failure(&self, found: &Found) -> bool {
        let is_idle = self.require_launches && found.work.is_empty();
        if is_idle {
            warn("no kernel was launched, but --require-launches is given");
        }
        is_idle || !found.findings.is_empty() || !found.work.faults.is_empty()
    }
}

/// The file that findings without a source line belong to: the first file of the current folder on the command line,
/// such as the script of an interpreter, else the program.
fn artifact(program: &[OsString]) -> Cow<'_, str> {
    let file = program.iter().find(|word| Path::new(word).is_relative() && Path::new(word).is_file());
    file.or(program.first()).map_or(Cow::Borrowed(""), |word| word.to_string_lossy())
}

impl Found {
    /// Adds the findings of software Orins that the program has opened itself, and what they have looked at.
    pub(crate) fn add_own(&mut self, file: &Path) -> Result<()> {
        let Ok(lines) = fs::read_to_string(file) else { return Ok(()) };
        for line in lines.lines() {
            match serde_json::from_str::<Work>(line) {
                Ok(own) => self.work.add(own),
                Err(_) => {
                    let finding = serde_json::from_str(line);
                    self.findings.push(finding.context("reading the findings of the program")?);
                }
            }
        }
        Ok(())
    }

    /// Prints the findings, and what was checked.
    pub(crate) fn print(&self, tools: Tools) {
        self.findings.iter().for_each(warn);
        warn(self.work.summary(tools, self.findings.len()));
    }
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
