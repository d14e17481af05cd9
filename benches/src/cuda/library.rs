//! The functions of libcuda, located in the library at run time.
//!
//! The declarations follow NVIDIA's CUDA Driver API reference. The versioned names are those to which CUDA's header
//! maps the plain ones. libcuda keeps all of them, so CUDA 11.4 (JetPack 5) to 13 work.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt;
use core::mem::ManuallyDrop;
use std::ffi::OsString;
use std::path::PathBuf;

use libloading::Library;

use crate::error::{Error, Result};

/// CUresult; 0 is success.
pub(super) type Status = c_int;
/// CUdevice.
pub(super) type DeviceNumber = c_int;
/// CUcontext, CUmodule, CUfunction, CUstream, CUevent, CUgraph, CUgraphExec or CUgraphNode.
pub(super) type Handle = *mut c_void;
/// CUdeviceptr.
pub(super) type Address = u64;

/// Environment variable with the path of the library.
const VARIABLE: &str = "NVGPU_LIBCUDA";
/// Environment variable with the path of the CUDA library of this project.
const OWN_VARIABLE: &str = "ORIN_LIBCUDA";
/// Its file name where cargo has built it, beside the program.
const OWN_NAME: &str = "libcuda.so";
/// Default locations: the loader's search path, then the paths of JetPack 6 and 5.
const PLACES: [&str; 3] = [
    "libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
];

/// CUDA_KERNEL_NODE_PARAMS_v1, which `cuGraphExecKernelNodeSetParams` takes.
#[repr(C)]
#[derive(Debug)]
pub(super) struct KernelNode {
    pub(super) function: Handle,
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared_bytes: c_uint,
    pub(super) arguments: *mut *mut c_void,
    pub(super) extra: *mut *mut c_void,
}

macro_rules! functions {
    ($($field:ident $symbol:literal ($($parameter:ty),*);)*) => {
        /// The functions of the library. Each returns a [`Status`].
        #[derive(Clone, Copy)]
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($parameter),*) -> Status,)*
        }

        impl Functions {
            /// # Safety
            ///
            /// The library must be libcuda, and must not be unloaded while the result is in use.
            unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: libcuda declares the function with this type.
                    $($field: *unsafe { library.get($symbol) }?,)*
                })
            }
        }
    };
}

functions! {
    init c"cuInit" (c_uint);
    error_name c"cuGetErrorName" (Status, *mut *const c_char);
    driver_version c"cuDriverGetVersion" (*mut c_int);
    device c"cuDeviceGet" (*mut DeviceNumber, c_int);
    device_name c"cuDeviceGetName" (*mut c_char, c_int, DeviceNumber);
    device_attribute c"cuDeviceGetAttribute" (*mut c_int, c_int, DeviceNumber);
    context_flags c"cuDevicePrimaryCtxSetFlags_v2" (DeviceNumber, c_uint);
    context_retain c"cuDevicePrimaryCtxRetain" (*mut Handle, DeviceNumber);
    context_release c"cuDevicePrimaryCtxRelease_v2" (DeviceNumber);
    context_set c"cuCtxSetCurrent" (Handle);
    context_synchronize c"cuCtxSynchronize" ();
    module_load c"cuModuleLoadData" (*mut Handle, *const c_void);
    module_unload c"cuModuleUnload" (Handle);
    module_function c"cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    allocate c"cuMemAlloc_v2" (*mut Address, usize);
    free c"cuMemFree_v2" (Address);
    allocate_async c"cuMemAllocAsync" (*mut Address, usize, Handle);
    free_async c"cuMemFreeAsync" (Address, Handle);
    host_allocate c"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free c"cuMemFreeHost" (*mut c_void);
    host_address c"cuMemHostGetDevicePointer_v2" (*mut Address, *mut c_void, c_uint);
    copy_to_device c"cuMemcpyHtoD_v2" (Address, *const c_void, usize);
    copy_to_host c"cuMemcpyDtoH_v2" (*mut c_void, Address, usize);
    copy_to_device_async c"cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
    copy_to_host_async c"cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Handle);
    copy_on_device c"cuMemcpyDtoDAsync_v2" (Address, Address, usize, Handle);
    copy_peer c"cuMemcpyPeerAsync" (Address, Handle, Address, Handle, usize, Handle);
    peer_enable c"cuCtxEnablePeerAccess" (Handle, c_uint);
    launch c"cuLaunchKernel"
        (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    stream c"cuStreamCreate" (*mut Handle, c_uint);
    stream_destroy c"cuStreamDestroy_v2" (Handle);
    stream_synchronize c"cuStreamSynchronize" (Handle);
    stream_wait_value c"cuStreamWaitValue64_v2" (Handle, Address, u64, c_uint);
    stream_write_value c"cuStreamWriteValue64_v2" (Handle, Address, u64, c_uint);
    capture_begin c"cuStreamBeginCapture_v2" (Handle, c_int);
    capture_end c"cuStreamEndCapture" (Handle, *mut Handle);
    event c"cuEventCreate" (*mut Handle, c_uint);
    event_destroy c"cuEventDestroy_v2" (Handle);
    event_record c"cuEventRecord" (Handle, Handle);
    event_query c"cuEventQuery" (Handle);
    event_synchronize c"cuEventSynchronize" (Handle);
    graph_nodes c"cuGraphGetNodes" (Handle, *mut Handle, *mut usize);
    graph_instantiate c"cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    graph_launch c"cuGraphLaunch" (Handle, Handle);
    graph_set_kernel c"cuGraphExecKernelNodeSetParams" (Handle, Handle, *const KernelNode);
    graph_destroy c"cuGraphDestroy" (Handle);
    graph_exec_destroy c"cuGraphExecDestroy" (Handle);
}

/// The loaded library.
pub(super) struct Driver {
    pub(super) functions: Functions,
    /// Name or path under which it was found.
    pub(super) name: String,
    /// Never unloaded, because libcuda runs its own threads.
    _library: ManuallyDrop<Library>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The locations to try, in order: the file that the variable names, else the default locations.
fn places(variable: Option<OsString>) -> Vec<PathBuf> {
    match variable.filter(|value| !value.is_empty()) {
        Some(value) => vec![value.into()],
        None => PLACES.iter().map(PathBuf::from).collect(),
    }
}

/// The file of the CUDA library of this project: what the variable names, else the file beside this program.
///
/// # Errors
///
/// [`Error::NoOwnCuda`] if there is no such file.
pub(super) fn own_library() -> Result<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join(OWN_NAME));
    let named = std::env::var_os(OWN_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = named.or_else(beside).unwrap_or_else(|| OWN_NAME.into());
    if path.is_file() { Ok(path) } else { Err(Error::NoOwnCuda { path }) }
}

/// The dynamic loader's message.
pub(super) fn reason(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl Driver {
    /// Loads libcuda.
    ///
    /// # Errors
    ///
    /// [`Error::NoCuda`].
    pub(super) fn load() -> Result<Self> {
        Self::load_from(places(std::env::var_os(VARIABLE)))
    }

    /// Loads the library at `path` alone.
    ///
    /// # Errors
    ///
    /// [`Error::NoCuda`].
    pub(super) fn load_file(path: PathBuf) -> Result<Self> {
        Self::load_from(vec![path])
    }

    fn load_from(places: Vec<PathBuf>) -> Result<Self> {
        let mut tried = Vec::new();
        for place in places {
            match Self::open(&place) {
                Ok(library) => return Ok(library),
                Err(error) => tried.push(format!("{}: {}", place.display(), reason(&error))),
            }
        }
        Err(Error::NoCuda { tried })
    }

    fn open(place: &std::path::Path) -> Result<Self, libloading::Error> {
        // SAFETY: this is the user's CUDA driver, whose initialisers are meant to run when it is loaded.
        let library = ManuallyDrop::new(unsafe { Library::new(place) }?);
        // SAFETY: the library is libcuda, and it is never unloaded.
        let functions = unsafe { Functions::find(&library) }?;
        Ok(Self { functions, name: place.display().to_string(), _library: library })
    }

    /// Returns an error unless the status is success.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut name = core::ptr::null();
        // SAFETY: the pointer is valid for the call.
        let known = unsafe { (self.functions.error_name)(status, &raw mut name) } == 0 && !name.is_null();
        let name = if known {
            // SAFETY: libcuda's names are constant C strings.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "unknown error".to_owned()
        };
        Err(Error::Cuda { call, reason: format!("{name} ({status})") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_replaces_the_usual_places() {
        assert_eq!(places(Some("/opt/libcuda.so".into())), [PathBuf::from("/opt/libcuda.so")]);
        assert_eq!(places(None).len(), PLACES.len());
        assert_eq!(places(Some(OsString::new())).len(), PLACES.len());
    }

    #[test]
    fn what_was_tried_is_told() {
        let error = Driver::load_from(vec!["/no/such/libcuda.so.1".into()]).unwrap_err().to_string();
        assert!(error.contains("/no/such/libcuda.so.1: ") && error.contains(VARIABLE), "{error}");
    }

    #[test]
    fn another_library_is_not_taken_for_libcuda() {
        let error = Driver::load_from(vec!["libc.so.6".into()]).unwrap_err().to_string();
        assert!(error.contains("cuInit"), "{error}");
    }

    #[test]
    fn the_struct_has_the_layout_of_c() {
        assert_eq!(size_of::<KernelNode>(), 56);
        assert_eq!(core::mem::offset_of!(KernelNode, block), 20);
        assert_eq!(core::mem::offset_of!(KernelNode, shared_bytes), 32);
        assert_eq!(core::mem::offset_of!(KernelNode, arguments), 40);
    }
}
