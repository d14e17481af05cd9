//! Compute kernels: element-wise addition and matrix products.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use half::f16;
use tegra_hcq::{Pod, WaitPolicy, args};

use crate::TIMEOUT;
use crate::bench::{Bench, timed};
use crate::case::{Case, Unit};
use crate::cuda::Argument;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, LINEAR, MATMUL, VECTOR_ADD};

/// Edge lengths of the matrices.
const EDGES: [u64; 5] = [256, 512, 1024, 2048, 4096];
/// Longest edge that the software Orin multiplies in reasonable time.
const MODEL: u64 = 512;
/// Longest edge in a quick run on the software Orin.
const QUICK: u64 = 256;
/// Value of the identity activation (`kernels/nn_linear.cu`).
const IDENTITY: u32 = 0;
/// Lengths of the vectors, with their names.
const LENGTHS: [(u64, &str); 2] = [(1_000_000, "1M"), (10_000_000, "10M")];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (len, name) in LENGTHS {
        // Two vectors are read and one is written, with four bytes per element.
        let case = Case::new(
            &format!("elementwise/add/{name}"),
            "sum of two vectors of f32: launch, submit, spin until completion",
            add,
        );
        cases.push(
            case.size(len).unit(Unit::Bytes(12 * len)).needs(24 * len, false).needs_patience(len > 1_000_000),
        );
    }
    for edge in EDGES {
        cases.push(product_case("f32", edge, |bench| product::<f32>(bench, &F32)));
    }
    for edge in EDGES {
        cases.push(product_case("f16", edge, |bench| product::<u16>(bench, &F16)));
    }
    cases
}

fn product_case(element: &str, edge: u64, run: fn(&mut Bench<'_>) -> Result<()>) -> Case {
    let about = "product of square matrices: launch, submit, spin until completion";
    Case::new(&format!("matmul/{element}/{edge}"), about, run)
        .size(edge)
        .unit(Unit::Operations(2 * edge.pow(3)))
        .needs(24 * edge * edge, edge > MODEL)
        .needs_patience(edge > QUICK)
}

fn add(bench: &mut Bench<'_>) -> Result<()> {
    const BLOCK: u32 = 256;
    let len = bench.len();
    // CAST: the lengths are some millions.
    let count = len as u32;
    let x: Vec<f32> = (0..len).map(|at| (at % 1000) as f32).collect();
    let kernel = bench.program(&VECTOR_ADD)?.kernel("vector_add")?;
    let (a, b) = (bench.device().alloc_from(&x)?, bench.device().alloc_from(&x)?);
    let sum = bench.device().alloc_zeroed::<f32>(len)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let grid = count.div_ceil(BLOCK);
    let mut ours = || {
        timed(|| {
            unsafe { queue.launch(&kernel, grid, BLOCK, &args![&a, &b, &sum, count]) }?;
            Ok(queue.submit()?.wait(TIMEOUT)?)
        })
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let (kernel, stream) = (cuda.kernel(&VECTOR_ADD, "vector_add")?, cuda.stream()?);
        let memory = [cuda.memory(4 * len)?, cuda.memory(4 * len)?, cuda.memory(4 * len)?];
        let [a, b, sum] = memory.each_ref().map(|memory| memory.argument());
        let mut launch = kernel.launch([grid, 1, 1], [BLOCK, 1, 1], &[a, b, sum, Argument::U32(count)])?;
        Ok(Box::new(move || {
            // Keeps the memory until the stream has completed.
            let _memory = &memory;
            timed(|| {
                stream.launch(&mut launch)?;
                stream.wait()
            })
        }))
    })?;
    let got = sum.to_vec()?;
    match (0..len).find(|&at| got[at].to_bits() != (x[at] + x[at]).to_bits()) {
        Some(at) => Err(Error::WrongResult(format!("element {at} is {}, not {}", got[at], x[at] + x[at]))),
        None => Ok(()),
    }
}

/// A kernel that multiplies row-major matrices into an f32 matrix: `kernel(a, b, c, m, n, k)`.
struct Product<T> {
    kernels: &'static Kernels,
    kernel: &'static str,
    /// Columns and rows of `c` per block.
    tile: [u32; 2],
    /// Threads per block.
    block: [u32; 2],
    /// The kernel is a layer of a network: `kernel(a, transposed b, bias, c, m, n, k, activation)`.
    layer: bool,
    /// Converts a small integer to an element exactly.
    element: fn(u8) -> T,
}

/// The product of 32-bit floats.
static F32: Product<f32> = Product {
    kernels: &MATMUL,
    kernel: "matmul_tiled",
    tile: [16, 16],
    block: [16, 16],
    layer: false,
    element: |value| f32::from(value),
};

/// The product of f16 matrices, given as bits, on the tensor cores.
static F16: Product<u16> = Product {
    kernels: &LINEAR,
    kernel: "linear_f16",
    tile: [8, 16],
    block: [32, 1],
    layer: true,
    element: |value| f16::from_f32(value.into()).to_bits(),
};

/// The element of `a` at a position. Elements are small, so sums are exact in any order.
fn left(row: usize, column: usize) -> u8 {
    ((row + 2 * column) % 3) as u8
}

/// The element of `b` at a position.
fn right(row: usize, column: usize) -> u8 {
    ((3 * row + column) % 4) as u8
}

fn product<T: Pod>(bench: &mut Bench<'_>, product: &'static Product<T>) -> Result<()> {
    let edge = bench.len();
    // CAST: the edges are some thousands.
    let n = edge as u32;
    let matrix = |element: &dyn Fn(usize, usize) -> u8| -> Vec<T> {
        (0..edge * edge).map(|at| (product.element)(element(at / edge, at % edge))).collect()
    };
    let left = matrix(&left);
    let right = if product.layer { matrix(&|row, column| right(column, row)) } else { matrix(&right) };
    let kernel = bench.program(product.kernels)?.kernel(product.kernel)?;
    let (a, b) = (bench.device().alloc_from(&left)?, bench.device().alloc_from(&right)?);
    let (c, bias) =
        (bench.device().alloc_zeroed::<f32>(edge * edge)?, bench.device().alloc_zeroed::<f32>(edge)?);
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let [columns, rows] = product.tile.map(|tile| n.div_ceil(tile));
    let [width, height] = product.block;
    let mut ours = || {
        timed(|| {
            let (grid, block) = ((columns, rows), (width, height));
            if product.layer {
                unsafe { queue.launch(&kernel, grid, block, &args![&a, &b, &bias, &c, n, n, n, IDENTITY]) }?;
            } else {
                unsafe { queue.launch(&kernel, grid, block, &args![&a, &b, &c, n, n, n]) }?;
            }
            Ok(queue.submit()?.wait(TIMEOUT)?)
        })
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let (kernel, stream) = (cuda.kernel(product.kernels, product.kernel)?, cuda.stream()?);
        let (of_t, of_f32) = (edge * edge * size_of::<T>(), edge * edge * size_of::<f32>());
        let memory = [cuda.memory(of_t)?, cuda.memory(of_t)?, cuda.memory(of_f32)?, cuda.memory(4 * edge)?];
        let [a, b, c, bias] = memory.each_ref().map(|memory| memory.argument());
        let size = Argument::U32(n);
        let arguments = if product.layer {
            vec![a, b, bias, c, size, size, size, Argument::U32(IDENTITY)]
        } else {
            vec![a, b, c, size, size, size]
        };
        let mut launch = kernel.launch([columns, rows, 1], [width, height, 1], &arguments)?;
        Ok(Box::new(move || {
            // Keeps the memory until the stream has completed.
            let _memory = &memory;
            timed(|| {
                stream.launch(&mut launch)?;
                stream.wait()
            })
        }))
    })?;
    check_product(&c.to_vec()?, edge)
}

/// Checks some elements of every part of the product.
fn check_product(c: &[f32], edge: usize) -> Result<()> {
    for at in (0..edge * edge).step_by(edge * edge / 61).chain([edge * edge - 1]) {
        let (row, column) = (at / edge, at % edge);
        let sum: u64 = (0..edge).map(|k| u64::from(left(row, k)) * u64::from(right(k, column))).sum();
        let (got, wanted) = (f64::from(c[at]), sum as f64);
        if got.to_bits() != wanted.to_bits() {
            return Err(Error::WrongResult(format!("element ({row}, {column}) is {got}, not {wanted}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_product_is_found() {
        let edge = 64;
        let element = |row, column| -> u32 {
            (0..edge).map(|k| u32::from(left(row, k)) * u32::from(right(k, column))).sum()
        };
        let mut c: Vec<f32> = (0..edge * edge).map(|at| element(at / edge, at % edge) as f32).collect();
        check_product(&c, edge).unwrap();
        c[edge * edge - 1] += 1.0;
        let error = check_product(&c, edge).unwrap_err().to_string();
        assert!(error.contains("(63, 63)"), "{error}");
    }
}
