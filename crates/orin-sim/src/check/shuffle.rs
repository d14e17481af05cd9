//! synccheck of shuffles: values of lanes that do not execute the shuffle, because they have exited or are elsewhere.
//!
//! Such a value is undefined, but reading it is no error: programs shuffle first, and then use only the values of
//! neighbours that exist. An error is an instruction that reads the register in the lanes concerned. The instructions
//! behind the shuffle that touch its register are examined, in the same page of code.

use sass::{Instruction, Op, RZ};

use super::fate::{self, Fate};
use super::finding::{Finding, Kind, Worker};
use super::grid::GridCheck;
use super::request::Site;
use crate::sm::lanes;

/// Size of a page of code.
const PAGE_BYTES: u64 = 4096;

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
        if self.0.is_empty() {
            return;
        }
        let reads = i.read();
        for value in &self.0 {
            let read = reads.iter().any(|(first, count)| value.register.wrapping_sub(*first) < *count);
            let behind = site.pc > value.pc && site.pc / PAGE_BYTES == value.pc / PAGE_BYTES;
            let concerns = behind && value.warp == site.warp && value.lanes & active != 0;
            if read && concerns && uses(grid, i, site.pc) {
                report(grid, block, value, active, site);
            }
        }
        if i.op != Op::Shfl {
            self.overwrite(site.warp, i.written(), active);
        }
    }
}

/// Whether an instruction uses what it reads. Another operand may decide, and a copy or a result be left unused.
fn uses(grid: &GridCheck, i: &Instruction, pc: u64) -> bool {
    let copies = i.op == Op::Mov || i.op == Op::Imad && i.a == RZ;
    if copies || i.op == Op::Shfl || fate::may_ignore(i) {
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
            ..Finding::new(Kind::InactiveLane, message)
        }
    });
}
