//! Adapters: GPU drivers behind the traits of [`gpu_hal`].

#[cfg(feature = "nvgpu")]
pub(crate) mod nvgpu;
#[cfg(feature = "nvrm")]
pub(crate) mod nvrm;
