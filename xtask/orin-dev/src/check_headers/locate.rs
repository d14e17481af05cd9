//! Finds the headers under the folder that the user names.
//!
//! The sources of a release contain them under `nvgpu/` and `nvidia-oot/` (r36), or under `kernel/nvgpu` and
//! `kernel/nvidia` (r35); installed headers are in one folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nvgpu_sys::headers;
use orin_cli::UsageError;

/// Maximum depth of the search.
const DEPTH: usize = 24;

/// Returns the file of each header of `headers::ALL`, in that order.
pub(super) fn headers(root: &Path) -> Result<Vec<Option<PathBuf>>> {
    let root = fs::canonicalize(root).with_context(|| format!("resolving {}", root.display()))?;
    let names: Vec<&str> = headers::ALL.iter().map(|header| file_name(header.path)).collect();
    let mut files = Vec::new();
    collect(&root, &names, 0, &mut files)?;
    let found: Vec<Option<PathBuf>> =
        headers::ALL.iter().map(|header| best(&root, header.path, &files)).collect();
    if found.iter().all(Option::is_none) {
        return Err(UsageError(format!(
            "none of {} is under {}; give the folder of an L4T release's sources, such as the one with \
             nvgpu/include/uapi/linux/nvgpu.h in it, or a folder with copies of these headers",
            names.join(", "),
            root.display()
        ))
        .into());
    }
    Ok(found)
}

/// Collects all files with one of these names, without following links.
fn collect(folder: &Path, names: &[&str], depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // An unreadable folder below the root does not contain the headers.
        Err(_) if depth > 0 => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth < DEPTH {
            collect(&entry.path(), names, depth + 1, files)?;
        } else if entry.file_name().to_str().is_some_and(|name| names.contains(&name))
            && entry.path().is_file()
        {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Returns the most likely file: at the path of the release, else in a folder `uapi/linux`, else directly in
/// the root or in its folder `linux`; among several, the one with the shortest path.
///
/// A header with the same name elsewhere is a different one: `nvidia-oot/include/linux/nvmap.h` is the
/// kernel's own.
fn best(root: &Path, path: &str, files: &[PathBuf]) -> Option<PathBuf> {
    let name = file_name(path);
    let rank = |file: &Path| {
        let inside = file.strip_prefix(root).ok()?;
        if file.ends_with(path) {
            Some(0)
        } else if file.ends_with(Path::new("uapi/linux").join(name)) {
            Some(1)
        } else if inside == Path::new(name) || inside == Path::new("linux").join(name) {
            Some(2)
        } else {
            None
        }
    };
    files
        .iter()
        .filter_map(|file| Some((rank(file)?, file.components().count(), file)))
        .min()
        .map(|(_, _, file)| file.clone())
}

/// Returns the file name of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(root: &Path, path: &str) -> PathBuf {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        file
    }

    fn found(root: &Path, name: &str) -> Option<PathBuf> {
        let index = headers::ALL.iter().position(|header| file_name(header.path) == name).unwrap();
        super::headers(root).unwrap()[index].clone()
    }

    #[test]
    fn the_release_layout_wins_over_other_files_of_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        touch(&root, "nvidia-oot/include/linux/nvmap.h");
        touch(&root, "nvmap.h");
        let right = touch(&root, "source/nvidia-oot/include/uapi/linux/nvmap.h");
        assert_eq!(found(&root, "nvmap.h"), Some(right));
        assert_eq!(found(&root, "nvgpu.h"), None);
    }

    #[test]
    fn older_trees_and_flat_folders_are_searched() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let old = touch(&root, "kernel/nvidia/include/uapi/linux/nvmap.h");
        let flat = touch(&root, "nvgpu.h");
        let installed = touch(&root, "linux/nvgpu-as.h");
        touch(&root, "elsewhere/nvgpu-ctrl.h");
        assert_eq!(found(&root, "nvmap.h"), Some(old));
        assert_eq!(found(&root, "nvgpu.h"), Some(flat));
        assert_eq!(found(&root, "nvgpu-as.h"), Some(installed));
        assert_eq!(found(&root, "nvgpu-ctrl.h"), None);
    }

    #[test]
    fn the_kernels_own_nvmap_header_alone_is_wrong_use() {
        let folder = tempfile::tempdir().unwrap();
        touch(folder.path(), "nvidia-oot/include/linux/nvmap.h");
        let error = super::headers(folder.path()).unwrap_err();
        assert!(error.is::<UsageError>());
        assert!(error.to_string().contains("nvgpu.h"), "{error}");
    }
}
