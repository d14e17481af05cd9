//! `orin run`: kernels, arguments, files, exit codes, checks and wrong input.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use orin_cli::testing::Program;

const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");

/// `orin run` in a folder.
struct Run(Program);

impl Run {
    fn new(folder: &Path) -> Self {
        Self(Program::new(env!("CARGO_BIN_EXE_orin"), folder))
    }

    fn env(self, name: &str, value: &str) -> Self {
        Self(self.0.env(name, value))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.0.command(&[&["run"], arguments].concat())
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A run that fills buffers with a number.
fn fill(folder: &Path, arguments: &[&str]) -> Output {
    let cubin = format!("{KERNELS}/basics.cubin");
    let start =
        ["--device", "sim", "--cubin", &cubin, "--kernel", "fill_u32", "--grid", "1", "--block", "32"];
    let arguments: Vec<&str> = arguments.iter().flat_map(|argument| ["--arg", argument]).collect();
    Run::new(folder).command(&[&start[..], &arguments].concat()).output().unwrap()
}

#[test]
fn it_finds_places_that_cannot_be_written_before_the_kernel_runs() {
    let folder = folder();
    fs::create_dir(folder.path().join("sub")).unwrap();
    for (place, words) in [
        ("out:sub:64", "it is a folder"),
        ("out:no/such/file:64", "there is no folder no/such"),
        ("out:/proc/file:64", "/proc/file cannot be written: files cannot be created in /proc"),
    ] {
        let output = fill(folder.path(), &[place, "u32:1", "u32:4"]);
        let text = stderr(&output);
        assert!(output.status.code() == Some(2) && text.contains(words), "{place}: {text}");
    }
    let numbers = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(numbers, 1, "nothing was written");
}

/// Parameters beyond the kernel's are refused, so the two outputs are those of a kernel with two buffers.
#[test]
fn it_writes_all_outputs_or_none() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("old"), "old").unwrap();
    fs::write(path("x"), [0; 64]).unwrap();
    let cubin = format!("{KERNELS}/vector_add.cubin");
    let run = |last: &str| {
        let last = format!("out:{last}:64");
        let line = [
            "--device",
            "sim",
            "--cubin",
            &cubin,
            "--kernel",
            "vector_add",
            "--grid",
            "1",
            "--block",
            "32",
            "--arg",
            "inout:x:old",
            "--arg",
            "inout:x:new",
            "--arg",
            &last,
            "--arg",
            "u32:16",
        ];
        Run::new(folder.path()).command(&line).output().unwrap()
    };
    let output = run("/dev/full");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "error: writing /dev/full: No space left on device (os error 28)\n");
    assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    assert_eq!(fs::read(path("old")).unwrap(), b"old", "a file that existed is unchanged");
    assert!(!path("new").exists());

    assert!(run("old").status.code() == Some(2), "one file for two outputs");
    let line =
        ["--device", "sim", "--cubin", &cubin, "--kernel", "vector_add", "--grid", "1", "--block", "32"];
    let arguments = ["--arg", "out:huge:999999999999", "--arg", "in:x", "--arg", "in:x", "--arg", "u32:1"];
    let output = Run::new(folder.path()).command(&[&line[..], &arguments].concat()).output().unwrap();
    let text = stderr(&output);
    assert!(output.status.code() == Some(2) && text.ends_with("or close other programs\n"), "{text}");
    // Before the trace is written, which is also written of a run that has failed.
    for (trace, reason) in [("old", "two outputs would be written to old"), ("x", "x would be overwritten")] {
        let mut command = Run::new(folder.path()).command(&["--cubin", &cubin, "--kernel", "vector_add"]);
        command.args(["--grid", "1", "--block", "32", "--arg", "inout:x:old", "--trace", trace]);
        let output = command.output().unwrap();
        assert!(output.status.code() == Some(2) && stderr(&output).contains(reason), "{}", stderr(&output));
        assert!(fs::read(path("old")).unwrap() == b"old" && fs::read(path("x")).unwrap().len() == 64);
    }
    let output = run("sum");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read(path("old")).unwrap().len(), 64);
    assert!(path("new").exists() && path("sum").exists());
}

#[test]
fn it_finds_an_overrun() {
    let folder = folder();
    let floats: Vec<u8> = (0..1000).flat_map(|n: u16| f32::from(n).to_le_bytes()).collect();
    for name in ["x.bin", "y.bin"] {
        fs::write(folder.path().join(name), &floats).unwrap();
    }
    fs::write(folder.path().join("known"), "out-of-bounds saxpy").unwrap();
    let cubin = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/saxpy.cubin");
    let run = |n: &str, more: &[&str]| {
        let start =
            ["--device", "sim", "--cubin", cubin, "--kernel", "saxpy", "--grid", "4", "--block", "256"];
        let buffers = ["--arg", "f32:2", "--arg", "in:x.bin", "--arg", "inout:y.bin:z.bin", "--arg", n];
        let line = [&start[..], &buffers, more].concat();
        Run::new(folder.path()).command(&line).output().unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = run("u32:4096", &["--check", "--sarif", "s.json"]);
    let report = text(&found.stderr);
    assert_eq!(found.status.code(), Some(1), "{report}");
    assert!(report.contains("0 bytes past the end of x.bin (4000 bytes"), "{report}");
    assert!(report.contains("argument 2 of the kernel") && report.contains("at saxpy+"), "{report}");
    assert!(report.contains("2096 times") && report.contains("3 findings"), "{report}");
    assert!(!report.contains("allocated by") && !report.contains("orin_tool"), "{report}");
    let sarif: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.path().join("s.json")).unwrap()).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    let places = results.iter().map(|result| &result["locations"][0]["physicalLocation"]);
    let files: Vec<_> = places.map(|place| place["artifactLocation"]["uri"].as_str().unwrap()).collect();
    assert!(files.len() == 3 && files.iter().all(|file| file.ends_with("/kernels/saxpy.cubin")), "{files:?}");
    let json = run("u32:4096", &["--check=all", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["findings"][0]["object"]["place"]["past"], 0);
    for (n, more) in
        [("u32:1000", &["--check=all"][..]), ("u32:4096", &["--check", "--suppressions", "known"])]
    {
        let clean = run(n, more);
        assert_eq!(clean.status.code(), Some(0), "{}", text(&clean.stderr));
        assert!(text(&clean.stderr).contains("1 launch checked ("), "{}", text(&clean.stderr));
        assert!(text(&clean.stderr).contains(", 0 findings"), "{}", text(&clean.stderr));
    }
    // A program that knows nothing of checks.
    let start = ["--device", "sim", "--cubin", cubin, "--kernel", "saxpy", "--grid", "4", "--block", "256"];
    let buffers = ["--arg", "f32:2", "--arg", "in:x.bin", "--arg", "inout:y.bin:z.bin", "--arg", "u32:4096"];
    let unaware = Run::new(folder.path())
        .env("ORIN_SIM_CHECK", "memcheck")
        .command(&[&start[..], &buffers].concat())
        .output()
        .unwrap();
    assert_eq!(unaware.status.code(), Some(1));
    assert!(text(&unaware.stderr).contains("3 findings"), "{}", text(&unaware.stderr));
    // The order check has a variable of its own.
    let buffers = ["--arg", "f32:2", "--arg", "in:x.bin", "--arg", "inout:y.bin:z.bin", "--arg", "u32:1000"];
    for (action, code) in [("9", 0), ("3", 1)] {
        let strict = Run::new(folder.path())
            .env("ORIN_SIM_STRICT", "1")
            .env("NVGPU_PCAS_ACTION", action)
            .command(&[&start[..], &buffers].concat())
            .output()
            .unwrap();
        let report = text(&strict.stderr);
        assert_eq!(strict.status.code(), Some(code), "{report}");
        assert_eq!(report.contains("ordering: unproven: "), code == 1, "{report}");
    }
}

#[test]
fn it_compiles_a_source_or_says_what_is_missing() {
    let folder = folder();
    let source = "extern \"C\" __global__ void set(unsigned *out) { *out = NUMBER; }";
    fs::write(folder.path().join("set.cu"), source).unwrap();
    fs::write(folder.path().join("wrong.cu"), "__global__ void f(int *x)\n{\n    *x = y;\n}\n").unwrap();
    let line = |file| {
        [
            "--device",
            "sim",
            "--source",
            file,
            "-D",
            "NUMBER=42",
            "--kernel",
            "set",
            "--grid",
            "1",
            "--block",
            "1",
        ]
        .into_iter()
        .chain(["--arg", "out:out:4"])
        .collect::<Vec<_>>()
    };
    let without = Run::new(folder.path()).env("NVGPU_NVRTC", "/no/such");
    let output = without.command(&line("set.cu")).output().unwrap();
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("pip install"),
        "{}",
        stderr(&output)
    );

    let program = Run::new(folder.path()).env("NVGPU_CACHE", "off");
    match tegra_hcq::Compiler::load() {
        Ok(compiler) if compiler.version().0 <= 12 => {}
        Ok(compiler) => {
            return println!("SKIPPED: cubins of NVRTC {:?} cannot be loaded yet", compiler.version());
        }
        Err(error) => return println!("SKIPPED: {error}"),
    }
    let output = program.command(&line("set.cu")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(folder.path().join("out")).unwrap(), 42_u32.to_le_bytes());
    let output = program.command(&line("wrong.cu")).output().unwrap();
    let text = stderr(&output);
    assert!(output.status.code() == Some(2) && text.contains("wrong.cu(3): error"), "{text}");
}

/// Runs with files in its own folder.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, words: &[u32]) -> String {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    fn read(&self, name: &str) -> Vec<u32> {
        let bytes = std::fs::read(self.path(name)).unwrap();
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn run(&self, cubin: &str, kernel: &str, dims: [&str; 2], arguments: &[String]) -> Output {
        let cubin = Path::new(KERNELS).join(cubin);
        let mut command = Run::new(Path::new(".")).command(&[]);
        command.arg("--cubin").arg(cubin).args(["--kernel", kernel, "--grid", dims[0], "--block", dims[1]]);
        for argument in arguments {
            command.args(["--arg", argument]);
        }
        command.args(["--device", "sim"]).output().unwrap()
    }
}

#[test]
fn it_reads_and_writes_files() {
    let files = Files::new();
    let x: Vec<u32> = (0..1000).map(|i| (i as f32).to_bits()).collect();
    let y: Vec<u32> = (0..1000).map(|i| (i as f32 * 0.5).to_bits()).collect();
    let arguments = [
        "f32:2".to_owned(),
        format!("in:{}", files.write("x", &x)),
        format!("inout:{}:{}", files.write("y", &y), files.path("result")),
        "u32:1000".to_owned(),
    ];
    let output = files.run("saxpy.cubin", "saxpy", ["4,1,1", "128,1,1"], &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("time"));
    let want: Vec<u32> = (0..1000).map(|i| (i as f32 * 2.5).to_bits()).collect();
    assert_eq!(files.read("result"), want);
    assert_eq!(files.read("y"), y, "the source file is untouched");
}

/// A cubin from a pipe, such as the output of a compiler.
#[test]
fn it_reads_a_cubin_from_a_pipe() {
    let files = Files::new();
    let mut child = Run::new(Path::new("."))
        .command(&[])
        .args(["--cubin", "/dev/stdin", "--kernel", "fill_u32", "--grid", "1", "--block", "32"])
        .args(["--arg", &format!("out:{}:64", files.path("out")), "--arg", "u32:0x11", "--arg", "u32:16"])
        .args(["--device", "sim"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let cubin = std::fs::read(Path::new(KERNELS).join("basics.cubin")).unwrap();
    child.stdin.take().unwrap().write_all(&cubin).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(files.read("out"), [0x11; 16]);
}

#[test]
fn it_writes_zeroed_outputs_of_the_given_length() {
    let files = Files::new();
    let arguments = [format!("out:{}:64", files.path("out")), "u32:0x11".to_owned(), "u32:4".to_owned()];
    let output = files.run("basics.cubin", "fill_u32", ["1", "32"], &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut want = [0; 16];
    want[..4].fill(0x11);
    assert_eq!(files.read("out"), want);
}

#[test]
fn it_reports_what_faulted_and_where() {
    let files = Files::new();
    let arguments = ["u64:0x1234567000".to_owned(), format!("out:{}:4", files.path("out"))];
    let output = files.run("faults.cubin", "fault_read", ["1", "1"], &arguments);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("MMU fault") && text.contains("0x1234567000") && text.contains("fault_read"),
        "{text}"
    );
    assert!(!Path::new(&files.path("out")).exists(), "nothing is written after a fault");
}

#[test]
fn it_ends_an_endless_kernel() {
    let files = Files::new();
    let stop = files.write("stop", &[0]);
    let cubin = Path::new(KERNELS).join("faults.cubin");
    let output = Run::new(Path::new("."))
        .command(&[])
        .arg("--cubin")
        .arg(cubin)
        .args(["--kernel", "fault_endless", "--grid", "1", "--block", "32", "--timeout-ms", "200", "--json"])
        .args(["--arg", &format!("in:{stop}"), "--arg", &format!("out:{}:4", files.path("out"))])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["error"].as_str().unwrap().contains("fault_endless"), "{report}");
}

#[test]
fn it_refuses_wrong_requests_and_writes_nothing() {
    let files = Files::new();
    let out = format!("out:{}:64", files.path("out"));
    let refuse = |cubin: &str, kernel: &str, dims: [&str; 2], arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let output = files.run(cubin, kernel, dims, &arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(!Path::new(&files.path("out")).exists());
        stderr(&output)
    };
    let text = refuse("basics.cubin", "fill_u32", ["1", "32"], &[&out, "u32:1"]);
    assert!(text.contains("takes 3 arguments, 2 were given"), "{text}");
    let text = refuse("basics.cubin", "fill_u32", ["1", "32"], &[&out, "u64:1", "u32:4"]);
    assert!(text.contains("argument 1 has 8 bytes"), "{text}");
    let text = refuse("basics.cubin", "fill", ["1", "32"], &[&out]);
    assert!(text.contains("fill_u32") && text.contains("square_plus_one"), "{text}");
    let text = refuse("basics.cu", "fill_u32", ["1", "32"], &[&out]);
    assert!(text.contains("not a cubin"), "{text}");
    let text = refuse("no_such.cubin", "fill_u32", ["1", "32"], &[&out]);
    assert!(text.contains("no_such.cubin") && text.contains("No such file"), "{text}");
    let text = refuse("basics.cubin", "fill_u32", ["1", "32"], &["in:/no/such/file", "u32:1", "u32:4"]);
    assert!(text.contains("/no/such/file"), "{text}");
    let huge = format!("out:{}:99999999999999", files.path("out"));
    let text = refuse("basics.cubin", "fill_u32", ["1", "32"], &[&huge, "u32:1", "u32:4"]);
    assert!(text.contains("it is more than the total memory"), "{text}");
    let text = refuse("basics.cubin", "fill_u32", ["1", "2048"], &[&out, "u32:1", "u32:4"]);
    assert!(text.contains("1024"), "{text}");
    let text = refuse("basics.cubin", "fill_u32", ["1,1,1,1", "32"], &[&out, "u32:1", "u32:4"]);
    assert!(text.contains("more than three"), "{text}");
    let text =
        refuse("basics.cubin", "fill_u32", ["1", "32"], &["out:/no/such/folder/out:64", "u32:1", "u32:4"]);
    assert!(text.contains("cannot be written"), "{text}");
}

/// Each file of the wrong kind is named, with the command that reads it.
#[test]
fn files_of_the_wrong_kind_are_named() {
    let folder = folder();
    let source = "extern \"C\" __global__ void k() {}\n";
    fs::write(folder.path().join("k.cu"), source).unwrap();
    fs::write(folder.path().join("k.ptx"), ".version 8.0\n.target sm_80\n").unwrap();
    fs::write(folder.path().join("empty.cu"), "").unwrap();
    let cubin = format!("{KERNELS}/saxpy.cubin");
    let run = |option: &str, file: &str, more: &[&str]| {
        let line = [option, file, "--kernel", "k", "--grid", "1", "--block", "1", "--device", "sim"];
        let output = Run::new(folder.path()).command(&[&line[..], more].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    for (option, file, words) in [
        ("--cubin", "k.cu", "k.cu: not a cubin: CUDA C++; `orin compile FILE.cu` makes a cubin of it"),
        ("--cubin", "k.ptx", "k.ptx: not a cubin: PTX; `orin compile FILE.ptx` makes a cubin of it"),
        ("--cubin", env!("CARGO_BIN_EXE_orin"), "is not CUDA (190): this is a program or library"),
        ("--source", &cubin, "saxpy.cubin: a cubin, not CUDA C++ or PTX; `orin decode cubin` prints it"),
        ("--source", "empty.cu", "empty.cu: an empty file, not CUDA C++ or PTX"),
    ] {
        let text = run(option, file, &[]);
        assert!(text.contains(words), "{option} {file}: {text}");
    }
    assert!(run("--cubin", &cubin, &["-lineinfo"]).contains("a cubin is compiled already"));
    // The cubin that runs is not an output.
    let copy = folder.path().join("copy.cubin");
    fs::copy(&cubin, &copy).unwrap();
    let text = run("--cubin", "copy.cubin", &["--arg", "out:copy.cubin:64"]);
    assert!(text.contains("copy.cubin would be overwritten, and this command reads it"), "{text}");
    assert_eq!(fs::read(copy).unwrap(), fs::read(cubin).unwrap());
}

/// A program that opens a software Orin of its own is strict as well.
#[test]
fn strict_serving_reports_of_a_program_with_its_own_board() {
    if !crate::serve::can_serve() {
        return;
    }
    let folder = folder();
    let cubin = format!("{KERNELS}/basics.cubin");
    let program = Program::new(env!("CARGO_BIN_EXE_orin"), folder.path()).env("NVGPU_PCAS_ACTION", "3");
    let line =
        ["run", "--device", "sim", "--cubin", &cubin, "--kernel", "fill_u32", "--grid", "1", "--block", "32"];
    let rest = ["--arg", "out:out:64", "--arg", "u32:1", "--arg", "u32:16"];
    let start = ["serve", "--strict", "--", env!("CARGO_BIN_EXE_orin")];
    let output = program.command(&[&start[..], &line, &rest].concat()).output().unwrap();
    let errors = stderr(&output);
    assert!(output.status.success() && errors.contains("ordering: unproven: "), "{errors}");
}

/// `orin check` leaves the choice of the device to the library, whose buffers are then known.
#[test]
fn a_check_of_it_knows_the_buffers() {
    let folder = folder();
    fs::write(folder.path().join("x.bin"), [0; 4000]).unwrap();
    let cubin = format!("{KERNELS}/saxpy.cubin");
    let check = |options: &[&str], count: &str| {
        let program = Program::new(env!("CARGO_BIN_EXE_orin"), folder.path());
        let start = [env!("CARGO_BIN_EXE_orin"), "run", "--cubin", &cubin, "--kernel", "saxpy"];
        let buffers = ["--grid", "4", "--block", "256", "--arg", "f32:2", "--arg", "in:x.bin"];
        let rest = ["--arg", "inout:x.bin:y.bin", "--arg", count];
        let line = [&["check", "--tool", "memcheck"], options, &["--"], &start, &buffers, &rest].concat();
        program.command(&line).output().unwrap()
    };
    for options in [&[][..], &["--no-serve"]] {
        if options.is_empty() && !crate::serve::can_serve() {
            continue;
        }
        let found = check(options, "u32:4096");
        assert_eq!(found.status.code(), Some(1), "{}", stderr(&found));
        for name in ["x.bin", "x.bin:y.bin"] {
            let place = format!("0 bytes past the end of {name} (4000 bytes");
            assert!(stderr(&found).contains(&place), "{}", stderr(&found));
        }
        assert!(stderr(&found).ends_with("1 launch checked (memcheck), 3 findings\n"), "{}", stderr(&found));
        let clean = check(options, "u32:1000");
        assert_eq!(clean.status.code(), Some(0), "{}", stderr(&clean));
        assert_eq!(stderr(&clean), "1 launch checked (memcheck), 0 findings\n");
    }
}
