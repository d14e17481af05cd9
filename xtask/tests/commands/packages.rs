//! What the registry shows of the published packages, and what the build needs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The root of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Output of a cargo command that asks no registry.
fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    let output = command.args(arguments).arg("--offline").current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The packages of the workspace in cargo's description.
fn packages() -> Vec<Value> {
    let mut metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version=1"])).unwrap();
    serde_json::from_value(metadata["packages"].take()).unwrap()
}

fn published() -> Vec<Value> {
    packages().into_iter().filter(|package| package["publish"].is_null()).collect()
}

#[test]
fn published_packages_describe_themselves() {
    let published = published();
    let folders = std::fs::read_dir(root().join("crates")).unwrap();
    let crates = folders.filter(|folder| folder.as_ref().unwrap().path().join("Cargo.toml").exists());
    assert_eq!(
        published.len(),
        crates.count(),
        "the folder `crates` has all published packages and no others"
    );
    for package in published {
        let name = package["name"].as_str().unwrap();
        let list = |key: &str| package[key].as_array().unwrap().len();
        assert!((1..=5).contains(&list("keywords")) && (1..=5).contains(&list("categories")), "{name}");
        assert!(package["description"].as_str().is_some_and(|text| text.len() > 30), "{name}");
        assert_eq!(package["metadata"]["docs"]["rs"]["all-features"], true, "{name}");
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            assert!(text.len() > 200, "{name}: {file}");
        }
    }
}

/// Cargo would look for a version in the registry, where the name may belong to another package.
#[test]
fn unpublished_packages_are_named_without_a_version() {
    let all = packages();
    let unpublished: Vec<&str> = all
        .iter()
        .filter(|package| !package["publish"].is_null())
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    assert!(unpublished.contains(&"test-support"));
    for package in published() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if unpublished.contains(&name) {
                assert_eq!((&dependency["kind"], &dependency["req"]), (&"dev".into(), &"*".into()), "{name}");
            }
        }
    }
}

/// Features of each package that a selection of packages builds, by name and version.
fn features(selection: &[&str]) -> BTreeMap<String, Vec<String>> {
    let format = ["--prefix", "none", "--format", "{p}|{f}"];
    let tree = cargo(&[&["tree", "--locked"], selection, &format[..]].concat());
    let mut features: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let (package, list) = line.trim_end_matches(" (*)").split_once('|').unwrap();
        let package = package.split(" (").next().unwrap();
        let known = features.entry(package.to_owned()).or_default();
        if !known.iter().any(|known| known == list) {
            known.push(list.to_owned());
        }
    }
    features
}

/// Otherwise `cargo xtask` and `cargo test --workspace` build the same packages twice.
#[test]
fn programs_have_the_features_of_the_workspace() {
    let all = features(&["--workspace", "--edges", "normal,build,dev"]);
    let mut differences = Vec::new();
    for program in ["xtask", "orin-dev"] {
        for (package, own) in features(&["--package", program, "--edges", "normal,build"]) {
            for list in own.iter().filter(|list| !all[&package].contains(list)) {
                differences
                    .push(format!("{program}: {package} [{list}], in the workspace {:?}", all[&package]));
            }
        }
    }
    // A small crate of this workspace, whose options that need tegra-hcq the checks of sources do without.
    differences.retain(|difference| !difference.starts_with("xtask: orin-cli"));
    assert!(differences.is_empty(), "add to the program's Cargo.toml:\n{}", differences.join("\n"));
}
