//! A common clock for CPU and GPU.
//!
//! CPU times come from a monotonic clock, converted to nanoseconds since the UNIX epoch by one reading of the system's
//! clock at first use. GPU times are converted with two pairs of readings, one before and one after the work, because
//! two crystals drift apart by up to some hundred parts per million.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::shared::Shared;

/// Nanoseconds since the UNIX epoch at an instant, and that instant.
static ANCHOR: OnceLock<(u64, Instant)> = OnceLock::new();
/// Largest plausible relative difference of the clock rates. A larger result measures the error of the pairs, not the
/// drift.
const MAX_DRIFT: f64 = 300e-6;
/// Number of readings of the system's clock; the tightest one is used.
const READINGS: usize = 5;

/// Nanoseconds since the UNIX epoch, monotonic.
pub(crate) fn now() -> u64 {
    let (epoch, moment) = ANCHOR.get_or_init(|| (since_epoch(SystemTime::now()), Instant::now()));
    epoch + nanos(moment.elapsed().as_nanos())
}

fn since_epoch(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| nanos(since.as_nanos()))
}

/// Saturates after 584 years.
fn nanos(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The same instant by both clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) gpu: u64,
    pub(crate) cpu: u64,
}

/// Reads both clocks.
pub(crate) fn pair(device: &Shared) -> Result<Pair> {
    let (gpu, system) = device.driver().clock_pair()?;
    // Offset of the system's clock from `now`, from the reading with the smallest delay.
    let reading = |_| {
        let before = now();
        let system = since_epoch(SystemTime::now());
        let after = now();
        (after - before, system.cast_signed() - before.midpoint(after).cast_signed())
    };
    let (_, ahead) = (0..READINGS).map(reading).min_by_key(|(width, _)| *width).unwrap_or((0, 0));
    Ok(Pair { gpu, cpu: since_epoch(system).saturating_add_signed(-ahead) })
}

/// Converts GPU times to CPU times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conversion {
    middle: Pair,
    /// CPU nanoseconds per GPU nanosecond, minus one.
    drift: f64,
}

impl Conversion {
    /// Creates a converter from pairs that enclose the times to convert.
    pub(crate) fn new(first: Pair, last: Pair) -> Self {
        let gpu = last.gpu.saturating_sub(first.gpu);
        let cpu = last.cpu.saturating_sub(first.cpu);
        let drift = if gpu == 0 { 0.0 } else { (cpu as f64 - gpu as f64) / gpu as f64 };
        let middle = Pair { gpu: first.gpu.midpoint(last.gpu), cpu: first.cpu.midpoint(last.cpu) };
        Self { middle, drift: drift.clamp(-MAX_DRIFT, MAX_DRIFT) }
    }

    /// The CPU time of a GPU time. Preserves the order of times.
    pub(crate) fn to_cpu(self, gpu: u64) -> u64 {
        let since = gpu.cast_signed().wrapping_sub(self.middle.gpu.cast_signed());
        // CAST: the correction is a small fraction of a time span within the life of a process.
        let correction = (since as f64 * self.drift).round() as i64;
        self.middle.cpu.saturating_add_signed(since.saturating_add(correction))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn drift_is_corrected_and_noise_is_not() {
        // A GPU clock that runs 100 ppm fast, over ten seconds.
        let conversion = Conversion::new(
            Pair { gpu: 1_000_000_000, cpu: 500_000_000_000 },
            Pair { gpu: 11_001_000_000, cpu: 510_000_000_000 },
        );
        assert_eq!(conversion.to_cpu(1_000_000_000), 500_000_000_000);
        assert_eq!(conversion.to_cpu(11_001_000_000), 510_000_000_000);
        assert_eq!(conversion.to_cpu(6_000_500_000), 505_000_000_000);
        // Two pairs twenty microseconds apart with an error of ten: lengths stay as the GPU measured them.
        let noisy = Conversion::new(Pair { gpu: 0, cpu: 1000 }, Pair { gpu: 20_000, cpu: 31_000 });
        let length = noisy.to_cpu(15_000) - noisy.to_cpu(5_000);
        assert!(length.abs_diff(10_000) <= 3, "{length}");
        assert_eq!(noisy.to_cpu(10_000), 16_000, "the error is shared by both ends");
    }

    #[test]
    fn the_clock_never_goes_back() {
        let mut last = now();
        for _ in 0..1000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
        assert!(
            now().abs_diff(since_epoch(SystemTime::now())) < 3_600_000_000_000,
            "it is the system's time"
        );
    }

    proptest! {
        #[test]
        fn order_is_kept(
            gpu in 1_u64 << 52..1 << 60, gap in 0_u64..1 << 50, skew in 0_u64..1 << 50,
            a in -(1_i64 << 50)..1 << 50, b in -(1_i64 << 50)..1 << 50,
        ) {
            let cpu = 1 << 61;
            let conversion = Conversion::new(Pair { gpu, cpu }, Pair { gpu: gpu + gap, cpu: cpu + skew });
            let [low, high] = [a.min(b), a.max(b)].map(|at| conversion.middle.gpu.saturating_add_signed(at));
            let [low_cpu, high_cpu] = [low, high].map(|at| conversion.to_cpu(at));
            prop_assert!(low_cpu <= high_cpu);
            let (length, length_cpu) = ((high - low) as f64, (high_cpu - low_cpu) as f64);
            prop_assert!((length - length_cpu).abs() <= length * MAX_DRIFT + 2.0);
        }
    }
}
