//! `--show`: everything that a report contains.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use cubin::FileKind;
use orin_cli::{UsageError, stdout};
use serde_json::{Map, Value};

use super::archive::{Report, SUMMARY};
use crate::files;

/// Prints all files of a report.
pub(super) fn run(path: &Path, json: bool) -> Result<ExitCode> {
    let report = read(path)?;
    let mut out = stdout();
    if json {
        let files: Map<String, Value> = report
            .files()
            .map(|(name, bytes)| {
                let text = || Value::from(String::from_utf8_lossy(bytes).into_owned());
                let is_json = name.ends_with(".json");
                let value = is_json.then(|| serde_json::from_slice(bytes).ok()).flatten();
                (name.to_owned(), value.unwrap_or_else(text))
            })
            .collect();
        writeln!(out, "{:#}", Value::Object(files))?;
        return Ok(ExitCode::SUCCESS);
    }
    let summary = report.json(SUMMARY)?;
    let text = |value: &Value| printable(value.as_str().unwrap_or("unknown"));
    writeln!(
        out,
        "{}, device {}, {}",
        text(&summary["program"]),
        text(&summary["device"]),
        text(&summary["started"])
    )?;
    for stage in summary["stages"].as_array().into_iter().flatten() {
        let number = stage["stage"].as_u64().unwrap_or_default();
        let [name, outcome, words] = ["name", "outcome", "text"].map(|field| text(&stage[field]));
        writeln!(out, "{number:2}  {name:12}  {outcome:7}  {words}")?;
    }
    for (name, bytes) in report.files() {
        writeln!(out, "\n==> {} ({} bytes) <==", printable(name), bytes.len())?;
        let content = printable(&String::from_utf8_lossy(bytes));
        writeln!(out, "{}", content.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a report that the user names.
pub(super) fn read(path: &Path) -> Result<Report> {
    if !path.is_file() {
        return Err(UsageError(format!("there is no report {}", path.display())).into());
    }
    if let Some(kind) = files::kind(path).filter(|kind| *kind != FileKind::Archive) {
        return Err(files::not(path, kind, "a report of `orin bring-up`").into());
    }
    Report::read(path)
}

/// Replaces control characters, among them terminal escapes: the report may be untrusted.
fn printable(text: &str) -> String {
    text.replace(|character: char| character.is_control() && character != '\n' && character != '\t', "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_does_not_command_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\tb\r\nc"), "a?[2J\tb?\nc");
    }
}
