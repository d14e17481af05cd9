//! Whole networks. Each runs as launches of a queue and as a recorded graph; both must give the same bits.

use fastrand::Rng;
use networks::weights::MlpWeights;
use networks::{BlockWeights, Cnn, CnnWeights, HalfMlp, Mlp, Model, Shape, TransformerBlock};
use test_harness::{Check, Context};
use test_support::Numbers;

use super::{PATIENCE, agree, reference, same_bits};

/// Runs a network on two inputs, each as launches and as a replay of one graph.
fn check(
    context: &Context,
    model: &mut dyn Model,
    reference: &dyn Fn(&[f32]) -> Vec<f64>,
    tolerance: f64,
    seed: u64,
) -> Check {
    let (device, timeout) = (context.device()?, context.patience(PATIENCE));
    let mut builder = device.graph();
    model.forward(&mut builder)?;
    let mut graph = builder.build()?;
    let mut queue = device.queue()?;
    let (inputs, outputs) = (model.input().len(), model.output().len());
    let nothing = vec![f32::NAN; outputs];
    let mut numbers = Numbers::new(seed);
    for _ in 0..2 {
        let input = numbers.vec_f32(inputs);
        model.input().copy_from_slice(&input)?;

        model.output().copy_from_slice(&nothing)?;
        model.forward(&mut queue)?;
        queue.wait(timeout)?;
        let launched = model.output().to_vec()?;
        agree("launches", &launched, &reference(&input), tolerance)?;

        model.output().copy_from_slice(&nothing)?;
        let fence = queue.replay(&mut graph)?;
        fence.wait(timeout)?;
        let replayed = model.output().to_vec()?;
        same_bits("graph compared with launches", &replayed, &launched)?;
    }
    Ok(())
}

/// An MLP of these widths.
fn check_mlp(context: &Context, widths: &[usize], rows: usize, tolerance: f64, seed: u64) -> Check {
    let weights = MlpWeights::random(&mut Rng::with_seed(seed), widths);
    let mut mlp = Mlp::new(context.device()?, weights.clone(), rows)?;
    let reference = |input: &[f32]| weights.forward(&reference::widen(input));
    check(context, &mut mlp, &reference, tolerance, seed + 1)
}

/// A network of two layers, 784 to 128 to 10, on 8 rows, within 1e-3.
pub(super) fn mlp(context: &Context) -> Check {
    check_mlp(context, &[784, 128, 10], 8, 1e-3, 100)
}

/// The same network in half precision on the tensor cores. A sum halfway between two halves may round to
/// either, hence 1e-2.
pub(super) fn mlp_in_halves(context: &Context) -> Check {
    let weights = MlpWeights::random(&mut Rng::with_seed(110), &[784, 128, 10]);
    let mut mlp = HalfMlp::new(context.device()?, weights.clone(), 8)?;
    check(context, &mut mlp, &|input| reference::half_mlp(&weights, input), 1e-2, 111)
}

/// The network of the control loop: 12 to 128 to 128 to 4, on one row, within 1e-4.
pub(super) fn policy(context: &Context) -> Check {
    check_mlp(context, &[12, 128, 128, 4], 1, 1e-4, 120)
}

/// Ten layers, from 256 numbers to 10, on 16 rows, within 1e-2.
pub(super) fn deep_mlp(context: &Context) -> Check {
    check_mlp(context, &[256, 128, 128, 128, 128, 64, 64, 64, 32, 32, 10], 16, 1e-2, 130)
}

/// Two convolutions on images of 8 x 8, pooled, and a layer with 10 outputs: 4 images, within 1e-3.
pub(super) fn cnn(context: &Context) -> Check {
    let weights = CnnWeights::random(&mut Rng::with_seed(140));
    let mut cnn = Cnn::new(context.device()?, &weights, 4)?;
    check(context, &mut cnn, &|input| reference::cnn(&weights, input), 1e-3, 141)
}

/// A transformer block of this shape, within 1e-2.
fn check_block(context: &Context, shape: Shape, seed: u64) -> Check {
    let weights = BlockWeights::random(&mut Rng::with_seed(seed), shape.width);
    let mut block = TransformerBlock::new(context.device()?, &weights, shape)?;
    check(context, &mut block, &|input| reference::block(&weights, shape, input), 1e-2, seed + 1)
}

/// A block of a transformer: 2 sequences of 16 tokens of 64 numbers, 4 heads.
pub(super) fn transformer_block(context: &Context) -> Check {
    check_block(context, Shape { batch: 2, tokens: 16, width: 64, heads: 4 }, 150)
}

/// A transformer block of odd sizes.
pub(super) fn odd_transformer_block(context: &Context) -> Check {
    check_block(context, Shape { batch: 3, tokens: 7, width: 30, heads: 5 }, 160)
}
