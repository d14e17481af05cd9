//! The caller of one notification: its memory, descriptors and names, by its thread id.
//!
//! Thread ids are reused. Bytes that were read are used only if the notification is still valid afterwards, or has just
//! arrived. The supervisor writes only after the same check.

use core::ffi::c_void;
use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::caller::{CallerFile, CallerMapping, parse_mapping};
use crate::{Caller, CallerMemory};
use rustix::io::Errno;
use rustix::process::PidfdGetfdFlags;

use crate::serve::listener::{Listener, Notification, last_errno};
use crate::serve::observer::Access;

/// Smallest page size of any host, in bytes.
const PAGE: u64 = 4096;
/// Longest path of the kernel in bytes, with the terminating zero.
const PATH_MAX: usize = 4096;

/// Reads as many bytes of the memory of a thread as one system call returns.
pub(crate) fn read_some(thread: i32, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: buffer.len() };
    // SAFETY: the local range is `buffer`; the remote one is memory of `thread`, which the kernel checks.
    let read = unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| last_errno())
}

/// The thread behind a notification.
#[derive(Debug)]
pub(crate) struct Client {
    listener: Arc<Listener>,
    id: u64,
    thread: u32,
    received: Instant,
    /// The first descriptor that is installed answers the call.
    finish: bool,
    finished: AtomicBool,
    /// Log of accesses to the caller, if one is kept.
    accesses: Option<Mutex<Vec<Access>>>,
}

impl Client {
    pub(crate) fn new(listener: &Arc<Listener>, call: &Notification) -> Self {
        let listener = Arc::clone(listener);
        let (id, thread, finished) = (call.id, call.thread, AtomicBool::new(false));
        Self { listener, id, thread, received: call.received, finish: false, finished, accesses: None }
    }

    /// Keeps a log of accesses to the caller.
    pub(crate) fn collecting(mut self) -> Self {
        self.accesses = Some(Mutex::default());
        self
    }

    /// Takes the log of accesses to the caller.
    pub(crate) fn accesses(&self) -> Vec<Access> {
        let accesses = self.accesses.as_ref().map(|accesses| accesses.lock());
        accesses.map_or_else(Vec::new, |mut accesses| core::mem::take(&mut accesses))
    }

    fn collect(&self, access: impl FnOnce() -> Access) {
        if let Some(accesses) = &self.accesses {
            accesses.lock().push(access());
        }
    }

    /// The first descriptor that is installed answers the call, in one step.
    pub(crate) fn finishing(mut self) -> Self {
        self.finish = true;
        self
    }

    /// Id of the thread.
    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    /// Whether the call has been answered by a descriptor.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Whether memory of the thread may be copied.
    fn is_present(&self) -> bool {
        self.listener.is_fresh_or_valid(self.id, self.received)
    }

    fn still_waits(&self) -> Result<(), Errno> {
        if self.listener.is_valid(self.id) { Ok(()) } else { Err(Errno::SRCH) }
    }

    /// Reads as many bytes as one system call returns.
    fn read_some(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        // CAST: thread ids are positive.
        read_some(self.thread.cast_signed(), address, buffer)
    }

    /// Reads a path. Returns its bytes without the terminating zero; `None` if it has `limit` bytes or more.
    ///
    /// # Errors
    ///
    /// EFAULT, or EPERM if the kernel forbids the access.
    pub(crate) fn path(&self, address: u64, limit: usize) -> Result<Option<Vec<u8>>, Errno> {
        let limit = limit.min(PATH_MAX);
        let mut path = vec![0; limit];
        let mut done = 0;
        while done < limit {
            let at = address.checked_add(done as u64).ok_or(Errno::FAULT)?;
            // The mapping may end directly after the path. CAST: at most a page.
            let step = (limit - done).min((PAGE - at % PAGE) as usize);
            let read = self.read_some(at, &mut path[done..done + step])?;
            if let Some(end) = path[done..done + read].iter().position(|byte| *byte == 0) {
                path.truncate(done + end);
                return Ok(Some(path));
            }
            done += read;
            if read == 0 {
                return Err(Errno::FAULT);
            }
        }
        Ok(None)
    }

    fn proc(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.thread)
    }

    /// A field of `/proc/TID/status`.
    fn status(&self, field: &str) -> Option<String> {
        let status = fs::read_to_string(self.proc("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    /// The process, and the time at which it started: together they are never reused.
    pub(crate) fn process(&self) -> Option<(u32, u64)> {
        let process = self.process_id();
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name in parentheses may contain anything; the start is the 20th field after it.
        let start = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
        self.still_waits().ok().map(|()| (process, start))
    }
}

impl CallerMemory for Client {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.checked_add(done as u64).ok_or(Errno::FAULT)?;
            let read = self.read_some(at, &mut buffer[done..]).map_err(|_| Errno::FAULT)?;
            if read == 0 {
                return Err(Errno::FAULT);
            }
            done += read;
        }
        if !self.is_present() {
            return Err(Errno::FAULT);
        }
        self.collect(|| Access::Read { address, bytes: buffer.to_vec() });
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && self.is_present() {
            let rest = &bytes[done..];
            let Some(at) = address.checked_add(done as u64) else { break };
            let local = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
            let remote = libc::iovec { iov_base: at as *mut c_void, iov_len: rest.len() };
            // CAST: thread ids are positive.
            let thread = self.thread.cast_signed();
            // SAFETY: the local range is only read; the remote one belongs to another process, whose kernel checks it.
            let written =
                unsafe { libc::process_vm_writev(thread, &raw const local, 1, &raw const remote, 1, 0) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => done += written,
                _ => break,
            }
        }
        self.collect(|| Access::Write { address, bytes: bytes[..done].to_vec() });
        bytes.len() - done
    }
}

impl Caller for Client {
    fn install(&self, file: BorrowedFd<'_>, close_on_exec: bool) -> Result<RawFd, Errno> {
        let number = self.listener.install(self.id, file, close_on_exec, self.finish)?;
        self.finished.store(self.finish, Ordering::Release);
        self.collect(|| Access::Install { number, file: CallerFile::of(file).ok() });
        Ok(number)
    }

    fn file(&self, number: RawFd) -> Result<CallerFile, Errno> {
        let file = match self.listener.duplicate(self.id, self.thread, number) {
            Ok(file) => CallerFile::of(file)?,
            Err(Errno::BADF | Errno::SRCH) => return Err(Errno::BADF),
            // Before Linux 6.9, for threads that are not the thread-group leader.
            Err(_) => {
                let stat = rustix::fs::stat(self.proc(&format!("fd/{number}"))).map_err(|_| Errno::BADF)?;
                self.still_waits().map_err(|_| Errno::BADF)?;
                CallerFile { device: stat.st_dev, inode: stat.st_ino }
            }
        };
        self.collect(|| Access::Use { number, file });
        Ok(file)
    }

    fn open(&self, number: RawFd) -> Result<OwnedFd, Errno> {
        match self.listener.duplicate(self.id, self.thread, number) {
            Ok(file) => Ok(file),
            Err(Errno::BADF | Errno::SRCH) => Err(Errno::BADF),
            // Before Linux 6.9, for threads that are not the thread-group leader, whose files they share.
            Err(_) => {
                // CAST: process ids are positive.
                let leader = rustix::process::Pid::from_raw(self.process_id().cast_signed());
                let flags = rustix::process::PidfdFlags::empty();
                let leader = rustix::process::pidfd_open(leader.ok_or(Errno::BADF)?, flags)?;
                let file = rustix::process::pidfd_getfd(leader, number, PidfdGetfdFlags::empty())?;
                self.still_waits().map_err(|_| Errno::BADF).map(|()| file)
            }
        }
    }

    fn is_writable(&self, number: RawFd) -> bool {
        // The permissions of the link are the access mode of the open file.
        let link = rustix::fs::lstat(self.proc(&format!("fd/{number}")));
        link.is_ok_and(|link| link.st_mode & libc::S_IWUSR != 0)
    }

    fn mappings(&self) -> Vec<CallerMapping> {
        let maps = fs::read_to_string(self.proc("maps")).unwrap_or_default();
        maps.lines().filter_map(parse_mapping).collect()
    }

    fn process_id(&self) -> u32 {
        self.status("Tgid").and_then(|tgid| tgid.parse().ok()).unwrap_or(self.thread)
    }

    fn name(&self) -> String {
        fs::read_to_string(self.proc("comm")).unwrap_or_default().trim_end().to_owned()
    }

    fn is_interrupted(&self) -> bool {
        let mask =
            |field| self.status(field).and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0);
        let pending = mask("SigPnd") | mask("ShdPnd");
        pending & !mask("SigBlk") & !mask("SigIgn") != 0 || self.still_waits().is_err()
    }
}
