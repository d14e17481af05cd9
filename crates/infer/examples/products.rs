//! Measures matrix products on a GPU and checks their results: squares in every kind of elements, the products of a
//! LLaMA 1B's layers for a prompt, products whose last tiles are partial, and prompts of small models.
//!
//! `cargo run --release -p orin-infer --example products -- nvrm [NAME]` (or `nvgpu`; `sim` computes small sizes): all
//! products, or those whose line begins with a name. The first time is that of a product alone, from the launch to its
//! end; the second is that of one of many in a row.

use std::error::Error;
use std::time::{Duration, Instant};

use fastrand::Rng;
use half::{bf16, f16};
use infer::blocks::BlockType;
use infer::decode::{Engine, SessionOptions};
use infer::gemm::{Factor, Form, Gemm, PackedWeights, Precision, Shape, Target};
use infer::model::Model;
use infer::synthetic::Recipe;
use tegra_hcq::{Buffer, Device, DeviceKind, Queue, QueueOptions, WaitPolicy};

type Result<T> = core::result::Result<T, Box<dyn Error>>;

/// Longest wait for the GPU.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Products alone, whose median counts, and products in a row.
const ALONE: usize = 20;
const IN_A_ROW: u32 = 50;
/// Elements of a result that are computed on the CPU.
const CHECKED: usize = 200;
/// Outputs, inputs and names of the products of a layer.
const LAYER: [(usize, usize, &str); 4] =
    [(3072, 2048, "qkv"), (2048, 2048, "output"), (16_384, 2048, "gate and up"), (2048, 8192, "down")];
/// The same of the product that makes logits.
const LOGITS: (usize, usize, &str) = (128_256, 2048, "logits");

/// Formats that become halves.
const FORMATS: [BlockType; 6] =
    [BlockType::Q6K, BlockType::Q4K, BlockType::Q8_0, BlockType::Q5K, BlockType::Q4_0, BlockType::F16];

/// A device and the sizes that it can do.
struct Run {
    /// What the lines begin with that are wanted.
    wanted: String,
    device: Device,
    gemm: Gemm,
    queue: Queue,
    /// The software Orin multiplies smaller matrices.
    divisor: usize,
}

/// Time of `launch`, alone and in a row.
fn measure(
    queue: &mut Queue,
    once: bool,
    mut launch: impl FnMut(&mut Queue) -> Result<()>,
) -> Result<[Duration; 2]> {
    let (alone, in_a_row) = if once { (1, 1) } else { (ALONE, IN_A_ROW) };
    let mut times = Vec::with_capacity(alone);
    for _ in 0..alone {
        let start = Instant::now();
        launch(queue)?;
        queue.submit()?.wait(TIMEOUT)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let start = Instant::now();
    for _ in 0..in_a_row {
        launch(queue)?;
    }
    queue.submit()?.wait(TIMEOUT)?;
    Ok([times[times.len() / 2], start.elapsed() / in_a_row])
}

/// Prints a row of the table; fails if the error is too large.
fn print(
    name: &str,
    shape: &Shape,
    [alone, in_a_row]: [Duration; 2],
    error: f64,
    tolerance: f64,
) -> Result<()> {
    // CAST: figures for people.
    let rate = |time: Duration| shape.operations() as f64 / time.as_secs_f64() / 1e12;
    let size = format!("{} x {} x {}", shape.m, shape.n, shape.k);
    let (first, second) = (alone.as_secs_f64() * 1e6, in_a_row.as_secs_f64() * 1e6);
    println!(
        "{name:<22} {size:<20} {first:>10.1} µs {:>8.1} TFLOP/s {second:>10.1} µs {:>8.1} TFLOP/s  error {error:.1e}",
        rate(alone),
        rate(in_a_row)
    );
    if error < tolerance { Ok(()) } else { Err(format!("{name}: the error exceeds {tolerance:e}").into()) }
}

/// Largest error of some elements, relative to the sum of the products' magnitudes.
fn error_of(out: &Buffer<f32>, shape: &Shape, term: impl Fn(usize, usize, usize) -> f64) -> Result<f64> {
    let (out, mut rng, mut worst) = (out.to_vec()?, Rng::with_seed(7), 0.0_f64);
    for checked in 0..CHECKED {
        let (row, column) = match checked {
            0 => (shape.m - 1, shape.n - 1),
            _ => (rng.usize(..shape.m), rng.usize(..shape.n)),
        };
        let (mut sum, mut size) = (0.0, 0.0);
        for i in 0..shape.k {
            sum += term(row, column, i);
            size += term(row, column, i).abs();
        }
        let error = (f64::from(out[row * shape.n + column]) - sum).abs() / size;
        // An element that is not a number is an error, too.
        worst = if error <= worst { worst } else { error };
    }
    Ok(worst)
}

impl Run {
    fn square(&mut self, name: &str, form: Form, edge: usize) -> Result<()> {
        self.dense(name, form, [edge; 3])
    }

    fn dense(&mut self, name: &str, form: Form, sizes: [usize; 3]) -> Result<()> {
        let [m, n, k] = sizes.map(|size| size / self.divisor);
        let line = format!("{name}, b in {form:?}").to_lowercase();
        if !line.starts_with(&self.wanted) {
            return Ok(());
        }
        let precision = if name == "tf32" { Precision::Tf32 } else { Precision::Full };
        let shape = Shape { precision, ..Shape::new(m, n, k, form) };
        let mut rng = Rng::with_seed(1);
        // Numbers of 8 bits, which all kinds of elements have; floats use all bits.
        let round = |x| if name.ends_with("32") { x } else { bf16::from_f32(x).to_f32() };
        let mut matrix = |len| -> Vec<f32> { (0..len).map(|_| round(rng.f32() - 0.5)).collect() };
        let (a, b) = (matrix(m * k), matrix(k * n));
        let bits = |from: &[f32]| -> Vec<u16> {
            let of = |x: &f32| {
                if name == "f16" { f16::from_f32(*x).to_bits() } else { bf16::from_f32(*x).to_bits() }
            };
            from.iter().map(of).collect()
        };
        let mut out = self.device.alloc_from(&vec![f32::NAN; m * n])?;
        let times = if matches!(name, "f16" | "bf16") {
            let (left, right) = (self.device.alloc_from(&bits(&a))?, self.device.alloc_from(&bits(&b))?);
            let kind = if name == "f16" { Factor::F16 } else { Factor::Bf16 };
            self.times(&shape, kind((&left).into()), kind((&right).into()), &mut out)?
        } else {
            let (left, right) = (self.device.alloc_from(&a)?, self.device.alloc_from(&b)?);
            self.times(&shape, Factor::F32((&left).into()), Factor::F32((&right).into()), &mut out)?
        };
        // As the product rounds it: to nearest.
        let factor = |x: f32| match precision {
            Precision::Tf32 => f64::from(f32::from_bits((x.to_bits() + 0x1000) & !0x1fff)),
            Precision::Full => f64::from(x),
        };
        let error = error_of(&out, &shape, |row, column, i| {
            let of_b = if form == Form::Rows { i * n + column } else { column * k + i };
            factor(a[row * k + i]) * factor(b[of_b])
        })?;
        print(&line, &shape, times, error, 1e-5)
    }

    fn times(
        &mut self,
        shape: &Shape,
        a: Factor<'_>,
        b: Factor<'_>,
        out: &mut Buffer<f32>,
    ) -> Result<[Duration; 2]> {
        let gemm = &self.gemm;
        measure(&mut self.queue, self.divisor > 1, |queue| {
            Ok(gemm.dense().multiply(queue, shape, a, b, None, Target::F32((&mut *out).into()))?)
        })
    }

    fn packed(
        &mut self,
        block: BlockType,
        vectors: usize,
        (rows, columns, name): (usize, usize, &str),
    ) -> Result<()> {
        let line = format!("{block} {name}");
        if !line.to_lowercase().starts_with(&self.wanted) {
            return Ok(());
        }
        let (rows, columns) = (rows / self.divisor, columns.div_ceil(self.divisor).max(256));
        let shape = Shape::new(vectors, rows, columns, Form::Columns);
        let mut rng = Rng::with_seed(2);
        let mut bytes = vec![0; block.bytes_for(rows * columns).ok_or("rows are whole blocks")?];
        rng.fill(&mut bytes);
        // The factors are small numbers.
        let places: &[usize] = match block {
            BlockType::Q4K | BlockType::Q5K => &[0, 2],
            BlockType::Q6K => &[208],
            _ => &[0],
        };
        for block in bytes.chunks_exact_mut(block.bytes()) {
            for place in places {
                block[*place..place + 2].copy_from_slice(&f16::from_f32(rng.f32() * 0.001).to_le_bytes());
            }
        }
        let mut weights = vec![0.0_f32; rows * columns];
        block.dequantise(&bytes, &mut weights)?;
        let packed = PackedWeights::new(&self.device, block, rows, columns, &bytes)?;
        let input: Vec<f16> = (0..vectors * columns).map(|_| f16::from_f32(rng.f32() - 0.5)).collect();
        let halves: Vec<u16> = input.iter().map(|x| x.to_bits()).collect();
        let halves = self.device.alloc_from(&halves)?;
        let mut out = self.device.alloc_from(&vec![f32::NAN; vectors * rows])?;
        let gemm = &self.gemm;
        let times = measure(&mut self.queue, self.divisor > 1, |queue| {
            let input = Factor::F16((&halves).into());
            Ok(gemm.multiply_packed(queue, input, &packed, None, (&mut out).into())?)
        })?;
        let error = error_of(&out, &shape, |row, column, i| {
            f64::from(input[row * columns + i].to_f32()) * f64::from(weights[column * columns + i])
        })?;
        print(&line, &shape, times, error, 5e-4)
    }
}

/// Compares the logits after a prompt that is computed in batches with those token by token: the products of these
/// models end in every way.
fn prompts(run: &Run) -> Result<()> {
    let small = |recipe| Recipe { width: 256, heads: 4, kv_heads: 4, head_size: 64, ffn: 768, ..recipe };
    for (name, recipe) in [
        ("llama, Q8_0", Recipe { block: BlockType::Q8_0, ..small(Recipe::tiny_llama()) }),
        (
            "llama, Q4_K and others",
            Recipe { block: BlockType::Q4K, mixed: true, ..small(Recipe::tiny_llama()) },
        ),
        ("gpt2, F16", Recipe { block: BlockType::F16, ..small(Recipe::tiny_gpt2()) }),
    ] {
        let line = format!("prompt, {name}");
        if !line.to_lowercase().starts_with(&run.wanted) {
            continue;
        }
        let model = Model::from_bytes(recipe.to_bytes()?)?;
        let engine = Engine::load(&run.device, &model, 512, |_, _| ())?;
        let prompt: Vec<u32> = (0..300 / run.divisor as u32 + 2).map(|token| token * 7 % 64).collect();
        let logits = |options: &SessionOptions| -> Result<Vec<f32>> {
            let mut session = engine.session_with(512, options)?;
            session.feed(&prompt)?;
            Ok(session.logits()?)
        };
        let together = logits(&SessionOptions::default())?;
        let alone = logits(&SessionOptions::default().prompt_batch(1))?;
        let square = |x: f32| f64::from(x) * f64::from(x);
        let apart: f64 = together.iter().zip(&alone).map(|(a, b)| square(a - b)).sum();
        let distance = (apart / alone.iter().map(|x| square(*x)).sum::<f64>()).sqrt();
        println!("{line:<43} {} tokens, distance of the logits {distance:.1e}", prompt.len());
        if distance.is_nan() || distance > 2e-3 {
            return Err(format!("{line}: the logits are too far apart").into());
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let kind: DeviceKind = std::env::args().nth(1).unwrap_or_else(|| "auto".to_owned()).parse()?;
    let device = Device::open(kind)?;
    let divisor = if device.info().kind == DeviceKind::Sim { 16 } else { 1 };
    let (gemm, queue) =
        (Gemm::load(&device)?, device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin))?);
    let wanted = std::env::args().nth(2).unwrap_or_default().to_lowercase();
    let mut run = Run { wanted, device, gemm, queue, divisor };
    prompts(&run)?;
    println!("{:<22} {:<20} {:>30} {:>30}", "elements", "m x n x k", "alone", "in a row");
    for name in ["f16", "bf16", "tf32", "f32"] {
        for form in [Form::Columns, Form::Rows] {
            run.square(name, form, 4096)?;
        }
    }
    for edge in [1024, 2048, 8192] {
        run.square("f16", Form::Columns, edge)?;
    }
    for form in [Form::Columns, Form::Rows] {
        run.dense("tf32", form, [1000, 1208, 1012])?;
    }
    for block in FORMATS {
        for layer in LAYER {
            run.packed(block, 512, layer)?;
        }
        run.packed(block, 300, (1000, if block.weights() == 256 { 768 } else { 416 }, "partial tiles"))?;
        run.packed(block, 2000 / divisor, (4000, 1280, "more vectors"))?;
    }
    for vectors in [8, 16, 32, 64, 128] {
        for layer in LAYER {
            run.packed(BlockType::Q6K, vectors, layer)?;
        }
    }
    for vectors in [8, 32] {
        run.packed(BlockType::Q6K, vectors, LOGITS)?;
    }
    Ok(())
}
