//! `cargo xtask doctor`: what keeps kernels from running on this machine, and what helps.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use nvgpu_channel::doctor::{self, Finding, Report, Severity};
use nvgpu_channel::{LinuxSystem, System};
use nvgpu_sys::{Door, LinuxDoor};
use orin_sim::{Config, SoftwareOrin};
use serde_json::{Value, json};
use tegra_hcq::DeviceKind;

use crate::WrongUse;

/// Options of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// Which device to examine: auto (the Orin's GPU where there is one, else the software Orin),
    /// nvgpu, nvrm or sim
    #[arg(long, default_value_t = DeviceKind::Auto)]
    device: DeviceKind,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// Examines the device and prints the findings; exit code 1 when one is an error.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let report = examine(options.device, &LinuxSystem)?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&as_json(&report))?);
    } else {
        print!("{report}");
        println!("{}", verdict(&report));
    }
    Ok(if report.has_errors() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The report on a device as programs on this machine would choose it.
fn examine(kind: DeviceKind, system: &dyn System) -> Result<Report> {
    if ![DeviceKind::Auto, DeviceKind::Nvgpu, DeviceKind::Sim].contains(&kind) {
        return Err(
            WrongUse(format!("doctor knows no device {kind}: it examines nvgpu, nvrm and sim")).into()
        );
    }
    let here = doctor::is_orin(system);
    if kind == DeviceKind::Sim || kind == DeviceKind::Auto && !here {
        let orin = SoftwareOrin::new(Config::default()).context("starting the software Orin")?;
        let door: Arc<dyn Door> = Arc::new(orin);
        let mut report = doctor::examine(&door, None);
        if kind == DeviceKind::Auto {
            let absent = Finding {
                severity: Severity::Warning,
                subject: "hardware",
                text: "this machine is no Jetson Orin; programs use the software Orin, examined below".into(),
                cure: Some(
                    "nothing, to try, test and debug; kernels are interpreted, so do not measure them".into(),
                ),
            };
            report.findings.insert(0, absent);
        }
        return Ok(report);
    }
    let door: Arc<dyn Door> = Arc::new(LinuxDoor);
    Ok(doctor::examine(&door, Some(system)))
}

/// The last line.
fn verdict(report: &Report) -> &'static str {
    match report.worst() {
        Severity::Ok => "everything is in order",
        Severity::Warning => "kernels run; see the warnings",
        Severity::Error => "kernels do not run: see the errors",
    }
}

fn as_json(report: &Report) -> Value {
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            json!({
                "severity": finding.severity.name(),
                "subject": finding.subject,
                "text": finding.text,
                "cure": finding.cure,
            })
        })
        .collect();
    json!({ "door": report.door, "worst": report.worst().name(), "findings": findings })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::{Path, PathBuf};

    use nvgpu_channel::system::{Identity, Permissions};

    use super::*;

    /// A machine with nothing of a Jetson.
    #[derive(Debug)]
    struct Desktop;

    impl System for Desktop {
        fn read(&self, _: &Path) -> io::Result<String> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn write(&self, _: &Path, _: &str) -> io::Result<()> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn list(&self, _: &Path) -> io::Result<Vec<String>> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn link(&self, _: &Path) -> io::Result<PathBuf> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn permissions(&self, _: &Path) -> io::Result<Permissions> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn identity(&self) -> Identity {
            Identity::default()
        }
    }

    #[test]
    fn without_an_orin_the_software_one_is_examined() {
        let report = examine(DeviceKind::Auto, &Desktop).unwrap();
        assert_eq!(report.worst(), Severity::Warning);
        let hardware = report.about("hardware").unwrap();
        assert!(hardware.text.contains("no Jetson Orin") && hardware.text.contains("software Orin"));
        assert_eq!(report.about("channel").unwrap().severity, Severity::Ok);
        assert_eq!(verdict(&report), "kernels run; see the warnings");
    }

    #[test]
    fn without_an_orin_its_driver_is_an_error() {
        let report = examine(DeviceKind::Nvgpu, &Desktop).unwrap();
        assert!(report.has_errors());
        assert_eq!(report.findings.len(), 1, "nothing else is asked: {report}");
        assert!(report.findings[0].cure.as_ref().unwrap().contains("--device sim"));
    }

    #[test]
    fn json_says_the_same() {
        let report = examine(DeviceKind::Sim, &Desktop).unwrap();
        let value = as_json(&report);
        assert_eq!(value["door"], "software Orin");
        assert_eq!(value["findings"].as_array().unwrap().len(), report.findings.len());
        assert_eq!(value["findings"][0]["severity"], "ok");
    }
}
