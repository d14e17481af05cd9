//! Whole networks and their kernels, compared with a 64-bit reference on the CPU.

mod networks;
mod products;
mod reference;
mod steps;

use std::time::Duration;

use test_harness::{Suite, Test};

/// Longest time for a network on a board; it takes well under a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);

/// The suite.
pub static SUITE: Suite = Suite {
    name: "models",
    about: "neural networks, as launches and as recorded graphs, compared with the CPU",
    orin_only: false,
    tests: &[
        Test::new("simple_mlp", "784 to 128 to 10, 8 rows, within 1e-3", |context| {
            networks::mlp(context).into()
        })
        .sharing_device(),
        Test::new("half_mlp", "the same on the tensor cores, in halves, within 1e-2", |context| {
            networks::mlp_in_halves(context).into()
        })
        .sharing_device(),
        Test::new("policy", "12 to 128 to 128 to 4, one row, within 1e-4", |context| {
            networks::policy(context).into()
        })
        .sharing_device(),
        Test::new("deep_mlp_10_layers", "ten layers from 256 to 10, 16 rows, within 1e-2", |context| {
            networks::deep_mlp(context).into()
        })
        .sharing_device(),
        Test::new("cnn_forward", "two convolutions, pooling, a layer; 4 images, within 1e-3", |context| {
            networks::cnn(context).into()
        })
        .sharing_device(),
        Test::new(
            "transformer_block",
            "2 sequences of 16 tokens, 64 wide, 4 heads, within 1e-2",
            |context| networks::transformer_block(context).into(),
        )
        .sharing_device(),
        Test::new(
            "odd_transformer_block",
            "3 sequences of 7 tokens, 30 wide, 5 heads, within 1e-2",
            |context| networks::odd_transformer_block(context).into(),
        )
        .sharing_device(),
        Test::new("layers", "fully connected layers of odd sizes, with each activation", |context| {
            steps::layers_of_odd_sizes(context).into()
        })
        .sharing_device(),
        Test::new("half_layers", "the same layers on the tensor cores", |context| {
            steps::half_layers_of_odd_sizes(context).into()
        })
        .sharing_device(),
        Test::new(
            "batched_products",
            "matrix products of odd sizes, second factor row or column major",
            |context| steps::batched_products(context).into(),
        )
        .sharing_device(),
        Test::new("large_products", "halves and bfloat16 in tiles for most SMs, exact", |context| {
            products::large(context).into()
        })
        .sharing_device(),
        Test::new(
            "convolutions_and_pooling",
            "windows, strides and paddings on images that are not square",
            |context| steps::convolutions_and_pooling(context).into(),
        )
        .sharing_device(),
        Test::new("rows", "softmax, normalisation and means of rows around a warp's width", |context| {
            steps::rows_of_odd_lengths(context).into()
        })
        .sharing_device(),
        Test::new("elements", "sums, products, ReLU, GELU, powers of e", |context| {
            steps::elements(context).into()
        })
        .sharing_device(),
        Test::new("permutations", "permuted axes, and a slice of an array", |context| {
            steps::permutations(context).into()
        })
        .sharing_device(),
        Test::new("wrong_sizes", "buffers of the wrong size are refused before a launch", |context| {
            steps::wrong_sizes_are_refused(context).into()
        })
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
