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
use nvgpu_sys::Release;
use orin_cli::{Output, Progress, UsageError, stdout, warn};
use orin_sim::{BrokenChain, ChainEffect, Config, Settings};
use serde_json::{Value, json};

use super::archive::{Report, SUMMARY};
use super::record::file_name;
use super::show::read;
use super::stages::{CHAIN_WAYS, HANGS, NO_EFFECT, chain_verdict};
use calls::Calls;
use compare::Difference;

/// Events count as late from so many microseconds on.
const LEAST_EVENT_US: f64 = 100.0;

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
    let layout = &seen.facts(1)["characteristics_layout"];
    let kernel = layout.as_str().and_then(|name| name.parse().ok()).unwrap_or(Release::R36_4_3);
    let model = reference(seen.last, kernel)?;
    drop(progress);
    let settings = settings(&seen, &model, kernel)?;
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

/// Runs the stages on the model with this kernel, without settings.
fn reference(last: u8, kernel: Release) -> Result<Run> {
    let folder = tempfile::tempdir().context("creating a folder")?;
    let mut command = Command::new(orin_cli::own_program().context("finding this program")?);
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
    command.env(orin_sim::release::KERNEL_VARIABLE, kernel.name());
    command.env_remove(orin_sim::settings::SETTINGS_VARIABLE).env_remove(orin_sim::check::STRICT_VARIABLE);
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

/// Time from an interrupt to its event, in microseconds: by how much the shortest sleep of the report exceeds that of
/// the model. `None` if it is not twice as long.
fn event_us(seen: &Value, model: &Value) -> Option<u64> {
    let least = |facts: &Value| facts["latency"]["min_us"].as_f64();
    let (seen, known) = (least(seen)?, least(model).unwrap_or_default());
    (seen >= 2.0 * known && seen - known >= LEAST_EVENT_US).then(|| nearest_step(seen - known))
}

/// The nearest of 1, 1.5, 2, 3, 5 and 7 times a power of ten: single measurements are not more exact.
fn nearest_step(value: f64) -> u64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0].map(|step| step * power);
    let distance = |step: &f64| (step / value.max(1.0)).ln().abs();
    let nearest = steps.into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    // CAST: a time of at most a minute.
    nearest.map_or(0, |nearest| nearest.round() as u64)
}

/// The PCAS actions of stage 7 with a verdict that begins with `verdict`.
fn pcas_actions(facts: &Value, verdict: &str) -> Vec<u8> {
    let actions = facts["pcas_actions"].as_object().into_iter().flatten();
    let with_it = actions.filter(|(_, seen)| seen.as_str().is_some_and(|seen| seen.starts_with(verdict)));
    let mut numbers: Vec<u8> = with_it.filter_map(|(name, _)| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// The encodings of chains that lose launches or hang in stage 9. Chains that fault stand in the table alone.
fn broken_chains(facts: &Value) -> Vec<BrokenChain> {
    let broken = CHAIN_WAYS.iter().filter_map(|(name, _, encoding)| {
        let (action, prefetch) = (*encoding)?;
        let verdict = chain_verdict(facts, name)?;
        let effects = [(NO_EFFECT, ChainEffect::Lost), (HANGS, ChainEffect::Hang)];
        let effect = effects.into_iter().find(|(word, _)| verdict.starts_with(word))?.1;
        Some(BrokenChain { action, prefetch, effect })
    });
    broken.collect()
}

/// The settings with which the model answers as the report.
fn settings(seen: &Run, model: &Run, kernel: Release) -> Result<Settings> {
    let (facts, known) = (seen.facts(1), model.facts(1));
    let mut settings = Settings::default();
    settings.kernel = Some(kernel.to_string()).filter(|_| kernel != Release::R36_4_3);
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
    settings.event_us = event_us(&seen.facts(5), &model.facts(5));
    settings.inert_pcas_actions = pcas_actions(&seen.facts(7), NO_EFFECT);
    settings.hanging_pcas_actions = pcas_actions(&seen.facts(7), HANGS);
    settings.broken_chains = broken_chains(&seen.facts(9));
    settings.late_mmu_lines_ms = late_mmu_lines_ms(&seen.facts(13)["faults"]["fault_write"]);
    settings.power_up_ms = seen.calls.power_up_ms(&model.calls);
    settings.refusals = seen.calls.refusals(&model.calls);
    settings.request_ms = seen.calls.slow_requests(&model.calls);
    settings.apply(&mut Config::default()).context("the report's answers are no settings of an Orin")?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_events_are_rounded_to_steps() {
        for (us, step) in [
            (100.0, 100),
            (118.0, 100),
            (130.0, 150),
            (19_800.0, 20_000),
            (24_000.0, 20_000),
            (95_000.0, 100_000),
        ] {
            assert_eq!(nearest_step(us), step, "{us}");
        }
        let facts = |us: f64| json!({ "latency": { "min_us": us } });
        assert_eq!(event_us(&facts(300.0), &facts(90.0)), Some(200));
        assert_eq!(event_us(&facts(300.0), &facts(160.0)), None, "the model is nearly as slow");
        assert_eq!(event_us(&facts(90.0), &facts(5.0)), None, "as fast as the model on a slow machine");
        assert_eq!(event_us(&json!({}), &facts(50.0)), None);
    }

    #[test]
    fn verdicts_become_quirks() {
        let facts = json!({ "pcas_actions": {
            "9": "works", "3": "no effect: the work ended", "10": "hangs: the queue is not done", "4": "faults: x"
        } });
        assert_eq!((pcas_actions(&facts, NO_EFFECT), pcas_actions(&facts, HANGS)), (vec![3], vec![10]));
        let facts = json!({ "chains": {
            "default, 2": "no effect: round 1", "action 1 with prefetch, 2": "no effect: round 1",
            "action 3, 2": "hangs: after 3 s", "action 3, 8": "not tried", "off, 2": "works"
        } });
        let wanted = [
            BrokenChain { action: 1, prefetch: true, effect: ChainEffect::Lost },
            BrokenChain { action: 3, prefetch: false, effect: ChainEffect::Hang },
        ];
        assert_eq!(broken_chains(&facts), wanted);
        let facts = json!({ "chains": { "action 3, 2": "faults: an error", "action 3, 8": "works" } });
        assert_eq!(broken_chains(&facts), []);
    }
}
