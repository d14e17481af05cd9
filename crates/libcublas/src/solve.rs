//! Triangular systems.

use crate::call::api;
use crate::gemm::{Batch, F32, ONE, Operand, is_transposed, matrices, size};
use crate::handle::with;
use crate::kernels::arguments;
use crate::product::{blocks, in_parts};
use crate::status::{Failure, Result};

/// Appends solutions to the handle's stream: side, triangle, operation and diagonal; rows and columns of B; address of
/// alpha; A and B.
fn solve(
    handle: usize,
    [side, triangle, operation, diagonal]: [u32; 4],
    [m, n]: [i64; 2],
    alpha: usize,
    operands: [Operand; 2],
    batch: Batch,
) -> Result {
    with(handle, |handle| {
        let (Batch::Strided(count) | Batch::Arrays(count)) = batch;
        if side > 1 || triangle > 1 || diagonal > 1 || count < 0 {
            return Err(Failure::INVALID_VALUE);
        }
        // X * op(A) = B is the transpose of op(A) with the transposes of X and B.
        let turned = u32::from(is_transposed(operation)?) ^ side;
        let is_lower = triangle ^ 1 ^ turned;
        let (order, sides) = if side == 1 { (size(n)?, size(m)?) } else { (size(m)?, size(n)?) };
        let (a, b) = (matrices(operands[0], order.into(), batch)?, matrices(operands[1], m, batch)?);
        let alpha = handle.scalar(alpha, false)?;
        if order == 0 || sides == 0 || count == 0 {
            return Ok(());
        }
        if a.at == 0 || b.at == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        in_parts(count, |before, batch| {
            let (a, b) = (a.skip(before), b.skip(before));
            let arguments = arguments![a, b, alpha, order, sides, turned, side, is_lower, diagonal];
            let grid = blocks(u64::from(sides.div_ceil(8)))?;
            handle.kernels.solve.launch([grid, batch, 256, 0], handle.stream, &arguments)
        })
    })
}

api! {
    [cublasStrsm_v2 cublasStrsm_v2_64] (
        handle: word, side: code, triangle: code, operation: code, diagonal: code, m: size, n: size, alpha: word,
        a: word, lda: size, b: word, ldb: size,
    ) {
        let operands = [(a, F32, lda, 0), (b, F32, ldb, 0)];
        solve(handle, [side, triangle, operation, diagonal], [m, n], alpha, operands, ONE)
    }

    [cublasStrsmBatched cublasStrsmBatched_64] (
        handle: word, side: code, triangle: code, operation: code, diagonal: code, m: size, n: size, alpha: word,
        a: word, lda: size, b: word, ldb: size, batch: size,
    ) {
        let operands = [(a, F32, lda, 0), (b, F32, ldb, 0)];
        solve(handle, [side, triangle, operation, diagonal], [m, n], alpha, operands, Batch::Arrays(batch))
    }
}
