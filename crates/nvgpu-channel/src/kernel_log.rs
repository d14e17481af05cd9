//! The kernel log of a door: the system's on Linux, the model's on the software Orin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gpu_log::Record;
use kernel_door::{Door, Errno, KernelLog, Kmsg};

/// Largest number of records per call, so that a flood of messages cannot block the caller.
const RECORDS_PER_CALL: usize = 1 << 16;

/// Opens the kernel log of `door` at its end, for lines about the GPU. A log that cannot be opened is not an error; see
/// [`KernelLog::unavailable`].
pub fn open_kernel_log(door: &Arc<dyn Door>) -> KernelLog {
    KernelLog::open(door, gpu_log::is_about_the_gpu)
}

/// A reader of `/dev/kmsg` that returns each record once.
#[derive(Debug)]
pub struct KmsgReader {
    log: Kmsg,
    lost: u64,
}

impl KmsgReader {
    /// Opens the log at its oldest record.
    ///
    /// # Errors
    ///
    /// Returns the errno of `open`: `ACCESS` or `PERM` if the user may not read the log.
    pub fn open(door: &Arc<dyn Door>) -> Result<Self, Errno> {
        Ok(Self { log: Kmsg::open(door)?, lost: 0 })
    }

    /// Opens the log after its newest record.
    ///
    /// # Errors
    ///
    /// As [`KmsgReader::open`].
    pub fn open_at_end(door: &Arc<dyn Door>) -> Result<Self, Errno> {
        Ok(Self { log: Kmsg::open_at_end(door)?, lost: 0 })
    }

    /// Returns the records since the last call, oldest first; at most 65,536 of them.
    ///
    /// # Errors
    ///
    /// Returns the errno of `read`.
    pub fn read_new(&mut self) -> Result<VecDeque<Record>, Errno> {
        let mut records = VecDeque::new();
        self.lost += self.log.read(RECORDS_PER_CALL, |record| records.extend(Record::from_kmsg(record)))?;
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
        self.log.wait(timeout)
    }
}
