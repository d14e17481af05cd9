//! Fully connected networks: in 32 bits, and in halves on the tensor cores.

use infer::Launcher;
use tegra_hcq::{Buffer, Device, Graph, MemoryUse};

use crate::error::{Result, sizes};
use crate::kernels::Kernels;
use crate::layers::{HalfLinear, Linear};
use crate::weights::{Activation, LinearWeights, MlpWeights};
use crate::{Model, expect_shape};

/// A layer of a fully connected network.
pub trait Layer: Sized {
    /// A layer for inputs of `rows` rows.
    ///
    /// # Errors
    ///
    /// [`Error::Sizes`](crate::Error::Sizes) if weights are missing; an error of the device if there is no memory left.
    fn new(device: &Device, weights: &LinearWeights, rows: usize) -> Result<Self>;

    /// Appends the launches of the layer.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    fn forward(
        &mut self,
        kernels: &Kernels,
        to: &mut dyn Launcher,
        activation: Activation,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()>;
}

impl Layer for Linear {
    fn new(device: &Device, weights: &LinearWeights, _: usize) -> Result<Self> {
        Self::new(device, weights)
    }

    fn forward(
        &mut self,
        kernels: &Kernels,
        to: &mut dyn Launcher,
        activation: Activation,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        kernels.linear(to, self, activation, input, out)
    }
}

/// A layer on the tensor cores, and its input rounded to halves.
impl Layer for (HalfLinear, Buffer<u16>) {
    fn new(device: &Device, weights: &LinearWeights, rows: usize) -> Result<Self> {
        Ok((HalfLinear::new(device, weights)?, device.alloc(rows * weights.inputs)?))
    }

    fn forward(
        &mut self,
        kernels: &Kernels,
        to: &mut dyn Launcher,
        activation: Activation,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        kernels.to_f16(to, input, &mut self.1)?;
        kernels.linear_f16(to, &self.0, activation, &self.1, out)
    }
}

/// Fully connected layers with ReLU between them.
#[derive(Debug)]
pub struct Network<L> {
    kernels: Kernels,
    weights: MlpWeights,
    layers: Vec<L>,
    /// The input of each layer, and the output of the last.
    values: Vec<Buffer<f32>>,
}

/// Fully connected layers, one launch per layer.
pub type Mlp = Network<Linear>;

/// An [`Mlp`] whose weights and layer inputs are rounded to halves; sums have 32 bits. Two launches per layer: the
/// first one rounds.
pub type HalfMlp = Network<(HalfLinear, Buffer<u16>)>;

impl<L: Layer> Network<L> {
    /// A network for inputs of `rows` rows.
    ///
    /// # Errors
    ///
    /// [`Error::Sizes`](crate::Error::Sizes) if there are no layers, or if they do not fit each other; an error of the
    /// device if there is no memory left.
    pub fn new(device: &Device, weights: MlpWeights, rows: usize) -> Result<Self> {
        let mut width = weights.layers.first().ok_or_else(|| sizes!("the network has no layers"))?.inputs;
        // The CPU writes the first buffer and reads the last.
        let mut values = vec![device.alloc_for(rows * width, MemoryUse::Upload)?.named("network input")];
        let mut layers = Vec::new();
        for (at, layer) in weights.layers.iter().enumerate() {
            expect_shape("a layer", layer, width, layer.outputs)?;
            width = layer.outputs;
            layers.push(L::new(device, layer, rows)?);
            let is_last = at + 1 == weights.layers.len();
            let purpose = if is_last { MemoryUse::ReadBack } else { MemoryUse::Device };
            values.push(device.alloc_for(rows * width, purpose)?.named(&format!("output of layer {at}")));
        }
        Ok(Self { kernels: Kernels::load(device)?, weights, layers, values })
    }

    /// Number of weights and biases.
    pub fn parameters(&self) -> usize {
        self.weights.parameters()
    }

    /// The weights, before rounding.
    pub fn weights(&self) -> &MlpWeights {
        &self.weights
    }

    /// Records a graph that computes the output from the input.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Model::forward`] and [`tegra_hcq::GraphBuilder::build`].
    pub fn graph(&mut self, device: &Device) -> Result<Graph> {
        let mut builder = device.graph();
        self.forward(&mut builder)?;
        Ok(builder.build()?)
    }
}

impl<L: Layer> Model for Network<L> {
    fn input(&mut self) -> &mut Buffer<f32> {
        &mut self.values[0]
    }

    fn output(&mut self) -> &mut Buffer<f32> {
        let last = self.layers.len();
        &mut self.values[last]
    }

    fn forward(&mut self, to: &mut dyn Launcher) -> Result<()> {
        for (at, layer) in self.layers.iter_mut().enumerate() {
            let (inputs, outputs) = self.values.split_at_mut(at + 1);
            layer.forward(&self.kernels, to, self.weights.activation(at), &inputs[at], &mut outputs[0])?;
        }
        Ok(())
    }
}
