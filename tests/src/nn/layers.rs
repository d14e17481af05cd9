//! Weights in the GPU's memory.

use half::f16;
use tegra_hcq::{Buffer, Device, Result};

use crate::reference::{ConvShape, ConvWeights, LinearWeights, NormWeights};

/// A fully connected layer.
#[derive(Debug)]
pub struct Linear {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) weights: Buffer<f32>,
    pub(super) bias: Buffer<f32>,
}

impl Linear {
    /// Copies the weights to the GPU.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub fn new(device: &Device, from: &LinearWeights) -> Result<Self> {
        Ok(Self {
            inputs: from.inputs,
            outputs: from.outputs,
            weights: device.alloc_from(&from.weights)?.named("linear weights"),
            bias: device.alloc_from(&from.bias)?.named("linear bias"),
        })
    }
}

/// A fully connected layer for the tensor cores.
#[derive(Debug)]
pub struct HalfLinear {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Bits of halves.
    pub(super) weights: Buffer<u16>,
    pub(super) bias: Buffer<f32>,
}

impl HalfLinear {
    /// Rounds the weights to halves and copies them to the GPU; the bias stays as it is.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub fn new(device: &Device, from: &LinearWeights) -> Result<Self> {
        let bits: Vec<u16> = from.weights.iter().map(|w| f16::from_f32(*w).to_bits()).collect();
        Ok(Self {
            inputs: from.inputs,
            outputs: from.outputs,
            weights: device.alloc_from(&bits)?.named("half weights"),
            bias: device.alloc_from(&from.bias)?.named("half bias"),
        })
    }
}

/// A convolution.
#[derive(Debug)]
pub struct Conv {
    pub(super) shape: ConvShape,
    pub(super) weights: Buffer<f32>,
    pub(super) bias: Buffer<f32>,
}

impl Conv {
    /// Copies the weights to the GPU.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub fn new(device: &Device, from: &ConvWeights) -> Result<Self> {
        Ok(Self {
            shape: from.shape,
            weights: device.alloc_from(&from.weights)?.named("convolution weights"),
            bias: device.alloc_from(&from.bias)?.named("convolution bias"),
        })
    }
}

/// A normalisation of rows.
#[derive(Debug)]
pub struct Norm {
    pub(super) gain: Buffer<f32>,
    pub(super) bias: Buffer<f32>,
    pub(super) epsilon: f32,
}

impl Norm {
    /// Copies gain and bias to the GPU.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub fn new(device: &Device, from: &NormWeights) -> Result<Self> {
        Ok(Self {
            gain: device.alloc_from(&from.gain)?.named("norm gain"),
            bias: device.alloc_from(&from.bias)?.named("norm bias"),
            epsilon: from.epsilon,
        })
    }
}
