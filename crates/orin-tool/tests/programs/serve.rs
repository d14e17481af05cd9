//! `orin serve`: programs that open the board's nodes with system calls, and the ends of programs and supervisors.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use orin_sim::release::KERNEL_VARIABLE;
use rustix::process::{Pid, Signal, kill_process};

const ORIN: &str = env!("CARGO_BIN_EXE_orin");
/// Longest time for anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A temporary folder.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// `orin serve` with options and a program.
fn serve(options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(ORIN);
    command.arg("serve").args(options).arg("--").args(program).stdin(Stdio::null());
    // The clients are written for the headers of R36; tests of other releases name them.
    command.env_remove(KERNEL_VARIABLE);
    command
}

fn run(options: &[&str], program: &[&str]) -> Output {
    serve(options, program).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether the host lets programs be served. Prints why not: emulators of other architectures do not.
pub(crate) fn can_serve() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let output = run(&[], &["true"]);
        let refused = text(&output.stderr);
        if !output.status.success() {
            let causes = ["seccomp", "process_vm_readv", "prctl"];
            assert!(causes.iter().any(|cause| refused.contains(cause)), "{refused}");
            eprintln!("skipped: {refused}");
        }
        output.status.success()
    })
}

/// A C compiler for the machine that this test is built for.
pub(crate) fn compiler() -> std::ffi::OsString {
    let cross = format!("{}-linux-gnu-gcc", std::env::consts::ARCH);
    let starts = |name: &str| Command::new(name).arg("--version").output().is_ok();
    std::env::var_os("CC").unwrap_or_else(|| if starts(&cross) { cross.into() } else { "cc".into() })
}

/// Builds a client in C with all warnings as errors.
pub(crate) fn build(compiler: impl AsRef<std::ffi::OsStr>, name: &str, folder: &Path) -> PathBuf {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sim/tests/clients").join(format!("{name}.c"));
    let program = folder.join(name);
    let flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pthread", "-o"];
    let built = Command::new(compiler).args(flags).arg(&program).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    program
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
}

fn is_running(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// A served shell that writes its id and that of a child to a file, and then sleeps.
struct Sleeper {
    orin: Child,
    _folder: tempfile::TempDir,
    shell: String,
    child: String,
}

impl Sleeper {
    fn start(before: &str) -> Self {
        let folder = folder();
        let file = folder.path().join("ids");
        let script =
            format!("{before} sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait $!", file.display());
        // A shell without job control has started this test with SIGINT ignored, if it runs in the background.
        let line = ["--default-signal=INT", ORIN, "serve", "--", "sh", "-c", &script];
        let orin = Command::new("env").args(line).stdin(Stdio::null()).spawn().unwrap();
        wait_until("the shell", || file.exists());
        let ids = fs::read_to_string(&file).unwrap();
        let (shell, child) = ids.trim().split_once(' ').unwrap();
        Self { orin, _folder: folder, shell: shell.to_owned(), child: child.to_owned() }
    }

    /// Waits for the command and checks that nothing is left. Returns the status.
    fn end(mut self) -> std::process::ExitStatus {
        let mut status = None;
        wait_until("orin serve", || {
            status = self.orin.try_wait().unwrap();
            status.is_some()
        });
        wait_until("the shell's end", || !is_running(&self.shell));
        wait_until("its child's end", || !is_running(&self.child));
        status.unwrap()
    }

    /// The process that answers the calls: the parent of the shell.
    fn supervisor(&self) -> u32 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.shell)).unwrap();
        let parent =
            stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
        assert_ne!(parent, self.orin.id());
        parent
    }
}

#[test]
fn a_c_program_computes_on_the_board() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let program = build(compiler(), "bring_up", folder.path());
    let cubin = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/vector_add.cubin");
    let (trace, log) = (folder.path().join("trace"), folder.path().join("log"));
    let options = ["--trace", trace.to_str().unwrap(), "--log", log.to_str().unwrap(), "--seed", "7"];
    let output = run(&options, &[program.to_str().unwrap(), cubin]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected =
        "chip      arch 0x170, channel 511\nsemaphore released, event seen\nlaunch    1000 sums are right\n";
    assert_eq!(text(&output.stdout), expected);
    // The trace is one of strace.
    let decoded = Command::new(ORIN).args(["decode", "strace", trace.to_str().unwrap()]).output().unwrap();
    let decoded_text = text(&decoded.stdout);
    assert!(decoded.status.success() && decoded_text.contains("_CHANNEL_SETUP_BIND "), "{decoded_text}");
    let trace = fs::read_to_string(trace).unwrap();
    assert!(trace.contains("# channel 511 fetches 8 words at ") && trace.contains("SEND_PCAS_A"), "{trace}");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("bring_up: open /dev/nvgpu/igpu0/ctrl: ok"), "{log}");
    assert!(log.contains("bring_up: NVGPU_IOCTL_CHANNEL_WAIT on"), "the refused wait: {log}");
}

#[test]
fn the_c_programs_compile_for_the_board() {
    let cross = "aarch64-linux-gnu-gcc";
    if Command::new(cross).arg("--version").output().is_err() {
        eprintln!("skipped: no {cross}");
        return;
    }
    let folder = folder();
    build(cross, "bring_up", folder.path());
    build(cross, "hostile", folder.path());
    build(cross, "overrun", folder.path());
}

#[test]
fn a_python_program_takes_the_steps_that_it_took_on_a_board() {
    if !can_serve() {
        return;
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/sim/tests/clients/fifteen_steps.py");
    let cubin = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/vector_add.cubin");
    for release in ["r36.4.3", "r36.4.7", "r39.2"] {
        // The mode of the board whose values the program expects.
        let options = ["--board", "agx-64:30w", "--kernel", release];
        let output = run(&options, &["python3", program, cubin, release]);
        let seen = text(&output.stdout);
        assert!(output.status.success(), "{release}: {seen}{}", text(&output.stderr));
        assert!(seen.ends_with("15 of 15 steps passed\n"), "{release}: {seen}");
    }
    // The numbers of one release are unknown to the other.
    let output = run(&["--board", "agx-64:30w", "--kernel", "r39.2"], &["python3", program, cubin]);
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), error.as_str()), (Some(1), "the size is 0x158; the board has 0x148\n"));
}

#[test]
fn an_unknown_release_is_refused_with_the_known_ones() {
    let known = "known are r36.4.3, r36.4.7, r39.2";
    let option = run(&["--kernel", "r40"], &["true"]);
    let variable = serve(&[], &["true"]).env(KERNEL_VARIABLE, "r40").output().unwrap();
    for output in [option, variable] {
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains("r40") && error.contains(known), "{error}");
    }
    let variable = serve(&[], &["true"]).env("ORIN_SIM_AVAILABLE_MIB", "7G").output().unwrap();
    let error = text(&variable.stderr);
    assert!(variable.status.code() == Some(2) && error.contains("ORIN_SIM_AVAILABLE_MIB is '7G'"), "{error}");
}

#[test]
fn the_files_of_the_machine_are_those_of_the_release() {
    if !can_serve() {
        return;
    }
    let script = "cat /etc/nv_tegra_release /proc/sys/kernel/osrelease; gpu=/sys/class/devfreq/17000000.gpu/device; \
                  for file in enable_3d_scaling railgate_enable power/runtime_status; do \
                  test -e $gpu/$file && cat $gpu/$file; done; grep -E '^(Mem|Cma)' /proc/meminfo";
    for (release, linux, switch) in [("r36.4.3", "5.15.148-tegra", "1\n"), ("r39.2", "6.8.12-1021-tegra", "")]
    {
        let mut command = serve(&["--board", "nano-8", "--kernel", release], &["sh", "-c", script]);
        let output = command.env("ORIN_SIM_AVAILABLE_MIB", "7000").output().unwrap();
        let seen = text(&output.stdout);
        let (first, rest) = seen.split_once('\n').unwrap();
        assert!(first.starts_with(&format!("# R{} (release)", &release[1..3])), "{seen}");
        let memory = "MemTotal:        8388608 kB\nMemFree:         7233536 kB\n\
                      MemAvailable:    7233536 kB\nCmaFree:           65536 kB\n";
        assert_eq!(rest, format!("{linux}\n{switch}1\nactive\n{memory}"), "{}", text(&output.stderr));
        // The examination of the machine reads them as well.
        let options = ["--kernel", release];
        let doctor = run(&options, &[ORIN, "doctor", "--device", "nvgpu", "--json"]);
        assert!(text(&doctor.stdout).contains(linux), "{}{}", text(&doctor.stdout), text(&doctor.stderr));
    }
}

#[test]
fn our_own_driver_is_served() {
    if !can_serve() {
        return;
    }
    // Through real system calls: the device `nvgpu` has no model in the process.
    let output = run(&["--board", "nx-16:10w"], &[ORIN, "info", "--device", "nvgpu", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let info = text(&output.stdout);
    assert!(info.contains("\"device\": \"nvgpu\"") && info.contains("\"sm_count\": 4"), "{info}");
}

#[test]
fn exit_codes_and_signals_pass_through() {
    if !can_serve() {
        return;
    }
    assert_eq!(run(&[], &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(run(&[], &["sh", "-c", "kill -TERM $$; sleep 9"]).status.signal(), Some(15));
    assert_eq!(run(&[], &["sh", "-c", "kill -SEGV $$; sleep 9"]).status.signal(), Some(11));
    // The program decides what a signal to the command means.
    let sleeper = Sleeper::start("trap 'kill $!; exit 9' TERM;");
    send(sleeper.orin.id(), Signal::TERM);
    assert_eq!(sleeper.end().code(), Some(9));
    let sleeper = Sleeper::start("");
    send(sleeper.orin.id(), Signal::INT);
    // A shell without job control ignores SIGINT in its child, and dies of it itself.
    assert_eq!(sleeper.end().signal(), Some(2));
}

#[test]
fn nothing_outlives_the_command() {
    if !can_serve() {
        return;
    }
    // The command is killed.
    let mut sleeper = Sleeper::start("");
    sleeper.orin.kill().unwrap();
    assert_eq!(sleeper.end().signal(), Some(9));
    // Its half that answers the calls is killed.
    let sleeper = Sleeper::start("");
    send(sleeper.supervisor(), Signal::KILL);
    assert_eq!(sleeper.end().signal(), Some(9));
    // The program is killed; its child is left behind.
    let sleeper = Sleeper::start("");
    send(sleeper.shell.parse().unwrap(), Signal::KILL);
    assert_eq!(sleeper.end().signal(), Some(9));
}

#[test]
fn processes_that_go_on_as_others_or_multiply_are_killed() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let program = build(compiler(), "hostile", folder.path());
    let is_it =
        |process: fs::DirEntry| fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program);
    for what in ["flee", "explode-forever"] {
        let start = Instant::now();
        assert!(run(&["--max-processes", "40"], &[program.to_str().unwrap(), what]).status.success());
        assert!(start.elapsed() < Duration::from_secs(25), "it ended by itself");
        assert!(!fs::read_dir("/proc").unwrap().flatten().any(is_it), "{what}");
    }
    // Orphans that have ended do not count.
    let output = run(&["--max-processes", "40"], &[program.to_str().unwrap(), "orphans"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn commands_share_a_board() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let (socket, go) = (folder.path().join("board"), folder.path().join("go"));
    let options = ["--board-socket", socket.to_str().unwrap()];
    // Opens the control node and prints its instance id, which counts the opens of a board.
    let script = "import ctypes, fcntl, os, struct, sys, time\n\
                  raw = ctypes.create_string_buffer(4096)\n\
                  node = os.open('/dev/nvgpu/igpu0/ctrl', os.O_RDWR)\n\
                  fcntl.ioctl(node, 0xc0104705, bytearray(struct.pack('QQ', 4096, ctypes.addressof(raw))))\n\
                  print(struct.unpack_from('41Q', raw), flush=True)\n\
                  while sys.argv[1:] and not os.path.exists(sys.argv[1]): time.sleep(0.01)";
    let mut first = serve(&options, &["python3", "-c", script, go.to_str().unwrap()]);
    let first = first.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the socket", || socket.exists());
    let second = run(&options, &["python3", "-c", script]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    let refused = run(&["--board-socket", options[1], "--seed", "1"], &["true"]);
    assert!(text(&refused.stderr).contains("joins it") && refused.status.code() == Some(2));
    fs::write(go, "").unwrap();
    let first = first.wait_with_output().unwrap();
    let (first, second) = (text(&first.stdout), text(&second.stdout));
    assert!(first.len() > 100 && first != second, "{first}{second}");
    assert!(!socket.exists(), "the socket is removed");
    // Without a command that serves it, the path is free.
    assert!(run(&options, &["true"]).status.success());
}

#[test]
fn a_record_is_replayed_and_a_wrong_answer_is_found() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let program = build(compiler(), "bring_up", folder.path());
    let file = folder.path().join("record");
    let mut command = Command::new(ORIN);
    command
        .env_remove(KERNEL_VARIABLE)
        .arg("record")
        .arg(&file)
        .args(["--board", "agx-64:30w", "--"])
        .arg(program);
    assert!(command.output().unwrap().status.success());
    let replay =
        |options: &[&str]| Command::new(ORIN).arg("replay").arg(&file).args(options).output().unwrap();
    let output = replay(&[]);
    let seen = text(&output.stdout);
    assert!(
        output.status.success() && seen.contains(" 1 left out; 0 differences"),
        "{seen}{}",
        text(&output.stderr)
    );
    // Another board answers otherwise.
    let output = replay(&["--board", "nano-4"]);
    let seen = text(&output.stdout);
    assert!(output.status.code() == Some(1) && seen.contains("GET_CHARACTERISTICS on"), "{seen}");
    // An answer that no model gives: the token of the channel.
    let recorded = fs::read_to_string(&file).unwrap();
    fs::write(&file, recorded.replacen("ff010000", "fe010000", 1)).unwrap();
    let output = replay(&[]);
    let seen = text(&output.stdout);
    assert!(
        output.status.code() == Some(1) && seen.contains("SETUP_BIND on") && seen.contains("0x1fe"),
        "{seen}"
    );
}

#[test]
fn a_record_that_cannot_be_written_is_a_failure() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let (pipe, go) = (folder.path().join("pipe"), folder.path().join("go"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let script = "until test -e \"$0\"; do sleep 0.01; done; : </dev/nvmap";
    let mut command = Command::new(ORIN);
    command
        .env_remove(KERNEL_VARIABLE)
        .arg("record")
        .arg(&pipe)
        .args(["--", "sh", "-c", script])
        .arg(&go)
        .stderr(Stdio::piped());
    let record = command.spawn().unwrap();
    // The reader goes away after the header.
    let mut header = String::new();
    BufReader::new(fs::File::open(&pipe).unwrap()).read_line(&mut header).unwrap();
    assert!(header.starts_with("{\"version\":2,"), "{header}");
    fs::write(&go, "").unwrap();
    let output = record.wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(pipe.to_str().unwrap()), "{errors}");
}

/// A program that closes its channel before it deletes the channel's subcontext.
#[test]
fn a_record_of_an_own_program_has_its_closes() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("record");
    let mut command = Command::new(ORIN);
    let record = command.arg("record").arg(&file).args(["--", ORIN, "info", "--device", "nvgpu"]);
    assert!(record.output().unwrap().status.success());
    let recorded = fs::read_to_string(&file).unwrap();
    let delete = format!("\"code\":{}", nvgpu_sys::tsg::DELETE_SUBCONTEXT.code());
    assert!(recorded.contains(&delete) && recorded.contains("{\"close\":"), "{recorded}");
    let output = Command::new(ORIN).arg("replay").arg(&file).output().unwrap();
    let seen = text(&output.stdout);
    assert!(output.status.success() && seen.ends_with("; 0 differences\n"), "{seen}");
}

#[test]
fn a_killed_record_leaves_the_old_one_and_is_recognised() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("record");
    fs::write(&file, "old").unwrap();
    let mut command = Command::new(ORIN);
    let script =
        ": </dev/nvmap; until grep -q nvmap .unfinished-*; do sleep 0.01; done; kill -9 $PPID; sleep 60";
    command.arg("record").arg(&file).args(["--", "sh", "-c", script]).current_dir(folder.path());
    let killed = command.output().unwrap();
    assert_ne!(killed.status.code(), Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let unfinished = entries.filter(|path| *path != file).collect::<Vec<_>>();
    assert_eq!(unfinished.len(), 1, "{unfinished:?}");
    let output = Command::new(ORIN).arg("replay").arg(&unfinished[0]).output().unwrap();
    let seen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{seen}");
    assert!(
        seen.starts_with("1 calls: ") && seen.contains("0 differences\nthe record was cut off"),
        "{seen}"
    );
}

#[test]
fn a_python_record_is_replayed() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("record");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/sim/tests/clients/fifteen_steps.py");
    let cubin = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/vector_add.cubin");
    let mut command = Command::new(ORIN);
    command.env_remove(KERNEL_VARIABLE).arg("record").arg(&file).args([
        "--board",
        "agx-64:30w",
        "--",
        "python3",
        program,
        cubin,
    ]);
    assert!(command.output().unwrap().status.success());
    // Earlier programs have used up handle numbers.
    let mut command = Command::new(ORIN);
    let output = command.arg("replay").arg(&file).args(["--seed", "77"]).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn nodes_are_found_by_scripts() {
    if !can_serve() {
        return;
    }
    let script = "test -c /dev/nvmap && test -r /dev/nvgpu/igpu0/ctrl && test -d /dev/nvgpu/igpu0 && \
                  ! test -e /dev/nvgpu/igpu1 && test -e /etc/passwd && cat /sys/class/devfreq/17000000.gpu/max_freq && \
                  exec 3</dev/nvmap && (readlink /proc/self/fd/3)";
    let output = run(&["--board", "nano-4"], &["sh", "-c", script]);
    let seen = text(&output.stdout);
    // The host names the memfd behind the descriptor.
    assert_eq!(seen, "625000000\n/memfd:dev/nvmap (deleted)\n", "{}", text(&output.stderr));
    assert!(output.status.success());
}

#[test]
fn the_kernel_log_is_written_to_a_file() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let log = folder.path().join("kernel.log");
    // A request that nvmap does not have is a line of the log.
    let script = "import fcntl, os\n\
                  try: fcntl.ioctl(os.open('/dev/nvmap', os.O_RDWR), 0xc0084e63, bytearray(8))\n\
                  except OSError as error: print(error.errno)";
    let output = run(&["--kmsg", log.to_str().unwrap()], &["python3", "-c", script]);
    assert_eq!(text(&output.stdout), "25\n", "{}", text(&output.stderr));
    let lines = fs::read_to_string(log).unwrap();
    assert!(
        lines.starts_with('[') && lines.contains("] nvmap_ioctl: Unknown NVMAP_IOC = 0xc0084e63\n"),
        "{lines}"
    );
}
