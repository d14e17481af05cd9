//! Occupancy: how many blocks of a kernel an SM holds at a time, and what a kernel uses.
//!
//! The rules are CUDA's (CUDA C++ Programming Guide, "Compute Capabilities": Technical Specifications
//! per Compute Capability, and the toolkit's occupancy calculator). An SM has four partitions with a
//! quarter of the registers each. A warp belongs to one partition and gets its registers in units of
//! 256; a block gets its shared memory in units of 128 bytes, the KiB that the system reserves per
//! block included.

use crate::descriptor::{Generation, RESERVED_SHARED};
use crate::error::{Error, Result};
use crate::grid::Dim3;
use crate::program::{Kernel, KernelCode};

/// Threads of a warp.
const WARP: u32 = 32;
/// Registers of an SM, and the most that one block can have.
const REGISTERS: u32 = 65_536;
/// Largest number of registers of a thread.
const THREAD_REGISTERS: u32 = 255;
/// Unit in which a warp gets registers.
const REGISTER_UNIT: u32 = 256;
/// Unit in which a block gets shared memory, in bytes.
const SHARED_UNIT: u32 = 128;
/// Partitions of an SM: each has its own warps and registers.
const PARTITIONS: u32 = 4;

/// What a kernel uses, as its cubin says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block in bytes, without the KiB that the system reserves.
    pub static_shared_bytes: u32,
    /// Local memory in bytes that a thread is known to need: stack frames and spilled registers. With
    /// recursion or calls through pointers only a lower limit.
    pub local_bytes: u32,
    /// `__constant__` variables of the kernel's program, in bytes.
    pub constant_bytes: u32,
    /// Largest number of threads of a block with which the kernel can run.
    pub max_threads: u32,
    /// Largest dynamic shared memory of a block in bytes, 0 when static shared memory takes it all.
    pub max_dynamic_shared_bytes: u32,
    /// SM version that the code was compiled for; (8, 7) on the Orin.
    pub binary_version: (u32, u32),
    /// Barriers (`__syncthreads` and named ones) of a block, 0 to 16.
    pub barriers: u32,
}

/// The resource that bounds the number of blocks on an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Warps: the SM's threads.
    Warps,
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
    /// The number of blocks itself.
    Blocks,
    /// Barriers. On SM 9.0 only: before it, every block that fits has all of its 16.
    Barriers,
}

impl core::fmt::Display for Limit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Warps => "warps",
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
            Self::Barriers => "barriers",
            Self::Blocks => "blocks",
        })
    }
}

/// How many blocks of a launch an SM holds at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// Blocks on one SM, at least 1.
    pub blocks_per_sm: u32,
    /// Warps on one SM.
    pub warps_per_sm: u32,
    /// Warps that an SM can hold at most, whatever the kernel.
    pub max_warps_per_sm: u32,
    /// What bounds the number of blocks; of several equal bounds the first in the order of [`Limit`].
    pub limited_by: Limit,
    /// Shared memory in bytes that the SM must be configured for to hold that many blocks.
    pub shared_config_bytes: u32,
}

impl Kernel {
    /// What the kernel uses, and the limits that follow.
    pub fn attributes(&self) -> Attributes {
        let code = self.code();
        let sm = Sm::of(code.sm_version);
        let most = sm.map_or(0, Sm::shared_bytes).saturating_sub(RESERVED_SHARED);
        let static_shared = Generation::of(code.sm_version).own_shared(code.static_shared);
        Attributes {
            registers: code.registers,
            static_shared_bytes: static_shared,
            local_bytes: code.frame_bytes,
            constant_bytes: code.constant_bytes,
            max_threads: self.max_threads(),
            max_dynamic_shared_bytes: most.saturating_sub(static_shared.next_multiple_of(16)),
            binary_version: code.sm_version,
            barriers: code.barriers,
        }
    }

    /// How many blocks of `block` threads with `dynamic_shared` bytes of dynamic shared memory each an
    /// SM of the chip that the kernel was compiled for holds at a time.
    ///
    /// This is what the chip can do with the largest configuration of its shared memory; the
    /// configuration in force on an SM while other kernels run there may hold fewer.
    ///
    /// # Errors
    ///
    /// [`Error::Launch`] when the kernel cannot be launched with such blocks, or when the numbers of the
    /// chip are not known: they are for SM 8.0, 8.6, 8.7 and 9.0.
    pub fn occupancy(&self, block: impl Into<Dim3>, dynamic_shared: u32) -> Result<Occupancy> {
        let (block, code) = (block.into(), self.code());
        code.check_block(block)?;
        let (major, minor) = code.sm_version;
        let sm = Sm::of(code.sm_version).ok_or_else(|| {
            Error::Launch(format!(
                "the occupancy of SM {major}.{minor} is not known, only of 8.0, 8.6, 8.7, 9.0"
            ))
        })?;
        let own = Generation::of(code.sm_version).own_shared(code.static_shared).next_multiple_of(16);
        let demand = Demand {
            threads: block.x * block.y * block.z,
            registers: code.registers,
            shared_bytes: own.saturating_add(dynamic_shared),
            barriers: code.barriers,
        };
        sm.occupancy(demand).map_err(|limit| {
            Error::Launch(format!(
                "kernel {}: a block of {block} threads with {dynamic_shared} bytes of dynamic shared memory \
                 does not fit an SM: too little of {limit}",
                self.name()
            ))
        })
    }
}

/// What an SM has room for of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Blocks at a time, at least 1.
    pub(crate) blocks: u32,
    /// Shared memory in bytes for as many blocks as there is room for by everything else, at most all that there is.
    pub(crate) shared_bytes: u32,
}

/// The room for blocks of `threads` threads with `shared_bytes` of shared memory each, which is more than 0 and contains
/// what the system reserves; `None` for a chip that is not known.
#[inline]
pub(crate) fn room(code: &KernelCode, threads: u32, shared_bytes: u32) -> Option<Room> {
    let sm = Sm::of(code.sm_version)?;
    let warps = threads.max(1).div_ceil(WARP);
    let blocks = (sm.warps / warps).min(blocks_for_registers(warps, code.registers)).min(sm.blocks);
    let barriers = sm.barriers.and_then(|all| all.checked_div(code.barriers)).unwrap_or(u32::MAX);
    let all = sm.shared_bytes();
    Some(Room {
        blocks: blocks.min(all / shared_bytes.max(1)).min(barriers).max(1),
        shared_bytes: blocks.max(1).saturating_mul(shared_bytes).min(all),
    })
}

/// What one block of a launch takes.
#[derive(Clone, Copy, Debug)]
struct Demand {
    threads: u32,
    registers: u32,
    /// Static and dynamic, without the reserved KiB.
    shared_bytes: u32,
    barriers: u32,
}

/// What differs between the SMs.
#[derive(Clone, Copy, Debug)]
struct Sm {
    warps: u32,
    blocks: u32,
    /// Barriers that the blocks share, where they share them.
    barriers: Option<u32>,
    /// Sizes in KiB that the shared memory can be configured for, ascending.
    shared_kib: &'static [u32],
}

impl Sm {
    fn of(version: (u32, u32)) -> Option<&'static Self> {
        const LARGE: &[u32] = &[0, 8, 16, 32, 64, 100, 132, 164];
        const SMALL: &[u32] = &[0, 8, 16, 32, 64, 100];
        const LARGEST: &[u32] = &[0, 8, 16, 32, 64, 100, 132, 164, 196, 228];
        match version {
            (8, 0) => Some(&Self { warps: 64, blocks: 32, barriers: None, shared_kib: LARGE }),
            (8, 6) => Some(&Self { warps: 48, blocks: 16, barriers: None, shared_kib: SMALL }),
            (8, 7) => Some(&Self { warps: 48, blocks: 16, barriers: None, shared_kib: LARGE }),
            (9, 0) => Some(&Self { warps: 64, blocks: 32, barriers: Some(64), shared_kib: LARGEST }),
            _ => None,
        }
    }

    /// Shared memory of an SM in its largest configuration, in bytes.
    fn shared_bytes(&self) -> u32 {
        self.shared_kib.last().map_or(0, |kib| kib * 1024)
    }

    /// The occupancy, or the first resource of which there is too little for one block.
    fn occupancy(&self, demand: Demand) -> Result<Occupancy, Limit> {
        let warps = demand.threads.max(1).div_ceil(WARP);
        let shared = demand
            .shared_bytes
            .saturating_add(RESERVED_SHARED)
            .checked_next_multiple_of(SHARED_UNIT)
            .ok_or(Limit::SharedMemory)?;
        let bounds = [
            (Limit::Warps, self.warps / warps),
            (Limit::Registers, blocks_for_registers(warps, demand.registers)),
            (Limit::SharedMemory, self.shared_bytes() / shared),
            (Limit::Blocks, self.blocks),
            (
                Limit::Barriers,
                self.barriers.and_then(|all| all.checked_div(demand.barriers)).unwrap_or(u32::MAX),
            ),
        ];
        // `min_by_key` returns the first of equal elements.
        let bound = bounds.into_iter().min_by_key(|&(_, blocks)| blocks);
        let (limited_by, blocks) = bound.unwrap_or((Limit::Blocks, self.blocks));
        if blocks == 0 {
            return Err(limited_by);
        }
        let needed = blocks * shared;
        let config = self.shared_kib.iter().map(|kib| kib * 1024).find(|&bytes| needed <= bytes);
        Ok(Occupancy {
            blocks_per_sm: blocks,
            warps_per_sm: blocks * warps,
            max_warps_per_sm: self.warps,
            limited_by,
            shared_config_bytes: config.unwrap_or(self.shared_bytes()),
        })
    }
}

/// Blocks of `warps` warps whose registers an SM can hold. Whether a single block fits is decided as
/// if its warps filled all partitions evenly.
fn blocks_for_registers(warps: u32, registers: u32) -> u32 {
    if registers > THREAD_REGISTERS {
        return 0;
    }
    let per_warp = (registers.max(1) * WARP).next_multiple_of(REGISTER_UNIT);
    if per_warp * warps.next_multiple_of(PARTITIONS) > REGISTERS {
        return 0;
    }
    REGISTERS / PARTITIONS / per_warp * PARTITIONS / warps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks, warps and limit on an SM; `None` when not one block fits.
    fn blocks(sm: (u32, u32), threads: u32, registers: u32, shared_bytes: u32) -> Option<(u32, u32, Limit)> {
        let demand = Demand { threads, registers, shared_bytes, barriers: 1 };
        let occupancy = Sm::of(sm).unwrap().occupancy(demand).ok()?;
        Some((occupancy.blocks_per_sm, occupancy.warps_per_sm, occupancy.limited_by))
    }

    #[test]
    fn a_usual_kernel_is_bound_by_warps() {
        // 32 registers x 256 threads: 8 warps of 1024 registers. Registers would do for 64 warps.
        assert_eq!(blocks((8, 7), 256, 32, 0), Some((6, 48, Limit::Warps)));
        assert_eq!(blocks((8, 6), 256, 32, 0), Some((6, 48, Limit::Warps)));
        assert_eq!(blocks((8, 0), 256, 32, 0), Some((8, 64, Limit::Warps)));
        assert_eq!(blocks((9, 0), 256, 32, 0), Some((8, 64, Limit::Warps)));
        // 1024 threads: 32 of 48 warps, a second block does not fit.
        assert_eq!(blocks((8, 7), 1024, 32, 0), Some((1, 32, Limit::Warps)));
        // A block of 33 threads takes two warps.
        assert_eq!(blocks((8, 0), 33, 32, 0), Some((32, 64, Limit::Warps)));
    }

    #[test]
    fn registers_are_allocated_per_warp_and_partition() {
        // 255 x 32 = 8160, allocated 8192: two warps per partition of 16384, 8 in all.
        assert_eq!(blocks((8, 7), 256, 255, 0), Some((1, 8, Limit::Registers)));
        assert_eq!(blocks((8, 7), 64, 255, 0), Some((4, 8, Limit::Registers)));
        assert_eq!(blocks((8, 7), 288, 255, 0), None);
        // 65 x 32 = 2080, allocated 2304: 7 warps per partition, 28 in all, 3 blocks of 8 warps.
        assert_eq!(blocks((8, 7), 256, 65, 0), Some((3, 24, Limit::Registers)));
        // 40 x 32 = 1280: 12 warps per partition, 48 in all: both bounds are 6.
        assert_eq!(blocks((8, 7), 256, 40, 0), Some((6, 48, Limit::Warps)));
        // 96 x 32 = 3072: 5 per partition, 20 in all (the SM's registers divided plainly give 21).
        assert_eq!(blocks((8, 7), 32 * 7, 96, 0), Some((2, 14, Limit::Registers)));
        assert_eq!(blocks((8, 7), 32, 96, 0), Some((16, 16, Limit::Blocks)));
        // 5 warps of 8192 count as 8 for a single block, which just fits; 9 count as 12.
        assert_eq!(blocks((8, 0), 160, 255, 0), Some((1, 5, Limit::Registers)));
        assert_eq!(blocks((8, 0), 32, 256, 0), None);
    }

    #[test]
    fn shared_memory_includes_the_reserved_kib() {
        const KIB: u32 = 1024;
        // 48 KiB + 1 KiB: 3 times in 164 KiB, 2 times in 100, 4 times in 228.
        assert_eq!(blocks((8, 7), 128, 32, 48 * KIB), Some((3, 12, Limit::SharedMemory)));
        assert_eq!(blocks((8, 0), 128, 32, 48 * KIB), Some((3, 12, Limit::SharedMemory)));
        assert_eq!(blocks((8, 6), 128, 32, 48 * KIB), Some((2, 8, Limit::SharedMemory)));
        assert_eq!(blocks((9, 0), 128, 32, 48 * KIB), Some((4, 16, Limit::SharedMemory)));
        // The largest block, and one byte more.
        assert_eq!(blocks((8, 7), 128, 32, 163 * KIB), Some((1, 4, Limit::SharedMemory)));
        assert_eq!(blocks((8, 7), 128, 32, 163 * KIB + 1), None);
        assert_eq!(blocks((8, 6), 128, 32, 99 * KIB + 1), None);
        assert_eq!(blocks((9, 0), 128, 32, 227 * KIB), Some((1, 4, Limit::SharedMemory)));
        assert_eq!(blocks((8, 7), 128, 32, u32::MAX), None);
        // Units of 128 bytes: 40 KiB fit four times into 164 with the KiB each, 40 KiB + 1 three times.
        assert_eq!(blocks((8, 7), 128, 32, 40 * KIB), Some((4, 16, Limit::SharedMemory)));
        assert_eq!(blocks((8, 7), 128, 32, 40 * KIB + 1), Some((3, 12, Limit::SharedMemory)));
    }

    #[test]
    fn small_blocks_are_bound_by_their_number_or_their_barriers() {
        let small = Demand { threads: 32, registers: 16, shared_bytes: 0, barriers: 0 };
        let of = |sm, demand| {
            let occupancy = Sm::of(sm).unwrap().occupancy(demand).unwrap();
            (occupancy.blocks_per_sm, occupancy.limited_by)
        };
        assert_eq!(of((8, 7), small), (16, Limit::Blocks));
        assert_eq!(of((8, 0), small), (32, Limit::Blocks));
        let four = Demand { barriers: 4, ..small };
        assert_eq!(of((9, 0), four), (16, Limit::Barriers));
        assert_eq!(of((8, 7), four), (16, Limit::Blocks));
        assert_eq!(of((8, 0), Demand { barriers: 16, ..small }), (32, Limit::Blocks));
    }

    #[test]
    fn the_configuration_is_the_smallest_that_holds_the_blocks() {
        let config = |threads, shared_bytes| {
            let demand = Demand { threads, registers: 32, shared_bytes, barriers: 1 };
            Sm::of((8, 7)).unwrap().occupancy(demand).unwrap().shared_config_bytes / 1024
        };
        assert_eq!(config(256, 0), 8, "6 blocks of 1 KiB");
        assert_eq!(config(128, 48 << 10), 164, "3 blocks of 49 KiB: 147");
        assert_eq!(config(512, 20 << 10), 64, "3 blocks of 21 KiB: 63");
        assert_eq!(config(128, 163 << 10), 164);
    }

    #[test]
    fn the_reserved_kib_counts_once() {
        assert_eq!(Generation::of((8, 7)).own_shared(2048), 2048);
        assert_eq!(Generation::of((9, 0)).own_shared(2048), 1024);
        assert_eq!(Generation::of((9, 0)).own_shared(0), 0);
        assert!(Sm::of((7, 5)).is_none());
    }
}
