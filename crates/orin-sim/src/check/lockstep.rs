//! warpcheck: accesses of two lanes of a warp to the same shared memory that only lockstep orders.
//!
//! Since Volta, each thread has its own program counter. Hardware usually executes a warp in lockstep all the same, so
//! code without `__syncwarp()` often works, until a compiler or a GPU schedules it in another way. Each lane has a
//! vector clock: for each lane of its warp, the newest step that is ordered before it. `__syncwarp()` and barriers of
//! the block join the clocks of their lanes. Atomics on shared memory order as well. Shuffles, votes and the end of a
//! branch do not: CUDA does not promise that they order memory.
//!
//! Accesses of one instruction are never reported: programs let several lanes store the same value. Where a warp has
//! one path, the code of `__syncwarp(mask)` does not contain the mask, and orders all lanes that execute it.

use std::collections::{HashMap, HashSet};

use super::fate::Fate;
use super::finding::{Accessing, Finding, Kind, OtherSide, Worker};
use super::grid::GridCheck;
use super::request::{Request, Role, Site, name, words};
use crate::mmu::Access;
use crate::sm::{Arrival, Row, lanes};

/// One access of a lane to a word; step 0 is none.
#[derive(Clone, Copy, Debug)]
struct Use {
    step: u32,
    /// GPU address of the instruction.
    pc: u64,
    /// Number of its execution.
    serial: u32,
    warp: u32,
    lane: u8,
    /// Bytes of the word.
    bytes: u8,
    access: Access,
    /// Whether it is a compare-and-swap, or an arrival at an `mbarrier`: plain loads of the word are no errors.
    tolerant: bool,
}

const NONE: Use =
    Use { step: 0, pc: 0, serial: 0, warp: 0, lane: 0, bytes: 0, access: Access::Read, tolerant: false };

/// The last accesses to a word, of one warp.
#[derive(Clone, Copy, Debug)]
struct Word {
    write: Use,
    reads: [Use; 2],
}

/// State of a warp.
#[derive(Clone, Debug)]
struct Warp {
    /// By lane.
    clocks: [Row; 32],
    /// Lanes that have arrived at a WARPSYNC, by its mask.
    waiting: Vec<(u32, u32)>,
    /// Lanes that have arrived at each barrier of the block.
    arrived: [u32; 16],
}

/// The lanes of a block.
#[derive(Debug)]
pub(super) struct BlockLanes {
    warps: Vec<Warp>,
    shared: Vec<Word>,
    /// Clocks published by atomics, by warp and word.
    atomics: HashMap<(u32, usize), Row>,
    /// Words of `mbarrier`s.
    barriers: HashSet<u64>,
    /// Executed instructions.
    serial: u32,
}

fn join(to: &mut Row, from: &Row) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*to).max(*from);
    }
}

impl Warp {
    fn new() -> Self {
        let clocks = core::array::from_fn(|lane| core::array::from_fn(|other| u32::from(lane == other)));
        Self { clocks, waiting: Vec::new(), arrived: [0; 16] }
    }

    /// Orders all accesses of the lanes of `mask` before their next ones.
    fn synchronise(&mut self, mask: u32) {
        let mut joined = [0; 32];
        lanes(mask).for_each(|lane| join(&mut joined, &self.clocks[lane]));
        for lane in lanes(mask) {
            self.clocks[lane] = joined;
            self.clocks[lane][lane] += 1;
        }
    }

    /// Lanes with one mask arrive at a WARPSYNC. It is complete when all lanes of the mask that are alive have arrived.
    fn arrive(&mut self, mask: u32, arriving: u32, live: u32) {
        let at = self.waiting.iter().position(|(other, _)| *other == mask);
        let arrived = arriving | at.map_or(0, |at| self.waiting.swap_remove(at).1);
        if mask & live & !arrived == 0 {
            self.synchronise(arrived);
        } else {
            self.waiting.push((mask, arrived));
        }
    }
}

impl BlockLanes {
    pub(super) fn new(warps: u32, shared_bytes: u32) -> Self {
        Self {
            warps: vec![Warp::new(); warps as usize],
            shared: vec![Word { write: NONE, reads: [NONE; 2] }; shared_bytes.div_ceil(4) as usize],
            atomics: HashMap::new(),
            barriers: HashSet::new(),
            serial: 0,
        }
    }

    pub(super) fn start(&mut self) {
        self.warps.fill(Warp::new());
        self.shared.fill(Word { write: NONE, reads: [NONE; 2] });
        self.atomics.clear();
        self.barriers.clear();
    }

    /// Lanes execute `__syncwarp()` where the warp has one path.
    pub(super) fn synchronise(&mut self, warp: u32, mask: u32) {
        self.warps[warp as usize].synchronise(mask);
    }

    /// Lanes execute WARPSYNC with these masks; `live` have not exited.
    pub(super) fn warpsync(&mut self, warp: u32, active: u32, masks: &Row, live: u32) {
        let mut left = active;
        while left != 0 {
            let mask = masks[left.trailing_zeros() as usize];
            let group = lanes(left).filter(|&lane| masks[lane] == mask).fold(0, |all, lane| all | 1 << lane);
            self.warps[warp as usize].arrive(mask, group, live);
            left &= !group;
        }
    }

    pub(super) fn arrived(&mut self, warp: usize, arrival: &Arrival) {
        self.warps[warp].arrived[usize::from(arrival.barrier)] |= arrival.lanes;
    }

    /// A barrier has released the threads of a warp.
    pub(super) fn released(&mut self, warp: usize, barrier: u8) {
        let warp = &mut self.warps[warp];
        let arrived = std::mem::take(&mut warp.arrived[usize::from(barrier)]);
        warp.synchronise(arrived);
    }

    /// Examines accesses to shared memory.
    pub(super) fn shared(&mut self, grid: &GridCheck, block: [u32; 3], request: &Request, site: &Site<'_>) {
        self.serial = self.serial.wrapping_add(1);
        let warp = &mut self.warps[site.warp as usize];
        for lane in lanes(request.mask) {
            for (index, bytes) in words(request.addresses[lane], request.bytes) {
                // CAST: an offset in shared memory.
                let Some(word) = self.shared.get_mut(index as usize) else { continue };
                if request.access == Access::Atomic {
                    // CAST: as above.
                    let handed = self.atomics.entry((site.warp, index as usize)).or_insert([0; 32]);
                    let mine = warp.clocks[lane];
                    join(&mut warp.clocks[lane], handed);
                    join(handed, &mine);
                }
                let now = Use {
                    step: warp.clocks[lane][lane],
                    pc: site.pc,
                    serial: self.serial,
                    warp: site.warp,
                    // CAST: below 32.
                    lane: lane as u8,
                    bytes,
                    access: request.access,
                    tolerant: request.role != Role::Plain && request.access == Access::Atomic,
                };
                if request.role == Role::Arrive {
                    self.barriers.insert(index);
                }
                if request.access == Access::Read && self.barriers.contains(&index) {
                    continue;
                }
                if let Some(before) = word.conflict(&now, &warp.clocks[lane]) {
                    report(grid, block, request, site, (lane, 4 * index), (&now, &before));
                }
                word.record(now, &warp.clocks[lane]);
            }
            if request.access == Access::Atomic {
                warp.clocks[lane][lane] += 1;
            }
        }
    }
}

impl Use {
    /// Whether the access is ordered before one of its warp by a lane with this clock.
    fn precedes(&self, lane: u8, clock: &Row) -> bool {
        self.lane == lane || clock[usize::from(self.lane)] >= self.step
    }
}

impl Word {
    fn conflict(&self, now: &Use, clock: &Row) -> Option<Use> {
        let collides = |before: &&Use| {
            before.step != 0
                && before.warp == now.warp
                && before.serial != now.serial
                && before.bytes & now.bytes != 0
                && !(before.access == Access::Atomic && now.access == Access::Atomic)
                && !(before.tolerant && now.access == Access::Read)
                && !(now.tolerant && before.access == Access::Read)
                && !before.precedes(now.lane, clock)
        };
        let reads = if now.access == Access::Read { &[][..] } else { &self.reads };
        [&self.write].into_iter().chain(reads).find(collides).copied()
    }

    fn record(&mut self, now: Use, clock: &Row) {
        if now.access != Access::Read {
            self.write = now;
            return;
        }
        let old = |read: &Use| read.step == 0 || read.warp != now.warp || read.precedes(now.lane, clock);
        let at = usize::from(!old(&self.reads[0]));
        self.reads[at] = now;
    }
}

#[cold]
fn report(
    grid: &GridCheck,
    block: [u32; 3],
    request: &Request,
    site: &Site<'_>,
    (lane, address): (usize, u64),
    (now, before): (&Use, &Use),
) {
    let unread = |of: &Use| of.access == Access::Read && grid.fate(of.pc, address) == Fate::Unread;
    if unread(now) || unread(before) {
        return;
    }
    let (first, second) = (now.pc.min(before.pc), now.pc.max(before.pc));
    // Either order of the two instructions is the same cause.
    let cause = first << 32 ^ second;
    let wider = |finding: &mut Finding| {
        if let Some(access) = &mut finding.access {
            (access.address, access.last) = (access.address.min(address), access.last.max(address));
        }
        false
    };
    grid.checker.0.findings.lock().add((Kind::WarpRace, cause), 1, wider, || {
        let (what, other, bytes) = (name(now.access), name(before.access), request.bytes);
        let message = format!(
            "{what} of {bytes} bytes of shared memory at {address:#x}, unordered with a {other} by lane {} of the warp",
            before.lane
        );
        let access = Accessing { what: what.into(), space: "shared".into(), bytes, address, last: address };
        let at = grid.locate(before.pc);
        Finding {
            at: Some(grid.locate(now.pc)),
            worker: Some(Worker { block, thread: [0, 1, 2].map(|axis| site.tid[axis][lane]) }),
            access: Some(access),
            other: Some(OtherSide { what: other.into(), at, block, warp: before.warp }),
            ..grid.finding(Kind::WarpRace, message)
        }
    });
}
