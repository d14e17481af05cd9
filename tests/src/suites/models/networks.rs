//! Networks as a whole. Each runs as launches of a queue and as a recorded graph, which have to give the same
//! bits.

use super::{PATIENCE, agree, same_bits};
use crate::Numbers;
use crate::harness::{Check, Context};
use crate::nn::{Cnn, HalfMlp, Mlp, Model, Shape, TransformerBlock};
use crate::reference::MlpWeights;

/// Runs a network on two inputs, each as launches and as a replay of one graph.
fn check(context: &Context, model: &mut dyn Model, tolerance: f64, seed: u64) -> Check {
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
        agree("launches", &launched, &model.reference(&input), tolerance)?;

        model.output().copy_from_slice(&nothing)?;
        let fence = queue.replay(&mut graph)?;
        fence.wait(timeout)?;
        let replayed = model.output().to_vec()?;
        same_bits("the graph against the launches", &replayed, &launched)?;
    }
    Ok(())
}

/// An MLP of these widths.
fn check_mlp(context: &Context, widths: &[usize], rows: usize, tolerance: f64, seed: u64) -> Check {
    let weights = MlpWeights::random(&mut Numbers::new(seed), widths);
    let mut mlp = Mlp::new(context.device()?, weights, rows)?;
    check(context, &mut mlp, tolerance, seed + 1)
}

/// A network of two layers, 784 to 128 to 10, on 8 rows, within 1e-3.
pub(super) fn mlp(context: &Context) -> Check {
    check_mlp(context, &[784, 128, 10], 8, 1e-3, 100)
}

/// The same network in halves on the tensor cores. A sum at the edge between two halves may be rounded to the
/// other one, hence 1e-2.
pub(super) fn mlp_in_halves(context: &Context) -> Check {
    let weights = MlpWeights::random(&mut Numbers::new(110), &[784, 128, 10]);
    let mut mlp = HalfMlp::new(context.device()?, weights, 8)?;
    check(context, &mut mlp, 1e-2, 111)
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
    let mut cnn = Cnn::new(context.device()?, &mut Numbers::new(140), 4)?;
    check(context, &mut cnn, 1e-3, 141)
}

/// A block of a transformer: 2 sequences of 16 tokens of 64 numbers, 4 heads, within 1e-2.
pub(super) fn transformer_block(context: &Context) -> Check {
    let shape = Shape { batch: 2, tokens: 16, width: 64, heads: 4 };
    let mut block = TransformerBlock::new(context.device()?, &mut Numbers::new(150), shape)?;
    check(context, &mut block, 1e-2, 151)
}

/// A block whose sizes are no multiple of anything, within 1e-2.
pub(super) fn odd_transformer_block(context: &Context) -> Check {
    let shape = Shape { batch: 3, tokens: 7, width: 30, heads: 5 };
    let mut block = TransformerBlock::new(context.device()?, &mut Numbers::new(160), shape)?;
    check(context, &mut block, 1e-2, 161)
}
