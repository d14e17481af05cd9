//! Checks of kernels on the software Orin: out-of-bounds accesses, races, uninitialised memory, misused barriers,
//! leaks.
//!
//! ```
//! # fn main() -> tegra_hcq::Result<()> {
//! # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
//! use tegra_hcq::check::{self, Tools};
//! use tegra_hcq::{Program, args};
//!
//! let device = check::open(Tools::KERNELS)?;
//! let program = Program::load(&device, cubin)?;
//! let (a, b) = (device.alloc_from(&[1.0_f32; 100])?.named("a"), device.alloc_from(&[2.0_f32; 100])?.named("b"));
//! let sums = device.alloc::<f32>(90)?.named("sums");
//! let mut queue = device.queue()?;
//! // SAFETY: the kernel writes 10 elements past the end of `sums`; the model drops these stores.
//! unsafe { queue.launch(&program.kernel("vector_add")?, 1, 128, &args![&a, &b, &sums, 100_u32])? };
//! queue.submit()?.wait(tegra_hcq::DEFAULT_TIMEOUT)?;
//! let findings = check::findings(&device);
//! assert_eq!(findings.len(), 1);
//! assert_eq!(findings[0].count, 10);
//! assert_eq!(findings[0].object.as_ref().map(|object| object.name.as_str()), Some("sums"));
//! # Ok(())
//! # }
//! ```

use core::any::Any;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use gpu_hal::{Driver, MemoryUse};
use kernel_door::Door;
use orin_sim::check::{Checker, Pointer, Watcher, What};
use orin_sim::{Config, SoftwareOrin};
use parking_lot::Mutex;

pub use orin_sim::check::{
    Accessing, BadSuppression, Finding, Kind, Located, NearObject, OtherSide, Place, Suppressions, Tools,
    UnknownTool, Worker, json, sarif, set_calls, text,
};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::heap::{Content, Memory, Observer};
use crate::kind::DeviceKind;

/// Opens a software Orin that checks kernels. Other settings are those of the environment.
///
/// # Errors
///
/// As [`Device::open`].
pub fn open(tools: Tools) -> Result<Device> {
    open_with(tools, Suppressions::default())
}

/// As [`open`], without the findings that suppressions match.
///
/// # Errors
///
/// As [`Device::open`].
pub fn open_with(tools: Tools, suppressions: Suppressions) -> Result<Device> {
    let failed = |error| Error::SoftwareOrin(Box::new(error));
    let mut config = Config::from_environment().map_err(failed)?;
    let checker = Checker::new(tools);
    checker.suppress(suppressions);
    config.sm.check = Some(checker);
    let orin = SoftwareOrin::new(config).map_err(|errno| failed(errno.into()))?;
    Device::open_through(Arc::new(orin), DeviceKind::Sim)
}

/// The checks of a device; `None` if it is not a software Orin that checks.
pub fn checker(device: &Device) -> Option<&Checker> {
    let observer: &dyn Any = device.shared().heap().observer()?;
    observer.downcast_ref::<Watched>().map(Watched::checker)
}

/// The findings of a device so far, oldest first. Empty without checks.
pub fn findings(device: &Device) -> Vec<Finding> {
    checker(device).map_or_else(Vec::new, Checker::findings)
}

/// As [`findings`], with leaks: the buffers and programs that are alive. Call it when everything should be freed.
pub fn findings_at_end(device: &Device) -> Vec<Finding> {
    device.shared().heap().sweep_all();
    checker(device).map_or_else(Vec::new, Checker::findings_at_end)
}

/// Runs `test` on a software Orin with all tools. For tests: panics if `test` returns an error, or if anything is
/// found.
///
/// ```
/// // The body of a test.
/// tegra_hcq::check::clean(|device| {
///     let buffer = device.alloc_from(&[1, 2, 3])?;
///     assert_eq!(buffer.to_vec()?, [1, 2, 3]);
///     Ok(())
/// });
/// ```
///
/// # Panics
///
/// With the findings as text, also if `test` panics, for example because a result is wrong; as `test` does if nothing
/// is found.
pub fn clean<T>(test: impl FnOnce(&Device) -> Result<T>) -> T {
    clean_of(Tools::KERNELS, test)
}

/// As [`clean`], with other tools.
///
/// # Panics
///
/// As [`clean`].
pub fn clean_of<T>(tools: Tools, test: impl FnOnce(&Device) -> Result<T>) -> T {
    // PANIC: documented; the function is for tests.
    let device = open(tools).expect("a software Orin");
    // Nothing is used after a panic but the checker, which is behind a lock.
    let result = catch_unwind(AssertUnwindSafe(|| test(&device))).unwrap_or_else(|panic| {
        let findings = findings(&device);
        if findings.is_empty() {
            resume_unwind(panic);
        }
        // PANIC: documented. The hook has printed the reason of the first one.
        panic!("the test failed, and the checks had found:\n{}", text(&findings))
    });
    let findings = findings_at_end(&device);
    assert!(findings.is_empty(), "{}", text(&findings));
    // PANIC: as above.
    result.expect("the test runs")
}

/// The observer of a driver, if a software Orin behind it checks.
pub(crate) fn observer(driver: &dyn Driver) -> Option<Box<dyn Observer>> {
    let watcher = driver.watcher()?.downcast::<(Arc<dyn Door>, RawFd)>().ok()?;
    let (door, space) = &*watcher;
    let watcher = Arc::new(door.software()?.downcast_ref::<SoftwareOrin>()?.watcher(*space)?);
    Some(Box::new(Watched { watcher, quarantine: Mutex::default() }))
}

/// Smallest and largest red zone in bytes.
const RED_ZONE: (u64, u64) = (256, 64 << 10);
/// Limits of the quarantine: bytes, and blocks.
const QUARANTINE: (u64, usize) = (64 << 20, 4096);

/// Freed blocks, oldest first.
#[derive(Debug, Default)]
struct Quarantine {
    blocks: VecDeque<Arc<Memory>>,
    bytes: u64,
}

/// Reports a heap to the checks. With memcheck it leaves a red zone behind each block, and keeps freed blocks in
/// quarantine before they are used again.
#[derive(Debug)]
struct Watched {
    watcher: Arc<Watcher>,
    quarantine: Mutex<Quarantine>,
}

impl Watched {
    /// The checks.
    fn checker(&self) -> &Checker {
        self.watcher.checker()
    }

    /// Whether objects have red zones, and freed ones are kept for a while.
    fn keeps_apart(&self) -> bool {
        self.checker().tools().contains(Tools::MEMCHECK)
    }
}

impl Observer for Watched {
    fn with_red_zone(&self, bytes: u64) -> u64 {
        if !self.keeps_apart() {
            return bytes;
        }
        bytes.saturating_add(bytes.clamp(RED_ZONE.0, RED_ZONE.1))
    }

    fn driver_memory(&self, va: u64, bytes: u64, name: &str) {
        self.watcher.allocated(va, bytes, bytes, What::Driver, name);
    }

    fn allocated(&self, memory: &Memory, bytes: u64) {
        let (va, whole, name) = (memory.gpu_va(), memory.bytes(), memory.content().name());
        let what = match memory.content() {
            // The CPU writes it without the library's knowledge.
            Content::Buffer if memory.purpose() == MemoryUse::Unified => {
                return self.watcher.imported(va, bytes, whole, name);
            }
            Content::Buffer => What::Data,
            Content::Program => What::Program,
            Content::Runtime => What::Runtime,
            Content::KernelHeap => What::Heap,
            // Kernels may use them; their first value is written by the CPU.
            Content::Signal => return self.watcher.imported(va, bytes, whole, name),
            _ => What::Driver,
        };
        self.watcher.allocated(va, bytes, whole, what, name);
    }

    fn adopted(&self, memory: &Memory, bytes: u64) {
        let (va, whole) = (memory.gpu_va(), memory.bytes());
        self.watcher.imported(va, bytes.min(whole), whole, "imported memory");
    }

    fn named(&self, memory: &Memory, name: &str) {
        self.watcher.named(memory.gpu_va(), name);
    }

    fn freed(&self, memory: Arc<Memory>, is_imported: bool) -> Vec<Arc<Memory>> {
        if is_imported || !self.keeps_apart() {
            self.watcher.recycled(memory.gpu_va());
            return vec![memory];
        }
        self.watcher.freed(memory.gpu_va());
        let mut quarantine = self.quarantine.lock();
        quarantine.bytes += memory.bytes();
        quarantine.blocks.push_back(memory);
        let mut released = Vec::new();
        while (quarantine.bytes > QUARANTINE.0 || quarantine.blocks.len() > QUARANTINE.1)
            && let Some(oldest) = quarantine.blocks.pop_front()
        {
            quarantine.bytes -= oldest.bytes();
            self.watcher.recycled(oldest.gpu_va());
            released.push(oldest);
        }
        released
    }

    fn release_all(&self) -> Vec<Arc<Memory>> {
        let quarantine = std::mem::take(&mut *self.quarantine.lock());
        quarantine.blocks.iter().for_each(|memory| self.watcher.recycled(memory.gpu_va()));
        quarantine.blocks.into()
    }

    fn launched(&self, va: u64, shared: u32, buffers: &mut dyn Iterator<Item = (usize, u64, usize)>) {
        // CAST: an offset in a constant bank; usize is at most 64 bits.
        let pointer = |(offset, va, bytes)| Pointer { offset: offset as u32, va, bytes: bytes as u64 };
        self.watcher.launch(va, shared, buffers.map(pointer).collect());
    }

    fn loaded(&self, va: u64, cubin: &[u8]) {
        self.watcher.loaded(va, cubin);
    }

    fn viewed(&self, va: u64, viewed: bool) {
        self.watcher.viewed(va, viewed);
    }

    fn written(&self, va: u64, bytes: usize) {
        // CAST: usize is at most 64 bits.
        self.watcher.written(va, bytes as u64);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watcher.closed();
    }
}
