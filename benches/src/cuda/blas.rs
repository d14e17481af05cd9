//! The rival in matrix products: NVIDIA's cuBLAS, located at run time.
//!
//! The declarations follow NVIDIA's cuBLAS reference. cuBLAS stores matrices column by column: it computes the
//! transpose of a product of matrices that are stored row by row.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::{fmt, ptr};
use std::rc::Rc;

use libloading::Library;

use super::library::{Handle, Status, reason};
use super::{Context, Cuda, Memory, Stream};
use crate::error::{Error, Result};

/// Names of the library, newest first.
const NAMES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so.11"];
/// CUBLAS_OP_N and CUBLAS_OP_T.
const OPERATIONS: [c_int; 2] = [0, 1];
/// CUDA_R_32F.
const TYPE_F32: c_int = 0;
/// CUBLAS_GEMM_DEFAULT.
const ANY_ALGORITHM: c_int = -1;

/// The elements of the factors, and how cuBLAS multiplies them. Sums and results are 32-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// IEEE halves.
    F16,
    /// Upper halves of 32-bit floats.
    Bf16,
    /// 32-bit floats, rounded to TF32.
    Tf32,
    /// 32-bit floats.
    F32,
}

impl Elements {
    /// The number of a cudaDataType, and that of a cublasComputeType_t.
    const fn numbers(self) -> (c_int, c_int) {
        match self {
            Self::F16 => (2, 68),
            Self::Bf16 => (14, 68),
            Self::Tf32 => (TYPE_F32, 77),
            Self::F32 => (TYPE_F32, 68),
        }
    }
}

type Product = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    u64,
    c_int,
    c_int,
    u64,
    c_int,
    c_int,
    *const c_void,
    u64,
    c_int,
    c_int,
    c_int,
    c_int,
) -> Status;

/// A cuBLAS handle on a stream.
pub struct Blas {
    context: Rc<Context>,
    handle: Handle,
    product: Product,
    destroy: unsafe extern "C" fn(Handle) -> Status,
}

impl fmt::Debug for Blas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blas").field("context", &self.context).finish_non_exhaustive()
    }
}

fn check(call: &'static str, status: Status) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::Cuda { call, reason: format!("status {status}") }) }
}

fn load(names: &[&str]) -> Result<ManuallyDrop<Library>> {
    let mut tried = Vec::new();
    for name in names {
        // SAFETY: this is the user's cuBLAS, whose initialisers are meant to run when it is loaded.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(ManuallyDrop::new(library)),
            Err(error) => tried.push(format!("{name}: {}", reason(&error))),
        }
    }
    Err(Error::NoBlas { tried })
}

impl Cuda {
    /// Loads cuBLAS for products on a stream.
    ///
    /// # Errors
    ///
    /// [`Error::NoBlas`] without the library; errors of cuBLAS.
    pub fn blas(&self, stream: &Stream) -> Result<Blas> {
        self.enter()?;
        // Never unloaded.
        let library = load(&NAMES)?;
        let missing = |error: libloading::Error| Error::NoBlas { tried: vec![reason(&error)] };
        type Create = unsafe extern "C" fn(*mut Handle) -> Status;
        type SetStream = unsafe extern "C" fn(Handle, Handle) -> Status;
        // SAFETY: cuBLAS declares the functions with these types.
        let (create, set_stream, product, destroy) = unsafe {
            (
                *library.get::<Create>(c"cublasCreate_v2").map_err(missing)?,
                *library.get::<SetStream>(c"cublasSetStream_v2").map_err(missing)?,
                *library.get::<Product>(c"cublasGemmEx").map_err(missing)?,
                *library
                    .get::<unsafe extern "C" fn(Handle) -> Status>(c"cublasDestroy_v2")
                    .map_err(missing)?,
            )
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the context is current.
        check("cublasCreate", unsafe { create(&raw mut handle) })?;
        let blas = Blas { context: Rc::clone(&self.context), handle, product, destroy };
        // SAFETY: handle and stream live.
        check("cublasSetStream", unsafe { set_stream(handle, stream.handle) })?;
        Ok(blas)
    }
}

impl Blas {
    /// Submits the product of two matrices of `edge` x `edge` elements. `b` is transposed.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if memory is too short; errors of cuBLAS.
    pub fn multiply(
        &self,
        elements: Elements,
        edge: c_int,
        a: &Memory,
        b: &Memory,
        c: &Memory,
    ) -> Result<()> {
        let (kind, compute) = elements.numbers();
        // CAST: an edge is not negative.
        let count = edge as usize * edge as usize;
        let bytes = count * if kind == TYPE_F32 { 4 } else { 2 };
        a.check_length("cublasGemmEx", bytes)?;
        b.check_length("cublasGemmEx", bytes)?;
        c.check_length("cublasGemmEx", 4 * count)?;
        let (one, zero) = (1.0_f32, 0.0_f32);
        let [plain, transposed] = OPERATIONS;
        // SAFETY: the memory has the length that the sizes give, and waits for the GPU before it is freed; the factors
        // are floats on the host, which cuBLAS reads during the call.
        let status = unsafe {
            (self.product)(
                self.handle,
                transposed,
                plain,
                edge,
                edge,
                edge,
                (&raw const one).cast(),
                b.address,
                kind,
                edge,
                a.address,
                kind,
                edge,
                (&raw const zero).cast(),
                c.address,
                TYPE_F32,
                edge,
                compute,
                ANY_ALGORITHM,
            )
        };
        check("cublasGemmEx", status)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: created by `cublasCreate`, destroyed once, and nothing uses it any more.
        let _ = unsafe { (self.destroy)(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_told() {
        let error = load(&["libno_such_blas.so.1"]).unwrap_err().to_string();
        assert!(error.contains("libno_such_blas.so.1: ") && error.contains("LD_LIBRARY_PATH"), "{error}");
    }

    #[test]
    fn elements_have_nvidias_numbers() {
        let numbers = [Elements::F16, Elements::Bf16, Elements::Tf32, Elements::F32].map(Elements::numbers);
        assert_eq!(numbers, [(2, 68), (14, 68), (0, 77), (0, 68)]);
    }
}
