//! `--replay`: turns a report into settings of the software Orin, and compares the report with the model.
//!
//! The model runs the same stages without settings, and both reports are compared. What can be set becomes a setting;
//! the rest is printed as a difference.

mod calls;
mod compare;

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use orin_cli::{Output, Progress, UsageError, stdout, warn};
use orin_sim::{Config, Settings};
use serde_json::{Value, json};

use super::archive::{Report, SUMMARY};
use super::record::file_name;
use super::show::read;
use calls::Calls;
use compare::Difference;

/// A report with its parsed parts.
struct Run {
    report: Report,
    calls: Calls,
    /// Number of the last stage that was run.
    last: u8,
}

impl Run {
    fn new(report: Report) -> Result<Self> {
        let summary = report.json(SUMMARY)?;
        let stages = summary["stages"].as_array().context("report.json lists no stages")?;
        let numbers = stages.iter().filter_map(|stage| u8::try_from(stage["stage"].as_u64()?).ok());
        let last = numbers.max().filter(|last| *last <= 14).context("report.json lists no stages")?;
        let calls = Calls::of(&report)?;
        Ok(Self { report, calls, last })
    }

    /// The facts of a stage; null if it was not run.
    fn facts(&self, stage: u8) -> Value {
        let record = self.report.json(&file_name(stage, ".json")).unwrap_or_default();
        record.get("facts").cloned().unwrap_or_default()
    }
}

/// Prints settings and differences of a report; writes the settings to `target` if there is one.
pub(super) fn run(path: &Path, target: Option<&Path>, json: bool) -> Result<ExitCode> {
    let target = target.map(Output::prepare).transpose().map_err(UsageError::from)?;
    let report = read(path)?;
    let device = report.json(SUMMARY)?["device"].as_str().unwrap_or_default().to_owned();
    match device.as_str() {
        "nvgpu" | "sim" => {}
        _ => {
            let text = format!("a report of device {device:?} has no settings for the software Orin");
            return Err(UsageError(text).into());
        }
    }
    let seen = Run::new(report)?;
    warn("running the stages on the software Orin, for comparison");
    let progress = Progress::new("running the stages");
    let model = reference(seen.last)?;
    drop(progress);
    let settings = settings(&seen, &model)?;
    let differences = compare::all(&seen, &model);
    if let Some(target) = &target {
        target.write(settings.to_json().as_bytes())?;
    }
    let mut out = stdout();
    if json {
        let rows: Value = differences.iter().map(Difference::as_json).collect();
        let settings: Value = serde_json::from_str(&settings.to_json())?;
        writeln!(out, "{:#}", json!({ "settings": settings, "differences": rows }))?;
        return Ok(ExitCode::SUCCESS);
    }
    compare::print(&mut out, &differences)?;
    match target {
        Some(target) => writeln!(
            out,
            "settings: {0}; use them with `orin bring-up --device sim --model {0}`, or in any program with \
             ORIN_SIM_SETTINGS={0}",
            target.path().display()
        )?,
        None => {
            write!(out, "settings, which --settings FILE.json writes to a file:\n{}", settings.to_json())?
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the stages on the model without settings.
fn reference(last: u8) -> Result<Run> {
    let folder = tempfile::tempdir().context("creating a folder")?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args([
        "bring-up",
        "--device",
        "sim",
        "--yes",
        "--report",
        "model.tar.gz",
        "--until",
        &last.to_string(),
    ]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    command.env_remove(orin_sim::settings::SETTINGS_VARIABLE).env_remove(orin_sim::config::STRICT_VARIABLE);
    let status = command.status().context("running the stages on the software Orin")?;
    let path = folder.path().join("model.tar.gz");
    ensure!(path.is_file(), "the stages on the software Orin left no report ({status})");
    Run::new(Report::read(&path)?)
}

/// By how many milliseconds the lines of an MMU fault follow its notifier 13, rounded down to a multiple of 50. `None`
/// if the notifier is another, or if the lines come first.
fn late_mmu_lines_ms(fault: &Value) -> Option<u64> {
    let lines = fault["log"].as_array()?;
    let time = |word: &str| {
        let line = lines.iter().find(|line| line["text"].as_str().is_some_and(|text| text.contains(word)))?;
        line["kernel_us"].as_u64()
    };
    let late = time("MMU FAULT")?.checked_sub(time("error notifier set to 13")?)?;
    Some(late / 1000 / 50 * 50)
}

/// The settings with which the model answers as the report.
fn settings(seen: &Run, model: &Run) -> Result<Settings> {
    let (facts, known) = (seen.facts(1), model.facts(1));
    let mut settings = Settings::default();
    let characteristics =
        facts["characteristics"].as_str().filter(|_| facts["characteristics"] != known["characteristics"]);
    settings.characteristics = characteristics.map(str::to_owned);
    let bytes = &facts["memory"]["total_bytes"];
    settings.memory_bytes = bytes.as_u64().filter(|_| *bytes != known["memory"]["total_bytes"]);
    if facts["tpc_masks"] != known["tpc_masks"]
        && let Some(masks) = facts["tpc_masks"].as_array()
    {
        let mut list = [0; 2];
        for (index, mask) in masks.iter().enumerate() {
            let mask =
                mask.as_u64().and_then(|mask| u32::try_from(mask).ok()).context("tpc_masks: not a number")?;
            match list.get_mut(index) {
                Some(slot) => *slot = mask,
                None if mask == 0 => {}
                None => bail!("the report lists {} GPCs, ga10b has 2", masks.len()),
            }
        }
        settings.tpc_masks = Some(list);
    }
    let actions = seen.facts(7);
    let without_effect = actions["pcas_actions"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, verdict)| verdict.as_str().is_some_and(|verdict| verdict.contains("no effect")));
    settings.inert_pcas_actions = without_effect.filter_map(|(name, _)| name.parse().ok()).collect();
    settings.inert_pcas_actions.sort_unstable();
    settings.late_mmu_lines_ms = late_mmu_lines_ms(&seen.facts(13)["faults"]["fault_write"]);
    settings.power_up_ms = seen.calls.power_up_ms(&model.calls);
    settings.refusals = seen.calls.refusals(&model.calls);
    settings.request_ms = seen.calls.slow_requests(&model.calls);
    settings.apply(&mut Config::default()).context("the report's answers are no settings of an Orin")?;
    Ok(settings)
}
