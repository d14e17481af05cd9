//! Products of matrices with tiles for most SMs: the largest tiles, which a Hopper GPU has kernels of their own for.

use fastrand::Rng;
use half::{bf16, f16};
use infer::gemm::{Dense, Factor, Form, Shape, Target};
use tegra_hcq::{Buffer, Device};
use test_harness::{Check, Context};

use super::super::fixtures::equal;
use super::PATIENCE;

/// Elements of a result that are computed on the CPU.
const CHECKED: usize = 500;

/// Small whole numbers, whose sums of products are exact in all elements' floats.
struct Numbers(Vec<i8>);

impl Numbers {
    fn new(rng: &mut Rng, len: usize) -> Self {
        Self((0..len).map(|_| rng.i8(-1..=1)).collect())
    }

    fn of(&self, at: usize) -> f32 {
        self.0[at].into()
    }

    fn bits(&self, is_half: bool) -> Vec<u16> {
        self.0.iter().map(|&value| bits(value.into(), is_half)).collect()
    }
}

/// The bits of a number as a half or as a bfloat16 number.
fn bits(value: f32, is_half: bool) -> u16 {
    if is_half { f16::from_f32(value).to_bits() } else { bf16::from_f32(value).to_bits() }
}

/// The result of a product.
enum Out {
    Bits(Buffer<u16>),
    Floats(Buffer<f32>),
}

/// One product with its factors.
struct Case {
    shape: Shape,
    is_half: bool,
    a: Numbers,
    b: Numbers,
    bias: Vec<f32>,
}

impl Case {
    fn new(rng: &mut Rng, shape: Shape, is_half: bool) -> Self {
        let Shape { batch, m, n, k, .. } = shape;
        let bias = (0..n).map(|_| f32::from(rng.i8(-9..=9))).collect();
        Self {
            shape,
            is_half,
            a: Numbers::new(rng, batch * m * k),
            b: Numbers::new(rng, batch * k * n),
            bias,
        }
    }

    /// The element at `at` of the result; the target had ones.
    fn expected(&self, at: usize) -> f32 {
        let Shape { m, n, k, form, scale, accumulate, .. } = self.shape;
        let (matrix, row, column) = (at / (m * n), at / n % m, at % n);
        let second = |i| if form == Form::Rows { i * n + column } else { column * k + i };
        let product = |i| self.a.of((matrix * m + row) * k + i) * self.b.of(matrix * k * n + second(i));
        let sum: f32 = (0..k).map(product).sum();
        sum * scale + self.bias[column] + if accumulate { 1.0 } else { 0.0 }
    }

    /// Runs the product; the target has floats or elements like the factors.
    fn run(&self, context: &Context, device: &Device, gemm: &Dense, floats: bool) -> Check {
        let Shape { batch, m, n, .. } = self.shape;
        let (len, is_half) = (batch * m * n, self.is_half);
        let a = device.alloc_from(&self.a.bits(is_half))?;
        let b = device.alloc_from(&self.b.bits(is_half))?;
        let bias = device.alloc_from(&self.bias)?;
        let mut out = if floats {
            Out::Floats(device.alloc_from(&vec![1.0; len])?)
        } else {
            Out::Bits(device.alloc_from(&vec![bits(1.0, is_half); len])?)
        };
        let factor = |buffer| if is_half { Factor::F16(buffer) } else { Factor::Bf16(buffer) };
        let target = match &mut out {
            Out::Floats(buffer) => Target::F32(buffer.into()),
            Out::Bits(buffer) if is_half => Target::F16(buffer.into()),
            Out::Bits(buffer) => Target::Bf16(buffer.into()),
        };
        let mut queue = device.queue()?;
        let (a, b) = (factor((&a).into()), factor((&b).into()));
        gemm.multiply(&mut queue, &self.shape, a, b, Some((&bias).into()), target)?;
        queue.wait(context.patience(PATIENCE))?;
        let mut rng = Rng::with_seed(1);
        let places: Vec<_> = [0, len - 1].into_iter().chain((2..CHECKED).map(|_| rng.usize(..len))).collect();
        let what = format!("{:?}, {}", self.shape, if is_half { "f16" } else { "bf16" });
        let expected = places.iter().map(|&at| self.expected(at));
        match out {
            Out::Floats(out) => {
                let out = out.to_vec()?;
                let got: Vec<_> = places.iter().map(|&at| out[at]).collect();
                equal(&what, &got, &expected.collect::<Vec<_>>())
            }
            Out::Bits(out) => {
                let out = out.to_vec()?;
                let got: Vec<_> = places.iter().map(|&at| out[at]).collect();
                equal(&what, &got, &expected.map(|value| bits(value, is_half)).collect::<Vec<_>>())
            }
        }
    }
}

/// Halves and bfloat16 in both forms. The last tiles are partly outside, and so is the last step of the sums.
pub(super) fn large(context: &Context) -> Check {
    let device = context.device()?;
    let gemm = Dense::load(device)?;
    let mut rng = Rng::with_seed(900);
    // Four tiles of columns, and one more of rows than needed.
    // CAST: usize has at least 32 bits.
    let (m, n) = (device.info().sm_count as usize / 4 * 128 + 12, 808);
    let k = if context.is_model() { 72 } else { 328 };
    for form in [Form::Rows, Form::Columns] {
        for is_half in [true, false] {
            let plain = Shape::new(m, n, k, form);
            Case::new(&mut rng, plain, is_half).run(context, device, &gemm, true)?;
            let batch = if context.is_model() { 1 } else { 3 };
            let shape = Shape { batch, scale: 0.5, accumulate: true, ..plain };
            Case::new(&mut rng, shape, is_half).run(context, device, &gemm, false)?;
        }
    }
    Ok(())
}
