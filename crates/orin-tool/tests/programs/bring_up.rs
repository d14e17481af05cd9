//! `orin bring-up` on the software Orin, as a user runs it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nvgpu_sys::Release;
use serde_json::{Value, json};

/// Longest wait for a program to do what it does in less than a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command in a folder.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orin"));
    command.arg("bring-up").args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env_remove("ORIN_SIM_SETTINGS").env_remove("ORIN_SIM_STRICT");
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code and messages of a run.
fn ending(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(folder, arguments);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// The files of a report, by name.
fn files(folder: &Path, report: &str) -> Value {
    let output = run(folder, &["--show", report, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The outcome of each stage.
fn outcomes(files: &Value) -> Vec<&str> {
    let stages = files["report.json"]["stages"].as_array().unwrap();
    stages.iter().map(|stage| stage["outcome"].as_str().unwrap()).collect()
}

#[test]
fn all_stages_pass_and_leave_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["--device", "sim", "--yes", "--json", "--report", "r.tar.gz"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["device"], &summary["report"]), (&json!("sim"), &json!("r.tar.gz")));
    let names: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["r.tar.gz"], "the folder of the run is gone");

    let files = files(folder.path(), "r.tar.gz");
    assert_eq!(outcomes(&files), ["passed"; 15]);
    let facts = |stage: u8| &files[format!("stage-{stage:02}.json")]["facts"];
    assert_eq!(facts(1)["num_vsms"], 16);
    let (bytes, layout, alloc) = match kernel() {
        Release::R36_4_3 | Release::R36_4_7 => (328, "r36.4.3", "0x40144e03"),
        Release::R39_2 => (344, "r39.2", "0x40204e03"),
    };
    assert_eq!(facts(1)["characteristics"].as_str().unwrap().len(), 2 * bytes);
    assert_eq!(facts(1)["characteristics_bytes"], bytes);
    assert_eq!(
        (&facts(1)["characteristics_layout"], &facts(2)["alloc_code"]),
        (&json!(layout), &json!(alloc))
    );
    assert_eq!(facts(7)["pcas_actions"], json!({ "9": "works", "10": "works", "3": "works" }));
    assert_eq!(facts(9)["descriptor_releases"], "works");
    assert_eq!(facts(12)["modes"], json!({ "CTA": "accepted", "CILP": "accepted" }));
    let lines = facts(13)["faults"]["fault_write"]["log"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["text"].as_str().unwrap().contains("MMU FAULT")), "{lines:?}");
    assert!(facts(14)["close_without_reset"]["close_ms"].is_number());
    let calls = files["stage-03-calls.jsonl"].as_str().unwrap();
    let setup = calls.lines().find(|line| line.contains("NVGPU_IOCTL_CHANNEL_SETUP_BIND")).unwrap();
    let setup: Value = serde_json::from_str(setup).unwrap();
    assert!(setup["in"].is_array() && setup["took_us"].is_u64() && setup["result"] == 0, "{setup}");
    // Each stage stands in the journal before its steps.
    let journal = files["journal.txt"].as_str().unwrap();
    let place =
        |line: &str| journal.lines().position(|other| other == line).unwrap_or_else(|| panic!("no {line}"));
    for stage in 0..15 {
        assert!(place(&format!("stage {stage} starting")) < place(&format!("stage {stage} passed")));
    }
    assert_eq!(journal.lines().last(), Some("end"));

    let shown = run(folder.path(), &["--show", "r.tar.gz"]);
    let shown = text(&shown.stdout);
    for name in ["README.txt", "report.json", "stage-14.json", "stage-03-calls.jsonl"] {
        assert!(shown.contains(&format!("==> {name} (")), "{name}");
    }
    let host = text(&Command::new("uname").arg("-n").output().unwrap().stdout).trim().to_owned();
    assert!(
        host.len() < 3 || !shown.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == host)
    );
}

#[test]
fn a_stage_that_fails_is_named_and_stops_those_that_need_it() {
    let folder = tempfile::tempdir().unwrap();
    // A board that ignores the default PCAS action.
    std::fs::write(folder.path().join("m.json"), "{\"inert_pcas_actions\": [9]}").unwrap();
    let arguments = ["--device", "sim", "--model", "m.json", "--report", "r.tar.gz", "--yes"];
    let (code, output) = ending(folder.path(), &arguments);
    assert_eq!(code, Some(1), "{output}");
    let line = output.lines().find(|line| line.starts_with(" 7 ")).unwrap();
    assert!(line.contains("failed") && line.contains("NVGPU_PCAS_ACTION=10"), "{line}");
    assert!(output.contains("attach the report"), "{output}");
    let files = files(folder.path(), "r.tar.gz");
    let outcomes = outcomes(&files);
    assert_eq!(outcomes[..8], [["passed"; 7].as_slice(), &["failed"]].concat());
    // The copy engine needs no kernel.
    assert_eq!(outcomes[8..], ["skipped", "skipped", "skipped", "passed", "skipped", "skipped", "skipped"]);
    assert_eq!(files["stage-07.json"]["facts"]["pcas_actions"]["10"], "works");
    let names: Vec<_> = files.as_object().unwrap().keys().collect();
    let bundle =
        names.iter().find(|name| name.starts_with("stage-07-bundle/") && name.ends_with("launches.txt"));
    assert!(bundle.is_some(), "descriptors of the failed launch are recorded: {names:?}");
}

#[test]
fn a_request_that_fails_is_recorded_with_its_errno() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({ "refusals": [{ "request": "NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT", "errno": 28 }] });
    std::fs::write(folder.path().join("m.json"), settings.to_string()).unwrap();
    let arguments = ["--device", "sim", "--model", "m.json", "--report", "r.tar.gz", "--until", "4"];
    assert_eq!(ending(folder.path(), &arguments).0, Some(1));
    let files = files(folder.path(), "r.tar.gz");
    assert_eq!(outcomes(&files), ["failed", "passed", "passed", "failed", "skipped"]);
    assert!(files["stage-03.json"]["text"].as_str().unwrap().contains("CREATE_SUBCONTEXT"));
    assert_eq!(files["stage-03.json"]["last_step"], "creating TSG and subcontext");
    let calls = files["stage-03-calls.jsonl"].as_str().unwrap();
    assert!(
        calls.lines().any(|line| line.contains("CREATE_SUBCONTEXT") && line.contains("\"errno\":28")),
        "{calls}"
    );
}

#[test]
fn destructive_stages_need_a_yes() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({ "refusals": [{ "request": "NVGPU_GPU_IOCTL_OPEN_TSG", "errno": 12 }] });
    std::fs::write(folder.path().join("m.json"), settings.to_string()).unwrap();
    // Without kernels, no stage reaches the question.
    let arguments = ["--device", "sim", "--model", "m.json", "--report", "a.tar.gz"];
    let (_, output) = ending(folder.path(), &arguments);
    assert!(!output.contains("--yes"), "{output}");
    let (code, output) = ending(folder.path(), &["--device", "sim", "--report", "b.tar.gz"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("no terminal, and --yes is missing"), "{output}");
    let files = files(folder.path(), "b.tar.gz");
    assert_eq!(outcomes(&files)[12..], ["passed", "skipped", "skipped"]);
}

#[test]
fn an_interrupted_run_resets_its_stage_and_keeps_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    // The doctor of stage 0 is stuck in the driver.
    let settings = json!({ "request_ms": { "NVGPU_AS_IOCTL_MAP_BUFFER_EX": 60000 } });
    std::fs::write(folder.path().join("m.json"), settings.to_string()).unwrap();
    let arguments = ["--device", "sim", "--model", "m.json", "--report", "r.tar.gz"];
    let mut child = command(folder.path(), &arguments).stdout(Stdio::null()).spawn().unwrap();
    let journal = folder.path().join("orin-bring-up.parts/journal.txt");
    let start = Instant::now();
    while !std::fs::read_to_string(&journal).unwrap_or_default().contains("running the doctor") {
        assert!(start.elapsed() < PATIENCE, "stage 0 does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let files = files(folder.path(), "r.tar.gz");
    assert_eq!(outcomes(&files), [["failed"].as_slice(), &["skipped"; 14]].concat());
    assert!(files["stage-00.json"]["text"].as_str().unwrap().contains("stopped by a signal"));
    let calls = files["stage-00-calls.jsonl"].as_str().unwrap();
    let stuck = calls.lines().find(|line| line.contains("did not return")).unwrap();
    assert!(stuck.contains("MAP_BUFFER_EX"), "{stuck}");
}

#[test]
fn a_stage_that_exceeds_its_deadline_resets_its_channels() {
    let folder = tempfile::tempdir().unwrap();
    // The request that follows the opening of both channels is stuck in the driver.
    let settings = json!({ "request_ms": { "NVGPU_IOCTL_TSG_EVENT_ID_CTRL": 60000 } });
    std::fs::write(folder.path().join("m.json"), settings.to_string()).unwrap();
    let start = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_orin"))
        .args([
            "bring-up-stage",
            "4",
            "--device",
            "sim",
            "--folder",
            ".",
            "--limit",
            "2000",
            "--model",
            "m.json",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    let record = std::fs::read(folder.path().join("stage-04.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(record["text"], "not done after 2000 ms; FORCE_RESET of 2 channels");
    let calls = std::fs::read_to_string(folder.path().join("stage-04-calls.jsonl")).unwrap();
    let resets = calls.lines().filter(|line| line.contains("NVGPU_IOCTL_CHANNEL_FORCE_RESET"));
    assert_eq!(resets.filter(|line| line.contains("\"result\":0")).count(), 2, "{calls}");
}

#[test]
fn a_freeze_names_its_stage_on_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().join("orin-bring-up.parts");
    std::fs::create_dir(&parts).unwrap();
    let journal = "stage 6 passed\nstage 7 starting\nstage 7 step: launching with PCAS action 3\n";
    std::fs::write(parts.join("journal.txt"), journal).unwrap();
    let (code, output) = ending(folder.path(), &["--device", "sim", "--until", "0", "--report", "r.tar.gz"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("stage 7 (one thread), while launching with PCAS action 3"), "{output}");
    let files = files(folder.path(), "r.tar.gz");
    assert_eq!(files["report.json"]["earlier_run_ended_in"]["stage"], 7);
    assert_eq!(files["earlier/journal.txt"], journal);
}

#[test]
fn wrong_arguments_are_usage_errors() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("there.tar.gz"), "x").unwrap();
    std::fs::write(folder.path().join("bad.json"), "{\"memory\": 1}").unwrap();
    for arguments in [
        ["--until", "15"].as_slice(),
        &["--until", "x"],
        &["--device", "gpu"],
        &["--report", "r.tgz"],
        &["--device", "sim", "--report", "there.tar.gz"],
        &["--device", "sim", "--model", "absent.json"],
        &["--device", "sim", "--model", "bad.json"],
        &["--device", "nvgpu", "--model", "bad.json"],
        &["--show", "absent.tar.gz"],
        &["--show", "there.tar.gz", "--yes"],
        &["--nonsense"],
    ] {
        let (code, output) = ending(folder.path(), arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {output}");
    }
    std::fs::write(folder.path().join("cut.tar.gz"), b"\x1f\x8b\x08\0").unwrap();
    let (code, output) = ending(folder.path(), &["--show", "cut.tar.gz"]);
    assert!(code == Some(1) && output.contains("not a whole report"), "{output}");
    let stage = Command::new(env!("CARGO_BIN_EXE_orin"))
        .args(["bring-up-stage", "15", "--device", "sim", "--folder", ".", "--limit", "1"])
        .output()
        .unwrap();
    assert_eq!(stage.status.code(), Some(2));
}

/// The kernel of the environment.
fn kernel() -> Release {
    orin_sim::release::from_environment().unwrap()
}

/// The settings with the kernel of the environment, if its layouts are not those of R36.
fn of_kernel(settings: &Value) -> Value {
    let mut settings = settings.clone();
    if kernel() >= Release::R39_2 {
        settings["kernel"] = json!(kernel().name());
    }
    settings
}

/// Runs the stages on a model with settings and replays the report, whose settings must be the same.
fn replayed(folder: &Path, name: &str, settings: &Value, until: &str) -> Value {
    let settings = &of_kernel(settings);
    std::fs::write(folder.join("m.json"), settings.to_string()).unwrap();
    for attempt in 1.. {
        let report = format!("{name}{attempt}.tar.gz");
        // Work that hangs is given up early; the other work takes milliseconds.
        let mut arguments = vec!["--device", "sim", "--model", "m.json", "--report", &report, "--yes"];
        arguments.extend(["--until", until, "--patience", "1000"]);
        let _ = run(folder, &arguments);
        let output = run(folder, &["--replay", &report, "--settings", "back.json", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let replayed: Value = serde_json::from_slice(&output.stdout).unwrap();
        // A stall of this machine looks like a slow board: power-up and late lines are measured once each. Wrong
        // settings are wrong in each attempt.
        if replayed["settings"] != *settings && attempt < 6 {
            continue;
        }
        assert_eq!(replayed["settings"], *settings);
        let written = std::fs::read(folder.join("back.json")).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), *settings);
        return replayed;
    }
    unreachable!("the last attempt returns or panics")
}

#[test]
fn events_and_encodings_of_a_report_replay_to_settings() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({
        "event_us": 20_000,
        "inert_pcas_actions": [3],
        "hanging_pcas_actions": [10],
        "broken_chains": [
            { "action": 1, "prefetch": true, "effect": "lost" },
            { "action": 3, "prefetch": false, "effect": "hang" },
        ],
    });
    let replayed = replayed(folder.path(), "r", &settings, "9");
    let differences = replayed["differences"].as_array().unwrap();
    let row = |what: &str| differences.iter().find(|row| row["what"] == what).unwrap();
    assert_eq!(row("pcas_actions.10")["model"], "works");
    assert!(row("chains.action 3, 8")["report"].as_str().unwrap().contains("not tried"));
    assert!(row("latency.median_us")["report"].as_f64().unwrap() > 20_000.0);
    // The default chain loses launches on this board.
    let files = files(folder.path(), "r1.tar.gz");
    assert_eq!(outcomes(&files)[5..], ["passed", "passed", "passed", "passed", "failed"]);
}

#[test]
fn a_report_of_an_altered_model_replays_to_its_settings() {
    let folder = tempfile::tempdir().unwrap();
    let altered = nvgpu_sys::ctrl::Characteristics { max_freq: 918_000_000, ..orin_sim::config::agx_orin() };
    let characteristics = orin_sim::Settings::characteristics_digits(&altered, kernel());
    let settings = json!({
        "memory_bytes": 32_u64 << 30,
        "characteristics": characteristics,
        "tpc_masks": [7, 1],
        "power_up_ms": 30,
        "late_mmu_lines_ms": 150,
        "request_ms": { "NVGPU_GPU_IOCTL_OPEN_TSG": 12 },
        // Compute CILP alone is refused.
        "refusals": [
            { "request": "NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE", "argument": [0, 4], "errno": 22 },
            { "request": "NVGPU_IOCTL_CHANNEL_WDT", "errno": 1 },
        ],
        "inert_pcas_actions": [3],
    });
    // Without a watchdog request no channel opens, so a second model has all of the others.
    let mut others = settings.clone();
    others["refusals"].as_array_mut().unwrap().pop();
    let watchdog = json!({ "refusals": [settings["refusals"][1]] });
    for (name, settings, until) in [("a", &others, "13"), ("b", &watchdog, "3")] {
        let replayed = replayed(folder.path(), name, settings, until);
        let differences = replayed["differences"].as_array().unwrap();
        assert!(!differences.is_empty());
        if name == "a" {
            let masks = differences.iter().find(|row| row["what"] == "tpc_masks").unwrap();
            assert_eq!((&masks["report"], &masks["model"]), (&json!([7, 1]), &json!([15, 15])));
            let order = differences.iter().find(|row| row["what"] == "faults.fault_write.order").unwrap();
            assert_ne!(order["report"], order["model"]);
            let request = "NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE: errnos";
            let errnos = differences.iter().find(|row| row["what"] == request).unwrap();
            assert_eq!((&errnos["report"], &errnos["model"]), (&json!([22]), &json!([])));
        }
    }
}

#[test]
fn a_report_of_the_model_itself_needs_no_settings() {
    let folder = tempfile::tempdir().unwrap();
    let replayed = replayed(folder.path(), "r", &json!({}), "4");
    assert!(replayed["differences"].is_array());
    // The text ends with the same settings, and the last attempt is the report that needs none.
    let last = (1..).take_while(|attempt| folder.path().join(format!("r{attempt}.tar.gz")).exists()).last();
    let output = run(folder.path(), &["--replay", &format!("r{}.tar.gz", last.unwrap())]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = text(&output.stdout);
    let settings = format!("writes to a file:\n{:#}\n", of_kernel(&json!({})));
    assert!(output.ends_with(&settings), "{output}");
}
