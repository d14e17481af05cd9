//! `orin decode` on files of words and code, as a program: output, exit codes, standard input.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
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
fn the_entries_of_a_fat_binary_are_listed_and_printed() {
    let file = format!("{}/../cubin/tests/data/lz4.fatbin", env!("CARGO_MANIFEST_DIR"));
    let with = |options: &[&str]| {
        let output = decode(&[&["cubin", &file], options].concat());
        (text(&output.stdout), output.status.code().unwrap())
    };
    let rows = "a fat binary with 3 entries\n\
        entry 0: cubin sm_87, version 1.7, 2984 bytes (975 in the file, LZ4), source tiny.cu\n\
        entry 1: cubin sm_80, version 1.7, 2728 bytes (836 in the file, LZ4), source tiny.cu\n\
        entry 2: PTX compute_80, version 6.0, 333 bytes (270 in the file, LZ4), source tiny.cu, options -O3 -v\n";
    assert_eq!(with(&[]), (rows.to_owned(), 0));
    let (cubin, code) = with(&["--entry", "1"]);
    assert!(code == 0 && cubin.starts_with("sm_80, a loadable cubin"), "{cubin}");
    assert!(cubin.contains("\nkernel tiny\n"), "{cubin}");
    let (ptx, code) = with(&["--entry", "2"]);
    assert!(code == 0 && ptx.contains("\n.version 6.0\n.target sm_50\n"), "{ptx}");
    let absent = "error: there is no entry 3: the fat binary has 3\n";
    assert_eq!(with(&["--entry", "3"]), (absent.to_owned(), 1));
    let json: serde_json::Value = serde_json::from_str(&with(&["--json"]).0).unwrap();
    assert_eq!(json["entries"][2]["options"], "-O3 -v");
    let output = piped(&["cubin", "-"], &std::fs::read(&file).unwrap()[..100]);
    let error = text(&output.stdout);
    assert!(error.starts_with("error: not a fat binary that can be read, at 0x8"), "{error}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(piped(&["cubin", "-", "--entry", "0"], b"\x7fELF").status.code(), Some(2));
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
    assert_eq!(piped(&["cubin", "-"], b"nothing").status.code(), Some(2));
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
    assert_eq!(piped(&["sass", "-"], b"\x01\0").status.code(), Some(1));
    assert_eq!(decode(&["sass", "/no/such/file"]).status.code(), Some(2));
}

/// Each command that reads a file says what a file of another kind is, and which command reads it.
#[test]
fn files_of_the_wrong_kind_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    file("k.cu", b"extern \"C\" __global__ void k() {}\n");
    file("k.cubin", include_bytes!("../../../../kernels/saxpy.cubin"));
    file("a.json", b"{\"a\":1}\n");
    file("a.record", b"{\"version\":2,\"board\":\"agx-64:maxn\"}\n{\"end\":0}\n");
    file("tiny.gguf", b"GGUF\x03\0\0\0");
    file("a.gz", b"\x1f\x8b\x08\0");
    let program = fs::read(env!("CARGO_BIN_EXE_orin")).unwrap();
    file("program", &program[..1 << 20]);
    fs::set_permissions(folder.path().join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let cubin = "`orin decode cubin` prints it";
    let cuda = "`orin compile FILE.cu` makes a cubin of it";
    for (line, words) in [
        (&["decode", "gpfifo", "k.cu"][..], &["k.cu: CUDA C++, not entries of a ring; ", cuda][..]),
        (&["decode", "qmd", "k.cubin"], &["k.cubin: a cubin, not words of a launch descriptor; ", cubin]),
        (
            &["decode", "pushbuf", "tiny.gguf"],
            &["a GGUF model, not words", "`orin llm info --model` prints it"],
        ),
        (&["decode", "pushbuf", "a.record"], &["a record, not words", "`orin replay` repeats it"]),
        (&["decode", "cubin", "k.cu"], &["k.cu: CUDA C++, not a cubin; ", cuda]),
        (&["decode", "cubin", "a.json"], &["a.json: JSON, not a cubin"]),
        (
            &["decode", "cubin", "program"],
            &["program: a program or library for a CPU, not a cubin; `orin serve"],
        ),
        (&["decode", "sass", "k.cu"], &["CUDA C++, not a cubin or machine code", cuda]),
        (&["decode", "strace", "a.gz"], &["a compressed file or archive, not a trace of strace"]),
        (&["replay", "k.cu"], &["k.cu: CUDA C++, not a record", cuda]),
        (&["replay", "a.json"], &["line 1: this is not the header of a record"]),
        (&["profile-kernel", "--import", "k.cubin"], &["a cubin, not profiles of kernels", cubin]),
        (&["profile-kernel", "--import", "a.record"], &["a record, not profiles of kernels"]),
        (&["llm", "info", "k.cubin"], &["k.cubin: a cubin, not a GGUF model", cubin]),
        (
            &["llm", "logits", "tiny.gguf", "--tokens", "k.cu", "--out", "x"],
            &["CUDA C++, not numbers of tokens"],
        ),
        (&["bring-up", "--show", "k.cubin"], &["a cubin, not a report of `orin bring-up`", cubin]),
        (
            &["bring-up", "--device", "sim", "--model", "k.cu"],
            &["k.cu: the settings are JSON, not CUDA C++", cuda],
        ),
        (&["dmesg", "--file", "program"], &["a program or library for a CPU, not a kernel log"]),
        (&["check", "--cubin", "k.cu", "--", "true"], &["k.cu: not a cubin: CUDA C++", cuda]),
        // What a command reads is not written by it.
        (&["profile-kernel", "--import", "a.json", "--html", "a.json"], &["a.json would be overwritten"]),
        (
            &["llm", "logits", "tiny.gguf", "--tokens", "k.cu", "--out", "k.cu"],
            &["k.cu would be overwritten"],
        ),
        (&["record", "program", "--", "./program"], &["program would be overwritten"]),
        (&["check", "--sarif", "program", "--", "./program"], &["program would be overwritten"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orin"));
        let output = command.args(line).current_dir(folder.path()).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {errors}");
        for words in words {
            assert!(errors.contains(words), "{line:?}: {words}: {errors}");
        }
    }
    // Also by the variable.
    let mut command = Command::new(env!("CARGO_BIN_EXE_orin"));
    command.args(["info", "--device", "sim"]).env("ORIN_SIM_SETTINGS", folder.path().join("k.cubin"));
    let output = command.output().unwrap();
    let errors = text(&output.stderr);
    assert!(errors.contains("k.cubin: the settings are JSON, not a cubin"), "{errors}");
}
