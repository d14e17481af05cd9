//! Another process that uses the same GPU.
//!
//! On a software Orin it is a thread that uses the board through the door of a process of its own. On a board it
//! is a child of this program, which must be `xtask`: it runs one test of the suite `neighbour`.

use std::any::Any;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use orin_sim::SoftwareOrin;

use super::context::Station;
use super::machine::Opened;
use super::{Check, Context, chain, panics};

/// Tells a child that it is one, with the role's argument as its value.
const VARIABLE: &str = "NVGPU_NEIGHBOUR";
/// What a child writes to its standard error, in a line of its own, when its work is in flight.
const READY: &str = "the neighbour is ready";
/// Longest time that a neighbour may take.
const LIMIT: Duration = Duration::from_secs(120);

/// What a process holds when it is killed, and what is dropped when it ends by itself.
pub type Held = Box<dyn Any + Send>;

/// What a role comes to: any error is a failure.
pub type Played = Result<Held, Box<dyn std::error::Error + Send + Sync>>;

/// What a neighbour does, with an argument of the role's own meaning. It returns when it has done its work, or
/// has it in flight.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Name of the test of the suite `neighbour` that plays the role.
    pub name: &'static str,
    /// The role itself.
    pub play: fn(&Context, u64) -> Played,
}

impl Role {
    /// Plays the role as a test: with the parent's argument in a child, which then waits until it is killed if
    /// the role `lingers`; with `argument` in an ordinary run, where everything is dropped at the end.
    ///
    /// # Errors
    ///
    /// The role's own; an argument that is no number.
    pub fn test(&self, context: &Context, argument: u64, lingers: bool) -> Check {
        let Some(given) = std::env::var_os(VARIABLE) else {
            return (self.play)(context, argument).map(drop);
        };
        let given = given.to_str().and_then(|text| text.parse().ok());
        let _held = (self.play)(context, given.ok_or_else(|| format!("{VARIABLE} is no number"))?)?;
        eprintln!("{READY}");
        if lingers {
            loop {
                thread::park();
            }
        }
        Ok(())
    }
}

/// A process that was started beside this one.
#[derive(Debug)]
pub struct Neighbour(Kind);

#[derive(Debug)]
enum Kind {
    Thread { orin: SoftwareOrin, ended: Receiver<Result<Held, String>> },
    Child { child: Child, ready: Receiver<()>, output: thread::JoinHandle<String> },
}

impl Neighbour {
    pub(crate) fn start(context: &Context, role: Role, argument: u64) -> Result<Self, std::io::Error> {
        match context.orin() {
            Some(orin) => Self::thread(context, orin.process(), role, argument),
            None => {
                let mut command = Command::new(std::env::current_exe()?);
                let filter = format!("neighbour/{}", role.name);
                command.args([
                    "test-device",
                    "--device",
                    context.kind().name(),
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
            // The device is part of what the process holds.
            let held = result.map(|held| Box::new((held, context)) as Held);
            // Nobody listens when the test has failed meanwhile.
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
            // What could be read before an error is still worth showing.
            let _ = out.as_mut().map(|out| out.read_to_string(&mut text));
            text
        });
        Ok(Self(Kind::Child { child, ready, output }))
    }

    /// Does `meanwhile` again and again until the neighbour has played its role, at least once; then the neighbour
    /// ends by itself.
    ///
    /// # Errors
    ///
    /// Those of `meanwhile`; what went wrong in the neighbour.
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

    /// Waits until the neighbour has its work in flight, then kills it: nothing of what it would do at its end is
    /// done.
    ///
    /// # Errors
    ///
    /// When it does not get that far.
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
    fn a_child_that_ends_well_or_not() {
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
