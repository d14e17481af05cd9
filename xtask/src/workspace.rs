//! The project's folder, for the commands that need it: the others run anywhere, without cargo.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::WrongUse;

/// The cargo that runs this program, or else the one that the shell finds.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The workspace root, where the top-level Cargo.toml is.
///
/// # Errors
///
/// [`WrongUse`] where there is no cargo, or where the current folder is not part of this workspace.
pub(crate) fn root() -> Result<PathBuf> {
    let needs = |reason: String| {
        WrongUse(format!(
            "this command needs cargo and the project's sources, but {reason}; run it as `cargo xtask` inside of \
             the project's folder"
        ))
    };
    let output = Command::new(cargo())
        .args(["locate-project", "--workspace", "--message-format=plain"])
        .output()
        .map_err(|error| needs(format!("cargo does not start ({error})")))?;
    let manifest = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    match manifest.parent() {
        // Another project's folder has no xtask, or one with other commands.
        Some(root) if output.status.success() && root.join("crates/ampere-cmd/classes").is_dir() => {
            Ok(root.to_owned())
        }
        _ => Err(needs("this folder is not part of them".to_owned()).into()),
    }
}
