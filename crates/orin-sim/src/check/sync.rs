//! synccheck: misuse of barriers.

use std::collections::HashMap;

use super::finding::{Finding, Kind, Worker};
use super::grid::GridCheck;
use super::request::Site;
use super::shuffle::Undefined;
use crate::sm::{Arrival, Launch, Row, Unmet, lanes};

/// The arrivals of one warp at one place.
#[derive(Clone, Copy, Debug)]
struct Group {
    warp: usize,
    lanes: u32,
    pc: u64,
    threads: u32,
}

/// The barriers of a block.
#[derive(Debug)]
pub(super) struct BlockSync {
    /// Lanes that exist, by warp.
    whole: Vec<u32>,
    threads: u32,
    /// Arrivals since each barrier was complete.
    arrivals: [Vec<Group>; 16],
    /// Pairs of barriers that were compared: whether their source lines differ.
    lines: HashMap<(u64, u64), bool>,
    /// What shuffles have read from lanes that do not execute them.
    pub(super) undefined: Undefined,
}

impl BlockSync {
    pub(super) fn new(launch: &Launch) -> Self {
        let threads = launch.block.iter().product::<u32>();
        let whole = (0..threads.div_ceil(32)).map(|warp| match (threads - 32 * warp).min(32) {
            32 => !0,
            count => (1 << count) - 1,
        });
        Self {
            whole: whole.collect(),
            threads,
            arrivals: Default::default(),
            lines: HashMap::new(),
            undefined: Undefined::default(),
        }
    }

    pub(super) fn start(&mut self) {
        self.arrivals.iter_mut().for_each(Vec::clear);
        self.undefined.start();
    }

    pub(super) fn arrived(&mut self, grid: &GridCheck, block: [u32; 3], warp: usize, arrival: &Arrival) {
        let now = Group { warp, lanes: arrival.lanes, pc: arrival.pc, threads: arrival.threads };
        let number = arrival.barrier;
        let report = |kind, message| report(grid, block, self.threads, &now, kind, message);
        let limit = self.threads.next_multiple_of(32);
        if !now.threads.is_multiple_of(32) {
            report(
                Kind::BarrierCount,
                format!("barrier {number} counts {} threads, not a multiple of 32", now.threads),
            );
        } else if now.threads > limit {
            let all = self.threads;
            report(
                Kind::BarrierCount,
                format!("barrier {number} waits for {} threads of a block of {all}", now.threads),
            );
        }
        let before = &self.arrivals[usize::from(number)];
        if let Some(other) = before.iter().find(|other| other.threads != now.threads) {
            report(
                Kind::BarrierCount,
                format!(
                    "barrier {number} counts {} threads here, {} at {}",
                    count(now.threads),
                    count(other.threads),
                    grid.locate(other.pc)
                ),
            );
        }
        if let Some(other) = before.iter().find(|other| other.warp == warp && other.pc != now.pc) {
            report(
                Kind::DivergentBarrier,
                format!(
                    "{} threads of warp {warp} arrive at barrier {number} here, {} at {}",
                    now.lanes.count_ones(),
                    other.lanes.count_ones(),
                    grid.locate(other.pc)
                ),
            );
        }
        // `__syncthreads()` of whole warps in two branches, which PTX permits. Named barriers and counts are meant so.
        let whole = |group: &Group| group.lanes == self.whole[group.warp];
        let meets = |other: &&Group| other.warp != warp && other.pc != now.pc && whole(other);
        let plain = number == 0 && now.threads == 0 && whole(&now);
        if let Some(other) = before.iter().find(meets).filter(|_| plain)
            && *self.lines.entry((now.pc, other.pc)).or_insert_with(|| differ(grid, now.pc, other.pc))
        {
            let place = grid.locate(other.pc);
            let message = format!("warp {warp} arrives at barrier 0 here, warp {} at {place}", other.warp);
            report(Kind::DivergentBarrier, message);
        }
        self.arrivals[usize::from(number)].push(now);
    }

    pub(super) fn passed(&mut self, grid: &GridCheck, block: [u32; 3], barrier: u8) {
        let arrivals = std::mem::take(&mut self.arrivals[usize::from(barrier)]);
        if let Some(last) = arrivals.last()
            && arrivals.iter().all(|arrival| arrival.threads == 0)
        {
            let mut missing = self.whole.clone();
            for arrival in &arrivals {
                missing[arrival.warp] &= !arrival.lanes;
            }
            let missing: u32 = missing.iter().map(|lanes| lanes.count_ones()).sum();
            if missing != 0 {
                let message =
                    format!("barrier {barrier} is passed without {missing} threads that have exited");
                report(grid, block, self.threads, last, Kind::ExitedThreads, message);
            }
        }
        // Keeps the allocation.
        self.arrivals[usize::from(barrier)] = arrivals;
        self.arrivals[usize::from(barrier)].clear();
    }

    pub(super) fn ended(&mut self, grid: &GridCheck, block: [u32; 3]) {
        for (number, arrivals) in self.arrivals.iter().enumerate() {
            if let Some(first) = arrivals.first() {
                let arrived: u32 = arrivals.iter().map(|arrival| arrival.lanes.count_ones()).sum();
                let message = format!(
                    "{arrived} threads arrived at barrier {number}, which waits for {} and was never complete",
                    count(first.threads)
                );
                report(grid, block, self.threads, first, Kind::UnfinishedBarrier, message);
            }
        }
    }

    pub(super) fn unmet(&self, grid: &GridCheck, block: [u32; 3], warp: usize, unmet: Unmet) {
        let group = Group { warp, lanes: unmet.waiting, pc: unmet.pc, threads: 0 };
        let message = format!(
            "lanes {:#010x} wait in __syncwarp for lanes {:#010x}, which do not execute it",
            unmet.waiting, unmet.others
        );
        report(grid, block, self.threads, &group, Kind::WarpMask, message);
    }

    pub(super) fn warpsync(
        &self,
        grid: &GridCheck,
        block: [u32; 3],
        active: u32,
        masks: &Row,
        site: &Site<'_>,
    ) {
        let wrong = lanes(active).find(|&lane| masks[lane] >> lane & 1 == 0);
        let differs = |&lane: &usize| {
            lanes(masks[lane] & active)
                .any(|other| masks[other] != masks[lane] && masks[other] >> lane & 1 != 0)
        };
        let (lane, message) = if let Some(lane) = wrong {
            (
                lane,
                format!("the mask {:#010x} of __syncwarp does not name the calling lane {lane}", masks[lane]),
            )
        } else if let Some(lane) = lanes(active).find(differs) {
            (lane, format!("lanes of one __syncwarp have different masks, lane {lane} {:#010x}", masks[lane]))
        } else {
            return;
        };
        grid.checker.add(Kind::WarpMask, site.pc, 1, || Finding {
            at: Some(grid.locate(site.pc)),
            worker: Some(Worker { block, thread: [0, 1, 2].map(|axis| site.tid[axis][lane]) }),
            ..grid.finding(Kind::WarpMask, message)
        });
    }
}

/// Whether two instructions have different source lines.
fn differ(grid: &GridCheck, pc: u64, other: u64) -> bool {
    let [line, other] = [pc, other].map(|pc| grid.locate(pc)).map(|at| at.file.zip(at.line));
    line.is_some() && other.is_some() && line != other
}

/// A number of threads in a message.
fn count(threads: u32) -> String {
    if threads == 0 { "all".to_owned() } else { threads.to_string() }
}

fn report(grid: &GridCheck, block: [u32; 3], threads: u32, group: &Group, kind: Kind, message: String) {
    grid.checker.add(kind, group.pc, 1, || {
        let [x, y, _] = grid.launch.block;
        // CAST: a block has at most 32 warps.
        let index = (32 * group.warp as u32 + group.lanes.trailing_zeros()).min(threads.saturating_sub(1));
        let thread = [index % x, index / x % y, index / x / y];
        Finding {
            at: Some(grid.locate(group.pc)),
            worker: Some(Worker { block, thread }),
            ..grid.finding(kind, message)
        }
    });
}
