//! The order check: errors of a driver that a board would hide.
//!
//! A board that reads uninitialised memory gets an arbitrary value. Two grids that access the same word at once leave
//! an arbitrary result. A cache that was not invalidated returns old contents. None of this faults, and often nothing
//! seems wrong. With [`Tools::ORDERING`](super::Tools::ORDERING) the model checks each access to GPU memory and finds
//!
//! - a word that a kernel, host or the scheduler reads although neither CPU nor GPU has written it. Fresh nvmap memory
//!   contains [`POISON`]. A word counts as unwritten while it has that value and no unit of the GPU has stored there
//!   (`shadow`);
//! - two pieces of work (grids, copies or uploads) of which one writes what the other reads or writes, without any
//!   ordering between them (`order`);
//! - a line that a cache may still hold from an earlier access, although memory has changed other than by the SMs' own
//!   stores (`cache`). Only methods invalidate: whether the bits of launch descriptors do is not proven on this chip;
//! - a constant bank with pages that are not mapped, even if the kernel loads nothing from them;
//! - launches and chains by encodings that no board has been seen to accept (`gpu_hal::chip`).
//!
//! If the model cannot know whether the CPU has waited for work, it assumes so; memory changed by the CPU counts as
//! written. So there may be more errors than findings, but every finding is an error.
//!
//! Without the tool a [`View`](crate::mmu::View) has no `Watch`, and an access checks nothing else.

mod cache;
mod cause;
mod order;
mod shadow;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::mmu::{Access, MappedRange, PAGE_BYTES};

use super::finding::{Finding, Findings};
use cause::Cause;
pub(crate) use cause::{Cache, Encoding};
use order::Order;
pub(crate) use order::Work;
pub(crate) use shadow::Shadow;

/// Fill pattern of fresh memory, per word: not a mapped address, not a valid instruction, and an improbable number.
pub const POISON: u32 = 0xa5f0_c3b7;

/// Size of a page in bytes.
const PAGE: usize = PAGE_BYTES as usize;

/// Whether two pieces of work can synchronise through an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strength {
    /// An ordinary load or store.
    Weak,
    /// A volatile or atomic access, which other work may wait for.
    Strong,
    /// A semaphore of host or of an engine: it orders other accesses, and needs no ordering itself.
    Semaphore,
}

/// The unit that accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Host: pushbuffers and semaphores.
    Host,
    /// The scheduler, reading descriptors.
    Scheduler,
    /// Loads, stores and atomics of a grid.
    Sm,
    /// The constant banks of a grid.
    Constant,
    /// The code of a grid.
    Instruction,
    /// The copy engine, or an upload through the pushbuffer.
    Transfer,
}

/// One access that the MMU has allowed.
pub(crate) struct Accessed<'a> {
    /// Number of the address space.
    pub(crate) space: u64,
    /// First address.
    pub(crate) va: u64,
    /// Length in bytes; within `range`.
    pub(crate) len: u64,
    /// Load, store or both.
    pub(crate) access: Access,
    /// Whether the access may be meant for immediate visibility.
    pub(crate) strength: Strength,
    /// The mapping.
    pub(crate) range: &'a MappedRange,
}

impl Accessed<'_> {
    /// CPU address of the first byte, valid while the view of the access lives.
    fn pointer(&self) -> *const u8 {
        // CAST: offsets of a CPU mapping fit usize.
        self.range.memory.pointer().as_ptr().wrapping_add(self.offset()).cast_const()
    }

    /// Offset in the memory.
    fn offset(&self) -> usize {
        // CAST: offsets of a CPU mapping fit usize.
        (self.range.offset + (self.va - self.range.va)) as usize
    }
}

/// The order check of one GPU.
#[derive(Debug)]
pub(crate) struct OrderCheck {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    order: Order,
    caches: cache::Caches,
    /// The findings of the checker.
    findings: Arc<Mutex<Findings>>,
    /// Findings that the kernel log lacks.
    unlogged: Vec<Finding>,
}

/// The source of accesses: a channel, or one of its pieces of work. Work that is started by other work is ordered after
/// it.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    check: Arc<OrderCheck>,
    /// Number of the channel, unique on this GPU, and its id.
    lane: u64,
    channel: u32,
    unit: Unit,
    work: Option<Arc<Work>>,
}

impl OrderCheck {
    /// A check that adds to `findings`.
    pub(super) fn new(findings: Arc<Mutex<Findings>>) -> Arc<Self> {
        let (order, caches) = (Order::default(), cache::Caches::default());
        Arc::new(Self { inner: Mutex::new(Inner { order, caches, findings, unlogged: Vec::new() }) })
    }

    /// Starts tracking a channel.
    pub(crate) fn channel(self: &Arc<Self>, channel: u32) -> Arc<Watch> {
        let lane = self.inner.lock().order.add_lane();
        Arc::new(Watch { check: Arc::clone(self), lane, channel, unit: Unit::Host, work: None })
    }

    /// The findings since the last call.
    pub(crate) fn take_unlogged(&self) -> Vec<Finding> {
        std::mem::take(&mut self.inner.lock().unlogged)
    }
}

impl Watch {
    /// The same source for another unit.
    pub(crate) fn as_unit(&self, unit: Unit) -> Self {
        Self { unit, ..self.clone() }
    }

    /// Creates a piece of work, ordered after what the channel has waited for.
    pub(crate) fn issue(&self, name: String, unit: Unit) -> Arc<Self> {
        let work = self.check.inner.lock().order.issue(self.lane, name, self.work.as_deref());
        Arc::new(Self { unit, work: Some(Arc::new(work)), ..self.clone() })
    }

    /// Creates a piece of work, ordered after all earlier work of the channel.
    pub(crate) fn issue_in_order(&self, name: String, unit: Unit) -> Arc<Self> {
        let mut inner = self.check.inner.lock();
        let work = inner.order.issue_in_order(self.lane, name);
        drop(inner);
        Arc::new(Self { unit, work: Some(Arc::new(work)), ..self.clone() })
    }

    /// Records that the work has ended and that the CPU may have observed it.
    pub(crate) fn finished(&self) {
        if let Some(work) = &self.work {
            self.check.inner.lock().order.finish(work.id);
        }
    }

    /// Records that the work has ended and that the channel has waited for it.
    pub(crate) fn finished_in_order(&self) {
        if let Some(work) = &self.work {
            let mut inner = self.check.inner.lock();
            inner.order.finish(work.id);
            inner.order.learn(self.lane, work.id);
        }
    }

    /// Records that the channel has waited for all its work.
    pub(crate) fn waited_for_idle(&self) {
        self.check.inner.lock().order.idle(self.lane);
    }

    /// Orders all completed work of all channels before the channel's next work: the channel may have waited for it, or
    /// the CPU before it submitted more.
    pub(crate) fn learn_finished(&self) {
        self.check.inner.lock().order.learn_finished(self.lane);
    }

    /// Records the release of a semaphore at a CPU address.
    pub(crate) fn released(&self, semaphore: usize, value: u64) {
        self.check.inner.lock().order.release(self.lane, self.work.as_deref(), semaphore, value);
    }

    /// Records that the channel has acquired a semaphore, whose value is now `value`.
    pub(crate) fn acquired(&self, semaphore: usize, value: u64) {
        self.check.inner.lock().order.acquire(self.lane, semaphore, value);
    }

    /// Records the invalidation of a cache.
    pub(crate) fn invalidate(&self, cache: Cache) {
        self.check.inner.lock().caches.lines(cache).clear();
    }

    /// Reports that the scheduler runs a cached descriptor although memory has changed.
    pub(crate) fn stale_descriptor(&self, va: u64, bytes: u64) {
        let mut inner = self.check.inner.lock();
        inner.add(self, Cause::Stale(Cache::Descriptors), (va, bytes), "");
    }

    /// Reports that a constant bank of `bytes` bytes extends over unmapped pages.
    pub(crate) fn unmapped_bank(&self, va: u64, bytes: u64) {
        self.check.inner.lock().add(self, Cause::UnmappedBank, (va, bytes), "");
    }

    /// Reports work started by an encoding that no board has been seen to accept. `va` is its launch descriptor.
    pub(crate) fn unproven(&self, encoding: Encoding, va: u64) {
        self.check.inner.lock().add(self, Cause::Unproven(encoding), (va, 0), "");
    }

    /// Tracks an access.
    pub(crate) fn access(&self, accessed: &Accessed<'_>) {
        let mut inner = self.check.inner.lock();
        match self.unit {
            Unit::Constant => inner.look(self, Cache::Constants, accessed),
            Unit::Instruction => inner.look(self, Cache::Instructions, accessed),
            Unit::Sm if accessed.access == Access::Read && accessed.strength == Strength::Weak => {
                inner.look(self, Cache::Data, accessed);
            }
            Unit::Sm => inner.caches.written(accessed),
            Unit::Host | Unit::Scheduler | Unit::Transfer => {}
        }
        if accessed.range.cached {
            inner.look_l2(self, accessed);
        }
        inner.shadow(self, accessed);
    }
}

impl Inner {
    /// A read through a cache: reports a line that it may hold with other contents.
    fn look(&mut self, watch: &Watch, cache: Cache, accessed: &Accessed<'_>) {
        let work = watch.work.as_ref().map(|work| work.id);
        if let Some(va) = self.caches.lines(cache).read(work, accessed) {
            self.add(watch, Cause::Stale(cache), (va, cache.line()), accessed.range.memory.label());
        }
    }

    /// An access through the L2 cache, which all units share.
    fn look_l2(&mut self, watch: &Watch, accessed: &Accessed<'_>) {
        if accessed.access == Access::Read {
            self.look(watch, Cache::L2, accessed);
        } else {
            self.caches.lines(Cache::L2).written(accessed);
        }
    }

    /// Checks whether words have been written, and by which work.
    fn shadow(&mut self, watch: &Watch, accessed: &Accessed<'_>) {
        // Whole banks and pages are read, regardless of which words are used.
        if matches!(watch.unit, Unit::Constant | Unit::Instruction) {
            return;
        }
        let work = watch.work.as_deref().filter(|_| accessed.strength != Strength::Semaphore);
        let reads_garbage = accessed.access != Access::Write && watch.unit != Unit::Transfer;
        let label = accessed.range.memory.label();
        // Whole words, page by page; shadow pages are those of the memory's files. CAST: an access lies in a CPU
        // mapping.
        let (first, count) = (accessed.va & !3, (accessed.len + (accessed.va & 3)).div_ceil(4) as usize);
        let mut done = 0;
        while done < count {
            let offset = (accessed.offset() & !3) + done * 4;
            let piece = (count - done).min((PAGE - offset % PAGE) / 4);
            let start = first + done as u64 * 4;
            done += piece;
            let memory = &accessed.range.memory;
            let Some((shadow, place)) = memory.shadow(offset) else { continue };
            let garbage = |at: usize| reads_garbage && memory.load(offset + at * 4) == POISON;
            let findings = shadow.access(place, piece, accessed, work, garbage);
            if let Some(at) = findings.unwritten {
                self.add(watch, Cause::Unwritten, (start + at as u64 * 4, 4), label);
            }
            if let Some((at, other)) = findings.race {
                self.add(watch, Cause::Unordered(other), (start + at as u64 * 4, 4), label);
            }
        }
    }

    /// Records a finding. A piece of work makes one of each cause, with the first place; a unit, one at each place.
    fn add(&mut self, watch: &Watch, cause: Cause, (va, bytes): (u64, u64), memory: &str) {
        let work = watch.work.as_ref().map(|work| work.id);
        let mut hasher = DefaultHasher::new();
        (cause, work, work.is_none().then_some(va)).hash(&mut hasher);
        let other = match cause {
            Cause::Unordered(other) => self.order.name(other),
            _ => String::new(),
        };
        let name = watch.work.as_ref().map_or(watch.unit.name(), |work| &work.name);
        let finding =
            || Finding { channel: Some(watch.channel), ..cause.finding(name, (va, bytes), memory, &other) };
        let mut findings = self.findings.lock();
        if let Some(new) = findings.add((cause.kind(), hasher.finish()), 1, |_| false, finding) {
            self.unlogged.push(new.clone());
        }
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Scheduler => "the scheduler",
            Self::Sm | Self::Constant | Self::Instruction => "a grid",
            Self::Transfer => "a transfer",
        }
    }
}
