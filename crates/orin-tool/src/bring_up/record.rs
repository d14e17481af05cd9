//! What one stage records: facts, notes, the state of the GPU after a failure, and the kernel's lines.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::journal::Journal;
use super::privacy::Scrubber;
use super::stages::Stage;

/// How a stage ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Everything worked; a summary for the progress line.
    Passed(String),
    /// It does not apply to this device; why.
    NotApplicable(String),
    /// It was not run; why.
    Skipped(String),
    /// Something did not work; what.
    Failed(String),
}

impl Outcome {
    /// `passed`, `n/a`, `skipped` or `failed`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::NotApplicable(_) => "n/a",
            Self::Skipped(_) => "skipped",
            Self::Failed(_) => "failed",
        }
    }

    /// The text.
    pub(super) fn text(&self) -> &str {
        let (Self::Passed(text) | Self::NotApplicable(text) | Self::Skipped(text) | Self::Failed(text)) =
            self;
        text
    }

    /// Reads what [`Outcome::name`] and [`Outcome::text`] wrote.
    pub(super) fn from_names(name: &str, text: &str) -> Option<Self> {
        let make: fn(String) -> Self = match name {
            "passed" => Self::Passed,
            "n/a" => Self::NotApplicable,
            "skipped" => Self::Skipped,
            "failed" => Self::Failed,
            _ => return None,
        };
        Some(make(text.to_owned()))
    }
}

/// The name of a stage's file in the folder of a run, with an extension.
pub(super) fn file_name(stage: u8, extension: &str) -> String {
    format!("stage-{stage:02}{extension}")
}

/// Collects what a stage records.
#[derive(Debug)]
pub(super) struct Recorder {
    stage: &'static Stage,
    folder: PathBuf,
    journal: Journal,
    start: Instant,
    data: Mutex<Data>,
}

#[derive(Debug, Default)]
struct Data {
    facts: Map<String, Value>,
    state: Map<String, Value>,
    log: Vec<Value>,
    step: String,
    written: bool,
}

impl Recorder {
    /// A recorder that writes to `folder`.
    pub(super) fn new(stage: &'static Stage, folder: &Path) -> io::Result<Self> {
        let journal = Journal::open(folder)?;
        Ok(Self { stage, folder: folder.to_owned(), journal, start: Instant::now(), data: Mutex::default() })
    }

    /// The folder of the run.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The stage.
    pub(super) fn stage(&self) -> &'static Stage {
        self.stage
    }

    /// Time since the stage began.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Notes on the disk what happens next; a freeze then names it.
    pub(super) fn step(&self, text: impl Into<String>) -> io::Result<()> {
        let text = text.into();
        let result = self.journal.line(&format!("stage {} step: {text}", self.stage.number));
        self.data.lock().step = text;
        result
    }

    /// Records a fact under a name; a second one replaces the first.
    pub(super) fn fact(&self, name: &str, value: impl Into<Value>) {
        self.data.lock().facts.insert(name.to_owned(), value.into());
    }

    /// Records a part of the GPU's state, for a failure.
    pub(super) fn state(&self, name: &str, value: impl Into<Value>) {
        self.data.lock().state.insert(name.to_owned(), value.into());
    }

    /// Records a line of the kernel log, with the time since the stage began.
    pub(super) fn kernel_line(&self, text: &str) {
        let ms = self.elapsed().as_secs_f64() * 1e3;
        self.data.lock().log.push(json!({ "ms": (ms * 10.0).round() / 10.0, "text": text }));
    }

    /// Writes the stage's files, once: a later call does nothing.
    pub(super) fn write(&self, outcome: &Outcome, calls: &[Value]) -> io::Result<()> {
        let mut data = self.data.lock();
        if data.written {
            return Ok(());
        }
        data.written = true;
        let mut value = json!({
            "stage": self.stage.number,
            "name": self.stage.name,
            "about": self.stage.about,
            "outcome": outcome.name(),
            "text": outcome.text(),
            "seconds": (self.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            "last_step": data.step,
            "facts": data.facts,
            "kernel_log": data.log,
        });
        if !data.state.is_empty() {
            value["state"] = Value::Object(std::mem::take(&mut data.state));
        }
        let scrubber = Scrubber::of_this_machine();
        scrubber.value(&mut value);
        let mut lines = String::new();
        for call in calls {
            lines.push_str(&call.to_string());
            lines.push('\n');
        }
        let number = self.stage.number;
        fs::write(self.folder.join(file_name(number, "-calls.jsonl")), scrubber.text(&lines))?;
        // The renaming makes a file that is whole or absent.
        let unfinished = self.folder.join(file_name(number, ".part"));
        fs::write(&unfinished, format!("{value:#}\n"))?;
        fs::rename(unfinished, self.folder.join(file_name(number, ".json")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::stages;
    use super::*;

    #[test]
    fn the_first_outcome_is_the_one_that_counts() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(stages::by_number(2).unwrap(), folder.path()).unwrap();
        recorder.step("allocating").unwrap();
        recorder.fact("va", "0x1000");
        recorder.kernel_line("nvgpu: 17000000.gpu [ERR]  x");
        recorder.write(&Outcome::Failed("too late".into()), &[json!({ "call": "open" })]).unwrap();
        recorder.write(&Outcome::Passed("no".into()), &[]).unwrap();
        let text = fs::read_to_string(folder.path().join("stage-02.json")).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["outcome"], &value["text"]), (&json!("failed"), &json!("too late")));
        assert_eq!((&value["last_step"], &value["facts"]["va"]), (&json!("allocating"), &json!("0x1000")));
        assert!(value["kernel_log"][0]["ms"].is_number() && value.get("state").is_none());
        let calls = fs::read_to_string(folder.path().join("stage-02-calls.jsonl")).unwrap();
        assert_eq!(calls, "{\"call\":\"open\"}\n");
        let journal = fs::read_to_string(folder.path().join("journal.txt")).unwrap();
        assert_eq!(journal, "stage 2 step: allocating\n");
    }

    #[test]
    fn outcomes_are_read_back() {
        for outcome in
            [Outcome::Passed("a".into()), Outcome::NotApplicable("b".into()), Outcome::Failed("c".into())]
        {
            assert_eq!(Outcome::from_names(outcome.name(), outcome.text()), Some(outcome));
        }
        assert_eq!(Outcome::from_names("frozen", ""), None);
    }
}
