//! Kernels that go wrong: each fault is told with its cause, its address and its place, and only its queue is lost.

use std::sync::Arc;
use std::time::Duration;

use gpu_log::Kind;
use tegra_hcq::{Arg, DeviceKind, Error, Fault, FaultKind, WarpError, args};

use super::fixtures::{case, ensure, kernel, patience, place, reported, stopped};
use super::survivor::Survivor;
use test_harness::{Check, Context, Suite};

/// The suite.
pub static SUITE: Suite = Suite {
    name: "faults",
    about: "each fault is told with cause, address and place, and costs nothing but its queue",
    orin_only: false,
    tests: &[
        case!(mmu_read, "a load from an address that is not mapped").expecting(Kind::Mmu),
        case!(mmu_write, "a store to an address that is not mapped").expecting(Kind::Mmu),
        case!(mmu_atomic, "an atomic addition at an address that is not mapped").expecting(Kind::Mmu),
        case!(misaligned, "a load from an address that is not a multiple of its size").expecting(Kind::Sm),
        case!(shared_bounds, "a store outside of shared memory").expecting(Kind::Sm),
        case!(trap, "a trap in one thread").expecting(Kind::Sm),
        case!(endless, "a kernel that does not end is named, stopped and forgotten").allowing(&[Kind::Hang]),
        case!(many_in_a_row, "24 faults one after another, each with its own address")
            .expecting(Kind::Mmu)
            .allowing(&[Kind::Sm]),
    ],
};

/// Addresses at which nothing is mapped.
const NOWHERE: u64 = 0x55_0000_0000;
/// Why a step of a test failed.
type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Survivor<'_> {
    /// Runs a kernel of `faults.cu` that faults, in a queue of its own, and works before and after.
    fn outlives(&mut self, name: &str, threads: u32, arguments: &[Arg]) -> Result<Arc<Fault>, Failed> {
        self.work()?;
        let code = kernel!(self.device, "faults", name)?;
        let mut queue = self.device.queue()?;
        queue.launch(&code, 1, threads, arguments)?;
        let fault = reported(&queue.submit()?, patience(self.context))?;
        drop(queue);
        self.work()?;
        ensure(place(&fault) == Some(name), || format!("{name} is not named: {fault}"))?;
        Ok(fault)
    }
}

/// An MMU fault with its page and access. An Orin's driver tells them only in its log, which may be closed.
fn refused(fault: &Fault, address: u64, access: &str) -> Check {
    let known = fault.access.as_ref().is_some_and(|(_, seen)| seen.contains(access));
    let told = known && fault.address == Some(address & !0xfff);
    let closed = fault.log.is_err() && fault.address.is_none();
    ensure(fault.kind == FaultKind::Mmu && (told || closed), || {
        format!("{access} at {address:#x} was expected: {fault}; {:?}", fault.log)
    })
}

/// An exception of an SM, with the instruction.
fn excepted(fault: &Fault, errors: &[WarpError]) -> Check {
    let known = matches!(fault.kind, FaultKind::Sm(error) if errors.contains(&error));
    let offset = fault.location.as_ref().map_or(0, |location| location.offset);
    ensure(known && fault.pc.is_some() && offset > 0 && offset.is_multiple_of(16), || {
        format!("{errors:?} was expected, with its place: {fault}; {:?}", fault.log)
    })
}

fn mmu_read(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let out = survivor.device.alloc::<u32>(1)?;
    let fault = survivor.outlives("fault_read", 1, &args![NOWHERE + 0x3000, &out])?;
    refused(&fault, NOWHERE + 0x3000, "read")
}

fn mmu_write(context: &Context) -> Check {
    let fault = Survivor::new(context)?.outlives("fault_write", 1, &args![NOWHERE, 1_u32])?;
    refused(&fault, NOWHERE, "write")
}

fn mmu_atomic(context: &Context) -> Check {
    let fault = Survivor::new(context)?.outlives("fault_atomic", 1, &args![NOWHERE, 1_u32])?;
    refused(&fault, NOWHERE, "atomic")
}

fn misaligned(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let (input, out) = (survivor.device.alloc_zeroed::<u32>(4)?, survivor.device.alloc::<u32>(1)?);
    let fault = survivor.outlives("fault_misaligned", 32, &args![&input, 2_u32, &out])?;
    excepted(&fault, &[WarpError::MisalignedAddress])?;
    let address = input.gpu_va() + 2;
    // An Orin's driver does not tell it.
    let tells = survivor.device.info().kind == DeviceKind::Nvrm;
    ensure(fault.address == Some(address) || !tells && fault.address.is_none(), || {
        format!("a load from {address:#x} was expected: {fault}")
    })
}

fn shared_bounds(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let out = survivor.device.alloc::<u32>(1)?;
    let fault = survivor.outlives("fault_shared_bounds", 1, &args![1_u32 << 20, &out])?;
    excepted(&fault, &[WarpError::OutOfRangeAddress])?;
    // No buffer of global memory has to do with it.
    ensure(fault.nearest.is_none(), || format!("it names a buffer: {fault}"))
}

fn trap(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let out = survivor.device.alloc::<u32>(64)?;
    let fault = survivor.outlives("fault_trap", 64, &args![33_u32, &out])?;
    // An Orin's SM has no warp error for it, a Hopper's says illegal instruction.
    excepted(&fault, &[WarpError::Unknown(0), WarpError::IllegalInstruction])
}

fn endless(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let device = survivor.device;
    let (stop, out) = (device.alloc_zeroed::<u32>(1)?, device.alloc::<u32>(1)?);
    let code = kernel!(device, "faults", "fault_endless")?;
    let mut queue = device.queue()?;
    queue.launch(&code, 1, 32, &args![&stop, &out])?;
    let fence = queue.submit()?;
    match fence.wait(Duration::from_millis(50)) {
        Err(error @ Error::Timeout { .. }) => ensure(error.to_string().contains("fault_endless"), || {
            format!("the time-out does not name its kernel: {error}")
        })?,
        other => return Err(format!("a time-out was expected: {other:?}").into()),
    }
    device.recover()?;
    stopped(&*reported(&fence, patience(context))?)?;
    survivor.work()
}

fn many_in_a_row(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let input = survivor.device.alloc_zeroed::<u32>(4)?;
    let out = survivor.device.alloc::<u32>(1)?;
    for round in 0..8 {
        let address = NOWHERE + round * 0x1_1000;
        let fault = survivor.outlives("fault_read", 1, &args![address, &out])?;
        refused(&fault, address, "read")?;
        let fault = survivor.outlives("fault_write", 1, &args![address + 4, 1_u32])?;
        refused(&fault, address + 4, "write")?;
        let fault = survivor.outlives("fault_misaligned", 32, &args![&input, 1_u32, &out])?;
        excepted(&fault, &[WarpError::MisalignedAddress])?;
    }
    Ok(())
}
