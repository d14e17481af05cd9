//! Records of a program's calls and of a board's answers, and their replay on the software Orin.
//!
//! A record is a file of JSON objects, one per line: a header, the calls in the order of their answers, and the end. A
//! call has everything that the kernel read from the program and stored there, and the files that the program had
//! closed before it, so its replay needs no program. A record without an end was cut off: its writer was killed.

mod handles;
mod replay;

use std::io::{self, BufRead, Write};

use parking_lot::Mutex;

use crate::Profile;
use crate::board::UnknownBoard;
use nvgpu_sys::Release;
use serde::{Deserialize, Serialize};

use crate::serve::observer::{Access, Detail, Observer, ServedCall};

pub use replay::{Comparison, Difference, replay};

/// Version of the format. Version 1 has no closes, no files of descriptors and no end.
const VERSION: u32 = 2;

/// The first line of a record.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    version: u32,
    /// The board, as `BOARD:MODE`.
    board: String,
    /// Name of the kernel's release; R36.4.3 if absent.
    #[serde(default)]
    kernel: Option<String>,
}

/// The last line, with the number of calls.
#[derive(Debug, Serialize, Deserialize)]
struct End {
    end: usize,
}

/// One call.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    process: u32,
    call: Call,
    /// The result; a negative errno after an error.
    result: i64,
    /// Accesses of the kernel to the program.
    accesses: Vec<Access>,
}

/// The call of an entry.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Call {
    Open { path: String, flags: i32 },
    Ioctl { fd: i32, code: u32, address: u64 },
    Mmap { fd: i32, offset: u64, len: usize, protection: u32 },
}

impl Entry {
    fn new(call: &ServedCall<'_>) -> Self {
        let result = call.result.unwrap_or_else(|errno| -i64::from(errno.raw_os_error()));
        let request = match &call.detail {
            Detail::Open { path, flags } => {
                Call::Open { path: path.to_string_lossy().into_owned(), flags: *flags }
            }
            Detail::Request { descriptor, code, address, .. } => {
                Call::Ioctl { fd: *descriptor, code: *code, address: *address }
            }
            Detail::Map(request) => Call::Mmap {
                fd: request.fd,
                offset: request.offset,
                len: request.len,
                protection: request.protection.bits(),
            },
        };
        Self { process: call.process, call: request, result, accesses: call.accesses.to_vec() }
    }
}

/// An [`Observer`] that writes a record.
#[derive(Debug)]
pub struct Recorder<W> {
    /// The output and the number of calls in it; the first error, after which nothing is written.
    output: Mutex<io::Result<(W, usize)>>,
}

impl<W: Write> Recorder<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// The error of `output`.
    pub fn new(mut output: W, board: Profile, kernel: Release) -> io::Result<Self> {
        let kernel = Some(kernel.to_string());
        let header = Header { version: VERSION, board: board.to_string(), kernel };
        writeln!(output, "{}", serde_json::to_string(&header)?)?;
        Ok(Self { output: Mutex::new(Ok((output, 0))) })
    }

    /// Writes the end and returns the output. Calls that are served later are left out.
    ///
    /// # Errors
    ///
    /// The first error of the output; nothing was written after it.
    pub fn finish(&self) -> io::Result<W> {
        let ended = Err(io::Error::other("the record has ended"));
        let (mut output, end) = core::mem::replace(&mut *self.output.lock(), ended)?;
        writeln!(output, "{}", serde_json::to_string(&End { end })?)?;
        Ok(output)
    }
}

impl<W: Write + Send + core::fmt::Debug> Observer for Recorder<W> {
    fn served(&self, call: &ServedCall<'_>) {
        let mut guard = self.output.lock();
        if let Ok((output, calls)) = guard.as_mut() {
            let line = serde_json::to_string(&Entry::new(call)).map_err(io::Error::from);
            match line.and_then(|line| writeln!(output, "{line}")) {
                Ok(()) => *calls += 1,
                Err(error) => *guard = Err(error),
            }
        }
    }

    fn wants_accesses(&self) -> bool {
        true
    }
}

/// A damaged record.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Damaged {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// A record.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_sim::serve::record::{Record, replay};
/// use orin_sim::{Config, SoftwareOrin};
///
/// let record = Record::read(&br#"{"version":1,"board":"agx-64:maxn"}"#[..])?;
/// let config = Config::of(record.board()).with_release(record.kernel());
/// let comparison = replay(&record, &SoftwareOrin::new(config)?);
/// assert_eq!((record.len(), comparison.differences.len()), (0, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Record {
    board: Profile,
    kernel: Release,
    entries: Vec<Entry>,
    is_complete: bool,
}

impl Record {
    /// Reads a record. If it was cut off within a line, that line is left out.
    ///
    /// # Errors
    ///
    /// [`Damaged`] names the first line that is not one of a record.
    pub fn read(mut input: impl BufRead) -> Result<Self, Damaged> {
        let mut text = String::new();
        let read = input.read_line(&mut text);
        let damaged = |problem: String| Damaged { line: 1, problem };
        if read.map_err(|error| damaged(error.to_string()))? == 0 {
            return Err(damaged("the record is empty".to_owned()));
        }
        let header: Header = serde_json::from_str(&text)
            .map_err(|error| damaged(format!("this is not the header of a record ({error})")))?;
        if !(1..=VERSION).contains(&header.version) {
            return Err(damaged(format!("version {} is unknown", header.version)));
        }
        let board = header.board.parse().map_err(|error: UnknownBoard| damaged(error.to_string()))?;
        let kernel = header.kernel.map_or(Ok(Release::R36_4_3), |name| name.parse());
        let kernel = kernel.map_err(|error| damaged(error.to_string()))?;
        let mut record = Self { board, kernel, entries: Vec::new(), is_complete: header.version == 1 };
        for at in 2.. {
            let damaged = |problem: String| Damaged { line: at, problem };
            text.clear();
            if input.read_line(&mut text).map_err(|error| damaged(error.to_string()))? == 0 {
                break;
            }
            if record.is_complete && header.version > 1 {
                return Err(damaged("a line after the end".to_owned()));
            }
            match (serde_json::from_str(&text), serde_json::from_str(&text)) {
                (Ok(entry), _) => record.entries.push(entry),
                (Err(_), Ok(End { end })) if end == record.entries.len() => record.is_complete = true,
                (Err(_), Ok(End { end })) => {
                    return Err(damaged(format!("the end counts {end} calls, not {}", record.entries.len())));
                }
                (Err(_), Err(_)) if !text.ends_with('\n') && header.version > 1 => break,
                (Err(error), Err(_)) => return Err(damaged(error.to_string())),
            }
        }
        Ok(record)
    }

    /// Whether the record has its end. One without was cut off, and its last calls are missing.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The board of the record.
    pub fn board(&self) -> Profile {
        self.board
    }

    /// The release of the record's kernel.
    pub fn kernel(&self) -> Release {
        self.kernel
    }

    /// Number of calls.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no calls.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use nvgpu_sys::nvmap::code;
    use rustix::io::Errno;

    use super::*;
    use crate::caller::CallerFile;
    use crate::{Config, SoftwareOrin};

    /// Address of the arguments.
    const ADDRESS: u64 = 0x1000;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Lets an observer see an open of nvmap, the creation of a handle, its allocation, an allocation of an unknown
    /// handle, and the end of the first one.
    fn serve(observer: &dyn Observer) {
        let serve = |detail, result, accesses: &[Access]| {
            let call = ServedCall::new((7, 8), "program".to_owned(), detail, result);
            observer.served(&call.with_accesses(accesses));
        };
        let request =
            |code, address| Detail::Request { descriptor: 5, code, address, before: &[], after: &[] };
        let read = |values: &[u32]| Access::Read { address: ADDRESS, bytes: words(values) };
        let allocation = |handle| read(&[handle, 1 << 30, 0x0900_0001, 4096, u32::MAX, 0, 0, 0]);
        let open = Detail::Open { path: c"/dev/nvmap", flags: libc::O_RDWR };
        serve(open, Ok(5), &[Access::Install { number: 5, file: None }]);
        // The model gives other numbers to its handles.
        let created = Access::Write { address: ADDRESS, bytes: words(&[4096, 0x1234_5678]) };
        serve(request(code::CREATE, ADDRESS), Ok(0), &[read(&[4096, 0]), created]);
        serve(request(code::ALLOC_R39, ADDRESS), Ok(0), &[allocation(0x1234_5678)]);
        serve(request(code::ALLOC_R39, ADDRESS), Err(Errno::INVAL), &[allocation(0x7654_3210)]);
        serve(request(code::FREE, 0x1234_5678), Ok(0), &[]);
    }

    fn recorded() -> String {
        let recorder = Recorder::new(Vec::new(), Profile::default(), Release::R39_2).unwrap();
        serve(&recorder);
        String::from_utf8(recorder.finish().unwrap()).unwrap()
    }

    fn differences(text: &str) -> Vec<String> {
        let record = Record::read(text.as_bytes()).unwrap();
        let config = Config::of(record.board()).with_release(record.kernel());
        let comparison = replay(&record, &SoftwareOrin::new(config).unwrap());
        let same_result = comparison.differences.iter().filter(|it| !it.text.contains("result")).count();
        assert_eq!(comparison.compared + comparison.differences.len() - same_result, 5, "{comparison:?}");
        comparison.differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_replay_translates_handles_and_finds_different_answers() {
        let text = recorded();
        assert_eq!(differences(&text), [""; 0]);
        let stored = text.replacen("0010000078563412", "0020000078563412", 1);
        let expected = "line 3: NVMAP_IOC_CREATE on 5: the word at 0 is 0x1000, in the record 0x2000";
        assert_eq!(differences(&stored), [expected]);
        let expected = "line 5: NVMAP_IOC_ALLOC on 5: the result is -22, in the record 0";
        assert_eq!(differences(&text.replacen("-22", "0", 1)), [expected]);
        let expected =
            "line 3: NVMAP_IOC_CREATE on 5: it stores [(1000, 8)] (addresses and lengths), in the record []";
        let write = text.find(",{\"write\"").unwrap();
        let end = write + text[write..].find("}}").unwrap() + 2;
        assert_eq!(differences(&(text[..write].to_owned() + &text[end..]))[0], expected);
    }

    #[test]
    fn a_damaged_record_is_refused_by_its_line() {
        let text = recorded();
        let error = |text: &str| Record::read(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error(""), "line 1: the record is empty");
        assert!(
            error("{}").contains("not the header of a record (missing field `version`"),
            "{}",
            error("{}")
        );
        assert_eq!(error(&text.replacen(":2,", ":3,", 1)), "line 1: version 3 is unknown");
        assert_eq!(
            error(&text.replacen("\"end\":5", "\"end\":4", 1)),
            "line 7: the end counts 4 calls, not 5"
        );
        assert_eq!(error(&format!("{text}{text}")), "line 8: a line after the end");
        for (known, unknown) in [("agx-64", "agx-63"), ("r39.2", "r40")] {
            assert!(error(&text.replacen(known, unknown, 1)).starts_with("line 1: "));
        }
        for damage in ["0", "0g"] {
            let error = error(&text.replacen("0010000078563412", damage, 1));
            assert!(error.starts_with("line 3: not pairs of hexadecimal digits"), "{error}");
        }
    }

    /// A process that has duplicated its descriptor and closed the first one, and another that has its number.
    #[test]
    fn files_are_those_of_the_record_and_are_closed_when_the_program_closed_them() {
        let recorder = Recorder::new(Vec::new(), Profile::default(), Release::R36_4_3).unwrap();
        let file = |inode| CallerFile { device: 1, inode };
        let serve = |detail, result, accesses: &[Access]| {
            let call = ServedCall::new((7, 8), "program".to_owned(), detail, result);
            recorder.served(&call.with_accesses(accesses));
        };
        let open = |inode| {
            let detail = Detail::Open { path: c"/dev/nvmap", flags: libc::O_RDWR };
            serve(detail, Ok(5), &[Access::Install { number: 5, file: Some(file(inode)) }]);
        };
        let create = |number, accesses: &[Access]| {
            let written = Access::Write { address: ADDRESS, bytes: words(&[4096, 0]) };
            let read = Access::Read { address: ADDRESS, bytes: words(&[4096, 0]) };
            let request = Detail::Request {
                descriptor: number,
                code: code::CREATE,
                address: ADDRESS,
                before: &[],
                after: &[],
            };
            serve(request, Ok(0), &[accesses, &[read, written]].concat());
        };
        open(100);
        open(101);
        create(9, &[Access::Use { number: 9, file: file(100) }]);
        create(9, &[Access::Close { file: file(101) }, Access::Use { number: 9, file: file(100) }]);
        create(5, &[Access::Use { number: 5, file: file(101) }]);
        let text = String::from_utf8(recorder.finish().unwrap()).unwrap();
        let record = Record::read(text.as_bytes()).unwrap();
        let comparison = replay(&record, &SoftwareOrin::new(Config::default()).unwrap());
        let results: Vec<_> = comparison.differences.iter().filter(|it| it.text.contains("result")).collect();
        assert_eq!(results.len(), 1, "{comparison:?}");
        assert_eq!(
            results[0].to_string(),
            "line 6: NVMAP_IOC_CREATE on 5: the result is -9, in the record 0"
        );
    }

    #[test]
    fn a_record_that_was_cut_off_is_recognised() {
        let text = recorded();
        assert!(Record::read(text.as_bytes()).unwrap().is_complete());
        let end = text.trim_end().rfind('\n').unwrap() + 1;
        for (bytes, calls) in [(end, 5), (end + 3, 5), (end - 10, 4)] {
            let record = Record::read(&text.as_bytes()[..bytes]).unwrap();
            assert_eq!((record.is_complete(), record.len()), (false, calls), "{bytes}");
        }
        // The first version has no end.
        let first = text[..end].replacen(":2,", ":1,", 1);
        assert!(Record::read(first.as_bytes()).unwrap().is_complete());
    }

    /// A file system with room for some bytes.
    #[derive(Debug)]
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_first_failed_write_is_reported() {
        let header = recorded().find('\n').unwrap() + 1;
        assert!(Recorder::new(Full(header - 1), Profile::default(), Release::R39_2).is_err());
        let recorder = Recorder::new(Full(header + 100), Profile::default(), Release::R39_2).unwrap();
        serve(&recorder);
        assert_eq!(recorder.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
