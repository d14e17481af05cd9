//! A GPU without engines: an address space, a loaded cubin, and directly built launches.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::sync::Arc;

use cubin::{Cubin, Kernel};
use orin_sim::memory::Memory;
use orin_sim::mmu::{AddressSpace, MappedRange, PAGE_BYTES, View};
use orin_sim::sm::{ConstantBank, GridRun, GridStats, Launch, SmFault, SmOptions, Sms, Step};

/// Generic address of the shared-memory window.
pub(crate) const SHARED_WINDOW: u64 = 0xfe << 32;
/// Generic address of the local-memory window.
pub(crate) const LOCAL_WINDOW: u64 = 0xff << 32;
/// Initial stack pointer of CUDA's driver. The memory above it is unused.
pub(crate) const STACK_TOP: u32 = 0xff_fdc0;
/// Maximum number of warp instructions of a launch before the test fails.
const PATIENCE: u64 = 1 << 30;

/// GPU memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) va: u64,
    pub(crate) memory: Arc<Memory>,
    bytes: usize,
}

impl Buffer {
    /// The contents.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        (0..self.bytes.div_ceil(4))
            .flat_map(|word| self.memory.load(4 * word).to_le_bytes())
            .take(self.bytes)
            .collect()
    }

    pub(crate) fn u32s(&self) -> Vec<u32> {
        self.bytes().chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub(crate) fn f32s(&self) -> Vec<f32> {
        self.u32s().into_iter().map(f32::from_bits).collect()
    }

    pub(crate) fn u64s(&self) -> Vec<u64> {
        self.bytes().chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub(crate) fn f64s(&self) -> Vec<f64> {
        self.u64s().into_iter().map(f64::from_bits).collect()
    }
}

/// Kernel parameters with C layout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(Vec<u8>);

impl Params {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A value whose size is its alignment.
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.resize(self.0.len().next_multiple_of(bytes.len()), 0);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn buffer(self, buffer: &Buffer) -> Self {
        self.u64(buffer.va)
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn i32(self, value: i32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn f32(self, value: f32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn f64(self, value: f64) -> Self {
        self.bytes(&value.to_le_bytes())
    }
}

/// An address space with a cubin in it.
pub(crate) struct Machine {
    space: AddressSpace,
    next: u64,
    cubin: Cubin,
    image: Buffer,
    /// Stack size of kernels whose requirement the compiler cannot determine.
    pub(crate) stack_limit: u32,
    /// Options of the SM model.
    pub(crate) options: SmOptions,
}

fn allocate(space: &AddressSpace, next: &mut u64, contents: &[u8]) -> Buffer {
    let len = contents.len().max(1).next_multiple_of(PAGE_BYTES as usize);
    let memory = Arc::new(Memory::new("test", len).unwrap().requested_as(contents.len() as u64));
    for (at, word) in contents.chunks(4).enumerate() {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        memory.store(4 * at, u32::from_le_bytes(bytes));
    }
    let va = *next;
    // A gap after each buffer detects out-of-bounds accesses.
    *next += len as u64 + PAGE_BYTES;
    space.map(MappedRange {
        va,
        len: len as u64,
        memory: Arc::clone(&memory),
        offset: 0,
        writable: true,
        cached: false,
    });
    Buffer { va, memory, bytes: contents.len() }
}

impl Machine {
    /// Loads `kernels/<name>.cubin` of the workspace.
    pub(crate) fn kernels(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels").join(format!("{name}.cubin"));
        Self::load(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// Loads a cubin of `tests/sass`.
    pub(crate) fn sass(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sass").join(format!("{name}.cubin"));
        Self::load(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    pub(crate) fn load(bytes: &[u8]) -> Self {
        let cubin = Cubin::parse(bytes).unwrap();
        let space = AddressSpace::new();
        // Above 4 GiB, so that the upper halves of addresses are significant.
        let mut next = 0x5_0000_0000;
        let image = allocate(&space, &mut next, &cubin.image_at(0x5_0000_0000).unwrap());
        Self { space, next, cubin, image, stack_limit: 1024, options: SmOptions::default() }
    }

    pub(crate) fn cubin(&self) -> &Cubin {
        &self.cubin
    }

    pub(crate) fn bytes(&mut self, contents: &[u8]) -> Buffer {
        allocate(&self.space, &mut self.next, contents)
    }

    pub(crate) fn zeros(&mut self, bytes: usize) -> Buffer {
        self.bytes(&vec![0; bytes])
    }

    pub(crate) fn u32s(&mut self, contents: &[u32]) -> Buffer {
        self.bytes(&contents.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn f32s(&mut self, contents: &[f32]) -> Buffer {
        self.u32s(&contents.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
    }

    pub(crate) fn u64s(&mut self, contents: &[u64]) -> Buffer {
        self.bytes(&contents.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn f64s(&mut self, contents: &[f64]) -> Buffer {
        self.u64s(&contents.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
    }

    /// The address of a variable of the module.
    pub(crate) fn global(&self, name: &str) -> u64 {
        self.image.va + self.cubin.global(name).unwrap().offset
    }

    /// A snapshot of the address space.
    pub(crate) fn view(&self) -> View {
        self.space.view()
    }

    /// Replaces instructions of the program.
    pub(crate) fn patch(&mut self, replace: impl Fn(u128) -> Option<u128>) {
        let bytes = self.image.bytes();
        for kernel in self.cubin.kernels() {
            let (start, len) = (kernel.code_offset as usize, kernel.code_bytes as usize);
            for (at, word) in (start..).step_by(16).zip(bytes[start..start + len].chunks_exact(16)) {
                let Some(word) = replace(u128::from_le_bytes(word.try_into().unwrap())) else { continue };
                for part in 0..4 {
                    self.image.memory.store(at + 4 * part, (word >> (32 * part)) as u32);
                }
            }
        }
    }

    /// Reads GPU memory.
    pub(crate) fn read(&self, va: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.space.view().read(va, &mut out).unwrap();
        out
    }

    /// A grid that is ready to run.
    pub(crate) fn grid(
        &mut self,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        params: &Params,
        dynamic: u32,
    ) -> GridRun {
        let kernel = self.cubin.kernel(name).unwrap().clone();
        let launch = self.launch_of(&kernel, grid, block, params, dynamic);
        let sms = Sms::new(launch.sm_count, self.options.clone());
        GridRun::on(&sms, launch, self.space.view()).unwrap()
    }

    /// The launch of a kernel, with bank 0 filled in like by a driver.
    pub(crate) fn launch_of(
        &mut self,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
        params: &Params,
        dynamic: u32,
    ) -> Launch {
        assert_eq!(params.0.len() as u32, kernel.param_bytes, "parameters of {}", kernel.name);
        let mut bank = vec![0; (kernel.param_base + kernel.param_bytes) as usize];
        let mut put = |at: usize, bytes: &[u8]| bank[at..at + bytes.len()].copy_from_slice(bytes);
        for axis in 0..3 {
            put(4 * axis, &block[axis].to_le_bytes());
            put(0xc + 4 * axis, &grid[axis].to_le_bytes());
        }
        put(0x18, &SHARED_WINDOW.to_le_bytes());
        put(0x20, &LOCAL_WINDOW.to_le_bytes());
        put(0x28, &STACK_TOP.to_le_bytes());
        put(0x2c, &dynamic.to_le_bytes());
        put(0x10c, &16u32.to_le_bytes());
        put(kernel.param_base as usize, &params.0);
        let bank = self.bytes(&bank);
        let mut constants = [None; 8];
        for constant in &kernel.constants {
            constants[usize::from(constant.bank)] =
                Some(ConstantBank { va: self.image.va + constant.offset, bytes: constant.bytes });
        }
        constants[0] = Some(ConstantBank { va: bank.va, bytes: kernel.param_base + kernel.param_bytes });
        let stack = kernel.stack_bytes(self.stack_limit);
        Launch {
            program_va: self.image.va + kernel.code_offset,
            grid,
            block,
            registers: kernel.registers,
            shared_bytes: kernel.shared_bytes.next_multiple_of(16) + dynamic,
            shared_limit: 164 << 10,
            local_bytes: if stack == 0 { 0 } else { stack + (0x100_0000 - STACK_TOP) },
            barriers: kernel.barriers,
            constants,
            shared_window: SHARED_WINDOW,
            local_window: LOCAL_WINDOW,
            sm_count: 16,
            textures: orin_sim::sm::Tables::default(),
        }
    }

    /// Runs a kernel to its end.
    pub(crate) fn try_run(
        &mut self,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        params: &Params,
        dynamic: u32,
    ) -> Result<GridStats, SmFault> {
        match self.grid(name, grid, block, params, dynamic).step(PATIENCE)? {
            Step::Finished(stats) => Ok(stats),
            Step::Running => panic!("{name} does not end"),
        }
    }

    /// Runs a kernel that must not fault, without dynamic shared memory.
    pub(crate) fn run(&mut self, name: &str, grid: [u32; 3], block: [u32; 3], params: &Params) -> GridStats {
        self.try_run(name, grid, block, params, 0).unwrap_or_else(|fault| panic!("{name}: {fault}"))
    }

    /// [`Machine::run`] over `n` threads in one dimension.
    pub(crate) fn run_1d(&mut self, name: &str, n: usize, block: u32, params: &Params) -> GridStats {
        self.run(name, [(n as u32).div_ceil(block), 1, 1], [block, 1, 1], params)
    }
}

/// A small deterministic generator (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// A number from -1 to 1.
    pub(crate) fn f32(&mut self) -> f32 {
        (self.u32() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Any pattern, with special values more often than by chance.
    pub(crate) fn f32_any(&mut self) -> f32 {
        const SPECIAL: [u32; 12] = [
            0,
            0x8000_0000,
            0x3f80_0000,
            0xbf80_0000,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0x0000_0001,
            0x807f_ffff,
            0x0080_0000,
            0x7f7f_ffff,
            0x4b00_0000,
        ];
        match self.u32() % 4 {
            0 => f32::from_bits(SPECIAL[self.u32() as usize % SPECIAL.len()]),
            1 => f32::from_bits(self.u32()),
            _ => self.f32() * 100.0,
        }
    }
}

/// Asserts that two results are the same bit for bit, NaN matching any NaN.
#[track_caller]
pub(crate) fn assert_same(actual: &[f32], expected: &[f32], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let same = actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan();
        assert!(
            same,
            "{what}[{at}]: {actual:e} ({:#x}), expected {expected:e} ({:#x})",
            actual.to_bits(),
            expected.to_bits()
        );
    }
}

/// Asserts that two results agree to a relative error.
#[track_caller]
pub(crate) fn assert_close(actual: &[f32], expected: &[f64], relative: f64, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(*actual) - expected).abs();
        assert!(error <= relative * expected.abs().max(1e-30), "{what}[{at}]: {actual}, expected {expected}");
    }
}
