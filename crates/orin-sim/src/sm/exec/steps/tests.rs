//! Random instructions of all operations with handlers of their own, compared with the interpreter.

use std::sync::Arc;

use proptest::prelude::*;
use sass::{Instruction, Op, field};

use super::*;
use crate::check::Tools;
use crate::memory::Memory;
use crate::mmu::{AddressSpace, MappedRange};
use crate::sm::exec::execute;
use crate::sm::fetched::Fetched;
use crate::sm::port::Port;
use crate::sm::{ConstantBank, Launch, coverage::Counter};

/// Address of constant bank 0 and of the data, of one page each.
const BANK: u64 = 0x2_0000_0000;
const DATA: u64 = 0x3_0000_0000;
const SHARED_BYTES: u32 = 1024;

/// Registers with valid addresses of global and shared memory, if no instruction is to have others.
const ADDRESS: u8 = 36;
const SHARED_ADDRESS: u8 = 38;

/// Words that are special as integers or floats.
pub(super) const SPECIAL: [u32; 18] = [
    0,
    1,
    2,
    31,
    32,
    !0,
    0x7fff_ffff,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    1 << 23,
    0x0000_0fff,
    0x4b00_0001,
    0x3eaa_aaab,
];

/// A sequence of numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) >> 32) as u32
    }

    /// A word; half of them are special as integers or floats.
    fn word(&mut self) -> u32 {
        if self.next().is_multiple_of(2) {
            SPECIAL[self.next() as usize % SPECIAL.len()]
        } else {
            self.next()
        }
    }

    /// A mask of lanes; often all or none.
    fn mask(&mut self) -> u32 {
        match self.next() % 4 {
            0 => !0,
            1 => 0,
            _ => self.next(),
        }
    }

    /// An instruction with handlers of its own.
    fn instruction(&mut self) -> Instruction {
        loop {
            let (base, forms, upper) = OPERATIONS[self.next() as usize % OPERATIONS.len()];
            let form = forms[self.next() as usize % forms.len()];
            for _ in 0..50 {
                if let Some(i) = self.form_of(base, form, upper) {
                    return i;
                }
            }
        }
    }

    /// An instruction that may be a part of a block; most loads have the addresses that [`Bench::fill`] makes valid.
    #[cfg(target_arch = "x86_64")]
    fn part_of_block(&mut self) -> Instruction {
        loop {
            let i = self.instruction();
            match i.op {
                Op::Lds | Op::Ldg | Op::Sts | Op::Stg if !self.next().is_multiple_of(8) => {
                    let shared = matches!(i.op, Op::Lds | Op::Sts);
                    let register = if shared { SHARED_ADDRESS } else { ADDRESS };
                    let offset = 4 * (self.next() % 32) + if self.next().is_multiple_of(16) { 2 } else { 0 };
                    let word = i.word() & !(0xffff_ff00_u128 << 32 | 0xff << 24);
                    let word = word | u128::from(offset) << 40 | u128::from(register) << 24;
                    if let Ok(i) = sass::decode(word) {
                        return i;
                    }
                }
                _ => return i,
            }
        }
    }

    /// An instruction of one form, if a random word is valid.
    fn form_of(&mut self, base: u16, form: u16, upper: u32) -> Option<Instruction> {
        // Modifiers: none, one, or any of the most frequent ones.
        let modifiers = match self.next() % 4 {
            0 => 0,
            1 => 1 << (self.next() % 32),
            _ => self.next() & 0x1ff00,
        };
        // Few registers, and constants near the start of a bank.
        let slot = match form {
            3 | 5 => self.next() & 0x0000_7f80,
            2 | 4 => self.word(),
            _ => self.next(),
        };
        let register =
            |numbers: &mut Self| if numbers.next().is_multiple_of(4) { 255 } else { numbers.next() & 0x1f };
        let lower = u32::from(base) | u32::from(form) << 9 | register(self) << 16 | register(self) << 24;
        let guard = if self.next().is_multiple_of(2) { 7 } else { self.next() & 15 };
        // The slot of SHFL has its mode and immediates.
        let slot = match base {
            _ if matches!(form, 2..=5) || base == 0x189 => slot,
            // The half that HADD2 reads.
            0x030 => register(self) | 0x3000_0000 & self.next(),
            _ => register(self),
        };
        let upper = if self.next().is_multiple_of(8) { upper ^ modifiers } else { upper | modifiers };
        let uniform = if matches!(form, 6 | 7) { 1 << 27 } else { 0 };
        // Predicates: none, PT, or any.
        let predicates = match self.next() % 4 {
            0 | 1 => 0,
            2 => 0x03fe_0000 & !(self.next() & self.next() & 0x0380_0000),
            _ => 0x0380_0000 | self.next() & 0x007e_0000,
        };
        let upper = upper | predicates | uniform | register(self);
        let words = [lower | guard << 12, slot, upper, self.next() & 0x3f];
        let word = words.iter().rev().fold(0, |word, part| word << 32 | u128::from(*part));
        let i = sass::decode(word).ok()?;
        let fits = i.top_register().is_none_or(|top| top < 40);
        (handlers::has_own(&i) && fits).then_some(i)
    }
}

/// Operations: opcode, forms, and the usual bits 64 to 95.
const OPERATIONS: &[(u16, &[u16], u32)] = &[
    (0x021, &[1, 2, 3, 7], 0),
    (0x020, &[1, 4, 5, 6], 0x0040_0000),
    (0x023, &[1, 2, 3, 4, 5, 6, 7], 0),
    (0x009, &[1, 4, 5, 6], 0),
    (0x008, &[1, 4, 5, 6], 0),
    (0x00b, &[1, 4, 5, 6], 0),
    (0x031, &[1, 2, 3, 4, 5], 0),
    (0x03e, &[1, 4, 5], 0),
    (0x024, &[1, 2, 3, 4, 5, 6, 7], 0),
    (0x025, &[1, 2, 3, 4, 5, 6, 7], 0),
    (0x027, &[1, 4, 5], 0),
    (0x010, &[1, 4, 5, 6], 0),
    (0x012, &[1, 4, 5, 6], 0),
    (0x019, &[1, 2, 3, 4, 5], 0),
    (0x011, &[1, 4, 5, 6], 0),
    (0x016, &[1, 2, 3, 4, 5], 0),
    (0x002, &[1, 4, 5, 6], 0x0000_0f00),
    (0x007, &[1, 4, 5, 6], 0),
    (0x017, &[1, 4, 5], 0),
    (0x00c, &[1, 4, 5, 6], 0),
    (0x023, &[1, 4, 5], 0x0000_4000),
    (0x189, &[4, 7], 0x0e00_00ff),
    (0x01c, &[4], 0x0380_0000),
    (0x045, &[1, 4, 5, 6], 0),
    // F2I of binary32 to words: nearest, towards 0, with NaN as 0; HADD2.F32 of -RZ and a half; IDP.4A of bytes with
    // and without signs.
    (0x105, &[1, 4, 5, 6], 0x0020_1100),
    (0x105, &[1, 4, 5, 6], 0x0020_d100),
    (0x105, &[1, 4, 5, 6], 0x0020_f100),
    (0x105, &[1, 4, 5, 6], 0x0020_1000),
    (0x105, &[1, 4, 5, 6], 0x0020_f000),
    (0x030, &[1, 4, 5, 6], 0x0000_4100),
    (0x026, &[1, 4, 5, 6], 0),
    (0x026, &[1, 4, 5, 6], 0x0000_0600),
    // I2F rounded up and to nearest; MUFU: exponential, reciprocal, that of the root; FCHK.
    (0x106, &[1, 4, 5], 0x0020_9000),
    (0x106, &[1, 4, 5], 0x0020_9400),
    (0x106, &[1, 4, 5], 0x0020_1000),
    (0x108, &[1, 4, 5, 6], 0x0000_0800),
    (0x108, &[1, 4, 5, 6], 0x0000_1000),
    (0x108, &[1], 0x0000_1400),
    (0x102, &[1, 4, 5], 0),
    // UIADD3, ULEA, ULOP3, USHF and UIMAD.
    (0x090, &[1, 4], 0x0fff_e000),
    (0x091, &[1, 4], 0x0f8e_0000),
    (0x092, &[1, 4], 0x0f8e_c000),
    (0x099, &[4], 0x0801_1600),
    (0x0a4, &[1, 4], 0x0f8e_0000),
    (0x119, &[4], 0x0000_2100),
    (0x119, &[4], 0x0000_2600),
    (0x005, &[4], 0x0001_ff00),
    (0x145, &[4], 0x0380_0000),
    (0x155, &[1], 0x0010_0000),
    (0x155, &[7], 0x0010_0000),
    (0x156, &[1, 4], 0),
    (0x082, &[4, 6], 0),
    (0x0b9, &[5], 0x0000_0800),
    (0x0b9, &[5], 0x0000_0a00),
    (0x181, &[1, 4], 0x0c1e_0100),
    (0x181, &[1, 4], 0x041e_0100),
    (0x186, &[1, 4], 0x0c10_0100),
    (0x184, &[4], 0),
    (0x188, &[1, 4], 0),
];

/// What instructions work on.
struct Bench {
    launch: Launch,
    constants: Constants,
    port: Port,
    memory: Arc<Memory>,
    shared: Vec<u32>,
    warp: Warp,
}

impl Bench {
    fn new(numbers: &mut Numbers) -> Self {
        let space = AddressSpace::new();
        let mut map = |va| {
            let memory = Arc::new(Memory::new("test", 4096).unwrap());
            (0..1024).for_each(|word| memory.store(4 * word, numbers.word()));
            let mapped = Arc::clone(&memory);
            space.map(MappedRange {
                va,
                len: 4096,
                memory: mapped,
                offset: 0,
                writable: true,
                cached: false,
            });
            memory
        };
        map(BANK);
        let memory = map(DATA);
        let mut constants = [None; 8];
        constants[0] = Some(ConstantBank { va: BANK, bytes: 4096 });
        let launch = Launch {
            program_va: 0,
            grid: [1; 3],
            block: [32, 1, 1],
            registers: 40,
            shared_bytes: SHARED_BYTES,
            shared_limit: SHARED_BYTES,
            local_bytes: 0,
            barriers: 0,
            constants,
            shared_window: 0xfe << 32,
            local_window: 0xff << 32,
            sm_count: 1,
            textures: crate::sm::Tables::default(),
        };
        let view = space.view();
        let constants = Constants::read(&launch, &view);
        let mut port = Port::new(view);
        // The handlers only use mappings that have been used before.
        port.pointer(DATA, 4, crate::mmu::Access::Write).unwrap();
        let mut warp = Warp::new();
        warp.start(0, 0, [32, 1, 1], 40);
        let shared = (0..SHARED_BYTES / 4).map(|_| numbers.word()).collect();
        Self { launch, constants, port, memory, shared, warp }
    }

    /// Fills the registers; those of the address of `i`, if any, so that most accesses are inside memory.
    fn fill(&mut self, numbers: &mut Numbers, i: Option<&Instruction>) {
        for register in 0..40 {
            *self.warp.row_mut(register) = core::array::from_fn(|_| numbers.word());
        }
        for index in 0..7 {
            self.warp.set_predicate(index, !0, numbers.mask());
        }
        for register in 0..63 {
            self.warp.set_uniform(register, numbers.word());
            self.warp.set_uniform_predicate(register % 7, numbers.next().is_multiple_of(2));
        }
        self.warp.path.mask = if numbers.next().is_multiple_of(2) { !0 } else { numbers.next() | 1 };
        let (shared, global) = match i {
            None => (Some(SHARED_ADDRESS), Some(ADDRESS)),
            Some(i) if i.a >= 254 => (None, None),
            Some(i) => (
                matches!(i.op, Op::Lds | Op::Sts).then_some(i.a),
                matches!(i.op, Op::Ldg | Op::Stg).then_some(i.a),
            ),
        };
        // CAST: the lower words of addresses.
        let offset = i.map_or(0, offset_of) as u32;
        for (register, base) in [(shared, 256), (global, DATA as u32 + 1024)] {
            let Some(register) = register else { continue };
            let step = [0, 4, 16, 2, 12, 8, 1, 3][numbers.next() as usize % 8];
            let ahead =
                if numbers.next().is_multiple_of(8) { numbers.next() % 64 } else { numbers.next() % 16 * 4 };
            let start = base.wrapping_sub(offset).wrapping_add(ahead);
            let random = numbers.next().is_multiple_of(2);
            *self.warp.row_mut(register) = core::array::from_fn(|lane| {
                start.wrapping_add(if random { numbers.next() % 32 * 16 } else { lane as u32 % 16 * step })
            });
            (0..63).for_each(|register| self.warp.set_uniform(register, 0));
        }
        if let Some(register) = global {
            *self.warp.row_mut(register + 1) = [(DATA >> 32) as u32; 32];
        }
    }

    /// Runs `f` with a context. Returns the outcome, the warp, and the memories.
    fn run(
        &mut self,
        f: impl FnOnce(&mut Context, &mut Warp) -> Result<(), String>,
    ) -> (Result<(), String>, crate::sm::warp::Snapshot, Vec<u32>, Vec<u32>) {
        let mut context = Context {
            launch: &self.launch,
            constants: &self.constants,
            port: &mut self.port,
            counter: &mut Counter::new(None),
            shared: &mut self.shared,
            block: [0; 3],
            sm: 0,
            in_turn: true,
            ordered: 0,
            check: None,
            tally: None,
        };
        let outcome = f(&mut context, &mut self.warp);
        let memory = (0..1024).map(|word| self.memory.load(4 * word)).collect();
        (outcome, self.warp.snapshot(), self.shared.clone(), memory)
    }
}

/// Whether the instruction reads a clock, which differs each time.
fn reads_clock(i: &Instruction) -> bool {
    let first = i.bits(field::SPECIAL);
    let last = if i.op == Op::Cs2r && i.bit(field::SPECIAL_WIDE) { first + 1 } else { first };
    // SR_CLOCKLO, the halves of SR_CLOCK and of SR_GLOBALTIMER.
    matches!(i.op, Op::S2r | Op::Cs2r | Op::S2ur)
        && [1, 80, 81, 82, 83].into_iter().any(|clock| (first..=last).contains(&clock))
}

/// The offset of an address.
fn offset_of(i: &Instruction) -> u64 {
    crate::sm::exec::memory::offset(i)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn prepared_instructions_do_what_the_interpreter_does(seed in any::<u64>()) {
        prop_assume!(is_supported());
        let mut numbers = Numbers(seed);
        let mut bench = Bench::new(&mut numbers);
        for _ in 0..200 {
            let i = numbers.instruction();
            if reads_clock(&i) {
                continue;
            }
            bench.fill(&mut numbers, Some(&i));
            let slots = [Ok(Fetched::new(i, None, Tools::empty(), false))];
            let mut pool = Pool::default();
            let Some(step) = handlers::prepare(&i, &mut pool, &bench.constants) else { continue };
            let (before, shared) = (bench.warp.snapshot(), bench.shared.clone());
            let memory: Vec<u32> = (0..1024).map(|word| bench.memory.load(4 * word)).collect();
            let expected = bench.run(|context, warp| {
                let active = warp.path.mask & crate::sm::exec::guard(warp, &i);
                if active == 0 {
                    return Ok(());
                }
                let Ok(fetched) = &slots[0] else { unreachable!() };
                execute(context, warp, fetched, active).map(drop).map_err(|trap| format!("{:?}", trap.cause))
            });
            bench.warp.restore(&before);
            bench.shared = shared;
            memory.iter().enumerate().for_each(|(word, value)| bench.memory.store(4 * word, *value));
            let found = bench.run(|context, warp| {
                let active = warp.path.mask;
                let mut m = Machine {
                    context, warp, pool: pool.rows(), slots: &slots, at: 0, pc: 0, active, moved: false, trap: None,
                };
                m.active = if step.always { active } else { active & m.guard(&step) };
                if m.active == 0 {
                    return Ok(());
                }
                m.spread(&step);
                // SAFETY: the handler was chosen for the features of this processor.
                match unsafe { (step.run)(&mut m, &step) } {
                    true => Ok(()),
                    false => Err(format!("{:?}", m.trap.expect("a reason").cause)),
                }
            });
            let text = sass::disassemble(i.word(), 0).unwrap_or_default();
            prop_assert_eq!(&found.0, &expected.0, "{} {:#034x}", text, i.word());
            if found.0.is_ok() {
                prop_assert_eq!(found.1.difference(&expected.1), None, "{} {:#034x}", text, i.word());
                prop_assert!(found.2 == expected.2 && found.3 == expected.3, "{text}: memories differ");
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn blocks_do_what_the_interpreter_does(seed in any::<u64>()) {
        prop_assume!(is_supported());
        let mut numbers = Numbers(seed);
        let mut bench = Bench::new(&mut numbers);
        let mut frame = Frame::new();
        frame.set_constants(&bench.constants);
        // No block goes on to another one.
        let entries = [[0; 2]; 256];
        for _ in 0..20 {
            let count = 1 + numbers.next() as usize % 40;
            let mut slot = || Ok(Fetched::new(numbers.part_of_block(), None, Tools::empty(), false));
            let slots: Vec<Slot> = (0..count).map(|_| slot()).collect();
            let compiled = Compiled::default();
            prop_assert!(compiled.warm(&slots, 0, count, true));
            for at in 0..count {
                let Some(block) = compiled.block(at).filter(|block| block.fits(&bench.constants)) else { continue };
                bench.fill(&mut numbers, None);
                let (before, shared) = (bench.warp.snapshot(), bench.shared.clone());
                let memory: Vec<u32> = (0..1024).map(|word| bench.memory.load(4 * word)).collect();
                let instructions = &slots[at..at + block.length()];
                let mut lanes = 0;
                let expected = bench.run(|context, warp| {
                    for fetched in instructions.iter().flatten() {
                        let active = warp.path.mask & crate::sm::exec::guard(warp, fetched);
                        lanes += u64::from(active.count_ones());
                        if active != 0 {
                            execute(context, warp, fetched, active).map(drop).map_err(|_| "a fault".to_owned())?;
                        }
                    }
                    Ok(())
                });
                bench.warp.restore(&before);
                bench.shared = shared;
                memory.iter().enumerate().for_each(|(word, value)| bench.memory.store(4 * word, *value));
                let found = bench.run(|context, warp| {
                    let (pool, mask) = (&mut [][..], warp.path.mask);
                    let (active, moved, trap) = (mask, false, None);
                    let mut m = Machine { context, warp, pool, slots: &slots, at: 0, pc: 0, active, moved, trap };
                    // SAFETY: the features were found, and the block fits.
                    let executed = unsafe { block.execute(&mut m, &mut frame, &entries, block.length()) };
                    let executed = executed.ok_or_else(|| "steps".to_owned())?;
                    assert_eq!(executed.lanes, lanes);
                    assert_eq!((executed.instructions, executed.slot), (block.length(), at + block.length()));
                    Ok(())
                });
                if found.0.is_ok() {
                    let text: Vec<_> = instructions.iter().flatten().map(|i| sass::disassemble(i.word(), 0)).collect();
                    prop_assert_eq!(&expected.0, &Ok(()), "{:#?}", text);
                    prop_assert_eq!(found.1.difference(&expected.1), None, "{:#?}", text);
                    prop_assert!(found.2 == expected.2 && found.3 == expected.3, "{:#?}: memories differ", text);
                }
            }
        }
    }
}
