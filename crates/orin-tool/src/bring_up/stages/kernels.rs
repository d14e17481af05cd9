//! Stages that launch kernels through `tegra-hcq`: encodings, chains, caches, preemption.

use std::time::{Duration, Instant};

use ampere_cmd::command::PcasAction;
use anyhow::{Result, bail, ensure};
use nvgpu_channel::{Gpu, Preemption};
use serde_json::{Map, Value, json};
use tegra_hcq::{
    Chaining, Device, DeviceOptions, Error, Kernel, Mapping, Program, Queue, QueueOptions, ReleaseBy,
    WaitPolicy, args,
};

use super::host::statistics;
use super::{Context, micros};
use crate::bring_up::record::{Outcome, file_name};

/// Longest wait for a kernel that takes microseconds on a board.
const SOON: Duration = Duration::from_secs(3);
/// Elements of the vectors of stage 8 on a board.
const ELEMENTS: usize = 1 << 20;
/// Rounds of stage 10 on a board.
const REWRITES: usize = 10_000;
/// Releases by a descriptor in stage 9 on a board.
const DESCRIPTOR_RELEASES: usize = 200;
/// Duration of the long kernel of stage 12.
const LONG: Duration = Duration::from_millis(200);
/// That duration on the software Orin.
const MODEL_LONG: Duration = Duration::from_millis(40);

/// Loads the cubin of `kernels/` that fits the device and takes one kernel of it.
macro_rules! kernel {
    ($device:expr, $file:literal, $name:literal) => {
        $crate::bring_up::stages::kernels::load(
            $device,
            &[
                include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $file, ".cubin")),
                include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/sm_90/", $file, ".cubin")),
            ],
            $name,
        )
    };
}
pub(super) use kernel;

/// The kernel of the cubin that fits the device.
pub(super) fn load(device: &Device, cubins: &[&[u8]], name: &str) -> Result<Kernel, Error> {
    Program::load_fitting(device, cubins)?.kernel(name)
}

/// Opens a device with a queue and runs `work`. After a failure, a bundle is written and the channels are reset before
/// they are closed.
pub(super) fn on_device<T>(
    context: &Context,
    options: DeviceOptions,
    work: impl FnOnce(&Device, &mut Queue) -> Result<T>,
) -> Result<T> {
    let device = options.open_through(context.door(), context.device)?;
    let mut queue = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin))?;
    let result = work(&device, &mut queue);
    if result.is_err() {
        let folder = context.recorder.folder().join(file_name(context.recorder.stage().number, "-bundle"));
        if let Err(error) = device.write_bundle(folder) {
            context.recorder.state("bundle", error.to_string());
        }
        context.tracer.reset_channels();
    }
    result
}

/// Beginning of the verdict on an encoding that is ignored: the work ends, and a launch is missing.
pub(in crate::bring_up) const NO_EFFECT: &str = "no effect";
/// Beginning of the verdict on an encoding whose work does not end.
pub(in crate::bring_up) const HANGS: &str = "hangs";
/// The verdict on an encoding that works.
const WORKS: &str = "works";

/// A way to chain launches: its name in the record, the option, and the descriptor's action and prefetch.
pub(in crate::bring_up) type ChainWay = (&'static str, Option<Chaining>, Option<(u8, bool)>);

/// The ways to chain launches that stage 9 tries.
pub(in crate::bring_up) const CHAIN_WAYS: [ChainWay; 4] = [
    ("default", None, None),
    ("action 1 with prefetch", Some(Chaining::Schedule), Some((1, true))),
    ("action 3", Some(Chaining::InvalidateCopySchedule), Some((3, false))),
    ("off", Some(Chaining::Off), None),
];
/// Lengths of the chains.
const CHAIN_LENGTHS: [u32; 2] = [2, 8];

/// The result of an encoding, as text.
fn verdict(result: Result<()>) -> Value {
    let Err(error) = result else { return WORKS.into() };
    match error.downcast_ref::<Error>() {
        Some(Error::Timeout { .. }) => format!("{HANGS}: {error:#}").into(),
        Some(Error::Fault(_)) => format!("faults: {error:#}").into(),
        _ => format!("{error:#}").into(),
    }
}

/// Stage 7.
pub(super) fn one_thread(context: &Context) -> Result<Outcome> {
    let store = |options: DeviceOptions| {
        on_device(context, options, |device, queue| {
            let out = device.alloc_zeroed::<u32>(1)?;
            // SAFETY: the kernel writes one word to `out`.
            unsafe {
                queue.launch(&kernel!(device, "faults", "fault_write")?, 1, 1, &args![&out, 0x5eed_u32])
            }?;
            let start = Instant::now();
            queue.submit()?.wait(context.patience(SOON))?;
            let took = micros(start.elapsed());
            let seen = out.to_vec()?[0];
            ensure!(seen == 0x5eed, "{NO_EFFECT}: the work ended, but the word is {seen:#x}");
            Ok(took)
        })
    };
    context.recorder.step("launching with the default encoding")?;
    let default = store(DeviceOptions::new());
    let took = default.as_ref().ok().copied();
    context.recorder.fact("default_us", took);
    let mut matrix = Map::new();
    for action in [
        PcasAction::PrefetchSchedule,
        PcasAction::InvalidatePrefetchCopySchedule,
        PcasAction::InvalidateCopySchedule,
    ] {
        context.recorder.step(format!("launching with PCAS action {}", action.bits()))?;
        let result = store(DeviceOptions::new().pcas_action(action)).map(drop);
        matrix.insert(action.bits().to_string(), verdict(result));
        context.recorder.fact("pcas_actions", matrix.clone());
    }
    let working: Vec<_> =
        matrix.iter().filter(|(_, value)| *value == WORKS).map(|(name, _)| name.as_str()).collect();
    match default {
        Ok(_) => Ok(Outcome::Passed(format!("PCAS actions {} launch", working.join(", ")))),
        Err(error) if working.is_empty() => Err(error.context("no PCAS action launches")),
        Err(error) => Err(error.context(format!(
            "the default encoding does not launch, but PCAS action {0} does: set NVGPU_PCAS_ACTION={0}",
            working[0]
        ))),
    }
}

/// FNV-1a of the bits of numbers, for comparisons between reports.
fn hash(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Stage 8.
pub(super) fn vector_add(context: &Context) -> Result<Outcome> {
    on_device(context, DeviceOptions::new(), |device, queue| {
        let count = context.rounds(ELEMENTS);
        let (a, b): (Vec<f32>, Vec<f32>) =
            (0..count).map(|i| (i as f32 * 0.5, 1.0 - i as f32 * 0.25)).unzip();
        let (left, right) = (device.alloc_from(&a)?, device.alloc_from(&b)?);
        let sum = device.alloc_zeroed::<f32>(count)?;
        let count = u32::try_from(count)?;
        context.recorder.step("adding")?;
        let add = kernel!(device, "vector_add", "vector_add")?;
        // SAFETY: each buffer has `count` elements.
        unsafe { queue.launch(&add, count.div_ceil(256), 256, &args![&left, &right, &sum, count]) }?;
        let start = Instant::now();
        queue.submit()?.wait(context.patience(SOON))?;
        context.recorder.fact("us", micros(start.elapsed()));
        let seen = sum.to_vec()?;
        context.recorder.fact("hash", format!("{:#018x}", hash(&seen)));
        let wrong = (0..seen.len()).find(|i| seen[*i].to_bits() != (a[*i] + b[*i]).to_bits());
        if let Some(i) = wrong {
            bail!("element {i} is {}, not {}", seen[i], a[i] + b[i]);
        }
        Ok(Outcome::Passed(format!("{count} sums are right")))
    })
}

/// Name of a way and a length in the record.
fn chain_name(way: &str, len: u32) -> String {
    format!("{way}, {len}")
}

/// The verdict of stage 9's record on the shortest chain of a way.
pub(in crate::bring_up) fn chain_verdict<'a>(facts: &'a Value, way: &str) -> Option<&'a str> {
    facts["chains"][chain_name(way, CHAIN_LENGTHS[0])].as_str()
}

/// Runs chains of `len` launches, each of which increments the words of the one before.
fn chain(context: &Context, options: DeviceOptions, len: u32) -> Result<()> {
    const WORDS: u32 = 1000;
    on_device(context, options, |device, queue| {
        let increment = kernel!(device, "basics", "increment")?;
        let data = device.alloc_zeroed::<u32>(WORDS as usize)?;
        for round in 1..=context.rounds(200) {
            for _ in 0..len {
                // SAFETY: the kernel changes `WORDS` words of `data`, its length.
                unsafe { queue.launch(&increment, 8, 128, &args![&data, WORDS]) }?;
            }
            queue.submit()?.wait(context.patience(SOON))?;
            let wanted = u32::try_from(round)? * len;
            let seen = data.to_vec()?;
            if let Some(at) = seen.iter().position(|word| *word != wanted) {
                let lost = if seen[at] < wanted { NO_EFFECT } else { "too many launches" };
                bail!("{lost}: round {round}: word {at} is {}, not {wanted}", seen[at]);
            }
        }
        Ok(())
    })
}

/// Stage 9.
pub(super) fn chains(context: &Context) -> Result<Outcome> {
    let mut matrix = Map::new();
    for (name, chaining, _) in CHAIN_WAYS {
        let options =
            chaining.map_or_else(DeviceOptions::new, |chaining| DeviceOptions::new().chaining(chaining));
        let mut hangs = false;
        for len in CHAIN_LENGTHS {
            context.recorder.step(format!("chaining {len} launches: {name}"))?;
            // Each hang needs a recovery, which a board may not survive often.
            let seen = if hangs {
                Value::from("not tried: the shorter chain hangs")
            } else {
                verdict(chain(context, options, len))
            };
            hangs |= seen.as_str().is_some_and(|seen| seen.starts_with(HANGS));
            matrix.insert(chain_name(name, len), seen);
            context.recorder.fact("chains", matrix.clone());
        }
    }
    context.recorder.step("releasing by descriptors")?;
    let rounds = context.rounds(DESCRIPTOR_RELEASES);
    let released =
        on_device(context, DeviceOptions::new().release(ReleaseBy::Descriptor), |device, queue| {
            let empty = kernel!(device, "basics", "empty")?;
            for round in 0..rounds {
                // SAFETY: the kernel accesses no memory.
                unsafe { queue.launch(&empty, 1, 32, &[]) }?;
                if let Err(error) = queue.submit()?.wait(context.patience(SOON)) {
                    bail!("release {round} of {rounds}: {error}");
                }
            }
            Ok(())
        });
    context.recorder.fact("descriptor_releases", verdict(released));
    let failed: Vec<_> =
        matrix.iter().filter(|(_, value)| *value != WORKS).map(|(name, _)| name.as_str()).collect();
    let by_default: Vec<_> = failed.iter().filter(|name| name.starts_with("default")).collect();
    ensure!(by_default.is_empty(), "chains fail: {}", failed.join("; "));
    Ok(Outcome::Passed(if failed.is_empty() {
        "all ways to chain work".to_owned()
    } else {
        format!("the default works; these do not: {}", failed.join("; "))
    }))
}

/// Rewrites an input in place and counts the results that are wrong, by launches and by replays of a graph; then adds
/// atomically.
fn rewrite(context: &Context, options: DeviceOptions) -> Result<Value> {
    const WORDS: usize = 32;
    on_device(context, options, |device, queue| {
        let plus_one = kernel!(device, "suites", "plus_one_i32")?;
        let (mut input, out) = (device.alloc_zeroed::<u32>(WORDS)?, device.alloc_zeroed::<u32>(WORDS)?);
        let mut builder = device.graph();
        // SAFETY: both buffers have `WORDS` words.
        unsafe { builder.launch(&plus_one, 1, 32, &args![&out, &input, WORDS as u32]) }?;
        let mut graph = builder.build()?;
        let (mut wrong, mut first) = ([0_u32; 2], None);
        let rounds = context.rounds(REWRITES);
        for round in 0..u32::try_from(rounds)? {
            input.copy_from_slice(&[round; WORDS])?;
            let by_graph = round % 2 == 1;
            let fence = if by_graph {
                queue.replay(&mut graph)?
            } else {
                // SAFETY: both buffers have `WORDS` words.
                unsafe { queue.launch(&plus_one, 1, 32, &args![&out, &input, WORDS as u32]) }?;
                queue.submit()?
            };
            fence.wait(context.patience(SOON))?;
            if out.to_vec()? != [round + 1; WORDS] {
                wrong[usize::from(by_graph)] += 1;
                first = first.or(Some(round));
            }
        }
        let counter = device.alloc_zeroed::<u32>(1)?;
        let add = kernel!(device, "faults", "fault_atomic")?;
        // SAFETY: the kernel adds to one word.
        unsafe { queue.launch(&add, 32, 128, &args![&counter, 3_u32]) }?;
        queue.submit()?.wait(context.patience(SOON))?;
        Ok(json!({
            "rounds": rounds,
            "wrong_after_launches": wrong[0],
            "wrong_after_replays": wrong[1],
            "first_wrong": first,
            "atomic_sum_is_right": counter.to_vec()? == [32 * 128 * 3],
        }))
    })
}

/// Stage 10.
pub(super) fn caches(context: &Context) -> Result<Outcome> {
    let is_right = |seen: &Value| {
        seen["wrong_after_launches"] == 0
            && seen["wrong_after_replays"] == 0
            && seen["atomic_sum_is_right"] == true
    };
    context.recorder.step("rewriting inputs with the defaults")?;
    let default = rewrite(context, DeviceOptions::new())?;
    context.recorder.fact("default", default.clone());
    let mappings: &[_] = if context.is_nvgpu() {
        &[
            ("plain", Mapping::Plain),
            ("L2 cached", Mapping::L2Cached),
            ("system coherent", Mapping::SystemCoherent),
        ]
    } else {
        &[("plain", Mapping::Plain)]
    };
    let mut matrix = Map::new();
    for (mapping_name, mapping) in mappings {
        for invalidate in [true, false] {
            let with = if invalidate { "with" } else { "without" };
            let name = format!("{mapping_name} mappings, {with} invalidation");
            context.recorder.step(format!("rewriting inputs: {name}"))?;
            let options = DeviceOptions::new().mapping(*mapping).shader_invalidate(invalidate);
            let seen = rewrite(context, options).unwrap_or_else(|error| format!("{error:#}").into());
            matrix.insert(name, seen);
            context.recorder.fact("rewrites", matrix.clone());
        }
    }
    ensure!(is_right(&default), "with the default encodings, results are wrong: {default}");
    let right = matrix.values().filter(|seen| is_right(seen)).count();
    Ok(Outcome::Passed(format!("the defaults are right; so are {right} of {} other settings", matrix.len())))
}

/// The errno of setting a preemption mode on a channel of its own.
fn preemption_errno(gpu: &Gpu, mode: Preemption) -> Result<Value> {
    let subcontext = gpu.tsg()?.subcontext(&gpu.address_space()?)?;
    let channel = subcontext.channel(gpu.characteristics().compute_class()).open()?;
    Ok(match channel.set_preemption(mode) {
        Ok(()) => json!("accepted"),
        Err(error) => {
            json!({ "errno": error.errno().map(kernel_door::Errno::raw_os_error), "text": error.to_string() })
        }
    })
}

/// Stage 12.
pub(super) fn preemption(context: &Context) -> Result<Outcome> {
    let mut modes = Map::new();
    if context.is_nvgpu() {
        let gpu = Gpu::open(&context.door())?;
        for (name, mode) in [("CTA", Preemption::Block), ("CILP", Preemption::Instruction)] {
            context.recorder.step(format!("setting preemption mode {name}"))?;
            modes.insert(name.to_owned(), preemption_errno(&gpu, mode)?);
            context.recorder.fact("modes", modes.clone());
        }
    }
    on_device(context, DeviceOptions::new(), |device, long| {
        let spin = kernel!(device, "basics", "spin")?;
        let out = device.alloc_zeroed::<u32>(32)?;
        // The shortest of three: the first launch loads the code, and the machine may be busy.
        let mut run = |rounds: u32| -> Result<Duration> {
            let mut least = Duration::MAX;
            for _ in 0..3 {
                // SAFETY: the kernel writes a word per thread, and the buffer has one for each.
                unsafe { long.launch(&spin, 1, 32, &args![&out, rounds]) }?;
                let start = Instant::now();
                long.submit()?.wait(context.patience(SOON))?;
                least = least.min(start.elapsed());
            }
            Ok(least)
        };
        context.recorder.step("measuring a kernel")?;
        let wanted = if context.is_model() { MODEL_LONG } else { LONG };
        let (mut rounds, mut took) = (1000_u32, run(1000)?);
        while took < wanted / 10 && rounds < 1 << 27 {
            rounds *= 4;
            took = run(rounds)?;
        }
        let scale = (wanted.as_secs_f64() / took.as_secs_f64().max(1e-6)).clamp(0.1, 40.0);
        // CAST: at most 2^27 * 40, which is cut off at the largest number.
        let rounds = (f64::from(rounds) * scale) as u32;
        let mut short = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin))?;
        let (empty, other) = (kernel!(device, "basics", "empty")?, device.alloc_zeroed::<u32>(32)?);
        let mut launch_short = || -> Result<f64> {
            // SAFETY: the kernel accesses no memory.
            unsafe { short.launch(&empty, 1, 32, &args![]) }?;
            let start = Instant::now();
            short.submit()?.wait(context.patience(SOON))?;
            Ok(micros(start.elapsed()))
        };
        let alone: Result<Vec<_>> = (0..20).map(|_| launch_short()).collect();
        context.recorder.fact("latency_alone", statistics(alone?));
        context.recorder.step("running a long kernel beside short ones")?;
        // SAFETY: the kernel writes a word per thread, and the buffer has one for each.
        unsafe { long.launch(&spin, 1, 32, &args![&other, rounds]) }?;
        let start = Instant::now();
        let fence = long.submit()?;
        let mut beside = Vec::new();
        while !fence.is_done() && start.elapsed() < context.patience(SOON) {
            beside.push(launch_short()?);
        }
        fence.wait(context.patience(SOON))?;
        context.recorder.fact("long_kernel_us", micros(start.elapsed()));
        let most = beside.iter().copied().fold(0.0, f64::max);
        let count = beside.len();
        context.recorder.fact("latency_beside", statistics(beside));
        let modes: Vec<_> = modes
            .iter()
            .map(|(name, answer)| format!("{name} {}", answer.as_str().unwrap_or("refused")))
            .collect();
        Ok(Outcome::Passed(format!(
            "{}{count} launches beside a kernel of {:.0} ms took at most {most:.0} µs",
            if modes.is_empty() { String::new() } else { format!("{}; ", modes.join(", ")) },
            start.elapsed().as_secs_f64() * 1e3,
        )))
    })
}
