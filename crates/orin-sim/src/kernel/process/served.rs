//! Open files of served processes: other processes of the host, whose descriptors are their own ([`Caller`]).
//!
//! Every open file has an inode of its own, except those of one dma-buf, which share the buffer's. The inode of a
//! number, which the caller looks up, identifies the object: dup, fork, exec and passing need no bookkeeping.
//!
//! A descriptor that becomes readable is the read end of a pipe; the model keeps the write end. A byte in the pipe
//! makes it readable for the host's poll, select and epoll. The model removes it where nvgpu's poll clears an event.
//! The last close is an error condition of the end that the model keeps, detected before the next request.
//!
//! All other descriptors are memfds. Each open file holds a lock of its own, which the host releases with its last
//! descriptor and mapping. The host reports the close (`closes`), also before the next request; in case it does not,
//! the locks are queried periodically. The position of these files is the last one, so reads and writes fail with
//! EINVAL, as on a board, and poll reports the file ready.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use rustix::event::epoll;
use rustix::fs::{MemfdFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::caller::Caller;
use crate::memory::{Inode, Memory, inode_of};
use crate::procfs;

use super::closes::Closes;
use super::fds::{FileId, Object, another_holds, hold_open};
use crate::kernel::Kernel;
use crate::kernel::log::Log;

/// Capacity of the pipe of a kernel-log descriptor in bytes; each record takes a page.
const LOG_PIPE: usize = 1 << 20;
/// Longest record of the kernel log in bytes, as in Linux.
const RECORD: usize = 8192;
/// Number of the reports of closes among the hang-ups. Open files are counted from 1.
const CLOSES: FileId = 0;
/// Period of the query of locks.
const PERIOD: Duration = Duration::from_millis(100);

/// How the model detects the last close of an open file.
#[derive(Debug)]
pub(in crate::kernel) enum Watch {
    /// The other end of the pipe.
    Pipe(OwnedFd),
    /// Another open file of the same inode, through which the lock is queried.
    Lock(Arc<OwnedFd>),
}

/// Place of an open file: its inode, and its position among the open files of that inode.
pub(in crate::kernel) type Place = (Inode, usize);

/// One open file.
#[derive(Debug)]
struct File {
    id: FileId,
    object: Object,
    watch: Watch,
    /// The node that was opened; `None` for objects that requests create.
    path: Option<CString>,
    /// The doorbell page of a control node, from its first mapping on.
    doorbell: Option<Arc<Memory>>,
    /// Whether the end of the sync-file has been reported.
    signalled: bool,
}

/// The open files of all served processes.
#[derive(Debug, Default)]
pub(in crate::kernel) struct Served {
    files: BTreeMap<Inode, Vec<File>>,
    /// The inode of each pipe, by the number of its open file.
    pipes: BTreeMap<FileId, Inode>,
    /// Reports pipes without readers, and `closes`.
    hang_ups: Option<OwnedFd>,
    /// Closes of memfds; `None` before the first one, or if the host does not report them.
    closes: Option<Closes>,
    next: FileId,
    /// Number of open files that become readable without a request.
    waiting: usize,
    /// The thread that serves them.
    thread: Option<Thread>,
    /// The files that ended since the last call of `take_closed`; `None` before the first one.
    closed: Option<Vec<Inode>>,
}

/// Creates a pipe: the end for the program, and the end that the model keeps.
///
/// # Errors
///
/// EMFILE or ENFILE.
pub(in crate::kernel) fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (give, keep) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&keep, OFlags::NONBLOCK)?;
    Ok((give, keep))
}

/// Creates the descriptor of a node or of an object that is never readable: an open file for the program, and another
/// one of the same inode.
///
/// # Errors
///
/// EMFILE or ENFILE.
pub(in crate::kernel) fn node(name: &str, access: OFlags) -> Result<(OwnedFd, Arc<OwnedFd>), Errno> {
    let keep = Memory::file(name, 0)?;
    Ok((procfs::reopen(&keep, access)?, Arc::new(keep)))
}

/// Creates the pipe of a kernel-log descriptor: one record per read.
///
/// # Errors
///
/// EMFILE or ENFILE.
pub(in crate::kernel) fn log_pipe(blocking: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (give, keep) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT)?;
    rustix::fs::fcntl_setfl(&keep, OFlags::NONBLOCK | OFlags::DIRECT)?;
    if !blocking {
        rustix::fs::fcntl_setfl(&give, OFlags::NONBLOCK)?;
    }
    // A smaller pipe is filled more often.
    let _ = rustix::pipe::fcntl_setpipe_size(&keep, LOG_PIPE);
    Ok((give, keep))
}

/// Creates a file with a text: an open file for reading, and another one of the same inode.
///
/// # Errors
///
/// EMFILE or ENFILE.
pub(in crate::kernel) fn text(text: &str) -> Result<(OwnedFd, OwnedFd), Errno> {
    let keep = rustix::fs::memfd_create("sysfs", MemfdFlags::CLOEXEC)?;
    rustix::io::pwrite(&keep, text.as_bytes(), 0)?;
    Ok((procfs::reopen(&keep, OFlags::RDONLY)?, keep))
}

impl Served {
    /// Installs an open file in the caller. Returns the number of its descriptor there, or gives the object back.
    pub(in crate::kernel) fn insert(
        &mut self,
        caller: &dyn Caller,
        (give, watch, path): (OwnedFd, Watch, Option<CString>),
        object: Object,
        close_on_exec: bool,
    ) -> Result<RawFd, (Errno, Object)> {
        self.next += 1;
        let id = self.next;
        let installed = self.watch(&give, &watch, id).and_then(|inode| {
            if matches!(watch, Watch::Lock(_)) && !matches!(object, Object::Text { .. }) {
                // No byte follows the last position, so the host refuses to transfer any.
                rustix::fs::seek(&give, SeekFrom::Start(i64::MAX.cast_unsigned()))?;
            }
            let number = caller.install(give.as_fd(), close_on_exec)?;
            Ok((inode, number))
        });
        let (inode, number) = match installed {
            Ok(installed) => installed,
            Err(errno) => {
                self.pipes.remove(&id);
                return Err((errno, object));
            }
        };
        if is_waiting(&object) {
            self.waiting += 1;
            if let Some(thread) = &self.thread {
                thread.unpark();
            }
        }
        let file = File { id, object, watch, path, doorbell: None, signalled: false };
        self.files.entry(inode).or_default().push(file);
        Ok(number)
    }

    /// Starts to watch for the last close.
    fn watch(&mut self, give: &OwnedFd, watch: &Watch, id: FileId) -> Result<Inode, Errno> {
        let inode = inode_of(give).ok_or(Errno::BADF)?;
        match watch {
            Watch::Lock(_) => {
                hold_open(give, id);
                if let Some(closes) = self.closes() {
                    closes.watch(give, inode);
                }
            }
            Watch::Pipe(keep) => {
                // Errors are always reported.
                let flags = epoll::EventFlags::empty();
                epoll::add(self.hang_ups()?, keep, epoll::EventData::new_u64(id), flags)?;
                self.pipes.insert(id, inode);
            }
        }
        Ok(inode)
    }

    fn hang_ups(&mut self) -> Result<&OwnedFd, Errno> {
        Ok(match &mut self.hang_ups {
            Some(hang_ups) => hang_ups,
            none => none.insert(epoll::create(epoll::CreateFlags::CLOEXEC)?),
        })
    }

    /// The reports of closes; `None` if the host has none.
    fn closes(&mut self) -> Option<&mut Closes> {
        if self.closes.is_none() {
            let closes = Closes::new().ok()?;
            let id = epoll::EventData::new_u64(CLOSES);
            epoll::add(self.hang_ups().ok()?, &closes, id, epoll::EventFlags::IN).ok()?;
            self.closes = Some(closes);
        }
        self.closes.as_mut()
    }

    /// The open file behind a number of the caller.
    pub(in crate::kernel) fn place(&self, caller: &dyn Caller, number: RawFd) -> Option<Place> {
        let found = caller.file(number).ok()?;
        let inode = (found.device, found.inode);
        let files = self.files.get(&inode)?;
        // A buffer and its read-only twin have the same file.
        let is_it = |file: &File| match &file.object {
            Object::DmaBuf(buffer) if files.len() > 1 => buffer.read_only != caller.is_writable(number),
            _ => true,
        };
        Some((inode, files.iter().position(is_it)?))
    }

    pub(in crate::kernel) fn get(&self, (inode, at): Place) -> Option<&Object> {
        Some(&self.files.get(&inode)?.get(at)?.object)
    }

    /// The node that was opened as a file.
    pub(in crate::kernel) fn path(&self, (inode, at): Place) -> Option<&CStr> {
        self.files.get(&inode)?.get(at)?.path.as_deref()
    }

    pub(in crate::kernel) fn get_mut(&mut self, (inode, at): Place) -> Option<&mut Object> {
        Some(&mut self.files.get_mut(&inode)?.get_mut(at)?.object)
    }

    pub(in crate::kernel) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.files.values().flatten().map(|file| &file.object)
    }

    pub(in crate::kernel) fn len(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// The doorbell page of a control node, and the file that it lies in.
    pub(in crate::kernel) fn doorbell(
        &mut self,
        (inode, at): Place,
    ) -> Option<(&mut Option<Arc<Memory>>, &Arc<OwnedFd>)> {
        let file = self.files.get_mut(&inode)?.get_mut(at)?;
        match &file.watch {
            Watch::Lock(probe) => Some((&mut file.doorbell, probe)),
            Watch::Pipe(_) => None,
        }
    }

    /// Removes the open files whose last descriptor is closed, as far as the host reports it.
    pub(in crate::kernel) fn take_hung_up(&mut self) -> Vec<Ended> {
        let mut ended = Vec::new();
        let mut closed = self.closes.as_ref().is_some_and(Closes::has_recent);
        while let Some(hang_ups) = &self.hang_ups {
            let mut events = Vec::with_capacity(64);
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let ready = epoll::wait(hang_ups, rustix::buffer::spare_capacity(&mut events), Some(&now));
            if ready.is_err() {
                break;
            }
            let ids = events.iter().map(|event| event.data.u64());
            let mut files: Vec<_> = ids.filter_map(|id| Some((id, self.pipes.remove(&id)?))).collect();
            if closed || files.len() < events.len() {
                files.extend(self.released());
                closed = false;
            }
            if files.is_empty() {
                break;
            }
            // The order of creation: the host reports simultaneous ends in any order.
            files.sort_unstable();
            ended.extend(files.into_iter().filter_map(|(id, inode)| self.take(inode, id)));
        }
        ended
    }

    /// The files of the latest reports whose lock the host has released.
    fn released(&mut self) -> Vec<(FileId, Inode)> {
        let Some(closes) = &mut self.closes else { return Vec::new() };
        let inodes: BTreeSet<_> = closes.recent(PERIOD).collect();
        let files = inodes.into_iter().filter_map(|inode| Some((inode, self.files.get(&inode)?)));
        let files = files.flat_map(|(inode, files)| files.iter().map(move |file| (inode, file)));
        files.filter(|(_, file)| is_released(file)).map(|(inode, file)| (file.id, inode)).collect()
    }

    /// Removes the open files whose lock the host has released.
    pub(in crate::kernel) fn take_unlocked(&mut self) -> Vec<Ended> {
        let all = self.files.iter();
        let ids = all.flat_map(|(inode, files)| {
            files.iter().filter(|file| is_released(file)).map(|file| (*inode, file.id))
        });
        let ids: Vec<_> = ids.collect();
        ids.into_iter().filter_map(|(inode, id)| self.take(inode, id)).collect()
    }

    fn take(&mut self, inode: Inode, id: FileId) -> Option<Ended> {
        let files = self.files.get_mut(&inode)?;
        let at = files.iter().position(|file| file.id == id)?;
        let File { object, doorbell, .. } = files.remove(at);
        if let Some(closed) = &mut self.closed {
            closed.push(inode);
        }
        if files.is_empty() {
            self.files.remove(&inode);
            if let Some(closes) = &mut self.closes {
                closes.forget(inode);
            }
        }
        if is_waiting(&object) {
            self.waiting -= 1;
        }
        Some(Ended { object, doorbell })
    }

    /// Takes the files that have ended since the last call, in the order in which the model noticed it.
    pub(in crate::kernel) fn take_closed(&mut self) -> Vec<Inode> {
        core::mem::take(self.closed.get_or_insert_default())
    }

    /// Makes descriptors readable: records of the log, events, fences.
    pub(in crate::kernel) fn feed(&mut self, log: &Log) {
        if self.waiting == 0 {
            return;
        }
        for file in self.files.values_mut().flatten() {
            let Watch::Pipe(keep) = &file.watch else { continue };
            match &mut file.object {
                Object::Kmsg { cursor, .. } => feed_log(log, cursor, keep),
                Object::Event(happened) if happened.swap(false, Ordering::AcqRel) => make_readable(keep),
                Object::PollSet(set) if set.take_signalled() => make_readable(keep),
                Object::SyncFile(file_of_fences) => {
                    // The host does not report the first poll, so the time limit starts here.
                    file_of_fences.arm();
                    if !file.signalled && file_of_fences.result().is_some() {
                        file.signalled = true;
                        make_readable(keep);
                    }
                }
                Object::ClockRequest if !file.signalled => {
                    file.signalled = true;
                    make_readable(keep);
                }
                _ => {}
            }
        }
    }

    /// Discards what can be read from a descriptor.
    pub(in crate::kernel) fn drain(&mut self, (inode, at): Place) {
        let file = self.files.get(&inode).and_then(|files| files.get(at));
        let Some(File { watch: Watch::Pipe(keep), .. }) = file else { return };
        let Ok(reader) = procfs::reopen(keep, OFlags::RDONLY | OFlags::NONBLOCK) else { return };
        let mut discarded = vec![0; RECORD];
        while rustix::io::read(&reader, &mut discarded).is_ok_and(|len| len > 0) {}
    }
}

/// An open file after its last close.
#[derive(Debug)]
pub(in crate::kernel) struct Ended {
    pub(in crate::kernel) object: Object,
    /// The doorbell page that it had mapped.
    pub(in crate::kernel) doorbell: Option<Arc<Memory>>,
}

/// Whether the host has released the lock of a file.
fn is_released(file: &File) -> bool {
    matches!(&file.watch, Watch::Lock(probe) if !another_holds(probe.as_fd(), file.id))
}

/// Whether the descriptor of an object becomes readable without a request of its owner.
fn is_waiting(object: &Object) -> bool {
    matches!(
        object,
        Object::Kmsg { .. }
            | Object::Event(_)
            | Object::PollSet(_)
            | Object::SyncFile(_)
            | Object::ClockRequest
    )
}

/// Makes the other end of a pipe readable. A full pipe is readable already.
pub(in crate::kernel) fn make_readable(keep: &OwnedFd) {
    let _ = rustix::io::write(keep, &[1]);
}

/// Writes records into the pipe while it has room.
fn feed_log(log: &Log, cursor: &mut u64, keep: &OwnedFd) {
    let mut record = vec![0; RECORD];
    loop {
        let before = *cursor;
        match log.read(cursor, &mut record) {
            Ok(len) => {
                if rustix::io::write(keep, &record[..len]).is_err() {
                    *cursor = before;
                    return;
                }
            }
            // Records were lost; the cursor has moved.
            Err(Errno::PIPE) => {}
            Err(_) => return,
        }
    }
}

impl Kernel {
    /// Releases objects that served processes have closed, as far as the host reports it.
    pub(in crate::kernel) fn settle_served(&self) {
        // A request must not overtake the release that another thread has begun.
        let _settling = self.settling.lock();
        let ended = self.state.lock().fds.served().take_hung_up();
        self.release_served(ended);
    }

    /// Releases all objects that served processes have closed.
    pub(in crate::kernel) fn settle_all_served(&self) {
        self.settle_served();
        let _settling = self.settling.lock();
        let ended = self.state.lock().fds.served().take_unlocked();
        self.release_served(ended);
    }

    fn release_served(&self, ended: Vec<Ended>) {
        for Ended { object, doorbell } in ended {
            self.release(object);
            if let Some(page) = doorbell {
                self.gpu(|gpu| gpu.remove_doorbell_page(&page));
            }
        }
    }

    /// Starts the thread for descriptors of served processes. It ends with the kernel.
    pub(in crate::kernel) fn start_serving(&self) {
        if self.serving.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.state.lock();
        let (kernel, pulse) = (Weak::clone(&self.me), Arc::clone(&self.log.pulse));
        let serve = move || {
            loop {
                let seen = pulse.count();
                let Some(kernel) = kernel.upgrade() else { return };
                kernel.settle_all_served();
                let idle = {
                    let mut state = kernel.state.lock();
                    state.fds.served().feed(&kernel.log);
                    state.fds.served().waiting == 0
                };
                drop(kernel);
                if idle {
                    std::thread::park_timeout(PERIOD);
                } else {
                    pulse.wait(seen, PERIOD);
                }
            }
        };
        match self.spawn("orin-served", serve) {
            Ok(thread) => state.fds.served().thread = Some(thread.thread().clone()),
            Err(error) => tracing::error!("no thread for the descriptors of served processes: {error}"),
        }
    }
}
