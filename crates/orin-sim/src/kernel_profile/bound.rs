//! A lower bound of a launch's time on a board.
//!
//! The bound is the largest of several times that no execution can undercut: the work of each unit of an SM at its
//! published rate, spread evenly over the SMs, and the bytes that must cross the memory bus. Latencies, dependencies,
//! occupancy, cache misses and the start of a launch only add to it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::access::ratio;
use super::port::Port;
use super::report::{InstructionProfile, KernelProfile};
use crate::board::Profile;

/// Cache between the L2 cache and memory in bytes (the data sheet of the AGX Orin: "system cache"). Whether the GPU's
/// accesses use it is not documented; a bound must assume so.
const SYSTEM_CACHE_BYTES: u64 = 4 << 20;
/// Bytes that L1 or shared memory moves in a quarter of a clock (128 per clock: white paper of the GA102).
const LOAD_STORE_BYTES: u64 = 32;
/// Name of the limit that memory sets.
const MEMORY: &str = "memory";

/// Time that one resource needs for a launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Name of a [`Port`], or `memory`.
    pub name: &'static str,
    /// Time in seconds.
    pub seconds: f64,
}

/// A lower bound of the mean time of a kernel's launches on a board.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Board and power mode. A file with a field `board` would be taken for a record of `orin record`.
    #[serde(rename = "on_board")]
    pub board: String,
    /// The bound in seconds: that of the first limit.
    pub seconds: f64,
    /// Times of the resources that a launch uses, longest first.
    pub limits: Vec<Limit>,
    /// The bound in seconds of launches that find no data in caches, and whose results reach memory: all distinct
    /// sectors that a launch reads and writes cross the bus.
    pub cold_seconds: f64,
}

impl Bound {
    /// The bound of a profile's launches on a board; 0 without launches.
    pub fn of(profile: &KernelProfile, on: Profile) -> Self {
        let rate = on.board.memory_bytes_per_second();
        let launches = profile.launches.max(1);
        let cached = launches * (on.board.l2_bytes() + SYSTEM_CACHE_BYTES);
        let moved = [profile.read_bytes, profile.written_bytes];
        let uncached = moved.map(|bytes| bytes.saturating_sub(cached)).iter().sum::<u64>();
        let per_launch = |seconds: f64| seconds / ratio(launches, 1);
        // A block stays on its SM.
        let sms = profile.blocks().clamp(1, on.mode.sm_count().into());
        let quarters_per_second = 4 * on.clock_hz() * sms;
        let port = |port: &Port| {
            let quarters: u64 = profile.instructions.iter().map(|one| one.quarters(*port)).sum();
            Limit { name: port.name(), seconds: per_launch(ratio(quarters, quarters_per_second)) }
        };
        let memory = Limit { name: MEMORY, seconds: per_launch(ratio(uncached, rate)) };
        let mut limits: Vec<Limit> = Port::ALL.iter().map(port).chain([memory]).collect();
        limits.retain(|limit| limit.seconds > 0.0);
        limits.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let seconds = limits.first().map_or(0.0, |first| first.seconds);
        let cold = per_launch(ratio(moved.iter().sum(), rate));
        Self { board: on.to_string(), seconds, limits, cold_seconds: cold.max(seconds) }
    }

    /// Name of the limit that sets the bound: a [`Port`] or `memory`; `None` if the bound is 0.
    pub fn limit(&self) -> Option<&'static str> {
        self.limits.first().map(|limit| limit.name)
    }

    /// Part of the binding limit, from 0 to 1, that each instruction is responsible for. For memory: its part of the
    /// sectors that requests to global memory move.
    pub(super) fn shares(&self, profile: &KernelProfile) -> Vec<f64> {
        let port = Port::ALL.iter().find(|port| self.limit() == Some(port.name()));
        let weight = |one: &InstructionProfile| match port {
            Some(port) => one.quarters(*port),
            None => one.counts.global.sectors,
        };
        let weights: Vec<u64> = profile.instructions.iter().map(weight).collect();
        let all = weights.iter().sum();
        weights.into_iter().map(|weight| ratio(weight, all)).collect()
    }

    /// The sums of [`Bound::shares`] over the source lines, by file and line.
    pub(super) fn line_shares(&self, profile: &KernelProfile) -> BTreeMap<(String, u32), f64> {
        let mut lines = BTreeMap::new();
        for (one, share) in profile.instructions.iter().zip(self.shares(profile)) {
            if let (Some(file), Some(line)) = (&one.at.file, one.at.line) {
                *lines.entry((file.clone(), line)).or_default() += share;
            }
        }
        lines
    }
}

impl InstructionProfile {
    /// Quarters of a clock during which the executions occupy a unit of an SM, at least.
    fn quarters(&self, port: Port) -> u64 {
        let counts = &self.counts;
        // An execution without a thread may leave the pipeline before its unit.
        let executed = counts.executed - counts.skipped;
        match port {
            Port::Issue => counts.executed,
            _ if port == self.cost.port && port != Port::LoadStore => executed * self.cost.quarters,
            // The FMA unit executes what its half executes.
            Port::Fma if self.cost.port == Port::Multiply => executed,
            Port::LoadStore if self.cost.port == Port::LoadStore => {
                let through_l1 = |requests: u64, bytes: u64| (4 * requests).max(bytes / LOAD_STORE_BYTES);
                let global = through_l1(counts.global.requests, counts.global.needed_bytes);
                let local = through_l1(counts.local.requests, counts.local.needed_bytes);
                let shared = 4 * counts.shared.least_passes;
                // A copy to shared memory is one request, and may bypass L1.
                if self.access.as_deref() == Some("copy") {
                    shared.max(4 * counts.global.requests)
                } else {
                    global + local + shared
                }
            }
            _ => 0,
        }
    }
}

/// A time as text, in the unit that gives it one to four digits before the point.
pub(super) fn time(seconds: f64) -> String {
    let (scale, unit) = match seconds {
        0.0 => return "0".to_owned(),
        s if s < 1e-6 => (1e9, "ns"),
        s if s < 1e-3 => (1e6, "µs"),
        s if s < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{:.1} {unit}", seconds * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        let times = [0.0, 4.2e-9, 12.345e-6, 0.9999e-3, 2.5e-3, 3.0].map(time);
        assert_eq!(times, ["0", "4.2 ns", "12.3 µs", "999.9 µs", "2.5 ms", "3.0 s"]);
    }
}
