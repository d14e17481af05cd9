//! Kinds of devices, and their properties.

use crate::error::{Error, Result};

/// Kind of device: which GPU to open, or which one is open.
///
/// ```
/// use tegra_hcq::DeviceKind;
///
/// assert_eq!("nvgpu".parse::<DeviceKind>().unwrap(), DeviceKind::Nvgpu);
/// assert_eq!(DeviceKind::Sim.to_string(), "sim");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The Orin's GPU if `/dev/nvgpu/igpu0/ctrl` exists, else a supported GPU of NVIDIA's desktop driver, else the
    /// software Orin.
    Auto,
    /// The Orin's GPU, through NVIDIA's nvgpu kernel driver.
    Nvgpu,
    /// The software Orin (feature `sim`).
    Sim,
    /// A GPU of NVIDIA's desktop and data-centre driver.
    Nvrm,
    /// A GPU behind a driver implemented by the caller: see [`Device::with_driver`](crate::Device::with_driver).
    Other,
}

impl DeviceKind {
    /// The kind's name in options and reports: `auto`, `nvgpu`, `nvrm`, `sim` or `other`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Nvgpu => "nvgpu",
            Self::Sim => "sim",
            Self::Nvrm => "nvrm",
            Self::Other => "other",
        }
    }
}

impl core::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::str::FromStr for DeviceKind {
    type Err = Error;

    /// Parses a name that [`Device::open`](crate::Device::open) accepts; `other` is not accepted.
    fn from_str(name: &str) -> Result<Self> {
        let kinds = [Self::Auto, Self::Nvgpu, Self::Nvrm, Self::Sim];
        let kind = kinds.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| Error::UnknownKind(name.to_owned()))
    }
}

/// Properties of the GPU and the kind of the device. Dereferences to the driver's [`gpu_hal::Properties`].
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// let info = device.info();
/// assert_eq!(info.chip, "ga10b");
/// println!("{}: {} SMs", info.kind, info.sm_count);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Kind of the device; never [`DeviceKind::Auto`].
    pub kind: DeviceKind,
    /// Properties reported by the driver.
    pub gpu: gpu_hal::Properties,
}

impl core::ops::Deref for Properties {
    type Target = gpu_hal::Properties;

    fn deref(&self) -> &gpu_hal::Properties {
        &self.gpu
    }
}
