//! `orin dmesg` as a program: files, standard input, exit codes.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Log of a board after a bad launch descriptor, with a line of another driver.
const FAULT: &str = "\
[  301.100000] usb 1-2: new high-speed USB device
[  302.200000] nvgpu: 17000000.gpu gm20b_gr_intr_check_gr_sked_exception:78   [ERR]  sked exception: esr 0x01000000
[  302.200100] nvgpu: 17000000.gpu nvgpu_set_err_notifier_locked:143  [ERR]  error notifier set to 13 for ch 511 \
owned by a
";

fn dmesg(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orin")).arg("dmesg").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_saved_log_with_an_error_ends_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.log");
    fs::write(&path, FAULT).unwrap();
    let path = path.to_str().unwrap();
    let output = dmesg(&["--file", path]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("launch descriptor refused, 2 lines") && text.contains("what to do:"), "{text}");
    assert!(!text.contains("usb") && !text.contains('\x1b'), "no colours into a pipe: {text}");

    let later = dmesg(&["--file", path, "--since", "303"]);
    assert_eq!((later.status.code(), later.stderr.as_slice()), (Some(0), &b""[..]));
    let json: serde_json::Value = serde_json::from_str(&stdout(&dmesg(&["--file", path, "--json"]))).unwrap();
    assert_eq!((&json["messages"], &json["summary"]["error"]), (&3.into(), &1.into()));
    assert_eq!(json["reports"][0]["events"][0], "launch descriptor refused");
}

#[test]
fn the_last_reports_are_shown_and_a_dash_reads_standard_input() {
    let log = format!("{FAULT}[  400.0] PID 3: a: WARNING: All NvMap Allocations must have a tag\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_orin"))
        .args(["dmesg", "--file", "-", "--count", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "only shown lines count: {text}");
    assert!(text.contains("harmless:") && !text.contains("sked"), "{text}");
}

#[test]
fn wrong_requests_end_with_2() {
    for (arguments, words) in [
        (&["--file", "/no/such/log"][..], "/no/such/log"),
        (&["--since", "whenever"], "10min ago"),
        (&["saved.log"], "give a saved log with its option: --file saved.log"),
        (&["--count=-1"], "--count"),
        (&["--watch", "--file", "-"], "cannot be used with"),
        (&["--table", "--json"], "cannot be used with"),
    ] {
        let output = dmesg(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn the_table_is_printed_as_markdown() {
    let output = dmesg(&["--table"]);
    assert!(output.status.success());
    assert!(stdout(&output).contains("| `sked exception: esr` | error | launch descriptor refused |"));
}
