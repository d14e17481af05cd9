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

use std::sync::Arc;

use orin_sim::check::Checker;
use orin_sim::{Config, SoftwareOrin};

pub use orin_sim::check::{
    Accessing, BadSuppression, Finding, Kind, Located, NearObject, OtherSide, Place, Suppressions, Tools,
    UnknownTool, Worker, json, sarif, text,
};

use crate::device::Device;
use crate::error::{Error, Result};
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
    device.shared().heap().watched().map(|watched| watched.checker())
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
/// With the findings as text.
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
    let result = test(&device);
    let findings = findings_at_end(&device);
    assert!(findings.is_empty(), "{}", text(&findings));
    // PANIC: as above.
    result.expect("the test runs")
}
