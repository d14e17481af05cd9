//! Devices on software Orins, fixture kernels, reproducible data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orin_sim::{Config, LiveCounts, SoftwareOrin};
use tegra_hcq::{Arg, Device, DeviceKind, Dim3, Error, Program, Queue, QueueOptions, WaitPolicy};

use crate::probe::Probe;

/// Longest wait for a kernel; generous, because other tests may load the machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The workspace root.
pub fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A fixture cubin, `kernels/NAME.cubin`.
///
/// # Panics
///
/// If the file cannot be read.
pub fn cubin(name: &str) -> Vec<u8> {
    let path = workspace().join("kernels").join(format!("{name}.cubin"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Asserts that the board has as many objects as `expected`, at the latest after 10 s: from fork to exec, a child that
/// another test starts holds the descriptors of this process, also those that are closed here in the meantime.
///
/// # Panics
///
/// If it still has others then.
pub fn assert_live(orin: &SoftwareOrin, expected: LiveCounts) {
    let start = Instant::now();
    while orin.live() != expected && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(orin.live(), expected);
}

/// The configuration of the environment, for tests that change it.
///
/// # Panics
///
/// If a variable has no valid value.
pub fn config() -> Config {
    Config::from_environment().expect("valid settings")
}

/// A software Orin with the given configuration and a device on it.
///
/// # Panics
///
/// If the software Orin cannot be started.
pub fn try_open(config: Config) -> (SoftwareOrin, Result<Device, Error>) {
    let orin = SoftwareOrin::new(config).expect("the software Orin starts");
    let device = Device::open_through(Arc::new(orin.clone()), DeviceKind::Sim);
    (orin, device)
}

/// A device with one fixture program and one queue, on its own software Orin.
pub struct Bench {
    /// The software Orin behind the device.
    pub orin: SoftwareOrin,
    /// The probe that counts its calls.
    pub probe: Arc<Probe>,
    /// The device.
    pub device: Device,
    /// The program.
    pub program: Program,
    /// The queue.
    pub queue: Queue,
}

impl Bench {
    /// Loads `kernels/NAME.cubin`.
    ///
    /// # Panics
    ///
    /// If a step fails.
    pub fn new(name: &str) -> Self {
        Self::with_options(name, &QueueOptions::default())
    }

    /// Like [`Bench::new`], with a queue that waits without system calls.
    ///
    /// # Panics
    ///
    /// If a step fails.
    pub fn spinning(name: &str) -> Self {
        Self::with_options(name, &QueueOptions::default().wait(WaitPolicy::Spin))
    }

    /// Like [`Bench::new`], with queue options.
    ///
    /// # Panics
    ///
    /// If a step fails.
    pub fn with_options(name: &str, options: &QueueOptions) -> Self {
        let orin = SoftwareOrin::from_environment().expect("the software Orin starts");
        let probe = Arc::new(Probe::new(orin.clone()));
        let device =
            Device::open_through(Arc::clone(&probe) as _, DeviceKind::Sim).expect("the device opens");
        let program = Program::load(&device, &cubin(name)).expect("the program loads");
        let queue = device.queue_with(options).expect("the queue opens");
        Self { orin, probe, device, program, queue }
    }

    /// Runs a kernel and waits for it.
    ///
    /// # Errors
    ///
    /// Those of launch, submit and wait.
    ///
    /// # Safety
    ///
    /// As for [`Queue::launch`].
    pub unsafe fn try_run(
        &mut self,
        kernel: &str,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: &[Arg<'_>],
    ) -> Result<(), Error> {
        let kernel = self.program.kernel(kernel)?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.queue.launch(&kernel, grid, block, arguments)? };
        self.queue.wait(TIMEOUT)
    }

    /// Like [`Bench::try_run`].
    ///
    /// # Panics
    ///
    /// If the run fails.
    ///
    /// # Safety
    ///
    /// As for [`Queue::launch`].
    pub unsafe fn run(
        &mut self,
        kernel: &str,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: &[Arg<'_>],
    ) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.try_run(kernel, grid, block, arguments) }
            .unwrap_or_else(|error| panic!("{kernel}: {error}"));
    }
}

/// Reproducible pseudo-random numbers (xorshift64*).
pub struct Numbers(u64);

impl Numbers {
    /// A sequence that depends only on `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// A number in -1..1.
    pub fn f32(&mut self) -> f32 {
        self.u32() as f32 / u32::MAX as f32 * 2.0 - 1.0
    }

    /// `len` values of [`Numbers::u32`].
    pub fn vec_u32(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.u32()).collect()
    }

    /// `len` values of [`Numbers::f32`].
    pub fn vec_f32(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.f32()).collect()
    }
}
