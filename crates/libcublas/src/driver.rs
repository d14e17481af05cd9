//! The functions of `libcuda.so.1` that the library calls.

use core::ffi::{c_char, c_void};
use std::sync::OnceLock;

use crate::status::{Failure, Result};

/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: u32 = 2;

macro_rules! driver {
    ($($symbol:ident as $name:ident($($argument:ident: $kind:ty),*);)*) => {
        /// The addresses of the functions.
        struct Driver {
            $($name: unsafe extern "C" fn($($kind),*) -> u32,)*
        }

        /// Opens the library; `None` if there is none, or one without these functions.
        fn open() -> Option<Driver> {
            // SAFETY: the name is a C string. The library is never closed.
            let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
            if library.is_null() {
                return None;
            }
            Some(Driver {$(
                $name: {
                    let name = concat!(stringify!($symbol), "\0").as_ptr().cast::<c_char>();
                    // SAFETY: the library is open, and the name is a C string.
                    let found = unsafe { libc::dlsym(library, name) };
                    if found.is_null() {
                        return None;
                    }
                    // SAFETY: `cuda.h` declares the function with these arguments.
                    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> u32>(found) }
                },
            )*})
        }

        $(
            #[doc = concat!("Calls `", stringify!($symbol), "`.")]
            pub(crate) fn $name($($argument: $kind),*) -> Result {
                let driver = LIBRARY.get_or_init(open).as_ref().ok_or(Failure::NOT_INITIALIZED)?;
                // SAFETY: pointers are those of variables of the caller, or of the program, which promises what
                // `cublas_api.h` documents.
                match unsafe { (driver.$name)($($argument),*) } {
                    0 => Ok(()),
                    OUT_OF_MEMORY => Err(Failure::ALLOC_FAILED),
                    _ => Err(Failure::EXECUTION_FAILED),
                }
            }
        )*
    };
}

/// The functions, if there is a library that has them.
static LIBRARY: OnceLock<Option<Driver>> = OnceLock::new();

driver! {
    cuInit as init(flags: u32);
    cuDevicePrimaryCtxRetain as retain_primary(context: &mut usize, device: i32);
    cuCtxGetCurrent as current_context(context: &mut usize);
    cuCtxSetCurrent as set_current_context(context: usize);
    cuCtxGetDevice as current_device(device: &mut i32);
    cuCtxSynchronize as synchronize();
    cuDeviceGetAttribute as attribute(value: &mut i32, attribute: u32, device: i32);
    cuModuleLoadData as load_module(module: &mut usize, image: *const u8);
    cuModuleUnload as unload_module(module: usize);
    cuModuleGetFunction as find_function(function: &mut usize, module: usize, name: *const c_char);
    cuFuncSetAttribute as set_function_attribute(function: usize, attribute: u32, value: i32);
    cuLaunchKernel as launch(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32,
        stream: usize, parameters: *const *const c_void, extra: usize
    );
    cuMemAllocAsync as allocate(address: &mut u64, bytes: usize, stream: usize);
    cuMemFreeAsync as free(address: u64, stream: usize);
}
