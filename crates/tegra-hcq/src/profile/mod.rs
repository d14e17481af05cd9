//! Profiles: GPU timestamps per operation, converted to system time.
//!
//! With profiling on, launch descriptors and releases of the host engine write the GPU's time to memory
//! (`queue/profile.rs`). This module converts these times to the CPU's clock and
//! presents them.

use core::fmt;
use std::time::Duration;

use crate::limits::Dim3;

pub(crate) mod clock;
pub(crate) mod collect;
#[cfg(feature = "reports")]
mod file;
mod table;
#[cfg(feature = "reports")]
mod trace;

/// An operation of a queue.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// # let program = tegra_hcq::Program::load(&device, cubin)?;
/// # type VectorAdd = (&'static [f32], &'static [f32], &'static mut [f32], tegra_hcq::Count<u32>);
/// # // SAFETY: reads a[i] and b[i] and writes c[i] for i < n.
/// # let add = unsafe { program.typed::<VectorAdd>("vector_add")? };
/// # let (a, b) = (device.alloc_from(&[1.0_f32; 256])?, device.alloc_from(&[2.0_f32; 256])?);
/// # let mut c = device.alloc::<f32>(256)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// use tegra_hcq::Work;
///
/// queue.profile(true)?;
/// add.launch(&mut queue, 1, 256, (&a, &b, &mut c, 256))?;
/// queue.wait(timeout)?;
/// let profile = queue.take_profile()?;
/// assert!(matches!(profile.spans[0].work, Work::Launch { .. }));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// A launch of a kernel.
    Launch {
        /// Name of the kernel.
        kernel: String,
        /// Grid in blocks.
        grid: Dim3,
        /// Block in threads.
        block: Dim3,
    },
    /// A copy by the copy engine.
    Copy {
        /// Number of bytes.
        bytes: u64,
    },
    /// A fill by the copy engine.
    Fill {
        /// Number of bytes.
        bytes: u64,
    },
    /// A replay of a whole graph.
    Graph {
        /// Number of its steps.
        steps: usize,
    },
}

impl Work {
    /// Name that operations of the same kind share: the kernel's name, `copy`, `fill`, `graph of 3 steps`.
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

/// An operation that the GPU has finished. All times are nanoseconds since the UNIX epoch. GPU times are exact relative
/// to each other, and accurate to a few microseconds relative to CPU times.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The operation.
    pub work: Work,
    /// Number of the queue, from 0 up to [`MAX_QUEUES`](crate::MAX_QUEUES).
    pub queue: usize,
    /// CPU time of the call.
    pub called: u64,
    /// CPU time at which the call had encoded the operation.
    pub encoded: u64,
    /// CPU time just before the doorbell.
    pub submitted: u64,
    /// GPU time at the start, after all earlier work had ended.
    pub start: u64,
    /// GPU time at the end.
    pub end: u64,
    /// Index of the step if this is a step of a graph, whose span precedes; `None` for an operation of its own. The
    /// times on the CPU are those of the replay.
    pub step: Option<usize>,
}

/// A range of a program that [`Queue::span`](crate::Queue::span) has named. Times as in [`Span`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Range {
    /// Its name.
    pub name: String,
    /// Number of the queue.
    pub queue: usize,
    /// CPU time at the start.
    pub called: u64,
    /// CPU time at the end.
    pub ended: u64,
    /// GPU times from the start of its first operation to the end of its last; `None` if it contains none that ended.
    pub gpu: Option<(u64, u64)>,
}

impl Span {
    /// Duration on the GPU.
    pub fn gpu_time(&self) -> Duration {
        Duration::from_nanos(self.end.saturating_sub(self.start))
    }
}

/// An operation that was recorded but never finished, because its queue faulted or was recovered before. Times as in
/// [`Span`].
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// # let program = tegra_hcq::Program::load(&device, cubin)?;
/// # type VectorAdd = (&'static [f32], &'static [f32], &'static mut [f32], tegra_hcq::Count<u32>);
/// # // SAFETY: reads a[i] and b[i] and writes c[i] for i < n.
/// # let add = unsafe { program.typed::<VectorAdd>("vector_add")? };
/// # let (a, b) = (device.alloc_from(&[1.0_f32; 256])?, device.alloc_from(&[2.0_f32; 256])?);
/// # let mut c = device.alloc::<f32>(256)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// queue.profile(true)?;
/// add.launch(&mut queue, 1, 256, (&a, &b, &mut c, 256))?;
/// queue.wait(timeout)?;
/// // All work has ended.
/// assert!(queue.take_profile()?.unfinished.is_empty());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// The operation.
    pub work: Work,
    /// Number of the queue.
    pub queue: usize,
    /// CPU time of the call.
    pub called: u64,
    /// CPU time just before the doorbell; `None` if it was never rung.
    pub submitted: Option<u64>,
}

/// Operations that a queue ran while profiling was on; see [`Queue::take_profile`](crate::Queue::take_profile).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// Finished operations, in the order of the calls.
    pub spans: Vec<Span>,
    /// Operations that a fault or a recovery cut off.
    pub unfinished: Vec<Unfinished>,
    /// Named ranges that have ended, in the order of their start.
    pub ranges: Vec<Range>,
    /// Number of operations that were recorded and not kept; see [`Profile::collect_all`].
    pub left_out: usize,
}

impl Profile {
    /// Appends the profile of another queue, or a later profile of the same queue. All profiles of a process use the
    /// same clock.
    pub fn merge(&mut self, other: Self) {
        self.spans.extend(other.spans);
        self.unfinished.extend(other.unfinished);
        self.ranges.extend(other.ranges);
        self.left_out += other.left_out;
    }

    /// Whether the profile contains no operations.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.unfinished.is_empty() && self.ranges.is_empty()
    }

    /// GPU times by name as a text table, sorted by total in descending order: number of calls, total, mean, minimum,
    /// median, 99th percentile, maximum, and the share of the total over all names. A graph with recorded steps has no
    /// share: its steps have.
    pub fn table(&self) -> String {
        table::render(&self.spans, self.unfinished.len(), self.left_out)
    }

    /// Writes a file in the trace event format, for <https://ui.perfetto.dev> or `chrome://tracing`. Each queue has one
    /// track of CPU calls and doorbells and one of GPU work, connected by arrows.
    ///
    /// A regular file is replaced once the new one is complete, and keeps its owner and permissions. Symlinks are
    /// followed and stay. Anything else (a device, a FIFO, `/dev/stdout`) is written in place, as is a file that is a
    /// mount point of its own: that cannot be replaced.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::error::Error::File) if the file cannot be written. A regular file is as before then.
    #[cfg(feature = "reports")]
    pub fn write_chrome_trace(&self, path: impl AsRef<std::path::Path>) -> crate::error::Result<()> {
        let path = path.as_ref();
        let mut trace = Vec::new();
        let written = self.chrome_trace(&mut trace).and_then(|()| file::write(path, &trace));
        written.map_err(|source| crate::error::Error::File { path: path.to_owned(), source })
    }

    /// As [`Profile::write_chrome_trace`], to any writer.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    #[cfg(feature = "reports")]
    pub fn chrome_trace(&self, out: impl std::io::Write) -> std::io::Result<()> {
        trace::write(self, out)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A span of `kernel` from `start` to `end`.
    pub(crate) fn span(kernel: &str, queue: usize, start: u64, end: u64) -> Span {
        let one = Dim3::from(1);
        let work = Work::Launch { kernel: kernel.to_owned(), grid: one, block: one };
        let (called, encoded, submitted) = (start - 30, start - 20, start - 10);
        Span { work, queue, called, encoded, submitted, start, end, step: None }
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
        let other = Profile { spans: vec![span("a", 1, 100, 200)], ..Profile::default() };
        profile.merge(other.clone());
        profile.merge(other);
        assert_eq!(profile.spans.len(), 2);
    }
}
