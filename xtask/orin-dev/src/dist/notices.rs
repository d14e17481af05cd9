//! Licences of the crates that the programs of a pack contain, as a file beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use xtask::workspace;

/// Name of the file.
pub(super) const NAME: &str = "THIRD-PARTY.txt";
/// How the names of files with licences and notices begin, in capitals.
const FILES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Returns the licences of all crates from registries that `packages` contain for a target: each text once, below the
/// names of the crates that have it.
pub(super) fn text(root: &Path, triple: &str, packages: &[&str]) -> Result<String> {
    let mut arguments =
        vec!["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--target", triple];
    arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
    let tree = String::from_utf8(cargo(root, &arguments)?).context("cargo tree")?;
    let contained: BTreeSet<_> = tree.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect();

    let metadata = cargo(root, &["metadata", "--format-version", "1", "--filter-platform", triple])?;
    let metadata: Value = serde_json::from_slice(&metadata).context("cargo metadata")?;
    let found = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let found = found.iter().filter(|package| package["source"].is_string());
    let (mut crates, mut texts) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    for package in found {
        let part = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} v{}", part("name"), part("version"));
        if contained
            .iter()
            .any(|line| *line == name || line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(' ')))
        {
            // Writing to a String cannot fail.
            let _ = writeln!(crates, "{name}: {}", part("license"));
            let folder = Path::new(part("manifest_path")).parent().unwrap_or(root);
            for text in licences(folder).with_context(|| format!("the licences of {name}"))? {
                texts.entry(text).or_default().push(name.clone());
            }
        }
    }
    ensure!(!texts.is_empty(), "no crate of {packages:?} has a licence: this is not the requested build");
    let mut all = format!("The programs contain these crates:\n\n{crates}");
    for (text, names) in &texts {
        let _ = write!(all, "\n{}\n{}\n\n{text}\n", "-".repeat(80), names.join(", "));
    }
    Ok(all)
}

/// The texts of the files with licences in a folder, in the order of their names.
fn licences(folder: &Path) -> Result<Vec<String>> {
    let is_licence = |name: &str| FILES.iter().any(|start| name.to_uppercase().starts_with(start));
    let entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    let mut paths: Vec<_> = entries
        .iter()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_licence))
        .map(fs::DirEntry::path)
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    let texts = paths.iter().map(|path| Ok(String::from_utf8_lossy(&fs::read(path)?).trim().to_owned()));
    texts.collect()
}

/// What a command of cargo prints.
fn cargo(root: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new(workspace::cargo());
    command.current_dir(root).args(arguments).arg("--locked").stderr(Stdio::inherit());
    let output = command.output().context("starting cargo")?;
    ensure!(output.status.success(), "cargo {} failed: see above", arguments[0]);
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contained_crate_is_listed_and_no_other() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let text = text(root, super::super::Target::host().unwrap().triple(), &["tegra-hcq-capi"]).unwrap();
        let (list, texts) = text.split_once(&"-".repeat(80)).unwrap();
        assert!(list.contains("\nrustix v1") && texts.contains("rustix v1"), "{list}");
        // A tool of the build, a dependency of tests, and a crate of the workspace.
        assert!(
            !list.contains("cbindgen") && !list.contains("proptest") && !list.contains("ampere-cmd"),
            "{list}"
        );
        assert!(texts.contains("Permission is hereby granted, free of charge"));
    }
}
