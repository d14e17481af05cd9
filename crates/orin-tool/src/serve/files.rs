//! The files that `orin serve` writes while the program runs.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kernel_door::{Door, DoorFd, OpenFlags};
use nvgpu_sys::paths;
use orin_cli::{Output, UsageError, warn};
use orin_sim::SoftwareOrin;
use orin_sim::serve::{Observer, ServedCall};
use parking_lot::Mutex;

use super::text;

/// Period of the kernel log's copy.
const PERIOD: Duration = Duration::from_millis(50);
/// Longest record of the kernel log in bytes.
const RECORD: usize = 8192;

/// A file that is written line by line. The first error is reported, and nothing is written after it.
#[derive(Debug)]
struct Lines {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl Lines {
    fn create(path: &Path) -> Result<Self, UsageError> {
        // The file may be read by the program while it is written, so it is written in place.
        Output::prepare(path)?;
        let file = File::create(path)
            .map_err(|error| UsageError(format!("{} cannot be written: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(Some(file)) })
    }

    fn write(&self, line: &str) {
        let mut file = self.file.lock();
        let Some(open) = file.as_mut() else { return };
        if let Err(error) = open.write_all(line.as_bytes()) {
            warn(format_args!("orin serve: {} cannot be written: {error}", self.path.display()));
            *file = None;
        }
    }
}

/// The files of `--log` and `--trace`.
#[derive(Debug)]
pub(super) struct CallFile {
    log: Option<Lines>,
    trace: Option<Lines>,
}

impl CallFile {
    pub(super) fn create(log: Option<&Path>, trace: Option<&Path>) -> Result<Self, UsageError> {
        Ok(Self { log: log.map(Lines::create).transpose()?, trace: trace.map(Lines::create).transpose()? })
    }
}

impl CallFile {
    /// Writes what a channel fetches to the file of `--trace`.
    pub(super) fn segment(&self, channel: u32, va: u64, words: &[u32]) {
        if let Some(trace) = &self.trace {
            trace.write(&text::segment(channel, va, words));
        }
    }
}

impl Observer for CallFile {
    fn served(&self, call: &ServedCall<'_>) {
        if let Some(trace) = &self.trace {
            trace.write(&text::trace(call));
        }
        if let (Some(log), Some(line)) = (&self.log, text::log(call)) {
            log.write(&line);
        }
    }
}

/// The file of `--kmsg`.
#[derive(Debug)]
pub(super) struct KernelLog(Lines);

/// Copies the kernel log until it is finished.
#[derive(Debug)]
pub(super) struct Follower {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl KernelLog {
    pub(super) fn create(path: &Path) -> Result<Self, UsageError> {
        Lines::create(path).map(Self)
    }

    /// Starts to copy the log of a board.
    pub(super) fn follow(self, board: &SoftwareOrin) -> io::Result<Follower> {
        let (door, ended): (Arc<dyn Door>, _) = (Arc::new(board.process()), Arc::new(AtomicBool::new(false)));
        let log = DoorFd::open(&door, paths::KMSG, OpenFlags::CLOSE_ON_EXEC | OpenFlags::NON_BLOCKING)?;
        let last = Arc::clone(&ended);
        let copy = move || {
            let mut record = vec![0; RECORD];
            loop {
                // In this order: what was logged before the end is copied.
                let is_last = last.load(Ordering::Acquire);
                while let Ok(len) = log.read(&mut record) {
                    self.0.write(&text::kernel_line(&String::from_utf8_lossy(&record[..len])));
                }
                if is_last {
                    return;
                }
                std::thread::sleep(PERIOD);
            }
        };
        let thread = std::thread::Builder::new().name("orin-kmsg".to_owned()).spawn(copy)?;
        Ok(Follower { ended, thread })
    }
}

impl Follower {
    /// Copies the rest.
    pub(super) fn finish(self) {
        self.ended.store(true, Ordering::Release);
        if self.thread.join().is_err() {
            warn("orin serve: the copy of the kernel log has panicked");
        }
    }
}
