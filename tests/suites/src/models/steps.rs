//! The kernels of the networks, one at a time, at sizes that are not multiples of a tile.

use fastrand::Rng;
use half::f16;
use networks::Error;
use networks::kernels::{Binary, Kernels, Product, Unary};
use networks::layers::{Conv, HalfLinear, Linear, Norm};
use networks::weights::{Activation, ConvShape, ConvWeights, LinearWeights, NormWeights, Pooling, gelu};
use tegra_hcq::{Buffer, Queue};
use test_harness::{Check, Context};
use test_support::Numbers;

use super::reference::{self, widen};
use super::{PATIENCE, agree, same_bits};

/// A device with the kernels and a queue, for one step at a time.
struct Bench<'a> {
    context: &'a Context,
    kernels: Kernels,
    queue: Queue,
}

impl<'a> Bench<'a> {
    fn new(context: &'a Context) -> Result<Self, Error> {
        let device = context.device()?;
        Ok(Self { context, kernels: Kernels::load(device)?, queue: device.queue()? })
    }

    fn buffer(&self, data: &[f32]) -> Result<Buffer<f32>, Error> {
        Ok(self.context.device()?.alloc_from(data)?)
    }

    /// Runs a step that writes `len` numbers.
    fn run(
        &mut self,
        len: usize,
        step: impl FnOnce(&Kernels, &mut Queue, &mut Buffer<f32>) -> Result<(), Error>,
    ) -> Result<Vec<f32>, Error> {
        let mut out = self.buffer(&vec![f32::NAN; len])?;
        step(&self.kernels, &mut self.queue, &mut out)?;
        self.queue.wait(self.context.patience(PATIENCE))?;
        Ok(out.to_vec()?)
    }
}

/// Rows, outputs and inputs of layers: single elements, and tiles that are just full or just not.
const LAYERS: [(usize, usize, usize); 8] =
    [(1, 1, 1), (1, 5, 33), (2, 17, 3), (15, 16, 17), (16, 8, 16), (33, 9, 31), (7, 40, 100), (17, 33, 15)];

/// Fully connected layers of odd sizes with each activation, in 32 bits within 1e-4.
pub(super) fn layers_of_odd_sizes(context: &Context) -> Check {
    let mut bench = Bench::new(context)?;
    let (mut numbers, mut rng) = (Numbers::new(200), Rng::with_seed(200));
    for (rows, outputs, inputs) in LAYERS {
        let weights = LinearWeights::random(&mut rng, inputs, outputs);
        let layer = Linear::new(context.device()?, &weights)?;
        let input = numbers.vec_f32(rows * inputs);
        let from = bench.buffer(&input)?;
        for activation in [Activation::Identity, Activation::Relu, Activation::Gelu] {
            let got = bench.run(rows * outputs, |kernels, queue, out| {
                kernels.linear(queue, &layer, activation, &from, out)
            })?;
            let what = format!("{rows} x {inputs} to {outputs}, {activation:?}");
            agree(&what, &got, &weights.forward(&widen(&input), activation), 1e-4)?;
        }
    }
    Ok(())
}

/// The same layers on the tensor cores, on numbers that are halves, within 1e-3.
pub(super) fn half_layers_of_odd_sizes(context: &Context) -> Check {
    let mut bench = Bench::new(context)?;
    let mut numbers = Numbers::new(210);
    let mut halves = |len| -> Vec<f32> { (0..len).map(|_| f16::from_f32(numbers.f32()).to_f32()).collect() };
    for (rows, outputs, inputs) in LAYERS {
        let (weights, bias) = (halves(inputs * outputs), halves(outputs));
        let weights = LinearWeights { inputs, outputs, weights, bias };
        let layer = HalfLinear::new(context.device()?, &weights)?;
        let input = halves(rows * inputs);
        let bits: Vec<u16> = input.iter().map(|x| f16::from_f32(*x).to_bits()).collect();
        let mut rounded = context.device()?.alloc::<u16>(bits.len())?;
        let from = bench.buffer(&input)?;
        for activation in [Activation::Identity, Activation::Gelu] {
            let got = bench.run(rows * outputs, |kernels, queue, out| {
                kernels.to_f16(queue, &from, &mut rounded)?;
                kernels.linear_f16(queue, &layer, activation, &rounded, out)
            })?;
            if rounded.to_vec()? != bits {
                return Err(
                    format!("{rows} x {inputs}: rounding changed numbers that are exact halves").into()
                );
            }
            let what = format!("{rows} x {inputs} to {outputs} in halves, {activation:?}");
            agree(&what, &got, &weights.forward(&widen(&input), activation), 1e-3)?;
        }
    }
    Ok(())
}

/// Batches of matrix products of odd sizes, with either storage of the second factor, within 1e-4.
pub(super) fn batched_products(context: &Context) -> Check {
    let mut bench = Bench::new(context)?;
    let mut numbers = Numbers::new(220);
    for (batch, m, n, k) in [(1, 1, 1, 1), (3, 5, 7, 11), (2, 16, 16, 16), (2, 17, 31, 33)] {
        let (a, b) = (numbers.vec_f32(batch * m * k), numbers.vec_f32(batch * n * k));
        let (gpu_a, gpu_b) = (bench.buffer(&a)?, bench.buffer(&b)?);
        for b_transposed in [false, true] {
            let product = Product { batch, m, n, k, b_transposed, scale: 0.5 };
            let got = bench.run(batch * m * n, |kernels, queue, out| {
                kernels.matmul(queue, product, &gpu_a, &gpu_b, out)
            })?;
            let (a, b) = (widen(&a), widen(&b));
            let pairs = a.chunks_exact(m * k).zip(b.chunks_exact(k * n));
            let want: Vec<f64> =
                pairs.flat_map(|(a, b)| reference::matmul(a, b, (m, n, k), b_transposed, 0.5)).collect();
            agree(&format!("{product:?}"), &got, &want, 1e-4)?;
        }
    }
    Ok(())
}

/// Convolutions with every combination of window, stride and padding on images that are not square, within
/// 1e-4; and pooling of planes that the window does not divide.
pub(super) fn convolutions_and_pooling(context: &Context) -> Check {
    let mut bench = Bench::new(context)?;
    let (mut numbers, mut rng) = (Numbers::new(230), Rng::with_seed(230));
    let (batch, rows, columns) = (2, 7, 5);
    for (size, stride, padding) in [(1, 1, 0), (3, 1, 1), (3, 2, 0), (2, 3, 1), (5, 1, 2), (4, 2, 3)] {
        let shape = ConvShape { channels_in: 3, channels_out: 5, size, stride, padding };
        let weights = ConvWeights::random(&mut rng, shape);
        let conv = Conv::new(context.device()?, &weights)?;
        let input = numbers.vec_f32(batch * 3 * rows * columns);
        let from = bench.buffer(&input)?;
        for (relu, activation) in [(false, Activation::Identity), (true, Activation::Relu)] {
            let want = reference::convolve(&weights, &widen(&input), (rows, columns), activation);
            let got = bench.run(want.len(), |kernels, queue, out| {
                kernels.conv2d(queue, &conv, relu, (rows, columns), &from, out)
            })?;
            agree(&format!("{shape:?}, {activation:?}"), &got, &want, 1e-4)?;
        }
        for how in [Pooling::Max, Pooling::Average] {
            let want = reference::pool(&widen(&input), rows, columns, size, how);
            let got = bench.run(want.len(), |kernels, queue, out| {
                kernels.pool(queue, how, size, (rows, columns), &from, out)
            })?;
            agree(&format!("{how:?} of {size} x {size}"), &got, &want, 1e-6)?;
        }
    }
    Ok(())
}

/// Softmax, normalisation and means of rows shorter than a warp, equal to it, and longer, within 1e-4.
pub(super) fn rows_of_odd_lengths(context: &Context) -> Check {
    let mut bench = Bench::new(context)?;
    let (mut numbers, mut rng) = (Numbers::new(240), Rng::with_seed(240));
    for (rows, columns) in [(1, 1), (3, 2), (4, 31), (5, 32), (6, 33), (9, 100), (2, 257)] {
        // Far enough apart that a softmax without subtraction of the maximum overflows.
        let input: Vec<f32> = (0..rows * columns).map(|_| numbers.f32() * 100.0).collect();
        let (from, wide) = (bench.buffer(&input)?, widen(&input));
        let what = format!("{rows} rows of {columns}");

        let got =
            bench.run(input.len(), |kernels, queue, out| kernels.softmax(queue, columns, &from, out))?;
        agree(&format!("softmax, {what}"), &got, &reference::softmax(&wide, columns), 1e-4)?;

        let weights = NormWeights::random(&mut rng, columns);
        let norm = Norm::new(context.device()?, &weights)?;
        let got =
            bench.run(input.len(), |kernels, queue, out| kernels.layer_norm(queue, &norm, &from, out))?;
        agree(&format!("normalisation, {what}"), &got, &reference::normalise(&weights, &wide), 1e-4)?;

        let scale = 1.0 / columns as f32;
        let got =
            bench.run(rows, |kernels, queue, out| kernels.row_sums(queue, columns, scale, &from, out))?;
        let want: Vec<f64> =
            wide.chunks_exact(columns).map(|row| row.iter().sum::<f64>() / columns as f64).collect();
        agree(&format!("means, {what}"), &got, &want, 1e-4)?;
    }
    Ok(())
}

/// Functions of single elements and of pairs, within 1e-5 of the result.
pub(super) fn elements(context: &Context) -> Check {
    let mut bench = Bench::new(context)?;
    let mut numbers = Numbers::new(250);
    for len in [1, 127, 129, 1000] {
        let (a, b): (Vec<f32>, Vec<f32>) = (0..len).map(|_| (numbers.f32() * 4.0, numbers.f32())).unzip();
        let (gpu_a, gpu_b) = (bench.buffer(&a)?, bench.buffer(&b)?);
        for unary in [Unary::Relu, Unary::Gelu, Unary::Exp] {
            let function = match unary {
                Unary::Relu => |x: f64| x.max(0.0),
                Unary::Gelu => gelu,
                Unary::Exp => f64::exp,
            };
            let got = bench.run(len, |kernels, queue, out| kernels.unary(queue, unary, &gpu_a, out))?;
            let want: Vec<f64> = a.iter().map(|x| function(f64::from(*x))).collect();
            // e to the power of 4 is 55.
            agree(&format!("{unary:?} of {len}"), &got, &want, 1e-5 * 55.0)?;
        }
        let sum = bench
            .run(len, |kernels, queue, out| kernels.binary(queue, Binary::Add, [&gpu_a, &gpu_b], out))?;
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        same_bits(&format!("sum of {len}"), &sum, &want)?;
        let product = bench
            .run(len, |kernels, queue, out| kernels.binary(queue, Binary::Multiply, [&gpu_a, &gpu_b], out))?;
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        same_bits(&format!("product of {len}"), &product, &want)?;
    }
    Ok(())
}

/// Permuted axes, and a slice of an array.
pub(super) fn permutations(context: &Context) -> Check {
    let mut bench = Bench::new(context)?;
    let input = Numbers::new(260).vec_f32(2 * 3 * 5 * 7);
    let from = bench.buffer(&input)?;
    let cases = [
        ([2, 3, 5, 7], [105, 35, 7, 1]),
        ([2, 5, 3, 7], [105, 7, 35, 1]),
        ([7, 5, 3, 2], [1, 7, 35, 105]),
        ([1, 1, 14, 15], [0, 0, 1, 14]),
    ];
    for (extents, strides) in cases {
        let got = bench
            .run(input.len(), |kernels, queue, out| kernels.permute(queue, extents, strides, &from, out))?;
        let what = format!("{extents:?} from strides {strides:?}");
        same_bits(&what, &got, &reference::permute(&input, extents, strides))?;
    }
    let part = from.slice(35..)?;
    let (extents, strides) = ([1, 2, 7, 5], [0, 35, 1, 7]);
    let got = bench.run(70, |kernels, queue, out| kernels.permute(queue, extents, strides, part, out))?;
    same_bits("a slice", &got, &reference::permute(&input[35..], extents, strides))?;
    Ok(())
}

/// Buffers of the wrong size are refused before a launch.
pub(super) fn wrong_sizes_are_refused(context: &Context) -> Check {
    let mut bench = Bench::new(context)?;
    let weights = LinearWeights::random(&mut Rng::with_seed(270), 4, 3);
    let layer = Linear::new(context.device()?, &weights)?;
    let (four, five) = (bench.buffer(&[0.0; 4])?, bench.buffer(&[0.0; 5])?);
    let wrong = [
        bench.run(3, |kernels, queue, out| kernels.linear(queue, &layer, Activation::Relu, &five, out)),
        bench.run(4, |kernels, queue, out| kernels.linear(queue, &layer, Activation::Relu, &four, out)),
        bench.run(5, |kernels, queue, out| kernels.binary(queue, Binary::Add, [&four, &five], out)),
        bench.run(5, |kernels, queue, out| kernels.softmax(queue, 2, &five, out)),
        bench.run(4, |kernels, queue, out| kernels.permute(queue, [1, 1, 2, 2], [0, 0, 2, 3], &five, out)),
    ];
    for (at, result) in wrong.into_iter().enumerate() {
        match result {
            Err(Error::Sizes(_)) => (),
            Err(error) => return Err(format!("request {at} was refused for another reason: {error}").into()),
            Ok(_) => return Err(format!("request {at} was not refused").into()),
        }
    }
    Ok(())
}
