//! Gemm on the software Orin, compared with 64-bit floats.

use std::sync::OnceLock;
use std::time::Duration;

use fastrand::Rng;
use half::{bf16, f16};
use proptest::prelude::*;
use tegra_hcq::{Arg, Buffer, Device, DeviceKind, Queue};

use super::few::{FewKernels, Sums};
use super::packed::{PackedCall, is_float};
use super::{Dense, Factor, Form, Gemm, PackedWeights, Precision, Shape, Target};
use crate::blocks::BlockType;
use crate::error::Error;
use crate::parameters::{ActivationCode, Epilogue, SequenceView};
use crate::synthetic::row;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A device with the kernels, for all tests.
fn machine() -> &'static (Device, Gemm) {
    static MACHINE: OnceLock<(Device, Gemm)> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let device = Device::open(DeviceKind::Sim).unwrap();
        let gemm = Gemm::load(&device).unwrap();
        (device, gemm)
    })
}

/// Elements of the factors, and the bits of a rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Element {
    F16,
    Bf16,
    Tf32,
    F32,
}

impl Element {
    const ALL: [Self; 4] = [Self::F16, Self::Bf16, Self::Tf32, Self::F32];

    /// A number that the format has.
    fn round(self, x: f32) -> f32 {
        match self {
            Self::F16 => f16::from_f32(x).to_f32(),
            Self::Bf16 => bf16::from_f32(x).to_f32(),
            Self::Tf32 => f32::from_bits((x.to_bits() + 0x1000) & !0x1fff),
            Self::F32 => x,
        }
    }
}

/// Multiplies random matrices; returns the largest error, relative to the sum of the products' magnitudes.
fn error_of(dense: &Dense, shape: &Shape, element: Element, biased: bool) -> f64 {
    let (device, _) = machine();
    let Shape { batch, m, n, k, .. } = *shape;
    let mut rng = Rng::with_seed((m * 1000 + n * 100 + k) as u64);
    let mut random = |count: usize| -> Vec<f32> { (0..count).map(|_| rng.f32() * 2.0 - 1.0).collect() };
    let (a, b, bias, old) = (random(batch * m * k), random(batch * n * k), random(n), random(batch * m * n));
    let mut out = device.alloc_from(&old).unwrap();
    let bits = |from: &[f32]| -> Vec<u16> {
        let bits = |x: &f32| {
            if element == Element::F16 { f16::from_f32(*x).to_bits() } else { bf16::from_f32(*x).to_bits() }
        };
        from.iter().map(bits).collect()
    };
    let halves = [device.alloc_from(&bits(&a)).unwrap(), device.alloc_from(&bits(&b)).unwrap()];
    let floats =
        [device.alloc_from(&a).unwrap(), device.alloc_from(&b).unwrap(), device.alloc_from(&bias).unwrap()];
    let [left, right] = match element {
        Element::F16 => halves.each_ref().map(|half| Factor::F16(half.into())),
        Element::Bf16 => halves.each_ref().map(|half| Factor::Bf16(half.into())),
        _ => [&floats[0], &floats[1]].map(|float| Factor::F32(float.into())),
    };
    let precision = if element == Element::Tf32 { Precision::Tf32 } else { Precision::Full };
    let shape = Shape { precision, ..*shape };
    let mut queue = device.queue().unwrap();
    let of_bias = biased.then(|| (&floats[2]).into());
    dense.multiply(&mut queue, &shape, left, right, of_bias, Target::F32((&mut out).into())).unwrap();
    queue.wait(TIMEOUT).unwrap();

    let mut worst = 0.0_f64;
    for (at, got) in out.to_vec().unwrap().into_iter().enumerate() {
        let (z, row, column) = (at / (m * n), at / n % m, at % n);
        let (mut sum, mut size) = (0.0_f64, 0.0_f64);
        for i in 0..k {
            let of_b = if shape.form == Form::Rows { i * n + column } else { column * k + i };
            let x = f64::from(element.round(a[(z * m + row) * k + i]));
            let y = f64::from(element.round(b[z * k * n + of_b]));
            sum += x * y;
            size += (x * y).abs();
        }
        let bias = if biased { f64::from(bias[column]) } else { 0.0 };
        let before = if shape.accumulate { f64::from(old[at]) } else { 0.0 };
        let expected = sum * f64::from(shape.scale) + bias + before;
        let size = size * f64::from(shape.scale).abs() + bias.abs() + before.abs();
        worst = worst.max((f64::from(got) - expected).abs() / size);
    }
    worst
}

/// Errors of sums in 32-bit floats; split floats lose the product of the small parts.
const TOLERANCE: f64 = 1e-6;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn products_of_any_size_agree_with_64_bit_floats(
        (m, n, k) in (1..80_usize, 1..80_usize, 1..150_usize),
        (element, form) in (0..4_usize, prop_oneof![Just(Form::Rows), Just(Form::Columns)]),
        (batch, scale) in (1..3_usize, prop_oneof![Just(1.0_f32), Just(-0.3)]),
        (whole, accumulate, biased) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let whole = |size: usize| if whole { size.next_multiple_of(8) } else { size };
        let shape = Shape { batch, scale, accumulate, ..Shape::new(m, whole(n), whole(k), form) };
        let error = error_of(machine().1.dense(), &shape, Element::ALL[element], biased);
        prop_assert!(error < TOLERANCE, "{shape:?} {:?}: {error:e}", Element::ALL[element]);
    }
}

#[test]
fn large_tiles_agree_with_64_bit_floats() {
    // One tile is enough for them here. The last rows, columns and steps are partial.
    let dense = Dense { enough: 1, ..machine().1.dense.clone() };
    for element in Element::ALL {
        for form in [Form::Rows, Form::Columns] {
            let columns = if element == Element::F32 { 104 } else { 200 };
            let error = error_of(&dense, &Shape::new(5, columns, 168, form), element, true);
            assert!(error < TOLERANCE, "{element:?} {form:?}: {error:e}");
        }
    }
    let error = error_of(&dense, &Shape::new(130, 264, 8, Form::Columns), Element::F16, false);
    assert!(error < TOLERANCE, "{error:e}");
}

#[test]
fn results_are_rounded_to_halves_and_added_to_them() {
    let (device, gemm) = machine();
    let ones = device.alloc_from(&[f16::ONE.to_bits(); 3 * 8]).unwrap();
    let shape = Shape { scale: 1.0 / 3.0, accumulate: true, ..Shape::new(3, 3, 8, Form::Columns) };
    let mut queue = device.queue().unwrap();
    let mut f16s = device.alloc_from(&[f16::ONE.to_bits(); 9]).unwrap();
    let mut bf16s = device.alloc_from(&[bf16::ONE.to_bits(); 9]).unwrap();
    let factor = Factor::F16((&ones).into());
    gemm.dense.multiply(&mut queue, &shape, factor, factor, None, Target::F16((&mut f16s).into())).unwrap();
    gemm.dense.multiply(&mut queue, &shape, factor, factor, None, Target::Bf16((&mut bf16s).into())).unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(f16s.to_vec().unwrap(), [f16::from_f32(11.0 / 3.0).to_bits(); 9]);
    assert_eq!(bf16s.to_vec().unwrap(), [bf16::from_f32(11.0 / 3.0).to_bits(); 9]);
}

#[test]
fn products_that_do_not_fit_are_refused() {
    let (device, gemm) = machine();
    let mut queue = device.queue().unwrap();
    let (a, b) = (device.alloc_from(&[0.0_f32; 6]).unwrap(), device.alloc_from(&[0_u16; 6]).unwrap());
    let mut out = device.alloc::<f32>(4).unwrap();
    let shape = Shape::new(2, 2, 3, Form::Rows);
    let (float, half) = (Factor::F32((&a).into()), Factor::F16((&b).into()));
    let mut multiply = |shape: Shape, a, b, bias| {
        gemm.dense.multiply(&mut queue, &shape, a, b, bias, Target::F32((&mut out).into()))
    };
    let mixed = multiply(shape, float, half, None).unwrap_err();
    assert_eq!(mixed.to_string(), "the factors have different elements: f32 and f16");
    assert!(matches!(
        multiply(Shape { m: 3, ..shape }, float, float, None),
        Err(Error::Length { len: 6, needed: 9, .. })
    ));
    assert!(matches!(
        multiply(Shape { n: 3, ..shape }, float, float, None),
        Err(Error::Length { needed: 9, .. })
    ));
    assert!(matches!(
        multiply(Shape { n: 0, m: 2, ..shape }, float, float, None),
        Err(Error::Length { needed: 0, .. })
    ));
    assert!(matches!(
        multiply(shape, float, float, Some((&a).into())),
        Err(Error::Length { what: "the bias", .. })
    ));
    let empty = device.alloc::<f32>(0).unwrap();
    let empty = Factor::F32((&empty).into());
    assert!(matches!(
        multiply(Shape { k: 0, ..shape }, empty, empty, None),
        Err(Error::Length { needed: 1, .. })
    ));
}

#[test]
fn packed_weights_agree_with_64_bit_floats_in_every_format() {
    let (device, gemm) = machine();
    compare_formats(&[35], 72, |queue, input, packed, bias, out, _| {
        gemm.multiply_packed(queue, input, packed, Some(bias.into()), out.into()).unwrap();
    });
    let few = Few::new(device);
    // Tiles of 16 and 32 vectors, whole and partial.
    compare_formats(&[1, 16, 19, 32], 72, |queue, input, packed, bias, out, vectors| {
        let (rows, columns) = (packed.rows(), packed.columns());
        let input = match input {
            Factor::F16(slice) | Factor::Bf16(slice) => Arg::from(slice),
            Factor::F32(slice) => Arg::from(slice),
        };
        let call = PackedCall {
            block: packed.block(),
            vectors,
            rows,
            columns,
            tiles: Arg::from(packed.tiles()),
            input,
            vectors_at: 0,
            factors: Arg::U64(0),
            bias: Arg::from(bias),
            gate: Arg::U64(0),
            output: Arg::from(out),
            output_row: rows,
            after: Epilogue::Store,
            activation: ActivationCode::Silu,
        };
        few.launch(queue, &call);
    });
}

#[test]
fn vectors_that_do_not_fit_shared_memory_are_multiplied_in_tiles() {
    let (_, gemm) = machine();
    // As halves, the vectors of one block take more than an SM has, so the blocks for few vectors cannot take them.
    assert!(gemm.packed.few.partition_alone(BlockType::F16, 131, 4168).is_none());
    compare_formats(&[3], 4168, |queue, input, packed, bias, out, _| {
        gemm.multiply_packed(queue, input, packed, Some(bias.into()), out.into()).unwrap();
    });
}

#[test]
fn columns_are_divided_into_steps_that_fit_shared_memory() {
    let few = &machine().1.packed.few;
    for (block, columns, steps) in [
        (BlockType::F16, 0, 1),
        (BlockType::F16, 128, 1),
        (BlockType::F16, 129, 2),
        (BlockType::Q4K, 256, 2),
        (BlockType::Bf16, 64, 1),
        (BlockType::F32, 65, 2),
    ] {
        assert_eq!(FewKernels::steps(block, columns), steps, "{block}, {columns} columns");
    }
    // 163 KiB of shared memory: 1 KiB for the kernel, 32 KiB of sums, and 8 KiB for a step of 32 vectors.
    assert_eq!(few.most_steps(BlockType::F16), 16);
    assert!(few.partition_alone(BlockType::F16, 1, 2048).is_some());
    assert!(few.partition_alone(BlockType::F16, 1, 2049).is_none());
    assert!(few.partition_alone(BlockType::F32, 1, 1025).is_none());
}

#[test]
fn tiles_are_the_largest_that_are_not_half_empty_and_keep_most_sms_busy() {
    // The device has 16 SMs: 12 blocks are enough.
    let packed = &machine().1.packed;
    for (vectors, rows, variant) in [
        (65, 12 * 128, 0),
        (65, 11 * 128 + 1, 0),
        (65, 11 * 128, 1),
        (65, 3 * 128, 2),
        (64, 12 * 128, 1),
        (33, 12 * 128, 1),
        (32, 12 * 128, 2),
        (1, 1, 2),
    ] {
        assert_eq!(packed.variant(vectors, rows), variant, "{vectors} vectors, {rows} rows");
    }
}

#[test]
fn factors_and_targets_know_their_lengths() {
    let (device, _) = machine();
    let (mut words, mut floats) = (device.alloc::<u16>(3).unwrap(), device.alloc::<f32>(0).unwrap());
    let factors =
        [Factor::F16((&words).into()), Factor::Bf16((&words).into()), Factor::F32((&floats).into())];
    assert_eq!(factors.map(|factor| factor.len()), [3, 3, 0]);
    assert_eq!(factors.map(|factor| factor.is_empty()), [false, false, true]);
    assert_eq!(factors.map(|factor| factor.name()), ["f16", "bf16", "f32"]);
    let target = Target::Bf16((&mut words).into());
    assert!(target.len() == 3 && !target.is_empty());
    let target = Target::F32((&mut floats).into());
    assert_eq!((target.len(), target.is_empty()), (0, true));
    let shape = Shape { batch: 2, ..Shape::new(3, 5, 7, Form::Rows) };
    assert_eq!(shape.operations(), 2 * 2 * 3 * 5 * 7);
}

/// Multiplies as many vectors as `counts` says with weights of every format, and compares with 64-bit floats. Formats
/// without blocks have `plain_columns` columns.
fn compare_formats(
    counts: &[usize],
    plain_columns: usize,
    multiply: impl Fn(&mut Queue, Factor<'_>, &PackedWeights, &Buffer<f32>, &mut Buffer<f32>, usize),
) {
    let (device, _) = machine();
    let mut rng = Rng::with_seed(4);
    let mut queue = device.queue().unwrap();
    for (vectors, block) in counts.iter().flat_map(|count| BlockType::ALL.map(|block| (*count, block))) {
        // More than a tile of rows, the last one partial, and an odd number of them.
        let columns = match block.weights() {
            1 => plain_columns,
            weights => weights.max(96),
        };
        let rows = 131;
        let bytes: Vec<u8> = (0..rows).flat_map(|_| row(&mut rng, block, columns, 0.3)).collect();
        let mut weights = vec![0.0; rows * columns];
        block.dequantise_exactly(&bytes, &mut weights).unwrap();
        let packed = PackedWeights::new(device, block, rows, columns, &bytes).unwrap();
        let input: Vec<f32> =
            (0..vectors * columns).map(|_| f16::from_f32(rng.f32() - 0.5).to_f32()).collect();
        let halves: Vec<u16> = input.iter().map(|x| f16::from_f32(*x).to_bits()).collect();
        let (halves, floats) = (device.alloc_from(&halves).unwrap(), device.alloc_from(&input).unwrap());
        let bias: Vec<f32> = (0..rows).map(|_| rng.f32()).collect();
        let of_bias = device.alloc_from(&bias).unwrap();
        let mut out = device.alloc::<f32>(vectors * rows).unwrap();
        let is_float = is_float(block);
        let input_of = if is_float { Factor::F32((&floats).into()) } else { Factor::F16((&halves).into()) };
        multiply(&mut queue, input_of, &packed, &of_bias, &mut out, vectors);
        queue.wait(TIMEOUT).unwrap();
        let mut worst = 0.0_f64;
        for (at, got) in out.to_vec().unwrap().into_iter().enumerate() {
            let (vector, row) = (at / rows, at % rows);
            let terms = |i: usize| f64::from(input[vector * columns + i]) * weights[row * columns + i];
            let expected = (0..columns).map(terms).sum::<f64>() + f64::from(bias[row]);
            let size = (0..columns).map(|i| terms(i).abs()).sum::<f64>() + f64::from(bias[row]);
            worst = worst.max((f64::from(got) - expected).abs() / size);
        }
        // Weights are rounded to halves, at most half of a part in 1,024.
        let tolerance = if is_float { 1e-6 } else { 5e-4 };
        assert!(worst < tolerance, "{block}, {vectors} vectors: {worst:e}");
    }
}

/// What multiplies few vectors, and memory for its sums.
struct Few {
    kernels: FewKernels,
    sums: Buffer<u8>,
    tickets: Buffer<u32>,
}

impl Few {
    /// Has room for products of any size in the tests.
    fn new(device: &Device) -> Self {
        let kernels = FewKernels::load(device, |_| true).unwrap();
        let (sums, tickets) =
            (device.alloc_zeroed::<u8>(4 << 20).unwrap(), device.alloc_zeroed::<u32>(64).unwrap());
        Self { kernels, sums, tickets }
    }

    fn launch(&self, queue: &mut Queue, call: &PackedCall<'_>) {
        let partition = self.kernels.partition(call.block, call.rows, call.columns);
        let (sums, tickets) = partition.sums();
        assert!(sums <= self.sums.len() && tickets <= self.tickets.len() * 4);
        let sums = Sums { sums: self.sums.gpu_va(), tickets: self.tickets.gpu_va() };
        // SAFETY: the callers' buffers have the lengths of their sizes, and those of the sums are long enough.
        unsafe { self.kernels.launch(queue, call, partition, SequenceView::default(), sums) }.unwrap();
    }
}

#[test]
fn what_follows_a_packed_product_agrees_with_64_bit_floats() {
    compare_what_follows(130, 40, false);
}

#[test]
fn what_follows_a_product_of_few_vectors_agrees_with_64_bit_floats() {
    // One part, and several, the last one partial, in one round and in several.
    for (rows, columns) in [(130, 40), (130, 4168), (600, 4168)] {
        compare_what_follows(rows, columns, true);
    }
}

fn compare_what_follows(rows: usize, columns: usize, is_few: bool) {
    let (device, gemm) = machine();
    let mut rng = Rng::with_seed(5);
    let (block, vectors) = (BlockType::F16, 3);
    let weights: Vec<f16> = (0..rows * columns).map(|_| f16::from_f32(rng.f32() - 0.5)).collect();
    let bytes: Vec<u8> = weights.iter().flat_map(|x| x.to_le_bytes()).collect();
    let packed = PackedWeights::new(device, block, rows, columns, &bytes).unwrap();
    let input: Vec<f16> = (0..vectors * columns).map(|_| f16::from_f32(rng.f32() - 0.5)).collect();
    let bits: Vec<u16> = input.iter().map(|x| x.to_bits()).collect();
    let [factors, bias, gate, before] = [vectors, rows, vectors * rows, vectors * rows]
        .map(|len| (0..len).map(|_| rng.f32()).collect::<Vec<_>>());
    let of_input = device.alloc_from(&bits).unwrap();
    let [of_factors, of_bias, of_gate] =
        [&factors, &bias, &gate].map(|from| device.alloc_from(from).unwrap());
    let exact = |from: &[f16]| from.iter().map(|x| x.to_f64()).collect::<Vec<_>>();
    let (exact_input, exact_weights) = (exact(&input), exact(&weights));
    let expected_sum = |at: usize| {
        let (vector, row) = (at / rows, at % rows);
        let terms = exact_input[vector * columns..].iter().zip(&exact_weights[row * columns..]);
        let sum = terms.take(columns).map(|(x, w)| x * w).sum::<f64>();
        f64::from(factors[vector]) * sum + f64::from(bias[row])
    };
    let expected_sums: Vec<f64> = (0..vectors * rows).map(expected_sum).collect();
    let sum = |vector: usize, row: usize| expected_sums[vector * rows + row];
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh());
    let few = Few::new(device);
    let mut queue = device.queue().unwrap();
    for (after, activation) in [
        (Epilogue::Store, ActivationCode::Silu),
        (Epilogue::Add, ActivationCode::Silu),
        (Epilogue::Pair, ActivationCode::Silu),
        (Epilogue::Activate, ActivationCode::Gelu),
        (Epilogue::Gate, ActivationCode::Silu),
    ] {
        let mut out = device.alloc_from(&before).unwrap();
        let width = if after == Epilogue::Pair { rows / 2 } else { rows };
        let call = PackedCall {
            block,
            vectors,
            rows,
            columns,
            tiles: Arg::from(packed.tiles()),
            input: Arg::from(&of_input),
            vectors_at: 0,
            factors: Arg::from(&of_factors),
            bias: Arg::from(&of_bias),
            gate: Arg::from(&of_gate),
            output: Arg::from(&mut out),
            output_row: width,
            after,
            activation,
        };
        if is_few {
            few.launch(&mut queue, &call);
        } else {
            // SAFETY: the buffers have the lengths of these sizes.
            unsafe { gemm.packed.launch(&mut queue, &call) }.unwrap();
        }
        queue.wait(TIMEOUT).unwrap();
        for (at, got) in out.to_vec().unwrap().into_iter().take(vectors * width).enumerate() {
            let (vector, row) = (at / width, at % width);
            let expected = match after {
                Epilogue::Store => sum(vector, row),
                Epilogue::Add => f64::from(before[at]) + sum(vector, row),
                Epilogue::Pair => silu(sum(vector, 2 * row)) * sum(vector, 2 * row + 1),
                Epilogue::Activate => gelu(sum(vector, row)),
                Epilogue::Gate => silu(f64::from(gate[at])) * sum(vector, row),
                Epilogue::Logits => unreachable!("only for one vector"),
            };
            // Sums of more columns are larger.
            let tolerance = 1e-5 * (columns as f64 / 40.0).sqrt();
            assert!((f64::from(got) - expected).abs() < tolerance, "{after:?} {at}: {got} {expected}");
        }
        assert!(few.tickets.to_vec().unwrap().iter().all(|ticket| *ticket == 0), "{after:?}");
    }
    let stored = few.sums.to_vec().unwrap().iter().any(|byte| *byte != 0);
    assert_eq!(stored, is_few && columns > 4096, "sums of parts");
}

#[test]
fn few_vectors_are_in_the_memory_of_their_sequences() {
    let (device, _) = machine();
    let few = Few::new(device);
    let mut rng = Rng::with_seed(6);
    // More rounds than one for each SM of the device, and vectors of two tiles.
    let (block, listed, vectors, rows, columns) = (BlockType::F16, 32, 19, 1100, 264);
    let weights: Vec<f16> = (0..rows * columns).map(|_| f16::from_f32(rng.f32() - 0.5)).collect();
    let bytes: Vec<u8> = weights.iter().flat_map(|x| x.to_le_bytes()).collect();
    let packed = PackedWeights::new(device, block, rows, columns, &bytes).unwrap();
    let input: Vec<f16> = (0..listed * columns).map(|_| f16::from_f32(rng.f32() - 0.5)).collect();
    let of_input = device.alloc_from(&input.iter().map(|x| x.to_bits()).collect::<Vec<_>>()).unwrap();
    let before: Vec<f32> = (0..listed * rows).map(|_| rng.f32()).collect();
    let out = device.alloc_from(&before).unwrap();
    // In another order than in memory.
    let place = |vector: usize| (vector * 7 + 3) % listed * rows;
    let places: Vec<u64> =
        (0..listed).flat_map(|vector| [out.gpu_va() + place(vector) as u64 * 4, 0]).collect();
    let (places, count) =
        (device.alloc_from(&places).unwrap(), device.alloc_from(&[vectors as u32]).unwrap());
    let sequences = SequenceView { count: count.gpu_va(), first: places.gpu_va(), stride: 16 };
    let call = PackedCall {
        block,
        vectors: listed,
        rows,
        columns,
        tiles: Arg::from(packed.tiles()),
        input: Arg::from(&of_input),
        vectors_at: 0,
        factors: Arg::U64(0),
        bias: Arg::U64(0),
        gate: Arg::U64(0),
        output: Arg::U64(0),
        output_row: 0,
        after: Epilogue::Add,
        activation: ActivationCode::Silu,
    };
    let partition = few.kernels.partition(block, rows, columns);
    let mut queue = device.queue().unwrap();
    // SAFETY: the listed places are inside `out`, which outlives the launch, and have room for the rows.
    unsafe { few.kernels.launch(&mut queue, &call, partition, sequences, Sums::default()) }.unwrap();
    queue.wait(TIMEOUT).unwrap();
    let got = out.to_vec().unwrap();
    for vector in 0..listed {
        for row in 0..rows {
            let at = place(vector) + row;
            let term = |i: usize| input[vector * columns + i].to_f64() * weights[row * columns + i].to_f64();
            let sum = if vector < vectors { (0..columns).map(term).sum::<f64>() } else { 0.0 };
            let expected = f64::from(before[at]) + sum;
            assert!((f64::from(got[at]) - expected).abs() < 1e-4, "{vector} {row}: {} {expected}", got[at]);
        }
    }
}

#[test]
fn packed_products_that_do_not_fit_are_refused() {
    let (device, gemm) = machine();
    let mut queue = device.queue().unwrap();
    let weights = PackedWeights::new(device, BlockType::Q4_0, 2, 64, &[0; 72]).unwrap();
    let (halves, floats) =
        (device.alloc_from(&[0_u16; 136]).unwrap(), device.alloc_from(&[0.0_f32; 128]).unwrap());
    let mut out = device.alloc::<f32>(4).unwrap();
    let mut multiply = |input, out: &mut tegra_hcq::Buffer<f32>| {
        gemm.multiply_packed(&mut queue, input, &weights, None, out.into())
    };
    let error = multiply(Factor::F32((&floats).into()), &mut out).unwrap_err();
    assert_eq!(error.to_string(), "the factors have different elements: f32 and Q4_0");
    let part = |range: core::ops::Range<usize>| Factor::F16(halves.slice(range).unwrap());
    assert!(matches!(multiply(part(0..127), &mut out), Err(Error::Rows { len: 127, columns: 64, .. })));
    assert!(matches!(multiply(part(0..64), &mut out), Err(Error::Length { len: 4, needed: 2, .. })));
    assert!(matches!(multiply(part(4..132), &mut out), Err(Error::Alignment { bytes: 16, .. })));
    multiply(part(8..136), &mut out).unwrap();
    assert!(matches!(
        PackedWeights::new(device, BlockType::Q4_0, 2, 64, &[0; 71]),
        Err(Error::Length { needed: 72, .. })
    ));
    assert!(matches!(
        PackedWeights::new(device, BlockType::F16, 1, 4, &[0; 8]),
        Err(Error::RowLength { multiple: 8, .. })
    ));
}
