//! Occupancy: the number of blocks of a launch that an SM holds, and its limits.

use gpu_hal::chip::WARP;
use serde::{Deserialize, Serialize};

use crate::chip::CHIP;
use crate::sm::Launch;

/// Number of blocks of a launch that an SM holds at a time, by the launch descriptor and the limits of SM 8.7.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Blocks on one SM.
    pub blocks_per_sm: u32,
    /// Warps on one SM.
    pub warps_per_sm: u32,
    /// Largest number of warps on an SM.
    pub max_warps: u32,
    /// Blocks that the warps of an SM allow.
    pub by_warps: u32,
    /// Blocks that its registers allow.
    pub by_registers: u32,
    /// Blocks that its shared memory allows, in the largest configuration that the launch permits; `None` if the
    /// launch uses none.
    pub by_shared: Option<u32>,
    /// Maximum number of blocks on an SM, whatever the kernel.
    pub by_blocks: u32,
    /// The resources that limit the number of blocks: `warps`, `registers`, `shared memory`, `blocks`.
    pub limited_by: Vec<String>,
    /// SMs of the chip.
    pub sms: u32,
}

impl Occupancy {
    pub(super) fn of(launch: &Launch) -> Self {
        let sm = CHIP.sm;
        let warps = launch.block.iter().product::<u32>().div_ceil(WARP).max(1);
        let by_warps = sm.warps / warps;
        let by_registers = sm.warps_for_registers(launch.registers) / warps;
        let by_shared = launch.shared_limit.checked_div(launch.shared_bytes);
        let bounds = [
            ("warps", Some(by_warps)),
            ("registers", Some(by_registers)),
            ("shared memory", by_shared),
            ("blocks", Some(sm.blocks)),
        ];
        let least = bounds.iter().filter_map(|(_, blocks)| *blocks).min().unwrap_or(0);
        let limiting = bounds.iter().filter(|(_, blocks)| *blocks == Some(least));
        let blocks = least.max(1);
        Self {
            blocks_per_sm: blocks,
            warps_per_sm: blocks * warps,
            max_warps: sm.warps,
            by_warps,
            by_registers,
            by_shared,
            by_blocks: sm.blocks,
            limited_by: limiting.map(|(name, _)| (*name).to_owned()).collect(),
            sms: launch.sm_count,
        }
    }

    /// Fraction of an SM's warps that are resident, 0 to 1.
    pub fn fraction(&self) -> f64 {
        f64::from(self.warps_per_sm) / f64::from(self.max_warps.max(1))
    }

    /// Waves of `blocks` blocks on the chip: 1.5 is one full wave and a half-full one.
    pub fn waves(&self, blocks: u64) -> f64 {
        super::access::ratio(blocks, u64::from(self.blocks_per_sm) * u64::from(self.sms.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupancy(threads: u32, registers: u32, shared_bytes: u32) -> Occupancy {
        Occupancy::of(&Launch {
            program_va: 0,
            grid: [1; 3],
            block: [threads, 1, 1],
            registers,
            shared_bytes,
            shared_limit: 164 << 10,
            local_bytes: 0,
            barriers: 0,
            constants: [None; 8],
            shared_window: 0,
            local_window: 0,
            sm_count: 16,
            textures: Default::default(),
        })
    }

    #[test]
    fn each_resource_can_limit_the_blocks() {
        let usual = occupancy(256, 32, 1024);
        assert_eq!((usual.blocks_per_sm, usual.warps_per_sm, usual.max_warps), (6, 48, 48));
        assert_eq!(usual.limited_by, ["warps"]);
        assert_eq!((usual.fraction(), usual.waves(144)), (1.0, 1.5));
        // 65 registers: 2,080 a warp, allocated 2,304: 7 warps in each of 4 partitions, 3 blocks of 8 warps.
        let registers = occupancy(256, 65, 1024);
        assert_eq!((registers.blocks_per_sm, registers.by_registers), (3, 3));
        assert_eq!(registers.limited_by, ["registers"]);
        // 48 KiB and the reserved KiB.
        let shared = occupancy(128, 32, 49 << 10);
        assert_eq!((shared.blocks_per_sm, shared.by_shared, shared.warps_per_sm), (3, Some(3), 12));
        assert_eq!(shared.limited_by, ["shared memory"]);
        let small = occupancy(32, 16, 0);
        assert_eq!((small.blocks_per_sm, small.by_blocks, small.by_shared), (16, 16, None));
        assert_eq!(small.limited_by, ["blocks"]);
        // 40 registers: 12 warps in each partition. Both allow 6 blocks.
        assert_eq!(occupancy(256, 40, 0).limited_by, ["warps", "registers"]);
        assert_eq!(occupancy(1024, 32, 0).warps_per_sm, 32, "a second block does not fit");
    }
}
