//! The program as installed on a board: without cargo, outside the workspace; and invalid uses of `dist`. No test
//! builds a whole pack, since that takes a release build.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use super::orin_dev;

/// The program, to be run in a folder outside the workspace with an empty environment.
fn alone(folder: &Path) -> Command {
    let mut command = orin_dev();
    command.current_dir(folder).env_clear();
    // An emulator's path to the C library does not concern the program.
    command.envs(std::env::var_os("QEMU_LD_PREFIX").map(|prefix| ("QEMU_LD_PREFIX", prefix)));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn it_works_without_cargo_and_workspace() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| alone(folder.path()).args(arguments).output().unwrap();

    let tests = run(&["test-device", "--device", "sim", "--filter", "ioctl/alloc_as"]);
    assert!(text(&tests.stdout).contains("1 passed, 0 failed"), "{}", text(&tests.stdout));

    let help = text(&run(&["--help"]).stdout);
    assert!(help.contains("Usage: orin-dev <COMMAND>"), "{help}");
}

#[test]
fn commands_that_need_the_workspace_report_that() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let dist = ["dist", "--target", "x86_64-unknown-linux-gnu", "--out", out.to_str().unwrap()];
    for arguments in [&["kernels", "--check"][..], &dist] {
        let output = alone(folder.path()).args(arguments).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains("needs cargo and the project's sources"), "{arguments:?}: {error}");
    }
    // With cargo, but in the folder of another project.
    let output = orin_dev().args(["kernels", "--check"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(!out.exists(), "nothing was written");
}

/// `dist` in the workspace, with a variable set.
fn dist(target: &str, out: &Path, variable: (&str, &str)) -> Output {
    orin_dev()
        .args(["dist", "--target", target, "--out"])
        .arg(out)
        .env(variable.0, variable.1)
        .output()
        .unwrap()
}

#[test]
fn invalid_uses_fail_before_the_build() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |output: Output, parts: &[&str]| {
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    };
    let arm64 = "aarch64-unknown-linux-gnu";
    refused(dist("riscv64", folder.path(), ("X", "")), &["riscv64", arm64]);
    // A compiler without any target.
    refused(dist(arm64, folder.path(), ("RUSTC", "true")), &["rustup target add aarch64-unknown-linux-gnu"]);
    let host = if cfg!(target_arch = "aarch64") { arm64 } else { "x86_64-unknown-linux-gnu" };
    let variable = format!("CARGO_TARGET_{}_LINKER", host.to_uppercase().replace('-', "_"));
    refused(dist(host, folder.path(), (&variable, "/nowhere/gcc")), &[&variable, "/nowhere/gcc"]);
    fs::write(folder.path().join("precious"), "x").unwrap();
    refused(dist(host, folder.path(), ("X", "")), &["not empty", "--force"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was written");
}

/// Nothing is printed or built for a place that cannot be written, or for a library that is not built.
#[test]
fn libraries_are_refused_before_anything_is_built() {
    for (line, words) in [
        (
            &["install-library", "--prefix", "/proc/x"][..],
            "/proc/x cannot be written: folders cannot be created in /proc",
        ),
        (
            &["install-library", "--prefix", "/dev/null/x"],
            "/dev/null/x cannot be written: /dev/null is not a folder",
        ),
        (
            &["install-library", "--prefix", "x", "--target", "x86_64-unknown-linux-musl"],
            "a library for musl is not installed: give x86_64-unknown-linux-gnu",
        ),
    ] {
        let output = orin_dev().args(line).output().unwrap();
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(words), "{line:?}: {error}");
        assert_eq!(text(&output.stdout), "", "{line:?}");
    }
    assert!(!Path::new("x").exists());
}

#[test]
fn a_wheel_without_python_fails_before_the_build() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("wheels");
    let python = folder.path().join("python3");
    fs::write(&python, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&others));
    let path = std::env::join_paths(paths).unwrap();
    let output = orin_dev().args(["wheel", "--out"]).arg(&out).env("PATH", path).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("`python3 -m pip` does not start"), "{error}");
    assert!(!out.exists(), "nothing was written");
}
