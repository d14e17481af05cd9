//! The example programs as a user runs them: output, files, exit codes, invalid input.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels")
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

/// `run_kernel` with files in its own folder.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, words: &[u32]) -> String {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    fn read(&self, name: &str) -> Vec<u32> {
        let bytes = std::fs::read(self.path(name)).unwrap();
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn run(&self, cubin: &str, kernel: &str, dims: [&str; 2], arguments: &[String]) -> Output {
        let cubin = kernels().join(cubin);
        let mut command = example("run_kernel");
        command.arg("--cubin").arg(cubin).args(["--kernel", kernel, "--grid", dims[0], "--block", dims[1]]);
        for argument in arguments {
            command.args(["--arg", argument]);
        }
        command.args(["--device", "sim"]).output().unwrap()
    }
}

#[test]
fn run_kernel_reads_and_writes_files() {
    let files = Files::new();
    let x: Vec<u32> = (0..1000).map(|i| (i as f32).to_bits()).collect();
    let y: Vec<u32> = (0..1000).map(|i| (i as f32 * 0.5).to_bits()).collect();
    let arguments = [
        "f32:2".to_owned(),
        format!("in:{}", files.write("x", &x)),
        format!("inout:{}:{}", files.write("y", &y), files.path("result")),
        "u32:1000".to_owned(),
    ];
    let output = files.run("saxpy.cubin", "saxpy", ["4,1,1", "128,1,1"], &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("time"));
    let want: Vec<u32> = (0..1000).map(|i| (i as f32 * 2.5).to_bits()).collect();
    assert_eq!(files.read("result"), want);
    assert_eq!(files.read("y"), y, "the source file is untouched");
}

/// A cubin from a pipe, such as the output of a compiler.
#[test]
fn run_kernel_reads_a_cubin_from_a_pipe() {
    let files = Files::new();
    let mut child = example("run_kernel")
        .args(["--cubin", "/dev/stdin", "--kernel", "fill_u32", "--grid", "1", "--block", "32"])
        .args(["--arg", &format!("out:{}:64", files.path("out")), "--arg", "u32:0x11", "--arg", "u32:16"])
        .args(["--device", "sim"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let cubin = std::fs::read(kernels().join("basics.cubin")).unwrap();
    child.stdin.take().unwrap().write_all(&cubin).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(files.read("out"), [0x11; 16]);
}

#[test]
fn run_kernel_writes_zeroed_outputs_of_the_given_length() {
    let files = Files::new();
    let arguments = [format!("out:{}:64", files.path("out")), "u32:0x11".to_owned(), "u32:4".to_owned()];
    let output = files.run("basics.cubin", "fill_u32", ["1", "32"], &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut want = [0; 16];
    want[..4].fill(0x11);
    assert_eq!(files.read("out"), want);
}

#[test]
fn run_kernel_reports_what_faulted_and_where() {
    let files = Files::new();
    let arguments = ["u64:0x1234567000".to_owned(), format!("out:{}:4", files.path("out"))];
    let output = files.run("faults.cubin", "fault_read", ["1", "1"], &arguments);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("MMU fault") && text.contains("0x1234567000") && text.contains("fault_read"),
        "{text}"
    );
    assert!(!Path::new(&files.path("out")).exists(), "nothing is written after a fault");
}

#[test]
fn run_kernel_ends_an_endless_kernel() {
    let files = Files::new();
    let stop = files.write("stop", &[0]);
    let cubin = kernels().join("faults.cubin");
    let output = example("run_kernel")
        .arg("--cubin")
        .arg(cubin)
        .args(["--kernel", "fault_endless", "--grid", "1", "--block", "32", "--timeout-ms", "200", "--json"])
        .args(["--arg", &format!("in:{stop}"), "--arg", &format!("out:{}:4", files.path("out"))])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["error"].as_str().unwrap().contains("fault_endless"), "{report}");
}

#[test]
fn run_kernel_refuses_wrong_requests_and_writes_nothing() {
    let files = Files::new();
    let out = format!("out:{}:64", files.path("out"));
    let refuse = |cubin: &str, kernel: &str, dims: [&str; 2], arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let output = files.run(cubin, kernel, dims, &arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(!Path::new(&files.path("out")).exists());
        stderr(&output)
    };
    let text = refuse("basics.cubin", "fill_u32", ["1", "32"], &[&out, "u32:1"]);
    assert!(text.contains("takes 3 arguments, 2 were given"), "{text}");
    let text = refuse("basics.cubin", "fill_u32", ["1", "32"], &[&out, "u64:1", "u32:4"]);
    assert!(text.contains("argument 1 has 8 bytes"), "{text}");
    let text = refuse("basics.cubin", "fill", ["1", "32"], &[&out]);
    assert!(text.contains("fill_u32") && text.contains("square_plus_one"), "{text}");
    let text = refuse("basics.cu", "fill_u32", ["1", "32"], &[&out]);
    assert!(text.contains("not a cubin"), "{text}");
    let text = refuse("no_such.cubin", "fill_u32", ["1", "32"], &[&out]);
    assert!(text.contains("no_such.cubin") && text.contains("No such file"), "{text}");
    let text = refuse("basics.cubin", "fill_u32", ["1", "32"], &["in:/no/such/file", "u32:1", "u32:4"]);
    assert!(text.contains("/no/such/file"), "{text}");
    let huge = format!("out:{}:99999999999999", files.path("out"));
    let text = refuse("basics.cubin", "fill_u32", ["1", "32"], &[&huge, "u32:1", "u32:4"]);
    assert!(text.contains("it is more than the total memory"), "{text}");
    let text = refuse("basics.cubin", "fill_u32", ["1", "2048"], &[&out, "u32:1", "u32:4"]);
    assert!(text.contains("1024"), "{text}");
    let text = refuse("basics.cubin", "fill_u32", ["1,1,1,1", "32"], &[&out, "u32:1", "u32:4"]);
    assert!(text.contains("more than three"), "{text}");
    let text =
        refuse("basics.cubin", "fill_u32", ["1", "32"], &["out:/no/such/folder/out:64", "u32:1", "u32:4"]);
    assert!(text.contains("cannot be written"), "{text}");
}
