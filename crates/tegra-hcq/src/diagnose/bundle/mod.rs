//! Crash bundles: the state of a device as a folder of text files.
//!
//! A bundle is written on request of the program. If the variable `NVGPU_CRASH_DIR` names a folder, each fault and each
//! time-out also writes one. A bundle is made from data that is in memory anyway; nothing is recorded in advance. It
//! does not contain the contents of buffers.

use core::sync::atomic::{AtomicU32, Ordering};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gpu_hal::RingView;

use crate::device::Device;
use crate::diagnose::inspect;
use crate::error::{Error, Result};
use crate::fault::{Fault, Submission};
use crate::shared::Shared;
use crate::wait::{OpenChannels, QueueState, Snapshot};

mod state;
mod text;
mod time;

/// Environment variable with the folder for automatic bundles.
const VARIABLE: &str = "NVGPU_CRASH_DIR";
/// Prefix of a bundle's name.
const PREFIX: &str = "crash-";
/// Largest number of bundles in a folder; a full folder gets no more automatic bundles.
const MOST: usize = 16;
/// Number of entries of each ring in a bundle.
const ENTRIES: u32 = 16;
/// Shortest wait whose time-out writes a bundle. A shorter wait is a poll, whose time-out is expected.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// Why a bundle is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// Requested by the program.
    Request,
    /// The kernel has stopped the channels of the queue in this slot.
    Fault { slot: usize, fault: &'a Fault },
    /// A wait for the queue in this slot has timed out.
    TimeOut { slot: usize, timeout: Duration, text: &'a str },
}

/// State of a queue.
struct QueueView {
    snapshot: Snapshot,
    /// The submissions in its rings; `None` if its channels are closed.
    submissions: Option<Vec<Submission>>,
    /// The words of USERD of the channels, in the order of `LANES`; `None` if they are closed.
    userd: Option<Vec<Vec<u32>>>,
}

/// Data for the files.
struct Contents<'a> {
    device: &'a Arc<Shared>,
    event: Event<'a>,
    time: SystemTime,
    queues: Vec<QueueView>,
    log: Result<Vec<String>, String>,
}

impl Device {
    /// Writes the state of the device to a new folder inside `folder`, which is created if necessary; returns the new
    /// folder. The bundle is meant for bug reports. Its files contain the last event, the submissions of each queue,
    /// the mapped memory, the kernel log and the software versions. They do not contain the contents of buffers.
    ///
    /// If the variable `NVGPU_CRASH_DIR` names a folder, each fault and each time-out of a wait of at least 10 ms also
    /// writes a bundle, at most 16 in total, and its error names the new folder.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if a file cannot be written.
    pub fn write_bundle(&self, folder: impl AsRef<Path>) -> Result<PathBuf> {
        for queue in self.shared().heap().queues::<QueueState>() {
            // Detects faults that no wait has reported yet.
            let _ = queue.check();
        }
        write(self.shared(), folder.as_ref(), Event::Request)
    }
}

/// Writes a bundle for an event if the variable requests it. A failure is a warning on standard error: the user who set
/// the variable expects a bundle, and the program may have no log.
pub(crate) fn automatic(device: &Arc<Shared>, event: Event<'_>) -> Option<PathBuf> {
    if matches!(event, Event::TimeOut { timeout, .. } if timeout < SHORTEST_WAIT) {
        return None;
    }
    let folder = PathBuf::from(std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty())?);
    let held = count(&folder);
    if held >= MOST {
        warn(&folder, format_args!("it holds {held} bundles; move them away"));
        return None;
    }
    match write(device, &folder, event) {
        Ok(path) => Some(path),
        Err(error) => {
            warn(&folder, error);
            None
        }
    }
}

/// Reports why no bundle is written.
fn warn(folder: &Path, reason: impl core::fmt::Display) {
    let folder = folder.display();
    // Without standard error there is no place left to report it.
    let _ = writeln!(io::stderr(), "warning: no crash bundle in {folder} ({VARIABLE}): {reason}");
}

/// Number of bundles in a folder; the folder need not exist.
fn count(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)).count()
}

/// Writes a bundle to a new folder inside `folder`; returns the new folder's path.
fn write(device: &Arc<Shared>, folder: &Path, event: Event<'_>) -> Result<PathBuf> {
    let time = SystemTime::now();
    let path = new_folder(folder, time)?;
    let contents = Contents {
        device,
        event,
        time,
        queues: device.heap().queues::<QueueState>().iter().map(|state| view(device, state)).collect(),
        log: device.kernel_log_history(),
    };
    let put = |name: &str, text: String| {
        let path = path.join(name);
        fs::write(&path, text).map_err(|source| Error::File { path, source })
    };
    put("fault.txt", text::fault(&contents))?;
    put("submissions.txt", text::submissions(&contents))?;
    put("launches.txt", text::launches(&contents))?;
    put("mappings.txt", text::mappings(&contents))?;
    put("kernel.log", text::kernel_log(&contents))?;
    put("versions.json", state::versions(&contents))?;
    put("state.json", state::state(&contents))?;
    tracing::info!(path = %path.display(), "crash bundle written");
    Ok(path)
}

fn view(device: &Shared, state: &QueueState) -> QueueView {
    let timeline_va = state.timeline.gpu_va();
    let submissions = |channels: OpenChannels| inspect::submissions(device, &channels, timeline_va, ENTRIES);
    let channels = state.channels();
    let userd = channels.as_ref().map(|channels| channels.rings.iter().map(RingView::userd_words).collect());
    QueueView { snapshot: state.snapshot(), submissions: channels.map(submissions), userd }
}

/// Creates `crash-TIME-PROCESS-NUMBER`, with the time in UTC.
fn new_folder(folder: &Path, time: SystemTime) -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let failed = |path: &Path, source: io::Error| Error::File { path: path.to_owned(), source };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let time = time::basic(time);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{PREFIX}{time}-{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&path, error)),
        }
    }
}
