//! Whole networks and their kernels, compared with a 64-bit reference on the CPU.

mod images;
mod networks;
mod products;
mod reference;
mod steps;

use std::time::Duration;

use crate::fixtures::case;
use test_harness::Suite;

/// Longest time for a network on a board; it takes well under a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);

/// The suite.
pub static SUITE: Suite = Suite {
    name: "models",
    about: "neural networks, as launches and as recorded graphs, compared with the CPU",
    orin_only: false,
    tests: &[
        case!(simple_mlp, "784 to 128 to 10, 8 rows, within 1e-3", networks::mlp).sharing_device(),
        case!(half_mlp, "the same on the tensor cores, in halves, within 1e-2", networks::mlp_in_halves)
            .sharing_device(),
        case!(policy, "12 to 128 to 128 to 4, one row, within 1e-4", networks::policy).sharing_device(),
        case!(deep_mlp_10_layers, "ten layers from 256 to 10, 16 rows, within 1e-2", networks::deep_mlp)
            .sharing_device(),
        case!(cnn_forward, "two convolutions, pooling, a layer; 4 images, within 1e-3", networks::cnn)
            .sharing_device(),
        case!(
            transformer_block,
            "2 sequences of 16 tokens, 64 wide, 4 heads, within 1e-2",
            networks::transformer_block
        )
        .sharing_device(),
        case!(
            odd_transformer_block,
            "3 sequences of 7 tokens, 30 wide, 5 heads, within 1e-2",
            networks::odd_transformer_block
        )
        .sharing_device(),
        case!(
            layers,
            "fully connected layers of odd sizes, with each activation",
            steps::layers_of_odd_sizes
        )
        .sharing_device(),
        case!(half_layers, "the same layers on the tensor cores", steps::half_layers_of_odd_sizes)
            .sharing_device(),
        case!(
            batched_products,
            "matrix products of odd sizes, second factor row or column major",
            steps::batched_products
        )
        .sharing_device(),
        case!(large_products, "halves and bfloat16 in tiles for most SMs, exact", products::large)
            .sharing_device(),
        case!(images, "frames to planar floats, bit for bit as on the software Orin", images::images)
            .sharing_device(),
        case!(
            convolutions_and_pooling,
            "windows, strides and paddings on images that are not square",
            steps::convolutions_and_pooling
        )
        .sharing_device(),
        case!(
            rows,
            "softmax, normalisation and means of rows around a warp's width",
            steps::rows_of_odd_lengths
        )
        .sharing_device(),
        case!(elements, "sums, products, ReLU, GELU, powers of e", steps::elements).sharing_device(),
        case!(permutations, "permuted axes, and a slice of an array", steps::permutations).sharing_device(),
        case!(
            wrong_sizes,
            "buffers of the wrong size are refused before a launch",
            steps::wrong_sizes_are_refused
        )
        .sharing_device(),
    ],
};

/// Returns an error that names the first element outside the tolerance.
fn agree(what: &str, got: &[f32], want: &[f64], tolerance: f64) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{what}: {} elements instead of {}", got.len(), want.len()));
    }
    let apart = |(got, want): (&f32, &f64)| {
        // NaN is never within the tolerance.
        !got.is_finite() || (f64::from(*got) - want).abs() > tolerance
    };
    match got.iter().zip(want).position(apart) {
        None => Ok(()),
        Some(at) => Err(format!(
            "{what}: element {at} is {} instead of {} (tolerance {tolerance:e})",
            got[at], want[at]
        )),
    }
}

/// Returns an error that names the first element with different bits.
fn same_bits(what: &str, got: &[f32], want: &[f32]) -> Result<(), String> {
    match got.iter().zip(want).position(|(got, want)| got.to_bits() != want.to_bits()) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: element {at} is {} instead of {}", got[at], want[at])),
    }
}
