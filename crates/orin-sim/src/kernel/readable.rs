//! Sync-files of this process that polls without the door see as well.
//!
//! A program may poll a sync-file by its own system call. The descriptor is therefore the end of a pipe, and a thread
//! writes to the other end when the fences have ended. A poll of this kind does not start the kernel's time limit.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::fence::SyncFile;
use super::process::served;
use super::pulse::Pulse;

/// Longest sleep between two looks, for fences with a deadline.
const PERIOD: Duration = Duration::from_millis(20);

/// The files that have not signalled.
#[derive(Debug, Default)]
pub(super) struct Readable(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    files: Vec<(Weak<SyncFile>, OwnedFd)>,
    /// Whether there is a thread.
    watched: bool,
}

impl Readable {
    /// Makes a pipe readable through `keep`, its other end, when the file has signalled.
    pub(super) fn add(self: &Arc<Self>, file: &Arc<SyncFile>, keep: OwnedFd, pulse: &Arc<Pulse>) {
        let mut waiting = self.0.lock();
        waiting.files.push((Arc::downgrade(file), keep));
        waiting.look();
        if waiting.files.is_empty() || waiting.watched {
            return;
        }
        let (all, pulse) = (Arc::clone(self), Arc::clone(pulse));
        let watch = move || loop {
            let seen = pulse.count();
            let mut waiting = all.0.lock();
            waiting.look();
            if waiting.files.is_empty() {
                waiting.watched = false;
                return;
            }
            drop(waiting);
            pulse.wait(seen, PERIOD);
        };
        // Without a thread, such polls see nothing before the next file is made.
        waiting.watched = std::thread::Builder::new().name("orin-fences".to_owned()).spawn(watch).is_ok();
    }
}

impl Waiting {
    /// Writes to the pipes of the files that have signalled, and forgets those and the closed ones.
    fn look(&mut self) {
        self.files.retain(|(file, keep)| match file.upgrade() {
            None => false,
            Some(file) if file.result().is_none() => true,
            Some(_) => {
                served::make_readable(keep);
                false
            }
        });
    }
}
