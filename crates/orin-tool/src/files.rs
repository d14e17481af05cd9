//! Files that a command reads, and those of the wrong kind.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use cubin::FileKind;
use orin_cli::UsageError;

/// A usage error about a file.
pub(crate) fn wrong(path: &Path, error: impl Display) -> UsageError {
    UsageError(format!("{}: {error}", named(path)))
}

/// The name of a file in messages.
pub(crate) fn named(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// A usage error for a file that is something else than `wanted`.
pub(crate) fn not(path: &Path, found: FileKind, wanted: &str) -> UsageError {
    wrong(path, found.instead_of(wanted))
}

/// The kind of a file, by its start; `None` if it cannot be read.
pub(crate) fn kind(path: &Path) -> Option<FileKind> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(FileKind::EXAMINED as u64).read_to_end(&mut start).ok()?;
    Some(FileKind::of(&start))
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
///
/// [`UsageError`] if it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, UsageError> {
    let mut bytes = Vec::new();
    let done = if path == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    done.map_err(|error| wrong(path, error))?;
    Ok(bytes)
}

/// Reads a text file that is one of the `accepted` kinds.
///
/// # Errors
///
/// [`UsageError`] if it cannot be read, or is of another kind.
pub(crate) fn read_text(path: &Path, wanted: &str, accepted: &[FileKind]) -> Result<String, UsageError> {
    let bytes = read(path)?;
    let found = FileKind::of(&bytes);
    if !accepted.contains(&found) {
        return Err(not(path, found, wanted));
    }
    String::from_utf8(bytes).map_err(|error| wrong(path, error))
}
