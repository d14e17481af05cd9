//! Small neural networks and a control loop around one, for the examples, the benchmarks and the test suites.
//!
//! A network owns its weights and the buffers between its layers. It writes the same launches to a queue, which runs
//! them, or to a graph, which records them:
//!
//! ```
//! use networks::weights::MlpWeights;
//! use networks::{Mlp, Model};
//! use tegra_hcq::{Device, DeviceKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open(DeviceKind::Sim)?;
//! let weights = MlpWeights::random(&mut fastrand::Rng::with_seed(1), &[4, 8, 2]);
//! let mut network = Mlp::new(&device, weights, 1)?;
//! let mut graph = network.graph(&device)?;
//! network.input().copy_from_slice(&[0.1, 0.2, 0.3, 0.4])?;
//! device.queue()?.replay(&mut graph)?.wait(std::time::Duration::from_secs(10))?;
//! let expected = network.weights().forward(&[0.1, 0.2, 0.3, 0.4]);
//! assert!((f64::from(network.output().to_vec()?[0]) - expected[0]).abs() < 1e-4);
//! # Ok(())
//! # }
//! ```

mod cnn;
pub mod control;
mod error;
pub mod kernels;
pub mod layers;
mod mlp;
mod transformer;
pub mod weights;

pub use cnn::{Cnn, CnnWeights};
pub use error::{Error, Result};
pub use mlp::{HalfMlp, Layer, Mlp, Network};
pub use transformer::{BlockWeights, Shape, TransformerBlock};

use infer::Launcher;
use tegra_hcq::Buffer;

use crate::weights::LinearWeights;

/// A network with one input and one output.
pub trait Model {
    /// The input buffer.
    fn input(&mut self) -> &mut Buffer<f32>;

    /// The output buffer.
    fn output(&mut self) -> &mut Buffer<f32>;

    /// Appends the launches that compute the output from the input.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Launcher::launch`].
    fn forward(&mut self, to: &mut dyn Launcher) -> Result<()>;
}

/// Returns an error if a layer has other inputs or outputs than a network needs.
fn expect_shape(what: &'static str, layer: &LinearWeights, inputs: usize, outputs: usize) -> Result<()> {
    if (layer.inputs, layer.outputs) == (inputs, outputs) {
        return Ok(());
    }
    let [own_inputs, own_outputs] = [layer.inputs, layer.outputs];
    Err(error::sizes!(
        "{what} maps {own_inputs} inputs to {own_outputs} outputs; the network needs {inputs} to {outputs}"
    ))
}
