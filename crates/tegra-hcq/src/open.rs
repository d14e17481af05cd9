//! Opens a device and selects its driver by kind.

#[cfg(any(feature = "nvgpu", feature = "nvrm"))]
use std::sync::Arc;

use gpu_hal::Driver;
#[cfg(any(feature = "nvgpu", feature = "nvrm"))]
use nvgpu_sys::{Door, LinuxDoor};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::kind::DeviceKind;
use crate::shared::Shared;

/// Whether a device node exists.
#[cfg(any(feature = "nvgpu", feature = "nvrm"))]
fn exists(node: &core::ffi::CStr) -> bool {
    rustix::fs::stat(node).is_ok()
}

impl Device {
    /// Opens a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the device, the permission or a feature of its driver is missing; the message names it and
    /// the remedy. [`Error::NoDriver`] if the library was built without the driver, [`Error::NoSoftwareOrin`] if it was
    /// built without the software Orin. [`Error::UnknownChip`] if the chip table does not contain the GPU's SM version.
    pub fn open(kind: DeviceKind) -> Result<Self> {
        match kind {
            DeviceKind::Nvgpu => Self::open_nvgpu(),
            DeviceKind::Nvrm => Self::open_nvrm(),
            DeviceKind::Sim => Self::open_software(),
            DeviceKind::Other => Err(Error::UnknownKind(kind.name().to_owned())),
            DeviceKind::Auto => Self::open_auto(),
        }
    }

    fn open_auto() -> Result<Self> {
        #[cfg(feature = "nvgpu")]
        if exists(nvgpu_sys::paths::CTRL) {
            return Self::open_nvgpu();
        }
        #[cfg(feature = "nvrm")]
        if exists(nvrm::CONTROL_NODE) {
            return Self::open_nvrm().or_else(|error| {
                tracing::info!(%error, "the GPU of NVIDIA's desktop driver is not used");
                Self::open_software()
            });
        }
        Self::open_software()
    }

    #[cfg(feature = "nvgpu")]
    fn open_nvgpu() -> Result<Self> {
        Self::open_through(Arc::new(LinuxDoor), DeviceKind::Nvgpu)
    }

    #[cfg(not(feature = "nvgpu"))]
    fn open_nvgpu() -> Result<Self> {
        Err(Error::NoDriver { kind: "nvgpu", feature: "nvgpu" })
    }

    #[cfg(feature = "nvrm")]
    fn open_nvrm() -> Result<Self> {
        Self::open_through(Arc::new(LinuxDoor), DeviceKind::Nvrm)
    }

    #[cfg(not(feature = "nvrm"))]
    fn open_nvrm() -> Result<Self> {
        Err(Error::NoDriver { kind: "nvrm", feature: "nvrm" })
    }

    #[cfg(feature = "sim")]
    fn open_software() -> Result<Self> {
        let orin =
            orin_sim::SoftwareOrin::new(orin_sim::Config::from_environment()).map_err(Error::SoftwareOrin)?;
        Self::open_through(Arc::new(orin), DeviceKind::Sim)
    }

    #[cfg(not(feature = "sim"))]
    fn open_software() -> Result<Self> {
        Err(Error::NoSoftwareOrin)
    }

    /// Opens the GPU behind a given door, for example a software Orin with custom options, or a door that records the
    /// calls passing through it. `kind` selects the driver and is the kind that [`Device::info`] reports.
    ///
    /// # Errors
    ///
    /// As [`Device::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn open_through(door: Arc<dyn Door>, kind: DeviceKind) -> Result<Self> {
        Self::over(Self::driver_through(door, kind)?, kind)
    }

    /// Opens only the driver of a device, without the device. A driver implemented by the caller can forward to it
    /// ([`Device::with_driver`]).
    ///
    /// # Errors
    ///
    /// As [`Device::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn driver_through(door: Arc<dyn Door>, kind: DeviceKind) -> Result<Box<dyn Driver>> {
        match kind {
            #[cfg(feature = "nvrm")]
            DeviceKind::Nvrm => Ok(Box::new(crate::adapter::nvrm::Nvrm::open(&door)?)),
            #[cfg(feature = "nvgpu")]
            DeviceKind::Nvgpu | DeviceKind::Sim | DeviceKind::Auto => {
                Ok(Box::new(crate::adapter::nvgpu::Nvgpu::open(&door)?))
            }
            other => Err(Error::NoDriver { kind: other.name(), feature: other.name() }),
        }
    }

    /// Opens a device on a driver implemented by the caller.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver cannot allocate memory for the timelines. [`Error::UnknownChip`] if the chip
    /// table does not contain the SM version that the driver reports.
    pub fn with_driver(driver: Box<dyn Driver>) -> Result<Self> {
        Self::over(driver, DeviceKind::Other)
    }

    fn over(driver: Box<dyn Driver>, kind: DeviceKind) -> Result<Self> {
        let _span = tracing::debug_span!("open", kind = kind.name()).entered();
        let shared = Shared::new(driver, kind)?;
        let properties = shared.driver().properties();
        tracing::info!(
            chip = properties.chip,
            kind = kind.name(),
            sms = properties.sm_count,
            compute_class = format_args!("{:#x}", properties.compute_class),
            "device opened"
        );
        Ok(Self::from_shared(shared))
    }
}
