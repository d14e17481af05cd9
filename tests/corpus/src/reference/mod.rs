//! CPU references of the corpus: one module per source file or per pair of related files.

mod algorithms;
mod atomics;
mod bits;
mod convert;
mod double;
mod float;
mod flow;
mod groups;
mod half;
mod integer;
mod memory;
mod shared;
mod special;
mod tensor;
mod uniform;
mod warp;
mod wide;

use super::case::Case;

/// All cases in file order.
pub(super) fn all() -> Vec<Case> {
    let files = [
        algorithms::cases,
        shared::async_cases,
        atomics::cases,
        half::bfloat_cases,
        bits::cases,
        convert::cases,
        double::cases,
        float::cases,
        flow::cases,
        memory::grid_cases,
        groups::cases,
        half::half_cases,
        integer::cases,
        memory::cases,
        shared::cases,
        special::cases,
        tensor::cases,
        uniform::cases,
        warp::cases,
        wide::cases,
    ];
    files.into_iter().flat_map(|cases| cases()).collect()
}
