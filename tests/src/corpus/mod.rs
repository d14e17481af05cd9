//! The corpus: kernels of every theme, what they must compute, and how close it must be.
//!
//! `kernels/corpus/*.cu` are compiled by several compilers for several chips. A [`Case`] is one kernel with
//! a launch, inputs from a seed, and a reference on the CPU that shares no code with the software Orin. The
//! same cases run on the software Orin, on a board, and through NVIDIA's own driver (see [`silicon`]).

pub mod case;
pub mod compare;
pub mod data;
pub mod exact;
mod reference;
pub mod run;

use std::sync::LazyLock;

pub use case::Case;

/// All cases.
pub fn cases() -> &'static [Case] {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(reference::all);
    &CASES
}
