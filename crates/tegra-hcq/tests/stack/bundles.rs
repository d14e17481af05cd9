//! Crash bundles: written on request, and automatically after a fault or a time-out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tegra_hcq::{Error, QueueOptions, args};
use test_support::{Bench, TIMEOUT};

const FILES: [&str; 7] = [
    "fault.txt",
    "kernel.log",
    "launches.txt",
    "mappings.txt",
    "state.json",
    "submissions.txt",
    "versions.json",
];
/// Folder for the bundles of [`trouble`].
const VARIABLE: &str = "NVGPU_CRASH_DIR";

fn read(bundle: &Path, name: &str) -> String {
    fs::read_to_string(bundle.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json(bundle: &Path, name: &str) -> Value {
    serde_json::from_str(&read(bundle, name)).unwrap()
}

/// The bundles in a folder, oldest first.
fn bundles(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort_by_key(|path| path.to_string_lossy().rsplit_once('-').unwrap().1.parse::<u32>().unwrap());
    paths
}

#[test]
fn a_device_without_trouble_writes_all_files() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 64]).unwrap().named("counters");
    unsafe { bench.run("increment", 2, 32, &args![&data, 64_u32]) };
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("made/on/the/way");
    let bundle = bench.device.write_bundle(&inside).unwrap();
    assert_eq!(bundle.parent(), Some(inside.as_path()));
    let names: BTreeSet<String> = fs::read_dir(&bundle)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, FILES.map(str::to_owned).into());

    assert!(read(&bundle, "fault.txt").contains("No queue of the device has faulted"));
    let commands = read(&bundle, "submissions.txt");
    assert!(
        commands.contains("SEND_PCAS_A") && commands.contains("kernel increment, grid 2x1x1"),
        "{commands}"
    );
    let launches = read(&bundle, "launches.txt");
    assert!(launches.contains("kernel increment") && launches.contains("CTA_RASTER_WIDTH 0x2"), "{launches}");
    let mappings = read(&bundle, "mappings.txt");
    let row = mappings.lines().find(|line| line.ends_with("counters")).unwrap();
    assert!(row.starts_with(&format!("{:#014x}", data.gpu_va())) && row.contains(" 256 "), "{row}");
    for content in ["timelines", "program", "pushbuffer", "launch records", "local memory"] {
        assert!(mappings.contains(content), "{content} is missing in\n{mappings}");
    }
    let versions = json(&bundle, "versions.json");
    assert_eq!(versions["device"]["chip"], "ga10b");
    assert_eq!(versions["crates"]["tegra-hcq"], "0.1.0");
    assert!(
        versions["driver"]["compute_class"].is_i64() && versions["crates"]["gpu-hal"].is_string(),
        "{versions}"
    );
    let state = json(&bundle, "state.json");
    assert_eq!((&state["event"], &state["queues"][0]["health"]), (&"request".into(), &"working".into()));
    assert_eq!(state["queues"][0]["pending"], 0);
    let ring = &state["queues"][0]["rings"]["compute"];
    assert!(ring["gp_put"].as_u64().unwrap() > 0 && ring["gp_get"] == ring["gp_put"], "{ring}");
    assert_eq!(ring["userd"].as_array().unwrap().len(), 128);

    let again = bench.device.write_bundle(&inside).unwrap();
    assert_ne!(again, bundle, "each bundle has its own folder");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let text = bench.device.write_bundle(&file).unwrap_err().to_string();
    assert!(text.contains("writing") && text.contains("file"), "{text}");
}

#[test]
fn asking_for_a_bundle_takes_nothing_from_a_fault() {
    let mut bench = Bench::new("faults");
    let kernel = bench.program.kernel("fault_write").unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
    let fence = bench.queue.submit().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Before, during or after the fault: the log's lines belong to the fault's report.
    for _ in 0..3 {
        bench.device.write_bundle(folder.path()).unwrap();
    }
    let Err(Error::Fault(fault)) = fence.wait(TIMEOUT) else { panic!("expected a fault") };
    assert_eq!(fault.address, Some(0x40_0000_0000));
    let bundle = bench.device.write_bundle(folder.path()).unwrap();
    let text = read(&bundle, "fault.txt");
    assert!(text.contains("This fault stopped queue 0") && text.contains(&fault.to_string()), "{text}");
    bench.device.recover().unwrap();
    let bundle = bench.device.write_bundle(folder.path()).unwrap();
    let text = read(&bundle, "fault.txt");
    assert!(text.contains("Queue 0 lost its submissions 3 to 3 to this fault"), "{text}");
    assert!(read(&bundle, "submissions.txt").contains("kernel fault_write"));
}

/// Provokes a fault, a hang and more faults. Without the variable, no error mentions a bundle. With it, as in
/// the test below, each error names one until the folder is full.
#[test]
fn trouble() {
    let folder = std::env::var_os(VARIABLE).map(PathBuf::from);
    let check = |error: &Error, number: usize| {
        let text = error.to_string();
        let Some(folder) = &folder else {
            assert!(!text.contains("crash bundle"), "{text}");
            return;
        };
        let last = bundles(folder).pop().unwrap();
        assert_eq!(
            text.contains(&format!("crash bundle: {}", last.display())),
            number < 16,
            "{number}: {text}"
        );
    };
    let mut bench = Bench::new("faults");
    let error = unsafe { bench.try_run("fault_write", 3, 2, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap_err();
    check(&error, 0);
    bench.device.recover().unwrap();

    let stop = bench.device.alloc_from(&[0_u32]).unwrap();
    let out = bench.device.alloc_zeroed::<u32>(1).unwrap();
    let endless = bench.program.kernel("fault_endless").unwrap();
    unsafe { bench.queue.launch(&endless, 1, 1, &args![&stop, &out]) }.unwrap();
    let fence = bench.queue.submit().unwrap();
    let poll = fence.wait(Duration::from_millis(1)).unwrap_err();
    assert!(!poll.to_string().contains("crash bundle"), "{poll}");
    for _ in 0..3 {
        check(&fence.wait(Duration::from_millis(50)).unwrap_err(), 1);
    }
    bench.device.recover().unwrap();
    for number in 2..20 {
        let address = 0x40_0000_0000_u64 + number as u64 * 0x1000;
        let error = unsafe { bench.try_run("fault_write", 1, 1, &args![address, 1_u32]) }.unwrap_err();
        check(&error, number);
        bench.device.recover().unwrap();
    }
}

#[test]
fn faults_and_time_outs_write_bundles_where_the_variable_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("crashes");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bundles::trouble", "--nocapture"])
        // The faults are deliberate; the checks of the software Orin may report them.
        .env("ORIN_SIM_CHECK_EXIT", "0")
        .env(VARIABLE, &folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
    let bundles = bundles(&folder);
    assert_eq!(bundles.len(), 16, "no more than that: {bundles:?}");
    assert!(text.contains("it holds 16 bundles; move them away"), "{text}");

    let fault = read(&bundles[0], "fault.txt");
    for expected in [
        "time             20",
        "fault of queue 0",
        "GPU fault: MMU fault at address 0x4000000000",
        "kind             Mmu",
        "kernel           fault_write",
        "grid             3x1x1",
        "block            2x1x1",
        "[MMU FAULT]",
    ] {
        assert!(fault.contains(expected), "{expected} is missing in\n{fault}");
    }
    assert!(read(&bundles[0], "kernel.log").contains("fault addr: 0x4000000000"));
    assert!(read(&bundles[0], "submissions.txt").contains("kernel fault_write, grid 3x1x1"));
    assert!(read(&bundles[0], "launches.txt").contains("kernel fault_write"));
    let state = json(&bundles[0], "state.json");
    let queue = &state["queues"][0];
    assert_eq!((&state["event"], &queue["health"]), (&"fault".into(), &"faulted".into()));
    assert_eq!(
        (&queue["submitted"], &queue["timeline"], &queue["pending"]),
        (&3.into(), &2.into(), &1.into())
    );

    let hang = read(&bundles[1], "fault.txt");
    assert!(hang.contains("time-out of queue 0") && hang.contains("kernel fault_endless"), "{hang}");
    let state = json(&bundles[1], "state.json");
    let queue = &state["queues"][0];
    assert_eq!((&state["event"], &queue["last_kernel"]), (&"time-out".into(), &"fault_endless".into()));
    assert_eq!(queue["pending"], 1);
    let lost = &queue["lost"][0];
    assert_eq!((&lost["first"], &lost["last"]), (&3.into(), &4.into()), "{lost}");
}

#[test]
fn a_folder_that_cannot_be_written_changes_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bundles::asking_for_a_bundle_takes_nothing_from_a_fault", "--nocapture"])
        // The faults are deliberate; the checks of the software Orin may report them.
        .env("ORIN_SIM_CHECK_EXIT", "0")
        .env(VARIABLE, &file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
    let warning = format!("warning: no crash bundle in {} ({VARIABLE}): ", file.display());
    assert!(text.contains(&warning), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "not a folder");
}

/// The commands with which a queue waits for a signal and for another queue.
#[test]
fn a_queue_that_holds_its_engine_yields_to_other_queues_only() {
    let mut bench = Bench::with_options("basics", &QueueOptions::default().hold(true));
    let (go, later) = (bench.device.signal(0).unwrap(), bench.device.signal(0).unwrap());
    // A completed fence would not be waited for.
    let mut other = bench.device.queue().unwrap();
    other.wait_signal(&later, 1).unwrap();
    let fence = other.submit().unwrap();
    bench.queue.wait_signal(&go, 1).unwrap();
    bench.queue.wait_fence(&fence).unwrap();
    let submitted = bench.queue.submit().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let commands = read(&bench.device.write_bundle(folder.path()).unwrap(), "submissions.txt");
    go.set(1);
    later.set(1);
    submitted.wait(TIMEOUT).unwrap();
    let of_the_queue = commands.split("== queue 1").next().unwrap();
    let acquires: Vec<&str> =
        of_the_queue.lines().filter(|line| line.contains("OPERATION ACQ_CIRC_GEQ")).collect();
    let yields: Vec<bool> = acquires.iter().map(|line| line.contains("ACQUIRE_SWITCH_TSG EN")).collect();
    assert_eq!(yields, [false, true], "{commands}");
}
