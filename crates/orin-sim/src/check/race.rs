//! racecheck: accesses of two warps to the same bytes that nothing orders.
//!
//! Each warp has a vector clock: for each warp of its block, the newest step that is ordered before it. A barrier
//! joins the clocks of its warps. Fences order as in the memory models of C++ and PTX. Accesses before a warp's fence
//! are ordered before accesses after another warp's fence if an atomic or volatile access after the first fence is
//! observed by one before the second. Barriers are fences. Atomics on shared memory, including `mbarrier` operations,
//! order without a fence.
//!
//! Each word has its last write and two reads, of different warps. A report needs an overlap of bytes, one write, and
//! no order. Threads of one warp, and two atomic or volatile accesses, are never reported. Dropped state
//! causes missing reports, never wrong ones.
//!
//! Two patterns read a word that other warps change by atomics. Compilers and programs load the old value for a
//! compare-and-swap, which fails if it was stale: such a read is reported only if no compare-and-swap ever follows.
//! Threads that wait for an `mbarrier` load its state: a load of such a word acquires what arrivals release.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::finding::{Accessing, Finding, Kind, OtherSide, Worker};
use super::grid::{GridCheck, Request, Role, Site};
use crate::mmu::Access;
use crate::sm::lanes;

/// Most warps of a block.
const WARPS: usize = 32;
/// Words in a page of global memory.
const PAGE_WORDS: usize = 1024;
/// Maximum number of pages of global memory that a grid tracks: 64 MiB.
const MOST_PAGES: usize = 16 << 10;
/// Maximum number of blocks that a block knows about.
const MOST_KNOWN: usize = 4096;

/// Steps of the warps of a block.
type Clock = [u32; WARPS];

fn join(to: &mut Clock, from: &Clock) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*to).max(*from);
    }
}

/// One access to a word; step 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    block: u32,
    step: u32,
    /// Offset of the instruction from the kernel's first one.
    pc: u32,
    warp: u8,
    /// Bytes of the word.
    bytes: u8,
    /// Whether it is atomic or volatile.
    strong: bool,
    atomic: bool,
    wrote: bool,
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
    fn forget_reads(&mut self, now: &Use, loads: &mut HashSet<u32>) {
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

/// Known clocks of the warps of other blocks.
type Known = Arc<BTreeMap<u32, Clock>>;

fn learn(to: &mut Known, from: &Known) {
    if Arc::ptr_eq(to, from) || from.is_empty() {
        return;
    }
    if to.is_empty() {
        *to = Arc::clone(from);
        return;
    }
    let to = Arc::make_mut(to);
    for (block, clock) in from.iter() {
        to.entry(*block).and_modify(|known| join(known, clock)).or_insert(*clock);
    }
}

/// Clocks that a release publishes.
#[derive(Clone, Debug, Default)]
struct Published {
    clock: Clock,
    known: Known,
}

/// The accesses to global memory of a grid.
#[derive(Debug)]
pub(crate) struct GridRace {
    /// Index in `words` of each page.
    pages: HashMap<u64, usize>,
    words: Vec<Box<[Word; PAGE_WORDS]>>,
    /// Clocks published by the last releases through an address.
    releases: HashMap<u64, Known>,
    /// Conflicts with reads that a compare-and-swap may follow.
    pending: HashMap<Reader, Race>,
    /// Loads that a compare-and-swap has followed.
    loads: HashSet<u32>,
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

/// State of one warp.
#[derive(Clone, Debug, Default)]
struct Warp {
    clock: Clock,
    known: Known,
    /// Clocks ordered before the last fence.
    fenced: Option<Published>,
    /// Acquired clocks, which the next fence orders before the accesses after it.
    seen: Published,
}

/// Races of a block.
#[derive(Debug)]
pub(super) struct BlockRace {
    number: u32,
    warps: Vec<Warp>,
    /// Clocks published by the arrivals at each barrier.
    barriers: [Option<Published>; 16],
    /// Clocks that complete barriers pass to the warps that they release.
    complete: [Option<Published>; 16],
    shared: Vec<Word>,
    /// Clocks published by atomics on a word of shared memory.
    atomics: HashMap<usize, Clock>,
    /// Words of `mbarrier`s.
    barrier_words: HashSet<usize>,
    /// Conflicts with reads that a compare-and-swap may follow.
    pending: HashMap<Reader, Race>,
    /// Loads that a compare-and-swap has followed.
    loads: HashSet<u32>,
}

impl BlockRace {
    pub(super) fn new(warps: u32, shared_bytes: u32) -> Self {
        Self {
            number: 0,
            warps: vec![Warp::default(); warps as usize],
            barriers: Default::default(),
            complete: Default::default(),
            shared: vec![Word::default(); shared_bytes.div_ceil(4) as usize],
            atomics: HashMap::new(),
            barrier_words: HashSet::new(),
            pending: HashMap::new(),
            loads: HashSet::new(),
        }
    }

    pub(super) fn start(&mut self, number: u64) {
        // CAST: a grid of the model has fewer blocks; equal numbers would only hide races.
        self.number = number as u32;
        for (index, warp) in self.warps.iter_mut().enumerate() {
            *warp = Warp::default();
            warp.clock[index] = 1;
        }
        self.barriers = Default::default();
        self.complete = Default::default();
        self.shared.fill(Word::default());
        self.atomics.clear();
        self.barrier_words.clear();
        self.pending.clear();
    }

    /// Begins the next step of a warp.
    fn step(&mut self, warp: usize) {
        let clock = &mut self.warps[warp].clock[warp];
        *clock = clock.saturating_add(1);
    }

    pub(super) fn fenced(&mut self, warp: usize) {
        let state = &mut self.warps[warp];
        join(&mut state.clock, &state.seen.clock);
        learn(&mut state.known, &state.seen.known);
        state.fenced = Some(Published { clock: state.clock, known: Arc::clone(&state.known) });
        self.step(warp);
    }

    pub(super) fn arrived(&mut self, warp: usize, barrier: u8) {
        self.fenced(warp);
        let state = &self.warps[warp];
        let mut clock = state.clock;
        // The step that the fence has begun contains nothing yet.
        clock[warp] = clock[warp].saturating_sub(1);
        let handed = self.barriers[usize::from(barrier)].get_or_insert_default();
        join(&mut handed.clock, &clock);
        learn(&mut handed.known, &state.known);
    }

    pub(super) fn passed(&mut self, barrier: u8) {
        self.complete[usize::from(barrier)] = self.barriers[usize::from(barrier)].take();
    }

    pub(super) fn released(&mut self, warp: usize, barrier: u8) {
        if let Some(handed) = &self.complete[usize::from(barrier)] {
            join(&mut self.warps[warp].clock, &handed.clock);
            learn(&mut self.warps[warp].known, &handed.known);
        }
    }

    /// Whether the access is ordered before the next one of a warp.
    fn follows(&self, warp: usize, before: &Use) -> bool {
        let other = usize::from(before.warp) % WARPS;
        if before.block == self.number {
            return other == warp || self.warps[warp].clock[other] >= before.step;
        }
        let known = &self.warps[warp].known;
        known.len() >= MOST_KNOWN || known.get(&before.block).is_some_and(|clock| clock[other] >= before.step)
    }

    /// The first conflict of an access with earlier ones.
    #[inline(always)]
    fn conflict(&self, word: &Word, now: &Use, writes: bool) -> Option<Use> {
        let collides = |before: &Use| {
            before.bytes & now.bytes != 0
                && !(before.strong && now.strong)
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
                if request.role == Role::Arrive {
                    self.barrier_words.insert(index);
                }
                let waits = !writes && !self.barrier_words.is_empty() && self.barrier_words.contains(&index);
                if atomic || waits {
                    let mine = self.warps[warp].clock;
                    let handed = self.atomics.entry(index).or_insert([0; WARPS]);
                    join(&mut self.warps[warp].clock, handed);
                    if atomic {
                        join(handed, &mine);
                    }
                }
                if waits {
                    continue;
                }
                if request.role == Role::Compare {
                    word.forget_reads(&now, &mut self.loads);
                    pending.remove(&(now.block, now.warp, number));
                }
                if let Some(before) = self.conflict(word, &now, writes) {
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
            self.step(warp);
        }
    }

    /// The access that an instruction makes.
    fn now(&self, grid: &GridCheck, request: &Request, site: &Site<'_>) -> Use {
        let atomic = request.access == Access::Atomic;
        Use {
            block: self.number,
            step: self.warps[site.warp as usize].clock[site.warp as usize],
            // CAST: a program has less than 4 GiB.
            pc: site.pc.wrapping_sub(grid.launch.program_va) as u32,
            // CAST: at most 31.
            warp: site.warp as u8,
            bytes: 0,
            strong: request.strong || atomic,
            atomic,
            wrote: request.access != Access::Read,
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
            if now.strong {
                self.synchronise(releases, va, writes, request.access != Access::Write, warp);
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

    /// Handles a strong access: a write publishes what the last fence ordered, a read may acquire it.
    fn synchronise(
        &mut self,
        releases: &mut HashMap<u64, Known>,
        va: u64,
        writes: bool,
        reads: bool,
        warp: usize,
    ) {
        let number = self.number;
        let state = &mut self.warps[warp];
        if reads && let Some(handed) = releases.get(&va) {
            learn(&mut state.seen.known, handed);
            if let Some(own) = handed.get(&number) {
                join(&mut state.seen.clock, own);
            }
        }
        if writes && let Some(fenced) = &state.fenced {
            let to = releases.entry(va).or_default();
            learn(to, &fenced.known);
            let own = Arc::make_mut(to).entry(number).or_insert([0; WARPS]);
            join(own, &fenced.clock);
        }
    }

    /// Records a conflict: a read that a compare-and-swap may follow is reported later.
    #[cold]
    fn note(grid: &GridCheck, pending: &mut HashMap<Reader, Race>, word: u64, race: Race) {
        let reader = match (&race.now, &race.before) {
            (now, before) if before.atomic && !now.wrote && !now.strong => now,
            (now, before) if now.atomic && !before.wrote && !before.strong => before,
            _ => return race.report(grid),
        };
        pending.entry((reader.block, reader.warp, word)).or_insert(race);
    }

    /// All threads of the block have exited.
    pub(super) fn ended(&mut self, grid: &GridCheck) {
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
fn report_all(pending: &mut HashMap<Reader, Race>, loads: &HashSet<u32>, grid: &GridCheck) {
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
        let pc = |of: &Use| grid.launch.program_va.wrapping_add(of.pc.into());
        let (first, second) = (now.pc.min(before.pc), now.pc.max(before.pc));
        // Either order of the two instructions is the same cause.
        let cause = grid.launch.program_va ^ (u64::from(first) << 32 | u64::from(second));
        let wider = |finding: &mut Finding| {
            if let Some(access) = &mut finding.access {
                (access.address, access.last) = (access.address.min(*address), access.last.max(*address));
            }
            false
        };
        grid.checker.0.findings.lock().add((*kind, cause), 1, wider, || {
            let space = if *kind == Kind::SharedRace { "shared" } else { "global" };
            let (what, other) = (now.what(), before.what());
            let message = format!(
                "{what} of {bytes} bytes of {space} memory at {address:#x}, unordered with a {other} of another warp"
            );
            let [x, y, _] = grid.launch.grid;
            // CAST: indices of a block.
            let place = [before.block % x, before.block / x % y, before.block / x / y];
            Finding {
                at: Some(grid.locate(pc(now))),
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
                    at: grid.locate(pc(before)),
                    block: if *kind == Kind::SharedRace { self.block } else { place },
                    warp: before.warp.into(),
                }),
                ..Finding::new(*kind, message)
            }
        });
    }
}

impl Use {
    fn what(&self) -> &'static str {
        match (self.atomic, self.wrote) {
            (true, _) => "atomic",
            (_, true) => "write",
            _ => "read",
        }
    }
}

/// The words of an access, with the bytes of each.
#[inline]
fn words(va: u64, bytes: u32) -> impl Iterator<Item = (u64, u8)> {
    let (first, part) = (va / 4, va % 4);
    let (count, mask) = match bytes {
        1 => (1, 1 << part),
        2 => (1, 3 << part),
        _ => (u64::from(bytes) / 4, 0xf),
    };
    (first..first + count).map(move |word| (word, mask))
}
