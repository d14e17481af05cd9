//! Search for the NVRTC library.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Names of the library, in search order. Cubins of NVRTC 13 have a newer ABI version than the cubin loader supports,
/// so 13 comes after 12 and 11 (the file name of 11.2 to 11.8 is 11.2).
const NAMES: [&str; 4] = ["libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so.13", "libnvrtc.so"];
/// Folders of libraries inside a CUDA toolkit.
const LIBRARY_FOLDERS: [&str; 4] =
    ["lib64", "targets/aarch64-linux/lib", "targets/sbsa-linux/lib", "targets/x86_64-linux/lib"];
/// Prefix of the name of the library that NVRTC itself loads to compile.
const BUILTINS: &str = "libnvrtc-builtins.so";

/// Candidates in search order, and places without a candidate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// Paths, and names without a folder for the dynamic loader.
    pub(super) candidates: Vec<PathBuf>,
    /// Places without a candidate, one sentence each.
    pub(super) empty: Vec<String>,
}

impl Search {
    /// Only the user's choice, a file or a folder.
    pub(super) fn chosen(place: &OsStr) -> Self {
        let place = Path::new(place);
        if !place.is_dir() {
            return Self { candidates: vec![place.to_owned()], empty: Vec::new() };
        }
        let mut search = Self::default();
        search.add_folder(place);
        search
    }

    /// The dynamic loader's folders, then the CUDA toolkits in `root`, which is `/usr/local`.
    pub(super) fn usual(root: &Path) -> Self {
        let mut search = Self { candidates: NAMES.map(PathBuf::from).to_vec(), empty: Vec::new() };
        let toolkits = toolkits(root);
        if toolkits.is_empty() {
            search.empty.push(format!("{}: no CUDA toolkit", root.join("cuda*").display()));
        }
        for toolkit in toolkits {
            for folder in LIBRARY_FOLDERS.map(|folder| toolkit.join(folder)) {
                if folder.is_dir() {
                    search.add_folder(&folder);
                }
            }
        }
        search
    }

    fn add_folder(&mut self, folder: &Path) {
        let before = self.candidates.len();
        self.candidates.extend(NAMES.map(|name| folder.join(name)).into_iter().filter(|path| path.exists()));
        if self.candidates.len() == before {
            self.empty.push(format!("{}: no {} in it", folder.display(), NAMES.join(", ")));
        }
    }
}

/// `cuda`, the toolkit in use, then `cuda-*` from the newest to the oldest.
fn toolkits(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name == "cuda" || name.starts_with("cuda-"))
        .collect();
    let version = |name: &str| -> Vec<u32> {
        name.trim_start_matches("cuda-").split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    names.sort_by_key(|name| (name != "cuda", core::cmp::Reverse(version(name))));
    names.into_iter().map(|name| root.join(name)).collect()
}

/// NVRTC's companion libraries in the folder of `library`. NVRTC loads its companion by name, and finds it in its own
/// folder only if the packager configured that. A library that is already loaded is always found.
pub(super) fn builtins_beside(library: &Path) -> Vec<PathBuf> {
    let Some(folder) = library.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(BUILTINS))
        })
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn the_loader_comes_first_then_toolkits_from_the_newest() {
        let root = tempfile::tempdir().unwrap();
        for file in [
            "cuda-11.4/lib64/libnvrtc.so.11.2",
            "cuda-12.6/targets/aarch64-linux/lib/libnvrtc.so.12",
            "cuda-12.10/lib64/libnvrtc.so.12",
            "cuda/lib64/libnvrtc.so",
            "cuda/lib64/libnvrtc.so.12",
            "cudart/lib64/libnvrtc.so.12",
        ] {
            touch(&root.path().join(file));
        }
        let search = Search::usual(root.path());
        assert_eq!(search.candidates[..NAMES.len()], NAMES.map(PathBuf::from));
        let toolkits: Vec<_> =
            search.candidates[NAMES.len()..].iter().map(|p| p.strip_prefix(&root).unwrap()).collect();
        assert_eq!(
            toolkits,
            [
                "cuda/lib64/libnvrtc.so.12",
                "cuda/lib64/libnvrtc.so",
                "cuda-12.10/lib64/libnvrtc.so.12",
                "cuda-12.6/targets/aarch64-linux/lib/libnvrtc.so.12",
                "cuda-11.4/lib64/libnvrtc.so.11.2",
            ]
            .map(Path::new)
        );
        assert_eq!(search.empty, Vec::<String>::new());
    }

    #[test]
    fn a_machine_without_toolkits_is_told_so() {
        let root = tempfile::tempdir().unwrap();
        let search = Search::usual(root.path());
        assert_eq!(search.candidates, NAMES.map(PathBuf::from));
        assert_eq!(search.empty, [format!("{}/cuda*: no CUDA toolkit", root.path().display())]);
    }

    #[test]
    fn the_users_choice_is_the_only_one() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("libnvrtc.so.12");
        let folder = Search::chosen(root.path().as_os_str());
        assert_eq!(folder.candidates, Vec::<PathBuf>::new());
        assert!(folder.empty[0].contains("libnvrtc.so.12"), "{:?}", folder.empty);

        touch(&file);
        let expected = Search { candidates: vec![file.clone()], empty: Vec::new() };
        assert_eq!(Search::chosen(root.path().as_os_str()), expected);
        assert_eq!(Search::chosen(file.as_os_str()), expected);
        let absent = Search::chosen(OsStr::new("/no/such/libnvrtc.so"));
        assert_eq!(absent.candidates, [Path::new("/no/such/libnvrtc.so")]);
    }

    #[test]
    fn companions_are_found_beside_a_library_with_a_folder() {
        let root = tempfile::tempdir().unwrap();
        for name in ["libnvrtc.so.12", "libnvrtc-builtins.so.12.6", "libnvrtc-builtins.alt.so.12.6"] {
            touch(&root.path().join(name));
        }
        let companion = root.path().join("libnvrtc-builtins.so.12.6");
        assert_eq!(builtins_beside(&root.path().join("libnvrtc.so.12")), [companion]);
        assert_eq!(builtins_beside(Path::new("libnvrtc.so.12")), Vec::<PathBuf>::new());
    }
}
