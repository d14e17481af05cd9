//! The library over `libcuda.so.1` and the software Orin, compared with sums of 64-bit floats.

mod calls;
mod driver;
mod products;
mod solve;
