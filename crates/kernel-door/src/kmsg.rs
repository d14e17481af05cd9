//! The kernel log, `/dev/kmsg`.
//!
//! The node yields one record per read, `priority,sequence,time,flags;text` with continuation lines that start with a
//! space (Linux `Documentation/ABI/testing/dev-kmsg`).

use core::ffi::CStr;
use core::time::Duration;
use std::sync::Arc;

use crate::{Door, DoorFd, Errno, Events, OpenFlags};

/// Path of the kernel log's device node.
pub const KMSG: &CStr = c"/dev/kmsg";
/// Size of the record buffer in bytes; the kernel's own limit is lower.
const RECORD_BYTES: usize = 8192;
/// Largest number of records that [`KernelLog::drain`] examines, so that a flood of messages cannot block the caller.
const RECORDS_PER_DRAIN: usize = 4096;

/// The open kernel log, read without blocking: the system's on Linux, the model's of a software kernel.
#[derive(Debug)]
pub struct Kmsg {
    fd: DoorFd,
}

impl Kmsg {
    /// Opens the log at its oldest record.
    ///
    /// # Errors
    ///
    /// The errno of the open: `ACCESS` or `PERM` if the user may not read the log.
    pub fn open(door: &Arc<dyn Door>) -> Result<Self, Errno> {
        Ok(Self { fd: DoorFd::open(door, KMSG, OpenFlags::NON_BLOCKING | OpenFlags::CLOSE_ON_EXEC)? })
    }

    /// Opens the log after its newest record.
    ///
    /// # Errors
    ///
    /// As [`Kmsg::open`].
    pub fn open_at_end(door: &Arc<dyn Door>) -> Result<Self, Errno> {
        let log = Self::open(door)?;
        log.fd.seek_end()?;
        Ok(log)
    }

    /// Passes each record since the last call to `take`, oldest first, but at most `most` of them. Returns how often
    /// the kernel had overwritten records before they were read.
    ///
    /// # Errors
    ///
    /// The errno of the read.
    pub fn read(&mut self, most: usize, take: impl FnMut(&[u8])) -> Result<u64, Errno> {
        read_records(most, |record| self.fd.read(record), take)
    }

    /// Waits up to `timeout` for a record and returns whether there is one. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// The errno of the poll.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Errno> {
        match self.fd.poll(Events::IN, timeout) {
            Ok(happened) => Ok(!happened.is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// Reads records with `read` until there is no new one, but at most `most`.
fn read_records(
    most: usize,
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    mut take: impl FnMut(&[u8]),
) -> Result<u64, Errno> {
    let mut overtaken = 0;
    let mut record = [0; RECORD_BYTES];
    for _ in 0..most {
        match read(&mut record) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(len) => take(&record[..len]),
            // The next read continues after the overwritten records.
            Err(Errno::PIPE) => overtaken += 1,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(overtaken)
}

/// The texts of new kernel-log records that match a filter.
///
/// Many users may not read the log (`kernel.dmesg_restrict`). That is not an error: the reader then yields no lines,
/// and [`KernelLog::unavailable`] returns the reason.
///
/// ```
/// use std::sync::Arc;
/// use kernel_door::{Door, KernelLog, LinuxDoor};
///
/// let door: Arc<dyn Door> = Arc::new(LinuxDoor);
/// let mut log = KernelLog::open(&door, |text| text.contains("no such line"));
/// assert!(log.drain().is_empty());
/// ```
#[derive(Debug)]
pub struct KernelLog {
    source: Result<Kmsg, String>,
    wanted: fn(&str) -> bool,
}

impl KernelLog {
    /// Opens the log of `door` at its end, for the records whose text is `wanted`.
    pub fn open(door: &Arc<dyn Door>, wanted: fn(&str) -> bool) -> Self {
        Self { source: Kmsg::open_at_end(door).map_err(reason), wanted }
    }

    /// The reason why the log cannot be read; `None` if it can.
    pub fn unavailable(&self) -> Option<&str> {
        self.source.as_ref().err().map(String::as_str)
    }

    /// Returns the texts of the wanted records since the last call, oldest first. One call examines at most 4096
    /// records.
    pub fn drain(&mut self) -> Vec<String> {
        let (mut lines, wanted) = (Vec::new(), self.wanted);
        let Ok(source) = &mut self.source else { return lines };
        let take = |record: &[u8]| lines.extend(text(record).filter(|text| wanted(text)));
        if let Err(errno) = source.read(RECORDS_PER_DRAIN, take) {
            self.source = Err(reason(errno));
        }
        lines
    }

    /// Returns the new texts, or the reason why the log cannot be read.
    ///
    /// # Errors
    ///
    /// The text of [`KernelLog::unavailable`].
    pub fn read(&mut self) -> Result<Vec<String>, String> {
        let lines = self.drain();
        match self.unavailable() {
            Some(reason) if lines.is_empty() => Err(reason.to_owned()),
            _ => Ok(lines),
        }
    }
}

/// Why the log cannot be read, with the cure.
fn reason(errno: Errno) -> String {
    let cure = match errno {
        Errno::ACCESS | Errno::PERM => "; run as root or set kernel.dmesg_restrict=0",
        _ => "",
    };
    format!("cannot read {}: {errno}{cure}", KMSG.to_string_lossy())
}

/// The message of one record, without prefix and continuation lines.
fn text(record: &[u8]) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let line = record.split_once(';').and_then(|(_, text)| text.lines().next());
    line.map(|line| line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_until_there_is_none() {
        let mut answers =
            vec![Err(Errno::IO), Err(Errno::AGAIN), Ok(2), Err(Errno::PIPE), Err(Errno::INTR), Ok(1)];
        let mut lens = Vec::new();
        let mut next = |_: &mut [u8]| answers.pop().unwrap();
        let mut read = |most| read_records(most, &mut next, |record| lens.push(record.len()));
        assert_eq!(read(1), Ok(0), "one at a time");
        assert_eq!(read(100), Ok(1));
        assert_eq!(read(100), Err(Errno::IO));
        assert_eq!(lens, [1, 2]);
    }

    #[test]
    fn a_record_is_stripped_to_its_message() {
        let record = b"3,1234,5678901,-;nvgpu: 17000000.gpu [ERR]  fault\n SUBSYSTEM=platform\n";
        assert_eq!(text(record).as_deref(), Some("nvgpu: 17000000.gpu [ERR]  fault"));
        assert_eq!(text(b"not a record"), None);
    }
}
