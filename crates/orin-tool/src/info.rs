//! `orin info`: the properties of a device.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use nvgpu_sys::Release;
use orin_cli::{UsageError, stdout};
use orin_sim::board::{BOARD_VARIABLE, Profile};
use orin_sim::release::{self, KERNEL_VARIABLE};
use serde_json::{Map, Value, json};
use tegra_hcq::{Device, DeviceKind, Encodings, Properties};

use crate::cli::DeviceOptions;

/// Opens the device and prints its properties.
pub(crate) fn run(options: &DeviceOptions) -> Result<ExitCode> {
    let device = Device::open(options.device).map_err(|error| UsageError(error.to_string()))?;
    let mut rows = rows(device.info());
    add_peers(&mut rows, &device);
    if device.info().kind == DeviceKind::Sim {
        add_board(&mut rows, Profile::from_environment()?, release::from_environment()?);
    }
    add_encodings(&mut rows, device.encodings());
    match device.queue() {
        Ok(queue) => {
            let mode = queue.preemption().map(|mode| mode.to_string());
            rows.insert(
                "preemption".to_owned(),
                json!(mode.as_deref().unwrap_or("not reported by the driver")),
            );
        }
        Err(error) => {
            rows.insert("preemption".to_owned(), json!(format!("unknown: no queue can be opened: {error}")));
        }
    }
    add_memory(&mut rows, &device);
    let mut out = stdout();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&Value::Object(rows))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = rows.keys().map(String::len).max().unwrap_or(0);
    for (name, value) in &rows {
        writeln!(out, "{name:width$}  {}", text(name, value))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One entry per property, in the order of the table.
fn rows(info: &Properties) -> Map<String, Value> {
    let mut rows = Map::new();
    let mut row = |name: &str, value: Value| rows.insert(name.to_owned(), value);
    row("device", json!(info.name().to_string()));
    row("chip", json!(info.chip));
    row("compute_class", json!(info.compute_class));
    row("copy_class", json!(info.copy_class));
    row("gpfifo_class", json!(info.gpfifo_class));
    row("sm_version", json!(format!("{}.{}", info.sm_version.0, info.sm_version.1)));
    row("tried", json!(info.tried()));
    row("gpc_count", json!(info.gpc_count));
    row("tpc_count", json!(info.tpc_count));
    row("sm_count", json!(info.sm_count));
    if let Some(note) = sm_note(info) {
        row("sm_note", json!(note));
    }
    row("warps_per_sm", json!(info.warps_per_sm));
    row("unified_memory", json!(info.unified_memory));
    row("l2_bytes", json!(info.l2_bytes));
    row("max_clock_hz", json!(info.max_clock_hz));
    row("va_start", json!(info.va_start));
    row("va_end", json!(info.va_end));
    row("shared_window", json!(info.shared_window));
    row("local_window", json!(info.local_window));
    for (name, value) in &info.driver {
        row(&format!("driver.{name}"), json!(value));
    }
    rows
}

/// Explains the number of SMs of an Orin, which depends on the module and on its power mode.
fn sm_note(info: &Properties) -> Option<String> {
    let most = orin_sim::board::SMS_OF_CHIP;
    match info.kind {
        DeviceKind::Nvgpu if info.sm_count < most => Some(format!(
            "{} of the chip's {most}: the module and its power mode switch off the others; see sudo nvpmodel -q",
            info.sm_count
        )),
        DeviceKind::Nvgpu => Some(format!("all of the chip's {most}")),
        _ => None,
    }
}

/// Describes the board of a software Orin.
fn add_board(rows: &mut Map<String, Value>, profile: Profile, kernel: Release) {
    let Profile { board, mode } = profile;
    let note = format!(
        "{} of the chip's {}: a {} has {}, of which mode {} powers {}",
        mode.sm_count(),
        orin_sim::board::SMS_OF_CHIP,
        board.title,
        board.most_sms(),
        mode.name,
        mode.sm_count()
    );
    rows.insert("sm_note".to_owned(), json!(note));
    rows.insert(
        "board".to_owned(),
        json!(format!("{profile} ({}); {BOARD_VARIABLE} selects another", board.title)),
    );
    rows.insert("kernel".to_owned(), json!(format!("{kernel}; {KERNEL_VARIABLE} selects another")));
    rows.insert("clock_limit_hz".to_owned(), json!(profile.clock_hz()));
}

/// Adds the devices of the same kind, and how this one uses their memory.
fn add_peers(rows: &mut Map<String, Value>, device: &Device) {
    let names = match Device::list(device.info().kind) {
        Ok(names) => names,
        Err(error) => {
            rows.insert("devices".to_owned(), json!(format!("unknown: {error}")));
            return;
        }
    };
    let list: Vec<_> = names.iter().map(ToString::to_string).collect();
    rows.insert("devices".to_owned(), json!(list.join(", ")));
    for name in names.into_iter().filter(|name| *name != device.info().name()) {
        let access = Device::open(name).and_then(|other| device.enable_peer(&other));
        let text = access.map_or_else(|error| format!("unknown: {error}"), |access| access.to_string());
        rows.insert(format!("peer.{name}"), json!(text));
    }
}

/// Adds the memory of the machine or GPU, and what the device holds of it, with one queue at most.
fn add_memory(rows: &mut Map<String, Value>, device: &Device) {
    let Some(memory) = device.memory() else {
        rows.insert("memory".to_owned(), json!("not reported by the driver"));
        return;
    };
    for (name, bytes) in [
        ("total", memory.total),
        ("available", memory.available),
        ("largest_allocation", memory.largest),
        ("held", memory.held),
    ] {
        rows.insert(format!("memory.{name}_bytes"), json!(bytes));
    }
}

/// Adds the encodings that the device uses, and where each was seen working.
fn add_encodings(rows: &mut Map<String, Value>, encodings: &Encodings) {
    for (name, value, seen) in encodings.report() {
        rows.insert(format!("encoding.{name}"), json!(format!("{value} ({seen})")));
    }
}

/// The text of a value; addresses, classes and masks in hexadecimal.
fn text(name: &str, value: &Value) -> String {
    let hexadecimal =
        ["class", "va_start", "va_end", "window", "mask", "flags", "arch", "impl", "vendor", "device_id"];
    match value.as_u64() {
        Some(number) if hexadecimal.iter().any(|part| name.contains(part)) => format!("{number:#x}"),
        Some(number) => number.to_string(),
        None => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_that_was_never_tried_is_reported() {
        let device = Device::open(DeviceKind::Sim).unwrap();
        let mut rows_of_sim = rows(device.info());
        add_encodings(&mut rows_of_sim, device.encodings());
        assert_eq!(rows_of_sim["encoding.pcas_action"], "9 (seen on a board, in another program)");
        let mut info = device.info().clone();
        assert!(rows(&info)["tried"].as_str().unwrap().contains("software Orin only, never on a board"));
        info.gpu.sm_version = (8, 6);
        info.gpu.chip = "NVIDIA GeForce RTX 3090".to_owned();
        assert!(
            rows(&info)["tried"].as_str().unwrap().contains("SM 8.6 (GeForce RTX 30, A40) was never tried")
        );
    }

    #[test]
    fn memory_is_what_the_machine_has_and_the_device_holds() {
        let device = Device::open(DeviceKind::Sim).unwrap();
        let _buffer = device.alloc::<u8>(3 << 20).unwrap();
        let mut rows = Map::new();
        add_memory(&mut rows, &device);
        let bytes = |name: &str| rows[&format!("memory.{name}_bytes")].as_u64().unwrap();
        assert_eq!(bytes("held"), 3 << 20);
        assert!(bytes("available") + bytes("held") <= bytes("total"));
        assert!(bytes("available") / 1000 * 999 - bytes("largest_allocation") < 2 << 20);
    }

    #[test]
    fn addresses_classes_and_masks_are_hexadecimal() {
        for (name, value, wanted) in [
            ("compute_class", json!(0xc7c0), "0xc7c0"),
            ("driver.gpc_mask", json!(3), "0x3"),
            ("va_end", json!(1_u64 << 38), "0x4000000000"),
            ("sm_count", json!(16), "16"),
            ("l2_bytes", json!(4 << 20), "4194304"),
            ("chip", json!("ga10b"), "ga10b"),
            ("unified_memory", json!(true), "true"),
        ] {
            assert_eq!(text(name, &value), wanted, "{name}");
        }
    }

    #[test]
    fn the_number_of_sms_is_explained() {
        let device = Device::open(DeviceKind::Sim).unwrap();
        // As an SM's occupancy counts them: the driver's own number is twice as large.
        assert_eq!(rows(device.info())["warps_per_sm"], 48);
        assert_eq!(rows(device.info())["driver.sm_arch_warp_count"], 96);
        let mut info = device.info().clone();
        info.kind = DeviceKind::Nvgpu;
        assert_eq!(rows(&info)["sm_note"], "all of the chip's 16");
        info.gpu.sm_count = 8;
        assert!(
            rows(&info)["sm_note"]
                .as_str()
                .unwrap()
                .contains("8 of the chip's 16: the module and its power mode")
        );
        let mut of_board = rows(device.info());
        add_board(&mut of_board, "nx-16:15w".parse().unwrap(), Release::R39_2);
        let note = "4 of the chip's 16: a Jetson Orin NX 16 GB has 8, of which mode 15w powers 4";
        assert_eq!(of_board["sm_note"], note);
        assert_eq!(of_board["kernel"], "r39.2; ORIN_SIM_KERNEL selects another");
        assert!(of_board["board"].as_str().unwrap().starts_with("nx-16:15w (Jetson Orin NX 16 GB)"));
    }
}
