//! `/dev/kmsg`, read through a door: the machine's own, or that of a software Orin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nvgpu_sys::door::{Events, OpenFlags, PollEntry};
use nvgpu_sys::{Door, DoorFd, Errno, paths};

use super::record::Record;

/// Longest record: the kernel's own limit is below this.
const RECORD_BYTES: usize = 8192;
/// Records read per call, so that a flood of messages cannot hold the caller up.
const RECORDS_PER_CALL: usize = 1 << 16;

/// A reader of `/dev/kmsg`. It sees every record once.
#[derive(Debug)]
pub struct KmsgReader {
    fd: DoorFd,
    lost: u64,
}

impl KmsgReader {
    /// Opens the log at its oldest record.
    ///
    /// # Errors
    ///
    /// The errno of the open; ACCESS and PERM where the user may not read the log.
    pub fn open(door: &Arc<dyn Door>) -> Result<Self, Errno> {
        let flags = OpenFlags::NON_BLOCKING | OpenFlags::CLOSE_ON_EXEC;
        Ok(Self { fd: DoorFd::open(door, paths::KMSG, flags)?, lost: 0 })
    }

    /// Opens the log behind its newest record.
    ///
    /// # Errors
    ///
    /// As [`KmsgReader::open`].
    pub fn open_at_end(door: &Arc<dyn Door>) -> Result<Self, Errno> {
        let reader = Self::open(door)?;
        door.seek_end(reader.fd.raw())?;
        Ok(reader)
    }

    /// The records that came since the last call, oldest first; at most 65,536 of them.
    ///
    /// # Errors
    ///
    /// The errno of a read.
    pub fn read_new(&mut self) -> Result<VecDeque<Record>, Errno> {
        let mut records = VecDeque::new();
        let mut buffer = [0; RECORD_BYTES];
        for _ in 0..RECORDS_PER_CALL {
            match self.fd.door().read(self.fd.raw(), &mut buffer) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(len) => records.extend(Record::from_kmsg(&buffer[..len])),
                // Records were overwritten before they were read; the next read goes on after them.
                Err(Errno::PIPE) => self.lost += 1,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(records)
    }

    /// How often the log overtook the reader, so that records are missing.
    pub fn times_overtaken(&self) -> u64 {
        self.lost
    }

    /// Waits at most `timeout` for a record; whether one came. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// The errno of the poll.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Errno> {
        let mut entries = [PollEntry { fd: self.fd.raw(), wanted: Events::IN, happened: Events::empty() }];
        match self.fd.door().poll(&mut entries, timeout) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}
