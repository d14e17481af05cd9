//! The project's folder, for commands that need it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use orin_cli::{ExitStatus, UsageError};
use serde::Deserialize;

/// The cargo that runs this program, or else the one in PATH.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Returns the workspace root, the folder of the top-level Cargo.toml.
///
/// # Errors
///
/// Returns a [`UsageError`] if there is no cargo, or the current folder is not part of this workspace.
pub fn root() -> Result<PathBuf> {
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
        // Another project has no such folder.
        Some(root) if output.status.success() && root.join("crates/ampere-cmd/classes").is_dir() => {
            Ok(root.to_owned())
        }
        _ => Err(needs("the current folder is not part of them".to_owned()).into()),
    }
}

/// A package of the workspace.
#[derive(Debug, Deserialize)]
struct Package {
    /// Package name.
    name: String,
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
pub struct Target {
    /// Package name.
    pub package: String,
    /// Kind in cargo's terms: `lib`, `bin`, `test`, `bench`, `example`.
    pub kind: String,
    /// Target name.
    pub name: String,
    /// Root file.
    pub source: PathBuf,
}

impl Target {
    /// Whether this is a library for users: in the folder `crates`.
    pub fn is_library(&self) -> bool {
        let in_crates =
            |path: &Path| path.ancestors().nth(3).is_some_and(|folder| folder.ends_with("crates"));
        matches!(self.kind.as_str(), "lib" | "rlib" | "cdylib" | "staticlib") && in_crates(&self.source)
    }
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
fn packages(root: &Path) -> Result<Vec<Package>> {
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
pub fn targets(root: &Path) -> Result<Vec<Target>> {
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

/// Runs a program and waits for its end.
///
/// # Errors
///
/// If the program does not start, or fails.
pub fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// Exit code 0 for a command without another exit code on success.
///
/// # Errors
///
/// The error of `result`.
pub fn success(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitStatus::Success.into())
}
