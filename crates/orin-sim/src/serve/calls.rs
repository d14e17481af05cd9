//! System calls of served programs, and the board's answers.

use core::ffi::CStr;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::gpu::panic_text;
use crate::{Caller as _, CallerMemory, SoftwareOrin};
use kernel_door::cure::PANICKED;
use kernel_door::{MapRequest, Protection};
use nvgpu_sys::channel;
use rustix::io::Errno;

use crate::serve::client::Client;
use crate::serve::crowd::Crowd;
use crate::serve::error::Error;
use crate::serve::filter;
use crate::serve::listener::{Answer, Listener, Notification};
use crate::serve::observer::{Access, Detail, Observer, ServedCall};
use crate::serve::options::Options;
use crate::serve::paths::{self, Status};

/// Number of remembered processes from which on those that have ended are removed.
const PROCESSES: usize = 256;
/// Largest argument of a request that observers see, in bytes.
const ARGUMENT: usize = 4096;

/// A process of the host that has opened nodes, and its process on the board.
#[derive(Debug)]
struct Process {
    /// When it started, because ids are reused.
    start: u64,
    board: SoftwareOrin,
}

/// The board's side of all calls.
#[derive(Debug)]
pub(crate) struct Calls {
    board: SoftwareOrin,
    listener: Arc<Listener>,
    processes: Mutex<BTreeMap<u32, Process>>,
    crowd: Crowd,
    observer: Option<Arc<dyn Observer>>,
}

/// Returns a struct of the kernel's interface.
type StatBytes = fn(&Status) -> Vec<u8>;

/// How a call is answered.
pub(crate) enum Work {
    /// At once.
    Now(Answer),
    /// By a separate thread, because the request may sleep.
    Later,
}

/// A descriptor number of a call.
fn number(argument: u64) -> RawFd {
    // CAST: the kernel uses the low half.
    argument as i32
}

impl Calls {
    /// For a program below the process `root`.
    pub(crate) fn new(board: &SoftwareOrin, listener: &Arc<Listener>, options: &Options, root: i32) -> Self {
        Self {
            board: board.clone(),
            listener: Arc::clone(listener),
            processes: Mutex::default(),
            crowd: Crowd::new(root, options.max_processes),
            observer: options.observer.clone(),
        }
    }

    /// Calls `work`. If it panics, the board ends and the call fails.
    ///
    /// # Errors
    ///
    /// Those of `work`.
    pub(crate) fn guarded<T>(
        &self,
        work: impl FnOnce() -> Result<T, Error>,
        answer: impl FnOnce(Answer) -> T,
    ) -> Result<T, Error> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            self.board.panicked(panic_text(&*panic));
            Ok(answer(Answer::Error(PANICKED)))
        })
    }

    /// Answers a call, unless it may sleep.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if the host forbids to read the caller's memory.
    pub(crate) fn handle(&self, call: &Notification) -> Result<Work, Error> {
        if call.is_native && call.call == libc::SYS_ioctl && is_sleeping(call) {
            return Ok(Work::Later);
        }
        self.answer(call).map(Work::Now)
    }

    /// Answers a call, and sleeps if the request does.
    ///
    /// # Errors
    ///
    /// As [`Calls::handle`].
    pub(crate) fn answer(&self, call: &Notification) -> Result<Answer, Error> {
        let args = &call.args;
        if !call.is_native || filter::CREATIONS.contains(&call.call) {
            let admitted = self.crowd.admit(call.thread);
            return Ok(if admitted { Answer::Continue } else { Answer::Error(Errno::AGAIN) });
        }
        // CAST: flags and modes have 32 bits.
        match call.call {
            libc::SYS_ioctl => Ok(self.ioctl(call)),
            libc::SYS_mmap => Ok(self.mmap(call)),
            libc::SYS_lseek => Ok(self.seek(call)),
            libc::SYS_openat => self.open(call, args[1], args[2] as i32),
            libc::SYS_openat2 => {
                let mut flags = [0; 8];
                if self.client(call).read(args[2], &mut flags).is_err() {
                    return Ok(Answer::Continue);
                }
                self.open(call, args[1], u64::from_le_bytes(flags) as i32)
            }
            libc::SYS_fstat => Ok(self.fstat(call, args[1], paths::stat)),
            libc::SYS_newfstatat => self.stat_at(call, args[3], args[2], paths::stat),
            libc::SYS_statx => self.stat_at(call, args[2], args[4], paths::statx),
            libc::SYS_faccessat | libc::SYS_faccessat2 => self.access(call, args[1], args[2] as i32),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.open(call, args[0], args[1] as i32),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat | libc::SYS_lstat => self.stat(call, args[0], args[1], paths::stat),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_access => self.access(call, args[0], args[1] as i32),
            refused if filter::REFUSED.contains(&refused) => Ok(self.refuse(call)),
            _ => Ok(Answer::Continue),
        }
    }

    fn client(&self, call: &Notification) -> Client {
        let client = Client::new(&self.listener, call);
        let collects = self.observer.as_ref().is_some_and(|observer| observer.wants_accesses());
        if collects { client.collecting() } else { client }
    }

    /// Reads the path of a call. Returns it if it belongs to the board, and whether it demands a folder.
    fn path(&self, call: &Notification, address: u64) -> Result<Option<(CString, bool)>, Error> {
        match self.client(call).path(address, paths::LONGEST) {
            Ok(path) => {
                let absolute = path.filter(|path| path.starts_with(b"/"));
                let form = absolute.map(|path| paths::normal(&path));
                let own = form.filter(|(path, _)| paths::is_of_board(path));
                Ok(own.and_then(|(path, folder)| Some((CString::new(path).ok()?, folder))))
            }
            Err(errno @ (Errno::PERM | Errno::NOSYS)) => Err(Error::Memory { errno }),
            // The kernel reports a bad address. A caller that has ended needs no answer.
            Err(_) => Ok(None),
        }
    }

    /// The board's process of a caller.
    fn process(&self, client: &Client) -> Option<SoftwareOrin> {
        let (id, start) = client.process()?;
        let mut processes = self.processes.lock();
        if let Some(process) = processes.get(&id).filter(|process| process.start == start) {
            return Some(process.board.clone());
        }
        if processes.len() >= PROCESSES {
            processes.retain(|id, _| std::fs::exists(format!("/proc/{id}")).unwrap_or(false));
        }
        let board = self.board.process();
        processes.insert(id, Process { start, board: board.clone() });
        Some(board)
    }

    fn open(&self, call: &Notification, address: u64, flags: i32) -> Result<Answer, Error> {
        let Some((path, folder)) = self.path(call, address)? else { return Ok(Answer::Continue) };
        let Some(opened) = paths::open_flags(path.to_bytes(), flags) else { return Ok(Answer::Continue) };
        if let Some(Err(errno)) = self.kind(&path).map(|kind| paths::check_open(kind, folder, flags)) {
            return Ok(Answer::Error(errno));
        }
        let client = self.client(call).finishing();
        // A caller that has ended needs no answer.
        let Some(process) = self.process(&client) else { return Ok(Answer::Error(Errno::SRCH)) };
        let result = process.served(&client).open(&path, opened);
        self.observe(&client, Detail::Open { path: &path, flags }, result.map(i64::from));
        Ok(match result {
            Ok(_) if client.is_finished() => Answer::Sent,
            Ok(number) => Answer::Value(number.into()),
            Err(errno) => Answer::Error(errno),
        })
    }

    fn stat(&self, call: &Notification, path: u64, place: u64, bytes: StatBytes) -> Result<Answer, Error> {
        let Some((path, folder)) = self.path(call, path)? else { return Ok(Answer::Continue) };
        let Some(kind) = self.kind(&path) else { return Ok(absent(&path)) };
        if let Err(errno) = paths::check_folder(kind, folder) {
            return Ok(Answer::Error(errno));
        }
        Ok(self.store(call, place, &bytes(&Status::of_node(path.to_bytes(), kind))))
    }

    /// A stat of a path, which may be empty for an open file. The folder is the first argument, the path the second.
    fn stat_at(
        &self,
        call: &Notification,
        flags: u64,
        place: u64,
        bytes: StatBytes,
    ) -> Result<Answer, Error> {
        // CAST: small flags.
        let of_file = flags & libc::AT_EMPTY_PATH as u64 != 0
            && (call.args[1] == 0 || self.client(call).path(call.args[1], 1) == Ok(Some(Vec::new())));
        if of_file { Ok(self.fstat(call, place, bytes)) } else { self.stat(call, call.args[1], place, bytes) }
    }

    /// Status of an open file. Its number is the first argument.
    fn fstat(&self, call: &Notification, place: u64, bytes: StatBytes) -> Answer {
        let client = self.client(call);
        let number = number(call.args[0]);
        let Some(opened) = self.board.served(&client).opened(number) else { return Answer::Continue };
        let node = opened.path.and_then(|path| Some((self.kind(&path)?, path)));
        let status = match (node, client.file(number)) {
            (Some((kind, path)), _) => Status::of_node(path.to_bytes(), kind),
            (None, Ok(file)) => Status::of_object(file, opened.size),
            (None, Err(errno)) => return Answer::Error(errno),
        };
        self.store(call, place, &bytes(&status))
    }

    fn store(&self, call: &Notification, place: u64, bytes: &[u8]) -> Answer {
        let left = self.client(call).write(place, bytes);
        if left == 0 { Answer::Value(0) } else { Answer::Error(Errno::FAULT) }
    }

    /// A call that no file of the board supports.
    fn refuse(&self, call: &Notification) -> Answer {
        let client = self.client(call);
        let number = number(call.args[0]);
        if self.board.served(&client).opened(number).is_none() {
            return Answer::Continue;
        }
        match call.call {
            libc::SYS_fallocate if !client.is_writable(number) => Answer::Error(Errno::BADF),
            libc::SYS_fallocate => Answer::Error(Errno::NODEV),
            _ => Answer::Error(Errno::INVAL),
        }
    }

    fn access(&self, call: &Notification, path: u64, mode: i32) -> Result<Answer, Error> {
        let Some((path, folder)) = self.path(call, path)? else { return Ok(Answer::Continue) };
        let Some(kind) = self.kind(&path) else { return Ok(absent(&path)) };
        let allowed = paths::check_folder(kind, folder).and_then(|()| paths::access(kind, mode));
        Ok(allowed.map_or_else(Answer::Error, |()| Answer::Value(0)))
    }

    fn kind(&self, path: &CStr) -> Option<crate::NodeKind> {
        self.board.node_kind(path)
    }

    fn ioctl(&self, call: &Notification) -> Answer {
        let [descriptor, request, address, ..] = call.args;
        // CAST: the kernel uses the low half.
        let code = request as u32;
        let client = self.client(call);
        let before = self.argument(call, code, address);
        let result = self.board.served(&client).ioctl(number(descriptor), code, address);
        if let Err(Errno::NOTTY | Errno::BADF) = result {
            // Not a file of the board, or the host gives the same answer.
            return Answer::Continue;
        }
        if let Some(before) = before {
            let after = self.argument(call, code, address).unwrap_or_default();
            let (before, after) = (before.as_slice(), after.as_slice());
            let detail = Detail::Request { descriptor: number(descriptor), code, address, before, after };
            self.observe(&client, detail, result.map(i64::from));
        }
        result.map_or_else(Answer::Error, |value| Answer::Value(value.into()))
    }

    /// The argument of a request, for the observer; `None` if there is none.
    fn argument(&self, call: &Notification, code: u32, address: u64) -> Option<Vec<u8>> {
        self.observer.as_ref()?;
        // A separate client, because the board does not make this read.
        let client = Client::new(&self.listener, call);
        // CAST: 14 bits.
        let mut argument = vec![0; ((code >> 16) as usize & 0x3fff).min(ARGUMENT)];
        match client.read(address, &mut argument) {
            Ok(()) => Some(argument),
            Err(_) => Some(Vec::new()),
        }
    }

    fn mmap(&self, call: &Notification) -> Answer {
        let [_, len, protection, _, descriptor, offset] = call.args;
        let client = self.client(call);
        // CAST: small flags.
        let asked = |flag: i32| protection & flag as u64 != 0;
        let mut rights = Protection::empty();
        rights.set(Protection::READ, asked(libc::PROT_READ));
        rights.set(Protection::WRITE, asked(libc::PROT_WRITE));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let request = MapRequest { fd: number(descriptor), offset, len, protection: rights, place: None };
        let result = self.board.served(&client).approve_mmap(&request);
        if result != Ok(false) {
            self.observe(&client, Detail::Map(request), result.map(|_| 0));
        }
        result.map_or_else(Answer::Error, |_| Answer::Continue)
    }

    fn seek(&self, call: &Notification) -> Answer {
        match self.board.served(&self.client(call)).seek_end(number(call.args[0])) {
            // CAST: a size in bytes.
            Some(Ok(end)) => Answer::Value(end.cast_signed()),
            Some(Err(errno)) => Answer::Error(errno),
            None => Answer::Continue,
        }
    }

    fn observe(&self, client: &Client, detail: Detail<'_>, result: Result<i64, Errno>) {
        let Some(observer) = &self.observer else { return };
        let ids = (client.process_id(), client.thread());
        let mut accesses = client.accesses();
        if observer.wants_accesses() {
            // What the board has released since the last call, it had released before it answered this one.
            let closed = self.board.served(client).take_closed().into_iter();
            accesses.splice(0..0, closed.map(|file| Access::Close { file }));
        }
        observer.served(&ServedCall::new(ids, client.name(), detail, result).with_accesses(&accesses));
    }
}

/// The answer for a path that the board does not have. The host may have the kernel log.
fn absent(path: &CStr) -> Answer {
    let host = path == nvgpu_sys::paths::KMSG;
    if host { Answer::Continue } else { Answer::Error(Errno::NOENT) }
}

/// Whether a request may sleep.
fn is_sleeping(call: &Notification) -> bool {
    // CAST: the kernel uses the low half.
    call.args[1] as u32 == channel::code::WAIT
}
