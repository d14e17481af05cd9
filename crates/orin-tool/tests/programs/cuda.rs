//! `orin cuda`: a program in C that knows nothing of this project, its findings, and what goes wrong before it starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const ORIN: &str = env!("CARGO_BIN_EXE_orin");
const CUBIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/vector_add.cubin");

/// The library, as cargo has built it for this test.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libcuda.so")
}

/// Builds the client, linked with the library.
fn client(folder: &Path) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/cuda_client.c");
    let program = folder.join("client");
    let flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", source, "-o"];
    let mut compiler = Command::new(crate::serve::compiler());
    let built = compiler.args(flags).arg(&program).arg(library()).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    program
}

/// `orin cuda` with options and a program.
fn cuda(options: &[&str], program: &[&str]) -> Output {
    let mut command = Command::new(ORIN);
    command.arg("cuda").args(options).arg("--").args(program).stdin(Stdio::null());
    command.env("ORIN_LIBCUDA", library()).env_remove("ORIN_CUDA_DEVICE").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_runs_and_its_calls_are_traced() {
    let folder = tempfile::tempdir().unwrap();
    let (program, trace) = (client(folder.path()), folder.path().join("calls"));
    let options = ["--device", "sim", "--trace", trace.to_str().unwrap()];
    let output = cuda(&options, &[program.to_str().unwrap(), CUBIN, "1000"]);
    assert_eq!(text(&output.stdout), "right on Orin (software)\n", "{}", text(&output.stderr));
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let calls = fs::read_to_string(trace).unwrap();
    assert!(calls.contains(" cuInit CUDA_SUCCESS\n") && calls.contains(" cuLaunchKernel CUDA_SUCCESS\n"));
}

/// The driver's library and the run time, which is beside it, have the names that programs look for.
#[test]
fn programs_find_the_libraries_by_all_names() {
    let output = cuda(&["--device", "sim"], &["sh", "-c", "ls \"${LD_LIBRARY_PATH%%:*}\""]);
    let names =
        "libcublas.so.12\nlibcublas.so.13\nlibcuda.so\nlibcuda.so.1\nlibcudart.so.12\nlibcudart.so.13\n";
    assert!(text(&output.stdout).ends_with(names), "{}", text(&output.stdout));
}

#[test]
fn checks_find_three_elements_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let program = client(folder.path());
    let run = |options: &[&str], count| {
        cuda(&[&["--check"], options].concat(), &[program.to_str().unwrap(), CUBIN, count])
    };
    let clean = run(&["memcheck"], "1000");
    assert_eq!(text(&clean.stderr), "1 launch checked (memcheck), 0 findings\n");
    assert_eq!((clean.status.code(), text(&clean.stdout).as_str()), (Some(0), "right on Orin (software)\n"));

    let found = run(&[], "1003");
    let errors = text(&found.stderr);
    assert_eq!((found.status.code(), text(&found.stdout).as_str()), (Some(1), "right on Orin (software)\n"));
    assert!(
        errors.contains("write of 4 bytes out of bounds") && errors.contains("vector_add+0x"),
        "{errors}"
    );
    assert!(errors.contains("0 bytes past the end") && errors.contains("(4000 bytes"), "{errors}");
    assert!(errors.ends_with("1 launch checked (memcheck), 3 findings\n"), "{errors}");

    let sarif = folder.path().join("s.json");
    let found = run(&["memcheck", "--json", "--sarif", sarif.to_str().unwrap()], "1003");
    let report: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!((&report["launches"], &report["tools"]), (&1.into(), &serde_json::json!(["memcheck"])));
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(3));
    assert_eq!((&report["findings"][0]["count"], found.status.code()), (&3.into(), Some(1)));
    assert_eq!(
        text(&found.stderr),
        "right on Orin (software)\n",
        "the program's output is beside the object"
    );
    let sarif: Value = serde_json::from_slice(&fs::read(sarif).unwrap()).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for result in results {
        let place = &result["locations"][0]["physicalLocation"]["artifactLocation"];
        assert!(place["uri"].as_str().is_some_and(|uri| !uri.is_empty()), "{result:#}");
    }

    let known = folder.path().join("known");
    fs::write(&known, "out-of-bounds vector_add").unwrap();
    let quiet = run(&["memcheck", "--suppressions", known.to_str().unwrap()], "1003");
    assert_eq!((quiet.status.code(), text(&quiet.stderr).contains(" 0 findings\n")), (Some(0), true));
}

/// A package that launches a kernel of 1,003 threads on 1,000 elements, and a program that uses it.
const PYTHON: [(&str, &str); 2] = [
    (
        "site-packages/package.py",
        r#"
from ctypes import *
cuda = CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
class Array:
    def __init__(self, count):
        self.address = c_uint64()
        call("cuMemAlloc_v2", byref(self.address), c_size_t(4 * count))
        call("cuMemsetD32_v2", self.address, 0, c_size_t(count))
context, module, kernel = c_void_p(), c_void_p(), c_void_p()
def start(cubin):
    call("cuInit", 0)
    call("cuCtxCreate_v2", byref(context), 0, 0)
    call("cuModuleLoad", byref(module), cubin.encode())
    call("cuModuleGetFunction", byref(kernel), module, b"vector_add")
def launch(*arguments):
    pointers = (c_void_p * len(arguments))(*(addressof(argument) for argument in arguments))
    call("cuLaunchKernel", kernel, 4, 1, 1, 256, 1, 1, 0, None, pointers, None)
    call("cuCtxSynchronize")
"#,
    ),
    (
        "program.py",
        r#"
import sys
from threading import Thread
sys.path.insert(0, sys.path[0] + "/site-packages")
import package
def array():
    return package.Array(1000)
def step():
    package.start(sys.argv[1])
    a, b, c = (array() for _ in range(3))
    package.launch(a.address, b.address, c.address, package.c_uint32(1003))
thread = Thread(target=step)
thread.start()
thread.join()
"#,
    ),
];

#[test]
fn findings_name_the_lines_of_python() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("site-packages")).unwrap();
    PYTHON.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    let program = folder.path().join("program.py");
    let (program, sarif) = (program.to_str().unwrap(), folder.path().join("s.json"));
    let options = ["--check", "--sarif", sarif.to_str().unwrap()];
    let output = cuda(&options, &["python3", program, CUBIN]);
    let errors = text(&output.stderr);
    assert!(errors.ends_with("1 launch checked (memcheck), 3 findings\n"), "{errors}");
    let launched = format!("\n    launched by\n        step at {program}:11\n    0 bytes past the end of ");
    assert_eq!(errors.matches(&launched).count(), 3, "{errors}");
    let place = format!(" at {program}:7\n        ");
    assert_eq!(errors.matches(&place).count(), 3, "{errors}");
    assert!(
        !["package.py", "threading.py", "Py", "ffi"].iter().any(|name| errors.contains(name)),
        "{errors}"
    );
    let log: Value = serde_json::from_slice(&fs::read(sarif).unwrap()).unwrap();
    // The cubin has no lines.
    let place = &log["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(
        (&place["artifactLocation"]["uri"], &place["region"]["startLine"]),
        (&program.into(), &11.into())
    );
}

#[test]
fn functions_that_are_missing_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let program = client(folder.path());
    let line = [program.to_str().unwrap(), CUBIN, "1000", "missing"];
    let output = cuda(&["--device", "sim"], &line);
    let errors = text(&output.stderr);
    assert!(
        errors.ends_with("cuCtxRecordEvent is not supported (events of contexts): 3 calls\n"),
        "{errors}"
    );
    assert_eq!(output.status.code(), Some(0), "{errors}");
    // Of two processes.
    let shell = ["sh", "-c", "\"$@\" > /dev/null && \"$@\" > /dev/null; exit 7", "sh"];
    let output = cuda(&["--device", "sim", "--json"], &[&shell[..], &line].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let unsupported =
        serde_json::json!([{ "function": "cuCtxRecordEvent", "reason": "events of contexts", "calls": 6 }]);
    assert_eq!((&report["unsupported"], output.status.code()), (&unsupported, Some(7)));
}

#[test]
fn a_program_that_uses_another_library_is_named() {
    let output = cuda(&[], &["sh", "-c", "exit 3"]);
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("sh has not called cuInit of ") && output.status.code() == Some(3),
        "{errors}"
    );
    let idle = cuda(&["--check", "--require-launches"], &["true"]);
    assert_eq!(idle.status.code(), Some(1), "{}", text(&idle.stderr));
    let killed = cuda(&["--check"], &["sh", "-c", "kill -9 $$"]);
    let errors = text(&killed.stderr);
    assert!(errors.ends_with("signal 9 has ended the program before it reported findings\n"), "{errors}");
}

#[test]
fn a_gpu_that_is_absent_is_none_for_the_program() {
    if Path::new("/dev/nvgpu/igpu0/ctrl").exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = cuda(&["--device", "nvgpu"], &[client(folder.path()).to_str().unwrap(), CUBIN, "1000"]);
    let errors = text(&output.stderr);
    assert!(errors.starts_with("libcuda (orin): CUDA_ERROR_NO_DEVICE: opening nvgpu: "), "{errors}");
    assert!(errors.contains("cuInit(0)") && errors.contains("100"), "{errors}");
    assert!(!errors.contains("has not called cuInit") && !output.status.success(), "{errors}");
}

#[test]
fn wrong_uses_are_refused_before_the_start() {
    for (options, words) in [
        (&["--sarif", "s"][..], "--sarif, --suppressions and --require-launches need --check"),
        (&["--check", "--device", "nvgpu"], "--check needs the software Orin, not nvgpu; give --device sim"),
        (&["--check", "most"], "most"),
        (&["--trace", "no/such/file"], "no/such/file"),
        (&["--trace", "-"], "--trace - is standard output"),
    ] {
        let output = cuda(options, &["echo", "started"]);
        let errors = text(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains(words), "{options:?}: {errors}");
        assert_eq!(text(&output.stdout), "", "{options:?}");
    }
    let mut command = Command::new(ORIN);
    let output =
        command.args(["cuda", "--", "true"]).env("ORIN_LIBCUDA", "/no/such/library").output().unwrap();
    assert!(text(&output.stderr).contains("ORIN_LIBCUDA: /no/such/library is not a file"));
    // A program elsewhere has no library beside it.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("orin");
    // By a process of its own: a child that another test starts meanwhile would hold our descriptor of the copy, and a
    // program that is open for writing cannot be started.
    assert!(Command::new("cp").args([Path::new(ORIN), &copy]).status().unwrap().success());
    let output = Command::new(copy).args(["cuda", "--", "true"]).env_remove("ORIN_LIBCUDA").output().unwrap();
    let errors = text(&output.stderr);
    if !Path::new("/usr/local/lib/orin/cuda/libcuda.so.1").exists() {
        let advice = "run `cargo build --release -p orin-libcuda -p orin-libcudart -p orin-libcublas`";
        assert!(errors.contains(advice), "{errors}");
        assert_eq!(output.status.code(), Some(2));
    }
}
