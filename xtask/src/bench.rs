//! `cargo xtask bench`: the benchmarks of package `benches`, on a board or on the software Orin.
//!
//! The kernels are part of the program, so that a copied binary measures without cargo.

use std::fs::Permissions;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use benches::cuda::Cuda;
use benches::start_up::{self, StartUp, Target};
use benches::{Case, Environment, Measurement, Needs, Outcome, Plan, Progress, report};
use clap::{Args, ValueEnum};
use tegra_hcq::{Device, DeviceKind};
use tempfile::NamedTempFile;

use crate::UsageError;

/// Options of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// Device: auto (the Orin's GPU if there is one, else the software Orin), nvgpu, nvrm or sim
    #[arg(long, default_value_t = DeviceKind::Auto)]
    device: DeviceKind,
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
    /// Write the complete report, with distributions, as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML page with tables and plots; - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Run one kernel, report it and exit; used to measure a process from its start
    #[arg(long, hide = true, value_name = "TARGET")]
    first_result: Option<Target>,
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
        println!("{}", start_up::REPORT);
        return Ok(ExitCode::SUCCESS);
    }
    let cases = select(benches::all(), options.filter.as_deref())?;
    if options.list {
        print!("{}", listed(&cases));
        return Ok(ExitCode::SUCCESS);
    }
    // All usage errors are reported before the first measurement.
    let (json, html) = (Output::prepare(options.json.as_deref())?, Output::prepare(options.html.as_deref())?);
    if options.json.as_deref() == Some(Path::new("-")) && options.html.as_deref() == Some(Path::new("-")) {
        return Err(UsageError(
            "--json - and --html - would mix their output; name a file for one of them".to_owned(),
        )
        .into());
    }
    let cuda = match options.against {
        Some(Against::Cuda) => Some(Cuda::open().map_err(|error| UsageError(error.to_string()))?),
        None => None,
    };
    let device = Device::open(options.device).map_err(|error| UsageError(error.to_string()))?;
    let start_up = StartUp {
        program: std::env::current_exe().context("finding this program")?,
        arguments: vec!["bench".into(), "--first-result".into()],
    };
    let environment = Environment {
        device: &device,
        cuda: cuda.as_ref(),
        start_up: Some(&start_up),
        plan: if options.quick { Plan::QUICK } else { Plan::FULL },
    };
    let run = benches::run(&cases, &environment, &mut Lines::new());

    let table = report::table(&run);
    if json.is_stdout() || html.is_stdout() {
        eprint!("{table}");
    } else {
        print!("{table}");
    }
    json.write(|| Ok(format!("{:#}\n", report::json(&run))))?;
    html.write(|| Ok(report::html(&run)?))?;
    Ok(if run.has_failures() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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

/// Destination of a report. A file is replaced once the new one is complete.
enum Output {
    Nowhere,
    Stdout,
    File(NamedTempFile, PathBuf),
}

impl Output {
    /// Checks that the file can be written, without touching it.
    fn prepare(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::Nowhere) };
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let refused = |error: &dyn std::fmt::Display| {
            UsageError(format!("{} cannot be written: {error}", path.display()))
        };
        if path.is_dir() {
            return Err(refused(&"it is a folder").into());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".bench-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(folder)
            .map_err(|error| refused(&error))?;
        Ok(Self::File(file, path.to_owned()))
    }

    fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    fn write(self, text: impl FnOnce() -> Result<String>) -> Result<()> {
        match self {
            Self::Nowhere => {}
            Self::Stdout => print!("{}", text()?),
            Self::File(mut file, path) => {
                let writing = || format!("writing {}", path.display());
                file.write_all(text()?.as_bytes()).with_context(writing)?;
                file.persist(&path).with_context(writing)?;
            }
        }
        Ok(())
    }
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

impl Progress for Lines {
    fn begin(&mut self, index: usize, count: usize, case: &Case) {
        if self.terminal {
            eprint!("\r\x1b[K[{}/{count}] {}", index + 1, case.name);
        }
    }

    fn end(&mut self, measurement: &Measurement) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        match &measurement.outcome {
            Outcome::Measured { ours, .. } if self.terminal => {
                let median = ours.summary().map_or(0.0, |summary| summary.median);
                eprintln!("{clear}{}  {}", measurement.name, report::time_text(median));
            }
            Outcome::Measured { .. } => {}
            Outcome::Skipped(reason) => eprintln!("{clear}{}: skipped: {reason}", measurement.name),
            Outcome::Failed(reason) => eprintln!("{clear}{}: FAILED: {reason}", measurement.name),
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

    #[test]
    fn a_file_is_replaced_only_when_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        std::fs::write(&path, "old").unwrap();
        drop(Output::prepare(Some(&path)).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        Output::prepare(Some(&path)).unwrap().write(|| Ok("new".to_owned())).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("no/such/report.json")] {
            assert!(Output::prepare(Some(&path)).is_err_and(|error| error.is::<UsageError>()));
        }
    }
}
