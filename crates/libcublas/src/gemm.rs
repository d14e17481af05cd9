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

/// Where the matrices of a batch are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Elements from one to the next.
    Distance(i64),
    /// They have a pointer each.
    Array,
}

/// An argument: address, type of the elements, leading dimension, place in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand(pub(crate) usize, pub(crate) u32, pub(crate) i64, pub(crate) Step);

impl Operand {
    /// The matrices, of which a column has `height` elements.
    pub(crate) fn matrices(self, height: i64) -> Result<Matrices> {
        let Self(at, element, row, step) = self;
        let element = Element::of(element)?;
        if row < height.max(1) {
            return Err(Failure::INVALID_VALUE);
        }
        let (batch, is_array) = match step {
            Step::Distance(distance) => (distance.wrapping_mul(element.bytes().into()).cast_unsigned(), 0),
            Step::Array => (0, 1),
        };
        // CAST: addresses have 64 bits.
        Ok(Matrices { at: at as u64, element, row: size(row)?, batch, is_array, unused: 0 })
    }
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

/// The arguments of a function.
struct Call {
    operations: [u32; 2],
    sizes: [i64; 3],
    /// Addresses of alpha and beta.
    scalars: [usize; 2],
    /// A, B and C.
    operands: [Operand; 3],
    batch: i64,
    /// `cublasComputeType_t`.
    compute: u32,
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

impl Call {
    /// Appends the products to the handle's stream. A column-major matrix is a row-major one, transposed: with the
    /// factors exchanged the product is row major.
    fn run(&self, handle: usize) -> Result {
        with(handle, |handle| {
            let [is_a_transposed, is_b_transposed] = self.operations.map(is_transposed);
            let (is_a_transposed, is_b_transposed) = (is_a_transposed?, is_b_transposed?);
            let [m, n, k] = self.sizes;
            let sizes = [size(n)?, size(m)?, size(k)?];
            let a = self.operands[0].matrices(if is_a_transposed { k } else { m })?;
            let b = self.operands[1].matrices(if is_b_transposed { n } else { k })?;
            let c = self.operands[2].matrices(m)?;
            if a.element != b.element {
                return Err(Failure::Missing("factors of different types"));
            }
            let (multiply, is_half) = compute(handle, self.compute, a.element)?;
            let [alpha, beta] = self.scalars.map(|address| handle.scalar(address, is_half));
            let (alpha, beta) = (alpha?, beta?);
            if self.batch < 0 {
                return Err(Failure::INVALID_VALUE);
            }
            if m == 0 || n == 0 || self.batch == 0 {
                return Ok(());
            }
            if c.at == 0 {
                return Err(Failure::INVALID_VALUE);
            }
            in_parts(self.batch, |before, batch| {
                let (a, b, c) = (b.skip(before), a.skip(before), c.skip(before));
                let (is_a_transposed, is_b_transposed) = (is_b_transposed, is_a_transposed);
                Products { sizes, batch, a, is_a_transposed, b, is_b_transposed, c, alpha, beta, multiply }
                    .run(handle)
            })
        })
    }
}

/// The only matrix.
const ONE: Step = Step::Distance(0);

api! {
    [cublasSgemm_v2 cublasSgemm_v2_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size, b: word,
        ldb: size, beta: word, c: word, ldc: size,
    ) {
        let operands = [Operand(a, F32, lda, ONE), Operand(b, F32, ldb, ONE), Operand(c, F32, ldc, ONE)];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch: 1, compute: COMPUTE_32F }.run(handle)
    }

    [cublasHgemm cublasHgemm_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size, b: word,
        ldb: size, beta: word, c: word, ldc: size,
    ) {
        let operands = [Operand(a, F16, lda, ONE), Operand(b, F16, ldb, ONE), Operand(c, F16, ldc, ONE)];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch: 1, compute: COMPUTE_16F }.run(handle)
    }

    [cublasSgemmEx cublasSgemmEx_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, type_a: code,
        lda: size, b: word, type_b: code, ldb: size, beta: word, c: word, type_c: code, ldc: size,
    ) {
        let operands = [
            Operand(a, type_a, lda, ONE),
            Operand(b, type_b, ldb, ONE),
            Operand(c, type_c, ldc, ONE),
        ];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch: 1, compute: COMPUTE_32F }.run(handle)
    }

    [cublasGemmEx cublasGemmEx_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, type_a: code,
        lda: size, b: word, type_b: code, ldb: size, beta: word, c: word, type_c: code, ldc: size, compute: code,
        _algorithm: code,
    ) {
        let operands = [
            Operand(a, type_a, lda, ONE),
            Operand(b, type_b, ldb, ONE),
            Operand(c, type_c, ldc, ONE),
        ];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch: 1, compute }.run(handle)
    }

    [cublasSgemmStridedBatched cublasSgemmStridedBatched_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size,
        stride_a: long, b: word, ldb: size, stride_b: long, beta: word, c: word, ldc: size, stride_c: long,
        batch: size,
    ) {
        let operands = [
            Operand(a, F32, lda, Step::Distance(stride_a)),
            Operand(b, F32, ldb, Step::Distance(stride_b)),
            Operand(c, F32, ldc, Step::Distance(stride_c)),
        ];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch, compute: COMPUTE_32F }.run(handle)
    }

    [cublasHgemmStridedBatched cublasHgemmStridedBatched_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size,
        stride_a: long, b: word, ldb: size, stride_b: long, beta: word, c: word, ldc: size, stride_c: long,
        batch: size,
    ) {
        let operands = [
            Operand(a, F16, lda, Step::Distance(stride_a)),
            Operand(b, F16, ldb, Step::Distance(stride_b)),
            Operand(c, F16, ldc, Step::Distance(stride_c)),
        ];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch, compute: COMPUTE_16F }.run(handle)
    }

    [cublasGemmStridedBatchedEx cublasGemmStridedBatchedEx_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, type_a: code,
        lda: size, stride_a: long, b: word, type_b: code, ldb: size, stride_b: long, beta: word, c: word,
        type_c: code, ldc: size, stride_c: long, batch: size, compute: code, _algorithm: code,
    ) {
        let operands = [
            Operand(a, type_a, lda, Step::Distance(stride_a)),
            Operand(b, type_b, ldb, Step::Distance(stride_b)),
            Operand(c, type_c, ldc, Step::Distance(stride_c)),
        ];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch, compute }.run(handle)
    }

    [cublasSgemmBatched cublasSgemmBatched_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size, b: word,
        ldb: size, beta: word, c: word, ldc: size, batch: size,
    ) {
        let operands = [
            Operand(a, F32, lda, Step::Array),
            Operand(b, F32, ldb, Step::Array),
            Operand(c, F32, ldc, Step::Array),
        ];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch, compute: COMPUTE_32F }.run(handle)
    }

    [cublasHgemmBatched cublasHgemmBatched_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, lda: size, b: word,
        ldb: size, beta: word, c: word, ldc: size, batch: size,
    ) {
        let operands = [
            Operand(a, F16, lda, Step::Array),
            Operand(b, F16, ldb, Step::Array),
            Operand(c, F16, ldc, Step::Array),
        ];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch, compute: COMPUTE_16F }.run(handle)
    }

    [cublasGemmBatchedEx cublasGemmBatchedEx_64] (
        handle: word, ta: code, tb: code, m: size, n: size, k: size, alpha: word, a: word, type_a: code,
        lda: size, b: word, type_b: code, ldb: size, beta: word, c: word, type_c: code, ldc: size, batch: size,
        compute: code, _algorithm: code,
    ) {
        let operands = [
            Operand(a, type_a, lda, Step::Array),
            Operand(b, type_b, ldb, Step::Array),
            Operand(c, type_c, ldc, Step::Array),
        ];
        let (operations, sizes, scalars) = ([ta, tb], [m, n, k], [alpha, beta]);
        Call { operations, sizes, scalars, operands, batch, compute }.run(handle)
    }
}
