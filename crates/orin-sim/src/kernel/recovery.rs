//! Faults: what the GPU reports, what the kernel prints, and the end of the TSG.
//!
//! Recovery writes the error notifier of *every* channel of the TSG (only the first error is kept),
//! makes them unserviceable for good and stops them; address spaces and mappings stay. Nothing
//! signals the process: it learns of it from the notifier, GET_TIMEDOUT or the log
//! (`hal/rc/rc_gv11b.c`, `common/fifo/tsg.c`; codes: `os/linux/linux-channel.c`).

use core::sync::atomic::{Ordering, fence};
use std::fmt;

use nvgpu_sys::tsg::SmErrorStateRecord;

use crate::gpu::{Activity, ChannelFault, FaultHandler};
use crate::memory::Memory;
use crate::mmu::{Access, FaultKind, MmuFault};
use crate::sm::{SmFault, SmFaultCause};

use super::Kernel;
use super::channel::Notifier;
use super::log::{Level, Log};

/// Notifier code: no progress for too long.
const IDLE_TIMEOUT: u32 = 8;
/// Notifier code of the copy engine: a number of the driver's own, passed through.
const COPY_ENGINE: u32 = 11;
/// Notifier code: graphics engine exception.
const EXCEPTION: u32 = 13;
/// Notifier code: the MMU refused an access.
const MMU_FAULT: u32 = 31;
/// Notifier code: host engine error.
const PBDMA: u32 = 32;
/// Notifier code: reset on request.
pub(super) const RESET: u32 = 43;

/// Method addresses below belong to the host engine.
const HOST_METHODS: u32 = 0x100;

/// Numbers of the graphics engine and of a host engine in the MMU's own counting.
const MMU_ENGINE_GR: u32 = 64;
const MMU_ENGINE_PBDMA: u32 = 32;

/// Global error status of an SM with a warp error, as a board showed it.
const GLOBAL_ESR_WARP: u32 = 4;
/// Global error status of an SM that met a trap: breakpoint interrupt.
const GLOBAL_ESR_TRAP: u32 = 0x10;

/// Warp error codes, low 16 bits of `hww_warp_esr` (`hw_gr_ga10b.h`).
mod warp {
    pub(super) const NONE: u32 = 0;
    pub(super) const MISALIGNED_PC: u32 = 0x5;
    pub(super) const ILLEGAL_ENCODING: u32 = 0x9;
    pub(super) const OUT_OF_RANGE_ADDRESS: u32 = 0xe;
    pub(super) const MISALIGNED_ADDRESS: u32 = 0xf;
    pub(super) const INVALID_CONSTANT: u32 = 0x12;
    pub(super) const MMU_NACK: u32 = 0x20;
}

/// Zeroes a notification, as SET_ERROR_NOTIFIER does.
pub(super) fn clear_notifier(notifier: &Notifier) {
    store(&notifier.memory, notifier.offset, [0; 16]);
}

/// Writes a notification unless there is one already; the status comes last.
fn write_notifier(notifier: &Notifier, code: u32) -> bool {
    let mut status = [0; 2];
    load(&notifier.memory, notifier.offset + 14, &mut status);
    if status != [0; 2] {
        return false;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    // CAST: the realtime clock is past 1970, and its nanoseconds fit 64 bits until 2554.
    let nanoseconds = (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64);
    let mut record = [0; 14];
    record[..8].copy_from_slice(&nanoseconds.to_le_bytes());
    record[8..12].copy_from_slice(&code.to_le_bytes());
    store(&notifier.memory, notifier.offset, record);
    fence(Ordering::Release);
    store(&notifier.memory, notifier.offset + 14, [0xff; 2]);
    true
}

/// Stores bytes that user space may be reading.
pub(super) fn store<const N: usize>(memory: &Memory, offset: u64, bytes: [u8; N]) {
    // CAST: offsets of a CPU mapping fit usize.
    let offset = offset as usize;
    assert!(offset + N <= memory.len(), "the notification lies in its buffer");
    for (at, byte) in bytes.into_iter().enumerate() {
        // SAFETY: in bounds of the mapping, which `memory` keeps; volatile, because others look.
        unsafe { memory.pointer().as_ptr().add(offset + at).write_volatile(byte) };
    }
}

/// Loads bytes that user space may be writing.
pub(super) fn load(memory: &Memory, offset: u64, bytes: &mut [u8]) {
    // CAST: offsets of a CPU mapping fit usize.
    let offset = offset as usize;
    assert!(offset + bytes.len() <= memory.len(), "the notification lies in its buffer");
    for (at, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: as in `store`.
        *byte = unsafe { memory.pointer().as_ptr().add(offset + at).read_volatile() };
    }
}

/// What an SM recorded, and where.
struct SmError {
    sm: usize,
    record: SmErrorStateRecord,
}

impl SmError {
    /// The record of a fault. The model does not say which SM a block ran on, so blocks are counted
    /// round.
    fn new(fault: &SmFault, sm_count: u32) -> Self {
        let global = if fault.cause == SmFaultCause::Trap { GLOBAL_ESR_TRAP } else { GLOBAL_ESR_WARP };
        let record = SmErrorStateRecord {
            global_esr: global,
            warp_esr: warp_code(&fault.cause),
            warp_esr_pc: fault.pc,
            global_esr_report_mask: u32::MAX,
            warp_esr_report_mask: u32::MAX,
        };
        // CAST: the remainder is below the number of SMs.
        Self { sm: (fault.block[0] % sm_count.max(1)) as usize, record }
    }

    fn print(&self, log: &Log) {
        let (tpc, half) = (self.sm / 2, self.sm % 2);
        let offset = tpc * 0x800 + half * 0x80;
        let record = &self.record;
        log.error(
            "gv11b_gr_intr_record_sm_error_state",
            format_args!(
                "sm err state gpc_id(0), tpc_id({tpc}), offset({offset}), sm_id({}), hww_global_esr {},\
                 hww_warp_esr {}, hww_warp_esr_pc {:#x}",
                self.sm, record.global_esr, record.warp_esr, record.warp_esr_pc
            ),
        );
        log.error(
            "nvgpu_gr_intr_handle_sm_exception",
            format_args!("sm hww global {:#010x} warp {:#010x}", record.global_esr, record.warp_esr),
        );
    }
}

fn warp_code(cause: &SmFaultCause) -> u32 {
    match cause {
        SmFaultCause::Mmu(_) => warp::MMU_NACK,
        SmFaultCause::MisalignedAddress { .. } => warp::MISALIGNED_ADDRESS,
        SmFaultCause::OutOfRange { space: "constant", .. } => warp::INVALID_CONSTANT,
        SmFaultCause::OutOfRange { .. } => warp::OUT_OF_RANGE_ADDRESS,
        SmFaultCause::IllegalInstruction { .. } | SmFaultCause::Unmodelled { .. } => warp::ILLEGAL_ENCODING,
        SmFaultCause::InvalidPc => warp::MISALIGNED_PC,
        SmFaultCause::Trap | SmFaultCause::Deadlock(_) => warp::NONE,
    }
}

/// The lines of an MMU fault.
fn print_mmu(log: &Log, channel: u32, tsg: u32, client: &str, fault: &MmuFault) {
    let (engine, kind, unit, gpc) = match client {
        "compute" => (MMU_ENGINE_GR, "gpc", "t1 0", 0),
        "copy" => (MMU_ENGINE_GR, "hub", "ce0", 0),
        _ => (MMU_ENGINE_PBDMA, "hub", "host", 0),
    };
    let (fault_type, number) = match fault.kind {
        FaultKind::InvalidPde => ("invalid pde", 0),
        FaultKind::InvalidPte => ("invalid pte", 2),
        FaultKind::LimitViolation => ("limit violation", 3),
        FaultKind::WriteReadOnly => ("write/ro violation", 6),
    };
    let access = match fault.access {
        Access::Read => "virt read",
        Access::Write => "virt write",
        Access::Atomic => "virt atomic strong",
    };
    log.error(
        "gv11b_fb_handle_mmu_fault_common",
        format_args!("page fault error: err_type = {number:#x}, fault_status = 0x200"),
    );
    let function = "gv11b_fb_mmu_fault_info_dump";
    log.error(
        function,
        format_args!(
            "[MMU FAULT] mmu engine id:  {engine}, ch id:  {channel}, fault addr: {:#x}, fault addr aperture: \
             0, fault type: {fault_type}, access type: {access}, ",
            fault.va
        ),
    );
    log.error(
        function,
        format_args!(
            "[MMU FAULT] protected mode: 0, client type: {kind}, client id:  {unit}, gpc id if client type \
             is gpc: {gpc}, "
        ),
    );
    log.error(
        "gv11b_fifo_locked_preempt_runlists_rc",
        format_args!("mmu fault id={tsg} id_type=1 act_eng_bitmask=00000001"),
    );
    log.error("nvgpu_rc_mmu_fault", format_args!("TSG {tsg} generated a mmu fault"));
}

/// One set bit of a host engine's interrupt, with what it stopped at.
fn print_pbdma(log: &Log, name: &str, bit: u32, header: u32, shadow: u32) {
    let function = "ga10b_pbdma_dump_intr_0";
    log.error(function, format_args!("PBDMA intr {name} Error"));
    log.error(
        function,
        format_args!(
            "pbdma_intr_0(0):{bit:#010x} PBH: {header:08x} SHADOW: {shadow:08x} gp shadow0: 00000000 gp \
             shadow1: 00000000M0: 00000000 00000000 00000000 00000000 "
        ),
    );
}

/// A refused method: the host engine's own is its interrupt, any other a class error of the
/// graphics engine. Returns the notifier's code.
fn print_method(log: &Log, channel: u32, subchannel: u8, address: u32, data: u32) -> u32 {
    if address < HOST_METHODS {
        print_pbdma(log, "METHOD invld", 1 << 17, address, data);
        return PBDMA;
    }
    let function = "gr_intr_handle_class_error";
    log.error(
        function,
        format_args!(
            "class error 0x00000001, offset {address:#010x},sub channel {subchannel:#010x} mme generated 0, \
             mme pc 0x00000000data high 0 priv status 0 unhandled intr 0x00000000 for channel {channel}"
        ),
    );
    log.error(function, format_args!("trapped data low {data:#010x}"));
    log.error("nvgpu_gr_intr_stall_isr", format_args!("class error"));
    EXCEPTION
}

impl Kernel {
    /// Ends a TSG: notifiers, state, then the GPU. Without a code no notifier is written.
    pub(super) fn end_tsg(&self, tsg_id: u32, code: Option<u32>) {
        self.end_tsg_with(&self.log, tsg_id, code);
    }

    fn end_tsg_with(&self, log: &Log, tsg_id: u32, code: Option<u32>) {
        let channels = {
            let mut state = self.lock();
            let Some(tsg) = state.tsgs.get_mut(&tsg_id) else { return };
            tsg.ended = true;
            let channels = tsg.channels.clone();
            for id in &channels {
                let Some(channel) = state.channels.get_mut(id) else { continue };
                channel.unserviceable = true;
                if let (Some(code), Some(notifier)) = (code, &channel.notifier)
                    && write_notifier(notifier, code)
                {
                    let level = if code == RESET { Level::Info } else { Level::Error };
                    let message = format!(
                        "error notifier set to {code} for ch {id} owned by {}",
                        std::thread::current().name().unwrap_or("user")
                    );
                    log.nvgpu(level, "nvgpu_set_err_notifier_locked", format_args!("{message}"));
                }
            }
            channels
        };
        self.gpu(|gpu| gpu.stop_channels(&channels));
        // Whoever waits for the work wakes as if it were done; the notifier tells the difference.
        let state = self.lock();
        let ended = channels.iter().filter_map(|id| state.channels.get(id));
        ended.for_each(|channel| state.wake_waiters(channel));
        drop(state);
        self.log.pulse.beat();
    }

    /// Prints a fault. Returns the notifier's code, if the kernel recovers from this fault at all.
    fn print_fault(&self, log: &Log, channel: u32, tsg: u32, fault: &ChannelFault) -> Option<u32> {
        let more = |what: &dyn fmt::Display| log.model(format_args!("channel {channel}: {what}"));
        match fault {
            ChannelFault::Mmu { client, fault } => {
                print_mmu(log, channel, tsg, client, fault);
                more(&format_args!("{client} engine: {fault}"));
                Some(MMU_FAULT)
            }
            ChannelFault::PushbufferEntry { va, word, reason } => {
                print_pbdma(log, "PBENTRY invld", 1 << 14, *word, 0);
                more(&format_args!("pushbuffer word {word:#010x} at {va:#x}: {reason}"));
                Some(PBDMA)
            }
            ChannelFault::Method { subchannel, address, data, reason } => {
                more(&format_args!("method {address:#x} = {data:#x} on subchannel {subchannel}: {reason}"));
                Some(print_method(log, channel, *subchannel, *address, *data))
            }
            ChannelFault::Semaphore { va, reason } => {
                // HW: this interrupt is only logged and cleared; the "recover" decision is lost
                // (`pbdma_ga10b_fusa.c`, ga10b_pbdma_handle_intr_0_legacy).
                print_pbdma(log, "SEMAPHORE invlid", 1 << 24, 0, 0);
                more(&format_args!(
                    "semaphore at {va:#x}: {reason}; the kernel reports this nowhere else, and the channel \
                     stays halted"
                ));
                None
            }
            ChannelFault::LaunchDescriptor { va, esr_bit, reason } => {
                let esr = esr_bit.and_then(|bit| 1_u32.checked_shl(bit)).unwrap_or(0);
                log.error(
                    "gm20b_gr_intr_check_gr_sked_exception",
                    format_args!("sked exception: esr {esr:#010x}"),
                );
                more(&format_args!("launch descriptor at {va:#x}: {reason}"));
                Some(EXCEPTION)
            }
            ChannelFault::Copy { reason } => {
                let function = "ga10b_ce_stall_isr";
                log.error(function, format_args!("ce launch error interrupt"));
                log.warning(
                    "nvgpu_error_notifier_to_channel_notifier",
                    format_args!("invalid error_notifier requested {COPY_ENGINE}"),
                );
                more(&format_args!("copy engine: {reason}"));
                Some(COPY_ENGINE)
            }
            ChannelFault::Sm(fault) => Some(self.print_sm_fault(log, channel, tsg, fault)),
        }
    }

    fn print_sm_fault(&self, log: &Log, channel: u32, tsg: u32, fault: &SmFault) -> u32 {
        if let SmFaultCause::Deadlock(_) = fault.cause {
            log.error("ga10b_fifo_ctxsw_timeout_isr", format_args!("Host pfifo ctxsw timeout error"));
            log.model(format_args!("channel {channel}: {fault}"));
            return IDLE_TIMEOUT;
        }
        if let SmFaultCause::Mmu(refused) = &fault.cause {
            print_mmu(log, channel, tsg, "compute", refused);
        }
        let error = SmError::new(fault, self.config.sm_count());
        error.print(log);
        if let Some(slot) = self.lock().tsgs.get_mut(&tsg).and_then(|entry| entry.sm_errors.get_mut(error.sm))
        {
            *slot = error.record;
        }
        log.model(format_args!("channel {channel}: {fault}"));
        if matches!(fault.cause, SmFaultCause::Mmu(_)) {
            return MMU_FAULT;
        }
        log.error("nvgpu_gr_intr_handle_sm_exception", format_args!("set gr exception notifier"));
        EXCEPTION
    }
}

impl FaultHandler for Kernel {
    fn fault(&self, channel_id: u32, fault: ChannelFault) {
        // A report may come late, when the channel is closed and its id used again: the channel is
        // the right one only if the GPU halted it and it is the same before and after that look.
        let identity = || self.lock().channels.get(&channel_id).map(|channel| (channel.serial, channel.tsg));
        let before = identity();
        let mut halted = false;
        self.gpu(|gpu| {
            halted = gpu.status(channel_id).is_some_and(|status| status.activity == Activity::Faulted);
        });
        let tsg = before.filter(|_| halted && before == identity()).and_then(|(_, tsg)| tsg);
        let Some(tsg) = tsg else {
            self.log.model(format_args!("channel {channel_id} ended before its fault was handled: {fault}"));
            return;
        };
        // A log that nobody reads takes the lines of a silent fault.
        let unread = self.silent_faults.load(Ordering::Acquire).then(Log::new);
        let log = unread.as_ref().unwrap_or(&self.log);
        if let Some(code) = self.print_fault(log, channel_id, tsg, &fault) {
            self.end_tsg_with(log, tsg, Some(code));
        }
    }

    fn non_stall_interrupt(&self, channel_id: u32) {
        self.lock().interrupt(channel_id);
        self.log.pulse.beat();
    }
}
