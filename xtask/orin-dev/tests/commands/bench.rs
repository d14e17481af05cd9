//! `cargo xtask bench` as a program, on the software Orin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use orin_cli::testing::shared_library;

use super::{orin_dev, stderr, stdout};

fn bench(arguments: &[&str]) -> Output {
    bench_beside(Path::new("/no/such/libcuda.so.1"), arguments)
}

/// With the given file as libcuda.
fn bench_beside(libcuda: &Path, arguments: &[&str]) -> Output {
    let mut command = orin_dev();
    command.env("NVGPU_LIBCUDA", libcuda).arg("bench").args(arguments).output().unwrap()
}

/// A stub library with libcuda's functions, if it can be built here.
fn stand_in(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/fake_libcuda.c");
    shared_library(&source, folder.join("libcuda.so.1"))
}

#[test]
fn a_quick_run_measures_every_case_that_the_software_orin_can_run() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let output = bench(&["--device", "sim", "--quick", "--json", json.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let results = value["results"].as_array().unwrap();
    let listed = stdout(&bench(&["--list"]));
    assert_eq!(results.len(), listed.lines().count());
    for (result, line) in results.iter().zip(listed.lines()) {
        let name = result["name"].as_str().unwrap();
        assert!(line.starts_with(name), "{line}");
        let left_out = line.ends_with("(needs a GPU)") || line.ends_with("(not in a quick run)");
        let expected = if left_out { "skipped" } else { "measured" };
        let reason = result["reason"].as_str().unwrap_or_default();
        let served = reason.contains("cannot be served") || reason.contains("python3");
        // Whether cargo has built the CUDA library beside the program depends on what it was asked for.
        let own_cuda = reason.contains("-p orin-libcuda");
        if name.starts_with("serve/") && served || name.starts_with("cuda/") && own_cuda {
            eprintln!("skipped: {name}: {reason}");
            continue;
        }
        assert_eq!(result["outcome"], expected, "{result}");
        if expected == "measured" {
            let ours = &result["ours"];
            let [min, median, max] = ["min", "median", "max"].map(|figure| ours[figure].as_f64().unwrap());
            assert!(0.0 < min && min <= median && median <= max, "{result}");
            assert!(stdout(&output).contains(name));
        }
    }
    assert_eq!((&value["device"]["kind"], &value["rival"]), (&"sim".into(), &serde_json::Value::Null));
    assert!(value["machine"]["cpus"].as_u64().unwrap() > 0 && value["date"].as_str().unwrap().ends_with('Z'));
    assert!(stderr(&output).contains("skipped: needs a GPU"), "skipped cases are reported");
}

#[test]
fn json_goes_to_standard_output_alone() {
    let output = bench(&["--device", "sim", "--quick", "--filter", "launch/submit", "--json", "-"]);
    let value: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(value["results"][0]["name"], "launch/submit");
    assert!(stderr(&output).contains("launch/submit"), "the table goes to standard error");
}

#[test]
fn without_libcuda_there_is_no_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let output =
        bench(&["--device", "sim", "--quick", "--against", "cuda", "--json", json.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty() && fs::read_dir(folder.path()).unwrap().next().is_none());
    let text = stderr(&output);
    assert!(text.contains("/no/such/libcuda.so.1") && text.contains("NVGPU_LIBCUDA"), "{text}");
}

#[test]
fn the_rival_alternates_and_releases_everything() {
    let folder = tempfile::tempdir().unwrap();
    let Some(libcuda) = stand_in(folder.path()) else { return };
    let json = folder.path().join("run.json");
    let arguments = ["--device", "sim", "--quick", "--against", "cuda", "--json", json.to_str().unwrap()];
    let output = bench_beside(&libcuda, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("CUDA / ours") && stdout(&output).contains("  CUDA"));

    let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&value["rival"]["device"], &value["rival"]["sm"]), (&"a stub".into(), &87.into()));
    for result in value["results"].as_array().unwrap() {
        if result["outcome"] != "measured" {
            continue;
        }
        let name = result["name"].as_str().unwrap();
        let rival = &result["rival"];
        let without_rival = [
            "file/",
            "network/",
            "launch/encode",
            "launch/profiled",
            "graph/1000_profiled",
            "growth/drop_in_use",
            "growth/graph_build",
            "growth/graph_replay",
            "growth/queue",
            "serve/",
        ];
        if without_rival.iter().any(|start| name.starts_with(start)) {
            assert!(rival.is_null(), "no counterpart exists: {result}");
        } else if name.starts_with("peer/") {
            // The stub has one device.
            assert!(rival["reason"].as_str().unwrap().contains("cuDeviceGet"), "{result}");
        } else if name.starts_with("matmul/") && !rival["reason"].is_null() {
            assert!(rival["reason"].as_str().unwrap().contains("libcublas.so"), "{result}");
        } else if name.starts_with("signal/") {
            // The stub lacks these functions, like some boards.
            assert!(rival["reason"].as_str().unwrap().contains("CUDA_ERROR_NOT_SUPPORTED"), "{result}");
        } else {
            assert_eq!(rival["count"], result["ours"]["count"], "sample by sample: {result}");
            assert!(result["rival_over_ours"]["median"].as_f64().unwrap() > 0.0, "{result}");
        }
    }
    assert_eq!(bench_beside(&libcuda, &["--first-result", "cuda"]).status.code(), Some(0));
}

#[test]
fn a_child_process_reports_its_first_result() {
    let output = bench(&["--first-result", "sim"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "first result\n"));
    assert_ne!(bench(&["--first-result", "cuda"]).status.code(), Some(0));
}

#[test]
fn a_run_is_compared_with_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (old, new) = (file("old.json"), file("new.json"));
    let common = ["--device", "sim", "--quick", "--filter", "launch/submit", "--json"];
    assert_eq!(bench(&[&common[..], &[&old]].concat()).status.code(), Some(0));
    let output = bench(&[&common[..], &[&new, "--baseline", &old]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("change") && text.contains("against the run of") && !text.contains("warning"),
        "{text}"
    );
    let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&new).unwrap()).unwrap();
    let verdict = value["results"][0]["change"]["verdict"].as_str().unwrap();
    assert!(["faster", "SLOWER", "unclear", "no change"].contains(&verdict), "{value}");
    assert_eq!(value["baseline"]["commit"], value["commit"]);
    fs::write(&old, "[]").unwrap();
    let output = bench(&["--baseline", &old]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("old.json: "), "{}", stderr(&output));
}

#[test]
fn a_run_is_profiled_and_traced() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let trace = trace.to_str().unwrap();
    let common =
        ["--device", "sim", "--quick", "--filter", "launch/wait_spin", "--profile", "--trace", trace];
    let output = bench(&common);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("empty") && stderr(&output).contains("share"), "{}", stderr(&output));
    let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    let runs = value["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == "gpu");
    assert!(runs.count() > 2, "{value}");
    let output = bench(&["--trace", "/no/such/folder/trace.json"]);
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("/no/such/folder"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn wrong_requests_end_with_2() {
    let mut requests = vec![
        (vec!["--filter", "no such case"], "--list"),
        (vec!["--against", "other"], "cuda"),
        (vec!["--device", "toaster"], "toaster"),
        (vec!["--json", "/no/such/folder/run.json"], "/no/such/folder"),
        (vec!["--html", "run.html"], "--html"),
    ];
    if !std::path::Path::new("/dev/nvgpu/igpu0/ctrl").exists() {
        requests.push((vec!["--device", "nvgpu"], "/dev/"));
    }
    for (arguments, words) in requests {
        let output = bench(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words) && stdout(&output).is_empty(), "{}", stderr(&output));
    }
}
