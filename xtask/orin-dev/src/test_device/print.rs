//! Progress and table on a terminal.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use test_harness::report::{Counts, RunReport, TestReport};
use test_harness::runner::{Plan, Progress};
use test_harness::{Machine, Outcome};

const BOLD: Style = Style::new().bold();

/// The outcome in one word, with its colour.
fn word(outcome: &Outcome) -> (&'static str, Style) {
    match outcome {
        Outcome::Passed => ("passed", AnsiColor::Green.on_default()),
        Outcome::Skipped(_) => ("SKIPPED", AnsiColor::Yellow.on_default()),
        Outcome::Failed(_) => ("FAILED", AnsiColor::Red.on_default().bold()),
    }
}

/// The machine and the device of the run.
pub(super) fn heading(out: &mut dyn Write, machine: &Machine) -> io::Result<()> {
    writeln!(out, "device      {}", machine.describe())?;
    let scale = machine.scale();
    if scale < 1.0 {
        writeln!(out, "scale       durations and numbers of rounds are multiplied by {scale}")?;
    }
    writeln!(out)
}

/// One line per test: number and name when it starts; outcome, time and notes when it ends.
pub(super) fn progress(out: &mut dyn Write, progress: Progress<'_>) -> io::Result<()> {
    match progress {
        Progress::Begins(number, total, suite, test) => {
            let width = total.to_string().len();
            let name = format!("{}/{}", suite.name, test.name);
            write!(out, "[{number:width$}/{total}] {name:<40} ")?;
        }
        Progress::Ended(_, _, report) => {
            let (word, style) = word(&report.outcome);
            // The progress of the test may follow the name.
            write!(out, "\x1b[K")?;
            writeln!(out, "{style}{word:<7}{style:#} {:>9.3} s", report.elapsed.as_secs_f64())?;
            match &report.outcome {
                Outcome::Passed => {}
                Outcome::Skipped(text) | Outcome::Failed(text) => writeln!(out, "    {text}")?,
            }
            for note in &report.notes {
                writeln!(out, "    {note}")?;
            }
        }
    }
    out.flush()
}

/// Prints a table of the suites, every test that did not pass, and the verdict.
pub(super) fn table(out: &mut dyn Write, report: &RunReport) -> Result<()> {
    writeln!(
        out,
        "\n{BOLD}{:<20} {:>7} {:>7} {:>8} {:>11}{BOLD:#}",
        "suite", "passed", "failed", "skipped", "time"
    )?;
    let row = |out: &mut dyn Write, name: &str, tests: &[&TestReport]| {
        let counts = Counts::of(tests.iter().copied());
        let time: f64 = tests.iter().map(|test| test.elapsed.as_secs_f64()).sum();
        writeln!(
            out,
            "{name:<20} {:>7} {:>7} {:>8} {time:>9.3} s",
            counts.passed, counts.failed, counts.skipped
        )
    };
    for suite in report.suites() {
        row(out, suite, &report.tests.iter().filter(|test| test.suite == suite).collect::<Vec<_>>())?;
    }
    if report.suites().len() > 1 {
        row(out, "all", &report.tests.iter().collect::<Vec<_>>())?;
    }
    let others: Vec<_> = report.tests.iter().filter(|test| test.outcome != Outcome::Passed).collect();
    if !others.is_empty() {
        writeln!(out)?;
    }
    for test in others {
        let (word, style) = word(&test.outcome);
        let (Outcome::Skipped(text) | Outcome::Failed(text)) = &test.outcome else { continue };
        writeln!(out, "{style}{word}{style:#} {}/{}: {text}", test.suite, test.name)?;
        for line in super::log_lines(test) {
            writeln!(out, "    kernel log: {line}")?;
        }
    }
    for note in report.log_unavailable.iter().chain(&report.stopped) {
        writeln!(out, "note: {note}")?;
    }
    let counts = report.counts();
    let verdict = match counts.failed {
        _ if report.interrupted => "interrupted",
        0 => "no test failed",
        _ => "some tests failed",
    };
    writeln!(
        out,
        "\n{BOLD}{verdict}{BOLD:#}: {} passed, {} failed, {} skipped on {}",
        counts.passed, counts.failed, counts.skipped, report.device
    )?;
    Ok(out.flush()?)
}

/// Names and purposes of the tests.
pub(super) fn list(out: &mut dyn Write, plan: &Plan) -> Result<()> {
    let mut last = None;
    for (suite, test) in plan.tests() {
        if last.replace(suite.name) != Some(suite.name) {
            writeln!(out, "{BOLD}{}{BOLD:#}: {}", suite.name, suite.about)?;
        }
        writeln!(out, "  {}/{:<32} {}", suite.name, test.name, test.about)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_all_tests_that_did_not_pass() {
        let mut text = Vec::new();
        table(&mut text, &super::super::sample::report()).unwrap();
        let text = anstream::adapter::strip_str(&String::from_utf8(text).unwrap()).to_string();
        assert!(text.contains("one                        1       1        0     0.030 s"), "{text}");
        assert!(text.contains("all                        1       1        1"), "{text}");
        assert!(text.contains("FAILED one/fails: left < right"), "{text}");
        assert!(text.contains("    kernel log: nvgpu: x [ERR]  sked exception"), "{text}");
        assert!(text.contains("SKIPPED two/skips: no camera"), "{text}");
        assert!(text.contains("note: the kernel log is not checked"), "{text}");
        assert!(text.contains("some tests failed: 1 passed, 1 failed, 1 skipped"), "{text}");
    }
}
