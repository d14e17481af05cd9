//! Clock frequencies: of the driver's arbiter, and of devfreq.
//!
//! Two things decide how fast the GPCs run. devfreq follows the load between a lowest and a highest
//! frequency, which root sets in sysfs; and the driver's clock arbiter takes requests of whoever has
//! the control node open, which override devfreq for as long as that is so
//! (`clk_arb_gp10b.c`, `scale.c`). The memory's clock is out of reach here.

use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nvgpu_sys::door::{Events, PollEntry};
use nvgpu_sys::{DoorFd, Errno, ctrl};

use crate::error::{self, Error};
use crate::gpu::Gpu;
use crate::system::System;

/// A range of frequencies in Hz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRange {
    /// Lowest.
    pub min_hz: u64,
    /// Highest.
    pub max_hz: u64,
}

/// Which frequency of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClockReading {
    /// What has been asked for.
    Target,
    /// What has been set.
    Actual,
    /// What has been counted.
    Effective,
}

impl Gpu {
    /// The range of the GPC clock.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` if the driver's clock arbiter is off.
    pub fn clock_range(&self) -> Result<ClockRange, Error> {
        let range = ctrl::clk_get_range(self.ctrl(), ctrl::CLK_DOMAIN_GPCCLK)
            .map_err(error::call(ctrl::CLK_GET_RANGE.name(), "the GPC clock"))?;
        Ok(ClockRange { min_hz: range.min_hz, max_hz: range.max_hz })
    }

    /// The frequencies in Hz that the GPC clock can have.
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

    /// A frequency of the GPC clock in Hz.
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

    /// Asks the arbiter for `hz`. The request holds until the next one, and ends with this GPU: with
    /// its last clone and everything made from it.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `EINVAL` if the arbiter is off, `EPERM` where it is not permitted.
    pub fn request_clock(&self, hz: u64) -> Result<ClockRequest, Error> {
        let completion = ctrl::clk_set_info(self.ctrl(), ctrl::CLK_DOMAIN_GPCCLK, hz)
            .map_err(error::call(ctrl::CLK_SET_INFO.name(), "the GPC clock"))?;
        Ok(ClockRequest { completion, gpu: self.clone() })
    }

    /// Asks the arbiter for the highest frequency: steady clocks without root.
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
    /// Waits at most `timeout` until the arbiter has dealt with the request; whether it has. What came
    /// of it says [`Gpu::clock_hz`]: limits of power and heat have the last word.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; an interruption by a signal is no answer.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let wanted = Events::IN | Events::PRIORITY;
        let mut entries = [PollEntry { fd: self.completion.raw(), wanted, happened: Events::empty() }];
        match self.completion.door().poll(&mut entries, timeout) {
            Ok(_) => Ok(entries[0].happened.intersects(wanted)),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(error::call("poll", "the clock request")(errno)),
        }
    }

    /// The GPU that the request is about.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

/// The directory of the GPU in devfreq on Orin, named by its address.
const DEVFREQ: &str = "/sys/class/devfreq/17000000.gpu";

/// devfreq's settings of the GPU clock.
///
/// Everybody may read them, root may write them.
#[derive(Clone, Debug)]
pub struct Devfreq {
    system: Arc<dyn System>,
}

/// Frequencies of devfreq in Hz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevfreqState {
    /// Lowest that devfreq chooses.
    pub min_hz: u64,
    /// Highest that devfreq chooses.
    pub max_hz: u64,
    /// Now.
    pub current_hz: u64,
}

impl Devfreq {
    /// devfreq of the machine `system`.
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
    /// [`Error::File`]; without root the message says so.
    pub fn set_min_hz(&self, hz: u64) -> Result<(), Error> {
        let path = path("min_freq");
        self.system.write(&path, &hz.to_string()).map_err(|reason| file_error("write", &path, &reason))
    }

    /// Raises the lowest frequency to the highest until the result is dropped, so that the clock stays
    /// up between launches. Worth a few hundred microseconds of wake-up time in a control loop.
    ///
    /// # Errors
    ///
    /// [`Error::File`]; without root the message says so.
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
                io::Error::new(io::ErrorKind::InvalidData, format!("{:?} is no number", text.trim()));
            file_error("read", &path, &reason)
        })
    }
}

/// A raised lowest frequency; restored on drop.
#[derive(Debug)]
pub struct DevfreqBoost {
    devfreq: Devfreq,
    min_hz: u64,
}

impl Drop for DevfreqBoost {
    fn drop(&mut self) {
        if let Err(error) = self.devfreq.set_min_hz(self.min_hz) {
            tracing::warn!(%error, "the lowest GPU frequency stays raised");
        }
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(DEVFREQ).join(name)
}

fn file_error(action: &'static str, path: &Path, reason: &io::Error) -> Error {
    Error::File { action, path: path.to_owned(), kind: reason.kind(), reason: reason.to_string() }
}
