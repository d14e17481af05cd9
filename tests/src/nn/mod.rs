//! Small neural networks on the GPU, made of the kernels in `kernels/nn_*.cu`.
//!
//! A model owns its weights and the buffers between its layers, and writes the same steps to a queue, which
//! runs them, or to a graph, which records them: see [`Steps`]. It also knows what the CPU makes of an
//! input, see [`crate::reference`].

mod cnn;
mod kernels;
mod layers;
mod mlp;
mod transformer;

pub use cnn::Cnn;
pub use kernels::{Kernels, Product, Unary};
pub use layers::{Conv, HalfLinear, Linear, Norm};
pub use mlp::{HalfMlp, Mlp};
pub use transformer::{Shape, TransformerBlock};

use tegra_hcq::{Arg, Buffer, Dim3, GraphBuilder, Kernel, Queue, Result};

/// Where the launches of a model go.
pub trait Steps {
    /// Adds a launch behind those before it.
    ///
    /// # Errors
    ///
    /// As [`Queue::launch`].
    fn launch(&mut self, kernel: &Kernel, grid: Dim3, block: Dim3, arguments: &[Arg<'_>]) -> Result<()>;
}

impl Steps for Queue {
    fn launch(&mut self, kernel: &Kernel, grid: Dim3, block: Dim3, arguments: &[Arg<'_>]) -> Result<()> {
        Queue::launch(self, kernel, grid, block, arguments)
    }
}

impl Steps for GraphBuilder {
    fn launch(&mut self, kernel: &Kernel, grid: Dim3, block: Dim3, arguments: &[Arg<'_>]) -> Result<()> {
        GraphBuilder::launch(self, kernel, grid, block, arguments).map(|_| ())
    }
}

/// A network with one input and one output.
pub trait Model {
    /// What goes in.
    fn input(&mut self) -> &mut Buffer<f32>;

    /// What comes out.
    fn output(&mut self) -> &mut Buffer<f32>;

    /// Adds the launches that compute the output from the input.
    ///
    /// # Errors
    ///
    /// As [`Steps::launch`].
    fn forward(&self, steps: &mut dyn Steps) -> Result<()>;

    /// What the CPU makes of an input.
    fn reference(&self, input: &[f32]) -> Vec<f64>;
}
