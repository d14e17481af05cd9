//! Both libraries as programs call them, a handle, and memory that CPU and GPU share.

use core::ffi::c_void;
use std::ffi::CString;
use std::sync::OnceLock;

use half::{bf16, f16};

/// Types of elements (`cudaDataType`), and compute types.
pub(crate) const F32: usize = 0;
pub(crate) const F16: usize = 2;
pub(crate) const BF16: usize = 14;
pub(crate) const COMPUTE_16F: usize = 64;
pub(crate) const COMPUTE_32F: usize = 68;

/// A function with words for arguments. It ignores those that it does not declare.
macro_rules! function {
    ($($word:ident)*) => {
        type Function = unsafe extern "C" fn($(function!(@ $word)),*) -> u32;

        fn call_at(function: Function, words: [usize; 23]) -> u32 {
            let [$($word),*] = words;
            // SAFETY: pointers among the words are null or valid for what the function reads and writes.
            unsafe { function($($word),*) }
        }
    };
    (@ $word:ident) => { usize };
}

function! { a b c d e f g h i j k l m n o p q r s t u v w }

/// The driver's library and cuBLAS of this build, for the software Orin.
fn libraries() -> [*mut c_void; 2] {
    static LIBRARIES: OnceLock<[usize; 2]> = OnceLock::new();
    let libraries = LIBRARIES.get_or_init(|| {
        // SAFETY: every test comes here before it calls a library that reads the environment.
        unsafe { std::env::set_var("ORIN_CUDA_DEVICE", "sim") };
        ["libcuda.so", "libcublas.so"].map(|name| {
            let path = std::env::current_exe().expect("a test knows its path").with_file_name(name);
            let path = CString::new(path.to_str().expect("a path in UTF-8")).expect("no zero byte");
            // SAFETY: the path is a C string; constructors of the library only prepare Rust's run time.
            let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            assert!(!library.is_null(), "{name} is not built");
            library.expose_provenance()
        })
    });
    libraries.map(core::ptr::with_exposed_provenance_mut)
}

/// A function of either library.
fn find(name: &str) -> Option<Function> {
    let symbol = CString::new(name).expect("no zero byte");
    let library = libraries()[usize::from(name.starts_with("cublas"))];
    // SAFETY: the name is that of a function that takes words, and returns a number or a pointer.
    unsafe {
        let found = libc::dlsym(library, symbol.as_ptr());
        (!found.is_null()).then(|| core::mem::transmute::<*mut c_void, Function>(found))
    }
}

/// Whether a library has a function.
pub(crate) fn is_exported(name: &str) -> bool {
    find(name).is_some()
}

/// Calls a function of either library. Pointers are null or valid.
pub(crate) fn call(name: &str, words: &[usize]) -> u32 {
    let mut all = [0; 23];
    all[..words.len()].copy_from_slice(words);
    call_at(find(name).expect("the library has the function"), all)
}

/// The address of a value of the test.
pub(crate) fn address<T: ?Sized>(value: &T) -> usize {
    core::ptr::from_ref(value).cast::<u8>().expose_provenance()
}

/// The address of a variable that a function writes.
pub(crate) fn place<T>(value: &mut T) -> usize {
    core::ptr::from_mut(value).expose_provenance()
}

/// A handle of cuBLAS.
pub(crate) struct Blas(pub(crate) usize);

impl Blas {
    pub(crate) fn new() -> Self {
        let mut handle = 0_usize;
        assert_eq!(call("cublasCreate_v2", &[place(&mut handle)]), 0);
        Self(handle)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        assert_eq!(call("cublasDestroy_v2", &[self.0]), 0);
    }
}

/// Waits for the GPU.
pub(crate) fn wait() {
    assert_eq!(call("cuCtxSynchronize", &[]), 0);
}

/// Elements in managed memory, which lives as long as the process.
pub(crate) struct Memory {
    pub(crate) address: usize,
    pub(crate) len: usize,
    element: usize,
}

impl Memory {
    pub(crate) fn new(element: usize, values: &[f32]) -> Self {
        let mut address = 0_usize;
        assert_eq!(call("cuMemAllocManaged", &[place(&mut address), values.len().max(1) * 4, 1]), 0);
        let memory = Self { address, element, len: values.len() };
        values.iter().enumerate().for_each(|(at, value)| memory.set(at, *value));
        memory
    }

    /// Memory for pointers.
    pub(crate) fn words(words: &[usize]) -> Self {
        let halves = words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
        Self::new(F32, &halves.map(f32::from_bits).collect::<Vec<_>>())
    }

    pub(crate) fn bytes(&self) -> usize {
        if self.element == F32 { 4 } else { 2 }
    }

    pub(crate) fn set(&self, at: usize, value: f32) {
        let place = self.address + at * self.bytes();
        let bits = if self.element == F16 {
            f16::from_f32(value).to_bits()
        } else {
            bf16::from_f32(value).to_bits()
        };
        // SAFETY: the element is within the memory, and the GPU is idle.
        unsafe {
            match self.element {
                F32 => core::ptr::with_exposed_provenance_mut::<u32>(place).write(value.to_bits()),
                _ => core::ptr::with_exposed_provenance_mut::<u16>(place).write(bits),
            }
        }
    }

    pub(crate) fn get(&self, at: usize) -> f64 {
        let place = self.address + at * self.bytes();
        // SAFETY: as in `set`; the memory has room for a half.
        let bits = unsafe { core::ptr::with_exposed_provenance::<u16>(place).read() };
        match self.element {
            F16 => f16::from_bits(bits).into(),
            BF16 => bf16::from_bits(bits).into(),
            // SAFETY: as in `set`.
            _ => unsafe { core::ptr::with_exposed_provenance::<f32>(place).read() }.into(),
        }
    }
}

/// Numbers from -1 to 1 that have few bits, the same for the same seed.
pub(crate) fn numbers(seed: usize, len: usize) -> Vec<f32> {
    let mut state = (seed as u32).wrapping_mul(2_654_435_761) | 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(((state >> 24) as u8).cast_signed()) / 128.0
    };
    std::iter::repeat_with(next).take(len).collect()
}
