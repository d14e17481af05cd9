//! The comparison as text or JSON.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use nvgpu_sys::Release;
use orin_cli::{stdout, unless_closed};
use serde_json::{Value, json};

use super::probe::{Answer, Question};
use super::release;

/// One compared item.
pub(super) struct Row {
    /// The item.
    pub(super) question: Question,
    /// The tables' answer.
    pub(super) ours: Answer,
    /// The compiler's answer.
    pub(super) theirs: Answer,
    /// Whether a difference is drift; otherwise the row only serves to identify the release.
    pub(super) compared: bool,
}

/// Result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// Equal.
    Ok,
    /// Different: programs that use the tables misinterpret the kernel, or the kernel rejects their requests.
    Drift,
    /// Absent in the release.
    Absent,
    /// A bit-field in the release, whose offset a C compiler cannot report.
    Unchecked,
}

impl Status {
    /// The status as a word.
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Drift => "DRIFT",
            Self::Absent => "absent",
            Self::Unchecked => "unchecked",
        }
    }
}

impl Row {
    /// Result of a comparison.
    pub(super) fn status(&self) -> Status {
        match self.theirs {
            Answer::Absent => Status::Absent,
            Answer::BitField => Status::Unchecked,
            theirs if theirs == self.ours => Status::Ok,
            _ => Status::Drift,
        }
    }

    /// Formats an answer: a size, a place or a code.
    fn show(&self, answer: Answer) -> String {
        match (answer, self.question) {
            (Answer::Absent, _) => "-".to_owned(),
            (Answer::BitField, _) => "bit-field".to_owned(),
            (Answer::Place { offset, size }, _) => format!("at {offset}, {size} bytes"),
            (Answer::Number(code), Question::Macro { .. }) => format!("{code:#010x}"),
            (Answer::Number(size), _) => format!("{size} bytes"),
        }
    }
}

/// Result for one header.
pub(super) enum Outcome {
    /// Its rows.
    Compared(Vec<Row>),
    /// The header does not compile; contains the compiler's first error.
    Unread(String),
}

/// One header.
pub(super) struct HeaderReport {
    /// Path in the sources of a release.
    pub(super) header: &'static str,
    /// Where it was found.
    pub(super) path: Option<PathBuf>,
    /// Result.
    pub(super) outcome: Outcome,
}

/// The whole comparison.
pub(super) struct Report {
    /// The compiler's command.
    pub(super) compiler: String,
    /// The release whose rows are compared.
    pub(super) release: Release,
    /// Reports per header.
    pub(super) headers: Vec<HeaderReport>,
}

/// Number of rows by status.
#[derive(Default)]
pub(super) struct Counts {
    /// Equal.
    pub(super) ok: usize,
    /// Different.
    pub(super) drift: usize,
    /// Not in the release.
    pub(super) absent: usize,
    /// Bit-fields.
    pub(super) unchecked: usize,
}

impl Report {
    /// The rows of all headers.
    fn rows(&self) -> impl Iterator<Item = (&HeaderReport, &Row)> {
        self.headers.iter().flat_map(|header| {
            let rows = match &header.outcome {
                Outcome::Compared(rows) => rows.as_slice(),
                Outcome::Unread(_) => &[],
            };
            rows.iter().map(move |row| (header, row))
        })
    }

    /// Number of rows by status.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (_, row) in self.rows().filter(|(_, row)| row.compared) {
            match row.status() {
                Status::Ok => counts.ok += 1,
                Status::Drift => counts.drift += 1,
                Status::Absent => counts.absent += 1,
                Status::Unchecked => counts.unchecked += 1,
            }
        }
        counts
    }

    /// Returns a header that does not compile, with the compiler's error.
    pub(super) fn unread(&self) -> Option<(&Path, &str)> {
        self.headers.iter().find_map(|header| match (&header.path, &header.outcome) {
            (Some(path), Outcome::Unread(reason)) => Some((path.as_path(), reason.as_str())),
            _ => None,
        })
    }

    /// The headers that the folder does not contain.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        self.headers.iter().filter(|header| header.path.is_none()).map(|header| header.header).collect()
    }

    /// Prints the comparison. A closed output pipe is not an error, because the exit code has the result.
    pub(super) fn print(&self, as_json: bool, differences: bool) -> Result<()> {
        let text = if as_json {
            format!("{}\n", serde_json::to_string_pretty(&self.json())?)
        } else {
            self.text(differences)
        };
        unless_closed(stdout().write_all(text.as_bytes()).map_err(Into::into))
    }

    /// Identifies the release of the headers.
    fn verdict(&self) -> release::Verdict {
        let found: Vec<&Row> =
            self.rows().filter(|(header, _)| header.path.is_some()).map(|(_, row)| row).collect();
        release::judge(&found)
    }

    /// Formats the table, the counts and the release.
    fn text(&self, differences: bool) -> String {
        let mut text = String::new();
        for header in &self.headers {
            let place =
                header.path.as_ref().map_or("not found".to_owned(), |path| path.display().to_string());
            let _ = writeln!(text, "{} ({place})", header.header);
            match &header.outcome {
                Outcome::Unread(reason) => {
                    let _ = writeln!(text, "  does not compile: {reason}");
                }
                Outcome::Compared(rows) if header.path.is_none() => {
                    let count = rows.iter().filter(|row| row.compared).count();
                    let _ = writeln!(text, "  all {count} absent");
                }
                Outcome::Compared(rows) => table(&mut text, rows, differences),
            }
            text.push('\n');
        }
        let Counts { ok, drift, absent, unchecked } = self.counts();
        let _ = writeln!(text, "{ok} ok, {drift} DRIFT, {absent} absent, {unchecked} unchecked");
        let verdict = self.verdict();
        let _ = writeln!(text, "compared with: {}", self.release);
        let _ = writeln!(text, "looks like: {}", verdict.looks_like);
        for (word, names) in [("has", &verdict.has), ("lacks", &verdict.lacks), ("beyond", &verdict.beyond)] {
            if !names.is_empty() {
                let _ = writeln!(text, "  {word}: {}", names.join(", "));
            }
        }
        text
    }

    /// The same as one JSON object.
    fn json(&self) -> Value {
        let side = |answer: Answer| match answer {
            Answer::Absent => Value::Null,
            Answer::BitField => json!("bit-field"),
            Answer::Number(number) => json!(number),
            Answer::Place { offset, size } => json!({ "offset": offset, "size": size }),
        };
        let headers: Vec<Value> = self
            .headers
            .iter()
            .map(|header| {
                let error = match &header.outcome {
                    Outcome::Unread(reason) => Some(reason),
                    Outcome::Compared(_) => None,
                };
                json!({
                    "header": header.header,
                    "path": header.path.as_ref().map(|path| path.display().to_string()),
                    "error": error,
                })
            })
            .collect();
        let rows: Vec<Value> = self
            .rows()
            .filter(|(_, row)| row.compared)
            .map(|(header, row)| {
                let kind = match row.question {
                    Question::Size { .. } => "struct",
                    Question::Place { .. } | Question::Bits { .. } => "field",
                    Question::Macro { .. } => "ioctl",
                };
                json!({
                    "header": header.header,
                    "kind": kind,
                    "name": row.question.to_string(),
                    "ours": side(row.ours),
                    "theirs": side(row.theirs),
                    "status": row.status().name(),
                })
            })
            .collect();
        let counts = self.counts();
        let verdict = self.verdict();
        json!({
                    "compiler": self.compiler,
                    "headers": headers,
                    "items": rows,
                    "summary": {
        "ok": counts.ok,
        "drift": counts.drift,
        "absent": counts.absent,
        "unchecked": counts.unchecked,
        },
                    "release": {
                        "compared_with": self.release.name(),
                        "looks_like": verdict.looks_like,
                        "has": verdict.has,
                        "lacks": verdict.lacks,
                        "beyond": verdict.beyond,
                    },
                })
    }
}

/// Formats the rows of one header in columns.
fn table(text: &mut String, rows: &[Row], differences: bool) {
    let lines: Vec<[String; 4]> = rows
        .iter()
        .filter(|row| row.compared && !(differences && row.status() == Status::Ok))
        .map(|row| {
            [
                row.question.to_string(),
                row.show(row.ours),
                row.show(row.theirs),
                row.status().name().to_owned(),
            ]
        })
        .collect();
    if lines.is_empty() {
        text.push_str("  nothing differs\n");
        return;
    }
    let head = ["name", "ours", "theirs", ""].map(str::to_owned);
    let width =
        |column: usize| lines.iter().chain([&head]).map(|line| line[column].len()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    for [name, ours, theirs, status] in [&head].into_iter().chain(&lines) {
        let [a, b, c] = widths;
        let line = format!("  {name:a$}  {ours:b$}  {theirs:c$}  {status}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
