//! Faulting kernels: each fault must be reported correctly.

use std::sync::Arc;
use std::time::Duration;

use tegra_hcq::{DeviceKind, Error, Fault, FaultKind, MmuAccess, WarpError, args};

use super::worker::Worker;
use crate::fixtures::{ensure, equal, named, reported, stopped};
use test_harness::Check;

/// A kind of fault and its name.
pub(super) type Kind = (&'static str, fn(&mut Worker<'_>, &'static str) -> Check);

/// All kinds.
pub(super) const KINDS: [Kind; 7] = [
    ("MMU read", |w, name| mmu(w, name, false)),
    ("MMU write", |w, name| mmu(w, name, true)),
    ("misaligned", misaligned),
    ("trap", trap),
    ("shared bounds", shared_bounds),
    ("endless", endless),
    ("late end", late_end),
];

/// Time-out of a wait that is meant to expire.
const SHORT: Duration = Duration::from_millis(50);

/// Submits the recorded launch and waits for the fault, which the fence repeats. Later work on the queue is
/// lost as well, unless another thread has already recovered it.
fn submit(w: &mut Worker<'_>) -> Result<Arc<Fault>, Box<dyn std::error::Error + Send + Sync>> {
    let fence = w.queue.submit()?;
    let (fill, data) = (w.basic("fill_u32")?, w.device.alloc::<u32>(32)?);
    let behind =
        unsafe { w.queue.launch(&fill, 1, 32, &args![&data, 1_u32, 32_u32]) }.and_then(|()| w.queue.submit());
    let fault = reported(&fence, w.patience())?;
    match behind.and_then(|behind| behind.wait(w.patience())) {
        Ok(()) | Err(Error::Fault(_)) => {}
        Err(other) => return Err(format!("work behind a fault: {other}").into()),
    }
    ensure(reported(&fence, w.patience())? == fault, || "a fence reported two different faults".to_owned())?;
    Ok(fault)
}

/// Makes the queue usable again, in one of two ways, and checks that it works.
pub(super) fn go_on(w: &mut Worker<'_>) -> Check {
    if w.below(4) == 0 {
        // One at a time: only a few more queues are available than threads use.
        let _turn = w.soak.replacing.lock();
        w.queue = w.device.queue()?;
    } else {
        w.device.recover()?;
    }
    let (fill, value) = (w.basic("fill_u32")?, w.numbers.u32());
    let data = w.device.alloc::<u32>(64)?;
    unsafe { w.queue.launch(&fill, 1, 64, &args![&data, value, 64_u32]) }?;
    w.queue.submit()?;
    equal("data after a fault", &data.to_vec()?, &[value; 64])
}

fn mmu(w: &mut Worker<'_>, name: &'static str, write: bool) -> Check {
    let address = 0x40_0000_0000 + u64::from(w.below(1 << 20)) * 0x1000;
    let kernel = if write { "fault_write" } else { "fault_read" };
    w.soak.ledger.inject(w.number, name, &format!("{address:#x}"));
    let (code, out) = (w.faults.kernel(kernel)?, w.device.alloc::<u32>(1)?);
    if write {
        unsafe { w.queue.launch(&code, 1, 1, &args![address, 1_u32]) }?;
    } else {
        unsafe { w.queue.launch(&code, 1, 1, &args![address, &out]) }?;
    }
    let fault = submit(w)?;
    named(&fault, FaultKind::Mmu, kernel)?;
    let access = fault.access.as_ref().map(|(_, access)| access);
    let told = access.is_some_and(if write { MmuAccess::is_write } else { MmuAccess::is_read });
    let told = told && fault.address == Some(address);
    // An Orin's driver reports the address only in its log.
    let closed = fault.log.is_err() && fault.address.is_none();
    ensure(told || closed, || {
        format!("expected the access at {address:#x}, write: {write}: {fault}; log {:?}", fault.log)
    })?;
    w.soak.ledger.report(w.number, name);
    go_on(w)
}

fn misaligned(w: &mut Worker<'_>, name: &'static str) -> Check {
    let offset = 1 + w.below(3);
    w.soak.ledger.inject(w.number, name, &format!("offset {offset}"));
    let kernel = w.faults.kernel("fault_misaligned")?;
    let (input, out) = (w.device.alloc_from(&[0_u32; 4])?, w.device.alloc::<u32>(1)?);
    unsafe { w.queue.launch(&kernel, 1, 32, &args![&input, offset, &out]) }?;
    let fault = submit(w)?;
    named(&fault, FaultKind::Sm(WarpError::MisalignedAddress), "fault_misaligned")?;
    w.soak.ledger.report(w.number, name);
    go_on(w)
}

fn trap(w: &mut Worker<'_>, name: &'static str) -> Check {
    if w.device.info().kind == DeviceKind::Nvgpu {
        // What a board reports is not known; `faults/trap` observes it.
        return Ok(());
    }
    let thread = w.below(64);
    w.soak.ledger.inject(w.number, name, &format!("thread {thread}"));
    let (kernel, out) = (w.faults.kernel("fault_trap")?, w.device.alloc::<u32>(64)?);
    unsafe { w.queue.launch(&kernel, 1, 64, &args![thread, &out]) }?;
    let fault = submit(w)?;
    // Ampere reports no warp error for a trap; Hopper reports an illegal instruction.
    let hopper = w.device.info().sm_version.0 >= 9;
    let error = if hopper { WarpError::IllegalInstruction } else { WarpError::Unknown(0) };
    named(&fault, FaultKind::Sm(error), "fault_trap")?;
    w.soak.ledger.report(w.number, name);
    go_on(w)
}

fn shared_bounds(w: &mut Worker<'_>, name: &'static str) -> Check {
    let index = 1 << 20 | w.below(1 << 10);
    w.soak.ledger.inject(w.number, name, &format!("word {index}"));
    let (kernel, out) = (w.faults.kernel("fault_shared_bounds")?, w.device.alloc::<u32>(1)?);
    unsafe { w.queue.launch(&kernel, 1, 1, &args![index, &out]) }?;
    let fault = submit(w)?;
    named(&fault, FaultKind::Sm(WarpError::OutOfRangeAddress), "fault_shared_bounds")?;
    w.soak.ledger.report(w.number, name);
    go_on(w)
}

fn endless(w: &mut Worker<'_>, name: &'static str) -> Check {
    w.soak.ledger.inject(w.number, name, "stopped by a recovery");
    let kernel = w.faults.kernel("fault_endless")?;
    let (stop, out) = (w.device.alloc_zeroed::<u32>(1)?, w.device.alloc::<u32>(1)?);
    unsafe { w.queue.launch(&kernel, 1, 32, &args![&stop, &out]) }?;
    let fence = w.queue.submit()?;
    match fence.wait(SHORT) {
        Err(error @ Error::Timeout { .. }) => {
            ensure(error.to_string().contains("fault_endless"), || format!("the cause is missing: {error}"))?;
        }
        other => return Err(format!("expected a time-out, got {other:?}").into()),
    }
    w.device.recover()?;
    let fault = reported(&fence, w.patience())?;
    stopped(&fault)?;
    w.soak.ledger.report(w.number, name);
    go_on(w)
}

/// A wait expires, then the kernel ends: not a hang, unless another thread's recovery came in between.
fn late_end(w: &mut Worker<'_>, name: &'static str) -> Check {
    w.soak.ledger.inject(w.number, name, "ended by the other queue");
    let (endless, store) = (w.faults.kernel("fault_endless")?, w.faults.kernel("fault_write")?);
    let (stop, out) = (w.device.alloc_zeroed::<u32>(1)?, w.device.alloc::<u32>(1)?);
    unsafe { w.queue.launch(&endless, 1, 32, &args![&stop, &out]) }?;
    let fence = w.queue.submit()?;
    let waited = fence.wait(SHORT);
    ensure(matches!(waited, Err(Error::Timeout { .. })), || format!("expected a time-out, got {waited:?}"))?;
    unsafe { w.other.launch(&store, 1, 1, &args![stop.gpu_va(), 1_u32]) }?;
    let written = w.other.submit()?;
    w.finish(&written)?;
    match fence.wait(w.patience()) {
        Ok(()) => {}
        Err(Error::Fault(fault)) => stopped(&fault)?,
        Err(other) => return Err(format!("expected the kernel to end: {other}").into()),
    }
    w.soak.ledger.report(w.number, name);
    go_on(w)
}
