//! Releases of L4T: what differs between their kernels, beside requests and structs, which [`Release`] has.
//!
//! The model is written from the sources of R36.4.3. What is known of the others is in one struct here: for R36.4.7 the
//! estimate of memory, for R39.2 that of newer headers and of a newer nvmap. Everything else of them, the order of
//! errors too, is assumed to be as in R36.4.3.

use nvgpu_sys::Release;
use nvgpu_sys::tsg::{SmErrorStateRecord, SmErrorStateRecordR39};

use crate::settings::SettingsError;

/// Environment variable that selects the release for programs that open their own software Orin.
pub const KERNEL_VARIABLE: &str = "ORIN_SIM_KERNEL";
/// Environment variable with the memory that is available at boot, in MiB:
/// [`Config::available_bytes`](crate::Config::available_bytes).
pub const AVAILABLE_VARIABLE: &str = "ORIN_SIM_AVAILABLE_MIB";

/// What differs in the kernel of a release.
#[derive(Debug)]
pub(crate) struct Facts {
    /// First line of `/etc/nv_tegra_release`, without the date.
    pub(crate) l4t: &'static str,
    /// Version of Linux.
    pub(crate) linux: &'static str,
    /// What nvmap compares the size of a buffer with before it looks for memory.
    pub(crate) estimate: Estimate,
    /// Whether nvmap serves 32-bit processes.
    pub(crate) compat: bool,
    /// Size of an SM's error record in bytes.
    pub(crate) sm_record_bytes: usize,
    /// Whether a token to share a TSG contains the instance that created it, instead of a field beside it.
    pub(crate) joint_tokens: bool,
    /// Whether SETUP_BIND returns the channel's id, in the first of its reserved words.
    pub(crate) returns_channel: bool,
    /// Whether sysfs has `enable_3d_scaling`. Without it, devfreq's governor does the same.
    pub(crate) scaling_switch: bool,
}

/// The memory that nvmap's estimate (`is_nvmap_memory_available`) permits to one buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Estimate {
    /// All memory of the machine.
    Total,
    /// Available memory without free CMA, less 0.1 %, in whole pages.
    Available,
}

const R36_4_3: Facts = Facts {
    l4t: "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64",
    linux: "5.15.148-tegra",
    estimate: Estimate::Total,
    compat: true,
    sm_record_bytes: size_of::<SmErrorStateRecord>(),
    joint_tokens: false,
    returns_channel: false,
    scaling_switch: true,
};

const R36_4_7: Facts = Facts {
    l4t: "# R36 (release), REVISION: 4.7, GCID: 42132812, BOARD: generic, EABI: aarch64",
    estimate: Estimate::Available,
    ..R36_4_3
};

const R39_2: Facts = Facts {
    l4t: "# R39 (release), REVISION: 2.0, GCID: 45755727, BOARD: generic, EABI: aarch64",
    linux: "6.8.12-1021-tegra",
    estimate: Estimate::Available,
    compat: false,
    sm_record_bytes: size_of::<SmErrorStateRecordR39>(),
    joint_tokens: true,
    returns_channel: true,
    scaling_switch: false,
};

/// What differs in the kernel of `release`.
pub(crate) const fn facts(release: Release) -> &'static Facts {
    match release {
        Release::R36_4_3 => &R36_4_3,
        Release::R36_4_7 => &R36_4_7,
        Release::R39_2 => &R39_2,
    }
}

/// The release that [`KERNEL_VARIABLE`] names; R36.4.3 if it is unset or empty.
///
/// # Errors
///
/// [`SettingsError::Release`] if it names none.
pub fn from_environment() -> Result<Release, SettingsError> {
    match variable(KERNEL_VARIABLE) {
        Some(name) => Ok(name.parse()?),
        None => Ok(Release::R36_4_3),
    }
}

/// The value of [`AVAILABLE_VARIABLE`], in bytes.
pub(crate) fn available_from_environment() -> Result<Option<u64>, SettingsError> {
    let Some(value) = variable(AVAILABLE_VARIABLE) else { return Ok(None) };
    let bytes = value.parse::<u64>().ok().and_then(|mib| mib.checked_mul(1 << 20));
    let wrong = || SettingsError::variable(AVAILABLE_VARIABLE, &value, "it must be a number of MiB");
    bytes.map(Some).ok_or_else(wrong)
}

/// The value of a variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    Some(value.to_string_lossy().into_owned())
}
