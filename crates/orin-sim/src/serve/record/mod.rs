//! Records of what a program asked of a board and what the board answered, and their replay on the software Orin.
//!
//! A record is a file of JSON objects, one per line: a header, then the calls in the order of their answers. A call has
//! everything that the kernel read from the program and stored there, so its replay needs no program.

mod handles;
mod replay;

use std::io::{self, BufRead, Write};
use std::sync::{Mutex, PoisonError};

use crate::Profile;
use serde::{Deserialize, Serialize};

use crate::serve::observer::{Access, Detail, Observer, ServedCall};

pub use replay::{Comparison, Difference, replay};

/// Version of the format.
const VERSION: u32 = 1;

/// The first line of a record.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    version: u32,
    /// The board, as `BOARD:MODE`.
    board: String,
}

/// One call.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    process: u32,
    call: Call,
    /// The result; a negative errno after an error.
    result: i64,
    accesses: Vec<Effect>,
}

/// The call of an entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Call {
    Open { path: String, flags: i32 },
    Ioctl { fd: i32, code: u32, address: u64 },
    Mmap { fd: i32, offset: u64, len: usize, protection: u32 },
}

/// What the kernel did to the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Effect {
    /// Read these bytes.
    Read(u64, String),
    /// Stored these bytes.
    Wrote(u64, String),
    /// Installed a descriptor.
    Installed(i32),
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl Entry {
    fn new(call: &ServedCall<'_>) -> Option<Self> {
        let accesses = call.accesses.iter().map(|access| match access {
            Access::Read { address, bytes } => Effect::Read(*address, hex(bytes)),
            Access::Write { address, bytes } => Effect::Wrote(*address, hex(bytes)),
            Access::Install { number } => Effect::Installed(*number),
        });
        let accesses = accesses.collect();
        let result = call.result.unwrap_or_else(|errno| -i64::from(errno.raw_os_error()));
        let call_ = match &call.detail {
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
        Some(Self { process: call.process, call: call_, result, accesses })
    }
}

/// An [`Observer`] that writes a record.
#[derive(Debug)]
pub struct Recorder<W> {
    output: Mutex<(W, Option<io::Error>)>,
}

impl<W: Write> Recorder<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// The error of `output`.
    pub fn new(mut output: W, board: Profile) -> io::Result<Self> {
        let header = Header { version: VERSION, board: board.to_string() };
        writeln!(output, "{}", serde_json::to_string(&header)?)?;
        Ok(Self { output: Mutex::new((output, None)) })
    }

    /// The first error of the output; nothing was written after it.
    pub fn error(&self) -> Option<io::Error> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).1.take()
    }
}

impl<W: Write + Send + core::fmt::Debug> Observer for Recorder<W> {
    fn served(&self, call: &ServedCall<'_>) {
        let Some(entry) = Entry::new(call) else { return };
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if output.1.is_none() {
            let line = serde_json::to_string(&entry).map_err(io::Error::from);
            let written = line.and_then(|line| writeln!(output.0, "{line}"));
            output.1 = written.err();
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
/// let comparison = replay(&record, &SoftwareOrin::new(Config::of(record.board()))?);
/// assert_eq!((record.len(), comparison.differences.len()), (0, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Record {
    board: Profile,
    entries: Vec<Entry>,
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// [`Damaged`] names the first line that is not one of a record.
    pub fn read(input: impl BufRead) -> Result<Self, Damaged> {
        let mut board = None;
        let mut entries = Vec::new();
        for (at, line) in input.lines().enumerate() {
            let damaged = |problem: String| Damaged { line: at + 1, problem };
            let line = line.map_err(|error| damaged(error.to_string()))?;
            let wrong = |error: serde_json::Error| damaged(error.to_string());
            if at > 0 {
                entries.push(serde_json::from_str(&line).map_err(wrong)?);
                continue;
            }
            let header: Header = serde_json::from_str(&line).map_err(wrong)?;
            if header.version != VERSION {
                return Err(damaged(format!("version {} is unknown", header.version)));
            }
            board = Some(header.board.parse().map_err(|error| damaged(format!("{error}")))?);
        }
        let board = board.ok_or_else(|| Damaged { line: 1, problem: "the record is empty".to_owned() })?;
        Ok(Self { board, entries })
    }

    /// The board of the record.
    pub fn board(&self) -> Profile {
        self.board
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
