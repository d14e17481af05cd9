//! Diagnosis of a machine that should run kernels, with remedies.
//!
//! [`examine`] checks in this order: machine and release, device nodes and permissions, container, features of the
//! driver, power and clocks of the GPU, and whether a channel opens. Each check returns a [`Finding`];
//! a problem includes a remedy. Checks that depend on a failed one are skipped.
//!
//! ```
//! # use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // On a Jetson: Arc::new(kernel_door::LinuxDoor) and Some(&nvgpu_channel::LinuxSystem).
//! let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
//! let report = nvgpu_channel::examine(&door, None);
//! print!("{report}");
//! assert!(!report.has_errors());
//! # Ok(())
//! # }
//! ```

mod container;
mod gpu;
mod machine;
mod nodes;
mod release;

use core::fmt;
use std::sync::Arc;

use kernel_door::Door;

use crate::gpu::Gpu;
use crate::system::System;

impl Gpu {
    /// Checks everything that a launch needs, through the same door; see the module [`crate::doctor`]. If the GPU
    /// does not open at all, call [`examine`].
    pub fn doctor(&self, system: Option<&dyn System>) -> Report {
        examine(self.door(), system)
    }
}

/// Severity of a finding. Exhaustive: a caller maps each of the three levels to a colour or an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// No problem.
    Ok,
    /// Kernels run, but with reduced performance, higher jitter or less diagnostics.
    Warning,
    /// Kernels do not run.
    Error,
}

impl Severity {
    /// `ok`, `warning` or `error`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Subject of the check, in one or two words.
    pub subject: &'static str,
    /// Description.
    pub text: String,
    /// Remedy, or possible improvement.
    pub cure: Option<String>,
}

/// All findings, in the order of the checks.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// let report = gpu.doctor(None);
/// assert!(!report.has_errors());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Name of the kernel: `Linux`, or that of a software kernel.
    pub door: &'static str,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The worst severity among the findings.
    pub fn worst(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    /// Whether a problem prevents kernels from running.
    pub fn has_errors(&self) -> bool {
        self.worst() == Severity::Error
    }

    /// The finding about `subject`, if it was checked.
    pub fn about(&self, subject: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.subject == subject)
    }

    fn ok(&mut self, subject: &'static str, text: impl Into<String>) {
        self.push(Severity::Ok, subject, text, None);
    }

    fn warning(&mut self, subject: &'static str, text: impl Into<String>, cure: impl Into<String>) {
        self.push(Severity::Warning, subject, text, Some(cure.into()));
    }

    fn error(&mut self, subject: &'static str, text: impl Into<String>, cure: impl Into<String>) {
        self.push(Severity::Error, subject, text, Some(cure.into()));
    }

    fn push(
        &mut self,
        severity: Severity,
        subject: &'static str,
        text: impl Into<String>,
        cure: Option<String>,
    ) {
        self.findings.push(Finding { severity, subject, text: text.into(), cure });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
        for finding in &self.findings {
            let severity = finding.severity.name();
            writeln!(f, "{severity:7}  {:width$}  {}", finding.subject, finding.text)?;
            if let Some(cure) = &finding.cure {
                writeln!(f, "{:7}  {:width$}  -> {cure}", "", "")?;
            }
        }
        Ok(())
    }
}

/// Whether the machine `system` is an Orin, by its device tree or the presence of the driver.
pub fn is_orin(system: &dyn System) -> bool {
    machine::is_orin(system)
}

/// Returns the other processes that have the GPU open, as `NAME (PROCESS)`, and whether some processes could not be
/// examined for lack of permission.
pub fn users(system: &dyn System) -> (Vec<String>, bool) {
    machine::users(system)
}

/// Checks the driver behind `door`. `system` is the machine; `None` for a software kernel.
///
/// Opens the GPU and a channel, which may power on the GPU and take a second, and closes them again.
pub fn examine(door: &Arc<dyn Door>, system: Option<&dyn System>) -> Report {
    let mut report = Report { door: door.name(), findings: Vec::new() };
    if let Some(system) = system {
        if !machine::identify(&mut report, system) {
            return report;
        }
    } else {
        report.ok("machine", format!("{}: no hardware is involved", door.name()));
    }
    let reachable = nodes::examine(&mut report, door, system);
    if let Some(system) = system {
        container::examine(&mut report, system, reachable);
    }
    if reachable {
        gpu::examine(&mut report, door, system);
    }
    if let Some(system) = system {
        machine::neighbours(&mut report, system);
    }
    report
}
