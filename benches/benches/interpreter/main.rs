//! Speed of the SM interpreter: lane-instructions per second, on one host thread and on one per processor.
//!
//! Run `cargo bench -p benches --bench interpreter`. The launches bypass the kernel model and the engines, so only the
//! interpreter is measured.
//!
//! `--launches N KERNEL` instead executes a kernel of the table N times on one thread, `matmul_tiled` and `vector_add`
//! at a small size, and measures nothing. It is for profilers, and for tools that count instructions of the CPU: see
//! "Costs" in `docs/check-proof.md`.
//!
//! `--tiers` instead prints a table: each kernel of a corpus on the interpreter and on the compiled tier, one thread,
//! the two in turn, and three of them against C that the system's compiler has compiled for this processor. With a
//! word, only the kernels whose name contains it.
//!
//! Short kernels are dominated by the start of each warp: the prologue of every sm_87 kernel has
//! twenty instructions that pass a mask through the barrier registers, more than vector addition itself has.

mod corpus;
mod rival;
mod tiers;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use cubin::Cubin;
use orin_sim::memory::Memory;
use orin_sim::mmu::{AddressSpace, MappedRange};
use orin_sim::sm::{ConstantBank, GridRun, GridStats, Launch, SmOptions, Sms, Step};

/// Address of the program.
const PROGRAM: u64 = 0x1_0000_0000;
/// Address of constant bank 0.
const BANK: u64 = 0x2_0000_0000;
/// Address of the kernel's data, 64 MiB.
const DATA: u64 = 0x3_0000_0000;

/// A kernel that is ready for repeated launches.
struct Bench {
    space: AddressSpace,
    launch: Launch,
}

fn map(space: &AddressSpace, va: u64, len: usize, contents: &[u8]) {
    let memory = Arc::new(Memory::new("bench", len.next_multiple_of(4096)).expect("memory"));
    for (at, word) in contents.chunks(4).enumerate() {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        memory.store(4 * at, u32::from_le_bytes(bytes));
    }
    let len = memory.len() as u64;
    space.map(MappedRange { va, len, memory, offset: 0, writable: true, cached: false });
}

impl Bench {
    fn new(
        file: &str,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        params: &[u8],
        contents: &[u8],
    ) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels").join(format!("{file}.cubin"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let cubin = Cubin::parse(&bytes).expect("a cubin");
        let kernel = cubin.kernel(kernel).expect("the kernel");
        let space = AddressSpace::new();
        let image = cubin.image_at(PROGRAM).expect("an image");
        map(&space, PROGRAM, image.len(), &image);
        map(&space, DATA, 64 << 20, contents);
        let mut bank = vec![0; (kernel.param_base + kernel.param_bytes) as usize];
        for axis in 0..3 {
            bank[4 * axis..][..4].copy_from_slice(&block[axis].to_le_bytes());
            bank[0xc + 4 * axis..][..4].copy_from_slice(&grid[axis].to_le_bytes());
        }
        bank[kernel.param_base as usize..].copy_from_slice(params);
        map(&space, BANK, bank.len(), &bank);
        let mut constants = [None; 8];
        for constant in &kernel.constants {
            constants[usize::from(constant.bank)] =
                Some(ConstantBank { va: PROGRAM + constant.offset, bytes: constant.bytes });
        }
        constants[0] = Some(ConstantBank { va: BANK, bytes: kernel.param_base + kernel.param_bytes });
        let launch = Launch {
            program_va: PROGRAM + kernel.code_offset,
            grid,
            block,
            registers: kernel.registers,
            shared_bytes: kernel.shared_bytes,
            shared_limit: 164 << 10,
            local_bytes: 4096,
            barriers: kernel.barriers,
            constants,
            shared_window: 0xfe << 32,
            local_window: 0xff << 32,
            sm_count: 16,
            textures: orin_sim::sm::Tables::default(),
        };
        Self { space, launch }
    }

    fn run(&self, sms: &Arc<Sms>) -> GridStats {
        let mut grid = GridRun::on(sms, self.launch.clone(), self.space.view()).expect("a launch");
        match grid.step(u64::MAX).expect("no fault") {
            Step::Finished(stats) => stats,
            Step::Running => unreachable!("fuel without end"),
        }
    }
}

fn interpreter(criterion: &mut Criterion) {
    let benches = [
        ("matmul_tiled_128", corpus::matmul(128)),
        ("matmul_tiled_256", corpus::matmul(256)),
        ("vector_add", corpus::vector_add(1 << 18)),
        ("mandelbrot", corpus::mandelbrot()),
        // Mostly the fixed cost of a launch.
        ("empty", Bench::new("basics", "empty", [1, 1, 1], [32, 1, 1], &[], &[])),
    ];
    let mut group = criterion.benchmark_group("lane_instructions");
    group.sample_size(20);
    for (name, bench) in &benches {
        for (threads, title) in [(Some(1), "1"), (None, "all")] {
            let sms = Sms::new(16, SmOptions { threads, ..SmOptions::default() });
            group.throughput(Throughput::Elements(bench.run(&sms).lane_instructions));
            group.bench_function(BenchmarkId::new(*name, title), |bencher| {
                bencher.iter(|| black_box(bench.run(&sms)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, interpreter);

/// Executes a kernel `launches` times.
fn repeat(launches: u32, kernel: &str) {
    let bench = match kernel {
        "matmul_tiled" => corpus::matmul(64),
        "vector_add" => corpus::vector_add(1 << 14),
        other => match corpus::all().into_iter().find(|(name, _)| *name == other) {
            Some((_, bench)) => bench,
            None => panic!("no kernel {other}"),
        },
    };
    let sms = Sms::new(16, SmOptions { threads: Some(1), ..SmOptions::default() });
    (0..launches).for_each(|_| {
        black_box(bench.run(&sms));
    });
}

fn main() {
    let mut after = std::env::args().skip_while(|argument| argument != "--tiers");
    if after.next().is_some() {
        return tiers::print(&after.find(|argument| !argument.starts_with("--")).unwrap_or_default());
    }
    let mut arguments = std::env::args().skip_while(|argument| argument != "--launches").skip(1);
    if let (Some(launches), Some(kernel)) = (arguments.next(), arguments.next()) {
        return repeat(launches.parse().expect("a number of launches"), &kernel);
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
