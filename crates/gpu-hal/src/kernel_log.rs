//! The kernel log as a source of fault details.
//!
//! The error notifier gives a number; the log gives the address, the access and the program counter.
//! `/dev/kmsg` yields one record per read, `priority,sequence,time,flags;text` with continuation
//! lines that start with a space (Linux `Documentation/ABI/testing/dev-kmsg`).

use core::fmt::Debug;
use std::fs::File;
use std::io::{self, Read};

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

/// Path of the kernel log's device node.
pub const KMSG: &str = "/dev/kmsg";
/// Size of the record buffer in bytes; the kernel's own limit is lower.
const RECORD_BYTES: usize = 8192;
/// Largest number of records per call, so that a flood of messages cannot block the caller.
const RECORDS_PER_DRAIN: usize = 4096;

/// A stream of kernel-log records, read without blocking.
pub trait LogSource: Send + Debug {
    /// Reads the next record into `record` and returns its length; 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is no new record. `EPIPE` if the kernel has overwritten records that were not read
    /// yet; the next call continues after them.
    fn read_record(&mut self, record: &mut [u8]) -> io::Result<usize>;
}

impl LogSource for File {
    fn read_record(&mut self, record: &mut [u8]) -> io::Result<usize> {
        self.read(record)
    }
}

/// A reader of new kernel-log records about the GPU.
///
/// Many users may not read the log (`kernel.dmesg_restrict`). That is not an error: the reader then yields no
/// lines, and [`KernelLog::unavailable`] returns the reason.
#[derive(Debug)]
pub struct KernelLog {
    source: Result<Box<dyn LogSource>, String>,
}

impl KernelLog {
    /// Opens the machine's own log at its end.
    pub fn open() -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(KMSG, flags, Mode::empty());
        let file = file.and_then(|fd| rustix::fs::seek(&fd, SeekFrom::End(0)).map(|_| File::from(fd)));
        Self::new(file.map_err(io::Error::from))
    }

    /// Reads from `source`, or reports why it could not be opened.
    pub fn new(source: io::Result<impl LogSource + 'static>) -> Self {
        let source = source.map(|source| Box::new(source) as Box<dyn LogSource>);
        Self { source: source.map_err(|error| reason(&error)) }
    }

    /// The reason why the log cannot be read; `None` if it can.
    pub fn unavailable(&self) -> Option<&str> {
        self.source.as_ref().err().map(String::as_str)
    }

    /// Returns the text of the records about the GPU since the last call, oldest first. One call examines at
    /// most 4096 records.
    pub fn drain(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let Ok(source) = &mut self.source else {
            return lines;
        };
        let mut record = [0; RECORD_BYTES];
        for _ in 0..RECORDS_PER_DRAIN {
            match source.read_record(&mut record) {
                Ok(0) => break,
                Ok(len) => lines.extend(text(&record[..len]).filter(|text| gpu_log::is_about_the_gpu(text))),
                Err(error) => match Errno::from_io_error(&error) {
                    // The kernel overwrote records before they were read; the next read continues after them.
                    Some(Errno::PIPE) => {}
                    Some(Errno::AGAIN) => break,
                    _ => {
                        self.source = Err(reason(&error));
                        break;
                    }
                },
            }
        }
        lines
    }

    /// Returns the new lines, or the reason why the log cannot be read: the form of
    /// [`Driver::kernel_log`](crate::Driver::kernel_log).
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
fn reason(error: &io::Error) -> String {
    let errno = Errno::from_io_error(error);
    let cure = match errno {
        Some(Errno::ACCESS | Errno::PERM) => "; run as root or set kernel.dmesg_restrict=0",
        _ => "",
    };
    match errno {
        Some(errno) => format!("cannot read {KMSG}: {errno}{cure}"),
        None => format!("cannot read {KMSG}: {error}"),
    }
}

/// The message of one record, without prefix and continuation lines.
fn text(record: &[u8]) -> impl Iterator<Item = String> + use<> {
    let record = String::from_utf8_lossy(record);
    let message = record.split_once(';').and_then(|(_, text)| text.lines().next());
    message.map(|line| line.trim_end().to_owned()).into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_stripped_to_its_message() {
        let record = b"3,1234,5678901,-;nvgpu: 17000000.gpu [ERR]  fault\n SUBSYSTEM=platform\n";
        assert_eq!(text(record).collect::<Vec<_>>(), ["nvgpu: 17000000.gpu [ERR]  fault"]);
        assert_eq!(text(b"not a record").count(), 0);
    }
}
