//! Wrong calls, states of handles, exports, parameters.

use std::ffi::{CStr, CString};

use cublas::*;

use crate::driver::{Blas, COMPUTE_32F, F32, Memory, address, place};

/// CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED.
const WRONG: [u32; 3] = [1, 7, 15];

#[test]
fn wrong_arguments_have_their_status() {
    let blas = Blas::new();
    let memory = Memory::new(F32, &[1.0; 64]).address;
    let one = 1.0_f32;
    let (scalar, good) = (
        address(&one),
        [blas.0, 0, 0, 4, 4, 4, 1, memory, 4, memory + 64, 4, 1, memory + 128, 4, F32 as usize],
    );
    let call = |words: [usize; 15]| {
        let [handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, element] = words;
        let (alpha, beta) = (alpha * scalar, beta * scalar);
        let [m, n, k, lda, ldb, ldc] = [m, n, k, lda, ldb, ldc].map(|size| size as i64);
        let [ta, tb, element] = [ta, tb, element].map(|code| code as u32);
        // SAFETY: pointers are null or valid for the matrices.
        unsafe {
            cublasGemmEx_64(
                handle,
                ta,
                tb,
                m,
                n,
                k,
                alpha,
                a,
                element,
                lda,
                b,
                element,
                ldb,
                beta,
                c,
                element,
                ldc,
                COMPUTE_32F,
                0,
            )
        }
    };
    assert_eq!(call(good), 0);
    let negative = usize::MAX;
    for (at, wrong, status) in [
        (0, 0, 1),
        (0, 0x1234, 1),
        (0, negative, 1),
        (1, 3, 7),
        (2, 9, 7),
        (3, negative, 7),
        (4, negative, 7),
        (5, negative, 7),
        (3, 5, 7),
        (6, 0, 7),
        (7, 0, 7),
        (8, 3, 7),
        (8, 0, 7),
        (9, 0, 7),
        (10, 3, 7),
        (11, 0, 7),
        (12, 0, 7),
        (13, 3, 7),
        (14, 1, 15),
        (14, 8, 15),
        (8, 1 << 31, 15),
    ] {
        let mut words = good;
        words[at] = wrong;
        assert_eq!(call(words), status, "argument {at} is {wrong:#x}");
        assert!(WRONG.contains(&status));
    }
    // Nothing to do.
    assert_eq!(
        call({
            let mut words = good;
            words[3] = 0;
            words
        }),
        0
    );
    // SAFETY: NULL is refused.
    unsafe {
        assert_eq!(cublasCreate_v2(0), 7);
        assert_eq!(cublasGetStream_v2(blas.0, 0), 7);
        assert_eq!(cublasDestroy_v2(1), 1);
        assert_eq!((cublasSetMathMode(blas.0, 4), cublasSetPointerMode_v2(blas.0, 2)), (7, 7));
        assert_eq!(cublasSetWorkspace_v2(blas.0, 8, 8), 7);
        assert_eq!(cublasStrsm_v2(blas.0, 2, 0, 0, 0, 1, 1, scalar, memory, 1, memory, 1), 7);
        assert_eq!(
            cublasSgemmStridedBatched(
                blas.0, 0, 0, 1, 1, 1, scalar, memory, 1, 0, memory, 1, 0, scalar, memory, 1, 0, -1
            ),
            7
        );
    }
    blas.wait();
}

#[test]
fn handles_keep_what_is_set() {
    let blas = Blas::new();
    let (mut stream, mut mode, mut version) = (0_usize, 0_u32, 0_i32);
    // SAFETY: the variables are valid; the stream is the legacy default stream.
    unsafe {
        assert_eq!(cublasSetStream_v2(blas.0, 1), 0);
        assert_eq!((cublasGetStream_v2(blas.0, place(&mut stream)), stream), (0, 1));
        assert_eq!(cublasSetMathMode(blas.0, 19), 0);
        assert_eq!((cublasGetMathMode(blas.0, place(&mut mode)), mode), (0, 19));
        assert_eq!(cublasSetPointerMode_v2(blas.0, 1), 0);
        assert_eq!((cublasGetPointerMode_v2(blas.0, place(&mut mode)), mode), (0, 1));
        assert_eq!(cublasSetAtomicsMode(blas.0, 1), 0);
        assert_eq!((cublasGetAtomicsMode(blas.0, place(&mut mode)), mode), (0, 1));
        assert_eq!((cublasGetVersion_v2(blas.0, place(&mut version)), version), (0, 130_000));
        assert_eq!(CStr::from_ptr(cublasGetStatusString(7)), c"CUBLAS_STATUS_INVALID_VALUE");
    }
}

/// The document lists what the library exports.
#[test]
fn the_documented_functions_are_exported() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let path = std::env::current_exe().expect("a test knows its path").with_file_name("libcublas.so");
    let path = CString::new(path.to_str().expect("a path in UTF-8")).expect("no zero byte");
    // SAFETY: the library of this build; its constructors only prepare Rust's run time.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    let document =
        std::fs::read_to_string(format!("{folder}/../../docs/cuda.md")).expect("the page is there");
    let mut count = 0;
    for name in document.split('`').filter(|part| part.starts_with("cublas") && !part.contains(' ')) {
        let known = [name.to_owned(), format!("{name}_v2")].into_iter().any(|name| {
            let name = CString::new(name).expect("no zero byte");
            // SAFETY: only the address is asked for.
            !unsafe { libc::dlsym(library, name.as_ptr()) }.is_null()
        });
        assert!(known, "{name} is not exported");
        count += 1;
    }
    assert!(count > 25, "{count} functions");
}

/// Offsets of `DenseParams`, of which the crate has a copy, as the CUDA header asserts them.
#[test]
fn parameters_are_those_of_the_kernels() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{folder}/{path}")).expect("a source");
    let (header, source) = (read("../../kernels/gemm/parameters.cuh"), read("src/kernels.rs"));
    let own = source
        .split("struct DenseParams {")
        .nth(1)
        .and_then(|rest| rest.split('}').next())
        .expect("the struct");
    let mut at = 0;
    for field in own.split(',').filter(|field| field.contains(':')) {
        let (name, kind) = field.trim().trim_start_matches("pub(crate) ").split_once(": ").expect("a field");
        assert!(header.contains(&format!("AT(DenseParams, {name}, {at});")), "{name} at {at}");
        at += if kind == "u64" { 8 } else { 4 };
    }
    assert!(header.contains(&format!("sizeof(DenseParams) == {at},")));
}
