//! Kernel-mode submission (`common/fifo/submit.c`, `channel_setup_kernelmode`): the kernel owns ring, USERD and
//! doorbell, and fences user-space work with a syncpoint of the channel.
//!
//! An entry can become up to three in the ring: an acquire of the fence to wait for before it, and an increment after
//! it. Both use a buffer of the kernel, in the slot of their ring entry. The slot is free again when the ring entry is.

use std::sync::Arc;
use std::time::Duration;

use ampere_cmd::Encoder;
use ampere_cmd::command::{AcquireCondition, Payload, SemaphoreAcquire, SemaphoreRelease};
use ampere_cmd::gpfifo::{Entry, Segment, userd};
use gpu_log::ChannelLine;
use nvgpu_sys::channel::{AllocGpfifoExR39, Gpfifo, SetupBind, SubmitFlags, SubmitGpfifo};
use nvgpu_sys::ctrl::{USERMODE_DOORBELL, USERMODE_PAGE_SIZE};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::gpu::{ChannelGroup, ChannelSetup};
use crate::memory::Memory;

use super::address_space::{Space, SpaceId};
use super::channel::Ring;
use super::fence::{SyncFile, Threshold};
use super::log::Log;
use super::process::fds::{self, Fresh, Object};
use super::process::task::Task;
use super::syncpoint::{Syncpoints, UserSyncpoint, WINDOW_BYTES};
use super::watchdog::{Progress, Timer};
use super::{Kernel, State};

/// Entries that every submit needs in addition to its own.
const EXTRA_ENTRIES: u32 = 2;
/// Size of a slot of the command buffer in bytes.
const SLOT_BYTES: u64 = 32;
/// The fence descriptor that means no fence.
const NO_FENCE: u32 = u32::MAX;

/// A ring of the kernel.
#[derive(Debug)]
pub(super) struct KernelRing {
    entries: u32,
    ring: Arc<Memory>,
    userd: Arc<Memory>,
    commands: Arc<Memory>,
    /// First address of the command buffer.
    pub(super) commands_va: u64,
    put: u32,
    /// The syncpoint that counts finished work, and its value after all work; created by the first job.
    pub(super) fence: Option<(UserSyncpoint, u32)>,
    /// Maximum number of unfinished tracked jobs; `None` if only the ring limits it.
    jobs: Option<u32>,
    /// Time limit of an acquire.
    pub(super) acquire_limit: Option<Duration>,
    /// The state at the last check.
    pub(super) progress: Option<Progress>,
    /// The timer of the watchdog, if it runs.
    pub(super) timer: Option<Timer>,
}

/// A fence that a submit returns.
struct Returned {
    id: u32,
    threshold: u32,
    /// The descriptor for it.
    file: Option<Fresh>,
}

impl KernelRing {
    /// Creates a ring in an address space. `jobs` is the maximum number of unfinished jobs; 0 means no limit.
    pub(super) fn new(
        space: &mut Space,
        entries: u32,
        jobs: u32,
        acquire_limit: Option<Duration>,
    ) -> Result<(Self, u64), Errno> {
        let memory = |name, bytes: u64| {
            let bytes = usize::try_from(bytes.next_multiple_of(4096)).map_err(|_| Errno::NOMEM)?;
            Memory::new(name, bytes).map(Arc::new).map_err(|_| Errno::NOMEM)
        };
        let ring = memory("nvgpu gpfifo", u64::from(entries) * 8)?;
        let commands = memory("nvgpu commands", u64::from(entries) * SLOT_BYTES)?;
        let userd = memory("nvgpu userd", 4096)?;
        let va = space.map_kernel_memory(&ring)?;
        let commands_va = space.map_kernel_memory(&commands).inspect_err(|_| space.unmap_kernel(va))?;
        let jobs = (jobs > 0).then_some(jobs);
        let (fence, progress, timer) = (None, None, None);
        let ring = Self {
            entries,
            ring,
            userd,
            commands,
            commands_va,
            put: 0,
            fence,
            jobs,
            acquire_limit,
            progress,
            timer,
        };
        Ok((ring, va))
    }

    pub(super) fn setup(&self, channel_id: u32, group: ChannelGroup, space: &Space) -> ChannelSetup {
        ChannelSetup {
            channel_id,
            ring: Arc::clone(&self.ring),
            ring_entries: self.entries,
            userd: Arc::clone(&self.userd),
            address_space: Arc::clone(&space.mmu),
            group,
        }
    }

    /// The next entry that the GPU fetches.
    pub(super) fn gp_get(&self) -> u32 {
        self.userd.load(userd::GP_GET as usize)
    }

    /// Returns whether one more tracked job fits.
    fn has_job_slot(&self, syncpoints: &Syncpoints) -> bool {
        let (Some(jobs), Some((syncpoint, end))) = (self.jobs, self.fence) else { return true };
        // A syncpoint that was advanced beyond the end has no jobs left.
        let left = end.wrapping_sub(syncpoints.value(syncpoint.id)).cast_signed();
        left < jobs.cast_signed().max(1)
    }

    /// Number of entries that can be added now.
    fn room(&self) -> u32 {
        let get = self.gp_get();
        // One entry stays empty to distinguish full from empty.
        (get + self.entries - self.put - 1) % self.entries
    }

    fn push(&mut self, entry: Gpfifo) {
        // CAST: inside the ring's memory.
        let at = self.put as usize * 8;
        self.ring.store(at, entry.entry0);
        self.ring.store(at + 4, entry.entry1);
        self.put = (self.put + 1) % self.entries;
    }

    /// Adds commands of the kernel.
    fn push_commands(&mut self, words: &[u32]) -> Result<(), Errno> {
        let slot = u64::from(self.put) * SLOT_BYTES;
        for (at, word) in words.iter().enumerate() {
            // CAST: inside the command buffer.
            self.commands.store(slot as usize + at * 4, *word);
        }
        // CAST: a slot holds 8 words.
        let segment = Segment::new(self.commands_va + slot, words.len() as u32);
        let entry = Entry::from(segment).encode().map_err(|_| Errno::INVAL)?;
        // CAST: the two halves.
        self.push(Gpfifo { entry0: entry as u32, entry1: (entry >> 32) as u32 });
        Ok(())
    }
}

fn acquire(va: u64, threshold: u32) -> Option<Vec<u32>> {
    let acquire = SemaphoreAcquire {
        va,
        payload: Payload::Bits32(threshold),
        condition: AcquireCondition::CircularGreaterOrEqual,
        switch_tsg: true,
    };
    let mut encoder = Encoder::new(Vec::new());
    encoder.semaphore_acquire(&acquire).ok()?;
    Some(encoder.into_sink())
}

fn increment(va: u64, wait_for_idle: bool) -> Option<Vec<u32>> {
    let release = SemaphoreRelease { va, payload: Payload::Bits32(0), wait_for_idle, timestamp: false };
    let mut encoder = Encoder::new(Vec::new());
    encoder.semaphore_release(&release).ok()?;
    Some(encoder.into_sink())
}

impl State {
    /// The checks of SUBMIT_GPFIFO before anything is read.
    fn submit_checks(&self, (id, serial): (u32, u64), args: &SubmitGpfifo) -> Result<SpaceId, Errno> {
        if self.quiesced {
            return Err(Errno::NODEV);
        }
        let State { channels, syncpoints, .. } = self;
        let found = channels.get(&id).filter(|channel| channel.serial == serial);
        let channel = found.ok_or(Errno::TIMEDOUT)?;
        let ring = match &channel.ring {
            Some(Ring { kernel: Some(ring), .. }) => ring,
            Some(_) => return Err(Errno::INVAL),
            None => return Err(Errno::NOMEM),
        };
        let space = channel.space.ok_or(Errno::INVAL)?;
        let wanted = args.num_entries.checked_add(EXTRA_ENTRIES).ok_or(Errno::NOMEM)?;
        if wanted > ring.entries - 1 {
            return Err(Errno::NOMEM);
        }
        let flags = SubmitFlags::from_bits_retain(args.flags);
        let sync_fence = SubmitFlags::FENCE_GET.union(SubmitFlags::SYNC_FENCE);
        let untracked = flags.contains(SubmitFlags::SKIP_BUFFER_REFCOUNTING)
            && !flags.contains(sync_fence)
            && !channel.watchdog.on
            && !channel.railgating;
        if channel.deterministic && !untracked {
            return Err(Errno::INVAL);
        }
        let tracked = !channel.deterministic || flags.contains(SubmitFlags::FENCE_GET);
        let full = ring.room() < wanted || tracked && !ring.has_job_slot(syncpoints);
        if full { Err(Errno::AGAIN) } else { Ok(space) }
    }

    /// What a submit waits for.
    fn to_wait_for(&self, task: &Task<'_>, args: &SubmitGpfifo) -> Result<Vec<Threshold>, Errno> {
        let flags = SubmitFlags::from_bits_retain(args.flags);
        if !flags.contains(SubmitFlags::FENCE_WAIT) {
            return Ok(Vec::new());
        }
        if !flags.contains(SubmitFlags::SYNC_FENCE) {
            let fence = self.syncpoints.fence(args.fence.id, args.fence.value, None)?;
            return Ok(fence.threshold().into_iter().collect());
        }
        if args.fence.id == NO_FENCE {
            return Ok(Vec::new());
        }
        match self.fds.get(task, args.fence.id.cast_signed()) {
            Some(Object::SyncFile(file)) => file.thresholds(),
            _ => Err(Errno::INVAL),
        }
    }

    /// Adds the work to the ring. Returns the fence for its end, if requested.
    fn enqueue(
        &mut self,
        task: &Task<'_>,
        log: &Log,
        (id, serial): (u32, u64),
        args: &SubmitGpfifo,
    ) -> Result<Option<(u32, u32)>, Errno> {
        let space_id = self.submit_checks((id, serial), args)?;
        let waits = self.to_wait_for(task, args)?;
        let mut entries = vec![Gpfifo::default(); args.num_entries as usize];
        task.read_bytes(args.gpfifo, entries.as_mut_bytes())?;
        let flags = SubmitFlags::from_bits_retain(args.flags);
        let State { spaces, channels, syncpoints, .. } = self;
        let space = spaces.get_mut(&space_id).ok_or(Errno::INVAL)?;
        let channel = channels.get_mut(&id).ok_or(Errno::TIMEDOUT)?;
        let tracked = !channel.deterministic || flags.contains(SubmitFlags::FENCE_GET);
        let Some(Ring { kernel: Some(ring), .. }) = &mut channel.ring else { return Err(Errno::NOMEM) };
        if tracked && ring.fence.is_none() {
            let syncpoint = syncpoints.take(space).map_err(|_| Errno::NOMEM)?;
            ring.fence = Some((syncpoint, syncpoints.value(syncpoint.id)));
        }
        let beyond = |va: u64| {
            log.model(ChannelLine::SyncpointAboveLimit { address: va });
            Errno::INVAL
        };
        let mut wait_words = Vec::new();
        for Threshold { id, threshold } in waits {
            let va = syncpoints.read_only_map(space)? + u64::from(id) * WINDOW_BYTES;
            wait_words.push(acquire(va, threshold).ok_or_else(|| beyond(va))?);
        }
        // The checks have counted one; a board has the waits for all fences in one entry.
        if wait_words.len() > 1 && (ring.room() as usize) < wait_words.len() + entries.len() + 1 {
            return Err(Errno::AGAIN);
        }
        let wait_for_idle = !flags.contains(SubmitFlags::SUPPRESS_WFI);
        let done = match ring.fence.as_mut().filter(|_| tracked) {
            Some((syncpoint, value)) => {
                let words = increment(syncpoint.va, wait_for_idle).ok_or_else(|| beyond(syncpoint.va))?;
                *value = value.wrapping_add(1);
                Some((syncpoint.id, *value, words))
            }
            None => None,
        };
        for words in wait_words {
            ring.push_commands(&words)?;
        }
        entries.into_iter().for_each(|entry| ring.push(entry));
        let mut fence = None;
        if let Some((id, value, words)) = done {
            ring.push_commands(&words)?;
            fence = Some((id, value));
        }
        ring.userd.store(userd::GP_PUT as usize, ring.put);
        if let Some((syncpoint, end)) = ring.fence.filter(|_| tracked) {
            let reached = syncpoints.value(syncpoint.id);
            // The channel was idle if only the new job is left.
            let idle = end.wrapping_sub(reached) <= 1;
            if channel.watchdog.on && (idle || ring.timer.is_none()) {
                ring.timer = Some(Timer::start(&channel.watchdog, Progress::new(ring.gp_get(), reached)));
            } else if idle {
                ring.timer = None;
            }
        }
        Ok(fence)
    }
}

impl Kernel {
    /// ALLOC_GPFIFO_EX: SETUP_BIND whose only output is the channel's id, which up to R36 is not copied out.
    pub(super) fn alloc_gpfifo(
        &self,
        task: &Task<'_>,
        channel: (u32, u64),
        args: &mut AllocGpfifoExR39,
    ) -> Result<(), Errno> {
        let mut setup = SetupBind {
            num_gpfifo_entries: args.num_entries,
            num_inflight_jobs: args.num_inflight_jobs,
            // This request does not have the other flags.
            flags: args.flags & nvgpu_sys::channel::AllocGpfifoExFlags::all().bits(),
            ..SetupBind::default()
        };
        self.setup_bind(task, channel, &mut setup)?;
        args.hw_channel_id = channel.0;
        Ok(())
    }

    /// SUBMIT_GPFIFO.
    pub(super) fn submit(
        &self,
        task: &Task<'_>,
        channel: (u32, u64),
        args: &mut SubmitGpfifo,
    ) -> Result<(), Errno> {
        if self.state.lock().channel(channel.0, channel.1)?.unserviceable {
            return Err(Errno::TIMEDOUT);
        }
        let flags = SubmitFlags::from_bits_retain(args.flags);
        let sync_file = flags.contains(SubmitFlags::FENCE_GET.union(SubmitFlags::SYNC_FENCE));
        let file = if sync_file { Some(fds::readable(task, |_| "sync_file".to_owned())?) } else { None };
        let fence = self.state.lock().enqueue(task, &self.log, channel, args)?;
        if let Some((id, threshold)) = fence.filter(|_| flags.contains(SubmitFlags::FENCE_GET)) {
            self.give_fence(task, Returned { id, threshold, file }, args)?;
        }
        if self.state.lock().channel(channel.0, channel.1)?.watchdog.on {
            self.start_watchdog();
        }
        self.ring_doorbell(channel.0)
    }

    fn give_fence(&self, task: &Task<'_>, fence: Returned, args: &mut SubmitGpfifo) -> Result<(), Errno> {
        let Returned { id, threshold, file } = fence;
        (args.fence.id, args.fence.value) = (id, threshold);
        if let Some(file) = file {
            let mut state = self.state.lock();
            let fence = state.syncpoints.fence(id, threshold, Some(self.config.fence_timeout))?;
            args.fence.id =
                state.fds.insert(task, file, Object::SyncFile(SyncFile::new(fence)))?.cast_unsigned();
            args.fence.value = 0;
        }
        Ok(())
    }

    /// Rings the kernel's own doorbell.
    fn ring_doorbell(&self, token: u32) -> Result<(), Errno> {
        let page = self.state.lock().doorbell.clone();
        let page = match page {
            Some(page) => page,
            None => {
                let page = Arc::new(Memory::new("nvgpu usermode page", USERMODE_PAGE_SIZE)?);
                self.gpu(|gpu| gpu.add_doorbell_page(Arc::clone(&page)));
                self.state.lock().doorbell.insert(page).clone()
            }
        };
        page.store(USERMODE_DOORBELL, token);
        Ok(())
    }
}
