//! Kernels with planted errors: `kernels/check/*.cu`, compiled to `kernels/check/VARIANT/*.cubin`.
//!
//! `check.lock` contains the hashes of the sources and cubins.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use orin_cli::{say, write_file};

use super::compiler::{Compiler, PINNED};
use super::{hash, stems};

/// The folder, relative to that of the kernels.
pub(super) const FOLDER: &str = "check";
/// The variants: folder, further options.
const VARIANTS: [(&str, &[&str]); 3] =
    [("lines", &["--generate-line-info"]), ("plain", &[]), ("debug", &["--device-debug"])];

/// Compiles every source in every variant; `kernels` is the folder of all kernels.
pub(super) fn build(kernels: &Path) -> Result<()> {
    let folder = kernels.join(FOLDER);
    let compiler = Compiler::pinned(kernels, &PINNED)?;
    for (variant, options) in VARIANTS {
        let target = folder.join(variant);
        fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
        for name in stems(&folder, "cu")? {
            let (source, cubin) =
                (folder.join(&name).with_extension("cu"), target.join(&name).with_extension("cubin"));
            compiler.compile_with(kernels, &source, &cubin, "sm_87", options)?;
        }
        say!("{FOLDER}/{variant}: compiled by {}", compiler.name)?;
    }
    let text = serde_json::to_string_pretty(&hashes(&folder)?)? + "\n";
    write_file(folder.join("check.lock"), text)?;
    Ok(())
}

/// Compiles every source with line information for another chip into another folder.
pub(super) fn build_into(kernels: &Path, target: &Path, arch: &str) -> Result<()> {
    let folder = kernels.join(FOLDER);
    let compiler = Compiler::pinned(kernels, &PINNED)?;
    fs::create_dir_all(target).with_context(|| format!("creating {}", target.display()))?;
    for name in stems(&folder, "cu")? {
        let (source, cubin) =
            (folder.join(&name).with_extension("cu"), target.join(&name).with_extension("cubin"));
        compiler.compile_with(kernels, &source, &cubin, arch, &["--generate-line-info"])?;
    }
    Ok(())
}

/// Compares sources and cubins with `check.lock`, without a compiler.
///
/// # Errors
///
/// Returns an error that names every difference.
pub(super) fn check(folder: &Path) -> Result<()> {
    let path = folder.join("check.lock");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let lock: BTreeMap<String, String> =
        serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))?;
    let found = hashes(folder)?;
    let names = lock.keys().chain(found.keys());
    let differ: std::collections::BTreeSet<&String> =
        names.filter(|name| lock.get(*name) != found.get(*name)).collect();
    let differ: Vec<&str> = differ.into_iter().map(String::as_str).collect();
    ensure!(
        differ.is_empty(),
        "{} in {FOLDER} differ from check.lock; run `cargo xtask kernels`",
        differ.join(", ")
    );
    Ok(())
}

/// SHA-256 of every source and cubin, by name.
fn hashes(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut hashes = BTreeMap::new();
    for name in stems(folder, "cu")? {
        hashes.insert(format!("{name}.cu"), hash(&folder.join(&name).with_extension("cu"))?);
    }
    for (variant, ..) in VARIANTS {
        let target = folder.join(variant);
        let cubins = if target.is_dir() { stems(&target, "cubin")? } else { Vec::new() };
        for name in cubins {
            hashes.insert(
                format!("{variant}/{name}.cubin"),
                hash(&target.join(&name).with_extension("cubin"))?,
            );
        }
    }
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_missing_file_is_named() {
        let folder = std::env::temp_dir().join(format!("xtask-planted-{}", std::process::id()));
        fs::create_dir_all(folder.join("lines")).unwrap();
        fs::write(folder.join("a.cu"), "source").unwrap();
        fs::write(folder.join("lines/a.cubin"), "cubin").unwrap();
        let lock = serde_json::to_string(&hashes(&folder).unwrap()).unwrap();
        fs::write(folder.join("check.lock"), lock).unwrap();
        check(&folder).unwrap();
        fs::write(folder.join("lines/a.cubin"), "other").unwrap();
        fs::remove_file(folder.join("a.cu")).unwrap();
        let error = check(&folder).unwrap_err().to_string();
        assert!(error.starts_with("a.cu, lines/a.cubin in check differ"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
