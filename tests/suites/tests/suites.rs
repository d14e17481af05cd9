//! All suites on the software Orin, through the registry of `cargo xtask test-device`.

use std::process::Command;
use std::time::Duration;

use orin_sim::MmuOrder;
use orin_sim::check::CHECK_VARIABLE;
use parking_lot::Mutex;
use test_harness::runner::{Plan, run};
use test_harness::{Load, Machine};
use test_suites as suites;

/// Suites count process resources, so only one runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The suites whose kernels have no errors. They run under all checks of the software Orin, in a process that a finding
/// makes fail. Of the others, `jit` limits the growth of memory, and checks keep freed memory.
const CHECKED: [&str; 6] = ["ioctl", "hcq", "edge_cases", "submissions", "stress", "models"];

/// Runs one suite and fails with the list of failed tests.
fn passes(name: &str) {
    if !CHECKED.contains(&name) || std::env::var_os(CHECK_VARIABLE).is_some() {
        return passes_on(name, Machine::software());
    }
    let _turn = ONE_AT_A_TIME.lock();
    let mut process = Command::new(std::env::current_exe().unwrap());
    let output = process.args([name, "--exact"]).env(CHECK_VARIABLE, "all").output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(
        text[0].contains("1 passed") && output.status.success(),
        "{}: {}{}",
        output.status,
        text[0],
        text[1]
    );
}

fn passes_on(name: &str, machine: Machine) {
    let names = [name.to_owned()];
    let plan = Plan::new(&suites::for_names(&names), &names, None).unwrap();
    let _turn = ONE_AT_A_TIME.lock();
    let report = run(&plan, machine, &mut |_| ());
    let failed: Vec<_> =
        report.failures().map(|(test, text)| format!("{}/{}: {text}", test.suite, test.name)).collect();
    assert!(
        failed.is_empty(),
        "{} of {} tests failed:\n{}",
        failed.len(),
        report.tests.len(),
        failed.join("\n")
    );
    assert!(report.counts().passed > 0, "no test of {name} ran");
    assert_eq!(report.log_unavailable, None, "the model's log is always readable");
}

/// One `#[test]` for each suite.
macro_rules! suites {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                passes(stringify!($name));
            }
        )*

        #[test]
        fn every_suite_is_run() {
            let here = [$(stringify!($name)),*];
            let all: Vec<_> = suites::ALL.iter().map(|suite| suite.name).collect();
            assert_eq!(all, here, "add the suite to the list in this file");
        }
    };
}

suites! { ioctl, hcq, edge_cases, submissions, faults, device_calls, stress, models, silicon, jit, isolation }

/// Run directly, the roles of another process are ordinary tests.
#[test]
fn neighbour() {
    passes("neighbour");
}

/// A board may report a refused access as an exception of the SM first, and print the rest later.
#[test]
fn faults_that_the_sm_reports_first() {
    for late_lines in [Duration::ZERO, Duration::from_millis(20)] {
        passes_on("faults", Machine::software().with_reports(MmuOrder::SmFirst, late_lines));
    }
    passes_on("isolation", Machine::software().with_reports(MmuOrder::SmFirst, Duration::from_millis(5)));
}

/// Long runs use the command; this is a short one.
#[test]
fn soak() {
    let load = Load { duration: Some(Duration::from_secs(6)), ..Load::default() };
    passes_on("soak", Machine::software().with_load(load));
}

#[test]
fn names_are_unique_and_descriptive() {
    for suite in suites::ALL.into_iter().chain(suites::ON_REQUEST) {
        let mut names: Vec<_> = suite.tests.iter().map(|test| test.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), suite.tests.len(), "{}", suite.name);
        assert!(!suite.about.is_empty() && suite.tests.iter().all(|test| !test.about.is_empty()));
    }
}
