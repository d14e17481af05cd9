//! The fault of a thread's last failed call, as values.

use core::ptr;

use tegra_hcq::{Fault, FaultKind};

use crate::pass;
use crate::status::{Last, Status, c_text, guard, with_last};
use crate::types::{tegra_hcq_dim3, tegra_hcq_fault, tegra_hcq_fault_kind};

fn kind(kind: &FaultKind) -> tegra_hcq_fault_kind {
    match kind {
        FaultKind::Mmu => tegra_hcq_fault_kind::Mmu,
        FaultKind::Sm(_) => tegra_hcq_fault_kind::Sm,
        FaultKind::Assert => tegra_hcq_fault_kind::Assert,
        FaultKind::LaunchDescriptor => tegra_hcq_fault_kind::LaunchDescriptor,
        FaultKind::GraphicsException => tegra_hcq_fault_kind::GraphicsException,
        FaultKind::Pushbuffer => tegra_hcq_fault_kind::Pushbuffer,
        FaultKind::CopyEngine => tegra_hcq_fault_kind::CopyEngine,
        FaultKind::Abandoned => tegra_hcq_fault_kind::Abandoned,
        _ => tegra_hcq_fault_kind::Other,
    }
}

fn reason(fault: &Fault) -> Option<String> {
    match (&fault.kind, &fault.access) {
        (FaultKind::Sm(error), _) => Some(error.to_string()),
        (FaultKind::Assert, _) => Some(fault.details.join("\n")),
        (FaultKind::Other(code), _) => Some(code.to_string()),
        (_, Some((kind, access))) => Some(format!("{kind}, {access} access")),
        _ => None,
    }
}

/// The C struct; its strings belong to the thread.
fn describe(last: &mut Last) -> Option<tegra_hcq_fault> {
    let fault = last.fault.clone()?;
    let zero = tegra_hcq_dim3 { x: 0, y: 0, z: 0 };
    last.strings.clear();
    let mut keep = |text: Option<String>| match text {
        Some(text) => {
            let text = c_text(&text);
            // The heap memory of a CString does not move with it.
            let pointer = text.as_ptr();
            last.strings.push(text);
            pointer
        }
        None => ptr::null(),
    };
    let location = fault.location.as_ref();
    let (grid, block) = fault.grid.map_or((zero, zero), |(grid, block)| (grid.into(), block.into()));
    Some(tegra_hcq_fault {
        struct_size: 0,
        kind: kind(&fault.kind) as u32,
        has_address: u32::from(fault.address.is_some()),
        has_pc: u32::from(fault.pc.is_some()),
        address: fault.address.unwrap_or(0),
        pc: fault.pc.unwrap_or(0),
        code_offset: location.map_or(0, |location| location.offset),
        kernel: keep(location.map(|location| location.kernel.clone())),
        reason: keep(reason(&fault)),
        nearest: keep(fault.nearest.as_ref().map(ToString::to_string)),
        text: keep(Some(fault.to_string())),
        grid,
        block,
    })
}

/// Fills `*fault`, whose `struct_size` the caller has set, with the fault of this thread's last failed call.
/// Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_NOT_FOUND, and leaves the last error as it is, if that call has not returned
/// TEGRA_HCQ_STATUS_FAULT.
///
/// # Safety
///
/// `fault` is NULL or valid for reads and writes of `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_last_fault(fault: *mut tegra_hcq_fault) -> Status {
    let mut found = None;
    let status = guard(|| {
        found = with_last(describe).flatten();
        let Some(value) = found else { return Ok(()) };
        // SAFETY: the caller's promise.
        unsafe { pass::put_sized(fault, value, "fault") }
    });
    if status == Status::Ok && found.is_none() { Status::NotFound } else { status }
}

impl From<tegra_hcq::Dim3> for tegra_hcq_dim3 {
    fn from(size: tegra_hcq::Dim3) -> Self {
        Self { x: size.x, y: size.y, z: size.z }
    }
}
