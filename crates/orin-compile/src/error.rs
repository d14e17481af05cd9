//! Errors of the compilers.

use core::fmt;

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Errors of this crate's calls. `{:?}` prints the same text as `{}`, because a `main` that returns the error prints it
/// so.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A cubin or fat binary was refused.
    #[error(transparent)]
    Cubin(#[from] cubin::Error),

    /// The NVRTC library was not found.
    #[error(
        "NVIDIA's run-time compiler NVRTC cannot be loaded; tried:\n  {}\n\
         install it (JetPack: apt install cuda-nvrtc-12-6; elsewhere, in a Python environment: pip install \
         nvidia-cuda-nvrtc-cu12), or set NVGPU_NVRTC to the file libnvrtc.so.12 or to its folder",
        tried.join("\n  ")
    )]
    NoNvrtc {
        /// The candidates tried and why each was rejected, one line each.
        tried: Vec<String>,
    },

    /// The nvJitLink library was not found, and for PTX no ptxas either.
    #[error(
        "NVIDIA's linker nvJitLink, which compiles PTX, cannot be loaded; tried:\n  {}\n\
         install it (JetPack: apt install libnvjitlink-12-6; elsewhere, in a Python environment: pip install \
         nvidia-nvjitlink-cu12), or set NVGPU_NVJITLINK to the file libnvJitLink.so.12 or to its folder",
        tried.join("\n  ")
    )]
    NoNvJitLink {
        /// The candidates tried and why each was rejected, one line each.
        tried: Vec<String>,
    },

    /// The program ptxas was not found, which PTX needs that nvJitLink does not compile (`.version` below 3.1).
    #[error(
        "{name}: PTX of a version below 3.1 needs NVIDIA's assembler ptxas, which cannot be started; tried:\n  {}\n\
         install it (JetPack: apt install cuda-nvcc-12-6; elsewhere, in a Python environment: pip install \
         nvidia-cuda-nvcc-cu12), or set NVGPU_PTXAS to the file ptxas or to its folder",
        tried.join("\n  ")
    )]
    NoPtxas {
        /// Name of the image.
        name: String,
        /// The candidates tried and why each was rejected, one line each.
        tried: Vec<String>,
    },

    /// An image, or an input of a link, of a kind that is none.
    #[error(
        "{name}: {}", found.instead_of("a cubin, PTX, a fat binary, or an object or library with device code")
    )]
    NotAnImage {
        /// Name of the image.
        name: String,
        /// What it is.
        found: cubin::FileKind,
    },

    /// The PTX is newer than the compilers.
    #[error(
        "{name} is newer than the compiler of PTX: install a newer one (pip install --upgrade nvidia-nvjitlink-cu12), \
         or compile with an older toolkit:\n{}", log.trim_end()
    )]
    UnsupportedPtx {
        /// Name of the image.
        name: String,
        /// The compiler's log, with the version.
        log: String,
    },

    /// Code uses functions or variables that no input defines.
    #[error("{name}: nothing defines {}:\n{}", symbols.join(", "), log.trim_end())]
    UnresolvedSymbols {
        /// Name of the image or of the inputs.
        name: String,
        /// The symbols, in the order of the log.
        symbols: Vec<String>,
        /// The linker's log.
        log: String,
    },

    /// A program that contains its C library cannot load a compiler.
    #[error(
        "this program is linked statically, so it cannot load {library}: compile the kernel with a program that is \
         linked dynamically, such as `orin compile` of another pack, and load the cubin"
    )]
    StaticProgram {
        /// Name of the library.
        library: &'static str,
    },

    /// A call of nvJitLink failed for a reason other than an error in the PTX.
    #[error("{call} returns {status}; an option may be unknown to nvJitLink")]
    NvJitLink {
        /// Name of the call.
        call: &'static str,
        /// nvJitLinkResult.
        status: i32,
    },

    /// A call of NVRTC failed for a reason other than an error in the source.
    #[error("{call}: {reason}")]
    Nvrtc {
        /// Name of the call.
        call: &'static str,
        /// NVRTC's name of the error and its log.
        reason: String,
    },

    /// The source does not compile, or the inputs cannot be linked.
    #[error("{name} does not compile:\n{}", log.trim_end())]
    Compilation {
        /// Name of the source.
        name: String,
        /// The compiler's log, with file names and lines.
        log: String,
    },

    /// The compilation request is invalid.
    #[error(transparent)]
    Request(#[from] RequestError),

    /// A temporary file or folder could not be used.
    #[error("using {}: {source}", path.display())]
    File {
        /// Path of the file or folder.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a compilation was refused before it started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// An option sets the architecture, which is always that of the device.
    #[error(
        "option {option}: the architecture is that of the device, sm_{}{}; leave it out", sm_version.0, sm_version.1
    )]
    Architecture {
        /// The option.
        option: String,
        /// SM version of the device, major and minor.
        sm_version: (u32, u32),
    },

    /// A text contains a zero byte.
    #[error("{what} has a zero byte at offset {offset}")]
    ZeroByte {
        /// Kind of the text: the source, an option, a name.
        what: String,
        /// Offset of the zero byte.
        offset: usize,
    },

    /// A link without inputs.
    #[error("nothing to link: there is no input")]
    NoInput,

    /// A linked cubin is an input of a link.
    #[error(
        "{name} is linked already, so it cannot be linked with other code: compile it to relocatable code (-rdc=true)"
    )]
    LinkedCubin {
        /// Name of the input.
        name: String,
    },

    /// PTX with options that only CUDA C++ has.
    #[error("PTX has no headers and macros: leave out their folders and definitions")]
    PtxOptions,

    /// A list has more entries than NVRTC supports.
    #[error("too many {what}")]
    TooMany {
        /// Name of the list.
        what: String,
    },
}
