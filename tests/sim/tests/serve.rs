//! Programs that misuse the board, die or multiply: the board and its other programs are unharmed, and nothing is left.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use orin_sim::serve::{Error, Observer, Options, ServedCall, Session};
use orin_sim::{Config, LiveCounts, SoftwareOrin};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, kill_process};

/// Longest time for the end of processes that a program leaves behind.
const PATIENCE: Duration = Duration::from_secs(60);
/// The limit of processes in `clients/hostile.c`.
const LIMIT: u32 = 40;

/// The program of `clients/hostile.c`, built once.
fn hostile() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let cross = format!("{}-linux-gnu-gcc", std::env::consts::ARCH);
        let starts = |name: &str| Command::new(name).arg("--version").output().is_ok();
        let chosen = std::env::var_os("CC");
        let compiler = chosen.unwrap_or_else(|| if starts(&cross) { cross.into() } else { "cc".into() });
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/hostile.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
        let flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pthread", "-o"];
        let built = Command::new(compiler).args(flags).arg(&program).arg(source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}

fn board() -> SoftwareOrin {
    SoftwareOrin::new(Config::default()).unwrap()
}

/// Starts the program. `None` if the host does not let programs be served: emulators of other architectures do not.
fn start(board: &SoftwareOrin, what: &str) -> Option<Session> {
    let mut command = Command::new(hostile());
    command.arg(what);
    match Session::start(board, command, &Options::default()) {
        Ok(session) => Some(session),
        Err(error @ (Error::Filter { .. } | Error::OldKernel { .. })) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn wait_until_free(board: &SoftwareOrin) {
    wait_until("objects are left", || board.live() == LiveCounts::default());
}

/// One test at a time, because one counts the descriptors of the process.
fn alone() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock()
}

/// Number of open descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn hostile_programs_leave_nothing() {
    let _alone = alone();
    let board = board();
    if start(&board, "bomb").is_none() {
        return;
    }
    // What the model opens once, it opens for the first program.
    let mut before = None;
    let all = [
        "bad-pointers",
        "race",
        "killed",
        "crowd",
        "bomb",
        "passed",
        "frames",
        "reopened",
        "waits",
        "forms",
        "plain-files",
    ];
    for what in all {
        let mut session = start(&board, what).unwrap();
        let status = session.wait().unwrap();
        assert!(status.success(), "{what}: {status}: {:?}", board.kernel_log());
        drop(session);
        wait_until_free(&board);
        // The GPU's thread drops its doorbell pages a little later.
        let before = *before.get_or_insert_with(descriptors);
        wait_until(what, || descriptors() <= before);
    }
}

/// Kills the program during one of its calls: the board has made the call, and the program has no answer yet.
#[derive(Debug)]
struct Killer {
    /// Number of the call.
    victim: usize,
    calls: AtomicUsize,
}

impl Observer for Killer {
    fn served(&self, call: &ServedCall<'_>) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.victim {
            let process = Pid::from_raw(call.process.cast_signed()).unwrap();
            kill_process(process, Signal::KILL).unwrap();
        }
    }
}

#[test]
fn a_program_killed_during_each_of_its_calls_leaves_nothing() {
    let _alone = alone();
    let board = board();
    let Some(mut first) = start(&board, "works") else { return };
    assert!(first.wait().unwrap().success());
    drop(first);
    wait_until_free(&board);
    let mut before = None;
    for victim in 0.. {
        let killer = Arc::new(Killer { victim, calls: AtomicUsize::new(0) });
        let mut command = Command::new(hostile());
        command.arg("works");
        let mut options = Options::default();
        options.observer = Some(Arc::clone(&killer) as _);
        let mut session = Session::start(&board, command, &options).unwrap();
        let status = session.wait().unwrap();
        drop(session);
        wait_until_free(&board);
        let before = *before.get_or_insert_with(descriptors);
        wait_until("descriptors are left", || descriptors() <= before);
        if status.success() {
            assert!(victim > 30, "only {victim} calls");
            break;
        }
        assert_eq!(status.signal(), Some(9), "{status}");
    }
}

#[test]
fn programs_share_a_board_and_do_not_disturb_each_other() {
    let _alone = alone();
    let board = board();
    let Some(mut victim) = start(&board, "killed") else { return };
    let mut others = ["race", "passed", "bad-pointers"].map(|what| start(&board, what).unwrap());
    for session in &mut others {
        assert!(session.wait().unwrap().success(), "{:?}", board.kernel_log());
    }
    assert!(victim.wait().unwrap().success(), "{:?}", board.kernel_log());
    drop((victim, others));
    wait_until_free(&board);
}

#[test]
fn a_fork_bomb_is_bounded() {
    let _alone = alone();
    let board = board();
    let mut command = Command::new(hostile());
    command.arg("explode");
    let mut options = Options::default();
    options.max_processes = LIMIT;
    let Some(mut other) = start(&board, "race") else { return };
    let mut bomb = Session::start(&board, command, &options).unwrap();
    assert!(other.wait().unwrap().success(), "{:?}", board.kernel_log());
    let status = bomb.wait().unwrap();
    assert!(status.success(), "{status}: {:?}", board.kernel_log());
    drop((bomb, other));
    wait_until_free(&board);
}

#[test]
fn a_dropped_session_kills_its_program() {
    let _alone = alone();
    let board = board();
    let mut command = Command::new("sleep");
    command.arg("1000");
    let session = match Session::start(&board, command, &Options::default()) {
        Ok(session) => session,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let process = format!("/proc/{}", session.id());
    assert!(Path::new(&process).exists());
    drop(session);
    assert!(!Path::new(&process).exists());
}

#[test]
fn a_program_that_does_not_exist_is_an_error() {
    let _alone = alone();
    let error = Session::start(&board(), Command::new("/no/such/program"), &Options::default()).unwrap_err();
    let refused = matches!(error, Error::Filter { .. });
    assert!(refused || error.to_string().contains("cannot start /no/such/program"), "{error}");
}
