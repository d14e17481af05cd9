//! A board that several commands share: each sends the listener of its program over a socket.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::SoftwareOrin;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::serve::calls::Calls;
use crate::serve::error::Error;
use crate::serve::listener::Listener;
use crate::serve::options::Options;
use crate::serve::session::{receive_descriptor, serve};

/// A socket through which programs of other commands join a board. Dropping it waits for their end, and removes the
/// socket.
#[derive(Debug)]
pub struct SharedBoard {
    path: PathBuf,
    stop: Arc<OwnedFd>,
    accepting: Option<JoinHandle<()>>,
}

impl SharedBoard {
    /// Creates the socket. A socket that nobody serves any more is replaced. The options are those of every program
    /// that joins.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`] if it cannot be created, or if another board serves it.
    pub fn create(path: &Path, board: &SoftwareOrin, options: &Options) -> Result<Self, Error> {
        let failed = |error| Error::Socket { path: path.to_owned(), error };
        if is_abandoned(path) {
            fs::remove_file(path).map_err(failed)?;
        }
        let socket = UnixListener::bind(path).map_err(failed)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| Error::Setup(errno.into()))?);
        let (board, options, stopped) = (board.clone(), options.clone(), Arc::clone(&stop));
        let accept = move || accept(&socket, &stopped, &board, &options);
        let thread = std::thread::Builder::new().name("orin-join".to_owned()).spawn(accept);
        Ok(Self { path: path.to_owned(), stop, accepting: Some(thread.map_err(Error::Setup)?) })
    }
}

impl Drop for SharedBoard {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        // Nobody can join any more; those that have joined are served to their end.
        let _ = fs::remove_file(&self.path);
        if self.accepting.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that lets programs join has panicked");
        }
    }
}

/// Whether a path is a socket that nobody serves.
fn is_abandoned(path: &Path) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    UnixStream::connect(path).err().is_some_and(refused)
}

/// Serves everybody who joins, each on a thread of its own, until `stop`, and then waits for them.
fn accept(socket: &UnixListener, stop: &OwnedFd, board: &SoftwareOrin, options: &Options) {
    let mut joined: Vec<JoinHandle<()>> = Vec::new();
    loop {
        let mut ready =
            [PollFd::new(socket, PollFlags::IN), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => {
                tracing::error!("no program can join any more: {errno}");
                break;
            }
        }
        if !ready[1].revents().is_empty() {
            break;
        }
        joined.retain(|thread| !thread.is_finished());
        let Ok((client, _)) = socket.accept() else { continue };
        let (board, options) = (board.clone(), options.clone());
        let work = move || serve_joined(&client, &board, &options);
        match std::thread::Builder::new().name("orin-joined".to_owned()).spawn(work) {
            Ok(thread) => joined.push(thread),
            Err(error) => tracing::error!("a program cannot join: {error}"),
        }
    }
    for thread in joined {
        let _ = thread.join();
    }
}

/// Serves the program of another command until its last process has ended, or the command has.
fn serve_joined(client: &UnixStream, board: &SoftwareOrin, options: &Options) {
    let received = receive_descriptor(client).and_then(|received| Ok((received, peer(client)?)));
    let (received, peer) = match received {
        Ok(received) => received,
        Err(error) => return tracing::debug!("no program joins: {error}"),
    };
    let listener = Arc::new(Listener::new(received));
    let calls = Arc::new(Calls::new(board, &listener, options, peer));
    if let Err(error) = serve(&listener, client.as_fd(), &calls) {
        tracing::error!("a program that has joined cannot be served: {error}");
    }
}

/// Id of the process that has connected a socket.
fn peer(socket: &UnixStream) -> io::Result<i32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // CAST: a small size.
    let mut length = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the kernel stores at most `length` bytes to the local variable.
    let result = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut length)
    };
    if result == 0 { Ok(peer.pid) } else { Err(io::Error::last_os_error()) }
}
