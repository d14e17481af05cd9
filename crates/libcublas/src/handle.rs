//! Handles and what they keep.

use core::ffi::{CStr, c_void};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::call::{api, read, write};
use crate::driver;
use crate::kernels::{Kernels, Scalar};
use crate::status::{Failure, Result};

/// A handle's state.
pub(crate) struct Handle {
    context: usize,
    pub(crate) stream: usize,
    /// Address and bytes of the memory that the program gave.
    pub(crate) workspace: (usize, usize),
    /// `cublasMath_t`.
    pub(crate) math: u32,
    pub(crate) kernels: Kernels,
    /// Whether alpha and beta are in the GPU's memory.
    device_scalars: bool,
    atomics: u32,
}

type Handles = BTreeMap<usize, Arc<Mutex<Handle>>>;

/// The number of the last handle, and the handles by number. A number is used once.
static HANDLES: Mutex<(usize, Handles)> = Mutex::new((0, BTreeMap::new()));

/// Works with a handle. Its context becomes that of a thread that has none.
pub(crate) fn with<T>(handle: usize, work: impl FnOnce(&mut Handle) -> Result<T>) -> Result<T> {
    let found = HANDLES.lock().unwrap_or_else(PoisonError::into_inner).1.get(&handle).cloned();
    let found = found.ok_or(Failure::NOT_INITIALIZED)?;
    let mut state = found.lock().unwrap_or_else(PoisonError::into_inner);
    let mut current = 0;
    driver::current_context(&mut current)?;
    if current == 0 {
        driver::set_current_context(state.context)?;
    }
    work(&mut state)
}

impl Handle {
    /// In the current context, else in the primary context of the first device, which becomes current.
    fn new() -> Result<Self> {
        let mut context = 0;
        if driver::current_context(&mut context).is_err() || context == 0 {
            driver::init(0).map_err(|_| Failure::NOT_INITIALIZED)?;
            driver::retain_primary(&mut context, 0)?;
            driver::set_current_context(context)?;
        }
        let kernels = Kernels::load()?;
        let (workspace, math) = ((0, 0), 0);
        Ok(Self { context, stream: 0, workspace, math, kernels, device_scalars: false, atomics: 0 })
    }

    /// The number at an address: a half or a float, by the pointer mode in the memory of host or GPU.
    pub(crate) fn scalar(&self, address: usize, is_half: bool) -> Result<Scalar> {
        if address == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        match (self.device_scalars, is_half) {
            (true, _) => Ok(Scalar::at(address, is_half)),
            (false, true) => Ok(Scalar::value(half::f16::from_bits(read(address)?).to_f32())),
            (false, false) => Ok(Scalar::value(read(address)?)),
        }
    }
}

/// The version: that of CUDA 12.6 if the name of the library's file ends in `.so.12`, otherwise that of CUDA 13.
fn version() -> i32 {
    static IS_13: OnceLock<bool> = OnceLock::new();
    let is_13 = *IS_13.get_or_init(|| {
        // SAFETY: a zeroed record is valid; the address is one of this library, whose name lives as long as it.
        let name = unsafe {
            let mut found: libc::Dl_info = core::mem::zeroed();
            let known = libc::dladdr((&raw const HANDLES).cast::<c_void>(), &raw mut found) != 0;
            if known && !found.dli_fname.is_null() { CStr::from_ptr(found.dli_fname).to_bytes() } else { b"" }
        };
        !name.ends_with(b".so.12")
    });
    if is_13 { 130_000 } else { 120_600 }
}

/// Sets a value of an enumeration that ends before `end`.
fn set(handle: usize, value: u32, end: u32, place: impl FnOnce(&mut Handle, u32)) -> Result {
    with(handle, |state| {
        if value >= end {
            return Err(Failure::INVALID_VALUE);
        }
        place(state, value);
        Ok(())
    })
}

api! {
    [cublasCreate_v2] (handle: word) {
        if handle == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        let state = Arc::new(Mutex::new(Handle::new()?));
        let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
        // Like an address: not 0, aligned.
        handles.0 += 16;
        let number = handles.0;
        handles.1.insert(number, state);
        drop(handles);
        write(handle, number)
    }

    [cublasDestroy_v2] (handle: word) {
        let found = HANDLES.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&handle);
        let found = found.ok_or(Failure::NOT_INITIALIZED)?;
        // The context may have ended, and the kernels with it.
        let _ = driver::synchronize();
        found.lock().unwrap_or_else(PoisonError::into_inner).kernels.unload();
        Ok(())
    }

    [cublasGetVersion_v2] (_handle: word, place: word) {
        write(place, version())
    }

    [cublasSetStream_v2] (handle: word, stream: word) {
        with(handle, |state| {
            // The memory that a program gave belongs to the stream before.
            (state.stream, state.workspace) = (stream, (0, 0));
            Ok(())
        })
    }

    [cublasGetStream_v2] (handle: word, place: word) {
        with(handle, |state| write(place, state.stream))
    }

    [cublasSetWorkspace_v2] (handle: word, address: word, bytes: word) {
        with(handle, |state| {
            if !address.is_multiple_of(256) {
                return Err(Failure::INVALID_VALUE);
            }
            state.workspace = if address == 0 { (0, 0) } else { (address, bytes) };
            Ok(())
        })
    }

    [cublasSetMathMode] (handle: word, mode: code) {
        with(handle, |state| {
            // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: sums are never reduced.
            if mode & !16 > 3 {
                return Err(Failure::INVALID_VALUE);
            }
            state.math = mode;
            Ok(())
        })
    }

    [cublasGetMathMode] (handle: word, place: word) {
        with(handle, |state| write(place, state.math))
    }

    [cublasSetPointerMode_v2] (handle: word, mode: code) {
        set(handle, mode, 2, |state, mode| state.device_scalars = mode == 1)
    }

    [cublasGetPointerMode_v2] (handle: word, place: word) {
        with(handle, |state| write(place, u32::from(state.device_scalars)))
    }

    [cublasSetAtomicsMode] (handle: word, mode: code) {
        set(handle, mode, 2, |state, mode| state.atomics = mode)
    }

    [cublasGetAtomicsMode] (handle: word, place: word) {
        with(handle, |state| write(place, state.atomics))
    }

    [cublasLoggerConfigure] (_is_on: code, _to_stdout: code, _to_stderr: code, _file: word) {
        // There is no log.
        Ok(())
    }
}
