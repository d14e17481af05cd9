#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tegra_hcq::{Program, args};

use super::report::{Counts, RunReport};
use super::runner::{Plan, Progress, run};
use super::*;

fn passes(context: &Context) -> Check {
    context.note(format!("scaled {:?}", context.scaled(Duration::from_secs(100))));
    assert!(context.is_model() && context.rounds(10_000, 10) == 200 && context.rounds(5, 10) == 5);
    Ok(())
}

fn fails(_: &Context) -> Check {
    let io = std::io::Error::other("inner");
    Err(Box::new(io))
}

fn skips(_: &Context) -> Check {
    Err(Skip("no camera".to_owned()).into())
}

fn hangs(_: &Context) -> Check {
    loop {
        std::thread::park();
    }
}

/// Runs a kernel that reads outside all buffers.
fn faults(context: &Context) -> Check {
    let device = context.device()?;
    let program = Program::load(device, &test_support::cubin("faults"))?;
    let out = device.alloc::<u32>(1)?;
    let mut queue = device.queue()?;
    unsafe { queue.launch(&program.kernel("fault_read")?, 1, 1, &args![0x12_3456_7000_u64, &out]) }?;
    let error = queue.wait(context.patience(Duration::from_secs(5))).unwrap_err();
    assert!(error.to_string().contains("0x1234567000"), "{error}");
    Ok(())
}

/// Address of the door of the first sharing test.
static DOOR: AtomicUsize = AtomicUsize::new(0);

fn door(context: &Context) -> usize {
    Arc::as_ptr(context.door()).addr()
}

fn first(context: &Context) -> Check {
    DOOR.store(door(context), Ordering::Relaxed);
    context.device()?;
    Ok(())
}

fn second(context: &Context) -> Check {
    assert_eq!(door(context), DOOR.load(Ordering::Relaxed), "the same device");
    Ok(())
}

fn third(context: &Context) -> Check {
    assert_ne!(door(context), DOOR.load(Ordering::Relaxed), "its own device");
    Ok(())
}

const LOG: fn(&Context) -> Outcome = |context| faults(context).into();

static SUITE: Suite = Suite {
    name: "trial",
    about: "every way to end",
    orin_only: false,
    tests: &[
        Test::new("passes", "", |context| passes(context).into()),
        Test::new("fails", "", |context| fails(context).into()),
        Test::new("panics", "", |_| panic!("value {}", 5)),
        Test::new("skips", "", |context| skips(context).into()),
        Test::new("hangs", "", |context| hangs(context).into()).limited_to(Duration::from_millis(50)),
        Test::new("unexpected", "", LOG),
        Test::new("expected", "", LOG).expecting(Kind::Mmu),
        Test::new("other", "", LOG).expecting(Kind::Hang),
        Test::new("missing", "", |context| passes(context).into()).expecting(Kind::Mmu),
        Test::new("sharing-1", "", |context| first(context).into()).sharing_device(),
        Test::new("sharing-2", "", |context| second(context).into()).sharing_device(),
        Test::new("alone", "", |context| third(context).into()),
    ],
};

static OTHER: Suite = Suite {
    name: "other",
    about: "one test",
    orin_only: false,
    tests: &[Test::new("passes", "", |context| passes(context).into())],
};

fn run_filtered(filter: &str) -> RunReport {
    let plan = Plan::new(&[&SUITE, &OTHER], &[], Some(filter)).unwrap();
    run(&plan, Machine::software(), &mut |_| ())
}

/// The failure message of the only test whose name contains `filter`.
fn failure(filter: &str) -> String {
    let report = run_filtered(filter);
    assert_eq!(report.tests.len(), 1, "{filter}");
    let text = report.failures().next().map(|(_, text)| text.to_owned());
    text.unwrap_or_else(|| panic!("{filter}: {:?}", report.tests[0].outcome))
}

#[test]
fn each_outcome_is_reported() {
    let passed = run_filtered("trial/passes");
    assert_eq!(passed.tests[0].outcome, Outcome::Passed);
    assert_eq!(passed.tests[0].notes, ["scaled 2s"]);
    assert_eq!(failure("trial/fails"), "inner");
    assert!(failure("trial/panics").starts_with("value 5 ("));
    assert_eq!(run_filtered("trial/skips").tests[0].outcome, Outcome::Skipped("no camera".to_owned()));
}

#[test]
fn a_test_over_its_limit_fails_and_the_run_goes_on() {
    let plan = Plan::new(&[&SUITE, &OTHER], &[], Some("s")).unwrap();
    let hanging = plan.tests().iter().position(|(_, test)| test.name == "hangs").unwrap();
    let report = run(&plan, Machine::software(), &mut |_| ());
    let Outcome::Failed(text) = &report.tests[hanging].outcome else { panic!("{:?}", report.tests[hanging]) };
    assert_eq!(text, "not done within its limit of 50ms");
    assert_eq!(report.tests.last().unwrap().outcome, Outcome::Passed);
    assert_eq!((report.tests.last().unwrap().suite, report.stopped), ("other", None));
}

/// After a test that does not end, a board must show that it still comes up.
#[test]
fn a_run_ends_early_where_no_further_test_could_pass() {
    let plan = Plan::new(&[&SUITE], &[], Some("s")).unwrap();
    let hanging = plan.tests().iter().position(|(_, test)| test.name == "hangs").unwrap();
    let plan = Plan(plan.tests()[hanging..=hanging + 1].to_vec());
    let report = run(&plan, Machine::board(), &mut |_| ());
    assert!(matches!(report.tests[0].outcome, Outcome::Failed(_)), "{:?}", report.tests[0]);
    if Machine::choose(tegra_hcq::DeviceKind::Nvgpu).is_ok() {
        assert_eq!(report.stopped, None, "a board comes up again");
        return;
    }
    // Without a board, nothing comes up.
    let stopped = report.stopped.unwrap();
    assert!(stopped.starts_with("after trial/hangs the GPU does not come up: "), "{stopped}");
    assert_eq!(report.tests[1].outcome, Outcome::Skipped(format!("not run: {stopped}")));
}

#[test]
fn the_log_decides_too() {
    let text = failure("unexpected");
    assert!(text.starts_with("the kernel log has an error: MMU fault:"), "{text}");
    let good = run_filtered("trial/expected");
    assert_eq!(good.tests[0].outcome, Outcome::Passed);
    assert_eq!(good.tests[0].events.len(), 1);
    assert_eq!(failure("missing"), "the kernel log has no MMU fault, which the test was to provoke");
    let text = failure("trial/other");
    assert!(text.contains("beside the expected hang") && text.contains("MMU fault"), "{text}");
}

/// Keeps writing error lines after its end.
fn talks(context: &Context) -> Check {
    let door = Arc::clone(context.door());
    std::thread::spawn(move || {
        let end = std::time::Instant::now() + Duration::from_millis(1500);
        while std::time::Instant::now() < end {
            // The model says in its log that it lacks the node.
            let _ = door.open(c"/dev/nvgpu/igpu0/dbg", kernel_door::OpenFlags::READ_WRITE);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    Ok(())
}

static NOISE: Suite = Suite {
    name: "noise",
    about: "lines that arrive late",
    orin_only: false,
    tests: &[
        Test::new("talks", "", |context| talks(context).into()).sharing_device().allowing(&[Kind::Refused]),
        Test::new("next", "", |_| Outcome::Passed).sharing_device(),
        Test::new("last", "", |_| Outcome::Passed).sharing_device(),
        Test::new("observed", "", |context| fails(context).into()).observed_on_a_board(),
    ],
};

#[test]
fn late_lines_are_not_blamed_on_the_next_test() {
    let plan = Plan::new(&[&NOISE], &[], Some("noise")).unwrap();
    let pace = |limit| log::Pace { quiet: Duration::from_millis(200), limit: Duration::from_millis(limit) };
    let outcomes = |report: &RunReport| report.tests.iter().map(|t| t.outcome.clone()).collect::<Vec<_>>();
    // The wait ends before the lines do.
    let report = run(&plan, Machine::software().with_pace(pace(20)), &mut |_| ());
    let failed = Outcome::Failed("inner".to_owned());
    assert_eq!(outcomes(&report)[..2], [Outcome::Passed, Outcome::Passed], "{:?}", report.tests);
    assert!(report.tests[1].notes[0].contains("not silent since noise/talks"), "{:?}", report.tests[1]);
    // It does not.
    let report = run(&plan, Machine::software().with_pace(pace(60_000)), &mut |_| ());
    let passed = Outcome::Passed;
    assert_eq!(outcomes(&report), [passed.clone(), passed.clone(), passed, failed]);
    assert!(report.tests[1].notes.is_empty() && report.tests[0].events.len() > 10, "{:?}", report.tests);
}

#[test]
fn a_board_runs_dangerous_tests_on_request() {
    let test = Test::new("dangerous", "", |_| Outcome::Passed).dangerous_on_a_board();
    let reason = Machine::board().leaves_out(&NOISE, &test);
    assert!(reason.is_some_and(|text| text.contains("--dangerous")), "{reason:?}");
    assert_eq!(Machine::board().with_dangerous().leaves_out(&NOISE, &test), None);
    assert_eq!(Machine::software().leaves_out(&NOISE, &test), None);
    assert_eq!(Machine::board().leaves_out(&NOISE, &NOISE.tests[0]), None);
}

#[test]
fn sharing_tests_have_one_device() {
    let plan = Plan::new(&[&SUITE], &[], None).unwrap();
    let report = run(&plan, Machine::software(), &mut |_| ());
    let last: Vec<_> = report.tests.iter().rev().take(3).map(|test| test.outcome.clone()).collect();
    assert_eq!(last, [Outcome::Passed, Outcome::Passed, Outcome::Passed]);
    assert_eq!(report.counts(), Counts { passed: 5, failed: 6, skipped: 1 });
}

#[test]
fn progress_is_reported_in_order() {
    let plan = Plan::new(&[&SUITE, &OTHER], &["other".to_owned()], None).unwrap();
    let mut seen = Vec::new();
    let report = run(&plan, Machine::software(), &mut |progress| {
        seen.push(match progress {
            Progress::Begins(number, total, suite, test) => {
                format!("{number}/{total} {} {}", suite.name, test.name)
            }
            Progress::Ended(number, total, report) => format!("{number}/{total} {:?}", report.outcome),
        });
    });
    assert_eq!(seen, ["1/1 other passes", "1/1 Passed"]);
    assert_eq!(report.counts(), Counts { passed: 1, failed: 0, skipped: 0 });
    assert_eq!((report.suites(), report.log_unavailable.as_deref()), (vec!["other"], None));
    assert!(report.device.contains("ga10b"), "{}", report.device);
}

#[test]
fn impossible_choices_are_refused() {
    let refused = |wanted: &[&str], filter| {
        let wanted: Vec<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
        Plan::new(&[&SUITE, &OTHER], &wanted, filter).unwrap_err()
    };
    assert_eq!(refused(&["none"], None), "no suite none; the suites are: trial, other");
    assert!(refused(&["other"], Some("trial")).contains("--list"));
    assert!(Machine::choose(tegra_hcq::DeviceKind::Sim).unwrap().is_model());
}
