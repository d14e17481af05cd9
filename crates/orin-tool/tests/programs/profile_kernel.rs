//! `orin profile-kernel`: what it passes to a program, what it collects and prints, and its exit code.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const ORIN: &str = env!("CARGO_BIN_EXE_orin");

fn profile(options: &[&str], program: &[&str]) -> Output {
    let mut command = Command::new(ORIN);
    command.arg("profile-kernel").args(options).arg("--").args(program).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

/// Brings up a board as far as its first kernels.
fn bring_up(device: &str, folder: &Path) -> Vec<String> {
    let report = folder.join("r.tar.gz").to_str().unwrap().to_owned();
    ["bring-up", "--device", device, "--until", "7", "--report"]
        .into_iter()
        .map(str::to_owned)
        .chain([report])
        .collect()
}

#[test]
fn a_program_with_its_own_software_orin_is_profiled() {
    let folder = tempfile::tempdir().unwrap();
    let line = bring_up("sim", folder.path());
    let program: Vec<&str> = std::iter::once(ORIN).chain(line.iter().map(String::as_str)).collect();
    let page = folder.path().join("page.html");
    let options = ["--no-serve", "--json", "--html", page.to_str().unwrap()];
    let output = profile(&options, &program);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // What it prints does not mix with the profiles.
    let profiles = parsed(&output);
    assert!(text(&output.stderr).contains("report: "), "{}", text(&output.stderr));
    let first = &profiles["profiles"][0];
    assert_eq!(first["kernel"], "fault_write");
    assert_eq!(first["totals"]["stores"]["global"]["sectors"], first["launches"], "{profiles}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("fault_write: grid 1, block 1, ") && page.contains("EXIT"), "{page}");
}

/// A program that checks its variables, and reports profiles as a software Orin of its own does.
const REPORTS: &str = r#"
test "$ORIN_SIM_PROFILE_KERNELS,$ORIN_SIM_PROFILE_LAUNCHES" = "a*,b,3,4" || exit 9
cat "$1" "$1" >> "$ORIN_SIM_PROFILE"
exit $2"#;

/// A profile without instructions.
fn empty(kernel: &str) -> String {
    with(kernel, "", 16)
}

/// A profile with these instructions, of a board with so many SMs.
fn with(kernel: &str, instructions: &str, sms: u32) -> String {
    let occupancy = r#"{"blocks_per_sm":16,"warps_per_sm":16,"max_warps":48,"by_warps":48,"by_registers":64,
        "by_shared":null,"by_blocks":16,"limited_by":["blocks"],"sms":SMS}"#;
    let occupancy = occupancy.replace("SMS", &sms.to_string());
    format!(
        r#"{{"kernel":"{kernel}","grid":[1,1,1],"block":[32,1,1],"registers":8,"shared_bytes":1024,"local_bytes":0,
        "launches":1,"incomplete":0,"occupancy":{occupancy},"read_bytes":0,"written_bytes":0,
        "instructions":[{instructions}]}}"#
    )
    .replace('\n', "")
        + "\n"
}

#[test]
fn profiles_of_several_processes_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile");
    fs::write(&file, empty("abc")).unwrap();
    let file = file.to_str().unwrap();
    let options = ["--no-serve", "-k", "a*", "-k", "b", "-s", "3", "-c", "4"];
    let output = profile(&options, &["sh", "-c", REPORTS, "sh", file, "0"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).starts_with("abc: grid 1, block 32, 2 launches\n"),
        "{}",
        text(&output.stdout)
    );
    assert!(text(&output.stdout).contains("limited by blocks"));
    // The exit code is that of the program.
    assert_eq!(profile(&options, &["sh", "-c", REPORTS, "sh", file, "7"]).status.code(), Some(7));
}

#[test]
fn an_empty_profile_says_what_ran() {
    let reason = |options: &[&str], line: &str| {
        let script = format!("echo '{line}' >> \"$ORIN_SIM_PROFILE\"; echo printed");
        let output = profile(&[&["--no-serve"], options].concat(), &["sh", "-c", &script]);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), "printed\n"));
        text(&output.stderr)
    };
    let others = r#"{"launches":0,"others":["add","scale"]}"#;
    let expected = "no kernel was profiled: --kernel selects none of those that ran: add, scale\n";
    assert_eq!(reason(&["-k", "nosuch"], others), expected);
    let skipped = reason(&["-s", "9"], r#"{"launches":7,"others":[]}"#);
    assert_eq!(skipped, "no kernel was profiled: --launch-skip 9 skips all 7\n");
    // A file has the profiles, and standard output what the program prints.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiles.json");
    let option = format!("--json={}", file.display());
    let output = profile(&["--no-serve", &option], &["echo", "printed"]);
    assert_eq!(text(&output.stdout), "printed\n");
    assert_eq!(text(&output.stderr), "no kernel was profiled: none ran\n");
    let written: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(written["profiles"], json!([]));
}

#[test]
fn files_are_imported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiles");
    fs::write(&file, empty("abc") + &empty("xyz")).unwrap();
    let import = |options: &[&str]| {
        let mut command = Command::new(ORIN);
        command.args(["profile-kernel", "--import"]).arg(&file).args(options).output().unwrap()
    };
    let both = import(&["--json"]);
    assert_eq!(parsed(&both)["profiles"].as_array().map(Vec::len), Some(2));
    let one = import(&["--json", "--kernel", "x*"]);
    assert_eq!(parsed(&one)["profiles"][0]["kernel"], "xyz");
    // What it has printed can be imported.
    fs::write(&file, both.stdout).unwrap();
    assert_eq!(parsed(&import(&["--json"]))["profiles"].as_array().map(Vec::len), Some(2));
    let none = import(&["--kernel", "no"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("no profile of these kernels is in the file"));
    fs::write(&file, "{\"profiles\":7}").unwrap();
    let wrong = import(&[]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("invalid type"), "{}", text(&wrong.stderr));
}

/// A load that `executed` warps execute.
fn load(executed: u64) -> String {
    let traffic = format!(r#""requests":{executed},"sectors":{executed},"ideal_sectors":{executed}"#);
    format!(
        r#"{{"kernel":"k","offset":0,"instruction":"LDG","file":"/src/k.cu","line":7,"class":"global memory",
        "access":"load","port":"load/store","quarters":0,"executed":{executed},"threads":{executed},
        "active":{executed},"global":{{{traffic},"needed_bytes":4,"requested_bytes":4}}}}"#
    )
}

#[test]
fn a_run_is_compared_with_its_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("old"), with("k", &load(100), 16) + &empty("gone")).unwrap();
    fs::write(path("new"), with("k", &load(110), 16) + &empty("added")).unwrap();
    fs::write(path("nano"), with("k", &load(100), 8)).unwrap();
    fs::write(path("other"), empty("gone")).unwrap();
    let old_format = with("k", &load(100).replace("\"port\"", "\"p\""), 16);
    fs::write(path("old-format"), format!("{{\"profiles\": [{}]}}", old_format.trim_end())).unwrap();
    let import = |file: &str, options: &[&str]| {
        let mut command = Command::new(ORIN);
        command.current_dir(folder.path()).args(["profile-kernel", "--import", file]).args(options);
        command.output().unwrap()
    };
    let output = import("new", &["--baseline", "old", "--board", "agx-64", "--html", "page.html"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    insta::assert_snapshot!(text(&output.stdout));
    let page = fs::read_to_string(path("page.html")).unwrap();
    assert!(page.contains("Changes since the baseline") && page.contains("+10.0 %"), "{page}");
    // The exit code, and why.
    let code = |file: &str, options: &[&str]| {
        let output = import(file, options);
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(code("new", &["--baseline", "old", "--fail-over", "10"]), (Some(0), String::new()));
    let (failed, why) = code("new", &["--baseline", "old", "--fail-over", "9.9%"]);
    assert_eq!((failed, why.as_str()), (Some(1), "worse than the baseline by more than 9.9 %: k\n"));
    let (failed, why) = code("other", &["--baseline", "nano", "--fail-over", "0"]);
    let nothing = "no kernel of the baseline ran: there is nothing to compare\n";
    assert_eq!((failed, why.as_str()), (Some(1), nothing));
    let nano = import("new", &["--baseline", "nano"]);
    assert!(text(&nano.stdout).contains("the baseline is of a board with 8 SMs, this run of one with 16"));
    let compared = parsed(&import("new", &["--baseline", "old", "--json"]));
    assert_eq!(compared["comparison"]["kernels"][0]["changes"][0]["now"], 110.0);
    // Files that cannot be a baseline.
    let (usage, why) = code("new", &["--baseline", "old-format"]);
    assert!(
        usage == Some(2) && why.contains("old-format: ") && why.contains("missing field `port`"),
        "{why}"
    );
    let (usage, why) = code("new", &["--baseline", "new", "--html", "new"]);
    assert!(usage == Some(2) && why.contains("would be overwritten"), "{why}");
}

#[test]
fn bounds_are_of_the_board_that_ran_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let line = bring_up("sim", folder.path());
    let program: Vec<&str> = std::iter::once(ORIN).chain(line.iter().map(String::as_str)).collect();
    let output = profile(&["--no-serve", "--json", "--board", "nano-4:7w"], &program);
    let first = &parsed(&output)["profiles"][0];
    assert_eq!((&first["occupancy"]["sms"], &first["bound"]["on_board"]), (&json!(4), &json!("nano-4:7w")));
    // What it prints is a baseline.
    let file = folder.path().join("profiles.json");
    fs::write(&file, &output.stdout).unwrap();
    let mut import = Command::new(ORIN);
    import.args(["profile-kernel", "--baseline"]).arg(&file).arg("--import").arg(&file);
    let same = import.output().unwrap();
    assert!(text(&same.stdout).contains("fault_write: grid 1, block 1: no change"), "{}", text(&same.stderr));
    assert!(first["bound"]["seconds"].as_f64().unwrap() > 0.0, "{first}");
}

#[test]
fn a_served_program_has_names_by_its_cubin() {
    if !crate::serve::can_serve() {
        return;
    }
    let cubin = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/faults.cubin");
    // Without the file, it is found in the program's memory.
    for options in [&["--json", "--cubin", cubin][..], &["--json"]] {
        let folder = tempfile::tempdir().unwrap();
        let line = bring_up("nvgpu", folder.path());
        let program: Vec<&str> = std::iter::once(ORIN).chain(line.iter().map(String::as_str)).collect();
        let profiles = parsed(&profile(options, &program));
        let first = &profiles["profiles"][0];
        assert_eq!(
            (&first["kernel"], &first["instructions"][0]["offset"]),
            (&json!("fault_write"), &json!(0))
        );
    }
}
