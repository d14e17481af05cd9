//! Results of NVIDIA's compute-sanitizer and ncu, for comparison.
//!
//! [`export`] writes a folder that `vendor.py` runs on a machine with an NVIDIA GPU and these tools. `import` converts
//! the output into data that is committed; tests compare the findings and profiles of the software Orin with it.

pub mod hopper;
pub mod profile;
pub mod sanitizer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::planted::{self, Planted};
use crate::silicon::{self, Error, json_error, read, write};
use crate::{Case, cases};

/// Cases of the corpus whose profiles are compared: coalesced, strided and gathered accesses, conflicts of shared
/// memory, divergence, local memory, atomics, asynchronous copies.
pub const PROFILED: [&str; 24] = [
    "async_copy_sizes",
    "bitonic_sort",
    "block_scan",
    "byte_histogram",
    "escape_times",
    "far_offsets",
    "fft_64",
    "gemm_f32",
    "global_reductions",
    "heat_step",
    "layer_norm_rows",
    "load_sizes",
    "local_arrays",
    "local_vectors",
    "nested_branches",
    "quantised_dot",
    "ragged_loops",
    "shared_atomics",
    "shared_sizes",
    "spmv_rows",
    "store_sizes",
    "transpose_padded",
    "tree_sum",
    "volume",
];

/// Input of `vendor.py`: `planted.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Export {
    /// Version of the format.
    format: u32,
    kernels: Vec<Planted>,
}

/// The cases of [`PROFILED`].
pub fn profiled() -> impl Iterator<Item = &'static Case> {
    cases().iter().filter(|case| PROFILED.contains(&case.kernel))
}

/// Writes what `vendor.py` needs for a GPU of compute capability `sm` / 10, except the cubins of the planted errors,
/// `planted/FILE.cubin`. Returns the number of planted errors and repaired kernels.
///
/// # Errors
///
/// If there are no cubins for such a GPU, or a file cannot be written.
pub fn export(folder: &Path, sm: u32) -> Result<usize, Error> {
    silicon::export(folder, sm, profiled())?;
    let export = Export { format: 1, kernels: planted::all() };
    let path = folder.join("planted.json");
    write(&path, &serde_json::to_vec(&export).map_err(json_error(&path))?)?;
    let script = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/silicon/vendor.py"));
    write(&folder.join("vendor.py"), script)?;
    Ok(export.kernels.len())
}

/// Folder of the committed results.
pub fn folder() -> PathBuf {
    test_support::workspace().join("tests/corpus/data/vendor")
}

/// Stores the output of `vendor.py` in `target`.
///
/// # Errors
///
/// If a file is missing or damaged, or belongs to other kernels.
pub fn import(results: &Path, target: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(target).map_err(|error| Error::File { path: target.to_owned(), error })?;
    store(&target.join(sanitizer::FILE), &sanitizer::Stored::import(results)?)?;
    store(&target.join(profile::FILE), &profile::Stored::import(results)?)?;
    write(&target.join(profile::INSTRUCTIONS_FILE), profile::import_instructions(results)?.as_bytes())
}

fn store(path: &Path, content: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(content).map_err(json_error(path))? + "\n";
    write(path, text.as_bytes())
}

/// Reads a file of the committed results.
///
/// # Errors
///
/// If it is missing or damaged.
pub fn load<T: DeserializeOwned>(file: &str) -> Result<T, Error> {
    let path = folder().join(file);
    serde_json::from_slice(&read(&path)?).map_err(json_error(&path))
}

/// The explained differences: `differences.json`.
#[derive(Debug, Deserialize)]
pub struct Explained {
    /// By reason: differences of checks.
    checks: BTreeMap<String, Vec<String>>,
    /// By reason: differences of profiles.
    profiles: BTreeMap<String, Vec<String>>,
}

impl Explained {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// If the file is missing or damaged.
    pub fn load() -> Result<Self, Error> {
        load("differences.json")
    }

    /// Compares differences of checks with the explained ones. Returns a line for each that is not explained, and for
    /// each explanation of one that does not exist.
    pub fn checks(&self, found: &BTreeSet<String>) -> Vec<String> {
        compare(found, &self.checks)
    }

    /// As [`Explained::checks`], for profiles.
    pub fn profiles(&self, found: &BTreeSet<String>) -> Vec<String> {
        compare(found, &self.profiles)
    }
}

fn compare(found: &BTreeSet<String>, explained: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let found: BTreeSet<&String> = found.iter().collect();
    let explained: BTreeSet<&String> = explained.values().flatten().collect();
    let unknown = found.difference(&explained).map(|difference| format!("not explained: {difference}"));
    let stale =
        explained.difference(&found).map(|difference| format!("explained, but not found: {difference}"));
    unknown.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_without_explanation_and_a_stale_explanation_are_named() {
        let explained = [("a reason".to_owned(), vec!["one".to_owned(), "two".to_owned()])].into();
        assert!(compare(&["one".to_owned(), "two".to_owned()].into(), &explained).is_empty());
        assert_eq!(
            compare(&["two".to_owned(), "three".to_owned()].into(), &explained),
            ["not explained: three", "explained, but not found: one"]
        );
    }
}
