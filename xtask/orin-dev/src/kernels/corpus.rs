//! The corpus: `kernels/corpus/*.cu`, compiled to `kernels/corpus/sm_NN-RELEASE/*.cubin`.
//!
//! Each compiler generates different code for the same source, and each chip has its own instructions.
//! [`test_corpus::cubins`] lists the compilers and chips. `corpus.lock` contains the hashes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use orin_cli::{say, write_file};
use serde::{Deserialize, Serialize};
use test_corpus::cubins::VARIANTS;

use super::compiler::{Compiler, RELEASES};
use super::{hash, stems};

/// The folder, relative to that of the kernels.
pub(super) const FOLDER: &str = "corpus";
/// The header that all sources include.
const HEADER: &str = "corpus.cuh";

/// Content of `corpus.lock`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Lock {
    /// SHA-256 of each source and of the header, by file name.
    sources: BTreeMap<String, String>,
    /// By variant name.
    variants: BTreeMap<String, Variant>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Variant {
    /// The compiler of the cubins.
    compiler: String,
    /// SHA-256 of each cubin, by name without extension.
    cubins: BTreeMap<String, String>,
}

/// Compiles every source with every compiler; `kernels` is the folder of all kernels.
pub(super) fn build(kernels: &Path) -> Result<()> {
    let folder = kernels.join(FOLDER);
    let names = stems(&folder, "cu")?;
    let mut lock = Lock { sources: sources(&folder)?, ..Lock::default() };
    for release in &RELEASES {
        let compiler = Compiler::pinned(kernels, release)?;
        for variant in VARIANTS.iter().filter(|variant| variant.release == release.version) {
            let target = folder.join(variant.name());
            fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
            let mut cubins = BTreeMap::new();
            for name in &names {
                let cubin = target.join(name).with_extension("cubin");
                let source = folder.join(name).with_extension("cu");
                compiler.compile(kernels, &source, &cubin, &format!("sm_{}", variant.sm))?;
                cubins.insert(name.clone(), hash(&cubin)?);
            }
            say!("{}/{}: {} cubins by {}", FOLDER, variant.name(), cubins.len(), compiler.name)?;
            lock.variants.insert(variant.name(), Variant { compiler: compiler.name.clone(), cubins });
        }
    }
    let text = serde_json::to_string_pretty(&lock)? + "\n";
    write_file(folder.join("corpus.lock"), text)?;
    check(&folder)
}

/// Compares sources and cubins with `corpus.lock`, without a compiler.
///
/// # Errors
///
/// Returns an error that names every difference.
pub(super) fn check(folder: &Path) -> Result<()> {
    let path = folder.join("corpus.lock");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let lock: Lock = serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))?;
    let drift = drift(folder, &lock)?;
    ensure!(drift.is_empty(), "{}; run `cargo xtask kernels`", drift.join("; "));
    Ok(())
}

/// Hashes of the sources and of the header.
fn sources(folder: &Path) -> Result<BTreeMap<String, String>> {
    let files = stems(folder, "cu")?.into_iter().map(|name| format!("{name}.cu"));
    files.chain([HEADER.to_owned()]).map(|file| Ok((file.clone(), hash(&folder.join(&file))?))).collect()
}

/// Returns all differences between files and lock file, one sentence each.
fn drift(folder: &Path, lock: &Lock) -> Result<Vec<String>> {
    let mut drift = differences("corpus", &sources(folder)?, &lock.sources);
    for variant in &VARIANTS {
        let name = variant.name();
        let target = folder.join(&name);
        let cubins = if target.is_dir() { stems(&target, "cubin")? } else { Vec::new() };
        let found = cubins.into_iter().map(|stem| {
            let hash = hash(&target.join(&stem).with_extension("cubin"))?;
            Ok((stem, hash))
        });
        let found = found.collect::<Result<BTreeMap<_, _>>>()?;
        let empty = BTreeMap::new();
        let locked = lock.variants.get(&name).map_or(&empty, |variant| &variant.cubins);
        drift.extend(differences(&name, &found, locked));
    }
    let unknown = |name: &&String| !VARIANTS.iter().any(|variant| variant.name() == **name);
    drift.extend(
        lock.variants
            .keys()
            .filter(unknown)
            .map(|name| format!("corpus.lock names {name}, which is not compiled")),
    );
    Ok(drift)
}

/// Returns the differences between two lists of hashes.
fn differences(
    place: &str,
    found: &BTreeMap<String, String>,
    locked: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut all: Vec<&String> = found.keys().chain(locked.keys()).collect();
    all.sort();
    all.dedup();
    all.into_iter()
        .filter_map(|name| match (found.get(name), locked.get(name)) {
            (Some(found), Some(locked)) if found == locked => None,
            (Some(_), Some(_)) => Some(format!("{place}/{name} differs from corpus.lock")),
            (Some(_), None) => Some(format!("{place}/{name} is not in corpus.lock")),
            _ => Some(format!("{place}/{name} is in corpus.lock but does not exist")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_drift_is_named() {
        let list = |entries: &[(&str, &str)]| {
            entries.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect()
        };
        let found = list(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let locked = list(&[("a", "1"), ("b", "9"), ("d", "4")]);
        assert_eq!(
            differences("x", &found, &locked),
            [
                "x/b differs from corpus.lock",
                "x/c is not in corpus.lock",
                "x/d is in corpus.lock but does not exist",
            ]
        );
        assert!(differences("x", &found, &found).is_empty());
    }
}
