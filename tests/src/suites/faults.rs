//! Kernels that go wrong: each fault is told with its cause, its address and its place, and only its queue is lost.

use std::sync::Arc;
use std::time::Duration;

use tegra_hcq::{
    Arg, Buffer, Device, DeviceKind, Error, ErrorCode, Fault, FaultKind, Kernel, Queue, WarpError, args,
};

use super::fixtures::{case, ensure, equal, kernel, patience};
use crate::dmesg::Kind;
use crate::harness::{Check, Context, Suite};

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
/// Elements that the bystander works on.
const LEN: u32 = 64;

/// A queue with memory that a fault of another queue must leave alone.
struct Bystander<'a> {
    context: &'a Context,
    device: &'a Device,
    queue: Queue,
    increment: Kernel,
    data: Buffer<u32>,
    rounds: u32,
}

impl<'a> Bystander<'a> {
    fn new(context: &'a Context) -> Result<Self, Error> {
        let device = context.device()?;
        let (queue, data) = (device.queue()?, device.alloc_zeroed(LEN as usize)?);
        let increment = kernel!(device, "basics", "increment")?;
        Ok(Self { context, device, queue, increment, data, rounds: 0 })
    }

    fn work(&mut self) -> Check {
        self.rounds += 1;
        self.queue.launch(&self.increment, 1, LEN, &args![&self.data, LEN])?;
        self.queue.wait(patience(self.context))?;
        equal("the bystander's data", &self.data.to_vec()?, &[self.rounds; LEN as usize])
    }

    /// Runs a kernel of `faults.cu` that faults, in a queue of its own; the bystander works before and after.
    fn beside(&mut self, name: &str, threads: u32, arguments: &[Arg]) -> Result<Arc<Fault>, Failed> {
        self.work()?;
        let code = kernel!(self.device, "faults", name)?;
        let mut queue = self.device.queue()?;
        queue.launch(&code, 1, threads, arguments)?;
        let fault = match queue.wait(patience(self.context)) {
            Err(Error::Fault(fault)) => fault,
            other => return Err(format!("{name} was to fault: {other:?}").into()),
        };
        drop(queue);
        self.work()?;
        let place = fault.location.as_ref().map(|location| location.kernel.as_str());
        ensure(place == Some(name), || format!("{name} is not named: {fault}"))?;
        Ok(fault)
    }

    /// Whether an address that only the driver of a desktop GPU tells has to be there.
    fn tells_addresses(&self) -> bool {
        self.device.info().kind == DeviceKind::Nvrm
    }
}

/// Why a step of a test failed.
type Failed = Box<dyn std::error::Error + Send + Sync>;

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
fn stopped(fault: &Fault, errors: &[WarpError]) -> Check {
    let known = matches!(fault.kind, FaultKind::Sm(error) if errors.contains(&error));
    let offset = fault.location.as_ref().map_or(0, |location| location.offset);
    ensure(known && fault.pc.is_some() && offset > 0 && offset.is_multiple_of(16), || {
        format!("{errors:?} was expected, with its place: {fault}; {:?}", fault.log)
    })
}

fn mmu_read(context: &Context) -> Check {
    let mut bystander = Bystander::new(context)?;
    let out = bystander.device.alloc::<u32>(1)?;
    let fault = bystander.beside("fault_read", 1, &args![NOWHERE + 0x3000, &out])?;
    refused(&fault, NOWHERE + 0x3000, "read")
}

fn mmu_write(context: &Context) -> Check {
    let fault = Bystander::new(context)?.beside("fault_write", 1, &args![NOWHERE, 1_u32])?;
    refused(&fault, NOWHERE, "write")
}

fn mmu_atomic(context: &Context) -> Check {
    let fault = Bystander::new(context)?.beside("fault_atomic", 1, &args![NOWHERE, 1_u32])?;
    refused(&fault, NOWHERE, "atomic")
}

fn misaligned(context: &Context) -> Check {
    let mut bystander = Bystander::new(context)?;
    let (input, out) = (bystander.device.alloc_zeroed::<u32>(4)?, bystander.device.alloc::<u32>(1)?);
    let fault = bystander.beside("fault_misaligned", 32, &args![&input, 2_u32, &out])?;
    stopped(&fault, &[WarpError::MisalignedAddress])?;
    let address = input.gpu_va() + 2;
    ensure(fault.address == Some(address) || !bystander.tells_addresses() && fault.address.is_none(), || {
        format!("a load from {address:#x} was expected: {fault}")
    })
}

fn shared_bounds(context: &Context) -> Check {
    let mut bystander = Bystander::new(context)?;
    let out = bystander.device.alloc::<u32>(1)?;
    let fault = bystander.beside("fault_shared_bounds", 1, &args![1_u32 << 20, &out])?;
    stopped(&fault, &[WarpError::OutOfRangeAddress])?;
    // No buffer of global memory has to do with it.
    ensure(fault.nearest.is_none(), || format!("it names a buffer: {fault}"))
}

fn trap(context: &Context) -> Check {
    let mut bystander = Bystander::new(context)?;
    let out = bystander.device.alloc::<u32>(64)?;
    let fault = bystander.beside("fault_trap", 64, &args![33_u32, &out])?;
    // An Orin's SM has no warp error for it, a Hopper's says illegal instruction.
    stopped(&fault, &[WarpError::Unknown(0), WarpError::IllegalInstruction])
}

fn endless(context: &Context) -> Check {
    let mut bystander = Bystander::new(context)?;
    let device = bystander.device;
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
    let recovery = device.recover()?;
    let fault = match fence.wait(patience(context)) {
        Err(Error::Fault(fault)) => fault,
        other => return Err(format!("a stopped kernel was expected, not {other:?}; {recovery:?}").into()),
    };
    let place = fault.location.as_ref().map(|location| location.kernel.as_str());
    let kind = matches!(fault.kind, FaultKind::Abandoned | FaultKind::Other(ErrorCode::IdleTimeout));
    ensure(kind && place == Some("fault_endless"), || {
        format!("a stopped fault_endless was expected: {fault}")
    })?;
    bystander.work()
}

fn many_in_a_row(context: &Context) -> Check {
    let mut bystander = Bystander::new(context)?;
    let input = bystander.device.alloc_zeroed::<u32>(4)?;
    let out = bystander.device.alloc::<u32>(1)?;
    for round in 0..8 {
        let address = NOWHERE + round * 0x1_1000;
        let fault = bystander.beside("fault_read", 1, &args![address, &out])?;
        refused(&fault, address, "read")?;
        let fault = bystander.beside("fault_write", 1, &args![address + 4, 1_u32])?;
        refused(&fault, address + 4, "write")?;
        let fault = bystander.beside("fault_misaligned", 32, &args![&input, 1_u32, &out])?;
        stopped(&fault, &[WarpError::MisalignedAddress])?;
    }
    Ok(())
}
