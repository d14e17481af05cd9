//! The kernels of `kernels/nn_*.cu` with their launch shapes, and checks that the buffers fit.

use tegra_hcq::{Arg, Buffer, Device, Dim3, GraphBuilder, Kernel, Program, Queue, Slice, args};

use crate::error::{Error, Result};
use crate::layers::{Conv, HalfLinear, Linear, Norm, fits, product};
use crate::weights::{Activation, Pooling};

/// Edge of the tiles of a matrix product.
const TILE: usize = 16;
/// Threads of a block for kernels that accept any number.
const BLOCK: u32 = 128;
/// Rows of such a block if each row takes a warp.
const ROWS_PER_BLOCK: usize = BLOCK as usize / 32;

const LINEAR: [&[u8]; 2] =
    [include_bytes!("../kernels/nn_linear.cubin"), include_bytes!("../kernels/sm_90/nn_linear.cubin")];
const CONV: [&[u8]; 2] =
    [include_bytes!("../kernels/nn_conv.cubin"), include_bytes!("../kernels/sm_90/nn_conv.cubin")];
const ROWS: [&[u8]; 2] =
    [include_bytes!("../kernels/nn_rows.cubin"), include_bytes!("../kernels/sm_90/nn_rows.cubin")];
const ELEMENTS: [&[u8]; 2] =
    [include_bytes!("../kernels/nn_elements.cubin"), include_bytes!("../kernels/sm_90/nn_elements.cubin")];

/// The destination of a model's launches: a queue, which runs them, or a graph, which records them.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// # let kernels = infer::kernels::Kernels::load(&device)?;
/// use infer::kernels::{Binary, Steps};
///
/// /// The same launches, run at once or recorded.
/// fn double(
///     kernels: &infer::kernels::Kernels,
///     steps: &mut dyn Steps,
///     input: &tegra_hcq::Buffer<f32>,
///     out: &mut tegra_hcq::Buffer<f32>,
/// ) -> infer::Result<()> {
///     kernels.binary(steps, Binary::Add, [input, input], out)
/// }
///
/// let (input, mut out) = (device.alloc_from(&[1.0, 2.0])?, device.alloc(2)?);
/// double(&kernels, &mut queue, &input, &mut out)?;
/// let mut recorded = device.graph();
/// double(&kernels, &mut recorded, &input, &mut out)?;
/// queue.replay(&mut recorded.build()?)?.wait(timeout)?;
/// assert_eq!(out.to_vec()?, [2.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub trait Steps {
    /// Appends a launch.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Queue::launch`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::launch`] and [`GraphBuilder::launch`].
    unsafe fn launch(
        &mut self,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        arguments: &[Arg<'_>],
    ) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.launch_with_shared(kernel, grid, block, 0, arguments) }
    }

    /// As [`Steps::launch`], with `shared_bytes` of dynamic shared memory per block.
    ///
    /// # Errors
    ///
    /// As [`Steps::launch`].
    ///
    /// # Safety
    ///
    /// As for [`Steps::launch`].
    unsafe fn launch_with_shared(
        &mut self,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
    ) -> Result<()>;
}

/// Passes launches on to methods with the same name.
macro_rules! steps {
    ($($destination:ty),*) => {$(
        impl Steps for $destination {
            unsafe fn launch_with_shared(
                &mut self,
                kernel: &Kernel,
                grid: Dim3,
                block: Dim3,
                shared_bytes: u32,
                arguments: &[Arg<'_>],
            ) -> Result<()> {
                // SAFETY: the caller's promise is passed on.
                unsafe { <$destination>::launch_with_shared(self, kernel, grid, block, shared_bytes, arguments)? };
                Ok(())
            }
        }
    )*};
}

steps!(Queue, GraphBuilder);

/// A function of two elements.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// # let kernels = infer::kernels::Kernels::load(&device)?;
/// use infer::kernels::Binary;
///
/// let (a, b) = (device.alloc_from(&[2.0, 3.0])?, device.alloc_from(&[10.0, 100.0])?);
/// let mut out = device.alloc(2)?;
/// kernels.binary(&mut queue, Binary::Multiply, [&a, &b], &mut out)?;
/// queue.wait(timeout)?;
/// assert_eq!(out.to_vec()?, [20.0, 300.0]);
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// # let kernels = infer::kernels::Kernels::load(&device)?;
/// use infer::kernels::Product;
///
/// let shape = Product { batch: 1, m: 1, n: 2, k: 2, b_transposed: false, scale: 0.5 };
/// let (a, b) = (device.alloc_from(&[1.0, 2.0])?, device.alloc_from(&[3.0, 4.0, 5.0, 6.0])?);
/// let mut out = device.alloc(2)?;
/// kernels.matmul(&mut queue, shape, &a, &b, &mut out)?;
/// queue.wait(timeout)?;
/// assert_eq!(out.to_vec()?, [6.5, 8.0]);
/// # Ok(())
/// # }
/// ```
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
/// buffers of the call: it reads those that the method takes by `&` and writes those that it takes by `&mut`.
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
    u32::try_from(size).map_err(|_| Error::TooLarge(size))
}

/// Blocks for `size` elements, `per_block` in each.
fn blocks(size: usize, per_block: usize) -> Result<u32> {
    count(size.div_ceil(per_block))
}

/// Whole rows of `columns` elements in a buffer of `len`.
fn whole_rows(what: &'static str, len: usize, columns: usize) -> Result<usize> {
    if columns == 0 || len == 0 || !len.is_multiple_of(columns) {
        return Err(Error::Rows { what, len, columns });
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
        let linear = Program::load_fitting(device, &LINEAR)?;
        let conv = Program::load_fitting(device, &CONV)?;
        let rows = Program::load_fitting(device, &ROWS)?;
        let elements = Program::load_fitting(device, &ELEMENTS)?;
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
    /// [`Error::Length`] or [`Error::Rows`] if a buffer does not fit, [`Error::TooLarge`] if a size exceeds 32 bits;
    /// those of [`Steps::launch`].
    pub fn linear(
        &self,
        steps: &mut dyn Steps,
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
            return unsafe { steps.launch(&self.linear_row, grid.into(), BLOCK.into(), &arguments) };
        }
        let grid = (blocks(layer.outputs, TILE)?, blocks(rows, TILE)?);
        let arguments = args![input, weights, bias, out, m, n, k, activation.code()];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { steps.launch(&self.linear, grid.into(), tile(), &arguments) }
    }

    /// A fully connected layer on the tensor cores. `input` contains the bits of halves.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn linear_f16(
        &self,
        steps: &mut dyn Steps,
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
        unsafe { steps.launch(&self.linear_f16, grid.into(), 32.into(), &arguments) }
    }

    /// A batch of matrix products, consecutive in each buffer.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn matmul(
        &self,
        steps: &mut dyn Steps,
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
        unsafe { steps.launch(&self.matmul_batched, grid.into(), tile(), &arguments) }
    }

    /// Rounds to halves; `out` receives their bits.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn to_f16(&self, steps: &mut dyn Steps, input: &Buffer<f32>, out: &mut Buffer<u16>) -> Result<()> {
        fits("the rounded buffer", out.len(), input.len())?;
        let arguments = args![input, out, count(input.len())?];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { elementwise(steps, &self.to_f16, input.len(), &arguments) }
    }

    /// A convolution over images of `rows` x `columns`, optionally followed by ReLU.
    ///
    /// [`Error::Convolution`] is returned if the window does not fit the image.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn conv2d(
        &self,
        steps: &mut dyn Steps,
        conv: &Conv,
        relu: bool,
        (rows, columns): (usize, usize),
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let shape = conv.shape;
        let padding = shape.padding.saturating_mul(2);
        if shape.size > rows.min(columns).saturating_add(padding) || shape.stride == 0 {
            return Err(Error::Convolution { shape, rows, columns });
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
        unsafe { elementwise(steps, &self.conv2d, elements, &arguments) }
    }

    /// Pools planes of `rows` x `columns` in windows of `size` x `size`; rows and columns that fill no window are
    /// left out.
    ///
    /// [`Error::Window`] is returned if the window does not fit the plane.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn pool(
        &self,
        steps: &mut dyn Steps,
        how: Pooling,
        size: usize,
        (rows, columns): (usize, usize),
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let planes = whole_rows("the planes", input.len(), product([rows, columns]))?;
        if size == 0 || size > rows.min(columns) {
            return Err(Error::Window { size, rows, columns });
        }
        let elements = planes * (rows / size) * (columns / size);
        fits("the pooled planes", out.len(), elements)?;
        let average = u32::from(how == Pooling::Average);
        let arguments =
            args![input, out, count(planes)?, count(rows)?, count(columns)?, count(size)?, average];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { elementwise(steps, &self.pool2d, elements, &arguments) }
    }

    /// The softmax of each row of `columns` elements.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn softmax(
        &self,
        steps: &mut dyn Steps,
        columns: usize,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let rows = whole_rows("the input of a softmax", input.len(), columns)?;
        fits("the output of a softmax", out.len(), input.len())?;
        let arguments = args![input, out, count(rows)?, count(columns)?];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe { steps.launch(&self.softmax, blocks(rows, ROWS_PER_BLOCK)?.into(), BLOCK.into(), &arguments) }
    }

    /// Normalises each row.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn layer_norm(
        &self,
        steps: &mut dyn Steps,
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
        unsafe {
            steps.launch(&self.layer_norm, blocks(rows, ROWS_PER_BLOCK)?.into(), BLOCK.into(), &arguments)
        }
    }

    /// `scale` times the sum of each row of `columns` elements.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn row_sums(
        &self,
        steps: &mut dyn Steps,
        columns: usize,
        scale: f32,
        input: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let rows = whole_rows("the rows", input.len(), columns)?;
        fits("the sums", out.len(), rows)?;
        let arguments = args![input, out, count(rows)?, count(columns)?, scale];
        // SAFETY: the buffers have the lengths that the kernel accesses for these sizes: checked above.
        unsafe {
            steps.launch(&self.row_sums, blocks(rows, ROWS_PER_BLOCK)?.into(), BLOCK.into(), &arguments)
        }
    }

    /// Combines two buffers element by element.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn binary(
        &self,
        steps: &mut dyn Steps,
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
        unsafe { elementwise(steps, kernel, len, &args![a, b, out, count(len)?]) }
    }

    /// Applies a function to each element.
    ///
    /// # Errors
    ///
    /// As [`Kernels::linear`].
    pub fn unary(
        &self,
        steps: &mut dyn Steps,
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
        unsafe { elementwise(steps, kernel, len, &args![input, out, count(len)?]) }
    }

    /// Reorders the axes of an array: element `[i][j][k][l]` of the output, which has the extents `extents`, is element
    /// `i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3]` of the input.
    ///
    /// # Errors
    ///
    /// [`Error::Stride`] if the strides lead outside the input; as [`Kernels::linear`].
    pub fn permute<'a>(
        &self,
        steps: &mut dyn Steps,
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
            return Err(Error::Stride { element: last, len: input.len() });
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
        unsafe { elementwise(steps, &self.permute, len, &arguments) }
    }
}

/// A block of a matrix product.
fn tile() -> Dim3 {
    // CAST: 16.
    (TILE as u32, TILE as u32).into()
}

/// A launch with a thread for each element of the output.
///
/// # Safety
///
/// As for [`Steps::launch`] with `elements` threads or more.
unsafe fn elementwise(
    steps: &mut dyn Steps,
    kernel: &Kernel,
    elements: usize,
    arguments: &[Arg<'_>],
) -> Result<()> {
    // The kernels count elements in 32 bits.
    count(elements)?;
    // SAFETY: the caller's promise is passed on.
    unsafe { steps.launch(kernel, blocks(elements, BLOCK as usize)?.into(), BLOCK.into(), arguments) }
}
