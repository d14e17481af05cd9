//! Memory requirements of a launch besides its arguments: the two windows, local memory, prefetched code.
//!
//! The windows are the generic addresses of shared and local memory. Accesses inside them bypass the MMU, so memory
//! that is mapped in a window cannot be reached: SKED refuses such a launch. Local memory is one area for all
//! TPCs; the class gets its size per TPC, and each warp of an SM has its own part. That SKED requires memory for all
//! warps that can be on a TPC at once is inferred from drivers, which provide the size of
//! SET_SHADER_LOCAL_MEMORY_NON_THROTTLED.

use ampere_cmd::command::LOCAL_WARP_UNIT;
use ampere_cmd::qmd::v3_0 as q;
use gpu_hal::chip::WARP;

use super::{Checked, Environment, Fields, esr, fail};
use crate::board::SMS_PER_TPC;
use crate::chip::CHIP;
use crate::mmu::Access;
use crate::sm::{Launch, ctas_per_sm};

/// Granularity of the local-memory sizes in bytes.
const LOCAL_UNIT: u64 = 16;
/// Size and alignment of the shared- and the local-memory window in bytes.
const WINDOW: u64 = CHIP.local.window as u64;
/// End of the MMU's address range: the windows' fields have 49 bits.
const ADDRESS_END: u64 = 1 << 49;
/// Granularity and alignment of code prefetch in bytes.
const PREFETCH_UNIT: u64 = 256;

impl Fields<'_> {
    /// Bytes of local memory per thread, the sum of both parts.
    pub(super) fn local_memory(&self, launch: &Launch) -> Checked<u32> {
        let parts = [
            (q::SHADER_LOCAL_MEMORY_LOW_SIZE, esr::LOCAL_LOW),
            (q::SHADER_LOCAL_MEMORY_HIGH_SIZE, esr::LOCAL_HIGH),
        ];
        let mut total = 0;
        for (field, bit) in parts {
            let size = self.get(field);
            if !size.is_multiple_of(LOCAL_UNIT) {
                let reason = format!("{} {size:#x} is not a multiple of {LOCAL_UNIT}", field.info().name);
                return fail(Some(bit), reason);
            }
            total += size;
        }
        if total == 0 {
            return Ok(0);
        }
        let refuse = |reason| fail(Some(esr::LOCAL_TOTAL), reason);
        if total >= WINDOW {
            return refuse(format!("local memory of {total:#x} bytes does not fit its window"));
        }
        let Environment { local_memory, local_bytes_per_tpc, sm_count, .. } = *self.environment;
        let ctas = launch.grid.iter().fold(1_u64, |product, &n| product.saturating_mul(n.into()));
        let resident = ctas.min(u64::from(ctas_per_sm(launch) * SMS_PER_TPC));
        let warps = resident * u64::from(launch.block.iter().product::<u32>().div_ceil(WARP));
        let wanted = (u64::from(WARP) * total).next_multiple_of(LOCAL_WARP_UNIT) * warps;
        if local_bytes_per_tpc < wanted {
            return refuse(format!(
                "{total:#x} bytes of local memory per thread take {wanted:#x} bytes for the {warps} warps that a \
                 TPC runs at once, but SET_SHADER_LOCAL_MEMORY_NON_THROTTLED has given {local_bytes_per_tpc:#x} \
                 to a TPC"
            ));
        }
        let area = local_bytes_per_tpc.saturating_mul(u64::from(sm_count.div_ceil(SMS_PER_TPC)));
        let mut va = local_memory;
        let end = local_memory.saturating_add(area);
        while va < end {
            match self.view.span(va, Access::Write) {
                Ok(span) => va = span.end,
                Err(fault) => {
                    return refuse(format!(
                        "SET_SHADER_LOCAL_MEMORY {local_memory:#x} must map {area:#x} bytes: {fault}"
                    ));
                }
            }
        }
        // CAST: below WINDOW.
        Ok(total as u32)
    }

    /// Checks that the windows do not overlap memory.
    pub(super) fn windows(&self) -> Checked<()> {
        let Environment { shared_window, local_window, .. } = *self.environment;
        let refuse = |reason| fail(Some(esr::WINDOW_OVERLAP), reason);
        for (name, va) in [("SHARED", shared_window), ("LOCAL", local_window)] {
            let method = format!("SET_SHADER_{name}_MEMORY_WINDOW {va:#x}");
            if va == 0 {
                return refuse(format!("{method}: the window has not been set and overlaps null pointers"));
            }
            if !va.is_multiple_of(WINDOW) {
                return refuse(format!("{method}: the window is not aligned to its {WINDOW:#x} bytes"));
            }
            if va > ADDRESS_END - WINDOW {
                return refuse(format!("{method}: the window ends above {ADDRESS_END:#x}"));
            }
            if self.view.overlaps(va, WINDOW) {
                return refuse(format!("{method}: the window overlaps mapped memory"));
            }
        }
        if shared_window == local_window {
            return refuse(format!("the windows of shared and local memory overlap at {shared_window:#x}"));
        }
        Ok(())
    }

    /// The range of prefetched code: first byte and one past the last.
    pub(super) fn prefetch(&self) -> Checked<Option<(u64, u64)>> {
        let kind = self.get(q::PROGRAM_PREFETCH_TYPE);
        let kinds = [q::PROGRAM_PREFETCH_TYPE_PREFETCH_LAUNCH, q::PROGRAM_PREFETCH_TYPE_PREFTECH_POST];
        if !kinds.contains(&kind) {
            return fail(None, format!("PROGRAM_PREFETCH_TYPE {kind} does not exist"));
        }
        let bytes = self.get(q::PROGRAM_PREFETCH_SIZE) * PREFETCH_UNIT;
        if bytes == 0 {
            return Ok(None);
        }
        let upper = self.get(q::PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED) << 32;
        let va = (upper | self.get(q::PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED)) * PREFETCH_UNIT;
        Ok(Some((va, va + bytes)))
    }
}
