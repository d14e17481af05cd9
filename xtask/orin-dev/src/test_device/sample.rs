//! A report with every kind of outcome, for the tests of the writers.

use std::time::{Duration, SystemTime};

use gpu_log::{Record, check};
use tegra_hcq::DeviceKind;
use test_harness::Outcome;
use test_harness::report::{RunReport, TestReport};

/// One passed, one failed with everything that needs escaping, one skipped test of another suite.
pub(super) fn report() -> RunReport {
    let test = |suite, name, outcome, millis| TestReport {
        suite,
        name,
        about: "what <it> proves & \"how\"",
        outcome,
        elapsed: Duration::from_millis(millis),
        notes: vec!["token 511".to_owned()],
        events: Vec::new(),
    };
    let mut failed = test(
        "one",
        "fails",
        Outcome::Failed("left < right && \"a\" != 'b' ]]> \u{1b}[31m\u{0}".to_owned()),
        20,
    );
    failed.events = check([Record::from_text("nvgpu: x [ERR]  sked exception: esr 0x1 <&>")]);
    RunReport {
        device: "software Orin: ga10b".to_owned(),
        kind: DeviceKind::Sim,
        scale: 0.02,
        started: SystemTime::UNIX_EPOCH + Duration::from_secs(1_770_000_000),
        elapsed: Duration::from_millis(1234),
        tests: vec![
            test("one", "passes", Outcome::Passed, 10),
            failed,
            test("two", "skips", Outcome::Skipped("no camera".to_owned()), 0),
        ],
        log_unavailable: Some("the kernel log is not checked".to_owned()),
        stopped: None,
        interrupted: false,
    }
}
