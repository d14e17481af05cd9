//! The exit codes of every example, what happens if an output cannot be written, and Ctrl-C.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use orin_cli::ExitStatus::{self, Failure, Success, Usage};
use orin_cli::testing::example;

const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels");

/// The examples with options; a line for each exit code that one can have here.
const TABLE: [(&str, &[&str], ExitStatus); 23] = [
    ("vector_add", &["--device", "sim", "--n", "1000"], Success),
    ("vector_add", &["--device", "sim", "--n", "1000", "--json"], Success),
    ("vector_add", &["--device", "sim", "--n", "100000", "--timeout-ms", "1"], Failure),
    ("vector_add", &["--n", "0"], Usage),
    ("vector_add", &["--n", "-5"], Usage),
    ("vector_add", &["--device", "abacus"], Usage),
    ("real_time", &["--device", "sim", "--cycles", "10"], Success),
    ("real_time", &["--device", "sim", "--cycles", "10", "--json"], Success),
    ("real_time", &["--device", "sim", "--core", "1000", "--require"], Usage),
    ("real_time", &["--priority", "100"], Usage),
    ("run_kernel", &["--cubin", "absent", "--kernel", "k", "--grid", "1", "--block", "1"], Usage),
    ("run_kernel", &["--cubin", "absent", "--kernel", "k", "--grid", "99999999999", "--block", "1"], Usage),
    ("run_kernel", &["--kernel", "k", "--grid", "1", "--block", "1"], Usage),
    ("run_kernel", &["--source", "absent.cu", "--kernel", "k", "--grid", "1", "--block", "1"], Usage),
    ("run_kernel", &["--cubin", "k", "--kernel", "k", "--grid", "1", "--block", "1", "--check=most"], Usage),
    ("run_kernel", &["--cubin", "k", "--kernel", "k", "--grid", "1", "--block", "1", "--sarif", "s"], Usage),
    // The tests name no library, so NVRTC is missing.
    ("from_source", &["--device", "sim"], Usage),
    ("from_source", &["--exponent", "7"], Usage),
    ("layers_requests", &[], Success),
    ("layers_channel", &[], Success),
    ("layers_launch", &[], Success),
    ("layers_graph", &[], Success),
    ("layers_loop", &[], Success),
];

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn every_example_has_the_exit_codes_of_the_table() {
    let folder = folder();
    let sources = fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap().map(|entry| entry.unwrap().path());
    let names = sources.filter(|path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs"));
    for name in names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()) {
        // The program of README.md shows the library without this project's frame.
        if name == "readme" {
            continue;
        }
        let lines =
            TABLE.iter().filter(|(example, ..)| *example == name).map(|(_, line, status)| (*line, *status));
        example(&name, folder.path()).env("NVGPU_NVRTC", "/no/such").check_all(&lines.collect::<Vec<_>>());
    }
}

/// `run_kernel` that fills buffers with a number.
fn fill(folder: &Path, arguments: &[&str]) -> std::process::Output {
    let cubin = format!("{KERNELS}/basics.cubin");
    let start =
        ["--device", "sim", "--cubin", &cubin, "--kernel", "fill_u32", "--grid", "1", "--block", "32"];
    let arguments: Vec<&str> = arguments.iter().flat_map(|argument| ["--arg", argument]).collect();
    example("run_kernel", folder).command(&[&start[..], &arguments].concat()).output().unwrap()
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn run_kernel_finds_places_that_cannot_be_written_before_the_kernel_runs() {
    let folder = folder();
    fs::create_dir(folder.path().join("sub")).unwrap();
    for (place, words) in [
        ("out:sub:64", "it is a folder"),
        ("out:no/such/file:64", "there is no folder no/such"),
        ("out:/proc/file:64", "/proc/file cannot be written"),
    ] {
        let output = fill(folder.path(), &[place, "u32:1", "u32:4"]);
        let text = stderr(&output);
        assert!(output.status.code() == Some(2) && text.contains(words), "{place}: {text}");
    }
    let numbers = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(numbers, 1, "nothing was written");
}

/// Parameters beyond the kernel's are refused, so the two outputs are those of a kernel with two buffers.
#[test]
fn run_kernel_writes_all_outputs_or_none() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("old"), "old").unwrap();
    fs::write(path("x"), [0; 64]).unwrap();
    let cubin = format!("{KERNELS}/vector_add.cubin");
    let run = |last: &str| {
        let last = format!("out:{last}:64");
        let line = [
            "--device",
            "sim",
            "--cubin",
            &cubin,
            "--kernel",
            "vector_add",
            "--grid",
            "1",
            "--block",
            "32",
            "--arg",
            "inout:x:old",
            "--arg",
            "inout:x:new",
            "--arg",
            &last,
            "--arg",
            "u32:16",
        ];
        example("run_kernel", folder.path()).command(&line).output().unwrap()
    };
    let output = run("/dev/full");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "error: writing /dev/full: No space left on device (os error 28)\n");
    assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    assert_eq!(fs::read(path("old")).unwrap(), b"old", "a file that existed is unchanged");
    assert!(!path("new").exists());

    assert!(run("old").status.code() == Some(2), "one file for two outputs");
    let output = run("sum");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read(path("old")).unwrap().len(), 64);
    assert!(path("new").exists() && path("sum").exists());
}

#[test]
fn run_kernel_finds_an_overrun() {
    let folder = folder();
    let floats: Vec<u8> = (0..1000).flat_map(|n: u16| f32::from(n).to_le_bytes()).collect();
    for name in ["x.bin", "y.bin"] {
        fs::write(folder.path().join(name), &floats).unwrap();
    }
    fs::write(folder.path().join("known"), "out-of-bounds saxpy").unwrap();
    let cubin = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/saxpy.cubin");
    let run = |n: &str, more: &[&str]| {
        let start =
            ["--device", "sim", "--cubin", cubin, "--kernel", "saxpy", "--grid", "4", "--block", "256"];
        let buffers = ["--arg", "f32:2", "--arg", "in:x.bin", "--arg", "inout:y.bin:z.bin", "--arg", n];
        let line = [&start[..], &buffers, more].concat();
        example("run_kernel", folder.path()).command(&line).output().unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = run("u32:4096", &["--check", "--sarif", "s.json"]);
    let report = text(&found.stderr);
    assert_eq!(found.status.code(), Some(1), "{report}");
    assert!(report.contains("0 bytes past the end of x.bin (4000 bytes"), "{report}");
    assert!(report.contains("argument 2 of the kernel") && report.contains("at saxpy+"), "{report}");
    assert!(report.contains("2096 times") && report.contains("3 findings"), "{report}");
    let sarif: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.path().join("s.json")).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["results"].as_array().map(Vec::len), Some(3));
    let json = run("u32:4096", &["--check=all", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["findings"][0]["object"]["place"]["past"], 0);
    for (n, more) in
        [("u32:1000", &["--check=all"][..]), ("u32:4096", &["--check", "--suppressions", "known"])]
    {
        let clean = run(n, more);
        assert_eq!(clean.status.code(), Some(0), "{}", text(&clean.stderr));
    }
    // A program that knows nothing of checks.
    let start = ["--device", "sim", "--cubin", cubin, "--kernel", "saxpy", "--grid", "4", "--block", "256"];
    let buffers = ["--arg", "f32:2", "--arg", "in:x.bin", "--arg", "inout:y.bin:z.bin", "--arg", "u32:4096"];
    let unaware = example("run_kernel", folder.path())
        .env("ORIN_SIM_CHECK", "memcheck")
        .command(&[&start[..], &buffers].concat())
        .output()
        .unwrap();
    assert_eq!(unaware.status.code(), Some(1));
    assert!(text(&unaware.stderr).contains("3 findings"), "{}", text(&unaware.stderr));
    // The order check has a variable of its own.
    let buffers = ["--arg", "f32:2", "--arg", "in:x.bin", "--arg", "inout:y.bin:z.bin", "--arg", "u32:1000"];
    for (action, code) in [("9", 0), ("3", 1)] {
        let strict = example("run_kernel", folder.path())
            .env("ORIN_SIM_STRICT", "1")
            .env("NVGPU_PCAS_ACTION", action)
            .command(&[&start[..], &buffers].concat())
            .output()
            .unwrap();
        let report = text(&strict.stderr);
        assert_eq!(strict.status.code(), Some(code), "{report}");
        assert_eq!(report.contains("ordering: unproven: "), code == 1, "{report}");
    }
}

#[test]
fn run_kernel_compiles_a_source_or_says_what_is_missing() {
    let folder = folder();
    let source = "extern \"C\" __global__ void set(unsigned *out) { *out = NUMBER; }";
    fs::write(folder.path().join("set.cu"), source).unwrap();
    fs::write(folder.path().join("wrong.cu"), "__global__ void f(int *x)\n{\n    *x = y;\n}\n").unwrap();
    let line = |file| {
        [
            "--device",
            "sim",
            "--source",
            file,
            "-D",
            "NUMBER=42",
            "--kernel",
            "set",
            "--grid",
            "1",
            "--block",
            "1",
        ]
        .into_iter()
        .chain(["--arg", "out:out:4"])
        .collect::<Vec<_>>()
    };
    let without = example("run_kernel", folder.path()).env("NVGPU_NVRTC", "/no/such");
    let output = without.command(&line("set.cu")).output().unwrap();
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("pip install"),
        "{}",
        stderr(&output)
    );

    let program = example("run_kernel", folder.path()).env("NVGPU_CACHE", "off");
    match tegra_hcq::Compiler::load() {
        Ok(compiler) if compiler.version().0 <= 12 => {}
        Ok(compiler) => {
            return println!("SKIPPED: cubins of NVRTC {:?} cannot be loaded yet", compiler.version());
        }
        Err(error) => return println!("SKIPPED: {error}"),
    }
    let output = program.command(&line("set.cu")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(folder.path().join("out")).unwrap(), 42_u32.to_le_bytes());
    let output = program.command(&line("wrong.cu")).output().unwrap();
    let text = stderr(&output);
    assert!(output.status.code() == Some(2) && text.contains("wrong.cu(3): error"), "{text}");
    example("from_source", folder.path()).env("NVGPU_CACHE", "off").check(&["--device", "sim"], Success);
}

#[test]
fn numbers_out_of_range_give_the_range() {
    let folder = folder();
    for (name, line, words) in [
        ("vector_add", ["--n", "-5"], "-5 is out of range: give 1 to 268435456"),
        ("vector_add", ["--n", "300000000"], "300000000 is out of range: give 1 to 268435456"),
        ("run_kernel", ["--grid", "99999999999"], "99999999999 is out of range: give 1 to 4294967295"),
        ("run_kernel", ["--shared", "-1"], "-1 is out of range: give 0 to 4294967295"),
        ("run_kernel", ["--arg", "u8:256"], "256 is out of range: give 0 to 255"),
        ("run_kernel", ["--grid", "many"], "'many' is not a whole number"),
    ] {
        let output = example(name, folder.path()).command(&line).output().unwrap();
        let text = stderr(&output);
        assert!(output.status.code() == Some(2) && text.contains(words), "{name} {line:?}: {text}");
    }
}

/// A terminal by the program `script`, which most systems have.
#[test]
fn long_work_shows_its_progress_on_a_terminal_only() {
    let folder = folder();
    let program = example("vector_add", folder.path());
    let line = ["--device", "sim", "--n", "8000000"];
    let file = program.command(&line).output().unwrap();
    assert_eq!((file.status.code(), stderr(&file).as_str()), (Some(0), ""));

    let path = program.command(&line).get_program().to_str().unwrap().to_owned();
    let command = format!("'{path}' {}", line.join(" "));
    let mut script = std::process::Command::new("script");
    let output = script.args(["-qec", &command, "/dev/null"]).current_dir(folder.path()).output();
    let Ok(output) = output else { return println!("SKIPPED: the program script is not installed") };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("result "), "{text}");
    // A slow machine prints the first line later than in the first second.
    let is_progress = |line: &str| {
        let seconds = line.rsplit_once(", ").and_then(|(_, time)| time.strip_suffix(" s"));
        seconds.is_some_and(|seconds| seconds.parse::<u32>().is_ok())
    };
    assert!(text.split("\x1b[K").any(is_progress) && text.contains("\r\x1b[K"), "{text:?}");
}
