//! `half.cu` and `bfloat.cu`: half precision and bfloat16 by definition.

use half::{bf16, f16};

use crate::case::{Argument, Case, Source, any, made, map1, map2, map3};
use crate::compare::Tolerance;
use crate::data::{Data, Element};
use crate::exact::{BF16, F16, Format, Mode};
use test_support::Numbers;

/// A 16-bit float type and its arithmetic.
trait Half: Element + PartialOrd {
    const FORMAT: Format;
    const ONE: Self;
    const ZERO: Self;

    fn negative(self) -> bool {
        self.to_word() >> 15 == 1
    }
    fn nan(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
    fn flipped(self) -> Self {
        Self::from_word(self.to_word() ^ 0x8000)
    }
    fn plus(self, other: Self) -> Self {
        Self::from_word(Self::FORMAT.add(self.to_word(), other.to_word(), Mode::Nearest))
    }
    fn minus(self, other: Self) -> Self {
        self.plus(other.flipped())
    }
    fn times(self, other: Self) -> Self {
        Self::from_word(Self::FORMAT.mul(self.to_word(), other.to_word(), Mode::Nearest))
    }
    fn fma(self, b: Self, c: Self) -> Self {
        Self::from_word(Self::FORMAT.fma(self.to_word(), b.to_word(), c.to_word(), Mode::Nearest))
    }
    /// Clamps to 0..=1; NaN becomes 0.
    fn saturated(self) -> Self {
        match self.partial_cmp(&Self::ZERO) {
            Some(core::cmp::Ordering::Greater) if self > Self::ONE => Self::ONE,
            Some(core::cmp::Ordering::Greater) => self,
            _ => Self::ZERO,
        }
    }
    /// Negative numbers become 0; NaN stays NaN.
    fn relu(self) -> Self {
        if self.negative() && !self.nan() { Self::ZERO } else { self }
    }
    /// The smaller value; NaN loses, and minus zero is less than plus zero.
    fn minimum(self, other: Self) -> Self {
        match (self.nan(), other.nan()) {
            (true, _) => other,
            (_, true) => self,
            _ if self < other || (self == other && self.negative()) => self,
            _ => other,
        }
    }
    fn maximum(self, other: Self) -> Self {
        self.flipped().minimum(other.flipped()).flipped()
    }
    /// `result`, or NaN if one of the two is NaN.
    fn or_nan(self, other: Self, result: Self) -> Self {
        if self.nan() {
            self
        } else if other.nan() {
            other
        } else {
            result
        }
    }
}

impl Half for f16 {
    const FORMAT: Format = F16;
    const ONE: Self = Self::ONE;
    const ZERO: Self = Self::ZERO;
}

impl Half for bf16 {
    const FORMAT: Format = BF16;
    const ONE: Self = Self::ONE;
    const ZERO: Self = Self::ZERO;
}

/// Elements of a kernel on pairs: the low and the high half of a word.
type Pair<T> = [T; 2];

fn pair<T: Half>(word: u32) -> Pair<T> {
    [T::from_word(u64::from(word & 0xffff)), T::from_word(u64::from(word >> 16))]
}

/// Random pairs with independent halves.
fn pairs<T: Half>() -> Source<u32> {
    fn random<T: Half>(numbers: &mut Numbers) -> u32 {
        (T::random(numbers).to_word() << 16 | T::random(numbers).to_word()) as u32
    }
    let edges = T::EDGES;
    let joined = |i: usize| (edges[i].to_word() << 16 | edges[(i * 5 + 3) % edges.len()].to_word()) as u32;
    made(&(0..edges.len()).map(joined).collect::<Vec<_>>(), random::<T>)
}

/// A kernel on pairs that writes `K` pairs; the outputs are compared half by half.
fn map_pairs<T: Half, const K: usize>(
    file: &'static str,
    kernel: &'static str,
    f: impl Fn(Pair<T>, Pair<T>, Pair<T>) -> [Pair<T>; K] + Send + Sync + 'static,
) -> Case {
    let case = map3(file, kernel, pairs::<T>(), |_, _, _: u32| [0_u32; K]);
    halves(case, move |words| f(pair(words[0]), pair(words[1]), pair(words[2])).concat())
}

/// Like [`map_pairs`], with two sources.
fn map_pairs2<T: Half, const K: usize>(
    file: &'static str,
    kernel: &'static str,
    f: impl Fn(Pair<T>, Pair<T>) -> [Pair<T>; K] + Send + Sync + 'static,
) -> Case {
    let case = map2(file, kernel, (pairs::<T>(), pairs::<T>()), |_, _: u32| [0_u32; K]);
    halves(case, move |words| f(pair(words[0]), pair(words[1])).concat())
}

/// Turns a case's output of words into an output of halves, and sets the reference.
fn halves<T: Half>(mut case: Case, f: impl Fn(&[u32]) -> Vec<T> + Send + Sync + 'static) -> Case {
    for argument in &mut case.arguments {
        if let Argument::Output(data) = argument {
            data.kind = T::KIND;
        }
    }
    case.reference(move |arguments| {
        let inputs: Vec<Vec<u32>> = arguments
            .iter()
            .filter_map(
                |argument| if let Argument::Input(data) = argument { Some(data.values()) } else { None },
            )
            .collect();
        let row = |i: usize| inputs.iter().map(|input| input[i]).collect::<Vec<u32>>();
        vec![Data::of(&(0..inputs[0].len()).flat_map(|i| f(&row(i))).collect::<Vec<T>>())]
    })
}

/// Applies `f` to each half.
fn each<T: Half>(a: Pair<T>, b: Pair<T>, f: impl Fn(T, T) -> T) -> Pair<T> {
    [f(a[0], b[0]), f(a[1], b[1])]
}

fn fma<T: Half>(a: Pair<T>, b: Pair<T>, c: Pair<T>) -> Pair<T> {
    [a[0].fma(b[0], c[0]), a[1].fma(b[1], c[1])]
}

/// One bit per predicate: less, less or equal, equal, ordered not equal, greater or equal, greater, then the
/// unordered forms.
fn facts<T: Half>(a: T, b: T) -> u32 {
    let unordered = a.nan() || b.nan();
    [
        a < b,
        a <= b,
        a == b,
        !unordered && a != b,
        a >= b,
        a > b,
        unordered || a < b,
        unordered || a >= b,
        a.nan(),
    ]
    .iter()
    .rev()
    .fold(0, |word, fact| word << 1 | u32::from(*fact))
}

/// The cases of both types, with the prefix of their kernel names.
fn common<T: Half>(file: &'static str, names: [&'static str; 6]) -> Vec<Case> {
    let [arithmetic, saturate, pairs, relu, extremes, compare] = names;
    vec![
        map3(file, arithmetic, any(), |a: T, b, c| {
            let magnitude = if b.negative() { b.flipped() } else { b };
            [a.plus(b), a.minus(b), a.times(b), a.fma(b, c), a.flipped(), magnitude]
        }),
        map3(file, saturate, any(), |a: T, b, c| {
            [a.plus(b).saturated(), a.times(b).saturated(), a.fma(b, c).saturated()]
        }),
        map_pairs(file, pairs, |a: Pair<T>, b, c| {
            [each(a, b, T::plus), each(a, b, T::minus), each(a, b, T::times), fma(a, b, c), a.map(T::flipped)]
        }),
        map_pairs(file, relu, |a: Pair<T>, b, c| {
            let sum = fma(a, b, c);
            [sum.map(T::relu), sum.map(T::saturated)]
        }),
        map_pairs2(file, extremes, |a: Pair<T>, b| {
            let (low, high) = (each(a, b, T::minimum), each(a, b, T::maximum));
            let nan = |r: Pair<T>| [a[0].or_nan(b[0], r[0]), a[1].or_nan(b[1], r[1])];
            [low, high, nan(low), nan(high)]
        }),
        map2(file, compare, (any(), any()), move |a: T, b: T| {
            let infinite = b.to_word() & 0x7fff == T::FORMAT.infinity_bits();
            // Only the half-precision kernel tests for infinities, and for equality a second time.
            let more = (u32::from(infinite) << 9) | (u32::from(a == b) << 10);
            [facts(a, b) | if compare == "f16_compare" { more } else { 0 }]
        }),
    ]
}

/// The cases of `half.cu`.
pub(super) fn half_cases() -> Vec<Case> {
    let names =
        ["f16_arithmetic", "f16_saturate", "f16_pairs", "f16_fma_relu", "f16_extremes", "f16_compare"];
    let mut cases = common::<f16>("half", names);
    cases.extend(half_pairs());
    cases.extend(half_functions());
    cases.extend(half_rows());
    cases
}

fn half_pairs() -> Vec<Case> {
    let one = |set: bool| if set { f16::ONE } else { f16::ZERO };
    vec![
        map_pairs("half", "f16_pairs_swizzled", |a: Pair<f16>, b, c| {
            [
                fma([a[0], a[0]], b, [c[1], c[1]]),
                each([a[1], a[0]], [b[1], b[1]], f16::times),
                each([a[0], b[0]], [b[1], c[1]], f16::plus),
            ]
        }),
        map_pairs2("half", "f16_set_pairs", move |a: Pair<f16>, b| {
            let set = |bit: u32| each(a, b, |a, b| one(facts(a, b) >> bit & 1 == 1));
            [set(2), set(0), set(7), set(3)]
        }),
        map2("half", "f16_masks", (pairs::<f16>(), pairs::<f16>()), |a: u32, b: u32| {
            let (a, b) = (pair::<f16>(a), pair::<f16>(b));
            let both = |bit: u32| [0, 1].map(|half| facts(a[half], b[half]) >> bit & 1);
            let mask = |bits: [u32; 2]| (bits[0] * 0xffff) | (bits[1] * 0xffff_0000);
            let [equal, less] = [both(2), both(6)].map(|bits| bits[0] & bits[1]);
            [mask(both(0)), mask(both(7)), equal, less]
        }),
    ]
}

fn half_functions() -> Vec<Case> {
    let to = |x: f64| f16::from_f64(x);
    let ulp = |case: Case, n| case.within(Tolerance::Ulp(n), "computed in single precision, then rounded");
    let moderate = || made(&[f16::ONE, f16::ZERO], |n: &mut Numbers| f16::from_f32(n.f32() * 8.0));
    let divisors = || made(&[f16::ONE], |n: &mut Numbers| f16::from_f32(n.f32() * 3.0 + 4.0));
    vec![
        ulp(
            map1("half", "f16_reciprocal", any(), move |a: f16| {
                [to(1.0 / a.to_f64()), to(1.0 / a.to_f64().sqrt())]
            }),
            1,
        ),
        map1("half", "f16_exponential", moderate(), move |a: f16| {
            [to(a.to_f64().exp2()), to(a.to_f64().tanh())]
        })
        .within(Tolerance::Ulp(3), "PTX: tanh.approx.f16 within 2^-10.987 absolute"),
        ulp(
            map2("half", "f16_divide", (moderate(), divisors()), move |a: f16, b: f16| {
                [to(a.to_f64() / b.to_f64())]
            }),
            1,
        ),
    ]
}

fn half_rows() -> Vec<Case> {
    let (rows, columns) = (83_usize, 34_usize);
    let values = |kernel, len| -> Vec<f16> {
        let mut numbers = Case::numbers(kernel);
        (0..len).map(|_| f16::from_f32(numbers.f32())).collect()
    };
    let (a, b) = (values("f16_dot_rows", rows * columns), values("f16_vector", columns));
    let (c, d) = (a.clone(), b.clone());
    let case = |kernel| Case::new("half", kernel).launch(3, 32).input(&a).input(&b);
    vec![
        case("f16_dot_rows").output::<f32>(rows).scalar(rows as u32).scalar((columns / 2) as u32).gives(
            move || {
                let dot = |row: &[f16]| {
                    row.iter().zip(&d).fold(0.0_f32, |sum, (m, v)| m.to_f32().mul_add(v.to_f32(), sum))
                };
                c.chunks(columns).map(dot).collect()
            },
        ),
        {
            let (a, b) = (a.clone(), b.clone());
            case("f16_accumulate")
                .output::<f16>(2 * rows)
                .scalar(rows as u32)
                .scalar((columns / 2) as u32)
                .gives(move || {
                    let start = [f16::from_f32(0.5), f16::from_f32(-2.0)];
                    let row = |row: &[f16]| {
                        row.chunks(2)
                            .zip(b.chunks(2))
                            .fold(start, |sum, (m, v)| fma([m[0], m[1]], [v[0], v[1]], sum))
                    };
                    a.chunks(columns).flat_map(row).collect()
                })
        },
    ]
}

/// The cases of `bfloat.cu`.
pub(super) fn bfloat_cases() -> Vec<Case> {
    let names =
        ["bf16_arithmetic", "bf16_saturate", "bf16_pairs", "bf16_fma_relu", "bf16_extremes", "bf16_compare"];
    let mut cases = common::<bf16>("bfloat", names);
    let mut numbers = Case::numbers("bf16_blend");
    let mut row = || -> Vec<bf16> { (0..2 * 301).map(|_| bf16::from_f32(numbers.f32() * 100.0)).collect() };
    let (x, y) = (row(), row());
    cases.push(
        Case::new("bfloat", "bf16_blend")
            .launch(5, 64)
            .input(&x)
            .input(&y)
            .output::<bf16>(2 * 301)
            .scalar(0.3_f32)
            .scalar(301_u32)
            .gives(move || {
                let blend = |(x, y): (&bf16, &bf16)| {
                    let (x, y) = (x.to_f32(), y.to_f32());
                    let bits =
                        crate::exact::F32.convert(0.3_f32.mul_add(x - y, y).to_word(), BF16, Mode::Nearest);
                    bf16::from_word(bits)
                };
                x.iter().zip(&y).map(blend).collect()
            }),
    );
    cases
}
