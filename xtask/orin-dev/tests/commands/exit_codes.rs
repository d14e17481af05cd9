//! The exit codes of every command of `orin-dev`, what happens if standard output cannot be written, and Ctrl-C.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::time::Duration;

use orin_cli::ExitStatus::{Failure, Success, Usage};
use orin_cli::testing::Program;
use rustix::process::Signal;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn program(folder: &Path) -> Program {
    Program::new(env!("CARGO_BIN_EXE_orin-dev"), folder).env("NVGPU_LIBCUDA", "/no/such/libcuda.so.1")
}

#[test]
fn every_command_has_the_exit_codes_of_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
    file("quiet.log", b"[    1.000000] nothing of interest\n");
    file("board.log", b"[   0.111]   as_fd=6, veid=1\n[   0.112] took 1.1ms\n");
    file("ours.log", b"[   0.007]   as_fd=9, veid=1\n[   0.008] took 0.2ms\n");
    // Outside of the workspace, where most commands for developers refuse to work.
    program(folder.path()).check_all(&[
        (&["test-device", "--list"], Success),
        (&["test-device", "--list", "--json"], Success),
        (&["test-device", "--device", "sim", "--filter", "ioctl/alloc_as"], Success),
        (&["test-device", "--device", "sim", "--filter", "ioctl/alloc_as", "--json"], Success),
        (&["test-device", "--device", "sim", "--duration", "1s"], Usage),
        (&["test-device", "--device", "sim", "--suite", "hcq", "--duration", "1s"], Usage),
        (&["test-device", "--device", "sim", "--seed", "-1"], Usage),
        (&["bench", "--list"], Success),
        (&["bench", "--device", "sim", "--quick", "--filter", "launch/submit"], Success),
        (&["bench", "--device", "sim", "--quick", "--filter", "launch/submit", "--json", "-"], Success),
        (&["bench", "--device", "sim", "--filter", "launch/submit", "--json", "no/such/folder/x"], Usage),
        (&["compare-board", "board.log", "--with", "ours.log"], Success),
        (&["compare-board", "board.log", "--with", "quiet.log"], Failure),
        (&["compare-board", "absent.log", "--with", "ours.log"], Usage),
        (&["compare-board", "board.log"], Usage),
        (&["check-headers", "--l4t", "absent"], Usage),
        (&["kernels", "--check"], Usage),
        (&["coverage", "--no-such"], Usage),
        (&["silicon", "export", "exported"], Success),
        (&["silicon", "import", "exported"], Usage),
        (&["silicon", "compare", "exported"], Failure),
        (&["silicon", "table", "--check"], Usage),
        (&["vendor-tools", "export", "exported"], Usage),
        (&["vendor-tools", "import", "exported"], Usage),
        (&["dist", "--target", "x86_64-unknown-linux-gnu", "--out", "out"], Usage),
        (&["install-library", "--prefix", "prefix"], Usage),
        (&["wheel", "--out", "wheels"], Usage),
    ]);
    // Inside of it.
    let inside = program(&Path::new(HERE).join("../.."));
    inside.check(&["kernels", "--check"], Success);
}

#[test]
fn an_option_without_effect_is_refused_with_the_reason() {
    let output =
        program(Path::new(".")).command(&["test-device", "--suite", "hcq", "--duration", "1s"]).output();
    let text = super::stderr(&output.unwrap());
    assert!(
        text.contains("--duration: no selected suite runs for a given time") && text.contains("soak"),
        "{text}"
    );
}

#[test]
fn reports_replace_only_regular_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("run.json"), "old").unwrap();
    symlink("run.json", path("link")).unwrap();
    let quick = ["bench", "--device", "sim", "--quick", "--filter", "launch/submit", "--json", "link"];
    program(folder.path()).check(&quick, Success);
    assert!(
        path("link").is_symlink() && fs::read_to_string(path("run.json")).unwrap().contains("launch/submit")
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no unfinished file is left");

    let full = ["bench", "--device", "sim", "--quick", "--filter", "launch/submit", "--json", "/dev/full"];
    let output = program(folder.path()).command(&full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(super::stderr(&output), "error: writing /dev/full: No space left on device (os error 28)\n");
    assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
}

#[test]
fn an_interrupted_benchmark_reports_what_it_measured() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["bench", "--device", "sim", "--filter", "launch/", "--json", "run.json"];
    for signal in [Signal::INT, Signal::TERM] {
        let output = program(folder.path()).interrupt(&arguments, signal, Duration::from_millis(300));
        assert_eq!(output.status.code(), Some(130), "{}", super::stderr(&output));
        let text = super::stdout(&output);
        assert!(text.contains("incomplete: interrupted after "), "{text}");
        let json = fs::read_to_string(folder.path().join("run.json")).unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(text.contains(value["incomplete"].as_str().unwrap()), "{json}");
    }
}

#[test]
fn an_interrupted_soak_reports_its_seed() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "test-device",
        "--device",
        "sim",
        "--suite",
        "soak",
        "--duration",
        "1h",
        "--seed",
        "77",
        "--junit",
        "r.xml",
    ];
    let output = program(folder.path()).interrupt(&arguments, Signal::INT, Duration::from_millis(500));
    let text = super::stdout(&output);
    assert_eq!(output.status.code(), Some(130), "{text}{}", super::stderr(&output));
    assert!(
        text.contains("SKIPPED") && text.contains("interrupted after ") && text.contains("; seed 77"),
        "{text}"
    );
    assert!(text.contains("interrupted: 0 passed, 0 failed, 1 skipped"), "{text}");
    let junit = fs::read_to_string(folder.path().join("r.xml")).unwrap();
    assert!(junit.contains("; seed 77"), "{junit}");
}

#[test]
fn an_interrupted_test_run_reports_what_ran() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["test-device", "--device", "sim", "--suite", "ioctl", "--suite", "stress", "--junit", "r.xml"];
    let output = program(folder.path()).interrupt(&arguments, Signal::TERM, Duration::from_millis(100));
    let text = super::stdout(&output);
    assert_eq!(output.status.code(), Some(130), "{text}{}", super::stderr(&output));
    assert!(text.contains("not run: interrupted") && text.contains(" 0 failed, "), "{text}");
    assert!(fs::read_to_string(folder.path().join("r.xml")).unwrap().contains("not run: interrupted"));
}
