//! Wrong calls, states of handles, exports, parameters.

use std::ffi::CStr;

use crate::driver::{Blas, COMPUTE_32F, F32, Memory, address, call, is_exported, place, wait};

#[test]
fn wrong_arguments_have_their_status() {
    let blas = Blas::new();
    let memory = Memory::new(F32, &[1.0; 64]).address;
    let one = 1.0_f32;
    let (x, b, c) = (address(&one), memory + 64, memory + 128);
    let good = [blas.0, 0, 0, 4, 4, 4, x, memory, F32, 4, b, F32, 4, x, c, F32, 4, COMPUTE_32F, 0];
    assert_eq!(call("cublasGemmEx_64", &good), 0);
    // Argument, wrong value, status.
    let cases = "0 0 1, 0 4660 1, 0 -1 1, 1 3 7, 2 9 7, 3 -1 7, 4 -1 7, 5 -1 7, 3 5 7, 6 0 7, 7 0 7, 9 3 7, 9 0 7, \
        10 0 7, 12 3 7, 13 0 7, 14 0 7, 16 3 7, 8 1 15, 11 2 15, 15 8 15, 9 2147483648 15, 17 70 15, 17 64 15";
    for case in cases.split(", ") {
        let numbers: Vec<i64> = case.split(' ').map(|word| word.parse().expect("a number")).collect();
        let mut words = good;
        words[numbers[0] as usize] = numbers[1] as usize;
        assert_eq!(i64::from(call("cublasGemmEx_64", &words)), numbers[2], "{case}");
    }
    let mut nothing = good;
    (nothing[3], nothing[14]) = (0, 0);
    assert_eq!(call("cublasGemmEx_64", &nothing), 0);
    for (status, name, words) in [
        (7, "cublasCreate_v2", &[0][..]),
        (1, "cublasDestroy_v2", &[1]),
        (7, "cublasGetStream_v2", &[blas.0, 0]),
        (7, "cublasSetMathMode", &[blas.0, 4]),
        (7, "cublasSetPointerMode_v2", &[blas.0, 2]),
        (7, "cublasSetWorkspace_v2", &[blas.0, 8, 8]),
        (7, "cublasStrsm_v2", &[blas.0, 2, 0, 0, 0, 1, 1, x, memory, 1, memory, 1]),
        (7, "cublasStrsmBatched", &[blas.0, 0, 0, 0, 0, 1, 1, x, memory, 1, 0, 1, 1]),
        (
            7,
            "cublasSgemmBatched",
            &[blas.0, 0, 0, 1, 1, 1, x, memory, 1, memory, 1, x, memory, 1, usize::MAX],
        ),
    ] {
        assert_eq!(call(name, words), status, "{name}");
    }
    wait();
}

#[test]
fn handles_keep_what_is_set() {
    let blas = Blas::new();
    for (set, get, value) in [
        ("cublasSetStream_v2", "cublasGetStream_v2", 1),
        ("cublasSetMathMode", "cublasGetMathMode", 19),
        ("cublasSetPointerMode_v2", "cublasGetPointerMode_v2", 1),
        ("cublasSetAtomicsMode", "cublasGetAtomicsMode", 1),
    ] {
        let mut found = 0_usize;
        assert_eq!(call(set, &[blas.0, value]), 0);
        assert_eq!((call(get, &[blas.0, place(&mut found)]), found), (0, value), "{get}");
    }
    let mut version = 0_i32;
    assert_eq!((call("cublasGetVersion_v2", &[blas.0, place(&mut version)]), version), (0, 130_000));
    // SAFETY: the names are C strings of the library.
    let name = unsafe { CStr::from_ptr(cublas::cublasGetStatusString(7)) };
    assert_eq!(name, c"CUBLAS_STATUS_INVALID_VALUE");
}

#[test]
fn the_documented_functions_are_exported() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cuda.md");
    let document = std::fs::read_to_string(path).expect("the page is there");
    let names: Vec<_> = document.split('`').filter(|part| part.starts_with("cublas")).collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        assert!(is_exported(name) || is_exported(&format!("{name}_v2")), "{name}");
    }
}

/// `DenseParams`, of which the crate has a copy, is as the CUDA header asserts it.
#[test]
fn parameters_are_those_of_the_kernels() {
    let header = include_str!("../../../../kernels/gemm/parameters.cuh");
    let own = include_str!("../../src/kernels.rs").split("struct DenseParams {").nth(1).expect("the struct");
    let mut at = 0;
    for field in own.split('}').next().expect("its end").split(',').filter(|field| field.contains(':')) {
        let (name, kind) = field.trim().trim_start_matches("pub(crate) ").split_once(": ").expect("a field");
        assert!(header.contains(&format!("AT(DenseParams, {name}, {at});")), "{name} at {at}");
        at += if kind == "u64" { 8 } else { 4 };
    }
    assert!(header.contains(&format!("sizeof(DenseParams) == {at},")));
}
