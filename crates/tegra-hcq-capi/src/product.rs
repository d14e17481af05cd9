//! Products of matrices: the kernels, and their launches.

use core::ops::Range;
use std::sync::Arc;

use infer::gemm::{Dense, Factor, Form, Precision, Shape, Target};
use infer::{Error, Launcher};
use tegra_hcq::{Arg, Buffer, Device, Dim3, GraphBuilder, Kernel, NodeId};

use crate::pass;
use crate::status::Failure;
use crate::types::{tegra_hcq_element, tegra_hcq_form, tegra_hcq_precision, tegra_hcq_product};

const F16: u32 = tegra_hcq_element::F16 as u32;
const BF16: u32 = tegra_hcq_element::Bf16 as u32;
const ROWS: u32 = tegra_hcq_form::Rows as u32;
const FULL: u32 = tegra_hcq_precision::Full as u32;

/// A matrix, or a batch of them: a part of a buffer.
pub(crate) struct Operand {
    pub(crate) buffer: Arc<Buffer<u8>>,
    pub(crate) range: Range<usize>,
}

/// A product whose sizes are checked against its buffers.
pub(crate) struct Product {
    pub(crate) given: tegra_hcq_product,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    pub(crate) out: Operand,
    pub(crate) bias: Option<Operand>,
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
    pub(crate) unsafe fn multiply(&self, to: &mut dyn Launcher, product: &Product) -> Result<(), Failure> {
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
pub(crate) struct Recorder<'a> {
    pub(crate) builder: &'a mut GraphBuilder,
    pub(crate) step: Option<NodeId>,
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
