//! Programs for the software GPU's SMs: arbitrary bytes are executed as instructions.
//!
//! For any input, a grid ends, continues after its fuel is used up, or stops with one fault that names an instruction
//! and a thread of the launch. Stepping it again gives the same result.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;

use orin_sim::check::{Checker, Tools};
use orin_sim::kernel_profile::{Profiler, Selection};
use orin_sim::memory::Memory;
use orin_sim::mmu::{AddressSpace, MappedRange};
use orin_sim::sm::{ConstantBank, Coverage, GridRun, Launch, SmOptions, Sms, Step, Tier};

/// Addresses of the program, constant bank 0 and the data.
const PROGRAM: u64 = 0x1_0000_0000;
const BANK: u64 = 0x2_0000_0000;
const DATA: u64 = 0x3_0000_0000;
/// Length of the data in bytes.
const DATA_BYTES: usize = 0x4000;
/// Maximum number of warp instructions per run.
const FUEL: u64 = 20_000;
const GRID: [u32; 3] = [3, 1, 1];
const BLOCK: [u32; 3] = [48, 1, 1];

fn map(space: &AddressSpace, va: u64, contents: &[u8]) {
    let memory = Arc::new(Memory::new("program", contents.len().next_multiple_of(4096)).expect("memory"));
    for (at, word) in contents.chunks(4).enumerate() {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        memory.store(4 * at, u32::from_le_bytes(bytes));
    }
    let len = memory.len() as u64;
    space.map(MappedRange { va, len, memory, offset: 0, writable: true, cached: false });
}

/// One kind of behaviour.
fn behaviour(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Executes the bytes. The behaviours are the executed instructions and the kinds of faults.
pub(crate) fn run(data: &[u8]) -> BTreeSet<u64> {
    let mut code = data.to_vec();
    code.resize(code.len().next_multiple_of(16).max(16), 0);
    let space = AddressSpace::new();
    map(&space, PROGRAM, &code);
    map(&space, DATA, &vec![0x11; DATA_BYTES]);
    // Every 64-bit value in the bank points into the data, wherever a program reads its parameters.
    let bank: Vec<u8> = (0..64u64).flat_map(|at| (DATA + 64 * at).to_le_bytes()).collect();
    map(&space, BANK, &bank);
    let mut constants = [None; 8];
    constants[0] = Some(ConstantBank { va: BANK, bytes: 512 });
    let launch = Launch {
        program_va: PROGRAM,
        grid: GRID,
        block: BLOCK,
        registers: 64,
        shared_bytes: 1024,
        shared_limit: 1024,
        local_bytes: 512,
        barriers: 3,
        constants,
        shared_window: 0xfe << 32,
        local_window: 0xff << 32,
        sm_count: 2,
        textures: orin_sim::sm::Tables::default(),
    };
    let coverage = Coverage::new();
    // An eighth is neither counted, checked nor profiled, so that both tiers execute it.
    let plain = data.get(1).is_some_and(|byte| byte % 8 == 6);
    let options = SmOptions {
        coverage: (!plain).then(|| coverage.clone()),
        // Half of the programs are checked.
        check: data.get(1).filter(|byte| **byte % 2 != 0).map(|_| Checker::new(Tools::KERNELS)),
        // Half of both kinds are profiled.
        profile: data.get(1).filter(|byte| **byte % 4 < 2).map(|_| Profiler::new(Selection::default())),
        threads: Some(1),
        seed: data.first().map(|byte| u64::from(*byte)).filter(|seed| seed % 2 != 0),
        tier: if plain { Tier::Both } else { Tier::Compiled },
    };
    let sms = Sms::new(2, options);
    let mut grid = GridRun::on(&sms, launch, space.view()).expect("a launch");
    let mut behaviours = BTreeSet::new();
    match grid.step(FUEL) {
        Ok(step) => {
            let stats = grid.stats();
            assert!(stats.lane_instructions <= 32 * stats.warp_instructions);
            if let Step::Finished(reported) = step {
                assert_eq!(reported, stats);
            }
            behaviours.insert(behaviour(matches!(step, Step::Running)));
        }
        Err(fault) => {
            let inside =
                |index: [u32; 3], extent: [u32; 3]| index.iter().zip(extent).all(|(at, of)| *at < of);
            assert!(inside(fault.block, GRID) && inside(fault.thread, BLOCK), "{fault}");
            assert!(!fault.to_string().contains(|c: char| c.is_control()), "{fault}");
            assert_eq!(grid.step(FUEL), Err(fault));
            behaviours.insert(behaviour((discriminant(&fault.cause), fault.cause.warp_error())));
        }
    }
    drop(grid);
    behaviours.extend(coverage.counts().into_keys().map(behaviour));
    behaviours
}
