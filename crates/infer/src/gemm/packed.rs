//! The launches of `kernels/gemm/packed.cu`, and checks that the buffers fit.

use tegra_hcq::{Arg, Buffer, Device, Kernel, Program, Slice, SliceMut};

use super::few::{self, FewKernels, Sums};
use super::wide::WideKernels;
use super::{Factor, Gemm};
use crate::blocks::BlockType;
use crate::decode::pack::{self, Rows, Unit};
use crate::error::{Error, Result};
use crate::launch::{Launcher, cubins, fits, product, words_with_tile};
use crate::model::Matrix;
use crate::parameters::{ActivationCode, Epilogue, PackedParams, SequenceView};

/// Threads of a block.
const BLOCK: u32 = 128;
/// Rows of weights of a tile.
const TILE_ROWS: usize = 128;
/// Vectors of a tile, largest first.
const TILE_VECTORS: [usize; 3] = [128, 64, 32];
/// Bytes of a row of a tile.
const ROW: usize = 128;
/// Stages of vectors and of weights.
const STAGES: [usize; 2] = [3, 2];
/// Bytes of the sums of a vector.
const SUM_BYTES: usize = (TILE_ROWS + 8) * 4;

/// A product with packed weights. Addresses are arguments, so that buffers can take part in the queue's records.
#[derive(Clone, Copy)]
pub(crate) struct PackedCall<'a> {
    pub(crate) block: BlockType,
    pub(crate) vectors: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) tiles: Arg<'a>,
    pub(crate) input: Arg<'a>,
    /// The address of the input.
    pub(crate) vectors_at: u64,
    pub(crate) factors: Arg<'a>,
    pub(crate) bias: Arg<'a>,
    pub(crate) gate: Arg<'a>,
    pub(crate) output: Arg<'a>,
    /// Distance between outputs of vectors, in elements.
    pub(crate) output_row: usize,
    pub(crate) after: Epilogue,
    pub(crate) activation: ActivationCode,
}

impl<'a> PackedCall<'a> {
    /// The parameters of the product.
    pub(super) fn parameters(&self) -> Result<PackedParams> {
        let sizes = [self.vectors, self.rows, self.columns, self.output_row];
        let [m, rows, columns, output_row] = words_with_tile(sizes)?;
        let (after, activation) = (self.after as u32, self.activation as u32);
        Ok(PackedParams { m, rows, columns, input_row: columns, output_row, after, activation })
    }

    /// The arguments of a launch with these parameters.
    pub(super) fn arguments<'p>(&self, parameters: &'p [u8]) -> [Arg<'p>; 7]
    where
        'a: 'p,
    {
        let Self { tiles, input, factors, bias, gate, output, .. } = *self;
        [tiles, input, factors, bias, gate, output, Arg::Bytes(parameters)]
    }
}

/// Whether a format's weights are multiplied as floats, because halves have too few exponents.
pub(crate) fn is_float(block: BlockType) -> bool {
    matches!(block, BlockType::F32 | BlockType::Bf16)
}

/// A program's kernels by format and number of vectors.
#[derive(Clone, Debug)]
pub(super) struct Formats<const N: usize>(Vec<(BlockType, [Kernel; N])>);

impl<const N: usize> Formats<N> {
    /// The kernels `kind_FORMAT_VECTORS` of the formats that `wanted` names.
    pub(super) fn load(
        program: &Program,
        kind: &str,
        sizes: [usize; N],
        wanted: impl Fn(BlockType) -> bool,
    ) -> Result<Self> {
        let of = |block: BlockType| {
            let name = block.name().to_lowercase();
            let kernels = sizes.map(|vectors| program.kernel(&format!("{kind}_{name}_{vectors}")));
            let kernels = kernels.into_iter().collect::<tegra_hcq::Result<Vec<_>>>()?;
            // PANIC: there is one for each size.
            Ok((block, kernels.try_into().expect("a kernel for each size")))
        };
        BlockType::ALL.into_iter().filter(|block| wanted(*block)).map(of).collect::<Result<_>>().map(Self)
    }

    pub(super) fn of(&self, block: BlockType) -> &[Kernel; N] {
        // PANIC: callers use only formats that they loaded.
        &self.0.iter().find(|(own, _)| *own == block).expect("a loaded format").1
    }
}

/// The kernels by format and size of tiles.
#[derive(Clone, Debug)]
pub(crate) struct PackedKernels {
    kernels: Formats<{ TILE_VECTORS.len() }>,
    /// For few vectors.
    pub(crate) few: FewKernels,
    /// For many, on SM 9.0.
    wide: Option<WideKernels>,
    sms: usize,
}

impl PackedKernels {
    /// Loads the kernels of the formats that `wanted` names.
    pub(crate) fn load(device: &Device, wanted: impl Fn(BlockType) -> bool) -> Result<Self> {
        let program = Program::load_fitting(device, &cubins!("gemm/packed"))?;
        // CAST: usize has at least 32 bits.
        Ok(Self {
            kernels: Formats::load(&program, "packed", TILE_VECTORS, &wanted)?,
            wide: WideKernels::load(device, &wanted)?,
            few: FewKernels::load(device, wanted)?,
            sms: device.info().sm_count.max(1) as usize,
        })
    }

    /// The index of the largest tiles that are not half empty and give most SMs a block; else of the smallest that are
    /// not half empty.
    pub(super) fn variant(&self, vectors: usize, rows: usize) -> usize {
        let fits = |size: &usize| *size == TILE_VECTORS.len() - 1 || vectors > TILE_VECTORS[*size] / 2;
        let busy = |size: &usize| {
            let blocks = vectors.div_ceil(TILE_VECTORS[*size]) * rows.div_ceil(TILE_ROWS);
            blocks >= self.sms * 3 / 4
        };
        let mut sizes = (0..TILE_VECTORS.len()).filter(fits);
        sizes.clone().find(busy).or_else(|| sizes.next_back()).unwrap_or(TILE_VECTORS.len() - 1)
    }

    /// Appends a product.
    ///
    /// # Safety
    ///
    /// As for [`Launcher::launch`]: the addresses lead to memory of the sizes that the call gives.
    pub(crate) unsafe fn launch(&self, to: &mut dyn Launcher, call: &PackedCall<'_>) -> Result<()> {
        if let Some(wide) = &self.wide {
            // SAFETY: the caller's promise is passed on.
            if unsafe { wide.launch(to, call, self.sms)? } {
                return Ok(());
            }
        }
        let parameters = call.parameters()?;
        let variant = self.variant(call.vectors, call.rows);
        let vectors = TILE_VECTORS[variant];
        let blocks = call.vectors.div_ceil(vectors) * call.rows.div_ceil(TILE_ROWS);
        let shared = (ROW * (STAGES[0] * vectors + STAGES[1] * TILE_ROWS)).max(vectors * SUM_BYTES);
        let [blocks, shared] = words_with_tile([blocks, shared])?;
        let (kernel, arguments) =
            (&self.kernels.of(call.block)[variant], call.arguments(bytemuck::bytes_of(&parameters)));
        // SAFETY: the caller's promise is passed on.
        unsafe { to.launch(kernel, blocks.into(), BLOCK.into(), shared, &arguments)? };
        Ok(())
    }
}

/// A matrix of weights on a device, in the order in which kernels read them. No bit of a block is lost.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// use infer::blocks::BlockType;
/// use infer::gemm::PackedWeights;
///
/// // Two rows of 64 weights, all 0.
/// let weights = PackedWeights::new(&device, BlockType::Q8_0, 2, 64, &[0; 2 * 2 * 34])?;
/// assert_eq!((weights.rows(), weights.columns()), (2, 64));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PackedWeights {
    block: BlockType,
    rows: usize,
    columns: usize,
    tiles: Buffer<u8>,
}

impl PackedWeights {
    /// Packs `rows` rows of `columns` weights each, given as blocks of a file, and copies them to a device.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if `bytes` are not that many blocks; [`Error::RowLength`] if rows do not end with a unit of 16
    /// bytes; an error of the device if there is no memory left.
    pub fn new(device: &Device, block: BlockType, rows: usize, columns: usize, bytes: &[u8]) -> Result<Self> {
        let needed = block.bytes_for(columns).map_or(usize::MAX, |row| row.saturating_mul(rows));
        fits("the packed weights", bytes.len(), needed)?;
        let multiple = Unit::of(block).weights;
        if rows == 0 || columns == 0 || !columns.is_multiple_of(multiple) {
            return Err(Error::RowLength { name: "packed weights".to_owned(), inputs: columns, multiple });
        }
        let rows_of =
            Rows::of(Matrix { name: "packed weights", inputs: columns, outputs: rows, block, bytes });
        let mut tiles = vec![0; pack::Place::new(0, &rows_of).end];
        pack::pack(&rows_of, 0, &mut tiles);
        Ok(Self { block, rows, columns, tiles: device.alloc_from(&tiles)?.named("packed weights") })
    }

    /// Number of rows: outputs of a layer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns: inputs of a layer.
    pub fn columns(&self) -> usize {
        self.columns
    }

    #[cfg(test)]
    pub(super) fn tiles(&self) -> &Buffer<u8> {
        &self.tiles
    }

    /// The format.
    pub fn block(&self) -> BlockType {
        self.block
    }
}

impl Gemm {
    /// Multiplies vectors with packed weights: `out` has a row of [`PackedWeights::rows`] sums for each row of `input`.
    ///
    /// Vectors are [`Factor::F16`], or [`Factor::F32`] for weights in F32 and BF16, and are rounded to 11 bits like the
    /// weights. Weights beyond the range of halves become infinite in the other formats.
    ///
    /// # Errors
    ///
    /// [`Error::Factors`] if the vectors have other elements, [`Error::Length`] or [`Error::Rows`] if a buffer does not
    /// fit, [`Error::TooLarge`] if a size exceeds 31 bits; those of [`Launcher::launch`].
    pub fn multiply_packed(
        &self,
        to: &mut dyn Launcher,
        input: Factor<'_>,
        weights: &PackedWeights,
        bias: Option<Slice<'_, f32>>,
        out: SliceMut<'_, f32>,
    ) -> Result<()> {
        let (rows, columns) = (weights.rows, weights.columns);
        let len = input.len();
        if !len.is_multiple_of(columns) {
            return Err(Error::Rows { what: "the vectors of a product", len, columns });
        }
        let vectors = len / columns;
        fits("the product", out.len(), product([vectors, rows]))?;
        if let Some(bias) = &bias {
            fits("the bias", bias.len(), rows)?;
        }
        let (address, argument) = match input {
            Factor::F16(slice) if !is_float(weights.block) => (slice.gpu_va(), Arg::from(slice)),
            Factor::F32(slice) if is_float(weights.block) => (slice.gpu_va(), Arg::from(slice)),
            _ => return Err(Error::Factors { first: input.name(), second: weights.block.name() }),
        };
        if vectors == 0 {
            return Ok(());
        }
        if !address.is_multiple_of(16) {
            return Err(Error::Alignment { what: "the vectors of a product", bytes: 16 });
        }
        let call = PackedCall {
            block: weights.block,
            vectors,
            rows,
            columns,
            tiles: Arg::from(&weights.tiles),
            input: argument,
            vectors_at: address,
            factors: Arg::U64(0),
            bias: bias.map_or(Arg::U64(0), Arg::from),
            gate: Arg::U64(0),
            output: Arg::from(out),
            output_row: rows,
            after: Epilogue::Store,
            activation: ActivationCode::Silu,
        };
        let few = &self.packed.few;
        let alone = few.partition_alone(call.block, rows, columns).filter(|_| vectors <= few::MOST);
        // SAFETY: the buffers have the lengths that the kernels access for these sizes: checked above, and for the
        // weights in `new`. The blocks of the plan share no rows.
        unsafe {
            match alone {
                Some(plan) => few.launch(to, &call, plan, SequenceView::default(), Sums::default()),
                None => self.packed.launch(to, &call),
            }
        }
    }
}
