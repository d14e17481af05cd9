//! Replay of a record: the model answers the recorded calls, and its answers are compared.

use core::fmt;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::caller::{CallerFile, CallerMapping};
use crate::{Caller, CallerDoor, CallerMemory, SoftwareOrin};
use kernel_door::{MapRequest, Protection};
use nvgpu_sys::nvmap;
use rustix::io::Errno;

use crate::serve::observer::Access;
use crate::serve::paths;

use super::handles;
use super::{Call, Entry, Record};

/// First number for descriptors that are not in the record.
const UNKNOWN: RawFd = 100_000;

/// An answer of the model that differs from the record's. Displays as a sentence.
///
/// ```
/// use orin_sim::serve::record::Difference;
///
/// let text = "the result is 0, in the record -22".to_owned();
/// let difference = Difference { line: 7, call: "request 0xc0084e00".to_owned(), text };
/// assert_eq!(difference.to_string(), "line 7: request 0xc0084e00: the result is 0, in the record -22");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Line of the record, from 1 on.
    pub line: usize,
    /// The call.
    pub call: String,
    /// What differs.
    pub text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.call, self.text)
    }
}

/// Result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Number of calls whose answers were compared.
    pub compared: usize,
    /// Number of calls of which only the result was compared, because the contents of the answer are volatile.
    pub results_only: usize,
    /// Number of calls that were skipped because they wait for work of the GPU.
    pub left_out: usize,
    /// Answers that differ.
    pub differences: Vec<Difference>,
}

/// A recorded process. Its memory contains the recorded bytes; its descriptors belong to this process.
#[derive(Debug, Default)]
struct Actor {
    reads: Mutex<Vec<(u64, Vec<u8>)>>,
    writes: Mutex<Vec<(u64, Vec<u8>)>>,
    installs: Mutex<VecDeque<(RawFd, Option<CallerFile>)>>,
    /// The recorded files behind numbers.
    uses: Vec<(RawFd, CallerFile)>,
    process: u32,
    files: Arc<Mutex<Files>>,
}

/// The files of all processes, by number and process, with the recorded file.
#[derive(Debug, Default)]
struct Files(BTreeMap<(RawFd, u32), (OwnedFd, Option<CallerFile>)>);

impl Files {
    /// The file behind a number of a process. `recorded` is that of the record, which also knows what a process has
    /// duplicated or received. Without it, the last process with that number counts if the process has none.
    fn get(&self, number: RawFd, process: u32, recorded: Option<CallerFile>) -> Option<BorrowedFd<'_>> {
        let own = self.0.get(&(number, process));
        let (file, _) = match recorded {
            Some(_) => own
                .filter(|(_, file)| *file == recorded)
                .or_else(|| self.0.values().find(|(_, file)| *file == recorded)),
            None => own
                .or_else(|| self.0.range((number, 0)..=(number, u32::MAX)).next_back().map(|(_, file)| file)),
        }?;
        Some(file.as_fd())
    }

    /// Closes a file of the record.
    fn close(&mut self, recorded: CallerFile) {
        let key = self.0.iter().find(|(_, (_, file))| *file == Some(recorded)).map(|(key, _)| *key);
        if let Some(key) = key {
            self.0.remove(&key);
        }
    }
}

impl Actor {
    fn recorded(&self, number: RawFd) -> Option<CallerFile> {
        self.uses.iter().find(|(used, _)| *used == number).map(|(_, file)| *file)
    }
}

impl CallerMemory for Actor {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        for (start, bytes) in self.reads.lock().iter() {
            let at = address.checked_sub(*start).and_then(|at| usize::try_from(at).ok());
            let found = at.and_then(|at| bytes.get(at..)?.get(..buffer.len()));
            if let Some(found) = found {
                buffer.copy_from_slice(found);
                return Ok(());
            }
        }
        Err(Errno::FAULT)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> usize {
        self.writes.lock().push((address, bytes.to_vec()));
        0
    }
}

impl Caller for Actor {
    fn install(&self, file: BorrowedFd<'_>, _close_on_exec: bool) -> Result<RawFd, Errno> {
        let copy = rustix::io::fcntl_dupfd_cloexec(file, 0)?;
        let mut files = self.files.lock();
        let free = || (UNKNOWN..).find(|number| !files.0.contains_key(&(*number, self.process)));
        let known = self.installs.lock().pop_front();
        let (number, recorded) = known.or_else(|| Some((free()?, None))).ok_or(Errno::MFILE)?;
        // A number that is returned again was closed before, but a duplicate may have kept its file open.
        let before = files.0.insert((number, self.process), (copy, recorded));
        if let Some((file, Some(recorded))) = before {
            let spare = (UNKNOWN..).find(|number| !files.0.contains_key(&(*number, self.process)));
            files.0.insert((spare.ok_or(Errno::MFILE)?, self.process), (file, Some(recorded)));
        }
        Ok(number)
    }

    fn file(&self, number: RawFd) -> Result<CallerFile, Errno> {
        let files = self.files.lock();
        CallerFile::of(files.get(number, self.process, self.recorded(number)).ok_or(Errno::BADF)?)
    }

    fn is_writable(&self, number: RawFd) -> bool {
        let files = self.files.lock();
        let file = files.get(number, self.process, self.recorded(number));
        let flags = file.and_then(|file| rustix::fs::fcntl_getfl(file).ok());
        flags.is_some_and(|flags| flags.intersects(rustix::fs::OFlags::RDWR))
    }

    fn mappings(&self) -> Vec<CallerMapping> {
        Vec::new()
    }

    fn process_id(&self) -> u32 {
        self.process
    }

    fn name(&self) -> String {
        "replay".to_owned()
    }
}

/// The state of a replay.
struct Replay<'a> {
    board: &'a SoftwareOrin,
    processes: BTreeMap<u32, SoftwareOrin>,
    files: Arc<Mutex<Files>>,
    /// The model's handle for each of the record's.
    handles: BTreeMap<u32, u32>,
    comparison: Comparison,
}

/// Replays the calls of a record on the model and compares the answers. Handle numbers may differ. A record does not
/// contain the work of the GPU, so requests that wait for it are skipped.
pub fn replay(record: &Record, board: &SoftwareOrin) -> Comparison {
    let mut replay = Replay {
        board,
        processes: BTreeMap::new(),
        files: Arc::default(),
        handles: BTreeMap::new(),
        comparison: Comparison::default(),
    };
    for (at, entry) in record.entries.iter().enumerate() {
        // The header is line 1.
        replay.call(at + 2, entry);
    }
    replay.comparison
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Replay<'_> {
    fn call(&mut self, line: usize, entry: &Entry) {
        let code = if let Call::Ioctl { code, .. } = entry.call { Some(code) } else { None };
        self.close(entry);
        if code.is_some_and(handles::is_left_out) {
            self.comparison.left_out += 1;
            return;
        }
        let process = self.processes.entry(entry.process).or_insert_with(|| self.board.process());
        let mut actor = Actor { process: entry.process, files: Arc::clone(&self.files), ..Actor::default() };
        let expected = actor.prepare(entry, &self.handles);
        let served = process.served(&actor);
        let result = match &entry.call {
            Call::Open { path, flags } => open(&served, path, *flags),
            Call::Ioctl { fd, code, address } => {
                let address = match *code {
                    // CAST: handles have 32 bits.
                    nvmap::code::FREE => {
                        let recorded = *address as u32;
                        u64::from(self.handles.get(&recorded).copied().unwrap_or(recorded))
                    }
                    _ => *address,
                };
                served.ioctl(*fd, *code, address).map(i64::from)
            }
            Call::Mmap { fd, offset, len, protection } => {
                let protection = Protection::from_bits_truncate(*protection);
                let request = MapRequest { fd: *fd, offset: *offset, len: *len, protection, place: None };
                served.approve_mmap(&request).map(|_| 0)
            }
        };
        let result = result.unwrap_or_else(|errno| -i64::from(errno.raw_os_error()));
        let mut texts = Vec::new();
        if result != entry.result {
            texts.push(format!("the result is {result}, in the record {}", entry.result));
        } else if code.is_some_and(handles::is_volatile) {
            self.comparison.results_only += 1;
        } else {
            self.comparison.compared += 1;
            let returned = code.and_then(handles::returned);
            self.compare(&expected, &actor.writes.lock(), returned, &mut texts);
        }
        let call = name(&entry.call);
        let differences = texts.into_iter().map(|text| Difference { line, call: call.clone(), text });
        self.comparison.differences.extend(differences);
    }

    /// Closes the files that the recorded program had closed before a call.
    fn close(&self, entry: &Entry) {
        let closed = entry.accesses.iter().filter_map(|access| match access {
            Access::Close { file } => Some(*file),
            _ => None,
        });
        let closed: Vec<CallerFile> = closed.collect();
        if closed.is_empty() {
            return;
        }
        closed.into_iter().for_each(|file| self.files.lock().close(file));
        let process = self.board.process();
        process.served(&Actor::default()).settle();
    }

    /// Compares what was stored, word by word.
    fn compare(
        &mut self,
        expected: &[(u64, Vec<u8>)],
        got: &[(u64, Vec<u8>)],
        returned: Option<usize>,
        texts: &mut Vec<String>,
    ) {
        let places = |writes: &[(u64, Vec<u8>)]| -> Vec<(u64, usize)> {
            writes.iter().map(|(address, bytes)| (*address, bytes.len())).collect()
        };
        if places(expected) != places(got) {
            let (got, expected) = (places(got), places(expected));
            texts.push(format!("it stores {got:x?} (addresses and lengths), in the record {expected:x?}"));
            return;
        }
        for ((_, expected), (_, got)) in expected.iter().zip(got) {
            if let Some(at) = returned
                && let (Some(recorded), Some(own)) = (word(expected, at), word(got, at))
            {
                self.handles.insert(recorded, own);
            }
            for at in (0..expected.len()).step_by(4) {
                let (here, there) = (word(got, at), word(expected, at));
                let is_handle = there.is_some_and(|there| here == self.handles.get(&there).copied());
                if here != there && !is_handle {
                    let [here, there] = [here, there].map(|word| word.unwrap_or(0));
                    texts.push(format!("the word at {at} is {here:#x}, in the record {there:#x}"));
                }
            }
        }
    }
}

impl Actor {
    /// Loads the recorded accesses of a call. Returns the stores of the kernel.
    fn prepare(&mut self, entry: &Entry, known: &BTreeMap<u32, u32>) -> Vec<(u64, Vec<u8>)> {
        let mut stored = Vec::new();
        for effect in &entry.accesses {
            match effect {
                Access::Read { address, bytes } => {
                    let mut read = bytes.clone();
                    if let Call::Ioctl { code, address: argument, .. } = entry.call
                        && argument == *address
                        && let Some(at) = handles::taken(code)
                        && let Some(own) = word(&read, at).and_then(|recorded| known.get(&recorded))
                    {
                        read[at..at + 4].copy_from_slice(&own.to_le_bytes());
                    }
                    self.reads.lock().push((*address, read));
                }
                Access::Write { address, bytes } => stored.push((*address, bytes.clone())),
                Access::Install { number, file } => self.installs.lock().push_back((*number, *file)),
                Access::Use { number, file } => self.uses.push((*number, *file)),
                Access::Close { .. } => {}
            }
        }
        stored
    }
}

fn open(served: &CallerDoor<'_>, path: &str, flags: i32) -> Result<i64, Errno> {
    let flags = paths::open_flags(path.as_bytes(), flags).ok_or(Errno::INVAL)?;
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    served.open(&path, flags).map(i64::from)
}

fn name(call: &Call) -> String {
    match call {
        Call::Open { path, .. } => format!("open of {path}"),
        Call::Ioctl { fd, code, .. } => match nvgpu_sys::request_name(*code) {
            Some(name) => format!("{name} on {fd}"),
            None => format!("request {code:#010x} on {fd}"),
        },
        Call::Mmap { fd, len, .. } => format!("mmap of {len} bytes of {fd}"),
    }
}
