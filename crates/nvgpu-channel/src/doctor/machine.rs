//! The machine: board, release, and other users of the GPU.

use std::path::{Path, PathBuf};

use super::Report;
use crate::system::System;

/// Name of the chip in the device tree.
const CHIP: &str = "nvidia,tegra234";
/// Paths of libcuda in L4T.
const LIBCUDA: [&str; 3] = [
    "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
];
/// Maximum number of processes named in a finding.
const NAMED_USERS: usize = 5;

/// Reads a property of the device tree: strings that each end in a zero byte.
fn device_tree(system: &dyn System, name: &str) -> Option<Vec<String>> {
    let text = system.read(&Path::new("/proc/device-tree").join(name)).ok()?;
    Some(text.split('\0').filter(|part| !part.is_empty()).map(str::to_owned).collect())
}

pub(super) fn is_orin(system: &dyn System) -> bool {
    device_tree(system, "compatible").is_some_and(|names| names.iter().any(|name| name == CHIP))
        || system.permissions(Path::new("/dev/nvgpu/igpu0")).is_ok()
}

/// Checks the machine; returns whether to continue.
pub(super) fn identify(report: &mut Report, system: &dyn System) -> bool {
    let model = device_tree(system, "model").and_then(|names| names.into_iter().next());
    if !is_orin(system) {
        let what = model.map_or_else(String::new, |model| format!(" but {model}"));
        report.error(
            "machine",
            format!("this machine is not a Jetson Orin{what}"),
            "use the software Orin, which needs no hardware: --device sim",
        );
        return false;
    }
    report.ok("machine", model.unwrap_or_else(|| "a Jetson with an nvgpu device".into()));
    super::release::examine(report, system);
    true
}

/// Checks for CUDA and other users of the GPU.
pub(super) fn neighbours(report: &mut Report, system: &dyn System) {
    match LIBCUDA.iter().find(|path| system.permissions(Path::new(path)).is_ok()) {
        Some(path) => report.ok("CUDA", format!("{path}: may run at the same time, on its own TSGs")),
        None => report.ok("CUDA", "no libcuda; it is not needed"),
    }
    let (users, hidden) = users(system);
    let named: Vec<_> = users.iter().take(NAMED_USERS).map(String::as_str).collect();
    let more = if users.len() > NAMED_USERS { ", and others" } else { "" };
    let blind = if hidden { "; without root, processes of other users cannot be checked" } else { "" };
    if users.is_empty() {
        report.ok("other users", format!("no other process has the GPU open{blind}"));
    } else {
        report.warning(
            "other users",
            format!("{}{more} have the GPU open{blind}", named.join(", ")),
            "they share the GPU by time slices; for steady latency end them (sudo systemctl isolate multi-user)",
        );
    }
}

/// Returns the other processes with a descriptor of the GPU, and whether some could not be read.
pub(super) fn users(system: &dyn System) -> (Vec<String>, bool) {
    let own = system.link(Path::new("/proc/self")).ok();
    let (mut users, mut hidden) = (Vec::new(), false);
    for name in system.list(Path::new("/proc")).unwrap_or_default() {
        let is_process = name.bytes().all(|byte| byte.is_ascii_digit());
        if !is_process || own.as_deref() == Some(Path::new(&name)) {
            continue;
        }
        let process = Path::new("/proc").join(&name);
        let Ok(descriptors) = system.list(&process.join("fd")) else {
            hidden = true;
            continue;
        };
        let is_gpu = |target: PathBuf| {
            let target = target.to_string_lossy().into_owned();
            // The control node, or a descriptor that it returned (`ioctl_channel.c`, `ioctl_tsg.c`).
            target.starts_with("/dev/nvgpu/")
                || target.starts_with("/dev/nvhost-") && target.ends_with("-gpu")
        };
        if descriptors.iter().any(|fd| system.link(&process.join("fd").join(fd)).is_ok_and(is_gpu)) {
            let command = system.read(&process.join("comm")).unwrap_or_default();
            users.push(format!("{} ({name})", command.trim()));
        }
    }
    (users, hidden)
}
