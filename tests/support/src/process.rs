//! Resources of this process, for leak tests.

/// Open descriptors and memory mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Entries of `/proc/self/fd`.
    pub descriptors: usize,
    /// Lines of `/proc/self/maps`.
    pub mappings: usize,
}

/// Counts the resources of this process; all 0 if `/proc` is not mounted.
pub fn resources() -> Resources {
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    Resources { descriptors, mappings: maps.lines().count() }
}

/// Resident memory of this process in bytes; 0 if `/proc` is not mounted.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Fails if the process holds at least `limit` more descriptors or mappings than `before`.
///
/// # Errors
///
/// The growth, as text.
pub fn within(before: Resources, limit: usize) -> Result<(), String> {
    let now = resources();
    let grown =
        (now.descriptors.saturating_sub(before.descriptors), now.mappings.saturating_sub(before.mappings));
    if grown.0 < limit && grown.1 < limit {
        return Ok(());
    }
    Err(format!("{} descriptors and {} mappings more than before (limit {limit})", grown.0, grown.1))
}
