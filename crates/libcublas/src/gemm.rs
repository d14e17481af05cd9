//! The functions for products of matrices.

use crate::call::api;
use crate::handle::{Handle, with};
use crate::product::{Element, Matrices, Multiply, Products, in_parts};
use crate::status::{Failure, Result};

/// Numbers of `cudaDataType` and `cublasComputeType_t`.
pub(crate) const F32: u32 = 0;
const F16: u32 = 2;
const COMPUTE_16F: u32 = 64;
const COMPUTE_32F: u32 = 68;

/// Where the matrices of a batch are, and their number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Batch {
    /// At equal distances.
    Strided(i64),
    /// They have a pointer each.
    Arrays(i64),
}

/// A matrix: address, type of the elements, leading dimension, elements to the next of a batch.
pub(crate) type Operand = (usize, u32, i64, i64);

/// The matrices of an operand, of which a column has `height` elements.
pub(crate) fn matrices((at, element, row, stride): Operand, height: i64, batch: Batch) -> Result<Matrices> {
    let element = Element::of(element)?;
    if row < height.max(1) {
        return Err(Failure::INVALID_VALUE);
    }
    let is_array = u32::from(matches!(batch, Batch::Arrays(_)));
    let batch = stride.wrapping_mul(element.bytes().into()).cast_unsigned();
    // CAST: addresses have 64 bits.
    Ok(Matrices { at: at as u64, element, row: size(row)?, batch, is_array, unused: 0 })
}

/// A size, as kernels count it: they add a tile to it.
pub(crate) fn size(value: i64) -> Result<u32> {
    if value < 0 {
        return Err(Failure::INVALID_VALUE);
    }
    i32::try_from(value).map(i32::cast_unsigned).map_err(|_| Failure::Missing("sizes of 2^31"))
}

/// Whether an operation (`cublasOperation_t`) transposes.
pub(crate) fn is_transposed(operation: u32) -> Result<bool> {
    match operation {
        0 => Ok(false),
        // Numbers are their own conjugates.
        1 | 2 => Ok(true),
        _ => Err(Failure::INVALID_VALUE),
    }
}

/// How factors are multiplied, and whether alpha and beta are halves.
fn compute(handle: &Handle, compute: u32, element: Element) -> Result<(Multiply, bool)> {
    let is_half = match (compute, element) {
        (64 | 65, Element::F16) => true,
        (68 | 69 | 74 | 75 | 77, _) => false,
        (64 | 65, _) => return Err(Failure::Missing("sums of halves of other elements")),
        _ => return Err(Failure::Missing("compute types other than 16F and 32F")),
    };
    // CUBLAS_TENSOR_OP_MATH and CUBLAS_TF32_TENSOR_OP_MATH.
    let is_fast = compute >= 74 || compute == COMPUTE_32F && matches!(handle.math & 0xf, 1 | 3);
    let multiply = match element {
        Element::F16 => Multiply::F16,
        Element::Bf16 => Multiply::Bf16,
        Element::F32 if is_fast => Multiply::Tf32,
        Element::F32 => Multiply::F32,
    };
    Ok((multiply, is_half))
}

/// Appends products to the handle's stream: operations, sizes, addresses of alpha and beta, A, B and C. A column-major
/// matrix is a row-major one, transposed: with the factors exchanged the product is row major.
fn gemm(
    handle: usize,
    operations: [u32; 2],
    [m, n, k]: [i64; 3],
    scalars: [usize; 2],
    operands: [Operand; 3],
    batch: Batch,
    compute_type: u32,
) -> Result {
    with(handle, |handle| {
        let (is_a_transposed, is_b_transposed) =
            (is_transposed(operations[0])?, is_transposed(operations[1])?);
        let sizes = [size(n)?, size(m)?, size(k)?];
        let a = matrices(operands[0], if is_a_transposed { k } else { m }, batch)?;
        let b = matrices(operands[1], if is_b_transposed { n } else { k }, batch)?;
        let c = matrices(operands[2], m, batch)?;
        if a.element != b.element {
            return Err(Failure::Missing("factors of different types"));
        }
        let (multiply, is_half) = compute(handle, compute_type, a.element)?;
        let (alpha, beta) = (handle.scalar(scalars[0], is_half)?, handle.scalar(scalars[1], is_half)?);
        let (Batch::Strided(count) | Batch::Arrays(count)) = batch;
        if m == 0 || n == 0 || count == 0 {
            return Ok(());
        }
        if count < 0 || c.at == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        in_parts(count, |before, batch| {
            let (a, b, c) = (b.skip(before), a.skip(before), c.skip(before));
            let (is_a_transposed, is_b_transposed) = (is_b_transposed, is_a_transposed);
            Products { sizes, batch, a, is_a_transposed, b, is_b_transposed, c, alpha, beta, multiply }
                .run(handle)
        })
    })
}

/// A single matrix.
pub(crate) const ONE: Batch = Batch::Strided(1);

api! {
    [cublasSgemm_v2 cublasSgemm_v2_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size, b: word,
        ldb: size, beta: word, c: word, ldc: size,
    ) {
        let operands = [(a, F32, lda, 0), (b, F32, ldb, 0), (c, F32, ldc, 0)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, ONE, COMPUTE_32F)
    }

    [cublasHgemm cublasHgemm_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size, b: word,
        ldb: size, beta: word, c: word, ldc: size,
    ) {
        let operands = [(a, F16, lda, 0), (b, F16, ldb, 0), (c, F16, ldc, 0)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, ONE, COMPUTE_16F)
    }

    [cublasSgemmEx cublasSgemmEx_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, type_a: code, lda: size,
        b: word, type_b: code, ldb: size, beta: word, c: word, type_c: code, ldc: size,
    ) {
        let operands = [(a, type_a, lda, 0), (b, type_b, ldb, 0), (c, type_c, ldc, 0)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, ONE, COMPUTE_32F)
    }

    [cublasGemmEx cublasGemmEx_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, type_a: code, lda: size,
        b: word, type_b: code, ldb: size, beta: word, c: word, type_c: code, ldc: size, compute: code,
        _algorithm: code,
    ) {
        let operands = [(a, type_a, lda, 0), (b, type_b, ldb, 0), (c, type_c, ldc, 0)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, ONE, compute)
    }

    [cublasSgemmStridedBatched cublasSgemmStridedBatched_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size,
        stride_a: long, b: word, ldb: size, stride_b: long, beta: word, c: word, ldc: size, stride_c: long,
        batch: size,
    ) {
        let operands = [(a, F32, lda, stride_a), (b, F32, ldb, stride_b), (c, F32, ldc, stride_c)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, Batch::Strided(batch), COMPUTE_32F)
    }

    [cublasHgemmStridedBatched cublasHgemmStridedBatched_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size,
        stride_a: long, b: word, ldb: size, stride_b: long, beta: word, c: word, ldc: size, stride_c: long,
        batch: size,
    ) {
        let operands = [(a, F16, lda, stride_a), (b, F16, ldb, stride_b), (c, F16, ldc, stride_c)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, Batch::Strided(batch), COMPUTE_16F)
    }

    [cublasGemmStridedBatchedEx cublasGemmStridedBatchedEx_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, type_a: code, lda: size,
        stride_a: long, b: word, type_b: code, ldb: size, stride_b: long, beta: word, c: word, type_c: code,
        ldc: size, stride_c: long, batch: size, compute: code, _algorithm: code,
    ) {
        let operands = [(a, type_a, lda, stride_a), (b, type_b, ldb, stride_b), (c, type_c, ldc, stride_c)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, Batch::Strided(batch), compute)
    }

    [cublasSgemmBatched cublasSgemmBatched_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size, b: word,
        ldb: size, beta: word, c: word, ldc: size, batch: size,
    ) {
        let operands = [(a, F32, lda, 0), (b, F32, ldb, 0), (c, F32, ldc, 0)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, Batch::Arrays(batch), COMPUTE_32F)
    }

    [cublasHgemmBatched cublasHgemmBatched_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size, b: word,
        ldb: size, beta: word, c: word, ldc: size, batch: size,
    ) {
        let operands = [(a, F16, lda, 0), (b, F16, ldb, 0), (c, F16, ldc, 0)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, Batch::Arrays(batch), COMPUTE_16F)
    }

    [cublasGemmBatchedEx cublasGemmBatchedEx_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, type_a: code, lda: size,
        b: word, type_b: code, ldb: size, beta: word, c: word, type_c: code, ldc: size, batch: size, compute: code,
        _algorithm: code,
    ) {
        let operands = [(a, type_a, lda, 0), (b, type_b, ldb, 0), (c, type_c, ldc, 0)];
        gemm(handle, [ta, tb], [m, n, k], [alpha, beta], operands, Batch::Arrays(batch), compute)
    }
}
