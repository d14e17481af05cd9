//! Configuration of the modelled board and of injected faults.

use core::time::Duration;
use std::collections::BTreeMap;

use nvgpu_sys::ctrl::Characteristics;
use nvgpu_sys::{Release, address_space, ctrl};
use rustix::io::Errno;

use crate::board::{Profile, SMS_PER_TPC};
use crate::check::{Checker, Tools};
use crate::chip::CHIP;
use crate::kernel_profile::Profiler;
use crate::quirks::Quirks;
use crate::release::{self, available_from_environment};
use crate::segments::SegmentWatcher;
use crate::settings::{SETTINGS_VARIABLE, Settings, SettingsError};
use crate::sm::{SmOptions, Tier};

/// Whether a device node can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Node {
    /// Present and accessible.
    #[default]
    Present,
    /// Absent: ENOENT, as on a machine without the driver.
    Absent,
    /// Present, but the caller is not in group `video`: EACCES.
    Denied,
    /// Present with mode 0440: EACCES unless it is opened for reading only.
    ReadOnly,
}

/// The device nodes that can be missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nodes {
    /// `/dev/nvgpu/igpu0/ctrl` and its older name.
    pub ctrl: Node,
    /// `/dev/nvmap`.
    pub nvmap: Node,
    /// `/dev/host1x-fence`.
    pub host1x_fence: Node,
    /// `/dev/kmsg`; on most systems ordinary users cannot read it.
    pub kernel_log: Node,
    /// `/dev/udmabuf`. Whether the kernel of a board has it was not seen.
    pub udmabuf: Node,
    /// `/dev/dma_heap/system`; as above.
    pub dma_heap: Node,
}

/// A call that can be made to fail: a system call, or one of the kernel's to another driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Opening any node.
    Open,
    /// The request with this code, e.g. `nvgpu_sys::nvmap::code::ALLOC`.
    Ioctl(u32),
    /// Mapping any descriptor.
    Mmap,
    /// Attaching the GPU to a dma-buf (`dma_buf_attach`), before the GPU's access to its memory.
    Attach,
    /// The exporter's answer to such an attachment (`dma_buf_map_attachment`), from which the GPU gets its addresses.
    MapAttachment,
}

/// An injected failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The call.
    pub call: Call,
    /// Which of these calls fails: 1 is the next one after the failure was requested.
    pub nth: u64,
    /// The errno of the call, which has no other effect.
    pub errno: Errno,
}

/// A request that always fails, as on a board whose driver refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Code of the request.
    pub request: u32,
    /// The words of the argument that it fails for; any argument if `None`.
    pub argument: Option<Vec<u32>>,
    /// The errno of the request, which has no other effect.
    pub errno: Errno,
}

/// The order in which the kernel handles two interrupts of one refused access: the MMU's, and the exception of the SM.
/// It depends on which one is pending first (`hal/mc/mc_intr_ga10b_fusa.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MmuOrder {
    /// By [`Config::seed`] and the number of the fault; always [`MmuOrder::MmuFirst`] for seed 0.
    #[default]
    BySeed,
    /// The lines of the MMU, then notifier 31.
    MmuFirst,
    /// The lines of the SM, notifier 13, recovery, then the lines of the MMU.
    SmFirst,
}

impl MmuOrder {
    /// Whether the SM's exception comes first for fault number `fault`.
    pub(crate) fn sm_first(self, seed: u64, fault: u64) -> bool {
        match self {
            Self::MmuFirst => false,
            Self::SmFirst => true,
            Self::BySeed => seed != 0 && draw(seed, fault) & 1 == 1,
        }
    }
}

/// Injected disturbances for correct requests. All counts start at boot, so equal plans and seeds disturb equal runs
/// equally.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Duration of the first request that needs the GPU, which powers it up.
    pub power_up: Duration,
    /// Numbers of the doorbell writes that are lost; 1 is the first. Two tokens that are written before the GPU polls
    /// count as one.
    pub lost_doorbells: Vec<u64>,
    /// Periods in which the engines make no progress.
    pub stalls: Vec<Stall>,
    /// Time that host needs for each 128 bytes of a pushbuffer. Memory that a program changes or unmaps while host
    /// still fetches from it then causes errors in every run, not only in rare ones.
    pub slow_fetch: Duration,
    /// The order of the reports about an access of an SM that the MMU refuses.
    pub mmu_order: MmuOrder,
    /// The fault type that the MMU reports for each refused access (`NV_PFAULT_FAULT_TYPE_*`), instead of the model's
    /// own. No access on the model has the causes of most types.
    pub mmu_type: Option<u32>,
    /// Delay of lines after the notifier: the debug dump and, with [`MmuOrder::SmFirst`], those of the MMU. On a board
    /// with a serial console it is 0.2 to 3 seconds. With zero the dump precedes the notifier's line.
    pub late_lines: Duration,
    /// Faults appear in error notifiers as usual, but not in the kernel log.
    pub silent_faults: bool,
    /// Requests that fail at random.
    pub random: Option<RandomFailures>,
}

/// A temporary stall of the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Number of the doorbell write, counted from 1, at which it starts.
    pub doorbell: u64,
    /// Duration.
    pub length: Duration,
}

/// Random failures of requests, determined by [`Config::seed`] and the number of the request.
///
/// ```
/// use kernel_door::Errno;
/// use orin_sim::RandomFailures;
///
/// let failures = RandomFailures { per_mille: 10, errno: Errno::INTR };
/// let count = (0..100_000).filter(|request| failures.hits(7, *request)).count();
/// assert!((500..2000).contains(&count));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomFailures {
    /// Failure rate, per 1000 requests.
    pub per_mille: u16,
    /// The errno of the request, which has no other effect.
    pub errno: Errno,
}

impl RandomFailures {
    /// Returns whether request number `request` fails.
    pub fn hits(&self, seed: u64, request: u64) -> bool {
        draw(seed, request) % 1000 < u64::from(self.per_mille)
    }
}

/// A pseudorandom number (SplitMix64): equal inputs give equal outputs, and adjacent inputs give unrelated outputs.
pub(crate) fn draw(seed: u64, number: u64) -> u64 {
    let mut state = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// The modelled board and its kernel. The default is a Jetson AGX Orin 64 GB in its mode MAXN, with 16 SMs, and the
/// kernel of L4T R36.4.3; [`Config::of`] and [`Config::with_release`] make others.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kernel's release. [`Config::with_release`] changes it and the fields that depend on it.
    pub release: Release,
    /// System memory in bytes; the sum of all nvmap allocations cannot exceed it.
    pub memory_bytes: u64,
    /// Length of the longest free range of system memory in bytes; a larger buffer is refused with ENOMEM.
    pub largest_free_range: u64,
    /// Memory that is available to nvmap at boot (`MemAvailable` of `/proc/meminfo` less `CmaFree`), in bytes; all
    /// memory if `None`. Allocations reduce it.
    pub available_bytes: Option<u64>,
    /// Protected memory (VPR carveout) in bytes. The carveout exists on a real board; its size is an assumption.
    pub vpr_bytes: u64,
    /// The result of GET_CHARACTERISTICS, except the instance id. The `*_ioctl_nr_last` fields also limit the request
    /// numbers that the nodes accept, as in an older driver.
    pub characteristics: Characteristics,
    /// TPCs per GPC position, one bit per TPC; a TPC has two SMs.
    pub tpc_masks: [u32; 2],
    /// Clock of the GPU in Hz while no request sets another: the limit of the power mode.
    pub clock_hz: u64,
    /// The available nodes.
    pub nodes: Nodes,
    /// Determines the random properties of a freshly booted board, such as the first handle number and the time-slice
    /// group served first. Equal seeds behave equally. 0 is a board that has run nothing before.
    pub seed: u64,
    /// Whether the process has CAP_SYS_NICE, which RESCHEDULE_RUNLIST requires.
    pub cap_sys_nice: bool,
    /// Time limit of a sync-file of `/dev/host1x-fence`, from the first poll, before it ends with ETIMEDOUT.
    pub fence_timeout: Duration,
    /// Options of the SM model.
    pub sm: SmOptions,
    /// Duration for which all channels with work must wait for semaphores, without other progress, before the kernel
    /// log lists the waiters.
    pub deadlock_after: Duration,
    /// Period after which the kernel counts a context-switch time-out of a TSG that keeps the graphics engine although
    /// another one waits. The 31st ends the TSG, as on a board; its period is 100 ms.
    pub switch_timeout: Duration,
    /// Disturbances.
    pub faults: FaultPlan,
    /// Injected failures.
    pub failures: Vec<Failure>,
    /// Requests that always fail.
    pub refusals: Vec<Refusal>,
    /// Shortest durations of requests, by code, as measured on a board.
    pub request_times: BTreeMap<u32, Duration>,
    /// Time from the GPU's interrupt until an event of a TSG happens, as measured on a board.
    pub event_latency: Duration,
    /// Encodings of launches that do not work.
    pub quirks: Quirks,
    /// Receives the pushbuffer segments that channels fetch.
    pub segments: Option<SegmentWatcher>,
}

impl Default for Config {
    fn default() -> Self {
        Self::of(Profile::default())
    }
}

impl Config {
    /// A board in one of its power modes, without faults and failures.
    pub fn of(profile: Profile) -> Self {
        let config = Self {
            release: Release::R36_4_3,
            memory_bytes: profile.board.memory_bytes,
            largest_free_range: u64::MAX,
            available_bytes: None,
            vpr_bytes: 64 << 20,
            characteristics: characteristics(profile),
            tpc_masks: profile.mode.tpc_masks(),
            clock_hz: profile.clock_hz(),
            nodes: Nodes::default(),
            seed: 0,
            cap_sys_nice: false,
            fence_timeout: Duration::from_secs(30),
            deadlock_after: Duration::from_secs(1),
            switch_timeout: Duration::from_millis(100),
            sm: SmOptions::default(),
            faults: FaultPlan::default(),
            failures: Vec::new(),
            refusals: Vec::new(),
            request_times: BTreeMap::new(),
            event_latency: Duration::ZERO,
            quirks: Quirks::default(),
            segments: None,
        };
        config.with_release(Release::R36_4_3)
    }

    /// The same board with the kernel of this release.
    #[must_use]
    pub fn with_release(mut self, release: Release) -> Self {
        self.release = release;
        // CAST: request numbers have 8 bits.
        self.characteristics.gpu_ioctl_nr_last = release.last(ctrl::ALL) as i16;
        self.characteristics.as_ioctl_nr_last = release.last(address_space::ALL) as i16;
        self
    }

    /// The board that [`BOARD_VARIABLE`](crate::board::BOARD_VARIABLE) names, with the release of
    /// [`KERNEL_VARIABLE`](crate::release::KERNEL_VARIABLE), the available memory of
    /// [`AVAILABLE_VARIABLE`](crate::release::AVAILABLE_VARIABLE), the checks that
    /// [`CHECK_VARIABLE`](crate::check::CHECK_VARIABLE) and [`STRICT_VARIABLE`](crate::check::STRICT_VARIABLE) select,
    /// with profiles of kernels if [`PROFILE_VARIABLE`](crate::kernel_profile::PROFILE_VARIABLE) is set, and with the
    /// settings of the file that [`SETTINGS_VARIABLE`] names, which apply on top of the board.
    ///
    /// # Errors
    ///
    /// As [`Settings::read`] and [`Settings::apply`].
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::from_environment_on(Profile::from_environment()?, release::from_environment()?)
    }

    /// As [`Config::from_environment`], on this board with this release.
    ///
    /// # Errors
    ///
    /// As [`Settings::read`] and [`Settings::apply`].
    pub fn from_environment_on(profile: Profile, release: Release) -> Result<Self, SettingsError> {
        let mut config = Self::of(profile).with_release(release);
        config.available_bytes = available_from_environment()?;
        config.sm.check = Checker::from_environment()?;
        config.sm.profile = Profiler::from_environment()?;
        config.sm.tier = Tier::from_environment()?;
        if let Some(path) = std::env::var_os(SETTINGS_VARIABLE).filter(|path| !path.is_empty()) {
            Settings::read(path.as_ref())?.apply(&mut config)?;
        }
        Ok(config)
    }

    /// The same board with these checks, besides those that it has.
    #[must_use]
    pub fn with_checks(mut self, tools: Tools) -> Self {
        self.sm.check.get_or_insert_with(|| Checker::new(Tools::empty())).add_tools(tools);
        self
    }

    /// Whether one of these tools is on.
    pub(crate) fn checks(&self, tools: Tools) -> bool {
        self.sm.check.as_ref().is_some_and(|checker| checker.tools().intersects(tools))
    }

    /// Number of SMs: two per TPC (`hal_ga10b_litter.c`).
    pub fn sm_count(&self) -> u32 {
        self.tpc_masks.iter().map(|mask| SMS_PER_TPC * mask.count_ones()).sum()
    }
}

/// The characteristics that the driver reports for a board: those of [`agx_orin`], with the GPCs, TPCs, L2 partitions
/// and clock of the profile.
pub fn characteristics(profile: Profile) -> Characteristics {
    let masks = profile.mode.tpc_masks();
    let present = |mask: &&u32| **mask != 0;
    let partitions = profile.board.l2_partitions;
    let seen = agx_orin();
    let gpcs = (0..).zip(&masks).filter(|(_, mask)| present(mask));
    Characteristics {
        // CAST: at most two GPCs of four TPCs.
        num_gpc: masks.iter().filter(present).count() as u32,
        num_tpc_per_gpc: masks.iter().map(|mask| mask.count_ones()).max().unwrap_or(0),
        gpc_mask: gpcs.map(|(gpc, _)| 1 << gpc).sum(),
        l2_cache_size: u64::from(partitions.count_ones()) << 21,
        fbp_en_mask: partitions,
        num_ltc: partitions.count_ones(),
        max_freq: profile.board.max_clock_hz,
        ..seen
    }
}

/// The characteristics of a Jetson AGX Orin 64 GB, as reported by a board in its mode 30W. Values that the driver fixes
/// are those of the driver. Unobserved fields of graphics, compression and debugging are 0.
pub fn agx_orin() -> Characteristics {
    Characteristics {
        arch: 0x170,
        impl_: 0xb,
        rev: 0xa1,
        num_gpc: 1,
        numa_domain_id: -1,
        l2_cache_size: 4 << 20,
        num_tpc_per_gpc: 4,
        bus_type: 32,
        compression_page_size: 0x1_0000,
        pde_coverage_bit_count: 47,
        flags: 0x01bf_5fff_7f5d_035d,
        twod_class: 0x902d,
        threed_class: 0xc797,
        compute_class: CHIP.classes.value.compute.number,
        gpfifo_class: CHIP.classes.value.channel.number,
        inline_to_memory_class: 0xa140,
        dma_copy_class: CHIP.classes.value.copy.number,
        gpc_mask: 1,
        sm_arch_sm_version: CHIP.sm_version.0 << 8 | CHIP.sm_version.1,
        sm_arch_spa_version: 0x806,
        sm_arch_warp_count: 96,
        gpu_ioctl_nr_last: 44,
        tsg_ioctl_nr_last: 21,
        dbg_gpu_ioctl_nr_last: 33,
        ioctl_channel_nr_last: 128,
        as_ioctl_nr_last: 14,
        gpu_va_bit_count: 40,
        max_fbps_count: 2,
        fbp_en_mask: 3,
        max_ltc_per_fbp: 1,
        max_lts_per_ltc: 4,
        max_gpc_count: 2,
        chipname: *b"ga10b\0\0\0",
        num_ltc: 2,
        lts_per_ltc: 4,
        map_buffer_batch_limit: 256,
        max_freq: 1_300_000_000,
        graphics_preemption_mode_flags: 0b011,
        compute_preemption_mode_flags: 0b111,
        default_graphics_preempt_mode: 1,
        default_compute_preempt_mode: 1,
        reg_ops_limit: 1024,
        event_ioctl_nr_last: 1,
        ctxsw_ioctl_nr_last: 6,
        prof_ioctl_nr_last: 13,
        nvs_ioctl_nr_last: 3,
        max_veid_count_per_tsg: 64,
        max_gpfifo_entries: 1 << 28,
        ..Characteristics::default()
    }
}
