//! `cargo xtask test-device` as a program, on the software Orin: output, reports, exit codes.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use super::{orin_dev, stdout};

fn test_device(arguments: &[&str]) -> Output {
    orin_dev().arg("test-device").args(arguments).output().unwrap()
}

#[test]
fn a_passing_run_prints_each_test_and_a_table_and_writes_reports() {
    let folder = tempfile::tempdir().unwrap();
    let junit = folder.path().join("report.xml");
    let output =
        test_device(&["--device", "sim", "--filter", "ioctl/alloc_as", "--junit", junit.to_str().unwrap()]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("[1/1] ioctl/alloc_as") && text.contains("software Orin"), "{text}");
    assert!(text.contains("multiplied by 0.02"), "the factor is stated: {text}");
    assert!(text.contains("no test failed: 1 passed, 0 failed, 0 skipped"), "{text}");
    assert!(!text.contains('\x1b'), "no colours into a pipe");
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains("<testcase classname=\"ioctl\" name=\"alloc_as\""), "{junit}");
}

#[test]
fn json_is_the_only_output() {
    let output = test_device(&["--device", "sim", "--suite", "ioctl", "--filter", "release_to", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&value["summary"]["passed"], &value["kind"]), (&1.into(), &"sim".into()));
    let log = value["tests"][0]["kernel_log"].as_array().unwrap();
    assert!(log.iter().any(|line| line.as_str().unwrap().contains("[MMU FAULT]")), "{log:?}");

    let list: serde_json::Value = serde_json::from_str(&stdout(&test_device(&["--list", "--json"]))).unwrap();
    let provoking =
        list["tests"].as_array().unwrap().iter().find(|test| !test["provokes"].is_null()).unwrap();
    assert_eq!(provoking["provokes"], "MMU fault");
}

#[test]
fn a_load_test_runs_for_the_given_time_and_seed() {
    let arguments = ["--device", "sim", "--suite", "soak", "--duration", "2s", "--seed", "77"];
    let output = test_device(&arguments);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("seed 77") && text.contains("operations: churn"), "{text}");
    let faults = text.lines().find(|line| line.contains("faults reported/injected: ")).unwrap();
    assert!(faults.contains("MMU read") && faults.contains("lost doorbell"), "{faults}");
}

#[test]
fn suites_for_long_runs_are_listed_but_run_only_if_named() {
    let list = stdout(&test_device(&["--list"]));
    assert!(list.contains("soak/mixed_load_with_faults") && list.contains("only if named"), "{list}");
    let output = test_device(&["--device", "sim", "--filter", "mixed_load_with_faults"]);
    assert_eq!(output.status.code(), Some(2), "no suite of an ordinary run has such a test");
}

#[test]
fn wrong_requests_end_with_2_and_touch_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept.xml");
    fs::write(&kept, "old").unwrap();
    let kept = kept.to_str().unwrap();
    let mut cases = vec![
        (vec!["--suite", "none", "--junit", kept], "no suite none; the suites are: ioctl"),
        (vec!["--filter", "no such test"], "--list prints all tests"),
        (vec!["--scale", "0"], "above 0"),
        (vec!["--duration", "soon"], "such as 90s, 30min or 8h"),
        (vec!["--duration", "0s"], "such as"),
        (vec!["--seed", "one"], "--seed"),
        (vec!["--device", "toaster"], "toaster"),
        (vec!["--device", "sim", "--junit", "/no/such/folder/x"], "/no/such/folder/x"),
        (vec!["--device", "sim", "--junit", kept, "--html", "x"], "--html"),
    ];
    if !Path::new("/dev/nvgpu/igpu0/ctrl").exists() {
        cases.push((vec!["--device", "nvgpu"], "--device sim"));
    }
    for (arguments, words) in cases {
        let output = test_device(&arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(fs::read_to_string(kept).unwrap(), "old");
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let mut child = orin_dev()
        .args(["test-device", "--list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
}
