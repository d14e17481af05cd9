//! Requests that the kernel refused: the program got an errno, the log has the reason.

use super::Class::{Error, Warning};
use super::Kind::{None, Refused};
use super::Role::Alone;
use super::{Row, row};

/// A refused request.
const fn refused(pattern: &'static str, meaning: &'static str, cure: &'static str) -> Row {
    row(Alone, Error, Refused, pattern, meaning, cure)
}

/// Of nvmap and of address spaces.
pub(super) const MEMORY: &[Row] = &[
    refused(
        "Unknown NVMAP_IOC",
        "a request that this nvmap does not have",
        "check number and size of the request's struct: `cargo xtask check-headers`",
    ),
    refused("numa id:", "ALLOC names a NUMA node that does not exist", "pass node 0"),
    refused("duplicating unallocated handle", "GET_FD or FROM_FD before ALLOC", "send ALLOC first"),
    refused(
        "NvMap: FD limit is crossed",
        "the process has no free file descriptor",
        "raise the limit (`ulimit -n`) or free buffers",
    ),
    refused(
        "get_user_pages requested/got",
        "host memory to import is not all there",
        "import memory that is mapped, page aligned and, for writing, writable",
    ),
    refused("alloc_handle_from_va failed", "host memory could not be imported", "see the line before it"),
    refused(
        "Write operation is not allowed on RO handle",
        "a write through a read-only handle",
        "use the handle that may write",
    ),
    refused(
        "CPU read operation is not allowed on VPR",
        "protected memory cannot be read by the CPU",
        "allocate from IOVMM",
    ),
    refused(
        "Duplicating RW handle from RO handle",
        "a read-only handle cannot be made writable",
        "duplicate the original handle",
    ),
    refused(
        "Overlap between user and kernel spaces",
        "ALLOC_AS: the range leaves no 4 GiB for the kernel below 2^49",
        "end the range at 0xfc00000000",
    ),
    refused(
        "is not a dmabuf",
        "a mapping names a descriptor that is no buffer",
        "pass the descriptor that GET_FD returned",
    ),
    refused(
        "Regular map with addr/buf offset is not supported",
        "MAP_BUFFER_EX: an offset needs the FIXED flag",
        "reserve a range and map into it",
    ),
    refused(
        "map_size && non-fixed-mapping",
        "MAP_BUFFER_EX: a size needs the FIXED flag",
        "pass size 0, or reserve a range and map into it",
    ),
    refused(
        "buf size*< (offset(",
        "MAP_BUFFER_EX: offset and size reach beyond the buffer",
        "check both against the buffer's size",
    ),
    refused("Invalid map access", "MAP_BUFFER_EX: no such access", "use 0, 1 (read) or 2 (read and write)"),
    refused("Extra flags:", "MAP_BUFFER_EX: flags that this driver does not know", "leave them out"),
    refused(
        "TEGRA_RAW requested when not supported",
        "MAP_BUFFER_EX: TEGRA_RAW needs another memory layout",
        "leave the flag out",
    ),
    refused(
        "RW mapping requested for RO buffer",
        "MAP_BUFFER_EX: write access to a read-only buffer",
        "map read-only",
    ),
    refused(
        "Failed to pin dma_buf",
        "a buffer could not be held for the GPU",
        "allocate it (ALLOC) before mapping; check free memory",
    ),
    refused(
        "dmabuf file mode",
        "MAP_BUFFER_EX: a buffer of a mode that the GPU cannot map",
        "use IOVMM buffers",
    ),
    refused(
        "fixed offset mapping with invalid map_size",
        "a mapping at a chosen place needs a size",
        "pass whole pages",
    ),
    refused(
        "map offset must be buffer page size aligned",
        "a mapping at a chosen place is misaligned",
        "use whole pages of 4 KiB",
    ),
    refused(
        "fixed offset mapping without space allocation",
        "a mapping at a chosen place outside of every reservation",
        "reserve the range with ALLOC_SPACE first",
    ),
    refused(
        "fixed offset mapping size overflows va node",
        "a mapping at a chosen place leaves its reservation",
        "check place and size",
    ),
    refused(
        "overlapping buffer map requested",
        "a mapping at a chosen place covers another",
        "unmap the other first",
    ),
    refused(
        "No comptags and no incompressible fallback kind",
        "compression is not to be had and no other kind was given",
        "pass compr_kind -1 and incompr_kind 0",
    ),
    refused(
        "Unsupported page size for compressible kind",
        "compression needs big pages, which this chip lacks",
        "pass compr_kind -1 and incompr_kind 0",
    ),
    refused("failure setting up compression", "compression is not to be had", "pass compr_kind -1"),
    refused("oom: sz=", "no addresses are left in the address space", "free mappings, or use a wider range"),
    refused(
        "failed to allocate va space",
        "no addresses are left in the address space",
        "free mappings, or use a wider range",
    ),
    refused(
        "no buffer at map_address",
        "MAPPING_MODIFY: nothing is mapped there",
        "pass the address of the mapping",
    ),
    refused("buffer_offset*not page aligned", "MAPPING_MODIFY: misaligned", "use whole pages of 4 KiB"),
    refused(
        "buffer end exceeds buffer size",
        "MAPPING_MODIFY reaches beyond the buffer",
        "check offset and size",
    ),
    refused(
        "all of the handles should be from system heap",
        "a list mixes kinds of handles",
        "use handles of one kind and cache mode",
    ),
    refused(
        "validate_unmap failed",
        "REMAP: the range cannot be unmapped",
        "use a sparse reservation and whole pages",
    ),
    refused(
        "validate_map failed",
        "REMAP: the buffer cannot be mapped there",
        "use a sparse reservation and whole pages",
    ),
    refused("get_mpool failed", "REMAP: not a reservation for remapping", "use a sparse reservation"),
    refused(
        "nvgpu_vm_remap*failed:",
        "REMAP was refused at the step in the line",
        "use a sparse reservation and whole pages",
    ),
    refused(
        "sync-unmap failed on",
        "a fixed mapping was still in use when it was unmapped",
        "wait for the work that uses it",
    ),
    refused(
        "references remaining on",
        "a fixed mapping was still in use when it was unmapped",
        "wait for the work that uses it",
    ),
    refused(
        "both compr_kind and incompr_kind are invalid",
        "a mapping without a kind",
        "pass incompr_kind 0",
    ),
    refused(
        "invalid incompr_kind specified",
        "a mapping with a kind that does not exist",
        "pass incompr_kind 0",
    ),
    refused(
        "map access translation failed",
        "MAP_BUFFER_EX: no such access",
        "use 0, 1 (read) or 2 (read and write)",
    ),
    refused("failed to update ptes on map", "a buffer's pages could not be entered", "check free memory"),
    refused(
        ": failed with err=",
        "a mapping was refused; the lines before it say why",
        "see the lines before it",
    ),
    refused("not page aligned", "an offset or size is no multiple of 4 KiB", "use whole pages of 4 KiB"),
    refused(
        "RW access requested for RO mapped buffer",
        "write access to a buffer mapped read-only",
        "map it for writing",
    ),
    refused(
        "Can't copy from user pointer op.",
        "a list's address cannot be read",
        "pass the address of the list",
    ),
    refused("pointers are invalid", "a list's address is 0", "pass the address of the list"),
    refused("invalid handle_ptr[", "a list names a handle that does not exist", "check the handles"),
    refused(
        "Handle ID RO check failed",
        "a read-only handle where one must write",
        "use the handle that may write",
    ),
    refused(
        "incorrect CACHE_SYNC_AT_RESERVE mix",
        "a list mixes handles of two kinds",
        "send one list for each kind",
    ),
    refused("can't be accessed from cpu", "the heap has no numbers for the CPU", "ask for IOVMM"),
    refused("alloc mixes exclusive heap", "ALLOC names a heap that must stand alone", "name one heap"),
    refused(
        "failed to pin dma_buf",
        "a buffer could not be held for the GPU",
        "allocate it (ALLOC) before mapping; check free memory",
    ),
    refused("invalid dmabuf", "a descriptor is no buffer", "pass the descriptor that GET_FD returned"),
    refused("Comptags alloc", "compression is not to be had", "ask for none"),
    refused(
        "metadata blob",
        "REGISTER_BUFFER: the blob cannot be copied or is too long",
        "pass at most 256 bytes",
    ),
    row(
        Alone,
        Warning,
        None,
        "MAPPABLE_COMPBITS is deprecated",
        "MAP_BUFFER_EX: the flag is ignored",
        "leave the flag out",
    ),
    row(
        Alone,
        Warning,
        None,
        "Ignoring deprecated flag",
        "MAP_BUFFER_EX: the flag is ignored",
        "leave the flag out",
    ),
    row(
        Alone,
        Warning,
        None,
        "orin-sim: munmap of",
        "the software Orin: munmap was given what is not one whole mapping",
        "unmap exactly what was mapped",
    ),
];

/// Of TSGs, channels, syncpoints and events.
pub(super) const CHANNELS: &[Row] = &[
    refused(
        "not bound to an address space at time of setup_bind",
        "SETUP_BIND before BIND_CHANNEL of an address space",
        "bind the address space, then the TSG, then set up",
    ),
    refused(
        "not bound to tsg at time of setup_bind",
        "SETUP_BIND before the channel is in a TSG",
        "bind the address space, then the TSG, then set up",
    ),
    refused("usermode buffers allocated", "SETUP_BIND twice", "one ring per channel; make a second channel"),
    refused("gpfifo already allocated", "SETUP_BIND twice", "one ring per channel; make a second channel"),
    refused(
        "deterministic is not compatible with watchdog",
        "SETUP_BIND: a deterministic channel with its watchdog on",
        "send WDT with status 1 (off) first",
    ),
    refused(
        "need deterministic for usermode submit",
        "SETUP_BIND: user-mode submission without the DETERMINISTIC flag",
        "pass flags 0xa",
    ),
    refused(
        "Usermode buffer alloc failed",
        "SETUP_BIND: ring or USERD buffer cannot be used",
        "use two buffers of their own, offset 0, the ring at least 8 bytes per entry",
    ),
    refused(
        "nvgpu_channel_setup_bind*[ERR]  fail",
        "SETUP_BIND was refused; the lines before it say why",
        "see the lines before it",
    ),
    refused(
        "not bound to address space at time of grctx",
        "ALLOC_OBJ_CTX before BIND_CHANNEL of an address space",
        "bind the address space, then the TSG, then set up, then allocate the object",
    ),
    refused(
        "invalid obj class",
        "ALLOC_OBJ_CTX: the engine has no such class",
        "ask GET_CHARACTERISTICS for the classes",
    ),
    refused(
        "Invalid class/veid/pbdma config",
        "ALLOC_OBJ_CTX: the class does not go with the subcontext",
        "use compute on an asynchronous subcontext",
    ),
    refused(
        "Can't have Graphics in non-zero'th",
        "ALLOC_OBJ_CTX: graphics belongs to subcontext 0",
        "use compute",
    ),
    refused(
        "VEID0 can't do Graphics and Async Compute",
        "ALLOC_OBJ_CTX: both on subcontext 0",
        "use another subcontext",
    ),
    refused(
        "Async Compute can't be mixed with Graphics",
        "ALLOC_OBJ_CTX: both on one host engine",
        "use another TSG",
    ),
    refused(
        "CILP not allowed",
        "ALLOC_OBJ_CTX: preemption mode does not go with graphics",
        "set another mode",
    ),
    refused(
        "VM does not match with subcontext VM",
        "the channel's address space is not its subcontext's",
        "bind both to the same address space",
    ),
    refused(
        "channel/subctx VM mismatch",
        "the channel's address space is not its subcontext's",
        "bind both to the same address space",
    ),
    refused(
        "SYNC VEID not available",
        "the TSG has its synchronous subcontext already, or none is free",
        "use an asynchronous one, or delete one",
    ),
    refused("ASYNC & SYNC VEIDs not available", "the TSG has no subcontext left", "delete one; there are 64"),
    refused("Invalid subcontext type", "CREATE_SUBCONTEXT: no such type", "use 0 (synchronous) or 1"),
    refused("Invalid VM (fd =", "CREATE_SUBCONTEXT: not an address space", "pass the descriptor of ALLOC_AS"),
    refused("runlist_id mismatch", "a TSG's channels must share one runlist", "use another TSG"),
    refused("trying to bind more than supported channels", "the TSG is full", "use another TSG"),
    refused(
        "Source device inst id/token",
        "OPEN_TSG: token and SHARE flag must come together",
        "pass both or none",
    ),
    refused("TSG open with token failed", "OPEN_TSG: the token is not valid any more", "ask for a new token"),
    refused(
        "is not bound to tsg",
        "a request for a channel that is in no TSG",
        "bind the channel to a TSG first",
    ),
    refused("set_ctxsw_preemption_mode failed", "the preemption mode was refused", "see the lines before it"),
    refused("failed to preempt channel", "the TSG would not leave the hardware", "wait for the work first"),
    refused("failed to setup zcull", "a depth-culling buffer was refused", "check its address"),
    refused("invalid num_entries", "CLK_SET_INFO: no or too many entries", "pass one entry"),
    refused("invalid zbc", "ZBC request: no such type or index", "check type and index"),
    refused(
        "unrecognized tsg gpu ioctl",
        "a TSG request that this driver does not have",
        "check the code: `cargo xtask check-headers`",
    ),
    refused("unrecognized tsg event id", "EVENT_ID_CTRL: no such command", "use 1 (enable)"),
    refused(
        "invalid memory handle",
        "SET_ERROR_NOTIFIER: not a buffer",
        "pass the descriptor that GET_FD returned",
    ),
    refused(
        "Invalid handle:",
        "SET_ERROR_NOTIFIER: not a buffer",
        "pass the descriptor that GET_FD returned",
    ),
    refused(
        "gk20a_init_error_notifier: invalid offset",
        "SET_ERROR_NOTIFIER: the record leaves its buffer",
        "check the offset; a record has 16 bytes",
    ),
    refused(
        "Cannot map notifier handle",
        "SET_ERROR_NOTIFIER: the buffer cannot be mapped",
        "use an IOVMM buffer",
    ),
    refused("failed to get free syncpt", "no syncpoint is left", "close channels that have one"),
    refused("failed to allocate syncpoint buffer", "GET_USER_SYNCPOINT: no memory", "check free memory"),
    refused(
        "failed to map syncpt buffer",
        "GET_USER_SYNCPOINT: no address",
        "end the address space at 0xfc00000000",
    ),
    refused(
        "failed to host gk20a for ioctl",
        "the GPU could not be powered on for a request",
        "look for earlier errors; reboot if it stays",
    ),
    refused(
        "failed to power on gpu",
        "the GPU could not be powered on for a request of a TSG",
        "look for earlier errors; reboot if it stays",
    ),
    refused(
        "nvgpu_channel_open_new+",
        "OPEN_CHANNEL: a runlist number that does not exist (kernel WARNING)",
        "pass -1",
    ),
    refused(
        "orin-sim:*lies inside a page",
        "GET_FD_FOR_RANGE_FROM_LIST: a range that a board's kernel does not survive",
        "begin and end the range at pages",
    ),
    refused(
        "orin-sim:*one such dma-buf at a time, and once",
        "GET_FD_FOR_RANGE_FROM_LIST: a buffer twice, which a board's kernel does not survive",
        "name each buffer once, in one such dma-buf at a time",
    ),
    refused(
        "orin-sim: request*is not modelled",
        "the software Orin does not know this request",
        "check the code: `cargo xtask check-headers`",
    ),
    refused("orin-sim: node*is not modelled", "the software Orin has no such node", "use nvmap and ctrl"),
    refused(
        "orin-sim: the graphics context would end",
        "a context above 2^40: a board freezes here",
        "end the address space at 0xfc00000000; use smaller rings",
    ),
    refused(
        "orin-sim: GET_USER_SYNCPOINT on channel",
        "a syncpoint was asked for without an address space: a board's kernel crashes here",
        "bind the address space first",
    ),
    refused(
        "orin-sim: SUBMIT_GPFIFO",
        "a syncpoint's address is above 2^40",
        "end the address space at 0xfc00000000",
    ),
    refused(
        "orin-sim: BIND_CHANNEL failed",
        "close() of this channel would hang on a board",
        "use BIND_CHANNEL_EX",
    ),
];
