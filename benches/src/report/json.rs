//! The run as JSON: all data of the other formats, unrounded, and the distributions.

use serde_json::{Map, Value, json};

use super::figures;
use super::growth::{GOAL, Growth, growth};
use crate::bench::RivalOutcome;
use crate::case::Unit;
use crate::measure::{Samples, Summary};
use crate::run::{Measurement, Outcome, Run};

/// Version of the layout. It changes when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// Returns one object. Times are in nanoseconds; unknown figures are `null` or omitted.
pub fn json(run: &Run) -> Value {
    let machine = &run.machine;
    let device = &run.device;
    let driver: Map<_, _> =
        device.driver.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let rival = run.rival.as_ref().map(|rival| {
        json!({
            "name": "CUDA",
            "device": rival.device,
            "driver_supports": format!("{}.{}", rival.version.0, rival.version.1),
            "sm": rival.sm,
            "library": rival.library,
        })
    });
    json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "optimised": !cfg!(debug_assertions),
        "date": run.date,
        "commit": run.commit,
        "baseline": run.baseline.as_ref().map(|old| json!({ "date": old.date, "commit": old.commit })),
        "plan": {
            "warm_up_ms": milliseconds(run.plan.warm_up),
            "budget_ms": milliseconds(run.plan.budget),
            "min_samples": run.plan.min_samples,
            "max_samples": run.plan.max_samples,
            "divide_rounds": run.plan.divide_rounds,
        },
        "machine": {
            "model": machine.model,
            "architecture": machine.architecture,
            "cpus": machine.cpus,
            "memory_bytes": machine.memory,
            "kernel": machine.kernel,
            "l4t": machine.l4t,
            "governor": machine.governor,
        },
        "device": {
            "kind": device.kind.name(),
            "chip": device.chip,
            "sm_version": format!("{}.{}", device.sm_version.0, device.sm_version.1),
            "sm_count": device.sm_count,
            "gpc_count": device.gpc_count,
            "tpc_count": device.tpc_count,
            "l2_bytes": device.l2_bytes,
            "max_clock_hz": device.max_clock_hz,
            "driver": driver,
        },
        "rival": rival,
        "incomplete": run.incomplete(),
        "growth": growth(run).iter().map(group).collect::<Vec<_>>(),
        "results": run.measurements.iter().map(|case| result(run, case)).collect::<Vec<_>>(),
    })
}

/// Costs per item in nanoseconds.
fn group(growth: &Growth) -> Value {
    json!({
        "name": growth.name,
        "first": { "count": growth.first.0, "cost": rounded(growth.first.1) },
        "last": { "count": growth.last.0, "cost": rounded(growth.last.1) },
        "last_over_first": significant(growth.ratio()),
        "goal": GOAL,
    })
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn result(run: &Run, measurement: &Measurement) -> Value {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("name", json!(measurement.name));
    put("about", json!(measurement.about));
    put("size", json!(measurement.size));
    match &measurement.outcome {
        Outcome::Skipped(reason) => {
            put("outcome", json!("skipped"));
            put("reason", json!(reason));
        }
        Outcome::Failed(reason) => {
            put("outcome", json!("failed"));
            put("reason", json!(reason));
        }
        Outcome::Measured { ours, rival } => {
            put("outcome", json!("measured"));
            put("unit", json!("ns"));
            put("ours", distribution(ours, measurement.unit));
            match rival {
                None => None,
                Some(RivalOutcome::Missing(reason)) => put("rival", json!({ "reason": reason })),
                Some(RivalOutcome::Measured(samples)) => {
                    put("rival", distribution(samples, measurement.unit))
                }
            };
        }
    }
    if let Some(change) = run.change(measurement) {
        put("change", json!({ "median": significant(change.share), "verdict": change.verdict.to_string() }));
    }
    if let (Some(ours), Some(rival)) = figures(&measurement.outcome) {
        put("rival_over_ours", ratios(&ours, &rival));
    }
    Value::Object(object)
}

/// Ratios above 1 mean that the rival takes longer.
fn ratios(ours: &Summary, rival: &Summary) -> Value {
    json!({
        "min": significant(rival.min / ours.min),
        "median": significant(rival.median / ours.median),
        "mean": significant(rival.mean / ours.mean),
        "p90": significant(rival.p90 / ours.p90),
        "p99": significant(rival.p99 / ours.p99),
        "p99.9": rival.p999.zip(ours.p999).map(|(rival, ours)| significant(rival / ours)),
        "max": significant(rival.max / ours.max),
    })
}

fn distribution(samples: &Samples, unit: Unit) -> Value {
    let Some(summary) = samples.summary() else { return Value::Null };
    let bins: Vec<_> =
        samples.bins().iter().map(|bin| json!([rounded(bin.from), rounded(bin.to), bin.count])).collect();
    let rate = unit.rate(summary.median).map(|(name, rate)| {
        let best = unit.rate(summary.min).map(|(_, rate)| rounded(rate));
        json!({ "unit": name, "median": rounded(rate), "best": best })
    });
    json!({
        "count": summary.count,
        "min": rounded(summary.min),
        "median": rounded(summary.median),
        "mean": rounded(summary.mean),
        "p90": rounded(summary.p90),
        "p99": rounded(summary.p99),
        "p99.9": summary.p999.map(rounded),
        "max": rounded(summary.max),
        "rate": rate,
        "bins": bins,
    })
}

/// Rounds to a thousandth, the resolution of the samples.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Rounds to four significant digits.
fn significant(value: f64) -> f64 {
    let digits = 3 - (value.abs().max(f64::MIN_POSITIVE).log10().floor() as i32).clamp(-100, 100);
    let scale = 10.0_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn ratios_keep_their_digits() {
        let texts = [0.000_226_14, 3.999_96, 123_456.0].map(|value| significant(value).to_string());
        assert_eq!(texts, ["0.0002261", "4", "123500"]);
    }

    #[test]
    fn everything_is_in_it() {
        let value = json(&sample::run());
        assert_eq!((&value["schema"], &value["date"]), (&json!(1), &json!("2026-11-21T12:00:00Z")));
        assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(value["machine"]["model"], "A board");
        assert_eq!(
            (&value["device"]["chip"], &value["device"]["driver"]["gpc_mask"]),
            (&json!("ga10b"), &json!(3))
        );
        assert_eq!(value["rival"]["driver_supports"], "12.6");
        let launch = &value["results"][0];
        let ratio = launch["rival_over_ours"]["median"].as_f64().unwrap();
        assert!((ratio - 4.0).abs() < 0.02, "{ratio}");
        assert_eq!(launch["ours"]["count"], 1000);
        let bins = launch["ours"]["bins"].as_array().unwrap();
        assert_eq!(bins.iter().map(|bin| bin[2].as_u64().unwrap()).sum::<u64>(), 1000);
        assert_eq!(value["results"][1]["ours"]["rate"]["unit"], "GB/s");
        assert!(value["results"][1].get("rival").is_none());
        assert_eq!(value["results"][2]["rival"]["reason"], "no pools");
        assert_eq!(value["results"][3]["outcome"], "skipped");
        assert_eq!(value["results"][4]["reason"], "broken");
    }
}
