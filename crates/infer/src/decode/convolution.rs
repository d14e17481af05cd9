//! Short convolutions, which take the place of the attention in some layers.

use tegra_hcq::{Arg, Device, GraphBuilder, Kernel, Program, Queue};

use super::engine::Inner;
use super::places::Addresses;
use crate::error::Result;
use crate::launch::{cubins, word};
use crate::parameters::ConvolveParams;

/// Positions whose inputs a session keeps for each convolution. Contexts can be cut by nearly as many positions without
/// being computed again.
pub(super) const KEPT: usize = 128;
/// Threads of a block.
const BLOCK: u32 = 256;

/// The kernels.
#[derive(Debug)]
pub(super) struct Convolution {
    convolve: Kernel,
    keep: Kernel,
}

impl Convolution {
    pub(super) fn load(device: &Device) -> Result<Self> {
        let program = Program::load_fitting(device, &cubins!("llm/convolve"))?;
        Ok(Self { convolve: program.kernel("convolve")?, keep: program.kernel("keep")? })
    }

    /// Records the convolution of one token of each of `sequences` sequences.
    pub(super) fn record(
        &self,
        graph: &mut GraphBuilder,
        parameters: &ConvolveParams,
        sequences: usize,
    ) -> Result<()> {
        let grid = (parameters.width.div_ceil(BLOCK), word(sequences)?);
        let arguments = [Arg::Bytes(bytemuck::bytes_of(parameters))];
        // SAFETY: the sessions' buffers have the sizes that the model's shape gives, and live as long as the graph's
        // session or batch; so do the weights.
        unsafe { graph.launch(&self.convolve, grid, BLOCK, &arguments)? };
        Ok(())
    }

    /// Launches the convolution of `rows` tokens of a prompt, unless only later tokens need it, and keeps their inputs.
    pub(super) fn launch(
        &self,
        queue: &mut Queue,
        parameters: &ConvolveParams,
        rows: usize,
        is_needed: bool,
    ) -> Result<()> {
        let blocks = parameters.width.div_ceil(BLOCK);
        if is_needed {
            let arguments = [Arg::Bytes(bytemuck::bytes_of(parameters))];
            // SAFETY: a prompt's vectors have room for its rows, and the session keeps its buffers until the queue has
            // ended.
            unsafe { queue.launch(&self.convolve, (blocks, word(rows)?), BLOCK, &arguments)? };
        }
        let kept = rows.min(KEPT);
        let first = rows - kept;
        // CAST: usize is at most 64 bits.
        let skipped = first as u64 * 3 * u64::from(parameters.width) * 4;
        let (parts, start) = (parameters.parts + skipped, parameters.start + word(first)?);
        let newest = ConvolveParams { parts, start, ..*parameters };
        let arguments = [Arg::Bytes(bytemuck::bytes_of(&newest))];
        // SAFETY: as above.
        unsafe { queue.launch(&self.keep, (blocks, word(kept)?), BLOCK, &arguments)? };
        Ok(())
    }
}

impl Inner {
    /// Bytes of what a session keeps for its convolutions.
    pub(super) fn kept_bytes(&self) -> usize {
        self.shape.convolutions(self.shape.layers.len()) * KEPT * self.shape.width * 4
    }

    /// Parameters of the convolution of a layer.
    pub(super) fn convolve(&self, at: &Addresses, number: usize) -> Result<ConvolveParams> {
        let shape = &self.shape;
        // CAST: usize is at most 64 bits.
        let before = (shape.convolutions(number) * KEPT * shape.width * 4) as u64;
        Ok(ConvolveParams {
            parts: at.qkv,
            taps: self.weights.layers[number].taps,
            ring: at.kept + before,
            output: at.attended,
            position: at.position,
            width: word(shape.width)?,
            kept: word(KEPT)?,
            ..ConvolveParams::default()
        })
    }
}
