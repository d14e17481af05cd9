//! Faults: the GPU's report, the kernel's log lines, and the end of the TSG.
//!
//! Recovery writes the error notifier of *every* channel of the TSG (only the first error is kept), makes the channels
//! permanently unserviceable and stops them. Address spaces and mappings remain. The process is not signalled: it
//! learns of the fault from the notifier, GET_TIMEDOUT or the log (`hal/rc/rc_gv11b.c`, `common/fifo/tsg.c`; codes:
//! `os/linux/linux-channel.c`).

use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, Ordering, fence};
use std::fmt;

use gpu_log::mmu::{MmuAccess, MmuFaultType};
use gpu_log::{FaultLine, HangLine, Level, NoteLine};
use nvgpu_sys::channel::{NOTIFICATION_PENDING, Notification};
use nvgpu_sys::tsg::SmErrorStateRecord;
use zerocopy::IntoBytes;

use crate::check::Finding;
use crate::chip::CHIP;
use crate::gpu::{Activity, ChannelFault, FaultHandler, HostCheck, Refusal, Waiter};
use crate::memory::Memory;
use crate::mmu::{Access, FaultKind, MmuFault};
use crate::sm::{SmFault, SmFaultCause};

use super::Kernel;
use super::channel::Notifier;
use super::log::Log;

/// Accumulated milliseconds in the line about a launch whose warps all wait for each other.
const DEADLOCK_MS: u32 = 3100;

/// Notifier code: no progress within the time limit.
pub(super) const IDLE_TIMEOUT: u32 = 8;
/// Notifier code of the copy engine: the driver's own number, passed through.
const COPY_ENGINE: u32 = 11;
/// Notifier code: graphics engine exception.
const EXCEPTION: u32 = 13;
/// Notifier code: a semaphore wait exceeded its time limit.
pub(super) const ACQUIRE_TIMEOUT: u32 = 24;
/// Notifier code: an undefined notification or method.
const ILLEGAL_NOTIFY: u32 = 25;
/// Notifier code: the MMU refused an access.
const MMU_FAULT: u32 = 31;
/// Notifier code: host engine error.
const PBDMA: u32 = 32;
/// Notifier code: wrong checksum of a pushbuffer segment.
const PUSHBUFFER_CRC: u32 = 80;
/// Notifier code: reset on request.
pub(super) const RESET: u32 = 43;

/// Interrupts of a host engine, by name and bit (`hw_pbdma_ga10b.h`).
pub(super) mod pbdma {
    pub(in super::super) const GPPTR: (&str, u32) = ("GPPTR invalid", 1 << 14);
    pub(in super::super) const GPENTRY: (&str, u32) = ("GPENTRY invalid", 1 << 15);
    pub(in super::super) const GPCRC: (&str, u32) = ("GPCRC mismatch", 1 << 16);
    pub(in super::super) const PBENTRY: (&str, u32) = ("PBENTRY invld", 1 << 18);
    pub(in super::super) const PBCRC: (&str, u32) = ("PBCRC mismatch", 1 << 19);
    pub(in super::super) const METHOD: (&str, u32) = ("METHOD invld", 1 << 21);
    pub(in super::super) const DEVICE: (&str, u32) = ("DEVICE sw method", 1 << 23);
    pub(in super::super) const SEMAPHORE: (&str, u32) = ("SEMAPHORE invlid", 1 << 25);
    pub(in super::super) const ACQUIRE: (&str, u32) = ("ACQUIRE timeout", 1 << 26);
    pub(in super::super) const PBSEG: (&str, u32) = ("PBSEG badsplit", 1 << 30);
}

/// Method addresses below this belong to the host engine.
const HOST_METHODS: u32 = 0x100;
/// Subchannels below this belong to the graphics engine.
const FIRST_OTHER_SUBCHANNEL: u8 = 4;
/// The subchannel of the copy engine.
const COPY_SUBCHANNEL: u8 = 4;
/// The only class of the graphics engine whose methods are modelled.
const COMPUTE_CLASS: u32 = CHIP.classes.value.compute.number;

/// The MMU's numbers of the graphics engine and of a host engine.
const MMU_ENGINE_GR: u32 = 64;
const MMU_ENGINE_PBDMA: u32 = 32;

/// Global error status of an SM with a warp error, as observed on a board.
const GLOBAL_ESR_WARP: u32 = 4;
/// Global error status of an SM after a trap: breakpoint interrupt.
const GLOBAL_ESR_TRAP: u32 = 0x10;

/// Offset of the status in a notification, in bytes.
const STATUS: u64 = offset_of!(Notification, status) as u64;

/// Suffix of the model's line for a fault from which the kernel does not recover.
const SILENT: &str = "; the kernel reports this nowhere else, and the channel stays halted";

/// Zeroes a notification, as SET_ERROR_NOTIFIER does.
pub(super) fn clear_notifier(notifier: &Notifier) {
    store(&notifier.memory, notifier.offset, Notification::default().as_bytes());
}

/// Writes a notification unless one is already present. The status is written last.
fn write_notifier(notifier: &Notifier, code: u32) -> bool {
    if is_pending(&notifier.memory, notifier.offset) {
        return false;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    // CAST: the realtime clock is past 1970, and its nanoseconds fit 64 bits until 2554.
    let nanoseconds = (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64);
    // CAST: truncation to the low half is intended.
    let time_stamp = [nanoseconds as u32, (nanoseconds >> 32) as u32];
    let record =
        Notification { time_stamp, info32: code, status: NOTIFICATION_PENDING, ..Notification::default() };
    let (body, status) = record.as_bytes().split_at(offset_of!(Notification, status));
    // The kernel does not change `info16`.
    store(&notifier.memory, notifier.offset, &body[..offset_of!(Notification, info16)]);
    fence(Ordering::Release);
    store(&notifier.memory, notifier.offset + STATUS, status);
    true
}

/// Returns whether the notification at `offset` has been written.
pub(super) fn is_pending(memory: &Memory, offset: u64) -> bool {
    let mut status = 0_u16;
    load(memory, offset + STATUS, status.as_mut_bytes());
    status != 0
}

/// Stores bytes one by one, because user space may be reading them.
pub(super) fn store(memory: &Memory, offset: u64, bytes: &[u8]) {
    // CAST: offsets of a CPU mapping fit usize.
    let offset = offset as usize;
    assert!(offset + bytes.len() <= memory.len(), "the notification lies in its buffer");
    for (at, &byte) in bytes.iter().enumerate() {
        // SAFETY: in bounds of the mapping, which `memory` keeps alive; atomic because of concurrent readers.
        unsafe { AtomicU8::from_ptr(memory.pointer().as_ptr().add(offset + at)) }
            .store(byte, Ordering::Relaxed);
    }
}

/// Loads bytes one by one, because user space may be writing them.
fn load(memory: &Memory, offset: u64, bytes: &mut [u8]) {
    // CAST: offsets of a CPU mapping fit usize.
    let offset = offset as usize;
    assert!(offset + bytes.len() <= memory.len(), "the notification lies in its buffer");
    for (at, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: as in `store`.
        *byte =
            unsafe { AtomicU8::from_ptr(memory.pointer().as_ptr().add(offset + at)) }.load(Ordering::Relaxed);
    }
}

/// The error record of an SM.
struct SmError {
    sm: usize,
    record: SmErrorStateRecord,
}

impl SmError {
    /// Creates the record of a fault. The model does not assign blocks to SMs, so block numbers are taken modulo the
    /// number of SMs.
    fn new(fault: &SmFault, sm_count: u32) -> Self {
        let global = if fault.cause == SmFaultCause::Trap { GLOBAL_ESR_TRAP } else { GLOBAL_ESR_WARP };
        let record = SmErrorStateRecord {
            global_esr: global,
            warp_esr: fault.cause.warp_error(),
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
            FaultLine::SmState {
                tpc,
                offset,
                sm: self.sm,
                global_esr: record.global_esr,
                warp_esr: record.warp_esr,
                pc: record.warp_esr_pc,
            },
        );
        log.error(
            "nvgpu_gr_intr_handle_sm_exception",
            FaultLine::SmRegisters { global_esr: record.global_esr, warp_esr: record.warp_esr },
        );
    }
}

/// Prints the lines of an MMU fault up to the recovery. `fault_type` is the number in the fault packet.
fn print_mmu(log: &Log, channel: u32, client: &str, fault: &MmuFault, fault_type: u32) {
    let (engine, kind, unit, gpc) = match client {
        "compute" => (MMU_ENGINE_GR, "gpc", "t1 0", 0),
        "copy" => (MMU_ENGINE_GR, "hub", "ce0", 0),
        _ => (MMU_ENGINE_PBDMA, "hub", "host", 0),
    };
    let access_type = match fault.access {
        Access::Read => 0,
        Access::Write => 1,
        Access::Atomic => 2,
    };
    log.error("gv11b_fb_handle_mmu_fault_common", FaultLine::PageFault { err_type: fault_type });
    let function = "gv11b_fb_mmu_fault_info_dump";
    log.error(
        function,
        FaultLine::MmuFault {
            engine,
            channel,
            // HW: the fault packet has the address of the page only (`hw_gmmu_ga10b.h`,
            // `gmmu_fault_buf_entry_addr_lo`).
            address: fault.va & !0xfff,
            fault_type: MmuFaultType::from_number(fault_type).to_string(),
            access_type: MmuAccess::from_number(access_type).to_string(),
        },
    );
    log.error(function, FaultLine::MmuClient { client_type: kind.to_owned(), client: unit.to_owned(), gpc });
}

/// Prints one set bit of a host engine's interrupt, with the pushbuffer state.
pub(super) fn print_pbdma(log: &Log, (name, bit): (&str, u32), header: u32, shadow: u32) {
    let function = "ga10b_pbdma_dump_intr_0";
    log.error(function, FaultLine::PbdmaInterrupt { name: name.to_owned() });
    log.error(function, FaultLine::PbdmaRegisters { bits: bit, header, shadow });
}

/// Interrupts of a host engine's copy-engine half, by bit (`hw_pbdma_ga10b.h`, `pbdma_intr_1`).
mod hce {
    pub(super) const RENDER_OPERATION: u32 = 1;
    pub(super) const PRIVILEGE: u32 = 1 << 2;
    pub(super) const ILLEGAL_METHOD: u32 = 1 << 3;
    pub(super) const ILLEGAL_CLASS: u32 = 1 << 4;
}

/// Prints the kernel's line for a refused method of the copy engine, which the host engine decodes.
fn print_hce(log: &Log, refusal: Refusal) -> u32 {
    let bit = match refusal {
        Refusal::RenderOperation => hce::RENDER_OPERATION,
        Refusal::Privilege => hce::PRIVILEGE,
        Refusal::Class => hce::ILLEGAL_CLASS,
        // Silicon does not check data; this is its closest error.
        Refusal::Undefined | Refusal::Data | Refusal::Software => hce::ILLEGAL_METHOD,
    };
    log.error("ga10b_pbdma_handle_intr_1", FaultLine::HostCopyError { bits: bit });
    PBDMA
}

/// Prints a refused method of the graphics engine or, below the first engine method and on the software subchannels, of
/// the host engine. Returns the notifier's code.
fn print_method(log: &Log, refusal: Refusal, method: (u8, u32), data: u32) -> u32 {
    let (subchannel, address) = method;
    let graphics = subchannel < FIRST_OTHER_SUBCHANNEL;
    let function = "nvgpu_gr_intr_stall_isr";
    match refusal {
        Refusal::Software => {
            print_pbdma(log, pbdma::DEVICE, address, data);
            PBDMA
        }
        Refusal::Class if graphics => {
            let class = data & 0xffff;
            log.error(function, FaultLine::InvalidClass { class, method: address });
            EXCEPTION
        }
        Refusal::Class if subchannel == COPY_SUBCHANNEL => print_hce(log, refusal),
        _ if address < HOST_METHODS => {
            print_pbdma(log, pbdma::METHOD, address, data);
            PBDMA
        }
        _ if subchannel == COPY_SUBCHANNEL => print_hce(log, refusal),
        Refusal::Undefined if graphics => {
            // The register behind the last number contains subchannel and method.
            let trapped = u32::from(subchannel) << 16 | address;
            log.error(
                "gr_intr_handle_illegal_method",
                FaultLine::InvalidMethod { class: COMPUTE_CLASS, method: address, trapped },
            );
            log.error(function, FaultLine::IllegalMethod);
            ILLEGAL_NOTIFY
        }
        _ => {
            let function = "gr_intr_handle_class_error";
            log.error(function, FaultLine::ClassError { method: address, subchannel: subchannel.into() });
            log.error(function, FaultLine::TrappedData { data });
            log.error("nvgpu_gr_intr_stall_isr", FaultLine::ClassErrorEnd);
            EXCEPTION
        }
    }
}

impl Kernel {
    /// Ends a TSG: notifiers, state, then the GPU. Without a code no notifier is written.
    pub(super) fn end_tsg(&self, tsg_id: u32, code: Option<u32>) {
        self.end_tsg_with(&self.log, tsg_id, code);
    }

    pub(super) fn end_tsg_with(&self, log: &Log, tsg_id: u32, code: Option<u32>) {
        let channels = {
            let mut state = self.state.lock();
            let Some(tsg) = state.tsgs.get_mut(&tsg_id) else { return };
            tsg.ended = true;
            let channels = tsg.channels.clone();
            for id in &channels {
                let Some(channel) = state.channels.get_mut(id) else { continue };
                channel.unserviceable = true;
                if let (Some(code), Some(notifier)) = (code, &channel.notifier)
                    && write_notifier(notifier, code)
                {
                    let level = if code == RESET { Level::Information } else { Level::Error };
                    let line = FaultLine::NotifierSet { code, channel: *id, owner: channel.owner.clone() };
                    log.nvgpu(level, "nvgpu_set_err_notifier_locked", line);
                }
            }
            channels
        };
        self.gpu(|gpu| gpu.stop_channels(&channels));
        // Waiters wake up as if the work were done; the notifier shows the difference.
        let state = self.state.lock();
        let ended = channels.iter().filter_map(|id| state.channels.get(id));
        ended.for_each(|channel| state.wake_waiters(channel));
        drop(state);
        self.log.pulse.beat();
    }

    /// Describes an address relative to the mappings of the channel's address space.
    fn place(&self, channel: u32, va: u64) -> String {
        let state = self.state.lock();
        let space = state.channels.get(&channel).and_then(|channel| channel.space);
        let space = space.and_then(|space| state.spaces.get(&space));
        space.map_or_else(|| "in no address space".to_owned(), |space| space.mmu.view().describe(va))
    }

    /// Prints a fault. Returns the notifier's code, or `None` if the kernel does not recover from this fault.
    /// `sm_first`: the exception of an SM is handled before the MMU's interrupt.
    fn print_fault(
        &self,
        log: &Log,
        channel: u32,
        tsg: u32,
        fault: &ChannelFault,
        sm_first: bool,
    ) -> Option<u32> {
        let more =
            |what: &dyn fmt::Display| log.model(FaultLine::Explanation { channel, text: what.to_string() });
        match fault {
            ChannelFault::Mmu { client, fault } => {
                self.print_mmu_fault(log, channel, tsg, client, fault);
                more(&format_args!("{client} engine: {fault}, {}", self.place(channel, fault.va)));
                Some(MMU_FAULT)
            }
            ChannelFault::PushbufferEntry { check, va, word, reason } => {
                let (interrupt, code) = match check {
                    HostCheck::PushbufferWord => (pbdma::PBENTRY, Some(PBDMA)),
                    // HW: as for semaphores below.
                    HostCheck::Pointer => (pbdma::GPPTR, None),
                    HostCheck::RingEntry => (pbdma::GPENTRY, None),
                    HostCheck::SplitSegment => (pbdma::PBSEG, None),
                    HostCheck::RingChecksum => (pbdma::GPCRC, None),
                    HostCheck::SegmentChecksum => (pbdma::PBCRC, Some(PUSHBUFFER_CRC)),
                };
                let header = if *check == HostCheck::PushbufferWord { *word } else { 0 };
                print_pbdma(log, interrupt, header, 0);
                let rest = if code.is_some() { "" } else { SILENT };
                more(&format_args!("pushbuffer word {word:#010x} at {va:#x}: {reason}{rest}"));
                code
            }
            ChannelFault::Method { refusal, subchannel, address, data, reason } => {
                more(&format_args!("method {address:#x} = {data:#x} on subchannel {subchannel}: {reason}"));
                Some(print_method(log, *refusal, (*subchannel, *address), *data))
            }
            ChannelFault::Semaphore { va, reason } => {
                // HW: this interrupt is only logged and cleared; the "recover" decision is dropped
                // (`pbdma_ga10b_fusa.c`, ga10b_pbdma_handle_intr_0_legacy).
                print_pbdma(log, pbdma::SEMAPHORE, 0, 0);
                more(&format_args!("semaphore at {va:#x}: {reason}{SILENT}"));
                None
            }
            ChannelFault::LaunchDescriptor { va, esr_bit, reason } => {
                let esr = esr_bit.and_then(|bit| 1_u32.checked_shl(bit)).unwrap_or(0);
                log.error("gm20b_gr_intr_check_gr_sked_exception", FaultLine::DescriptorRefused { esr });
                more(&format_args!("launch descriptor at {va:#x}: {reason}"));
                Some(EXCEPTION)
            }
            ChannelFault::Copy { reason } => {
                let function = "ga10b_ce_stall_isr";
                log.error(function, FaultLine::CopyRefused);
                log.warning(
                    "nvgpu_error_notifier_to_channel_notifier",
                    FaultLine::PrivateNotifier { code: COPY_ENGINE },
                );
                more(&format_args!("copy engine: {reason}"));
                Some(COPY_ENGINE)
            }
            ChannelFault::Sm(fault) => Some(self.print_sm_fault(log, channel, tsg, fault, sm_first)),
        }
    }

    /// The number in the fault packet of a refused access.
    fn fault_type(&self, fault: &MmuFault) -> u32 {
        self.config.faults.mmu_type.unwrap_or(match fault.kind {
            FaultKind::InvalidPde => 0,
            FaultKind::InvalidPte => 2,
            FaultKind::LimitViolation => 3,
            FaultKind::WriteReadOnly => 6,
        })
    }

    fn print_mmu_fault(&self, log: &Log, channel: u32, tsg: u32, client: &str, fault: &MmuFault) {
        print_mmu(log, channel, client, fault, self.fault_type(fault));
        log.error("gv11b_fifo_locked_preempt_runlists_rc", FaultLine::MmuRecovery { tsg });
        self.dump_before_end(log);
        log.error("nvgpu_rc_mmu_fault", FaultLine::MmuTsg { tsg });
    }

    /// Prints the debug dump before the end of a TSG, unless it is late.
    fn dump_before_end(&self, log: &Log) {
        if self.config.faults.late_lines.is_zero() {
            self.dump(log);
        }
    }

    /// Prints what follows the recovery of a fault: the debug dump if it is late, then the lines about an access of an
    /// SM whose exception was handled first. The TSG has ended by then, so the MMU's interrupt recovers nothing.
    fn print_late(&self, channel: u32, refused: Option<MmuFault>) {
        let delay = self.config.faults.late_lines;
        if delay.is_zero() && refused.is_none() {
            return;
        }
        let kernel = self.me.clone();
        let print = move || {
            let Some(kernel) = kernel.upgrade() else { return };
            kernel.with_fault_log(|log| {
                if !delay.is_zero() {
                    kernel.dump(log);
                }
                if let Some(refused) = refused {
                    print_mmu(log, channel, "compute", &refused, kernel.fault_type(&refused));
                }
            });
            kernel.log.pulse.beat();
        };
        if delay.is_zero() {
            return print();
        }
        let later = move || {
            std::thread::sleep(delay);
            print();
        };
        if self.spawn("orin-late-lines", later).is_err() {
            tracing::error!("cannot start the thread for the log lines after a recovery");
        }
    }

    /// Prints the debug dump, limited to what the model has: the list of channels.
    pub(super) fn dump(&self, log: &Log) {
        log.dump(NoteLine::ChannelDump {});
        for (id, channel) in &self.state.lock().channels {
            let Some(tsg) = channel.tsg else { continue };
            let deterministic = if channel.deterministic { "yes" } else { "no" };
            log.dump(NoteLine::ChannelStatus {
                channel: *id,
                tsg,
                pid: channel.pid,
                owner: channel.owner.clone(),
                deterministic: deterministic.to_owned(),
            });
        }
        log.dump(NoteLine::PbdmaDump {});
    }

    /// Runs `print` on the kernel log, or on a discarded log if faults are silenced.
    pub(super) fn with_fault_log(&self, print: impl FnOnce(&Log)) {
        let unread = self.silent_faults.load(Ordering::Acquire).then(Log::new);
        print(unread.as_ref().unwrap_or(&self.log));
    }

    fn print_sm_fault(&self, log: &Log, channel: u32, tsg: u32, fault: &SmFault, sm_first: bool) -> u32 {
        if let SmFaultCause::Deadlock(_) = fault.cause {
            // Reported as if another TSG had waited for the default limit. That the switch waits for an acknowledgement
            // is an assumption.
            let function = "ga10b_fifo_ctxsw_timeout_isr";
            log.error(function, HangLine::SwitchTimeout);
            log.error(function, HangLine::SwitchTimeoutEnd { tsg, ms: DEADLOCK_MS });
            self.dump_before_end(log);
            log.model(FaultLine::Explanation { channel, text: fault.to_string() });
            return IDLE_TIMEOUT;
        }
        if let SmFaultCause::Mmu(refused) = &fault.cause
            && !sm_first
        {
            self.print_mmu_fault(log, channel, tsg, "compute", refused);
        }
        let error = SmError::new(fault, self.config.sm_count());
        error.print(log);
        if let Some(slot) =
            self.state.lock().tsgs.get_mut(&tsg).and_then(|entry| entry.sm_errors.get_mut(error.sm))
        {
            *slot = error.record;
        }
        let place = match &fault.cause {
            SmFaultCause::Mmu(refused) => format!(", {}", self.place(channel, refused.va)),
            _ => String::new(),
        };
        log.model(FaultLine::Explanation { channel, text: format!("{fault}{place}") });
        if matches!(fault.cause, SmFaultCause::Mmu(_)) && !sm_first {
            return MMU_FAULT;
        }
        log.error("nvgpu_gr_intr_handle_sm_exception", FaultLine::ExceptionNotifier);
        EXCEPTION
    }
}

impl FaultHandler for Kernel {
    fn switch_timeout(&self, tsg: u32, abandoned: bool) {
        self.with_fault_log(|log| {
            let function = "ga10b_fifo_ctxsw_timeout_isr";
            log.error(function, HangLine::SwitchTimeout);
            // The kernel walks the channels of the TSG; a closed one has none, and nothing is recovered.
            let expired = if abandoned { None } else { self.count_switch_timeout(tsg) };
            let Some(expired) = expired else { return };
            log.error(function, HangLine::SwitchTimeoutEnd { tsg, ms: expired.ms });
            if expired.dump {
                self.dump_before_end(log);
            }
            self.end_tsg_with(log, tsg, Some(IDLE_TIMEOUT));
        });
    }

    fn fault(&self, channel_id: u32, fault: ChannelFault) {
        if let Some(checker) = &self.config.sm.check {
            checker.keep_fault(&fault);
        }
        // A report may arrive late, after the channel was closed and its id reused. It is the right channel only if the
        // GPU halted it and its identity is the same before and after that check.
        let identity =
            || self.state.lock().channels.get(&channel_id).map(|channel| (channel.serial, channel.tsg));
        let before = identity();
        let mut halted = false;
        self.gpu(|gpu| {
            halted = gpu.status(channel_id).is_some_and(|status| status.activity == Activity::Faulted);
        });
        let tsg = before.filter(|_| halted && before == identity()).and_then(|(_, tsg)| tsg);
        let Some(tsg) = tsg else {
            self.log.model(FaultLine::LateFault { channel: channel_id, text: fault.to_string() });
            return;
        };
        let number = self.faults_seen.fetch_add(1, Ordering::Relaxed);
        let sm_first = self.config.faults.mmu_order.sm_first(self.config.seed, number);
        let mut recovered = false;
        self.with_fault_log(|log| {
            if let Some(code) = self.print_fault(log, channel_id, tsg, &fault, sm_first) {
                self.end_tsg_with(log, tsg, Some(code));
                recovered = true;
            }
        });
        if recovered {
            let refused = match &fault {
                ChannelFault::Sm(SmFault { cause: SmFaultCause::Mmu(refused), .. }) if sm_first => {
                    Some(*refused)
                }
                _ => None,
            };
            self.print_late(channel_id, refused);
        }
    }

    fn deadlock(&self, waiters: &[Waiter]) {
        self.with_fault_log(|log| {
            for waiter in waiters {
                log.model(FaultLine::Deadlock { text: waiter.to_string() });
            }
        });
    }

    fn panicked(&self, text: &str) {
        self.end_after_panic(text);
    }

    fn finding(&self, finding: &Finding) {
        let channel = finding.channel.unwrap_or_default();
        self.log.model_error(FaultLine::Strict { channel, text: finding.message.clone() });
    }

    fn non_stall_interrupt(&self, channel_id: u32) {
        self.interrupted(channel_id);
    }
}
