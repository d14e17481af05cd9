#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - CUDA C++: [`Compiler`], [`Source`], [`Compiled`], [`Cache`].
//! - A file of CUDA C++ or PTX: [`FileOptions`], [`architecture`], [`ARCHITECTURES`], [`VARIABLES`].
//! - PTX, fat binaries, objects and libraries: [`Linker`], [`LinkInput`], [`JitOptions`].
//! - Failures: [`Error`], [`RequestError`], [`Result`].

mod archive;
mod cache;
mod error;
mod file;
mod hint;
mod includes;
mod library;
mod linker;
mod nvjitlink;
mod ptx;
mod ptxas;
mod search;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use cache::Cache;
use cache::Key;
pub use error::{Error, RequestError, Result};
pub use file::{ARCHITECTURES, FileOptions, architecture};
use library::{Job, Nvrtc, Output};
pub use linker::{JitOptions, LinkInput, Linker};
pub use search::VARIABLES;
use search::{NVRTC, Search};

/// The compiler shared by the whole process, after it has been loaded.
static SHARED: Mutex<Option<Arc<Compiler>>> = Mutex::new(None);

/// The loaded NVRTC library of NVIDIA. Several threads may use it concurrently.
#[derive(Debug)]
pub struct Compiler {
    nvrtc: Nvrtc,
    /// Folders with CUDA's headers.
    headers: Vec<PathBuf>,
    cache: Option<Cache>,
}

/// CUDA C++ source and how to compile it.
#[derive(Clone, Debug)]
pub struct Source {
    text: String,
    name: String,
    options: Vec<String>,
    headers: Vec<(String, String)>,
    expressions: Vec<String>,
}

impl Source {
    /// Source text without options. CUDA's headers are found if they were installed with the compiler
    /// ([`Compiler::header_folders`]). There are no headers of C and C++.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            name: "source.cu".to_owned(),
            options: Vec::new(),
            headers: Vec::new(),
            expressions: Vec::new(),
        }
    }

    /// Sets the name of the source in compiler messages; `source.cu` by default. The source's own includes are searched
    /// in the folder of the name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds an option of NVRTC, for example `--use_fast_math`, `-DN=4` or `--include-path=FOLDER`. The architecture
    /// must not be given here.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Adds an in-memory header that `#include` finds under `name`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    /// Requests a kernel by a C++ expression, such as `scale<float>`. NVRTC instantiates the template, and
    /// [`Compiled::lowered_name`] returns its name in the cubin.
    #[must_use]
    pub fn expression(mut self, expression: impl Into<String>) -> Self {
        self.expressions.push(expression.into());
        self
    }
}

/// The result of a compilation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// The cubin.
    pub cubin: Vec<u8>,
    /// Warnings of the compiler; empty if there are none.
    pub log: String,
    /// Whether the result came from the cache.
    pub cached: bool,
    /// Name and file of the compiler; empty if the image was a cubin already.
    pub by: String,
    lowered: Vec<(String, String)>,
}

impl Compiled {
    /// Symbol name of the kernel that an expression of the source refers to.
    pub fn lowered_name(&self, expression: &str) -> Option<&str> {
        self.lowered.iter().find(|(asked, _)| asked == expression).map(|(_, name)| name.as_str())
    }
}

impl Compiler {
    /// Loads NVRTC and opens the user's cache ([`Cache::user`]).
    ///
    /// The environment variable `NVGPU_NVRTC` names the file or its folder; as with the loader's own variables, its
    /// value decides which code runs. Otherwise the search covers, in this order: the toolkit in `CUDA_HOME` or
    /// `CUDA_PATH`; NVIDIA's packages in the active Python environment (`VIRTUAL_ENV`, `CONDA_PREFIX`); the dynamic
    /// loader's folders; the CUDA toolkits in `/usr/local`, such as JetPack's; NVIDIA's packages of the user and of the
    /// system. In each place, NVRTC 12 and 11 come before 13.
    ///
    /// # Errors
    ///
    /// [`Error::NoNvrtc`] if no library is found; it lists the candidates tried. [`Error::StaticProgram`] in a program
    /// that contains its C library.
    pub fn load() -> Result<Self> {
        Self::from_search(Search::of_environment(&NVRTC))
    }

    /// Loads NVRTC from a file, or from a folder that contains it, and opens the user's cache.
    ///
    /// # Errors
    ///
    /// [`Error::NoNvrtc`] if it cannot be loaded from there.
    ///
    /// # Safety
    ///
    /// The file is NVIDIA's library, or one with the same functions: loading a library runs its code.
    pub unsafe fn load_from(place: impl AsRef<Path>) -> Result<Self> {
        Self::from_search(Search::chosen(&NVRTC, place.as_ref().as_os_str()))
    }

    /// The compiler shared by all callers of this function. The first call loads it as [`Compiler::load`] does.
    ///
    /// # Errors
    ///
    /// As [`Compiler::load`]; after an error, the next call retries.
    pub fn shared() -> Result<Arc<Self>> {
        let mut shared = SHARED.lock();
        if let Some(compiler) = &*shared {
            return Ok(Arc::clone(compiler));
        }
        let compiler = Arc::new(Self::load()?);
        *shared = Some(Arc::clone(&compiler));
        Ok(compiler)
    }

    /// Makes this compiler, with its cache, the one that [`Compiler::shared`] returns from now on.
    pub fn share(self) -> Arc<Self> {
        let compiler = Arc::new(self);
        *SHARED.lock() = Some(Arc::clone(&compiler));
        compiler
    }

    fn from_search(search: Search) -> Result<Self> {
        library::check_loader("NVRTC")?;
        let mut tried = Vec::new();
        for candidate in &search.candidates {
            match Nvrtc::open(candidate) {
                Ok(nvrtc) => {
                    let (major, minor) = nvrtc.version();
                    tracing::info!(library = nvrtc.name(), "NVRTC {major}.{minor} loaded");
                    let headers = nvrtc.path().map_or_else(Vec::new, search::headers_beside);
                    return Ok(Self { nvrtc, headers, cache: Cache::user() });
                }
                Err(reason) => tried.push(describe(candidate, &reason)),
            }
        }
        tried.extend(search.empty);
        Err(Error::NoNvrtc { tried })
    }

    /// Replaces the cache; `None` disables it.
    #[must_use]
    pub fn with_cache(mut self, cache: Option<Cache>) -> Self {
        self.cache = cache;
        self
    }

    /// Version of NVRTC, major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.nvrtc.version()
    }

    /// Name or path of the loaded library.
    pub fn library(&self) -> &str {
        self.nvrtc.name()
    }

    /// Folders with CUDA's headers, such as `cuda_fp16.h`, `mma.h` and `cuda/std/`, that were installed with the
    /// library. [`Compiler::compile`] searches them after the folders that a source names. Empty if there are none.
    pub fn header_folders(&self) -> &[PathBuf] {
        &self.headers
    }

    /// Compiles for a GPU of SM version `sm`, (8, 7) for the Orin, or takes the result of the same compilation from the
    /// cache. NVRTC does not limit the time of a compilation.
    ///
    /// The cache key covers all inputs: version of NVRTC, architecture, options, source, headers, and the contents of
    /// the files that these may include. Of CUDA's own headers, it covers size and time of those that are included
    /// directly. If the inputs cannot be determined (an include by macro; options that read or
    /// write other files), nothing is cached.
    ///
    /// # Errors
    ///
    /// [`Error::Compilation`] with the compiler's log if the source does not compile. [`Error::Request`] if an
    /// option sets the architecture or a text contains a zero byte. [`Error::Nvrtc`] if NVRTC fails otherwise, for
    /// example on an unknown option.
    pub fn compile(&self, source: &Source, sm: (u32, u32)) -> Result<Compiled> {
        let mut options = vec![format!("--gpu-architecture=sm_{}{}", sm.0, sm.1)];
        for option in &source.options {
            if sets_architecture(option) {
                return Err(RequestError::Architecture { option: option.clone(), sm_version: sm }.into());
            }
            options.push(option.clone());
        }
        options.extend(self.headers.iter().map(|folder| format!("--include-path={}", folder.display())));
        let job = Job {
            name: &source.name,
            source: &source.text,
            headers: &source.headers,
            options: &options,
            expressions: &source.expressions,
        };
        let entry = self.cache.as_ref().and_then(|cache| Some((cache, self.key(job)?)));
        if let Some((cache, key)) = entry
            && let Some(output) = cache.get(key)
        {
            return Ok(Compiled::new(output, &source.expressions, true));
        }
        let output = self.nvrtc.compile(job).map_err(|error| self.advise(error))?;
        if let Some((cache, key)) = entry {
            cache.put(key, &output);
        }
        Ok(Compiled::new(output, &source.expressions, false))
    }

    /// Adds advice to the log of a failed compilation.
    fn advise(&self, mut error: Error) -> Error {
        if let Error::Compilation { log, .. } = &mut error {
            let advice = hint::on(log, &self.headers);
            log.truncate(log.trim_end().len());
            log.push_str(&advice);
        }
        error
    }

    /// The key of a job; `None` if the job must not be cached.
    fn key(&self, job: Job<'_>) -> Option<Key> {
        let headers = job.headers.iter().map(|(_, text)| text.as_str());
        let texts = core::iter::once(job.source).chain(headers);
        let files = includes::files(job.name, texts, job.options, &self.headers);
        if files.is_none() {
            tracing::debug!(name = job.name, "not cached: the set of included files is unknown");
        }
        Some(Key::of(self.version(), job, &files?))
    }
}

impl Compiled {
    fn new(output: Output, expressions: &[String], cached: bool) -> Self {
        let lowered = expressions.iter().cloned().zip(output.lowered).collect();
        Self { cubin: output.cubin, log: output.log, cached, by: output.by, lowered }
    }
}

/// A candidate and the reason for its rejection; the name appears only once.
fn describe(candidate: &Path, reason: &str) -> String {
    let candidate = candidate.display().to_string();
    if reason.starts_with(&candidate) { reason.to_owned() } else { format!("{candidate}: {reason}") }
}

fn sets_architecture(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or_default();
    matches!(name, "--gpu-architecture" | "-gpu-architecture" | "-arch" | "--arch")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_set_the_architecture_are_known() {
        assert!(sets_architecture("--gpu-architecture=sm_80"));
        assert!(sets_architecture("-arch=compute_87"));
        assert!(sets_architecture("-arch"));
        assert!(!sets_architecture("-DARCH=-arch"));
    }

    #[test]
    fn a_file_that_is_no_library_is_named_with_the_loaders_reason_and_the_cure() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("libnvrtc.so.12");
        std::fs::write(&file, "no library").unwrap();
        for place in [root.path(), &file] {
            // SAFETY: the file is no library.
            let text = unsafe { Compiler::load_from(place) }.unwrap_err().to_string();
            let line = format!("\n  {}: ", file.display());
            assert_eq!(text.matches(&line).count(), 1, "{text}");
            assert!(text.contains("NVGPU_NVRTC"), "{text}");
        }
        // SAFETY: there is no such file.
        let text = unsafe { Compiler::load_from("/no/such/folder/libnvrtc.so.12") }.unwrap_err().to_string();
        assert!(text.contains("\n  /no/such/folder/libnvrtc.so.12: cannot open"), "{text}");
    }
}
