//! Properties of a GPU, as reported by its driver.

use ampere_cmd::command::{SmLayout, local_memory_size};

use crate::chip;
use crate::error::Shortage;

/// Identity of the GPU, and the windows of its address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Name of the chip, for example `ga10b`.
    pub chip: String,
    /// Class of the compute engine (0xc7c0 on ga10b).
    pub compute_class: u32,
    /// Class of the copy engine (0xc7b5 on ga10b).
    pub copy_class: u32,
    /// Class of the channel (0xc76f on ga10b).
    pub gpfifo_class: u32,
    /// SM version, major and minor; (8, 7) on ga10b.
    pub sm_version: (u32, u32),
    /// Number of graphics processing clusters in use.
    pub gpc_count: u32,
    /// Number of SMs of each GPC, which limits the clusters of blocks; empty if the driver does not report them.
    pub gpc_sms: Vec<u32>,
    /// Number of texture processing clusters in use, over all GPCs.
    pub tpc_count: u32,
    /// Number of streaming multiprocessors in use.
    pub sm_count: u32,
    /// Number of warps that an SM holds at a time, for any kernel.
    pub warps_per_sm: u32,
    /// The layout of local memory. Its numbers are the largest that the hardware may use as indices, at least the
    /// numbers of TPCs and warps above.
    pub local_layout: SmLayout,
    /// Whether CPU and GPU use the same memory, as on an Orin. A GPU on a card has its own.
    pub unified_memory: bool,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: u64,
    /// Highest GPU clock in Hz; 0 if the driver does not report it.
    pub max_clock_hz: u64,
    /// Lowest GPU address of buffers.
    pub va_start: u64,
    /// End of the GPU addresses of buffers (exclusive).
    pub va_end: u64,
    /// Generic address at which an SM sees its shared memory.
    pub shared_window: u64,
    /// Generic address at which a thread sees its local memory.
    pub local_window: u64,
    /// Further numbers that the driver reports, under the driver's own names.
    pub driver: Vec<(&'static str, i64)>,
}

impl Properties {
    /// One sentence on where commands for GPUs of this SM version were tried; see [`Chip::tried`](chip::Chip::tried).
    #[must_use]
    pub fn tried(&self) -> String {
        let (major, minor) = self.sm_version;
        chip::of(self.sm_version).map_or_else(
            || format!("SM {major}.{minor} is not supported; supported are {}", chip::versions()),
            chip::Chip::tried,
        )
    }

    /// Memory in bytes that each queue keeps for the local memory of all threads that the GPU may hold, when its
    /// kernels need up to `stack_bytes` bytes per thread. `None` for a GPU that is not supported, or if the size does
    /// not fit 64 bits.
    #[must_use]
    pub fn local_memory_bytes(&self, stack_bytes: u32) -> Option<u64> {
        let reserve = chip::of(self.sm_version)?.local.stack_reserve;
        let bytes_per_thread = stack_bytes.checked_add(reserve)?.checked_next_multiple_of(32)?;
        Some(local_memory_size(bytes_per_thread, self.local_layout).ok()?.area_bytes)
    }
}

/// Memory of the whole machine or GPU.
///
/// ```
/// use gpu_hal::MemoryInfo;
///
/// let info = MemoryInfo { total: 8 << 30, available: 6 << 30, largest: 5 << 30 };
/// assert_eq!(info.shortage(7 << 30), Some(gpu_hal::Shortage::Available));
/// assert_eq!(info.shortage(5 << 30), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Total size in bytes.
    pub total: u64,
    /// Bytes that allocations can get now. On an Orin it is what Linux reports as available, less what is free only for
    /// contiguous allocations (`MemAvailable` less `CmaFree` in `/proc/meminfo`).
    pub available: u64,
    /// The most that one allocation may take now, in bytes.
    pub largest: u64,
}

impl MemoryInfo {
    /// What an allocation of `bytes` bytes would run out of; `None` if there is enough.
    pub fn shortage(&self, bytes: u64) -> Option<Shortage> {
        match bytes {
            _ if bytes > self.total => Some(Shortage::Total),
            _ if bytes > self.largest => Some(Shortage::Available),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sm_version: (u32, u32)) -> Properties {
        Properties {
            chip: "NVIDIA GeForce RTX 4090".to_owned(),
            compute_class: 0xc9c0,
            copy_class: 0xc7b5,
            gpfifo_class: 0xc56f,
            sm_version,
            gpc_count: 11,
            gpc_sms: Vec::new(),
            tpc_count: 64,
            sm_count: 128,
            warps_per_sm: 48,
            local_layout: SmLayout { warps_per_sm: 48, sm_per_tpc: 2, tpc_count: 66 },
            unified_memory: false,
            l2_bytes: 72 << 20,
            max_clock_hz: 0,
            va_start: 0x10_0000_0000,
            va_end: 1 << 40,
            shared_window: 0x7294_0000_0000,
            local_window: 0x7293_0000_0000,
            driver: Vec::new(),
        }
    }

    #[test]
    fn local_memory_is_for_all_warps_that_a_gpu_may_hold() {
        // 576 bytes per thread and 48 warps of 32 on 132 SMs, in units of 128 KiB.
        assert_eq!(
            of((8, 9)).local_memory_bytes(0),
            Some((576 * 32 * 48 * 132_u64).next_multiple_of(0x2_0000))
        );
        assert_eq!(of((8, 9)).local_memory_bytes(1), of((8, 9)).local_memory_bytes(32));
        assert!(of((8, 9)).local_memory_bytes(33) > of((8, 9)).local_memory_bytes(32));
        assert_eq!((of((7, 5)).local_memory_bytes(0), of((8, 9)).local_memory_bytes(u32::MAX)), (None, None));
    }

    #[test]
    fn a_gpu_that_was_never_tried_is_reported_in_those_words() {
        assert!(of((8, 9)).tried().contains("SM 8.9 (GeForce RTX 40, L40) was never tried"));
        assert!(of((8, 6)).tried().contains("never tried"));
        assert!(!of((9, 0)).tried().contains("never tried"));
        assert!(of((7, 5)).tried().contains("not supported"));
    }
}
