//! The kernels of a context, and their parameters.

use core::ffi::c_void;
use std::ffi::CString;

use crate::driver;
use crate::status::{Failure, Result};

/// The cubins for an Orin and for Hopper GPUs.
const BLAS: [&[u8]; 2] =
    [include_bytes!("../kernels/blas.cubin"), include_bytes!("../kernels/sm_90/blas.cubin")];
const DENSE: [&[u8]; 2] =
    [include_bytes!("../kernels/dense.cubin"), include_bytes!("../kernels/sm_90/dense.cubin")];
/// For SM 9.0 alone.
const WIDE: &[u8] = include_bytes!("../kernels/sm_90/wide.cubin");

/// Attributes of devices and functions (`CUdevice_attribute`, `CUfunction_attribute`).
const MULTIPROCESSORS: u32 = 16;
const MAJOR: u32 = 75;
const MINOR: u32 = 76;
const DYNAMIC_SHARED: u32 = 8;

/// Most dynamic shared memory of `kernels/gemm/dense.cu`, and that of `wide.cu`, in bytes.
const DENSE_SHARED: u32 = 3 * 128 * (128 + 256);
pub(crate) const WIDE_SHARED: u32 = 4 * 128 * (128 + 256) + 1024;

/// A number for a kernel: its value, or where it is in the GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Scalar {
    at: u64,
    value: f32,
    /// 0 for the value, 1 for a float and 2 for a half at the address.
    kind: u32,
}

impl Scalar {
    pub(crate) const fn value(value: f32) -> Self {
        Self { at: 0, value, kind: 0 }
    }

    pub(crate) const fn at(address: usize, is_half: bool) -> Self {
        // CAST: addresses have 64 bits.
        Self { at: address as u64, value: 0.0, kind: if is_half { 2 } else { 1 } }
    }

    /// The number, if it is known.
    pub(crate) fn known(self) -> Option<f32> {
        (self.kind == 0).then_some(self.value)
    }
}

/// `DenseParams` of `kernels/gemm/parameters.cuh`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct DenseParams {
    pub(crate) a_batch: u64,
    pub(crate) b_batch: u64,
    pub(crate) c_batch: u64,
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
    pub(crate) a_row: u32,
    pub(crate) b_row: u32,
    pub(crate) c_row: u32,
    pub(crate) output: u32,
    pub(crate) accumulate: u32,
    pub(crate) scale: f32,
    pub(crate) arrays: u32,
}

/// A kernel, by its address in the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel(usize);

impl Kernel {
    fn find(module: usize, name: &str, shared: u32) -> Result<Self> {
        let name = CString::new(name).map_err(|_| Failure::INTERNAL_ERROR)?;
        let mut function = 0;
        driver::find_function(&mut function, module, name.as_ptr())?;
        if shared > 0 {
            driver::set_function_attribute(function, DYNAMIC_SHARED, shared.cast_signed())?;
        }
        Ok(Self(function))
    }

    /// Launches blocks, `grid` of them for each of `batch` matrices.
    pub(crate) fn launch(
        self,
        [grid, batch, threads, shared]: [u32; 4],
        stream: usize,
        arguments: &[*const c_void],
    ) -> Result {
        driver::launch(self.0, grid, 1, batch, threads, 1, 1, shared, stream, arguments.as_ptr(), 0)
    }
}

/// The addresses of a launch's arguments.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { [$(core::ptr::from_ref(&$value).cast::<core::ffi::c_void>()),*] };
}
pub(crate) use arguments;

fn load(image: &[u8]) -> Result<usize> {
    let mut module = 0;
    driver::load_module(&mut module, image.as_ptr()).map_err(|failure| match failure {
        Failure::EXECUTION_FAILED => Failure::ARCH_MISMATCH,
        other => other,
    })?;
    Ok(module)
}

/// The kernels of a context.
#[derive(Debug)]
pub(crate) struct Kernels {
    modules: Vec<usize>,
    /// By element (half, bfloat16, float as TF32, float), form (rows, columns) and size (large, small, any).
    dense: Vec<Kernel>,
    /// For SM 9.0: by element, without the last, and form.
    wide: Vec<Kernel>,
    /// For elements of 16 and of 32 bits.
    pub(crate) transpose: [Kernel; 2],
    pub(crate) combine: Kernel,
    pub(crate) solve: Kernel,
    /// Large tiles from which a product uses them: most of the GPU's SMs have one then.
    pub(crate) enough: u64,
}

/// An attribute of the current device.
fn attribute(number: u32) -> Result<i32> {
    let (mut device, mut value) = (0, 0);
    driver::current_device(&mut device)?;
    driver::attribute(&mut value, number, device)?;
    Ok(value)
}

impl Kernels {
    /// Loads the cubins in the current context. After an error those that were loaded end with it.
    pub(crate) fn load() -> Result<Self> {
        let (mut dense, mut wide) = (Vec::new(), Vec::new());
        let sm = (attribute(MAJOR)?, attribute(MINOR)?);
        let generation = usize::from(sm.0 >= 9);
        let blas = load(BLAS[generation])?;
        let products = load(DENSE[generation])?;
        let hopper = if sm == (9, 0) { Some(load(WIDE)?) } else { None };
        for element in ["f16", "bf16", "tf32", "f32"] {
            for form in ["rows", "columns"] {
                for size in ["large", "small", "any"] {
                    let name = format!("product_{element}_{form}_{size}");
                    dense.push(Kernel::find(products, &name, DENSE_SHARED)?);
                }
                if let Some(module) = hopper.filter(|_| element != "f32") {
                    wide.push(Kernel::find(module, &format!("wide_{element}_{form}"), WIDE_SHARED)?);
                }
            }
        }
        let find = |name| Kernel::find(blas, name, 0);
        Ok(Self {
            modules: [blas, products].into_iter().chain(hopper).collect(),
            dense,
            wide,
            transpose: [find("transpose_16")?, find("transpose_32")?],
            combine: find("combine")?,
            solve: find("solve")?,
            enough: u64::from(attribute(MULTIPROCESSORS)?.max(1).unsigned_abs()) * 3 / 4,
        })
    }

    /// Unloads the cubins. Their context is current.
    pub(crate) fn unload(&self) {
        for module in &self.modules {
            // They end with the context at the latest.
            let _ = driver::unload_module(*module);
        }
    }

    /// The kernel of an element, a form and a size.
    pub(crate) fn dense(&self, element: usize, is_columns: bool, size: usize) -> Kernel {
        self.dense[(element * 2 + usize::from(is_columns)) * 3 + size]
    }

    /// The kernel for SM 9.0, if there is one.
    pub(crate) fn wide(&self, element: usize, is_columns: bool) -> Option<Kernel> {
        self.wide.get(element * 2 + usize::from(is_columns)).copied()
    }
}
