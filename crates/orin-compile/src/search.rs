//! Search for the libraries NVRTC and nvJitLink and for the program ptxas: in the folders that the environment names,
//! in those of the dynamic loader or of `PATH`, in CUDA toolkits (JetPack has one) and in NVIDIA's packages for Python.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Folder of the CUDA toolkits.
const TOOLKITS: &str = "/usr/local";
/// Environment variables that choose a compiler.
pub const VARIABLES: [&str; 7] = [
    NVRTC.variable,
    NVJITLINK.variable,
    PTXAS.variable,
    TOOLKIT_VARIABLES[0],
    TOOLKIT_VARIABLES[1],
    PYTHON_VARIABLES[0],
    PYTHON_VARIABLES[1],
];
/// Environment variables with the folder of a CUDA toolkit.
const TOOLKIT_VARIABLES: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];
/// Environment variables with the folder of an active Python environment.
const PYTHON_VARIABLES: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];

/// A library or program of the CUDA toolkits.
#[derive(Debug)]
pub(super) struct Kind {
    /// Environment variable with the file or its folder, which ends the search.
    variable: &'static str,
    /// File names, in search order.
    names: &'static [&'static str],
    /// Its folders in a toolkit.
    folders: &'static [&'static str],
    /// Whether it is a program, which is searched in `PATH` instead of the dynamic loader's folders.
    is_program: bool,
    /// Its folders in NVIDIA's packages for Python, relative to the installed packages.
    packages: &'static [&'static str],
}

/// The compiler. Cubins of NVRTC 13 have a newer ABI version than the cubin loader supports, so 13 comes after 12 and
/// 11 (the file name of 11.2 to 11.8 is 11.2).
pub(super) const NVRTC: Kind = Kind {
    variable: "NVGPU_NVRTC",
    folders: &LIBRARY_FOLDERS,
    is_program: false,
    names: &["libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so.13", "libnvrtc.so"],
    packages: &["nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib"],
};
/// The linker, which compiles PTX.
pub(super) const NVJITLINK: Kind = Kind {
    variable: "NVGPU_NVJITLINK",
    folders: &LIBRARY_FOLDERS,
    is_program: false,
    names: &["libnvJitLink.so.12", "libnvJitLink.so.13", "libnvJitLink.so"],
    packages: &["nvidia/nvjitlink/lib", "nvidia/cu13/lib"],
};
/// The assembler of PTX, a program.
pub(super) const PTXAS: Kind = Kind {
    variable: "NVGPU_PTXAS",
    names: &["ptxas"],
    folders: &["bin"],
    is_program: true,
    packages: &["nvidia/cuda_nvcc/bin", "nvidia/cu13/bin"],
};
/// Folders of libraries inside a CUDA toolkit.
const LIBRARY_FOLDERS: [&str; 4] =
    ["lib64", "targets/aarch64-linux/lib", "targets/sbsa-linux/lib", "targets/x86_64-linux/lib"];
/// Prefix of the name of the library that NVRTC itself loads to compile.
const BUILTINS: &str = "libnvrtc-builtins.so";

/// Folders to search.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// Toolkits that the environment names.
    named: Vec<PathBuf>,
    /// Python environments that are active.
    active: Vec<PathBuf>,
    /// Folders of programs.
    path: Vec<PathBuf>,
    /// Folder with toolkits.
    toolkits: PathBuf,
    /// Other Python installations: the user's own packages, the system's.
    installed: Vec<PathBuf>,
}

impl Places {
    /// Those of this process.
    pub(super) fn of_environment() -> Self {
        let folders = |variables: &[&str]| -> Vec<PathBuf> {
            variables
                .iter()
                .filter_map(env::var_os)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .collect()
        };
        let home = folders(&["HOME"]).into_iter().map(|home| home.join(".local"));
        Self {
            named: folders(&TOOLKIT_VARIABLES),
            active: folders(&PYTHON_VARIABLES),
            path: env::var_os("PATH").map_or_else(Vec::new, |path| env::split_paths(&path).collect()),
            toolkits: PathBuf::from(TOOLKITS),
            installed: home.chain(["/usr/local", "/usr"].map(PathBuf::from)).collect(),
        }
    }
}

/// Candidates in search order, and places without a candidate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// Paths, and names without a folder for the dynamic loader.
    pub(super) candidates: Vec<PathBuf>,
    /// Places without a candidate, one sentence each.
    pub(super) empty: Vec<String>,
}

impl Search {
    /// The place that the environment variable of a kind names, otherwise the usual ones.
    pub(super) fn of_environment(kind: &Kind) -> Self {
        match env::var_os(kind.variable).filter(|place| !place.is_empty()) {
            Some(place) => Self::chosen(kind, &place),
            None => Self::usual(kind, &Places::of_environment()),
        }
    }

    /// Only the user's choice, a file or a folder.
    pub(super) fn chosen(kind: &Kind, place: &OsStr) -> Self {
        let place = Path::new(place);
        if !place.is_dir() {
            return Self { candidates: vec![place.to_owned()], empty: Vec::new() };
        }
        let mut search = Self::default();
        search.add_folder(kind, place);
        search
    }

    /// What the environment names, the dynamic loader's folders, CUDA toolkits, and other Python installations.
    pub(super) fn usual(kind: &Kind, places: &Places) -> Self {
        let mut search = Self::default();
        places.named.iter().for_each(|toolkit| search.add_toolkit(kind, toolkit));
        for environment in &places.active {
            if !search.add_python(kind, environment) {
                let text =
                    format!("{}: no package with {} in it", environment.display(), kind.names.join(", "));
                search.empty.push(text);
            }
        }
        if kind.is_program {
            let folders = places.path.iter().filter(|folder| folder.is_absolute());
            search.candidates.extend(folders.flat_map(|folder| present(kind, folder)));
        } else {
            search.candidates.extend(kind.names.iter().map(PathBuf::from));
        }
        let toolkits = toolkits(&places.toolkits);
        if toolkits.is_empty() {
            search.empty.push(format!("{}: no CUDA toolkit", places.toolkits.join("cuda*").display()));
        }
        toolkits.iter().for_each(|toolkit| search.add_toolkit(kind, toolkit));
        for prefix in &places.installed {
            search.add_python(kind, prefix);
        }
        search
    }

    fn add_toolkit(&mut self, kind: &Kind, toolkit: &Path) {
        for folder in kind.folders.iter().map(|folder| toolkit.join(folder)) {
            if folder.is_dir() {
                self.add_folder(kind, &folder);
            }
        }
    }

    /// Adds the packages of a Python installation; returns whether one contains the library.
    fn add_python(&mut self, kind: &Kind, prefix: &Path) -> bool {
        let before = self.candidates.len();
        for packages in python_packages(prefix) {
            for folder in kind.packages.iter().map(|folder| packages.join(folder)) {
                self.candidates.extend(present(kind, &folder));
            }
        }
        self.candidates.len() > before
    }

    fn add_folder(&mut self, kind: &Kind, folder: &Path) {
        let before = self.candidates.len();
        self.candidates.extend(present(kind, folder));
        if self.candidates.len() == before {
            self.empty.push(format!("{}: no {} in it", folder.display(), kind.names.join(", ")));
        }
    }
}

/// The files of a library in a folder.
fn present(kind: &Kind, folder: &Path) -> impl Iterator<Item = PathBuf> {
    kind.names.iter().map(move |name| folder.join(name)).filter(|path| path.exists())
}

/// Folders with the packages of a Python installation, from the newest version to the oldest.
fn python_packages(prefix: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(prefix.join("lib")) else { return Vec::new() };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.strip_prefix("python3")?.trim_start_matches('.');
            Some((version.parse().unwrap_or(0), path))
        })
        .collect();
    versions.sort_by_key(|(version, _)| core::cmp::Reverse(*version));
    versions
        .iter()
        .flat_map(|(_, path)| ["site-packages", "dist-packages"].map(|name| path.join(name)))
        .collect()
}

/// Folders of headers, relative to the folder of the library, each with a file that is in the right one. The first two
/// are those of a toolkit (lib64 and targets/MACHINE/lib), the second since CUDA 13; the others are Python packages
/// beside that of the library.
const HEADERS: [(&str, &str); 5] = [
    ("../include", "cuda_fp16.h"),
    ("../include/cccl", "nv/target"),
    ("../../cuda_runtime/include", "cuda_fp16.h"),
    ("../../cuda_cccl/include", "nv/target"),
    ("../../cuda_nvcc/include", "crt/mma.h"),
];

/// Folders with CUDA's headers that belong to a library: those of its toolkit or of its Python packages.
pub(super) fn headers_beside(library: &Path) -> Vec<PathBuf> {
    let Some(folder) = library.parent() else { return Vec::new() };
    let found = HEADERS.map(|(place, file)| (folder.join(place), file)).into_iter();
    found
        .filter(|(place, file)| place.join(file).is_file())
        .filter_map(|(place, _)| place.canonicalize().ok())
        .collect()
}

/// The file that is mapped at an address of this process.
pub(super) fn mapped_at(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (first, last) = line.split_once(' ')?.0.split_once('-')?;
        let range = usize::from_str_radix(first, 16).ok()?..usize::from_str_radix(last, 16).ok()?;
        let path = line.find('/').map(|at| PathBuf::from(&line[at..]));
        path.filter(|_| range.contains(&address))
    })
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

    /// Only toolkits.
    fn usual(toolkits: &Path) -> Search {
        Search::usual(&NVRTC, &Places { toolkits: toolkits.to_owned(), ..Places::default() })
    }

    #[test]
    fn what_the_environment_names_comes_first_and_other_packages_last() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for file in [
            "toolkit/lib64/libnvrtc.so.12",
            "venv/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2",
            "venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            "venv/lib/python3.12/site-packages/nvidia/nvjitlink/lib/libnvJitLink.so.12",
            "venv/lib/python3.12/site-packages/nvidia/cuda_runtime/include/cuda_fp16.h",
            "venv/lib/python3.12/site-packages/nvidia/cuda_cccl/include/nv/target",
            "venv/lib/python3.12/site-packages/nvidia/cuda_nvcc/include/crt/mma.h",
            "venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/include/nvrtc.h",
            "system/lib/python3/dist-packages/nvidia/cu13/include/cuda_fp16.h",
            "system/lib/python3/dist-packages/nvidia/cu13/include/cccl/nv/target",
            "local/cuda/lib64/libnvrtc.so",
            "local/cuda/bin/ptxas",
            "programs/ptxas",
            "venv/lib/python3.12/site-packages/nvidia/cuda_nvcc/bin/ptxas",
            "system/lib/python3/dist-packages/nvidia/cu13/lib/libnvrtc.so.13",
        ] {
            touch(&path(file));
        }
        let places = Places {
            named: vec![path("toolkit")],
            active: vec![path("venv"), path("empty")],
            path: vec![path("absent"), path("programs")],
            toolkits: path("local"),
            installed: vec![path("absent"), path("system")],
        };
        let search = Search::usual(&NVRTC, &places);
        let found: Vec<_> =
            search.candidates.iter().map(|found| found.strip_prefix(&root).unwrap_or(found)).collect();
        let packages = "venv/lib/python3.12/site-packages/nvidia";
        let library = format!("{packages}/cuda_nvrtc/lib/libnvrtc.so.12");
        assert_eq!(found[0], Path::new("toolkit/lib64/libnvrtc.so.12"));
        assert_eq!(found[1], Path::new(&library));
        assert!(found[2].starts_with("venv/lib/python3.9"));
        assert_eq!(found[3..7], NVRTC.names.iter().map(Path::new).collect::<Vec<_>>());
        assert_eq!(found[7], Path::new("local/cuda/lib64/libnvrtc.so"));
        assert!(found[8].starts_with("system/lib/python3/dist-packages") && found.len() == 9);
        assert!(search.empty.iter().any(|text| text.contains("/empty: no package")), "{:?}", search.empty);
        let linkers = Search::usual(&NVJITLINK, &places).candidates;
        assert_eq!(linkers[0], path(packages).join("nvjitlink/lib/libnvJitLink.so.12"));

        let programs = Search::usual(&PTXAS, &places).candidates;
        let expected = [&format!("{packages}/cuda_nvcc/bin/ptxas"), "programs/ptxas", "local/cuda/bin/ptxas"];
        assert_eq!(programs, expected.map(path));

        for (library, base, folders) in [
            (&*library, packages, &["cuda_runtime/include", "cuda_cccl/include", "cuda_nvcc/include"][..]),
            (
                "system/lib/python3/dist-packages/nvidia/cu13/lib/libnvrtc.so.13",
                "system/lib/python3/dist-packages/nvidia/cu13",
                &["include", "include/cccl"],
            ),
            ("toolkit/lib64/libnvrtc.so.12", "toolkit", &[]),
        ] {
            let whole = |path: &PathBuf| path.canonicalize().unwrap();
            let headers: Vec<_> = headers_beside(&path(library)).iter().map(whole).collect();
            let expected: Vec<_> = folders.iter().map(|name| whole(&path(base).join(name))).collect();
            assert_eq!(headers, expected);
        }
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
        let search = usual(root.path());
        assert_eq!(
            search.candidates[..NVRTC.names.len()],
            NVRTC.names.iter().map(PathBuf::from).collect::<Vec<_>>()
        );
        let toolkits: Vec<_> =
            search.candidates[NVRTC.names.len()..].iter().map(|p| p.strip_prefix(&root).unwrap()).collect();
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
        let search = usual(root.path());
        assert_eq!(search.candidates, NVRTC.names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(search.empty, [format!("{}/cuda*: no CUDA toolkit", root.path().display())]);
    }

    #[test]
    fn the_users_choice_is_the_only_one() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("libnvrtc.so.12");
        let folder = Search::chosen(&NVRTC, root.path().as_os_str());
        assert_eq!(folder.candidates, Vec::<PathBuf>::new());
        assert!(folder.empty[0].contains("libnvrtc.so.12"), "{:?}", folder.empty);

        touch(&file);
        let expected = Search { candidates: vec![file.clone()], empty: Vec::new() };
        assert_eq!(Search::chosen(&NVRTC, root.path().as_os_str()), expected);
        assert_eq!(Search::chosen(&NVRTC, file.as_os_str()), expected);
        let absent = Search::chosen(&NVRTC, OsStr::new("/no/such/libnvrtc.so"));
        assert_eq!(absent.candidates, [Path::new("/no/such/libnvrtc.so")]);
    }

    #[test]
    fn the_file_of_loaded_code_is_known() {
        let program = std::env::current_exe().unwrap().canonicalize().unwrap();
        assert_eq!(mapped_at(touch as *const () as usize), Some(program));
        assert_eq!(mapped_at(0), None);
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
