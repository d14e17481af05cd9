//! The limit of processes that a served program has at a time.
//!
//! The supervisor sees every creation of a process before the kernel does, but neither the id of the new process nor
//! its end. So it keeps an upper bound, and counts in `/proc` when the bound has reached the limit.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::Instant;

use parking_lot::Mutex;

use crate::serve::filter;
use crate::serve::processes::Tree;

/// Counting is slow. At the limit the supervisor spends at most 1 / `PARTS` of its time on it and serves requests in
/// the rest.
const PARTS: u32 = 10;

/// The processes of a served program.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// The process whose descendants count.
    root: i32,
    /// Greatest number of processes.
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Upper bound of the number of processes, including those that are being created.
    most: usize,
    /// Threads whose permission to create a process may not be used yet.
    creating: BTreeSet<u32>,
    /// When they may be counted again.
    next_count: Instant,
}

impl Crowd {
    /// The program is the first process below `root`.
    pub(crate) fn new(root: i32, limit: u32) -> Self {
        let state = State { most: 1, creating: BTreeSet::new(), next_count: Instant::now() };
        // CAST: `usize` has 64 bits.
        Self { root, limit: limit as usize, state: Mutex::new(state) }
    }

    /// Whether a thread, which waits for the answer, may create a process.
    pub(crate) fn admit(&self, thread: u32) -> bool {
        let mut state = self.state.lock();
        // Its earlier creation is complete.
        state.creating.remove(&thread);
        if state.most >= self.limit && Instant::now() >= state.next_count {
            let begin = Instant::now();
            state.count(self.root);
            if state.most >= self.limit {
                state.next_count = begin + begin.elapsed() * PARTS;
            }
        }
        let admitted = state.most < self.limit;
        if admitted {
            state.most += 1;
            state.creating.insert(thread);
        }
        admitted
    }
}

impl State {
    fn count(&mut self, root: i32) {
        // Threads first: a process that one has created is in `/proc` by now.
        self.creating.retain(|thread| may_be_creating(*thread));
        self.most = Tree::read().count_below(root) + self.creating.len();
    }
}

/// Whether a thread may be about to make the call that it was permitted, or in it.
fn may_be_creating(thread: u32) -> bool {
    match fs::read_to_string(format!("/proc/{thread}/syscall")) {
        Ok(call) => is_creating(&call),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::exists(format!("/proc/{thread}")).unwrap_or(true)
        }
        // ESRCH: it has ended since the file was opened.
        Err(error) => error.raw_os_error() != Some(libc::ESRCH),
    }
}

/// Evaluates the text of `/proc/TID/syscall`: `running`, or the call in which the thread sleeps.
fn is_creating(call: &str) -> bool {
    let number = call.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
    number.is_none_or(|number: libc::c_long| {
        filter::CREATIONS.contains(&number) || filter::FOREIGN_CREATIONS.contains(&number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_bounded_by_what_exists() {
        // No process has this id.
        let crowd = Crowd::new(i32::MAX, 50);
        assert!((0..49).all(|_| crowd.admit(u32::MAX)), "the program itself counts towards 50");
        // A count shows that they are gone.
        assert!((0..49).all(|_| crowd.admit(u32::MAX)));
        // The parent of this process has one child at least, and there is no room for another.
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert!((0..100).all(|_| !Crowd::new(parent, 1).admit(u32::MAX)));
    }

    #[test]
    fn only_threads_that_wait_elsewhere_have_used_their_permission() {
        assert!(is_creating("running\n"));
        assert!(is_creating(&format!("{} 0x11 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f3e\n", libc::SYS_clone)));
        assert!(!is_creating(&format!("{} 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f3e\n", libc::SYS_wait4)));
        // Not in a call: a page fault that waits, or the end of the thread.
        assert!(!is_creating("-1 0x7ffc 0x7f3e\n"));
        assert!(!may_be_creating(u32::MAX));
    }
}
