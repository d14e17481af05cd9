//! Lines that are neither a fault nor a refusal: notes and dumps of nvgpu, nvmap and the power manager.

use super::lines;

/// Start of a kernel WARNING.
pub(super) const PLAIN_WARNING: &str = "WARNING: CPU:";

lines! {
    /// A note or a dump of the GPU's drivers.
    NoteLine in NOTES;

    Alone Warning None "tu104_gr_init_commit_rtv_cb",
        "Kernel WARNING: a context buffer lies above 2^40, out of reach of 40-bit registers. Each ALLOC_OBJ_CTX prints \
         it in programs whose address space ends near 2^40.",
        "End the address space at 0xfc00000000 (ALLOC_AS, va_range_end). Programs that use these crates must not \
         print it.";
    Alone Harmless None "All NvMap Allocations must have a tag"
        => MissingTag { pid: u32, command: String }
        "PID {pid}: {command}: WARNING: All NvMap Allocations must have a tag to identify the subsystem allocating \
         memory.Please pass the tag to the API call NvRmMemHanldeAllocAttr() or relevant. ",
        "A program allocates without a tag. Printed once per program.",
        "Put a tag, for example 0x0900, into bits 31:16 of ALLOC's flags.";
    Alone Harmless None "NVMAP_HANDLE_WRITE_COMBINE should be used"
        => UncachedMapping { pid: u32, command: String, tag: u32 }
        "PID {pid}: {command}: TAG: {tag:#06x} WARNING: NVMAP_HANDLE_WRITE_COMBINE should be used in place of \
         NVMAP_HANDLE_UNCACHEABLE on ARM64",
        "A program maps uncached memory. Printed once per program.",
        "Use write-combined memory.";
    Alone Harmless None "GET_ID/FROM_ID pair is deprecated"
        => DeprecatedId {}
        "NVMAP_IOC_GET_ID/FROM_ID pair is deprecated. Use the pair NVMAP_IOC_GET_FD/FROM_FD.",
        "A program shares a buffer by the deprecated id.",
        "";
    Alone Harmless None "WRITE_32/READ_32 pair are deprecated"
        => DeprecatedTransfer {}
        "NVMAP_IOC_WRITE_32/READ_32 pair are deprecated. Use the pair NVMAP_IOC_WRITE/READ.",
        "R39: a 32-bit program copies to or from a buffer.",
        "";
    Alone Harmless None "NVMAP_IOC_CACHE_32 is deprecated"
        => DeprecatedCache {}
        "NVMAP_IOC_CACHE_32 is deprecated. Use NVMAP_IOC_CACHE instead.",
        "R39: a 32-bit program maintains caches.",
        "";
    Alone Harmless None "error reporting not supported",
        "This build of the driver does not report to the safety processor.",
        "";
    Alone Harmless None "tpc_pg_mask_store",
        "The power mode changed the set of active TPCs.",
        "Read the number of SMs again; `nvpmodel` selects the mode.";
    Detail Information None "__ga10b__ Channel Status"
        => ChannelDump {} "__ga10b__ Channel Status - chip ga10b",
        "Start of the channel dump after a fault.",
        "";
    Detail Information None "__ga10b__*thread name"
        => ChannelStatus { channel: u32, tsg: u32, pid: u32, owner: String, deterministic: String }
        "__ga10b__ {channel}-ga10b, TSG: {tsg}, pid {pid}, thread name {owner}, refs: 1, deterministic: \
         {deterministic}, domain name: (none)",
        "One channel in the dump after a fault.",
        "";
    Detail Information None "__ga10b__ PBDMA Status"
        => PbdmaDump {} "__ga10b__ PBDMA Status - chip ga10b",
        "Start of the host-engine dump after a fault.",
        "";
    Detail Information None "__ga10b__",
        "Dump of channels and host engines after a fault.",
        "";
    Alone Warning None "WARNING: CPU:",
        "Kernel WARNING in a GPU driver; this table does not know the function.",
        "Read the function name in the call trace and search for it in the driver's source.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_warning_is_the_last_row() {
        assert_eq!(NOTES.last().map(|row| row.pattern), Some(PLAIN_WARNING));
    }
}
