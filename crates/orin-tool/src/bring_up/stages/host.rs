//! Stages on channels driven by hand: semaphores, events, the compute class, the copy engine.

use std::time::{Duration, Instant};

use ampere_cmd::command::{LinearCopy, Payload, SemaphoreRelease, SmLayout, local_memory_size};
use ampere_cmd::pushbuffer::Subchannel;
use anyhow::{Context as _, Result, bail, ensure};
use gpu_hal::{Engine, MemoryUse};
use serde_json::{Map, Value, json};

use super::rig::Rig;
use super::{Context, micros};
use crate::bring_up::record::Outcome;

/// Longest wait for a release on a board.
const SOON: Duration = Duration::from_secs(2);
/// Releases of each kind.
const RELEASES: u32 = 20;
/// Sleeps on a board.
const EVENTS: usize = 1000;
/// Length of a sleep without an event.
const NO_EVENT: Duration = Duration::from_millis(20);
/// Longest wait for the event of one interrupt.
const LATEST_EVENT: Duration = Duration::from_millis(500);

/// Statistics of times in microseconds.
pub(super) fn statistics(mut times: Vec<f64>) -> Value {
    times.sort_by(f64::total_cmp);
    let at = |fraction: f64| {
        // CAST: the index of a list, rounded down.
        let index = (times.len().saturating_sub(1) as f64 * fraction) as usize;
        times.get(index).copied()
    };
    json!({ "count": times.len(), "min_us": at(0.0), "median_us": at(0.5), "p99_us": at(0.99), "max_us": at(1.0) })
}

/// Stage 4.
pub(super) fn semaphores(context: &Context) -> Result<Outcome> {
    let kinds = [
        ("32 bits", false, false, false),
        ("64 bits", true, false, false),
        ("64 bits with time stamp", true, true, false),
        ("32 bits after a wait for idle", false, false, true),
    ];
    let places = [("write-combined", MemoryUse::Upload), ("cacheable", MemoryUse::Signals)];
    Rig::run(context, |rig| {
        let mut seen = Map::new();
        for (place, purpose) in places {
            let memory = rig.memory(4096, purpose)?;
            for (name, wide, timestamp, wait_for_idle) in kinds {
                context.recorder.step(format!("releasing {name} to {place} memory"))?;
                let times: Result<Vec<_>> = (1..=RELEASES)
                    .map(|round| {
                        // A value that no earlier release wrote.
                        let value = u64::from(round) << if wide { 32 } else { 0 } | u64::from(round + 100);
                        let payload =
                            if wide { Payload::Bits64(value) } else { Payload::Bits32(round + 100) };
                        let release = SemaphoreRelease { va: memory.va(), payload, wait_for_idle, timestamp };
                        let start = Instant::now();
                        let words =
                            rig.submit(Engine::Compute, |encoder| encoder.semaphore_release(&release))?;
                        ensure!(words == 6, "the release has {words} words");
                        rig.wait(SOON, || match wide {
                            true => memory.load64(0) == value,
                            false => memory.load(0) == round + 100,
                        })?;
                        Ok(micros(start.elapsed()))
                    })
                    .collect();
                let mut statistics = statistics(times.with_context(|| format!("{name}, {place} memory"))?);
                if timestamp {
                    statistics["gpu_time_ns"] = memory.load64(8).into();
                    ensure!(memory.load64(8) != 0, "the time stamp is 0");
                }
                seen.insert(format!("{name}, {place}"), statistics);
            }
        }
        context.recorder.fact("releases", seen);
        Ok(Outcome::Passed(format!("{} kinds of releases arrive", kinds.len() * places.len())))
    })
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    /// By an event.
    Woken,
    /// Without one.
    TimedOut,
    /// The driver cannot sleep.
    Unsupported,
}

/// Sleeps until an event, at most `limit`.
fn sleep(rig: &Rig<'_>, limit: Duration) -> Slept {
    let start = Instant::now();
    match rig.channels.group.sleep(limit) {
        false => Slept::Unsupported,
        true if start.elapsed() < limit => Slept::Woken,
        true => Slept::TimedOut,
    }
}

/// Stage 5.
pub(super) fn events(context: &Context) -> Result<Outcome> {
    Rig::run(context, |rig| {
        let memory = rig.memory(4096, MemoryUse::Signals)?;
        let (mut latencies, mut early, mut without) = (Vec::new(), 0_u32, 0_u32);
        let rounds = context.rounds(EVENTS);
        context.recorder.step("sleeping without an interrupt")?;
        let start = Instant::now();
        // An event of earlier work may end the first sleep.
        loop {
            match sleep(rig, NO_EVENT) {
                Slept::Woken => ensure!(start.elapsed() < SOON, "events without an interrupt do not end"),
                Slept::TimedOut => break,
                Slept::Unsupported if context.is_nvgpu() => bail!("the driver cannot sleep"),
                Slept::Unsupported => {
                    let reason = "the driver offers no event to sleep on; programs wait by polling";
                    return Ok(Outcome::NotApplicable(reason.to_owned()));
                }
            }
        }
        context.recorder.step("releasing with an interrupt")?;
        for round in 1..=u32::try_from(rounds)? {
            let release = SemaphoreRelease {
                va: memory.va(),
                payload: Payload::Bits32(round),
                wait_for_idle: false,
                timestamp: false,
            };
            let start = Instant::now();
            rig.submit(Engine::Compute, |encoder| {
                encoder.semaphore_release(&release)?;
                encoder.non_stall_interrupt()
            })?;
            let limit = context.patience(SOON);
            // The event stays until it is seen, so the sleep cannot miss it.
            loop {
                let woken = sleep(rig, LATEST_EVENT) == Slept::Woken;
                match (woken, memory.load(0) == round) {
                    (true, true) => break latencies.push(micros(start.elapsed())),
                    (false, true) => break without += 1,
                    (true, false) => early += 1,
                    (false, false) => {}
                }
                ensure!(start.elapsed() < limit, "round {round}: no release after {} ms", limit.as_millis());
            }
            ensure!(!latencies.is_empty() || without < 3, "no interrupt arrived");
        }
        let woken = latencies.len();
        context.recorder.fact("latency", statistics(latencies));
        context.recorder.fact("early_wakeups", early);
        context.recorder.fact("releases_without_event", without);
        context.recorder.fact("events", json!({ "rounds": rounds, "woken": woken }));
        Ok(Outcome::Passed(format!("{woken} of {rounds} sleeps were woken by the interrupt")))
    })
}

/// Stage 6.
pub(super) fn compute(context: &Context) -> Result<Outcome> {
    Rig::run(context, |rig| {
        let seen = rig.driver.properties().clone();
        let chip = gpu_hal::chip::of(seen.sm_version).context("the chip table lacks this SM version")?;
        let tpc_count = seen.tpc_count.max(1);
        let layout = SmLayout {
            warps_per_sm: seen.warps_per_sm,
            sm_per_tpc: seen.sm_count.div_ceil(tpc_count),
            tpc_count,
        };
        let size = local_memory_size(chip.local.stack_reserve, layout)?;
        let local = rig.memory(size.area_bytes, MemoryUse::Device)?;
        let semaphore = rig.memory(4096, MemoryUse::Signals)?;
        context.recorder.fact("local_memory_bytes", size.area_bytes);
        context.recorder.step("setting the compute class")?;
        let took = rig.complete(Engine::Compute, &semaphore, 1, |encoder| {
            encoder.set_object(Subchannel::COMPUTE, seen.compute_class)
        })?;
        context.recorder.fact("set_object_us", micros(took));
        context.recorder.step("setting windows and local memory")?;
        let took = rig.complete(Engine::Compute, &semaphore, 2, |encoder| {
            encoder.shader_local_memory_window(seen.local_window)?;
            encoder.shader_shared_memory_window(seen.shared_window)?;
            encoder.shader_local_memory(local.va())?;
            encoder.shader_local_memory_size(size.bytes_per_tpc, chip.local.max_sm_count)
        })?;
        context.recorder.fact("windows_us", micros(took));
        context.recorder.step("invalidating the shader caches")?;
        rig.complete(Engine::Compute, &semaphore, 3, |encoder| encoder.invalidate_shader_caches_no_wfi())?;
        let error = rig.channels.group.error();
        ensure!(error.is_none(), "error notifier: {error:?}");
        Ok(Outcome::Passed(format!("class {:#06x} is set up", seen.compute_class)))
    })
}

/// Stage 11.
pub(super) fn copies(context: &Context) -> Result<Outcome> {
    /// Bytes of source and target.
    const BYTES: u64 = 1 << 20;
    Rig::run(context, |rig| {
        let class = rig.driver.properties().copy_class;
        let (source, target) =
            (rig.memory(BYTES, MemoryUse::Upload)?, rig.memory(BYTES, MemoryUse::ReadBack)?);
        let semaphore = rig.memory(4096, MemoryUse::Signals)?;
        let pattern: Vec<u8> = (0..BYTES).map(|at| ((at * 31) >> 3) as u8 ^ at as u8).collect();
        source.write(0, &pattern)?;
        context.recorder.step("setting the copy class")?;
        rig.complete(Engine::Copy, &semaphore, 1, |encoder| encoder.set_object(Subchannel::COPY, class))?;
        let (va_source, va_target) = (source.va(), target.va());
        context.recorder.fact("source_va", format!("{va_source:#x}"));
        context.recorder.fact("target_va", format!("{va_target:#x}"));
        let mut copies = Vec::new();
        let shapes = [(0, 0, 4), (0, 0, 4096), (1, 3, 1), (3, 1, 4097), (5, 0, 65_537), (0, 0, BYTES)];
        for (number, (from, to, bytes)) in (2_u32..).zip(shapes) {
            context.recorder.step(format!("copying {bytes} bytes from offset {from} to {to}"))?;
            target.write(0, &vec![0xee; usize::try_from(BYTES)?])?;
            let copy = LinearCopy { source: va_source + from, destination: va_target + to, bytes };
            let took =
                rig.complete(Engine::Copy, &semaphore, number, |encoder| encoder.linear_copy(&copy))?;
            let len = usize::try_from(bytes)?;
            let seen = target.read(to, len)?;
            let wanted = &pattern[usize::try_from(from)?..][..len];
            let wrong = seen.iter().zip(wanted).position(|(seen, wanted)| seen != wanted);
            ensure!(wrong.is_none(), "{bytes} bytes from {from} to {to}: byte {wrong:?} is wrong");
            let after = target.read(to + bytes, usize::try_from((BYTES - to - bytes).min(64))?)?;
            ensure!(
                after.iter().all(|byte| *byte == 0xee),
                "{bytes} bytes from {from} to {to}: wrote beyond the end"
            );
            copies.push(json!({ "bytes": bytes, "from": from, "to": to, "us": micros(took) }));
        }
        context.recorder.fact("copies", copies);
        ensure!(va_source >> 32 != 0 || va_target >> 32 != 0, "no address was above 4 GiB");
        Ok(Outcome::Passed(format!("{} copies arrive", shapes.len())))
    })
}
