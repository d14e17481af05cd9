//! Profiles: what the GPU ran and when, by its own clock, told in the system's time.
//!
//! While a queue profiles, each of its launches, copies, fills and graph replays stands between two releases of
//! the host engine that write the GPU's time to memory (`queue/profile.rs`). Here the times are put on one clock
//! with the CPU's and presented.

use core::fmt;
use std::time::Duration;

use crate::grid::Dim3;

pub(crate) mod clock;
mod table;
#[cfg(feature = "reports")]
mod trace;

/// What a queue was asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// A launch of a kernel.
    Launch {
        /// Name of the kernel.
        kernel: String,
        /// Blocks of the grid.
        grid: Dim3,
        /// Threads of a block.
        block: Dim3,
    },
    /// A copy by the copy engine.
    Copy {
        /// How much.
        bytes: u64,
    },
    /// A fill by the copy engine.
    Fill {
        /// How much.
        bytes: u64,
    },
    /// A replay of a graph, as a whole.
    Graph {
        /// Number of its steps.
        steps: usize,
    },
}

impl Work {
    /// What work of the same kind has in common: the kernel's name, `copy`, `fill`, `graph of 3 steps`.
    pub fn name(&self) -> String {
        match self {
            Self::Launch { kernel, .. } => kernel.clone(),
            Self::Copy { .. } => "copy".to_owned(),
            Self::Fill { .. } => "fill".to_owned(),
            Self::Graph { steps: 1 } => "graph of 1 step".to_owned(),
            Self::Graph { steps } => format!("graph of {steps} steps"),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Launch { kernel, grid, block } => write!(f, "{kernel}, grid {grid}, block {block}"),
            Self::Copy { bytes } => write!(f, "copy of {bytes} bytes"),
            Self::Fill { bytes } => write!(f, "fill of {bytes} bytes"),
            Self::Graph { .. } => f.write_str(&self.name()),
        }
    }
}

/// One piece of work that the GPU has finished. All times are nanoseconds since the UNIX epoch; those of the
/// GPU are exact among each other, and against the CPU's to a few microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// What was done.
    pub work: Work,
    /// Number of the queue, from 0 up to [`MAX_QUEUES`](crate::MAX_QUEUES).
    pub queue: usize,
    /// When the CPU made the call.
    pub called: u64,
    /// When the call had encoded the work.
    pub encoded: u64,
    /// When the CPU was about to ring the doorbell.
    pub submitted: u64,
    /// When the GPU began: everything before had ended.
    pub start: u64,
    /// When the GPU had finished.
    pub end: u64,
}

impl Span {
    /// How long the GPU took.
    pub fn gpu_time(&self) -> Duration {
        Duration::from_nanos(self.end.saturating_sub(self.start))
    }
}

/// One piece of work that was recorded and never finished: its queue has faulted or was recovered before. Times
/// as in [`Span`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// What was to be done.
    pub work: Work,
    /// Number of the queue.
    pub queue: usize,
    /// When the CPU made the call.
    pub called: u64,
    /// When the CPU was about to ring the doorbell; `None` if it never did.
    pub submitted: Option<u64>,
}

/// What a queue has run while it was profiled; see [`Queue::take_profile`](crate::Queue::take_profile).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// Finished work, in the order of the calls.
    pub spans: Vec<Span>,
    /// Work that a fault or a recovery has cut off.
    pub unfinished: Vec<Unfinished>,
}

impl Profile {
    /// Adds what another queue has run, or what this one has run later. All profiles of a process have the same
    /// clock.
    pub fn merge(&mut self, other: Self) {
        self.spans.extend(other.spans);
        self.unfinished.extend(other.unfinished);
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.unfinished.is_empty()
    }

    /// GPU times by name as a text table, the longest total first: number of calls, total, mean, shortest, median,
    /// 99th percentile, longest, and the share of the total over all names.
    pub fn table(&self) -> String {
        table::render(&self.spans, self.unfinished.len())
    }

    /// Writes a file in the trace event format, for <https://ui.perfetto.dev> or `chrome://tracing`: for each queue
    /// one track of CPU calls and doorbells and one of GPU work, connected by arrows.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::error::Error::File) when the file cannot be written.
    #[cfg(feature = "reports")]
    pub fn write_chrome_trace(&self, path: impl AsRef<std::path::Path>) -> crate::error::Result<()> {
        let path = path.as_ref();
        let io = |source| crate::error::Error::File { path: path.to_owned(), source };
        let file = std::fs::File::create(path).map_err(io)?;
        trace::write(self, std::io::BufWriter::new(file)).map_err(io)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A span of `kernel` from `start` to `end`.
    pub(crate) fn span(kernel: &str, queue: usize, start: u64, end: u64) -> Span {
        let one = Dim3::from(1);
        let work = Work::Launch { kernel: kernel.to_owned(), grid: one, block: one };
        Span { work, queue, called: start - 30, encoded: start - 20, submitted: start - 10, start, end }
    }

    #[test]
    fn work_of_a_kind_shares_its_name() {
        let launch = |grid: u32| Work::Launch {
            kernel: "saxpy".to_owned(),
            grid: grid.into(),
            block: Dim3::from((32, 2)),
        };
        assert_eq!(launch(1).name(), launch(2).name());
        assert_eq!(launch(2).to_string(), "saxpy, grid 2x1x1, block 32x2x1");
        assert_eq!(Work::Copy { bytes: 5 }.to_string(), "copy of 5 bytes");
        assert_eq!(Work::Graph { steps: 1 }.name(), "graph of 1 step");
    }

    #[test]
    fn merging_keeps_everything() {
        let mut profile = Profile::default();
        assert!(profile.is_empty());
        let other = Profile { spans: vec![span("a", 1, 100, 200)], unfinished: Vec::new() };
        profile.merge(other.clone());
        profile.merge(other);
        assert_eq!(profile.spans.len(), 2);
    }
}
