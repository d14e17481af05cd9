//! Adapters: GPU drivers behind the traits of [`gpu_hal`].

#[cfg(feature = "nvgpu")]
pub(crate) mod nvgpu;
#[cfg(feature = "nvrm")]
pub(crate) mod nvrm;

/// Names and versions of the driver crates that are compiled in.
#[cfg(feature = "reports")]
pub(crate) const VERSIONS: &[(&str, &str)] = &[
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    ("kernel-door", kernel_door::VERSION),
    #[cfg(feature = "nvgpu")]
    ("nvgpu-sys", nvgpu_sys::VERSION),
    #[cfg(feature = "nvgpu")]
    ("nvgpu-channel", nvgpu_channel::VERSION),
    #[cfg(feature = "nvgpu")]
    ("nvmap", nvmap::VERSION),
    #[cfg(feature = "nvrm")]
    ("nvrm", ::nvrm::VERSION),
];
