//! Kinds of devices, and their properties.

use crate::error::{Error, Result};

/// Kind of device: which GPU to open, or which one is open.
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

/// Which of the devices of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// By position in the driver's list, from 0.
    Index(usize),
    /// By PCI address.
    Pci {
        /// Domain.
        domain: u32,
        /// Bus.
        bus: u8,
        /// Slot.
        slot: u8,
    },
}

/// Name of a device: its kind, and which of that kind if there are several.
///
/// The text is the kind alone for the first device (`nvrm`), or the kind with an index (`nvrm:1`, `sim:1`) or a PCI
/// address (`nvrm:0000:19:00.0`, `nvrm:19:00.0`).
///
/// ```
/// use tegra_hcq::{DeviceKind, DeviceName, Which};
///
/// let second: DeviceName = "nvrm:1".parse().unwrap();
/// assert_eq!(second, DeviceKind::Nvrm.nth(1));
/// let by_address: DeviceName = "nvrm:0000:19:00.0".parse().unwrap();
/// assert_eq!(by_address.which, Which::Pci { domain: 0, bus: 0x19, slot: 0 });
/// assert_eq!(by_address.to_string(), "nvrm:0000:19:00.0");
/// assert_eq!(DeviceName::from(DeviceKind::Sim).to_string(), "sim");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceName {
    /// The kind.
    pub kind: DeviceKind,
    /// Which of the kind.
    pub which: Which,
}

impl DeviceKind {
    /// Name of the device at `index` among those of the kind.
    #[must_use]
    pub const fn nth(self, index: usize) -> DeviceName {
        DeviceName { kind: self, which: Which::Index(index) }
    }
}

impl From<DeviceKind> for DeviceName {
    /// The first device of the kind.
    fn from(kind: DeviceKind) -> Self {
        kind.nth(0)
    }
}

impl core::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.which {
            Which::Index(0) => self.kind.fmt(f),
            Which::Index(index) => write!(f, "{}:{index}", self.kind),
            Which::Pci { domain, bus, slot } => {
                write!(f, "{}:{domain:04x}:{bus:02x}:{slot:02x}.0", self.kind)
            }
        }
    }
}

impl core::str::FromStr for DeviceName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let unknown = || Error::UnknownKind(name.to_owned());
        let Some((kind, which)) = name.split_once(':') else { return Ok(name.parse::<DeviceKind>()?.into()) };
        let kind: DeviceKind = kind.parse().map_err(|_| unknown())?;
        let which = if which.contains(':') {
            pci(which).ok_or_else(unknown)?
        } else if which.bytes().all(|byte| byte.is_ascii_digit()) {
            Which::Index(which.parse().map_err(|_| unknown())?)
        } else {
            return Err(unknown());
        };
        Ok(Self { kind, which })
    }
}

/// Parses a PCI address: `[domain:]bus:slot[.0]`, in hexadecimal.
fn pci(text: &str) -> Option<Which> {
    let text = text.strip_suffix(".0").unwrap_or(text);
    let fields: Vec<_> = text.split(':').collect();
    let (domain, [bus, slot]) = match *fields.as_slice() {
        [bus, slot] => ("0", [bus, slot]),
        [domain, bus, slot] => (domain, [bus, slot]),
        _ => return None,
    };
    if [domain, bus, slot].iter().any(|field| !field.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        return None;
    }
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let [bus, slot] = [bus, slot].map(|field| u8::from_str_radix(field, 16).ok());
    Some(Which::Pci { domain, bus: bus?, slot: slot? })
}

/// Properties of the GPU and the kind of the device. Dereferences to the driver's [`gpu_hal::Properties`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Kind of the device; never [`DeviceKind::Auto`].
    pub kind: DeviceKind,
    /// Which of its kind the device is, as it was opened.
    pub which: Which,
    /// Properties reported by the driver.
    pub gpu: gpu_hal::Properties,
}

impl Properties {
    /// The name that opens the device.
    pub fn name(&self) -> DeviceName {
        DeviceName { kind: self.kind, which: self.which }
    }
}

impl core::ops::Deref for Properties {
    type Target = gpu_hal::Properties;

    fn deref(&self) -> &gpu_hal::Properties {
        &self.gpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_printed() {
        for name in ["auto", "nvrm", "nvrm:1", "sim:1", "nvrm:0001:19:1f.0"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        assert_eq!("nvrm:0".parse::<DeviceName>().unwrap().to_string(), "nvrm");
        assert_eq!("nvrm:19:00".parse::<DeviceName>().unwrap().to_string(), "nvrm:0000:19:00.0");
        let wrong =
            ["", ":1", "other:1", "nvrm:", "nvrm:x", "nvrm:-1", "nvrm:1:2:3:4", "nvrm:+1:2", "nvrm:1:200"];
        for name in wrong {
            assert!(
                matches!(name.parse::<DeviceName>(), Err(Error::UnknownKind(text)) if text == name),
                "{name}"
            );
        }
    }
}
