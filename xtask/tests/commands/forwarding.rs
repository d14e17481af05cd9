//! Exit codes, and the commands of other programs.

use std::path::Path;

use orin_cli::ExitStatus::{Success, Usage};
use orin_cli::testing::Program;

fn program(folder: &Path) -> Program {
    Program::new(env!("CARGO_BIN_EXE_xtask"), folder)
}

#[test]
fn every_command_has_the_exit_codes_of_the_table() {
    let folder = tempfile::tempdir().unwrap();
    // Outside of the workspace, where those that read its sources refuse to work.
    program(folder.path()).check_all(&[
        (&["gen-classes", "--check"], Usage),
        (&["import-graph"], Usage),
        (&["check-source"], Usage),
        (&["site"], Usage),
        (&["ci"], Usage),
        (&["ci", "no-such-group"], Usage),
        (&["completions"], Success),
        (&["completions", "fish"], Usage),
        (&["no-such-command"], Usage),
    ]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    program(&root).check(&["gen-classes", "--check"], Success);
}

#[test]
fn commands_of_other_programs_are_passed_on_with_their_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls");
    let cargo = folder.path().join("cargo");
    let script = format!("#!/bin/sh\nprintf '<%s>' \"$@\" > {}\nexit 7\n", log.display());
    std::fs::write(&cargo, script).unwrap();
    std::fs::set_permissions(&cargo, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (command, package) in [("bench", "orin-dev"), ("test-device", "orin-dev"), ("doctor", "orin-tool")] {
        let mut xtask = program(folder.path()).command(&[command, "--help", "a b"]);
        let status = xtask.env("CARGO", &cargo).status().unwrap();
        assert_eq!(status.code(), Some(7), "the exit code of the other program");
        let called = std::fs::read_to_string(&log).unwrap();
        assert_eq!(called, format!("<run><--quiet><--package><{package}><--><{command}><--help><a b>"));
    }
    let other = program(folder.path()).command(&["llm", "info"]).output().unwrap();
    let reason = String::from_utf8(other.stderr).unwrap();
    assert!(
        reason.contains("`llm` is a command of orin: cargo run --release -p orin-tool -- llm"),
        "{reason}"
    );
    let help = program(folder.path()).command(&["--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for name in ["bench", "test-device", "doctor", "check-source"] {
        assert!(help.contains(name), "{help}");
    }
}
