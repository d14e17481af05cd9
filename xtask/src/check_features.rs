//! `cargo xtask check-features`: every library of the workspace builds with each subset of its features.
//!
//! Like `cargo hack check --feature-powerset`, without an extra tool.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};
use orin_cli::{say, warn};

use crate::workspace::{self, Package};

/// Checks each package with features and prints the subsets that fail; exit code 1 if there are any.
pub(crate) fn run() -> Result<ExitCode> {
    let root = workspace::root()?;
    let mut failed = 0;
    for package in workspace::packages(&root)? {
        let features = own_features(&package);
        if features.is_empty() {
            continue;
        }
        let start = Instant::now();
        let subsets = subsets(&features);
        for subset in &subsets {
            let list = subset.join(",");
            let mut command = Command::new(workspace::cargo());
            command.args(["check", "--quiet", "--package", &package.name, "--no-default-features"]);
            command.args(["--features", &list]).current_dir(&root);
            let output = command.output().with_context(|| format!("{command:?}"))?;
            // Cargo is quiet, so any text is a warning or an error.
            if !output.status.success() || !output.stderr.is_empty() {
                warn(String::from_utf8_lossy(&output.stderr).trim_end());
                say!("error: {} does not build cleanly with the features [{list}] alone", package.name)?;
                failed += 1;
            }
        }
        say!("{}: {} subsets, {:.1} s", package.name, subsets.len(), start.elapsed().as_secs_f64())?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The features of a package, without `default`, which only names others.
fn own_features(package: &Package) -> Vec<&str> {
    package.features.keys().map(String::as_str).filter(|name| *name != "default").collect()
}

/// All subsets of some features: the empty one first, all of them last.
fn subsets<'a>(features: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut subsets = vec![Vec::new()];
    for feature in features {
        let with = subsets.iter().map(|subset| [subset.as_slice(), &[*feature]].concat());
        subsets.extend(with.collect::<Vec<_>>());
    }
    subsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_complete() {
        assert_eq!(subsets(&[]), [Vec::<&str>::new()]);
        let three = subsets(&["a", "b", "c"]);
        assert_eq!(three.len(), 8);
        assert_eq!((&three[0], &three[7]), (&vec![], &vec!["a", "b", "c"]));
        assert!(three.contains(&vec!["a", "c"]));
    }

    #[test]
    fn the_library_with_drivers_is_among_the_packages() {
        let packages = workspace::packages(&workspace::root().unwrap()).unwrap();
        let library = packages.iter().find(|package| package.name == "tegra-hcq").unwrap();
        assert!(own_features(library).contains(&"sim"));
        assert!(!own_features(library).contains(&"default"));
    }
}
