//! Kernels of this project with parameters.

use crate::{Bench, DATA};

/// Concatenates parameters, each aligned to its size.
macro_rules! params {
    ($($value:expr),+) => {{
        let mut bytes: Vec<u8> = Vec::new();
        $({
            let value = $value.to_le_bytes();
            bytes.resize(bytes.len().next_multiple_of(value.len()), 0);
            bytes.extend(value);
        })+
        bytes
    }};
}

/// What memory contains when a kernel starts.
#[derive(Clone, Copy)]
enum Fill {
    /// Floats from -0.5 to 0.5.
    Float,
    /// Integers below 256.
    Small,
    /// Pairs of halves.
    Half,
}

impl Fill {
    fn bytes(self) -> Vec<u8> {
        let mut state = 12345_u32;
        let words = (0..4 << 20).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match self {
                Self::Float => ((state >> 8) as f32 / 16_777_216.0 - 0.5).to_bits(),
                Self::Small => state >> 24,
                Self::Half => 0x3000_3000 ^ (state & 0x83ff_83ff),
            }
        });
        words.flat_map(u32::to_le_bytes).collect()
    }
}

/// Address of a megabyte of the data.
fn at(megabyte: u64) -> u64 {
    DATA + (megabyte << 20)
}

/// The product of two square matrices of `n` rows, a multiple of 16.
pub(crate) fn matmul(n: u32) -> Bench {
    let params = params!(at(0), at(4), at(8), n, n, n);
    Bench::new("matmul", "matmul_tiled", [n / 16, n / 16, 1], [16, 16, 1], &params, &Fill::Float.bytes())
}

/// The sum of two vectors of `count` elements, a multiple of 256.
pub(crate) fn vector_add(count: u32) -> Bench {
    let params = params!(at(0), at(4), at(8), count);
    Bench::new("vector_add", "vector_add", [count / 256, 1, 1], [256, 1, 1], &params, &[])
}

/// A picture of 128 x 128 pixels, with at most 200 iterations.
pub(crate) fn mandelbrot() -> Bench {
    let params = params!(at(0), 128_u32, 128_u32, -2.0_f32, -1.25_f32, 0.02_f32, 200_u32);
    Bench::new("mandelbrot", "mandelbrot", [8, 16, 1], [16, 8, 1], &params, &[])
}

/// Elements of the vector of SAXPY.
pub(crate) const SAXPY: u32 = 1 << 18;

/// The kernels with their names.
pub(crate) fn all() -> Vec<(&'static str, Bench)> {
    let n = 1_u32 << 18;
    let bench = |file, kernel, grid: u32, block: u32, params: Vec<u8>, fill: Fill| {
        Bench::new(file, kernel, [grid, 1, 1], [block, 1, 1], &params, &fill.bytes())
    };
    let wide = |file, kernel, grid, block, params: Vec<u8>, fill: Fill| {
        Bench::new(file, kernel, grid, block, &params, &fill.bytes())
    };
    let (float, small) = (Fill::Float, Fill::Small);
    let linear = |k: u32| params!(at(0), at(4), at(8), at(12), 128_u32, 128_u32, k, 0_u32);
    let conv =
        params!(at(0), at(4), at(8), at(12), 1_u32, 4_u32, 32_u32, 32_u32, 8_u32, 3_u32, 1_u32, 1_u32, 1_u32);
    vec![
        ("matmul_tiled", matmul(128)),
        ("vector_add", vector_add(n)),
        ("mandelbrot", mandelbrot()),
        ("saxpy", bench("saxpy", "saxpy", 64, 256, params!(0.0001_f32, at(0), at(4), SAXPY), float)),
        ("reduce_sum", bench("reduce", "reduce_sum_f32", 32, 256, params!(at(0), at(4), n), float)),
        ("softmax", bench("softmax", "softmax_rows", 256, 256, params!(at(0), at(4), 1024_u32), float)),
        (
            "transpose",
            wide(
                "transpose",
                "transpose",
                [16, 16, 1],
                [32, 8, 1],
                params!(at(0), at(4), 512_u32, 512_u32),
                float,
            ),
        ),
        ("histogram", bench("histogram", "histogram_u8", 16, 256, params!(at(0), at(4), n), float)),
        ("scan", bench("scan", "scan_blocks", 256, 256, params!(at(0), at(4), at(8), 1_u32 << 16), small)),
        (
            "collatz",
            bench("control_flow", "collatz", 16, 256, params!(at(0), at(4), 200_u32, 4096_u32), small),
        ),
        ("nested", bench("control_flow", "nested_branches", 32, 256, params!(at(0), at(4), 8192_u32), small)),
        ("linear_f16", wide("nn_linear", "linear_f16", [16, 8, 1], [128, 1, 1], linear(256), Fill::Half)),
        ("linear_f32", wide("nn_linear", "linear_f32", [8, 8, 1], [16, 16, 1], linear(128), float)),
        ("conv2d", bench("nn_conv", "conv2d", 32, 256, conv, float)),
        ("empty", wide("basics", "empty", [1, 1, 1], [32, 1, 1], Vec::new(), float)),
    ]
}
