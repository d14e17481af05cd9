//! The front end of the compute engine (`AMPERE_COMPUTE_B`, class 0xc7c0) on subchannel 1.
//!
//! Most methods only set state. Methods with an effect are uploads, report semaphores, waits, and the PCAS methods,
//! which pass launch descriptors to the scheduler ([`Sked`]). Invalidations of shader caches have no effect, because
//! the model has no caches, but those that wait for idle do wait.
//!
//! Methods whose effect is not modelled, such as macros and conditional rendering, end the channel with a fault that
//! names them.

use core::sync::atomic::{Ordering, fence};
use std::sync::{Arc, LazyLock};

use ampere_cmd::command::PcasAction;
use ampere_cmd::compute_c7c0 as class;
use ampere_cmd::method::Method;

use gpu_hal::chip::Seen;

use crate::chip::CHIP;
use crate::gpu::channel::{Flow, Wait};
use ampere_cmd::words::join;

use crate::check::{Cache, Encoding, Watch};
use crate::gpu::decoder::{Decoder, MethodWord, Shadow};
use crate::gpu::inline_upload::InlineUpload;
use crate::gpu::qmd::Environment;
use crate::gpu::semaphore::{Operation, Reduction, SemaphoreWrite, Structure};
use crate::gpu::sked::{Scheduling, Sked};
use crate::gpu::{Activity, ChannelFault, Effects};
use crate::mmu::View;
use crate::quirks::Quirks;
use crate::sm::{Sms, Table, Tables};

/// Name prefixes of methods whose effect is not modelled.
const UNMODELLED: &[&str] = &[
    "NOTIFY",
    "LOAD_MME_",
    "SET_MME_MEM_",
    "SET_MME_DATA_",
    "MME_DMA_",
    "CALL_MME_",
    "SET_FALCON",
    "SET_RESERVED_SW_METHOD",
    "SEND_GO_IDLE",
    "SEND_PCAS_B",
    "SET_CWD_REF_COUNTER",
    "SET_INLINE_QMD_ADDRESS_",
    "LOAD_INLINE_QMD_DATA",
    "SET_QMD_VIRTUALIZATION_",
    "PERFMON_TRANSFER",
    "ENABLE_SHADER_PERFORMANCE_",
    "START_SHADER_PERFORMANCE_",
];

static DECODER: LazyLock<Decoder> = LazyLock::new(|| Decoder::new(&class::CLASS_TABLE, UNMODELLED));

/// State of the compute engine in one channel.
#[derive(Debug)]
pub(super) struct Compute {
    shadow: Shadow,
    upload: Option<InlineUpload>,
    sked: Sked,
    sms: Arc<Sms>,
    quirks: Arc<Quirks>,
}

impl Compute {
    pub(super) fn new(sms: Arc<Sms>, quirks: Arc<Quirks>) -> Self {
        let sked = Sked::new(Arc::clone(&sms), Arc::clone(&quirks));
        Self { shadow: Shadow::new(&class::CLASS_TABLE), upload: None, sked, sms, quirks }
    }

    /// Returns whether all launched grids have finished.
    pub(super) fn is_idle(&self) -> bool {
        self.sked.is_idle()
    }

    /// The grid in progress.
    pub(super) fn activity(&self) -> Option<Activity> {
        self.sked.activity()
    }

    /// Runs a slice of the current grid. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// The fault of the launch descriptor, of the grid, or of its release writes.
    pub(super) fn step(
        &mut self,
        view: &View,
        effects: &mut Effects,
        draining: bool,
    ) -> Result<bool, ChannelFault> {
        self.sked.step(view, effects, draining)
    }

    /// Returns whether blocks of a grid are on the SMs.
    pub(super) fn has_blocks(&self) -> bool {
        self.sked.has_blocks()
    }

    /// Processes one method word.
    ///
    /// # Errors
    ///
    /// The fault of a method that is undefined, not modelled or refused by the engine.
    pub(super) fn method(
        &mut self,
        word: MethodWord,
        view: &View,
        effects: &mut Effects,
    ) -> Result<Flow, ChannelFault> {
        if word.address == class::LoadInlineData::ADDRESS {
            let Some(upload) = &mut self.upload else {
                return Err(word.fault("more inline data than the upload expects"));
            };
            if upload.data(word.data, view, effects)? {
                self.upload = None;
            }
            return Ok(Flow::Done);
        }
        DECODER.check(word)?;
        self.shadow.set(word);
        match word.address {
            class::LaunchDma::ADDRESS => {
                self.finish_upload(word)?;
                let upload = InlineUpload::launch(word, &self.shadow, view)?;
                if let Some(checker) = self.sms.checker() {
                    upload.check(checker, view);
                }
                self.upload = Some(upload);
            }
            class::SendSignalingPcasB::ADDRESS | class::SendSignalingPcas2B::ADDRESS => {
                self.finish_upload(word)?;
                return self.pcas(word, view);
            }
            class::SetReportSemaphoreD::ADDRESS => {
                let (write, flush) = self.report(word)?;
                return self.release(word, &write, flush, view);
            }
            class::ReportSemaphoreExecute::ADDRESS => {
                let (write, flush) = self.report_execute(word)?;
                return self.release(word, &write, flush, view);
            }
            class::WaitForIdle::ADDRESS
            | class::InvalidateShaderCaches::ADDRESS
            | class::InvalidateTextureHeaderCache::ADDRESS
            | class::InvalidateTextureDataCache::ADDRESS
            | class::InvalidateSamplerCache::ADDRESS
            | class::PmTriggerWfi::ADDRESS => {
                if !self.is_idle() {
                    return Ok(Flow::Wait(Wait::Idle));
                }
                if let Some(watch) = view.watch() {
                    watch.waited_for_idle();
                    invalidate(word, watch);
                }
            }
            class::InvalidateShaderCachesNoWfi::ADDRESS => {
                if let Some(watch) = view.watch() {
                    invalidate(word, watch);
                }
            }
            class::InvalidateSkedCaches::ADDRESS => self.sked.invalidate_all(),
            class::SetGlobalRenderEnableC::ADDRESS
                if class::SetGlobalRenderEnableC::decode(word.data).mode
                    != class::SetGlobalRenderEnableCMode::True =>
            {
                return Err(word.fault("conditional rendering is not modelled"));
            }
            class::SetRenderEnableC::ADDRESS
                if class::SetRenderEnableC::decode(word.data).mode != class::SetRenderEnableCMode::True =>
            {
                return Err(word.fault("conditional rendering is not modelled"));
            }
            class::SetRenderEnableOverride::ADDRESS
                if class::SetRenderEnableOverride::decode(word.data).mode
                    == class::SetRenderEnableOverrideMode::NeverRender =>
            {
                return Err(word.fault("conditional rendering is not modelled"));
            }
            _ => {}
        }
        Ok(Flow::Done)
    }

    /// A launch in the middle of an upload is refused.
    fn finish_upload(&self, word: MethodWord) -> Result<(), ChannelFault> {
        if self.upload.is_some() {
            return Err(word.fault("the previous inline upload is incomplete"));
        }
        Ok(())
    }

    /// SEND_SIGNALING_PCAS_B and PCAS2_B: an action on the launch descriptor of SEND_PCAS_A.
    fn pcas(&mut self, word: MethodWord, view: &View) -> Result<Flow, ChannelFault> {
        use PcasAction as Action;

        let va = u64::from(self.shadow.get::<class::SendPcasA>().qmd_address_shifted8) << 8;
        let action = if word.address == class::SendSignalingPcasB::ADDRESS {
            let send = class::SendSignalingPcasB::decode(word.data);
            if send.invalidate {
                self.sked.invalidate(va)?;
            }
            if send.schedule { Action::Schedule } else { Action::Nop }
        } else {
            let send = class::SendSignalingPcas2B::decode(word.data);
            if send.select != 0 || send.offset_minus_one != 0 {
                return Err(
                    word.fault("SELECT and OFFSET_MINUS_ONE belong to counters, which are not modelled")
                );
            }
            send.pcas_action
        };
        let is_in = |list: &[u8]| list.iter().any(|number| u32::from(*number) == action.bits());
        if is_in(&self.quirks.inert_pcas_actions) {
            return Ok(Flow::Done);
        }
        if is_in(&self.quirks.hanging_pcas_actions) {
            self.sked.hang(va);
            return Ok(Flow::Done);
        }
        if !self.sked.has_room() {
            return Ok(Flow::Wait(Wait::Idle));
        }
        let environment = self.environment();
        if let Some(watch) = view.watch() {
            check_proven(word, action, va, watch);
        }
        match action {
            Action::Nop => {}
            Action::Invalidate => self.sked.invalidate(va)?,
            Action::Prefetch => self.sked.prefetch(va, view)?,
            Action::Schedule => self.sked.schedule(va, Scheduling::InPlace, environment, view)?,
            Action::PrefetchSchedule => {
                self.sked.prefetch(va, view)?;
                self.sked.schedule(va, Scheduling::InPlace, environment, view)?;
            }
            Action::InvalidateCopySchedule | Action::InvalidatePrefetchCopySchedule => {
                self.sked.schedule(va, Scheduling::Copy, environment, view)?;
            }
            Action::IncrementDependence => self.sked.increment(va, view)?,
            Action::DecrementDependence => self.sked.decrement(va, environment, view)?,
            Action::IncrementPut => {
                return Err(
                    word.fault("INCREMENT_PUT belongs to queues of descriptors, which are not modelled")
                );
            }
            Action::InvalidatePrefetchCopyForceRequireScheduling | Action::IncrementCwdRefCounter => {
                return Err(word.fault("the PCAS action is not modelled: no public source says what it does"));
            }
            Action::Unknown(_) => return Err(word.fault("there is no such PCAS action")),
        }
        Ok(Flow::Done)
    }

    /// The part of the class state that a launch uses.
    fn environment(&self) -> Environment {
        let shadow = &self.shadow;
        Environment {
            shared_window: join(
                shadow.get::<class::SetShaderSharedMemoryWindowA>().base_address_upper,
                shadow.get::<class::SetShaderSharedMemoryWindowB>().base_address,
            ),
            local_window: join(
                shadow.get::<class::SetShaderLocalMemoryWindowA>().base_address_upper,
                shadow.get::<class::SetShaderLocalMemoryWindowB>().base_address,
            ),
            local_memory: join(
                shadow.get::<class::SetShaderLocalMemoryA>().address_upper,
                shadow.get::<class::SetShaderLocalMemoryB>().address_lower,
            ),
            local_bytes_per_tpc: join(
                shadow.get::<class::SetShaderLocalMemoryNonThrottledA>().size_upper,
                shadow.get::<class::SetShaderLocalMemoryNonThrottledB>().size_lower,
            ),
            sm_count: self.sms.count(),
            textures: self.textures(),
        }
    }

    /// The tables of texture headers and samplers, if the channel has set them.
    fn textures(&self) -> Tables {
        let shadow = &self.shadow;
        let table = |upper, lower, last| {
            let va = join(upper, lower);
            (va != 0).then_some(Table { va, last })
        };
        Tables {
            headers: table(
                shadow.get::<class::SetTexHeaderPoolA>().offset_upper,
                shadow.get::<class::SetTexHeaderPoolB>().offset_lower,
                shadow.get::<class::SetTexHeaderPoolC>().maximum_index,
            ),
            samplers: table(
                shadow.get::<class::SetTexSamplerPoolA>().offset_upper,
                shadow.get::<class::SetTexSamplerPoolB>().offset_lower,
                shadow.get::<class::SetTexSamplerPoolC>().maximum_index,
            ),
            // The descriptor of each launch says it.
            sampler_by_header: false,
        }
    }

    /// Returns the write of SET_REPORT_SEMAPHORE_D, and whether it flushes.
    fn report(&self, word: MethodWord) -> Result<(SemaphoreWrite, bool), ChannelFault> {
        let report = class::SetReportSemaphoreD::decode(word.data);
        if report.operation != class::SetReportSemaphoreDOperation::Release
            || report.conditional_trap
            || report.awaken_enable
        {
            return Err(word.fault("only plain releases of report semaphores are modelled"));
        }
        let structure = match report.structure_size {
            class::SetReportSemaphoreDStructureSize::OneWord => Structure::OneWord,
            _ => Structure::FourWords,
        };
        let reduction = if report.reduction_enable {
            let operation =
                Operation::of::<class::SetReportSemaphoreD>("REDUCTION_OP", report.reduction_op.bits())
                    .ok_or_else(|| word.fault("there is no such REDUCTION_OP"))?;
            let signed = report.reduction_format == class::SetReportSemaphoreDReductionFormat::Signed32;
            Some(Reduction { operation, signed })
        } else {
            None
        };
        let write = SemaphoreWrite {
            va: join(
                self.shadow.get::<class::SetReportSemaphoreA>().offset_upper,
                self.shadow.get::<class::SetReportSemaphoreB>().offset_lower,
            ),
            payload: u64::from(self.shadow.get::<class::SetReportSemaphoreC>().payload),
            wide: false,
            structure,
            reduction,
        };
        Ok((write, !report.flush_disable))
    }

    /// Returns the write of REPORT_SEMAPHORE_EXECUTE, which supports 64-bit payloads, and whether it flushes.
    fn report_execute(&self, word: MethodWord) -> Result<(SemaphoreWrite, bool), ChannelFault> {
        let report = class::ReportSemaphoreExecute::decode(word.data);
        if report.operation != class::ReportSemaphoreExecuteOperation::Release
            || report.trap_type != class::ReportSemaphoreExecuteTrapType::TrapNone
            || report.awaken_enable
        {
            return Err(word.fault("only plain releases of report semaphores are modelled"));
        }
        let structure = match report.structure_size {
            class::ReportSemaphoreExecuteStructureSize::SemaphoreFourWords => Structure::FourWords,
            class::ReportSemaphoreExecuteStructureSize::SemaphoreOneWord => Structure::OneWord,
            class::ReportSemaphoreExecuteStructureSize::SemaphoreTwoWords => Structure::TwoWords,
            class::ReportSemaphoreExecuteStructureSize::Unknown(_) => {
                return Err(word.fault("there is no such STRUCTURE_SIZE"));
            }
        };
        let reduction = if report.reduction_enable {
            let bits = report.reduction_op.bits();
            let operation = Operation::of::<class::ReportSemaphoreExecute>("REDUCTION_OP", bits)
                .ok_or_else(|| word.fault("there is no such REDUCTION_OP"))?;
            let signed = report.reduction_format == class::ReportSemaphoreExecuteReductionFormat::Signed;
            Some(Reduction { operation, signed })
        } else {
            None
        };
        let upper = self.shadow.get::<class::SetReportSemaphorePayloadUpper>().payload_upper;
        let write = SemaphoreWrite {
            va: join(
                self.shadow.get::<class::SetReportSemaphoreAddressUpper>().upper,
                self.shadow.get::<class::SetReportSemaphoreAddressLower>().lower,
            ),
            payload: join(
                if report.payload_size64 { upper } else { 0 },
                self.shadow.get::<class::SetReportSemaphorePayloadLower>().payload_lower,
            ),
            wide: report.payload_size64,
            structure,
            reduction,
        };
        Ok((write, !report.flush_disable))
    }

    /// A flushing report semaphore is ordered after earlier work. The headers do not say so; this follows the name.
    fn release(
        &self,
        word: MethodWord,
        write: &SemaphoreWrite,
        flush: bool,
        view: &View,
    ) -> Result<Flow, ChannelFault> {
        if let Some(reason) = write.refusal() {
            return Err(word.fault(format!("semaphore at {:#x}: {reason}", write.va)));
        }
        if flush {
            if !self.is_idle() {
                return Ok(Flow::Wait(Wait::Idle));
            }
            if let Some(watch) = view.watch() {
                watch.waited_for_idle();
            }
        }
        fence(Ordering::SeqCst);
        write.perform(view).map_err(|fault| ChannelFault::Mmu { client: "compute", fault })?;
        Ok(Flow::Done)
    }
}

/// Strict mode: reports an action that no board has been seen to accept.
fn check_proven(word: MethodWord, action: PcasAction, va: u64, watch: &Watch) {
    if word.address == class::SendSignalingPcasB::ADDRESS {
        watch.unproven(Encoding::OlderPcas, va);
    } else if action != PcasAction::Nop && CHIP.launch_action_seen(action) != Seen::Board {
        watch.unproven(Encoding::PcasAction(action.bits()), va);
    }
}

/// Strict mode: records the shader caches that a method invalidates.
fn invalidate(word: MethodWord, watch: &Watch) {
    let caches = match word.address {
        class::InvalidateShaderCaches::ADDRESS => {
            let which = class::InvalidateShaderCaches::decode(word.data);
            [which.instruction, which.data, which.constant]
        }
        class::InvalidateShaderCachesNoWfi::ADDRESS => {
            let which = class::InvalidateShaderCachesNoWfi::decode(word.data);
            [which.instruction, which.global_data, which.constant]
        }
        _ => return,
    };
    for (invalidated, cache) in caches.into_iter().zip([Cache::Instructions, Cache::Data, Cache::Constants]) {
        if invalidated {
            watch.invalidate(cache);
        }
    }
}
