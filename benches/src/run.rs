//! Runs cases one after the other and collects their results.

use std::sync::atomic::{AtomicBool, Ordering};

use tegra_hcq::{Device, DeviceKind, Properties};

use crate::baseline::{Baseline, Change};
use crate::bench::{Bench, Plan, RivalOutcome};
use crate::case::{Case, Unit};
use crate::cuda::Cuda;
use crate::machine::Machine;
use crate::measure::Samples;
use crate::served;
use crate::start_up::StartUp;

/// Memory that must remain free in addition to a case's needs, in bytes.
const RESERVE: u64 = 256 << 20;

/// The environment of the cases.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The device.
    pub device: &'a Device,
    /// The rival, if it is measured as well.
    pub cuda: Option<&'a Cuda>,
    /// The command of the child process; `None` skips the cases that need one.
    pub start_up: Option<&'a StartUp>,
    /// The measuring plan of each case.
    pub plan: Plan,
    /// Ends the run once it is true; `None` if nothing does.
    pub stop: Option<&'a AtomicBool>,
}

impl Environment<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It was measured.
    Measured {
        /// Our samples.
        ours: Samples,
        /// The rival's samples; `None` without a rival.
        rival: Option<RivalOutcome>,
    },
    /// The device cannot run the case; the reason.
    Skipped(String),
    /// The case failed; the error.
    Failed(String),
}

/// A case and its result.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Name of the case.
    pub name: String,
    /// Description of a sample.
    pub about: &'static str,
    /// The unit of the rate.
    pub unit: Unit,
    /// Size of the case.
    pub size: u64,
    /// The result.
    pub outcome: Outcome,
}

/// Facts about the rival for a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RivalInfo {
    /// Name of its device.
    pub device: String,
    /// Newest CUDA version that its driver supports.
    pub version: (u32, u32),
    /// Its SM version, ten times the major number plus the minor.
    pub sm: u32,
    /// Path or name of its library.
    pub library: String,
}

/// The data of a report.
#[derive(Clone, Debug)]
pub struct Run {
    /// Start time in UTC, in RFC 3339 format.
    pub date: String,
    /// The measuring plan of each case.
    pub plan: Plan,
    /// The machine.
    pub machine: Machine,
    /// The device.
    pub device: Properties,
    /// The rival.
    pub rival: Option<RivalInfo>,
    /// The commit of the program, with a note if its files were changed; `None` if unknown.
    pub commit: Option<String>,
    /// An earlier run to compare with.
    pub baseline: Option<Baseline>,
    /// The cases, in order of execution.
    pub measurements: Vec<Measurement>,
    /// Number of cases to measure; more than there are measurements if the run was interrupted.
    pub selected: usize,
}

impl Run {
    /// Returns whether a case failed.
    pub fn has_failures(&self) -> bool {
        self.measurements.iter().any(|measurement| matches!(measurement.outcome, Outcome::Failed(_)))
    }

    /// Returns a sentence about the missing cases if the run was interrupted.
    pub fn incomplete(&self) -> Option<String> {
        let (done, selected) = (self.measurements.len(), self.selected);
        (done < selected).then(|| format!("incomplete: interrupted after {done} of {selected} cases"))
    }

    /// The change of a case against the baseline, if both runs have measured it.
    pub fn change(&self, measurement: &Measurement) -> Option<Change> {
        let Outcome::Measured { ours, .. } = &measurement.outcome else { return None };
        self.baseline.as_ref()?.change(&measurement.name, ours)
    }
}

/// Receives the progress of a run.
pub trait Progress {
    /// Case `index` of `count` starts.
    fn begin(&mut self, index: usize, count: usize, case: &Case);

    /// The current case has ended.
    fn end(&mut self, measurement: &Measurement);
}

/// Runs the cases. A skipped or failed case does not stop the others. A case that is interrupted before it has the
/// minimum number of samples is omitted.
pub fn run(cases: &[Case], environment: &Environment<'_>, progress: &mut dyn Progress) -> Run {
    let mut measurements = Vec::new();
    let date = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for (index, case) in cases.iter().enumerate() {
        if environment.is_stopped() {
            break;
        }
        progress.begin(index, cases.len(), case);
        let outcome = match obstacle(case, environment) {
            Some(reason) => Outcome::Skipped(reason),
            None => measure(case, environment),
        };
        let too_few = |samples: &Samples| samples.count() < environment.plan.min_samples;
        if environment.is_stopped()
            && match &outcome {
                Outcome::Measured { ours, .. } => too_few(ours),
                // Ctrl-C ends child processes as well.
                Outcome::Failed(_) => true,
                Outcome::Skipped(_) => false,
            }
        {
            break;
        }
        let measurement = Measurement {
            name: case.name.clone(),
            about: case.about,
            unit: case.unit,
            size: case.size,
            outcome,
        };
        progress.end(&measurement);
        measurements.push(measurement);
    }
    let rival = environment.cuda.map(|cuda| RivalInfo {
        device: cuda.name().to_owned(),
        version: cuda.version(),
        sm: cuda.sm(),
        library: cuda.library().to_owned(),
    });
    let device = environment.device.info().clone();
    let (plan, machine, selected) = (environment.plan, Machine::here(), cases.len());
    Run { date, plan, machine, device, rival, commit: None, baseline: None, measurements, selected }
}

fn measure(case: &Case, environment: &Environment<'_>) -> Outcome {
    let Environment { device, cuda, start_up, plan, stop } = *environment;
    let mut bench = Bench::new(device, cuda, start_up, plan, stop, case.size);
    let result = (case.run)(&mut bench);
    // Release the case's memory, because the largest cases run out of memory first.
    device.trim();
    match result {
        Ok(()) => {
            let (ours, rival) = bench.finish();
            Outcome::Measured { ours, rival }
        }
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// Returns the reason why the case cannot run here; `None` if it can.
fn obstacle(case: &Case, environment: &Environment<'_>) -> Option<String> {
    let kind = environment.device.info().kind;
    if case.needs.hardware && kind == DeviceKind::Sim {
        return Some("needs a GPU: the software Orin would take too long".to_owned());
    }
    if case.needs.patience && kind == DeviceKind::Sim && environment.plan == Plan::QUICK {
        return Some("skipped in a quick run: it takes seconds on the software Orin".to_owned());
    }
    if case.needs.peer && Device::list(kind).map_or(0, |names| names.len()) < 2 {
        return Some("needs a second GPU".to_owned());
    }
    if case.needs.fence_files && kind == DeviceKind::Nvrm {
        return Some("NVIDIA's desktop driver has no fences as files".to_owned());
    }
    if case.needs.child_process && environment.start_up.is_none() {
        return Some("needs a program to start as a child process".to_owned());
    }
    if case.needs.own_cuda
        && let Err(reason) = Cuda::own_library()
    {
        return Some(reason.to_string());
    }
    if case.needs.python && !served::is_installed("python3") {
        return Some("needs python3".to_owned());
    }
    if case.needs.served
        && let Some(reason) = served::obstacle()
    {
        return Some(reason);
    }
    let free = environment.device.memory().map(|memory| memory.available).or(Machine::here().available);
    lack_of_memory(case.needs.memory, free)
}

fn lack_of_memory(needed: u64, free: Option<u64>) -> Option<String> {
    let wanted = needed.saturating_add(RESERVE);
    let free = free.filter(|free| needed > 0 && *free < wanted)?;
    let mib = |bytes: u64| bytes >> 20;
    Some(format!("needs {} MiB of memory, but only {} MiB are free", mib(wanted), mib(free)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Needs;
    use crate::error::{Error, Result};

    /// Keeps names and outcomes.
    #[derive(Default)]
    struct Log(Vec<String>);

    impl Progress for Log {
        fn begin(&mut self, index: usize, count: usize, case: &Case) {
            self.0.push(format!("{}/{count} {}", index + 1, case.name));
        }

        fn end(&mut self, measurement: &Measurement) {
            self.0.push(match &measurement.outcome {
                Outcome::Measured { ours, .. } => format!("measured {}", ours.count() > 0),
                Outcome::Skipped(why) => format!("skipped: {why}"),
                Outcome::Failed(why) => format!("failed: {why}"),
            });
        }
    }

    fn case(name: &str, needs: Needs, run: fn(&mut Bench<'_>) -> Result<()>) -> Case {
        Case { name: name.to_owned(), about: "a test", unit: Unit::Time, needs, size: 0, run }
    }

    #[test]
    fn every_outcome_is_told() {
        let device = Device::open(DeviceKind::Sim).unwrap();
        let environment =
            Environment { device: &device, cuda: None, start_up: None, plan: Plan::QUICK, stop: None };
        let hardware = Needs { hardware: true, ..Needs::default() };
        let patience = Needs { patience: true, ..Needs::default() };
        let child = Needs { child_process: true, ..Needs::default() };
        let cases = [
            case("a", Needs::default(), |bench| {
                bench.measure_alone(1, &mut || Ok(std::time::Duration::from_millis(1)))
            }),
            case("b", hardware, |_| Ok(())),
            case("c", child, |_| Ok(())),
            case("d", Needs::default(), |_| Err(Error::WrongResult("1 is 2".into()))),
            case("e", patience, |_| Ok(())),
        ];
        let mut log = Log::default();
        let run = run(&cases, &environment, &mut log);
        assert!(run.has_failures());
        assert_eq!((run.measurements.len(), run.device.kind), (5, DeviceKind::Sim));
        let [a, measured, b, skipped, c, childless, d, failed, e, left_out] = &log.0[..] else {
            panic!("{:?}", log.0)
        };
        assert_eq!([a, b, c, d, e], ["1/5 a", "2/5 b", "3/5 c", "4/5 d", "5/5 e"]);
        assert_eq!(measured, "measured true");
        assert!(skipped.starts_with("skipped: needs a GPU") && childless.contains("child process"));
        assert!(left_out.starts_with("skipped: skipped in a quick run"));
        assert_eq!(failed, "failed: wrong result: 1 is 2");
    }

    #[test]
    fn an_interrupted_run_has_what_was_measured_and_says_so() {
        let device = Device::open(DeviceKind::Sim).unwrap();
        let stop = AtomicBool::new(false);
        let environment =
            Environment { device: &device, cuda: None, start_up: None, plan: Plan::QUICK, stop: Some(&stop) };
        let quick =
            |bench: &mut Bench<'_>| bench.measure_alone(1, &mut || Ok(std::time::Duration::from_millis(1)));
        let cases = [
            case("a", Needs::default(), quick),
            case("b", Needs::default(), quick),
            case("c", Needs::default(), |_| Ok(())),
        ];
        /// Interrupts when case b begins.
        struct Interrupt<'a>(&'a AtomicBool);
        impl Progress for Interrupt<'_> {
            fn begin(&mut self, _: usize, _: usize, case: &Case) {
                self.0.store(case.name == "b", Ordering::Relaxed);
            }
            fn end(&mut self, _: &Measurement) {}
        }
        let run = run(&cases, &environment, &mut Interrupt(&stop));
        assert_eq!(run.measurements.len(), 1, "b has too few samples");
        let text = run.incomplete().unwrap();
        assert_eq!(text, "incomplete: interrupted after 1 of 3 cases");
        assert!(crate::report::table(&run).ends_with(&format!("{text}\n")));
        assert_eq!(crate::report::json(&run)["incomplete"], text);
    }

    #[test]
    fn a_case_too_large_for_the_memory_is_left_out() {
        assert_eq!(lack_of_memory(1 << 20, None), None);
        assert_eq!(lack_of_memory(0, Some(0)), None);
        assert_eq!(lack_of_memory(1 << 20, Some(RESERVE + (1 << 20))), None);
        let reason = lack_of_memory(1 << 30, Some(1 << 30)).unwrap();
        assert_eq!(reason, "needs 1280 MiB of memory, but only 1024 MiB are free");
    }
}
