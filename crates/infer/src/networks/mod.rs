//! Networks: a model owns its weights and the buffers between its layers.
//!
//! A model writes the same launches to a queue, which runs them, or to a graph, which records them: see [`Steps`].

mod cnn;
mod mlp;
mod transformer;

pub use cnn::{Cnn, CnnWeights};
pub use mlp::{HalfMlp, Mlp};
pub use transformer::{BlockWeights, Shape, TransformerBlock};

use tegra_hcq::Buffer;

use crate::error::{Error, Result};
use crate::kernels::Steps;
use crate::weights::LinearWeights;

/// A network with one input and one output.
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
/// fn run(model: &mut dyn Model, queue: &mut tegra_hcq::Queue, input: &[f32]) -> infer::Result<Vec<f32>> {
///     model.input().copy_from_slice(input)?;
///     model.forward(queue)?;
///     queue.wait(std::time::Duration::from_secs(10))?;
///     Ok(model.output().to_vec()?)
/// }
///
/// let weights = MlpWeights::random(&mut fastrand::Rng::with_seed(1), &[4, 2]);
/// let mut network = Mlp::new(&device, weights, 1)?;
/// assert_eq!(run(&mut network, &mut queue, &[0.1, 0.2, 0.3, 0.4])?.len(), 2);
/// # Ok(())
/// # }
/// ```
pub trait Model {
    /// The input buffer.
    fn input(&mut self) -> &mut Buffer<f32>;

    /// The output buffer.
    fn output(&mut self) -> &mut Buffer<f32>;

    /// Appends the launches that compute the output from the input.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Steps::launch`].
    fn forward(&mut self, steps: &mut dyn Steps) -> Result<()>;
}

/// Refuses a layer with other inputs or outputs than a network needs.
fn expect_shape(what: &'static str, layer: &LinearWeights, inputs: usize, outputs: usize) -> Result<()> {
    if (layer.inputs, layer.outputs) == (inputs, outputs) {
        return Ok(());
    }
    let (needed_inputs, needed_outputs) = (inputs, outputs);
    Err(Error::Shape { what, inputs: layer.inputs, outputs: layer.outputs, needed_inputs, needed_outputs })
}
