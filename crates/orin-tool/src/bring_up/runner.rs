//! Starts the stages one after another, watches them, and decides which can run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tegra_hcq::DeviceName;

use super::child::GRACE;
use super::journal::Journal;
use super::record::{Outcome, file_name};
use super::stages::{Stage, by_number};

/// How often a child is looked at.
const TICK: Duration = Duration::from_millis(10);
/// How long a killed process may take to vanish. One that is stuck in the kernel never does.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// Largest part of a child's messages that a record keeps, in bytes.
const MESSAGES: usize = 2000;

/// A run of the stages.
#[derive(Debug)]
pub(super) struct Runner<'a> {
    pub(super) device: DeviceName,
    pub(super) folder: &'a Path,
    pub(super) journal: &'a Journal,
    /// Settings of the software Orin.
    pub(super) model: Option<&'a Path>,
    /// Shortest wait on the software Orin, in milliseconds.
    pub(super) patience: u64,
    /// The user wants to end the run.
    pub(super) interrupted: &'a AtomicBool,
    /// Outcomes so far.
    pub(super) done: BTreeMap<u8, (Outcome, Duration)>,
    /// A child could not be ended: it is stuck in the driver.
    pub(super) stuck: bool,
}

impl Runner<'_> {
    /// Why a stage cannot run; `None` if it can.
    pub(super) fn obstacle(&self, stage: &Stage) -> Option<String> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Some("the run was interrupted".to_owned());
        }
        if self.stuck {
            return Some("an earlier stage is stuck in the driver: reboot".to_owned());
        }
        let missing = stage.needs.iter().filter_map(|need| by_number(*need)).find(|need| {
            let outcome = self.done.get(&need.number).map(|(outcome, _)| outcome);
            !matches!(outcome, Some(Outcome::Passed(_) | Outcome::NotApplicable(_)))
        })?;
        Some(format!("it needs stage {} ({})", missing.number, missing.name))
    }

    /// Runs a stage in a child and returns its outcome.
    pub(super) fn run(&mut self, stage: &'static Stage) -> Result<Outcome> {
        self.journal.line(&format!("stage {} starting", stage.number)).context("writing the journal")?;
        let start = Instant::now();
        let outcome = self.child(stage)?;
        self.finish(stage, outcome.clone(), start.elapsed())?;
        Ok(outcome)
    }

    /// Notes the outcome of a stage.
    pub(super) fn finish(&mut self, stage: &Stage, outcome: Outcome, took: Duration) -> Result<()> {
        let line = format!("stage {} {}", stage.number, outcome.name());
        self.journal.line(&line).context("writing the journal")?;
        self.done.insert(stage.number, (outcome, took));
        Ok(())
    }

    fn child(&mut self, stage: &'static Stage) -> Result<Outcome> {
        let messages = self.folder.join(file_name(stage.number, "-messages.txt"));
        let mut command = Command::new(orin_cli::own_program().context("finding this program")?);
        command.arg("bring-up-stage").arg(stage.number.to_string());
        let limit = stage.deadline(self.device.kind);
        command.args(["--device", &self.device.to_string(), "--limit", &limit.as_millis().to_string()]);
        command.arg("--folder").arg(self.folder);
        command.args(["--patience", &self.patience.to_string()]);
        if let Some(model) = self.model {
            command.arg("--model").arg(model);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&messages).context("creating a file for messages")?);
        // Ctrl-C reaches this process alone, which then ends the child properly.
        command.process_group(0);
        let mut child = command.spawn().context("starting the stage's process")?;
        let status = self.watch(&mut child, limit + GRACE);
        let text = fs::read_to_string(&messages).unwrap_or_default();
        if text.is_empty() {
            // An empty file is not worth a place in the report.
            let _ = fs::remove_file(&messages);
        }
        if let Some(outcome) = self.recorded(stage) {
            return Ok(outcome);
        }
        let tail: String = text.chars().rev().take(MESSAGES).collect::<Vec<_>>().into_iter().rev().collect();
        let ended = match status? {
            Some(status) => format!("its process ended without a record ({status})"),
            None => {
                self.stuck = true;
                "its process does not end: it is stuck in the driver".to_owned()
            }
        };
        Ok(Outcome::Failed(format!("{ended} {}", tail.trim()).trim_end().to_owned()))
    }

    /// The outcome that a child has recorded.
    fn recorded(&self, stage: &Stage) -> Option<Outcome> {
        let text = fs::read_to_string(self.folder.join(file_name(stage.number, ".json"))).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        Outcome::from_names(value["outcome"].as_str()?, value["text"].as_str()?)
    }

    /// Waits for a child. At the deadline, or if the user interrupts, it is asked to end, which resets its channels,
    /// and only then killed. `None` if it does not even end then.
    fn watch(&self, child: &mut Child, deadline: Duration) -> Result<Option<ExitStatus>> {
        let until = Instant::now() + deadline;
        loop {
            if let Some(status) = child.try_wait().context("waiting for the stage's process")? {
                return Ok(Some(status));
            }
            if Instant::now() > until || self.interrupted.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(TICK);
        }
        for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, AFTER_KILL)] {
            // The child is not reaped yet, so the number is still its own.
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                let _ = rustix::process::kill_process(pid, signal);
            }
            let until = Instant::now() + patience;
            while Instant::now() < until {
                if let Some(status) = child.try_wait().context("waiting for the stage's process")? {
                    return Ok(Some(status));
                }
                std::thread::sleep(TICK);
            }
        }
        Ok(None)
    }
}
