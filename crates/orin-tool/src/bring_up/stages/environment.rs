//! Stage 0: the machine around the GPU. Reads files only.

use std::path::Path;

use anyhow::Result;
use nvgpu_channel::{LinuxSystem, System, doctor};
use serde_json::{Map, Value, json};
use tegra_hcq::DeviceKind;

use super::Context;
use crate::bring_up::record::Outcome;

/// Text files of the system that are recorded, by name.
const FILES: [(&str, &str); 12] = [
    ("l4t_release", "/etc/nv_tegra_release"),
    ("kernel_release", "/proc/sys/kernel/osrelease"),
    ("kernel_version", "/proc/sys/kernel/version"),
    ("power_mode", "/var/lib/nvpmodel/status"),
    ("dmesg_restrict", "/proc/sys/kernel/dmesg_restrict"),
    ("console_level", "/proc/sys/kernel/printk"),
    ("gpu_power_state", "/sys/class/devfreq/17000000.gpu/device/power/runtime_status"),
    ("gpu_railgate", "/sys/class/devfreq/17000000.gpu/device/railgate_enable"),
    ("gpu_min_hz", "/sys/class/devfreq/17000000.gpu/min_freq"),
    ("gpu_max_hz", "/sys/class/devfreq/17000000.gpu/max_freq"),
    ("gpu_current_hz", "/sys/class/devfreq/17000000.gpu/cur_freq"),
    ("nvidia_driver", "/proc/driver/nvidia/version"),
];
/// Names of kernel modules that have to do with the GPU begin with one of these.
const MODULES: [&str; 5] = ["nv", "host1x", "tegra", "governor_", "mc_"];

/// Stage 0.
pub(super) fn run(context: &Context) -> Result<Outcome> {
    context.recorder.step("reading files of the system")?;
    for (name, value) in describe(&LinuxSystem) {
        context.recorder.fact(&name, value);
    }
    context.recorder.fact("architecture", std::env::consts::ARCH);
    context.recorder.fact("program", concat!("orin ", env!("CARGO_PKG_VERSION")));
    let report = match context.device.kind {
        DeviceKind::Nvgpu => Some(&LinuxSystem as &dyn System),
        DeviceKind::Sim => None,
        _ => return Ok(Outcome::Passed("the machine is described".to_owned())),
    };
    context.recorder.step("running the doctor")?;
    let report = doctor::examine(&context.door(), report);
    let findings: Value = report
        .findings
        .iter()
        .map(|finding| json!({ "severity": finding.severity.name(), "about": finding.subject, "text": finding.text }))
        .collect();
    context.recorder.fact("doctor", findings);
    let problem = report.findings.iter().find(|finding| finding.severity == doctor::Severity::Error);
    if let Some(problem) = problem {
        anyhow::bail!("{}: {}", problem.subject, problem.text);
    }
    let summary =
        ["machine", "driver"].map(|subject| report.about(subject).map(|finding| finding.text.as_str()));
    Ok(Outcome::Passed(summary.into_iter().flatten().collect::<Vec<_>>().join(", ")))
}

/// What the files say.
fn describe(system: &dyn System) -> Map<String, Value> {
    let read = |path: &str| system.read(Path::new(path)).ok();
    let mut facts = Map::new();
    for (name, path) in FILES {
        if let Some(text) = read(path) {
            let lines: Vec<_> = text.lines().take(4).map(str::trim).collect();
            facts.insert(name.to_owned(), lines.join("\n").into());
        }
    }
    let tree = |name: &str| {
        let text = read(&format!("/proc/device-tree/{name}"))?;
        Some(text.split('\0').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", "))
    };
    // Not the tree's serial number.
    for name in ["model", "compatible"] {
        facts.insert(name.to_owned(), tree(name).into());
    }
    let modules = read("/proc/modules").unwrap_or_default();
    let names = modules.lines().filter_map(|line| line.split_whitespace().next());
    let names: Vec<_> = names.filter(|name| MODULES.iter().any(|known| name.starts_with(known))).collect();
    facts.insert("modules".to_owned(), names.into());
    // The rest of the command line contains serial numbers.
    let command_line = read("/proc/cmdline").unwrap_or_default();
    let consoles: Vec<_> =
        command_line.split_whitespace().filter_map(|word| word.strip_prefix("console=")).collect();
    facts.insert("consoles".to_owned(), consoles.into());
    let (users, hidden) = doctor::users(system);
    // Names without process numbers.
    let users: Vec<_> = users.iter().map(|user| user.split(" (").next().unwrap_or_default()).collect();
    facts.insert("users_of_the_gpu".to_owned(), users.into());
    facts.insert("users_may_be_hidden".to_owned(), hidden.into());
    facts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::text_files::Files;

    #[test]
    fn the_machine_is_described_without_serial_numbers() {
        let files = Files(BTreeMap::from([
            ("/proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0"),
            ("/proc/device-tree/serial-number", "1421723012345\0"),
            (
                "/proc/modules",
                "nvgpu 2654208 23 - Live 0x0\nsnd_usb 1 0 - Live 0x0\nnvmap 192512 9 - Live 0x0\n",
            ),
            (
                "/proc/cmdline",
                "root=/dev/mmcblk0p1 console=ttyTCU0,115200 serialno=1421723012345 console=tty0\n",
            ),
            ("/var/lib/nvpmodel/status", "pmode:0002\n"),
        ]));
        let facts = Value::Object(describe(&files));
        assert_eq!(facts["model"], "NVIDIA Jetson AGX Orin Developer Kit");
        assert_eq!(facts["modules"], json!(["nvgpu", "nvmap"]));
        assert_eq!(facts["consoles"], json!(["ttyTCU0,115200", "tty0"]));
        assert_eq!((&facts["power_mode"], &facts["compatible"]), (&json!("pmode:0002"), &json!(null)));
        assert!(!facts.to_string().contains("1421723012345"));
    }
}
