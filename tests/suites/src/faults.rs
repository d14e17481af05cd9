//! Faulting kernels: each fault is reported with cause, address and location, and only its queue is lost.

use std::sync::Arc;
use std::time::Duration;

use gpu_log::Kind;
use tegra_hcq::{Arg, DeviceKind, Error, Fault, FaultKind, MmuAccess, WarpError, args};

use super::fixtures::{case, ensure, kernel, patience, place, reported, stopped};
use super::survivor::Survivor;
use test_harness::{Check, Context, Suite};

/// The suite.
pub static SUITE: Suite = Suite {
    name: "faults",
    about: "each fault is reported with cause, address and location, and only its queue is lost",
    orin_only: false,
    tests: &[
        case!(mmu_read, "a load from an unmapped address").expecting(Kind::Mmu),
        case!(mmu_write, "a store to an unmapped address").expecting(Kind::Mmu),
        case!(mmu_atomic, "an atomic add at an unmapped address").expecting(Kind::Mmu),
        case!(misaligned, "a load from an address that is not a multiple of its size").expecting(Kind::Sm),
        case!(shared_bounds, "a store outside shared memory").expecting(Kind::Sm),
        case!(trap, "a trap in one thread").expecting(Kind::Sm).observed_on_a_board(),
        case!(endless, "an endless kernel is named, stopped and discarded").allowing(&[Kind::Hang]),
        case!(many_in_a_row, "24 consecutive faults, each with its own address")
            .expecting(Kind::Mmu)
            .allowing(&[Kind::Sm]),
        case!(other_gpu, "a fault of one GPU leaves another alone; their connection survives the recovery")
            .expecting(Kind::Mmu),
    ],
};

/// Unmapped addresses.
const NOWHERE: u64 = 0x55_0000_0000;
/// Why a step of a test failed.
type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Survivor<'_> {
    /// Runs a faulting kernel of `faults.cu` in its own queue; the queue works before and after.
    fn outlives(&mut self, name: &str, threads: u32, arguments: &[Arg]) -> Result<Arc<Fault>, Failed> {
        self.work()?;
        let code = kernel!(self.device, "faults", name)?;
        let mut queue = self.device.queue()?;
        unsafe { queue.launch(&code, 1, threads, arguments) }?;
        let fault = reported(&queue.submit()?, patience(self.context))?;
        drop(queue);
        self.work()?;
        ensure(place(&fault) == Some(name), || format!("{name} is not named: {fault}"))?;
        Ok(fault)
    }
}

/// Checks page and access of an MMU fault. The Orin's driver reports them only in its log, which may be
/// unreadable.
fn refused(fault: &Fault, address: u64, access: fn(&MmuAccess) -> bool) -> Check {
    let known = fault.access.as_ref().is_some_and(|(_, seen)| access(seen));
    let matches = known && fault.address == Some(address & !0xfff);
    let closed = fault.log.is_err() && fault.address.is_none();
    ensure(fault.kind == FaultKind::Mmu && (matches || closed), || {
        format!("expected another access at {address:#x}: {fault}; {:?}", fault.log)
    })
}

/// Checks that the fault is an SM exception with the given errors and an instruction address.
fn excepted(fault: &Fault, errors: &[WarpError]) -> Check {
    let known = matches!(fault.kind, FaultKind::Sm(error) if errors.contains(&error));
    let offset = fault.location.as_ref().map_or(0, |location| location.offset);
    ensure(known && fault.pc.is_some() && offset > 0 && offset.is_multiple_of(16), || {
        format!("expected {errors:?} with its location: {fault}; {:?}", fault.log)
    })
}

fn mmu_read(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let out = survivor.device.alloc::<u32>(1)?;
    let fault = survivor.outlives("fault_read", 1, &args![NOWHERE + 0x3000, &out])?;
    refused(&fault, NOWHERE + 0x3000, MmuAccess::is_read)
}

fn mmu_write(context: &Context) -> Check {
    let fault = Survivor::new(context)?.outlives("fault_write", 1, &args![NOWHERE, 1_u32])?;
    refused(&fault, NOWHERE, MmuAccess::is_write)
}

fn mmu_atomic(context: &Context) -> Check {
    let fault = Survivor::new(context)?.outlives("fault_atomic", 1, &args![NOWHERE, 1_u32])?;
    refused(&fault, NOWHERE, MmuAccess::is_atomic)
}

fn misaligned(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let (input, out) = (survivor.device.alloc_zeroed::<u32>(4)?, survivor.device.alloc::<u32>(1)?);
    let fault = survivor.outlives("fault_misaligned", 32, &args![&input, 2_u32, &out])?;
    excepted(&fault, &[WarpError::MisalignedAddress])?;
    let address = input.gpu_va() + 2;
    // The Orin's driver does not report the address.
    let reports_address = survivor.device.info().kind == DeviceKind::Nvrm;
    ensure(fault.address == Some(address) || !reports_address && fault.address.is_none(), || {
        format!("expected a load from {address:#x}: {fault}")
    })
}

fn shared_bounds(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let out = survivor.device.alloc::<u32>(1)?;
    let fault = survivor.outlives("fault_shared_bounds", 1, &args![1_u32 << 20, &out])?;
    excepted(&fault, &[WarpError::OutOfRangeAddress])?;
    // The access is not to global memory, so no buffer is near it.
    ensure(fault.nearest.is_none(), || format!("the fault names a buffer: {fault}"))
}

fn trap(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let out = survivor.device.alloc::<u32>(64)?;
    let fault = survivor.outlives("fault_trap", 64, &args![33_u32, &out])?;
    // Orin's SM reports no warp error for a trap; Hopper reports an illegal instruction.
    excepted(&fault, &[WarpError::Unknown(0), WarpError::IllegalInstruction])
}

fn endless(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let device = survivor.device;
    let (stop, out) = (device.alloc_zeroed::<u32>(1)?, device.alloc::<u32>(1)?);
    let code = kernel!(device, "faults", "fault_endless")?;
    let mut queue = device.queue()?;
    unsafe { queue.launch(&code, 1, 32, &args![&stop, &out]) }?;
    let fence = queue.submit()?;
    match fence.wait(Duration::from_millis(50)) {
        Err(error @ Error::Timeout { .. }) => ensure(error.to_string().contains("fault_endless"), || {
            format!("the time-out does not name the kernel: {error}")
        })?,
        other => return Err(format!("expected a time-out: {other:?}").into()),
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
        refused(&fault, address, MmuAccess::is_read)?;
        let fault = survivor.outlives("fault_write", 1, &args![address + 4, 1_u32])?;
        refused(&fault, address + 4, MmuAccess::is_write)?;
        let fault = survivor.outlives("fault_misaligned", 32, &args![&input, 1_u32, &out])?;
        excepted(&fault, &[WarpError::MisalignedAddress])?;
    }
    Ok(())
}

fn other_gpu(context: &Context) -> Check {
    const LEN: usize = 1000;
    let (first, second) = (context.device()?, context.second_device()?);
    let mut link = first.link(&second)?;
    let (mut one, mut other) = (first.queue()?, second.queue()?);
    let (increment, write) =
        (kernel!(&second, "basics", "increment")?, kernel!(first, "faults", "fault_write")?);
    let source = first.alloc_from(&[3_u32; LEN])?;
    let (mut target, counts) = (second.alloc_zeroed::<u32>(LEN)?, second.alloc_zeroed::<u32>(LEN)?);
    link.copy(&mut one, &source, &mut other, &mut target)?.wait(patience(context))?;
    let rounds = 50_u32;
    let mut fault = None;
    for round in 0..rounds {
        unsafe { other.launch(&increment, 8, 128, &args![&counts, LEN as u32]) }?;
        let end = other.submit()?;
        if round == rounds / 2 {
            if link.access().is_direct() {
                // The queue that faults uses memory of the other GPU.
                one.copy(&source, &mut target)?;
            }
            unsafe { one.launch(&write, 1, 1, &args![NOWHERE, 1_u32]) }?;
            fault = Some(reported(&one.submit()?, patience(context))?);
        }
        end.wait(patience(context))?;
    }
    refused(&*fault.ok_or("no fault")?, NOWHERE, MmuAccess::is_write)?;
    crate::fixtures::equal("the other GPU's counts", &counts.to_vec()?, &[rounds; LEN])?;
    let untouched = second.recover()?;
    ensure(untouched.is_empty(), || format!("the other GPU lost work: {untouched:?}"))?;
    let recovery = first.recover()?;
    ensure(recovery.faults.len() == 1, || format!("{recovery:?}"))?;
    // Mappings, memory and link as before.
    let mut back = first.alloc_zeroed::<u32>(LEN)?;
    link.copy(&mut one, &source, &mut other, &mut target)?;
    link.copy(&mut other, &target, &mut one, &mut back)?.wait(patience(context))?;
    crate::fixtures::equal("there and back", &back.to_vec()?, &[3; LEN])
}
