//! What a grid reports when its program goes wrong.

mod sm_support;

use orin_sim::mmu::{Access, FaultKind};
use orin_sim::sm::{SmFault, SmFaultCause};
use sm_support::{Machine, Params};

fn run(name: &str, block: u32, params: impl FnOnce(&mut Machine) -> Params) -> SmFault {
    let mut machine = Machine::kernels("faults");
    let params = params(&mut machine);
    let code = machine.cubin().kernel(name).unwrap().code_offset + 0x5_0000_0000;
    let fault = machine.try_run(name, [1, 1, 1], [block, 1, 1], &params, 0).unwrap_err();
    assert!(fault.pc >= code && fault.pc < code + machine.cubin().kernel(name).unwrap().code_bytes);
    fault
}

#[test]
fn unmapped_addresses() {
    let fault = run("fault_read", 1, |machine| Params::new().u64(0x1234_5000).buffer(&machine.zeros(4)));
    let SmFaultCause::Mmu(mmu) = fault.cause else { panic!("{fault}") };
    assert_eq!((mmu.va, mmu.kind, mmu.access), (0x1234_5000, FaultKind::InvalidPde, Access::Read));
    let fault = run("fault_write", 1, |_| Params::new().u64(0x10).u32(1));
    let SmFaultCause::Mmu(mmu) = fault.cause else { panic!("{fault}") };
    assert_eq!((mmu.va, mmu.access), (0x10, Access::Write));
    let fault = run("fault_atomic", 1, |_| Params::new().u64(1 << 50).u32(1));
    let SmFaultCause::Mmu(mmu) = fault.cause else { panic!("{fault}") };
    assert_eq!((mmu.va, mmu.kind, mmu.access), (1 << 50, FaultKind::LimitViolation, Access::Atomic));
}

#[test]
fn the_first_lane_beyond_the_end() {
    let mut machine = Machine::kernels("faults");
    let (input, out) = (machine.zeros(4096 - 40), machine.zeros(8192));
    let params = Params::new().u64(input.va + 40).buffer(&out);
    let fault = machine.try_run("fault_no_bound", [2, 1, 1], [1020, 1, 1], &params, 0).unwrap_err();
    let SmFaultCause::Mmu(mmu) = fault.cause else { panic!("{fault}") };
    assert_eq!(mmu.va, input.va + 4096);
    assert_eq!((fault.block, fault.thread), ([0, 0, 0], [1014, 0, 0]));
    // The lanes before it of other warps have stored.
    assert!(fault.to_string().contains("thread [1014, 0, 0]"), "{fault}");
}

#[test]
fn misaligned_and_out_of_bounds() {
    let mut va = 0;
    let fault = run("fault_misaligned", 1, |machine| {
        let base = machine.zeros(64);
        va = base.va;
        Params::new().buffer(&base).u32(6).buffer(&base)
    });
    assert_eq!(fault.cause, SmFaultCause::MisalignedAddress { va: va + 6, bytes: 4 });
    let fault = run("fault_shared_bounds", 1, |machine| Params::new().u32(32).buffer(&machine.zeros(4)));
    assert_eq!(fault.cause, SmFaultCause::OutOfRange { space: "shared", offset: 128, bytes: 4 });
}

#[test]
fn traps_name_their_thread() {
    let fault = run("fault_trap", 64, |machine| Params::new().u32(45).buffer(&machine.zeros(256)));
    assert_eq!((fault.cause, fault.thread), (SmFaultCause::Trap, [45, 0, 0]));
}

#[test]
fn a_barrier_that_nobody_completes_is_a_deadlock() {
    let fault = run("fault_barrier", 64, |machine| Params::new().buffer(&machine.zeros(256)));
    assert!(matches!(fault.cause, SmFaultCause::Deadlock(_)), "{fault}");
}

#[test]
fn a_fault_is_reported_again() {
    let mut machine = Machine::kernels("faults");
    let out = machine.zeros(128);
    let mut grid = machine.grid("fault_trap", [1, 1, 1], [32, 1, 1], &Params::new().u32(0).buffer(&out), 0);
    let first = grid.step(1000).unwrap_err();
    assert_eq!(grid.step(1000).unwrap_err(), first);
}

#[test]
fn programs_that_are_none() {
    let mut machine = Machine::kernels("basics");
    let kernel = machine.cubin().kernel("empty").unwrap().clone();
    let launch = machine.launch_of(&kernel, [1, 1, 1], [32, 1, 1], &Params::new(), 0);
    let zeros = machine.zeros(64);
    let view = machine.view();
    let run = |launch| {
        orin_sim::sm::GridRun::new(launch, view.clone()).and_then(|mut grid| grid.step(100)).unwrap_err()
    };
    let at = |program_va| orin_sim::sm::Launch { program_va, ..launch.clone() };
    assert_eq!(run(at(zeros.va)).cause, SmFaultCause::IllegalInstruction { word: 0 });
    assert_eq!(run(at(0x1000)).cause, SmFaultCause::InvalidPc);
    assert_eq!(run(at(launch.program_va + 8)).cause, SmFaultCause::InvalidPc);
    let texture = 0x00fa_ee00_019e_01ff_3800_0004_1205_7361u128.to_le_bytes();
    let code = machine.bytes(&texture);
    let fault = orin_sim::sm::GridRun::new(at(code.va), machine.view()).unwrap().step(1).unwrap_err();
    assert!(matches!(fault.cause, SmFaultCause::Unmodelled { mnemonic: "TEX", .. }), "{fault}");
    // Registers that the launch does not allocate.
    let few = orin_sim::sm::Launch { registers: 0, ..launch.clone() };
    assert!(matches!(run(few).cause, SmFaultCause::OutOfRange { space: "register", .. }));
    // Barriers likewise.
    let mut machine = Machine::kernels("matmul");
    let kernel = machine.cubin().kernel("matmul_tiled").unwrap().clone();
    let data = machine.zeros(4096);
    let params = Params::new().buffer(&data).buffer(&data).buffer(&data).u32(16).u32(16).u32(16);
    let one = machine.launch_of(&kernel, [1, 1, 1], [16, 16, 1], &params, 0);
    let none = orin_sim::sm::Launch { barriers: 0, ..one };
    let fault = orin_sim::sm::GridRun::new(none, machine.view()).unwrap().step(10_000).unwrap_err();
    assert!(matches!(fault.cause, SmFaultCause::OutOfRange { space: "barrier", offset: 0, .. }), "{fault}");
    let large = orin_sim::sm::Launch { block: [33, 32, 1], ..launch.clone() };
    assert!(matches!(run(large).cause, SmFaultCause::OutOfRange { space: "block", .. }));
}
