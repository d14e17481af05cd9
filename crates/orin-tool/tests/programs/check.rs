//! `orin check`: what it passes to a program, what it collects, and its exit code.

use std::fs;
use std::io::Read;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const ORIN: &str = env!("CARGO_BIN_EXE_orin");

fn check(options: &[&str], program: &[&str]) -> Output {
    let mut command = Command::new(ORIN);
    command.arg("check").args(options).arg("--").args(program).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program that reports a finding as a software Orin of its own does.
const REPORTS: &str = r#"
test "$ORIN_SIM_CHECK,$ORIN_SIM_CHECK_EXIT" = "memcheck,leakcheck,0" || exit 9
echo '{"tool":"leakcheck","kind":"leak","count":1,"message":"kept (100 bytes) is alive"}' >> "$ORIN_SIM_CHECK_REPORT"
echo '{"launches":3,"faults":[]}' >> "$ORIN_SIM_CHECK_REPORT"
exit 0"#;

#[test]
fn findings_of_a_program_are_collected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.sarif");
    let options = ["--no-serve", "--tool", "memcheck,leakcheck", "--json", "--sarif", file.to_str().unwrap()];
    let output = check(&options, &["sh", "-c", REPORTS]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["findings"][0]["kind"], "leak");
    assert_eq!((&report["launches"], &report["tools"][1]), (&3.into(), &"leakcheck".into()));
    let sarif: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!((&result["ruleId"], &place["artifactLocation"]["uri"]), (&"leak".into(), &"sh".into()));
    let output = check(&["--no-serve", "--tool", "memcheck,leakcheck"], &["sh", "-c", REPORTS]);
    let errors = text(&output.stderr);
    let expected =
        "leakcheck: leak: kept (100 bytes) is alive\n3 launches checked (memcheck, leakcheck), 1 finding\n";
    assert_eq!(errors, expected);
}

#[test]
fn results_do_not_mix_with_what_the_program_prints() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("findings.json");
    let (name, option) = (file.to_str().unwrap(), format!("--json={}", file.display()));
    for options in [&[option.as_str()][..], &["--json", name]] {
        let output = check(&[&["--no-serve"], options].concat(), &["echo", "printed"]);
        assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("printed\n", ""));
        let report: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((&report["findings"], &report["launches"]), (&serde_json::json!([]), &0.into()));
        fs::remove_file(&file).unwrap();
    }
    for options in [&["--json"][..], &["--sarif", "-"]] {
        let output = check(&[&["--no-serve"], options].concat(), &["echo", "printed"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["version"] == 1 || report["version"] == "2.1.0", "{report}");
        assert!(text(&output.stderr).starts_with("printed\n"), "{}", text(&output.stderr));
    }
    let twice = check(&["--json", "--sarif", "-"], &["true"]);
    assert!(twice.status.code() == Some(2) && text(&twice.stderr).contains("two outputs"));
}

#[test]
fn a_run_ends_with_what_was_checked() {
    const NOTHING: &str = "nothing was checked: no kernel ran\n";
    let nothing = check(&["--no-serve"], &["true"]);
    assert_eq!(text(&nothing.stderr), NOTHING);
    // With launches, a program that fails ends the command.
    let launches = r#"echo '{"launches":3,"faults":[]}' >> "$ORIN_SIM_CHECK_REPORT"; exit 7"#;
    // As a test with a checker of its own does.
    let own = r#"echo '{"launches":0,"own_launches":2,"faults":[]}' >> "$ORIN_SIM_CHECK_REPORT""#;
    let output = check(&["--no-serve"], &["sh", "-c", own]);
    assert_eq!(text(&output.stderr), "the program checked 2 launches itself, and no other kernel ran\n");
    for (options, script, code) in [
        (&[][..], "exit 0", 0),
        (&["--require-launches"], "exit 0", 1),
        (&["--require-launches"], own, 0),
        (&["--require-launches"], launches, 7),
        (&["--require-launches", "--json"], "exit 0", 1),
    ] {
        let output = check(&[&["--no-serve"], options].concat(), &["sh", "-c", script]);
        let errors = text(&output.stderr);
        let is_named = errors.contains("no kernel was launched, but --require-launches is given\n");
        assert_eq!((output.status.code(), is_named), (Some(code), code == 1), "{options:?}: {errors}");
    }
    if !crate::serve::can_serve() {
        return;
    }
    assert_eq!(text(&check(&[], &["true"]).stderr), NOTHING);
    let folder = tempfile::tempdir().unwrap();
    let program = crate::serve::build(crate::serve::compiler(), "overrun", folder.path());
    let line = [program.to_str().unwrap(), &kernels("check/lines/mem.cubin"), "fix_read_past_end", "4"];
    let output = check(&["--tool", "memcheck"], &line);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "1 launch checked (memcheck), 0 findings\n");
}

#[test]
fn without_findings_the_exit_code_is_that_of_the_program() {
    assert_eq!(check(&["--no-serve"], &["sh", "-c", "exit 7"]).status.code(), Some(7));
}

/// A signal for the command is the program's, whose end it waits for.
#[test]
fn signals_reach_a_program_that_is_not_served() {
    let library = std::env::current_exe().unwrap().with_file_name("libcuda.so");
    for line in [&["check", "--no-serve"][..], &["profile-kernel", "--no-serve"], &["cuda"]] {
        // A shell cannot trap a signal that it finds ignored, as in a background job of another shell.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", ORIN]).env("ORIN_LIBCUDA", &library);
        command.args(line).args(["--", "sh", "-c"]);
        command.arg("trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7), "{line:?}");
    }
}

/// As a test with `tegra_hcq::check::clean`, the command makes a checker of its own.
#[test]
fn launches_of_other_checkers_are_counted() {
    let cubin = kernels("faults.cubin");
    let line = [
        ORIN,
        "run",
        "--cubin",
        &cubin,
        "--kernel",
        "fault_no_bound",
        "--grid",
        "2",
        "--block",
        "4",
        "--check",
    ];
    let line = [&line[..], &["--arg", "out:/dev/null:32", "--arg", "out:/dev/null:32"]].concat();
    let output = check(&["--no-serve", "--require-launches"], &line);
    let errors = text(&output.stderr);
    let (own, last) = ("1 launch checked (memcheck), 0 findings\n", "the program checked 1 launch itself, ");
    assert!(errors.contains(own) && errors.contains(last), "{errors}");
    assert!(errors.ends_with("and no other kernel ran\n") && output.status.success(), "{errors}");
}

#[test]
fn a_program_with_its_own_software_orin_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("r.tar.gz");
    let line = [ORIN, "bring-up", "--device", "sim", "--report", report.to_str().unwrap()];
    let output = check(&["--no-serve"], &line);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_served_program_without_errors_has_no_findings() {
    if !crate::serve::can_serve() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("r.tar.gz");
    let line = [ORIN, "bring-up", "--device", "nvgpu", "--until", "7", "--report", report.to_str().unwrap()];
    let output = check(&[], &line);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// The work of a launch that the GPU ends, and that after it, is not checked.
#[test]
fn faults_that_stop_a_channel_are_printed() {
    let cubin = kernels("faults.cubin");
    let line = [ORIN, "run", "--cubin", &cubin, "--kernel", "fault_trap", "--grid", "1", "--block", "1"];
    let line = [&line[..], &["--arg", "u32:0", "--arg", "out:/dev/null:4"]].concat();
    let output = check(&["--no-serve", "--tool", "synccheck"], &line);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let stopped = "the GPU stopped a channel, and its work was not checked: ";
    assert!(errors.contains(stopped), "{errors}");
    assert!(errors.ends_with("1 launch checked (synccheck), 0 findings\n"), "{errors}");
}

/// A file of `kernels`.
fn kernels(path: &str) -> String {
    format!("{}/../../kernels/{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn findings_of_a_served_program_have_names_and_lines_by_its_cubin() {
    if !crate::serve::can_serve() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = crate::serve::build(crate::serve::compiler(), "overrun", folder.path());
    let cubin = kernels("check/lines/mem.cubin");
    let finding = |arguments: &[&str], known: Option<&str>| {
        let mut options = vec!["--json", "--tool", "memcheck"];
        options.extend(known.iter().flat_map(|path| ["--cubin", path]));
        let output = check(&options, &[&[program.to_str().unwrap(), &cubin], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["findings"].as_array().map(Vec::len), Some(1), "{report:#}");
        report["findings"][0].clone()
    };
    // The program has the cubin no more.
    let forgotten = ["bug_read_past_end", "4", "forget"];
    let anonymous = finding(&forgotten, None);
    assert_eq!((&anonymous["kind"], &anonymous["count"]), (&"out-of-bounds".into(), &1.into()));
    assert_eq!((&anonymous["at"]["kernel"], anonymous["at"].get("line")), (&"".into(), None));
    assert_eq!(anonymous["object"].get("argument"), None);
    let source = fs::read_to_string(kernels("check/mem.cu")).unwrap();
    let start = source.lines().position(|line| line.contains("bug_read_past_end")).unwrap();
    let wrong = start + source.lines().skip(start).position(|line| line.contains("// BUG")).unwrap() + 1;
    // Found in the program's memory; given as a file, and as a folder with several.
    for (arguments, path) in
        [(&forgotten[..2], None), (&forgotten, Some(&cubin)), (&forgotten, Some(&kernels("check/lines")))]
    {
        let named = finding(arguments, path.map(String::as_str));
        let at = &named["at"];
        assert_eq!((&at["kernel"], &at["line"]), (&"bug_read_past_end".into(), &wrong.into()), "{named:#}");
        assert!(at["file"].as_str().is_some_and(|file| file.ends_with("mem.cu")), "{named:#}");
        assert_eq!(at["instruction"], anonymous["at"]["instruction"]);
        assert_eq!(named["object"]["argument"], 1);
    }
    // Two kernels with equal code, and thus two lines.
    let named = finding(&["bug_write_past_end", "5"], None);
    assert_eq!(named["at"]["kernel"], "bug_write_past_end or fix_write_after_free");
    assert_eq!((named["at"].get("line"), &named["count"]), (None, &64.into()));
}

#[test]
fn cubins_for_other_gpus_are_refused() {
    for (path, cause) in [
        (kernels("sm_90/vector_add.cubin"), "for another GPU: "),
        (kernels("sm_90"), "no file *.cubin for the Orin"),
        (kernels("vector_add.cu"), "not a cubin: "),
    ] {
        let refused = check(&["--cubin", &path], &["true"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(cause), "{}", text(&refused.stderr));
    }
}
