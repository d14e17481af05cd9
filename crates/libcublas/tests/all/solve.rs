//! Triangular systems.

use crate::driver::{Blas, F32, Memory, address, call, numbers, wait};

/// An element of op(A), with the other triangle as zeros.
fn element(a: &Memory, lda: usize, kinds: [usize; 4], row: usize, column: usize) -> f64 {
    let [_, triangle, operation, diagonal] = kinds;
    let (row, column) = if operation == 0 { (row, column) } else { (column, row) };
    let is_outside = if triangle == 0 { column > row } else { row > column };
    match () {
        () if is_outside => 0.0,
        () if row == column && diagonal == 1 => 1.0,
        () => a.get(column * lda + row),
    }
}

/// Solves two systems and multiplies the solutions with op(A).
fn check(blas: &Blas, kinds: [usize; 4], [m, n]: [usize; 2]) {
    let is_right = kinds[0] == 1;
    let order = if is_right { n } else { m };
    let (lda, ldb, alpha) = (order + 2, m + 1, 0.5_f32);
    let systems = [1, 2].map(|seed| {
        let a = Memory::new(F32, &numbers(seed, lda * order).iter().map(|v| v * 0.1).collect::<Vec<_>>());
        (0..order).for_each(|at| a.set(at * lda + at, 1.5));
        (a, Memory::new(F32, &numbers(seed + 2, ldb * n)))
    });
    let before = systems.each_ref().map(|(_, b)| (0..b.len).map(|at| b.get(at)).collect::<Vec<_>>());
    let pointers_a = Memory::words(&systems.each_ref().map(|(a, _)| a.address));
    let pointers_b = Memory::words(&systems.each_ref().map(|(_, b)| b.address));
    let [side, triangle, operation, diagonal] = kinds;
    let (alpha, a, b) = (address(&alpha), pointers_a.address, pointers_b.address);
    let words = [blas.0, side, triangle, operation, diagonal, m, n, alpha, a, lda, b, ldb, 2];
    assert_eq!(call("cublasStrsmBatched", &words), 0);
    wait();
    for ((a, x), before) in systems.iter().zip(before) {
        for row in 0..m {
            for column in 0..n {
                let terms = (0..order).map(|i| {
                    if is_right {
                        x.get(i * ldb + row) * element(a, lda, kinds, i, column)
                    } else {
                        element(a, lda, kinds, row, i) * x.get(column * ldb + i)
                    }
                });
                let (found, expected) = (terms.sum::<f64>(), 0.5 * before[column * ldb + row]);
                assert!((found - expected).abs() < 1e-4, "{kinds:?}: {found} is not {expected}");
            }
        }
        assert_eq!(x.get(m), before[m], "{kinds:?}: between columns");
    }
}

#[test]
fn solutions_solve_their_systems() {
    let blas = Blas::new();
    for bits in 0..16 {
        check(&blas, [bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3], [35, 10]);
    }
    check(&blas, [1, 1, 0, 0], [9, 70]);
}
