//! The data files of a bundle.

use std::fs;

use gpu_hal::ring::{USERD_GP_GET, USERD_GP_PUT};
use serde_json::{Map, Value, json};

use super::{Contents, Event};
use crate::adapter;
use crate::diagnose::inspect::LANES;
use crate::wait::Health;

fn hex(value: u64) -> String {
    format!("{value:#x}")
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// First line of a system file, if it exists.
fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.to_owned())
}

/// Versions of software and hardware.
pub(super) fn versions(contents: &Contents<'_>) -> String {
    let properties = contents.device.properties();
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
    let driver: Map<String, Value> =
        properties.driver.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let own = [
        ("tegra-hcq", env!("CARGO_PKG_VERSION")),
        ("ampere-cmd", ampere_cmd::VERSION),
        ("cubin", cubin::VERSION),
        ("gpu-hal", gpu_hal::VERSION),
        ("gpu-log", gpu_log::VERSION),
    ];
    let crates: Map<String, Value> = own
        .iter()
        .chain(adapter::VERSIONS)
        .map(|(name, version)| ((*name).to_owned(), json!(version)))
        .collect();
    pretty(&json!({
        "about": "Versions of the software, and the device's properties; 'driver' contains every number that \
                  GET_CHARACTERISTICS reports.",
        "crates": crates,
        "system": {
            "program": program,
            "architecture": std::env::consts::ARCH,
            "kernel": first_line("/proc/sys/kernel/osrelease"),
            "l4t": first_line("/etc/nv_tegra_release"),
        },
        "device": {
            "kind": properties.kind.name(),
            "chip": properties.chip,
            "compute_class": hex(properties.compute_class.into()),
            "copy_class": hex(properties.copy_class.into()),
            "gpfifo_class": hex(properties.gpfifo_class.into()),
            "sm_version": format!("{}.{}", properties.sm_version.0, properties.sm_version.1),
            "gpc_count": properties.gpc_count,
            "tpc_count": properties.tpc_count,
            "sm_count": properties.sm_count,
            "warps_per_sm": properties.warps_per_sm,
            "l2_bytes": properties.l2_bytes,
            "max_clock_hz": properties.max_clock_hz,
            "va_start": hex(properties.va_start),
            "va_end": hex(properties.va_end),
            "shared_window": hex(properties.shared_window),
            "local_window": hex(properties.local_window),
        },
        "driver": driver,
    }))
}

/// State of the device and its queues.
pub(super) fn state(contents: &Contents<'_>) -> String {
    let device = contents.device;
    let (event, slot) = match contents.event {
        Event::Request => ("request", None),
        Event::Fault { slot, .. } => ("fault", Some(slot)),
        Event::TimeOut { slot, .. } => ("time-out", Some(slot)),
    };
    let queues: Vec<Value> = contents.queues.iter().map(|queue| self::queue(contents, queue)).collect();
    let (usage, memory) = (device.heap().pool().usage(), device.driver().memory_info());
    let clocks = device.driver().clock_pair().ok().map(|(gpu, _)| gpu);
    pretty(&json!({
        "about": "Timelines, submissions and health of each queue. A submission is complete once 'timeline' has \
                  reached its value; 'pending' submissions have not. 'lost' work was cut off by a \
                  fault or a recovery. Where 'complete' is false, earlier faults and lost work are not listed, \
                  because the queue was being examined at that moment.",
        "event": event,
        "queue": slot,
        "gpu_time_ns": clocks,
        "memory": {
            "reserved_bytes": usage.reserved,
            "in_use_bytes": usage.in_use,
            "idle_bytes": usage.idle,
            "system_total_bytes": memory.map(|info| info.total),
            "system_available_bytes": memory.map(|info| info.available),
            "largest_allocation_bytes": memory.map(|info| info.largest),
        },
        "queues": queues,
    }))
}

/// The pointers of a ring, and all words of its USERD.
fn ring(userd: &[u32]) -> Value {
    let words: Vec<_> = userd.iter().map(|word| format!("{word:#x}")).collect();
    json!({ "gp_get": userd[USERD_GP_GET / 4], "gp_put": userd[USERD_GP_PUT / 4], "userd": words })
}

fn queue(contents: &Contents<'_>, queue: &super::QueueView) -> Value {
    let state = &queue.snapshot;
    // A fault still under analysis is not yet recorded at its queue.
    let now = matches!(contents.event, Event::Fault { slot, .. } if slot == state.slot);
    let health = match state.health {
        _ if now => "faulted",
        Health::Working if state.timed_out => "working, a wait has timed out",
        Health::Working => "working",
        Health::Faulted => "faulted",
        Health::Forgiven => "recovered, opens new channels at its next use",
    };
    let fault = match contents.event {
        Event::Fault { fault, .. } if now => Some(fault.to_string()),
        _ => state.fault.as_ref().map(ToString::to_string),
    };
    let lost: Vec<Value> = state
        .lost
        .iter()
        .map(|(after, through, fault)| {
            json!({ "first": after + 1, "last": through, "fault": fault.to_string() })
        })
        .collect();
    json!({
        "queue": state.slot,
        "health": health,
        "wait_policy": format!("{:?}", state.policy),
        "submitted": state.submitted,
        "timeline": state.timeline,
        "pending": state.submitted.saturating_sub(state.timeline),
        "last_release_gpu_time_ns": state.gpu_time_ns,
        "last_kernel": state.last_kernel,
        "channels_open": queue.submissions.is_some(),
        "rings": queue.userd.as_ref().map(|userd| {
            let named = LANES.into_iter().zip(userd);
            named.map(|(name, words)| (name.to_owned(), ring(words))).collect::<Map<_, _>>()
        }),
        "fault": fault,
        "lost": lost,
        "complete": state.complete,
    })
}
