//! Samples and their statistics.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Unit of the histogram: picoseconds, so that a nanosecond divided by a thousand kernels is representable.
const PER_NANOSECOND: f64 = 1000.0;
/// Longest sample that can be recorded, in picoseconds: 1000 s.
const LONGEST: u64 = 1_000_000_000_000_000;
/// Significant decimal digits of a recorded value.
const DIGITS: u8 = 3;
/// Number of samples that a p99.9 needs.
const P999_SAMPLES: u64 = 1000;
/// Maximum number of bins of [`Samples::bins`].
const BINS: u32 = 60;

/// Times of one case.
#[derive(Clone, Debug)]
pub struct Samples(Histogram<u64>);

/// Statistics of [`Samples`], in nanoseconds. Percentiles count from the fast end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    /// The fastest sample.
    pub min: f64,
    /// Half of the samples are not slower.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// 90 % of the samples are not slower.
    pub p90: f64,
    /// 99 % of the samples are not slower.
    pub p99: f64,
    /// 99.9 % of the samples are not slower; `None` with fewer than 1,000 samples, which do not show it.
    pub p999: Option<f64>,
    /// The slowest sample.
    pub max: f64,
}

/// Samples of similar length, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Lower bound.
    pub from: f64,
    /// Upper bound.
    pub to: f64,
    /// Number of samples.
    pub count: u64,
}

impl Default for Samples {
    fn default() -> Self {
        // PANIC: the bounds are valid constants.
        Self(Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("valid bounds"))
    }
}

impl Samples {
    /// Adds a sample of `elapsed` for `parts` equal pieces of work; the time of one piece is recorded. Times
    /// are clamped to 1 ps and 1000 s.
    pub fn add(&mut self, elapsed: Duration, parts: u64) {
        let picoseconds = elapsed.as_nanos().saturating_mul(1000) / u128::from(parts.max(1));
        let picoseconds = u64::try_from(picoseconds).unwrap_or(LONGEST);
        self.0.saturating_record(picoseconds.clamp(1, LONGEST));
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the statistics; `None` without samples.
    pub fn summary(&self) -> Option<Summary> {
        if self.0.is_empty() {
            return None;
        }
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / PER_NANOSECOND;
        Some(Summary {
            count: self.0.len(),
            min: self.0.min() as f64 / PER_NANOSECOND,
            median: at(0.5),
            mean: self.0.mean() / PER_NANOSECOND,
            p90: at(0.9),
            p99: at(0.99),
            p999: (self.0.len() >= P999_SAMPLES).then(|| at(0.999)),
            max: self.0.max() as f64 / PER_NANOSECOND,
        })
    }

    /// Returns the distribution as bins of geometrically growing bounds, without empty bins.
    pub fn bins(&self) -> Vec<Bin> {
        let Some(summary) = self.summary() else { return Vec::new() };
        // The recorded values have three significant digits, which bounds the number of useful bins.
        let (low, high) = (summary.min * 0.999, summary.max * 1.001);
        let factor = (high / low).powf(1.0 / f64::from(BINS)).max(1.001);
        let mut bins: Vec<Bin> = Vec::new();
        let mut from = low;
        let mut values = self.0.iter_recorded().peekable();
        while values.peek().is_some() {
            let to = from * factor;
            let mut count = 0;
            while let Some(value) =
                values.next_if(|value| (value.value_iterated_to() as f64) < to * PER_NANOSECOND)
            {
                count += value.count_since_last_iteration();
            }
            if count > 0 {
                bins.push(Bin { from, to, count });
            }
            from = to;
        }
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, wanted: f64) {
        assert!((got - wanted).abs() <= 0.002 * wanted, "{got} is not about {wanted}");
    }

    #[test]
    fn figures_of_a_known_distribution() {
        let mut samples = Samples::default();
        assert_eq!((samples.summary(), samples.bins()), (None, Vec::new()));
        for microseconds in 1..=1000 {
            samples.add(Duration::from_micros(microseconds), 1);
        }
        let summary = samples.summary().unwrap();
        assert_eq!(summary.count, 1000);
        near(summary.min, 1e3);
        near(summary.median, 500e3);
        near(summary.mean, 500.5e3);
        near(summary.p90, 900e3);
        near(summary.p99, 990e3);
        near(summary.p999.unwrap(), 999e3);
        near(summary.max, 1000e3);
    }

    #[test]
    fn a_sample_is_shared_by_its_parts() {
        let mut samples = Samples::default();
        samples.add(Duration::from_nanos(1500), 1000);
        near(samples.summary().unwrap().median, 1.5);
    }

    #[test]
    fn times_out_of_range_are_clamped() {
        let mut samples = Samples::default();
        samples.add(Duration::ZERO, 1);
        samples.add(Duration::MAX, 0);
        let summary = samples.summary().unwrap();
        assert_eq!((summary.count, summary.p999), (2, None), "two samples have no p99.9");
        near(summary.min, 0.001);
        near(summary.max, 1e12);
    }

    #[test]
    fn every_sample_is_in_one_bin() {
        for spread in [1, 2, 1000, 1_000_000] {
            let mut samples = Samples::default();
            for at in 0..500 {
                samples.add(Duration::from_nanos(1 + at * spread), 1);
            }
            let bins = samples.bins();
            assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 500, "{bins:?}");
            assert!(bins.windows(2).all(|pair| pair[0].to <= pair[1].from * 1.000_001));
            assert!(bins.len() <= BINS as usize + 1, "{}", bins.len());
        }
    }
}
