//! Products of matrices on the tensor cores, for any program that has a [`Device`]: the part of a BLAS that neural
//! networks need, without the rest of one.
//!
//! [`Dense`] multiplies two matrices of halves, bfloat16 numbers or floats, one pair or a batch of them:
//! `out = scale * a * b + bias`, or that added to `out`. C programs call it by `tegra_hcq_queue_multiply`, Python
//! programs by `tegra_hcq.matmul`. [`Gemm`] has it, and [`Gemm::multiply_packed`] for vectors and [`PackedWeights`],
//! in the block formats of GGUF files.
//!
//! **Sizes.** `a` is `m` x `k`, `out` is `m` x `n`, both row major; `b` is `k` x `n` ([`Form::Rows`]) or `n` x `k`
//! ([`Form::Columns`], as BLAS calls it transposed). Rows follow each other without gaps: there are no leading
//! dimensions, a slice of a buffer is a matrix. Batches follow each other, too. Sizes need not be multiples of
//! anything, and are below 2^31; rows that begin at multiples of 16 bytes are fastest. A transposed `a` has no
//! form: exchange the factors, which transposes the result.
//!
//! **Accuracy.** Sums are in 32-bit floats, and rounded to the elements of the target at the end. Products of
//! halves and of bfloat16 numbers are exact. Tensor cores do not multiply 32-bit floats. [`Precision::Full`] splits
//! each float into two numbers of 11 bits (TF32) and adds three products: each product of two floats has about 22
//! bits, and the range of floats; those below 2^-100 have 11 bits. [`Precision::Tf32`] rounds each float to 11
//! bits, to nearest, and takes one product.
//!
//! **Determinism.** Sums have a fixed order, which depends on the sizes, the form, the addresses' alignment and the
//! GPU: the same factors give the same bits on every run.
//!
//! **Order.** A product is a launch of a [`Launcher`](crate::Launcher): a queue runs it after its earlier work, a
//! graph records it. It needs no memory beside its operands.
//!
//! Packed weights become halves on their way to the tensor cores; F32 and BF16 weights stay floats. A block has 128
//! rows of weights and 128, 64 or 32 vectors. If there are at most 32 vectors and shared memory has room for their
//! columns (2,048 halves on an Orin), a block has all vectors instead, and its 16 warps have 16 rows each.
//!
//! On an H100, large products of halves, bfloat16 and TF32 use its own instructions, with tiles of the same size
//! and 192 KiB of shared memory; so do products of over 64 vectors with packed weights that become halves, in tiles
//! of 256 vectors and 128 rows, 128 and 128, or 128 and 64.
//!
//! | elements | tile of a block | threads | shared memory | sums |
//! |---|---|---|---|---|
//! | halves, bfloat16, floats as TF32 | 128 x 256 | 256 | 144 KiB | 128 per thread |
//! | floats | 128 x 128 | 256 | 96 KiB | 64 per thread |
//! | all, if the product has too few large tiles for the GPU | 64 x 64 | 128 | 48 KiB | 32 per thread |

mod dense;
pub(crate) mod few;
mod hopper;
pub(crate) mod packed;
#[cfg(test)]
mod tests;
mod wide;

use tegra_hcq::{Device, Kernel, Program, Slice, SliceMut};

use crate::error::Result;
use crate::launch::cubins;

use hopper::HopperKernels;
use packed::PackedKernels;
pub use packed::PackedWeights;

/// How the second factor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `k` rows of `n` elements.
    Rows,
    /// `n` rows of `k` elements: transposed, like the weights of a layer.
    Columns,
}

/// How exactly floats are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Like 32-bit floats, by three products on the tensor cores.
    #[default]
    Full,
    /// Each float is rounded to 11 bits.
    Tf32,
}

/// A factor of a product. `u16` elements are the bits of numbers.
#[derive(Clone, Copy, Debug)]
pub enum Factor<'a> {
    /// IEEE halves.
    F16(Slice<'a, u16>),
    /// Upper halves of 32-bit floats.
    Bf16(Slice<'a, u16>),
    /// 32-bit floats.
    F32(Slice<'a, f32>),
}

impl Factor<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F16(slice) | Self::Bf16(slice) => slice.len(),
            Self::F32(slice) => slice.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of the elements.
    pub fn name(&self) -> &'static str {
        match self {
            Self::F16(_) => "f16",
            Self::Bf16(_) => "bf16",
            Self::F32(_) => "f32",
        }
    }
}

/// Memory for a product. Sums are rounded to its elements at the end.
#[derive(Debug)]
pub enum Target<'a> {
    /// IEEE halves.
    F16(SliceMut<'a, u16>),
    /// Upper halves of 32-bit floats.
    Bf16(SliceMut<'a, u16>),
    /// 32-bit floats.
    F32(SliceMut<'a, f32>),
}

impl Target<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F16(slice) | Self::Bf16(slice) => slice.len(),
            Self::F32(slice) => slice.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sizes and kinds of a product: `out = scale * a * b + bias`, for `batch` pairs of matrices that follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Number of products.
    pub batch: usize,
    /// Rows of the first factor and of the result.
    pub m: usize,
    /// Columns of the second factor and of the result.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
    /// How the second factor is stored.
    pub form: Form,
    /// Factor of the sums.
    pub scale: f32,
    /// Whether the product is added to the elements that the target has.
    pub accumulate: bool,
    /// How exactly floats are multiplied.
    pub precision: Precision,
}

impl Shape {
    /// One product, whose result replaces the target's elements.
    pub const fn new(m: usize, n: usize, k: usize, form: Form) -> Self {
        Self { batch: 1, m, n, k, form, scale: 1.0, accumulate: false, precision: Precision::Full }
    }

    /// Multiplications and additions.
    pub const fn operations(&self) -> u64 {
        // CAST: usize is at most 64 bits.
        2 * self.batch as u64 * self.m as u64 * self.n as u64 * self.k as u64
    }
}

/// The kernels for matrices of numbers, loaded on a device.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let timeout = std::time::Duration::from_secs(10);
/// use infer::gemm::{Dense, Factor, Form, Shape, Target};
///
/// let dense = Dense::load(&device)?;
/// let mut queue = device.queue()?;
/// let (a, b) = (device.alloc_from(&[1.0_f32, 2.0])?, device.alloc_from(&[3.0_f32, 4.0, 5.0, 6.0])?);
/// let mut out = device.alloc::<f32>(2)?;
/// let (a, b) = (Factor::F32((&a).into()), Factor::F32((&b).into()));
/// let shape = Shape::new(1, 2, 2, Form::Rows);
/// dense.multiply(&mut queue, &shape, a, b, None, Target::F32((&mut out).into()))?;
/// queue.wait(timeout)?;
/// assert_eq!(out.to_vec()?, [13.0, 16.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Dense {
    /// By element, form and size.
    kernels: [[[Kernel; 3]; 2]; 4],
    /// For SM 9.0.
    hopper: Option<HopperKernels>,
    /// Large tiles from which a product uses them: most of the GPU's SMs have one then.
    enough: usize,
}

impl Dense {
    /// Loads the cubins.
    ///
    /// # Errors
    ///
    /// Those of [`Program::load_fitting`].
    pub fn load(device: &Device) -> Result<Self> {
        let dense = Program::load_fitting(device, &cubins!("gemm/dense"))?;
        // CAST: usize has at least 32 bits.
        let sms = device.info().sm_count.max(1) as usize;
        let hopper = HopperKernels::load(device)?;
        Ok(Self { kernels: dense::kernels(&dense)?, hopper, enough: sms * 3 / 4 })
    }
}

/// [`Dense`], and the kernels for packed weights. A program that uses only [`Dense`] does not contain those.
#[derive(Clone, Debug)]
pub struct Gemm {
    dense: Dense,
    packed: PackedKernels,
}

impl Gemm {
    /// Loads the cubins.
    ///
    /// # Errors
    ///
    /// Those of [`Program::load_fitting`].
    pub fn load(device: &Device) -> Result<Self> {
        Ok(Self { dense: Dense::load(device)?, packed: PackedKernels::load(device, |_| true)? })
    }

    /// The kernels for matrices of numbers.
    pub fn dense(&self) -> &Dense {
        &self.dense
    }
}
