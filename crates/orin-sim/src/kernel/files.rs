//! Open, close, mmap, read and poll.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::time::Duration;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use gpu_log::{ChannelLine, MemoryLine};
use kernel_door::{Events, MapRequest, OpenFlags, Protection};
use nvgpu_sys::ctrl::USERMODE_PAGE_SIZE;
use nvgpu_sys::paths;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::caller::CallerMapping;
use crate::config::{Call, Node};
use crate::memory::{Inode, Memory, Part, map_parts, placed, untouchable};
use crate::procfs;

use super::Kernel;
use super::channel::RUNLIST_GR;
use super::fence;
use super::nvmap::Buffer;
use super::process::fds::{self, Fresh, Object};
use super::process::mappings::{Mapped, Mapping};
use super::process::served;
use super::process::task::Task;
use super::process::{Opened, ProcessId};
use super::texts::RUNTIME_STATUS;

/// Nodes of a board that compute does not need.
const OTHER_NODES: &[&CStr] = &[
    c"/dev/nvgpu/igpu0/power",
    c"/dev/nvgpu/igpu0/dbg",
    c"/dev/nvgpu/igpu0/prof",
    c"/dev/nvgpu/igpu0/prof-ctx",
    c"/dev/nvgpu/igpu0/prof-dev",
    c"/dev/nvgpu/igpu0/ctxsw",
    c"/dev/nvgpu/igpu0/sched",
    c"/dev/nvgpu/igpu0/nvsched",
    c"/dev/nvgpu/igpu0/nvsched_ctrl_fifo",
];

/// The nodes that always refuse: they use the default big page size, which ga10b lacks.
const AS_NODES: [&CStr; 2] = [c"/dev/nvgpu/igpu0/as", c"/dev/nvhost-as-gpu"];
/// The nodes whose open creates a TSG.
const TSG_NODES: [&CStr; 2] = [c"/dev/nvgpu/igpu0/tsg", c"/dev/nvhost-tsg-gpu"];
/// The nodes whose open creates a channel of the graphics runlist.
const CHANNEL_NODES: [&CStr; 2] = [c"/dev/nvgpu/igpu0/channel", c"/dev/nvhost-gpu"];
/// Instance id that no open of the control node has.
const NO_INSTANCE: u64 = 0;

/// Page of the CPU in bytes.
const CPU_PAGE: u64 = 4096;

/// Limit of a blocking read of `/dev/kmsg`. Then it ends as if a signal had arrived.
// TIMEOUT: a board waits forever; a test must not.
const KMSG_WAIT: Duration = Duration::from_secs(1);

impl Kernel {
    pub(super) fn open(&self, task: &Task<'_>, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        self.fail_on_demand(Call::Open)?;
        // The log says what has happened.
        if path != paths::KMSG {
            self.check_panic()?;
        }
        if AS_NODES.contains(&path) && self.config.nodes.ctrl == Node::Present {
            return Err(Errno::INVAL);
        }
        let Some((node, object)) = self.node(task.process, path, !flags.contains(OpenFlags::NON_BLOCKING))
        else {
            if OTHER_NODES.contains(&path) {
                self.log.model(ChannelLine::NodeNotModelled { path: path.to_string_lossy().into_owned() });
            }
            return Err(Errno::NOENT);
        };
        match node {
            Node::Present => {}
            Node::Absent => return Err(Errno::NOENT),
            Node::ReadOnly if !flags.contains(OpenFlags::READ_WRITE) => {}
            Node::Denied | Node::ReadOnly => return Err(Errno::ACCESS),
        }
        let descriptor = node_descriptor(task, path, flags, &object)?;
        let needs_gpu = matches!(object, Object::Tsg(_) | Object::Channel { .. });
        if needs_gpu {
            self.power_up();
        }
        let mut state = self.state.lock();
        if needs_gpu && state.quiesced {
            return Err(Errno::NODEV);
        }
        let object = match object {
            Object::Ctrl(_) => {
                let instance = state.next_instance;
                state.next_instance += 1;
                Object::Ctrl(instance)
            }
            Object::Tsg(_) => Object::Tsg(state.add_tsg(self.config.sm_count(), NO_INSTANCE)?),
            Object::Channel { .. } => {
                let (id, serial) = state.add_channel(task, RUNLIST_GR).ok_or(Errno::NOMEM)?;
                Object::Channel { id, serial }
            }
            Object::Nvmap(client) => {
                state.nvmap.add_client(client);
                object
            }
            other => other,
        };
        let channel = if let Object::Channel { id, .. } = &object { Some(*id) } else { None };
        let client = if let Object::Nvmap(client) = &object { Some(*client) } else { None };
        let installed =
            state.fds.insert_with(task, descriptor, object, flags.contains(OpenFlags::CLOSE_ON_EXEC));
        if installed.is_err() {
            channel.into_iter().for_each(|id| state.remove_channel(id));
            client.into_iter().for_each(|client| state.nvmap.remove_client(client));
            state.reap();
        }
        installed
    }

    /// The node at a path, and the object that an open creates, without its number.
    fn node(&self, process: ProcessId, path: &CStr, blocking: bool) -> Option<(Node, Object)> {
        let nodes = self.config.nodes;
        Some(if path == paths::CTRL || path == paths::CTRL_LEGACY {
            (nodes.ctrl, Object::Ctrl(0))
        } else if path == paths::NVMAP {
            (nodes.nvmap, Object::Nvmap(process))
        } else if path == paths::HOST1X_FENCE {
            (nodes.host1x_fence, Object::Host1x)
        } else if path == paths::UDMABUF {
            (nodes.udmabuf, Object::Udmabuf)
        } else if path == paths::DMA_HEAP_SYSTEM {
            (nodes.dma_heap, Object::DmaHeap)
        } else if path == paths::KMSG {
            (nodes.kernel_log, Object::Kmsg { cursor: self.log.first(), blocking })
        } else if let Some(text) = self.text(path) {
            (Node::ReadOnly, Object::Text { text, read: 0 })
        } else if TSG_NODES.contains(&path) {
            (nodes.ctrl, Object::Tsg(0))
        } else if CHANNEL_NODES.contains(&path) {
            (nodes.ctrl, Object::Channel { id: 0, serial: 0 })
        } else {
            return None;
        })
    }

    /// The kind of a path, for stat and access; `None` if there is no such node.
    pub(super) fn kind(&self, process: ProcessId, path: &CStr) -> Option<NodeKind> {
        let folder = |node: &CStr| {
            let (node, path) = (node.to_bytes(), path.to_bytes());
            node.len() > path.len()
                && node.starts_with(path)
                && node[path.len()] == b'/'
                && path.len() > "/dev/".len()
        };
        let shown = AS_NODES.contains(&path) && self.config.nodes.ctrl != Node::Absent;
        let (node, object) = match self.node(process, path, true) {
            Some(found) => found,
            None if shown => {
                return Some(NodeKind::Device { refused: self.config.nodes.ctrl == Node::Denied });
            }
            None if folder(paths::CTRL) || folder(RUNTIME_STATUS) => return Some(NodeKind::Folder),
            None => return None,
        };
        match (node, object) {
            (Node::Absent, _) => None,
            (_, Object::Text { text, .. }) => Some(NodeKind::Text { bytes: text.len() }),
            (node, _) => Some(NodeKind::Device { refused: node == Node::Denied }),
        }
    }

    pub(super) fn close(&self, task: &Task<'_>, fd: RawFd) -> Result<(), Errno> {
        self.settle(task, fd);
        let closed = self.state.lock().fds.remove(task, fd).ok_or(Errno::BADF)?;
        if let Some(object) = closed {
            self.release(object);
        }
        Ok(())
    }

    /// Releases objects whose descriptors were closed without the door, as far as `fd` or a known duplicate reveals it.
    pub(super) fn settle(&self, task: &Task<'_>, fd: RawFd) {
        if task.is_served() {
            return self.settle_served();
        }
        let ended = self.state.lock().fds.take_ended(fd);
        ended.into_iter().for_each(|object| self.release(object));
    }

    /// Takes the files that served processes have closed and that were released since the last call.
    pub(super) fn take_closed_files(&self) -> Vec<Inode> {
        self.state.lock().fds.served().take_closed()
    }

    /// Releases all objects whose descriptors were closed without the door.
    pub(super) fn settle_all(&self) {
        let ended = self.state.lock().fds.take_all_ended();
        ended.into_iter().for_each(|object| self.release(object));
        self.settle_all_served();
    }

    /// Releases an object whose last descriptor is closed.
    pub(super) fn release(&self, object: Object) {
        match &object {
            Object::Nvmap(client) => self.state.lock().nvmap.remove_client(*client),
            Object::Space(_) | Object::Tsg(_) => self.state.lock().reap(),
            Object::Channel { id, serial } => self.close_channel(*id, *serial),
            Object::Ctrl(instance) => self.state.lock().close_instance(*instance),
            Object::ClockRequest
            | Object::DmaBuf(_)
            | Object::Event(_)
            | Object::Host1x
            | Object::Udmabuf
            | Object::DmaHeap
            | Object::SyncFile(_)
            | Object::PollSet(_)
            | Object::Kmsg { .. }
            | Object::Text { .. } => {}
        }
        drop(object);
    }

    pub(super) fn mmap(&self, task: &Task<'_>, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
        self.fail_on_demand(Call::Mmap)?;
        // The memory manager checks these before the file's own rules: the offset before the descriptor, the length
        // after it.
        if !request.offset.is_multiple_of(CPU_PAGE) {
            return Err(Errno::INVAL);
        }
        self.settle(task, request.fd);
        let object = self.state.lock().fds.find_any(task, request.fd, Errno::NODEV)?;
        if request.len == 0 {
            return Err(Errno::INVAL);
        }
        match object {
            Object::DmaBuf(buffer) => self.map_dma_buf(task, request, buffer),
            Object::Ctrl(instance) => self.map_doorbell(task, request, instance),
            Object::Nvmap(_) => Err(Errno::PERM),
            _ => Err(Errno::NODEV),
        }
    }

    /// Checks a mapping that a served process makes with its own system call, and prepares the board for it. Returns
    /// whether the file is one of the board.
    pub(super) fn approve_mmap(&self, task: &Task<'_>, request: &MapRequest) -> Result<bool, Errno> {
        self.settle(task, request.fd);
        let found = self.state.lock().fds.find_any(task, request.fd, Errno::NODEV);
        let Ok(object) = found else { return Ok(false) };
        self.fail_on_demand(Call::Mmap)?;
        if !request.offset.is_multiple_of(CPU_PAGE) || request.len == 0 {
            return Err(Errno::INVAL);
        }
        match object {
            Object::DmaBuf(buffer) => {
                map_rules(request, &buffer)?;
                let memory = buffer.handle.memory().ok_or(Errno::NOMEM)?;
                if memory.fd().is_none() {
                    self.log.model(MemoryLine::MmapElsewhere { bytes: request.len });
                    return Err(Errno::INVAL);
                }
                self.state.lock().nvmap.mapped(task, &self.log, &buffer);
                Ok(true)
            }
            Object::Ctrl(_) => self.approve_doorbell(task, request).map(|()| true),
            Object::Nvmap(_) => Err(Errno::PERM),
            _ => Err(Errno::NODEV),
        }
    }

    /// The rules of [`Kernel::map_doorbell`] for a served process. Its munmap is not seen, so an earlier mapping counts
    /// only if the process still has it.
    fn approve_doorbell(&self, task: &Task<'_>, request: &MapRequest) -> Result<(), Errno> {
        let caller = task.caller.ok_or(Errno::BADF)?;
        let file = caller.file(request.fd)?;
        let mut state = self.state.lock();
        let quiesced = state.quiesced;
        let (page, probe) = state.fds.doorbell(task, request.fd).ok_or(Errno::BADF)?;
        let is_page = |mapping: &CallerMapping| (mapping.device, mapping.inode) == (file.device, file.inode);
        if page.is_some() && caller.mappings().iter().any(is_page) {
            return Err(Errno::BUSY);
        }
        if request.len > USERMODE_PAGE_SIZE || request.offset != 0 {
            return Err(Errno::INVAL);
        }
        if quiesced {
            return Err(Errno::NODEV);
        }
        if page.is_some() {
            return Ok(());
        }
        let memory = Arc::new(Memory::map(Arc::clone(probe), USERMODE_PAGE_SIZE)?);
        *page = Some(Arc::clone(&memory));
        drop(state);
        self.gpu(|gpu| gpu.add_doorbell_page(memory));
        Ok(())
    }

    fn map_dma_buf(
        &self,
        task: &Task<'_>,
        request: &MapRequest,
        buffer: Buffer,
    ) -> Result<NonNull<u8>, Errno> {
        map_rules(request, &buffer)?;
        let mut state = self.state.lock();
        let descriptor = state.fds.native(task, request.fd).ok_or(Errno::BADF)?;
        let memory = buffer.handle.memory().ok_or(Errno::NOMEM)?;
        let pointer = if memory.fd().is_some() {
            host_mmap(request, descriptor)?
        } else if let Some(parts) = parts_of(memory, request) {
            map_parts(&parts, protection(request), request.place)?
        } else {
            untouchable(request.len, request.place)?
        };
        state.nvmap.mapped(task, &self.log, &buffer);
        let owner = task.process;
        let mapping =
            Mapping { len: request.len, owner, mapped: Mapped::DmaBuf { buffer, offset: request.offset } };
        state.mappings.insert(pointer.as_ptr().addr(), mapping);
        Ok(pointer)
    }

    /// Maps the usermode page: one live mapping per open, at most 64 KiB, offset 0 (`ioctl_ctrl.c`,
    /// `gk20a_ctrl_dev_mmap`).
    fn map_doorbell(
        &self,
        task: &Task<'_>,
        request: &MapRequest,
        instance: u64,
    ) -> Result<NonNull<u8>, Errno> {
        let mut state = self.state.lock();
        let taken = state.mappings.values().any(
            |mapping| matches!(mapping.mapped, Mapped::Doorbell { instance: other, .. } if other == instance),
        );
        if taken {
            return Err(Errno::BUSY);
        }
        if request.len > USERMODE_PAGE_SIZE || request.offset != 0 {
            return Err(Errno::INVAL);
        }
        if state.quiesced {
            return Err(Errno::NODEV);
        }
        let page = Arc::new(Memory::new("nvgpu usermode page", USERMODE_PAGE_SIZE)?);
        let pointer = host_mmap(request, page.fd().ok_or(Errno::BADF)?)?;
        let mapped = Mapped::Doorbell { instance, page: Arc::clone(&page) };
        state
            .mappings
            .insert(pointer.as_ptr().addr(), Mapping { len: request.len, owner: task.process, mapped });
        drop(state);
        self.gpu(|gpu| gpu.add_doorbell_page(page));
        Ok(pointer)
    }

    /// # Safety
    ///
    /// The mapping must not be used any more.
    pub(super) unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno> {
        let key = pointer.as_ptr().addr();
        let mut state = self.state.lock();
        if state.mappings.get(&key).is_none_or(|mapping| mapping.len != len) {
            drop(state);
            self.log.model(MemoryLine::PartialMunmap { bytes: len, address: key });
            return Err(Errno::INVAL);
        }
        // SAFETY: the range is one mapping of this door, and the caller guarantees that it is unused.
        unsafe { rustix::mm::munmap(pointer.as_ptr().cast(), len)? };
        let mapping = state.mappings.remove(&key);
        if let Some(Mapping { mapped: Mapped::Doorbell { page, instance }, .. }) = mapping {
            state.close_instance(instance);
            drop(state);
            self.gpu(|gpu| gpu.remove_doorbell_page(&page));
        }
        Ok(())
    }

    pub(super) fn read(&self, task: &Task<'_>, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        let deadline = Instant::now() + KMSG_WAIT;
        loop {
            let seen = self.log.pulse.count();
            let mut state = self.state.lock();
            let missing = state.fds.missing(task, fd, Errno::INVAL);
            match state.fds.get_mut(task, fd).ok_or(missing)? {
                Object::Kmsg { cursor, blocking } => match self.log.read(cursor, buffer) {
                    Err(Errno::AGAIN) if *blocking => {}
                    result => return result,
                },
                Object::Text { text, read } => {
                    let rest = &text.as_bytes()[*read..];
                    let len = rest.len().min(buffer.len());
                    buffer[..len].copy_from_slice(&rest[..len]);
                    *read += len;
                    return Ok(len);
                }
                _ => return Err(Errno::INVAL),
            }
            drop(state);
            if !self.log.pulse.wait(seen, deadline.saturating_duration_since(Instant::now())) {
                return Err(Errno::INTR);
            }
        }
    }

    pub(super) fn seek_end(&self, task: &Task<'_>, fd: RawFd) -> Result<u64, Errno> {
        let mut state = self.state.lock();
        // The rest that a served process has not read yet.
        state.fds.drain(task, fd);
        if let Ok(buffer) = state.fds.dma_buf(task, fd) {
            return Ok(buffer.handle.size());
        }
        let missing = state.fds.missing(task, fd, Errno::SPIPE);
        match state.fds.get_mut(task, fd).ok_or(missing)? {
            Object::Kmsg { cursor, .. } => {
                *cursor = self.log.next();
                Ok(0)
            }
            Object::Text { text, read } => {
                *read = text.len();
                // CAST: a short text.
                Ok(*read as u64)
            }
            _ => Err(Errno::SPIPE),
        }
    }

    /// Answers a seek of a served process to the end. Returns `None` if the host must answer.
    pub(super) fn served_seek_end(&self, task: &Task<'_>, fd: RawFd) -> Option<Result<u64, Errno>> {
        let object = self.state.lock().fds.get(task, fd).cloned()?;
        match object {
            Object::Text { .. } => None,
            // The position is not that of a file.
            Object::DmaBuf(buffer) => Some(Ok(buffer.handle.size())),
            _ => Some(self.seek_end(task, fd)),
        }
    }

    /// The open file behind a descriptor of a served process; `None` if it is not one of the board.
    pub(super) fn opened(&self, task: &Task<'_>, fd: RawFd) -> Option<Opened> {
        let state = self.state.lock();
        let (object, path) = state.fds.opened(task, fd)?;
        let size = if let Object::DmaBuf(buffer) = object { buffer.handle.size() } else { 0 };
        Some(Opened { path: path.map(CStr::to_owned), size })
    }

    /// Polls a descriptor. The kernel log is ready if there is a record to read, and a sync-file after its fence has
    /// ended. An event is ready once after it happened, a poll descriptor once for the fences that signalled. Every
    /// other node is always ready, like files without a poll operation.
    pub(super) fn poll(&self, task: &Task<'_>, fd: RawFd, wanted: Events, timeout: Duration) -> Events {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let seen = self.log.pulse.count();
            let next = self.log.next();
            let state = self.state.lock();
            // The deadline of a fence.
            let mut nearest: Option<Instant> = None;
            let happened = match state.fds.get(task, fd) {
                Some(Object::Kmsg { cursor, .. }) if *cursor >= next => Events::empty(),
                Some(Object::Event(happened)) if !happened.swap(false, Ordering::AcqRel) => Events::empty(),
                Some(Object::SyncFile(file)) => match fence::poll(file) {
                    Ok(()) => wanted & Events::IN,
                    Err(deadline) => {
                        nearest = deadline;
                        Events::empty()
                    }
                },
                Some(Object::PollSet(set)) if !set.take_signalled() => Events::empty(),
                Some(Object::Event(_) | Object::PollSet(_)) => wanted & (Events::IN | Events::PRIORITY),
                Some(_) => wanted & Events::IN,
                None => Events::INVALID,
            };
            drop(state);
            let now = Instant::now();
            if !happened.is_empty() || deadline.is_some_and(|deadline| deadline <= now) {
                return happened;
            }
            let next = deadline.into_iter().chain(nearest).min();
            let left = next.map(|next| next.saturating_duration_since(now));
            self.log.pulse.wait(seen, left.unwrap_or(KMSG_WAIT));
        }
    }
}

/// Kind of a node, as reported by stat(2).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_sim::{Config, NodeKind, SoftwareOrin};
///
/// let orin = SoftwareOrin::new(Config::default())?;
/// assert_eq!(orin.node_kind(c"/dev/nvmap"), Some(NodeKind::Device { refused: false }));
/// assert_eq!(orin.node_kind(c"/etc/passwd"), None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeKind {
    /// A character device.
    Device {
        /// The user may not open it.
        refused: bool,
    },
    /// A text file that can only be read.
    Text {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A folder of nodes.
    Folder,
}

/// Creates the descriptor of a node.
fn node_descriptor(task: &Task<'_>, path: &CStr, flags: OpenFlags, object: &Object) -> Result<Fresh, Errno> {
    let name = path.to_string_lossy();
    let name = name.trim_start_matches('/');
    if !task.is_served() {
        return fds::descriptor(task, |_| name.to_owned());
    }
    let mut access = if flags.contains(OpenFlags::READ_WRITE) { OFlags::RDWR } else { OFlags::RDONLY };
    access.set(OFlags::NONBLOCK, flags.contains(OpenFlags::NON_BLOCKING));
    let (descriptor, probe) = match object {
        Object::Ctrl(_) => {
            // CAST: 64 KiB.
            let page = Memory::file("nvgpu usermode page", USERMODE_PAGE_SIZE as u64)?;
            (procfs::reopen(&page, access)?, Arc::new(page))
        }
        Object::Text { text, .. } => {
            let (descriptor, file) = served::text(text)?;
            (descriptor, Arc::new(file))
        }
        Object::Kmsg { blocking, .. } => {
            return Ok(Fresh::piped(served::log_pipe(*blocking)?).of_node(path));
        }
        _ => served::node(name, access)?,
    };
    Ok(Fresh::locked(task, descriptor, probe).of_node(path))
}

/// The rules for a mapping of a dma-buf (`nvmap_dmabuf.c`).
fn map_rules(request: &MapRequest, buffer: &Buffer) -> Result<(), Errno> {
    if buffer.read_only && request.protection.contains(Protection::WRITE) {
        return Err(Errno::ACCESS);
    }
    // CAST: a length fits 64 bits.
    let end = request.offset.checked_add(request.len as u64).ok_or(Errno::INVAL)?;
    if end > buffer.handle.size() {
        return Err(Errno::INVAL);
    }
    let storage = buffer.handle.storage().ok_or(Errno::PERM)?;
    if storage.cpu_access() { Ok(()) } else { Err(Errno::PERM) }
}

/// The files behind a request, for memory composed of parts of others; `None` if it has no files.
fn parts_of(memory: &Memory, request: &MapRequest) -> Option<Vec<Part>> {
    // CAST: a page fits usize.
    let len = request.len.next_multiple_of(CPU_PAGE as usize);
    memory.parts(usize::try_from(request.offset).ok()?, len)
}

fn protection(request: &MapRequest) -> ProtFlags {
    let mut protection = ProtFlags::empty();
    protection.set(ProtFlags::READ, request.protection.contains(Protection::READ));
    protection.set(ProtFlags::WRITE, request.protection.contains(Protection::WRITE));
    protection
}

/// Maps a descriptor of the host as shared memory.
fn host_mmap(request: &MapRequest, descriptor: impl std::os::fd::AsFd) -> Result<NonNull<u8>, Errno> {
    let (address, flags) = placed(request.place, MapFlags::SHARED);
    // SAFETY: the caller of the mmap owns the addresses at the place; without one, a fresh mapping affects no other
    // memory.
    let pointer = unsafe {
        rustix::mm::mmap(address, request.len, protection(request), flags, descriptor, request.offset)?
    };
    NonNull::new(pointer.cast()).ok_or(Errno::NOMEM)
}
