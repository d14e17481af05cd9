//! Arguments that a 64-bit process on bare metal does not send: variants for 32-bit processes, inter-VM
//! memory, and tokens of the SCI-IPC library.

use kernel_door::uapi_struct;

uapi_struct! {
    /// Argument of [`WRITE_32`](super::WRITE_32) and [`READ_32`](super::READ_32); the fields are
    /// those of [`RwHandle`](super::RwHandle).
    pointing(addr) RwHandle32 = "nvmap_rw_handle_32", 28 bytes {
        /// User memory.
        0 => addr: u32;
        /// Handle number.
        4 => handle: u32;
        /// First byte of the handle's memory.
        8 => offset: u32;
        /// Bytes per element.
        12 => elem_size: u32;
        /// Stride in the handle in bytes.
        16 => hmem_stride: u32;
        /// Stride in user memory in bytes.
        20 => user_stride: u32;
        /// In: number of elements. Out: number of bytes copied.
        24 => count: u32;
    }

    /// Argument of [`CACHE_32`](super::CACHE_32).
    pointing(addr) CacheOp32 = "nvmap_cache_op_32", 16 bytes {
        /// First byte, inside an nvmap mapping of the caller.
        0 => addr: u32;
        /// Handle number.
        4 => handle: u32;
        /// Length in bytes.
        8 => len: u32;
        /// One of the `CACHE_OP_*` values.
        12 => op: i32;
    }

    /// Argument of [`ALLOC_IVM`](super::ALLOC_IVM).
    unsafe plain AllocIvmHandle = "nvmap_alloc_ivm_handle", 20 bytes {
        /// Handle number.
        0 => handle: u32;
        /// Heaps to try ([`Heaps`](super::Heaps)).
        4 => heap_mask: u32;
        /// As in [`AllocHandle`](super::AllocHandle).
        8 => flags: u32;
        /// Alignment in bytes.
        12 => align: u32;
        /// The other virtual machine.
        16 => peer: u32;
    }

    /// Argument of [`GET_SCIIPCID`](super::GET_SCIIPCID) and
    /// [`HANDLE_FROM_SCIIPCID`](super::HANDLE_FROM_SCIIPCID).
    unsafe plain SciIpcMap = "nvmap_sciipc_map", 32 bytes {
        /// Token of the channel between the two processes.
        0 => auth_token: u64;
        /// Access flags.
        8 => flags: u32;
        /// Not read.
        12 => padding0: u32, "";
        /// The token for the handle.
        16 => sci_ipc_id: u64;
        /// Handle number.
        24 => handle: u32;
        /// Not read; since R39 the first byte is 1 for an endpoint in another virtual machine.
        28 => padding1: u32, "";
    }
}
