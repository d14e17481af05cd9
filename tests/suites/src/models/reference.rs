//! CPU results of layers and networks in 64 bits, for comparison with the GPU's.
//!
//! Weights and inputs are the GPU's 32-bit numbers; intermediate values are `f64`. Matrices are row major;
//! images are ordered batch, channel, row, column.

use half::f16;
use networks::weights::{
    Activation, ConvShape, ConvWeights, LinearWeights, MlpWeights, NormWeights, Pooling,
};
use networks::{BlockWeights, Cnn, CnnWeights, Shape};

/// The GPU's numbers, converted for the reference.
pub(super) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// A convolution of all images of `input`, each of `rows` x `columns`.
pub(super) fn convolve(
    conv: &ConvWeights,
    input: &[f64],
    (rows, columns): (usize, usize),
    activation: Activation,
) -> Vec<f64> {
    let ConvShape { channels_in, channels_out, size, stride, padding } = conv.shape;
    let (rows_out, columns_out) = (conv.shape.extent(rows), conv.shape.extent(columns));
    let mut out = Vec::new();
    for image in input.chunks_exact(channels_in * rows * columns) {
        for channel in 0..channels_out {
            for at in 0..rows_out * columns_out {
                let (y, x) = (at / columns_out * stride, at % columns_out * stride);
                let mut sum = f64::from(conv.bias[channel]);
                for tap in 0..channels_in * size * size {
                    let (c, dy, dx) = (tap / (size * size), tap / size % size, tap % size);
                    let inside = (y + dy).checked_sub(padding).zip((x + dx).checked_sub(padding));
                    if let Some((y, x)) = inside.filter(|(y, x)| *y < rows && *x < columns) {
                        let weight = conv.weights[channel * channels_in * size * size + tap];
                        sum += image[(c * rows + y) * columns + x] * f64::from(weight);
                    }
                }
                out.push(activation.apply(sum));
            }
        }
    }
    out
}

/// Pools planes of `rows` x `columns` in windows of `size` x `size`; incomplete windows are dropped.
pub(super) fn pool(input: &[f64], rows: usize, columns: usize, size: usize, how: Pooling) -> Vec<f64> {
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
pub(super) fn softmax(input: &[f64], columns: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(input.len());
    for row in input.chunks_exact(columns) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
        out.extend(row.iter().map(|x| (x - largest).exp() / sum));
    }
    out
}

/// The layer normalisation of each row.
pub(super) fn normalise(norm: &NormWeights, input: &[f64]) -> Vec<f64> {
    let mut out = Vec::with_capacity(input.len());
    for row in input.chunks_exact(norm.gain.len()) {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let scale = (variance + f64::from(norm.epsilon)).sqrt();
        let columns = row.iter().zip(norm.gain.iter().zip(&norm.bias));
        out.extend(columns.map(|(x, (g, b))| (x - mean) / scale * f64::from(*g) + f64::from(*b)));
    }
    out
}

/// `scale` times the product of `a` (m x k) and `b`: n x k and transposed, or k x n.
pub(super) fn matmul(
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
pub(super) fn permute<T: Copy>(input: &[T], extents: [usize; 4], strides: [usize; 4]) -> Vec<T> {
    let [d0, d1, d2, d3] = extents;
    let index = |at: usize| [at / (d3 * d2 * d1), at / (d3 * d2) % d1, at / d3 % d2, at % d3];
    let source = |at: usize| index(at).iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
    (0..d0 * d1 * d2 * d3).map(|at| input[source(at)]).collect()
}

/// A fully connected network whose weights and layer inputs are rounded to halves.
pub(super) fn half_mlp(weights: &MlpWeights, input: &[f32]) -> Vec<f64> {
    let mut values = widen(input);
    for (at, layer) in weights.layers.iter().enumerate() {
        let rounded = layer.weights.iter().map(|w| f16::from_f32(*w).to_f32()).collect();
        let layer = LinearWeights { weights: rounded, ..layer.clone() };
        values = values.into_iter().map(|x| f16::from_f64(x).to_f64()).collect();
        values = layer.forward(&values, weights.activation(at));
    }
    values
}

/// A [`Cnn`].
pub(super) fn cnn(weights: &CnnWeights, input: &[f32]) -> Vec<f64> {
    let edges = (Cnn::EDGE, Cnn::EDGE);
    let convs = weights.convs.iter();
    let features = convs.fold(widen(input), |values, conv| convolve(conv, &values, edges, Activation::Relu));
    let pooled = pool(&features, Cnn::EDGE, Cnn::EDGE, 2, Pooling::Max);
    weights.linear.forward(&pooled, Activation::Identity)
}

/// The output of an attention before its projection, one row per token: for each head, the softmax of the
/// scaled scores times the values. Rows of `rows` contain queries, keys and values, each split into heads.
fn attention(rows: &[f64], shape: Shape) -> Vec<f64> {
    let Shape { batch, tokens, width, heads } = shape;
    let head_width = width / heads;
    // The numbers of one head in a token's row; part 0 is the query, 1 the key, 2 the value.
    let part = |sequence: usize, token: usize, part: usize, head: usize| {
        let start = (sequence * tokens + token) * 3 * width + part * width + head * head_width;
        &rows[start..start + head_width]
    };
    let mut out = Vec::with_capacity(batch * tokens * width);
    for (sequence, token) in (0..batch * tokens).map(|row| (row / tokens, row % tokens)) {
        for head in 0..heads {
            let query = part(sequence, token, 0, head);
            let dot = |key: &[f64]| query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>();
            let scores =
                (0..tokens).map(|other| dot(part(sequence, other, 1, head)) / (head_width as f64).sqrt());
            let shares = softmax(&scores.collect::<Vec<_>>(), tokens);
            let values = |at: usize| (0..tokens).map(move |other| part(sequence, other, 2, head)[at]);
            let mix =
                |at: usize| shares.iter().zip(values(at)).map(|(share, value)| share * value).sum::<f64>();
            out.extend((0..head_width).map(mix));
        }
    }
    out
}

/// A block of a transformer.
pub(super) fn block(weights: &BlockWeights, shape: Shape, input: &[f32]) -> Vec<f64> {
    let input = widen(input);
    let sum = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(x, y)| x + y).collect() };
    let rows = weights.qkv.forward(&normalise(&weights.norms[0], &input), Activation::Identity);
    let projected = weights.join.forward(&attention(&rows, shape), Activation::Identity);
    let middle = sum(&input, &projected);
    let hidden = weights.feed[0].forward(&normalise(&weights.norms[1], &middle), Activation::Gelu);
    sum(&middle, &weights.feed[1].forward(&hidden, Activation::Identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_sees_zeros_around_the_image() {
        let shape = ConvShape { channels_in: 1, channels_out: 1, size: 3, stride: 1, padding: 1 };
        let conv = ConvWeights { shape, weights: vec![1.0; 9], bias: vec![0.5] };
        let out = convolve(&conv, &[1.0, 2.0, 4.0, 8.0], (2, 2), Activation::Identity);
        assert_eq!(out, [15.5; 4]);
        let strided = ConvShape { size: 2, stride: 2, padding: 0, ..shape };
        assert_eq!(strided.extent(5), 2);
        let corner = ConvWeights { shape: strided, weights: vec![1.0, 0.0, 0.0, -1.0], bias: vec![0.0] };
        let image: Vec<f64> = (0..25).map(f64::from).collect();
        assert_eq!(convolve(&corner, &image, (5, 5), Activation::Identity), [-6.0; 4]);
    }

    #[test]
    fn pooling_drops_incomplete_windows() {
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
        let out = normalise(&norm, &[1.0, 1.0, 3.0, 3.0]);
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
