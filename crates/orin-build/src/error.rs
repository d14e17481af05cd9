//! Errors of the build.

use core::fmt;
use std::path::PathBuf;

use cubin::FileKind;

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why kernels were not built. `{:?}` prints the same text as `{}`, because a `main` that returns the error prints it
/// so.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program is not a build script.
    #[error("OUT_DIR is not set: call Kernels::compile in build.rs, or set Kernels::out_dir")]
    NoFolder,

    /// No source was added.
    #[error("no kernels to compile: add Kernels::file(\"kernels/NAME.cu\")")]
    NoSource,

    /// The architecture is unknown.
    #[error("Kernels::arch(\"{name}\"): {known}")]
    Architecture {
        /// The name.
        name: String,
        /// The known ones.
        known: String,
    },

    /// A file could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// `reading` or `writing`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },

    /// A source is a file of another kind.
    #[error("{}: {}", path.display(), found.instead_of("CUDA C++ or PTX"))]
    NotASource {
        /// Path of the file.
        path: PathBuf,
        /// What it is.
        found: FileKind,
    },

    /// A source does not compile, or the compiler is missing.
    #[error("{source}{}", advice(source))]
    Compile {
        /// The compiler's error, with the name of the source.
        source: orin_compile::Error,
    },

    /// A committed cubin is not that of its source, and cannot be compiled here.
    #[error("{}: {reason}, and it cannot be compiled here: {source}", path.display())]
    Stale {
        /// Path of the source.
        path: PathBuf,
        /// What differs.
        reason: String,
        /// The compiler's error.
        source: orin_compile::Error,
    },

    /// A committed cubin cannot be checked.
    #[error(
        "{}: the set of included files is unknown (an include by macro, or an option that reads other files), so a \
         committed cubin cannot be checked: write the name of the include, or leave out Kernels::committed",
        path.display()
    )]
    UnknownIncludes {
        /// Path of the source.
        path: PathBuf,
    },

    /// A compiled file cannot be loaded.
    #[error("{}: {source}", path.display())]
    Cubin {
        /// Path of the source.
        path: PathBuf,
        /// What is wrong.
        source: cubin::Error,
    },

    /// A source without kernels.
    #[error("{}: no kernel: the source has no function declared extern \"C\" __global__", path.display())]
    NoKernel {
        /// Path of the source.
        path: PathBuf,
    },

    /// Two sources, or two kernels of a source, have the same name in Rust.
    #[error("{first} and {second} both become `{name}` in Rust: rename one")]
    SameName {
        /// The name.
        name: String,
        /// The first.
        first: String,
        /// The second.
        second: String,
    },

    /// A line of the lock file cannot be read.
    #[error(
        "{}:{line}: not an entry of a lock file: delete the file, and build where NVRTC is installed", path.display()
    )]
    Lock {
        /// Path of the lock file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
}

/// What helps besides installing the compiler.
fn advice(error: &orin_compile::Error) -> &'static str {
    let is_missing =
        matches!(error, orin_compile::Error::NoNvrtc { .. } | orin_compile::Error::NoNvJitLink { .. });
    if is_missing { "; with Kernels::committed, builds need it only after a change" } else { "" }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
