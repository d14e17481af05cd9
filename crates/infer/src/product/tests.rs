//! Products on the software Orin, compared with 64-bit floats.

use std::sync::OnceLock;
use std::time::Duration;

use fastrand::Rng;
use half::{bf16, f16};
use proptest::prelude::*;
use tegra_hcq::{Device, DeviceKind};

use super::{Factor, Form, Precision, Products, Shape, Target};
use crate::error::Error;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A device with the kernels, for all tests.
fn machine() -> &'static (Device, Products) {
    static MACHINE: OnceLock<(Device, Products)> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let device = Device::open(DeviceKind::Sim).unwrap();
        let products = Products::load(&device).unwrap();
        (device, products)
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
fn error_of(shape: &Shape, element: Element, biased: bool) -> f64 {
    let (device, products) = machine();
    let Shape { batch, m, n, k, .. } = *shape;
    let mut rng = Rng::with_seed((m * 1000 + n * 100 + k) as u64);
    let mut random = |count: usize| -> Vec<f32> { (0..count).map(|_| rng.f32() * 2.0 - 1.0).collect() };
    let (a, b, bias, old) = (random(batch * m * k), random(batch * n * k), random(n), random(batch * m * n));
    let mut out = device.alloc_from(&old).unwrap();
    let bits = |from: &[f32]| -> Vec<u16> {
        let bits = |x: &f32| if element == Element::F16 { f16::from_f32(*x).to_bits() } else { bf16::from_f32(*x).to_bits() };
        from.iter().map(bits).collect()
    };
    let halves = [device.alloc_from(&bits(&a)).unwrap(), device.alloc_from(&bits(&b)).unwrap()];
    let floats = [device.alloc_from(&a).unwrap(), device.alloc_from(&b).unwrap(), device.alloc_from(&bias).unwrap()];
    let [left, right] = match element {
        Element::F16 => halves.each_ref().map(|half| Factor::F16(half.into())),
        Element::Bf16 => halves.each_ref().map(|half| Factor::Bf16(half.into())),
        _ => [&floats[0], &floats[1]].map(|float| Factor::F32(float.into())),
    };
    let precision = if element == Element::Tf32 { Precision::Tf32 } else { Precision::Full };
    let shape = Shape { precision, ..*shape };
    let mut queue = device.queue().unwrap();
    let of_bias = biased.then(|| (&floats[2]).into());
    products.multiply(&mut queue, &shape, left, right, of_bias, Target::F32((&mut out).into())).unwrap();
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
        let error = error_of(&shape, Element::ALL[element], biased);
        prop_assert!(error < TOLERANCE, "{shape:?} {:?}: {error:e}", Element::ALL[element]);
    }
}

#[test]
fn large_tiles_agree_with_64_bit_floats() {
    for element in Element::ALL {
        for form in [Form::Rows, Form::Columns] {
            // 12 products with one tile each: most of 16 SMs have one. The last rows, columns and steps are partial.
            let columns = if element == Element::F32 { 104 } else { 200 };
            let shape = Shape { batch: 12, ..Shape::new(5, columns, 168, form) };
            let error = error_of(&shape, element, true);
            assert!(error < TOLERANCE, "{element:?} {form:?}: {error:e}");
        }
    }
    let error = error_of(&Shape { batch: 6, ..Shape::new(130, 264, 72, Form::Columns) }, Element::F16, false);
    assert!(error < TOLERANCE, "{error:e}");
}

#[test]
fn results_are_rounded_to_halves_and_added_to_them() {
    let (device, products) = machine();
    let ones = device.alloc_from(&[f16::ONE.to_bits(); 3 * 8]).unwrap();
    let shape = Shape { scale: 1.0 / 3.0, accumulate: true, ..Shape::new(3, 3, 8, Form::Columns) };
    let mut queue = device.queue().unwrap();
    let mut f16s = device.alloc_from(&[f16::ONE.to_bits(); 9]).unwrap();
    let mut bf16s = device.alloc_from(&[bf16::ONE.to_bits(); 9]).unwrap();
    let factor = Factor::F16((&ones).into());
    products.multiply(&mut queue, &shape, factor, factor, None, Target::F16((&mut f16s).into())).unwrap();
    products.multiply(&mut queue, &shape, factor, factor, None, Target::Bf16((&mut bf16s).into())).unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(f16s.to_vec().unwrap(), [f16::from_f32(11.0 / 3.0).to_bits(); 9]);
    assert_eq!(bf16s.to_vec().unwrap(), [bf16::from_f32(11.0 / 3.0).to_bits(); 9]);
}

#[test]
fn products_that_do_not_fit_are_refused() {
    let (device, products) = machine();
    let mut queue = device.queue().unwrap();
    let (a, b) = (device.alloc_from(&[0.0_f32; 6]).unwrap(), device.alloc_from(&[0_u16; 6]).unwrap());
    let mut out = device.alloc::<f32>(4).unwrap();
    let shape = Shape::new(2, 2, 3, Form::Rows);
    let (float, half) = (Factor::F32((&a).into()), Factor::F16((&b).into()));
    let mut multiply = |shape: Shape, a, b, bias| {
        products.multiply(&mut queue, &shape, a, b, bias, Target::F32((&mut out).into()))
    };
    let mixed = multiply(shape, float, half, None).unwrap_err();
    assert_eq!(mixed.to_string(), "the factors have different elements: f32 and f16");
    assert!(matches!(multiply(Shape { m: 3, ..shape }, float, float, None), Err(Error::Length { len: 6, needed: 9, .. })));
    assert!(matches!(multiply(Shape { n: 3, ..shape }, float, float, None), Err(Error::Length { needed: 9, .. })));
    assert!(matches!(multiply(Shape { n: 0, m: 2, ..shape }, float, float, None), Err(Error::Length { needed: 0, .. })));
    assert!(matches!(multiply(shape, float, float, Some((&a).into())), Err(Error::Length { what: "the bias", .. })));
    let empty = device.alloc::<f32>(0).unwrap();
    let empty = Factor::F32((&empty).into());
    assert!(matches!(multiply(Shape { k: 0, ..shape }, empty, empty, None), Err(Error::Length { needed: 1, .. })));
}
