//! A second process that uses the same GPU.
//!
//! On a software Orin it is a thread with the door of a separate process. On a board it is a child of this
//! program, which must be `orin-dev`; the child runs one test of the suite `neighbour`.

use std::any::Any;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use orin_sim::SoftwareOrin;
use rustix::io::FdFlags;

use super::context::Station;
use super::machine::Opened;
use super::{Check, Context, chain, panics};

/// Environment variable that marks a child; its value is the role's argument.
const VARIABLE: &str = "NVGPU_NEIGHBOUR";
/// Line that a child writes to standard error once its work is in flight.
const READY: &str = "the neighbour is ready";
/// Time limit of a neighbour.
const LIMIT: Duration = Duration::from_secs(120);

/// Roles of the children of this process. The thread of a child that opens the GPU has the role's name, by which the
/// kernel log's lines about its faults name it.
static CHILDREN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Notes that a child plays a role.
pub(crate) fn note_child(role: &'static str) {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).insert(role);
}

/// Whether a child of this process has played a role.
pub(crate) fn is_child(role: &str) -> bool {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).contains(role)
}

/// Resources that a process holds when it is killed, and drops when it exits normally.
pub type Held = Box<dyn Any + Send>;

/// Result of a role; any error is a failure.
pub type Played = Result<Held, Box<dyn std::error::Error + Send + Sync>>;

/// The role's function, with a role-specific argument. Returns once its work is done or in flight.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Name of the role's test in the suite `neighbour`.
    pub name: &'static str,
    /// The role itself.
    pub play: fn(&Context, u64) -> Played,
}

impl Role {
    /// Plays the role as a test. A child uses the parent's argument, and if the role `lingers`, waits until
    /// it is killed. An ordinary run uses `argument` and drops everything at the end.
    ///
    /// # Errors
    ///
    /// Those of the role; an argument that is not a number.
    pub fn test(&self, context: &Context, argument: u64, lingers: bool) -> Check {
        let Some(given) = std::env::var_os(VARIABLE) else {
            return (self.play)(context, argument).map(drop);
        };
        let given = given.to_str().and_then(|text| text.parse().ok());
        let _held = (self.play)(context, given.ok_or_else(|| format!("{VARIABLE} is not a number"))?)?;
        eprintln!("{READY}");
        if lingers {
            loop {
                thread::park();
            }
        }
        Ok(())
    }
}

/// A process started next to this one.
#[derive(Debug)]
pub struct Neighbour(Kind);

#[derive(Debug)]
enum Kind {
    Thread { orin: SoftwareOrin, ended: Receiver<Result<Held, String>> },
    Child { child: Child, ready: Receiver<()>, output: thread::JoinHandle<String> },
}

impl Neighbour {
    pub(crate) fn start(context: &Context, role: Role, argument: u64) -> Result<Self, std::io::Error> {
        let process = context.orin().map(SoftwareOrin::process);
        Self::start_process(context, process, role, argument)
    }

    /// As [`Neighbour::start`], with up to two files that the other process gets. The argument has the number of the
    /// first in its lower half, and of the second in its upper half; 0 for none.
    pub(crate) fn start_with(
        context: &Context,
        role: Role,
        files: &[BorrowedFd<'_>],
    ) -> Result<Self, std::io::Error> {
        let process = context.orin().map(SoftwareOrin::process);
        let mut argument = 0;
        for (file, half) in files.iter().zip([0, 32]) {
            let number = match (context.orin(), &process) {
                (Some(orin), Some(process)) => orin.send(file.as_raw_fd(), process)?,
                _ => {
                    rustix::io::fcntl_setfd(file, FdFlags::empty())?;
                    file.as_raw_fd()
                }
            };
            argument |= u64::from(number.cast_unsigned()) << half;
        }
        let started = Self::start_process(context, process, role, argument);
        for file in files {
            rustix::io::fcntl_setfd(file, FdFlags::CLOEXEC)?;
        }
        started
    }

    fn start_process(
        context: &Context,
        process: Option<SoftwareOrin>,
        role: Role,
        argument: u64,
    ) -> Result<Self, std::io::Error> {
        match process {
            Some(process) => Self::thread(context, process, role, argument),
            None => {
                note_child(role.name);
                let mut command = Command::new(std::env::current_exe()?);
                let filter = format!("neighbour/{}", role.name);
                command.args([
                    "test-device",
                    "--device",
                    &context.name().to_string(),
                    "--suite",
                    "neighbour",
                    "--filter",
                    &filter,
                ]);
                Self::child(command.env(VARIABLE, argument.to_string()))
            }
        }
    }

    fn thread(
        context: &Context,
        orin: SoftwareOrin,
        role: Role,
        argument: u64,
    ) -> Result<Self, std::io::Error> {
        let opened = Opened { door: std::sync::Arc::new(orin.clone()), orin: Some(orin.clone()) };
        let (machine, (sender, ended)) = (context.machine(), mpsc::channel());
        thread::Builder::new().name(role.name.to_owned()).spawn(move || {
            let context = Context::new(machine, Station::new(opened));
            let played = panics::catch(|| (role.play)(&context, argument));
            let result = played.and_then(|result| result.map_err(|error| chain(&*error)));
            // The device is among the resources that the process holds.
            let held = result.map(|held| Box::new((held, context)) as Held);
            // The receiver is gone if the test has failed meanwhile.
            let _ = sender.send(held);
        })?;
        Ok(Self(Kind::Thread { orin, ended }))
    }

    fn child(command: &mut Command) -> Result<Self, std::io::Error> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (sender, ready) = mpsc::channel();
        let (mut out, err) = (child.stdout.take(), child.stderr.take());
        if let Some(err) = err {
            thread::spawn(move || {
                for line in BufReader::new(err).lines().map_while(Result::ok) {
                    if line == READY {
                        let _ = sender.send(());
                    }
                }
            });
        }
        let output = thread::spawn(move || {
            let mut text = String::new();
            // Output read before an error is still reported.
            let _ = out.as_mut().map(|out| out.read_to_string(&mut text));
            text
        });
        Ok(Self(Kind::Child { child, ready, output }))
    }

    /// Repeats `meanwhile` at least once until the neighbour has played its role; then the neighbour exits
    /// normally.
    ///
    /// # Errors
    ///
    /// Those of `meanwhile`, and failures of the neighbour.
    pub fn finish(self, mut meanwhile: impl FnMut() -> Check) -> Check {
        let start = std::time::Instant::now();
        match self.0 {
            Kind::Thread { ended, .. } => {
                let held = loop {
                    meanwhile()?;
                    match ended.recv_timeout(Duration::ZERO) {
                        Ok(result) => break result.map_err(|text| format!("the neighbour: {text}"))?,
                        Err(RecvTimeoutError::Timeout) if start.elapsed() < LIMIT => {}
                        Err(error) => return Err(format!("the neighbour does not end: {error}").into()),
                    }
                };
                drop(held);
                Ok(())
            }
            Kind::Child { mut child, output, .. } => {
                let status = loop {
                    meanwhile()?;
                    match child.try_wait()? {
                        Some(status) => break status,
                        None if start.elapsed() < LIMIT => {}
                        None => {
                            child.kill()?;
                            break child.wait()?;
                        }
                    }
                };
                let text = output.join().unwrap_or_default();
                if status.success() { Ok(()) } else { Err(format!("the neighbour: {status}: {text}").into()) }
            }
        }
    }

    /// Waits until the neighbour has its work in flight, then kills it, so none of its cleanup runs.
    ///
    /// # Errors
    ///
    /// If the neighbour does not become ready.
    pub fn kill(self) -> Check {
        match self.0 {
            Kind::Thread { orin, ended } => {
                let held = ended
                    .recv_timeout(LIMIT)
                    .map_err(|error| format!("the neighbour is not ready: {error}"))?;
                std::mem::forget(held.map_err(|text| format!("the neighbour: {text}"))?);
                orin.exit();
            }
            Kind::Child { mut child, ready, .. } => {
                let readiness = ready.recv_timeout(LIMIT);
                child.kill()?;
                child.wait()?;
                readiness.map_err(|error| format!("the neighbour is not ready: {error}"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Neighbour {
        Neighbour::child(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn a_child_s_exit_code_is_reported() {
        let mut rounds = 0;
        let mut count = || {
            rounds += 1;
            Ok(())
        };
        shell("echo fine").finish(&mut count).unwrap();
        let text = shell("echo broken; exit 3").finish(&mut count).unwrap_err().to_string();
        assert!(text.contains("broken") && text.contains('3'), "{text}");
        assert!(rounds >= 2);
    }

    #[test]
    fn a_child_is_killed_once_it_is_ready() {
        shell(&format!("echo '{READY}' >&2; exec sleep 1000")).kill().unwrap();
        let text = shell("exit 0").kill().unwrap_err().to_string();
        assert!(text.contains("not ready"), "{text}");
    }
}
