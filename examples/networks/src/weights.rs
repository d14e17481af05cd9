//! Weights and shapes on the CPU.
//!
//! Matrices are row major; images are in the order batch, channel, row, column. On the CPU, fully connected
//! layers use f64 arithmetic on the GPU's f32 weights.

use fastrand::Rng;

/// The function that a layer applies to its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The sum itself.
    Identity,
    /// The larger of the sum and zero.
    Relu,
    /// [`gelu`].
    Gelu,
}

impl Activation {
    /// Applies the function to a sum.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Self::Identity => x,
            Self::Relu => x.max(0.0),
            Self::Gelu => gelu(x),
        }
    }

    /// The function's number in `kernels/nn_linear.cu`.
    pub fn code(self) -> u32 {
        match self {
            Self::Identity => 0,
            Self::Relu => 1,
            Self::Gelu => 2,
        }
    }
}

/// The Gaussian error linear unit in the form with the hyperbolic tangent.
pub fn gelu(x: f64) -> f64 {
    let inner = (2.0 / core::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// Numbers between `-range` and `range`.
fn spread(rng: &mut Rng, len: usize, range: f32) -> Vec<f32> {
    (0..len).map(|_| (rng.f32() * 2.0 - 1.0) * range).collect()
}

/// A fully connected layer.
#[derive(Clone, Debug)]
pub struct LinearWeights {
    /// Length of an input row.
    pub inputs: usize,
    /// Length of an output row.
    pub outputs: usize,
    /// One row of `inputs` weights per output.
    pub weights: Vec<f32>,
    /// One bias per output.
    pub bias: Vec<f32>,
}

impl LinearWeights {
    /// A layer of random weights whose outputs are about as large as its inputs.
    pub fn random(rng: &mut Rng, inputs: usize, outputs: usize) -> Self {
        // The variance of a number between -r and r is r * r / 3.
        let range = (3.0 / inputs as f32).sqrt();
        Self {
            inputs,
            outputs,
            weights: spread(rng, inputs * outputs, range),
            bias: spread(rng, outputs, 0.1),
        }
    }

    /// Number of weights and biases.
    pub fn parameters(&self) -> usize {
        self.weights.len() + self.bias.len()
    }

    /// Computes one row.
    ///
    /// # Panics
    ///
    /// Panics if a row has another length.
    pub fn row(&self, input: &[f64], activation: Activation, output: &mut [f64]) {
        assert_eq!((input.len(), output.len()), (self.inputs, self.outputs), "lengths of the rows");
        for ((weights, bias), out) in self.weights.chunks_exact(self.inputs).zip(&self.bias).zip(output) {
            let sum: f64 = weights.iter().zip(input).map(|(w, x)| f64::from(*w) * x).sum();
            *out = activation.apply(sum + f64::from(*bias));
        }
    }

    /// Computes every row of `input`.
    pub fn forward(&self, input: &[f64], activation: Activation) -> Vec<f64> {
        let mut out = vec![0.0; input.len() / self.inputs * self.outputs];
        for (row, out) in input.chunks_exact(self.inputs).zip(out.chunks_exact_mut(self.outputs)) {
            self.row(row, activation, out);
        }
        out
    }
}

/// Fully connected layers in sequence, with ReLU between them.
#[derive(Clone, Debug)]
pub struct MlpWeights {
    /// The layers. Each has as many inputs as the previous one has outputs.
    pub layers: Vec<LinearWeights>,
}

impl MlpWeights {
    /// Random layers between rows of these lengths.
    /// Fewer than two lengths make a network without layers, which no device accepts.
    pub fn random(rng: &mut Rng, widths: &[usize]) -> Self {
        let layers = widths.windows(2).map(|pair| LinearWeights::random(rng, pair[0], pair[1]));
        Self { layers: layers.collect() }
    }

    /// The activation of layer `index`.
    pub fn activation(&self, index: usize) -> Activation {
        if index + 1 < self.layers.len() { Activation::Relu } else { Activation::Identity }
    }

    /// Number of weights and biases.
    pub fn parameters(&self) -> usize {
        self.layers.iter().map(LinearWeights::parameters).sum()
    }

    /// Computes every row of `input`.
    pub fn forward(&self, input: &[f64]) -> Vec<f64> {
        let steps = self.layers.iter().enumerate();
        steps.fold(input.to_vec(), |values, (at, layer)| layer.forward(&values, self.activation(at)))
    }
}

/// Computes single rows of a network on the CPU, without allocating.
#[derive(Clone, Debug)]
pub struct RowForward {
    weights: MlpWeights,
    /// The input of each layer, and the output of the last.
    values: Vec<Vec<f64>>,
}

impl RowForward {
    /// Allocates the rows between the layers.
    pub fn new(weights: MlpWeights) -> Self {
        let first = weights.layers.first().map(|layer| layer.inputs);
        let widths = first.into_iter().chain(weights.layers.iter().map(|layer| layer.outputs));
        let values = widths.map(|width| vec![0.0; width]).collect();
        Self { weights, values }
    }

    /// The output for one row.
    ///
    /// # Panics
    ///
    /// Panics if the row has another length.
    pub fn forward(&mut self, input: &[f32]) -> &[f64] {
        assert_eq!(input.len(), self.values[0].len(), "length of the row");
        for (value, x) in self.values[0].iter_mut().zip(input) {
            *value = f64::from(*x);
        }
        for (at, layer) in self.weights.layers.iter().enumerate() {
            let (before, after) = self.values.split_at_mut(at + 1);
            layer.row(&before[at], self.weights.activation(at), &mut after[0]);
        }
        self.values.last().map_or(&[], Vec::as_slice)
    }
}

/// Shape of a convolution with square windows and zeros around the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Input channels.
    pub channels_in: usize,
    /// Output channels.
    pub channels_out: usize,
    /// Edge of the window, in elements.
    pub size: usize,
    /// Distance of two windows, in elements.
    pub stride: usize,
    /// Rows and columns of zeros at each edge of the image.
    pub padding: usize,
}

impl ConvShape {
    /// Output rows (or columns) for a number of input rows (or columns).
    ///
    /// # Panics
    ///
    /// Panics if the window exceeds the padded image, or the stride is 0.
    pub fn extent(&self, extent: usize) -> usize {
        (extent + 2 * self.padding - self.size) / self.stride + 1
    }
}

/// A convolution.
#[derive(Clone, Debug)]
pub struct ConvWeights {
    /// Its shape.
    pub shape: ConvShape,
    /// In the order output channel, input channel, row, column.
    pub weights: Vec<f32>,
    /// One bias per output channel.
    pub bias: Vec<f32>,
}

impl ConvWeights {
    /// A convolution of random weights whose outputs are about as large as its inputs.
    pub fn random(rng: &mut Rng, shape: ConvShape) -> Self {
        let inputs = shape.channels_in * shape.size * shape.size;
        let range = (3.0 / inputs as f32).sqrt();
        Self {
            shape,
            weights: spread(rng, inputs * shape.channels_out, range),
            bias: spread(rng, shape.channels_out, 0.1),
        }
    }
}

/// The function of a pooling window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Its largest element.
    Max,
    /// The mean of its elements.
    Average,
}

/// Gain and bias of a layer normalisation.
#[derive(Clone, Debug)]
pub struct NormWeights {
    /// One gain per column.
    pub gain: Vec<f32>,
    /// One bias per column.
    pub bias: Vec<f32>,
    /// Added to the variance, so that a constant row causes no division by zero.
    pub epsilon: f32,
}

impl NormWeights {
    /// Gains around 1 and biases around 0.
    pub fn random(rng: &mut Rng, columns: usize) -> Self {
        let gain = spread(rng, columns, 0.2).into_iter().map(|x| 1.0 + x).collect();
        Self { gain, bias: spread(rng, columns, 0.1), epsilon: 1e-5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_weights_times_input_plus_bias() {
        let layer = LinearWeights {
            inputs: 2,
            outputs: 3,
            weights: vec![1.0, 2.0, 3.0, 4.0, -5.0, -6.0],
            bias: vec![0.5, 0.0, 1.0],
        };
        assert_eq!(layer.forward(&[1.0, 10.0], Activation::Identity), [21.5, 43.0, -64.0]);
        assert_eq!(layer.forward(&[1.0, 10.0, 0.0, 0.0], Activation::Relu), [21.5, 43.0, 0.0, 0.5, 0.0, 1.0]);
        assert_eq!(layer.parameters(), 9);
    }

    #[test]
    fn gelu_has_its_known_values() {
        assert_eq!(gelu(0.0), 0.0);
        assert!((gelu(1.0) - 0.841_192).abs() < 1e-6);
        assert!((gelu(-1.0) + 0.158_808).abs() < 1e-6);
        assert_eq!(gelu(20.0), 20.0);
    }

    #[test]
    fn a_row_agrees_with_the_network() {
        let mut rng = Rng::with_seed(1);
        let weights = MlpWeights::random(&mut rng, &[5, 7, 3, 2]);
        assert_eq!(weights.parameters(), 42 + 24 + 8);
        let input: Vec<f32> = (0..5).map(|_| rng.f32()).collect();
        let whole = weights.forward(&input.iter().copied().map(f64::from).collect::<Vec<_>>());
        assert_eq!(RowForward::new(weights).forward(&input), whole);
    }
}
