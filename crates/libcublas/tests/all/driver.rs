//! A handle, and memory that CPU and GPU share.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::OnceLock;

use cublas::*;
use half::{bf16, f16};

/// Types of elements (`cudaDataType`), and compute types.
pub(crate) const F32: u32 = 0;
pub(crate) const F16: u32 = 2;
pub(crate) const BF16: u32 = 14;
pub(crate) const COMPUTE_16F: u32 = 64;
pub(crate) const COMPUTE_32F: u32 = 68;

/// Opens the driver's library of this build, so that its name is known, for the software Orin.
fn library() -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    *LIBRARY.get_or_init(|| {
        let path = std::env::current_exe().expect("a test knows its path").with_file_name("libcuda.so");
        let path = CString::new(path.to_str().expect("a path in UTF-8")).expect("no zero byte");
        // SAFETY: every test comes here before it calls a library that reads the environment.
        unsafe { std::env::set_var("ORIN_CUDA_DEVICE", "sim") };
        // SAFETY: the path is a C string; constructors of the library only prepare Rust's run time.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "libcuda.so is not built");
        library.expose_provenance()
    })
}

/// Calls a function of the driver with words.
pub(crate) fn cu<const N: usize>(name: &str, words: [usize; N]) {
    type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize) -> c_int;
    let name = CString::new(name).expect("no zero byte");
    let mut five = [0; 5];
    five[..N].copy_from_slice(&words);
    let [a, b, c, d, e] = five;
    // SAFETY: the functions that tests name take at most five words; pointers among them are valid.
    let code = unsafe {
        let found =
            libc::dlsym(core::ptr::with_exposed_provenance_mut(library()), name.as_ptr().cast::<c_char>());
        assert!(!found.is_null());
        core::mem::transmute::<*mut c_void, Function>(found)(a, b, c, d, e)
    };
    assert_eq!(code, 0, "{name:?}");
}

/// The address of a value of the test.
pub(crate) fn address<T: ?Sized>(value: &T) -> usize {
    core::ptr::from_ref(value).cast::<u8>().expose_provenance()
}

/// The address of a variable that a function writes.
pub(crate) fn place<T>(value: &mut T) -> usize {
    core::ptr::from_mut(value).expose_provenance()
}

/// A handle of the library.
pub(crate) struct Blas(pub(crate) usize);

impl Blas {
    pub(crate) fn new() -> Self {
        library();
        let mut handle = 0_usize;
        // SAFETY: the variable is valid for the call.
        assert_eq!(unsafe { cublasCreate_v2(place(&mut handle)) }, 0);
        Self(handle)
    }

    /// Waits for the GPU.
    pub(crate) fn wait(&self) {
        cu("cuCtxSynchronize", []);
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle is one of the library.
        assert_eq!(unsafe { cublasDestroy_v2(self.0) }, 0);
    }
}

/// Elements in managed memory.
pub(crate) struct Memory {
    pub(crate) address: usize,
    element: u32,
    pub(crate) len: usize,
}

impl Memory {
    pub(crate) fn new(element: u32, values: &[f32]) -> Self {
        let mut address = 0_usize;
        cu("cuMemAllocManaged", [place(&mut address), values.len().max(1) * 4, 1]);
        let memory = Self { address, element, len: values.len() };
        values.iter().enumerate().for_each(|(at, value)| memory.set(at, *value));
        memory
    }

    /// Memory for words, such as pointers.
    pub(crate) fn words(words: &[usize]) -> Self {
        let memory = Self::new(F32, &vec![0.0; words.len() * 2]);
        for (at, word) in words.iter().enumerate() {
            // SAFETY: the memory has room for the words.
            unsafe { core::ptr::with_exposed_provenance_mut::<usize>(memory.address + at * 8).write(*word) };
        }
        memory
    }

    pub(crate) fn bytes(&self) -> usize {
        if self.element == F32 { 4 } else { 2 }
    }

    pub(crate) fn set(&self, at: usize, value: f32) {
        let place = self.address + at * self.bytes();
        let bits = match self.element {
            F16 => f16::from_f32(value).to_bits(),
            _ => bf16::from_f32(value).to_bits(),
        };
        // SAFETY: the element is within the memory, which lives as long as the process, and the GPU is idle.
        unsafe {
            match self.element {
                F32 => core::ptr::with_exposed_provenance_mut::<f32>(place).write(value),
                _ => core::ptr::with_exposed_provenance_mut::<u16>(place).write(bits),
            }
        }
    }

    pub(crate) fn get(&self, at: usize) -> f64 {
        let place = self.address + at * self.bytes();
        // SAFETY: as in `set`.
        let (float, bits) = unsafe {
            match self.element {
                F32 => (core::ptr::with_exposed_provenance::<f32>(place).read(), 0),
                _ => (0.0, core::ptr::with_exposed_provenance::<u16>(place).read()),
            }
        };
        match self.element {
            F32 => float.into(),
            F16 => f16::from_bits(bits).into(),
            _ => bf16::from_bits(bits).into(),
        }
    }
}

/// Numbers from -1 to 1 that have few bits, the same for the same seed.
pub(crate) fn numbers(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(((state >> 24) as u8).cast_signed()) / 128.0
    };
    std::iter::repeat_with(next).take(len).collect()
}
