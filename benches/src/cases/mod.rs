//! The list of cases. A new one is a function in one of these files and a line in [`all`].

mod compute;
mod copy;
mod graph;
mod launch;
mod memory;
mod network;
mod process;
mod signal;

use crate::bench::Bench;
use crate::error::Result;

/// 2^10 bytes.
const KIB: u64 = 1 << 10;
/// 2^20 bytes.
const MIB: u64 = 1 << 20;

/// What a case says beside the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing: the time is the result.
    Time,
    /// Bytes per time, for this many bytes per sample, read and written ones counted as the case says.
    Bytes(u64),
    /// Arithmetic operations per time, for this many per sample.
    Operations(u64),
}

impl Unit {
    /// The unit's name and the rate at a time in nanoseconds; `None` for plain times. One byte per
    /// nanosecond is one GB/s.
    pub fn rate(self, nanoseconds: f64) -> Option<(&'static str, f64)> {
        match self {
            Self::Time => None,
            Self::Bytes(bytes) => Some(("GB/s", bytes as f64 / nanoseconds)),
            Self::Operations(count) => Some(("GFLOP/s", count as f64 / nanoseconds)),
        }
    }
}

/// What a case cannot do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Free memory in bytes.
    pub memory: u64,
    /// A real GPU: an interpreter would take too long.
    pub hardware: bool,
    /// Patience: it takes the software Orin seconds per sample, so that a quick run leaves it out there.
    pub patience: bool,
    /// A program to start as a child process ([`StartUp`](crate::start_up::StartUp)).
    pub child_process: bool,
}

/// One benchmark.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name, its parts separated by `/`, for example `copy/to_device/4KiB`.
    pub name: String,
    /// What one sample is, in one line.
    pub about: &'static str,
    /// What is said beside the time.
    pub unit: Unit,
    /// What must be there.
    pub needs: Needs,
    /// What [`Bench::size`] says: bytes, elements or edge length; 0 for a case of one size.
    pub size: u64,
    /// Measures.
    pub run: fn(&mut Bench<'_>) -> Result<()>,
}

impl Case {
    /// A case of one size whose result is a time.
    fn new(name: &str, about: &'static str, run: fn(&mut Bench<'_>) -> Result<()>) -> Self {
        Self { name: name.to_owned(), about, unit: Unit::Time, needs: Needs::default(), size: 0, run }
    }

    fn size(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    fn needs_patience(mut self, patience: bool) -> Self {
        self.needs.patience = patience;
        self
    }

    fn needs(mut self, memory: u64, hardware: bool) -> Self {
        self.needs = Needs { memory, hardware, ..Needs::default() };
        self
    }
}

/// All cases, in the order in which they run.
pub fn all() -> Vec<Case> {
    [
        launch::cases(),
        graph::cases(),
        signal::cases(),
        copy::cases(),
        memory::cases(),
        compute::cases(),
        network::cases(),
        process::cases(),
    ]
    .concat()
}

/// A size in bytes as people write it.
fn size_name(bytes: u64) -> String {
    if bytes >= MIB { format!("{}MiB", bytes / MIB) } else { format!("{}KiB", bytes / KIB) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_in_parts() {
        let cases = all();
        let names: HashSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            assert!(case.name.contains('/') && !case.name.contains(' '), "{}", case.name);
            assert!(!case.about.is_empty() && case.about.len() <= 110, "{}", case.about);
        }
    }

    #[test]
    fn rates_follow_from_times() {
        assert_eq!(Unit::Bytes(2_000_000_000).rate(1e9), Some(("GB/s", 2.0)));
        assert_eq!(Unit::Operations(1000).rate(500.0), Some(("GFLOP/s", 2.0)));
        assert_eq!(Unit::Time.rate(1.0), None);
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!([4 * KIB, MIB, 256 * MIB].map(size_name), ["4KiB", "1MiB", "256MiB"]);
    }
}
