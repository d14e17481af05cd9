//! Objects that other processes may open: their names, and the thread that sends files of their memory.

use core::fmt::Display;
use core::mem::MaybeUninit;
use core::time::Duration;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, recvmsg, send, sendmsg, socket_with,
};

use crate::code::{Code, Failure, Result};

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
    pub(crate) process: u32,
    pub(crate) nonce: u64,
    pub(crate) id: u64,
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
pub(crate) trait Export: Send + Sync {
    /// The place of the object.
    fn place(&self) -> Result<Place>;
}

/// The part of this process that answers.
pub(crate) struct Server {
    pub(crate) process: u32,
    pub(crate) nonce: u64,
    /// By the kind and the number of the object.
    exported: Mutex<BTreeMap<(u64, u64), Weak<dyn Export>>>,
}

/// The server, from the first handle on.
static SERVER: Mutex<Option<Arc<Server>>> = Mutex::new(None);

/// A failure of a system call.
pub(crate) fn refused(call: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::new(Code::OperatingSystem, format!("{call} for another process: {errno}"))
}

/// The name of a GPU in a handle.
fn gpu_words(name: &dyn Display) -> [u64; 2] {
    let name = name.to_string();
    let mut bytes = [0; 16];
    let kept = name.len().min(bytes.len());
    bytes[..kept].copy_from_slice(&name.as_bytes()[..kept]);
    let [low, high] = [0, 8].map(|at| core::array::from_fn(|byte| bytes[at + byte]));
    [u64::from_le_bytes(low), u64::from_le_bytes(high)]
}

impl Name {
    /// The handle of an object on the GPU with a name.
    pub(crate) fn write(self, what: What, gpu: &dyn Display) -> Handle {
        let [low, high] = gpu_words(gpu);
        [MARK, u64::from(self.process) << 32 | what as u64, self.nonce, self.id, low, high, 0, 0]
    }

    /// The object that a handle names, which must be of another process and on the GPU with a name.
    pub(crate) fn read(handle: &Handle, what: What, gpu: &dyn Display) -> Result<Self> {
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
    pub(crate) fn get() -> Result<Arc<Self>> {
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
        let place = object.and_then(|object| object.upgrade()).map(|object| object.place());
        place.unwrap_or_else(|| Err(Failure::new(Code::InvalidHandle, format!("object {id} was freed"))))
    }

    /// Lets other processes open an object, until it is freed.
    pub(crate) fn export(&self, what: What, id: u64, object: Weak<dyn Export>) -> Name {
        let mut exported = self.exported.lock();
        exported.retain(|_, object| object.strong_count() > 0);
        exported.insert((what as u64, id), object);
        Name { process: self.process, nonce: self.nonce, id }
    }
}
