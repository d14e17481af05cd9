//! Fully connected networks: in 32 bits, and in halves on the tensor cores.

use tegra_hcq::{Buffer, Device, Graph, MemoryUse};

use super::{Model, expect_shape};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, Steps};
use crate::layers::{HalfLinear, Linear};
use crate::weights::MlpWeights;

/// Kernels, weights and buffers of a fully connected network.
#[derive(Debug)]
struct Parts {
    kernels: Kernels,
    weights: MlpWeights,
    /// The input of each layer, and the output of the last.
    values: Vec<Buffer<f32>>,
}

impl Parts {
    /// The parts of a network for inputs of `rows` rows.
    fn new(device: &Device, weights: MlpWeights, rows: usize) -> Result<Self> {
        check(&weights)?;
        let values = buffers(device, &weights, rows)?;
        Ok(Self { kernels: Kernels::load(device)?, weights, values })
    }

    fn input(&mut self) -> &mut Buffer<f32> {
        &mut self.values[0]
    }

    fn output(&mut self) -> &mut Buffer<f32> {
        let last = self.weights.layers.len();
        &mut self.values[last]
    }
}

/// Input and output of a layer.
fn around(values: &mut [Buffer<f32>], layer: usize) -> (&Buffer<f32>, &mut Buffer<f32>) {
    let (inputs, outputs) = values.split_at_mut(layer + 1);
    (&inputs[layer], &mut outputs[0])
}

/// Refuses networks without layers, or with layers that do not fit each other.
fn check(weights: &MlpWeights) -> Result<()> {
    let mut inputs = weights.layers.first().ok_or(Error::NoLayers)?.inputs;
    for layer in &weights.layers {
        expect_shape("a layer", layer, inputs, layer.outputs)?;
        inputs = layer.outputs;
    }
    Ok(())
}

/// The input of each layer and the output of the last, for `rows` rows. The CPU writes the first and reads the last.
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

/// Fully connected layers with ReLU between them, one launch per layer.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// use infer::networks::{Mlp, Model};
/// use infer::weights::MlpWeights;
///
/// let weights = MlpWeights::random(&mut fastrand::Rng::with_seed(1), &[4, 8, 2]);
/// let mut network = Mlp::new(&device, weights, 1)?;
/// let mut graph = network.graph(&device)?;
/// network.input().copy_from_slice(&[0.1, 0.2, 0.3, 0.4])?;
/// queue.replay(&mut graph)?.wait(timeout)?;
/// let expected = network.weights().forward(&[0.1, 0.2, 0.3, 0.4]);
/// assert!((f64::from(network.output().to_vec()?[0]) - expected[0]).abs() < 1e-4);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Mlp {
    parts: Parts,
    layers: Vec<Linear>,
}

impl Mlp {
    /// A network for inputs of `rows` rows.
    ///
    /// # Errors
    ///
    /// [`Error::NoLayers`] if there are no layers, [`Error::Shape`] if they do not fit each other; an error of the
    /// device if there is no memory left.
    pub fn new(device: &Device, weights: MlpWeights, rows: usize) -> Result<Self> {
        let parts = Parts::new(device, weights, rows)?;
        let layers =
            parts.weights.layers.iter().map(|layer| Linear::new(device, layer)).collect::<Result<_>>()?;
        Ok(Self { parts, layers })
    }

    /// Number of weights and biases.
    pub fn parameters(&self) -> usize {
        self.parts.weights.parameters()
    }

    /// The weights.
    pub fn weights(&self) -> &MlpWeights {
        &self.parts.weights
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

impl Model for Mlp {
    fn input(&mut self) -> &mut Buffer<f32> {
        self.parts.input()
    }

    fn output(&mut self) -> &mut Buffer<f32> {
        self.parts.output()
    }

    fn forward(&mut self, steps: &mut dyn Steps) -> Result<()> {
        let Parts { kernels, weights, values } = &mut self.parts;
        for (at, layer) in self.layers.iter().enumerate() {
            let (input, out) = around(values, at);
            kernels.linear(steps, layer, weights.activation(at), input, out)?;
        }
        Ok(())
    }
}

/// An [`Mlp`] whose weights and layer inputs are rounded to halves; sums have 32 bits. Two launches per layer: the
/// first one rounds.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// use infer::networks::{HalfMlp, Model};
/// use infer::weights::MlpWeights;
///
/// let weights = MlpWeights::random(&mut fastrand::Rng::with_seed(1), &[4, 8, 2]);
/// let mut network = HalfMlp::new(&device, weights, 1)?;
/// network.input().copy_from_slice(&[0.1, 0.2, 0.3, 0.4])?;
/// network.forward(&mut queue)?;
/// queue.wait(timeout)?;
/// let expected = network.weights().forward(&[0.1, 0.2, 0.3, 0.4]);
/// assert!((f64::from(network.output().to_vec()?[0]) - expected[0]).abs() < 1e-2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HalfMlp {
    parts: Parts,
    layers: Vec<HalfLinear>,
    /// The input of each layer, rounded.
    rounded: Vec<Buffer<u16>>,
}

impl HalfMlp {
    /// A network for inputs of `rows` rows.
    ///
    /// # Errors
    ///
    /// [`Error::NoLayers`] if there are no layers, [`Error::Shape`] if they do not fit each other; an error of the
    /// device if there is no memory left.
    pub fn new(device: &Device, weights: MlpWeights, rows: usize) -> Result<Self> {
        let parts = Parts::new(device, weights, rows)?;
        let layers = parts.weights.layers.iter().map(|layer| HalfLinear::new(device, layer));
        let layers = layers.collect::<Result<_>>()?;
        let rounded = parts.weights.layers.iter().map(|layer| device.alloc(rows * layer.inputs));
        let rounded = rounded.collect::<tegra_hcq::Result<_>>()?;
        Ok(Self { parts, layers, rounded })
    }

    /// The weights, before rounding.
    pub fn weights(&self) -> &MlpWeights {
        &self.parts.weights
    }
}

impl Model for HalfMlp {
    fn input(&mut self) -> &mut Buffer<f32> {
        self.parts.input()
    }

    fn output(&mut self) -> &mut Buffer<f32> {
        self.parts.output()
    }

    fn forward(&mut self, steps: &mut dyn Steps) -> Result<()> {
        let Parts { kernels, weights, values } = &mut self.parts;
        for (at, (layer, rounded)) in self.layers.iter().zip(&mut self.rounded).enumerate() {
            let (input, out) = around(values, at);
            kernels.to_f16(steps, input, rounded)?;
            kernels.linear_f16(steps, layer, weights.activation(at), rounded, out)?;
        }
        Ok(())
    }
}
