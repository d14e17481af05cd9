//! Two processes share the GPU: what one does wrong is nothing to the other.
//!
//! The test's own process works before, while and after the other does something, and checks all results.

mod roles;

use gpu_log::Kind;
use tegra_hcq::{Error, FaultKind, args};

use super::fixtures::{case, ensure, equal, kernel, patience};
use super::survivor::Survivor;
use test_harness::{Check, Context, Role, Suite};
use test_support::Numbers;

pub use roles::SUITE as NEIGHBOUR;

/// The suite.
pub static SUITE: Suite = Suite {
    name: "isolation",
    about: "two processes on one GPU: faults, memory and ends of one do not concern the other",
    orin_only: false,
    tests: &[
        case!(work_side_by_side, "both work, with right results"),
        case!(mmu_fault_elsewhere, "the other one faults; its log lines are not taken for one's own")
            .expecting(Kind::Mmu),
        case!(trap_elsewhere, "the other one's kernel traps").expecting(Kind::Sm),
        case!(hang_elsewhere, "the other one stops an endless kernel of its own").allowing(&[Kind::Hang]),
        case!(killed_in_flight, "the other one is killed while its kernel runs").allowing(&[Kind::Hang]),
        case!(memory_is_private, "an address of one is not mapped for the other, and its contents stay")
            .expecting(Kind::Mmu),
        case!(same_addresses, "both use the same addresses for different memory"),
        case!(many_short_lives, "many processes one after another leave nothing behind"),
    ],
};

impl Survivor<'_> {
    /// Works before, while and after another process plays a role.
    fn beside(&mut self, role: Role, argument: u64) -> Check {
        self.work()?;
        let neighbour = self.context.neighbour(role, argument)?;
        neighbour.finish(|| self.work())?;
        self.undisturbed()
    }
}

fn work_side_by_side(context: &Context) -> Check {
    Survivor::new(context)?.beside(roles::WORKS, 0)
}

fn mmu_fault_elsewhere(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    survivor.beside(roles::TRESPASSES, 0x41_2345_6000)?;
    // A fault of one's own is told as such, although the log has those of the other process.
    let code = kernel!(survivor.device, "faults", "fault_write")?;
    let mut queue = survivor.device.queue()?;
    queue.launch(&code, 1, 1, &args![0x42_0000_0000_u64, 1_u32])?;
    match queue.wait(patience(context)) {
        Err(Error::Fault(fault)) => ensure(
            fault.kind == FaultKind::Mmu && fault.address.is_none_or(|address| address == 0x42_0000_0000),
            || format!("a write to 0x4200000000 was expected: {fault}"),
        )?,
        other => return Err(format!("a fault was expected, not {other:?}").into()),
    }
    drop(queue);
    survivor.undisturbed()
}

fn trap_elsewhere(context: &Context) -> Check {
    Survivor::new(context)?.beside(roles::TRAPS, 0)
}

fn hang_elsewhere(context: &Context) -> Check {
    Survivor::new(context)?.beside(roles::RECOVERS, 0)
}

fn killed_in_flight(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    survivor.work()?;
    let live = context.orin().map(orin_sim::SoftwareOrin::live);
    for _ in 0..3 {
        context.neighbour(roles::HANGS, 0)?.kill()?;
        survivor.undisturbed()?;
    }
    let now = context.orin().map(orin_sim::SoftwareOrin::live);
    ensure(now == live, || format!("the dead left something behind: {live:?}, now {now:?}"))?;
    survivor.beside(roles::WORKS, 0)
}

fn memory_is_private(context: &Context) -> Check {
    // Larger than all that the neighbour maps, so that the middle of it is nothing to the neighbour.
    const SECRET: usize = 16 << 20;
    let mut survivor = Survivor::new(context)?;
    let mut secret = survivor.device.alloc::<u32>(SECRET)?;
    survivor.queue.fill(&mut secret, 0x5ec2_e700)?;
    survivor.queue.wait(patience(context))?;
    let address = secret.gpu_va() + 2 * SECRET as u64;
    survivor.beside(roles::TRESPASSES, address)?;
    let got = secret.to_vec()?;
    let changed = got.iter().position(|word| *word != 0x5ec2_e700);
    ensure(changed.is_none(), || format!("word {} of the secret has changed", changed.unwrap_or_default()))
}

/// Processes get the same addresses when they ask for the same: each must see its own memory there.
fn same_addresses(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let pattern = Numbers::new(1).vec_u32(1 << 16);
    let buffers: Vec<_> =
        (0..16).map(|_| survivor.device.alloc_from(&pattern)).collect::<Result<_, Error>>()?;
    survivor.beside(roles::WORKS, 0)?;
    for buffer in &buffers {
        equal("a buffer", &buffer.to_vec()?, &pattern)?;
    }
    Ok(())
}

fn many_short_lives(context: &Context) -> Check {
    // What the system's other programs may take meanwhile, in bytes.
    const SLACK: u64 = 256 << 20;
    let mut survivor = Survivor::new(context)?;
    survivor.beside(roles::WORKS, 0)?;
    let live = || context.orin().map(orin_sim::SoftwareOrin::live);
    let free = || survivor.device.memory_info().map_or(0, |info| info.free);
    let (before, had) = (live(), free());
    let rounds = context.rounds(100, 25);
    for round in 0..rounds {
        survivor.beside(roles::WORKS, 0)?;
        let now = live();
        ensure(now == before, || format!("process {round} left something behind: {before:?}, now {now:?}"))?;
    }
    let has = survivor.device.memory_info().map_or(0, |info| info.free);
    ensure(has + SLACK > had, || format!("{had} bytes were free, now {has}"))?;
    context.note(format!("{rounds} processes"));
    Ok(())
}
