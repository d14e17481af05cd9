//! Benchmark cases as values.

use crate::bench::Bench;
use crate::error::Result;

/// The rate that a case reports besides its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None: the time is the result.
    Time,
    /// Bytes per time, with the bytes per sample. The case defines how reads and writes count.
    Bytes(u64),
    /// Arithmetic operations per time, with the operations per sample.
    Operations(u64),
}

impl Unit {
    /// Returns the name of the unit and the rate for a time in nanoseconds; `None` for plain times. One byte per
    /// nanosecond is 1 GB/s.
    pub fn rate(self, nanoseconds: f64) -> Option<(&'static str, f64)> {
        match self {
            Self::Time => None,
            Self::Bytes(bytes) => Some(("GB/s", bytes as f64 / nanoseconds)),
            Self::Operations(count) => Some(("GFLOP/s", count as f64 / nanoseconds)),
        }
    }
}

/// Requirements of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Free memory in bytes.
    pub memory: u64,
    /// A real GPU, because an interpreter takes too long.
    pub hardware: bool,
    /// Patience: a sample takes seconds on the software Orin, so a quick run skips the case there.
    pub patience: bool,
    /// A second GPU.
    pub peer: bool,
    /// A driver with fences as files.
    pub fence_files: bool,
    /// A host that lets programs be served ([`orin_sim::serve`]).
    pub served: bool,
    /// An installed Python.
    pub python: bool,
    /// The CUDA library of this project ([`Cuda::own`](crate::cuda::Cuda::own)).
    pub own_cuda: bool,
    /// A program to start as a child process ([`StartUp`](crate::start_up::StartUp)).
    pub child_process: bool,
}

/// One benchmark.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name, its parts separated by `/`, for example `copy/to_device/4KiB`.
    pub name: String,
    /// One-line description of a sample.
    pub about: &'static str,
    /// The unit of the rate.
    pub unit: Unit,
    /// The requirements.
    pub needs: Needs,
    /// The value of [`Bench::size`]: bytes, elements or edge length; 0 for a case without sizes.
    pub size: u64,
    /// Runs the measurement.
    pub run: fn(&mut Bench<'_>) -> Result<()>,
}

impl Case {
    /// A case without sizes whose result is a time.
    pub(crate) fn new(name: &str, about: &'static str, run: fn(&mut Bench<'_>) -> Result<()>) -> Self {
        Self { name: name.to_owned(), about, unit: Unit::Time, needs: Needs::default(), size: 0, run }
    }

    pub(crate) fn size(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    pub(crate) fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    pub(crate) fn needs_patience(mut self, patience: bool) -> Self {
        self.needs.patience = patience;
        self
    }

    pub(crate) fn needs_peer(mut self) -> Self {
        self.needs.peer = true;
        self
    }

    pub(crate) fn needs_fence_files(mut self) -> Self {
        self.needs.fence_files = true;
        self
    }

    pub(crate) fn needs(mut self, memory: u64, hardware: bool) -> Self {
        self.needs = Needs { memory, hardware, ..Needs::default() };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_times() {
        assert_eq!(Unit::Bytes(2_000_000_000).rate(1e9), Some(("GB/s", 2.0)));
        assert_eq!(Unit::Operations(1000).rate(500.0), Some(("GFLOP/s", 2.0)));
        assert_eq!(Unit::Time.rate(1.0), None);
    }
}
