//! How programs are served.

use std::sync::Arc;

use crate::serve::observer::Observer;

/// How a program is served.
///
/// ```
/// use orin_sim::serve::Options;
///
/// let mut options = Options::default();
/// options.max_processes = 16;
/// assert!(options.observer.is_none());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Receives the calls that are served.
    pub observer: Option<Arc<dyn Observer>>,
    /// Greatest number of processes that the program has at a time, itself included; 4,096 by default. A creation
    /// beyond it fails with EAGAIN, as beyond `RLIMIT_NPROC`. Threads do not count. Zombies do, until
    /// their parent waits for them.
    ///
    /// All descendants of the process that has started the program count. Orphans are among them if it adopts orphans
    /// ([`guard::split`](super::guard::split)). While processes run that have just created others, creations may fail
    /// earlier, from half of the limit on.
    pub max_processes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { observer: None, max_processes: 4096 }
    }
}
