//! Isolation: two processes share the GPU, and the errors of one do not affect the other.
//!
//! The test's process works before, during and after the other process's action, and checks all results.

mod roles;

use std::os::fd::AsFd;

use gpu_log::Kind;
use tegra_hcq::{Error, FaultKind, args};

use super::fixtures::{case, ensure, equal, kernel, patience};
use super::survivor::Survivor;
use test_harness::{Check, Context, Role, Skip, Suite};
use test_support::Numbers;

pub use roles::SUITE as NEIGHBOUR;

/// The suite.
pub static SUITE: Suite = Suite {
    name: "isolation",
    about: "two processes on one GPU: faults, memory and exit of one do not affect the other",
    orin_only: false,
    tests: &[
        case!(work_side_by_side, "both processes work with correct results"),
        case!(
            mmu_fault_elsewhere,
            "the other process faults; its log lines are not attributed to this process"
        )
        .expecting(Kind::Mmu),
        case!(trap_elsewhere, "a kernel of the other process traps").expecting(Kind::Sm),
        case!(hang_elsewhere, "the other process stops its own endless kernel").allowing(&[Kind::Hang]),
        case!(killed_in_flight, "the other process is killed while its kernel runs")
            .allowing(&[Kind::Hang])
            .dangerous_on_a_board(),
        case!(killed_on_two_gpus, "the other process is killed while its kernels run on two GPUs")
            .allowing(&[Kind::Hang])
            .dangerous_on_a_board(),
        case!(memory_is_private, "memory of one process is not mapped in the other and stays unchanged")
            .expecting(Kind::Mmu),
        case!(same_addresses, "both processes use the same addresses for different memory"),
        case!(
            memory_is_shared,
            "the other process changes exported memory of this one in place, after a fence"
        ),
        case!(many_short_lives, "many consecutive processes do not leak"),
    ],
};

impl Survivor<'_> {
    /// Works before, during and after another process plays a role.
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
    // This process's own fault is reported correctly even if the log also holds those of the other process.
    let code = kernel!(survivor.device, "faults", "fault_write")?;
    let mut queue = survivor.device.queue()?;
    unsafe { queue.launch(&code, 1, 1, &args![0x42_0000_0000_u64, 1_u32]) }?;
    match queue.wait(patience(context)) {
        Err(Error::Fault(fault)) => ensure(
            fault.kind == FaultKind::Mmu && fault.address.is_none_or(|address| address == 0x42_0000_0000),
            || format!("expected a write to 0x4200000000: {fault}"),
        )?,
        other => return Err(format!("expected a fault, got {other:?}").into()),
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
    ensure(now == live, || format!("dead processes leaked: {live:?}, now {now:?}"))?;
    survivor.beside(roles::WORKS, 0)
}

fn killed_on_two_gpus(context: &Context) -> Check {
    if context.is_model() {
        // A software Orin belongs to its process; here the process goes on.
        return Err(Skip("needs two GPUs of one machine, which outlive the killed process".to_owned()).into());
    }
    let second = context.second_device()?;
    let mut survivor = Survivor::new(context)?;
    let increment = kernel!(&second, "basics", "increment")?;
    let (mut queue, words) = (second.queue()?, second.alloc_zeroed::<u32>(1000)?);
    for round in 1..=3 {
        context.neighbour(roles::HANGS_ON_TWO, 0)?.kill()?;
        survivor.undisturbed()?;
        unsafe { queue.launch(&increment, 8, 128, &args![&words, 1000_u32]) }?;
        queue.wait(patience(context))?;
        equal("words on the second GPU", &words.to_vec()?, &[round; 1000])?;
    }
    Ok(())
}

fn memory_is_private(context: &Context) -> Check {
    // Larger than all of the neighbour's mappings, so the neighbour has nothing mapped at its middle.
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

/// Processes get the same addresses for the same requests; each must see its own memory there.
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

fn memory_is_shared(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let mut words = survivor.device.alloc_shared::<u32>(roles::SHARED)?;
    let memory = words.export()?;
    for round in 0..3 {
        survivor.queue.fill(&mut words, 70 + round)?;
        let fence = match survivor.queue.submit_to_file() {
            Err(error) if error.is_unsupported() => {
                survivor.queue.wait(patience(context))?;
                None
            }
            fence => Some(fence?),
        };
        let files: Vec<_> = [&memory].into_iter().chain(&fence).map(AsFd::as_fd).collect();
        survivor.work()?;
        survivor.context.neighbour_with(roles::SHARES, &files)?.finish(|| Ok(()))?;
        equal("the shared words", &words.to_vec()?, &[71 + round; roles::SHARED])?;
    }
    Ok(())
}

fn many_short_lives(context: &Context) -> Check {
    // What other programs of the system may allocate meanwhile, in bytes.
    const SLACK: u64 = 256 << 20;
    let mut survivor = Survivor::new(context)?;
    survivor.beside(roles::WORKS, 0)?;
    let live = || context.orin().map(orin_sim::SoftwareOrin::live);
    let free = || survivor.device.memory().map_or(0, |memory| memory.available);
    let (before, had) = (live(), free());
    let rounds = context.rounds(100, 25);
    for round in 0..rounds {
        survivor.beside(roles::WORKS, 0)?;
        let now = live();
        ensure(now == before, || format!("process {round} leaked: {before:?}, now {now:?}"))?;
    }
    let has = survivor.device.memory().map_or(0, |memory| memory.available);
    ensure(has + SLACK > had, || format!("{had} bytes were free, now {has} are"))?;
    context.note(format!("{rounds} processes"));
    Ok(())
}
