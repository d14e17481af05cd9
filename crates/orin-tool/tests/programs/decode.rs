//! `orin decode` on files of words and code, as a program: output, exit codes, standard input.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn decode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orin")).arg("decode").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs with an input on standard input.
fn piped(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orin"));
    command.arg("decode").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn words_from_a_file_and_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("words");
    fs::write(&file, [0xb0, 0x20, 0x01, 0x20, 9, 0, 0, 0]).unwrap();
    let binary = decode(&["pushbuf", file.to_str().unwrap()]);
    assert_eq!(binary.status.code(), Some(0));
    assert!(text(&binary.stdout).contains("PCAS_ACTION PREFETCH_SCHEDULE"));
    assert!(text(&binary.stdout).contains("read as binary; words: 2"));
    let hexadecimal = piped(&["pushbuf", "-", "--class", "hopper", "--base", "0x1000"], b"200120b0 9");
    assert_eq!(hexadecimal.status.code(), Some(0));
    assert!(text(&hexadecimal.stdout).starts_with("0x000000001000    0: 200120b0"));
    let entries = piped(&["gpfifo", "-", "--json"], b"0000580014000000");
    assert_eq!(entries.status.code(), Some(0));
    assert!(text(&entries.stdout).contains(r#""words":22"#));
}

#[test]
fn damage_and_wrong_use_have_their_exit_codes() {
    for (command, input) in [("pushbuf", "20032000 1"), ("qmd", "1 2 3"), ("gpfifo", "1 zz")] {
        let output = piped(&[command, "-"], input.as_bytes());
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(text(&output.stdout).contains("error: "), "{command}");
        for path in ["/no/such/file", "/"] {
            let output = decode(&[command, path]);
            assert_eq!(output.status.code(), Some(2), "{command} {path}");
            assert!(text(&output.stderr).contains(path), "{command}");
        }
        assert_eq!(decode(&[command, "--no-such-option", "-"]).status.code(), Some(2));
    }
    assert_eq!(decode(&["pushbuf", "-", "--base", "tall"]).status.code(), Some(2));
}

#[test]
fn a_cubin_of_every_abi_version_is_listed() {
    let data = |name: &str| format!("{}/../cubin/tests/data/{name}.cubin", env!("CARGO_MANIFEST_DIR"));
    for (file, abi) in
        [("limits", "ABI version 7, OS ABI 0x33"), ("limits.13_0", "ABI version 8, OS ABI 0x41")]
    {
        let output = decode(&["cubin", &data(file)]);
        assert_eq!(output.status.code(), Some(0), "{file}");
        let said = text(&output.stdout);
        assert!(said.contains(abi) && said.contains("barriers 5, shared 264 bytes"), "{said}");
    }
    // An attribute with an unknown number in place of MERCURY_ISA_VERSION.
    let mut bytes = fs::read(data("limits.13_0")).unwrap();
    let at = bytes.windows(4).position(|record| record == [3, 0x5f, 0, 0]).unwrap();
    bytes[at + 1] = 0xee;
    let unknown = text(&piped(&["cubin", "-"], &bytes).stdout);
    assert!(unknown.contains(": unknown 0xee 0000"), "{unknown}");
    assert_eq!(decode(&["cubin", &data("tiny.relocatable")]).status.code(), Some(1));
    assert_eq!(piped(&["cubin", "-"], b"nothing").status.code(), Some(1));
    assert_eq!(decode(&["cubin", "/no/such/file"]).status.code(), Some(2));
}

#[test]
fn instructions_are_printed_line_by_line() {
    let root = env!("CARGO_MANIFEST_DIR");
    let cubin = decode(&["sass", &format!("{root}/../../kernels/matmul.cubin")]);
    assert_eq!(cubin.status.code(), Some(0));
    assert!(text(&cubin.stdout).contains("BAR.SYNC.DEFER_BLOCKING 0x0"), "{}", text(&cubin.stdout));

    let list = format!("{root}/../sass/tests/golden.jsonl");
    let lines = fs::read_to_string(&list).unwrap().lines().count();
    let output = decode(&["sass", &list, "--json"]);
    let said = text(&output.stdout);
    assert_eq!(said.lines().count(), lines + 1, "one line each and a summary");
    let summary: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(summary["instructions"], lines);
    assert!(summary["different"].as_u64().unwrap() < 20, "{summary}");
    assert_eq!(piped(&["sass", "-"], b"12").status.code(), Some(1));
    assert_eq!(decode(&["sass", "/no/such/file"]).status.code(), Some(2));
}
