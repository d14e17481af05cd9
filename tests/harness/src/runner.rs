//! Runs tests one after another.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use gpu_log::Kind;
use kernel_door::Door;
use tegra_hcq::DeviceKind;

use super::context::Station;
use super::log::{LogWatch, Rules, judge, unknown_lines};
use super::report::{RunReport, TestReport};
use super::{Check, Context, Machine, Outcome, Suite, Test, panics};

/// Interval at which the runner checks for a request to end the run.
const GLANCE: Duration = Duration::from_millis(50);
/// Time for a test to end after a request to end the run.
const GRACE: Duration = Duration::from_secs(10);
/// Time limit for a board to bring a channel up after a test that did not end.
const REVIVAL: Duration = Duration::from_secs(30);

/// The tests of a run, in execution order.
#[derive(Clone, Debug)]
pub struct Plan(pub(crate) Vec<(&'static Suite, &'static Test)>);

impl Plan {
    /// The tests of the suites named in `wanted` (all suites if empty) whose `SUITE/TEST` name contains
    /// `filter`.
    ///
    /// # Errors
    ///
    /// A message if a suite does not exist or no test is left.
    pub fn new(all: &[&'static Suite], wanted: &[String], filter: Option<&str>) -> Result<Self, String> {
        if let Some(unknown) = wanted.iter().find(|name| !all.iter().any(|suite| suite.name == **name)) {
            let names: Vec<_> = all.iter().map(|suite| suite.name).collect();
            return Err(format!("no suite {unknown}; the suites are: {}", names.join(", ")));
        }
        let chosen =
            all.iter().filter(|suite| wanted.is_empty() || wanted.iter().any(|name| name == suite.name));
        let tests: Vec<_> = chosen
            .flat_map(|suite| suite.tests.iter().map(move |test| (*suite, test)))
            .filter(|(suite, test)| filter.is_none_or(|text| full_name(suite, test).contains(text)))
            .collect();
        match filter {
            _ if !tests.is_empty() => Ok(Self(tests)),
            Some(text) => Err(format!("no test name contains {text}; --list prints all tests")),
            None => Err("there are no tests".to_owned()),
        }
    }

    /// The tests.
    pub fn tests(&self) -> &[(&'static Suite, &'static Test)] {
        &self.0
    }
}

fn full_name(suite: &Suite, test: &Test) -> String {
    format!("{}/{}", suite.name, test.name)
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// Test n of `total`, counted from 1, starts.
    Begins(usize, usize, &'static Suite, &'static Test),
    /// Test n of `total` has ended.
    Ended(usize, usize, &'a TestReport),
}

/// Runs the tests of a plan and reports each to `progress`.
pub fn run(plan: &Plan, machine: Machine, progress: &mut dyn FnMut(Progress<'_>)) -> RunReport {
    let (started, clock) = (SystemTime::now(), Instant::now());
    let mut run = Run { machine, shared: None, stopped: None, noisy: None };
    let total = plan.0.len();
    let mut tests = Vec::with_capacity(total);
    for (number, (suite, test)) in (1..).zip(&plan.0) {
        progress(Progress::Begins(number, total, suite, test));
        let report = run.one(suite, test);
        progress(Progress::Ended(number, total, &report));
        tests.push(report);
    }
    RunReport {
        device: machine.describe(),
        kind: machine.kind(),
        scale: machine.scale(),
        started,
        elapsed: clock.elapsed(),
        tests,
        log_unavailable: machine.door().ok().and_then(|door| LogWatch::start(&door).unavailable()),
        stopped: run.stopped,
        interrupted: machine.is_stopped(),
    }
}

/// State between two tests.
struct Run {
    machine: Machine,
    /// The device shared by a suite's sharing tests, with the suite's name.
    shared: Option<(&'static str, Station)>,
    /// Why no further tests run.
    stopped: Option<String>,
    /// The last test, if the log was not silent after it, and its log.
    noisy: Option<(String, LogWatch)>,
}

/// How a test's thread ended.
enum End {
    Outcome(Outcome),
    /// Still running after the test's limit.
    Late,
    /// Still running some time after the user wanted to end the run.
    Abandoned,
}

impl Run {
    fn one(&mut self, suite: &'static Suite, test: &'static Test) -> TestReport {
        let clock = Instant::now();
        let mut report = TestReport {
            suite: suite.name,
            name: test.name,
            about: test.about,
            outcome: Outcome::Passed,
            elapsed: Duration::ZERO,
            notes: Vec::new(),
            events: Vec::new(),
        };
        if self.machine.is_stopped() {
            report.outcome = Outcome::Skipped("not run: interrupted".to_owned());
            return report;
        }
        if let Some(reason) = &self.stopped {
            report.outcome = Outcome::Skipped(format!("not run: {reason}"));
            return report;
        }
        if let Some(reason) = self.machine.leaves_out(suite, test) {
            report.outcome = Outcome::Skipped(reason.to_owned());
            return report;
        }
        let station = match self.station(suite, test) {
            Ok(station) => station,
            Err(text) => {
                report.outcome = Outcome::Failed(text);
                return report;
            }
        };
        let noisy = self.settle();
        let mut watch = LogWatch::start(&station.door);
        let context = Arc::new(Context::new(self.machine, station));
        let limit = test.limit + self.machine.load.duration.unwrap_or_default();
        let end = in_thread(test, limit, &context);
        report.notes = context.take_notes();
        report.notes.extend(noisy.clone());
        // The device is closed before the log is judged: cleanup is part of the test.
        drop(context);
        let expected = test.expects.filter(|_| matches!(end, End::Outcome(Outcome::Passed)));
        let heard = watch.events(self.machine.pace, expected);
        report.events = heard.events;
        let late = matches!(end, End::Late);
        let unread = watch.unavailable().is_some();
        let outcome = finished(end, limit);
        // A test that did not finish need not have provoked anything.
        let passed = outcome == Outcome::Passed;
        let rules = Rules {
            expected: test.expects.filter(|_| passed && !unread),
            allowed: test.allows,
            unknown_passes: !self.machine.strict_log,
        };
        let log = if !passed && test.expects.is_some() { Ok(()) } else { judge(&report.events, rules) };
        if !self.machine.strict_log {
            let lines = unknown_lines(&report.events)
                .map(|text| format!("not judged, unknown line of the log: {text}"));
            report.notes.extend(lines);
        }
        if let Some(kind) = test.expects.filter(|_| unread && passed) {
            report.notes.push(format!("without the kernel log, only the queue's error showed the {kind}"));
        }
        let log = match (log, noisy) {
            (Err(text), Some(_)) => {
                report.notes.push(format!("not judged: {text}"));
                Ok(())
            }
            (log, _) => log,
        };
        report.outcome = verdict(outcome, log);
        if self.machine.is_stopped()
            && let Outcome::Failed(text) = &report.outcome
        {
            // Ctrl-C reaches child processes as well, so the failure may be its effect.
            report.outcome = Outcome::Skipped(format!("interrupted: {text}"));
        }
        report.elapsed = clock.elapsed();
        self.consider_stopping(&report, late);
        if !heard.silent {
            self.noisy = Some((format!("{}/{}", suite.name, test.name), watch));
        }
        if test.observed
            && self.machine.kind() == DeviceKind::Nvgpu
            && let Outcome::Failed(text) = report.outcome
        {
            report.outcome = Outcome::Skipped(format!("only observed on a board: {text}"));
        }
        report
    }

    /// Waits again for silence after a test whose lines have not ended. Returns a note for the next test if they still
    /// have not: the lines in its log may be those of the other.
    fn settle(&mut self) -> Option<String> {
        let (name, mut watch) = self.noisy.take()?;
        let heard = watch.events(self.machine.pace, None);
        (!heard.silent).then(|| format!("the log is not silent since {name}: errors in it are not judged"))
    }

    /// The door for a test: the suite's shared one, or a new one.
    fn station(&mut self, suite: &'static Suite, test: &Test) -> Result<Station, String> {
        if let Some((name, station)) = &self.shared
            && test.shared
            && *name == suite.name
        {
            return Ok(station.clone());
        }
        let opened = self.machine.open().map_err(|errno| format!("starting the software Orin: {errno}"))?;
        let station = Station::new(opened);
        self.shared = test.shared.then(|| (suite.name, station.clone())).or_else(|| self.shared.take());
        Ok(station)
    }

    /// Stops the run if no further test could pass. A test on a model affects only that model.
    fn consider_stopping(&mut self, report: &TestReport, late: bool) {
        let failed = matches!(report.outcome, Outcome::Failed(_));
        if failed {
            self.shared = None;
        }
        if self.machine.is_model() || !failed {
            return;
        }
        let name = format!("{}/{}", report.suite, report.name);
        let fatal = report.events.iter().find(|event| event.kinds().contains(&Kind::Fatal));
        if let Some(event) = fatal {
            self.stopped = Some(format!("the GPU is out of service since {name}: {}", event.row().cure));
        } else if late {
            let machine = self.machine;
            let revival = bounded(REVIVAL, move || revive(&machine));
            self.stopped = match revival {
                Some(Ok(())) => None,
                Some(Err(error)) => Some(format!("after {name} the GPU does not come up: {error}")),
                None => Some(format!("after {name} the GPU does not come up within {REVIVAL:?}")),
            };
        }
    }
}

/// The outcome of a test's thread.
fn finished(end: End, limit: Duration) -> Outcome {
    match end {
        End::Outcome(outcome) => outcome,
        End::Late => Outcome::Failed(format!("not done within its limit of {limit:?}")),
        End::Abandoned => Outcome::Failed(format!("still running after {GRACE:?}")),
    }
}

/// Combines the outcome of a test's thread with the judgement of the log.
fn verdict(outcome: Outcome, log: Result<(), String>) -> Outcome {
    match (outcome, log) {
        (outcome, Ok(())) => outcome,
        (Outcome::Failed(text), Err(more)) => Outcome::Failed(format!("{text}; {more}")),
        (_, Err(text)) => Outcome::Failed(text),
    }
}

/// Runs a test in its own thread. A thread that exceeds the limit cannot be stopped; it keeps running with
/// its context.
fn in_thread(test: &'static Test, limit: Duration, context: &Arc<Context>) -> End {
    let machine = context.machine();
    let (sender, receiver) = mpsc::channel();
    let context = Arc::clone(context);
    let body = move || {
        let outcome = panics::catch(|| (test.run)(&context));
        drop(context);
        // The receiver is gone after the time limit.
        let _ = sender.send(outcome.unwrap_or_else(Outcome::Failed));
    };
    let thread = match thread::Builder::new().name(test.name.to_owned()).spawn(body) {
        Ok(thread) => thread,
        Err(error) => return End::Outcome(Outcome::Failed(format!("starting the test's thread: {error}"))),
    };
    let end = Instant::now() + limit;
    let mut abandon = None;
    loop {
        let now = Instant::now();
        match receiver.recv_timeout(GLANCE.min(end.saturating_duration_since(now))) {
            Ok(outcome) => {
                // The thread is about to exit; a panic of the test was caught inside it.
                let _ = thread.join();
                return End::Outcome(outcome);
            }
            Err(RecvTimeoutError::Timeout) if now >= end => return End::Late,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let text = "the test's thread ended without a result".to_owned();
                return End::Outcome(Outcome::Failed(text));
            }
        }
        if machine.is_stopped() && Instant::now() >= *abandon.get_or_insert_with(|| Instant::now() + GRACE) {
            return End::Abandoned;
        }
    }
}

/// Runs `body` for at most `limit`; `None` if it takes longer.
fn bounded<T: Send + 'static>(limit: Duration, body: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(body()).is_ok());
    receiver.recv_timeout(limit).ok()
}

/// Brings a compute channel up, as every program does first.
fn revive(machine: &Machine) -> Check {
    let door: Arc<dyn Door> = machine.door()?;
    if machine.kind() == DeviceKind::Nvrm {
        tegra_hcq::Device::open_through(door, machine.name())?.queue()?;
        return Ok(());
    }
    let gpu = nvgpu_channel::Gpu::open(&door)?;
    let space = gpu.address_space()?;
    let subcontext = gpu.tsg()?.subcontext(&space)?;
    subcontext.channel(gpu.characteristics().compute_class()).open()?;
    Ok(())
}
