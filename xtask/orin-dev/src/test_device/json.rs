//! A run as JSON.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};
use test_harness::Outcome;
use test_harness::report::{RunReport, TestReport};
use test_harness::runner::Plan;

/// The outcome in one word, and its message.
fn outcome(outcome: &Outcome) -> (&'static str, Option<&str>) {
    match outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Skipped(text) => ("skipped", Some(text)),
        Outcome::Failed(text) => ("failed", Some(text)),
    }
}

fn test(test: &TestReport) -> Value {
    let (word, text) = outcome(&test.outcome);
    json!({
        "suite": test.suite,
        "name": test.name,
        "about": test.about,
        "outcome": word,
        "text": text,
        "seconds": test.elapsed.as_secs_f64(),
        "notes": test.notes,
        "kernel_log": super::log_lines(test).collect::<Vec<_>>(),
    })
}

fn value(report: &RunReport) -> Value {
    let counts = report.counts();
    json!({
        "device": report.device,
        "kind": report.kind.name(),
        "scale": report.scale,
        "started": super::started(report),
        "seconds": report.elapsed.as_secs_f64(),
        "log_unavailable": report.log_unavailable,
        "stopped": report.stopped,
        "interrupted": report.interrupted,
        "summary": { "passed": counts.passed, "failed": counts.failed, "skipped": counts.skipped },
        "tests": report.tests.iter().map(test).collect::<Vec<_>>(),
    })
}

/// The whole report.
pub(super) fn report(report: &RunReport) -> Result<String> {
    Ok(serde_json::to_string_pretty(&value(report))? + "\n")
}

/// Writes names and purposes of the tests.
pub(super) fn list(out: &mut dyn Write, plan: &Plan) -> Result<()> {
    let tests: Vec<_> = plan
        .tests()
        .iter()
        .map(|(suite, test)| {
            json!({
                "suite": suite.name,
                "name": test.name,
                "about": test.about,
                "limit_seconds": test.limit.as_secs_f64(),
                "provokes": test.expects.map(|kind| kind.name()),
            })
        })
        .collect();
    writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "tests": tests }))?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_there() {
        let value = value(&super::super::sample::report());
        assert_eq!(value["summary"], json!({ "passed": 1, "failed": 1, "skipped": 1 }));
        assert_eq!(value["tests"][2]["text"], "no camera");
        assert_eq!((&value["started"], &value["kind"]), (&json!("2026-02-02T02:40:00Z"), &json!("sim")));
        assert_eq!(value["tests"][1]["kernel_log"].as_array().unwrap().len(), 1);
    }
}
