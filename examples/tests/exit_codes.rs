//! The exit codes of every example, what happens if an output cannot be written, and Ctrl-C.

use std::fs;
use std::path::PathBuf;

use orin_cli::ExitStatus::{self, Failure, Success, Usage};
use orin_cli::testing::example;

/// The examples with options; a line for each exit code that one can have here.
const TABLE: [(&str, &[&str], ExitStatus); 24] = [
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
    ("share", &["both", "--device", "sim", "--frames", "5", "--period-us", "0", "--wait"], Success),
    ("share", &["both", "--device", "sim", "--frames", "5", "--json"], Success),
    ("share", &["produce", "--device", "sim", "--frames", "3"], Success),
    ("share", &["produce", "--frames", "0"], Usage),
    ("share", &["produce", "--device", "sim", "--socket", "/no/such/folder/socket"], Usage),
    ("share", &["consume", "--device", "sim", "--timeout-ms", "0"], Failure),
    // The tests name no library, so NVRTC is missing.
    ("from_source", &["--device", "sim"], Usage),
    ("from_source", &["--exponent", "7"], Usage),
    ("from_cuda", &[], Success),
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

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_source_is_compiled_for_the_device() {
    match tegra_hcq::Compiler::load() {
        Ok(compiler) if compiler.version().0 <= 12 => {}
        Ok(compiler) => {
            return println!("SKIPPED: cubins of NVRTC {:?} cannot be loaded yet", compiler.version());
        }
        Err(error) => return println!("SKIPPED: {error}"),
    }
    let folder = folder();
    example("from_source", folder.path()).env("NVGPU_CACHE", "off").check(&["--device", "sim"], Success);
}

#[test]
fn numbers_out_of_range_give_the_range() {
    let folder = folder();
    for (name, line, words) in [
        ("vector_add", ["--n", "-5"], "-5 is out of range: give 1 to 268435456"),
        ("vector_add", ["--n", "300000000"], "300000000 is out of range: give 1 to 268435456"),
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
