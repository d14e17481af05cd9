//! Object creation, cache flushes, buffer registration, debug modes.

use kernel_door::uapi_struct;

use crate::Release::{R36_4_7, R39_2};
use crate::release::{since, until};

uapi_struct! {
    /// Argument of [`ALLOC_AS`](super::ALLOC_AS).
    unsafe plain AllocAs = "nvgpu_alloc_as_args", 64 bytes {
        /// Big page size in bytes; 0 on ga10b, which has none.
        0 => big_page_size: u32;
        /// Out: descriptor of the address space.
        4 => as_fd: i32;
        /// [`AllocAsFlags`].
        8 => flags: u32;
        /// Not used.
        12 => reserved: u32;
        /// First user address, a nonzero multiple of 2 MiB.
        16 => va_range_start: u64;
        /// End of the user range, a multiple of 2 MiB; the kernel's 4 GiB follow.
        24 => va_range_end: u64;
        /// Split between small and big pages; 0 on ga10b.
        32 => va_range_split: u64;
        /// Not used.
        40 => padding: [u32; 6];
    }

    /// Argument of [`OPEN_TSG`](super::OPEN_TSG). R39 declares the last two fields as one array of 16 bytes that a
    /// token fills; by its header, a token consists of these two numbers ([`OpenTsgR39`]).
    unsafe plain OpenTsg = "nvgpu_gpu_open_tsg_args", 24 bytes [until(R36_4_7)] {
        /// Out: descriptor of the TSG.
        0 => tsg_fd: u32;
        /// [`OpenTsgFlags`].
        4 => flags: u32;
        /// With [`OpenTsgFlags::SHARE`]: instance that issued the token; otherwise 0.
        8 => source_device_instance_id: u64;
        /// With [`OpenTsgFlags::SHARE`]: the token; otherwise 0.
        16 => share_token: u64;
    }

    /// Argument of [`OPEN_TSG`](super::OPEN_TSG) since R39; the same bytes as [`OpenTsg`].
    unsafe plain OpenTsgR39 = "nvgpu_gpu_open_tsg_args", 24 bytes [since(R39_2)] {
        /// Out: descriptor of the TSG.
        0 => tsg_fd: u32;
        /// [`OpenTsgFlags`].
        4 => flags: u32;
        /// With [`OpenTsgFlags::SHARE`]: the token; otherwise 0.
        8 => share_token: [u64; 2];
    }

    /// Argument of [`OPEN_CHANNEL`](super::OPEN_CHANNEL).
    unsafe plain OpenChannel = "nvgpu_gpu_open_channel_args", 4 bytes {
        /// In: runlist, [`RUNLIST_GR`](super::RUNLIST_GR) for the graphics and compute engine. Out: descriptor of the
        /// channel.
        0 => runlist_id_or_fd: i32, "channel_fd";
    }

    /// Argument of [`FLUSH_L2`](super::FLUSH_L2): packed, 5 bytes.
    unsafe plain FlushL2 = "nvgpu_gpu_l2_fb_args", 5 bytes {
        /// [`FlushL2Operations`].
        0 => operations: u8, "l2_flush";
        /// Not used.
        1 => reserved: [u8; 4];
    }

    /// Argument of [`SET_MMUDEBUG_MODE`](super::SET_MMUDEBUG_MODE).
    unsafe plain MmuDebugMode = "nvgpu_gpu_mmu_debug_mode_args", 8 bytes {
        /// 1 on, anything else off.
        0 => state: u32;
        /// Not used.
        4 => reserved: u32;
    }

    /// Argument of [`SET_SM_DEBUG_MODE`](super::SET_SM_DEBUG_MODE).
    unsafe plain SmDebugMode = "nvgpu_gpu_sm_debug_mode_args", 16 bytes {
        /// Channel descriptor.
        0 => channel_fd: i32;
        /// 1 on, 0 off.
        4 => enable: u32;
        /// Mask of SMs.
        8 => sms: u64;
    }

    /// Argument of [`SET_DETERMINISTIC_OPTS`](super::SET_DETERMINISTIC_OPTS).
    pointing(channels) SetDeterministicOpts = "nvgpu_gpu_set_deterministic_opts_args", 16 bytes {
        /// Elements of `channels`.
        0 => num_channels: u32;
        /// [`DeterministicOpts`].
        4 => flags: u32;
        /// Array of channel descriptors.
        8 => channels: u64;
    }

    /// Argument of [`REGISTER_BUFFER`](super::REGISTER_BUFFER).
    pointing(metadata_addr) RegisterBuffer = "nvgpu_gpu_register_buffer_args", 24 bytes {
        /// dma-buf descriptor.
        0 => dmabuf_fd: i32;
        /// Compression tags: one of the `COMPTAGS_ALLOC_*` values.
        4 => comptags_alloc_control: u8;
        /// Not used.
        5 => reserved0: u8;
        /// Not used.
        6 => reserved1: u16;
        /// Bytes of the caller's own choice.
        8 => metadata_addr: u64;
        /// Size of the metadata in bytes, at most [`REGISTER_BUFFER_METADATA_MAX_SIZE`].
        16 => metadata_size: u32;
        /// [`RegisterBufferFlags`].
        20 => flags: u32;
    }

    /// Argument of [`GET_BUFFER_INFO`](super::GET_BUFFER_INFO) on the way in.
    pointing(metadata_addr) BufferInfoIn = "nvgpu_gpu_get_buffer_info_args", 24 bytes {
        /// dma-buf descriptor.
        0 => dmabuf_fd: i32, "in.dmabuf_fd";
        /// Bytes at `metadata_addr`.
        4 => metadata_size: u32, "in.metadata_size";
        /// Destination of the metadata.
        8 => metadata_addr: u64, "in.metadata_addr";
        /// Written by the kernel, see [`BufferInfoOut::size`].
        16 => size: u64, "out.size";
    }

    /// The same bytes on the way out.
    unsafe plain BufferInfoOut = "nvgpu_gpu_get_buffer_info_args", 24 bytes {
        /// [`BufferInfoFlags`].
        0 => flags: u64, "out.flags";
        /// Bytes of metadata there are.
        8 => metadata_size: u32, "out.metadata_size";
        /// Not used.
        12 => reserved: u32, "out.reserved";
        /// Size of the buffer in bytes.
        16 => size: u64, "out.size";
    }
}

bitflags::bitflags! {
    /// Flags of [`AllocAs::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct AllocAsFlags: u32 {
        /// One range for all page sizes.
        const UNIFIED_VA = 2;
    }

    /// Flags of [`OpenTsg::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct OpenTsgFlags: u32 {
        /// Open a TSG of another process with a token.
        const SHARE = 1;
    }

    /// Operations of [`FlushL2::operations`].
    ///
    /// ```
    /// use nvgpu_sys::ctrl::FlushL2Operations;
    ///
    /// // The kernel refuses an invalidation alone.
    /// let operations = FlushL2Operations::L2_FLUSH | FlushL2Operations::L2_INVALIDATE;
    /// assert_eq!(operations.bits(), 3);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct FlushL2Operations: u8 {
        /// Write the L2 back.
        const L2_FLUSH = 1;
        /// Invalidate the lines of the L2; only together with `L2_FLUSH`.
        const L2_INVALIDATE = 2;
        /// Wait for writes to reach memory.
        const FB_FLUSH = 4;
    }

    /// Flags of [`SetDeterministicOpts::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct DeterministicOpts: u32 {
        /// The GPU may power down; accesses to the doorbell page then fault.
        const ALLOW_RAILGATING = 1;
        /// The GPU stays powered.
        const DISALLOW_RAILGATING = 2;
    }

    /// Flags of [`RegisterBuffer::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct RegisterBufferFlags: u32 {
        /// Out: compression tags were allocated.
        const COMPTAGS_ALLOCATED = 1;
        /// The metadata may be changed later.
        const MUTABLE = 2;
        /// Change the metadata of a registered buffer.
        const MODIFY = 4;
    }
}

uapi_struct! {
    /// Warps of one SM; result of [`WAIT_FOR_PAUSE`](super::WAIT_FOR_PAUSE).
    unsafe plain WarpState = "warpstate", 48 bytes {
        /// Mask of the resident warps.
        0 => valid_warps: [u64; 2];
        /// Mask of the trapped warps.
        16 => trapped_warps: [u64; 2];
        /// Mask of the paused warps.
        32 => paused_warps: [u64; 2];
    }

    /// Argument of [`WAIT_FOR_PAUSE`](super::WAIT_FOR_PAUSE).
    pointing(pwarpstate) WaitPause = "nvgpu_gpu_wait_pause_args", 8 bytes {
        /// Array of [`WarpState`], one per SM.
        0 => pwarpstate: u64;
    }

    /// Result of [`GET_TPC_EXCEPTION_EN_STATUS`](super::GET_TPC_EXCEPTION_EN_STATUS).
    unsafe plain TpcExceptionEnStatus = "nvgpu_gpu_tpc_exception_en_status_args", 8 bytes {
        /// Mask of SMs.
        0 => tpc_exception_en_sm_mask: u64;
    }
}

bitflags::bitflags! {
    /// Flags of [`BufferInfoOut::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct BufferInfoFlags: u64 {
        /// The buffer has been registered.
        const METADATA_REGISTERED = 1;
        /// It has compression tags.
        const COMPTAGS_ALLOCATED = 2;
        /// Its metadata may be changed.
        const MUTABLE_METADATA = 4;
    }
}

/// Maximum size of the metadata of a buffer, in bytes.
pub const REGISTER_BUFFER_METADATA_MAX_SIZE: u32 = 256;
/// [`RegisterBuffer::comptags_alloc_control`]: no compression tags.
pub const COMPTAGS_ALLOC_NONE: u8 = 0;
/// [`RegisterBuffer::comptags_alloc_control`]: compression tags if there are any.
pub const COMPTAGS_ALLOC_REQUESTED: u8 = 1;
/// [`RegisterBuffer::comptags_alloc_control`]: fail without compression tags.
pub const COMPTAGS_ALLOC_REQUIRED: u8 = 2;
