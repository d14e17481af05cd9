//! A board that several commands share: each sends the listener of its program over a socket.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
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
    /// Creates the socket. A stale socket is replaced. The options are those of every program
    /// that joins.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`] if it cannot be created, or if another board serves it.
    pub fn create(path: &Path, board: &SoftwareOrin, options: &Options) -> Result<Self, Error> {
        let failed = |error| Error::Socket { path: path.to_owned(), error };
        if is_stale(path) {
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
        // No program can join any more. Those that have joined are served until they end.
        let _ = fs::remove_file(&self.path);
        if self.accepting.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that lets programs join has panicked");
        }
    }
}

/// Whether a path is a stale socket.
fn is_stale(path: &Path) -> bool {
    // The kernel refuses a connection to any other file as well.
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).err().is_some_and(refused)
}

/// Serves each program that joins on a thread of its own. At `stop`, waits for their ends and returns.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let folder = std::env::temp_dir().join(format!("orin-sim-shared-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, file) = (folder.join("board"), folder.join("file"));
        let board = SoftwareOrin::new(Config::default()).unwrap();
        let create = |path: &Path| SharedBoard::create(path, &board, &Options::default());
        // A closed socket stays in its folder.
        drop(UnixListener::bind(&path).unwrap());
        let shared = create(&path).unwrap();
        let error = create(&path).unwrap_err();
        assert!(matches!(error, Error::Socket { .. }), "{error}");
        drop(shared);
        assert!(!path.exists());
        fs::write(&file, "not a socket").unwrap();
        assert!(create(&file).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "not a socket");
        fs::remove_dir_all(&folder).unwrap();
    }
}
