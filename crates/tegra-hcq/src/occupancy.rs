//! Occupancy: how many blocks of a kernel an SM holds at a time, and which resources a kernel uses.
//!
//! The rules are CUDA's (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the
//! toolkit's occupancy calculator); the numbers are in the chip table ([`gpu_hal::chip`]). Each partition of an SM
//! has an equal share of the registers. A warp belongs to one partition and gets its registers in fixed units. A
//! block gets its shared memory, including the bytes that the system reserves, also in fixed units.

use gpu_hal::chip::{self, Chip, Sm, WARP};

use crate::error::{Error, LaunchError, Result};
use crate::limits::Dim3;
use crate::program::Kernel;
use crate::program::code::KernelCode;

/// Resources that a kernel uses, as recorded in its cubin.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// # let program = tegra_hcq::Program::load(&device, cubin)?;
/// let attributes = program.kernel("vector_add")?.attributes();
/// assert_eq!(attributes.binary_version, (8, 7));
/// assert_eq!(attributes.static_shared_bytes, 0);
/// assert!(attributes.registers > 0);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block in bytes, without the bytes that the system reserves.
    pub static_shared_bytes: u32,
    /// Local memory of a thread in bytes: stack frames and spilled registers. A lower bound for kernels with
    /// recursion or calls through pointers.
    pub local_bytes: u32,
    /// Size of the `__constant__` variables of the kernel's program in bytes.
    pub constant_bytes: u32,
    /// Largest number of threads of a block.
    pub max_threads: u32,
    /// Largest dynamic shared memory of a block in bytes; 0 if static shared memory occupies all of it, or if the
    /// chip is not in the chip table.
    pub max_dynamic_shared_bytes: u32,
    /// SM version that the code was compiled for; (8, 7) on the Orin.
    pub binary_version: (u32, u32),
    /// Version of the PTX architecture that the code was compiled from: (8, 7) for `compute_87`. `None` for cubins of
    /// toolkit 13, where its place is unknown.
    pub ptx_version: Option<(u32, u32)>,
    /// The block size that the kernel was compiled for (`__block_size__`, `reqntid`); `None` if any fits.
    pub required_block: Option<Dim3>,
    /// Size in blocks of the clusters that launches form: what the kernel was compiled for (`__cluster_dims__`), or
    /// what [`Kernel::with_cluster`] asked for.
    pub cluster: Option<Dim3>,
    /// Number of barriers of a block (`__syncthreads` and named ones), 0 to 16.
    pub barriers: u32,
}

/// The resource that limits the number of blocks on an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Resident warps.
    Warps,
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
    /// Resident blocks.
    Blocks,
    /// Barriers. On SM 9.0 only; on earlier chips every resident block has its own 16.
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

/// Number of blocks of a launch that an SM holds at a time, and why no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// Blocks on one SM, at least 1.
    pub blocks_per_sm: u32,
    /// Warps on one SM.
    pub warps_per_sm: u32,
    /// Largest number of warps on an SM, for any kernel.
    pub max_warps_per_sm: u32,
    /// The resource that limits the number of blocks. If several do, the first in the order of [`Limit`].
    pub limited_by: Limit,
    /// Configuration of the SM's shared memory that holds that many blocks, in bytes.
    pub shared_config_bytes: u32,
}

impl Kernel {
    /// Resources that the kernel uses, and the limits that follow.
    pub fn attributes(&self) -> Attributes {
        let code = self.code();
        let (static_shared, most) = code.target.map_or((code.static_shared, 0), |chip| {
            let shared = &chip.shared;
            (shared.own(code.static_shared), shared.largest() - shared.reserved)
        });
        Attributes {
            registers: code.registers,
            static_shared_bytes: static_shared,
            local_bytes: code.frame_bytes,
            constant_bytes: code.constant_bytes,
            max_threads: self.max_threads(),
            max_dynamic_shared_bytes: most.saturating_sub(static_shared.next_multiple_of(16)),
            binary_version: code.sm_version,
            ptx_version: self.program.ptx_version,
            required_block: code.required_block.map(Dim3::from),
            cluster: code.cluster.map(Dim3::from),
            barriers: code.barriers,
        }
    }

    /// Returns how many blocks of `block` threads with `dynamic_shared` bytes of dynamic shared memory each an SM
    /// holds at a time, for the chip that the kernel was compiled for.
    ///
    /// The result is for the largest configuration of the SM's shared memory. An SM on which other kernels run may be
    /// configured for less.
    ///
    /// # Errors
    ///
    /// [`Error::Launch`] if the kernel cannot be launched with such blocks, or if the chip table does not contain the
    /// chip that the kernel was compiled for.
    pub fn occupancy(&self, block: impl Into<Dim3>, dynamic_shared: u32) -> Result<Occupancy> {
        let (block, code) = (block.into(), self.code());
        code.check_block(block)?;
        let (major, minor) = code.sm_version;
        let chip = code.target.ok_or_else(|| {
            Error::from(LaunchError::UnknownSm { version: (major, minor), known: chip::versions() })
        })?;
        let own = chip.shared.own(code.static_shared).next_multiple_of(16);
        let demand = Demand {
            threads: block.x * block.y * block.z,
            registers: code.registers,
            shared_bytes: own.saturating_add(dynamic_shared),
            barriers: code.barriers,
        };
        occupancy(chip, demand).map_err(|limit| {
            let (kernel, dynamic_bytes) = (self.name().to_owned(), dynamic_shared);
            LaunchError::Occupancy { kernel, block, dynamic_bytes, limit: limit.to_string() }.into()
        })
    }
}

impl Kernel {
    /// The number of threads of a block, at most `limit`, with which an SM holds the most threads at a time, and the
    /// number of such blocks that all SMs hold: the smallest grid that fills the GPU. `dynamic_shared` returns the
    /// dynamic shared memory of a block of some number of threads in bytes. Of equal sizes it is the largest. Sizes are
    /// whole warps, or `limit`. What CUDA calls the maximum potential block size.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
    /// let kernel = tegra_hcq::Program::load(&device, cubin)?.kernel("vector_add")?;
    /// // An SM holds 1,536 threads: two blocks of 768, but only one of 1,024.
    /// let (threads, blocks) = kernel.fullest_block(1024, |_| 0)?;
    /// assert_eq!((threads, blocks), (768, 2 * device.info().sm_count));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Kernel::occupancy`], if no block size fits.
    pub fn fullest_block(&self, limit: u32, dynamic_shared: impl Fn(u32) -> u32) -> Result<(u32, u32)> {
        let limit = limit.clamp(1, self.max_threads());
        let mut best: Option<(u32, u32)> = None;
        let mut refused = None;
        for threads in (1..=limit.div_ceil(WARP)).rev().map(|warps| (warps * WARP).min(limit)) {
            match self.occupancy(threads, dynamic_shared(threads)) {
                Ok(Occupancy { blocks_per_sm, .. })
                    if best.is_none_or(|(most, blocks)| threads * blocks_per_sm > most * blocks) =>
                {
                    best = Some((threads, blocks_per_sm));
                }
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        match (best, refused) {
            (Some((threads, blocks)), _) => Ok((threads, blocks * self.code().sm_count)),
            (None, Some(error)) => Err(error),
            // There is at least one size, which either fits or is refused.
            (None, None) => Ok((limit, self.code().sm_count)),
        }
    }
}

/// The room that an SM has for the blocks of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Blocks at a time, at least 1.
    pub(crate) blocks: u32,
    /// Shared memory in bytes of as many blocks as the other resources allow, at most the SM's largest configuration.
    pub(crate) shared_bytes: u32,
}

/// The limits of an SM for the warps and blocks of one kernel, computed when it is loaded: divisions by the chip's
/// numbers would cost each launch tens of nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Warps, by the SM's number and by registers.
    warps: u32,
    /// Blocks by their number.
    blocks: u32,
    /// Blocks by their barriers.
    barriers: u32,
    /// Largest shared memory in bytes.
    shared_bytes: u32,
}

impl Limits {
    /// The limits for a kernel on a chip.
    pub(crate) fn of(chip: &Chip, registers: u32, barriers: u32) -> Self {
        let sm = &chip.sm;
        Self {
            warps: sm.warps.min(warps_for_registers(sm, registers)),
            blocks: sm.blocks,
            barriers: blocks_for_barriers(sm, barriers),
            shared_bytes: chip.shared.largest(),
        }
    }
}

/// Returns the room for blocks of `threads` threads with `shared_bytes` bytes of shared memory each, which include the
/// reserved bytes; `None` if the chip table does not contain the chip that the code was compiled for.
#[inline]
pub(crate) fn room(code: &KernelCode, threads: u32, shared_bytes: u32) -> Option<Room> {
    let limits = code.limits.as_ref()?;
    let blocks = (limits.warps / threads.max(1).div_ceil(WARP)).min(limits.blocks);
    let all = limits.shared_bytes;
    Some(Room {
        blocks: blocks.min(all / shared_bytes.max(1)).min(limits.barriers).max(1),
        shared_bytes: blocks.max(1).saturating_mul(shared_bytes).min(all),
    })
}

/// The resources that one block of a launch needs.
#[derive(Clone, Copy, Debug)]
struct Demand {
    threads: u32,
    registers: u32,
    /// Static and dynamic, without the reserved bytes.
    shared_bytes: u32,
    barriers: u32,
}

/// Returns the occupancy, or the first resource of which an SM has too little for one block.
fn occupancy(chip: &Chip, demand: Demand) -> Result<Occupancy, Limit> {
    let (sm, shared) = (&chip.sm, &chip.shared);
    let warps = demand.threads.max(1).div_ceil(WARP);
    let bytes = demand
        .shared_bytes
        .saturating_add(shared.reserved)
        .checked_next_multiple_of(shared.unit)
        .ok_or(Limit::SharedMemory)?;
    let bounds = [
        (Limit::Warps, sm.warps / warps),
        (Limit::Registers, warps_for_registers(sm, demand.registers) / warps),
        (Limit::SharedMemory, shared.largest() / bytes),
        (Limit::Blocks, sm.blocks),
        (Limit::Barriers, blocks_for_barriers(sm, demand.barriers)),
    ];
    // `min_by_key` returns the first of equal elements.
    let bound = bounds.into_iter().min_by_key(|&(_, blocks)| blocks);
    let (limited_by, blocks) = bound.unwrap_or((Limit::Blocks, sm.blocks));
    if blocks == 0 {
        return Err(limited_by);
    }
    Ok(Occupancy {
        blocks_per_sm: blocks,
        warps_per_sm: blocks * warps,
        max_warps_per_sm: sm.warps,
        limited_by,
        shared_config_bytes: shared.size_for(blocks * bytes).unwrap_or(shared.largest()),
    })
}

/// Returns the number of warps whose registers fit an SM; 0 if a thread cannot have as many. It is a multiple of the
/// partitions, so a single block fits as if its warps filled all partitions evenly.
fn warps_for_registers(sm: &Sm, registers: u32) -> u32 {
    if registers > sm.max_thread_registers { 0 } else { sm.warps_for_registers(registers) }
}

/// Returns the number of blocks whose barriers fit an SM; `u32::MAX` if blocks do not share barriers.
fn blocks_for_barriers(sm: &Sm, barriers: u32) -> u32 {
    sm.barriers.and_then(|all| all.checked_div(barriers)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks, warps and limit on an SM; `None` when not one block fits.
    fn blocks(sm: (u32, u32), threads: u32, registers: u32, shared_bytes: u32) -> Option<(u32, u32, Limit)> {
        let demand = Demand { threads, registers, shared_bytes, barriers: 1 };
        let occupancy = super::occupancy(chip::of(sm).unwrap(), demand).ok()?;
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
    fn shared_memory_includes_the_reserved_bytes() {
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
            let occupancy = super::occupancy(chip::of(sm).unwrap(), demand).unwrap();
            (occupancy.blocks_per_sm, occupancy.limited_by)
        };
        assert_eq!(of((8, 7), small), (16, Limit::Blocks));
        assert_eq!(of((8, 0), small), (32, Limit::Blocks));
        assert_eq!(of((8, 9), small), (24, Limit::Blocks));
        let four = Demand { barriers: 4, ..small };
        assert_eq!(of((9, 0), four), (16, Limit::Barriers));
        assert_eq!(of((8, 7), four), (16, Limit::Blocks));
        assert_eq!(of((8, 0), Demand { barriers: 16, ..small }), (32, Limit::Blocks));
    }

    #[test]
    fn the_configuration_is_the_smallest_that_holds_the_blocks() {
        let config = |threads, shared_bytes| {
            let demand = Demand { threads, registers: 32, shared_bytes, barriers: 1 };
            super::occupancy(chip::of((8, 7)).unwrap(), demand).unwrap().shared_config_bytes / 1024
        };
        assert_eq!(config(256, 0), 8, "6 blocks of 1 KiB");
        assert_eq!(config(128, 48 << 10), 164, "3 blocks of 49 KiB: 147");
        assert_eq!(config(512, 20 << 10), 64, "3 blocks of 21 KiB: 63");
        assert_eq!(config(128, 163 << 10), 164);
    }
}
