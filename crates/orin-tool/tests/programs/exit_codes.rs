//! The exit codes of every command of `orin`, and what happens if standard output cannot be written.

use std::fs;
use std::path::Path;

use orin_cli::ExitStatus::{Failure, Success, Usage};
use orin_cli::testing::Program;

const REQUEST: &str = "ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8), 0xff) = 0\n";

#[test]
fn every_command_has_the_exit_codes_of_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let cubin = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/vector_add.cubin");
    let file = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
    file("words", b"# a no-operation\n20000000\n");
    file("cut", b"20018000 # a method without its data\n");
    file("zeros", &[0; 256]);
    file("trace", REQUEST.as_bytes());
    file("cut-trace", format!("{REQUEST}ioctl(3, _IOC(_IOC_READ").as_bytes());
    file("other-trace", b"openat(AT_FDCWD, \"/etc/passwd\", O_RDONLY) = 3\n");
    file("empty.record", b"{\"version\":1,\"board\":\"nx-16\"}\n");
    file("quiet.log", b"[    1.000000] nothing of interest\n");
    file("bad.log", b"[    1.000000] nvgpu: 17000000.gpu x:78   [ERR]  sked exception: esr 0x01000000\n");
    file("tiny.gguf", &infer::synthetic::Recipe::tiny_gpt2().to_bytes().unwrap());
    let quick = infer::synthetic::Recipe { layers: 1, ffn: 256, ..infer::synthetic::Recipe::tiny_gpt2() };
    file("quick.gguf", &quick.to_bytes().unwrap());
    file("tokens", b"1 2");
    file("cut.cubin", &fs::read(cubin).unwrap()[..100]);
    let board = Path::new("/dev/nvgpu/igpu0/ctrl").exists();
    let program = Program::new(env!("CARGO_BIN_EXE_orin"), folder.path());
    program.check_all(&[
        (&["info", "--device", "sim"], Success),
        (&["info", "--device", "sim", "--json"], Success),
        (&["info", "--device", "abacus"], Usage),
        (&["info", "--device", "nvgpu"], if board { Success } else { Usage }),
        (&["doctor", "--device", "sim"], Success),
        (&["doctor", "--device", "sim", "--json"], Success),
        (&["dmesg", "--file", "quiet.log"], Success),
        (&["dmesg", "--file", "bad.log"], Failure),
        (&["dmesg", "--file", "bad.log", "--json"], Failure),
        (&["dmesg", "--file", "quiet.log", "--count", "0"], Usage),
        (&["dmesg", "--file", "quiet.log", "--count", "-1"], Usage),
        (&["dmesg", "--file", "absent.log"], Usage),
        (&["dmesg", "--table"], Success),
        (&["decode", "strace", "trace"], Success),
        (&["decode", "strace", "trace", "--json"], Success),
        (&["decode", "strace", "cut-trace"], Failure),
        (&["decode", "strace", "other-trace"], Failure),
        (&["decode", "strace", "absent"], Usage),
        (&["decode", "pushbuf", "words"], Success),
        (&["decode", "pushbuf", "cut"], Failure),
        (&["decode", "pushbuf", "words", "--base", "99999999999999999999"], Usage),
        (&["decode", "qmd", "zeros", "--version", "3.0"], Failure),
        (&["decode", "gpfifo", "zeros"], Success),
        (&["decode", "cubin", cubin], Success),
        (&["decode", "cubin", "zeros"], Usage),
        (&["decode", "cubin", "cut.cubin"], Failure),
        (&["decode", "sass", cubin], Success),
        (&["decode", "sass", "absent"], Usage),
        (&["run", "--cubin", "absent", "--kernel", "k", "--grid", "1", "--block", "1"], Usage),
        (&["run", "--cubin", "absent", "--kernel", "k", "--grid", "99999999999", "--block", "1"], Usage),
        (&["run", "--kernel", "k", "--grid", "1", "--block", "1"], Usage),
        (&["run", "--source", "absent.cu", "--kernel", "k", "--grid", "1", "--block", "1"], Usage),
        (&["run", "--cubin", "k", "--kernel", "k", "--grid", "1", "--block", "1", "--check=most"], Usage),
        (&["run", "--cubin", "k", "--kernel", "k", "--grid", "1", "--block", "1", "--sarif", "s"], Usage),
        (&["run", "--cubin", "k", "--kernel", "k", "--grid", "many", "--block", "1"], Usage),
        (&["run", "--cubin", "k", "--kernel", "k", "--grid", "1", "--block", "1", "--shared", "-1"], Usage),
        (&["bring-up", "--show", "absent.tar.gz"], Usage),
        (&["bring-up", "--device", "sim", "--until", "99"], Usage),
        (&["bring-up", "--device", "sim", "--until", "0", "--report", "no/such/r.tar.gz"], Usage),
        (&["new", "loop"], Usage),
        (&["new", "x", "--path", "."], Usage),
        (&["new", "zeros"], Usage),
        (&["new", "zeros/x"], Usage),
        (&["new", "/proc/no"], Usage),
        (&["new", "x", "--vcs", "hg"], Usage),
        (&["compile", "absent.cu"], Usage),
        (&["serve"], Usage),
        (&["serve", "--board", "tx2", "--", "true"], Usage),
        (&["serve", "--kmsg", "no/such/file", "--", "true"], Usage),
        (&["serve", "--", "./no-such-program"], Usage),
        (&["serve", "--", "no-such-program"], Usage),
        (&["record", "no-such-file", "--", "no-such-program"], Usage),
        (&["record", "no/such/file", "--", "true"], Usage),
        (&["record", "record"], Usage),
        (&["replay", "absent"], Usage),
        (&["replay", "trace"], Usage),
        (&["replay", "empty.record"], Success),
        (&["check"], Usage),
        (&["check", "--tool", "most", "--", "true"], Usage),
        (&["check", "--suppressions", "absent", "--", "true"], Usage),
        (&["check", "--no-serve", "--", "./no-such-program"], Usage),
        (&["check", "--cubin", "absent", "--", "true"], Usage),
        (&["check", "--cubin", "zeros", "--", "true"], Usage),
        (&["check", "--cubin", ".", "--", "true"], Usage),
        (&["check", "--cubin", "zeros", "--no-serve", "--", "true"], Usage),
        (&["check", "--no-serve", "--", "true"], Success),
        (&["check", "--no-serve", "sh", "-c", "exit 0"], Success),
        (&["check", "--no-serve", "--", "false"], Failure),
        (&["cuda"], Usage),
        (&["cuda", "--", "./no-such-program"], Usage),
        (&["cuda", "--device", "abacus", "--", "true"], Usage),
        (&["timeline"], Usage),
        (&["timeline", "absent"], Usage),
        (&["timeline", "trace"], Usage),
        (&["timeline", "trace", "--", "true"], Usage),
        (&["timeline", "--html", "no/such/file", "--", "true"], Usage),
        (&["timeline", "--", "./no-such-program"], Usage),
        (&["timeline", "--html", "page", "--", "true"], Failure),
        (&["profile-kernel"], Usage),
        (&["profile-kernel", "--kernel", "a,b", "--", "true"], Usage),
        (&["profile-kernel", "--cubin", "absent", "--", "true"], Usage),
        (&["profile-kernel", "--cubin", "zeros", "--", "true"], Usage),
        (&["profile-kernel", "--html", "no/such/file", "--", "true"], Usage),
        (&["profile-kernel", "--launch-count", "-1", "--", "true"], Usage),
        (&["profile-kernel", "--import", "absent"], Usage),
        (&["profile-kernel", "--baseline", "absent", "--", "true"], Usage),
        (&["profile-kernel", "--baseline", "trace", "--", "true"], Usage),
        (&["profile-kernel", "--fail-over", "5", "--", "true"], Usage),
        (&["profile-kernel", "--baseline", "trace", "--fail-over", "-1", "--", "true"], Usage),
        (&["profile-kernel", "--board", "h100", "--", "true"], Usage),
        (&["profile-kernel", "--import", "trace"], Usage),
        (&["profile-kernel", "--import", "trace", "--", "true"], Usage),
        (&["profile-kernel", "--no-serve", "--", "./no-such-program"], Usage),
        (&["profile-kernel", "--no-serve", "--", "true"], Failure),
        (&["llm", "info", "--model", "tiny.gguf"], Success),
        (&["llm", "info", "--model", "tiny.gguf", "--json"], Success),
        (&["llm", "info", "--model", "tiny.gguf", "--ctx", "100000"], Usage),
        (&["llm", "info", "--model", "tiny.gguf", "--bandwidth", "0"], Usage),
        (&["llm", "info", "zeros"], Usage),
        (&["llm", "info", "--model", "absent"], Usage),
        (
            &["llm", "logits", "--model", "tiny.gguf", "--tokens", "tokens", "--out", "l.f64", "--reference"],
            Success,
        ),
        (
            &["llm", "logits", "--model", "tiny.gguf", "--tokens", "zeros", "--out", "l.f64", "--reference"],
            Usage,
        ),
        (&["llm", "random", "--shape", "tiny-llama", "--output", "r.gguf"], Success),
        (&["llm", "random", "--shape", "tiny-llama", "--format", "iq2_xs", "--output", "r.gguf"], Usage),
        (&["llm", "run", "--model", "quick.gguf", "--prompt", "a", "-n", "1", "--device", "sim"], Success),
        (&["llm", "run", "--model", "quick.gguf", "--prompt", "a", "--ctx", "9999999"], Usage),
        (&["llm", "run", "--model", "zeros", "--prompt", "a"], Usage),
        (
            &["llm", "bench", "--model", "quick.gguf", "-p", "1", "-n", "1", "-r", "1", "--device", "sim"],
            Success,
        ),
        (&["llm", "bench", "--model", "absent"], Usage),
        (&["llm", "serve", "--model", "absent"], Usage),
        (&["completions", "bash"], Success),
        (&["completions", "tcsh"], Usage),
        (&["man"], Success),
        (&["man", "--command", "decode qmd"], Success),
        (&["man", "--command", "xyz"], Usage),
        (&["man", "--out", "pages"], Success),
        (&["man", "--out", "zeros"], Usage),
    ]);
}

#[test]
fn a_number_out_of_range_gives_the_range() {
    let program = Program::new(env!("CARGO_BIN_EXE_orin"), ".");
    for (line, words) in [
        (&["dmesg", "--count", "0"][..], "0 is out of range: give 1 to 1000000"),
        (&["dmesg", "--count", "-5"], "-5 is out of range: give 1 to 1000000"),
        (&["bring-up", "--until", "-1"], "-1 is out of range: give 0 to 14"),
        (&["profile-kernel", "-c", "0", "--", "true"], "0 is out of range: give 1 to 18446744073709551615"),
        (&["profile-kernel", "-s", "-1", "--", "true"], "-1 is out of range: give 0 to 18446744073709551615"),
        (&["llm", "run", "--model", "m", "--prompt", "a", "--seed", "abc"], "'abc' is not a whole number"),
        (&["llm", "serve", "--model", "m", "--port", "99999"], "99999 is out of range: give 0 to 65535"),
        (&["decode", "pushbuf", "-", "--base", "-1"], "-1 is out of range: give 0 to 18446744073709551615"),
    ] {
        let output = program.command(line).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && text.contains(words), "{line:?}: {text}");
    }
}

#[test]
fn a_wrong_file_is_named_with_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let cubin = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/vector_add.cubin")).unwrap();
    let binary = [&[0xff, 0xfe, 0x80][..], &[b'\n', 0x81].repeat(99)].concat();
    for (name, content) in [
        ("noise", &binary[..]),
        ("k.log", b"[    1.000000] nvgpu: 17000000.gpu x:78   [ERR]  sked exception: esr 0x01000000\n"),
        ("empty", b""),
        ("cut.cubin", &cubin[..100]),
        ("cut.json", b"{\"version\":1,\"profiles\":["),
        ("page.html", b"<!doctype html>\n"),
        ("new.ptx", b".version 8.0\n.target sm_90\n.address_size 64\n"),
        ("p.ptx", b".version 8.0\n.target sm_87\n.address_size 64\n"),
    ] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let program = Program::new(env!("CARGO_BIN_EXE_orin"), folder.path());
    for (line, code, words) in [
        (&["decode", "cubin", "noise"][..], 2, "noise: binary data, not a cubin"),
        (&["decode", "cubin", "cut.cubin"], 1, "cut.cubin: malformed, cut off or inconsistent"),
        (&["decode", "sass", "k.log"], 2, "k.log: text, not a cubin or machine code"),
        (&["decode", "sass", "empty"], 2, "empty: an empty file, not a cubin or machine code"),
        (&["decode", "pushbuf", "empty"], 2, "empty: an empty file, not words of a pushbuffer"),
        (&["decode", "qmd", "k.log"], 2, "k.log: text, not words of a launch descriptor in hexadecimal"),
        (&["decode", "strace", "noise"], 2, "noise: binary data, not a trace of strace"),
        (&["check", "--suppressions", "noise", "--", "true"], 2, "noise: binary data, not suppressions"),
        (&["check", "--no-serve", "--", "./k.log"], 2, "cannot start ./k.log: it is not executable"),
        (&["profile-kernel", "--import", "cut.json"], 2, "cut.json: cut off, or not profiles of kernels: "),
        (&["timeline", "page.html"], 2, "page.html: text, not a trace: `orin timeline -- PROGRAM`"),
        (&["compile", "p.ptx", "--json", "-o", "-"], 2, "--json needs standard output"),
        (&["compile", "new.ptx"], 1, "new.ptx: compiled for sm_90, the GPU is sm_87"),
        (&["compile", "p.ptx", "-I", "absent"], 2, "--include absent: there is no such folder"),
    ] {
        let output = program.command(line).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && text.contains(words), "{line:?}: {text}");
    }
    let junk = Program::new(env!("CARGO_BIN_EXE_orin"), folder.path()).env("ORIN_LIBCUDA", "noise");
    let output = junk.command(&["cuda", "--", "true"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(2) && text.contains("noise: binary data, not a shared library"),
        "{text}"
    );
}

#[test]
fn the_log_has_no_colours_in_a_file() {
    let program = Program::new(env!("CARGO_BIN_EXE_orin"), ".").env("RUST_LOG", "debug");
    let output = program.command(&["info", "--device", "sim"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("DEBUG") && !text.contains('\x1b'), "{text}");

    let program = Program::new(env!("CARGO_BIN_EXE_orin"), ".").env("RUST_LOG", "tegra_hcq=loud");
    let output = program.command(&["info", "--device", "sim"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && text.starts_with("RUST_LOG=tegra_hcq=loud is ignored: "), "{text}");
}
