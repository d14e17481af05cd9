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

/// Reads records with `read` and passes each to `take`, until there is no new one, but at most `most`. `errno` returns
/// the errno of a failed read. Returns how often the kernel had overwritten records that were not read yet.
///
/// # Errors
///
/// The first error of `read` that does not mean the end of the log, overwritten records or a signal.
pub fn read_records<E>(
    most: usize,
    mut read: impl FnMut(&mut [u8]) -> Result<usize, E>,
    errno: impl Fn(&E) -> Option<Errno>,
    mut take: impl FnMut(&[u8]),
) -> Result<u64, E> {
    let mut overtaken = 0;
    let mut record = [0; RECORD_BYTES];
    for _ in 0..most {
        match read(&mut record) {
            Ok(0) => break,
            Ok(len) => take(&record[..len]),
            Err(error) => match errno(&error) {
                Some(Errno::AGAIN) => break,
                // The next read continues after the overwritten records.
                Some(Errno::PIPE) => overtaken += 1,
                Some(Errno::INTR) => {}
                _ => return Err(error),
            },
        }
    }
    Ok(overtaken)
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
        let read = |record: &mut [u8]| source.read_record(record);
        let take = |record: &[u8]| lines.extend(text(record).filter(|text| gpu_log::is_about_the_gpu(text)));
        if let Err(error) = read_records(RECORDS_PER_DRAIN, read, Errno::from_io_error, take) {
            self.source = Err(reason(&error));
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
    fn records_are_read_until_there_is_none() {
        let mut answers =
            vec![Err(Errno::IO), Err(Errno::AGAIN), Ok(2), Err(Errno::PIPE), Err(Errno::INTR), Ok(1)];
        let mut lens = Vec::new();
        let mut next = |_: &mut [u8]| answers.pop().unwrap();
        let mut read =
            |most| read_records(most, &mut next, |errno| Some(*errno), |record| lens.push(record.len()));
        assert_eq!(read(1), Ok(0), "one at a time");
        assert_eq!(read(100), Ok(1));
        assert_eq!(read(100), Err(Errno::IO));
        assert_eq!(lens, [1, 2]);
    }

    #[test]
    fn a_record_is_stripped_to_its_message() {
        let record = b"3,1234,5678901,-;nvgpu: 17000000.gpu [ERR]  fault\n SUBSYSTEM=platform\n";
        assert_eq!(text(record).collect::<Vec<_>>(), ["nvgpu: 17000000.gpu [ERR]  fault"]);
        assert_eq!(text(b"not a record").count(), 0);
    }
}
