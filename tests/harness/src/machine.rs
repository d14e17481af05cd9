//! The machine that runs the tests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernel_door::{Door, LinuxDoor};
use nvgpu_channel::Gpu;
use nvgpu_sys::paths;
use orin_sim::{Config, MmuOrder, SettingsError, SoftwareOrin};
use tegra_hcq::{DeviceKind, DeviceName, Error, Which};

use super::log::Pace;
use super::{Suite, Test};

/// The node of NVIDIA's desktop driver.
const NVRM_NODE: &str = "/dev/nvidiactl";
/// Number of boards of the software Orin.
const BOARDS: usize = 2;
/// Scale factor for long tests on the software Orin, which interprets kernels.
const MODEL_SCALE: f64 = 0.02;
/// Shortest wait on the software Orin; other programs may load the machine.
const MODEL_PATIENCE: Duration = Duration::from_secs(60);

/// A board, or software Orins.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    kind: DeviceKind,
    which: Which,
    scale: f64,
    pub(crate) load: Load,
    pub(crate) pace: Pace,
    /// Whether lines of the driver without a row in the table of log lines fail a test.
    pub(crate) strict_log: bool,
    /// Whether tests run that may leave a board's GPU unusable until it is rebooted.
    dangerous: bool,
    /// Order and delay of the software Orin's reports about faults, if they differ from its configuration.
    reports: Option<(MmuOrder, Duration)>,
}

/// Settings of load tests: duration, seed, progress callback.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Duration of each load test; `None` for the test's default.
    pub duration: Option<Duration>,
    /// Seed of the random decisions; `None` for a random seed.
    pub seed: Option<u64>,
    /// Called each second with one line of progress.
    pub ticker: Option<fn(&str)>,
    /// Ends the run once it is true: the running test may end itself, the others are skipped.
    pub stop: Option<&'static AtomicBool>,
}

/// A test's view of the machine: the door, and the software Orin if it is one.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) door: Arc<dyn Door>,
    pub(crate) orin: Option<SoftwareOrin>,
}

impl Machine {
    /// The machine named by `name`; `auto` is the board if there is one.
    ///
    /// # Errors
    ///
    /// A message if this machine has no such device or the suites do not support it.
    pub fn choose(name: impl Into<DeviceName>) -> Result<Self, String> {
        let name = name.into();
        let this = Self { which: name.which, ..Self::of_kind(name.kind)? };
        let count = if this.is_model() { BOARDS } else { 1 };
        match name.which {
            Which::Index(index) if index < count || this.kind == DeviceKind::Nvrm => Ok(this),
            Which::Pci { .. } if this.kind == DeviceKind::Nvrm => Ok(this),
            _ => Err(Error::NoSuchDevice { name, count }.to_string()),
        }
    }

    fn of_kind(kind: DeviceKind) -> Result<Self, String> {
        let board = paths::CTRL.to_str().is_ok_and(|path| Path::new(path).exists());
        match kind {
            DeviceKind::Nvgpu if !board => Err(format!(
                "{} does not exist: this is not a Jetson Orin with JetPack 6; --device sim runs on the software \
                 Orin",
                paths::CTRL.to_string_lossy()
            )),
            DeviceKind::Nvgpu => Ok(Self::board()),
            DeviceKind::Auto if board => Ok(Self::board()),
            DeviceKind::Auto | DeviceKind::Sim => Ok(Self::software()),
            DeviceKind::Nvrm if !Path::new(NVRM_NODE).exists() => {
                Err(format!("{NVRM_NODE} does not exist: NVIDIA's desktop driver is not loaded"))
            }
            DeviceKind::Nvrm => Ok(Self { kind: DeviceKind::Nvrm, strict_log: true, ..Self::board() }),
            other => Err(format!("the suites do not run on {other}: choose auto, nvgpu, nvrm or sim")),
        }
    }

    /// The board, without checking that it exists.
    pub(crate) fn board() -> Self {
        let (kind, pace) = (DeviceKind::Nvgpu, Pace::BOARD);
        Self {
            kind,
            which: Which::Index(0),
            scale: 1.0,
            load: Load::default(),
            pace,
            strict_log: false,
            dangerous: false,
            reports: None,
        }
    }

    /// Software Orins, one per test.
    pub fn software() -> Self {
        let (kind, pace) = (DeviceKind::Sim, Pace::MODEL);
        Self {
            kind,
            which: Which::Index(0),
            scale: MODEL_SCALE,
            load: Load::default(),
            pace,
            strict_log: true,
            dangerous: false,
            reports: None,
        }
    }

    /// Whether the user wants to end the run.
    pub(crate) fn is_stopped(&self) -> bool {
        self.load.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// The same with another factor, between 0 and 1, for durations and numbers of rounds.
    ///
    /// # Panics
    ///
    /// If the factor is outside this range.
    #[must_use]
    pub fn with_scale(self, scale: f64) -> Self {
        assert!(scale > 0.0 && scale <= 1.0, "scale {scale}");
        Self { scale, ..self }
    }

    /// The same with another load.
    #[must_use]
    pub fn with_load(self, load: Load) -> Self {
        Self { load, ..self }
    }

    /// The same machine, waiting otherwise for late lines of the log.
    #[must_use]
    pub fn with_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// The same machine; lines of the driver without a row in the table of log lines fail a test. By default they
    /// do so except on an Orin's board, where the table has not been tried.
    #[must_use]
    pub fn with_strict_log(self) -> Self {
        Self { strict_log: true, ..self }
    }

    /// The same machine; on an Orin's board, tests run that may leave its GPU unusable until it is rebooted.
    #[must_use]
    pub fn with_dangerous(self) -> Self {
        Self { dangerous: true, ..self }
    }

    /// Why a test does not run on this machine; `None` if it does.
    pub(crate) fn leaves_out(&self, suite: &Suite, test: &Test) -> Option<&'static str> {
        if suite.orin_only && self.kind == DeviceKind::Nvrm {
            return Some("uses requests of the Orin's driver; this GPU has another driver");
        }
        if test.dangerous && self.kind == DeviceKind::Nvgpu && !self.dangerous {
            return Some("may leave the GPU unusable until a reboot; --dangerous runs it");
        }
        None
    }

    /// The same software Orin with another order and delay of the reports about faults. A board is unchanged.
    #[must_use]
    pub fn with_reports(self, order: MmuOrder, late_lines: Duration) -> Self {
        Self { reports: Some((order, late_lines)), ..self }
    }

    /// `Nvgpu`, `Nvrm` or `Sim`.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Name of the device.
    pub fn name(&self) -> DeviceName {
        DeviceName { kind: self.kind, which: self.which }
    }

    /// Whether it is a model.
    pub fn is_model(&self) -> bool {
        self.kind == DeviceKind::Sim
    }

    /// The factor for durations and numbers of rounds.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Time limit for an operation that takes at most `time` on a board.
    pub fn patience(&self, time: Duration) -> Duration {
        if self.is_model() { time.max(MODEL_PATIENCE) } else { time }
    }

    /// A door to the board, or to a new software Orin.
    ///
    /// # Errors
    ///
    /// If the software Orin cannot be started.
    pub fn door(&self) -> Result<Arc<dyn Door>, SettingsError> {
        Ok(self.open()?.door)
    }

    /// Like [`Machine::door`], with the software Orin.
    pub(crate) fn open(&self) -> Result<Opened, SettingsError> {
        if !self.is_model() {
            return Ok(Opened { door: Arc::new(LinuxDoor), orin: None });
        }
        let mut config = Config::from_environment()?;
        if let Some((order, late_lines)) = self.reports {
            (config.faults.mmu_order, config.faults.late_lines) = (order, late_lines);
        }
        let orin = SoftwareOrin::new(config)?;
        Ok(Opened { door: Arc::new(orin.clone()), orin: Some(orin) })
    }

    /// One line about the GPU, or the reason why it cannot be opened.
    pub fn describe(&self) -> String {
        let door = match self.door() {
            Ok(door) => door,
            Err(error) => return format!("the software Orin does not start: {error}"),
        };
        if self.kind == DeviceKind::Nvrm {
            return match tegra_hcq::Device::open_through(door, self.name()) {
                Ok(device) => {
                    let info = device.info();
                    let (major, minor) = info.sm_version;
                    format!("{}: {}, {} SMs (SM {major}.{minor})", self.name(), info.chip, info.sm_count)
                }
                Err(error) => format!("{}: {error}", self.name()),
            };
        }
        match Gpu::open(&door) {
            Ok(gpu) => {
                let seen = gpu.characteristics();
                let (major, minor) = seen.sm_version();
                let (chip, sms) = (seen.chip_name(), seen.sm_count());
                format!("{}: {chip}, {sms} SMs (SM {major}.{minor})", door.name())
            }
            Err(error) => format!("{}: {error}", door.name()),
        }
    }
}
