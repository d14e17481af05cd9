//! synccheck of shuffles: values of lanes that do not execute the shuffle, because they have exited or are elsewhere.
//!
//! Such a value is undefined, but reading it is no error: programs shuffle first, and then use only the values of
//! neighbours that exist. An error is an instruction that reads the register, or a copy of it, in the lanes concerned.
//! While a warp has such values, all its instructions are examined. A copy in local memory is not followed.

use sass::{Instruction, Op, RZ};

use super::fate::{self, Fate};
use super::finding::{Finding, Kind, Worker};
use super::grid::GridCheck;
use super::request::Site;
use crate::sm::lanes;

/// Lanes of a warp whose register has an undefined value.
#[derive(Clone, Copy, Debug)]
struct Value {
    warp: u32,
    register: u8,
    lanes: u32,
    /// GPU address of the shuffle.
    pc: u64,
}

/// The undefined values of a block.
#[derive(Debug, Default)]
pub(super) struct Undefined(Vec<Value>);

impl Undefined {
    pub(super) fn start(&mut self) {
        self.0.clear();
    }

    fn overwrite(&mut self, warp: u32, (first, count): (u8, u8), active: u32) {
        for value in &mut self.0 {
            if value.warp == warp && value.register.wrapping_sub(first) < count {
                value.lanes &= !active;
            }
        }
        self.0.retain(|value| value.lanes != 0);
    }

    /// Whether a live lane of the warp has an undefined value.
    pub(super) fn follows(&self, warp: u32, live: u32) -> bool {
        self.0.iter().any(|value| value.warp == warp && value.lanes & live != 0)
    }

    /// A shuffle of the lanes `active` writes a register. In `lanes` the value is undefined.
    pub(super) fn shuffled(&mut self, register: u8, lanes: u32, active: u32, site: &Site<'_>) {
        self.overwrite(site.warp, (register, 1), active);
        if lanes != 0 {
            self.0.push(Value { warp: site.warp, register, lanes, pc: site.pc });
        }
    }

    /// Examines the registers of an instruction.
    pub(super) fn registers(
        &mut self,
        grid: &GridCheck,
        block: [u32; 3],
        i: &Instruction,
        active: u32,
        site: &Site<'_>,
    ) {
        let (reads, mut copied) = (i.read(), Vec::new());
        for value in &self.0 {
            let read = reads.iter().any(|(first, count)| value.register.wrapping_sub(*first) < *count);
            if !read || value.warp != site.warp || value.lanes & active == 0 {
                continue;
            }
            if copies(i) {
                copied.push(Value { register: i.written().0, lanes: value.lanes & active, ..*value });
            } else if uses(grid, i, site.pc) {
                report(grid, block, value, active, site);
            }
        }
        if i.op != Op::Shfl {
            self.overwrite(site.warp, i.written(), active);
            self.overwrite(site.warp, i.written_too(), active);
        }
        self.0.extend(copied);
    }
}

/// Whether an instruction copies a register.
fn copies(i: &Instruction) -> bool {
    i.op == Op::Mov || i.op == Op::Imad && i.a == RZ
}

/// Whether an instruction uses what it reads. Another operand may decide, and a result be left unused.
fn uses(grid: &GridCheck, i: &Instruction, pc: u64) -> bool {
    if matches!(i.op, Op::Shfl | Op::Stl) || fate::may_ignore(i) {
        return false;
    }
    !fate::computes(i) || grid.register_fate(pc, i.written().0) > Fate::Guarded
}

#[cold]
fn report(grid: &GridCheck, block: [u32; 3], value: &Value, active: u32, site: &Site<'_>) {
    let used = value.lanes & active;
    grid.checker.add(Kind::InactiveLane, value.pc, used.count_ones().into(), || {
        let lane = used.trailing_zeros() as usize & 31;
        let count = lanes(used).count();
        let message = format!(
            "a shuffle reads lanes that have exited or do not execute it, for {count} lanes that use the value at {}",
            grid.locate(site.pc)
        );
        Finding {
            at: Some(grid.locate(value.pc)),
            worker: Some(Worker { block, thread: [0, 1, 2].map(|axis| site.tid[axis][lane]) }),
            ..grid.finding(Kind::InactiveLane, message)
        }
    });
}
