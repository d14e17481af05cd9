//! PTX to cubin with NVIDIA's nvJitLink, a library of the CUDA toolkits from 12.0 on.
//!
//! The declarations follow NVIDIA's nvJitLink documentation; they are the same in 12.0 to 13.

use core::ffi::{c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr;
use std::env;
use std::ffi::CString;
use std::path::Path;

use libloading::os::unix::Library;

use super::library::{c_string, c_strings, check_loader, open, pointers, reason};
use super::search::{NVJITLINK, Places, Search};
use super::{describe, sets_architecture};
use crate::error::{CompileRequestError, Error, Result};

/// Environment variable with the file or folder of the library.
const LIBRARY: &str = "NVGPU_NVJITLINK";
/// NVJITLINK_SUCCESS.
const SUCCESS: c_int = 0;
/// NVJITLINK_INPUT_PTX.
const INPUT_PTX: c_int = 2;
/// Versions in the names of the functions. Each library also exports those of the older minor versions.
const VERSIONS: [&str; 2] = ["12_0", "13_0"];

/// nvJitLinkHandle.
type Handle = *mut c_void;
type SizeOf = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;

/// The functions of the library.
#[derive(Clone, Copy, Debug)]
struct Functions {
    create: unsafe extern "C" fn(*mut Handle, u32, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    add: unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> c_int,
    complete: unsafe extern "C" fn(Handle) -> c_int,
    error_log: (SizeOf, Get),
    cubin: (SizeOf, Get),
}

impl Functions {
    /// The functions of one version.
    ///
    /// # Safety
    ///
    /// The symbols of the library are nvJitLink's, and the result is not used after the library is unloaded.
    unsafe fn find(library: &Library, version: &str) -> Result<Self, libloading::Error> {
        let name = |function: &str| format!("__nvJitLink{function}_{version}");
        // SAFETY: nvJitLink declares the functions with these types.
        unsafe {
            Ok(Self {
                create: *library.get(name("Create"))?,
                destroy: *library.get(name("Destroy"))?,
                add: *library.get(name("AddData"))?,
                complete: *library.get(name("Complete"))?,
                error_log: (*library.get(name("GetErrorLogSize"))?, *library.get(name("GetErrorLog"))?),
                cubin: (*library.get(name("GetLinkedCubinSize"))?, *library.get(name("GetLinkedCubin"))?),
            })
        }
    }
}

/// The loaded nvJitLink library of NVIDIA, which compiles PTX. Several threads may use it concurrently.
#[derive(Debug)]
pub struct Linker {
    functions: Functions,
    name: String,
    /// Never unloaded, because handlers that the library has registered with the C runtime would outlive its code.
    _library: ManuallyDrop<Library>,
}

impl Linker {
    /// Loads nvJitLink. The environment variable `NVGPU_NVJITLINK` names the file or its folder; otherwise the search
    /// is that of [`Compiler::load`](super::Compiler::load).
    ///
    /// # Errors
    ///
    /// [`Error::NoNvJitLink`] if no library is found; it lists the candidates tried.
    pub fn load() -> Result<Self> {
        check_loader("nvJitLink")?;
        let search = match env::var_os(LIBRARY).filter(|place| !place.is_empty()) {
            Some(place) => Search::chosen(&NVJITLINK, &place),
            None => Search::usual(&NVJITLINK, &Places::of_environment()),
        };
        let mut tried = Vec::new();
        for candidate in &search.candidates {
            match Self::open(candidate) {
                Ok(linker) => return Ok(linker),
                Err(reason) => tried.push(describe(candidate, &reason)),
            }
        }
        tried.extend(search.empty);
        Err(Error::NoNvJitLink { tried })
    }

    fn open(path: &Path) -> Result<Self, String> {
        let library = ManuallyDrop::new(open(path).map_err(|error| reason(&error))?);
        let mut missing = String::new();
        for version in VERSIONS {
            // SAFETY: the symbols carry nvJitLink's prefix and the library is never unloaded.
            match unsafe { Functions::find(&library, version) } {
                Ok(functions) => {
                    return Ok(Self { functions, name: path.display().to_string(), _library: library });
                }
                Err(error) => missing = reason(&error),
            }
        }
        Err(missing)
    }

    /// Name or path of the loaded library.
    pub fn library(&self) -> &str {
        &self.name
    }

    /// Compiles PTX for a GPU of SM version `sm`, (8, 7) for the Orin. `name` identifies the image in error messages.
    /// The options are those of nvJitLink, for example `-lineinfo` or `-ftz=1`, without the architecture.
    ///
    /// # Errors
    ///
    /// [`Error::Compilation`] with nvJitLink's log if the PTX does not compile; [`Error::CompileRequest`] if an option
    /// sets the architecture or a text contains a zero byte; [`Error::NvJitLink`] if nvJitLink fails otherwise.
    pub fn compile(&self, name: &str, ptx: &str, options: &[String], sm: (u32, u32)) -> Result<Vec<u8>> {
        let mut all = vec![format!("-arch=sm_{}{}", sm.0, sm.1)];
        for option in options {
            if sets_architecture(option) {
                return Err(
                    CompileRequestError::Architecture { option: option.clone(), sm_version: sm }.into()
                );
            }
            all.push(option.clone());
        }
        let (options, label) = (c_strings("an option", &all)?, c_string("the name of the source", name)?);
        // nvJitLink requires the zero byte at the end of PTX.
        let text = c_string("the source", ptx)?;
        let link = self.create(&options)?;
        let bytes = text.as_bytes_with_nul();
        // SAFETY: the handle is alive; the bytes and the name are valid for the call, which copies them.
        let added = unsafe {
            (self.functions.add)(link.handle, INPUT_PTX, bytes.as_ptr().cast(), bytes.len(), label.as_ptr())
        };
        // SAFETY: the handle is alive.
        let status = if added == SUCCESS { unsafe { (self.functions.complete)(link.handle) } } else { added };
        if status != SUCCESS {
            let log = link.read("nvJitLinkGetErrorLog", self.functions.error_log)?;
            let log =
                String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
            return Err(match log.trim() {
                "" => Error::NvJitLink { call: "nvJitLinkComplete", status },
                _ => Error::Compilation { name: name.to_owned(), log },
            });
        }
        link.read("nvJitLinkGetLinkedCubin", self.functions.cubin)
    }

    fn create(&self, options: &[CString]) -> Result<Link<'_>> {
        let count = u32::try_from(options.len())
            .map_err(|_| CompileRequestError::TooMany { what: "options".to_owned() })?;
        let pointers = pointers(options);
        let mut handle = ptr::null_mut();
        // SAFETY: the strings live for the call, which copies them; the array has `count` elements.
        let status = unsafe { (self.functions.create)(&raw mut handle, count, pointers.as_ptr()) };
        if status != SUCCESS {
            return Err(Error::NvJitLink { call: "nvJitLinkCreate", status });
        }
        Ok(Link { functions: &self.functions, handle })
    }
}

/// A compilation, destroyed when dropped.
struct Link<'l> {
    functions: &'l Functions,
    handle: Handle,
}

impl Link<'_> {
    /// Gets a size, then that many bytes.
    fn read(&self, call: &'static str, (size_of, get): (SizeOf, Get)) -> Result<Vec<u8>> {
        let check = |status| if status == SUCCESS { Ok(()) } else { Err(Error::NvJitLink { call, status }) };
        let mut size = 0;
        // SAFETY: the handle is alive and the pointer valid for the call.
        check(unsafe { size_of(self.handle, &raw mut size) })?;
        let mut bytes = vec![0_u8; size];
        if size > 0 {
            // SAFETY: the handle is alive; the call writes exactly the size that it has just named.
            check(unsafe { get(self.handle, bytes.as_mut_ptr().cast()) })?;
        }
        Ok(bytes)
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from nvJitLinkCreate and is not used any more.
        let status = unsafe { (self.functions.destroy)(&raw mut self.handle) };
        if status != SUCCESS {
            tracing::warn!(status, "nvJitLinkDestroy failed");
        }
    }
}
