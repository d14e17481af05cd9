//! A GPU with an address space, a doorbell page and channels, but without a kernel.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ampere_cmd::command::{AcquireCondition, Payload, SemaphoreAcquire, SemaphoreRelease};
use ampere_cmd::gpfifo::{Entry, Segment, userd};
use ampere_cmd::{Encoder, compute_c7c0, copy_c7b5, usermode_c561};
use orin_sim::check::{Checker, Finding, Tools};
use orin_sim::gpu::{
    Activity, ChannelFault, ChannelGroup, ChannelSetup, FaultHandler, Gpu, GpuConfig, Preemption, Waiter,
};
use orin_sim::memory::Memory;
use orin_sim::mmu::{AddressSpace, MappedRange};
use orin_sim::sm::SmOptions;

/// Time limit of every wait in these tests.
const LIMIT: Duration = Duration::from_secs(20);

/// Address of `Rig::semaphores`: 64 KiB.
pub(crate) const SEMAPHORES: u64 = 0x12_0000_0000;
/// Address of the pushbuffers, 1 MiB per channel id.
const PUSHBUFFERS: u64 = 0x14_0000_0000;
const PUSHBUFFER_BYTES: u64 = 1 << 20;

/// Records the GPU's reports.
#[derive(Default)]
pub(crate) struct Recorder {
    faults: Mutex<Vec<(u32, ChannelFault)>>,
    changed: Condvar,
    interrupts: AtomicU32,
    deadlocks: Mutex<Vec<Vec<Waiter>>>,
    /// TSG of the last context-switch time-out, and the number of its time-outs in a row.
    switch_timeout: Mutex<(u32, u32)>,
}

impl FaultHandler for Recorder {
    fn fault(&self, channel_id: u32, fault: ChannelFault) {
        self.faults.lock().unwrap().push((channel_id, fault));
        self.changed.notify_all();
    }

    fn non_stall_interrupt(&self, _channel_id: u32) {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
    }

    fn switch_timeout(&self, tsg: u32, _abandoned: bool) {
        let mut seen = self.switch_timeout.lock().unwrap();
        let count = if seen.0 == tsg { seen.1 + 1 } else { 1 };
        *seen = (tsg, count);
    }

    fn deadlock(&self, waiters: &[Waiter]) {
        self.deadlocks.lock().unwrap().push(waiters.to_vec());
    }
}

pub(crate) struct Rig {
    pub(crate) gpu: Gpu,
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) page: Arc<Memory>,
    /// Memory at `SEMAPHORES`.
    pub(crate) semaphores: Arc<Memory>,
    pub(crate) checker: Option<Checker>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(GpuConfig::default())
    }

    /// A rig with the order check, which tracks all mapped memory.
    pub(crate) fn with_order_check() -> Self {
        let sm = SmOptions { check: Some(Checker::new(Tools::ORDERING)), ..SmOptions::default() };
        Self::with(GpuConfig { sm, ..GpuConfig::default() })
    }

    pub(crate) fn with(config: GpuConfig) -> Self {
        let (recorder, checker) = (Arc::new(Recorder::default()), config.sm.check.clone());
        let gpu = Gpu::start(GpuConfig { sm_count: 8, ..config }, Arc::clone(&recorder) as _).unwrap();
        let page = Arc::new(Memory::new("usermode", 0x1_0000).unwrap());
        gpu.add_doorbell_page(Arc::clone(&page));
        let space = Arc::new(AddressSpace::new());
        let semaphores = Arc::new(Memory::new("semaphores", 0x1_0000).unwrap());
        let rig = Self { gpu, space, recorder, page, semaphores, checker };
        rig.map_memory(SEMAPHORES, &rig.semaphores, true);
        rig
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.checker.as_ref().map_or_else(Vec::new, Checker::findings)
    }

    pub(crate) fn map_memory(&self, va: u64, memory: &Arc<Memory>, writable: bool) {
        self.map_as(va, memory, writable, false);
    }

    /// Maps memory, cacheable in the L2 or not.
    pub(crate) fn map_as(&self, va: u64, memory: &Arc<Memory>, writable: bool, cached: bool) {
        let (len, memory) = (memory.len() as u64, Arc::clone(memory));
        self.space.map(MappedRange { va, len, memory, offset: 0, writable, cached });
    }

    /// Maps fresh memory.
    pub(crate) fn map(&self, va: u64, len: usize) -> Arc<Memory> {
        let memory = Memory::new("data", len).unwrap();
        let memory = Arc::new(if self.checker.is_some() { memory.watched(true) } else { memory });
        self.map_memory(va, &memory, true);
        memory
    }

    pub(crate) fn write(&self, va: u64, bytes: &[u8]) {
        self.space.view().write(va, bytes).unwrap();
    }

    pub(crate) fn read(&self, va: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.space.view().read(va, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn words(&self, va: u64, count: usize) -> Vec<u32> {
        self.read(va, count * 4)
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }

    /// Waits until the word at `offset` of the semaphore memory is `value`.
    pub(crate) fn wait_for(&self, offset: usize, value: u32) {
        let deadline = Instant::now() + LIMIT;
        while self.semaphores.load(offset) != value {
            assert!(
                Instant::now() < deadline,
                "semaphore {offset:#x} is {}, not {value}; faults {:?}",
                self.semaphores.load(offset),
                self.recorder.faults.lock().unwrap()
            );
            std::thread::yield_now();
        }
    }

    /// Waits until `count` non-stall interrupts have been reported in total.
    pub(crate) fn wait_interrupts(&self, count: u32) {
        let deadline = Instant::now() + LIMIT;
        while self.recorder.interrupts.load(Ordering::Relaxed) != count {
            assert!(Instant::now() < deadline, "{:?} interrupts", self.recorder.interrupts);
            std::thread::yield_now();
        }
    }

    /// Waits for at least `count` deadlock reports and returns all of them.
    pub(crate) fn deadlocks(&self, count: usize) -> Vec<Vec<Waiter>> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let deadlocks = self.recorder.deadlocks.lock().unwrap().clone();
            if deadlocks.len() >= count {
                return deadlocks;
            }
            assert!(Instant::now() < deadline, "no deadlock was reported");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Waits until the GPU's thread has polled `count` times, which is visible in the time that it writes.
    pub(crate) fn wait_rounds(&self, count: u32) {
        use ampere_cmd::Method;
        let time = || self.page.load(usermode_c561::Time0::ADDRESS as usize);
        let (deadline, mut last) = (Instant::now() + LIMIT, time());
        for _ in 0..count {
            while time() == last {
                assert!(Instant::now() < deadline, "the time does not advance");
                std::thread::yield_now();
            }
            last = time();
        }
    }

    /// The time of the four-word semaphore at `offset`.
    pub(crate) fn time(&self, offset: usize) -> u64 {
        u64::from(self.semaphores.load(offset + 12)) << 32 | u64::from(self.semaphores.load(offset + 8))
    }

    /// Waits for the next fault and removes it.
    pub(crate) fn fault(&self) -> (u32, ChannelFault) {
        let faults = self.recorder.faults.lock().unwrap();
        let (mut faults, time) =
            self.recorder.changed.wait_timeout_while(faults, LIMIT, |faults| faults.is_empty()).unwrap();
        assert!(!time.timed_out(), "no fault was reported");
        faults.remove(0)
    }

    /// Waits until a channel's activity satisfies `condition`.
    pub(crate) fn wait_activity(&self, id: u32, condition: impl Fn(&Activity) -> bool) -> Activity {
        let deadline = Instant::now() + LIMIT;
        loop {
            let activity = self.gpu.status(id).unwrap().activity;
            if condition(&activity) {
                return activity;
            }
            assert!(Instant::now() < deadline, "channel {id} stays {activity:?}");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// A channel with compute and copy contexts and a ring of `entries`.
    pub(crate) fn channel(&self, id: u32, entries: u32) -> Ring<'_> {
        self.channel_of(ChannelGroup::alone(id), id, entries)
    }

    /// Like [`Rig::channel`], as part of a TSG.
    pub(crate) fn channel_of(&self, group: ChannelGroup, id: u32, entries: u32) -> Ring<'_> {
        let ring = self.bind(group, id, entries);
        self.gpu.set_preemption(group.tsg, Preemption::Instruction);
        self.gpu.add_object(id, u32::from(compute_c7c0::CLASS));
        self.gpu.add_object(id, u32::from(copy_c7b5::CLASS));
        ring
    }

    /// Waits until TSG `tsg` has caused `count` context-switch time-outs.
    pub(crate) fn wait_switch_timeouts(&self, tsg: u32, count: u32) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let last = *self.recorder.switch_timeout.lock().unwrap();
            if last.0 == tsg && last.1 >= count {
                return;
            }
            assert!(Instant::now() < deadline, "{last:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A channel without engine contexts.
    pub(crate) fn bare_channel(&self, id: u32, entries: u32) -> Ring<'_> {
        self.bind(ChannelGroup::alone(id), id, entries)
    }

    fn bind(&self, group: ChannelGroup, id: u32, entries: u32) -> Ring<'_> {
        let memory = Arc::new(Memory::new("gpfifo", (entries as usize * 8).max(0x1000)).unwrap());
        let userd = Arc::new(Memory::new("userd", 0x1000).unwrap());
        let base = PUSHBUFFERS + u64::from(id) * PUSHBUFFER_BYTES;
        let pushbuffer = self.map(base, PUSHBUFFER_BYTES as usize);
        self.gpu.bind_channel(ChannelSetup {
            channel_id: id,
            ring: Arc::clone(&memory),
            ring_entries: entries,
            userd: Arc::clone(&userd),
            address_space: Arc::clone(&self.space),
            group,
        });
        Ring { rig: self, id, memory, userd, base, pushbuffer, entries, put: 0, used: 0 }
    }
}

/// One channel's ring and pushbuffer.
pub(crate) struct Ring<'a> {
    rig: &'a Rig,
    pub(crate) id: u32,
    memory: Arc<Memory>,
    pub(crate) userd: Arc<Memory>,
    base: u64,
    pushbuffer: Arc<Memory>,
    entries: u32,
    put: u32,
    /// Number of pushbuffer bytes in use.
    used: usize,
}

impl Ring<'_> {
    /// Writes words to the pushbuffer. Returns their address.
    pub(crate) fn place(&mut self, words: &[u32]) -> u64 {
        if self.used + words.len() * 4 > self.pushbuffer.len() {
            self.used = 0;
        }
        let at = self.used;
        for (index, &word) in words.iter().enumerate() {
            self.pushbuffer.store(at + index * 4, word);
        }
        self.used += words.len() * 4;
        self.base + at as u64
    }

    /// Writes one ring entry; waits until there is room.
    pub(crate) fn entry(&mut self, entry: u64) {
        let next = (self.put + 1) % self.entries;
        let deadline = Instant::now() + LIMIT;
        while self.gp_get() == next {
            assert!(Instant::now() < deadline, "the ring stays full");
            std::thread::yield_now();
        }
        let at = self.put as usize * 8;
        self.memory.store(at, entry as u32);
        self.memory.store(at + 4, (entry >> 32) as u32);
        self.put = next;
        self.userd.store(userd::GP_PUT as usize, next);
    }

    pub(crate) fn gp_get(&self) -> u32 {
        self.userd.load(userd::GP_GET as usize)
    }

    pub(crate) fn ring_doorbell(&self) {
        use ampere_cmd::Method;
        self.rig.page.store(usermode_c561::Doorbell::ADDRESS as usize, self.id);
    }

    /// Submits one segment of words.
    pub(crate) fn submit(&mut self, words: &[u32]) {
        let va = self.place(words);
        self.entry(Entry::from(Segment::new(va, words.len() as u32)).encode().unwrap());
        self.ring_doorbell();
    }

    /// Submits one segment of commands.
    pub(crate) fn commands<R>(&mut self, encode: impl FnOnce(&mut Encoder<Vec<u32>>) -> R) {
        let mut encoder = Encoder::new(Vec::new());
        encode(&mut encoder);
        self.submit(&encoder.into_sink());
    }
}

/// A 32-bit release after all work.
pub(crate) fn release(va: u64, value: u32) -> SemaphoreRelease {
    SemaphoreRelease { va, payload: Payload::Bits32(value), wait_for_idle: true, timestamp: false }
}

/// A 32-bit acquire of `memory >= value`.
pub(crate) fn acquire(va: u64, value: u32) -> SemaphoreAcquire {
    SemaphoreAcquire {
        va,
        payload: Payload::Bits32(value),
        condition: AcquireCondition::CircularGreaterOrEqual,
        switch_tsg: true,
    }
}
