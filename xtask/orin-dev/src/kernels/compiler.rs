//! Releases of NVRTC: installation, and compilation of sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use orin_cli::say;

/// Placeholder in the lock file for the folder of CUDA's headers, which differs between machines.
const INCLUDE: &str = "--include-path={cuda headers}";
/// Placeholder for the folder of the source.
const BESIDE: &str = "--include-path={sources}";
/// Location of NVRTC in JetPack and in NVIDIA's packages for Linux.
const SYSTEM_NVRTC: [&str; 3] = [
    "/usr/local/cuda-12.6/lib64/libnvrtc.so.12",
    "/usr/local/cuda-12/lib64/libnvrtc.so.12",
    "/usr/local/cuda/lib64/libnvrtc.so.12",
];

/// A release of NVRTC as PyPI packages.
#[derive(Debug)]
pub(super) struct Release {
    /// The version that NVRTC reports.
    pub(super) version: &'static str,
    /// Package and version of the compiler.
    nvrtc: (&'static str, &'static str),
    /// Package and version of headers such as `cuda_fp16.h`, which NVRTC does not include.
    headers: (&'static str, &'static str),
    /// The library, relative to the installed packages.
    library: &'static str,
    /// The headers, relative to the installed packages.
    include: &'static str,
    /// Virtual environment in the workspace root.
    venv: &'static str,
}

/// The release that compiles the kernels of tests, examples and benchmarks.
pub(super) const PINNED: Release = Release {
    version: "12.6",
    nvrtc: ("nvidia-cuda-nvrtc-cu12", "12.6.85"),
    headers: ("nvidia-cuda-runtime-cu12", "12.6.77"),
    library: "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    include: "nvidia/cuda_runtime/include",
    venv: ".venv",
};

/// The releases that compile the corpus.
pub(super) const RELEASES: [Release; 4] = [
    Release {
        version: "12.2",
        nvrtc: ("nvidia-cuda-nvrtc-cu12", "12.2.140"),
        headers: ("nvidia-cuda-runtime-cu12", "12.2.140"),
        venv: ".venv-12.2",
        ..PINNED
    },
    PINNED,
    Release {
        version: "12.9",
        nvrtc: ("nvidia-cuda-nvrtc-cu12", "12.9.86"),
        headers: ("nvidia-cuda-runtime-cu12", "12.9.79"),
        venv: ".venv-12.9",
        ..PINNED
    },
    // The packages of CUDA 13 share one folder.
    Release {
        version: "13.0",
        nvrtc: ("nvidia-cuda-nvrtc", "13.0.88"),
        headers: ("nvidia-cuda-runtime", "13.0.96"),
        library: "nvidia/cu13/lib/libnvrtc.so.13",
        include: "nvidia/cu13/include",
        venv: ".venv-13.0",
    },
];

/// A compiler that is ready for use.
pub(super) struct Compiler {
    python: PathBuf,
    library: PathBuf,
    /// Folder of CUDA's headers, if there is one.
    headers: Option<PathBuf>,
    /// The compiler's name in the lock file.
    pub(super) name: String,
    /// The version that the library reports, if it was queried.
    version: Option<String>,
}

impl Compiler {
    /// NVRTC of a release in its virtual environment, which is created if missing. If that cannot be
    /// done (no network), the system's NVRTC, if it has the right version.
    pub(super) fn pinned(folder: &Path, release: &Release) -> Result<Self> {
        let venv = folder.with_file_name(release.venv);
        let error = match Self::from_packages(&venv, release) {
            Ok(compiler) => return Ok(compiler),
            Err(error) => error,
        };
        for library in SYSTEM_NVRTC.map(Path::new).into_iter().filter(|p| p.exists()) {
            match Self::of_version(folder, library, release.version) {
                Ok(compiler) => {
                    say!("no NVRTC from PyPI ({error:#}): using the system's")?;
                    return Ok(compiler);
                }
                Err(reason) => say!("{} cannot be used: {reason:#}", library.display())?,
            }
        }
        Err(error.context("installing NVRTC from PyPI; there is no system NVRTC either"))
    }

    fn from_packages(venv: &Path, release: &Release) -> Result<Self> {
        let python = venv.join("bin/python");
        if !python.exists() {
            say!("creating {}", venv.display())?;
            xtask::workspace::run_command(Command::new("python3").args(["-m", "venv"]).arg(venv))
                .context("making a virtual environment (on Debian and Ubuntu: apt install python3-venv)")?;
        }
        let output = Command::new(&python)
            .args(["-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"])
            .output()
            .with_context(|| format!("running {}", python.display()))?;
        let packages = PathBuf::from(String::from_utf8(output.stdout)?.trim());
        let wanted = [release.nvrtc, release.headers];
        let installed = |(name, version): &(&str, &str)| {
            packages.join(format!("{}-{version}.dist-info", name.replace('-', "_"))).is_dir()
        };
        if !wanted.iter().all(installed) {
            let pinned = wanted.map(|(name, version)| format!("{name}=={version}"));
            say!("installing {}", pinned.join(" and "))?;
            xtask::workspace::run_command(
                Command::new(&python)
                    .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                    .args(pinned),
            )?;
        }
        let compiler = Self {
            python,
            library: packages.join(release.library),
            headers: Some(packages.join(release.include)),
            name: format!("NVRTC {} ({})", release.nvrtc.1, release.nvrtc.0),
            version: None,
        };
        ensure!(compiler.library.is_file(), "{} is missing", compiler.library.display());
        Ok(compiler)
    }

    /// The NVRTC of a CUDA toolkit, if it has the version of the committed output.
    pub(super) fn of_version(folder: &Path, library: &Path, wanted: &str) -> Result<Self> {
        let compiler = Self::from_library(folder, library)?;
        ensure!(
            compiler.version.as_deref() == Some(wanted),
            "{} is {}; the committed cubins are compiled by {wanted} (--output accepts any version)",
            library.display(),
            compiler.name
        );
        Ok(compiler)
    }

    /// The NVRTC of a CUDA toolkit or of a package from PyPI, whatever its version.
    pub(super) fn from_library(folder: &Path, library: &Path) -> Result<Self> {
        let library = library.canonicalize().with_context(|| format!("finding {}", library.display()))?;
        let python = PathBuf::from("python3");
        let output = Command::new(&python)
            .arg(folder.join("compile.py"))
            .arg("--nvrtc")
            .arg(&library)
            .arg("--version")
            .output()
            .context("running python3")?;
        if !output.status.success() {
            bail!("loading {}: {}", library.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
        let version = String::from_utf8(output.stdout)?.trim().to_owned();
        let headers = headers_beside(&library);
        Ok(Self {
            python,
            library,
            headers,
            name: format!("NVRTC {version} (system)"),
            version: Some(version),
        })
    }

    /// Compiles one source for a chip and returns the other options, for the lock file. `folder` has `compile.py`.
    ///
    /// A line `// nvrtc: OPTION...` in the source adds options. Sources with an include in angle brackets see
    /// CUDA's headers; sources with an include in quotes see the headers next to the source.
    pub(super) fn compile(
        &self,
        folder: &Path,
        source: &Path,
        cubin: &Path,
        arch: &str,
    ) -> Result<Vec<String>> {
        self.compile_with(folder, source, cubin, arch, &[])
    }

    /// As [`Compiler::compile`], with further options.
    pub(super) fn compile_with(
        &self,
        folder: &Path,
        source: &Path,
        cubin: &Path,
        arch: &str,
        more: &[&str],
    ) -> Result<Vec<String>> {
        let text = fs::read_to_string(source).with_context(|| format!("reading {}", source.display()))?;
        let mut options: Vec<String> = Vec::new();
        let added = text.lines().filter_map(|line| line.strip_prefix("// nvrtc: "));
        options.extend(added.flat_map(str::split_whitespace).map(str::to_owned));
        options.extend(more.iter().map(|&option| option.to_owned()));
        let mut command = Command::new(&self.python);
        command
            .arg(folder.join("compile.py"))
            .arg("--nvrtc")
            .arg(&self.library)
            .arg("--source")
            .arg(source)
            .arg("--output")
            .arg(cubin)
            .arg(format!("--option=--gpu-architecture={arch}"))
            .args(options.iter().map(|option| format!("--option={option}")));
        let includes = |start: &str| text.lines().any(|line| line.trim_start().starts_with(start));
        if includes("#include <") {
            let headers = self.headers.as_deref().with_context(|| {
                format!("{} needs CUDA's headers, which are not installed next to NVRTC", source.display())
            })?;
            command.arg(format!("--option=--include-path={}", headers.display()));
            options.push(INCLUDE.to_owned());
        }
        if includes("#include \"") {
            let beside = source.parent().context("a source is in a folder")?;
            command.arg(format!("--option=--include-path={}", beside.display()));
            options.push(BESIDE.to_owned());
        }
        // The compiler's log goes to this process's standard error.
        let status = command.status().with_context(|| format!("running {}", self.python.display()))?;
        ensure!(status.success(), "{} does not compile with {}", source.display(), self.name);
        Ok(options)
    }
}

/// Folder of CUDA's headers for a libnvrtc.so. A toolkit has them in `include`, next to the library folder or
/// above it, and so have the packages of toolkit 13; those of toolkit 12 in a folder next to NVRTC's own.
fn headers_beside(library: &Path) -> Option<PathBuf> {
    let folders = library.ancestors().flat_map(|f| [f.join("include"), f.join("cuda_runtime/include")]);
    folders.into_iter().find(|include| include.join("cuda_fp16.h").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_where_toolkits_and_packages_have_them() {
        let root = std::env::temp_dir().join(format!("xtask-kernels-{}-headers", std::process::id()));
        for (library, include) in [
            ("toolkit/lib64/libnvrtc.so.12", "toolkit/include"),
            ("cu12/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "cu12/nvidia/cuda_runtime/include"),
            ("cu13/nvidia/cu13/lib/libnvrtc.so.13", "cu13/nvidia/cu13/include"),
        ] {
            let include = root.join(include);
            assert_eq!(headers_beside(&root.join(library)), None);
            fs::create_dir_all(&include).unwrap();
            fs::write(include.join("cuda_fp16.h"), "").unwrap();
            assert_eq!(headers_beside(&root.join(library)), Some(include));
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
