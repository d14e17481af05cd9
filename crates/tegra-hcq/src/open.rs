//! Opens a device and selects its driver by kind.

#[cfg(any(feature = "nvgpu", feature = "nvrm"))]
use std::sync::Arc;

use gpu_hal::Driver;
#[cfg(any(feature = "nvgpu", feature = "nvrm"))]
use nvgpu_sys::{Door, LinuxDoor};

use crate::device::Device;
use crate::encodings::DeviceOptions;
use crate::error::{Error, Result};
use crate::kind::DeviceKind;
use crate::shared::Shared;

/// Whether a device node exists.
#[cfg(any(feature = "nvgpu", feature = "nvrm"))]
fn exists(node: &core::ffi::CStr) -> bool {
    rustix::fs::stat(node).is_ok()
}

impl Device {
    /// Opens a GPU with default options, which environment variables may override: see [`DeviceOptions`].
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    pub fn open(kind: DeviceKind) -> Result<Self> {
        DeviceOptions::new().open(kind)
    }

    /// Opens the GPU behind a given door, for example a software Orin with custom options, or a door that records the
    /// calls passing through it. `kind` selects the driver and is the kind that [`Device::info`] reports.
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn open_through(door: Arc<dyn Door>, kind: DeviceKind) -> Result<Self> {
        DeviceOptions::new().open_through(door, kind)
    }

    /// Opens only the driver of a device, without the device. A driver implemented by the caller can forward to it
    /// ([`Device::with_driver`]).
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn driver_through(door: Arc<dyn Door>, kind: DeviceKind) -> Result<Box<dyn Driver>> {
        DeviceOptions::new().driver_through(door, kind)
    }

    /// Opens a device on a driver implemented by the caller.
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::with_driver`].
    pub fn with_driver(driver: Box<dyn Driver>) -> Result<Self> {
        DeviceOptions::new().with_driver(driver)
    }
}

impl DeviceOptions {
    /// Opens a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the device, the permission or a feature of its driver is missing; the message names it and
    /// the remedy. [`Error::NoDriver`] if the library was built without the driver, [`Error::NoSoftwareOrin`] if it was
    /// built without the software Orin. [`Error::UnknownChip`] if the chip table does not contain the GPU's SM version.
    /// [`Error::Variable`] and [`Error::PcasAction`] for an option that is not permitted.
    pub fn open(&self, kind: DeviceKind) -> Result<Device> {
        // Before the driver, which may take seconds to wake the GPU.
        let options = self.with_environment()?;
        match kind {
            DeviceKind::Nvgpu => options.open_nvgpu(),
            DeviceKind::Nvrm => options.open_nvrm(),
            DeviceKind::Sim => options.open_software(),
            DeviceKind::Other => Err(Error::UnknownKind(kind.name().to_owned())),
            DeviceKind::Auto => options.open_auto(),
        }
    }

    fn open_auto(&self) -> Result<Device> {
        #[cfg(feature = "nvgpu")]
        if exists(nvgpu_sys::paths::CTRL) {
            return self.open_nvgpu();
        }
        #[cfg(feature = "nvrm")]
        if exists(nvrm::CONTROL_NODE) {
            return self.open_nvrm().or_else(|error| {
                tracing::info!(%error, "the GPU of NVIDIA's desktop driver is not used");
                self.open_software()
            });
        }
        self.open_software()
    }

    #[cfg(feature = "nvgpu")]
    fn open_nvgpu(&self) -> Result<Device> {
        self.open_through(Arc::new(LinuxDoor), DeviceKind::Nvgpu)
    }

    #[cfg(not(feature = "nvgpu"))]
    fn open_nvgpu(&self) -> Result<Device> {
        Err(Error::NoDriver { kind: "nvgpu", feature: "nvgpu" })
    }

    #[cfg(feature = "nvrm")]
    fn open_nvrm(&self) -> Result<Device> {
        self.open_through(Arc::new(LinuxDoor), DeviceKind::Nvrm)
    }

    #[cfg(not(feature = "nvrm"))]
    fn open_nvrm(&self) -> Result<Device> {
        Err(Error::NoDriver { kind: "nvrm", feature: "nvrm" })
    }

    #[cfg(feature = "sim")]
    fn open_software(&self) -> Result<Device> {
        let started = orin_sim::SoftwareOrin::from_environment();
        let orin = started.map_err(|error| Error::SoftwareOrin(Box::new(error)))?;
        self.open_through(Arc::new(orin), DeviceKind::Sim)
    }

    #[cfg(not(feature = "sim"))]
    fn open_software(&self) -> Result<Device> {
        Err(Error::NoSoftwareOrin)
    }

    /// As [`Device::open_through`], with these options.
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn open_through(&self, door: Arc<dyn Door>, kind: DeviceKind) -> Result<Device> {
        let options = self.with_environment()?;
        options.over(options.driver_through(door, kind)?, kind)
    }

    /// As [`Device::driver_through`], with these options. The driver uses [`DeviceOptions::mapping`] alone.
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn driver_through(&self, door: Arc<dyn Door>, kind: DeviceKind) -> Result<Box<dyn Driver>> {
        match kind {
            #[cfg(feature = "nvrm")]
            DeviceKind::Nvrm => {
                self.with_environment()?;
                Ok(Box::new(crate::adapter::nvrm::Nvrm::open(&door)?))
            }
            #[cfg(feature = "nvgpu")]
            DeviceKind::Nvgpu | DeviceKind::Sim | DeviceKind::Auto => {
                let mapping = self.with_environment()?.mapping;
                Ok(Box::new(crate::adapter::nvgpu::Nvgpu::open(&door, mapping)?))
            }
            other => Err(Error::NoDriver { kind: other.name(), feature: other.name() }),
        }
    }

    /// As [`Device::with_driver`], with these options.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver cannot allocate memory for the timelines. [`Error::UnknownChip`] if the chip
    /// table does not contain the SM version that the driver reports. [`Error::Variable`] and [`Error::PcasAction`] for
    /// an option that is not permitted.
    pub fn with_driver(&self, driver: Box<dyn Driver>) -> Result<Device> {
        self.with_environment()?.over(driver, DeviceKind::Other)
    }

    /// Opens a device on a driver; the options are complete.
    fn over(&self, driver: Box<dyn Driver>, kind: DeviceKind) -> Result<Device> {
        let _span = tracing::debug_span!("open", kind = kind.name()).entered();
        let shared = Shared::new(driver, kind, self)?;
        let properties = shared.driver().properties();
        tracing::info!(
            chip = properties.chip,
            kind = kind.name(),
            sms = properties.sm_count,
            compute_class = format_args!("{:#x}", properties.compute_class),
            encodings = ?shared.encodings(),
            "device opened"
        );
        Ok(Device::from_shared(shared))
    }
}
