//! The project's folder, for commands that need it. Other commands run anywhere, without cargo.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use orin_cli::UsageError;
use serde::Deserialize;

/// The cargo that runs this program, or else the one in PATH.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Returns the workspace root, the folder of the top-level Cargo.toml.
///
/// # Errors
///
/// Returns a [`UsageError`] if there is no cargo, or the current folder is not part of this workspace.
pub(crate) fn root() -> Result<PathBuf> {
    let needs = |reason: String| {
        UsageError(format!(
            "this command needs cargo and the project's sources, but {reason}; run it as `cargo xtask` inside \
             the project's folder"
        ))
    };
    let output = Command::new(cargo())
        .args(["locate-project", "--workspace", "--message-format=plain"])
        .output()
        .map_err(|error| needs(format!("cargo does not start ({error})")))?;
    let manifest = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    match manifest.parent() {
        // Another project has no xtask, or one with other commands.
        Some(root) if output.status.success() && root.join("crates/ampere-cmd/classes").is_dir() => {
            Ok(root.to_owned())
        }
        _ => Err(needs("the current folder is not part of them".to_owned()).into()),
    }
}

/// Environment variable of a build with the commit of the sources, for programs that run elsewhere.
pub(crate) const COMMIT_VARIABLE: &str = "NVGPU_COMMIT";

/// The commit of this program's sources: that of the build, or that of the project's folder if the program runs inside;
/// `None` if unknown.
pub(crate) fn commit() -> Option<String> {
    // The variable's name is a literal: the compiler reads it.
    option_env!("NVGPU_COMMIT").map(str::to_owned).or_else(|| commit_of(&root().ok()?))
}

/// The commit of a folder, with a note if its files differ; `None` if it is not in a repository.
pub(crate) fn commit_of(root: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit} with changes") })
}

/// A package of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// Package name.
    pub(crate) name: String,
    /// Features, each with the features that it enables.
    pub(crate) features: BTreeMap<String, Vec<String>>,
    /// Targets of the package.
    targets: Vec<TargetEntry>,
}

/// A target in cargo's description of a package.
#[derive(Debug, Deserialize)]
struct TargetEntry {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

/// A crate: one compilation unit.
#[derive(Debug)]
pub(crate) struct Target {
    /// Package name.
    package: String,
    /// Kind in cargo's terms: `lib`, `bin`, `test`, `bench`, `example`.
    pub(crate) kind: String,
    /// Target name.
    name: String,
    /// Root file.
    pub(crate) source: PathBuf,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.as_str() {
            "lib" => f.write_str(&self.package),
            kind => write!(f, "{} ({kind} {})", self.package, self.name),
        }
    }
}

/// The packages of the workspace at `root`.
///
/// # Errors
///
/// If cargo fails.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let mut command = Command::new(cargo());
    command.args(["metadata", "--no-deps", "--format-version=1"]).current_dir(root);
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    Ok(metadata.packages)
}

/// The crates of the workspace at `root`.
///
/// # Errors
///
/// If cargo fails.
pub(crate) fn targets(root: &Path) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for package in packages(root)? {
        for entry in package.targets {
            let kind = entry.kind.first().cloned().unwrap_or_default();
            targets.push(Target {
                package: package.name.clone(),
                kind,
                name: entry.name,
                source: entry.src_path,
            });
        }
    }
    Ok(targets)
}
