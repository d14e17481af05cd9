//! The GPU and its driver: features, power, clocks, memory, and whether a channel comes up.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use kernel_door::{Door, DoorFd, Errno, OpenFlags};
use nvgpu_sys::paths;

use super::Report;
use crate::characteristics::Characteristics;
use crate::error::Error;
use crate::gpu::Gpu;
use crate::system::System;
use crate::{GpuFlags, MapOptions};

/// Directory of the GPU's device, behind its entry in devfreq.
const DEVICE: &str = "/sys/class/devfreq/17000000.gpu/device";
/// Free memory below which allocations will soon fail, in bytes.
const LITTLE_MEMORY: u64 = 256 << 20;

/// Features that launches do not need, and the consequence of their absence.
const WISHED: [(GpuFlags, &str); 6] = [
    (GpuFlags::SUPPORT_FAULT_RECOVERY, "a faulting kernel takes the machine down"),
    (GpuFlags::SUPPORT_IO_COHERENCE, "cached buffers need explicit cache maintenance"),
    (GpuFlags::SUPPORT_MAP_ACCESS_TYPE, "mappings cannot be made read-only"),
    (GpuFlags::SUPPORT_USER_SYNCPOINT, "the CPU cannot sleep on a channel's syncpoint"),
    (GpuFlags::SUPPORT_CLOCK_CONTROLS, "clocks can be set by root alone"),
    (GpuFlags::SUPPORT_SPARSE_ALLOCS, "address ranges cannot be sparse"),
];

pub(super) fn examine(report: &mut Report, door: &Arc<dyn Door>, system: Option<&dyn System>) {
    let gpu = match Gpu::open(door) {
        Ok(gpu) => gpu,
        Err(error) => {
            report.error("GPU", error.to_string(), open_cure(&error));
            return;
        }
    };
    let chip = gpu.characteristics();
    let (major, minor) = chip.sm_version();
    report.ok(
        "GPU",
        format!(
            "{}, {} SMs of version {major}.{minor}, classes {:#06x} (compute) and {:#06x} (copy)",
            chip.chip_name(),
            chip.sm_count(),
            chip.compute_class(),
            chip.copy_class()
        ),
    );
    features(report, chip);
    memory(report, &gpu);
    power(report, chip, system);
    clocks(report, door, system.is_some());
    clock_runs(report, &gpu);
    bring_up(report, &gpu);
}

/// Cure if the GPU does not open although its nodes do.
fn open_cure(error: &Error) -> &'static str {
    match error {
        Error::UnknownLayout { .. } | Error::Call { errno: Errno::NOTTY, .. } => {
            "install JetPack 6 or 7.2, whose interfaces are known, or report what `orin bring-up` records"
        }
        Error::UnknownClass { .. } | Error::NarrowAddresses { .. } => {
            "only the Orin's GPU is known: for others use CUDA"
        }
        Error::MissingFeature { .. } | Error::DriverTooOld { .. } => "install JetPack 6 (L4T r36)",
        _ => "reboot; if that does not help, check the kernel log: sudo dmesg | grep nvgpu",
    }
}

fn features(report: &mut Report, chip: &Characteristics) {
    let missing: Vec<_> = WISHED.iter().filter(|(flag, _)| !chip.flags().contains(*flag)).collect();
    if missing.is_empty() {
        report.ok("features", "everything that launches need or profit from");
        return;
    }
    let text = |(flag, loss): &&(GpuFlags, &str)| {
        let names: Vec<_> = flag.iter_names().map(|(name, _)| name).collect();
        format!("{}: {loss}", names.join(", "))
    };
    let missing: Vec<_> = missing.iter().map(text).collect();
    report.warning(
        "features",
        format!("missing {}", missing.join("; ")),
        "install JetPack 6 (L4T r36), whose driver has them",
    );
}

fn memory(report: &mut Report, gpu: &Gpu) {
    match gpu.nvmap().system_memory() {
        Ok(usage) => {
            let [available, total, largest] =
                [usage.free_bytes, usage.total_bytes, usage.largest_allocation()].map(|bytes| bytes >> 20);
            let text =
                format!("{available} of {total} MiB available; one allocation may take {largest} MiB now");
            if usage.free_bytes < LITTLE_MEMORY {
                report.warning("memory", text, "end programs that use it: CPU and GPU share one memory");
            } else {
                report.ok("memory", text);
            }
        }
        Err(error) => {
            let cure = "allocations may still work; the driver is not the one of L4T r36";
            report.warning("memory", error.to_string(), cure);
        }
    }
}

fn power(report: &mut Report, chip: &Characteristics, system: Option<&dyn System>) {
    let Some(system) = system else { return };
    let read = |name: &str| system.read(&Path::new(DEVICE).join(name)).map(|text| text.trim().to_owned());
    let state = read("power/runtime_status").unwrap_or_else(|_| "unknown".into());
    let railgates = chip.flags().contains(GpuFlags::CAN_RAILGATE)
        && read("railgate_enable").is_ok_and(|enabled| enabled == "1");
    let text = format!("state {state}");
    if railgates {
        report.warning(
            "power",
            format!("{text}; the GPU powers down when idle, and waking it takes 0.1 s"),
            format!("an open channel keeps it powered; to disable this: echo 0 | sudo tee {DEVICE}/railgate_enable"),
        );
    } else {
        report.ok("power", text);
    }
}

/// Reads a frequency of devfreq through the door.
fn frequency(door: &Arc<dyn Door>, path: &core::ffi::CStr) -> Result<u64, Errno> {
    let fd = DoorFd::open(door, path, OpenFlags::CLOSE_ON_EXEC)?;
    let mut text = [0; 32];
    let len = fd.read(&mut text)?;
    let text = core::str::from_utf8(&text[..len]).map_err(|_| Errno::INVAL)?;
    text.trim().parse().map_err(|_| Errno::INVAL)
}

/// `steady` is whether clocks can be locked.
fn clocks(report: &mut Report, door: &Arc<dyn Door>, steady: bool) {
    let read = || -> Result<(u64, u64, u64), Errno> {
        Ok((
            frequency(door, paths::DEVFREQ_MIN_FREQ)?,
            frequency(door, paths::DEVFREQ_MAX_FREQ)?,
            frequency(door, paths::DEVFREQ_CUR_FREQ)?,
        ))
    };
    match read() {
        Ok((min, max, current)) => {
            let mhz = |hz: u64| hz / 1_000_000;
            let text = format!("{} MHz, between {} and {} MHz", mhz(current), mhz(min), mhz(max));
            if min == max {
                report.ok("clocks", format!("locked at {} MHz", mhz(max)));
            } else {
                let cure = "clocks follow the load; for steady latency lock them: sudo jetson_clocks";
                report.push(super::Severity::Ok, "clocks", text, steady.then(|| cure.into()));
            }
        }
        Err(errno) => report.warning(
            "clocks",
            format!("devfreq cannot be read: {errno}"),
            "clock changes cannot be distinguished from latency; check /sys/class/devfreq",
        ),
    }
}

/// Checks that the GPU time advances, which also shows that the GPU is powered.
fn clock_runs(report: &mut Report, gpu: &Gpu) {
    let times = gpu.time_ns().and_then(|first| {
        // The clock ticks every 32 ns; on a board, a call takes longer, but not on a software kernel.
        let start = Instant::now();
        let mut second = gpu.time_ns()?;
        while second <= first && start.elapsed().as_millis() < 100 {
            second = gpu.time_ns()?;
        }
        Ok((first, second))
    });
    match times {
        Ok((first, second)) if second > first => {
            report.ok("GPU time", format!("runs, {} s since power-on", first / 1_000_000_000))
        }
        Ok((first, _)) => report.error("GPU time", format!("does not advance from {first} ns"), "reboot"),
        Err(error) => report.error("GPU time", error.to_string(), "reboot"),
    }
}

/// Opens address space, mapping, TSG, subcontext and channel, like every program.
fn bring_up(report: &mut Report, gpu: &Gpu) {
    let start = Instant::now();
    let channel = || -> Result<(u32, u64), Error> {
        let space = gpu.address_space()?;
        let buffer = Arc::new(gpu.nvmap().buffer(nvgpu_sys::nvmap::PAGE_SIZE).label("doctor").allocate()?);
        let _mapping = space.map(&buffer, MapOptions::default())?;
        let subcontext = gpu.tsg()?.subcontext(&space)?;
        let class = gpu.characteristics().compute_class();
        let channel = subcontext.channel(class).label("doctor").open()?;
        match channel.error_notifier() {
            Some(fault) => Err(fault.into()),
            None => Ok((channel.token(), gpu.nvmap().held_bytes() >> 10)),
        }
    };
    match channel() {
        Ok((token, held)) => {
            let took = start.elapsed().as_millis();
            let text =
                format!("opens and closes in {took} ms, token {token}; open, it holds {held} KiB of memory");
            report.ok("channel", text);
            let release = gpu.characteristics().interface();
            let code = gpu.nvmap().alloc_code().map_or_else(String::new, |code| format!(" {code:#010x}"));
            report.ok("interface", format!("characteristics as in {release}, NVMAP_IOC_ALLOC{code}"));
        }
        Err(error) => report.error(
            "channel",
            error.to_string(),
            "check the kernel log: sudo dmesg | grep nvgpu; after an unrecoverable error, reboot",
        ),
    }
}
