//! The environment of a test.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use kernel_door::Door;
use nvgpu_channel::Gpu;
use nvmap::Nvmap;
use orin_sim::SoftwareOrin;
use parking_lot::Mutex;
use tegra_hcq::{Device, DeviceKind, DeviceName, Queue};

use super::machine::Opened;
use super::{Machine, Neighbour, Role};

/// A door and, after the first request, the device opened through it.
#[derive(Clone, Debug)]
pub(crate) struct Station {
    pub(crate) door: Arc<dyn Door>,
    orin: Option<SoftwareOrin>,
    device: Arc<OnceLock<Device>>,
}

impl Station {
    pub(crate) fn new(opened: Opened) -> Self {
        Self { door: opened.door, orin: opened.orin, device: Arc::default() }
    }
}

/// The environment of one test.
#[derive(Debug)]
pub struct Context {
    machine: Machine,
    station: Station,
    notes: Mutex<Vec<String>>,
}

impl Context {
    pub(crate) fn new(machine: Machine, station: Station) -> Self {
        Self { machine, station, notes: Mutex::default() }
    }

    /// `Nvgpu`, `Nvrm` or `Sim`.
    pub fn kind(&self) -> DeviceKind {
        self.machine.kind()
    }

    /// Name of the device under test.
    pub fn name(&self) -> DeviceName {
        self.machine.name()
    }

    /// Whether the test runs on a model, where timings are meaningless.
    pub fn is_model(&self) -> bool {
        self.machine.is_model()
    }

    /// The door to the kernel, real or modelled, for tests below the device.
    pub fn door(&self) -> &Arc<dyn Door> {
        &self.station.door
    }

    /// The software Orin behind the door, for operations only a model supports; `None` on a board.
    pub fn orin(&self) -> Option<&SoftwareOrin> {
        self.station.orin.as_ref()
    }

    /// Starts another process on the same GPU.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn neighbour(&self, role: Role, argument: u64) -> Result<Neighbour, std::io::Error> {
        Neighbour::start(self, role, argument)
    }

    /// As [`Context::neighbour`], with up to two files that the other process gets, as from a message with SCM_RIGHTS.
    /// The role's argument has the number of the first in its lower half, and of the second in its upper half; 0 for
    /// none.
    ///
    /// # Errors
    ///
    /// As [`Context::neighbour`].
    pub fn neighbour_with(&self, role: Role, files: &[BorrowedFd<'_>]) -> Result<Neighbour, std::io::Error> {
        Neighbour::start_with(self, role, files)
    }

    pub(crate) fn machine(&self) -> Machine {
        self.machine
    }

    /// The device, opened at the first call: the test's own, or the suite's for tests that
    /// [share](super::Test::sharing_device) it.
    ///
    /// # Errors
    ///
    /// Those of [`Device::open_through`].
    pub fn device(&self) -> Result<&Device, tegra_hcq::Error> {
        if let Some(device) = self.station.device.get() {
            return Ok(device);
        }
        let device = Device::open_through(Arc::clone(self.door()), self.machine.name())?;
        // Tests run one after another, so no other test opened it in between.
        Ok(self.station.device.get_or_init(|| device))
    }

    /// The device and a new queue.
    ///
    /// # Errors
    ///
    /// Those of [`Context::device`] and [`Device::queue`].
    pub fn device_and_queue(&self) -> Result<(&Device, Queue), tegra_hcq::Error> {
        let device = self.device()?;
        Ok((device, device.queue()?))
    }

    /// A second device, newly opened: another GPU of the driver, or another software Orin.
    ///
    /// # Errors
    ///
    /// [`Skip`](super::Skip) if there is no other GPU; those of [`Device::open_other`].
    pub fn second_device(&self) -> Result<Device, Box<dyn std::error::Error + Send + Sync>> {
        if self.is_model() {
            return Ok(Device::open_through(self.machine.door()?, DeviceKind::Sim.nth(1))?);
        }
        let first = self.device()?;
        if let Some(other) = first.open_other()? {
            return Ok(other);
        }
        let chip = &first.info().chip;
        Err(super::Skip(format!("needs a second GPU; this machine has only one {chip}")).into())
    }

    /// The GPU without the layers above `nvgpu-channel`; a new one per call.
    ///
    /// # Errors
    ///
    /// Those of [`Gpu::open`].
    pub fn gpu(&self) -> Result<Gpu, nvgpu_channel::Error> {
        Gpu::open(self.door())
    }

    /// The memory allocator; a new client per call.
    ///
    /// # Errors
    ///
    /// Those of [`Nvmap::open`].
    pub fn nvmap(&self) -> Result<Nvmap, nvmap::Error> {
        Nvmap::open(self.door())
    }

    /// Duration of a test that takes `full` on a board; shorter on a model, by the run's factor.
    pub fn scaled(&self, full: Duration) -> Duration {
        full.mul_f64(self.machine.scale())
    }

    /// Duration of a load test: the run's setting, or else as [`Context::scaled`].
    pub fn load_time(&self, full: Duration) -> Duration {
        self.machine.load.duration.unwrap_or_else(|| self.scaled(full))
    }

    /// Whether the user wants to end the run. A long test then ends with [`Skip`](super::Skip).
    pub fn is_stopped(&self) -> bool {
        self.machine.is_stopped()
    }

    /// Seed of a load test: the run's setting, or else random.
    pub fn seed(&self) -> u64 {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.machine.load.seed.unwrap_or_else(|| u64::from(now().subsec_nanos()) ^ (now().as_secs() << 20))
    }

    /// Reports the progress of the test in one line.
    pub fn tick(&self, text: &str) {
        if let Some(ticker) = self.machine.load.ticker {
            ticker(text);
        }
    }

    /// Number of rounds of a test with `full` rounds on a board; fewer on a model, but at least `least`.
    pub fn rounds(&self, full: u64, least: u64) -> u64 {
        // CAST: a fraction of a u64, rounded; exact below 2^53.
        ((full as f64 * self.machine.scale()).round() as u64).max(least.min(full))
    }

    /// Time limit for an operation that takes at most `time` on a board; longer on a model.
    pub fn patience(&self, time: Duration) -> Duration {
        self.machine.patience(time)
    }

    /// Adds a measurement or an observation to the report.
    pub fn note(&self, text: impl Into<String>) {
        self.notes.lock().push(text.into());
    }

    /// The notes so far.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock())
    }
}
