//! NVRTC's functions, loaded from the library at run time, and one compilation with them.
//!
//! The declarations follow NVIDIA's NVRTC documentation; they are the same in NVRTC 11.2 to 13.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr;
use std::ffi::CString;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::search;
use crate::error::{Error, RequestError, Result};

/// NVRTC_SUCCESS.
const SUCCESS: c_int = 0;
/// NVRTC_ERROR_COMPILATION.
const COMPILATION: c_int = 6;

/// nvrtcProgram.
type Handle = *mut c_void;

macro_rules! functions {
    ($($field:ident $symbol:literal ($($parameter:ty),*) -> $result:ty;)*) => {
        /// The functions of the library.
        #[derive(Clone, Copy)]
        struct Functions {
            $($field: unsafe extern "C" fn($($parameter),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            ///
            /// The symbols of the library are NVRTC's, and the result is not used after the library is
            /// unloaded.
            unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: NVRTC declares the function with this type.
                    $($field: *unsafe { library.get($symbol) }?,)*
                })
            }
        }
    };
}

functions! {
    version c"nvrtcVersion" (*mut c_int, *mut c_int) -> c_int;
    error_string c"nvrtcGetErrorString" (c_int) -> *const c_char;
    create c"nvrtcCreateProgram"
        (*mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
    destroy c"nvrtcDestroyProgram" (*mut Handle) -> c_int;
    add_expression c"nvrtcAddNameExpression" (Handle, *const c_char) -> c_int;
    compile c"nvrtcCompileProgram" (Handle, c_int, *const *const c_char) -> c_int;
    lowered_name c"nvrtcGetLoweredName" (Handle, *const c_char, *mut *const c_char) -> c_int;
    log_size c"nvrtcGetProgramLogSize" (Handle, *mut usize) -> c_int;
    log c"nvrtcGetProgramLog" (Handle, *mut c_char) -> c_int;
    cubin_size c"nvrtcGetCUBINSize" (Handle, *mut usize) -> c_int;
    cubin c"nvrtcGetCUBIN" (Handle, *mut c_char) -> c_int;
}

/// The loaded library.
pub(super) struct Nvrtc {
    functions: Functions,
    version: (u32, u32),
    name: String,
    path: Option<PathBuf>,
    /// Never unloaded, because handlers that the library has registered with the C runtime would outlive its code.
    _library: ManuallyDrop<Library>,
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvrtc")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A compilation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) name: &'a str,
    pub(super) source: &'a str,
    /// Names and contents of the headers.
    pub(super) headers: &'a [(String, String)],
    pub(super) options: &'a [String],
    pub(super) expressions: &'a [String],
}

/// Result of a compilation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) cubin: Vec<u8>,
    pub(super) log: String,
    /// Name, version and file of the compiler.
    pub(super) by: String,
    /// Symbol names of the job's expressions, in the same order.
    pub(super) lowered: Vec<String>,
}

impl Nvrtc {
    /// Loads a library, given as a path or as a name for the dynamic loader.
    pub(super) fn open(library: &Path) -> Result<Self, String> {
        for companion in search::builtins_beside(library) {
            match open(&companion) {
                // Never unloaded, like NVRTC itself.
                Ok(companion) => core::mem::forget(companion),
                // NVRTC reports a failure itself when it needs the library.
                Err(error) => tracing::debug!(path = %companion.display(), %error, "not loaded"),
            }
        }
        let handle = ManuallyDrop::new(open(library).map_err(|error| reason(&error))?);
        // SAFETY: the symbols carry NVRTC's prefix and the library is never unloaded.
        let functions = unsafe { Functions::find(&handle) }.map_err(|error| reason(&error))?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are valid for the call.
        let status = unsafe { (functions.version)(&raw mut major, &raw mut minor) };
        let version = u32::try_from(major).ok().zip(u32::try_from(minor).ok());
        let version = version.filter(|_| status == SUCCESS);
        let version = version.ok_or_else(|| format!("nvrtcVersion returns {status}"))?;
        let path = match library.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => Some(library.to_owned()),
            // CAST: the address of code.
            _ => search::mapped_at(functions.version as usize),
        };
        Ok(Self { functions, version, name: library.display().to_string(), path, _library: handle })
    }

    /// Major and minor version.
    pub(super) fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Path or name of the loaded library.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// File of the library; `None` if the dynamic loader has found it and `/proc` is missing.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Compiles to a cubin.
    pub(super) fn compile(&self, job: Job<'_>) -> Result<Output> {
        let source = c_string("the source", job.source)?;
        let name = c_string("the name of the source", job.name)?;
        let headers = c_strings("a header", job.headers.iter().map(|(_, text)| text))?;
        let header_names = c_strings("a header's name", job.headers.iter().map(|(name, _)| name))?;
        let options = c_strings("an option", job.options)?;
        let expressions = c_strings("a name expression", job.expressions)?;

        let program = self.create(&source, &name, &headers, &header_names)?;
        for expression in &expressions {
            // SAFETY: the program is alive; the string is valid for the call, which copies it.
            let status = unsafe { (self.functions.add_expression)(program.handle, expression.as_ptr()) };
            self.check("nvrtcAddNameExpression", status)?;
        }
        let pointers = pointers(&options);
        // SAFETY: the program is alive, and `pointers` has the length given, each of a string that lives
        // as long as `options`.
        let status = unsafe {
            (self.functions.compile)(program.handle, count(&options, "options")?, pointers.as_ptr())
        };
        let log = program.log()?;
        if status == COMPILATION {
            return Err(Error::Compilation { name: job.name.to_owned(), log });
        }
        if status != SUCCESS {
            let reason = format!("{}\n{log}", self.describe(status)).trim_end().to_owned();
            return Err(Error::Nvrtc { call: "nvrtcCompileProgram", reason });
        }
        let lowered = expressions.iter().map(|e| program.lowered_name(e)).collect::<Result<_>>()?;
        let (major, minor) = self.version;
        let by = format!("NVRTC {major}.{minor} ({})", self.name);
        Ok(Output { cubin: program.cubin()?, log, by, lowered })
    }

    fn create(
        &self,
        source: &CStr,
        name: &CStr,
        headers: &[CString],
        header_names: &[CString],
    ) -> Result<Program<'_>> {
        let count = count(headers, "headers")?;
        let (headers, header_names) = (pointers(headers), pointers(header_names));
        let mut handle = ptr::null_mut();
        // SAFETY: all strings live for the call, which copies them; both arrays have `count` elements.
        let status = unsafe {
            (self.functions.create)(
                &raw mut handle,
                source.as_ptr(),
                name.as_ptr(),
                count,
                headers.as_ptr(),
                header_names.as_ptr(),
            )
        };
        self.check("nvrtcCreateProgram", status)?;
        Ok(Program { nvrtc: self, handle })
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        Err(Error::Nvrtc { call, reason: self.describe(status) })
    }

    /// NVRTC's name of an error.
    fn describe(&self, status: c_int) -> String {
        // SAFETY: the function takes any number; it returns null or a string that is never freed.
        let text = unsafe {
            let text = (self.functions.error_string)(status);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        text.unwrap_or_else(|| format!("error {status}"))
    }
}

/// A program of NVRTC, destroyed when dropped.
struct Program<'n> {
    nvrtc: &'n Nvrtc,
    handle: Handle,
}

impl Program<'_> {
    fn log(&self) -> Result<String> {
        let functions = &self.nvrtc.functions;
        let bytes =
            self.read(("nvrtcGetProgramLogSize", functions.log_size), ("nvrtcGetProgramLog", functions.log))?;
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>> {
        let functions = &self.nvrtc.functions;
        let bytes =
            self.read(("nvrtcGetCUBINSize", functions.cubin_size), ("nvrtcGetCUBIN", functions.cubin))?;
        if bytes.is_empty() {
            let reason = "no cubin was made: the options ask for another output".to_owned();
            return Err(Error::Nvrtc { call: "nvrtcGetCUBINSize", reason });
        }
        Ok(bytes)
    }

    /// Gets a size, then that many bytes.
    fn read(
        &self,
        (size_name, size_of): (&'static str, unsafe extern "C" fn(Handle, *mut usize) -> c_int),
        (name, get): (&'static str, unsafe extern "C" fn(Handle, *mut c_char) -> c_int),
    ) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is alive and the pointer valid for the call.
        self.nvrtc.check(size_name, unsafe { size_of(self.handle, &raw mut size) })?;
        let mut bytes = vec![0_u8; size];
        if size > 0 {
            // SAFETY: the program is alive; the call writes exactly the size that it has just named.
            self.nvrtc.check(name, unsafe { get(self.handle, bytes.as_mut_ptr().cast()) })?;
        }
        Ok(bytes)
    }

    fn lowered_name(&self, expression: &CStr) -> Result<String> {
        let mut name = ptr::null();
        // SAFETY: the program is alive, the string and the pointer are valid for the call.
        let status =
            unsafe { (self.nvrtc.functions.lowered_name)(self.handle, expression.as_ptr(), &raw mut name) };
        self.nvrtc.check("nvrtcGetLoweredName", status)?;
        if name.is_null() {
            let reason = format!("no name for {}", expression.to_string_lossy());
            return Err(Error::Nvrtc { call: "nvrtcGetLoweredName", reason });
        }
        // SAFETY: a string that NVRTC owns and keeps until the program is destroyed.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from nvrtcCreateProgram and is not used any more.
        let status = unsafe { (self.nvrtc.functions.destroy)(&raw mut self.handle) };
        if status != SUCCESS {
            tracing::warn!(reason = self.nvrtc.describe(status), "nvrtcDestroyProgram failed");
        }
    }
}

/// Refuses to search for a library that the program cannot load.
pub(super) fn check_loader(library: &'static str) -> Result<()> {
    if cfg!(target_feature = "crt-static") { Err(Error::StaticProgram { library }) } else { Ok(()) }
}

pub(super) fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: runs the library's constructors. The path is the user's choice or a standard place of
    // NVIDIA's library, whose constructors only set up its own state.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
}

/// The dynamic loader's error message.
pub(super) fn reason(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

pub(super) fn c_string(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        let (what, offset) = (what.to_owned(), error.nul_position());
        RequestError::ZeroByte { what, offset }.into()
    })
}

pub(super) fn c_strings<'a>(what: &str, texts: impl IntoIterator<Item = &'a String>) -> Result<Vec<CString>> {
    texts.into_iter().map(|text| c_string(what, text)).collect()
}

pub(super) fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

fn count<T>(list: &[T], what: &str) -> Result<c_int> {
    c_int::try_from(list.len()).map_err(|_| RequestError::TooMany { what: what.to_owned() }.into())
}
