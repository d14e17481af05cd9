//! Memory: `/dev/nvmap` (family `N`).
//!
//! nvmap manages *handles*: numbers that are neither descriptors nor addresses. A handle is created
//! with a size, then backed with memory from a heap, then exported as a dma-buf descriptor, which the
//! CPU and the GPU driver map. Layouts: `nvidia-oot/include/uapi/linux/nvmap.h`; flag
//! values: `nvidia-oot/include/linux/nvmap.h`.

mod calls;
mod rare;

use kernel_door::{requests, uapi_struct};

use crate::Release::{R36_4_7, R39_2};
use crate::release::{since, until};

pub use calls::{
    Rows, alloc_code, alloc_r39, cache_list, fd_for_range_from_list, read, read_rows, set_tag_label, write,
    write_rows,
};
pub use rare::{AllocIvmHandle, CacheOp32, RwHandle32, SciIpcMap};

/// Family letter of the requests.
pub const FAMILY: u8 = b'N';

requests! {
    unsafe family FAMILY;
    /// Creates a handle of `size_or_fd` bytes and returns its number in `handle`.
    ReadWrite 0 CREATE ("NVMAP_IOC_CREATE"): CreateHandle;
    /// Creates a handle with a 64-bit size and returns its number in the low half of the size.
    ReadWrite 1 CREATE_64 ("NVMAP_IOC_CREATE_64"): CreateHandle64;
    /// Opens a handle by number; deprecated: `ENOTTY`.
    ReadWrite 2 FROM_ID ("NVMAP_IOC_FROM_ID"): CreateHandle;
    /// Gives a handle memory.
    Write 3 ALLOC ("NVMAP_IOC_ALLOC"): AllocHandle;
    /// [`ALLOC`] since R39; see [`alloc_r39`].
    Write 3 ALLOC_R39 ("NVMAP_IOC_ALLOC"): AllocHandleR39;
    /// Frees the handle whose number is the argument. Always succeeds. If the number is an open
    /// dma-buf descriptor of the process, the kernel closes that descriptor instead: never pass one.
    Closing 4 FREE ("NVMAP_IOC_FREE");
    /// Copies user memory into a handle.
    Write 6 WRITE ("NVMAP_IOC_WRITE"): RwHandle;
    /// Copies a handle's memory to user memory.
    Write 7 READ ("NVMAP_IOC_READ"): RwHandle;
    /// [`WRITE`] from a 32-bit process.
    Write 6 WRITE_32 ("NVMAP_IOC_WRITE_32"): RwHandle32;
    /// [`READ`] from a 32-bit process.
    Write 7 READ_32 ("NVMAP_IOC_READ_32"): RwHandle32;
    /// Returns one property of a handle. No driver case: `ENOTTY`; see [`PARAMETERS`].
    ReadWrite 8 PARAM ("NVMAP_IOC_PARAM"): [u32; 4];
    /// [`PARAM`] from a 32-bit process. No driver case: `ENOTTY`.
    ReadWrite 8 PARAM_32 ("NVMAP_IOC_PARAM_32"): [u32; 3];
    /// Cache maintenance on a CPU mapping, 32-bit length.
    Write 12 CACHE ("NVMAP_IOC_CACHE"): CacheOp;
    /// Cache maintenance on a CPU mapping, 64-bit length.
    Write 12 CACHE_64 ("NVMAP_IOC_CACHE_64"): CacheOp64;
    /// [`CACHE`] from a 32-bit process.
    Write 12 CACHE_32 ("NVMAP_IOC_CACHE_32"): CacheOp32;
    /// Returns the number of a handle; deprecated: `ENOTTY`.
    ReadWrite 13 GET_ID ("NVMAP_IOC_GET_ID"): CreateHandle;
    /// Exports the handle in `handle` as a new dma-buf descriptor in `size_or_fd`.
    ReadWrite 15 GET_FD ("NVMAP_IOC_GET_FD"): CreateHandle;
    /// Imports the dma-buf in `size_or_fd` as a new handle in `handle`.
    ReadWrite 16 FROM_FD ("NVMAP_IOC_FROM_FD"): CreateHandle;
    /// Cache maintenance on parts of several handles. Removed in R39.
    Write 17 CACHE_LIST ("NVMAP_IOC_CACHE_LIST"): CacheOpList;
    /// Opens a handle by its inter-VM name; `size_or_fd` and `handle` contain the 64-bit name.
    ReadWrite 19 FROM_IVC_ID ("NVMAP_IOC_FROM_IVC_ID"): CreateHandle;
    /// Returns the inter-VM name of a handle.
    ReadWrite 20 GET_IVC_ID ("NVMAP_IOC_GET_IVC_ID"): CreateHandle;
    /// Mask of the inter-VM heaps.
    Read 21 GET_IVM_HEAPS ("NVMAP_IOC_GET_IVM_HEAPS"): u32;
    /// Creates a handle for existing memory of the process.
    ReadWrite 22 FROM_VA ("NVMAP_IOC_FROM_VA"): CreateHandleFromVa;
    /// Tests pinning of user memory.
    ReadWrite 23 GUP_TEST ("NVMAP_IOC_GUP_TEST"): GupTest;
    /// Registers a text for an allocation tag, system-wide. Removed in R39.
    Write 24 SET_TAG_LABEL ("NVMAP_IOC_SET_TAG_LABEL"): SetTagLabel;
    /// Mask of the carveout heaps; never includes the system-memory heap.
    Read 25 GET_AVAILABLE_HEAPS ("NVMAP_IOC_GET_AVAILABLE_HEAPS"): AvailableHeaps;
    /// Size of one carveout heap. Removed in R39; see [`QUERY_HEAP_PARAMS`].
    Read 26 GET_HEAP_SIZE ("NVMAP_IOC_GET_HEAP_SIZE"): HeapSize;
    /// Returns the properties of a handle; reads its argument although encoded as output.
    Read 27 PARAMETERS ("NVMAP_IOC_PARAMETERS"): HandleParameters;
    /// Backs a handle with memory of the inter-VM heap.
    Write 101 ALLOC_IVM ("NVMAP_IOC_ALLOC_IVM"): AllocIvmHandle;
    /// Sets the size below which the protected memory does not shrink, in bytes.
    Write 102 VPR_FLOOR_SIZE ("NVMAP_IOC_VPR_FLOOR_SIZE"): u32;
    /// Returns a token with which another process imports a handle; reads its argument although encoded as
    /// output.
    Read 103 GET_SCIIPCID ("NVMAP_IOC_GET_SCIIPCID"): SciIpcMap;
    /// Imports a handle by such a token; reads its argument although encoded as output.
    Read 104 HANDLE_FROM_SCIIPCID ("NVMAP_IOC_HANDLE_FROM_SCIIPCID"): SciIpcMap;
    /// Total and free bytes of one heap; reads its argument although encoded as output.
    Read 105 QUERY_HEAP_PARAMS ("NVMAP_IOC_QUERY_HEAP_PARAMS"): QueryHeapParams;
    /// Creates a second handle for the same memory, optionally read-only.
    ReadWrite 106 DUP_HANDLE ("NVMAP_IOC_DUP_HANDLE"): DuplicateHandle;
    /// Creates one dma-buf over parts of several handles; reads its argument although encoded as output.
    Read 107 GET_FD_FOR_RANGE_FROM_LIST ("NVMAP_IOC_GET_FD_FOR_RANGE_FROM_LIST"):
        FdForRangeFromList;
    /// [`QUERY_HEAP_PARAMS`] of one NUMA node: the last four bytes of the argument contain its number.
    Read 108 QUERY_HEAP_PARAMS_NUMA ("NVMAP_IOC_QUERY_HEAP_PARAMS_NUMA"): QueryHeapParams [since(R39_2)];
}

uapi_struct! {
    /// Argument of [`CREATE`], [`GET_FD`] and [`FROM_FD`].
    unsafe plain CreateHandle = "nvmap_create_handle", 8 bytes {
        /// Size in bytes, or a dma-buf descriptor.
        0 => size_or_fd: u32, "size";
        /// Handle number.
        4 => handle: u32;
    }

    /// Argument of [`CREATE_64`].
    unsafe plain CreateHandle64 = "nvmap_create_handle", 8 bytes {
        /// In: size in bytes. Out: the handle number in the low 32 bits.
        0 => size_or_handle: u64, "size64";
    }

    /// Argument of [`ALLOC`].
    unsafe plain AllocHandle = "nvmap_alloc_handle", 20 bytes [until(R36_4_7)] {
        /// Handle number.
        0 => handle: u32;
        /// Heaps to try ([`Heaps`]).
        4 => heap_mask: u32;
        /// [`HandleFlags`] in the low half, the allocation tag in bits 31:16.
        8 => flags: u32;
        /// Alignment in bytes, a power of two; 0 and anything below 4096 mean 4096.
        12 => align: u32;
        /// NUMA node, or -1 for any.
        16 => numa_nid: i32;
    }

    /// Argument of [`ALLOC_R39`].
    pointing(va) AllocHandleR39 = "nvmap_alloc_handle", 32 bytes [since(R39_2)] {
        /// Handle number.
        0 => handle: u32;
        /// Heaps to try ([`Heaps`]).
        4 => heap_mask: u32;
        /// As in [`AllocHandle`].
        8 => flags: u32;
        /// As in [`AllocHandle`].
        12 => align: u32;
        /// NUMA node, or -1 for any.
        16 => numa_nid: i32;
        /// Not read.
        20 => padding: u32, "";
        /// Memory of the process from which the kernel takes huge pages; 0 for none. By the header's comment; the
        /// code was not read.
        24 => va: u64;
    }

    /// Argument of [`FROM_VA`].
    pointing(va) CreateHandleFromVa = "nvmap_create_handle_from_va", 24 bytes {
        /// Start of the memory, page aligned.
        0 => va: u64;
        /// Size in bytes; 0 if the size is in `size_or_handle`.
        8 => size: u32;
        /// [`HandleFlags`] in the low half, the allocation tag in bits 31:16.
        12 => flags: u32;
        /// In: 64-bit size when `size` is 0. Out: the handle number in the low 32 bits.
        16 => size_or_handle: u64, "size64";
    }

    /// Argument of [`READ`] and [`WRITE`].
    pointing(addr) RwHandle = "nvmap_rw_handle", 56 bytes {
        /// User memory.
        0 => addr: u64;
        /// Handle number.
        8 => handle: u32;
        /// Not read.
        12 => padding: u32, "";
        /// First byte of the handle's memory.
        16 => offset: u64;
        /// Bytes per element.
        24 => elem_size: u64;
        /// Stride in the handle in bytes.
        32 => hmem_stride: u64;
        /// Stride in user memory in bytes.
        40 => user_stride: u64;
        /// In: number of elements. Out: number of bytes copied.
        48 => count: u64;
    }

    /// Argument of [`CACHE`].
    pointing(addr) CacheOp = "nvmap_cache_op", 24 bytes {
        /// First byte, inside an nvmap mapping of the caller.
        0 => addr: u64;
        /// Handle number.
        8 => handle: u32;
        /// Length in bytes.
        12 => len: u32;
        /// One of the `CACHE_OP_*` values.
        16 => op: i32;
        /// Not read.
        20 => padding: u32, "";
    }

    /// Argument of [`CACHE_64`].
    pointing(addr) CacheOp64 = "nvmap_cache_op_64", 32 bytes {
        /// First byte, inside an nvmap mapping of the caller.
        0 => addr: u64;
        /// Handle number.
        8 => handle: u32;
        /// Not read.
        12 => padding0: u32, "";
        /// Length in bytes.
        16 => len: u64;
        /// One of the `CACHE_OP_*` values.
        24 => op: i32;
        /// Not read.
        28 => padding1: u32, "";
    }

    /// Argument of [`CACHE_LIST`].
    pointing(handles, offsets, sizes) CacheOpList = "nvmap_cache_op_list", 32 bytes [until(R36_4_7)] {
        /// Array of `nr` handle numbers.
        0 => handles: u64;
        /// Array of `nr` offsets; 64-bit if [`CACHE_LIST_ELEM_SIZE_U64`] is in `op`.
        8 => offsets: u64;
        /// Array of `nr` sizes; 64-bit if [`CACHE_LIST_ELEM_SIZE_U64`] is in `op`.
        16 => sizes: u64;
        /// Number of elements.
        24 => nr: u32;
        /// One of the `CACHE_OP_*` values.
        28 => op: i32;
    }

    /// Argument of [`SET_TAG_LABEL`].
    pointing(addr) SetTagLabel = "nvmap_set_tag_label", 16 bytes [until(R36_4_7)] {
        /// Allocation tag.
        0 => tag: u32;
        /// Length of the text in bytes; the kernel stores 31.
        4 => len: u32;
        /// The text.
        8 => addr: u64;
    }

    /// Result of [`GET_AVAILABLE_HEAPS`].
    unsafe plain AvailableHeaps = "nvmap_available_heaps", 8 bytes {
        /// Mask of [`Heaps`].
        0 => heaps: u64;
    }

    /// Argument of [`GET_HEAP_SIZE`].
    unsafe plain HeapSize = "nvmap_heap_size", 16 bytes [until(R36_4_7)] {
        /// One bit of [`Heaps`].
        0 => heap: u32;
        /// Not read.
        4 => padding: u32, "";
        /// Out: size in bytes.
        8 => size: u64;
    }

    /// Argument of [`PARAMETERS`].
    unsafe plain HandleParameters = "nvmap_handle_parameters", 72 bytes {
        /// Out: 1 if physically contiguous.
        0 => contig: u8;
        /// Not read.
        1 => padding0: [u8; 3], "";
        /// Out: identity of an imported buffer.
        4 => import_id: u32;
        /// In: handle number.
        8 => handle: u32;
        /// Out: index of the heap.
        12 => heap_number: u32;
        /// Out: [`HandleFlags::READ_ONLY`] for a read-only handle.
        16 => access_flags: u32;
        /// Not read.
        20 => padding1: u32, "";
        /// Out: heap bit; 0 if the handle has no memory.
        24 => heap: u64;
        /// Out: alignment in bytes.
        32 => align: u64;
        /// Out: cache mode, 0 to 3.
        40 => coherency: u64;
        /// Out: size in bytes, whole pages.
        48 => size: u64;
        /// Out: offset into the backing buffer.
        56 => offset: u64;
        /// Out: machine-wide serial number.
        64 => serial_id: u64;
    }

    /// Argument of [`QUERY_HEAP_PARAMS`].
    unsafe plain QueryHeapParams = "nvmap_query_heap_params", 48 bytes {
        /// In: one bit of [`Heaps`].
        0 => heap_mask: u32;
        /// In: 0.
        4 => flags: u32;
        /// Out: 1 if the heap is contiguous.
        8 => contig: u8;
        /// Not read.
        9 => padding0: [u8; 7], "";
        /// Out: size of the heap in bytes.
        16 => total: u64;
        /// Out: free bytes.
        24 => free: u64;
        /// Out: largest free block in bytes; r36 always reports 4096.
        32 => largest_free_block: u64;
        /// Out: allocation granule in bytes.
        40 => granule_size: u32;
        /// Not read; since R39 the NUMA node of [`QUERY_HEAP_PARAMS_NUMA`].
        44 => padding1: u32, "";
    }

    /// Argument of [`DUP_HANDLE`].
    unsafe plain DuplicateHandle = "nvmap_duplicate_handle", 12 bytes {
        /// In: handle number.
        0 => handle: u32;
        /// In: 0, or [`HandleFlags::READ_ONLY`].
        4 => access_flags: u32;
        /// Out: the new handle number.
        8 => dup_handle: u32;
    }

    /// Argument of [`GUP_TEST`].
    pointing(va) GupTest = "nvmap_gup_test", 16 bytes {
        /// User memory.
        0 => va: u64;
        /// Handle number.
        8 => handle: u32;
        /// Out: 1 if the pages agree.
        12 => result: u32;
    }

    /// Argument of [`GET_FD_FOR_RANGE_FROM_LIST`].
    pointing(handles) FdForRangeFromList = "nvmap_fd_for_range_from_list", 40 bytes {
        /// Array of handle numbers.
        0 => handles: u64;
        /// Elements of `handles`.
        8 => num_handles: u32;
        /// Not read.
        12 => padding0: u32, "";
        /// First byte in the concatenation of the handles.
        16 => offset: u64;
        /// Length in bytes.
        24 => size: u64;
        /// Out: the dma-buf.
        32 => fd: i32;
        /// Not read.
        36 => padding1: u32, "";
    }
}

bitflags::bitflags! {
    /// Heaps of [`AllocHandle::heap_mask`].
    ///
    /// ```
    /// use nvgpu_sys::nvmap::Heaps;
    ///
    /// let heaps = Heaps::from_bits_retain(0x4000_0001);
    /// assert_eq!(heaps, Heaps::IOVMM | Heaps::GENERIC);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Heaps: u32 {
        /// General carveout; allocated from system memory on machines without one, such as Orin.
        const GENERIC = 1;
        /// Inter-VM memory.
        const IVM = 1 << 1;
        /// Memory of the safety island.
        const FSI = 1 << 2;
        /// GPU carveout.
        const GPU = 1 << 3;
        /// Vision accelerator's SRAM (`nvmap_t19x.h`).
        const CVSRAM = 1 << 25;
        /// Video memory of a discrete GPU.
        const VIDMEM = 1 << 26;
        /// Security engine's memory.
        const TSEC = 1 << 27;
        /// Protected video memory; neither the CPU nor compute kernels can read it.
        const VPR = 1 << 28;
        /// System memory: the default heap.
        const IOVMM = 1 << 30;
    }

    /// Flags of [`AllocHandle::flags`] and [`CreateHandleFromVa::flags`] above the cache mode.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct HandleFlags: u32 {
        /// Not readable outside the secure world.
        const SECURE = 1 << 2;
        /// A memory kind is given; legacy.
        const KIND_SPECIFIED = 1 << 3;
        /// A compression mode is given; legacy.
        const COMPR_SPECIFIED = 1 << 4;
        /// Zero the pages; the kernel does so anyway.
        const ZEROED_PAGES = 1 << 5;
        /// Physically contiguous pages.
        const PHYS_CONTIG = 1 << 6;
        /// The caller does the cache maintenance.
        const CACHE_SYNC = 1 << 7;
        /// Cache maintenance happens when pages are reserved.
        const CACHE_SYNC_AT_RESERVE = 1 << 8;
        /// Read-only for GPU and CPU mappings.
        const READ_ONLY = 1 << 9;
    }
}

/// Mask of all heaps but system memory.
pub const HEAP_CARVEOUT_MASK: u32 = Heaps::IOVMM.bits() - 1;
/// Page reservation of earlier releases: release pages.
pub const PAGES_UNRESERVE: u32 = 0;
/// Page reservation of earlier releases: reserve pages.
pub const PAGES_RESERVE: u32 = 1;
/// Page reservation of earlier releases: map pages when they are released.
pub const INSERT_PAGES_ON_UNRESERVE: u32 = 2;
/// Page reservation of earlier releases: protect and clean.
pub const PAGES_PROT_AND_CLEAN: u32 = 3;
/// Cache mode in flag bits 1:0: CPU accesses are uncached device accesses.
pub const CACHE_UNCACHED: u32 = 0;
/// Cache mode in flag bits 1:0: uncached, but stores may be gathered.
pub const CACHE_WRITE_COMBINED: u32 = 1;
/// Cache mode in flag bits 1:0: cached in the inner caches; on arm64 the same as cacheable.
pub const CACHE_INNER_CACHEABLE: u32 = 2;
/// Cache mode in flag bits 1:0: cached.
pub const CACHE_CACHEABLE: u32 = 3;
/// Mask of the cache mode in the flags.
pub const CACHE_MASK: u32 = 3;
/// Position of the 16-bit allocation tag in the flags.
pub const TAG_SHIFT: u32 = 16;
/// Flag bits that neither [`HandleFlags`] nor the cache mode use; they belong to the tag.
pub const TAG_MASK: u32 = 0xffff << TAG_SHIFT;
/// Write dirty lines back.
pub const CACHE_OP_WB: i32 = 0;
/// Invalidate lines; the kernel also writes dirty lines back.
pub const CACHE_OP_INV: i32 = 1;
/// Write back and discard.
pub const CACHE_OP_WB_INV: i32 = 2;
/// In [`CacheOpList::op`]: offsets and sizes are 64-bit.
pub const CACHE_LIST_ELEM_SIZE_U64: i32 = i32::MIN;
/// Page size of handles and of their CPU mappings, in bytes.
pub const PAGE_SIZE: u64 = 4096;
