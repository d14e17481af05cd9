#![doc = include_str!("../README.md")]
#![allow(clippy::too_many_arguments, reason = "cuBLAS's interface has calls with over twenty")]
#![allow(non_snake_case, reason = "the functions have cuBLAS's names")]

mod call;
mod driver;
mod gemm;
mod handle;
mod kernels;
mod product;
mod solve;
mod status;

pub use gemm::*;
pub use handle::*;
pub use solve::*;
pub use status::*;
