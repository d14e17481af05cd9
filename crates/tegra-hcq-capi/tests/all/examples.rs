//! The examples in C, built as their users build them and run on the software Orin.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The shared library of this build, next to the test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    test.with_file_name("libtegra_hcq_capi.so")
}

/// A C compiler for the machine that this test is built for, which an emulator may run.
fn compiler() -> std::ffi::OsString {
    let cross = format!("{}-linux-gnu-gcc", std::env::consts::ARCH);
    let starts = |name: &str| Command::new(name).arg("--version").output().is_ok();
    let chosen = std::env::var_os("CC");
    chosen.unwrap_or_else(|| if starts(&cross) { cross.into() } else { "cc".into() })
}

/// Builds an example in a folder, with all warnings as errors, and runs it there.
fn run(folder: &Path, name: &str, arguments: &[&str]) -> Output {
    let soname = folder.join("libtegra_hcq.so.1");
    if !soname.exists() {
        std::os::unix::fs::symlink(library(), &soname).expect("a link");
    }
    let program = folder.join(name);
    let built = Command::new(compiler())
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(root().join("examples/c").join(format!("{name}.c")))
        .arg("-o")
        .arg(&program)
        .arg(&soname)
        .arg("-lm")
        .output()
        .expect("a C compiler starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new(&program);
    command.args(arguments).current_dir(root()).env("LD_LIBRARY_PATH", folder);
    command.output().expect("the example starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_vectors_are_added() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = run(folder.path(), "vector_add", &["kernels/vector_add.cubin", "sim", "1000"]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    assert!(text(&good.stdout).contains("1000 elements, 0 wrong"), "{}", text(&good.stdout));
    for (arguments, part) in [
        (&["kernels/vector_add.cubin", "toaster"][..], "toaster"),
        (&["kernels/vector_add.cubin", "sim", "-5"], "from 1 to"),
        (&["kernels/vector_add.cubin", "sim", "1x"], "from 1 to"),
        (&["kernels/vector_add.cu", "sim"], "not a cubin"),
        (&["kernels/saxpy.cubin", "sim"], "saxpy"),
        (&["missing.cubin"], "cannot be read"),
        (&[], "usage"),
    ] {
        let bad = run(folder.path(), "vector_add", arguments);
        assert_eq!(bad.status.code(), Some(2), "{arguments:?}: {}", text(&bad.stderr));
        assert!(text(&bad.stderr).contains(part), "{arguments:?}: {}", text(&bad.stderr));
    }
}

#[test]
fn the_loop_computes_what_the_cpu_computes() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = run(folder.path(), "control_loop", &["kernels/nn_linear.cubin", "sim", "5"]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    assert!(text(&good.stdout).contains("cycles       5"), "{}", text(&good.stdout));
}

#[test]
fn the_matrices_are_multiplied() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = run(folder.path(), "matmul", &["sim", "50"]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    assert!(text(&good.stdout).contains("50 x 24 x 40, largest error"), "{}", text(&good.stdout));
    assert_eq!(run(folder.path(), "matmul", &["sim", "0"]).status.code(), Some(2));
}

/// Programs that were linked with another ABI must not start with this library.
#[test]
fn the_library_has_the_name_of_its_abi() {
    let content = std::fs::read(library()).expect("the library");
    let soname = format!("libtegra_hcq.so.{}\0", tegra_hcq_capi::TEGRA_HCQ_ABI);
    assert!(
        content.windows(soname.len()).any(|part| part == soname.as_bytes()),
        "no {soname:?} in the library"
    );
}
