//! Results of a program, printed as aligned rows of text or as one JSON object.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use anyhow::anyhow;
use orin_cli::{ExitStatus, say};
use serde_json::{Map, Value, json};
use tegra_hcq::Device;

use crate::{Failure, describe};

/// A table of results. Text rows are printed at once, JSON fields by [`Table::verdict`].
pub struct Table {
    /// The fields collected for JSON; `None` for text.
    fields: Option<Map<String, Value>>,
}

impl Table {
    /// Starts a table with the rows and fields that describe `device`.
    ///
    /// # Errors
    ///
    /// [`Failure::Run`] if standard output cannot be written; likewise below.
    pub fn new(device: &Device, json: bool) -> Result<Self, Failure> {
        let mut table = Self { fields: json.then(Map::new) };
        let info = device.info();
        table.row("device", describe(device))?;
        table.row(
            "classes",
            format_args!(
                "compute {:#06x}, copy {:#06x}, channel {:#06x}",
                info.compute_class, info.copy_class, info.gpfifo_class
            ),
        )?;
        table
            .row("SMs", format_args!("{} (SM {}.{})", info.sm_count, info.sm_version.0, info.sm_version.1))?;
        table.fields(json!({
            "device": info.kind.name(),
            "chip": info.chip,
            "compute_class": info.compute_class,
            "copy_class": info.copy_class,
            "gpfifo_class": info.gpfifo_class,
            "sm_count": info.sm_count,
        }));
        Ok(table)
    }

    /// Prints a row of text; does nothing for JSON.
    fn row(&self, label: &str, text: impl Display) -> io::Result<()> {
        if self.fields.is_none() { say!("{label:<11} {text}") } else { Ok(()) }
    }

    /// Adds the size and the times of a launch. Both times start at the call of `launch`: until `submit` has returned
    /// and until the CPU has seen the completion.
    ///
    /// # Errors
    ///
    /// [`Failure::Run`]
    pub fn launch(
        &mut self,
        kernel: &str,
        elements: u32,
        [grid, block]: [u32; 2],
        [submitted, completed]: [Duration; 2],
    ) -> Result<(), Failure> {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (submitted, completed) = (micros(submitted), micros(completed));
        self.row("kernel", format_args!("{kernel}, grid {grid}, block {block}"))?;
        self.row("elements", elements)?;
        self.row("submit", format_args!("{submitted:.2} µs (launch encoded, doorbell rung)"))?;
        self.row("completion", format_args!("{completed:.2} µs (seen by the CPU)"))?;
        self.fields(json!({
            "kernel": kernel,
            "elements": elements,
            "submit_us": submitted,
            "completion_us": completed,
        }));
        Ok(())
    }

    /// Adds the fields of a JSON object; does nothing for text.
    fn fields(&mut self, object: Value) {
        if let (Some(fields), Value::Object(object)) = (&mut self.fields, object) {
            fields.extend(object);
        }
    }

    /// Compares the GPU's result with the CPU's bit by bit, and prints the verdict and the JSON object.
    ///
    /// # Errors
    ///
    /// [`Failure::Run`] with the first wrong element.
    pub fn verdict(mut self, got: &[f32], want: &[f32]) -> Result<ExitStatus, Failure> {
        let count = want.len();
        let wrong: Vec<usize> = (0..count).filter(|&i| got[i].to_bits() != want[i].to_bits()).collect();
        self.fields(json!({ "wrong_elements": wrong.len() }));
        if let Some(fields) = self.fields.take() {
            say!("{}", Value::Object(fields))?;
        } else if wrong.is_empty() {
            self.row("result", format_args!("all {count} elements equal the CPU's"))?;
        }
        match wrong.first() {
            None => Ok(ExitStatus::Success),
            Some(&i) => Err(Failure::Run(anyhow!(
                "{} of {count} elements are wrong; the first is [{i}]: {} instead of {}",
                wrong.len(),
                got[i],
                want[i]
            ))),
        }
    }
}
