//! `orin doctor`: why kernels cannot run on this machine, and what to do about it.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use gpu_hal::chip::Chip;
use kernel_door::{Door, LinuxDoor};
use nvgpu_channel::doctor::{self, Finding, Report, Severity};
use nvgpu_channel::{LinuxSystem, System, open_kernel_log};
use orin_cli::{ExitStatus, UsageError, stdout, unless_closed};
use orin_sim::SoftwareOrin;
use serde_json::{Value, json};
use tegra_hcq::{DeviceKind, DeviceName, Which};

use crate::cli::DeviceOptions;

/// Examines the device and prints the findings; exit code 1 if one is an error.
pub(crate) fn run(options: &DeviceOptions) -> Result<ExitCode> {
    let door: Arc<dyn Door> = Arc::new(LinuxDoor);
    let report = examine(options.device, &LinuxSystem, &door)?;
    let mut out = stdout();
    let printed = if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&as_json(&report))?)
    } else {
        writeln!(out, "{report}{}", verdict(&report))
    };
    // The exit code holds even if the reader of the output has closed the pipe.
    unless_closed(printed.map_err(Into::into))?;
    Ok(ExitStatus::failed_if(report.has_errors()).into())
}

/// Examines the device that programs on this machine would use.
fn examine(device: DeviceName, system: &dyn System, door: &Arc<dyn Door>) -> Result<Report> {
    let kind = device.kind;
    if kind == DeviceKind::Nvrm {
        return Ok(examine_nvrm(door, device.which));
    }
    if ![DeviceKind::Auto, DeviceKind::Nvgpu, DeviceKind::Sim].contains(&kind) {
        return Err(
            UsageError(format!("doctor cannot examine device {kind}, only nvgpu, nvrm and sim")).into()
        );
    }
    let here = doctor::is_orin(system);
    if kind == DeviceKind::Auto && !here {
        // What cannot be driven is not what programs use.
        let report = examine_nvrm(door, device.which);
        if !report.has_errors() {
            return Ok(report);
        }
    }
    if kind == DeviceKind::Sim || kind == DeviceKind::Auto && !here {
        let orin = SoftwareOrin::from_environment();
        let orin =
            orin.map_err(|error| UsageError(format!("the software Orin cannot be started: {error}")))?;
        let door: Arc<dyn Door> = Arc::new(orin);
        let mut report = doctor::examine(&door, None);
        if kind == DeviceKind::Auto {
            let absent = Finding {
                severity: Severity::Warning,
                subject: "hardware",
                text: "this machine has neither a Jetson Orin's GPU nor a desktop GPU that can be driven; programs \
                       use the software Orin, examined below"
                    .into(),
                cure: Some(
                    "nothing for trying, testing and debugging; kernels are interpreted, so do not measure them".into(),
                ),
            };
            report.findings.insert(0, absent);
        }
        return Ok(report);
    }
    Ok(doctor::examine(door, Some(system)))
}

/// Examines a GPU of NVIDIA's desktop driver: opens the GPU, memory and channels.
fn examine_nvrm(door: &Arc<dyn Door>, which: Which) -> Report {
    let fine = |subject, text| Finding { severity: Severity::Ok, subject, text, cure: None };
    let wrong = |subject, error: nvrm::Error| {
        let text = error.to_string();
        // The error's text includes the cure, if there is one.
        Finding { severity: Severity::Error, subject, text, cure: None }
    };
    let mut findings = Vec::new();
    let opened = match which {
        Which::Pci { domain, bus, slot } => nvrm::Gpu::open_at(door, (domain, bus, slot)),
        Which::Index(index) => nvrm::Gpu::open(door, index),
    };
    match opened {
        Err(error) => findings.push(wrong("driver", error)),
        Ok(gpu) => {
            let seen = gpu.properties();
            findings.push(fine("driver", format!("release {} of NVIDIA's desktop driver", seen.driver)));
            let sms = seen.tpcs * seen.sms_per_tpc;
            findings.push(fine("hardware", format!("{}, {sms} SMs, /dev/nvidia{}", seen.name, seen.minor)));
            findings.push(tried(gpu.chip()));
            findings.push(match nvrm::Memory::new(&gpu, nvrm::Place::Video, 2 << 20) {
                Ok(memory) => {
                    fine("memory", format!("video memory at {:#x}, mapped by the CPU", memory.gpu_va()))
                }
                Err(error) => wrong("memory", error),
            });
            findings.push(match nvrm::ChannelGroup::open(&gpu) {
                Ok(group) => {
                    let token = group.token(nvrm::Engine::Compute);
                    fine("channel", format!("a compute and a copy channel open; token {token:#x}"))
                }
                Err(error) => wrong("channel", error),
            });
        }
    }
    if let Some(reason) = open_kernel_log(door).unavailable() {
        findings.push(Finding {
            severity: Severity::Warning,
            subject: "kernel log",
            text: reason.to_owned(),
            cure: Some("run as root to get fault addresses from the log".to_owned()),
        });
    }
    Report { door: door.name(), findings }
}

/// Whether commands were ever run on a GPU of this chip.
fn tried(chip: &Chip) -> Finding {
    let severity = if chip.was_tried() { Severity::Ok } else { Severity::Warning };
    let cure = "check results with `cargo xtask test-device --device nvrm`, and report what you see";
    let cure = (!chip.was_tried()).then(|| cure.to_owned());
    Finding { severity, subject: "generation", text: chip.tried(), cure }
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

    use gpu_hal::chip::{SM_8_0, SM_8_6, SM_8_9, SM_9_0};
    use kernel_door::forward::Forward;
    use kernel_door::{Errno, OpenFlags};

    use super::*;
    use crate::text_files::Files;

    #[test]
    fn without_an_orin_the_software_one_is_examined() {
        let report = examine(DeviceKind::Auto.into(), &Files::default(), &empty()).unwrap();
        assert_eq!(report.worst(), Severity::Warning);
        let hardware = report.about("hardware").unwrap();
        assert!(
            hardware.text.contains("neither a Jetson Orin's GPU nor")
                && hardware.text.contains("software Orin")
        );
        assert_eq!(report.about("channel").unwrap().severity, Severity::Ok);
        assert_eq!(verdict(&report), "kernels run; see the warnings");
    }

    fn empty() -> Arc<dyn Door> {
        Arc::new(Empty)
    }

    /// A machine without any GPU.
    #[derive(Debug)]
    struct Empty;

    // SAFETY: the door behind answers, or nothing is opened.
    unsafe impl Forward for Empty {
        fn behind(&self) -> &dyn Door {
            &LinuxDoor
        }

        fn open(&self, _: &std::ffi::CStr, _: OpenFlags) -> Result<std::os::fd::RawFd, Errno> {
            Err(Errno::NOENT)
        }
    }

    #[test]
    fn without_the_desktop_driver_its_absence_is_the_finding() {
        let report = examine_nvrm(&empty(), Which::Index(0));
        assert!(report.has_errors());
        let driver = report.about("driver").unwrap();
        assert!(driver.text.contains("/dev/nvidiactl") && driver.text.contains("kernel module"), "{report}");
    }

    #[test]
    fn without_an_orin_its_driver_is_an_error() {
        let report = examine(DeviceKind::Nvgpu.into(), &Files::default(), &empty()).unwrap();
        assert!(report.has_errors());
        assert_eq!(report.findings.len(), 1, "nothing else is asked: {report}");
        assert!(report.findings[0].cure.as_ref().unwrap().contains("--device sim"));
    }

    #[test]
    fn a_generation_that_was_never_tried_is_a_warning() {
        for chip in [&SM_8_0, &SM_8_6, &SM_8_9] {
            let finding = tried(chip);
            assert_eq!(finding.severity, Severity::Warning);
            assert!(finding.text.contains("never tried") && finding.cure.is_some(), "{finding:?}");
        }
        assert_eq!(tried(&SM_9_0).severity, Severity::Ok);
    }

    #[test]
    fn the_last_line_is_that_of_the_worst_finding() {
        use Severity::{Error, Ok, Warning};
        let of = |severities: &[Severity]| {
            let finding = |&severity| Finding { severity, subject: "x", text: String::new(), cure: None };
            verdict(&Report { door: "a door", findings: severities.iter().map(finding).collect() })
        };
        assert_eq!(of(&[Ok]), "everything is in order");
        assert_eq!(of(&[Ok, Warning, Ok]), "kernels run; see the warnings");
        assert_eq!(of(&[Error, Warning]), "kernels do not run: see the errors");
    }

    #[test]
    fn json_says_the_same() {
        let report = examine(DeviceKind::Sim.into(), &Files::default(), &empty()).unwrap();
        let value = as_json(&report);
        assert_eq!(value["door"], "software Orin");
        assert_eq!(value["findings"].as_array().unwrap().len(), report.findings.len());
        assert_eq!(value["findings"][0]["severity"], "ok");
    }
}
