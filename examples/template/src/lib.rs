//! A kernel with a safe interface.

use tegra_hcq::{Buffer, Count, Device, Program, Queue, Result, TypedKernel};

mod kernels {
    tegra_hcq::include_kernels!();
}

/// Threads of a block.
const BLOCK: u32 = 256;

/// The parameters of the kernel.
type Parameters = (f32, &'static [f32], &'static mut [f32], Count<u32>);

/// The kernel `y = a * x + y`.
#[derive(Debug)]
pub struct Saxpy(TypedKernel<Parameters>);

impl Saxpy {
    /// Loads the kernel.
    ///
    /// # Errors
    ///
    /// If the device is not the one that the kernel was compiled for, or has no memory left.
    pub fn load(device: &Device) -> Result<Self> {
        let program = Program::load(device, kernels::saxpy::CUBIN)?;
        // SAFETY: the kernel has these parameters; it reads x[i] and reads and writes y[i] for i < n, nothing else.
        unsafe { program.typed(kernels::saxpy::SAXPY) }.map(Self)
    }

    /// Adds a launch to a queue, over the elements that both buffers have.
    ///
    /// # Errors
    ///
    /// If a buffer is empty.
    pub fn launch(&self, queue: &mut Queue, a: f32, x: &Buffer<f32>, y: &mut Buffer<f32>) -> Result<()> {
        // PANIC: a device has less memory than 2^32 elements.
        let n = u32::try_from(x.len().min(y.len())).expect("fewer than 2^32 elements");
        self.0.launch(queue, n.div_ceil(BLOCK), BLOCK, (a, x, y, n))
    }
}
