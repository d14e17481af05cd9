//! Fault reports of grids.

use crate::support::{Machine, Params};
use orin_sim::mmu::{Access, FaultKind};
use orin_sim::sm::{ConstantBank, Launch, SmFault, SmFaultCause};

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
    // The earlier lanes of other warps have stored.
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
fn a_barrier_that_is_never_completed_is_a_deadlock() {
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
    let at = |program_va| Launch { program_va, ..launch.clone() };
    assert_eq!(run(at(zeros.va)).cause, SmFaultCause::IllegalInstruction { word: 0 });
    let unmapped = run(at(0x1000)).cause;
    assert!(matches!(unmapped, SmFaultCause::Mmu(mmu) if mmu.va == 0x1000 && mmu.access == Access::Read));
    assert_eq!(run(at(launch.program_va + 8)).cause, SmFaultCause::MisalignedPc);
    let texture = 0x00fa_ee00_001e_01ff_3800_0004_1205_7361u128.to_le_bytes();
    let code = machine.bytes(&texture);
    let fault = orin_sim::sm::GridRun::new(at(code.va), machine.view()).unwrap().step(1).unwrap_err();
    assert!(matches!(fault.cause, SmFaultCause::Unmodelled { mnemonic: "TEX", .. }), "{fault}");
    // Registers that the launch does not allocate.
    let few = Launch { registers: 0, ..launch.clone() };
    assert!(matches!(run(few).cause, SmFaultCause::OutOfRange { space: "register", .. }));
    // The same for barriers.
    let mut machine = Machine::kernels("matmul");
    let kernel = machine.cubin().kernel("matmul_tiled").unwrap().clone();
    let data = machine.zeros(4096);
    let params = Params::new().buffer(&data).buffer(&data).buffer(&data).u32(16).u32(16).u32(16);
    let one = machine.launch_of(&kernel, [1, 1, 1], [16, 16, 1], &params, 0);
    let none = Launch { barriers: 0, ..one };
    let fault = orin_sim::sm::GridRun::new(none, machine.view()).unwrap().step(10_000).unwrap_err();
    assert!(matches!(fault.cause, SmFaultCause::OutOfRange { space: "barrier", offset: 0, .. }), "{fault}");
    let large = Launch { block: [33, 32, 1], ..launch.clone() };
    assert!(matches!(run(large).cause, SmFaultCause::OutOfRange { space: "block", .. }));
}

/// EXIT.
const EXIT: u128 = 0x000f_c200_0380_0000_0000_0000_0000_794d;

/// `MOV Rd, value`.
fn mov(register: u8, value: u32) -> u128 {
    0x000f_c200_0000_0f00_0000_0000_0000_7802 | u128::from(register) << 16 | u128::from(value) << 32
}

/// The fault of a program of 40 threads in two CTAs, and the address of the program. Only lane 5 of CTA 1 reaches
/// `words`, with R8 = 0, R9 its own index, and 64 bytes of shared and 96 of local memory.
fn fault_of(words: &[u128]) -> (SmFault, u64) {
    fault_of_launch(words, |_, launch| launch)
}

/// Like [`fault_of`], with a change of the launch.
fn fault_of_launch(words: &[u128], change: impl FnOnce(&mut Machine, Launch) -> Launch) -> (SmFault, u64) {
    let mut machine = Machine::kernels("basics");
    let kernel = machine.cubin().kernel("empty").unwrap().clone();
    let launch = machine.launch_of(&kernel, [2, 1, 1], [40, 1, 1], &Params::new(), 0);
    let mut program = vec![
        // S2R R9, SR_TID.X; S2R R8, SR_CTAID.X
        0x000e_2200_0000_2100_0000_0000_0009_7919,
        0x000e_2200_0000_2500_0000_0000_0008_7919,
        // LEA R8, R8, R9, 0x8; ISETP.NE.AND P0, PT, R8, 0x105, PT; @P0 EXIT; MOV R8, 0
        0x000f_c200_078e_40ff_0000_0009_0808_7211,
        0x000f_c200_03f0_5270_0000_0105_0800_780c,
        EXIT & !0xf000,
        mov(8, 0),
    ];
    let skipped = program.len() as u64;
    program.extend(words);
    program.push(EXIT);
    let code = machine.bytes(&program.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    let launch = Launch {
        program_va: code.va,
        registers: 32,
        shared_bytes: 64,
        local_bytes: 96,
        barriers: 1,
        ..launch
    };
    let launch = change(&mut machine, launch);
    let mut grid = orin_sim::sm::GridRun::new(launch, machine.view()).unwrap();
    let fault = grid.step(10_000).unwrap_err();
    assert_eq!((fault.block, fault.thread), ([1, 0, 0], [5, 0, 0]), "{fault}");
    (fault, code.va + 16 * skipped)
}

/// The warp error (`hww_warp_esr`), the instruction and the thread of each kind of fault.
#[test]
fn warp_errors_have_the_hardwares_numbers() {
    // LDS R2, [R4]; STL [R4], R2; LDL R2, [R4]; LDC R2, c[0x0][R4]; each after R4 is set.
    let lds = 0x000e_2200_0000_0800_0000_0000_0402_7984;
    let ldl = 0x000e_2200_0010_0800_0000_0000_0402_7983;
    let ldc = 0x000e_2200_0000_0800_0000_0000_0402_7b82;
    // RET.ABS.NODEC R4 0x0, and the same that counts.
    let ret = 0x000f_c200_03e0_0000_0000_0000_0400_7950;
    let counted = ret & !(1 << 86);
    // ATOM.E.ADD.STRONG.GPU PT, R0, [R4.64], R6
    let atom = 0x000f_c200_081e_e1c4_0000_0006_0400_798a;
    // BAR.SYNC 0x5
    let bar = 0x000f_ec00_0001_0000_0140_0000_0000_7b1d;
    // DMUL R3, R14, R16; IADD3 R200, R200, R200, R200; FADD of no form; TEX
    let dmul = 0x000f_e200_0000_0000_0000_0010_0e03_7228;
    let high = 0x000f_e200_07ff_e0c8_0000_00c8_c8c8_7210;
    let texture = 0x00fa_ee00_001e_01ff_3800_0004_1205_7361;
    let trap = 0x000f_c200_0030_0000_0000_0004_0000_795c;
    let top = 0x100_0000 - 96;
    let local = (crate::support::LOCAL_WINDOW >> 32) as u32;
    let cases: [(&str, Vec<u128>, usize, u32); 19] = [
        ("misaligned shared", vec![mov(4, 6), lds], 1, 0xf),
        ("shared out of range", vec![mov(4, 64), lds], 1, 0xe),
        ("the last word of shared memory", vec![mov(4, 60), lds, trap], 2, 0),
        ("misaligned local", vec![mov(4, top + 2), ldl], 1, 0xf),
        ("below local memory", vec![mov(4, top - 4), ldl], 1, 0xe),
        ("above local memory", vec![mov(4, 0x100_0000), ldl], 1, 0xe),
        ("the first word of local memory", vec![mov(4, top), ldl, trap], 2, 0),
        ("constant out of range", vec![mov(4, 0xfffc), ldc], 1, 0x12),
        ("misaligned constant", vec![mov(4, 2), ldc], 1, 0xf),
        ("no such instruction", vec![0x7fff], 0, 0x9),
        ("a texture", vec![texture], 0, 0x9),
        ("a misaligned pair", vec![dmul], 0, 0x8),
        ("a register that is not allocated", vec![high], 0, 0xd),
        ("a barrier that is not allocated", vec![bar], 0, 0xb),
        ("misaligned program counter", vec![mov(4, 8), mov(5, 5), ret], usize::MAX, 0x5),
        ("program counter beyond", vec![mov(4, 0), mov(5, 1 << 17), ret], usize::MAX, 0x6),
        ("a counted return without a call", vec![mov(4, 0), mov(5, 1), counted], 2, 0x2),
        ("an atomic on local memory", vec![mov(4, top), mov(5, local), atom], 2, 0x10),
        ("an unmapped atomic", vec![mov(4, 0), mov(5, 7), atom], 2, 0x20),
    ];
    for (what, words, at, error) in cases {
        let (fault, start) = fault_of(&words);
        assert_eq!(fault.cause.warp_error(), error, "{what}: {fault}");
        if at != usize::MAX {
            assert_eq!(fault.pc, start + 16 * at as u64, "{what}: {fault}");
        }
    }
}

/// Hardware reads constants when an instruction loads them.
#[test]
fn constants_fault_where_their_page_is_not_mapped() {
    // LDC R2, c[0x0][R4]; MOV R2, c[0x0][0x10a4]; RET.ABS.NODEC R4 0x0
    let ldc = 0x000e_2200_0000_0800_0000_0000_0402_7b82;
    let operand = 0x000f_c200_0000_0f00_0004_2900_0002_7a02;
    let trap = 0x000f_c200_0030_0000_0000_0004_0000_795c;
    // Two buffers of a page with an unmapped page between them, declared as a bank of 64 KiB.
    let fault = |words: &[u128]| {
        let mut bank = 0;
        let (fault, start) = fault_of_launch(words, |machine, mut launch| {
            let pages = [machine.zeros(4096), machine.zeros(4096)];
            assert_eq!(pages[1].va, pages[0].va + 0x2000);
            bank = pages[0].va;
            launch.constants[0] = Some(ConstantBank { va: bank, bytes: 0x1_0000 });
            launch
        });
        (fault, start, bank)
    };
    for (words, at, offset) in [
        (vec![mov(4, 0xffc), ldc, mov(4, 0x1000), ldc], 3, 0x1000),
        (vec![mov(4, 0x1ffc), ldc], 1, 0x1ffc),
        (vec![mov(4, 0x2000), ldc, mov(4, 0x2ffc), ldc, mov(4, 0x3000), ldc], 5, 0x3000),
        (vec![mov(4, 0xfffc), ldc], 1, 0xfffc),
        (vec![operand], 0, 0x10a4),
    ] {
        let (fault, start, bank) = fault(&words);
        let SmFaultCause::Mmu(mmu) = fault.cause else { panic!("{fault}") };
        assert_eq!((mmu.va, mmu.access, fault.pc), (bank + offset, Access::Read, start + 16 * at), "{fault}");
    }
    assert_eq!(fault(&[mov(4, 0x2ffc), ldc, trap]).0.cause, SmFaultCause::Trap);
    let (beyond, ..) = fault(&[mov(4, 0x1_0000), ldc]);
    assert!(matches!(beyond.cause, SmFaultCause::OutOfRange { space: "constant", .. }), "{beyond}");
}
