//! Descriptors.
//!
//! Every descriptor of the model is a real descriptor of the process, so numbers, limits and `/proc/self/fd` behave as
//! on a board. A dma-buf is its buffer's memfd. Everything else is an empty memfd named like the kernel's anonymous
//! inode. The table maps numbers to objects.
//!
//! The program may duplicate and close descriptors without the door. The inode identifies the object of a number that
//! is not in the table, and shows that a number has been closed and reused. Each open file holds a lock of its own
//! (`F_OFD_SETLK`), which the host releases with the last duplicate. So the object of a closed number lives on while a
//! duplicate does, as on a board.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::{DupFlags, Errno};

use crate::memory::{Inode, Memory, inode_of};
use crate::procfs;

use super::ProcessId;
use super::served::{self, Served, Watch};
use super::task::Task;
use crate::kernel::address_space::SpaceId;
use crate::kernel::fence::SyncFile;
use crate::kernel::foreign::Foreign;
use crate::kernel::nvmap::Buffer;
use crate::kernel::poll_set::PollSet;

/// The object behind a descriptor.
#[derive(Clone, Debug)]
pub(in crate::kernel) enum Object {
    /// An open of `/dev/nvmap`, by the process that opened it.
    Nvmap(ProcessId),
    /// An open of the control node, by its instance id.
    Ctrl(u64),
    /// An address space.
    Space(SpaceId),
    /// A TSG, by its id.
    Tsg(u32),
    /// A channel, by its id. The serial number distinguishes users of a reused id.
    Channel { id: u32, serial: u64 },
    /// A dma-buf.
    DmaBuf(Buffer),
    /// An event of a TSG: whether it has happened since the last poll that reported it.
    Event(Arc<AtomicBool>),
    /// The completion of a clock request; always readable.
    ClockRequest,
    /// An open of `/dev/host1x-fence`.
    Host1x,
    /// A sync-file.
    SyncFile(Arc<SyncFile>),
    /// An open of `/dev/udmabuf`.
    Udmabuf,
    /// An open of `/dev/dma_heap/system`.
    DmaHeap,
    /// A descriptor created by CREATE_POLLFD.
    PollSet(Arc<PollSet>),
    /// `/dev/kmsg`: the next record, and whether reads block.
    Kmsg { cursor: u64, blocking: bool },
    /// A text file of sysfs: the text, and the number of bytes already read.
    Text { text: String, read: usize },
}

/// Number of an open file; duplicates of a descriptor share it. The lock is on the byte of this number.
pub(in crate::kernel) type FileId = u64;

#[derive(Debug)]
struct Entry {
    descriptor: OwnedFd,
    inode: Inode,
    object: Object,
    owner: ProcessId,
    file: FileId,
}

/// The object of an open file whose remaining descriptors are all duplicates outside the table.
#[derive(Debug)]
struct Orphan {
    /// Another open file of the same inode, through which the lock is queried.
    probe: OwnedFd,
    inode: Inode,
    object: Object,
    owner: ProcessId,
    file: FileId,
}

/// Place of an object.
#[derive(Clone, Copy, Debug)]
enum Place {
    Table(RawFd),
    Orphan(usize),
    /// An open file of a served process.
    Served(served::Place),
}

/// A new descriptor for an object, not installed yet.
#[derive(Debug)]
pub(in crate::kernel) struct Fresh {
    descriptor: OwnedFd,
    /// For a served process: how the last close is detected.
    watch: Option<Watch>,
    /// The node that is opened, for a served process.
    path: Option<CString>,
}

/// The descriptors that are open.
#[derive(Debug, Default)]
pub(in crate::kernel) struct Fds {
    table: BTreeMap<RawFd, Entry>,
    /// Number of entries of each open file.
    open: BTreeMap<FileId, usize>,
    orphans: Vec<Orphan>,
    /// Objects whose last descriptor was closed without the door.
    ended: Vec<Object>,
    next_file: u64,
    served: Served,
    /// The dma-bufs of other exporters.
    pub(in crate::kernel) exporters: Foreign,
}

/// Inode of a number, if it is open.
fn inode_of_number(fd: RawFd) -> Option<Inode> {
    // SAFETY: the borrow ends with the call, which fails if the number is not open.
    (fd >= 0).then(|| inode_of(unsafe { BorrowedFd::borrow_raw(fd) })).flatten()
}

fn lock(kind: i32, file: FileId) -> libc::flock {
    // SAFETY: all zeros is a valid value.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    // CAST: small constants; a count of open files is below 2^63.
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (file as i64, 1);
    lock
}

/// Locks an open file until its last descriptor is closed.
pub(in crate::kernel) fn hold_open(descriptor: &OwnedFd, file: FileId) {
    let lock = lock(libc::F_RDLCK, file);
    // SAFETY: the descriptor is open, and the argument outlives the call. If the host has no locks, duplicates are
    // unknown.
    let _ = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
}

/// Returns whether another open file than that of `fd`, which has the same inode, holds the lock of `file`.
pub(in crate::kernel) fn another_holds(fd: BorrowedFd<'_>, file: FileId) -> bool {
    let mut lock = lock(libc::F_WRLCK, file);
    // SAFETY: as in `hold_open`.
    let asked = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Returns whether a number is a duplicate of `file`, which is open and has the inode `inode`.
fn is_duplicate(fd: RawFd, inode: Inode, file: FileId) -> bool {
    // SAFETY: the borrow ends with the call, which fails if the number is not open.
    inode_of_number(fd) == Some(inode) && !another_holds(unsafe { BorrowedFd::borrow_raw(fd) }, file)
}

/// Creates a descriptor named `name(number)`, for an object that is never readable.
///
/// # Errors
///
/// EMFILE or ENFILE if the table of the process or system is full.
pub(in crate::kernel) fn descriptor(
    task: &Task<'_>,
    name: impl FnOnce(RawFd) -> String,
) -> Result<Fresh, Errno> {
    if task.is_served() {
        let (descriptor, probe) = served::node("nvgpu", OFlags::RDWR)?;
        return Ok(Fresh::locked(task, descriptor, probe));
    }
    named(name)
}

/// As [`descriptor`], for an object that becomes readable: an event or a fence.
///
/// # Errors
///
/// As [`descriptor`].
pub(in crate::kernel) fn readable(
    task: &Task<'_>,
    name: impl FnOnce(RawFd) -> String,
) -> Result<Fresh, Errno> {
    if task.is_served() {
        return Ok(Fresh::piped(served::pipe()?));
    }
    named(name)
}

/// A pipe for an object of this process that the host's poll sees, and its other end. That has the same inode, and is
/// another open file: it is no duplicate.
///
/// # Errors
///
/// As [`descriptor`].
pub(in crate::kernel) fn pipe() -> Result<(Fresh, OwnedFd), Errno> {
    let (descriptor, keep) = served::pipe()?;
    Ok((Fresh { descriptor, watch: None, path: None }, keep))
}

/// The file of a descriptor of this process.
fn named(name: impl FnOnce(RawFd) -> String) -> Result<Fresh, Errno> {
    let mut descriptor = rustix::fs::memfd_create("nvgpu", MemfdFlags::CLOEXEC)?;
    let named = rustix::fs::memfd_create(name(descriptor.as_raw_fd()), MemfdFlags::CLOEXEC);
    // The name contains the number, so a second file replaces the first one. If no second number is free, only the name
    // is lost.
    if let Ok(named) = named {
        rustix::io::dup3(&named, &mut descriptor, DupFlags::CLOEXEC)?;
    }
    Ok(Fresh { descriptor, watch: None, path: None })
}

impl Fresh {
    /// The two ends of a pipe, for a served process.
    pub(in crate::kernel) fn piped((descriptor, keep): (OwnedFd, OwnedFd)) -> Self {
        Self { descriptor, watch: Some(Watch::Pipe(keep)), path: None }
    }

    /// An open file whose inode has another open file, `probe`.
    pub(in crate::kernel) fn locked(task: &Task<'_>, descriptor: OwnedFd, probe: Arc<OwnedFd>) -> Self {
        Self { descriptor, watch: task.is_served().then_some(Watch::Lock(probe)), path: None }
    }

    /// As the file of a node.
    pub(in crate::kernel) fn of_node(mut self, path: &CStr) -> Self {
        self.path = Some(path.to_owned());
        self
    }
}

impl Fds {
    /// Adds a descriptor of the task's process that is closed on exec. Returns its number.
    ///
    /// # Errors
    ///
    /// Only for a served process: the errno of its table, or ESRCH if it has ended. The object is dropped.
    pub(in crate::kernel) fn insert(
        &mut self,
        task: &Task<'_>,
        fresh: Fresh,
        object: Object,
    ) -> Result<RawFd, Errno> {
        self.insert_with(task, fresh, object, true)
    }

    /// As [`Fds::insert`]. Descriptors of the host process itself are always closed on exec.
    ///
    /// # Errors
    ///
    /// As [`Fds::insert`].
    pub(in crate::kernel) fn insert_with(
        &mut self,
        task: &Task<'_>,
        fresh: Fresh,
        object: Object,
        on_exec: bool,
    ) -> Result<RawFd, Errno> {
        let Fresh { descriptor, watch, path } = fresh;
        if let (Some(caller), Some(watch)) = (task.caller, watch) {
            let inserted = self.served.insert(caller, (descriptor, watch, path), object, on_exec);
            return inserted.map_err(|(errno, _)| errno);
        }
        self.next_file += 1;
        hold_open(&descriptor, self.next_file);
        Ok(self.enter(descriptor, object, task.process, self.next_file))
    }

    /// The open files of served processes.
    pub(in crate::kernel) fn served(&mut self) -> &mut Served {
        &mut self.served
    }

    /// Discards what a served process can read from a descriptor.
    pub(in crate::kernel) fn drain(&mut self, task: &Task<'_>, fd: RawFd) {
        if let Some(Place::Served(place)) = self.place(task, fd) {
            self.served.drain(place);
        }
    }

    /// The object behind a descriptor of a served process, and the node that was opened; `None` for objects that
    /// requests create.
    pub(in crate::kernel) fn opened(&self, task: &Task<'_>, fd: RawFd) -> Option<(&Object, Option<&CStr>)> {
        let served = &self.served;
        // Without files of the board, no system call is needed.
        let place = served.place(task.caller.filter(|_| served.len() > 0)?, fd)?;
        Some((served.get(place)?, served.path(place)))
    }

    /// The doorbell page of a control node of a served process, and the file that it lies in.
    pub(in crate::kernel) fn doorbell(
        &mut self,
        task: &Task<'_>,
        fd: RawFd,
    ) -> Option<(&mut Option<Arc<Memory>>, &Arc<OwnedFd>)> {
        match self.place(task, fd)? {
            Place::Served(place) => self.served.doorbell(place),
            Place::Table(_) | Place::Orphan(_) => None,
        }
    }

    fn enter(&mut self, descriptor: OwnedFd, object: Object, owner: ProcessId, file: FileId) -> RawFd {
        let number = descriptor.as_raw_fd();
        self.forget_closed(number, true);
        let inode = inode_of(&descriptor).unwrap_or_default();
        *self.open.entry(file).or_default() += 1;
        self.table.insert(number, Entry { descriptor, inode, object, owner, file });
        number
    }

    /// Removes the entry of a number that was closed without the door. `reused`: the host has just
    /// returned the number for a new descriptor.
    fn forget_closed(&mut self, number: RawFd, reused: bool) {
        let closed = |entry: &Entry| reused || inode_of_number(number) != Some(entry.inode);
        if !self.table.get(&number).is_some_and(closed) {
            return;
        }
        let Some(entry) = self.table.remove(&number) else { return };
        let Entry { descriptor, inode, object, owner, file } = entry;
        // The number is closed, or the program has reused it.
        let _ = descriptor.into_raw_fd();
        if !self.is_last(file) {
            return;
        }
        // A duplicate may still be open.
        let probe = procfs::open_numbers().find(|fd| inode_of_number(*fd) == Some(inode)).and_then(|fd| {
            // SAFETY: the borrow ends with the call, which fails if the number is not open.
            procfs::reopen(unsafe { BorrowedFd::borrow_raw(fd) }, OFlags::RDWR).ok()
        });
        match probe.filter(|probe| another_holds(probe.as_fd(), file)) {
            Some(probe) => self.orphans.push(Orphan { probe, inode, object, owner, file }),
            None => self.ended.push(object),
        }
    }

    /// Removes an entry of `file` from the count. Returns whether it was the last one.
    fn is_last(&mut self, file: FileId) -> bool {
        let Some(count) = self.open.get_mut(&file) else { return true };
        *count -= 1;
        let last = *count == 0;
        if last {
            self.open.remove(&file);
        }
        last
    }

    /// The objects whose last descriptor is closed without the door, as far as `fd` or a known duplicate reveals it.
    pub(in crate::kernel) fn take_ended(&mut self, fd: RawFd) -> Vec<Object> {
        self.forget_closed(fd, false);
        let mut at = 0;
        while at < self.orphans.len() {
            let Orphan { probe, file, .. } = &self.orphans[at];
            if !another_holds(probe.as_fd(), *file) {
                self.ended.push(self.orphans.swap_remove(at).object);
            } else {
                at += 1;
            }
        }
        core::mem::take(&mut self.ended)
    }

    /// Like [`Fds::take_ended`], for every number.
    pub(in crate::kernel) fn take_all_ended(&mut self) -> Vec<Object> {
        let numbers: Vec<_> = self.table.keys().copied().collect();
        for fd in numbers {
            self.forget_closed(fd, false);
        }
        self.take_ended(-1)
    }

    /// Gives a process another descriptor of the same open file. Returns its number.
    ///
    /// # Errors
    ///
    /// EBADF if the task's process has no such descriptor; EMFILE or ENFILE.
    pub(in crate::kernel) fn duplicate(
        &mut self,
        task: &Task<'_>,
        fd: RawFd,
        owner: ProcessId,
    ) -> Result<RawFd, Errno> {
        let (object, file) = match self.place(task, fd).ok_or(Errno::BADF)? {
            Place::Table(number) => (self.table[&number].object.clone(), self.table[&number].file),
            Place::Orphan(at) => (self.orphans[at].object.clone(), self.orphans[at].file),
            // Served processes pass descriptors themselves.
            Place::Served(_) => return Err(Errno::BADF),
        };
        // SAFETY: `place` has found the number open.
        let descriptor = rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, 0)?;
        Ok(self.enter(descriptor, object, owner, file))
    }

    /// Closes a descriptor of the task's process; `None` if it has no such number. Returns the object if the open file
    /// has no other descriptor.
    pub(in crate::kernel) fn remove(&mut self, task: &Task<'_>, fd: RawFd) -> Option<Option<Object>> {
        let place = self.place(task, fd);
        if place.is_none() && !task.is_served() && self.foreign(task, fd).is_some() {
            close_number(fd);
            return Some(None);
        }
        let number = match place? {
            Place::Table(number) => number,
            Place::Orphan(_) => {
                close_number(fd);
                return Some(None);
            }
            // The caller's own number, which only the caller can close.
            Place::Served(_) => return None,
        };
        if number != fd {
            close_number(fd);
            return Some(None);
        }
        let Entry { descriptor, inode, object, owner, file } = self.table.remove(&fd)?;
        if !self.is_last(file) {
            return Some(None);
        }
        let probe = procfs::reopen(&descriptor, OFlags::RDWR).ok();
        drop(descriptor);
        match probe.filter(|probe| another_holds(probe.as_fd(), file)) {
            Some(probe) => {
                self.orphans.push(Orphan { probe, inode, object, owner, file });
                Some(None)
            }
            None => Some(Some(object)),
        }
    }

    /// Place of the object of a number, if the number is open in the task's process.
    fn place(&self, task: &Task<'_>, fd: RawFd) -> Option<Place> {
        if let Some(caller) = task.caller {
            return self.served.place(caller, fd).map(Place::Served);
        }
        let inode = inode_of_number(fd)?;
        let mine = task.process;
        if let Some(entry) = self.table.get(&fd)
            && entry.inode == inode
        {
            return (entry.owner == mine).then_some(Place::Table(fd));
        }
        // A duplicate that was made without the door.
        let is_it = |owner: ProcessId, other: Inode, file: FileId| {
            owner == mine && other == inode && is_duplicate(fd, other, file)
        };
        let known = self.table.iter().find(|(_, entry)| is_it(entry.owner, entry.inode, entry.file));
        // Without a holder of the lock the program has closed the last duplicate, and the number is the kernel's own.
        let is_open = |o: &Orphan| another_holds(o.probe.as_fd(), o.file);
        let is_orphan = |o: &Orphan| is_it(o.owner, o.inode, o.file) && is_open(o);
        let orphan = || self.orphans.iter().position(is_orphan).map(Place::Orphan);
        known.map(|(number, _)| Place::Table(*number)).or_else(orphan)
    }

    pub(in crate::kernel) fn get(&self, task: &Task<'_>, fd: RawFd) -> Option<&Object> {
        Some(match self.place(task, fd)? {
            Place::Table(number) => &self.table[&number].object,
            Place::Orphan(at) => &self.orphans[at].object,
            Place::Served(place) => self.served.get(place)?,
        })
    }

    pub(in crate::kernel) fn get_mut(&mut self, task: &Task<'_>, fd: RawFd) -> Option<&mut Object> {
        match self.place(task, fd)? {
            Place::Table(number) => self.table.get_mut(&number).map(|entry| &mut entry.object),
            Place::Orphan(at) => self.orphans.get_mut(at).map(|orphan| &mut orphan.object),
            Place::Served(place) => self.served.get_mut(place),
        }
    }

    /// Returns the object behind a descriptor.
    ///
    /// # Errors
    ///
    /// EBADF if the process has no such number, `otherwise` if it is not an object of the model.
    pub(in crate::kernel) fn find(
        &self,
        task: &Task<'_>,
        fd: RawFd,
        otherwise: Errno,
    ) -> Result<Object, Errno> {
        self.get(task, fd).cloned().ok_or_else(|| self.missing(task, fd, otherwise))
    }

    /// The errno of [`Fds::find`] for a number that is not in the table.
    pub(in crate::kernel) fn missing(&self, task: &Task<'_>, fd: RawFd, otherwise: Errno) -> Errno {
        if let Some(caller) = task.caller {
            return caller.file(fd).map_or(Errno::BADF, |_| otherwise);
        }
        // A number of another process is not open in this one.
        if self.is_of_another(task, fd) { Errno::BADF } else { foreign(fd, otherwise) }
    }

    /// All numbers of a process.
    pub(in crate::kernel) fn numbers(&self, owner: ProcessId) -> Vec<RawFd> {
        self.table.iter().filter(|(_, entry)| entry.owner == owner).map(|(fd, _)| *fd).collect()
    }

    /// The host's descriptor, for calls to the host.
    pub(in crate::kernel) fn native(&self, task: &Task<'_>, fd: RawFd) -> Option<BorrowedFd<'_>> {
        let known = self.place(task, fd).is_some() || self.foreign(task, fd).is_some();
        // SAFETY: the number has been found open; the table's lock is held while the borrow lives.
        known.then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Returns the dma-buf behind a descriptor.
    ///
    /// # Errors
    ///
    /// EBADF if the number is not open, EINVAL if it is something else.
    pub(in crate::kernel) fn dma_buf(&self, task: &Task<'_>, fd: RawFd) -> Result<Buffer, Errno> {
        match self.find_any(task, fd, Errno::INVAL)? {
            Object::DmaBuf(buffer) => Ok(buffer),
            _ => Err(Errno::INVAL),
        }
    }

    /// As [`Fds::find`], also for dma-bufs that the model did not create.
    ///
    /// # Errors
    ///
    /// As [`Fds::find`].
    pub(in crate::kernel) fn find_any(
        &self,
        task: &Task<'_>,
        fd: RawFd,
        otherwise: Errno,
    ) -> Result<Object, Errno> {
        self.find(task, fd, otherwise)
            .or_else(|errno| self.foreign(task, fd).map(Object::DmaBuf).ok_or(errno))
    }

    /// Gives the task another descriptor of the file of another exporter's dma-buf.
    ///
    /// # Errors
    ///
    /// EBADF, EMFILE or ENFILE.
    pub(in crate::kernel) fn duplicate_foreign(&self, task: &Task<'_>, fd: RawFd) -> Result<RawFd, Errno> {
        match task.caller {
            Some(caller) => caller.install(caller.open(fd)?.as_fd(), true),
            // SAFETY: the borrow ends with the call, which fails if the number is not open.
            None => rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, 0)
                .map(IntoRawFd::into_raw_fd),
        }
    }

    /// Whether a number belongs to another process of this host process.
    pub(in crate::kernel) fn is_of_another(&self, task: &Task<'_>, fd: RawFd) -> bool {
        self.table.get(&fd).is_some_and(|entry| entry.owner != task.process)
    }

    /// An object whose descriptors in this host process have this inode.
    pub(in crate::kernel) fn of_inode(&self, inode: Inode) -> Option<&Object> {
        let orphan = || self.orphans.iter().find(|orphan| orphan.inode == inode).map(|orphan| &orphan.object);
        let entry = self.table.values().find(|entry| entry.inode == inode);
        entry.map(|entry| &entry.object).or_else(orphan)
    }

    /// The channel behind a descriptor.
    pub(in crate::kernel) fn channel(&self, task: &Task<'_>, fd: RawFd) -> Option<u32> {
        match self.get(task, fd) {
            Some(Object::Channel { id, .. }) => Some(*id),
            _ => None,
        }
    }

    /// The address space behind a descriptor.
    pub(in crate::kernel) fn space(&self, task: &Task<'_>, fd: RawFd) -> Option<SpaceId> {
        match self.get(task, fd) {
            Some(Object::Space(id)) => Some(*id),
            _ => None,
        }
    }

    pub(in crate::kernel) fn objects(&self) -> impl Iterator<Item = &Object> {
        let orphans = self.orphans.iter().map(|orphan| &orphan.object);
        self.table.values().map(|entry| &entry.object).chain(orphans).chain(self.served.objects())
    }

    pub(in crate::kernel) fn len(&self) -> usize {
        self.table.len() + self.orphans.len() + self.served.len()
    }

    /// The process has exited: its duplicates no longer count.
    pub(in crate::kernel) fn abandon(&mut self, owner: ProcessId) {
        let gone = |orphan: &mut Orphan| orphan.owner == owner;
        self.ended.extend(self.orphans.extract_if(.., gone).map(|orphan| orphan.object));
    }
}

impl Drop for Fds {
    fn drop(&mut self) {
        // A number that was closed without the door belongs to the program.
        for (number, entry) in core::mem::take(&mut self.table) {
            if inode_of_number(number) != Some(entry.inode) {
                let _ = entry.descriptor.into_raw_fd();
            }
        }
    }
}

/// Closes a duplicate that was made without the door.
fn close_number(fd: RawFd) {
    // SAFETY: the caller of close() owns the number, which is open.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

/// The errno for a number that the model did not create: EBADF if it is not open, `otherwise` if it is.
fn foreign(fd: RawFd, otherwise: Errno) -> Errno {
    if fd < 0 {
        return Errno::BADF;
    }
    // SAFETY: the borrow ends with the call, which only queries whether the number is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    match rustix::io::fcntl_getfd(borrowed) {
        Ok(_) => otherwise,
        Err(_) => Errno::BADF,
    }
}
