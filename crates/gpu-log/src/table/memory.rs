//! Refused requests of nvmap and of address spaces: the program gets an errno, the log has the reason.

use super::lines;

const FD: &str = "Pass the descriptor returned by GET_FD.";
const ABOVE: &str = "See the lines above.";
const PAGES: &str = "Use whole pages of 4 KiB.";
const SPARSE: &str = "Use a sparse reservation and whole pages.";
const ACCESS: &str = "Use 0, 1 (read) or 2 (read and write).";
const KINDS: &str = "Pass compr_kind -1 and incompr_kind 0.";
const WRITER: &str = "Use the writable handle.";
const LIST: &str = "Pass the address of the list.";
const EXPORTER: &str =
    "Copy into a buffer of nvmap, or let the driver allocate memory that other devices can reach.";
const ATTACHMENT: &str =
    "-12: free memory. -22: allocate the buffer (ALLOC) before mapping it. Else copy into a buffer of nvmap.";
const PIN: &str = "Allocate the buffer (ALLOC) before mapping it; check free memory.";
const IDLE: &str = "Wait for the work that uses the mapping.";
const SPACE: &str = "Free mappings, or use a wider range.";
const METADATA: &str = "Pass the MODIFY flag, and make the metadata mutable at the first registration.";

lines! {
    /// A line about a refused request of nvmap or of an address space.
    MemoryLine in MEMORY;

    Alone Error Refused "Unknown NVMAP_IOC"
        => UnknownRequest { request: u32 } "Unknown NVMAP_IOC = {request:#x}",
        "This nvmap does not have the request.",
        "Check number and size of the request's struct with `cargo xtask check-headers`.";
    Alone Error Refused "numa id:"
        => NumaNode { node: i32 } "numa id:{node} is invalid",
        "ALLOC names a NUMA node that does not exist.",
        "Pass node 0.";
    Alone Error Refused "Incorrect input for numa_id"
        => NumaQuery { node: i32 } "Incorrect input for numa_id:{node}",
        "QUERY_HEAP_PARAMS_NUMA names a NUMA node that does not exist.",
        "Pass node 0.";
    Alone Error Refused "duplicating unallocated handle"
        => Unallocated { command: String } "{command} duplicating unallocated handle",
        "GET_FD or FROM_FD before ALLOC.",
        "Send ALLOC first.";
    Alone Error Refused "NvMap: FD limit is crossed"
        => FdLimit { uid: u32 } "NvMap: FD limit is crossed for uid {uid}",
        "The process has no free file descriptor.",
        "Raise the limit (`ulimit -n`) or free buffers.";
    Alone Error Refused "get_user_pages requested/got"
        => UserPages { requested: u64, got: i32 } "get_user_pages requested/got: {requested}/{got}]",
        "Part of the host memory to import is not accessible.",
        "Import memory that is mapped, page aligned and, for writing, writable.";
    Alone Error Refused "alloc_handle_from_va failed"
        => FromVaFailed { error: i32 } "alloc_handle_from_va failed {error}",
        "nvmap could not import host memory.",
        "See the line above.";
    Alone Error Refused "Write operation is not allowed on RO handle"
        => WriteReadOnly,
        "A write through a read-only handle.",
        WRITER;
    Alone Error Refused "CPU read operation is not allowed on VPR"
        => ReadProtected {} "CPU read operation is not allowed on VPR carveout",
        "The CPU cannot read protected memory.",
        "Allocate from IOVMM.";
    Alone Error Refused "Duplicating RW handle from RO handle"
        => DuplicateReadOnly {} "Duplicating RW handle from RO handle is not allowed",
        "A read-only handle cannot become writable.",
        "Duplicate the original handle.";
    Alone Error Refused "Overlap between user and kernel spaces"
        => SpaceOverlap,
        "ALLOC_AS: the range leaves no 4 GiB for the kernel below 2^49.",
        "End the range at 0xfc00000000.";
    Alone Error Refused "mem_handle * is not a dmabuf"
        => RemapNotDmabuf { handle: u32 } "mem_handle {handle:#x} is not a dmabuf",
        "REMAP names a descriptor that is not a buffer.",
        FD;
    Alone Error Refused "is not a dmabuf"
        => NotDmabuf { function: String, fd: i32 } "{function}: fd {fd} is not a dmabuf",
        "A mapping names a descriptor that is not a buffer.",
        FD;
    Alone Error Refused "Regular map with addr/buf offset is not supported"
        => OffsetWithoutFixed {} "Regular map with addr/buf offset is not supported!",
        "MAP_BUFFER_EX: an offset requires the FIXED flag.",
        "Reserve a range and map into it.";
    Alone Error Refused "map_size && non-fixed-mapping"
        => SizeWithoutFixed {} "map_size && non-fixed-mapping!",
        "MAP_BUFFER_EX: a size requires the FIXED flag.",
        "Pass size 0, or reserve a range and map into it.";
    Alone Error Refused "buf size*< (offset("
        => BeyondBuffer { size: u64, offset: u64, map_size: u64 }
        "buf size {size:x} < (offset({offset:x}) + map_size({map_size:x}))",
        "MAP_BUFFER_EX: offset and size exceed the buffer.",
        "Check both against the buffer's size.";
    Alone Error Refused "Invalid map access"
        => InvalidAccess { access: u32 } "Invalid map access specified {access}",
        "MAP_BUFFER_EX: the access does not exist.",
        ACCESS;
    Alone Error Refused "Extra flags:"
        => ExtraFlags { flags: u32 } "Extra flags: {flags:#x}",
        "MAP_BUFFER_EX: this driver does not know the flags.",
        "Clear the flags.";
    Alone Error Refused "TEGRA_RAW requested when not supported"
        => TegraRaw {} "TEGRA_RAW requested when not supported.",
        "MAP_BUFFER_EX: TEGRA_RAW requires another memory layout.",
        "Clear the flag.";
    Alone Error Refused "RW mapping requested for RO buffer"
        => WriteMapping,
        "MAP_BUFFER_EX: write access to a read-only buffer.",
        "Map the buffer read-only.";
    Alone Error Refused "Failed to pin dma_buf"
        => PinFailed {} "Failed to pin dma_buf!",
        "The kernel could not pin a buffer for the GPU.",
        PIN;
    Alone Error Refused "Failed to attach dma_buf"
        => AttachFailed { error: i32 } "Failed to attach dma_buf (err = {error})!",
        "The driver that exported the dma-buf does not let the GPU use it.",
        EXPORTER;
    Alone Error Refused "Failed to map attachment"
        => MapAttachment { error: i32 } "Failed to map attachment (err = {error})!",
        "The driver that exported the dma-buf could not give the GPU its memory, or the buffer has none.",
        ATTACHMENT;
    Alone Error Refused "dmabuf file mode",
        "MAP_BUFFER_EX: the GPU cannot map a buffer of this mode.",
        "Use IOVMM buffers.";
    Alone Error Refused "fixed offset mapping with invalid map_size"
        => FixedSize,
        "A fixed mapping requires a size.",
        "Pass whole pages.";
    Alone Error Refused "map offset must be buffer page size aligned"
        => FixedMisaligned { offset: u64 } "map offset must be buffer page size aligned {offset:#x}",
        "A fixed mapping is misaligned.",
        PAGES;
    Alone Error Refused "fixed offset mapping without space allocation"
        => FixedUnreserved,
        "A fixed mapping lies outside every reservation.",
        "Reserve the range with ALLOC_SPACE first.";
    Alone Error Refused "fixed offset mapping size overflows va node"
        => FixedOverflow,
        "A fixed mapping exceeds its reservation.",
        "Check offset and size.";
    Alone Error Refused "overlapping buffer map requested"
        => FixedOverlap,
        "A fixed mapping overlaps another mapping.",
        "Unmap the other mapping first.";
    Alone Error Refused "No comptags and no incompressible fallback kind"
        => NoFallbackKind,
        "Compression is not available and the request has no fallback kind.",
        KINDS;
    Alone Error Refused "Unsupported page size for compressible kind"
        => CompressiblePageSize {} "Unsupported page size for compressible kind, but no fallback kind",
        "Compression requires big pages, which this chip does not have.",
        KINDS;
    Alone Error Refused "failure setting up compression"
        => CompressionFailed,
        "Compression is not available.",
        "Pass compr_kind -1.";
    Alone Error Refused "oom: sz="
        => OutOfAddresses { size: u64 } "(gk20a_as) oom: sz={size:#x}",
        "The address space has no free range of this size.",
        SPACE;
    Alone Error Refused "failed to allocate va space"
        => NoVaSpace,
        "The address space has no free range of this size.",
        SPACE;
    Alone Error Refused "no buffer at map_address"
        => NotMapped { address: u64 } "no buffer at map_address {address:#x}",
        "MAPPING_MODIFY: no buffer is mapped at this address.",
        "Pass the address of the mapping.";
    Alone Error Refused "buffer_offset*not page aligned"
        => ModifyOffset { offset: u64 } "buffer_offset {offset:#x} not page aligned",
        "MAPPING_MODIFY: the offset is not a multiple of 4 KiB.",
        PAGES;
    Alone Error Refused "buffer_size*not page aligned"
        => ModifySize { size: u64 } "buffer_size {size:#x} not page aligned",
        "MAPPING_MODIFY: the size is not a multiple of 4 KiB.",
        PAGES;
    Alone Error Refused "buffer end exceeds buffer size"
        => ModifyBeyondBuffer { offset: u64, size: u64, mapped: u64 }
        "buffer end exceeds buffer size. {offset:#x} + {size:#x} > {mapped:#x}",
        "MAPPING_MODIFY exceeds the buffer.",
        "Check offset and size.";
    Alone Error Refused "all of the handles should be from system heap"
        => MixedHandles {}
        "all of the handles should be from system heap, of type RW, not from VA and having same cache coherency",
        "The list mixes kinds of handles.",
        "Use handles of one kind and cache mode.";
    Alone Error Refused "validate_unmap failed"
        => ValidateUnmap { error: i32 } "validate_unmap failed: {error}",
        "REMAP: the range cannot be unmapped.",
        SPARSE;
    Alone Error Refused "validate_map failed"
        => ValidateMap { error: i32 } "validate_map failed: {error}",
        "REMAP: the buffer cannot be mapped there.",
        SPARSE;
    Alone Error Refused "get_mpool failed"
        => RemapBuffer { error: i32 } "get_mpool failed: {error}",
        "REMAP: the buffer cannot be used, or the range is not a sparse reservation.",
        "Use a sparse reservation and a mappable buffer.";
    Alone Error Refused "nvgpu_vm_remap*failed:",
        "The kernel refused REMAP at the step named in the line.",
        SPARSE;
    Alone Error Refused "sync-unmap failed on"
        => SyncUnmap { address: u64 } "sync-unmap failed on {address:#x}",
        "A fixed mapping was in use when it was unmapped.",
        IDLE;
    Alone Error Refused "references remaining on"
        => ReferencesRemaining { references: u32, address: u64 } "{references} references remaining on {address:#x}",
        "A fixed mapping was in use when it was unmapped.",
        IDLE;
    Alone Error Refused "both compr_kind and incompr_kind are invalid"
        => NoKind,
        "The mapping has no kind.",
        "Pass incompr_kind 0.";
    Alone Error Refused "invalid incompr_kind specified"
        => InvalidKind,
        "The kind of the mapping does not exist.",
        "Pass incompr_kind 0.";
    Alone Error Refused "map access translation failed"
        => AccessTranslation,
        "MAP_BUFFER_EX: the access does not exist.",
        ACCESS;
    Alone Error Refused "failed to update ptes on map"
        => UpdatePtes { error: i32 } "failed to update ptes on map, err={error}",
        "The kernel could not write the page-table entries of a buffer.",
        "Check free memory.";
    Alone Error Refused ": failed with err="
        => MapFailed { function: String, error: i32 } "{function}: failed with err={error}",
        "The kernel refused a mapping; the lines above have the reason.",
        ABOVE;
    Alone Error Refused "not page aligned",
        "An offset or size is not a multiple of 4 KiB.",
        PAGES;
    Alone Error Refused "RW access requested for RO mapped buffer"
        => RemapReadOnly,
        "Write access to a buffer that is mapped read-only.",
        "Map the buffer for writing.";
    Alone Error Refused "Can't copy from user pointer op."
        => ListUnreadable { list: String } "Can't copy from user pointer op.{list}",
        "The kernel cannot read the address of a list.",
        LIST;
    Alone Error Refused "pointers are invalid"
        => ListMissing,
        "The address of a list is 0.",
        LIST;
    Alone Error Refused "invalid handle_ptr["
        => ListHandle { index: usize, handle: u32 } "invalid handle_ptr[{index}] = {handle}",
        "The list names a handle that does not exist.",
        "Check the handles.";
    Alone Error Refused "Handle ID RO check failed"
        => HandleReadOnly,
        "The request requires a writable handle.",
        WRITER;
    Alone Error Refused "incorrect CACHE_SYNC_AT_RESERVE mix"
        => MixedSync {} "incorrect CACHE_SYNC_AT_RESERVE mix of handles",
        "The list mixes handles with and without CACHE_SYNC_AT_RESERVE.",
        "Send one list for each kind.";
    Alone Error Refused "can't be accessed from cpu"
        => HeapWithoutCpu { heap: u32 } "heap {heap} can't be accessed from cpu",
        "The CPU cannot access this heap.",
        "Allocate from IOVMM.";
    Alone Error Refused "alloc mixes exclusive heap"
        => ExclusiveHeap { command: String, heap: u32 } "{command} alloc mixes exclusive heap {heap} and other heaps",
        "ALLOC combines an exclusive heap with others.",
        "Name one heap.";
    Alone Error Refused "failed to pin dma_buf"
        => RemapPinFailed,
        "The kernel could not pin a buffer for the GPU.",
        PIN;
    Alone Error Refused "invalid dmabuf"
        => InvalidDmabuf,
        "The descriptor is not a buffer.",
        FD;
    Alone Error Refused "Comptags allocation"
        => ComptagsRequired { error: i32 } "Comptags allocation (required) failed ({error})",
        "Compression is not available.",
        "Do not require compression tags.";
    Alone Error Refused "Comptags alloc control failed"
        => ComptagsControl { error: i32 } "Comptags alloc control failed {error}",
        "Compression is not available.",
        "Do not require compression tags.";
    Alone Error Refused "Invalid comptags_alloc_control"
        => InvalidComptagsControl,
        "REGISTER_BUFFER: the value of comptags_alloc_control does not exist.",
        "Pass 0 (none).";
    Alone Error Refused "attempt to modify buffer metadata without"
        => MetadataWithoutModify {}
        "attempt to modify buffer metadata without NVGPU_GPU_REGISTER_BUFFER_FLAGS_MODIFY",
        "REGISTER_BUFFER: the buffer already has metadata.",
        METADATA;
    Alone Error Refused "attempt to redefine immutable metadata"
        => MetadataImmutable,
        "REGISTER_BUFFER: the metadata of the buffer is immutable.",
        METADATA;
    Alone Error Refused "Invalid metadata blob size"
        => MetadataSize,
        "REGISTER_BUFFER: the metadata is too long.",
        "Pass at most 256 bytes.";
    Alone Error Refused "Error copying buffer metadata blob"
        => MetadataUnreadable,
        "REGISTER_BUFFER: the kernel cannot read the metadata.",
        "Pass the address of the metadata.";
    Alone Error Refused "metadata blob copy failed"
        => MetadataUnwritable,
        "GET_BUFFER_INFO: the kernel cannot write the metadata.",
        "Pass the address of a writable buffer.";
    Alone Error Refused "metadata blob",
        "REGISTER_BUFFER: the kernel cannot copy the metadata, or it is too long.",
        "Pass at most 256 bytes.";
    Alone Warning None "MAPPABLE_COMPBITS is deprecated",
        "MAP_BUFFER_EX: the kernel ignores the flag.",
        "Clear the flag.";
    Alone Warning None "Ignoring deprecated flag"
        => DeprecatedFlag { flag: String } "Ignoring deprecated flag: {flag}",
        "MAP_BUFFER_EX: the kernel ignores the flag.",
        "Clear the flag.";
    Alone Error Refused "orin-sim: ALLOC from the GPU's carveout"
        => GpuCarveout { bytes: u64 }
        "orin-sim: ALLOC from the GPU's carveout: a board rounds the size of {bytes} bytes to 0",
        "The software Orin in strict mode: nvmap of L4T r36.4 rounds the size to a multiple of 0 for heap bit 3, and \
         leaves an empty dma-buf.",
        "Allocate from the heap IOVMM.";
    Alone Error Refused "orin-sim: FROM_VA of"
        => FromVaElsewhere { address: u64 }
        "orin-sim: FROM_VA of {address:#x}: the memory of another process cannot be imported",
        "The software Orin cannot map private memory of another process.",
        "Allocate with nvmap, or run the model in the process itself.";
    Alone Error Refused "orin-sim: mmap of*cannot be served"
        => MmapElsewhere { bytes: usize }
        "orin-sim: mmap of {bytes} bytes: memory composed of others cannot be served to another process",
        "The software Orin cannot map imported memory, or ranges of several buffers, in another process.",
        "Map the original buffers, or run the model in the process itself.";
    Alone Warning None "orin-sim: munmap of"
        => PartialMunmap { bytes: usize, address: usize }
        "orin-sim: munmap of {bytes} bytes at {address:#x}: the range is not one mapping",
        "The software Orin: the range passed to munmap is not one whole mapping.",
        "Unmap exactly the mapped range.";
    Alone Error Refused "orin-sim:*lies inside a page"
        => RangeInsidePage { offset: u64 }
        "orin-sim: a board's kernel of r36.4.3 corrupts its memory here: the offset {offset:#x} lies inside a page",
        "GET_FD_FOR_RANGE_FROM_LIST: this range corrupts the memory of a board's kernel.",
        "Begin and end the range at page boundaries.";
    Alone Error Refused "orin-sim:*begin at the start of the first buffer"
        => RangeMidBuffer { bytes: u64, offset: u64, sizes: String }
        "orin-sim: a board's kernel of r36.4.3 corrupts its memory here: {bytes:#x} bytes from {offset:#x} on, over \
         buffers of {sizes} bytes; begin at the start of the first buffer",
        "GET_FD_FOR_RANGE_FROM_LIST: this range corrupts the memory of a board's kernel.",
        "Begin the range at the start of the first buffer.";
    Alone Error Refused "orin-sim:*one such dma-buf at a time, and once"
        => RangeShared {}
        "orin-sim: a board's kernel of r36.4.3 corrupts its memory here: a buffer can be part of one such dma-buf at \
         a time, and once",
        "GET_FD_FOR_RANGE_FROM_LIST: using a buffer twice corrupts the memory of a board's kernel.",
        "Use each buffer once, in one such dma-buf at a time.";
}
