#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - The build: [`Kernels`].
//! - Failures: [`Error`], [`Result`].
#![forbid(unsafe_code)]

mod error;
mod generate;
mod lock;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs};

use cubin::{Cubin, FileKind};
use orin_compile::{FileOptions, VARIABLES};

pub use error::{Error, Result};
use generate::Module;
use lock::{Lock, write};

/// Kernels to compile, with one set of options. Paths are relative to the package's folder, in which cargo runs build
/// scripts.
///
/// ```no_run
/// # fn main() -> Result<(), orin_build::Error> {
/// orin_build::Kernels::new()
///     .file("kernels/median.cu")
///     .file("kernels/voxels.cu")
///     .include("kernels/shared")
///     .define("RADIUS=2")
///     .option("--use_fast_math")
///     .committed("kernels")
///     .compile()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Kernels {
    files: Vec<PathBuf>,
    name: String,
    arch: String,
    options: FileOptions,
    committed: Option<PathBuf>,
    out_dir: Option<PathBuf>,
}

/// The package's folder by a name that is the same on each machine. NVRTC writes absolute paths into the line
/// information: with those of one machine, committed cubins would name its folders.
const HERE: &str = "/proc/self/cwd";

/// The name of a set of kernels that has no other.
const DEFAULT_NAME: &str = "kernels";

impl Default for Kernels {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            name: DEFAULT_NAME.to_owned(),
            arch: "sm_87".to_owned(),
            options: FileOptions { line_info: true, ..FileOptions::default() },
            committed: None,
            out_dir: None,
        }
    }
}

impl Kernels {
    /// No kernels yet, for the Jetson Orin (`sm_87`), with line information.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source, CUDA C++ or PTX. It becomes a module with the name of the file, without its ending.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Sets the architecture: `sm_87` (Jetson Orin, the default), `sm_80`, `sm_86`, `sm_89` or `sm_90`. For several,
    /// compile several sets, each with a [`Kernels::name`].
    #[must_use]
    pub fn arch(mut self, arch: impl Into<String>) -> Self {
        self.arch = arch.into();
        self
    }

    /// Names the set; `kernels` by default. The generated file is `NAME.rs` in `OUT_DIR`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Records file and line of each instruction (the default), for findings of checks and for profiles. The machine
    /// code is the same with and without.
    #[must_use]
    pub fn line_info(mut self, is_on: bool) -> Self {
        self.options.line_info = is_on;
        self
    }

    /// Adds a folder that is searched for headers. That of the source is searched for includes in quotes, and those
    /// with CUDA's headers are searched last.
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.include.push(folder.into());
        self
    }

    /// Defines a macro: `NAME` or `NAME=VALUE`.
    #[must_use]
    pub fn define(mut self, text: impl Into<String>) -> Self {
        self.options.define.push(text.into());
        self
    }

    /// Adds an option of NVRTC (of nvJitLink for PTX), such as `--use_fast_math`.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.other.push(option.into());
        self
    }

    /// Keeps the cubins in a folder of the package, with a file `kernels.lock`, to be committed. A build uses a
    /// committed cubin while its source, the files that it includes, the options and the architecture are unchanged,
    /// and needs no compiler then. Otherwise it compiles, and writes cubin and lock file. CUDA's own headers and the
    /// version of the compiler do not count: delete a cubin to compile it again.
    #[must_use]
    pub fn committed(mut self, folder: impl Into<PathBuf>) -> Self {
        self.committed = Some(folder.into());
        self
    }

    /// Sets the folder of the generated file; `OUT_DIR` by default, which cargo sets.
    #[must_use]
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(folder.into());
        self
    }

    /// Compiles what has changed, writes the cubins and `NAME.rs` into `OUT_DIR`, and tells cargo which files to watch.
    /// Warnings of the compiler become warnings of cargo.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] with the compiler's log if a source does not compile, or with how to install the compiler if
    /// it is missing; [`Error::Stale`] if it is missing and a committed cubin is not that of its source; otherwise one
    /// of the other variants of [`Error`].
    pub fn compile(&self) -> Result<()> {
        let out_dir = self.out_dir.clone().or_else(|| env::var_os("OUT_DIR").map(PathBuf::from));
        let out_dir = out_dir.ok_or(Error::NoFolder)?;
        if self.files.is_empty() {
            return Err(Error::NoSource);
        }
        let sm = orin_compile::architecture(&self.arch)
            .map_err(|known| Error::Architecture { name: self.arch.clone(), known })?;
        let mut lock = self.committed.as_deref().map(Lock::read).transpose()?;
        if let Some(lock) = &lock {
            watch(&lock.path());
        }
        let mut modules: Vec<Module> = Vec::new();
        for path in &self.files {
            let module = self.build(path, sm, lock.as_mut(), &out_dir)?;
            if let Some(other) = modules.iter().find(|other| other.name == module.name) {
                let (first, second) = (other.source.clone(), module.source);
                return Err(Error::SameName { name: module.name, first, second });
            }
            modules.push(module);
        }
        write(&out_dir.join(format!("{}.rs", self.name)), generate::text(&modules).as_bytes(), None)
    }

    /// Builds one source, and writes its cubin into `out_dir`.
    fn build(&self, path: &Path, sm: (u32, u32), lock: Option<&mut Lock>, out_dir: &Path) -> Result<Module> {
        watch(path);
        let source = Input::read(path, self)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = generate::identifier(&stem);
        let set = if self.name == DEFAULT_NAME { String::new() } else { format!(".{}", self.name) };
        let file = format!("{name}{set}.sm_{}{}.cubin", sm.0, sm.1);
        let (bytes, compiler) = match lock {
            Some(lock) => source.committed_or_compiled(lock, &file, sm)?,
            None => source.compiled(sm).map_err(|source| Error::Compile { source })?,
        };
        let unreadable = |source| Error::Cubin { path: path.to_owned(), source };
        let cubin = Cubin::parse(&bytes).map_err(unreadable)?;
        // A committed file may have been made by something else.
        cubin.check_arch(sm.0 * 10 + sm.1).map_err(unreadable)?;
        let kernels = generate::constants(&source.name, &cubin)?;
        if kernels.is_empty() {
            return Err(Error::NoKernel { path: path.to_owned() });
        }
        for kernel in kernels.values().filter(|kernel| kernel.name.starts_with("_Z")) {
            println!(
                "cargo::warning={}: kernel {}: declare it extern \"C\" for a plain name",
                source.name, kernel.name
            );
        }
        write(&out_dir.join(&file), &bytes, None)?;
        let made = format!("sm_{}{}, by {compiler}", sm.0, sm.1);
        Ok(Module { source: source.name, name, made, file, kernels })
    }
}

/// A source with everything that its cubin depends on.
#[derive(Debug)]
struct Input<'a> {
    options: &'a FileOptions,
    path: &'a Path,
    /// Name in messages.
    name: String,
    text: String,
    /// The files that it may include; `None` if they are unknown.
    includes: Option<BTreeMap<PathBuf, Vec<u8>>>,
}

impl<'a> Input<'a> {
    fn read(path: &'a Path, kernels: &'a Kernels) -> Result<Self> {
        let options = &kernels.options;
        let failed = |source| Error::File { action: "reading", path: path.to_owned(), source };
        let bytes = fs::read(path).map_err(failed)?;
        let found = FileKind::of(&bytes);
        if !matches!(found, FileKind::Cuda | FileKind::Ptx | FileKind::Text) {
            return Err(Error::NotASource { path: path.to_owned(), found });
        }
        let text = String::from_utf8(bytes)
            .map_err(|error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))?;
        let name = path.display().to_string();
        let includes = options.includes(&name, &text);
        match &includes {
            Some(files) => files.keys().for_each(|file| watch(file)),
            // Cargo watches all files of a folder.
            None => {
                path.parent().into_iter().chain(options.include.iter().map(PathBuf::as_path)).for_each(watch)
            }
        }
        Ok(Self { options, path, name, text, includes })
    }

    /// Compiles, and returns the cubin and the compiler's name and version.
    fn compiled(&self, sm: (u32, u32)) -> Result<(Vec<u8>, String), orin_compile::Error> {
        for variable in VARIABLES {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        let here = |path: &Path| Path::new(HERE).join(path);
        let include = self.options.include.iter().map(|folder| here(folder)).collect();
        let options = FileOptions { include, ..self.options.clone() };
        let short = |text: &str| text.replace(&format!("{HERE}/"), "");
        let name = here(self.path).display().to_string();
        let made = options.compile(&name, &self.text, sm).map_err(|error| match error {
            orin_compile::Error::Compilation { name, log } => {
                orin_compile::Error::Compilation { name: short(&name), log: short(&log) }
            }
            error => error,
        })?;
        for line in short(&made.log).lines().filter(|line| !line.trim().is_empty()) {
            println!("cargo::warning={line}");
        }
        // The file of the compiler differs between machines.
        let compiler = made.by.split(" (").next().unwrap_or_default().to_owned();
        Ok((made.cubin, compiler))
    }

    /// The committed cubin, if it is that of the source; otherwise the compiled one, which is written.
    fn committed_or_compiled(
        &self,
        lock: &mut Lock,
        file: &str,
        sm: (u32, u32),
    ) -> Result<(Vec<u8>, String)> {
        let Some(includes) = &self.includes else {
            return Err(Error::UnknownIncludes { path: self.path.to_owned() });
        };
        let spelled = self.options.spelled();
        let parts = [format!("sm_{}{}", sm.0, sm.1), spelled.len().to_string()].into_iter().chain(spelled);
        let parts: Vec<Vec<u8>> =
            parts.chain([self.name.clone(), self.text.clone()]).map(String::into_bytes).collect();
        let files = includes.iter().flat_map(|(path, text)| [path.as_os_str().as_encoded_bytes(), text]);
        let inputs = lock::inputs(parts.iter().map(Vec::as_slice).chain(files));
        watch(&lock.cubin_path(file));
        let reason = match lock.get(file, &inputs) {
            Ok(found) => return Ok(found),
            Err(reason) => reason,
        };
        let (cubin, compiler) = self.compiled(sm).map_err(|source| match source {
            orin_compile::Error::NoNvrtc { .. }
            | orin_compile::Error::NoNvJitLink { .. }
            | orin_compile::Error::NoPtxas { .. }
            | orin_compile::Error::StaticProgram { .. } => {
                Error::Stale { path: self.path.to_owned(), reason, source }
            }
            source => Error::Compile { source },
        })?;
        lock.put(file, &inputs, &cubin, &compiler, self.newest())?;
        Ok((cubin, compiler))
    }

    /// The time of the newest file among source and includes.
    fn newest(&self) -> SystemTime {
        let files = self.includes.iter().flat_map(BTreeMap::keys).map(PathBuf::as_path).chain([self.path]);
        let times = files.filter_map(|file| file.metadata().ok()?.modified().ok());
        times.max().unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// Makes cargo run the build script again after a change of a file or folder.
fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}
