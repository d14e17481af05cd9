//! `tensor.cu`: products of small matrices, with the fragments of the PTX manual.
//!
//! Lane l is in group g = l / 4 at index t = l % 4. Register r of A contains row g + 8 (r mod 2), starting at
//! column E t + 4 E (r div 2), with E elements per register. Register r of B contains column g, starting at
//! row E t + 4 E r. Register r of C contains row g + 8 (r div 2), column 2 t + r mod 2.

use half::{bf16, f16};

use crate::case::Case;
use crate::compare::Tolerance;
use crate::data::{Data, Element};
use test_support::Numbers;

const FILE: &str = "tensor";

/// An element type of A and B.
#[derive(Clone, Copy, PartialEq)]
enum Type {
    F16,
    Bf16,
    Tf32,
    /// Bits, signed.
    Int(u32, bool),
}

impl Type {
    fn bits(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 => 32,
            Self::Int(bits, _) => bits,
        }
    }

    /// The value of a word's lowest bits.
    fn value(self, word: u32) -> f64 {
        match self {
            // CAST: the low half of the word.
            Self::F16 => f16::from_bits(word as u16).to_f64(),
            Self::Bf16 => bf16::from_bits(word as u16).to_f64(),
            // The low 13 bits are ignored.
            Self::Tf32 => f32::from_bits(word & !0x1fff).into(),
            Self::Int(bits, signed) => {
                let up = word << (32 - bits);
                if signed { f64::from(up.cast_signed() >> (32 - bits)) } else { f64::from(up >> (32 - bits)) }
            }
        }
    }

    /// The bits of a float.
    fn pack(self, value: f32) -> u32 {
        match self {
            Self::F16 => f16::from_f32(value).to_bits().into(),
            Self::Bf16 => bf16::from_f32(value).to_bits().into(),
            _ => value.to_bits(),
        }
    }

    /// A register of random elements: arbitrary integers; small floats with few or all fraction bits.
    fn register(self, numbers: &mut Numbers, fine: bool) -> u32 {
        if matches!(self, Self::Int(..)) {
            return numbers.u32();
        }
        let value = |numbers: &mut Numbers| {
            if fine { numbers.f32() } else { (numbers.u32() % 17) as f32 / 4.0 - 2.0 }
        };
        let low = self.pack(value(numbers));
        if self.bits() == 16 { low | self.pack(value(numbers)) << 16 } else { low }
    }
}

/// The shape of a product.
#[derive(Clone, Copy)]
struct Shape {
    m: usize,
    k: usize,
    a: Type,
    b: Type,
}

impl Shape {
    /// Registers per lane of A, B and C.
    fn registers(self) -> (usize, usize, usize) {
        let per = (32 / self.a.bits()) as usize;
        (self.m / 8 * self.k / (4 * per), self.k / (4 * per), self.m / 4)
    }

    /// Element `index` of a register.
    fn element(self, of: Type, word: u32, index: usize) -> f64 {
        of.value((u64::from(word) >> (of.bits() as usize * index)) as u32)
    }

    fn a(self, words: &[u32]) -> Vec<Vec<f64>> {
        let per = (32 / self.a.bits()) as usize;
        let tall = self.m / 8;
        let mut matrix = vec![vec![0.0; self.k]; self.m];
        for (at, word) in words.iter().enumerate() {
            let (r, lane) = (at / 32, at % 32);
            for j in 0..per {
                let column = lane % 4 * per + j + r / tall * 4 * per;
                matrix[lane / 4 + 8 * (r % tall)][column] = self.element(self.a, *word, j);
            }
        }
        matrix
    }

    fn b(self, words: &[u32]) -> Vec<Vec<f64>> {
        let per = (32 / self.b.bits()) as usize;
        let mut matrix = vec![vec![0.0; 8]; words.len() / 32 * 4 * per];
        for (at, word) in words.iter().enumerate() {
            let (r, lane) = (at / 32, at % 32);
            for j in 0..per {
                matrix[lane % 4 * per + j + r * 4 * per][lane / 4] = self.element(self.b, *word, j);
            }
        }
        matrix
    }
}

/// Row and column of register `r` of a lane of C.
fn place(r: usize, lane: usize) -> (usize, usize) {
    (lane / 4 + 8 * (r / 2), lane % 4 * 2 + r % 2)
}

/// `c + a * b` for the element in a register.
fn dot(a: &[Vec<f64>], b: &[Vec<f64>], at: (usize, usize), c: f64) -> f64 {
    c + (0..b.len()).map(|k| a[at.0][k] * b[k][at.1]).sum::<f64>()
}

fn registers(numbers: &mut Numbers, of: Type, count: usize, fine: bool) -> Vec<u32> {
    (0..32 * count).map(|_| of.register(numbers, fine)).collect()
}

/// A product of floats with sums in single precision.
fn float(kernel: &'static str, of: Type, k: usize, fine: bool) -> Case {
    let shape = Shape { m: 16, k, a: of, b: of };
    let (ra, rb, rc) = shape.registers();
    let mut numbers = Case::numbers(kernel);
    let (a, b) = (registers(&mut numbers, of, ra, fine), registers(&mut numbers, of, rb, fine));
    let c: Vec<f32> = (0..32 * rc).map(|_| (numbers.u32() % 33) as f32 / 8.0 - 2.0).collect();
    let case = Case::new(FILE, kernel).input(&a).input(&b).input(&c).output::<f32>(32 * rc);
    let case = if fine {
        let near = Tolerance::Near { relative: 0.0, absolute: 4.0e-6 };
        case.within(near, "order and rounding of the tensor core's sums")
    } else {
        case.within(Tolerance::Exact, "inputs with few significant bits, so every sum is exact")
    };
    case.gives(move || {
        let (a, b) = (shape.a(&a), shape.b(&b));
        // CAST: rounds once.
        (0..32 * rc).map(|at| dot(&a, &b, place(at / 32, at % 32), c[at].into()) as f32).collect()
    })
}

/// Treatment of an integer sum.
#[derive(Clone, Copy, PartialEq)]
enum Sum {
    Wraps,
    Saturates,
    Xor,
    And,
}

fn integer(kernel: &'static str, (m, k): (usize, usize), (a_type, b_type): (Type, Type), sum: Sum) -> Case {
    let shape = Shape { m, k, a: a_type, b: b_type };
    let (ra, rb, rc) = shape.registers();
    let mut numbers = Case::numbers(kernel);
    let (a, b) = (registers(&mut numbers, a_type, ra, false), registers(&mut numbers, b_type, rb, false));
    let c: Vec<i32> = (0..32 * rc).map(|_| i32::random(&mut numbers)).collect();
    Case::new(FILE, kernel).input(&a).input(&b).input(&c).output::<i32>(32 * rc).gives(move || {
        let (a, b) = (shape.a(&a), shape.b(&b));
        let one = |at: usize| {
            let (row, column) = place(at / 32, at % 32);
            let products =
                |f: fn(f64, f64) -> f64| -> f64 { (0..k).map(|k| f(a[row][k], b[k][column])).sum() };
            let sum_of = match sum {
                Sum::Xor => products(|a, b| f64::from(a != b)),
                _ => products(|a, b| a * b),
            };
            // CAST: sums of products of small integers are integers of far less than 53 bits.
            let total = i64::from(c[at]) + sum_of as i64;
            match sum {
                Sum::Saturates => total.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
                _ => total as i32,
            }
        };
        (0..32 * rc).map(one).collect()
    })
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let int = Type::Int;
    let (s8, u8, s4, u4, b1) = (int(8, true), int(8, false), int(4, true), int(4, false), int(1, false));
    vec![
        float("mma_f16_k16", Type::F16, 16, true),
        float("mma_f16_k8", Type::F16, 8, false),
        float("mma_bf16_k16", Type::Bf16, 16, true),
        float("mma_bf16_k8", Type::Bf16, 8, false),
        float("mma_tf32_k8", Type::Tf32, 8, true),
        float("mma_tf32_k4", Type::Tf32, 4, false),
        half_sums("mma_f16_accumulate", 16),
        half_sums("mma_f16_accumulate_k8", 8),
        doubles(),
        integer("mma_s8_k32", (16, 32), (s8, s8), Sum::Wraps),
        integer("mma_u8_s8_k32", (16, 32), (u8, s8), Sum::Wraps),
        integer("mma_s8_u8_k16", (16, 16), (s8, u8), Sum::Wraps),
        integer("mma_u8_k16", (8, 16), (u8, u8), Sum::Wraps),
        integer("mma_s8_k16", (16, 16), (s8, s8), Sum::Wraps),
        integer("mma_s8_k16_small", (8, 16), (s8, s8), Sum::Wraps),
        integer("mma_s4_k32_small", (8, 32), (s4, s4), Sum::Wraps),
        integer("mma_s4_u4_k32_large", (16, 32), (s4, u4), Sum::Wraps),
        integer("mma_u4_s4_saturating", (16, 64), (u4, s4), Sum::Saturates),
        integer("mma_s4_k64", (16, 64), (s4, s4), Sum::Wraps),
        integer("mma_u4_s4_k32", (16, 32), (u4, s4), Sum::Wraps),
        integer("mma_s4_u4_k32", (8, 32), (s4, u4), Sum::Wraps),
        integer("mma_b1_xor_k256", (16, 256), (b1, b1), Sum::Xor),
        integer("mma_b1_and_k128", (16, 128), (b1, b1), Sum::And),
        integer("mma_b1_xor_k128", (8, 128), (b1, b1), Sum::Xor),
        integer("mma_s8_saturating", (16, 32), (s8, s8), Sum::Saturates),
        sparse(),
        load_matrices(),
        transpose_matrix(),
        gemm(),
    ]
}

fn half_sums(kernel: &'static str, k: usize) -> Case {
    let shape = Shape { m: 16, k, a: Type::F16, b: Type::F16 };
    let mut numbers = Case::numbers(kernel);
    let [a, b, c] = [k / 4, k / 8, 2].map(|count| registers(&mut numbers, Type::F16, count, false));
    let case = Case::new(FILE, kernel).input(&a).input(&b).input(&c).output::<f16>(128);
    case.within(Tolerance::Exact, "inputs with few significant bits, so every sum is exact").gives(
        move || {
            let (a, b) = (shape.a(&a), shape.b(&b));
            let one = |at: usize| {
                // Two elements of a row per register.
                let (r, lane, j) = (at / 64, at / 2 % 32, at % 2);
                let c = shape.element(Type::F16, c[32 * r + lane], j);
                f16::from_f64(dot(&a, &b, (lane / 4 + 8 * r, lane % 4 * 2 + j), c))
            };
            (0..128).map(one).collect()
        },
    )
}

fn doubles() -> Case {
    let mut numbers = Case::numbers("mma_f64");
    let mut values = |len: usize| -> Vec<f64> { (0..len).map(|_| numbers.f32().into()).collect() };
    let (a, b, c) = (values(32), values(32), values(64));
    Case::new(FILE, "mma_f64")
        .input(&a)
        .input(&b)
        .input(&c)
        .output::<f64>(64)
        .within(Tolerance::Near { relative: 0.0, absolute: 2.0e-15 }, "order of the tensor core's sums")
        .gives(move || {
            let one = |at: usize| {
                let (g, column) = (at % 32 / 4, at % 4 * 2 + at / 32);
                // Lane 4 row + k holds an element of A, lane 4 column + k one of B.
                (0..4).fold(c[at], |sum, k| a[4 * g + k].mul_add(b[4 * column + k], sum))
            };
            (0..64).map(one).collect()
        })
}

/// The metadata keeps elements 0 and 2 of each group of four, two bits each.
fn sparse() -> Case {
    let shape = Shape { m: 16, k: 16, a: Type::F16, b: Type::F16 };
    let mut numbers = Case::numbers("mma_sparse_f16");
    let (a, b) = (registers(&mut numbers, Type::F16, 4, false), registers(&mut numbers, Type::F16, 4, false));
    let c = vec![0.5_f32; 128];
    let kept = 0x8888_8888_u32;
    let case =
        Case::new(FILE, "mma_sparse_f16").input(&a).input(&b).input(&c).output::<f32>(128).scalar(kept);
    case.within(Tolerance::Exact, "inputs with few significant bits, so every sum is exact").gives(
        move || {
            let (a, b) = (shape.a(&a), shape.b(&b));
            let one = |at: usize| {
                let (row, column) = place(at / 32, at % 32);
                // Element i of the compressed row is element 4 (i div 2) + 2 (i mod 2) of the full row.
                let products = (0..16).map(|i| a[row][i] * b[4 * (i / 2) + 2 * (i % 2)][column]);
                (f64::from(c[at]) + products.sum::<f64>()) as f32
            };
            (0..128).map(one).collect()
        },
    )
}

fn load_matrices() -> Case {
    let mut numbers = Case::numbers("load_matrices");
    let input: Vec<u32> = (0..128).map(|_| numbers.u32()).collect();
    let given = input.clone();
    Case::new(FILE, "load_matrices").input(&given).output::<u32>(224).gives(move || {
        let halves: Vec<u32> = input.iter().flat_map(|word| [word & 0xffff, word >> 16]).collect();
        // Lane 8 i + row supplies the address of a row of matrix i: row `lane xor 5` of shared memory.
        let element =
            |matrix: usize, row: usize, column: usize| halves[((8 * matrix + row) ^ 5) * 8 + column];
        let upright = |matrix: usize, lane: usize| {
            let (row, column) = (lane / 4, lane % 4 * 2);
            element(matrix, row, column) | element(matrix, row, column + 1) << 16
        };
        let turned = |matrix: usize, lane: usize| {
            let (column, row) = (lane / 4, lane % 4 * 2);
            element(matrix, row, column) | element(matrix, row + 1, column) << 16
        };
        let all = (0..4).flat_map(|matrix| (0..32).map(move |lane| (matrix, lane)));
        let mut out: Vec<u32> = all.map(|(matrix, lane)| upright(matrix, lane)).collect();
        out.extend((0..64).map(|at| turned(at / 32, at % 32)));
        out.extend((0..32).map(|lane| upright(0, lane)));
        out
    })
}

fn transpose_matrix() -> Case {
    let mut numbers = Case::numbers("transpose_matrix");
    let input: Vec<u32> = (0..32).map(|_| numbers.u32()).collect();
    let given = input.clone();
    Case::new(FILE, "transpose_matrix").input(&given).output::<u32>(32).reference(move |_| {
        let halves: Vec<u32> = input.iter().flat_map(|word| [word & 0xffff, word >> 16]).collect();
        let one = |lane: usize| {
            let (column, row) = (lane / 4, lane % 4 * 2);
            halves[row * 8 + column] | halves[(row + 1) * 8 + column] << 16
        };
        vec![Data::of(&(0..32).map(one).collect::<Vec<u32>>())]
    })
}

fn gemm() -> Case {
    let (rows, columns, depth) = (48_usize, 24_usize, 80_usize);
    let mut numbers = Case::numbers("gemm_f16");
    let mut values = |len: usize| -> Vec<f16> { (0..len).map(|_| f16::from_f32(numbers.f32())).collect() };
    let (a, b) = (values(rows * depth), values(depth * columns));
    Case::new(FILE, "gemm_f16")
        .launch3([3, 3, 1], [32, 1, 1])
        .input(&a)
        .input(&b)
        .output::<f32>(rows * columns)
        .scalar(columns as u32)
        .scalar(depth as u32)
        .within(
            Tolerance::Near { relative: 0.0, absolute: 2.0e-5 },
            "order and rounding of the tensor core's sums",
        )
        .gives(move || {
            let one = |at: usize| {
                let (row, column) = (at / columns, at % columns);
                let product = |k: usize| a[row * depth + k].to_f64() * b[k * columns + column].to_f64();
                (0..depth).map(product).sum::<f64>() as f32
            };
            (0..rows * columns).map(one).collect()
        })
}
