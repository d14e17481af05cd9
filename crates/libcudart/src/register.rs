//! Fat binaries that compiled programs register, and the kernels and variables in them.

use core::ffi::{CStr, c_char, c_void};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use crate::call::{api, write};
use crate::driver::cu;
use crate::error::{Error, Result, keep};

/// A registered fat binary.
#[derive(Debug)]
struct Binary {
    /// The address of the wrapper.
    image: usize,
    /// The driver's library, once it is loaded.
    library: Mutex<usize>,
}

impl Binary {
    /// The driver's library, loaded by the first use of anything in it.
    fn library(&self) -> Result<usize> {
        let mut library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        if *library == 0 {
            let mut loaded = 0_usize;
            cu!(
                cuLibraryLoadData,
                &raw mut loaded,
                self.image,
                0_usize,
                0_usize,
                0_usize,
                0_usize,
                0_usize,
                0_usize
            )?;
            *library = loaded;
        }
        Ok(*library)
    }
}

/// A kernel or variable of a fat binary.
#[derive(Debug)]
struct Symbol {
    binary: Arc<Binary>,
    name: CString,
    /// The driver's kernel, once it was looked up.
    kernel: Mutex<usize>,
}

impl Symbol {
    fn kernel(&self) -> Result<usize> {
        let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        if *kernel == 0 {
            let mut found = 0_usize;
            cu!(cuLibraryGetKernel, &raw mut found, self.binary.library()?, self.name.as_ptr()).map_err(
                |error| if error == Error::NOT_FOUND { Error::INVALID_DEVICE_FUNCTION } else { error },
            )?;
            *kernel = found;
        }
        Ok(*kernel)
    }
}

/// What is registered: binaries by handle, kernels and variables by their address in the program.
#[derive(Debug, Default)]
struct Registry {
    binaries: HashMap<usize, Arc<Binary>>,
    kernels: HashMap<usize, Arc<Symbol>>,
    variables: HashMap<usize, Arc<Symbol>>,
    /// Variables that the program uses by a pointer, by the address of the pointer.
    managed: HashMap<usize, Arc<Symbol>>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

fn registry<T>(work: impl FnOnce(&Registry) -> T) -> T {
    work(&REGISTRY.read().unwrap_or_else(PoisonError::into_inner))
}

fn change<T>(work: impl FnOnce(&mut Registry) -> T) -> T {
    work(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner))
}

/// The driver's function of a kernel: one that is registered, or a `cudaKernel_t`.
pub(crate) fn function(kernel: usize) -> Result<usize> {
    if let Some(symbol) = registry(|registry| registry.kernels.get(&kernel).cloned()) {
        return symbol.kernel();
    }
    let mut found = 0_usize;
    match cu!(cuKernelGetFunction, &raw mut found, kernel) {
        Ok(()) => Ok(kernel),
        Err(Error::INVALID_HANDLE | Error::INVALID_VALUE) => Err(Error::INVALID_DEVICE_FUNCTION),
        Err(error) => Err(error),
    }
}

/// The address in the program of a kernel, by the driver's function or kernel; itself if it is not registered.
pub(crate) fn host_function(function: usize) -> usize {
    let kernels: Vec<_> =
        registry(|registry| registry.kernels.iter().map(|(at, it)| (*at, Arc::clone(it))).collect());
    let found = kernels.into_iter().find(|(_, symbol)| {
        let kernel = *symbol.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_context = 0_usize;
        kernel != 0
            && (kernel == function
                || cu!(cuKernelGetFunction, &raw mut of_context, kernel).is_ok() && of_context == function)
    });
    found.map_or(function, |(address, _)| address)
}

/// Address and size of a registered variable.
pub(crate) fn variable(symbol: usize) -> Result<(usize, usize)> {
    let found = registry(|registry| registry.variables.get(&symbol).cloned()).ok_or(Error::INVALID_SYMBOL)?;
    let (mut address, mut bytes) = (0_usize, 0_usize);
    cu!(cuLibraryGetGlobal, &raw mut address, &raw mut bytes, found.binary.library()?, found.name.as_ptr())
        .map_err(|error| if error == Error::NOT_FOUND { Error::INVALID_SYMBOL } else { error })?;
    Ok((address, bytes))
}

/// Keeps the name of a kernel or variable.
fn add(handle: usize, name: *const c_char, keep: impl FnOnce(&mut Registry, Arc<Symbol>)) {
    if name.is_null() {
        return;
    }
    // SAFETY: compiled programs register names that are C strings of their own.
    let name = unsafe { CStr::from_ptr(name) }.to_owned();
    change(|registry| {
        let Some(binary) = registry.binaries.get(&handle).cloned() else { return };
        keep(registry, Arc::new(Symbol { binary, name, kernel: Mutex::new(0) }));
    });
}

/// `__cudaRegisterFatBinary` of `crt/host_runtime.h`: registers a fat binary and returns its handle.
///
/// # Safety
///
/// The wrapper and the fat binary live until they are unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: *const c_void) -> usize {
    // Handles are addresses that are never used again; the program only passes them on.
    let handle = Box::into_raw(Box::new(0_usize)).expose_provenance();
    let binary = Binary { image: wrapper.expose_provenance(), library: Mutex::new(0) };
    change(|registry| registry.binaries.insert(handle, Arc::new(binary)));
    handle
}

/// `__cudaRegisterFatBinaryEnd` of `crt/host_runtime.h`: all of a fat binary is registered.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinaryEnd(_handle: usize) {}

/// `__cudaUnregisterFatBinary` of `crt/host_runtime.h`.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaUnregisterFatBinary(handle: usize) {
    let binary = change(|registry| {
        let binary = registry.binaries.remove(&handle)?;
        registry.kernels.retain(|_, symbol| !Arc::ptr_eq(&symbol.binary, &binary));
        registry.variables.retain(|_, symbol| !Arc::ptr_eq(&symbol.binary, &binary));
        registry.managed.retain(|_, symbol| !Arc::ptr_eq(&symbol.binary, &binary));
        Some(binary)
    });
    let Some(binary) = binary else { return };
    let library = core::mem::take(&mut *binary.library.lock().unwrap_or_else(PoisonError::into_inner));
    if library != 0 {
        // The driver may have ended before the program's exit handlers.
        let _ = cu!(raw cuLibraryUnload, library);
    }
}

/// `__cudaRegisterFunction` of `crt/host_runtime.h`.
///
/// # Safety
///
/// `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    handle: usize,
    host: usize,
    _device: usize,
    name: *const c_char,
) {
    add(handle, name, |registry, symbol| drop(registry.kernels.insert(host, symbol)));
}

/// `__cudaRegisterVar` of `crt/host_runtime.h`.
///
/// # Safety
///
/// `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterVar(handle: usize, host: usize, _device: usize, name: *const c_char) {
    add(handle, name, |registry, symbol| drop(registry.variables.insert(host, symbol)));
}

/// `__cudaRegisterManagedVar` of `crt/host_runtime.h`. The program reads `pointer` after `__cudaInitModule`.
///
/// # Safety
///
/// `name` is NULL or a C string. `pointer` is valid for writes until the fat binary is unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterManagedVar(
    handle: usize,
    pointer: usize,
    _device: usize,
    name: *const c_char,
) {
    add(handle, name, |registry, symbol| drop(registry.managed.insert(pointer, symbol)));
}

/// Loads a fat binary, and writes the addresses of its managed variables to the program's pointers.
fn prepare(binary: &Arc<Binary>) -> Result {
    let library = binary.library()?;
    let of_binary = |(&pointer, symbol): (&usize, &Arc<Symbol>)| {
        Arc::ptr_eq(&symbol.binary, binary).then(|| (pointer, Arc::clone(symbol)))
    };
    let managed: Vec<_> = registry(|registry| registry.managed.iter().filter_map(of_binary).collect());
    managed.into_iter().try_for_each(|(pointer, symbol)| {
        let mut address = 0_usize;
        cu!(cuLibraryGetManaged, &raw mut address, 0_usize, library, symbol.name.as_ptr())?;
        write(core::ptr::with_exposed_provenance_mut(pointer), address)
    })
}

/// `__cudaInitModule` of `crt/host_runtime.h`: loads a fat binary, whose managed variables the program may use then.
/// Returns whether it is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaInitModule(handle: usize) -> i8 {
    let binary = registry(|registry| registry.binaries.get(&handle).cloned());
    let loaded = binary.ok_or(Error::INVALID_VALUE).and_then(|binary| prepare(&binary));
    loaded.map_or_else(
        |error| {
            keep(error);
            0
        },
        |_| 1,
    )
}

api! {
    get_kernel_of_compiler(place: *mut usize, kernel: usize) [__cudaGetKernel Legacy] {
        // The compiler's launches look it up, so that a kernel that cannot be loaded fails there.
        write(place, kernel)
    }

    get_kernel(place: *mut usize, kernel: usize) [cudaGetKernel Legacy] {
        write(place, 0)?;
        write(place, function(kernel)?)
    }

    symbol_address(place: *mut usize, symbol: usize) [cudaGetSymbolAddress Legacy] {
        write(place, 0)?;
        write(place, variable(symbol)?.0)
    }

    symbol_size(place: *mut usize, symbol: usize) [cudaGetSymbolSize Legacy] {
        write(place, 0)?;
        write(place, variable(symbol)?.1)
    }

    parameter_count(kernel: usize, place: *mut usize) [cudaFuncGetParamCount Legacy] {
        let function = function(kernel)?;
        cu!(cuFuncGetParamCount, function, place)
    }

    attributes(place: *mut Attributes, kernel: usize) [cudaFuncGetAttributes Legacy] {
        if place.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let function = function(kernel)?;
        let attribute = |number: u32| {
            let mut value = 0_i32;
            cu!(cuFuncGetAttribute, &raw mut value, number, function).map(|()| value)
        };
        // Static shared memory, constants, local memory.
        let [shared, constants, local] = [attribute(1)?, attribute(2)?, attribute(3)?];
        // CAST: sizes are not negative.
        let sizes = [shared, constants, local].map(|size| size.cast_unsigned() as usize);
        let mut values = [0; 30];
        // Threads, registers, versions, cache mode, dynamic shared memory, carveout, clusters.
        for (value, number) in values.iter_mut().zip([0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14]) {
            *value = attribute(number)?;
        }
        write(place, Attributes { sizes, values })
    }
}

/// `cudaFuncAttributes`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Attributes {
    sizes: [usize; 3],
    values: [i32; 30],
}
