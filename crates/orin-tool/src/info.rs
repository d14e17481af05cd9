//! `orin info`: the properties of a device.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tegra_hcq::{Device, Encodings, Properties};

use crate::cli::DeviceOptions;

/// Opens the device and prints its properties.
pub(crate) fn run(options: &DeviceOptions) -> Result<ExitCode> {
    let device = Device::open(options.device)?;
    let mut rows = rows(device.info());
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
    let mut out = io::stdout().lock();
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
    row("device", json!(info.kind.name()));
    row("chip", json!(info.chip));
    row("compute_class", json!(info.compute_class));
    row("copy_class", json!(info.copy_class));
    row("gpfifo_class", json!(info.gpfifo_class));
    row("sm_version", json!(format!("{}.{}", info.sm_version.0, info.sm_version.1)));
    row("tried", json!(info.tried()));
    row("gpc_count", json!(info.gpc_count));
    row("tpc_count", json!(info.tpc_count));
    row("sm_count", json!(info.sm_count));
    row("warps_per_sm", json!(info.warps_per_sm));
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
    use tegra_hcq::DeviceKind;

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
}
