//! `orin timeline`: pages of programs and of traces.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const ORIN: &str = env!("CARGO_BIN_EXE_orin");
/// A program that launches one kernel.
const RUN: [&str; 17] = [
    ORIN,
    "run",
    "--device",
    "sim",
    "--cubin",
    concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/basics.cubin"),
    "--kernel",
    "fill_u32",
    "--grid",
    "1",
    "--block",
    "32",
    "--arg",
    "out:out:64",
    "--arg",
    "u32:1",
    "--arg=u32:16",
];

fn timeline(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(ORIN);
    command.current_dir(folder).arg("timeline").args(arguments).env_remove("NVGPU_TRACE_DIR");
    command.output().unwrap()
}

/// The data of a page.
fn data(page: &Path) -> Value {
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("type=\"application/json\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// The names of a track's events.
fn names(track: &Value) -> Vec<&str> {
    track["events"].as_array().unwrap().iter().filter_map(|event| event[2].as_str()).collect()
}

#[test]
fn a_program_and_its_trace_have_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let output = timeline(folder.path(), &[&["--"], &RUN[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("timeline.html: ") && text.contains(" of 2 tracks"), "{text}");
    let of_program = data(&path("timeline.html"));
    let (cpu, gpu) = (&of_program["tracks"][0], &of_program["tracks"][1]);
    assert_eq!((&cpu["name"], &gpu["name"]), (&"queue 0: CPU".into(), &"queue 0: GPU".into()));
    assert!(names(cpu).contains(&"doorbell") && names(gpu).contains(&"fill_u32"), "{of_program}");
    assert!(!of_program["arrows"].as_array().unwrap().is_empty(), "{of_program}");
    // The same from a file. The program's own option and the command do not disturb each other.
    let traced = [&["--html", "first.html", "--"], &RUN[..], &["--trace", "trace.json"]].concat();
    assert!(timeline(folder.path(), &traced).status.success());
    let output = timeline(folder.path(), &["trace.json", "--html", "second.html"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(data(&path("first.html")), data(&path("second.html")));
    // The exit code of the program, whose queues are shown.
    let script = "\"$@\"; exit 7";
    let failing = [&["--html", "failed.html", "--", "sh", "-c", script, "sh"], &RUN[..]].concat();
    assert_eq!(timeline(folder.path(), &failing).status.code(), Some(7));
    assert!(names(&data(&path("failed.html"))["tracks"][1]).contains(&"fill_u32"));
}

#[test]
fn what_is_no_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("other.json"), "{\"a\": 1}").unwrap();
    fs::write(folder.path().join("empty.json"), "{\"traceEvents\": []}").unwrap();
    for (arguments, code, part) in [
        (&["other.json"][..], 2, "other.json: cut off, or not a trace: missing field `traceEvents`"),
        (&["empty.json"], 1, "no events: "),
        (&["empty.json", "--html", "empty.json"], 2, "empty.json would be overwritten"),
        (&["--", "true"], 1, "opened no queue of tegra-hcq"),
    ] {
        let output = timeline(folder.path(), arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && text.contains(part), "{arguments:?}: {text}");
    }
    assert!(!folder.path().join("timeline.html").exists(), "nothing is written without events");
}
