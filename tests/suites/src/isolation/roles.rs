//! Roles of the other process.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use gpu_log::Kind;
use tegra_hcq::{Device, Error, FaultKind, args};

use crate::fixtures::{ensure, equal, kernel, patience};
use test_harness::{Context, Played, Role, Suite, Test};

/// An unmapped address, for runs without a parent.
const NOWHERE: u64 = 0x40_0000_0000;

/// Works correctly and exits.
pub(super) const WORKS: Role = Role { name: "works", play: works };
/// Reads and writes the address in its argument, which must be unmapped, and faults each time.
pub(super) const TRESPASSES: Role = Role { name: "trespasses", play: trespasses };
/// Executes a trap.
pub(super) const TRAPS: Role = Role { name: "traps", play: traps };
/// Has an endless kernel and copies in flight.
pub(super) const HANGS: Role = Role { name: "hangs", play: hangs };
/// Has endless kernels and copies in flight on two GPUs.
pub(super) const HANGS_ON_TWO: Role = Role { name: "hangs_on_two", play: hangs_on_two };
/// Has an endless kernel in flight, stops it and continues.
pub(super) const RECOVERS: Role = Role { name: "recovers", play: recovers };

/// Adds 1 to the words of the other process in the first file of its argument, after the fence in the second.
pub(super) const SHARES: Role = Role { name: "shares", play: shares };

/// The roles as tests. On a board, the suite `isolation` runs each in a separate process. Run directly, they
/// are ordinary tests.
pub static SUITE: Suite = Suite {
    name: "neighbour",
    about: "the other process of the suite isolation; runs only if named",
    orin_only: false,
    tests: &[
        Test::new("works", "launches and copies", |context| WORKS.test(context, 0, false).into()),
        Test::new("trespasses", "reads and writes unmapped addresses", |context| {
            TRESPASSES.test(context, NOWHERE, false).into()
        })
        .expecting(Kind::Mmu),
        Test::new("traps", "executes a trap", |context| TRAPS.test(context, 0, false).into())
            .expecting(Kind::Sm),
        Test::new("hangs", "exits with work in flight", |context| HANGS.test(context, 0, true).into())
            .allowing(&[Kind::Hang]),
        Test::new("hangs_on_two", "exits with work in flight on two GPUs", |context| {
            HANGS_ON_TWO.test(context, 0, true).into()
        })
        .allowing(&[Kind::Hang]),
        Test::new("recovers", "stops its own endless kernel", |context| {
            RECOVERS.test(context, 0, false).into()
        })
        .allowing(&[Kind::Hang]),
        Test::new("shares", "changes memory behind a file", |context| SHARES.test(context, 0, false).into()),
    ],
};

/// Number of words that two processes share.
pub(super) const SHARED: usize = 5000;

/// Adds 1 to the shared words, after the fence.
fn shares(context: &Context, argument: u64) -> Played {
    let (device, mut queue) = context.device_and_queue()?;
    let own = device.alloc_shared::<u32>(SHARED)?;
    let file = if argument == 0 {
        own.export()?
    } else {
        // The parent's files, which stay open.
        let [memory, fence] = [argument, argument >> 32].map(|number| number as u32 as RawFd);
        if fence != 0 {
            queue.wait_file(unsafe { BorrowedFd::borrow_raw(fence) })?;
        }
        unsafe { BorrowedFd::borrow_raw(memory) }.try_clone_to_owned()?
    };
    let words = device.import_file::<u32>(file, ..SHARED * 4)?;
    let increment = kernel!(device, "basics", "increment")?;
    unsafe { queue.launch(&increment, 40, 128, &args![&words, SHARED as u32]) }?;
    queue.wait(patience(context))?;
    Ok(Box::new(()))
}

fn works(context: &Context, _: u64) -> Played {
    let (device, mut queue) = context.device_and_queue()?;
    let increment = kernel!(device, "basics", "increment")?;
    let data = device.alloc_zeroed::<u32>(4096)?;
    let mut copy = device.alloc_zeroed::<u32>(4096)?;
    for round in 1..=10 {
        unsafe { queue.launch(&increment, 32, 128, &args![&data, 4096_u32]) }?;
        queue.copy(&data, &mut copy)?;
        queue.submit()?;
        equal("the neighbour's copy", &copy.to_vec()?, &[round; 4096])?;
    }
    Ok(Box::new(()))
}

fn trespasses(context: &Context, address: u64) -> Played {
    let device = context.device()?;
    let out = device.alloc_zeroed::<u32>(1)?;
    for name in ["fault_read", "fault_write", "fault_atomic"] {
        let mut queue = device.queue()?;
        let code = kernel!(device, "faults", name)?;
        if name == "fault_read" {
            unsafe { queue.launch(&code, 1, 1, &args![address, &out]) }?;
        } else {
            unsafe { queue.launch(&code, 1, 1, &args![address, 0xbad_u32]) }?;
        }
        match queue.wait(patience(context)) {
            Err(Error::Fault(fault)) => ensure(
                fault.kind == FaultKind::Mmu && fault.address.is_none_or(|seen| seen == address),
                || format!("expected an MMU fault at {address:#x}: {fault}"),
            )?,
            other => {
                return Err(format!("{name} at {address:#x}, which is not mapped here: {other:?}").into());
            }
        }
        device.recover()?;
    }
    ensure(out.to_vec()? == [0], || "the load returned data".to_owned())?;
    works(context, 0)
}

fn traps(context: &Context, _: u64) -> Played {
    let (device, mut queue) = context.device_and_queue()?;
    let (trap, out) = (kernel!(device, "faults", "fault_trap")?, device.alloc::<u32>(64)?);
    unsafe { queue.launch(&trap, 1, 64, &args![5_u32, &out]) }?;
    match queue.wait(patience(context)) {
        // Without the log the kind is less precise.
        Err(Error::Fault(fault)) => {
            let fits = matches!(fault.kind, FaultKind::Sm(_) | FaultKind::GraphicsException);
            ensure(fits, || format!("expected a trap: {fault}"))?;
        }
        other => return Err(format!("expected a fault, got {other:?}").into()),
    }
    device.recover()?;
    works(context, 0)
}

/// Submits an endless kernel and a copy behind it.
fn endless(device: &Device) -> Result<(tegra_hcq::Queue, tegra_hcq::Fence), tegra_hcq::Error> {
    let mut queue = device.queue()?;
    let code = kernel!(device, "faults", "fault_endless")?;
    let (stop, out) = (device.alloc_zeroed::<u32>(1)?, device.alloc::<u32>(1)?);
    let mut copy = device.alloc::<u32>(1)?;
    unsafe { queue.launch(&code, 1, 32, &args![&stop, &out]) }?;
    queue.copy(&out, &mut copy)?;
    let fence = queue.submit()?;
    Ok((queue, fence))
}

/// Waits for an endless kernel until the time-out.
const SHORT: Duration = Duration::from_millis(50);

fn hangs(context: &Context, _: u64) -> Played {
    let (queue, fence) = endless(context.device()?)?;
    let waited = fence.wait(SHORT);
    ensure(matches!(waited, Err(Error::Timeout { .. })), || format!("expected a time-out, got {waited:?}"))?;
    Ok(Box::new(queue))
}

fn hangs_on_two(context: &Context, _: u64) -> Played {
    let (first, second) = (context.device()?, context.second_device()?);
    let mut link = first.link(&second)?;
    let (source, mut target) = (first.alloc_zeroed::<u32>(1 << 20)?, second.alloc_zeroed::<u32>(1 << 20)?);
    let ((mut one, end), (mut other, other_end)) = (endless(first)?, endless(&second)?);
    // A copy between the GPUs waits behind the kernels, and memory of each is mapped on the other.
    let transfer = link.copy(&mut one, &source, &mut other, &mut target)?;
    for fence in [&end, &other_end, transfer.written()] {
        let waited = fence.wait(SHORT);
        ensure(matches!(waited, Err(Error::Timeout { .. })), || {
            format!("expected a time-out, got {waited:?}")
        })?;
    }
    Ok(Box::new((one, other, link, source, target, second)))
}

fn recovers(context: &Context, _: u64) -> Played {
    let (queue, fence) = endless(context.device()?)?;
    let waited = fence.wait(SHORT);
    ensure(matches!(waited, Err(Error::Timeout { .. })), || format!("expected a time-out, got {waited:?}"))?;
    let recovery = context.device()?.recover()?;
    ensure(recovery.hanging == 1, || format!("{recovery:?}"))?;
    drop(queue);
    works(context, 0)
}
