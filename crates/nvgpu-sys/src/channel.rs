//! Channels: descriptors of `OPEN_CHANNEL` (family `H`).
//!
//! A channel is a ring of pushbuffer segments (GPFIFO) that the GPU's host engine processes.
//! It needs an address space, then a TSG, then its ring (`SETUP_BIND`), then an engine object.
//! Layouts: `nvgpu/include/uapi/linux/nvgpu.h`.

use kernel_door::layout::{Field, Releases, StructInfo, Uapi};
use kernel_door::{requests, uapi_struct};

use crate::Release::{R36_4_7, R39_2};
use crate::release::{since, until};

pub use crate::tsg::EventIdCtrl;

/// Family letter of the requests.
pub const FAMILY: u8 = b'H';

requests! {
    unsafe family FAMILY;
    /// Does nothing; kept for compatibility.
    Write 5 SET_NVMAP_FD ("NVGPU_IOCTL_CHANNEL_SET_NVMAP_FD"): SetNvmapFd;
    /// Sets the context-switch time limit.
    Write 11 SET_TIMEOUT ("NVGPU_IOCTL_CHANNEL_SET_TIMEOUT"): SetTimeout;
    /// Whether the channel is out of service.
    Read 12 GET_TIMEDOUT ("NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT"): GetParam;
    /// Sets the context-switch time limit and its flags.
    ReadWrite 18 SET_TIMEOUT_EX ("NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX"): SetTimeoutEx;
    /// Waits for a notifier or a semaphore.
    ReadWrite 102 WAIT ("NVGPU_IOCTL_CHANNEL_WAIT"): Wait;
    /// Submits entries to a kernel-managed ring.
    ReadWrite 107 SUBMIT_GPFIFO ("NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO"): SubmitGpfifo;
    /// Creates the engine context for a class.
    ReadWrite 108 ALLOC_OBJ_CTX ("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX"): AllocObjCtx;
    /// Binds a depth-culling buffer; graphics.
    ReadWrite 110 ZCULL_BIND ("NVGPU_IOCTL_CHANNEL_ZCULL_BIND"): ZcullBind;
    /// Registers the memory in which the kernel reports errors.
    ReadWrite 111 SET_ERROR_NOTIFIER ("NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER"): SetErrorNotifier;
    /// Opens another channel on runlist 0.
    Read 112 OPEN ("NVGPU_IOCTL_CHANNEL_OPEN"): Open;
    /// Lets the host engine process the channel.
    None 113 ENABLE ("NVGPU_IOCTL_CHANNEL_ENABLE");
    /// Stops the host engine from processing the channel.
    None 114 DISABLE ("NVGPU_IOCTL_CHANNEL_DISABLE");
    /// Preempts the channel's TSG once.
    None 115 PREEMPT ("NVGPU_IOCTL_CHANNEL_PREEMPT");
    /// Resets the channel's TSG; all its channels go out of service.
    None 116 FORCE_RESET ("NVGPU_IOCTL_CHANNEL_FORCE_RESET");
    /// Events per channel. No driver case: `ENOTTY`; see [`crate::tsg::EVENT_ID_CTRL`].
    ReadWrite 117 EVENT_ID_CTRL ("NVGPU_IOCTL_CHANNEL_EVENT_ID_CTRL"): EventIdCtrl;
    /// Configures the watchdog.
    Write 119 WDT ("NVGPU_IOCTL_CHANNEL_WDT"): Wdt;
    /// Runlist interleave per channel. No driver case: `ENOTTY`; see
    /// [`crate::tsg::SET_RUNLIST_INTERLEAVE`].
    Write 120 SET_RUNLIST_INTERLEAVE ("NVGPU_IOCTL_CHANNEL_SET_RUNLIST_INTERLEAVE"):
        crate::tsg::RunlistInterleave;
    /// Sets the granularity of preemption.
    Write 122 SET_PREEMPTION_MODE ("NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE"): PreemptionMode;
    /// Sets up a kernel-managed ring; the older form of [`SETUP_BIND`].
    Write 123 ALLOC_GPFIFO_EX ("NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX"): AllocGpfifoEx;
    /// [`ALLOC_GPFIFO_EX`] since R39.
    ReadWrite 123 ALLOC_GPFIFO_EX_R39 ("NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX"): AllocGpfifoExR39;
    /// Boosts the context; not supported on ga10b.
    Write 124 SET_BOOSTED_CTX ("NVGPU_IOCTL_CHANNEL_SET_BOOSTED_CTX"): BoostedCtx;
    /// Returns the channel's own syncpoint; the first call creates it.
    Read 126 GET_USER_SYNCPOINT ("NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT"): GetUserSyncpoint;
    /// Restarts the scheduler; needs privileges, and hardware that ga10b lacks.
    Write 127 RESCHEDULE_RUNLIST ("NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST"): RescheduleRunlist;
    /// Sets up the ring of the channel and adds the channel to the runlist.
    ReadWrite 128 SETUP_BIND ("NVGPU_IOCTL_CHANNEL_SETUP_BIND"): SetupBind [Releases::ALL];
}

uapi_struct! {
    /// Argument of [`SET_NVMAP_FD`].
    unsafe plain SetNvmapFd = "nvgpu_set_nvmap_fd_args", 4 bytes {
        /// Ignored.
        0 => fd: u32;
    }

    /// Argument of [`SET_TIMEOUT`].
    unsafe plain SetTimeout = "nvgpu_set_timeout_args", 4 bytes {
        /// Limit in milliseconds, or [`NO_TIMEOUT`].
        0 => timeout: u32;
    }

    /// Argument of [`SET_TIMEOUT_EX`].
    unsafe plain SetTimeoutEx = "nvgpu_set_timeout_ex_args", 8 bytes {
        /// Limit in milliseconds, or [`NO_TIMEOUT`].
        0 => timeout: u32;
        /// Bit [`TIMEOUT_DISABLE_DUMP_BIT`]: do not print the channel state when the limit passes.
        4 => flags: u32;
    }

    /// Result of [`GET_TIMEDOUT`].
    unsafe plain GetParam = "nvgpu_get_param_args", 4 bytes {
        /// 1 if the channel is out of service or not yet in a TSG.
        0 => value: u32;
    }

    /// Argument of [`WAIT`].
    unsafe plain Wait = "nvgpu_wait_args", 24 bytes {
        /// [`WAIT_NOTIFIER`] or [`WAIT_SEMAPHORE`].
        0 => kind: u32, "type";
        /// Limit in milliseconds, 0 for none.
        4 => timeout: u32;
        /// dma-buf descriptor of the memory.
        8 => dmabuf_fd: u32, "condition.semaphore.dmabuf_fd";
        /// Offset in it, in bytes.
        12 => offset: u32, "condition.semaphore.offset";
        /// Value the 32-bit word must equal; semaphores only.
        16 => payload: u32, "condition.semaphore.payload";
        /// Not read.
        20 => padding: u32, "condition.semaphore.padding";
    }

    /// A GPFIFO entry as two words.
    unsafe plain Gpfifo = "nvgpu_gpfifo", 8 bytes {
        /// Low word.
        0 => entry0: u32;
        /// High word.
        4 => entry1: u32;
    }

    /// Argument of [`SUBMIT_GPFIFO`].
    pointing(gpfifo) SubmitGpfifo = "nvgpu_submit_gpfifo_args", 24 bytes {
        /// Array of [`Gpfifo`].
        0 => gpfifo: u64;
        /// Elements of `gpfifo`.
        8 => num_entries: u32;
        /// [`SubmitFlags`].
        12 => flags: u32;
        /// Fence to wait for, fence returned.
        16 => fence: Fence;
    }

    /// A syncpoint and the value it must reach; with sync-file fences, `id` is a descriptor.
    unsafe plain Fence = "nvgpu_fence", 8 bytes {
        /// Syncpoint.
        0 => id: u32;
        /// Value.
        4 => value: u32;
    }

    /// Argument of [`ALLOC_OBJ_CTX`].
    unsafe plain AllocObjCtx = "nvgpu_alloc_obj_ctx_args", 16 bytes {
        /// Class number, e.g. 0xC7C0 for compute.
        0 => class_num: u32;
        /// [`AllocObjCtxFlags`].
        4 => flags: u32;
        /// Never written.
        8 => obj_id: u64;
    }

    /// Argument of [`ZCULL_BIND`].
    unsafe plain ZcullBind = "nvgpu_zcull_bind_args", 16 bytes {
        /// GPU address of the buffer.
        0 => gpu_va: u64;
        /// One of the `ZCULL_MODE_*` values.
        8 => mode: u32;
        /// Not read.
        12 => padding: u32;
    }

    /// Argument of [`SET_ERROR_NOTIFIER`].
    unsafe plain SetErrorNotifier = "nvgpu_set_error_notifier", 24 bytes {
        /// Offset of the [`Notification`] in the buffer, in bytes.
        0 => offset: u64;
        /// Ignored.
        8 => size: u64;
        /// dma-buf descriptor, not 0.
        16 => mem: u32;
        /// Not read.
        20 => padding: u32;
    }

    /// The record that the kernel writes to the error notifier's memory.
    unsafe plain Notification = "nvgpu_notification", 16 bytes {
        /// Time of the error in nanoseconds, low word first.
        0 => time_stamp: [u32; 2], "time_stamp.nanoseconds";
        /// The error: one of `NVGPU_CHANNEL_*` (`nvgpu_channel::ErrorNotifier` decodes it).
        8 => info32: u32;
        /// Unused for errors.
        12 => info16: u16;
        /// [`NOTIFICATION_PENDING`] once an error has been recorded.
        14 => status: u16;
    }

    /// Argument of [`OPEN`].
    unsafe plain Open = "nvgpu_channel_open_args", 4 bytes {
        /// Out: the channel descriptor.
        0 => channel_fd: i32;
    }

    /// Argument of [`WDT`].
    unsafe plain Wdt = "nvgpu_channel_wdt_args", 8 bytes {
        /// [`WDT_DISABLE`] or [`WDT_ENABLE`], plus [`WDT_SET_TIMEOUT`] and [`WDT_DISABLE_DUMP`].
        0 => wdt_status: u32;
        /// Limit in milliseconds, with [`WDT_SET_TIMEOUT`].
        4 => timeout_ms: u32;
    }

    /// Argument of [`SET_PREEMPTION_MODE`].
    unsafe plain PreemptionMode = "nvgpu_preemption_mode_args", 8 bytes {
        /// [`GraphicsPreemption`], or 0 to keep.
        0 => graphics_preempt_mode: u32;
        /// [`ComputePreemption`], or 0 to keep.
        4 => compute_preempt_mode: u32;
    }

    /// Argument of [`ALLOC_GPFIFO_EX`].
    unsafe plain AllocGpfifoEx = "nvgpu_alloc_gpfifo_ex_args", 32 bytes [until(R36_4_7)] {
        /// Entries of the ring, a power of two.
        0 => num_entries: u32;
        /// Maximum number of jobs in flight.
        4 => num_inflight_jobs: u32;
        /// [`AllocGpfifoExFlags`].
        8 => flags: u32;
        /// Not used.
        12 => reserved: [u32; 5];
    }

    /// Argument of [`ALLOC_GPFIFO_EX_R39`].
    unsafe plain AllocGpfifoExR39 = "nvgpu_alloc_gpfifo_ex_args", 32 bytes [since(R39_2)] {
        /// Entries of the ring, a power of two.
        0 => num_entries: u32;
        /// Maximum number of jobs in flight.
        4 => num_inflight_jobs: u32;
        /// [`AllocGpfifoExFlags`].
        8 => flags: u32;
        /// Out: number of the channel, as the kernel log prints it.
        12 => hw_channel_id: u32;
        /// Not used.
        16 => reserved: [u32; 4];
    }

    /// Argument of [`SET_BOOSTED_CTX`].
    unsafe plain BoostedCtx = "nvgpu_boosted_ctx_args", 8 bytes {
        /// [`BOOSTED_CTX_NORMAL`] or [`BOOSTED_CTX_BOOSTED`].
        0 => boost: u32;
        /// Not read.
        4 => padding: u32;
    }

    /// Result of [`GET_USER_SYNCPOINT`].
    unsafe plain GetUserSyncpoint = "nvgpu_get_user_syncpoint_args", 16 bytes {
        /// GPU address of the syncpoint's window.
        0 => gpu_va: u64;
        /// Number of the syncpoint.
        8 => syncpoint_id: u32;
        /// Current value, from which thresholds are counted.
        12 => syncpoint_max: u32;
    }

    /// Argument of [`RESCHEDULE_RUNLIST`].
    unsafe plain RescheduleRunlist = "nvgpu_reschedule_runlist_args", 4 bytes {
        /// [`RESCHEDULE_PREEMPT_NEXT`] or 0.
        0 => flags: u32;
    }

    /// Argument of [`SETUP_BIND`].
    unsafe plain SetupBind = "nvgpu_channel_setup_bind_args", 104 bytes [until(R36_4_7)] {
        /// Entries of the ring, a power of two from 2 to 2^28.
        0 => num_gpfifo_entries: u32;
        /// Maximum number of jobs in flight; kernel-managed rings only.
        4 => num_inflight_jobs: u32;
        /// [`SetupBindFlags`].
        8 => flags: u32;
        /// dma-buf of the USERD page, not 0.
        12 => userd_dmabuf_fd: i32;
        /// dma-buf of the ring, not 0.
        16 => gpfifo_dmabuf_fd: i32;
        /// Out: the value to write to the doorbell.
        20 => work_submit_token: u32;
        /// Must be 0.
        24 => userd_dmabuf_offset: u64;
        /// Must be 0.
        32 => gpfifo_dmabuf_offset: u64;
        /// Out: 0 on ga10b.
        40 => gpfifo_gpu_va: u64;
        /// Out: 0 on ga10b.
        48 => userd_gpu_va: u64;
        /// Out: 0 on ga10b.
        56 => usermode_mmio_gpu_va: u64;
        /// Not read. R39 returns the number of the channel in the first element ([`SETUP_BIND_R39`]).
        64 => reserved: [u32; 9];
        /// Not read.
        100 => padding: u32, "";
    }
}

/// The fields of [`SetupBind`] since R39, from those before.
const FIELDS_R39: [Field; <SetupBind as Uapi>::FIELDS.len() + 1] = {
    let before = <SetupBind as Uapi>::FIELDS;
    let count = before.len() - 2;
    let mut fields = [before[0]; <SetupBind as Uapi>::FIELDS.len() + 1];
    let mut index = 0;
    while index < count {
        fields[index] = before[index];
        index += 1;
    }
    fields[count] = Field::new("hw_channel_id", &[], 64, 4);
    fields[count + 1] = Field::new("reserved", &[], 68, 32);
    fields[count + 2] = before[count + 1];
    fields
};

/// The layout of [`SetupBind`] since R39: `hw_channel_id` is the channel's number, as the kernel log prints it.
pub const SETUP_BIND_R39: StructInfo =
    StructInfo { fields: &FIELDS_R39, releases: since(R39_2), ..StructInfo::of::<SetupBind>() };

bitflags::bitflags! {
    /// Flags of [`SetupBind::flags`].
    ///
    /// ```
    /// use nvgpu_sys::channel::SetupBindFlags;
    ///
    /// // A ring that user space drives.
    /// let flags = SetupBindFlags::USERMODE_SUPPORT | SetupBindFlags::DETERMINISTIC;
    /// assert_eq!(flags.bits(), 10);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SetupBindFlags: u32 {
        /// The channel may access protected video memory.
        const VPR_ENABLED = 1;
        /// Keep the GPU powered while the channel is open; needs the watchdog off.
        const DETERMINISTIC = 2;
        /// MMU faults of this channel are replayed.
        const REPLAYABLE_FAULTS_ENABLE = 4;
        /// User space owns ring, USERD and doorbell; needs `DETERMINISTIC`.
        const USERMODE_SUPPORT = 8;
        /// Map the submit resources for the GPU; no effect on ga10b.
        const USERMODE_GPU_MAP_RESOURCES_SUPPORT = 16;
    }

    /// Flags of [`AllocGpfifoEx::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct AllocGpfifoExFlags: u32 {
        /// The channel may access protected video memory.
        const VPR_ENABLED = 1;
        /// Keep the GPU powered while the channel is open; needs the watchdog off.
        const DETERMINISTIC = 2;
    }

    /// Flags of [`SubmitGpfifo::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SubmitFlags: u32 {
        /// Wait for the given fence before the entries.
        const FENCE_WAIT = 1;
        /// Return a fence for the end of the entries.
        const FENCE_GET = 2;
        /// Ignored.
        const HW_FORMAT = 4;
        /// Fences are sync-file descriptors.
        const SYNC_FENCE = 8;
        /// The fence does not wait for the engine to idle.
        const SUPPRESS_WFI = 16;
        /// Do not keep references to the mapped buffers until the job completes; later headers lack the flag.
        const SKIP_BUFFER_REFCOUNTING = 32;
    }

    /// Flags of [`AllocObjCtx::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct AllocObjCtxFlags: u32 {
        /// Ignored by r36.
        const LOCKBOOST_ZERO = 1;
        /// Graphics preemption at primitive level.
        const GFXP = 2;
        /// Compute preemption at instruction level.
        const CILP = 4;
    }

    /// Modes of [`PreemptionMode::graphics_preempt_mode`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct GraphicsPreemption: u32 {
        /// At idle.
        const WFI = 1;
        /// Between primitives.
        const GFXP = 2;
    }

    /// Modes of [`PreemptionMode::compute_preempt_mode`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct ComputePreemption: u32 {
        /// At idle.
        const WFI = 1;
        /// Between thread blocks.
        const CTA = 2;
        /// Between instructions.
        const CILP = 4;
    }
}

/// Watchdog off; required for a deterministic channel.
pub const WDT_DISABLE: u32 = 1;
/// Watchdog on.
pub const WDT_ENABLE: u32 = 2;
/// `timeout_ms` is the watchdog's limit.
pub const WDT_SET_TIMEOUT: u32 = 4;
/// The watchdog does not print the channel state.
pub const WDT_DISABLE_DUMP: u32 = 8;
/// No time limit.
pub const NO_TIMEOUT: u32 = u32::MAX;
/// Position in [`SetTimeoutEx::flags`]: do not print the channel state when the limit passes.
pub const TIMEOUT_DISABLE_DUMP_BIT: u32 = 0;
/// Depth culling with one buffer for all contexts.
pub const ZCULL_MODE_GLOBAL: u32 = 0;
/// Depth culling whose state is not switched with the context.
pub const ZCULL_MODE_NO_CTXSW: u32 = 1;
/// Depth culling with a separate buffer.
pub const ZCULL_MODE_SEPARATE_BUFFER: u32 = 2;
/// Depth culling in a part of the context's buffer.
pub const ZCULL_MODE_PART_OF_REGULAR_BUFFER: u32 = 3;
/// [`BoostedCtx::boost`]: normal clocks.
pub const BOOSTED_CTX_NORMAL: u32 = 0;
/// [`BoostedCtx::boost`]: boosted clocks.
pub const BOOSTED_CTX_BOOSTED: u32 = 1;
/// Flag of [`RescheduleRunlist::flags`]: preempt the TSG that runs next.
pub const RESCHEDULE_PREEMPT_NEXT: u32 = 1;
/// Wait for a notification's status to become 0.
pub const WAIT_NOTIFIER: u32 = 0;
/// Wait for a 32-bit word to equal a value.
pub const WAIT_SEMAPHORE: u32 = 1;
/// [`Notification::status`] after an error.
pub const NOTIFICATION_PENDING: u16 = 0xffff;
/// [`Notification::info32`]: a submit timed out. The numbers of most other errors are those of all NVIDIA drivers
/// (`gpu_hal::ErrorCode`).
pub const ERROR_SUBMIT_TIMEOUT: u32 = 1;
/// [`Notification::info32`]: the copy engine faulted. An internal number that the driver passes through
/// (`nvgpu/drivers/gpu/nvgpu/os/linux/linux-channel.c`).
pub const ERROR_COPY_ENGINE: u32 = 11;

/// Bytes of USERD that the hardware uses.
pub const USERD_SIZE: usize = 512;
