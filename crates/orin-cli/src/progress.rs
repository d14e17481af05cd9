//! A changing line on standard error while a command works.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between updates; work that takes less shows nothing.
const GLANCE: Duration = Duration::from_millis(200);

/// Shows what a command is doing, and for how long, until it is dropped. Shows nothing if standard error is not a
/// terminal.
#[derive(Debug)]
pub struct Progress(Option<Shown>);

#[derive(Debug)]
struct Shown {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    text: Mutex<Text>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Text {
    line: String,
    ended: bool,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    /// Starts with a line of text.
    pub fn new(text: &str) -> Self {
        let begun = Instant::now();
        let progress = Self::showing(move |line| format!("{line}, {} s", begun.elapsed().as_secs()));
        progress.set(text);
        progress
    }

    /// Starts with a function that returns the current line. Another thread calls it a few times per second.
    pub fn of(line: impl Fn() -> String + Send + 'static) -> Self {
        Self::showing(move |_| line())
    }

    fn showing(line: impl Fn(&str) -> String + Send + 'static) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        // A command without progress is better than none.
        let thread =
            std::thread::Builder::new().name("progress".to_owned()).spawn(move || show(&shared, &line));
        Self(thread.ok().map(|thread| Shown { state, thread: Some(thread) }))
    }

    /// Replaces the text.
    pub fn set(&self, text: &str) {
        if let Some(shown) = &self.0 {
            text.clone_into(&mut shown.state.lock().line);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let Some(shown) = &mut self.0 else { return };
        shown.state.lock().ended = true;
        shown.state.changed.notify_all();
        if let Some(thread) = shown.thread.take() {
            // A panic in it has been reported, and must not end the command.
            let _ = thread.join();
        }
    }
}

/// Shows the line until the end, then clears it. A failed write must not stop the command.
fn show(state: &State, line: &dyn Fn(&str) -> String) {
    let mut text = state.lock();
    let mut shown = false;
    while !text.ended {
        let (next, waited) = state.changed.wait_timeout(text, GLANCE).unwrap_or_else(PoisonError::into_inner);
        text = next;
        if waited.timed_out() {
            // Without line wrapping, so that the line can be cleared.
            let _ = write!(io::stderr(), "\r\x1b[?7l{}\x1b[K\x1b[?7h", line(&text.line));
            shown = true;
        }
    }
    if shown {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}
