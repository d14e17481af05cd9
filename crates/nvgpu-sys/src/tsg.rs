//! Time-slice groups: descriptors of `OPEN_TSG` (family `T`).
//!
//! A TSG is the unit of scheduling on the GPU: its channels share one runlist entry, one time
//! slice, one engine context and one set of subcontexts (VEIDs). A fault in one of its channels
//! stops them all. Layouts: `nvgpu/include/uapi/linux/nvgpu.h`.

use kernel_door::layout::Releases;
use kernel_door::{DoorFd, Errno, requests, uapi_struct};
use zerocopy::transmute;

use crate::Release::{self, R36_4_7, R39_2};
use crate::release::{since, until};

/// Family letter of the requests.
pub const FAMILY: u8 = b'T';

requests! {
    unsafe family FAMILY;
    /// Adds the channel with this descriptor, on its current subcontext. After an error, the channel
    /// can no longer be closed; use [`BIND_CHANNEL_EX`] instead.
    Write 1 BIND_CHANNEL ("NVGPU_TSG_IOCTL_BIND_CHANNEL"): i32;
    /// Removes the channel with this descriptor; the channel is unusable afterwards.
    Write 2 UNBIND_CHANNEL ("NVGPU_TSG_IOCTL_UNBIND_CHANNEL"): i32;
    /// Enables scheduling of the TSG.
    None 3 ENABLE ("NVGPU_IOCTL_TSG_ENABLE");
    /// Disables scheduling of the TSG.
    None 4 DISABLE ("NVGPU_IOCTL_TSG_DISABLE");
    /// Preempts the TSG and waits until it has left the hardware.
    None 5 PREEMPT ("NVGPU_IOCTL_TSG_PREEMPT");
    /// Opens an event descriptor.
    ReadWrite 7 EVENT_ID_CTRL ("NVGPU_IOCTL_TSG_EVENT_ID_CTRL"): EventIdCtrl;
    /// Sets how often the TSG appears in the runlist.
    Write 8 SET_RUNLIST_INTERLEAVE ("NVGPU_IOCTL_TSG_SET_RUNLIST_INTERLEAVE"): RunlistInterleave;
    /// Sets the time slice.
    Write 9 SET_TIMESLICE ("NVGPU_IOCTL_TSG_SET_TIMESLICE"): Timeslice;
    /// Reads the time slice.
    Read 10 GET_TIMESLICE ("NVGPU_IOCTL_TSG_GET_TIMESLICE"): Timeslice;
    /// Adds a channel on the given subcontext.
    ReadWrite 11 BIND_CHANNEL_EX ("NVGPU_TSG_IOCTL_BIND_CHANNEL_EX"): BindChannelEx;
    /// Reads the record of the last exception of one SM.
    ReadWrite 12 READ_SINGLE_SM_ERROR_STATE ("NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE"):
        ReadSingleSmErrorState;
    /// Sets the number of L2 ways for lines marked evict-last.
    Write 13 SET_L2_MAX_WAYS_EVICT_LAST ("NVGPU_TSG_IOCTL_SET_L2_MAX_WAYS_EVICT_LAST"):
        L2MaxWaysEvictLast;
    /// Reads the number of L2 ways for lines marked evict-last.
    Read 14 GET_L2_MAX_WAYS_EVICT_LAST ("NVGPU_TSG_IOCTL_GET_L2_MAX_WAYS_EVICT_LAST"):
        L2MaxWaysEvictLast;
    /// Sets the L2 fetch size on a miss.
    Write 15 SET_L2_SECTOR_PROMOTION ("NVGPU_TSG_IOCTL_SET_L2_SECTOR_PROMOTION"):
        SetL2SectorPromotion;
    /// Moves a TSG without channels to a scheduling domain.
    Write 16 BIND_SCHEDULING_DOMAIN ("NVGPU_TSG_IOCTL_BIND_SCHEDULING_DOMAIN"):
        BindSchedulingDomain;
    /// Reads the records of all SMs. No driver case: `ENOTTY`; read them one by one.
    ReadWrite 17 READ_ALL_SM_ERROR_STATES ("NVGPU_TSG_IOCTL_READ_ALL_SM_ERROR_STATES"): [u32; 6];
    /// Creates a subcontext and returns its VEID.
    ReadWrite 18 CREATE_SUBCONTEXT ("NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT"): CreateSubcontext;
    /// Deletes a subcontext without channels.
    Write 19 DELETE_SUBCONTEXT ("NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT"): DeleteSubcontext;
    /// Returns a token with which another process can open this TSG. R39 arranges the argument differently; see
    /// [`get_share_token`].
    ReadWrite 20 GET_SHARE_TOKEN ("NVGPU_TSG_IOCTL_GET_SHARE_TOKEN"): GetShareToken [Releases::ALL];
    /// Revokes such a token. R39 arranges the argument differently; see [`revoke_share_token`].
    Write 21 REVOKE_SHARE_TOKEN ("NVGPU_TSG_IOCTL_REVOKE_SHARE_TOKEN"): RevokeShareToken [Releases::ALL];
}

uapi_struct! {
    /// Argument of [`EVENT_ID_CTRL`].
    unsafe plain EventIdCtrl = "nvgpu_event_id_ctrl_args", 16 bytes {
        /// [`EVENT_CMD_ENABLE`].
        0 => cmd: u32;
        /// One of the `EVENT_*` ids.
        4 => event_id: u32;
        /// Out: a descriptor that polls readable after the event.
        8 => event_fd: i32;
        /// Not read.
        12 => padding: u32;
    }

    /// Argument of [`SET_RUNLIST_INTERLEAVE`].
    unsafe plain RunlistInterleave = "nvgpu_runlist_interleave_args", 8 bytes {
        /// One of the `INTERLEAVE_*` levels.
        0 => level: u32;
        /// Not used.
        4 => reserved: u32;
    }

    /// Argument of [`SET_TIMESLICE`] and [`GET_TIMESLICE`].
    unsafe plain Timeslice = "nvgpu_timeslice_args", 8 bytes {
        /// Time slice in microseconds.
        0 => timeslice_us: u32;
        /// Not used.
        4 => reserved: u32;
    }

    /// Argument of [`BIND_CHANNEL_EX`].
    unsafe plain BindChannelEx = "nvgpu_tsg_bind_channel_ex_args", 24 bytes {
        /// Channel descriptor.
        0 => channel_fd: i32;
        /// VEID of the subcontext, below 64.
        4 => subcontext_id: u32;
        /// Not used.
        8 => reserved: [u8; 16];
    }

    /// The record of an exception of an SM. R39 appends fields ([`SmErrorStateRecordR39`]) and writes no more than
    /// [`ReadSingleSmErrorState::record_size`].
    unsafe plain SmErrorStateRecord = "nvgpu_tsg_sm_error_state_record", 24 bytes [until(R36_4_7)] {
        /// Global error status register.
        0 => global_esr: u32;
        /// Warp error status register; the code is in the low 16 bits.
        4 => warp_esr: u32;
        /// Program counter of the faulting warp.
        8 => warp_esr_pc: u64;
        /// Mask of the global errors that are reported.
        16 => global_esr_report_mask: u32;
        /// Mask of the warp errors that are reported.
        20 => warp_esr_report_mask: u32;
    }

    /// The record of an exception of an SM, since R39.
    unsafe plain SmErrorStateRecordR39 = "nvgpu_tsg_sm_error_state_record", 32 bytes [since(R39_2)] {
        /// As in [`SmErrorStateRecord`].
        0 => global_esr: u32;
        /// As in [`SmErrorStateRecord`].
        4 => warp_esr: u32;
        /// As in [`SmErrorStateRecord`].
        8 => warp_esr_pc: u64;
        /// As in [`SmErrorStateRecord`].
        16 => global_esr_report_mask: u32;
        /// As in [`SmErrorStateRecord`].
        20 => warp_esr_report_mask: u32;
        /// Error status register of a cluster of thread blocks; 0 on ga10b, which has none (inference).
        24 => cga_esr: u32;
        /// Not used.
        28 => reserved: u32;
    }

    /// Argument of [`READ_SINGLE_SM_ERROR_STATE`].
    pointing(record_mem) ReadSingleSmErrorState = "nvgpu_tsg_read_single_sm_error_state_args", 24 bytes {
        /// Index of the SM.
        0 => sm_id: u32;
        /// Not used.
        4 => reserved: u32;
        /// A [`SmErrorStateRecord`].
        8 => record_mem: u64;
        /// In: bytes at `record_mem`. Out: bytes written.
        16 => record_size: u64;
    }

    /// Argument of [`SET_L2_MAX_WAYS_EVICT_LAST`] and [`GET_L2_MAX_WAYS_EVICT_LAST`].
    unsafe plain L2MaxWaysEvictLast = "nvgpu_tsg_l2_max_ways_evict_last_args", 8 bytes {
        /// Number of ways, at most 16.
        0 => max_ways: u32;
        /// Not used.
        4 => reserved: u32;
    }

    /// Argument of [`SET_L2_SECTOR_PROMOTION`].
    unsafe plain SetL2SectorPromotion = "nvgpu_tsg_set_l2_sector_promotion_args", 8 bytes {
        /// One of the `L2_SECTOR_PROMOTE_*` values.
        0 => promotion_flag: u32;
        /// Not used.
        4 => reserved: u32;
    }

    /// Argument of [`BIND_SCHEDULING_DOMAIN`].
    unsafe plain BindSchedulingDomain = "nvgpu_tsg_bind_scheduling_domain_args", 32 bytes {
        /// Descriptor of the domain.
        0 => domain_fd: i32;
        /// Must be 0.
        4 => reserved0: i32;
        /// Must be 0.
        8 => reserved: [u64; 3];
    }

    /// Argument of [`CREATE_SUBCONTEXT`].
    unsafe plain CreateSubcontext = "nvgpu_tsg_create_subcontext_args", 16 bytes {
        /// [`SUBCONTEXT_SYNC`] or [`SUBCONTEXT_ASYNC`].
        0 => kind: u32, "type";
        /// Address-space descriptor.
        4 => as_fd: i32;
        /// Out: the VEID.
        8 => veid: u32;
        /// Not used.
        12 => reserved: u32;
    }

    /// Argument of [`DELETE_SUBCONTEXT`].
    unsafe plain DeleteSubcontext = "nvgpu_tsg_delete_subcontext_args", 8 bytes {
        /// The VEID.
        0 => veid: u32;
        /// Not used.
        4 => reserved: u32;
    }

    /// Argument of [`GET_SHARE_TOKEN`].
    unsafe plain GetShareToken = "nvgpu_tsg_get_share_token_args", 24 bytes [until(R36_4_7)] {
        /// Instance id of the control node that opened the TSG.
        0 => source_device_instance_id: u64;
        /// Instance id that may use the token.
        8 => target_device_instance_id: u64;
        /// Out: the token.
        16 => share_token: u64;
    }

    /// Argument of [`REVOKE_SHARE_TOKEN`].
    unsafe plain RevokeShareToken = "nvgpu_tsg_revoke_share_token_args", 24 bytes [until(R36_4_7)] {
        /// The value passed to [`GET_SHARE_TOKEN`].
        0 => source_device_instance_id: u64;
        /// The value passed to [`GET_SHARE_TOKEN`].
        8 => target_device_instance_id: u64;
        /// The token.
        16 => share_token: u64;
    }

    /// Argument of [`GET_SHARE_TOKEN`] since R39.
    unsafe plain GetShareTokenR39 = "nvgpu_tsg_get_share_token_args", 24 bytes [since(R39_2)] {
        /// Instance id that may use the token.
        0 => target_device_instance_id: u64;
        /// Out: instance id of the control node that opened the TSG, then the number that R36 calls the token.
        8 => share_token: [u64; 2];
    }

    /// Argument of [`REVOKE_SHARE_TOKEN`] since R39.
    unsafe plain RevokeShareTokenR39 = "nvgpu_tsg_revoke_share_token_args", 24 bytes [since(R39_2)] {
        /// The value passed to [`GET_SHARE_TOKEN`].
        0 => target_device_instance_id: u64;
        /// The token that [`GET_SHARE_TOKEN`] returned.
        8 => share_token: [u64; 2];
    }
}

/// Subcontext with VEID 0, for graphics.
pub const SUBCONTEXT_SYNC: u32 = 0;
/// Subcontext with the lowest free VEID of at least 1, for compute.
pub const SUBCONTEXT_ASYNC: u32 = 1;
/// The only command of [`EVENT_ID_CTRL`].
pub const EVENT_CMD_ENABLE: u32 = 1;
/// Event: an SM breakpoint was hit, with a debugger attached.
pub const EVENT_BPT_INT: u32 = 0;
/// Event: an SM paused, with a debugger attached.
pub const EVENT_BPT_PAUSE: u32 = 1;
/// Event: a graphics or copy engine raised a non-stalling interrupt. Every TSG with channels receives
/// it, so check the condition again.
pub const EVENT_BLOCKING_SYNC: u32 = 2;
/// Event: instruction-level preemption began.
pub const EVENT_CILP_PREEMPTION_STARTED: u32 = 3;
/// Event: instruction-level preemption ended.
pub const EVENT_CILP_PREEMPTION_COMPLETE: u32 = 4;
/// Event: a channel of this TSG executed a semaphore release with awaken.
pub const EVENT_GR_SEMAPHORE_WRITE_AWAKEN: u32 = 5;
/// One above the highest event id.
pub const EVENT_COUNT: u32 = 6;
/// Runlist interleave: once per round.
pub const INTERLEAVE_LOW: u32 = 0;
/// Runlist interleave: more often than low.
pub const INTERLEAVE_MEDIUM: u32 = 1;
/// Runlist interleave: as often as possible.
pub const INTERLEAVE_HIGH: u32 = 2;
/// Number of runlist interleave levels.
pub const INTERLEAVE_LEVELS: u32 = 3;
/// No L2 sector promotion.
pub const L2_SECTOR_PROMOTE_NONE: u32 = 1;
/// Fetch 64 bytes on an L2 miss.
pub const L2_SECTOR_PROMOTE_64B: u32 = 2;
/// Fetch 128 bytes on an L2 miss.
pub const L2_SECTOR_PROMOTE_128B: u32 = 4;
/// VEIDs per TSG on ga10b (`gr_init_gv11b_fusa.c`).
pub const VEID_COUNT: u32 = 64;

/// Reads the record of the last exception of SM `sm_id`.
///
/// # Errors
///
/// `EINVAL` if the GPU has no such SM.
pub fn read_single_sm_error_state(fd: &DoorFd, sm_id: u32) -> Result<SmErrorStateRecord, Errno> {
    let mut record = SmErrorStateRecord::default();
    let mut argument = ReadSingleSmErrorState {
        sm_id,
        // CAST: addresses and sizes have at most 64 bits.
        record_mem: core::ptr::from_mut(&mut record).expose_provenance() as u64,
        record_size: size_of::<SmErrorStateRecord>() as u64,
        ..ReadSingleSmErrorState::default()
    };
    // SAFETY: `record_mem` points to the local `record` of `record_size` bytes, which outlives the call.
    unsafe { READ_SINGLE_SM_ERROR_STATE.send_pointing(fd, &mut argument) }?;
    Ok(record)
}

/// Returns the number of a token with which the instance `target` can open this TSG, which the instance `source`
/// opened. `release` selects the argument's arrangement.
///
/// # Errors
///
/// `EINVAL` if an instance does not exist, `ENOSPC` if 64 tokens exist.
pub fn get_share_token(fd: &DoorFd, release: Release, source: u64, target: u64) -> Result<u64, Errno> {
    if release < R39_2 {
        let mut argument = GetShareToken {
            source_device_instance_id: source,
            target_device_instance_id: target,
            share_token: 0,
        };
        GET_SHARE_TOKEN.send(fd, &mut argument)?;
        return Ok(argument.share_token);
    }
    let asked = GetShareTokenR39 { target_device_instance_id: target, share_token: [0; 2] };
    let mut argument: GetShareToken = transmute!(asked);
    GET_SHARE_TOKEN.send(fd, &mut argument)?;
    let GetShareTokenR39 { share_token: [_, number], .. } = transmute!(argument);
    Ok(number)
}

/// Revokes the token `number`, which the instance `source` created for the instance `target`. `release` selects the
/// argument's arrangement.
///
/// # Errors
///
/// `EINVAL` for a token that was used, or that belongs to another TSG.
pub fn revoke_share_token(
    fd: &DoorFd,
    release: Release,
    source: u64,
    target: u64,
    number: u64,
) -> Result<(), Errno> {
    let mut argument = if release < R39_2 {
        RevokeShareToken {
            source_device_instance_id: source,
            target_device_instance_id: target,
            share_token: number,
        }
    } else {
        transmute!(RevokeShareTokenR39 { target_device_instance_id: target, share_token: [source, number] })
    };
    REVOKE_SHARE_TOKEN.send(fd, &mut argument).map(drop)
}
