//! A model on a device, and the bandwidth that limits its speed.

use std::time::{Duration, Instant};

use anyhow::Result;
use infer::decode::{Engine, EngineOptions, Layers, Memory, Session, SessionOptions};
use infer::model::{KvFormat, Model};
use orin_cli::profile::DEVICE;
use orin_cli::{Progress, UsageError};
use tegra_hcq::{Device, DeviceKind, DeviceName, Properties};

use super::{megabytes, refused};

/// Default positions of a context.
const DEFAULT_CONTEXT: usize = 4096;

/// Options of the commands that run a model.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct DeviceOptions {
    /// The device
    #[arg(long, help = DEVICE, default_value_t = DeviceKind::Auto.into())]
    device: DeviceName,
    /// Bandwidth of the device's memory in GB/s, for the share that the model uses [default: that of known devices]
    #[arg(long, value_name = "GB/S")]
    bandwidth: Option<f64>,
}

/// Memory bandwidth in GB/s of a Jetson AGX Orin: 256 bits of LPDDR5 at 6,400 MT/s.
pub(super) const ORIN_BANDWIDTH: f64 = 204.8;

/// Memory bandwidth in GB/s of devices by a part of their chip's name: figures of data sheets.
const BANDWIDTHS: [(&str, f64); 4] =
    [("ga10b", ORIN_BANDWIDTH), ("H200", 4800.0), ("H100", 3350.0), ("A100", 2039.0)];

impl DeviceOptions {
    /// Opens the device.
    pub(super) fn open(&self) -> Result<Device> {
        if self.bandwidth.is_some_and(|bandwidth| !(bandwidth.is_finite() && bandwidth > 0.0)) {
            return Err(UsageError("--bandwidth must be positive".to_owned()).into());
        }
        Device::open(self.device).map_err(|error| UsageError(error.to_string()).into())
    }

    /// Bandwidth of a device's memory in GB/s; `None` if it is not known, or not a real device's.
    pub(super) fn bandwidth(&self, info: &Properties) -> Option<f64> {
        let known = BANDWIDTHS.iter().find(|(name, _)| info.chip.contains(name));
        let real = known.filter(|_| info.kind != DeviceKind::Sim);
        self.bandwidth.or(real.map(|(_, bandwidth)| *bandwidth))
    }
}

/// How layers are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LayersOption {
    /// One launch where that is faster, else a graph
    #[default]
    Fastest,
    /// A graph of launches
    Graph,
    /// One launch for all layers
    Persistent,
}

impl LayersOption {
    /// The options of a session that has the GPU for itself.
    pub(super) fn session(self) -> SessionOptions {
        SessionOptions::default().layers(match self {
            Self::Fastest => Layers::Fastest,
            Self::Graph => Layers::Graph,
            Self::Persistent => Layers::Persistent,
        })
    }
}

/// How contexts store keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum KvOption {
    /// Halves
    #[default]
    F16,
    /// 8-bit integers with a scale for 32 of them: about half the memory
    #[value(name = "q8_0")]
    Q8_0,
}

impl From<KvOption> for KvFormat {
    fn from(option: KvOption) -> Self {
        match option {
            KvOption::F16 => Self::F16,
            KvOption::Q8_0 => Self::Q8_0,
        }
    }
}

/// The contexts of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contexts {
    pub(super) sessions: usize,
    /// Of each session.
    pub(super) positions: usize,
    pub(super) kv: KvFormat,
}

/// A model that is ready to run.
pub(super) struct Loaded {
    pub(super) engine: Engine,
    pub(super) sessions: Vec<Session>,
    pub(super) memory: Memory,
    /// From the open file to the ready session.
    pub(super) time: Duration,
}

impl Loaded {
    /// Copies a model to a device, and makes sessions.
    pub(super) fn new(device: &Device, model: &Model, contexts: Contexts) -> Result<Self> {
        Self::with(device, model, contexts, &SessionOptions::default())
    }

    /// As [`Loaded::new`], with options of the sessions.
    pub(super) fn with(
        device: &Device,
        model: &Model,
        Contexts { sessions, positions, kv }: Contexts,
        options: &SessionOptions,
    ) -> Result<Self> {
        let start = Instant::now();
        let memory = Memory::on(device, model, positions, kv).map_err(refused)?.sessions(sessions as u64);
        memory.check(device)?;
        let progress = Progress::new("loading");
        let engine =
            Engine::load_with(device, model, positions, &EngineOptions::default().kv(kv), |done, all| {
                progress.set(&format!("loading {} of {}", megabytes(done), megabytes(all)));
            })
            .map_err(refused)?;
        let sessions = (0..sessions)
            .map(|_| engine.session_with(positions, options).map_err(refused))
            .collect::<Result<_>>()?;
        Ok(Self { engine, sessions, memory, time: start.elapsed() })
    }
}

/// Positions of a session: the requested ones, or the default, or the model's if it has fewer.
pub(super) fn context(asked: Option<usize>, model: &Model) -> usize {
    asked.unwrap_or_else(|| DEFAULT_CONTEXT.min(model.shape().context))
}

/// Bytes that a token at `position` reads: weights, keys and values.
pub(super) fn bytes_at(model: &Model, kv: KvFormat, position: f64) -> f64 {
    // CAST: positions are below 2^31.
    model.bytes_per_token() as f64 + model.shape().kv_bytes_read(kv, position.round() as usize) as f64
}
