//! memcheck of `__constant__` variables: loads that run from one variable into the next, or beyond the last one.
//!
//! The address alone does not say which variable a program means. A load that straddles two is an error, and one
//! instruction that goes from one to the other in a small step: a thread from one execution to the next, or adjacent
//! lanes.

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

/// The variables of a grid, and the loads of a block.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Last offset in the bank by instruction and warp, for each lane; `u32::MAX` if none.
    last: HashMap<(u64, u32), Row>,
}

/// Index of the variable that contains an offset.
fn variable_at(variables: &[Variable], offset: u32) -> Option<usize> {
    let offset = u64::from(offset);
    let before = variables.partition_point(|variable| variable.offset <= offset).checked_sub(1)?;
    (offset < variables[before].offset + variables[before].bytes).then_some(before)
}

impl Loads {
    pub(super) fn start(&mut self) {
        self.last.clear();
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
        let last = self.last.entry((site.pc, site.warp)).or_insert([u32::MAX; 32]);
        let (mut wrong, mut neighbour) = (None, u32::MAX);
        for lane in lanes(mask) {
            let now = offsets[lane];
            let at = variable_at(variables, now);
            let end = variable_at(variables, now.saturating_add(bytes - 1));
            let steps = [(last[lane], STEP), (neighbour, LANE_STEP)];
            let mut from = steps.into_iter().filter(|(from, most)| from.abs_diff(now) <= *most);
            let left = from.find_map(|(from, _)| {
                let meant = variable_at(variables, from)?;
                (at != Some(meant)).then_some(meant)
            });
            let straddled = at.filter(|_| end.is_some_and(|end| Some(end) != at));
            wrong = wrong.or_else(|| left.or(straddled).map(|meant| (lane, meant)));
            // What is meant stays the same.
            if left.is_none() {
                (last[lane], neighbour) = (now, now);
            }
        }
        if let Some((lane, meant)) = wrong {
            report(grid, &variables[meant], (block, lane), (offsets[lane], bytes), site);
        }
    }
}

#[cold]
fn report(
    grid: &GridCheck,
    meant: &Variable,
    (block, lane): ([u32; 3], usize),
    (offset, bytes): (u32, u32),
    site: &Site<'_>,
) {
    grid.checker.add(Kind::BeyondConstant, site.pc, 1, || {
        let address = u64::from(offset);
        let end = meant.offset + meant.bytes;
        let place = match address.checked_sub(end) {
            Some(past) => Place::Past(past),
            None if address < meant.offset => Place::Before(meant.offset - address),
            None => Place::Inside(address - meant.offset),
        };
        let base = grid.launch.constants[usize::from(BANK)].map_or(0, |bank| bank.va);
        Finding {
            at: Some(grid.locate(site.pc)),
            worker: Some(Worker { block, thread: [0, 1, 2].map(|axis| site.tid[axis][lane]) }),
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
            ..Finding::new(
                Kind::BeyondConstant,
                format!("read of {bytes} bytes at {offset:#x} of constant memory, outside of {}", meant.name),
            )
        }
    });
}
