//! Products of matrices: what C passes, and the launches.

use core::ops::Range;
use std::sync::Arc;

use infer::gemm::{Dense, Factor, Form, Precision, Shape, Target};
use infer::{Error, Launcher};
use tegra_hcq::{Arg, Buffer, Device, Dim3, GraphBuilder, Kernel, NodeId};

use crate::buffer::buffer;
use crate::device::pointer;
use crate::graph::{add, builder, lock_builder};
use crate::pass;
use crate::queue::lock;
use crate::status::Failure;
use crate::types::{
    tegra_hcq_arg, tegra_hcq_arg_kind, tegra_hcq_element, tegra_hcq_form, tegra_hcq_graph_builder,
    tegra_hcq_precision, tegra_hcq_product, tegra_hcq_queue,
};

const F16: u32 = tegra_hcq_element::F16 as u32;
const BF16: u32 = tegra_hcq_element::Bf16 as u32;
const F32: u32 = tegra_hcq_element::F32 as u32;
const ROWS: u32 = tegra_hcq_form::Rows as u32;
const COLUMNS: u32 = tegra_hcq_form::Columns as u32;
const FULL: u32 = tegra_hcq_precision::Full as u32;
const TF32: u32 = tegra_hcq_precision::Tf32 as u32;

/// A matrix, or a batch of them: a part of a buffer.
struct Operand {
    buffer: Arc<Buffer<u8>>,
    range: Range<usize>,
}

/// A product whose sizes are checked against its buffers.
struct Product {
    given: tegra_hcq_product,
    a: Operand,
    b: Operand,
    out: Operand,
    bias: Option<Operand>,
}

/// A field's value, if it is permitted.
fn permitted(value: u32, most: u32, name: &str) -> Result<(), Failure> {
    if value <= most {
        return Ok(());
    }
    Err(Failure::argument(format!("product: {name} is {value}; permitted are 0 to {most}")))
}

impl Product {
    /// Reads what C passes: `a`, `b`, `out`, and a fourth operand for the bias.
    ///
    /// # Safety
    ///
    /// `product` is NULL or valid for reads of its `struct_size` bytes, `operands` for `count` reads.
    unsafe fn read(
        product: *const tegra_hcq_product,
        operands: *const tegra_hcq_arg,
        count: usize,
    ) -> Result<Self, Failure> {
        if product.is_null() || operands.is_null() {
            return Err(pass::null(if product.is_null() { "product" } else { "operands" }));
        }
        // SAFETY: the struct begins with its size, which belongs to the caller.
        let size = unsafe { product.cast::<u32>().read_unaligned() } as usize;
        if size != size_of::<tegra_hcq_product>() {
            return Err(Failure::argument(format!(
                "product: struct_size is {size}; set it to the size of the struct"
            )));
        }
        // SAFETY: the caller's promise; the size is that of the struct.
        let given = unsafe { product.read_unaligned() };
        let tegra_hcq_product { element, output, form, precision, accumulate, .. } = given;
        permitted(element, F32, "element")?;
        permitted(output, F32, "output")?;
        permitted(form, COLUMNS, "form")?;
        permitted(precision, TF32, "precision")?;
        permitted(accumulate, 1, "accumulate")?;
        permitted(given.reserved, 0, "reserved")?;
        if !(3..=4).contains(&count) {
            return Err(Failure::argument(format!(
                "a product has 3 operands, or 4 with a bias, not {count}"
            )));
        }
        let tegra_hcq_product { batch, m, n, k, .. } = given;
        let operand = |at: usize, name: &str, element: u32, sizes: [u64; 3]| {
            let elements = sizes.into_iter().try_fold(1_u64, u64::checked_mul);
            let bytes = elements.and_then(|count| count.checked_mul(if element == F32 { 4 } else { 2 }));
            let bytes = bytes.ok_or_else(|| Failure::argument(format!("{name} has over 2^64 bytes")))?;
            // SAFETY: the caller's promise: `at` is below `count`.
            let argument = unsafe { operands.add(at).read() };
            if argument.kind != tegra_hcq_arg_kind::Buffer as u32 {
                return Err(Failure::argument(format!("{name} is not a buffer")));
            }
            let buffer = buffer(pointer(argument.value))?;
            let range = pass::range(argument.offset, bytes, buffer.byte_len());
            let range = range.map_err(|failure| Failure::argument(format!("{name}: {}", failure.text)))?;
            Ok(Operand { buffer, range })
        };
        let a = operand(0, "a", element, [batch, m, k])?;
        let b = operand(1, "b", element, [batch, k, n])?;
        let out = operand(2, "out", output, [batch, m, n])?;
        let bias = if count == 4 { Some(operand(3, "bias", F32, [1, 1, n])?) } else { None };
        for (other, name) in [(Some(&a), "a"), (Some(&b), "b"), (bias.as_ref(), "bias")] {
            let overlaps = |other: &&Operand| {
                let shared = other.range.start.max(out.range.start)..other.range.end.min(out.range.end);
                Arc::ptr_eq(&other.buffer, &out.buffer) && !shared.is_empty()
            };
            if other.is_some_and(|other| overlaps(&other)) {
                return Err(Failure::argument(format!("out and {name} overlap")));
            }
        }
        Ok(Self { given, a, b, out, bias })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Gpu(error) => error.into(),
            error => Self::argument(error.to_string()),
        }
    }
}

/// The loaded kernels.
#[derive(Debug)]
pub(crate) struct Kernels(Dense);

impl Kernels {
    pub(crate) fn load(device: &Device) -> Result<Self, Failure> {
        Ok(Self(Dense::load(device)?))
    }

    /// Appends a product.
    ///
    /// # Safety
    ///
    /// Until the product has ended, nothing else writes its operands or reads the result.
    unsafe fn multiply(&self, to: &mut dyn Launcher, product: &Product) -> Result<(), Failure> {
        let given = product.given;
        let [batch, m, n, k] = [
            pass::length(given.batch, "batch")?,
            pass::length(given.m, "m")?,
            pass::length(given.n, "n")?,
            pass::length(given.k, "k")?,
        ];
        let form = if given.form == ROWS { Form::Rows } else { Form::Columns };
        let precision = if given.precision == FULL { Precision::Full } else { Precision::Tf32 };
        let (scale, accumulate) = (given.scale, given.accumulate == 1);
        let shape = Shape { batch, scale, accumulate, precision, ..Shape::new(m, n, k, form) };
        let [a, b] = [&product.a, &product.b].map(|operand| factor(operand, given.element));
        let bias = match &product.bias {
            Some(bias) => Some(bias.buffer.slice(bias.range.clone())?.cast()?),
            None => None,
        };
        let Operand { buffer, range } = &product.out;
        // SAFETY: the caller's promise.
        let out = unsafe { buffer.slice_mut_unchecked(range.clone())? };
        let out = match given.output {
            F16 => Target::F16(out.cast()?),
            BF16 => Target::Bf16(out.cast()?),
            _ => Target::F32(out.cast()?),
        };
        Ok(self.0.multiply(to, &shape, a?, b?, bias, out)?)
    }

    /// Adds a product to a queue.
    ///
    /// # Safety
    ///
    /// As for [`tegra_hcq_queue_multiply`](crate::tegra_hcq_queue_multiply).
    pub(crate) unsafe fn launch(
        &self,
        queue: *mut tegra_hcq_queue,
        product: *const tegra_hcq_product,
        operands: *const tegra_hcq_arg,
        count: usize,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let product = unsafe { Product::read(product, operands, count)? };
        let mut locked = lock(queue)?;
        // SAFETY: the caller's promise.
        unsafe { self.multiply(&mut locked.get()?.queue, &product) }
    }

    /// Records a product.
    ///
    /// # Safety
    ///
    /// As for [`tegra_hcq_graph_multiply`](crate::tegra_hcq_graph_multiply).
    pub(crate) unsafe fn record(
        &self,
        graph: *mut tegra_hcq_graph_builder,
        product: *const tegra_hcq_product,
        operands: *const tegra_hcq_arg,
        count: usize,
        node: *mut u32,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let product = unsafe { Product::read(product, operands, count)? };
        let mut locked = lock_builder(graph)?;
        let object = builder(&mut locked)?;
        let mut recorder = Recorder { builder: &mut object.builder, step: None };
        // SAFETY: the caller's promise.
        unsafe { self.multiply(&mut recorder, &product)? };
        let step = recorder.step.ok_or_else(|| Failure::argument("an empty product makes no step"))?;
        // SAFETY: the caller's promise.
        unsafe { add(object, step, node) }
    }
}

fn factor(operand: &Operand, element: u32) -> Result<Factor<'_>, Failure> {
    let part = operand.buffer.slice(operand.range.clone())?;
    Ok(match element {
        F16 => Factor::F16(part.cast()?),
        BF16 => Factor::Bf16(part.cast()?),
        _ => Factor::F32(part.cast()?),
    })
}

/// A builder that remembers the step.
struct Recorder<'a> {
    builder: &'a mut GraphBuilder,
    step: Option<NodeId>,
}

impl Launcher for Recorder<'_> {
    unsafe fn launch(
        &mut self,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
    ) -> tegra_hcq::Result<()> {
        // SAFETY: the caller's promise is passed on.
        let step = unsafe { self.builder.launch_with_shared(kernel, grid, block, shared_bytes, arguments)? };
        self.step = Some(step);
        Ok(())
    }
}
