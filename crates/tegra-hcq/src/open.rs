//! Opens a device and selects its driver by kind.

#[cfg(any(feature = "nvgpu", feature = "nvrm"))]
use std::sync::Arc;

use gpu_hal::Driver;
#[cfg(any(feature = "nvgpu", feature = "nvrm"))]
use kernel_door::{Door, LinuxDoor};

use crate::device::Device;
use crate::encodings::DeviceOptions;
use crate::error::{Error, Result};
use crate::heap::Observer;
use crate::kind::{DeviceKind, DeviceName, Which};
use crate::shared::Shared;

/// Whether a device node exists.
#[cfg(any(feature = "nvgpu", feature = "nvrm"))]
fn exists(node: &core::ffi::CStr) -> bool {
    rustix::fs::stat(node).is_ok()
}

/// Number of boards of the software Orin that are listed. Each open starts a board of its own.
#[cfg(feature = "sim")]
const BOARDS: usize = 2;

/// Number of boards of the software Orin that have a name.
#[cfg(feature = "sim")]
const MOST_BOARDS: usize = 16;

/// The observer of a driver, if a software GPU behind it checks.
fn observer(driver: &dyn Driver) -> Option<Box<dyn Observer>> {
    #[cfg(feature = "sim")]
    return crate::check::observer(driver);
    #[cfg(not(feature = "sim"))]
    driver.watcher().and(None)
}

/// The kind that [`DeviceKind::Auto`] selects here.
fn auto() -> DeviceKind {
    // The nodes of a program under `orin check` are the software Orin's, whose checks know more in the process.
    #[cfg(feature = "sim")]
    if std::env::var_os(orin_sim::check::AUTO_VARIABLE).is_some_and(|value| value == "1") {
        return DeviceKind::Sim;
    }
    #[cfg(feature = "nvgpu")]
    if exists(nvgpu_sys::paths::CTRL) {
        return DeviceKind::Nvgpu;
    }
    #[cfg(feature = "nvrm")]
    if exists(nvrm::CONTROL_NODE) {
        return DeviceKind::Nvrm;
    }
    DeviceKind::Sim
}

/// Number of devices of a kind that this process can open.
fn count(kind: DeviceKind) -> Result<usize> {
    match kind {
        #[cfg(feature = "nvgpu")]
        DeviceKind::Nvgpu => Ok(usize::from(exists(nvgpu_sys::paths::CTRL))),
        #[cfg(feature = "nvrm")]
        DeviceKind::Nvrm if exists(nvrm::CONTROL_NODE) => {
            let door: Arc<dyn Door> = Arc::new(LinuxDoor);
            Ok(nvrm::Gpu::list(&door).map_err(gpu_hal::Error::from)?.len())
        }
        #[cfg(feature = "sim")]
        DeviceKind::Sim => Ok(BOARDS),
        _ => Ok(0),
    }
}

/// The name, if it is an index below `count`.
#[cfg(any(feature = "nvgpu", feature = "sim"))]
fn one_of(name: DeviceName, count: usize) -> Result<DeviceName> {
    match name.which {
        Which::Index(index) if index < count => Ok(name),
        _ => Err(Error::NoSuchDevice { name, count }),
    }
}

impl Device {
    /// Opens a GPU by its name, or the first of a kind, with default options, which environment variables may
    /// override: see [`DeviceOptions`].
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    pub fn open(name: impl Into<DeviceName>) -> Result<Self> {
        DeviceOptions::new().open(name)
    }

    /// Opens the GPU at `index` among those of a kind, from 0.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// use tegra_hcq::{Device, DeviceKind};
    ///
    /// let boards = [Device::open_nth(DeviceKind::Sim, 0)?, Device::open_nth(DeviceKind::Sim, 1)?];
    /// assert_eq!(boards[1].info().name().to_string(), "sim:1");
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    pub fn open_nth(kind: DeviceKind, index: usize) -> Result<Self> {
        Self::open(kind.nth(index))
    }

    /// Names of the devices of a kind that this process can open. [`DeviceKind::Auto`] stands for the kind that it
    /// selects. Of the software Orin these are two boards; more, up to `sim:15`, can be opened.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver is present and does not list its GPUs.
    pub fn list(kind: DeviceKind) -> Result<Vec<DeviceName>> {
        let kind = if kind == DeviceKind::Auto { auto() } else { kind };
        Ok((0..count(kind)?).map(|index| kind.nth(index)).collect())
    }

    /// Opens another device of the same kind; `None` if there is none.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// let first = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// let second = first.open_other()?.expect("a second board");
    /// assert_ne!(first.info().name(), second.info().name());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Device::list`] and [`Device::open`].
    pub fn open_other(&self) -> Result<Option<Self>> {
        let own = self.info();
        // A device opened by its PCI address has an index as well.
        let address = |device: &Self| {
            device
                .info()
                .driver
                .iter()
                .filter(|(name, _)| name.starts_with("pci_"))
                .copied()
                .collect::<Vec<_>>()
        };
        for name in Self::list(own.kind)?.into_iter().filter(|name| *name != own.name()) {
            let other = Self::open(name)?;
            if matches!(own.which, Which::Index(_)) || address(&other) != address(self) {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// Opens the GPU behind a given door, for example a software Orin with custom options, or a door that records the
    /// calls passing through it. `name` selects the driver, and the GPU if the door leads to several; [`Device::info`]
    /// reports it.
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn open_through(door: Arc<dyn Door>, name: impl Into<DeviceName>) -> Result<Self> {
        DeviceOptions::new().open_through(door, name)
    }

    /// Opens only the driver of a device, without the device. A driver implemented by the caller can forward to it
    /// ([`Device::with_driver`]).
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn driver_through(door: Arc<dyn Door>, name: impl Into<DeviceName>) -> Result<Box<dyn Driver>> {
        DeviceOptions::new().driver_through(door, name)
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
    /// the remedy. [`Error::NoSuchDevice`] if there are fewer devices of the kind. [`Error::NoDriver`] if the library
    /// was built without the driver, [`Error::NoSoftwareOrin`] if it was built without the software Orin.
    /// [`Error::UnknownChip`] if the chip table does not contain the GPU's SM version. [`Error::Variable`] and
    /// [`Error::PcasAction`] for an option that is not permitted.
    pub fn open(&self, name: impl Into<DeviceName>) -> Result<Device> {
        let DeviceName { kind, which } = name.into();
        // Before the driver, which may take seconds to wake the GPU.
        let options = self.with_environment()?;
        match kind {
            DeviceKind::Nvgpu => options.open_nvgpu(which),
            DeviceKind::Nvrm => options.open_nvrm(which),
            DeviceKind::Sim => options.open_software(which),
            DeviceKind::Other => Err(Error::UnknownKind(kind.name().to_owned())),
            DeviceKind::Auto => options.open_auto(which),
        }
    }

    fn open_auto(&self, which: Which) -> Result<Device> {
        match auto() {
            DeviceKind::Nvgpu => self.open_nvgpu(which),
            DeviceKind::Nvrm => match self.open_nvrm(which) {
                Err(error) if which == Which::Index(0) => {
                    tracing::info!(%error, "the GPU of NVIDIA's desktop driver is not used");
                    self.open_software(which)
                }
                opened => opened,
            },
            _ => self.open_software(which),
        }
    }

    #[cfg(feature = "nvgpu")]
    fn open_nvgpu(&self, which: Which) -> Result<Device> {
        self.open_through(Arc::new(LinuxDoor), one_of(DeviceName { kind: DeviceKind::Nvgpu, which }, 1)?)
    }

    #[cfg(not(feature = "nvgpu"))]
    fn open_nvgpu(&self, _which: Which) -> Result<Device> {
        Err(Error::NoDriver { kind: "nvgpu", feature: "nvgpu" })
    }

    #[cfg(feature = "nvrm")]
    fn open_nvrm(&self, which: Which) -> Result<Device> {
        self.open_through(Arc::new(LinuxDoor), DeviceName { kind: DeviceKind::Nvrm, which })
    }

    #[cfg(not(feature = "nvrm"))]
    fn open_nvrm(&self, _which: Which) -> Result<Device> {
        Err(Error::NoDriver { kind: "nvrm", feature: "nvrm" })
    }

    #[cfg(feature = "sim")]
    fn open_software(&self, which: Which) -> Result<Device> {
        let name = one_of(DeviceName { kind: DeviceKind::Sim, which }, MOST_BOARDS)?;
        let started = orin_sim::SoftwareOrin::from_environment();
        let orin = started.map_err(|error| Error::SoftwareOrin(Box::new(error)))?;
        self.open_through(Arc::new(orin), name)
    }

    #[cfg(not(feature = "sim"))]
    fn open_software(&self, _which: Which) -> Result<Device> {
        Err(Error::NoSoftwareOrin)
    }

    /// As [`Device::open_through`], with these options.
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn open_through(&self, door: Arc<dyn Door>, name: impl Into<DeviceName>) -> Result<Device> {
        let (options, name) = (self.with_environment()?, name.into());
        options.over(options.driver_through(door, name)?, name)
    }

    /// As [`Device::driver_through`], with these options. The driver uses [`DeviceOptions::mapping`] alone.
    ///
    /// # Errors
    ///
    /// As [`DeviceOptions::open`].
    #[cfg(any(feature = "nvgpu", feature = "nvrm"))]
    pub fn driver_through(
        &self,
        door: Arc<dyn Door>,
        name: impl Into<DeviceName>,
    ) -> Result<Box<dyn Driver>> {
        let name = name.into();
        match name.kind {
            #[cfg(feature = "nvrm")]
            DeviceKind::Nvrm => {
                self.with_environment()?;
                Ok(Box::new(crate::adapter::nvrm::Nvrm::open(&door, name.which)?))
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
        self.with_environment()?.over(driver, DeviceKind::Other.into())
    }

    /// Opens a device on a driver; the options are complete.
    fn over(&self, driver: Box<dyn Driver>, name: DeviceName) -> Result<Device> {
        let _span = tracing::debug_span!("open", %name).entered();
        let observer = observer(&*driver);
        let shared = Shared::new(driver, name, self, observer)?;
        let properties = shared.driver().properties();
        tracing::info!(
            chip = properties.chip,
            %name,
            sms = properties.sm_count,
            compute_class = format_args!("{:#x}", properties.compute_class),
            encodings = ?shared.encodings(),
            "device opened"
        );
        Ok(Device::from_shared(shared))
    }
}
