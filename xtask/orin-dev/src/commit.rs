//! The commit of the sources, for reports and packs.

use std::path::Path;
use std::process::Command;

use xtask::workspace::root;

/// Environment variable of a build with the commit of the sources, for programs that run elsewhere.
pub(crate) const VARIABLE: &str = "NVGPU_COMMIT";

/// The commit of this program's sources: that of the build, or that of the project's folder if the program runs inside;
/// `None` if unknown.
pub(crate) fn of_this_program() -> Option<String> {
    // The variable's name is a literal: the compiler reads it.
    option_env!("NVGPU_COMMIT").map(str::to_owned).or_else(|| of_folder(&root().ok()?))
}

/// The commit of a folder, with a note if its files differ; `None` if it is not in a repository.
pub(crate) fn of_folder(root: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit} with changes") })
}
