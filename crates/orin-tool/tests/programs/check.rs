//! `orin check`: what it passes to a program, what it collects, and its exit code.

use std::fs;
use std::process::{Command, Output, Stdio};

const ORIN: &str = env!("CARGO_BIN_EXE_orin");

fn check(options: &[&str], program: &[&str]) -> Output {
    let mut command = Command::new(ORIN);
    command.arg("check").args(options).arg("--").args(program).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program that reports a finding as a software Orin of its own does.
const REPORTS: &str = r#"
test "$ORIN_SIM_CHECK,$ORIN_SIM_CHECK_EXIT" = "memcheck,leakcheck,0" || exit 9
echo '{"tool":"leakcheck","kind":"leak","count":1,"message":"kept (100 bytes) is alive"}' >> "$ORIN_SIM_CHECK_REPORT"
exit 0"#;

#[test]
fn findings_of_a_program_are_collected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.sarif");
    let options = ["--no-serve", "--tool", "memcheck,leakcheck", "--json", "--sarif", file.to_str().unwrap()];
    let output = check(&options, &["sh", "-c", REPORTS]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["findings"][0]["kind"], "leak");
    let sarif: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "leak");
    let output = check(&["--no-serve", "--tool", "memcheck,leakcheck"], &["sh", "-c", REPORTS]);
    assert!(text(&output.stderr).contains("leakcheck: leak: kept (100 bytes) is alive\n1 finding"));
}

#[test]
fn without_findings_the_exit_code_is_that_of_the_program() {
    assert_eq!(check(&["--no-serve"], &["sh", "-c", "exit 7"]).status.code(), Some(7));
}

#[test]
fn a_program_with_its_own_software_orin_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("r.tar.gz");
    let line = [ORIN, "bring-up", "--device", "sim", "--report", report.to_str().unwrap()];
    let output = check(&["--no-serve"], &line);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_served_program_without_errors_has_no_findings() {
    if !crate::serve::can_serve() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("r.tar.gz");
    let line = [ORIN, "bring-up", "--device", "nvgpu", "--until", "7", "--report", report.to_str().unwrap()];
    let output = check(&[], &line);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
}
