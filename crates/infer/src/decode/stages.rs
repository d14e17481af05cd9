//! The parts of the layers, in their order.

use super::engine::{Inner, rounds};
use super::places::Addresses;
use super::weights::{self, Packed};
use crate::error::Result;
use crate::parameters::{Epilogue, Prologue};

/// A product of a layer.
#[derive(Clone, Copy)]
pub(super) struct ProductCall<'a> {
    pub(super) matrix: &'a Packed,
    pub(super) prologue: Prologue,
    pub(super) norm: weights::Norm,
    pub(super) input: u64,
    pub(super) epilogue: Epilogue,
    pub(super) output: u64,
    /// What [`Epilogue::Add`] adds and [`Epilogue::Gate`] activates.
    pub(super) other: u64,
    pub(super) packed_output: bool,
    /// What is added to the input before the norm.
    pub(super) branch: Option<Branch>,
    /// Factor of the sums.
    pub(super) scale: f64,
}

/// A result that is normalised and added to the vector by the product that comes next.
#[derive(Clone, Copy)]
pub(super) struct Branch {
    /// Where the result is.
    pub(super) from: u64,
    /// GPU address of the norm's weights.
    pub(super) weight: u64,
    /// Where the sum goes.
    pub(super) joined: u64,
}

impl<'a> ProductCall<'a> {
    /// A product with the vector in `input` as it is.
    pub(super) const fn of(matrix: &'a Packed, input: u64) -> Self {
        Self {
            matrix,
            prologue: Prologue::Nothing,
            norm: weights::Norm { weight: 0, bias: 0 },
            input,
            epilogue: Epilogue::Store,
            output: 0,
            other: 0,
            packed_output: false,
            branch: None,
            scale: 1.0,
        }
    }
}

/// The model's vector on its way through the layers.
#[derive(Clone, Copy)]
struct Flow {
    x: u64,
    /// What is still to be added to it.
    branch: Option<Branch>,
}

impl Flow {
    /// The vector with a result in [`Addresses::branch`] that is to be added.
    fn with(self, at: &Addresses, norm: weights::Norm) -> Self {
        let joined = if self.x == at.x { at.second } else { at.x };
        Self { branch: Some(Branch { from: at.branch, weight: norm.weight, joined }), ..self }
    }

    /// The vector after a product has added the branch.
    fn joined(self) -> Self {
        Self { x: self.branch.map_or(self.x, |branch| branch.joined), branch: None }
    }
}

/// A part of a layer.
pub(super) enum Stage<'a> {
    Product(ProductCall<'a>),
    /// The attention of the layer with this number.
    Attention(usize),
    /// The convolution of the layer with this number.
    Convolution(usize),
    /// The experts of the layer with this number, after the router.
    Experts(usize),
}

impl Inner {
    /// Calls `record` with the parts of all layers.
    pub(super) fn stages(
        &self,
        at: &Addresses,
        mut record: impl FnMut(Stage<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut flow = Flow { x: at.x, branch: None };
        for (number, layer) in self.weights.layers.iter().enumerate() {
            let first = |flow: Flow, matrix, norm| ProductCall {
                prologue: self.norm_kind(),
                norm,
                branch: flow.branch,
                ..ProductCall::of(matrix, flow.x)
            };
            for (part, first_output) in &layer.qkv.parts {
                let call = first(flow, part, layer.attention_norm);
                // CAST: usize is at most 64 bits.
                record(Stage::Product(ProductCall { output: at.qkv + *first_output as u64 * 4, ..call }))?;
            }
            flow = flow.joined();
            let is_convolution = self.shape.layers[number].convolution;
            record(if is_convolution { Stage::Convolution(number) } else { Stage::Attention(number) })?;
            let result = ProductCall::of(&layer.output, at.attended);
            flow = self.add(at, flow, result, layer.attention_result_norm, &mut record)?;

            let packed_output = rounds(layer.down.place.block);
            let first = |matrix, epilogue, output| ProductCall {
                epilogue,
                output,
                ..first(flow, matrix, layer.feed_forward_norm)
            };
            if let Some(router) = &layer.router {
                record(Stage::Product(first(router, Epilogue::Store, at.router)))?;
                record(Stage::Experts(number))?;
                continue;
            }
            match &layer.up {
                weights::Up::Pairs(up) => {
                    let call = first(up, Epilogue::Pair, at.hidden);
                    record(Stage::Product(ProductCall { packed_output, ..call }))?;
                }
                weights::Up::Plain(up) => {
                    let call = first(up, Epilogue::Activate, at.hidden);
                    record(Stage::Product(ProductCall { packed_output, ..call }))?;
                }
                weights::Up::Apart { gate, up } => {
                    record(Stage::Product(first(gate, Epilogue::Store, at.gate)))?;
                    let call = first(up, Epilogue::Gate, at.hidden);
                    record(Stage::Product(ProductCall { other: at.gate, packed_output, ..call }))?;
                }
            }
            flow = flow.joined();
            let prologue = if packed_output { Prologue::Packed } else { Prologue::Nothing };
            let result = ProductCall { prologue, ..ProductCall::of(&layer.down, at.hidden) };
            flow = self.add(at, flow, result, layer.feed_forward_result_norm, &mut record)?;
        }
        Ok(())
    }

    /// The product whose result is added to the vector: by itself, or by the next product, which normalises it.
    fn add<'a>(
        &self,
        at: &Addresses,
        flow: Flow,
        result: ProductCall<'a>,
        norm: Option<weights::Norm>,
        record: &mut impl FnMut(Stage<'a>) -> Result<()>,
    ) -> Result<Flow> {
        let Some(norm) = norm else {
            let (epilogue, scale) = (Epilogue::Add, self.shape.residual_scale);
            record(Stage::Product(ProductCall { epilogue, scale, output: flow.x, other: flow.x, ..result }))?;
            return Ok(flow);
        };
        record(Stage::Product(ProductCall { output: at.branch, ..result }))?;
        Ok(flow.with(at, norm))
    }

    /// The product that makes the logits of the vector behind the layers, and their maxima.
    pub(super) fn output(&self, at: &Addresses) -> ProductCall<'_> {
        let norm = self.weights.layers.last().and_then(|layer| layer.feed_forward_result_norm);
        // A layer's two results move the vector to the second place.
        let flow = norm.map_or(Flow { x: at.x, branch: None }, |norm| {
            Flow { x: at.second, branch: None }.with(at, norm)
        });
        ProductCall {
            prologue: self.norm_kind(),
            norm: self.weights.output_norm,
            epilogue: Epilogue::Logits,
            output: at.logits,
            branch: flow.branch,
            scale: self.shape.logit_scale,
            ..ProductCall::of(&self.weights.output, flow.x)
        }
    }
}
