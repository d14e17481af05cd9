//! Triangular systems.

use crate::call::api;
use crate::gemm::{F32, Operand, Step, is_transposed, size};
use crate::handle::with;
use crate::kernels::arguments;
use crate::product::{blocks, in_parts};
use crate::status::{Failure, Result};

/// The arguments of a function: side, triangle, operation and diagonal; rows and columns of B; alpha; A and B.
struct Call {
    kinds: [u32; 4],
    sizes: [i64; 2],
    alpha: usize,
    operands: [Operand; 2],
    batch: i64,
}

impl Call {
    /// Appends the solution to the handle's stream.
    fn run(&self, handle: usize) -> Result {
        with(handle, |handle| {
            let [side, triangle, operation, diagonal] = self.kinds;
            let is_transposed = is_transposed(operation)?;
            if side > 1 || triangle > 1 || diagonal > 1 || self.batch < 0 {
                return Err(Failure::INVALID_VALUE);
            }
            let [m, n] = self.sizes;
            let is_right = side == 1;
            let (rows, columns) = (size(m)?, size(n)?);
            let (order, sides) = if is_right { (columns, rows) } else { (rows, columns) };
            let a = self.operands[0].matrices(order.into())?;
            let b = self.operands[1].matrices(m)?;
            let alpha = handle.scalar(self.alpha, false)?;
            // X * op(A) = B is the transpose of op(A) with the transposes of X and B.
            let turned = u32::from(is_transposed != is_right);
            let (is_right, is_lower) = (u32::from(is_right), triangle ^ 1 ^ turned);
            if order == 0 || sides == 0 || self.batch == 0 {
                return Ok(());
            }
            if a.at == 0 || b.at == 0 {
                return Err(Failure::INVALID_VALUE);
            }
            in_parts(self.batch, |before, batch| {
                let (a, b) = (a.skip(before), b.skip(before));
                let arguments = arguments![a, b, alpha, order, sides, turned, is_right, is_lower, diagonal];
                let grid = blocks(u64::from(sides.div_ceil(8)))?;
                handle.kernels.solve.launch([grid, batch, 256, 0], handle.stream, &arguments)
            })
        })
    }
}

api! {
    [cublasStrsm_v2 cublasStrsm_v2_64] (
        handle: word, side: code, triangle: code, operation: code, diagonal: code, m: size, n: size, alpha: word,
        a: word, lda: size, b: word, ldb: size,
    ) {
        let operands = [Operand(a, F32, lda, Step::Distance(0)), Operand(b, F32, ldb, Step::Distance(0))];
        let kinds = [side, triangle, operation, diagonal];
        Call { kinds, sizes: [m, n], alpha, operands, batch: 1 }.run(handle)
    }

    [cublasStrsmBatched cublasStrsmBatched_64] (
        handle: word, side: code, triangle: code, operation: code, diagonal: code, m: size, n: size, alpha: word,
        a: word, lda: size, b: word, ldb: size, batch: size,
    ) {
        let operands = [Operand(a, F32, lda, Step::Array), Operand(b, F32, ldb, Step::Array)];
        let kinds = [side, triangle, operation, diagonal];
        Call { kinds, sizes: [m, n], alpha, operands, batch }.run(handle)
    }
}
