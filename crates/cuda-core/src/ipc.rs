//! Memory and events of other processes.
//!
//! A handle names a process and one of its objects. Whoever opens it asks that process for a file of the object's
//! memory, over a Unix socket with an abstract name. A thread of the process answers from its first handle on: only
//! processes of the same user, and only for objects that it has made a handle of and that still exist.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, recvmsg, send, sendmsg, socket_with,
};

use crate::code::{Code, Failure, Result};
use crate::context::Context;
use crate::driver::{Gpu, driver};
use crate::event::Event;
use crate::memory::{Allocation, Kind};
use crate::pool::{Pool, Sharing};

/// `CUipcMemHandle`, `CUipcEventHandle`.
pub type Handle = [u64; 8];

/// First word of a handle.
const MARK: u64 = u64::from_le_bytes(*b"orin-ipc");
/// How long a process waits for the other one.
const LONGEST: Duration = Duration::from_secs(10);
/// Connections that wait for an answer.
const WAITING: i32 = 64;

/// An object of a process: the process' number, a number that no other process has, and that of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    process: u32,
    nonce: u64,
    id: u64,
}

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Memory = 1,
    Event = 2,
    Pool = 3,
}

/// The place of an object: a file, its first byte there, and its size in bytes.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) file: OwnedFd,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// An object that other processes may open.
#[derive(Clone, Debug)]
enum Exported {
    Memory(Weak<Allocation>),
    Event(Weak<Event>),
}

/// The part of this process that answers.
#[derive(Debug)]
struct Server {
    process: u32,
    nonce: u64,
    /// By the kind and the number of the object.
    exported: Mutex<BTreeMap<(u64, u64), Exported>>,
}

/// The server, from the first handle on.
static SERVER: Mutex<Option<Arc<Server>>> = Mutex::new(None);

/// A failure of a system call.
fn refused(call: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::new(Code::OperatingSystem, format!("{call} for another process: {errno}"))
}

/// The name of a GPU in a handle.
fn gpu_words(gpu: &Gpu) -> [u64; 2] {
    let name = gpu.name.to_string();
    let mut bytes = [0; 16];
    let kept = name.len().min(bytes.len());
    bytes[..kept].copy_from_slice(&name.as_bytes()[..kept]);
    let [low, high] = [0, 8].map(|at| core::array::from_fn(|byte| bytes[at + byte]));
    [u64::from_le_bytes(low), u64::from_le_bytes(high)]
}

impl Name {
    fn write(self, what: What, gpu: &Gpu) -> Handle {
        let [low, high] = gpu_words(gpu);
        [MARK, u64::from(self.process) << 32 | what as u64, self.nonce, self.id, low, high, 0, 0]
    }

    /// The object that a handle names, which must be of another process and on the GPU.
    pub(crate) fn read(handle: &Handle, what: What, gpu: &Gpu) -> Result<Self> {
        let [mark, kind, nonce, id, low, high, rest @ ..] = *handle;
        // CAST: the halves.
        let (process, kind) = ((kind >> 32) as u32, kind as u32);
        if mark != MARK || kind != what as u32 || rest != [0, 0] {
            return Err(Failure::new(Code::InvalidHandle, "the handle is none of this library and kind"));
        }
        if SERVER.lock().as_ref().is_some_and(|server| (server.process, server.nonce) == (process, nonce)) {
            return Err(Failure::new(Code::InvalidContext, "the handle was made by this process"));
        }
        if [low, high] != gpu_words(gpu) {
            return Err(Failure::new(Code::PeerAccessUnsupported, "the handle is of another GPU"));
        }
        Ok(Self { process, nonce, id })
    }

    fn address(self) -> Result<SocketAddrUnix> {
        let name = format!("orin-cuda-{}-{:016x}", self.process, self.nonce);
        SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(refused("the socket's name"))
    }

    /// Asks the process for the object.
    pub(crate) fn fetch(self, what: What) -> Result<Place> {
        let gone = |reason: &str| {
            let Self { process, id, .. } = self;
            Failure::new(Code::MapFailed, format!("object {id} of process {process}: {reason}"))
        };
        let socket = socket()?;
        limit(&socket)?;
        connect(&socket, &self.address()?).map_err(|errno| gone(&format!("it does not answer: {errno}")))?;
        if !is_same_user(&socket) {
            return Err(gone("it belongs to another user"));
        }
        let question = message(what as u64, self.id);
        send(&socket, &question, SendFlags::NOSIGNAL).map_err(refused("send"))?;
        let (mut bytes, mut space) = ([0; 16], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let received = received.map_err(|errno| gone(&format!("it does not answer: {errno}")))?;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let Some(file) = file.filter(|_| received.bytes == bytes.len()) else {
            return Err(gone("it was freed, or its driver has no file of it"));
        };
        let [offset, bytes] = words(&bytes).map(usize::try_from);
        let wrong = |_| gone("its size is wrong");
        Ok(Place { file, offset: offset.map_err(wrong)?, bytes: bytes.map_err(wrong)? })
    }
}

/// A message: two numbers. A question has the kind and the number of an object, an answer its offset and size.
fn message(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// The numbers of a message.
fn words(message: &[u8; 16]) -> [u64; 2] {
    [0, 8].map(|at| u64::from_le_bytes(core::array::from_fn(|byte| message[at + byte])))
}

fn socket() -> Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map_err(refused("socket"))
}

/// Ends waits for a process that does not answer.
fn limit(socket: &OwnedFd) -> Result<()> {
    [Timeout::Recv, Timeout::Send].into_iter().try_for_each(|side| {
        set_socket_timeout(socket, side, Some(LONGEST)).map_err(refused("the socket's time limit"))
    })
}

/// Whether the other end belongs to the user of this process.
fn is_same_user(socket: &OwnedFd) -> bool {
    socket_peercred(socket).is_ok_and(|other| other.uid == rustix::process::geteuid())
}

impl Server {
    /// The server of this process, started at the first call.
    fn get() -> Result<Arc<Self>> {
        let mut server = SERVER.lock();
        if let Some(server) = &*server {
            return Ok(Arc::clone(server));
        }
        let (process, nonce) = (std::process::id(), RandomState::new().build_hasher().finish());
        let listener = socket()?;
        bind(&listener, &Name { process, nonce, id: 0 }.address()?).map_err(refused("bind"))?;
        listen(&listener, WAITING).map_err(refused("listen"))?;
        let made = Arc::new(Self { process, nonce, exported: Mutex::default() });
        let own = Arc::clone(&made);
        thread::Builder::new()
            .name("cuda-ipc".to_owned())
            .spawn(move || own.run(&listener))
            .map_err(|error| Failure::new(Code::OperatingSystem, format!("a thread for handles: {error}")))?;
        Ok(Arc::clone(server.insert(made)))
    }

    /// Answers other processes until this one ends.
    fn run(&self, listener: &OwnedFd) {
        loop {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    if let Err(failure) = self.answer(&socket) {
                        tracing::warn!(target: "cuda", "an answer to another process: {failure}");
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // Out of descriptors or memory.
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Sends a file of the object that the other end names, or closes the socket if there is none.
    fn answer(&self, socket: &OwnedFd) -> Result<()> {
        limit(socket)?;
        if !is_same_user(socket) {
            return Err(Failure::new(Code::NotPermitted, "it belongs to another user"));
        }
        let mut question = [0; 16];
        recv(socket, &mut question, RecvFlags::empty()).map_err(refused("recv"))?;
        let [what, id] = words(&question);
        let Place { file, offset, bytes } = self.place(what, id)?;
        let answer = message(offset as u64, bytes as u64);
        let (files, mut space) = ([file.as_fd()], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(socket, &[IoSlice::new(&answer)], &mut control, SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(refused("sendmsg"))
    }

    /// The place of an object that still exists.
    fn place(&self, what: u64, id: u64) -> Result<Place> {
        // The lock is not held while the last owner of an object drops it.
        let object = self.exported.lock().get(&(what, id)).cloned();
        let place = object.and_then(|object| match object {
            Exported::Memory(memory) => memory.upgrade().map(|memory| memory.place()),
            Exported::Event(event) => event.upgrade().map(|event| event.place()),
        });
        place.unwrap_or_else(|| Err(Failure::new(Code::InvalidHandle, format!("object {id} was freed"))))
    }

    fn export(&self, what: What, id: u64, object: Exported) -> Name {
        let mut exported = self.exported.lock();
        exported.retain(|_, object| match object {
            Exported::Memory(memory) => memory.strong_count() > 0,
            Exported::Event(event) => event.strong_count() > 0,
        });
        exported.insert((what as u64, id), object);
        Name { process: self.process, nonce: self.nonce, id }
    }
}

/// A handle of the device memory that contains an address.
///
/// # Errors
///
/// [`Code::InvalidValue`] for other memory; [`Code::NotSupported`] if the driver has no file of it.
pub fn export_memory(context: &Context, address: u64) -> Result<Handle> {
    let found = context.gpu.memory.find(address).filter(|found| found.kind == Kind::Device);
    let found =
        found.ok_or_else(|| Failure::invalid(format!("{address:#x} is in no memory of cuMemAlloc")))?;
    // Refused here, not when another process opens it.
    found.place()?;
    let name = Server::get()?.export(What::Memory, found.id, Exported::Memory(Arc::downgrade(&found)));
    Ok(name.write(What::Memory, context.gpu))
}

/// A handle of an event that was created for other processes.
///
/// # Errors
///
/// [`Code::InvalidHandle`] for other events.
pub fn export_event(context: &Context, event: &Arc<Event>) -> Result<Handle> {
    event.place()?;
    let name = Server::get()?.export(What::Event, event.handle(), Exported::Event(Arc::downgrade(event)));
    Ok(name.write(What::Event, context.gpu))
}

/// A file that names a pool whose memory other processes may import.
///
/// # Errors
///
/// [`Code::InvalidValue`] for other pools.
pub fn export_pool(pool: &Pool) -> Result<OwnedFd> {
    if pool.sharing != Sharing::Exported {
        return Err(Failure::invalid("the pool was not created for other processes"));
    }
    let server = Server::get()?;
    let name = Name { process: server.process, nonce: server.nonce, id: pool.handle() };
    let file = rustix::fs::memfd_create("cuda-pool", MemfdFlags::CLOEXEC).map_err(refused("memfd_create"))?;
    let bytes: Vec<_> = name.write(What::Pool, pool.gpu).into_iter().flat_map(u64::to_le_bytes).collect();
    rustix::io::pwrite(&file, &bytes, 0).map_err(refused("pwrite"))?;
    Ok(file)
}

/// The pool of another process that a file of [`export_pool`] names.
///
/// # Errors
///
/// [`Code::InvalidValue`] if the file names none; otherwise as [`open_memory`].
pub fn import_pool(gpu: &'static Gpu, file: &OwnedFd) -> Result<Arc<Pool>> {
    let mut bytes = [0; size_of::<Handle>()];
    if rustix::io::pread(file, &mut bytes, 0) != Ok(bytes.len()) {
        return Err(Failure::invalid("the file names no pool"));
    }
    let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[8 * at + byte]));
    let name = Name::read(&core::array::from_fn(word), What::Pool, gpu)?;
    Pool::create(gpu, Sharing::Imported(name))
}

/// A handle of memory of a pool that was created for other processes, for [`import_pointer`].
///
/// # Errors
///
/// [`Code::InvalidValue`] for other memory; [`Code::NotSupported`] if the driver has no file of it.
pub fn export_pointer(context: &Context, address: u64) -> Result<Handle> {
    let found = context.gpu.memory.find(address);
    let pool = found.as_ref().and_then(|found| driver().ok()?.objects.get::<Pool>(found.pool).ok());
    let shared = found.filter(|_| pool.is_some_and(|pool| pool.sharing == Sharing::Exported));
    let found = shared.ok_or_else(|| {
        Failure::invalid(format!("{address:#x} is in no memory of a pool for other processes"))
    })?;
    found.place()?;
    let name = Server::get()?.export(What::Memory, found.id, Exported::Memory(Arc::downgrade(&found)));
    Ok(name.write(What::Memory, context.gpu))
}

/// Opens memory of a pool of another process. [`free_imported`] closes it.
///
/// # Errors
///
/// [`Code::InvalidValue`] if the memory is not of the pool's process; otherwise as [`open_memory`].
pub fn import_pointer(context: &Context, pool: &Pool, handle: &Handle) -> Result<Arc<Allocation>> {
    let name = Name::read(handle, What::Memory, context.gpu)?;
    match pool.sharing {
        Sharing::Imported(Name { process, nonce, .. }) if (process, nonce) == (name.process, name.nonce) => {
            open(context, handle, pool.handle())
        }
        _ => Err(Failure::invalid("the memory is of another process than the pool")),
    }
}

/// Closes memory of a pool of another process; `None` if none begins at the address.
///
/// # Errors
///
/// As [`close_memory`].
pub fn free_imported(context: &Context, address: u64) -> Option<Result<()>> {
    let found = context.gpu.memory.find(address)?;
    let is_pooled = found.kind == Kind::Imported && found.pool != 0 && found.base == address;
    is_pooled.then(|| close(context, address, true))
}

/// Memory of another process that this one has opened.
#[derive(Debug)]
struct Opened {
    name: Name,
    allocation: Arc<Allocation>,
    /// How often.
    times: usize,
}

/// The memory of other processes that this one has opened on a GPU.
#[derive(Debug, Default)]
pub(crate) struct Imports(Mutex<Vec<Opened>>);

impl Imports {
    /// Forgets what a context has opened.
    pub(crate) fn free_of(&self, context: u64) {
        self.0.lock().retain(|opened| opened.allocation.context != context);
    }
}

/// Opens memory of another process; once more, if the context has opened it already.
///
/// # Errors
///
/// [`Code::InvalidHandle`] if the handle is none of memory; [`Code::InvalidContext`] if this process has made it, or
/// opened it in another context; [`Code::PeerAccessUnsupported`] for memory of another GPU; [`Code::MapFailed`] if the
/// process has ended or freed the memory, or belongs to another user.
pub fn open_memory(context: &Context, handle: &Handle) -> Result<Arc<Allocation>> {
    open(context, handle, 0)
}

/// Opens memory of another process, of a pool if there is one.
fn open(context: &Context, handle: &Handle, pool: u64) -> Result<Arc<Allocation>> {
    let name = Name::read(handle, What::Memory, context.gpu)?;
    let memory = &context.gpu.memory;
    let mut opened = memory.imports.0.lock();
    if let Some(opened) = opened.iter_mut().find(|opened| opened.name == name) {
        if opened.allocation.context != context.handle {
            return Err(Failure::new(Code::InvalidContext, "another context has opened the memory"));
        }
        opened.times += 1;
        return Ok(Arc::clone(&opened.allocation));
    }
    let Place { file, offset, bytes } = name.fetch(What::Memory)?;
    let end = offset.checked_add(bytes).ok_or(Code::MapFailed)?;
    let buffer = context.device.import_file::<u8>(&file, offset..end);
    let buffer = buffer.map_err(|error| Failure::new(Code::MapFailed, error.to_string()))?;
    let allocation = memory.enter_imported(context.handle, buffer, pool);
    opened.push(Opened { name, allocation: Arc::clone(&allocation), times: 1 });
    Ok(allocation)
}

/// Closes memory of another process, after the work of the context. The last of as many calls as have opened it ends
/// the mapping.
///
/// # Errors
///
/// [`Code::InvalidValue`] if no such memory begins at the address; the fault of the context's work.
pub fn close_memory(context: &Context, address: u64) -> Result<()> {
    close(context, address, false)
}

fn close(context: &Context, address: u64, pooled: bool) -> Result<()> {
    let mut opened = context.gpu.memory.imports.0.lock();
    let is_meant = |allocation: &Allocation| allocation.base == address && (allocation.pool != 0) == pooled;
    let at = opened.iter().position(|opened| is_meant(&opened.allocation));
    let at =
        at.ok_or_else(|| Failure::invalid(format!("no memory of another process begins at {address:#x}")))?;
    opened[at].times -= 1;
    if opened[at].times > 0 {
        return Ok(());
    }
    let closed = opened.swap_remove(at);
    drop(opened);
    let ended = context.settle();
    context.gpu.memory.leave(&closed.allocation);
    ended
}

/// Opens an event of another process.
///
/// # Errors
///
/// As [`open_memory`].
pub fn open_event(context: &Context, handle: &Handle) -> Result<Arc<Event>> {
    driver()?;
    let place = Name::read(handle, What::Event, context.gpu)?.fetch(What::Event)?;
    Event::open(context, &place.file)
}
