//! The list of cases. To add a case, add a function to one of these files and a line to [`all`].

mod c_library;
mod compute;
mod copy;
mod cuda;
mod file;
mod graph;
pub(crate) mod growth;
mod launch;
mod memory;
mod network;
mod peer;
mod process;
mod serve;
mod signal;

use crate::case::Case;

/// 2^10 bytes.
const KIB: u64 = 1 << 10;
/// 2^20 bytes.
const MIB: u64 = 1 << 20;

/// All cases, in the order in which they run.
pub fn all() -> Vec<Case> {
    [
        launch::cases(),
        c_library::cases(),
        graph::cases(),
        signal::cases(),
        copy::cases(),
        memory::cases(),
        file::cases(),
        peer::cases(),
        compute::cases(),
        network::cases(),
        process::cases(),
        cuda::cases(),
        serve::cases(),
        growth::cases(),
    ]
    .concat()
}

/// A size in bytes with a binary unit.
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
    fn sizes_read_well() {
        assert_eq!([4 * KIB, MIB, 256 * MIB].map(size_name), ["4KiB", "1MiB", "256MiB"]);
    }
}
