//! `cargo xtask test-device`: the suites of the package `tests` on a board or on the software Orin.

mod json;
mod junit;
mod print;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use orin_cli::profile::{DEVICE, ProfileOptions};
use orin_cli::{ExitStatus, Output, Stop, UsageError, stdout, unless_closed, write_all};
use tegra_hcq::{DeviceKind, DeviceName};
use test_harness::report::RunReport;
use test_harness::runner::{self, Plan};
use test_harness::{Load, Machine, Suite};
use test_suites as suites;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The device
    #[arg(long, help = DEVICE, default_value_t = DeviceKind::Auto.into())]
    device: DeviceName,
    /// Run only this suite; may be given several times
    #[arg(long, value_name = "SUITE")]
    suite: Vec<String>,
    /// Run only tests whose name (`suite/test`) contains this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// List the tests and exit
    #[arg(long)]
    list: bool,
    /// Shorten durations and numbers of rounds by this factor, above 0 and at most 1 (default: 1 on a
    /// board, 0.02 on the software Orin)
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    scale: Option<f64>,
    /// Duration of a load test, such as 30min or 8h; only the suite soak has one (default: 10 minutes,
    /// shortened by the factor)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Seed of a load test's random decisions, to repeat a run (default: random)
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Fail tests for lines of the Orin's driver that the table of log lines does not contain (default: note them on
    /// a board)
    #[arg(long)]
    strict_log: bool,
    /// Run on a board also the tests that may leave its GPU unusable until a reboot (isolation/killed_in_flight)
    #[arg(long)]
    dangerous: bool,
    /// Print one JSON object at the end instead of lines; with FILE, write it to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write a JUnit XML file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    profile: ProfileOptions,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1.0 => Ok(factor),
        _ => Err("give a number above 0 and at most 1".to_owned()),
    }
}

/// A duration above zero, such as `30min`, or in the short form of ISO 8601.
fn duration(text: &str) -> Result<Duration, String> {
    let time = text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "give a time such as 90s, 30min or 8h".to_owned())
}

/// Prints the progress of a long test after its name, without moving the cursor, truncated at the terminal's
/// edge.
fn tick(text: &str) {
    // An error means that the terminal is closed.
    let _ = write!(std::io::stderr(), "\x1b7\x1b[?7l{text}\x1b[K\x1b[?7h\x1b8");
}

/// Runs the selected tests; exit code 1 if one fails.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let all = if options.list { suites::everything() } else { suites::for_names(&options.suite) };
    let plan = Plan::new(&all, &options.suite, options.filter.as_deref()).map_err(UsageError)?;
    let mut out = stdout();
    if options.list {
        let printed =
            if options.json.is_some() { json::list(&mut out, &plan) } else { print::list(&mut out, &plan) };
        printed?;
        return Ok(ExitStatus::Success.into());
    }
    let timed = |suite: &Suite| suite.tests.iter().any(|test| test.timed);
    if options.duration.is_some() && !plan.tests().iter().any(|(suite, _)| timed(suite)) {
        let names = suites::everything().into_iter().filter(|suite| timed(suite)).map(|suite| suite.name);
        let text = format!(
            "--duration: no selected suite runs for a given time; name one that does: --suite {}",
            names.collect::<Vec<_>>().join(", ")
        );
        return Err(UsageError(text).into());
    }
    let machine = Machine::choose(options.device).map_err(UsageError)?;
    let machine = options.scale.map_or(machine, |scale| machine.with_scale(scale));
    let ticker: Option<fn(&str)> = std::io::stderr().is_terminal().then_some(tick);
    let stop = Stop::on_signals().context("waiting for Ctrl-C")?.forever();
    let machine =
        machine.with_load(Load { duration: options.duration, seed: options.seed, ticker, stop: Some(stop) });
    let machine = if options.strict_log { machine.with_strict_log() } else { machine };
    let machine = if options.dangerous { machine.with_dangerous() } else { machine };
    // A run takes minutes: report an unwritable result file before it.
    let outputs = Output::prepare_all([&options.junit, &options.json].into_iter().flatten());
    let outputs = outputs.map_err(UsageError::from)?;
    let prints = !outputs.iter().any(Output::is_stdout);
    let recording = options.profile.begin().map_err(UsageError::from)?;
    let report = if !prints {
        runner::run(&plan, machine, &mut |_| ())
    } else {
        // A closed pipe does not stop a run whose report goes to a file.
        print::heading(&mut out, &machine).unwrap_or_default();
        runner::run(&plan, machine, &mut |progress| print::progress(&mut out, progress).unwrap_or_default())
    };
    recording.finish()?;
    let printed = if prints { print::table(&mut out, &report) } else { Ok(()) };
    let document = options.junit.as_ref().map(|_| junit::document(&report)).transpose()?;
    let object = options.json.as_ref().map(|_| json::report(&report)).transpose()?;
    let contents = document.iter().chain(&object).map(String::as_bytes);
    write_all(&outputs.iter().zip(contents).collect::<Vec<_>>())?;
    // The exit code holds even if the reader of the output has closed the pipe.
    unless_closed(printed)?;
    Ok(match report.interrupted {
        true => ExitStatus::Interrupted,
        false => ExitStatus::failed_if(report.counts().failed > 0),
    }
    .into())
}

/// Start time of a run, as RFC 3339 in UTC, to the second.
fn started(report: &RunReport) -> String {
    let seconds = report.started.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let timestamp =
        i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    timestamp.map(|timestamp| timestamp.to_string()).unwrap_or_default()
}

/// Kernel-log lines around a test, with timestamps.
fn log_lines(test: &test_harness::report::TestReport) -> impl Iterator<Item = String> {
    let lines = test.events.iter().flat_map(|event| &event.lines);
    lines.map(|line| format!("{} {}", line.record.stamp, line.record.text).trim_start().to_owned())
}

#[cfg(test)]
mod sample;
