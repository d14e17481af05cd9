//! The library as C programs use it, over `libcuda.so.1` and the software Orin.

use std::path::{Path, PathBuf};
use std::process::Command;

mod sweep;
mod table;

/// A library as cargo has built it for this test.
fn built(name: &str) -> PathBuf {
    std::env::current_exe().expect("a test knows its path").with_file_name(name)
}

/// A folder with both libraries under the names that programs look for.
fn libraries() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("there is a place for files");
    for (library, name) in [
        ("libcuda.so", "libcuda.so.1"),
        ("libcudart.so", "libcudart.so.12"),
        ("libcudart.so", "libcudart.so.13"),
    ] {
        std::os::unix::fs::symlink(built(library), folder.path().join(name)).expect("the folder is new");
    }
    folder
}

/// Runs a command with the libraries and the software Orin. Returns what it printed.
fn run(command: &mut Command, libraries: &Path) -> String {
    let output = command
        .env("LD_LIBRARY_PATH", libraries)
        .env("ORIN_CUDA_DEVICE", "sim")
        .output()
        .expect("the program starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

/// Runs the client with the library of a version.
fn client(version: &str) {
    let libraries = libraries();
    let program = libraries.path().join("client");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
    let mut compile = Command::new(compiler);
    compile.args(flags).arg(&program).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client.c"));
    compile.arg(libraries.path().join(format!("libcudart.so.{version}")));
    run(&mut compile, libraries.path());
    let cubin = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/globals.cubin");
    let managed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/managed.cubin");
    let printed = run(Command::new(program).args([cubin, version, managed]), libraries.path());
    assert!(printed.starts_with("right\n"), "{printed}");
    assert_eq!(printed.matches("cudaLogsCurrent is not supported (log callbacks)").count(), 1);
}

#[test]
fn a_program_of_cuda_12_runs() {
    client("12");
}

#[test]
fn a_program_of_cuda_13_runs() {
    client("13");
}
