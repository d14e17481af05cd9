//! One stage in a process of its own: `orin` starts itself with a hidden command.

use std::any::Any;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use gpu_log::is_about_the_gpu;
use kernel_door::{Door, LinuxDoor};
use nvgpu_channel::KmsgReader;
use orin_cli::UsageError;
use orin_sim::SoftwareOrin;
use tegra_hcq::{DeviceKind, DeviceName};

use super::record::{Outcome, Recorder};
use super::stages::{self, Context};
use super::trace::TraceDoor;

/// How often the kernel log is read, and a signal noticed.
const TICK: Duration = Duration::from_millis(5);
/// How long a stage may take to notice that its channels were reset.
const AFTER_RESET: Duration = Duration::from_secs(2);
/// The kernel may log lines about a failure for so long after the last one.
const SILENCE: Duration = Duration::from_millis(500);
/// Longest wait for that silence.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);
/// Longest time from the deadline, or a request to end, to the end of the process.
pub(super) const GRACE: Duration = Duration::from_secs(15);

/// Options of the hidden command.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of the stage
    number: u8,
    /// Device: nvgpu, nvrm or sim
    #[arg(long)]
    device: DeviceName,
    /// Folder of the run
    #[arg(long)]
    folder: PathBuf,
    /// Longest time that the stage may take, in milliseconds
    #[arg(long, value_name = "MS")]
    limit: u64,
    /// Settings of the software Orin
    #[arg(long)]
    model: Option<PathBuf>,
    /// Shortest wait on the software Orin, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = default_patience())]
    patience: u64,
}

/// Milliseconds for which work on the software Orin may take.
pub(super) fn default_patience() -> u64 {
    // CAST: a constant of seconds.
    stages::MODEL_PATIENCE.as_millis() as u64
}

/// Runs the stage, records its outcome in the folder, and ends the process.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let unknown = || UsageError(format!("there is no stage {}", options.number));
    let stage = stages::by_number(options.number).ok_or_else(unknown)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("handling signals")?;
    }
    // The channels are reset even if the parent is killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .context("following the parent")?;
    let door = door(options)?;
    let tracer = Arc::new(TraceDoor::new(Arc::clone(&door)));
    let recorder = Arc::new(Recorder::new(stage, &options.folder).context("opening the journal")?);
    // The log of the door behind: reading it is no part of the stage.
    let mut log = KmsgReader::open_at_end(&door).inspect_err(|errno| {
        recorder.fact("kernel_log_unavailable", errno.to_string());
    });
    let mut read_log = || {
        let records = log.as_mut().map(|log| log.read_new().unwrap_or_default()).unwrap_or_default();
        let lines = records.iter().filter(|record| is_about_the_gpu(&record.text));
        lines.inspect(|record| recorder.kernel_line(&record.text)).count()
    };

    let context = Context {
        device: options.device,
        tracer: Arc::clone(&tracer),
        recorder: Arc::clone(&recorder),
        model_patience: Duration::from_millis(options.patience),
    };
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("stage".to_owned())
        .spawn(move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.run(&context)));
            // The receiver may have given up.
            let _ = sender.send(result);
        })
        .context("starting the stage")?;
    let deadline = Duration::from_millis(options.limit);
    let outcome = loop {
        let result = receiver.recv_timeout(TICK);
        read_log();
        match result {
            Ok(result) => break outcome_of(result),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                break Outcome::Failed("the stage's thread ended".into());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        let reason = if stop.load(Ordering::Relaxed) {
            "stopped by a signal".to_owned()
        } else if recorder.elapsed() > deadline {
            format!("not done after {} ms", deadline.as_millis())
        } else {
            continue;
        };
        let count = tracer.reset_channels();
        // The stage now sees its channels end, and records their state.
        let seen = receiver.recv_timeout(AFTER_RESET).map(outcome_of).ok();
        let then = seen.map_or_else(String::new, |outcome| format!("; then: {}", outcome.text()));
        break Outcome::Failed(format!("{reason}; FORCE_RESET of {count} channels{then}"));
    };
    if let Outcome::Failed(_) = outcome {
        let (start, mut last) = (Instant::now(), Instant::now());
        while last.elapsed() < SILENCE && start.elapsed() < LONGEST_SILENCE {
            if read_log() > 0 {
                last = Instant::now();
            }
            std::thread::sleep(TICK);
        }
    }
    recorder.write(&outcome, &tracer.log()).context("writing the stage's record")?;
    let code = u8::from(matches!(outcome, Outcome::Failed(_)));
    // A thread that is stuck in the kernel must not keep the process.
    std::process::exit(code.into());
}

/// The door of a device.
fn door(options: &Options) -> Result<Arc<dyn Door>> {
    if options.device.kind != DeviceKind::Sim {
        return Ok(Arc::new(LinuxDoor));
    }
    let orin = match &options.model {
        Some(path) => SoftwareOrin::new(super::model_config(path)?)?,
        None => SoftwareOrin::from_environment()?,
    };
    Ok(Arc::new(orin))
}

/// The outcome of a stage's function, which may have panicked.
fn outcome_of(result: Result<Result<Outcome>, Box<dyn Any + Send>>) -> Outcome {
    match result {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::Failed(format!("{error:#}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown reason");
            Outcome::Failed(format!("panicked: {text}"))
        }
    }
}
