//! memcheck of `__constant__` variables: loads that run from one variable into the next, or beyond the last one.
//!
//! The address alone does not say which variable a program means. A load that straddles two is an error, and one
//! instruction that goes from one to the other in a small step: a thread from one execution to the next, or adjacent
//! lanes. A thread that then reads the other variable to its end is no error: the same loop may sum several tables.

use std::collections::HashMap;

use super::finding::{Accessing, Finding, Kind, NearObject, Place, Worker};
use super::grid::GridCheck;
use super::program::Variable;
use super::request::Site;
use crate::sm::{Row, lanes};

/// Bank of the `__constant__` variables.
const BANK: u8 = 3;
/// Longest step of a thread that runs through an array, in bytes: loops are unrolled.
const STEP: u32 = 64;
/// Longest step between lanes.
const LANE_STEP: u32 = 16;

/// The loads of a block.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// By instruction and warp.
    tracks: HashMap<(u64, u32), Track>,
}

/// The loads of one instruction by one warp.
#[derive(Debug)]
struct Track {
    /// Last offset in the bank of each lane; `u32::MAX` if none.
    last: Row,
    /// Last step of each lane inside a variable; 0 if none.
    steps: Row,
    /// A step into another variable that may be the start of a run through it.
    entered: Option<Entered>,
}

/// A step of a thread from one variable into the next.
#[derive(Clone, Copy, Debug)]
struct Entered {
    load: Load,
    lane: usize,
    /// Index of the variable.
    into: usize,
    /// The thread's step, and its last offset.
    step: u32,
    now: u32,
}

/// A load outside of the variable that it means.
#[derive(Clone, Copy, Debug)]
struct Load {
    pc: u64,
    block: [u32; 3],
    thread: [u32; 3],
    /// Index of the variable.
    meant: usize,
    offset: u32,
    bytes: u32,
}

/// Index of the variable that contains an offset.
fn variable_at(variables: &[Variable], offset: u32) -> Option<usize> {
    let offset = u64::from(offset);
    let before = variables.partition_point(|variable| variable.offset <= offset).checked_sub(1)?;
    (offset < variables[before].offset + variables[before].bytes).then_some(before)
}

impl Loads {
    pub(super) fn start(&mut self) {
        self.tracks.clear();
    }

    /// Examines loads of `bytes` bytes at offsets of a bank.
    pub(super) fn load(
        &mut self,
        grid: &GridCheck,
        block: [u32; 3],
        (bank, offsets, mask, bytes): (u8, &Row, u32, u32),
        site: &Site<'_>,
    ) {
        let variables = grid.constants();
        if bank != BANK || variables.len() < 2 {
            return;
        }
        let new = || Track { last: [u32::MAX; 32], steps: [0; 32], entered: None };
        let track = self.tracks.entry((site.pc, site.warp)).or_insert_with(new);
        if track.goes_on(grid, variables, offsets, mask) {
            return;
        }
        let (mut wrong, mut neighbour) = (None, u32::MAX);
        for lane in lanes(mask) {
            let (now, last) = (offsets[lane], track.last[lane]);
            let at = variable_at(variables, now);
            let end = variable_at(variables, now.saturating_add(bytes - 1));
            let left = |from: u32, most| {
                let meant = variable_at(variables, from).filter(|_| from.abs_diff(now) <= most)?;
                (at != Some(meant)).then_some(meant)
            };
            // Code that reads several elements per turn begins the next variable with a step of several.
            let step = now.wrapping_sub(last);
            let runs = step == bytes || step == track.steps[lane] || last.wrapping_sub(now) == bytes;
            let stepped = left(last, STEP).filter(|_| runs);
            let left = stepped.or_else(|| left(neighbour, LANE_STEP));
            let straddled = at.filter(|_| end.is_some_and(|end| Some(end) != at));
            if wrong.is_none() {
                wrong = left.or(straddled).map(|meant| {
                    let thread = [0, 1, 2].map(|axis| site.tid[axis][lane]);
                    let load = Load { pc: site.pc, block, thread, meant, offset: now, bytes };
                    let into = at.filter(|_| stepped.is_some() && straddled.is_none());
                    (load, into.map(|into| Entered { load, lane, into, step, now }))
                });
            }
            // What is meant stays the same.
            if left.is_none() {
                // From one variable to another is no step of a run.
                let inside = at.is_some() && variable_at(variables, last) == at;
                track.steps[lane] = if inside { step } else { 0 };
                (track.last[lane], neighbour) = (now, now);
            }
        }
        match wrong {
            // From the last element to the first, of a variable that has more.
            Some((_, Some(entered))) if entered.is_start(variables) => track.entered = Some(entered),
            Some((load, _)) => report(grid, variables, load),
            None => {}
        }
    }

    /// Reports the steps into variables that were not read to their ends.
    pub(super) fn ended(&mut self, grid: &GridCheck) {
        for entered in self.tracks.values().filter_map(|track| track.entered) {
            report(grid, grid.constants(), entered.load);
        }
    }
}

impl Track {
    /// Follows a thread that has entered another variable. Returns whether it still runs through it.
    fn goes_on(&mut self, grid: &GridCheck, variables: &[Variable], offsets: &Row, mask: u32) -> bool {
        let Some(entered) = self.entered.as_mut().filter(|entered| mask >> entered.lane & 1 != 0) else {
            return self.entered.is_some();
        };
        let now = offsets[entered.lane];
        let runs = now == entered.now + entered.step && variable_at(variables, now) == Some(entered.into);
        entered.now = now;
        let entered = *entered;
        if runs && !entered.is_end(variables) {
            return true;
        }
        if !runs {
            report(grid, variables, entered.load);
        }
        self.entered = None;
        lanes(mask).for_each(|lane| self.last[lane] = offsets[lane]);
        true
    }
}

impl Entered {
    fn is_start(&self, variables: &[Variable]) -> bool {
        let (meant, into) = (&variables[self.load.meant], &variables[self.into]);
        let (now, step) = (u64::from(self.now), u64::from(self.step));
        into.offset >= meant.offset + meant.bytes && now - into.offset < step && 2 * step <= into.bytes
    }

    fn is_end(&self, variables: &[Variable]) -> bool {
        let into = &variables[self.into];
        u64::from(self.now) + u64::from(self.step) >= into.offset + into.bytes
    }
}

#[cold]
fn report(grid: &GridCheck, variables: &[Variable], load: Load) {
    let Load { pc, block, thread, meant, offset, bytes } = load;
    let meant = &variables[meant];
    grid.checker.add(Kind::BeyondConstant, pc, 1, || {
        let address = u64::from(offset);
        let end = meant.offset + meant.bytes;
        let place = match address.checked_sub(end) {
            Some(past) => Place::Past(past),
            None if address < meant.offset => Place::Before(meant.offset - address),
            None => Place::Inside(address - meant.offset),
        };
        let base = grid.launch.constants[usize::from(BANK)].map_or(0, |bank| bank.va);
        Finding {
            at: Some(grid.locate(pc)),
            worker: Some(Worker { block, thread }),
            access: Some(Accessing {
                what: "read".into(),
                space: "constant".into(),
                bytes,
                address,
                last: address,
            }),
            object: Some(NearObject {
                name: meant.name.clone(),
                va: base + meant.offset,
                bytes: meant.bytes,
                place,
                argument: None,
                allocated: Vec::new(),
                freed: Vec::new(),
                viewed: Vec::new(),
            }),
            ..grid.finding(
                Kind::BeyondConstant,
                format!("read of {bytes} bytes at {offset:#x} of constant memory, outside of {}", meant.name),
            )
        }
    });
}
