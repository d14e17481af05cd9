//! Reads `/dev/kmsg` record by record, from the running kernel or a software Orin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gpu_hal::read_records;
use gpu_log::Record;
use nvgpu_sys::door::{Events, OpenFlags, PollEntry};
use nvgpu_sys::{Door, DoorFd, Errno, paths};

/// Largest number of records per call, so that a flood of messages cannot block the caller.
const RECORDS_PER_CALL: usize = 1 << 16;

/// A reader of `/dev/kmsg` that returns each record once.
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
    /// Returns the errno of `open`: `ACCESS` or `PERM` if the user may not read the log.
    pub fn open(door: &Arc<dyn Door>) -> Result<Self, Errno> {
        let flags = OpenFlags::NON_BLOCKING | OpenFlags::CLOSE_ON_EXEC;
        Ok(Self { fd: DoorFd::open(door, paths::KMSG, flags)?, lost: 0 })
    }

    /// Opens the log after its newest record.
    ///
    /// # Errors
    ///
    /// As [`KmsgReader::open`].
    pub fn open_at_end(door: &Arc<dyn Door>) -> Result<Self, Errno> {
        let reader = Self::open(door)?;
        door.seek_end(reader.fd.raw())?;
        Ok(reader)
    }

    /// Returns the records since the last call, oldest first; at most 65,536 of them.
    ///
    /// # Errors
    ///
    /// Returns the errno of `read`.
    pub fn read_new(&mut self) -> Result<VecDeque<Record>, Errno> {
        let mut records = VecDeque::new();
        let read = |record: &mut [u8]| self.fd.door().read(self.fd.raw(), record);
        let take = |record: &[u8]| records.extend(Record::from_kmsg(record));
        self.lost += read_records(RECORDS_PER_CALL, read, |errno| Some(*errno), take)?;
        Ok(records)
    }

    /// Number of times the kernel overwrote records before they were read.
    pub fn times_overtaken(&self) -> u64 {
        self.lost
    }

    /// Waits up to `timeout` for a record and returns whether there is one. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// Returns the errno of `poll`.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Errno> {
        let mut entries = [PollEntry { fd: self.fd.raw(), wanted: Events::IN, happened: Events::empty() }];
        match self.fd.door().poll(&mut entries, timeout) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}
