//! Cubins that the user names, for commands that run programs with driver code of their own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use orin_cli::UsageError;
use orin_sim::check::BadCubin;

/// Passes the cubins of `paths` on: files, and the files with the ending `.cubin` of folders. In a folder, cubins for
/// other GPUs are left out.
///
/// # Errors
///
/// [`UsageError`] for a file that cannot be read or is no cubin for the Orin, and for a folder without any.
pub(crate) fn add(paths: &[PathBuf], mut add: impl FnMut(&[u8]) -> Result<(), BadCubin>) -> Result<()> {
    for path in paths {
        if path.is_dir() {
            add_folder(path, &mut add)?;
        } else {
            add_file(path, &mut add)?.map_err(|error| refused(path, &error))?;
        }
    }
    Ok(())
}

fn add_folder(folder: &Path, add: &mut impl FnMut(&[u8]) -> Result<(), BadCubin>) -> Result<()> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| refused(folder, &error))?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "cubin"));
    files.sort();
    let mut added = 0;
    for file in &files {
        match add_file(file, add)? {
            Ok(()) => added += 1,
            Err(BadCubin::OtherGpu(_)) => {}
            Err(error) => return Err(refused(file, &error)),
        }
    }
    if added == 0 {
        return Err(refused(folder, &"the folder has no file *.cubin for the Orin (sm_87)"));
    }
    Ok(())
}

/// Reads a file. Returns whether it is a cubin.
fn add_file(
    path: &Path,
    add: &mut impl FnMut(&[u8]) -> Result<(), BadCubin>,
) -> Result<Result<(), BadCubin>> {
    let file = fs::read(path).map_err(|error| refused(path, &error))?;
    Ok(add(&file))
}

fn refused(path: &Path, error: &dyn core::fmt::Display) -> anyhow::Error {
    UsageError(format!("{}: {error}", path.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents that are passed on, or the refusal.
    fn added(paths: &[PathBuf]) -> Result<Vec<String>, String> {
        let bad = || cubin::Cubin::parse(b"").unwrap_err();
        let mut seen = Vec::new();
        let result = add(paths, |bytes| match bytes {
            b"hopper" => Err(BadCubin::OtherGpu(bad())),
            b"text" => Err(BadCubin::Unreadable(bad())),
            bytes => {
                seen.push(String::from_utf8(bytes.to_vec()).unwrap());
                Ok(())
            }
        });
        result.map(|()| seen).map_err(|error| error.to_string())
    }

    #[test]
    fn a_folder_may_have_cubins_for_other_gpus() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            fs::write(folder.path().join(name), content).unwrap();
            folder.path().join(name)
        };
        let hopper = file("b.cubin", "hopper");
        let whole = [folder.path().to_owned()];
        assert!(added(&whole).unwrap_err().contains("no file *.cubin for the Orin"));
        let last = file("c.cubin", "last");
        file("a.cubin", "first");
        file("notes.txt", "text");
        assert_eq!(added(&whole).unwrap(), ["first", "last"], "in the order of their names");
        assert_eq!(added(&[last]).unwrap(), ["last"]);
        assert!(added(&[hopper]).unwrap_err().contains("b.cubin: a cubin for another GPU"));
        file("d.cubin", "text");
        assert!(added(&whole).unwrap_err().contains("d.cubin: not a cubin"));
        assert!(added(&[folder.path().join("absent")]).unwrap_err().contains("absent: No such file"));
    }
}
