//! A served program: its start, the loop that answers its calls, its end.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::SoftwareOrin;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{
    PTracer, Pid, Resource, Rlimit, Signal, getrlimit, kill_process, set_parent_process_death_signal,
    set_ptracer, setrlimit,
};

use crate::gpu::panic_text;
use crate::serve::calls::{Calls, Work};
use crate::serve::error::Error;
use crate::serve::filter;
use crate::serve::kernel;
use crate::serve::listener::{Answer, Listener, Notification, last_errno};
use crate::serve::options::Options;
use crate::serve::watcher::interrupt_on;

/// A program that runs on a board. Dropping it kills the program.
#[derive(Debug)]
pub struct Session {
    child: Child,
    /// Whether the program has been waited for.
    ended: bool,
    /// Ends the loop.
    stop: Arc<OwnedFd>,
    serving: Option<JoinHandle<Result<(), Error>>>,
    /// The connection to the board of another process.
    _board: Option<UnixStream>,
}

impl Session {
    /// Starts a program on a board: this process answers the calls of the program and of all its descendants.
    ///
    /// The kernel kills the program when the thread that has called this function ends. The limit of open files of this
    /// process is raised; the program keeps the previous limit.
    ///
    /// # Errors
    ///
    /// [`Error`] names the call that the kernel or a sandbox refuses.
    pub fn start(board: &SoftwareOrin, command: Command, options: &Options) -> Result<Self, Error> {
        let (mut session, listener) = Self::spawn(command)?;
        let listener = Arc::new(Listener::new(listener));
        // CAST: process ids are positive.
        let calls = Arc::new(Calls::new(board, &listener, options, std::process::id().cast_signed()));
        let stop = Arc::clone(&session.stop);
        let work = move || serve(&listener, stop.as_fd(), &calls);
        let thread = std::thread::Builder::new().name("orin-serve".to_owned()).spawn(work);
        session.serving = Some(thread.map_err(Error::Setup)?);
        Ok(session)
    }

    /// Starts a program on the board that another process serves at `socket` ([`crate::serve::SharedBoard`]). The other
    /// process accesses the memory of the program, which allows it if `kernel.yama.ptrace_scope` is 1.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`] if there is no board, and the errors of [`Session::start`].
    pub fn join(socket: &Path, command: Command) -> Result<Self, Error> {
        let failed = |error| Error::Socket { path: socket.to_owned(), error };
        let board = UnixStream::connect(socket).map_err(failed)?;
        let (mut session, listener) = Self::spawn(command)?;
        send_descriptor(&board, &listener).map_err(|errno| failed(errno.into()))?;
        session._board = Some(board);
        Ok(session)
    }

    /// Starts a program under the filter. Also returns the listener.
    fn spawn(mut command: Command) -> Result<(Self, OwnedFd), Error> {
        check_kernel()?;
        let files = getrlimit(Resource::Nofile);
        // Every open file of a program costs the model up to three descriptors.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
        let (here, there) = UnixStream::pair().map_err(Error::Setup)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| Error::Setup(errno.into()))?);
        let program = command.get_program().to_string_lossy().into_owned();
        let filter = filter::program();
        let parent = std::process::id();
        // SAFETY: between fork and exec the closure makes system calls only; it allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(move || {
                let _ = setrlimit(Resource::Nofile, files);
                prepare_child(&filter, parent, &there)
            });
        }
        let spawned = command.spawn();
        // Close the last copy on this side, so that a failed child is read as end of file.
        drop(command);
        let received = receive_descriptor(&here);
        let child = match spawned {
            Ok(child) => child,
            Err(error) if received.is_ok() => return Err(Error::Start { program, error }),
            // The child has failed before it sent the listener.
            Err(error) => {
                let raw = error.raw_os_error();
                return Err(match raw {
                    Some(raw) if is_filtered(raw) => Error::Filter { errno: Errno::from_raw_os_error(raw) },
                    _ => Error::Start { program, error },
                });
            }
        };
        let session = Self { child, ended: false, stop, serving: None, _board: None };
        Ok((session, received.map_err(Error::Setup)?))
    }

    /// Id of the program's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program. Descendants that it leaves behind are served until the session is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] and [`Error::Listener`] if the program could not be served; it has been killed then.
    pub fn wait(&mut self) -> Result<ExitStatus, Error> {
        let status = self.child.wait().map_err(Error::Setup)?;
        self.ended = true;
        // The loop ends before the program only after an error.
        if self.serving.as_ref().is_some_and(JoinHandle::is_finished) {
            self.finish_serving()?;
        }
        Ok(status)
    }

    fn finish_serving(&mut self) -> Result<(), Error> {
        match self.serving.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => {
                let text =
                    format!("the thread that serves the program has panicked: {}", panic_text(&*panic));
                Err(Error::Setup(io::Error::other(text)))
            }
            None => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.ended {
            // Fails only if the program has ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Err(error) = self.finish_serving() {
            tracing::error!("{error}");
        }
    }
}

/// Fails without `/proc`: the supervisor could not tell processes with the same id apart, and no open would end.
fn check_proc(path: &'static str) -> Result<(), Error> {
    if std::fs::exists(path).unwrap_or(false) { Ok(()) } else { Err(Error::NoProc { path }) }
}

fn check_kernel() -> Result<(), Error> {
    check_proc("/proc/self/stat")?;
    match kernel::running() {
        Some((release, version)) if version < kernel::OLDEST => Err(Error::OldKernel { release }),
        _ => Ok(()),
    }
}

/// Errnos of seccomp(2) and prctl(2) that exec(2) does not have.
fn is_filtered(raw: i32) -> bool {
    [libc::EBUSY, libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::EACCES].contains(&raw)
}

/// In the child: installs the filter and sends its listener. Makes system calls only.
fn prepare_child(filter: &[libc::sock_filter], parent: u32, channel: &UnixStream) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid().is_none_or(|pid| pid.as_raw_nonzero().get().cast_unsigned() != parent) {
        return Err(Errno::SRCH.into());
    }
    // For a board of another process. Without Yama the kernel does not know the request.
    let _ = set_ptracer(PTracer::Any);
    let listener = install(filter).map_err(io::Error::from)?;
    send_descriptor(channel, &listener).map_err(io::Error::from)
}

/// Installs the filter. Programs of root keep the right to gain privileges by exec.
fn install(filter: &[libc::sock_filter]) -> Result<OwnedFd, Errno> {
    let killable = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let mut flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | killable;
    loop {
        let program = libc::sock_fprog {
            // CAST: at most 100 instructions.
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the program is valid during the call, and the kernel does not write to it.
        let listener = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
        if listener >= 0 {
            // SAFETY: the kernel has just created the descriptor. CAST: it fits.
            return Ok(unsafe { OwnedFd::from_raw_fd(listener as RawFd) });
        }
        match last_errno() {
            // SAFETY: no pointers.
            Errno::ACCESS if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0 => {}
            // Before Linux 5.19.
            Errno::INVAL if flags & killable != 0 => flags &= !killable,
            errno => return Err(errno),
        }
    }
}

/// Sends a descriptor over a socket. Makes system calls only.
fn send_descriptor(channel: &UnixStream, descriptor: &OwnedFd) -> Result<(), Errno> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(channel, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).map(drop)
}

/// Receives a descriptor from a socket.
pub(crate) fn receive_descriptor(channel: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(channel, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or_else(|| io::Error::other("the program has sent no listener"))
}

/// The next event of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Nothing,
    Call,
    /// `stop` is readable, or the last served process has ended.
    End,
}

/// Answers calls until the last served process has ended, or `stop` is readable.
pub(crate) fn serve(listener: &Arc<Listener>, stop: BorrowedFd<'_>, calls: &Arc<Calls>) -> Result<(), Error> {
    if kernel::has(kernel::ENDS_WAITS)
        && let Ok(result) = interrupt_on(stop, || answer_directly(listener, stop, calls))
    {
        return result;
    }
    answer_polled(listener, stop, calls)
}

/// Waits in the listener's own request, which a signal interrupts when `stop` is readable.
fn answer_directly(listener: &Arc<Listener>, stop: BorrowedFd<'_>, calls: &Arc<Calls>) -> Result<(), Error> {
    loop {
        match receive(listener)? {
            Some(call) => handle(listener, calls, &call)?,
            None if ready(listener, stop, Some(&Timespec::default()))? == Ready::End => return Ok(()),
            None => {}
        }
    }
}

/// Waits for both descriptors before each call.
fn answer_polled(listener: &Arc<Listener>, stop: BorrowedFd<'_>, calls: &Arc<Calls>) -> Result<(), Error> {
    loop {
        match ready(listener, stop, None)? {
            Ready::End => return Ok(()),
            Ready::Nothing => {}
            Ready::Call => {
                if let Some(call) = receive(listener)? {
                    handle(listener, calls, &call)?;
                }
            }
        }
    }
}

fn receive(listener: &Listener) -> Result<Option<Notification>, Error> {
    let call = "SECCOMP_IOCTL_NOTIF_RECV";
    listener.receive().map_err(|errno| Error::Listener { call, errno })
}

/// Waits until a descriptor is ready, at most for `limit`.
fn ready(listener: &Listener, stop: BorrowedFd<'_>, limit: Option<&Timespec>) -> Result<Ready, Error> {
    let mut both = [PollFd::new(listener, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
    match poll(&mut both, limit) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Ready::Nothing),
        Err(errno) => return Err(Error::Listener { call: "poll", errno }),
    }
    let [calling, stopped] = both.map(|ready| ready.revents());
    Ok(if !stopped.is_empty() {
        Ready::End
    } else if calling.contains(PollFlags::IN) {
        Ready::Call
    } else if calling.is_empty() {
        Ready::Nothing
    } else {
        Ready::End
    })
}

fn handle(listener: &Arc<Listener>, calls: &Arc<Calls>, call: &Notification) -> Result<(), Error> {
    let answer = |answer| {
        let failed = |errno| Error::Listener { call: "SECCOMP_IOCTL_NOTIF_SEND", errno };
        listener.answer(call.id, answer).map_err(failed)
    };
    match calls.guarded(|| calls.handle(call), Work::Now) {
        Ok(Work::Now(now)) => answer(now),
        Ok(Work::Later) => {
            let (listener, calls, call) = (Arc::clone(listener), Arc::clone(calls), *call);
            let work = move || {
                let result = calls.guarded(|| calls.answer(&call), |answer| answer);
                let result = result.unwrap_or(Answer::Error(Errno::FAULT));
                let _ = listener.answer(call.id, result);
            };
            match std::thread::Builder::new().name("orin-serve-wait".to_owned()).spawn(work) {
                Ok(_) => Ok(()),
                Err(_) => answer(Answer::Error(Errno::NOMEM)),
            }
        }
        Err(error) => {
            // The program cannot be served without access to its memory.
            if let Some(process) = Pid::from_raw(call.thread.cast_signed()) {
                let _ = kill_process(process, Signal::KILL);
            }
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::Config;

    type Loop = fn(&Arc<Listener>, BorrowedFd<'_>, &Arc<Calls>) -> Result<(), Error>;
    /// `serve` takes the one or the other, by the version of the kernel.
    const LOOPS: [Loop; 2] = [serve, answer_polled];

    /// Starts a program. Returns `None` where programs cannot be served.
    fn start(program: &str, arguments: &[&str]) -> Option<(Session, Arc<Listener>, Arc<Calls>)> {
        start_on(&SoftwareOrin::new(Config::default()).unwrap(), program, arguments)
    }

    fn start_on(
        board: &SoftwareOrin,
        program: &str,
        arguments: &[&str],
    ) -> Option<(Session, Arc<Listener>, Arc<Calls>)> {
        let mut command = Command::new(program);
        command.args(arguments);
        let (session, listener) = match Session::spawn(command) {
            Err(Error::Filter { .. }) => return None,
            other => other.unwrap(),
        };
        let listener = Arc::new(Listener::new(listener));
        let root = std::process::id().cast_signed();
        let calls = Arc::new(Calls::new(board, &listener, &Options::default(), root));
        Some((session, listener, calls))
    }

    #[test]
    fn both_loops_end_with_the_last_process() {
        for serve in LOOPS {
            // A child outlives the program.
            let Some((mut session, listener, calls)) = start("sh", &["-c", "sleep 0.05 & true"]) else {
                return;
            };
            let stop = Arc::clone(&session.stop);
            let served = std::thread::spawn(move || serve(&listener, stop.as_fd(), &calls).is_ok());
            assert!(session.wait().unwrap().success());
            assert!(served.join().unwrap());
        }
    }

    #[test]
    fn a_panic_while_a_call_is_answered_ends_the_board() {
        let board = SoftwareOrin::new(Config::default()).unwrap();
        let Some((_session, _, calls)) = start_on(&board, "sleep", &["60"]) else { return };
        let result = calls.guarded(|| panic!("broken"), |answer| answer);
        assert!(matches!(result, Ok(Answer::Error(kernel_door::cure::PANICKED))));
        let log = board.kernel_log();
        assert!(log.iter().any(|line| line.contains("broken")), "{log:?}");
    }

    #[test]
    fn without_proc_no_program_is_started() {
        assert!(check_kernel().is_ok());
        let error = check_proc("/no/proc/self/stat").unwrap_err().to_string();
        assert!(error.starts_with("/no/proc/self/stat is missing") && error.contains("mount"), "{error}");
    }

    #[test]
    fn both_loops_end_when_they_are_stopped() {
        for serve in LOOPS {
            let Some((mut session, listener, calls)) = start("sleep", &["60"]) else { return };
            let stop = Arc::clone(&session.stop);
            let served = std::thread::spawn(move || serve(&listener, stop.as_fd(), &calls).is_ok());
            std::thread::sleep(core::time::Duration::from_millis(50));
            assert!(!served.is_finished());
            rustix::io::write(&*session.stop, &1_u64.to_ne_bytes()).unwrap();
            assert!(served.join().unwrap());
            assert_eq!(session.child.try_wait().unwrap(), None);
        }
    }
}
