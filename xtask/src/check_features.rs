//! `cargo xtask check-features`: every library of the workspace builds with none of its features, each one, each pair,
//! and all.
//!
//! Like `cargo hack check --feature-powerset --depth 2`, without an extra tool. Only code whose condition names three
//! features would need more.

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

/// The subsets of some features with at most two of them, the empty one first, and all of them last.
fn subsets<'a>(features: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut subsets = vec![Vec::new()];
    subsets.extend(features.iter().map(|feature| vec![*feature]));
    for (at, first) in features.iter().enumerate() {
        subsets.extend(features[at + 1..].iter().map(|second| vec![*first, *second]));
    }
    if features.len() > 2 {
        subsets.push(features.to_vec());
    }
    subsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_have_no_features_one_two_or_all() {
        assert_eq!(subsets(&[]), [Vec::<&str>::new()]);
        assert_eq!(subsets(&["a", "b"]), [vec![], vec!["a"], vec!["b"], vec!["a", "b"]]);
        let four = subsets(&["a", "b", "c", "d"]);
        assert_eq!(four.len(), 1 + 4 + 6 + 1);
        assert!(four.contains(&vec!["b", "d"]));
        assert_eq!(four.last().unwrap(), &["a", "b", "c", "d"]);
    }

    #[test]
    fn the_library_with_drivers_is_among_the_packages() {
        let packages = workspace::packages(&workspace::root().unwrap()).unwrap();
        let library = packages.iter().find(|package| package.name == "tegra-hcq").unwrap();
        assert!(own_features(library).contains(&"sim"));
        assert!(!own_features(library).contains(&"default"));
    }
}
