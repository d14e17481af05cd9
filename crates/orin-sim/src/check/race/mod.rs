//! racecheck: accesses of two warps to the same bytes that nothing orders.
//!
//! `order` says what is ordered before what. Each word has its last write and two reads, of different warps. A report
//! needs an overlap of bytes, one write, and no order. Threads of one warp, and two atomic or volatile accesses of
//! sufficient scope, are never reported. Dropped state causes missing reports, never wrong ones.
//!
//! Warps that store the same word of shared memory by one instruction are no race if it has the value already:
//! compilers let all warps store what they hold in common.
//!
//! A copy by `cp.async` is ordered before nothing until its threads have waited for it.
//!
//! Two patterns read a word that other warps change by atomics. Compilers and programs load the old value for a
//! compare-and-swap, which fails if it was stale: such a read is reported only if no compare-and-swap ever follows.
//! Threads that wait for an `mbarrier` load its state: a load of such a word acquires what arrivals release.

mod order;

use std::collections::{HashMap, HashSet};

use super::fate::Fate;
use super::finding::{Accessing, Finding, Kind, OtherSide, Worker};
use super::grid::GridCheck;
use super::request::{Fence, Request, Role, Scope, Site, words};
use crate::mmu::Access;
use crate::sm::{InFlight, Space, lanes};
use order::{Handed, Order, Release};

/// Words in a page of global memory.
const PAGE_WORDS: usize = 1024;
/// Maximum number of pages of global memory that a grid tracks: 64 MiB.
const MOST_PAGES: usize = 16 << 10;
/// One access to a word; step 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    block: u32,
    /// Step of its warp; number of the copy if it is in flight.
    step: u32,
    /// Offset of the instruction from the kernel's first one. Functions that it calls may be before it.
    pc: i32,
    warp: u8,
    /// Bytes of the word.
    bytes: u8,
    /// How far it is atomic or volatile.
    strong: Scope,
    atomic: bool,
    wrote: bool,
    /// Whether it is a write of a copy that its threads have not waited for.
    in_flight: bool,
}

/// Two accesses that nothing orders.
#[derive(Clone, Copy, Debug)]
struct Race {
    kind: Kind,
    /// The later access.
    now: Use,
    before: Use,
    address: u64,
    /// Size of the later access.
    bytes: u32,
    /// Block and thread of the later access.
    block: [u32; 3],
    thread: [u32; 3],
}

/// Block, warp and word of a read.
type Reader = (u32, u8, u64);

/// The last accesses to a word.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    write: Use,
    reads: [Use; 2],
}

impl Word {
    /// Discards the reads of the warp that executes a compare-and-swap, and records their instructions.
    fn forget_reads(&mut self, now: &Use, loads: &mut HashSet<i32>) {
        for read in &mut self.reads {
            if read.step != 0 && read.block == now.block && read.warp == now.warp {
                loads.insert(read.pc);
                *read = Use::default();
            }
        }
    }
}

impl Race {
    fn new(
        kind: Kind,
        (now, before): (Use, Use),
        block: [u32; 3],
        request: &Request,
        site: &Site<'_>,
        lane: usize,
    ) -> Self {
        let (address, thread) = (request.addresses[lane], [0, 1, 2].map(|axis| site.tid[axis][lane]));
        Self { kind, now, before, address, bytes: request.bytes, block, thread }
    }
}

/// The accesses to global memory of a grid.
#[derive(Debug)]
pub(crate) struct GridRace {
    /// Index in `words` of each page.
    pages: HashMap<u64, usize>,
    words: Vec<Box<[Word; PAGE_WORDS]>>,
    /// The releases through an address.
    releases: HashMap<u64, Release>,
    /// Conflicts with reads that a compare-and-swap may follow.
    pending: HashMap<Reader, Race>,
    /// Loads that a compare-and-swap has followed.
    loads: HashSet<i32>,
}

impl GridRace {
    pub(super) fn new() -> Self {
        Self {
            pages: HashMap::new(),
            words: Vec::new(),
            releases: HashMap::new(),
            pending: HashMap::new(),
            loads: HashSet::new(),
        }
    }
}

/// Races of a block.
#[derive(Debug)]
pub(super) struct BlockRace {
    order: Order,
    shared: Vec<Word>,
    /// What atomics on a word of shared memory hand over.
    atomics: HashMap<usize, Handed>,
    /// Words of `mbarrier`s.
    barrier_words: HashSet<usize>,
    /// Conflicts with reads that a compare-and-swap may follow.
    pending: HashMap<Reader, Race>,
    /// Loads that a compare-and-swap has followed.
    loads: HashSet<i32>,
}

impl BlockRace {
    pub(super) fn new(warps: u32, shared_bytes: u32) -> Self {
        Self {
            order: Order::new(warps as usize),
            shared: vec![Word::default(); shared_bytes.div_ceil(4) as usize],
            atomics: HashMap::new(),
            barrier_words: HashSet::new(),
            pending: HashMap::new(),
            loads: HashSet::new(),
        }
    }

    pub(super) fn start(&mut self, number: u64) {
        // CAST: a grid of the model has fewer blocks; equal numbers would only hide races.
        self.order.start(number as u32);
        self.shared.fill(Word::default());
        self.atomics.clear();
        self.barrier_words.clear();
        self.pending.clear();
    }

    pub(super) fn fenced(&mut self, warp: usize, fence: Fence) {
        self.order.fenced(warp, fence);
    }

    pub(super) fn arrived(&mut self, warp: usize, barrier: u8) {
        self.order.arrived(warp, barrier);
    }

    pub(super) fn passed(&mut self, barrier: u8) {
        self.order.passed(barrier);
    }

    pub(super) fn released(&mut self, warp: usize, barrier: u8) {
        self.order.released(warp, barrier);
    }

    /// Lanes of a warp have waited for a copy: orders its writes like stores that the warp executes now.
    pub(super) fn landed(&mut self, warp: usize, copy: &InFlight, lanes: u32) {
        let step = self.order.step_of(warp);
        for index in copy.words(lanes) {
            let Some(Word { write, .. }) = self.shared.get_mut(index) else { continue };
            if write.in_flight && usize::from(write.warp) == warp && write.step == copy.number {
                (write.in_flight, write.step) = (false, step);
            }
        }
    }

    /// Whether the access is ordered before the next one of a warp.
    fn follows(&self, warp: usize, before: &Use) -> bool {
        !before.in_flight && self.order.follows(warp, before.block, before.warp.into(), before.step)
    }

    /// The scope that atomic accesses need, so that one of this block and `before` are no race.
    fn needed(&self, before: &Use) -> Scope {
        if before.block == self.order.number() { Scope::Block } else { Scope::Device }
    }

    /// The first conflict of an access with earlier ones.
    #[inline(always)]
    fn conflict(&self, word: &Word, now: &Use, writes: bool) -> Option<Use> {
        let collides = |before: &Use| {
            before.bytes & now.bytes != 0
                && before.strong.min(now.strong) < self.needed(before)
                && !self.follows(now.warp.into(), before)
        };
        if collides(&word.write) {
            return Some(word.write);
        }
        if writes { word.reads.iter().find(|read| collides(read)).copied() } else { None }
    }

    /// Records an access.
    #[inline]
    fn record(&self, word: &mut Word, now: Use, writes: bool) {
        let same =
            |before: &Use| before.block == now.block && before.warp == now.warp && before.step == now.step;
        if writes {
            let bytes = if same(&word.write) { word.write.bytes } else { 0 };
            word.write = Use { bytes: bytes | now.bytes, ..now };
            return;
        }
        if same(&word.reads[0]) {
            word.reads[0].bytes |= now.bytes;
        } else if word.reads[0].step == 0 || self.follows(now.warp.into(), &word.reads[0]) {
            word.reads[0] = now;
        } else {
            word.reads[1] = now;
        }
    }

    /// Examines accesses to shared memory.
    pub(super) fn shared(&mut self, grid: &GridCheck, block: [u32; 3], request: &Request, site: &Site<'_>) {
        let warp = site.warp as usize;
        let (atomic, writes) = (request.access == Access::Atomic, request.access != Access::Read);
        let mut now = self.now(grid, request, site);
        let (mut shared, mut pending) = (std::mem::take(&mut self.shared), std::mem::take(&mut self.pending));
        let mut last = None;
        if let Role::Copy(number) = request.role {
            (now.in_flight, now.step) = (true, number);
        }
        for lane in lanes(request.mask) {
            // Adjacent lanes often read the same word; the repeated read changes nothing.
            let address = request.addresses[lane];
            if last.replace(address) == Some(address) && !writes {
                continue;
            }
            for (number, bytes) in words(request.addresses[lane], request.bytes) {
                // CAST: an offset in shared memory.
                let index = number as usize;
                let Some(word) = shared.get_mut(index) else { continue };
                now.bytes = bytes;
                if request.role == Role::Arrive && self.barrier_words.insert(index) {
                    // Threads that were early have waited for it.
                    word.reads = Default::default();
                }
                let waits = !writes && !self.barrier_words.is_empty() && self.barrier_words.contains(&index);
                if atomic || waits {
                    self.order.exchange(warp, self.atomics.entry(index).or_default(), atomic);
                }
                if waits {
                    continue;
                }
                if request.role == Role::Compare {
                    word.forget_reads(&now, &mut self.loads);
                    pending.remove(&(now.block, now.warp, number));
                }
                let repeated = request.repeats >> lane & 1 != 0 && word.write.pc == now.pc;
                let conflict = self.conflict(word, &now, writes);
                if let Some(before) = conflict.filter(|before| !(repeated && before.wrote)) {
                    let race = Race::new(Kind::SharedRace, (now, before), block, request, site, lane);
                    // Each thread counts.
                    last = None;
                    Self::note(grid, &mut pending, number, race);
                }
                self.record(word, now, writes);
            }
        }
        (self.shared, self.pending) = (shared, pending);
        if atomic {
            self.order.step(warp);
        }
    }

    /// The access that an instruction makes.
    fn now(&self, grid: &GridCheck, request: &Request, site: &Site<'_>) -> Use {
        let atomic = request.access == Access::Atomic;
        Use {
            block: self.order.number(),
            step: self.order.step_of(site.warp as usize),
            // CAST: a program has less than 4 GiB.
            pc: site.pc.wrapping_sub(grid.launch.program_va) as i32,
            // CAST: at most 31.
            warp: site.warp as u8,
            bytes: 0,
            strong: if request.space == Space::Shared && atomic { Scope::Block } else { request.strong },
            atomic,
            wrote: request.access != Access::Read,
            in_flight: false,
        }
    }

    /// Examines accesses to global memory by the lanes of `mask`.
    pub(super) fn global(
        &mut self,
        grid: &GridCheck,
        block: [u32; 3],
        request: &Request,
        mask: u32,
        site: &Site<'_>,
    ) {
        let Some(all) = &grid.race else { return };
        let mut all = all.lock();
        let GridRace { pages, words: store, releases, pending, loads } = &mut *all;
        let (warp, writes) = (site.warp as usize, request.access != Access::Read);
        let mut now = self.now(grid, request, site);
        let mut current: Option<(u64, usize)> = None;
        let mut last = None;
        for lane in lanes(mask) {
            let va = request.addresses[lane];
            if last.replace(va) == Some(va) && !writes {
                continue;
            }
            if now.strong != Scope::Own {
                let reads = request.access != Access::Write;
                self.order.synchronise(warp, releases, va, now.strong, (reads, writes));
            }
            for (index, bytes) in words(va, request.bytes) {
                let number = index / PAGE_WORDS as u64;
                let page = match current {
                    Some((page, at)) if page == number => at,
                    _ => match pages.get(&number) {
                        Some(at) => *at,
                        None if store.len() >= MOST_PAGES => continue,
                        None => {
                            store.push(Box::new([Word::default(); PAGE_WORDS]));
                            pages.insert(number, store.len() - 1);
                            store.len() - 1
                        }
                    },
                };
                current = Some((number, page));
                // CAST: below the number of words.
                let word = &mut store[page][(index % PAGE_WORDS as u64) as usize];
                now.bytes = bytes;
                if request.role == Role::Compare {
                    word.forget_reads(&now, loads);
                    pending.remove(&(now.block, now.warp, index));
                }
                if let Some(before) = self.conflict(word, &now, writes) {
                    let race = Race::new(Kind::GlobalRace, (now, before), block, request, site, lane);
                    // Each thread counts.
                    last = None;
                    Self::note(grid, pending, index, race);
                }
                self.record(word, now, writes);
            }
        }
    }

    /// Records a conflict: a read that a compare-and-swap may follow is reported later.
    #[cold]
    fn note(grid: &GridCheck, pending: &mut HashMap<Reader, Race>, word: u64, race: Race) {
        let unread = |of: &Use| !of.wrote && grid.fate(of.pc(grid), 4 * word) == Fate::Unread;
        if unread(&race.now) || unread(&race.before) {
            // The compiler has joined loads.
            return;
        }
        let reader = match (&race.now, &race.before) {
            (now, before) if before.atomic && !now.wrote && now.strong == Scope::Own => now,
            (now, before) if now.atomic && !before.wrote && before.strong == Scope::Own => before,
            _ => return race.report(grid),
        };
        pending.entry((reader.block, reader.warp, word)).or_insert(race);
    }

    /// All threads of the block have exited.
    pub(super) fn ended(&mut self, grid: &GridCheck) {
        // CAST: an offset in shared memory.
        self.pending.retain(|(.., word), _| !self.barrier_words.contains(&(*word as usize)));
        report_all(&mut self.pending, &self.loads, grid);
    }
}

impl GridRace {
    /// All blocks have ended.
    pub(super) fn ended(&mut self, grid: &GridCheck) {
        report_all(&mut self.pending, &self.loads, grid);
    }
}

/// Reports conflicts, except of instructions that load the old value of a compare-and-swap: some threads may find that
/// there is nothing to swap.
fn report_all(pending: &mut HashMap<Reader, Race>, loads: &HashSet<i32>, grid: &GridCheck) {
    let mut races: Vec<Race> = pending.drain().map(|(_, race)| race).collect();
    races.sort_by_key(|race| (race.now.pc, race.before.pc, race.address));
    for race in races {
        if ![race.now, race.before].iter().any(|of| !of.wrote && loads.contains(&of.pc)) {
            race.report(grid);
        }
    }
}

impl Race {
    fn report(&self, grid: &GridCheck) {
        let Self { kind, address, bytes, now, before, .. } = self;
        let (first, second) = (now.pc.min(before.pc), now.pc.max(before.pc));
        // Either order of the two instructions is the same cause.
        let cause = grid.launch.program_va
            ^ (u64::from(first.cast_unsigned()) << 32 | u64::from(second.cast_unsigned()));
        let wider = |finding: &mut Finding| {
            if let Some(access) = &mut finding.access {
                (access.address, access.last) = (access.address.min(*address), access.last.max(*address));
            }
            false
        };
        grid.checker.0.findings.lock().add((*kind, cause), 1, wider, || {
            let space = if *kind == Kind::SharedRace { "shared" } else { "global" };
            let (what, other) = (now.what(), before.what());
            let how = if before.in_flight {
                "before cp.async has written it: nothing has waited for the copy".to_owned()
            } else {
                format!("unordered with a {other} of another warp")
            };
            let message = format!("{what} of {bytes} bytes of {space} memory at {address:#x}, {how}");
            let [x, y, _] = grid.launch.grid;
            // CAST: indices of a block.
            let place = [before.block % x, before.block / x % y, before.block / x / y];
            Finding {
                at: Some(grid.locate(now.pc(grid))),
                worker: Some(Worker { block: self.block, thread: self.thread }),
                access: Some(Accessing {
                    what: what.into(),
                    space: space.into(),
                    bytes: *bytes,
                    address: *address,
                    last: *address,
                }),
                object: if *kind == Kind::GlobalRace { grid.nearest(*address) } else { None },
                other: Some(OtherSide {
                    what: other.into(),
                    at: grid.locate(before.pc(grid)),
                    block: if *kind == Kind::SharedRace { self.block } else { place },
                    warp: before.warp.into(),
                }),
                ..grid.finding(*kind, message)
            }
        });
    }
}

impl Use {
    /// GPU address of the instruction.
    fn pc(&self, grid: &GridCheck) -> u64 {
        grid.launch.program_va.wrapping_add_signed(self.pc.into())
    }

    fn what(&self) -> &'static str {
        match (self.atomic, self.wrote) {
            (true, _) => "atomic",
            (_, true) => "write",
            _ => "read",
        }
    }
}
