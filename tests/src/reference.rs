//! What neural networks compute, on the CPU in 64 bits: the numbers that the GPU's are held against.
//!
//! Weights and inputs are the 32-bit numbers that the GPU gets; everything in between is `f64`. Matrices are
//! row major, images are in the order batch, channel, row, column.

use crate::Numbers;

/// What a layer does to its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// What is negative becomes zero.
    Relu,
    /// [`gelu`].
    Gelu,
}

impl Activation {
    /// The value for a sum.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Self::Identity => x,
            Self::Relu => x.max(0.0),
            Self::Gelu => gelu(x),
        }
    }

    /// The number by which `kernels/nn_linear.cu` knows it.
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

/// Numbers of the GPU as those of the reference.
pub fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Numbers between `-range` and `range`.
fn spread(numbers: &mut Numbers, len: usize, range: f32) -> Vec<f32> {
    (0..len).map(|_| numbers.f32() * range).collect()
}

/// A fully connected layer.
#[derive(Clone, Debug)]
pub struct LinearWeights {
    /// Length of a row that goes in.
    pub inputs: usize,
    /// Length of a row that comes out.
    pub outputs: usize,
    /// One row of `inputs` weights per output.
    pub weights: Vec<f32>,
    /// One number per output.
    pub bias: Vec<f32>,
}

impl LinearWeights {
    /// A layer of random weights that keeps the size of the numbers that pass through it.
    pub fn random(numbers: &mut Numbers, inputs: usize, outputs: usize) -> Self {
        // The variance of a number between -r and r is r * r / 3.
        let range = (3.0 / inputs as f32).sqrt();
        Self {
            inputs,
            outputs,
            weights: spread(numbers, inputs * outputs, range),
            bias: spread(numbers, outputs, 0.1),
        }
    }

    /// Number of weights and of elements of the bias.
    pub fn parameters(&self) -> usize {
        self.weights.len() + self.bias.len()
    }

    /// Computes one row.
    ///
    /// # Panics
    ///
    /// When a row has another length.
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

/// Fully connected layers one behind the other, ReLU between them.
#[derive(Clone, Debug)]
pub struct MlpWeights {
    /// The layers; each has as many inputs as the one before has outputs.
    pub layers: Vec<LinearWeights>,
}

impl MlpWeights {
    /// Random layers between rows of these lengths.
    ///
    /// # Panics
    ///
    /// When there are fewer than two lengths.
    pub fn random(numbers: &mut Numbers, widths: &[usize]) -> Self {
        assert!(widths.len() >= 2, "a network has an input and an output");
        let layers = widths.windows(2).map(|pair| LinearWeights::random(numbers, pair[0], pair[1]));
        Self { layers: layers.collect() }
    }

    /// What follows layer `index`.
    pub fn activation(&self, index: usize) -> Activation {
        if index + 1 < self.layers.len() { Activation::Relu } else { Activation::Identity }
    }

    /// Number of weights and of elements of the biases.
    pub fn parameters(&self) -> usize {
        self.layers.iter().map(LinearWeights::parameters).sum()
    }

    /// Computes every row of `input`.
    pub fn forward(&self, input: &[f64]) -> Vec<f64> {
        let steps = self.layers.iter().enumerate();
        steps.fold(input.to_vec(), |values, (at, layer)| layer.forward(&values, self.activation(at)))
    }
}

/// Computes single rows of a network without allocating.
#[derive(Clone, Debug)]
pub struct RowReference {
    weights: MlpWeights,
    /// What goes into each layer, and what comes out of the last.
    values: Vec<Vec<f64>>,
}

impl RowReference {
    /// A reference for these weights.
    pub fn new(weights: MlpWeights) -> Self {
        let first = weights.layers.first().map(|layer| layer.inputs);
        let widths = first.into_iter().chain(weights.layers.iter().map(|layer| layer.outputs));
        let values = widths.map(|width| vec![0.0; width]).collect();
        Self { weights, values }
    }

    /// What the network makes of one row.
    ///
    /// # Panics
    ///
    /// When the row has another length.
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
    /// Channels that go in.
    pub channels_in: usize,
    /// Channels that come out.
    pub channels_out: usize,
    /// Edge of the window.
    pub size: usize,
    /// Elements from one window to the next.
    pub stride: usize,
    /// Rows and columns of zeros at each edge of the image.
    pub padding: usize,
}

impl ConvShape {
    /// Rows (or columns) that come out for so many that go in.
    pub fn extent(&self, extent: usize) -> usize {
        (extent + 2 * self.padding - self.size) / self.stride + 1
    }
}

/// A convolution.
#[derive(Clone, Debug)]
pub struct ConvWeights {
    /// Its shape.
    pub shape: ConvShape,
    /// By channel out, channel in, row and column.
    pub weights: Vec<f32>,
    /// One number per channel out.
    pub bias: Vec<f32>,
}

impl ConvWeights {
    /// A convolution of random weights that keeps the size of the numbers that pass through it.
    pub fn random(numbers: &mut Numbers, shape: ConvShape) -> Self {
        let inputs = shape.channels_in * shape.size * shape.size;
        let range = (3.0 / inputs as f32).sqrt();
        Self {
            shape,
            weights: spread(numbers, inputs * shape.channels_out, range),
            bias: spread(numbers, shape.channels_out, 0.1),
        }
    }

    /// Computes all images of `input`, each of `rows` x `columns`.
    pub fn forward(&self, input: &[f64], rows: usize, columns: usize, activation: Activation) -> Vec<f64> {
        let ConvShape { channels_in, channels_out, size, stride, padding } = self.shape;
        let (rows_out, columns_out) = (self.shape.extent(rows), self.shape.extent(columns));
        let mut out = Vec::new();
        for image in input.chunks_exact(channels_in * rows * columns) {
            for channel in 0..channels_out {
                for at in 0..rows_out * columns_out {
                    let (y, x) = (at / columns_out * stride, at % columns_out * stride);
                    let mut sum = f64::from(self.bias[channel]);
                    for tap in 0..channels_in * size * size {
                        let (c, dy, dx) = (tap / (size * size), tap / size % size, tap % size);
                        let inside = (y + dy).checked_sub(padding).zip((x + dx).checked_sub(padding));
                        if let Some((y, x)) = inside.filter(|(y, x)| *y < rows && *x < columns) {
                            let weight = self.weights[channel * channels_in * size * size + tap];
                            sum += image[(c * rows + y) * columns + x] * f64::from(weight);
                        }
                    }
                    out.push(activation.apply(sum));
                }
            }
        }
        out
    }
}

/// How a window becomes one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Its largest element.
    Max,
    /// The mean of its elements.
    Average,
}

/// Pools planes of `rows` x `columns` in windows of `size` x `size`, leaving out what does not fill one.
pub fn pool(input: &[f64], rows: usize, columns: usize, size: usize, how: Pooling) -> Vec<f64> {
    let (rows_out, columns_out) = (rows / size, columns / size);
    let mut out = Vec::new();
    for plane in input.chunks_exact(rows * columns) {
        for at in 0..rows_out * columns_out {
            let (y, x) = (at / columns_out * size, at % columns_out * size);
            let window = (0..size * size).map(|tap| plane[(y + tap / size) * columns + x + tap % size]);
            out.push(match how {
                Pooling::Max => window.fold(f64::NEG_INFINITY, f64::max),
                Pooling::Average => window.sum::<f64>() / (size * size) as f64,
            });
        }
    }
    out
}

/// The softmax of each row of `columns` elements.
pub fn softmax(input: &[f64], columns: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(input.len());
    for row in input.chunks_exact(columns) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
        out.extend(row.iter().map(|x| (x - largest).exp() / sum));
    }
    out
}

/// Gain and bias of a normalisation of rows.
#[derive(Clone, Debug)]
pub struct NormWeights {
    /// One number per column.
    pub gain: Vec<f32>,
    /// One number per column.
    pub bias: Vec<f32>,
    /// What keeps a row without variance from a division by zero.
    pub epsilon: f32,
}

impl NormWeights {
    /// Gains around 1 and biases around 0.
    pub fn random(numbers: &mut Numbers, columns: usize) -> Self {
        let gain = spread(numbers, columns, 0.2).into_iter().map(|x| 1.0 + x).collect();
        Self { gain, bias: spread(numbers, columns, 0.1), epsilon: 1e-5 }
    }

    /// Normalises each row.
    pub fn forward(&self, input: &[f64]) -> Vec<f64> {
        let mut out = Vec::with_capacity(input.len());
        for row in input.chunks_exact(self.gain.len()) {
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
            let scale = (variance + f64::from(self.epsilon)).sqrt();
            let columns = row.iter().zip(self.gain.iter().zip(&self.bias));
            out.extend(columns.map(|(x, (g, b))| (x - mean) / scale * f64::from(*g) + f64::from(*b)));
        }
        out
    }
}

/// `scale` times the product of `a` (m x k) and `b`: n x k and transposed, or k x n.
pub fn matmul(
    a: &[f64],
    b: &[f64],
    (m, n, k): (usize, usize, usize),
    b_transposed: bool,
    scale: f64,
) -> Vec<f64> {
    let of_b =
        |row: usize, column: usize| if b_transposed { b[column * k + row] } else { b[row * n + column] };
    let element = |at: usize| (0..k).map(|j| a[at / n * k + j] * of_b(j, at % n)).sum::<f64>() * scale;
    (0..m * n).map(element).collect()
}

/// Reorders the axes of an array: element `[i][j][k][l]` of the result, which has the extents `extents`, is
/// element `i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3]` of `input`.
pub fn permute<T: Copy>(input: &[T], extents: [usize; 4], strides: [usize; 4]) -> Vec<T> {
    let [d0, d1, d2, d3] = extents;
    let index = |at: usize| [at / (d3 * d2 * d1), at / (d3 * d2) % d1, at / d3 % d2, at % d3];
    let source = |at: usize| index(at).iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
    (0..d0 * d1 * d2 * d3).map(|at| input[source(at)]).collect()
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
    fn a_row_reference_agrees_with_the_network() {
        let mut numbers = Numbers::new(1);
        let weights = MlpWeights::random(&mut numbers, &[5, 7, 3, 2]);
        assert_eq!(weights.parameters(), 42 + 24 + 8);
        let input = numbers.vec_f32(5);
        let whole = weights.forward(&widen(&input));
        assert_eq!(RowReference::new(weights).forward(&input), whole);
    }

    #[test]
    fn a_convolution_sees_zeros_around_the_image() {
        let shape = ConvShape { channels_in: 1, channels_out: 1, size: 3, stride: 1, padding: 1 };
        let conv = ConvWeights { shape, weights: vec![1.0; 9], bias: vec![0.5] };
        let out = conv.forward(&[1.0, 2.0, 4.0, 8.0], 2, 2, Activation::Identity);
        assert_eq!(out, [15.5; 4]);
        let strided = ConvShape { size: 2, stride: 2, padding: 0, ..shape };
        assert_eq!(strided.extent(5), 2);
        let corner = ConvWeights { shape: strided, weights: vec![1.0, 0.0, 0.0, -1.0], bias: vec![0.0] };
        let image: Vec<f64> = (0..25).map(f64::from).collect();
        assert_eq!(corner.forward(&image, 5, 5, Activation::Identity), [-6.0; 4]);
    }

    #[test]
    fn pooling_leaves_out_the_rest() {
        let plane = [1.0, 2.0, 9.0, 3.0, 6.0, 9.0, 9.0, 9.0, 9.0];
        assert_eq!(pool(&plane, 3, 3, 2, Pooling::Max), [6.0]);
        assert_eq!(pool(&plane, 3, 3, 2, Pooling::Average), [3.0]);
    }

    #[test]
    fn a_softmax_sums_to_one_and_survives_large_numbers() {
        let out = softmax(&[1000.0, 1000.0, 0.0, 0.0], 2);
        assert_eq!(out, [0.5; 4]);
    }

    #[test]
    fn a_normalised_row_has_mean_zero_and_variance_one() {
        let norm = NormWeights { gain: vec![1.0; 4], bias: vec![0.0; 4], epsilon: 0.0 };
        let out = norm.forward(&[1.0, 1.0, 3.0, 3.0]);
        assert_eq!(out, [-1.0, -1.0, 1.0, 1.0]);
    }

    #[test]
    fn products_and_permutations() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        assert_eq!(matmul(&a, &b, (2, 2, 2), false, 1.0), [19.0, 22.0, 43.0, 50.0]);
        assert_eq!(matmul(&a, &b, (2, 2, 2), true, 2.0), [34.0, 46.0, 78.0, 106.0]);
        assert_eq!(permute(&[1, 2, 3, 4, 5, 6], [1, 1, 3, 2], [0, 0, 1, 3]), [1, 4, 2, 5, 3, 6]);
    }
}
