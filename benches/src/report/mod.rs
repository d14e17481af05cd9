//! The results of a run as a table and as JSON.

mod growth;
mod json;
mod table;

pub use json::{SCHEMA, json};
pub use table::table;

use crate::bench::RivalOutcome;
use crate::measure::Summary;
use crate::run::Outcome;

/// A time in nanoseconds with three significant digits and a unit.
pub fn time_text(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// [`time_text`], or a dash.
fn optional_time(nanoseconds: Option<f64>) -> String {
    nanoseconds.map_or_else(|| "–".to_owned(), time_text)
}

/// A positive number of at most 999.5 with three significant digits.
fn three_digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// The statistics of this library and of the rival, if any.
fn figures(outcome: &Outcome) -> (Option<Summary>, Option<Summary>) {
    match outcome {
        Outcome::Measured { ours, rival } => {
            let rival = match rival {
                Some(RivalOutcome::Measured(samples)) => samples.summary(),
                _ => None,
            };
            (ours.summary(), rival)
        }
        _ => (None, None),
    }
}

/// Returns the reason why a case, or its rival, was not measured.
fn remark(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Skipped(reason) => Some(format!("skipped: {reason}")),
        Outcome::Failed(reason) => Some(format!("FAILED: {reason}")),
        Outcome::Measured { rival: Some(RivalOutcome::Missing(reason)), .. } => {
            Some(format!("CUDA not measured: {reason}"))
        }
        Outcome::Measured { .. } => None,
    }
}

#[cfg(test)]
pub(crate) mod sample {
    //! A run without a device.

    use std::time::Duration;

    use tegra_hcq::{DeviceKind, Properties, Which};

    use crate::bench::Plan;
    use crate::bench::RivalOutcome;
    use crate::case::Unit;
    use crate::machine::Machine;
    use crate::measure::Samples;
    use crate::run::{Measurement, Outcome, RivalInfo, Run};

    fn samples(nanoseconds: u64) -> Samples {
        let mut samples = Samples::default();
        for at in 0..1000 {
            samples.add(Duration::from_nanos(nanoseconds + at * at * nanoseconds / 1_000_000), 1);
        }
        samples
    }

    fn properties() -> Properties {
        let gpu = gpu_hal::Properties {
            chip: "ga10b".into(),
            compute_class: 0xc7c0,
            copy_class: 0xc7b5,
            gpfifo_class: 0xc76f,
            sm_version: (8, 7),
            gpc_count: 2,
            gpc_sms: Vec::new(),
            tpc_count: 4,
            sm_count: 8,
            warps_per_sm: 48,
            local_layout: gpu_hal::SmLayout { warps_per_sm: 96, sm_per_tpc: 2, tpc_count: 4 },
            unified_memory: true,
            l2_bytes: 4 << 20,
            max_clock_hz: 1_300_000_000,
            va_start: 0,
            va_end: 1,
            shared_window: 0,
            local_window: 0,
            driver: vec![("gpc_mask", 3)],
        };
        Properties { kind: DeviceKind::Sim, which: Which::Index(0), gpu }
    }

    pub(crate) fn run() -> Run {
        let case = |name: &str, unit, size, outcome| Measurement {
            name: name.into(),
            about: "a sample",
            unit,
            size,
            outcome,
        };
        let measured = |ours, rival| Outcome::Measured { ours: samples(ours), rival };
        Run {
            date: "2026-11-21T12:00:00Z".into(),
            plan: Plan::QUICK,
            machine: Machine { model: Some("A board".into()), cpus: 2, ..Machine::default() },
            device: properties(),
            rival: Some(RivalInfo {
                device: "Another".into(),
                version: (12, 6),
                sm: 87,
                library: "libcuda.so.1".into(),
            }),
            commit: Some("0123456789ab".into()),
            baseline: None,
            measurements: vec![
                case(
                    "launch/wait",
                    Unit::Time,
                    0,
                    measured(2000, Some(RivalOutcome::Measured(samples(8000)))),
                ),
                case("copy/a/4KiB", Unit::Bytes(4096), 4096, measured(1024, None)),
                case(
                    "copy/a/1MiB",
                    Unit::Bytes(1 << 20),
                    1 << 20,
                    measured(1 << 17, Some(RivalOutcome::Missing("no pools".into()))),
                ),
                case("matmul/x", Unit::Operations(1), 1, Outcome::Skipped("needs a GPU".into())),
                case("process/x", Unit::Time, 0, Outcome::Failed("broken".into())),
            ],
            selected: 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let texts = [0.5, 1.234, 12.34, 123.4, 1234.0, 12.34e6, 4.5e9].map(time_text);
        assert_eq!(texts, ["0.50 ns", "1.23 ns", "12.3 ns", "123 ns", "1.23 µs", "12.3 ms", "4.50 s"]);
        assert_eq!([9.996, 99.96].map(three_digits), ["10.0", "100"]);
    }
}
