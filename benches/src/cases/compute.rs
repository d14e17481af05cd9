//! Compute kernels: element-wise addition and matrix products.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use half::{bf16, f16};
use infer::gemm::{Dense, Factor, Form, Precision, Shape, Target};
use tegra_hcq::{Pod, Slice, WaitPolicy, args};

use crate::TIMEOUT;
use crate::bench::{Bench, timed};
use crate::case::{Case, Unit};
use crate::cuda::{Argument, Elements};
use crate::error::{Error, Result};
use crate::kernels::VECTOR_ADD;

/// Edge lengths of the matrices.
const EDGES: [u64; 5] = [256, 512, 1024, 2048, 4096];
/// Edge length of elements that differ from others only in the instruction.
const LARGEST: u64 = 4096;
/// Longest edge that the software Orin multiplies in reasonable time.
const MODEL: u64 = 512;
/// Longest edge in a quick run on the software Orin.
const QUICK: u64 = 256;
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
        cases.push(product_case("f32", edge, |bench| product(bench, Elements::F32)));
    }
    cases.push(product_case("tf32", LARGEST, |bench| product(bench, Elements::Tf32)));
    for edge in EDGES {
        cases.push(product_case("f16", edge, |bench| product(bench, Elements::F16)));
    }
    cases.push(product_case("bf16", LARGEST, |bench| product(bench, Elements::Bf16)));
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

/// The element of `a` at a position. Elements are small, so sums are exact in any order.
fn left(row: usize, column: usize) -> u8 {
    ((row + 2 * column) % 3) as u8
}

/// The element of `b` at a position.
fn right(row: usize, column: usize) -> u8 {
    ((3 * row + column) % 4) as u8
}

/// `a`, and the transpose of `b`.
fn factors<T>(edge: usize, element: fn(u8) -> T) -> [Vec<T>; 2] {
    let matrix = |at: &dyn Fn(usize, usize) -> u8| {
        (0..edge * edge).map(|place| element(at(place / edge, place % edge))).collect()
    };
    [matrix(&left), matrix(&|row, column| right(column, row))]
}

fn f16s(slice: Slice<'_, u16>) -> Factor<'_> {
    Factor::F16(slice)
}

fn bf16s(slice: Slice<'_, u16>) -> Factor<'_> {
    Factor::Bf16(slice)
}

fn f32s(slice: Slice<'_, f32>) -> Factor<'_> {
    Factor::F32(slice)
}

fn product(bench: &mut Bench<'_>, elements: Elements) -> Result<()> {
    match elements {
        Elements::F16 => run(bench, elements, |value| f16::from_f32(value.into()).to_bits(), f16s),
        Elements::Bf16 => run(bench, elements, |value| bf16::from_f32(value.into()).to_bits(), bf16s),
        Elements::Tf32 | Elements::F32 => run(bench, elements, f32::from, f32s),
    }
}

fn run<T: Pod>(
    bench: &mut Bench<'_>,
    elements: Elements,
    element: fn(u8) -> T,
    factor: for<'s> fn(Slice<'s, T>) -> Factor<'s>,
) -> Result<()> {
    let edge = bench.len();
    let precision = if elements == Elements::Tf32 { Precision::Tf32 } else { Precision::Full };
    let shape = Shape { precision, ..Shape::new(edge, edge, edge, Form::Columns) };
    let [left, right] = factors(edge, element);
    let gemm = Dense::load(bench.device())?;
    let (a, b) = (bench.device().alloc_from(&left)?, bench.device().alloc_from(&right)?);
    let mut c = bench.device().alloc_zeroed::<f32>(edge * edge)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let mut ours = || {
        timed(|| {
            let (a, b) = (factor((&a).into()), factor((&b).into()));
            gemm.multiply(&mut queue, &shape, a, b, None, Target::F32((&mut c).into()))?;
            Ok(queue.submit()?.wait(TIMEOUT)?)
        })
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let stream = cuda.stream()?;
        let blas = cuda.blas(&stream)?;
        let of_t = edge * edge * size_of::<T>();
        let (mut a, mut b) = (cuda.memory(of_t)?, cuda.memory(of_t)?);
        let c = cuda.memory(edge * edge * size_of::<f32>())?;
        // The power that a product takes, and so the GPU's clock, depends on the numbers.
        a.copy_from(bytemuck::cast_slice(&left))?;
        b.copy_from(bytemuck::cast_slice(&right))?;
        // CAST: the edges are some thousands.
        let edge = edge as i32;
        Ok(Box::new(move || {
            timed(|| {
                blas.multiply(elements, edge, &a, &b, &c)?;
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
    fn only_the_shortest_cases_need_no_patience() {
        let quick = cases().into_iter().filter(|case| !case.needs.patience).map(|case| case.name);
        assert!(quick.eq(["elementwise/add/1M", "matmul/f32/256", "matmul/f16/256"]));
    }

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
