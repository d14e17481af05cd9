//! The example programs as a user runs them: output, files, exit codes, invalid input.

use std::path::Path;
use std::process::{Command, Output};

/// An example program.
fn example(name: &str) -> Command {
    orin_cli::testing::example(name, Path::new(".")).command(&[])
}

fn run(name: &str, arguments: &[&str]) -> Output {
    example(name).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn vector_add_reports_its_run() {
    let output = run("vector_add", &["--n", "10000", "--device", "sim"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in [
        "software Orin",
        "ga10b",
        "0xc7c0",
        "0xc7b5",
        "SMs         16",
        "vector_add",
        "10000",
        "submit",
        "completion",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_program_is_profiled_and_traced() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let options = ["--device", "sim", "--json", "--profile", "--trace", trace.to_str().unwrap()];
    let output = run("vector_add", &[&["--n", "777"], &options[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("vector_add") && stderr(&output).contains("p99"), "{}", stderr(&output));
    serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap();
    let text = std::fs::read_to_string(&trace).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let process = events.iter().find(|event| event["name"] == "process_name").unwrap();
    assert_eq!(process["args"]["name"], "vector_add");
    assert!(events.iter().any(|event| event["cat"] == "gpu"), "{text}");
    // Each option alone.
    std::fs::remove_file(&trace).unwrap();
    let output = run("vector_add", &["--n", "777", "--device", "sim", "--profile"]);
    assert!(output.status.success() && stderr(&output).contains("vector_add"), "{}", stderr(&output));
    assert!(!trace.exists());
    let output = run("vector_add", &["--n", "777", "--device", "sim", "--trace", trace.to_str().unwrap()]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    assert!(value["traceEvents"].as_array().unwrap().iter().any(|event| event["cat"] == "gpu"), "{value}");
    let output = run("vector_add", &["--trace", "/no/such/folder/trace.json"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn frames_go_to_a_second_process_until_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let program = orin_cli::testing::example("share", folder.path());
    let line = ["both", "--device", "sim", "--frames", "1000000", "--period-us", "1000", "--wait", "--json"];
    let output =
        program.interrupt(&line, rustix::process::Signal::INT, std::time::Duration::from_millis(1500));
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let (producer, consumer) = (&report["producer"], &report["consumer"]);
    assert!(producer["frames"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(
        (&producer["frames"], consumer["dropped"].as_u64()),
        (&consumer["frames"], Some(0)),
        "{report}"
    );
    assert!(consumer["result_us"]["p50"].as_f64() >= consumer["received_us"]["p50"].as_f64(), "{report}");
}

#[test]
fn vector_add_in_json() {
    let output = run("vector_add", &["--n", "777", "--json"]);
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["elements"], 777);
    assert_eq!(report["wrong_elements"], 0);
    assert_eq!(report["compute_class"], 0xc7c0);
    assert!(report["submit_us"].as_f64().unwrap() > 0.0);
    assert!(report["completion_us"].as_f64() >= report["submit_us"].as_f64());
}

#[test]
fn vector_add_refuses_nonsense() {
    for arguments in [["--n", "0"], ["--n", "x"], ["--device", "cuda"], ["--what", "1"]] {
        let output = run("vector_add", &arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
