//! Checks of whole programs: exit codes, a standard output that cannot be written, signals.
//!
//! They panic if a program misbehaves.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::exit::ExitStatus;

/// Longest time for a program to do what a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program under test and its working folder.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// The program at `path`, to run in `folder`.
    pub fn new(path: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), folder: folder.into(), environment: Vec::new() }
    }

    /// The same with an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// A command that runs the program without input.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(&self.folder).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str], stdout: Stdio) -> Output {
        let child = self.command(arguments).stdout(stdout).stderr(Stdio::piped()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        // PANIC: a test, and the program runs.
        child.wait_with_output().expect("the program ends")
    }

    /// Checks the exit code of a command line, with an ordinary standard output, a full one and a closed one.
    ///
    /// # Panics
    ///
    /// If one of them differs from what all programs of the project do.
    pub fn check(&self, arguments: &[&str], wanted: ExitStatus) {
        let ordinary = self.run(arguments, Stdio::piped());
        let text = String::from_utf8_lossy(&ordinary.stderr).into_owned();
        // CAST: the discriminants are exit codes.
        let wanted = wanted as i32;
        assert_eq!(ordinary.status.code(), Some(wanted), "{arguments:?}: {text}");
        assert!(
            !text.contains('\x1b') && !ordinary.stdout.contains(&0x1b),
            "{arguments:?}: ANSI codes in a file"
        );
        if wanted == ExitStatus::Usage as i32 {
            assert!(text.starts_with("error: "), "{arguments:?}: {text}");
            return;
        }
        if ordinary.stdout.is_empty() {
            return;
        }

        // PANIC: /dev/full is part of Linux.
        let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full opens");
        let output = self.run(arguments, full.into());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?} > /dev/full: {text}");
        let errors: Vec<&str> =
            text.lines().filter(|line| line.contains("No space left on device")).collect();
        assert_eq!(errors.len(), 1, "{arguments:?} > /dev/full: {text}");
        assert!(
            errors[0].starts_with("error: ") && !text.contains("panicked"),
            "{arguments:?} > /dev/full: {text}"
        );

        // PANIC: a test; descriptors are not exhausted.
        let (reader, writer) = io::pipe().expect("a pipe opens");
        drop(reader);
        let output = self.run(arguments, writer.into());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        assert!(code == Some(0) || code == Some(wanted), "{arguments:?} | true: {code:?}: {text}");
        assert!(!text.contains("Broken pipe") && !text.contains("panicked"), "{arguments:?} | true: {text}");
    }

    /// Checks a table of command lines, and that it has a line for each command of the program. Each command is also
    /// checked with `--help` and with an unknown option.
    ///
    /// # Panics
    ///
    /// As [`Program::check`]; and if a command has no line.
    pub fn check_all(&self, table: &[(&[&str], ExitStatus)]) {
        for path in self.commands(&[]) {
            let words: Vec<&str> = path.iter().map(String::as_str).collect();
            assert!(
                table.iter().any(|(line, _)| line.starts_with(&words)),
                "{path:?}: add a line to the table"
            );
            self.check(&[&words[..], &["--help"]].concat(), ExitStatus::Success);
            let unknown = self.run(&[&words[..], &["--no-such-option"]].concat(), Stdio::piped());
            let text = String::from_utf8_lossy(&unknown.stderr);
            // CAST: the discriminants are exit codes.
            assert_eq!(unknown.status.code(), Some(ExitStatus::Usage as i32), "{words:?}: {text}");
            // The option is not taken for an argument.
            assert!(text.starts_with("error: unexpected argument '--no-such-option'"), "{words:?}: {text}");
        }
        for (line, wanted) in table {
            self.check(line, *wanted);
        }
    }

    /// The commands without subcommands that `--help` lists below `path`, as words.
    fn commands(&self, path: &[String]) -> Vec<Vec<String>> {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = self.run(&arguments, Stdio::piped());
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        assert!(!help.contains("```"), "{path:?}: the help has code for readers of the source: {help}");
        let listed =
            help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // A description that is wrapped is indented further.
        let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        let inner: Vec<_> =
            names.flat_map(|name| self.commands(&[path, &[name.to_owned()]].concat())).collect();
        if inner.is_empty() { vec![path.to_vec()] } else { inner }
    }

    /// Runs the program, sends it a signal some time after it has installed its handler, and returns its output. An
    /// emulator has handlers of its own from the start: a program that the signal kills is started again and gets more
    /// time.
    ///
    /// # Panics
    ///
    /// If the program ends early, installs no handler, or does not end.
    pub fn interrupt(&self, arguments: &[&str], signal: Signal, after: Duration) -> Output {
        let mut after = after;
        loop {
            let output = self.interrupt_once(arguments, signal, after);
            if output.status.code().is_some() || after > PATIENCE / 4 {
                return output;
            }
            after *= 4;
        }
    }

    fn interrupt_once(&self, arguments: &[&str], signal: Signal, after: Duration) -> Output {
        let spawned = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        // PANIC: a test, and the program was built.
        let mut child = spawned.expect("the program starts");
        let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
        let begun = Instant::now();
        let early = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        while !handles(child.id(), signal) {
            assert!(!early(&mut child), "{arguments:?} ended before the signal");
            assert!(begun.elapsed() < PATIENCE, "{arguments:?} does not handle the signal");
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(after);
        assert!(!early(&mut child), "{arguments:?} ended before the signal");
        // PANIC: the process has not been waited for.
        kill_process(Pid::from_child(&child), signal).expect("the signal is sent");
        let status = bounded(&mut child);
        // PANIC: the readers do not panic.
        Output { status, stdout: stdout.join().expect("read"), stderr: stderr.join().expect("read") }
    }
}

/// Whether a process has a handler for the signal.
fn handles(process: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// Reads a pipe to its end, in a thread.
fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read until an error is what the program wrote.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn bounded(child: &mut Child) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        // PANIC: a child of this process.
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the program ignores the signal");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Builds a C file as a shared library for the running test. `None`, with a message, if there is no C compiler for this
/// architecture.
///
/// # Panics
///
/// If the compiler refuses the file.
pub fn shared_library(source: &Path, library: PathBuf) -> Option<PathBuf> {
    match Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status() {
        Ok(status) => assert!(status.success(), "{} does not compile", source.display()),
        Err(error) => {
            println!("SKIPPED: no C compiler for {}: {error}", source.display());
            return None;
        }
    }
    // e_machine of the ELF header. An emulated test finds the compiler of the host.
    // PANIC: as documented; a test needs the files that were just built.
    let machine = |path: &Path| std::fs::read(path).unwrap()[18..20].to_vec();
    // PANIC: the running program has a path.
    if machine(&library) != machine(&std::env::current_exe().unwrap()) {
        println!("SKIPPED: the C compiler targets another architecture");
        return None;
    }
    Some(library)
}

/// The program of an example, beside the running test.
///
/// # Panics
///
/// If the running test is not in a build folder of cargo, or the example was not built.
pub fn example(name: &str, folder: &Path) -> Program {
    // PANIC: a test; cargo runs it in its build folder, with the examples beside it.
    let test = std::env::current_exe().expect("the test has a path");
    // PANIC: as above.
    let built = test.parent().and_then(Path::parent).expect("the build folder");
    let path = built.join("examples").join(name);
    assert!(path.exists(), "{}: with `--test`, run `cargo build --examples` first", path.display());
    Program::new(path, folder)
}
