//! Closes of files, as the host reports them (inotify(7)).
//!
//! The host reports the last close of an open file shortly before it releases the file's lock, so a report is kept for
//! a while. Without reports, for example if the user has too many instances of inotify, the locks are only queried
//! periodically.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use crate::memory::Inode;

/// Buffer of reports in bytes; each takes 16.
const REPORTS: usize = 4096;

/// The watched files and the latest reports.
#[derive(Debug)]
pub(super) struct Closes {
    inotify: OwnedFd,
    watches: BTreeMap<Inode, i32>,
    files: BTreeMap<i32, Inode>,
    recent: Vec<(Inode, Instant)>,
}

impl Closes {
    /// # Errors
    ///
    /// EMFILE or ENFILE.
    pub(super) fn new() -> Result<Self, Errno> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { inotify, watches: BTreeMap::new(), files: BTreeMap::new(), recent: Vec::new() })
    }

    /// Watches a file. If the host cannot, its closes are not reported.
    pub(super) fn watch(&mut self, file: &OwnedFd, inode: Inode) {
        if self.watches.contains_key(&inode) {
            return;
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE;
        if let Ok(watch) = inotify::add_watch(&self.inotify, path, flags) {
            self.watches.insert(inode, watch);
            self.files.insert(watch, inode);
        }
    }

    /// Ends the watch of a file.
    pub(super) fn forget(&mut self, inode: Inode) {
        if let Some(watch) = self.watches.remove(&inode) {
            self.files.remove(&watch);
            // The file exists as long as it is watched.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    /// Reads the reports. Returns the files with a close in the last `period`.
    pub(super) fn recent(&mut self, period: Duration) -> impl Iterator<Item = Inode> + '_ {
        let now = Instant::now();
        let mut buffer = [MaybeUninit::uninit(); REPORTS];
        let mut reader = inotify::Reader::new(self.inotify.as_fd(), &mut buffer);
        while let Ok(report) = reader.next() {
            if let Some(inode) = self.files.get(&report.wd()) {
                self.recent.push((*inode, now));
            }
        }
        let files = &self.watches;
        self.recent.retain(|(inode, at)| now.duration_since(*at) < period && files.contains_key(inode));
        self.recent.iter().map(|(inode, _)| *inode)
    }

    /// Whether reports are kept.
    pub(super) fn has_recent(&self) -> bool {
        !self.recent.is_empty()
    }
}

impl AsFd for Closes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
