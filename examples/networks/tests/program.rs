//! The example `control_loop` as a user runs it: output, exit codes, invalid input, Ctrl-C.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use orin_cli::ExitStatus::{Success, Usage};
use orin_cli::testing::{Program, example};
use rustix::process::Signal;

fn program() -> Program {
    example("control_loop", Path::new("."))
}

fn run(arguments: &[&str]) -> Output {
    program().command(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn exit_codes() {
    program().check_all(&[
        (&["--device", "sim", "--iterations", "10"], Success),
        (&["--device", "sim", "--iterations", "10", "--json"], Success),
        (&["--device", "sim", "--iterations", "-1"], Usage),
    ]);
    let output = run(&["--iterations", "99999999999999999999"]);
    let text = stderr(&output);
    assert!(
        output.status.code() == Some(2) && text.contains("is out of range: give 1 to 1099511627776"),
        "{text}"
    );
}

#[test]
fn the_graph_is_profiled_and_traced() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let output = run(&[
        &["--device", "sim", "--json", "--iterations", "20", "--check-every", "10"],
        &["--profile", "--trace", trace.to_str().unwrap()][..],
    ]
    .concat());
    let text = stderr(&output);
    assert!(output.status.success() && text.contains("graph of ") && text.contains("p99"), "{text}");
    serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let process = events.iter().find(|event| event["name"] == "process_name").unwrap();
    assert_eq!(process["args"]["name"], "control_loop");
    assert!(events.iter().any(|event| event["cat"] == "gpu"), "{value}");
}

#[test]
fn control_loop_reports_its_measurements() {
    let output = run(&["--iterations", "60", "--device", "sim", "--check-every", "25"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in [
        "software Orin",
        "18692 parameters",
        "12 > 128 > 128 > 4",
        "cycles      60",
        "as fast as possible",
        "p50",
        "p99.9",
        "max",
        "jitter",
        "each of 3 times",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(stderr(&output), "", "progress is printed on terminals only");
}

#[test]
fn control_loop_in_json() {
    let output = run(&["--iterations", "40", "--rate", "50", "--seed", "7", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["parameters"], 18_692);
    assert_eq!(report["iterations"], 40);
    assert_eq!(report["rate_wanted_hz"], 50);
    assert_eq!(report["checks"], 1);
    assert!(report["largest_difference"].as_f64().unwrap() <= 1e-4);
    assert!(report["rate_hz"].as_f64().unwrap() < 52.0);
    let cycle = |name: &str| report["cycle_us"][name].as_f64().unwrap();
    assert!(0.0 < cycle("p50") && cycle("p50") <= cycle("p99") && cycle("p99_9") <= cycle("max"));
}

#[test]
fn control_loop_refuses_nonsense() {
    for arguments in
        [["--iterations", "0"], ["--rate", "49"], ["--rate", "-1"], ["--check-every", "0"], ["--device", "x"]]
    {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty());
    }
}

#[test]
fn an_interrupted_control_loop_prints_the_statistics_so_far() {
    let program = program();
    for signal in [Signal::INT, Signal::TERM] {
        let arguments = ["--device", "sim", "--iterations", "1000000"];
        let output = program.interrupt(&arguments, signal, Duration::from_millis(500));
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(output.status.code(), Some(130), "{text}{}", stderr(&output));
        assert!(text.contains("interrupted before 1000000") && text.contains("jitter"), "{text}");
    }
    let arguments = ["--device", "sim", "--iterations", "1000000", "--rate", "50", "--json"];
    let output = program.interrupt(&arguments, Signal::INT, Duration::from_millis(100));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["interrupted"], true);
}
