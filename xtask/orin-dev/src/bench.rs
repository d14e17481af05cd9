//! `cargo xtask bench`: the benchmarks of package `benches`, on a board or on the software Orin.
//!
//! The kernels are part of the program, so that a copied binary measures without cargo.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use benches::cuda::Cuda;
use benches::start_up::{self, StartUp, Target};
use benches::{Baseline, Case, Environment, Measurement, Needs, Outcome, Plan, Progress, report};
use clap::{Args, ValueEnum};
use cubin::FileKind;
use orin_cli::profile::{DEVICE, ProfileOptions};
use orin_cli::{ExitStatus, Output, Stop, UsageError, say, stdout, unless_closed};
use tegra_hcq::{Device, DeviceKind, DeviceName};

use crate::commit;

/// Options of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// The device
    #[arg(long, help = DEVICE, default_value_t = DeviceKind::Auto.into())]
    device: DeviceName,
    /// Run only the cases whose name contains this, for example copy/to_host
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// List the cases and what they measure, and exit
    #[arg(long)]
    list: bool,
    /// Take only a few samples per case, to check that everything works
    #[arg(long)]
    quick: bool,
    /// Run the same work through another driver as well, alternating sample by sample
    #[arg(long, value_name = "RIVAL")]
    against: Option<Against>,
    #[command(flatten)]
    profile: ProfileOptions,
    /// Compare with an earlier run: a file that --json wrote. Adds the change of each median, and a verdict
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Print the complete report, with distributions, as JSON, and the table to standard error; with FILE, write the
    /// report to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Run one kernel, report it and exit; used to measure a process from its start
    #[arg(long, hide = true, value_name = "TARGET")]
    first_result: Option<Target>,
    /// Make the calls that standard input names, and print their times; used to measure a served program
    #[arg(long, hide = true)]
    served_client: bool,
}

/// The driver to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// NVIDIA's CUDA driver, libcuda
    Cuda,
}

/// Measures and prints a table; exit code 1 if a case fails.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(target) = options.first_result {
        start_up::first_result(target)?;
        say!("{}", start_up::REPORT)?;
        return Ok(ExitStatus::Success.into());
    }
    if options.served_client {
        benches::served::client()?;
        return Ok(ExitStatus::Success.into());
    }
    let cases = select(benches::all(), options.filter.as_deref())?;
    if options.list {
        write!(stdout(), "{}", listed(&cases))?;
        return Ok(ExitStatus::Success.into());
    }
    // All usage errors are reported before the first measurement.
    let json = options.json.as_ref().map(Output::prepare).transpose().map_err(UsageError::from)?;
    let baseline = options.baseline.as_deref().map(read_baseline).transpose()?;
    let cuda = match options.against {
        Some(Against::Cuda) => Some(Cuda::open().map_err(|error| UsageError(error.to_string()))?),
        None => None,
    };
    // SAFETY: the variable is set before the program has a second thread.
    unsafe { std::env::set_var("ORIN_CUDA_DEVICE", options.device.to_string()) };
    let recording = options.profile.begin().map_err(UsageError::from)?;
    let device = Device::open(options.device).map_err(|error| UsageError(error.to_string()))?;
    let stop = Stop::on_signals().context("waiting for Ctrl-C")?;
    let start_up = StartUp {
        program: orin_cli::own_program().context("finding this program")?,
        arguments: vec!["bench".into(), "--first-result".into()],
        client: vec!["bench".into(), "--served-client".into()],
    };
    let environment = Environment {
        device: &device,
        cuda: cuda.as_ref(),
        start_up: Some(&start_up),
        plan: if options.quick { Plan::QUICK } else { Plan::FULL },
        stop: Some(stop.flag()),
    };
    let mut run = benches::run(&cases, &environment, &mut Lines::new());

    recording.finish()?;
    (run.commit, run.baseline) = (commit::of_this_program(), baseline);

    let table = report::table(&run);
    let printed = if json.as_ref().is_some_and(Output::is_stdout) {
        write!(io::stderr(), "{table}")
    } else {
        write!(stdout(), "{table}")
    };
    if let Some(output) = &json {
        output.write(format!("{:#}\n", report::json(&run)).as_bytes())?;
    }
    // The report is written even if the table cannot be printed; a closed pipe does not change the exit code.
    unless_closed(printed.map_err(Into::into))?;
    Ok(match run.incomplete() {
        Some(_) => ExitStatus::Interrupted,
        None => ExitStatus::failed_if(run.has_failures()),
    }
    .into())
}

/// Reads an earlier run.
fn read_baseline(path: &Path) -> Result<Baseline> {
    let refused = |error: &dyn std::fmt::Display| UsageError(format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| refused(&error))?;
    let kind = FileKind::of(&bytes);
    let text = String::from_utf8(bytes).ok().filter(|_| kind == FileKind::Json);
    let text = text.ok_or_else(|| refused(&format_args!("not a report of bench --json: {kind}")))?;
    Ok(Baseline::parse(&text).map_err(|error| refused(&error))?)
}

/// The cases whose name contains the text.
fn select(cases: Vec<Case>, filter: Option<&str>) -> Result<Vec<Case>> {
    let Some(filter) = filter else { return Ok(cases) };
    let cases: Vec<_> = cases.into_iter().filter(|case| case.name.contains(filter)).collect();
    if cases.is_empty() {
        let text = format!("no benchmark's name contains '{filter}'; --list prints the names");
        return Err(UsageError(text).into());
    }
    Ok(cases)
}

/// One line per case: its name, what it measures and what it requires.
fn listed(cases: &[Case]) -> String {
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
    let line = |case: &Case| {
        // The limit applies to the software Orin; a GPU runs everything.
        let limit = match case.needs {
            Needs { hardware: true, .. } => " (needs a GPU)",
            Needs { patience: true, .. } => " (not in a quick run)",
            _ => "",
        };
        format!("{:width$}  {}{limit}\n", case.name, case.about)
    };
    cases.iter().map(line).collect()
}

/// Prints progress to standard error: one changing line on a terminal, else a line per case that
/// has no figure.
struct Lines {
    terminal: bool,
}

impl Lines {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal() }
    }
}

impl Lines {
    /// Prints to standard error. If that is not possible, the measurement goes on.
    fn put(&self, text: std::fmt::Arguments<'_>) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = write!(io::stderr(), "{clear}{text}");
    }
}

impl Progress for Lines {
    fn begin(&mut self, index: usize, count: usize, case: &Case) {
        if self.terminal {
            self.put(format_args!("[{}/{count}] {}", index + 1, case.name));
        }
    }

    fn end(&mut self, measurement: &Measurement) {
        let name = &measurement.name;
        match &measurement.outcome {
            Outcome::Measured { ours, .. } if self.terminal => {
                let median = ours.summary().map_or(0.0, |summary| summary.median);
                self.put(format_args!("{name}  {}\n", report::time_text(median)));
            }
            Outcome::Measured { .. } => {}
            Outcome::Skipped(reason) => self.put(format_args!("{name}: skipped: {reason}\n")),
            Outcome::Failed(reason) => self.put(format_args!("{name}: FAILED: {reason}\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_selects_by_name() {
        let all = benches::all().len();
        assert_eq!(select(benches::all(), None).unwrap().len(), all);
        let copies = select(benches::all(), Some("copy/to_host")).unwrap();
        assert!(!copies.is_empty() && copies.len() < all);
        let error = select(benches::all(), Some("no such")).unwrap_err();
        assert!(error.is::<UsageError>() && error.to_string().contains("--list"));
    }
}
