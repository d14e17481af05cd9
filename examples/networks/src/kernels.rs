//! The kernels of `kernels/nn_*.cu` with their launch shapes, and checks that the buffers fit.

use infer::Launcher;
use tegra_hcq::{Arg, Buffer, Device, Dim3, Kernel, Program, Slice, args};

use crate::error::{Result, sizes};
use crate::layers::{Conv, HalfLinear, Linear, Norm, fits, product};
use crate::weights::{Activation, Pooling};

/// Edge of the tiles of a matrix product.
const TILE: usize = 16;
/// Threads of a block of such a product.
const TILE_BLOCK: (u32, u32) = (TILE as u32, TILE as u32);
/// Threads of a block for kernels that accept any number.
const BLOCK: u32 = 128;
/// Rows of such a block if each row takes a warp.
const ROWS_PER_BLOCK: usize = BLOCK as usize / 32;

/// The cubins of a source for an Orin and for Hopper GPUs.
macro_rules! cubins {
    ($name:literal) => {
        [
            include_bytes!(concat!("../../../kernels/", $name, ".cubin")) as &[u8],
            include_bytes!(concat!("../../../kernels/sm_90/", $name, ".cubin")),
        ]
    };
}

/// A function of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// The sum.
    Add,
    /// The product.
    Multiply,
}

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// The larger of the element and zero.
    Relu,
    /// [`crate::weights::gelu`].
    Gelu,
    /// e to the power of the element.
    Exp,
}

/// Shape of a batch of matrix products: m x k times k x n.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Number of products.
    pub batch: usize,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
    /// Whether the second factor is stored as n x k.
    pub b_transposed: bool,
    /// Factor of the result.
    pub scale: f32,
}

/// The kernels, loaded on a device.
///
/// Each method compares the lengths of the buffers with the sizes that its kernel gets, so a launch accesses only the
/// buffers of the call: it reads those passed by `&` and writes those passed by `&mut`.
#[derive(Clone, Debug)]
pub struct Kernels {
    linear: Kernel,
    linear_row: Kernel,
    linear_f16: Kernel,
    matmul_batched: Kernel,
    to_f16: Kernel,
    conv2d: Kernel,
    pool2d: Kernel,
    softmax: Kernel,
    layer_norm: Kernel,
    row_sums: Kernel,
    add: Kernel,
    multiply: Kernel,
    relu: Kernel,
    gelu: Kernel,
    exponential: Kernel,
    permute: Kernel,
}

/// A size as an argument of a kernel.
fn count(size: usize) -> Result<u32> {
    u32::try_from(size).map_err(|_| sizes!("size {size} does not fit the kernels' 32 bits"))
}

/// Blocks for `size` elements, `per_block` in each.
fn blocks(size: usize, per_block: usize) -> Result<u32> {
    count(size.div_ceil(per_block))
}

/// Whole rows of `columns` elements in a buffer of `len`.
fn whole_rows(what: &'static str, len: usize, columns: usize) -> Result<usize> {
    if columns == 0 || len == 0 || !len.is_multiple_of(columns) {
        return Err(sizes!("{what} has {len} elements, which is not a multiple of the row length {columns}"));
    }
    Ok(len / columns)
}

impl Kernels {
    /// Loads the four cubins.
    ///
    /// # Errors
    ///
    /// Those of [`Program::load`].
    pub fn load(device: &Device) -> Result<Self> {
        let linear = Program::load_fitting(device, &cubins!("nn_linear"))?;
        let conv = Program::load_fitting(device, &cubins!("nn_conv"))?;
        let rows = Program::load_fitting(device, &cubins!("nn_rows"))?;
        let elements = Program::load_fitting(device, &cubins!("nn_elements"))?;
        Ok(Self {
            linear: linear.kernel("linear_f32")?,
            linear_row: linear.kernel("linear_row_f32")?,
            linear_f16: linear.kernel("linear_f16")?,
            matmul_batched: linear.kernel("matmul_batched_f32")?,
            to_f16: linear.kernel("to_f16")?,
            conv2d: conv.kernel("conv2d")?,
            pool2d: conv.kernel("pool2d")?,
            softmax: rows.kernel("softmax")?,
            layer_norm: rows.kernel("layer_norm")?,
            row_sums: rows.kernel("row_sums")?,
            add: elements.kernel("add")?,
            multiply: elements.kernel("multiply")?,
            relu: elements.kernel("relu")?,
            gelu: elements.kernel("gelu")?,
            exponential: elements.kernel("exponential")?,
            permute: elements.kernel("permute")?,
        })
    }

    /// A fully connected layer over every row of `input`. A single row runs on a kernel with a warp per
    /// output instead of a tile of sixteen rows.
    ///
    /// # Errors
    ///
    /// [`Error::Sizes`](crate::Error::Sizes) if the buffers do not fit the sizes, or a size exceeds 32 bits; those of
    /// [`Launcher::launch`].
    pub fn linear(
        &self,
        to: &mut dyn Launcher,
        layer: &Linear,
        activation: Activation,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let rows = whole_rows("the input of a layer", input.len(), layer.inputs)?;
        fits("the output of a layer", out.len(), product([rows, layer.outputs]))?;
        let (m, n, k) = (count(rows)?, count(layer.outputs)?, count(layer.inputs)?);
        let (weights, bias) = (&layer.weights, &layer.bias);
        if rows == 1 {
            let grid = blocks(layer.outputs, ROWS_PER_BLOCK)?;
            let arguments = args![input, weights, bias, out, n, k, activation.code()];
            // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
            return unsafe { launch(to, &self.linear_row, grid, BLOCK, &arguments) };
        }
        let grid = (blocks(layer.outputs, TILE)?, blocks(rows, TILE)?);
        let arguments = args![input, weights, bias, out, m, n, k, activation.code()];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { launch(to, &self.linear, grid, TILE_BLOCK, &arguments) }
    }

    /// A fully connected layer on the tensor cores. `input` contains the bits of halves.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn linear_f16(
        &self,
        to: &mut dyn Launcher,
        layer: &HalfLinear,
        activation: Activation,
        input: &Buffer<u16>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let rows = whole_rows("the input of a layer", input.len(), layer.inputs)?;
        fits("the output of a layer", out.len(), product([rows, layer.outputs]))?;
        let (m, n, k) = (count(rows)?, count(layer.outputs)?, count(layer.inputs)?);
        let grid = (blocks(layer.outputs, 8)?, blocks(rows, 16)?);
        let arguments = args![input, &layer.weights, &layer.bias, out, m, n, k, activation.code()];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { launch(to, &self.linear_f16, grid, 32_u32, &arguments) }
    }

    /// A batch of matrix products, consecutive in each buffer.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn matmul(
        &self,
        to: &mut dyn Launcher,
        shape: Product,
        a: &Buffer<f32>,
        b: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let Product { batch, m, n, k, b_transposed, scale } = shape;
        fits("the first factor", a.len(), product([batch, m, k]))?;
        fits("the second factor", b.len(), product([batch, k, n]))?;
        fits("the product", out.len(), product([batch, m, n]))?;
        let grid = (blocks(n, TILE)?, blocks(m, TILE)?, count(batch)?);
        let arguments = args![a, b, out, count(m)?, count(n)?, count(k)?, u32::from(b_transposed), scale];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { launch(to, &self.matmul_batched, grid, TILE_BLOCK, &arguments) }
    }

    /// Rounds to halves; `out` receives their bits.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn to_f16(&self, to: &mut dyn Launcher, input: &Buffer<f32>, out: &mut Buffer<u16>) -> Result<()> {
        fits("the rounded buffer", out.len(), input.len())?;
        let arguments = args![input, out, count(input.len())?];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { elementwise(to, &self.to_f16, input.len(), &arguments) }
    }

    /// A convolution over images of `rows` x `columns`, optionally followed by ReLU.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn conv2d(
        &self,
        to: &mut dyn Launcher,
        conv: &Conv,
        relu: bool,
        (rows, columns): (usize, usize),
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let shape = conv.shape;
        let padding = shape.padding.saturating_mul(2);
        if shape.size > rows.min(columns).saturating_add(padding) || shape.stride == 0 {
            return Err(sizes!("{shape:?} does not fit images of {rows} x {columns}"));
        }
        // `extent` overflows for sizes that do not fit the kernel's parameters.
        for size in [rows, columns, shape.padding] {
            count(size)?;
        }
        let image = product([shape.channels_in, rows, columns]);
        let batch = whole_rows("the images", input.len(), image)?;
        let plane = product([shape.extent(rows), shape.extent(columns)]);
        let elements = product([batch, shape.channels_out, plane]);
        fits("the output of a convolution", out.len(), elements)?;
        let arguments = args![
            input,
            &conv.weights,
            &conv.bias,
            out,
            count(batch)?,
            count(shape.channels_in)?,
            count(rows)?,
            count(columns)?,
            count(shape.channels_out)?,
            count(shape.size)?,
            count(shape.stride)?,
            count(shape.padding)?,
            u32::from(relu),
        ];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { elementwise(to, &self.conv2d, elements, &arguments) }
    }

    /// Pools planes of `rows` x `columns` in windows of `size` x `size`; rows and columns that fill no window are
    /// left out.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn pool(
        &self,
        to: &mut dyn Launcher,
        how: Pooling,
        size: usize,
        (rows, columns): (usize, usize),
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let planes = whole_rows("the planes", input.len(), product([rows, columns]))?;
        if size == 0 || size > rows.min(columns) {
            return Err(sizes!("windows of {size} x {size} do not fit planes of {rows} x {columns}"));
        }
        let elements = planes * (rows / size) * (columns / size);
        fits("the pooled planes", out.len(), elements)?;
        let average = u32::from(how == Pooling::Average);
        let arguments =
            args![input, out, count(planes)?, count(rows)?, count(columns)?, count(size)?, average];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { elementwise(to, &self.pool2d, elements, &arguments) }
    }

    /// The softmax of each row of `columns` elements.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn softmax(
        &self,
        to: &mut dyn Launcher,
        columns: usize,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let rows = whole_rows("the input of a softmax", input.len(), columns)?;
        fits("the output of a softmax", out.len(), input.len())?;
        let arguments = args![input, out, count(rows)?, count(columns)?];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { launch(to, &self.softmax, blocks(rows, ROWS_PER_BLOCK)?, BLOCK, &arguments) }
    }

    /// Normalises each row.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn layer_norm(
        &self,
        to: &mut dyn Launcher,
        norm: &Norm,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let columns = norm.gain.len();
        let rows = whole_rows("the input of a normalisation", input.len(), columns)?;
        fits("the output of a normalisation", out.len(), input.len())?;
        let arguments =
            args![input, &norm.gain, &norm.bias, out, count(rows)?, count(columns)?, norm.epsilon];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { launch(to, &self.layer_norm, blocks(rows, ROWS_PER_BLOCK)?, BLOCK, &arguments) }
    }

    /// `scale` times the sum of each row of `columns` elements.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn row_sums(
        &self,
        to: &mut dyn Launcher,
        columns: usize,
        scale: f32,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let rows = whole_rows("the rows", input.len(), columns)?;
        fits("the sums", out.len(), rows)?;
        let arguments = args![input, out, count(rows)?, count(columns)?, scale];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { launch(to, &self.row_sums, blocks(rows, ROWS_PER_BLOCK)?, BLOCK, &arguments) }
    }

    /// Combines two buffers element by element.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn binary(
        &self,
        to: &mut dyn Launcher,
        function: Binary,
        [a, b]: [&Buffer<f32>; 2],
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let kernel = match function {
            Binary::Add => &self.add,
            Binary::Multiply => &self.multiply,
        };
        fits("the first operand", a.len(), out.len())?;
        fits("the second operand", b.len(), out.len())?;
        let len = out.len();
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { elementwise(to, kernel, len, &args![a, b, out, count(len)?]) }
    }

    /// Applies a function to each element.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn unary(
        &self,
        to: &mut dyn Launcher,
        function: Unary,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let kernel = match function {
            Unary::Relu => &self.relu,
            Unary::Gelu => &self.gelu,
            Unary::Exp => &self.exponential,
        };
        fits("the output", out.len(), input.len())?;
        let len = out.len();
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { elementwise(to, kernel, len, &args![input, out, count(len)?]) }
    }

    /// Reorders the axes of an array: element `[i][j][k][l]` of the output, which has the extents `extents`, is element
    /// `i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3]` of the input.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn permute<'a>(
        &self,
        to: &mut dyn Launcher,
        extents: [usize; 4],
        strides: [usize; 4],
        input: impl Into<Slice<'a, f32>>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let input = input.into();
        let len = out.len();
        fits("the reordered array", len, product(extents))?;
        let steps_along = extents.map(|extent| extent.max(1) - 1).into_iter().zip(strides);
        let last = steps_along.fold(0_usize, |last, (n, s)| last.saturating_add(n.saturating_mul(s)));
        if last >= input.len() {
            let len = input.len();
            return Err(sizes!("the strides lead to element {last} of an array of {len}"));
        }
        let ([d0, d1, d2, d3], [s0, s1, s2, s3]) = (extents, strides);
        let arguments = args![
            input,
            out,
            count(d0)?,
            count(d1)?,
            count(d2)?,
            count(d3)?,
            count(s0)?,
            count(s1)?,
            count(s2)?,
            count(s3)?,
        ];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { elementwise(to, &self.permute, len, &arguments) }
    }
}

/// A launch with a thread for each element of the output.
///
/// # Safety
///
/// As for [`Launcher::launch`] with `elements` threads or more.
unsafe fn elementwise(
    to: &mut dyn Launcher,
    kernel: &Kernel,
    elements: usize,
    arguments: &[Arg<'_>],
) -> Result<()> {
    // The kernels count elements in 32 bits.
    count(elements)?;
    // SAFETY: the caller's promise is passed on.
    unsafe { launch(to, kernel, blocks(elements, BLOCK as usize)?, BLOCK, arguments) }
}

/// Appends a launch.
///
/// # Safety
///
/// As for [`Launcher::launch`].
unsafe fn launch(
    to: &mut dyn Launcher,
    kernel: &Kernel,
    grid: impl Into<Dim3>,
    block: impl Into<Dim3>,
    arguments: &[Arg<'_>],
) -> Result<()> {
    // SAFETY: the caller's promise is passed on.
    unsafe { to.launch(kernel, grid.into(), block.into(), 0, arguments)? };
    Ok(())
}
