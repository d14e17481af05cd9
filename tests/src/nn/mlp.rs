//! Fully connected networks: in 32 bits, and in halves on the tensor cores.

use half::f16;
use tegra_hcq::{Buffer, Device, Graph, MemoryUse, Result};

use super::{HalfLinear, Kernels, Linear, Model, Steps};
use crate::reference::{LinearWeights, MlpWeights};

/// Fully connected layers with ReLU between them, one launch per layer.
#[derive(Debug)]
pub struct Mlp {
    kernels: Kernels,
    weights: MlpWeights,
    layers: Vec<Linear>,
    /// What goes into each layer, and what comes out of the last.
    values: Vec<Buffer<f32>>,
}

/// What goes into each layer, and what comes out of the last, for `rows` rows. The CPU writes the first and
/// reads the last.
fn buffers(device: &Device, weights: &MlpWeights, rows: usize) -> Result<Vec<Buffer<f32>>> {
    let last = weights.layers.len();
    let first = weights.layers.first().map(|layer| layer.inputs);
    let widths = first.into_iter().chain(weights.layers.iter().map(|layer| layer.outputs));
    let make = |(at, width): (usize, usize)| {
        let purpose = match at {
            0 => MemoryUse::Upload,
            at if at == last => MemoryUse::ReadBack,
            _ => MemoryUse::Device,
        };
        Ok(device.alloc_for(rows * width, purpose)?.named(&format!("values before layer {at}")))
    };
    widths.enumerate().map(make).collect()
}

impl Mlp {
    /// A network for inputs of `rows` rows.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    ///
    /// # Panics
    ///
    /// When `weights` has no layers.
    pub fn new(device: &Device, weights: MlpWeights, rows: usize) -> Result<Self> {
        assert!(!weights.layers.is_empty(), "a network has layers");
        let layers = weights.layers.iter().map(|layer| Linear::new(device, layer)).collect::<Result<_>>()?;
        let values = buffers(device, &weights, rows)?;
        Ok(Self { kernels: Kernels::load(device)?, weights, layers, values })
    }

    /// Number of weights and of elements of the biases.
    pub fn parameters(&self) -> usize {
        self.weights.parameters()
    }

    /// The weights.
    pub fn weights(&self) -> &MlpWeights {
        &self.weights
    }

    /// Records a graph that computes the output from the input.
    ///
    /// # Errors
    ///
    /// Those of [`Model::forward`] and of [`tegra_hcq::GraphBuilder::build`].
    pub fn graph(&self, device: &Device) -> Result<Graph> {
        let mut builder = device.graph();
        self.forward(&mut builder)?;
        builder.build()
    }
}

impl Model for Mlp {
    fn input(&mut self) -> &mut Buffer<f32> {
        &mut self.values[0]
    }

    fn output(&mut self) -> &mut Buffer<f32> {
        let last = self.layers.len();
        &mut self.values[last]
    }

    fn forward(&self, steps: &mut dyn Steps) -> Result<()> {
        for (at, layer) in self.layers.iter().enumerate() {
            let (input, out) = (&self.values[at], &self.values[at + 1]);
            self.kernels.linear(steps, layer, self.weights.activation(at), input, out)?;
        }
        Ok(())
    }

    fn reference(&self, input: &[f32]) -> Vec<f64> {
        self.weights.forward(&input.iter().copied().map(f64::from).collect::<Vec<_>>())
    }
}

/// An [`Mlp`] whose weights, and whatever goes into a layer, are rounded to halves; sums have 32 bits. Two
/// launches per layer: one rounds.
#[derive(Debug)]
pub struct HalfMlp {
    kernels: Kernels,
    weights: MlpWeights,
    layers: Vec<HalfLinear>,
    values: Vec<Buffer<f32>>,
    /// What goes into each layer, rounded.
    rounded: Vec<Buffer<u16>>,
}

/// The nearest half.
fn round(x: f64) -> f64 {
    f16::from_f64(x).to_f64()
}

impl HalfMlp {
    /// A network for inputs of `rows` rows.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    ///
    /// # Panics
    ///
    /// When `weights` has no layers.
    pub fn new(device: &Device, weights: MlpWeights, rows: usize) -> Result<Self> {
        assert!(!weights.layers.is_empty(), "a network has layers");
        let layers = weights.layers.iter().map(|layer| HalfLinear::new(device, layer));
        let layers = layers.collect::<Result<_>>()?;
        let values = buffers(device, &weights, rows)?;
        let rounded = weights.layers.iter().map(|layer| device.alloc(rows * layer.inputs));
        let rounded = rounded.collect::<Result<_>>()?;
        Ok(Self { kernels: Kernels::load(device)?, weights, layers, values, rounded })
    }
}

impl Model for HalfMlp {
    fn input(&mut self) -> &mut Buffer<f32> {
        &mut self.values[0]
    }

    fn output(&mut self) -> &mut Buffer<f32> {
        let last = self.layers.len();
        &mut self.values[last]
    }

    fn forward(&self, steps: &mut dyn Steps) -> Result<()> {
        for (at, layer) in self.layers.iter().enumerate() {
            let rounded = &self.rounded[at];
            self.kernels.to_f16(steps, &self.values[at], rounded)?;
            let activation = self.weights.activation(at);
            self.kernels.linear_f16(steps, layer, activation, rounded, &self.values[at + 1])?;
        }
        Ok(())
    }

    fn reference(&self, input: &[f32]) -> Vec<f64> {
        let mut values: Vec<f64> = input.iter().copied().map(f64::from).collect();
        for (at, layer) in self.weights.layers.iter().enumerate() {
            let weights = layer.weights.iter().map(|w| f16::from_f32(*w).to_f32()).collect();
            let layer = LinearWeights { weights, ..layer.clone() };
            values = values.into_iter().map(round).collect();
            values = layer.forward(&values, self.weights.activation(at));
        }
        values
    }
}
