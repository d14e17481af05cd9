//! Correlation of the GPU clock with CPU clocks.
//!
//! Timestamps of semaphores and kernels come from the PTIMER, in nanoseconds since power-on of the GPU.
//! To correlate them with a CPU clock, the driver reads both clocks back to back, the GPU's first
//! (`ptimer.c:nvgpu_get_timestamps_zipper`).

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use nvgpu_sys::ctrl;

use crate::error::{self, Error, NODE};
use crate::gpu::Gpu;

/// A clock of the CPU.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// use nvgpu_channel::CpuClock;
///
/// let pairs = gpu.correlate_clocks(CpuClock::Realtime, 4)?;
/// assert_eq!(pairs.len(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CpuClock {
    /// The counter of the processor (`CNTVCT_EL0`) in ticks; 31.25 MHz on an Orin.
    Counter,
    /// Microseconds since the Unix epoch.
    Realtime,
}

/// A reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimePair {
    /// GPU time in nanoseconds.
    pub gpu_ns: u64,
    /// CPU time, in the unit of the clock.
    pub cpu: u64,
}

impl Gpu {
    /// Reads both clocks `count` times, at most 16.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for more than 16; [`Error::Call`].
    pub fn correlate_clocks(&self, clock: CpuClock, count: u32) -> Result<Vec<TimePair>, Error> {
        if count > ctrl::TIME_CORRELATION_MAX_COUNT {
            let (what, value, rule) = ("number of clock pairs", count.into(), "it must be at most 16");
            return Err(Error::Range { what, value, rule });
        }
        let source_id = match clock {
            CpuClock::Counter => ctrl::TIME_SOURCE_TSC,
            CpuClock::Realtime => ctrl::TIME_SOURCE_OSTIME,
        };
        let mut argument = ctrl::GetCpuTimeCorrelationInfo {
            count,
            source_id,
            ..ctrl::GetCpuTimeCorrelationInfo::default()
        };
        ctrl::GET_CPU_TIME_CORRELATION_INFO
            .send(self.ctrl(), &mut argument)
            .map_err(error::call(ctrl::GET_CPU_TIME_CORRELATION_INFO.name(), NODE))?;
        // CAST: at most 16.
        let samples = &argument.samples[..count as usize];
        Ok(samples
            .iter()
            .map(|pair| TimePair { gpu_ns: pair.gpu_timestamp, cpu: pair.cpu_timestamp })
            .collect())
    }

    /// Returns a converter from GPU time to wall-clock time. Create a new one every few minutes, because
    /// the clocks drift.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn wall_clock(&self) -> Result<WallClock, Error> {
        let pairs = self.correlate_clocks(CpuClock::Realtime, 1)?;
        let pair = pairs.first().copied().unwrap_or(TimePair { gpu_ns: 0, cpu: 0 });
        Ok(WallClock { pair })
    }
}

/// Converts GPU time to wall-clock time, with a resolution of one microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    pair: TimePair,
}

impl WallClock {
    /// Returns the wall-clock time of the GPU time `gpu_ns`; `None` if `SystemTime` cannot represent it.
    pub fn system_time(&self, gpu_ns: u64) -> Option<SystemTime> {
        let base = UNIX_EPOCH.checked_add(Duration::from_micros(self.pair.cpu))?;
        if gpu_ns >= self.pair.gpu_ns {
            base.checked_add(Duration::from_nanos(gpu_ns - self.pair.gpu_ns))
        } else {
            base.checked_sub(Duration::from_nanos(self.pair.gpu_ns - gpu_ns))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_times_before_and_after_the_pair_are_told() {
        let clock = WallClock { pair: TimePair { gpu_ns: 1000, cpu: 2_000_000 } };
        let at = |nanos| UNIX_EPOCH + Duration::from_nanos(nanos);
        assert_eq!(clock.system_time(1000), Some(at(2_000_000_000)));
        assert_eq!(clock.system_time(1032), Some(at(2_000_000_032)));
        assert_eq!(clock.system_time(0), Some(at(1_999_999_000)));
    }
}
