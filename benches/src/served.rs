//! Calls of programs that `orin serve` runs, and the same calls without it.
//!
//! The benchmark program serves a copy of itself, which calls [`client`]: for each line with the name of a [`Call`] and
//! a count on its standard input, it makes the calls and prints their time in nanoseconds.

use core::fmt;
use core::hint::black_box;
use core::str::FromStr;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kernel_door::{Door, DoorFd, DoorMapping, LinuxDoor, OpenFlags, Protection};
use nvgpu_sys::nvmap::{self, AvailableHeaps, CreateHandle, GET_AVAILABLE_HEAPS};
use nvgpu_sys::paths;
use orin_sim::serve::{Options, Session};
use orin_sim::{Config, SoftwareOrin};

use crate::error::{Error, Result};

/// Length of the doorbell page, and the offset of its word (class c561, NVC361_NOTIFY_CHANNEL_PENDING).
const DOORBELL: (usize, usize) = (0x1_0000, 0x90);
/// The path of the calls that are not the board's. It exists everywhere.
const OTHER_PATH: &str = "/proc/self/status";

/// Work of a measured program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// GET_AVAILABLE_HEAPS, a request that does little.
    Request,
    /// CREATE and FREE of a buffer.
    Create,
    /// stat(2) of a path that does not belong to the board: the supervisor reads the path and passes the call back.
    Stat,
    /// fstat(2): no call that the supervisor sees.
    Fstat,
    /// A store to the doorbell.
    Doorbell,
}

const CALLS: [(Call, &str); 5] = [
    (Call::Request, "request"),
    (Call::Create, "create"),
    (Call::Stat, "stat"),
    (Call::Fstat, "fstat"),
    (Call::Doorbell, "doorbell"),
];

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = CALLS.iter().find(|(call, _)| call == self).unwrap_or(&CALLS[0]);
        f.write_str(name)
    }
}

impl FromStr for Call {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = CALLS.iter().find(|(_, known)| *known == name);
        found.map(|(call, _)| *call).ok_or_else(|| format!("there is no call '{name}'"))
    }
}

/// A failed step with the errno.
fn failed(what: &'static str) -> impl Fn(kernel_door::Errno) -> Error {
    move |errno| Error::Io { what, source: errno.into() }
}

/// The open files of a program that makes the calls.
pub(crate) struct Program {
    nvmap: DoorFd,
    doorbell: DoorMapping,
    other: File,
}

impl Program {
    /// On the board behind `door`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] names the file.
    pub(crate) fn open(door: &Arc<dyn Door>) -> Result<Self> {
        let flags = OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC;
        let nvmap = DoorFd::open(door, paths::NVMAP, flags).map_err(failed("opening /dev/nvmap"))?;
        let control = DoorFd::open(door, paths::CTRL, flags).map_err(failed("opening the control node"))?;
        let doorbell = control.map(0, DOORBELL.0, Protection::READ | Protection::WRITE);
        let doorbell = doorbell.map_err(failed("mapping the doorbell"))?;
        let other =
            File::open(OTHER_PATH).map_err(|source| Error::Io { what: "opening another file", source })?;
        Ok(Self { nvmap, doorbell, other })
    }

    /// On a software Orin in this process.
    ///
    /// # Errors
    ///
    /// As [`Program::open`].
    pub(crate) fn in_process() -> Result<Self> {
        let orin = SoftwareOrin::new(Config::default()).map_err(failed("starting a software Orin"))?;
        Self::open(&(Arc::new(orin) as Arc<dyn Door>))
    }

    /// Makes calls. Returns the time of all.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a call fails.
    pub(crate) fn measure(&self, call: Call, count: u64) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..count {
            self.make(call)?;
        }
        Ok(start.elapsed())
    }

    fn make(&self, call: Call) -> Result<()> {
        match call {
            Call::Request => {
                let mut heaps = AvailableHeaps::default();
                GET_AVAILABLE_HEAPS.send(&self.nvmap, &mut heaps).map_err(failed("GET_AVAILABLE_HEAPS"))?;
                black_box(heaps);
            }
            Call::Create => {
                let mut handle = CreateHandle { size_or_fd: 4096, handle: 0 };
                nvmap::CREATE.send(&self.nvmap, &mut handle).map_err(failed("CREATE"))?;
                // SAFETY: the number is a handle.
                unsafe { nvmap::FREE.send_closing(&self.nvmap, handle.handle) }.map_err(failed("FREE"))?;
            }
            Call::Stat => {
                let is_there = Path::new(OTHER_PATH).metadata();
                black_box(is_there.map_err(|source| Error::Io { what: "stat", source })?);
            }
            Call::Fstat => {
                let is_there = self.other.metadata();
                black_box(is_there.map_err(|source| Error::Io { what: "fstat", source })?);
            }
            Call::Doorbell => {
                let page = self.doorbell.pointer().as_ptr();
                // SAFETY: the mapping has `DOORBELL.0` bytes and lives as long as `self`; the word is aligned.
                unsafe { page.add(DOORBELL.1).cast::<u32>().write_volatile(0) };
            }
        }
        Ok(())
    }
}

/// The served copy: answers lines on standard input until its end.
///
/// # Errors
///
/// [`Error::Io`] if a call fails, or the input is not as described.
pub fn client() -> Result<()> {
    let talk = |source| Error::Io { what: "talking to the benchmark", source };
    let program = Program::open(&(Arc::new(LinuxDoor) as Arc<dyn Door>))?;
    for line in io::stdin().lines() {
        let line = line.map_err(talk)?;
        let (call, count) = line.split_once(' ').ok_or_else(|| talk(io::ErrorKind::InvalidInput.into()))?;
        let call = call.parse().map_err(|error: String| talk(io::Error::other(error)))?;
        let count = count.parse().map_err(|error: core::num::ParseIntError| talk(io::Error::other(error)))?;
        let time = program.measure(call, count)?;
        writeln!(io::stdout(), "{}", time.as_nanos()).map_err(talk)?;
    }
    Ok(())
}

/// A served copy of this program.
pub(crate) struct Served {
    name: String,
    calls: PipeWriter,
    times: BufReader<PipeReader>,
    _session: Session,
}

impl Served {
    /// Starts the copy on a board of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Child`] says what the host refuses.
    pub(crate) fn start(program: &Path, arguments: &[OsString]) -> Result<Self> {
        let name = program.display().to_string();
        let failed = |reason: String| Error::Child { program: name.clone(), reason };
        let pipes = || -> io::Result<_> { Ok((io::pipe()?, io::pipe()?)) };
        let ((input, calls), (times, output)) = pipes().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(input).stdout(output);
        let orin = SoftwareOrin::new(Config::default()).map_err(|errno| failed(errno.to_string()))?;
        let session =
            Session::start(&orin, command, &Options::default()).map_err(|error| failed(error.to_string()))?;
        Ok(Self { name, calls, times: BufReader::new(times), _session: session })
    }

    /// Lets the copy make calls. Returns the time of all.
    ///
    /// # Errors
    ///
    /// [`Error::Child`] if it has failed.
    pub(crate) fn measure(&mut self, call: Call, count: u64) -> Result<Duration> {
        let mut line = String::new();
        let said = writeln!(self.calls, "{call} {count}").and_then(|()| self.times.read_line(&mut line));
        let nanoseconds = said.ok().and_then(|_| line.trim().parse().ok());
        let reason = || "it does not report times; its error output says why".to_owned();
        let failed = || Error::Child { program: self.name.clone(), reason: reason() };
        nanoseconds.map(Duration::from_nanos).ok_or_else(failed)
    }
}

/// Starts and ends of Python, alone and served on a board.
pub(crate) struct Python {
    /// The interpreter itself: `python3` may be a script that chooses one.
    program: PathBuf,
}

impl Python {
    /// # Errors
    ///
    /// [`Error::Child`] if Python does not tell its path.
    pub(crate) fn find() -> Result<Self> {
        let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        let path = asked.ok().and_then(|output| String::from_utf8(output.stdout).ok());
        let program = path.map(|path| PathBuf::from(path.trim())).filter(|path| path.is_file());
        let reason = || "it does not report the path of its interpreter".to_owned();
        let program =
            program.ok_or_else(|| Error::Child { program: "python3".to_owned(), reason: reason() })?;
        Ok(Self { program })
    }

    /// Starts Python and waits for its end. Returns the elapsed time, start-up and shutdown of the board included.
    ///
    /// # Errors
    ///
    /// [`Error::Child`] if Python cannot be started, or fails.
    pub(crate) fn measure(&self, served: bool) -> Result<Duration> {
        let failed = |reason: String| Error::Child { program: self.program.display().to_string(), reason };
        let mut command = Command::new(&self.program);
        command.args(["-c", "pass"]).stdin(Stdio::null());
        let start = Instant::now();
        let status = if served {
            let board = SoftwareOrin::new(Config::default()).map_err(|errno| failed(errno.to_string()))?;
            let mut session = Session::start(&board, command, &Options::default())
                .map_err(|error| failed(error.to_string()))?;
            session.wait().map_err(|error| failed(error.to_string()))?
        } else {
            command.status().map_err(|error| failed(error.to_string()))?
        };
        let elapsed = start.elapsed();
        if status.success() { Ok(elapsed) } else { Err(failed(status.to_string())) }
    }

    /// What serving adds: the difference of the fastest of `count` starts of each kind, in turn. Zero if noise hides
    /// it.
    ///
    /// # Errors
    ///
    /// As [`Python::measure`].
    pub(crate) fn measure_extra(&self, count: u64) -> Result<Duration> {
        let mut fastest = [Duration::MAX; 2];
        for _ in 0..count {
            for (fastest, served) in fastest.iter_mut().zip([false, true]) {
                *fastest = self.measure(served)?.min(*fastest);
            }
        }
        Ok(fastest[1].saturating_sub(fastest[0]))
    }
}

/// Why programs cannot be served here; `None` if they can.
pub(crate) fn obstacle() -> Option<String> {
    static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
    let probe = || -> Result<(), String> {
        let orin = SoftwareOrin::new(Config::default()).map_err(|errno| errno.to_string())?;
        let session = Session::start(&orin, Command::new("true"), &Options::default());
        session.and_then(|mut session| session.wait()).map(drop).map_err(|error| error.to_string())
    };
    OBSTACLE
        .get_or_init(|| probe().err().map(|reason| format!("programs cannot be served: {reason}")))
        .clone()
}

/// Whether a program of this name can be started.
pub(crate) fn is_installed(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(name)).any(|program: PathBuf| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_names() {
        for (call, name) in CALLS {
            assert_eq!((call.to_string().as_str(), name.parse()), (name, Ok(call)));
        }
        assert!("nothing".parse::<Call>().is_err());
    }

    #[test]
    fn every_call_works_in_the_process() {
        let program = Program::in_process().unwrap();
        for (call, _) in CALLS {
            assert!(program.measure(call, 10).unwrap() > Duration::ZERO);
        }
    }

    #[test]
    fn a_program_that_is_no_client_is_an_error() {
        if let Some(reason) = obstacle() {
            return eprintln!("skipped: {reason}");
        }
        let mut served = Served::start("/bin/sh".as_ref(), &["-c".into(), "exit 1".into()]).unwrap();
        assert!(served.measure(Call::Fstat, 1).unwrap_err().to_string().contains("/bin/sh"));
        assert!(is_installed("sh") && !is_installed("no-such-program"));
    }
}
