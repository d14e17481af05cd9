//! `orin decode strace` as a program: files, standard input, exit codes, a real strace.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn decode() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orin"));
    command.args(["decode", "strace"]);
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_missing_file_is_wrong_use() {
    for path in ["/no/such/trace", "/"] {
        let output = decode().arg(path).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{path}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(path), "{text}");
    }
}

#[test]
fn a_dash_reads_standard_input() {
    let mut child = decode().arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let trace = b"[pid 7] 10:00:00.1 ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8), 0xff) = 0\n";
    child.stdin.take().unwrap().write_all(trace).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = stdout(&output);
    assert!(text.contains("nvmap?") && text.contains("NVMAP_IOC_CREATE"), "{text}");
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let line = "ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8), 0xff) = 0\n";
    fs::write(&file, line.repeat(20_000)).unwrap();
    let mut child = decode().arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
}

/// A traced program that sends requests of this GPU to files that refuse them: the text that strace prints for
/// a number, in any version, must be read back as the number.
#[test]
fn what_strace_prints_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("requests.c");
    let program = folder.path().join("requests");
    let codes: Vec<u32> = nvgpu_sys::headers::ALL
        .iter()
        .flat_map(|header| header.requests.iter().copied().flatten())
        .map(|request| request.code)
        .collect();
    let calls: String = codes.iter().map(|code| format!("ioctl(fd, {code}ul, page);\n")).collect();
    let text = format!(
        "#include <fcntl.h>\n#include <sys/ioctl.h>\nstatic char page[65536];\n\
         int main(void) {{ int fd = open(\"/dev/null\", O_RDWR);\n{calls}return 0; }}\n"
    );
    fs::write(&source, text).unwrap();
    let ran = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if !ran(Command::new("cc").args(["-w", "-o"]).args([&program, &source])) {
        eprintln!("SKIPPED: no C compiler (cc) on this machine");
        return;
    }
    for options in [&[][..], &["-f", "-tt", "-T"], &["-X", "raw", "-r"], &["-X", "verbose", "-ttt"]] {
        let file = folder.path().join("trace");
        let mut strace = Command::new("strace");
        strace.args(["-e", "trace=ioctl", "-o"]).arg(&file).args(options).arg(&program);
        if !ran(&mut strace) {
            eprintln!("SKIPPED: strace is not there or may not trace on this machine");
            return;
        }
        // Every number has a name on a node of the GPU; /dev/null replaces the node.
        let trace = fs::read_to_string(&file).unwrap();
        let trace = format!("open(\"/dev/nvgpu/igpu0/tsg\", O_RDWR) = 3\n{trace}");
        fs::write(&file, trace.replace("-1 ENOTTY (Inappropriate ioctl for device)", "0")).unwrap();
        let output = decode().arg(&file).arg("--json").output().unwrap();
        assert!(output.status.success());
        let decoded: Vec<serde_json::Value> =
            stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (summary, found) = decoded.split_last().unwrap();
        assert_eq!(found.len(), codes.len(), "{options:?}: {summary}");
        for (call, code) in found.iter().zip(&codes) {
            assert_eq!(call["code"], format!("{code:#010x}"), "{options:?}: {call}");
        }
    }
}
