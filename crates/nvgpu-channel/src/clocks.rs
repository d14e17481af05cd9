//! Clock frequencies: the driver's clock arbiter and devfreq.
//!
//! Two mechanisms set the GPC clock. devfreq follows the load between a minimum and a maximum
//! frequency, which root sets in sysfs. The driver's clock arbiter takes requests from every process
//! with an open control node; a request overrides devfreq while the node is open (`clk_arb_gp10b.c`,
//! `scale.c`). Neither controls the memory clock.

use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel_door::{DoorFd, Events};
use nvgpu_sys::ctrl;

use crate::error::{self, Error};
use crate::fence::poll;
use crate::gpu::Gpu;
use crate::system::System;

/// A range of frequencies in Hz.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// let range = gpu.clock_range()?;
/// assert!(range.min_hz <= range.max_hz);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRange {
    /// Lowest.
    pub min_hz: u64,
    /// Highest.
    pub max_hz: u64,
}

/// A kind of frequency reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClockReading {
    /// The requested frequencies.
    Target,
    /// The frequencies that were set.
    Actual,
    /// The measured frequencies.
    Effective,
}

impl Gpu {
    /// Returns the range of the GPC clock.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` if the driver's clock arbiter is off.
    pub fn clock_range(&self) -> Result<ClockRange, Error> {
        let range = ctrl::clk_get_range(self.ctrl(), ctrl::CLK_DOMAIN_GPCCLK)
            .map_err(error::call(ctrl::CLK_GET_RANGE.name(), "the GPC clock"))?;
        Ok(ClockRange { min_hz: range.min_hz, max_hz: range.max_hz })
    }

    /// Returns the supported frequencies of the GPC clock in Hz.
    ///
    /// # Errors
    ///
    /// As [`Gpu::clock_range`].
    pub fn clock_points(&self) -> Result<Vec<u64>, Error> {
        let failed = || error::call(ctrl::CLK_GET_VF_POINTS.name(), "the GPC clock");
        let count =
            ctrl::clk_get_vf_points(self.ctrl(), ctrl::CLK_DOMAIN_GPCCLK, &mut []).map_err(failed())?;
        let mut points = vec![ctrl::ClkVfPoint::default(); count];
        let count =
            ctrl::clk_get_vf_points(self.ctrl(), ctrl::CLK_DOMAIN_GPCCLK, &mut points).map_err(failed())?;
        Ok(points.iter().take(count).map(|point| point.freq_hz).collect())
    }

    /// Returns a frequency of the GPC clock in Hz.
    ///
    /// # Errors
    ///
    /// As [`Gpu::clock_range`].
    pub fn clock_hz(&self, reading: ClockReading) -> Result<u64, Error> {
        let clk_type = match reading {
            ClockReading::Target => ctrl::CLK_TYPE_TARGET,
            ClockReading::Actual => ctrl::CLK_TYPE_ACTUAL,
            ClockReading::Effective => ctrl::CLK_TYPE_EFFECTIVE,
        };
        let info = ctrl::clk_get_info(self.ctrl(), ctrl::CLK_DOMAIN_GPCCLK, clk_type)
            .map_err(error::call(ctrl::CLK_GET_INFO.name(), "the GPC clock"))?;
        Ok(info.freq_hz)
    }

    /// Requests the frequency `hz` from the arbiter. The request is valid until the next one, or until this
    /// GPU, its clones and everything created from them are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `EINVAL` if the arbiter is off, `EPERM` without permission.
    pub fn request_clock(&self, hz: u64) -> Result<ClockRequest, Error> {
        let completion = ctrl::clk_set_info(self.ctrl(), ctrl::CLK_DOMAIN_GPCCLK, hz)
            .map_err(error::call(ctrl::CLK_SET_INFO.name(), "the GPC clock"))?;
        Ok(ClockRequest { completion, gpu: self.clone() })
    }

    /// Requests the maximum frequency from the arbiter: steady clocks without root.
    ///
    /// # Errors
    ///
    /// As [`Gpu::request_clock`].
    pub fn boost_clock(&self) -> Result<ClockRequest, Error> {
        self.request_clock(self.clock_range()?.max_hz)
    }
}

/// A request to the clock arbiter.
#[derive(Debug)]
pub struct ClockRequest {
    completion: DoorFd,
    gpu: Gpu,
}

impl ClockRequest {
    /// Waits at most `timeout` for the arbiter to process the request and returns whether it has. Read the
    /// resulting frequency with [`Gpu::clock_hz`]: power and thermal limits may reduce it.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; an interrupted wait returns `false`.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        poll(&self.completion, Events::IN | Events::PRIORITY, timeout, "the clock request")
    }

    /// The GPU of the request.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

/// The devfreq directory of the GPU on Orin, named after its address.
const DEVFREQ: &str = "/sys/class/devfreq/17000000.gpu";

/// devfreq settings of the GPU clock.
///
/// All users may read them; only root may write them.
#[derive(Clone, Debug)]
pub struct Devfreq {
    system: Arc<dyn System>,
}

/// Frequencies of devfreq in Hz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevfreqState {
    /// Minimum frequency.
    pub min_hz: u64,
    /// Maximum frequency.
    pub max_hz: u64,
    /// Now.
    pub current_hz: u64,
}

impl Devfreq {
    /// The devfreq settings of the machine `system`.
    pub fn new(system: Arc<dyn System>) -> Self {
        Self { system }
    }

    /// Reads the three frequencies.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn state(&self) -> Result<DevfreqState, Error> {
        Ok(DevfreqState {
            min_hz: self.number("min_freq")?,
            max_hz: self.number("max_freq")?,
            current_hz: self.number("cur_freq")?,
        })
    }

    /// Sets the lowest frequency.
    ///
    /// # Errors
    ///
    /// [`Error::File`]; the message says if root is required.
    pub fn set_min_hz(&self, hz: u64) -> Result<(), Error> {
        let path = path("min_freq");
        self.system.write(&path, &hz.to_string()).map_err(|reason| file_error("write", &path, &reason))
    }

    /// Sets the minimum frequency to the maximum until the result is dropped, so the clock stays high
    /// between launches. In a control loop, this saves a few hundred microseconds of wake-up time.
    ///
    /// # Errors
    ///
    /// [`Error::File`]; the message says if root is required.
    pub fn boost(&self) -> Result<DevfreqBoost, Error> {
        let before = self.state()?;
        self.set_min_hz(before.max_hz)?;
        Ok(DevfreqBoost { devfreq: self.clone(), min_hz: before.min_hz })
    }

    fn number(&self, name: &str) -> Result<u64, Error> {
        let path = path(name);
        let text = self.system.read(&path).map_err(|reason| file_error("read", &path, &reason))?;
        text.trim().parse().map_err(|_| {
            let reason =
                io::Error::new(io::ErrorKind::InvalidData, format!("{:?} is not a number", text.trim()));
            file_error("read", &path, &reason)
        })
    }
}

/// A raised minimum frequency; restored on drop.
#[derive(Debug)]
pub struct DevfreqBoost {
    devfreq: Devfreq,
    min_hz: u64,
}

impl Drop for DevfreqBoost {
    fn drop(&mut self) {
        if let Err(error) = self.devfreq.set_min_hz(self.min_hz) {
            tracing::warn!(%error, "the minimum GPU frequency could not be restored");
        }
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(DEVFREQ).join(name)
}

fn file_error(action: &'static str, path: &Path, reason: &io::Error) -> Error {
    Error::File { action, path: path.to_owned(), kind: reason.kind(), reason: reason.to_string() }
}
