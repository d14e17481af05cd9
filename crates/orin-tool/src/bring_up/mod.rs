//! `orin bring-up`: the first steps on a board, one process per stage, and a report of everything that was seen.

mod archive;
pub(crate) mod child;
mod journal;
mod privacy;
mod record;
mod replay;
mod runner;
mod show;
mod stages;
mod trace;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use nvgpu_channel::{LinuxSystem, doctor};
use orin_cli::profile::DEVICE;
use orin_cli::{ExitStatus as Code, Output, UsageError, stdout, unless_closed, within};
use orin_sim::{Config, Settings};
use serde_json::{Value, json};
use tegra_hcq::{DeviceKind, DeviceName};

use archive::Report;
use journal::{Ending, Journal};
use privacy::Scrubber;
use record::Outcome;
use runner::Runner;
use stages::Stage;

/// Name of the folder of a run, beside the report.
const FOLDER: &str = "orin-bring-up.parts";
/// What follows a run without failures.
const NEXT: &str = "next: `orin info`, `cargo xtask bench --quick`, the control loop for 5 minutes with and without a \
                    desktop session, then `cargo xtask test-device`; instead of `cargo xtask`, the pack has `orin-dev \
                    test-device`, the static pack `orin test-device`";

/// Options of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  orin bring-up                        all stages; asks before those that provoke faults
  orin bring-up --until 6              only what needs no kernel
  orin bring-up --show r.tar.gz        print what a report contains, before you attach it to an issue
  orin bring-up --replay r.tar.gz --settings board.json
                                       make the software Orin answer as the board of a report

The exit code is 0 if no stage failed, 1 if one failed, 130 if the run was interrupted.")]
pub(crate) struct Options {
    /// The device
    #[arg(long, help = DEVICE, default_value_t = DeviceKind::Auto.into())]
    device: DeviceName,
    /// File for the report; by default orin-bring-up-DATE-TIME.tar.gz in the current folder
    #[arg(long, value_name = "FILE.tar.gz", value_parser = report_name)]
    report: Option<PathBuf>,
    /// Last stage to run, 0 to 14
    #[arg(long, value_name = "STAGE", default_value_t = 14, value_parser = within(0..=14_u8))]
    until: u8,
    /// Run the stages that provoke faults (13 and 14) without asking
    #[arg(long)]
    yes: bool,
    /// Print one JSON object to standard output, and the progress to standard error
    #[arg(long)]
    json: bool,
    /// Settings of the software Orin, a file of --replay
    #[arg(long, value_name = "FILE.json")]
    model: Option<PathBuf>,
    /// Shortest wait on the software Orin, in milliseconds; work that takes longer hangs
    #[arg(long, value_name = "MS", default_value_t = child::default_patience(), hide = true)]
    patience: u64,
    /// Print the contents of a report instead
    #[arg(long, value_name = "FILE.tar.gz", conflicts_with_all = ["report", "until", "yes", "device", "model"])]
    show: Option<PathBuf>,
    /// Turn a report into settings of the software Orin instead, and print what differs from the model
    #[arg(long, value_name = "FILE.tar.gz", conflicts_with_all = ["report", "until", "yes", "device", "model", "show"])]
    replay: Option<PathBuf>,
    /// File for the settings of --replay
    #[arg(long, value_name = "FILE.json", requires = "replay")]
    settings: Option<PathBuf>,
}

/// Checks the name of a report.
fn report_name(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let named =
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.len() > ".tar.gz".len());
    if text.ends_with(".tar.gz") && named {
        Ok(path)
    } else {
        Err("the name must end with .tar.gz".to_owned())
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match (&options.show, &options.replay) {
        (Some(path), _) => show::run(path, options.json),
        (None, Some(path)) => replay::run(path, options.settings.as_deref(), options.json),
        (None, None) => bring_up(options),
    }
}

/// The configuration of the software Orin with the settings of a file.
fn model_config(path: &Path) -> Result<Config> {
    let mut config = Config::default();
    let applied = Settings::read(path).and_then(|settings| settings.apply(&mut config));
    applied.map_err(|error| UsageError(error.to_string()))?;
    Ok(config)
}

/// The device to use.
fn choose(options: &Options) -> Result<DeviceName> {
    let mut device = options.device;
    device.kind = match device.kind {
        DeviceKind::Auto if doctor::is_orin(&LinuxSystem) => DeviceKind::Nvgpu,
        DeviceKind::Auto if stages::is_present(DeviceKind::Nvrm) => DeviceKind::Nvrm,
        DeviceKind::Auto => DeviceKind::Sim,
        kind => kind,
    };
    match &options.model {
        Some(_) if device.kind != DeviceKind::Sim => {
            Err(UsageError(format!("--model changes the software Orin, but the device is {device}")).into())
        }
        Some(path) => model_config(path).map(|_| device),
        None => Ok(device),
    }
}

/// What ended an earlier run.
struct Earlier {
    stage: u8,
    step: Option<String>,
}

fn bring_up(options: &Options) -> Result<ExitCode> {
    let device = choose(options)?;
    let start = jiff::Timestamp::now();
    let path = options.report.clone().unwrap_or_else(|| {
        PathBuf::from(format!("orin-bring-up-{}.tar.gz", start.strftime("%Y%m%d-%H%M%S")))
    });
    if path.exists() {
        return Err(UsageError(format!("{} exists: name another file with --report", path.display())).into());
    }
    let output = Output::prepare(&path).map_err(UsageError::from)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = parent.join(FOLDER);
    let (journal, earlier) = open_folder(&folder)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("waiting for Ctrl-C")?;
    }

    let progress = Progress { to_stderr: options.json, failed: RefCell::default() };
    progress.line(&format!("device {device}, stages 0 to {}, report {}", options.until, path.display()));
    if let Some(Earlier { stage, step }) = &earlier {
        let name = stages::by_number(*stage).map_or("unknown", |stage| stage.name);
        let step = step.as_ref().map_or_else(String::new, |step| format!(", while {step}"));
        progress.line(&format!(
            "note: the last run ended in stage {stage} ({name}){step}: the machine froze or lost power, or the program \
             was killed; its records are in the report's folder earlier/"
        ));
    }
    let mut runner = Runner {
        device,
        folder: &folder,
        journal: &journal,
        model: options.model.as_deref(),
        patience: options.patience,
        interrupted: &interrupted,
        done: BTreeMap::new(),
        stuck: false,
    };
    let mut allowed = options.yes.then_some(true);
    for stage in stages::ALL.iter().filter(|stage| stage.number <= options.until) {
        let refused = match runner.obstacle(stage) {
            Some(reason) => Some(reason),
            None if stage.destructive && !*allowed.get_or_insert_with(|| ask(&progress)) => {
                Some("it provokes faults, and was not confirmed (--yes)".to_owned())
            }
            None => None,
        };
        let outcome = match refused {
            Some(reason) => {
                let outcome = Outcome::Skipped(reason);
                runner.finish(stage, outcome.clone(), Duration::ZERO)?;
                outcome
            }
            None => runner.run(stage)?,
        };
        progress.stage(stage, &outcome, runner.done[&stage.number].1);
    }
    let done = std::mem::take(&mut runner.done);
    journal.line("end").context("writing the journal")?;
    let mut summary = summary(device, start, earlier.as_ref(), &done);
    Scrubber::of_this_machine().value(&mut summary);
    fs::write(folder.join(archive::SUMMARY), format!("{summary:#}\n")).context("writing the summary")?;
    let archive = Report::of_folder(&folder)?.pack()?;
    output.write(&archive)?;
    let bytes = archive.len();
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;

    let failed = done.values().filter(|(outcome, _)| matches!(outcome, Outcome::Failed(_))).count();
    let stopped = interrupted.load(std::sync::atomic::Ordering::Relaxed);
    progress.line(&format!("report: {} ({bytes} bytes); --show prints what it contains", path.display()));
    progress.line(match (failed, stopped) {
        (_, true) => "interrupted: the report has what was done",
        (0, _) => NEXT,
        _ => "next: attach the report to an issue of this project",
    });
    if options.json {
        summary["report"] = path.display().to_string().into();
        writeln!(stdout(), "{summary:#}")?;
    }
    // The report is written even if its progress could not be printed. A closed pipe is not an error.
    unless_closed(progress.failed.take().map_or(Ok(()), |error| Err(error.into())))?;
    Ok(if stopped { Code::Interrupted } else { Code::failed_if(failed > 0) }.into())
}

/// Creates the folder of a run. The files of a run that ended within a stage are kept in a folder inside.
fn open_folder(folder: &Path) -> Result<(Journal, Option<Earlier>)> {
    let create = || -> Result<Journal> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let journal = Journal::open(folder).with_context(|| format!("writing to {}", folder.display()))?;
        if !journal.lock() {
            let text = format!("another bring-up runs here: it has {}", folder.display());
            return Err(UsageError(text).into());
        }
        Ok(journal)
    };
    let journal = create()?;
    let text = fs::read_to_string(folder.join(journal::NAME)).unwrap_or_default();
    if text.is_empty() {
        return Ok((journal, None));
    }
    let old = folder.with_extension("old");
    let _ = fs::remove_dir_all(&old);
    fs::rename(folder, &old).with_context(|| format!("moving {}", folder.display()))?;
    drop(journal);
    let journal = create()?;
    let earlier = match journal::ending(&text) {
        Ending::Within(stage, step) => Some(Earlier { stage, step }),
        Ending::Between | Ending::Complete => None,
    };
    if earlier.is_some() {
        // One earlier run is kept, not its own predecessors.
        let _ = fs::remove_dir_all(old.join("earlier"));
        fs::rename(&old, folder.join("earlier")).context("keeping the files of the last run")?;
    } else {
        fs::remove_dir_all(&old).context("removing the files of the last run")?;
    }
    Ok((journal, earlier))
}

/// Asks whether to run the destructive stages; no if standard input is not a terminal.
fn ask(progress: &Progress) -> bool {
    let question = "stages 13 and 14 provoke faults and hang the GPU on purpose; save your work first";
    if !io::stdin().is_terminal() {
        progress.line(&format!(
            "{question}. They are skipped: standard input is no terminal, and --yes is missing"
        ));
        return false;
    }
    let _ = write!(io::stderr(), "{question}. Run them? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// The summary of a run.
fn summary(
    device: DeviceName,
    start: jiff::Timestamp,
    earlier: Option<&Earlier>,
    done: &BTreeMap<u8, (Outcome, Duration)>,
) -> Value {
    let stages: Value = stages::ALL
        .iter()
        .filter_map(|stage| {
            let (outcome, took) = done.get(&stage.number)?;
            Some(json!({
                "stage": stage.number,
                "name": stage.name,
                "outcome": outcome.name(),
                "text": outcome.text(),
                "seconds": (took.as_secs_f64() * 100.0).round() / 100.0,
            }))
        })
        .collect();
    let mut summary = json!({
        "format": archive::FORMAT,
        "program": concat!("orin ", env!("CARGO_PKG_VERSION")),
        "device": device.to_string(),
        "started": start.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "stages": stages,
    });
    if let Some(Earlier { stage, step }) = earlier {
        summary["earlier_run_ended_in"] = json!({ "stage": stage, "step": step });
    }
    summary
}

/// Prints the progress.
struct Progress {
    to_stderr: bool,
    /// The first error; the run goes on, because its report is worth more.
    failed: RefCell<Option<io::Error>>,
}

impl Progress {
    fn line(&self, text: &str) {
        let printed = if self.to_stderr {
            writeln!(io::stderr().lock(), "{text}")
        } else {
            writeln!(stdout(), "{text}")
        };
        if let Err(error) = printed {
            self.failed.borrow_mut().get_or_insert(error);
        }
    }

    fn stage(&self, stage: &Stage, outcome: &Outcome, took: Duration) {
        self.line(&format!(
            "{:2}  {:12}  {:7}  {:6.1} s  {}",
            stage.number,
            stage.name,
            outcome.name(),
            took.as_secs_f64(),
            outcome.text()
        ));
        if let Outcome::Failed(_) = outcome {
            self.line(&format!("    -> {}", stage.cure));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_needs_a_name_with_its_ending() {
        assert!(report_name("x.tar.gz").is_ok() && report_name("a/b.tar.gz").is_ok());
        for name in ["x.tgz", ".tar.gz", "a/.tar.gz", ""] {
            assert!(report_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_files_of_a_run_that_froze_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join(FOLDER);
        let (journal, earlier) = open_folder(&folder).unwrap();
        assert!(earlier.is_none());
        journal.line("stage 7 starting").unwrap();
        journal.line("stage 7 step: launching with PCAS action 3").unwrap();
        assert!(open_folder(&folder).err().unwrap().is::<UsageError>(), "the run still holds its folder");
        drop(journal);

        let (journal, earlier) = open_folder(&folder).unwrap();
        let earlier = earlier.unwrap();
        assert_eq!((earlier.stage, earlier.step.as_deref()), (7, Some("launching with PCAS action 3")));
        assert!(fs::read_to_string(folder.join("earlier/journal.txt")).unwrap().contains("stage 7 starting"));
        journal.line("stage 0 starting").unwrap();
        journal.line("stage 0 passed").unwrap();
        journal.line("end").unwrap();
        drop(journal);
        // A run that ended leaves nothing, even if its folder could not be removed.
        let (_journal, earlier) = open_folder(&folder).unwrap();
        assert!(earlier.is_none() && !folder.join("earlier").exists());
    }
}
