//! The destructive stages: faults on purpose, and recovery from a kernel that does not end.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use gpu_log::{Stamp, is_about_the_gpu};
use nvgpu_channel::KmsgReader;
use serde_json::{Map, Value, json};
use tegra_hcq::{Arg, Buffer, Device, DeviceOptions, Error, QueueOptions, WaitPolicy, args};

use super::Context;
use super::kernels::{kernel, load, on_device};
use crate::bring_up::record::Outcome;

/// An address at which nothing is mapped.
const NOWHERE: u64 = 0x55_0000_0000;
/// Longest wait for the report of a fault on a board.
const REPORT: Duration = Duration::from_secs(5);
/// The log of a fault is complete after so long without a line.
const SILENCE: Duration = Duration::from_millis(500);
/// Longest wait for that.
const LONGEST_LOG: Duration = Duration::from_secs(10);
/// How long the endless kernel runs before it is stopped.
const ENDLESS: Duration = Duration::from_millis(200);

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

/// Lines of the kernel log with the times at which they were seen.
struct Log {
    reader: Option<KmsgReader>,
    start: Instant,
    lines: Vec<Value>,
    texts: Vec<String>,
}

impl Log {
    fn new(context: &Context) -> Self {
        Self {
            reader: KmsgReader::open_at_end(&context.door()).ok(),
            start: Instant::now(),
            lines: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Reads new lines; returns whether there were any.
    fn read(&mut self) -> bool {
        let Some(reader) = &mut self.reader else { return false };
        let records = reader.read_new().unwrap_or_default();
        let before = self.lines.len();
        for record in records.into_iter().filter(|record| is_about_the_gpu(&record.text)) {
            let kernel_us = if let Stamp::Uptime(micros) = record.stamp { Some(micros) } else { None };
            let seen_ms = millis(self.start.elapsed());
            self.lines.push(json!({ "kernel_us": kernel_us, "seen_ms": seen_ms, "text": record.text }));
            self.texts.push(record.text);
        }
        self.lines.len() > before
    }

    /// Reads until there was no line for half a second.
    fn read_to_silence(&mut self) {
        let (start, mut last) = (Instant::now(), Instant::now());
        while last.elapsed() < SILENCE && start.elapsed() < LONGEST_LOG {
            if self.read() {
                last = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The order of what a fault's report consists of: each kind of line once, at its first place.
    fn order(&self) -> Vec<&'static str> {
        let parts = [
            ("mmu fault", "MMU FAULT"),
            ("sm exception", "SM Exception"),
            ("sm exception", "sm_exception"),
            ("notifier", "error notifier set to"),
            ("recovery", "recover"),
        ];
        let mut order = Vec::new();
        for text in &self.texts {
            let part = parts.iter().find(|(_, word)| text.to_lowercase().contains(&word.to_lowercase()));
            if let Some((name, _)) = part
                && !order.contains(name)
            {
                order.push(*name);
            }
        }
        order
    }
}

/// Whether a fresh queue of a device works, and how long it takes to find out.
fn fresh_launch(context: &Context, device: &Device) -> Result<f64> {
    let start = Instant::now();
    let mut queue = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin))?;
    let out = device.alloc_zeroed::<u32>(1)?;
    // SAFETY: the kernel writes one word to `out`.
    unsafe { queue.launch(&kernel!(device, "faults", "fault_write")?, 1, 1, &args![&out, 7_u32]) }?;
    queue.submit()?.wait(context.patience(REPORT))?;
    ensure!(out.to_vec()? == [7], "the fresh launch has no effect");
    Ok(millis(start.elapsed()))
}

/// Provokes one fault and records everything about it. An error means that the device did not recover.
fn fault(context: &Context, name: &str, block: u32) -> Result<(Value, bool)> {
    context.recorder.step(format!("provoking: {name}"))?;
    on_device(context, DeviceOptions::new(), |device, queue| {
        let mut log = Log::new(context);
        let kernel = load(
            device,
            &[
                include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/faults.cubin")),
                include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/sm_90/faults.cubin")),
            ],
            name,
        )?;
        let out: Buffer<u32> = device.alloc_zeroed(64)?;
        let arguments: Vec<Arg<'_>> = match name {
            "fault_write" => args![NOWHERE, 1_u32].to_vec(),
            "fault_misaligned" => args![&out, 2_u32, &out].to_vec(),
            _ => args![33_u32, &out].to_vec(),
        };
        // SAFETY: the kernel accesses one word of `out`, an address without memory, or shared memory only.
        unsafe { queue.launch(&kernel, 1, block, &arguments) }?;
        let start = Instant::now();
        let result = queue.submit()?.wait(context.patience(REPORT));
        let reported_ms = millis(start.elapsed());
        log.read_to_silence();
        let mut seen = json!({ "reported_ms": reported_ms, "order": log.order(), "log": log.lines });
        let told = match result {
            Err(Error::Fault(fault)) => {
                seen["kind"] = format!("{:?}", fault.kind).into();
                seen["notifier"] = fault.notifier.raw().into();
                seen["address"] = fault.address.map(|address| format!("{address:#x}")).into();
                seen["pc"] = fault.pc.map(|pc| format!("{pc:#x}")).into();
                seen["text"] = fault.to_string().into();
                true
            }
            Err(error) => {
                seen["text"] = error.to_string().into();
                false
            }
            Ok(()) => {
                seen["text"] = "the work ended without a fault".into();
                false
            }
        };
        let start = Instant::now();
        device.recover()?;
        seen["recover_ms"] = millis(start.elapsed()).into();
        let fresh = fresh_launch(context, device).with_context(|| format!("a fresh launch after {name}"))?;
        seen["fresh_launch_ms"] = fresh.into();
        Ok((seen, told))
    })
}

/// Stage 13.
pub(super) fn provoke(context: &Context) -> Result<Outcome> {
    let mut all = Map::new();
    let mut silent = Vec::new();
    // What a trap does on this chip is not known: it is only observed.
    for (name, block, expected) in
        [("fault_write", 1, true), ("fault_misaligned", 32, true), ("fault_trap", 64, false)]
    {
        let (seen, told) = fault(context, name, block)?;
        if expected && !told {
            silent.push(format!("{name}: {}", seen["text"].as_str().unwrap_or_default()));
        }
        all.insert(name.to_owned(), seen);
        context.recorder.fact("faults", all.clone());
    }
    ensure!(silent.is_empty(), "no fault is reported for {}", silent.join("; "));
    let notifiers: Vec<_> = all.values().map(|seen| seen["notifier"].to_string()).collect();
    Ok(Outcome::Passed(format!("reported with notifiers {}; fresh launches work", notifiers.join(", "))))
}

/// Starts a kernel that does not end, and returns once it has run for a while.
fn start_endless(context: &Context, device: &Device) -> Result<tegra_hcq::Queue> {
    let (stop, out) = (device.alloc_zeroed::<u32>(1)?, device.alloc_zeroed::<u32>(32)?);
    let mut queue = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin))?;
    // SAFETY: the kernel reads a word of `stop` and writes a word of `out`.
    unsafe { queue.launch(&kernel!(device, "faults", "fault_endless")?, 1, 32, &args![&stop, &out]) }?;
    match queue.submit()?.wait(ENDLESS) {
        Err(Error::Timeout { .. }) => Ok(queue),
        Ok(()) => bail!("the endless kernel ended"),
        Err(error) => {
            context.tracer.reset_channels();
            Err(error).context("the endless kernel was stopped by something else")
        }
    }
}

/// Stage 14.
pub(super) fn recover(context: &Context) -> Result<Outcome> {
    let recorder = &context.recorder;
    recorder.step("starting an endless kernel")?;
    let by_reset = on_device(context, DeviceOptions::new(), |device, _| {
        let mut log = Log::new(context);
        let queue = start_endless(context, device)?;
        recorder.step("stopping it by FORCE_RESET")?;
        let start = Instant::now();
        let recovery = device.recover()?;
        let recover_ms = millis(start.elapsed());
        ensure!(recovery.hanging == 1, "{} hanging queues were found", recovery.hanging);
        let fresh = fresh_launch(context, device).context("a fresh launch after FORCE_RESET")?;
        drop(queue);
        log.read_to_silence();
        recorder.fact(
            "force_reset",
            json!({ "recover_ms": recover_ms, "fresh_launch_ms": fresh, "log": log.lines }),
        );
        Ok(recover_ms)
    })?;
    if !context.is_nvgpu() {
        return Ok(Outcome::Passed(format!("recovered in {by_reset} ms")));
    }
    recorder.step("starting another endless kernel")?;
    let close = on_device(context, DeviceOptions::new(), |device, _| {
        let mut log = Log::new(context);
        let queue = start_endless(context, device)?;
        recorder.step("closing its channels without a reset")?;
        context.tracer.hold_resets(true);
        let start = Instant::now();
        drop(queue);
        // The waiter thread of the device may hold the channels a little longer.
        let close_ms = millis(start.elapsed());
        context.tracer.hold_resets(false);
        let fresh = fresh_launch(context, device).context("a fresh launch after closing without a reset")?;
        log.read_to_silence();
        recorder.fact(
            "close_without_reset",
            json!({ "close_ms": close_ms, "fresh_launch_ms": fresh, "log": log.lines }),
        );
        Ok(close_ms)
    })?;
    Ok(Outcome::Passed(format!(
        "FORCE_RESET recovers in {by_reset} ms, closing in {close} ms; fresh launches work"
    )))
}
