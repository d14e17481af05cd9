//! Descriptors.
//!
//! Every descriptor of the model is a real descriptor of the process, so numbers, limits and `/proc/self/fd` behave as
//! on a board. A dma-buf is a duplicate of its memory's memfd. Everything else is an empty memfd named like the
//! kernel's anonymous inode. The table maps numbers to objects.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::MemfdFlags;
use rustix::io::{DupFlags, Errno};

use super::address_space::SpaceId;
use super::nvmap::Buffer;
use super::poll_set::PollSet;
use super::process::{self, ProcessId};
use super::syncpoint::Fence;

/// The object behind a descriptor.
#[derive(Clone, Debug)]
pub(super) enum Object {
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
    SyncFile(Arc<Fence>),
    /// A descriptor created by CREATE_POLLFD.
    PollSet(Arc<PollSet>),
    /// `/dev/kmsg`: the next record, and whether reads block.
    Kmsg { cursor: u64, blocking: bool },
    /// A text file of sysfs: the text, and the number of bytes already read.
    Text { text: String, read: usize },
}

#[derive(Debug)]
struct Entry {
    descriptor: OwnedFd,
    object: Object,
    owner: ProcessId,
    /// The open file; duplicates of a descriptor share it.
    file: u64,
}

/// The descriptors that are open.
#[derive(Debug, Default)]
pub(super) struct Fds {
    table: BTreeMap<RawFd, Entry>,
    next_file: u64,
}

/// Creates a descriptor named `name(number)`.
///
/// # Errors
///
/// EMFILE or ENFILE if the table of the process or system is full.
pub(super) fn descriptor(name: impl FnOnce(RawFd) -> String) -> Result<OwnedFd, Errno> {
    let mut descriptor = rustix::fs::memfd_create("nvgpu", MemfdFlags::CLOEXEC)?;
    let named = rustix::fs::memfd_create(name(descriptor.as_raw_fd()), MemfdFlags::CLOEXEC);
    // The name contains the number, so a second file replaces the first one. If no second number is free, only the name
    // is lost.
    if let Ok(named) = named {
        rustix::io::dup3(&named, &mut descriptor, DupFlags::CLOEXEC)?;
    }
    Ok(descriptor)
}

impl Fds {
    /// Adds a descriptor of the current process. Returns its number.
    pub(super) fn insert(&mut self, descriptor: OwnedFd, object: Object) -> RawFd {
        self.next_file += 1;
        let (owner, file) = (process::current(), self.next_file);
        self.enter(Entry { descriptor, object, owner, file })
    }

    fn enter(&mut self, entry: Entry) -> RawFd {
        let number = entry.descriptor.as_raw_fd();
        if let Some(stale) = self.table.insert(number, entry) {
            // The number was closed without the door and has been reused; it must not be closed again.
            let _ = stale.descriptor.into_raw_fd();
        }
        number
    }

    /// Gives a process another descriptor of the same open file. Returns its number.
    ///
    /// # Errors
    ///
    /// EBADF if the current process has no such descriptor; EMFILE or ENFILE.
    pub(super) fn duplicate(&mut self, fd: RawFd, owner: ProcessId) -> Result<RawFd, Errno> {
        let entry = self.entry(fd).ok_or(Errno::BADF)?;
        let descriptor = rustix::io::fcntl_dupfd_cloexec(&entry.descriptor, 0)?;
        let (object, file) = (entry.object.clone(), entry.file);
        Ok(self.enter(Entry { descriptor, object, owner, file }))
    }

    /// Removes a descriptor. Dropping the first part closes the number. The last part reports whether it was the last
    /// descriptor of its open file.
    pub(super) fn remove(&mut self, fd: RawFd) -> Option<(OwnedFd, Object, bool)> {
        self.entry(fd)?;
        let entry = self.table.remove(&fd)?;
        let last = self.table.values().all(|other| other.file != entry.file);
        Some((entry.descriptor, entry.object, last))
    }

    /// The entry of a number, if it belongs to the current process.
    fn entry(&self, fd: RawFd) -> Option<&Entry> {
        self.table.get(&fd).filter(|entry| entry.owner == process::current())
    }

    pub(super) fn get(&self, fd: RawFd) -> Option<&Object> {
        self.entry(fd).map(|entry| &entry.object)
    }

    pub(super) fn get_mut(&mut self, fd: RawFd) -> Option<&mut Object> {
        let entry = self.table.get_mut(&fd)?;
        (entry.owner == process::current()).then_some(&mut entry.object)
    }

    /// Returns the object behind a descriptor.
    ///
    /// # Errors
    ///
    /// EBADF if the process has no such number, `otherwise` if it is not an object of the model.
    pub(super) fn find(&self, fd: RawFd, otherwise: Errno) -> Result<Object, Errno> {
        self.get(fd).cloned().ok_or_else(|| self.missing(fd, otherwise))
    }

    /// The errno of [`Fds::find`] for a number that is not in the table.
    pub(super) fn missing(&self, fd: RawFd, otherwise: Errno) -> Errno {
        // A number of another process is not open in this one.
        if self.table.contains_key(&fd) { Errno::BADF } else { foreign(fd, otherwise) }
    }

    /// All numbers of a process.
    pub(super) fn numbers(&self, owner: ProcessId) -> Vec<RawFd> {
        self.table.iter().filter(|(_, entry)| entry.owner == owner).map(|(fd, _)| *fd).collect()
    }

    /// The host's descriptor, for calls to the host.
    pub(super) fn native(&self, fd: RawFd) -> Option<BorrowedFd<'_>> {
        self.entry(fd).map(|entry| entry.descriptor.as_fd())
    }

    /// Returns the dma-buf behind a descriptor.
    ///
    /// # Errors
    ///
    /// EBADF if the number is not open, EINVAL if it is something else.
    pub(super) fn dma_buf(&self, fd: RawFd) -> Result<Buffer, Errno> {
        match self.get(fd) {
            Some(Object::DmaBuf(buffer)) => Ok(buffer.clone()),
            Some(_) => Err(Errno::INVAL),
            None => Err(self.missing(fd, Errno::INVAL)),
        }
    }

    /// The channel behind a descriptor.
    pub(super) fn channel(&self, fd: RawFd) -> Option<u32> {
        match self.get(fd) {
            Some(Object::Channel { id, .. }) => Some(*id),
            _ => None,
        }
    }

    /// The address space behind a descriptor.
    pub(super) fn space(&self, fd: RawFd) -> Option<SpaceId> {
        match self.get(fd) {
            Some(Object::Space(id)) => Some(*id),
            _ => None,
        }
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.table.values().map(|entry| &entry.object)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
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
