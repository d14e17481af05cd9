//! NVIDIA's nvJitLink, a library of the CUDA toolkits from 12.0 on, which compiles PTX and links.
//!
//! The declarations follow NVIDIA's nvJitLink documentation; they are the same in 12.0 to 13.

use core::ffi::{c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr;
use std::ffi::CString;
use std::path::Path;

use cubin::FileKind;
use libloading::os::unix::Library;

use super::describe;
use super::library::{Output, c_string, c_strings, check_loader, open, pointers, reason};
use super::linker::{Input, failure};
use super::search::Search;
use crate::error::{Error, RequestError, Result};

/// NVJITLINK_SUCCESS.
const SUCCESS: c_int = 0;
/// NVJITLINK_INPUT_CUBIN.
const INPUT_CUBIN: c_int = 1;
/// NVJITLINK_INPUT_PTX.
const INPUT_PTX: c_int = 2;
/// NVJITLINK_INPUT_OBJECT.
const INPUT_OBJECT: c_int = 5;
/// NVJITLINK_INPUT_LIBRARY.
const INPUT_LIBRARY: c_int = 6;
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
    info_log: (SizeOf, Get),
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
                info_log: (*library.get(name("GetInfoLogSize"))?, *library.get(name("GetInfoLog"))?),
                cubin: (*library.get(name("GetLinkedCubinSize"))?, *library.get(name("GetLinkedCubin"))?),
            })
        }
    }
}

/// The loaded nvJitLink library of NVIDIA. Several threads may use it concurrently. While it links, it loads
/// `libcuda.so.1` and calls it, so no lock that this library could take may be held.
#[derive(Debug)]
pub(super) struct NvJitLink {
    functions: Functions,
    name: String,
    /// Never unloaded, because handlers that the library has registered with the C runtime would outlive its code.
    _library: ManuallyDrop<Library>,
}

impl NvJitLink {
    /// Loads the first candidate that is the library.
    ///
    /// # Errors
    ///
    /// [`Error::NoNvJitLink`] if there is none; it lists the candidates tried.
    pub(super) fn load(search: &Search) -> Result<Self> {
        check_loader("nvJitLink")?;
        let mut tried = Vec::new();
        for candidate in &search.candidates {
            match Self::open(candidate) {
                Ok(library) => {
                    tracing::info!(library = library.name, "nvJitLink loaded");
                    return Ok(library);
                }
                Err(reason) => tried.push(describe(candidate, &reason)),
            }
        }
        tried.extend(search.empty.iter().cloned());
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

    /// Links inputs, which are PTX, objects and libraries, with options that include the architecture.
    ///
    /// # Errors
    ///
    /// Those of [`failure`] with the log; [`Error::NvJitLink`] if nvJitLink fails without one, for example
    /// on an unknown option; [`Error::Request`] if a text contains a zero byte.
    pub(super) fn link(&self, inputs: &[Input<'_>], options: &[String]) -> Result<Output> {
        let options = c_strings("an option", options)?;
        let link = self.create(&options)?;
        for input in inputs {
            let name = c_string("the name of an input", input.name)?;
            let kind = match input.kind {
                FileKind::Ptx => INPUT_PTX,
                FileKind::Library => INPUT_LIBRARY,
                FileKind::Elf => INPUT_OBJECT,
                _ => INPUT_CUBIN,
            };
            let (data, size) = (input.data.as_ptr().cast(), input.data.len());
            // SAFETY: the handle is alive; the bytes and the name are valid for the call, which copies them.
            let status = unsafe { (self.functions.add)(link.handle, kind, data, size, name.as_ptr()) };
            link.check("nvJitLinkAddData", status, input.name)?;
        }
        // SAFETY: the handle is alive.
        let status = unsafe { (self.functions.complete)(link.handle) };
        let names: Vec<&str> = inputs.iter().map(|input| input.name).collect();
        link.check("nvJitLinkComplete", status, &names.join(", "))?;
        let cubin = link.read("nvJitLinkGetLinkedCubin", self.functions.cubin)?;
        let log = link.text("nvJitLinkGetInfoLog", self.functions.info_log)?;
        let by = format!("nvJitLink ({})", self.name);
        Ok(Output { cubin, log, by, lowered: Vec::new() })
    }

    fn create(&self, options: &[CString]) -> Result<Link<'_>> {
        let count =
            u32::try_from(options.len()).map_err(|_| RequestError::TooMany { what: "options".to_owned() })?;
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
    /// The error of a call on inputs.
    fn check(&self, call: &'static str, status: c_int, names: &str) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let log = self.text("nvJitLinkGetErrorLog", self.functions.error_log)?;
        if log.trim().is_empty() { Err(Error::NvJitLink { call, status }) } else { Err(failure(names, log)) }
    }

    /// A log, up to its zero byte.
    fn text(&self, call: &'static str, functions: (SizeOf, Get)) -> Result<String> {
        let log = self.read(call, functions)?;
        Ok(String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned())
    }

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
