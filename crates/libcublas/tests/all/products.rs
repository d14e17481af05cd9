//! Products: operations, distances, batches, types, factors.

use crate::driver::{
    BF16, Blas, COMPUTE_16F, COMPUTE_32F, F16, F32, Memory, address, call, numbers, place, wait,
};

/// How the matrices of a batch are given.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    One,
    Stride,
    Pointers,
}

/// A product of the test.
#[derive(Clone, Copy, Debug)]
struct Case {
    operations: [usize; 2],
    sizes: [usize; 3],
    /// Elements of a column beyond its height.
    more: usize,
    by: By,
    /// Of the factors and of the product.
    elements: [usize; 2],
    compute: usize,
    alpha: f32,
    beta: f32,
    /// Whether alpha and beta are in the GPU's memory.
    on_device: bool,
    /// Relative to the size of the sums.
    tolerance: f64,
}

const CASE: Case = Case {
    operations: [0, 0],
    sizes: [33, 18, 40],
    more: 3,
    by: By::One,
    elements: [F32, F32],
    compute: COMPUTE_32F,
    alpha: 1.0,
    beta: 0.0,
    on_device: false,
    tolerance: 1e-6,
};

/// Rows and columns of a factor as it is stored.
fn stored(operation: usize, rows: usize, columns: usize) -> [usize; 2] {
    if operation == 0 { [rows, columns] } else { [columns, rows] }
}

impl Case {
    const fn count(&self) -> usize {
        if matches!(self.by, By::One) { 1 } else { 3 }
    }

    /// Runs it and compares each element; elements between columns must stay.
    fn check(&self, blas: &Blas) {
        let [m, n, k] = self.sizes;
        let shapes = [stored(self.operations[0], m, k), stored(self.operations[1], k, n), [m, n]];
        let leading = shapes.map(|[rows, _]| rows + self.more);
        let strides = [0, 1, 2].map(|at| leading[at] * shapes[at][1] + self.more);
        let [a, b, c] = [0, 1, 2].map(|at| {
            let mut values = numbers(at + 1, strides[at] * self.count());
            if at == 2 && self.beta == 0.0 {
                values.fill(f32::NAN);
            }
            Memory::new(self.elements[at / 2], &values)
        });
        let before: Vec<_> = (0..c.len).map(|at| c.get(at)).collect();
        self.launch(blas, [&a, &b, &c], leading, strides);
        wait();
        for batch in 0..self.count() {
            for column in 0..n {
                for row in 0..leading[2] {
                    let at = batch * strides[2] + column * leading[2] + row;
                    if row >= m {
                        assert_eq!(c.get(at).to_bits(), before[at].to_bits(), "{self:?}: between columns");
                        continue;
                    }
                    let element = |memory: &Memory, which: usize, row, column| {
                        let [row, column] = stored(self.operations[which], row, column);
                        memory.get(batch * strides[which] + column * leading[which] + row)
                    };
                    let sum: f64 = (0..k).map(|i| element(&a, 0, row, i) * element(&b, 1, i, column)).sum();
                    let old = if self.beta == 0.0 { 0.0 } else { f64::from(self.beta) * before[at] };
                    let (expected, found) = (f64::from(self.alpha) * sum + old, c.get(at));
                    let limit = self.tolerance * (1.0 + expected.abs());
                    assert!(
                        (found - expected).abs() <= limit,
                        "{self:?}: {found} is not {expected} at {row}, {column}"
                    );
                }
            }
        }
    }

    fn launch(&self, blas: &Blas, memory: [&Memory; 3], ld: [usize; 3], stride: [usize; 3]) {
        let ([ta, tb], [m, n, k], count) = (self.operations, self.sizes, self.count());
        let element = if self.compute == COMPUTE_16F { F16 } else { F32 };
        let [alpha, beta] = [self.alpha, self.beta].map(|value| Memory::new(element, &[value]).address);
        let arrays = [0, 1, 2].map(|at| {
            let each = |batch| memory[at].address + batch * stride[at] * memory[at].bytes();
            Memory::words(&(0..count).map(each).collect::<Vec<_>>()).address
        });
        let [a, b, c] = if self.by == By::Pointers { arrays } else { memory.map(|memory| memory.address) };
        let [factor, result] = self.elements;
        let (name, strides, counts) = match self.by {
            By::One => ("cublasGemmEx", [None; 3], None),
            By::Stride => ("cublasGemmStridedBatchedEx", stride.map(Some), Some(count)),
            By::Pointers => ("cublasGemmBatchedEx", [None; 3], Some(count)),
        };
        let mut words = vec![blas.0, ta, tb, m, n, k, alpha, a, factor, ld[0]];
        words.extend(strides[0]);
        words.extend([b, factor, ld[1]]);
        words.extend(strides[1]);
        words.extend([beta, c, result, ld[2]]);
        words.extend(strides[2].into_iter().chain(counts));
        words.extend([self.compute, 0]);
        assert_eq!(call("cublasSetPointerMode_v2", &[blas.0, self.on_device.into()]), 0);
        assert_eq!(call(name, &words), 0, "{self:?}");
    }
}

#[test]
fn operations_and_batches_are_those_of_the_reference() {
    let blas = Blas::new();
    for operations in [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]] {
        for by in [By::One, By::Stride, By::Pointers] {
            Case { operations, by, ..CASE }.check(&blas);
            // Rows at multiples of 16 bytes.
            let elements = [F16, F32];
            Case { operations, by, elements, sizes: [24, 16, 40], more: 8, ..CASE }.check(&blas);
        }
    }
}

#[test]
fn factors_scale_the_product_and_the_target() {
    let blas = Blas::new();
    for (alpha, beta) in [(1.0, 1.0), (-0.5, 0.0), (2.0, -0.5), (0.0, 0.5), (0.0, 0.0)] {
        for (on_device, by) in [(false, By::One), (true, By::One), (true, By::Pointers)] {
            let case = Case { alpha, beta, on_device, by, ..CASE };
            case.check(&blas);
            let halves = Case { elements: [F16, F16], compute: COMPUTE_16F, tolerance: 2e-3, ..case };
            halves.check(&blas);
        }
    }
    // Sums of no products.
    Case { sizes: [5, 4, 0], beta: 0.5, ..CASE }.check(&blas);
    Case { sizes: [5, 4, 0], ..CASE }.check(&blas);
}

#[test]
fn types_of_elements_are_those_of_the_arguments() {
    let blas = Blas::new();
    for factor in [F16, BF16, F32] {
        for (result, tolerance) in [(F32, 1e-6), (F16, 1e-3), (BF16, 8e-3)] {
            let case = Case { elements: [factor, result], tolerance, operations: [1, 0], ..CASE };
            case.check(&blas);
            Case { beta: 0.75, ..case }.check(&blas);
        }
    }
}

/// Large enough for the tiles of the other kernels.
#[test]
fn large_products_use_large_tiles() {
    let blas = Blas::new();
    let case = Case { sizes: [264, 1024, 32], more: 0, elements: [F16, F16], tolerance: 1e-3, ..CASE };
    case.check(&blas);
    Case { elements: [F32, F32], operations: [1, 0], tolerance: 1e-6, ..case }.check(&blas);
}

/// A factor of 12 bits is exact by default, and rounded to 11 bits with TF32.
#[test]
fn the_math_mode_decides_how_exact_floats_are() {
    let blas = Blas::new();
    let value = 1.0 + 1.0 / 4096.0;
    let (a, b, result) = (Memory::new(F32, &[value]), Memory::new(F32, &[1.0]), Memory::new(F32, &[0.0]));
    let (one, zero) = (1.0_f32, 0.0_f32);
    let (alpha, beta) = (address(&one), address(&zero));
    let product = |mode, compute| {
        assert_eq!(call("cublasSetMathMode", &[blas.0, mode]), 0);
        let (a, b, c) = (a.address, b.address, result.address);
        let words =
            [blas.0, 0, 0, 1, 1, 1, alpha, a, F32, 1, b, F32, 1, beta, c, F32, 1, compute, usize::MAX];
        assert_eq!(call("cublasGemmEx", &words), 0);
        wait();
        result.get(0) == f64::from(value)
    };
    assert!(product(0, COMPUTE_32F) && product(2, COMPUTE_32F) && product(3, 69));
    assert!(!product(3, COMPUTE_32F) && !product(0, 77));
}

#[test]
fn a_captured_product_runs_when_its_graph_does() {
    let blas = Blas::new();
    let good = |name: &str, words: &[usize]| assert_eq!(call(name, words), 0, "{name}");
    let (mut stream, mut graph, mut executable, mut count) = (0_usize, 0_usize, 0_usize, 0_usize);
    good("cuStreamCreate", &[place(&mut stream), 1]);
    let [a, b, c] = [[1.0, 2.0, 3.0, 4.0]; 3].map(|values| Memory::new(F32, &values));
    let (alpha, beta) = (1.0_f32, 2.0_f32);
    let (x, y) = (address(&alpha), address(&beta));
    // Once with memory of the stream, once with that of the program.
    for (workspace, nodes) in [(0, 5), (1 << 16, 3)] {
        let memory = Memory::new(F32, &vec![0.0; workspace / 4]);
        good("cublasSetStream_v2", &[blas.0, stream]);
        good("cublasSetWorkspace_v2", &[blas.0, memory.address, workspace]);
        good("cuStreamBeginCapture_v2", &[stream, 0]);
        good("cublasSgemm_v2", &[blas.0, 0, 1, 2, 2, 2, x, a.address, 2, b.address, 2, y, c.address, 2]);
        good("cuStreamEndCapture", &[stream, place(&mut graph)]);
        good("cuGraphGetNodes", &[graph, 0, place(&mut count)]);
        assert_eq!(count, nodes);
        c.set(0, 1.0);
        good("cuGraphInstantiateWithFlags", &[place(&mut executable), graph, 0]);
        good("cuGraphLaunch", &[executable, stream]);
        wait();
        // The first row of a is 1 3, and so is the first column of b, transposed.
        assert_eq!(c.get(0), 1.0 * 1.0 + 3.0 * 3.0 + 2.0);
    }
}
