//! The state of one warp: registers, predicates and its paths through the program.
//!
//! A warp is 32 threads (lanes) with a register file of one word per lane and register. Since Volta each lane has its
//! own program counter; lanes at the same address run together. The interpreter keeps a list of *paths*: a program
//! counter, its lanes, and the uniform registers of these lanes. One path runs at a time.
//!
//! There is no divergence stack. The compiler marks regions with convergence barriers: `BSSY Bn` records the lanes
//! that enter, and at `BSYNC Bn` each arriving lane waits for the other recorded lanes. Barrier registers are kept
//! per lane, so a callee can spill (`BMOV`) and restore a barrier that other lanes of the warp use.
//!
//! Source: compiled code for sm_87 and its disassembly.

mod paths;

#[cfg(target_arch = "x86_64")]
use core::mem::offset_of;

use sass::{PT, Predicate, URZ};
use zerocopy::FromZeros;

use super::copies::Copies;

/// One value per lane.
pub(crate) type Row = [u32; 32];

/// All 32 lanes.
pub(crate) const FULL: u32 = !0;

/// Row that receives writes to RZ.
const SINK: usize = 256;

/// Instructions that a path may execute while other paths of its warp are ready.
const TURN: u32 = 1024;

/// Scheduling state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Ready to run.
    Ready,
    /// Waits in BSYNC for the lanes recorded in this barrier register.
    Convergence(u8),
    /// Waits in WARPSYNC for lanes.
    Lanes {
        /// The lanes.
        mask: u32,
        /// Whether groups with different masks must remain separate afterwards.
        exclusive: bool,
    },
    /// Waits at a barrier of the CTA.
    Barrier(u8),
}

/// Lanes at the same address of the program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Path {
    /// GPU address of the next instruction, or of the waiting one if not ready.
    pub(crate) pc: u64,
    /// Its lanes; never 0 in the list of paths.
    pub(crate) mask: u32,
    /// Its scheduling state.
    pub(crate) state: State,
    /// Uniform registers; the last reads 0.
    pub(crate) uniform: [u32; 64],
    /// Uniform predicates, bit 7 always set.
    pub(crate) uniform_predicates: u8,
    /// Memory polls since the path last converged.
    polls: u32,
    /// Depth of counted calls.
    pub(crate) depth: u8,
    /// Whether it must not merge with another path (after WARPSYNC.EXCLUSIVE).
    apart: bool,
}

/// A WARPSYNC whose mask names lanes that do not execute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmet {
    /// Its address.
    pub(crate) pc: u64,
    /// Lanes that execute it.
    pub(crate) waiting: u32,
    /// Lanes that it names and that wait in BSYNC for those.
    pub(crate) others: u32,
}

/// What an instruction that does not jump changes in a warp.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    registers: Vec<Row>,
    predicates: [u32; 8],
    barriers: [Row; 16],
    path: Path,
    turn: u32,
}

/// Registers and paths of a warp.
pub(crate) struct Warp {
    /// General registers by lane. Row 255 reads 0; row 256 receives writes to RZ.
    registers: Box<[Row; 257]>,
    /// Number of registers that may be nonzero.
    used: usize,
    /// Predicates as lane masks; the last is always true.
    predicates: [u32; 8],
    /// Convergence barrier registers by lane.
    pub(crate) barriers: [Row; 16],
    /// The running path, or a waiting one if none runs.
    pub(crate) path: Path,
    /// All other paths.
    parked: Vec<Path>,
    /// Lanes that have started and not exited.
    pub(crate) live: u32,
    /// Result of the last BAR.RED: count and truth.
    pub(crate) reduction: (u32, bool),
    /// Index in its CTA.
    pub(crate) index: u32,
    /// Thread indices in the CTA.
    pub(crate) tid: [Row; 3],
    /// The warp's index and the shape of the CTA that the thread indices are for.
    shape: (u32, [u32; 3]),
    /// Local memory: one row per word of a thread's local memory; empty until first used.
    pub(crate) local: Vec<Row>,
    /// Copies by `cp.async` in flight.
    pub(crate) copies: Copies,
    turn: u32,
    /// Whether lanes were released from a convergence barrier before the others had come. Records of barriers that
    /// functions have saved in registers still contain them.
    freed: bool,
    /// The first WARPSYNC that was not met since this was last taken.
    pub(crate) unmet: Option<Unmet>,
}

impl core::fmt::Debug for Warp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Warp").field("path", &self.path).field("live", &self.live).finish_non_exhaustive()
    }
}

impl Warp {
    /// Creates an idle warp; call [`Warp::start`] before running it.
    pub(crate) fn new() -> Self {
        Self {
            // Zeroed by the allocator: the compiler fills a vector of rows with stores of 16 bytes.
            // PANIC: an allocation of 32 KiB that fails aborts, as for any box.
            registers: <[Row; 257]>::new_box_zeroed().expect("memory for registers"),
            used: 0,
            predicates: [0, 0, 0, 0, 0, 0, 0, FULL],
            barriers: [[0; 32]; 16],
            path: Path::at(0, 0),
            parked: Vec::new(),
            live: 0,
            reduction: (0, false),
            index: 0,
            tid: [[0; 32]; 3],
            shape: (0, [0; 3]),
            local: Vec::new(),
            copies: Copies::default(),
            turn: TURN,
            freed: false,
            unmet: None,
        }
    }

    /// Starts warp `index` of a CTA of shape `block` at `pc` with all state zero.
    ///
    /// `registers` is the number of registers that the program can write.
    pub(crate) fn start(&mut self, pc: u64, index: u32, block: [u32; 3], registers: usize) {
        self.registers[..self.used].fill([0; 32]);
        self.used = registers.min(255);
        self.predicates = [0, 0, 0, 0, 0, 0, 0, FULL];
        self.barriers = [[0; 32]; 16];
        self.parked.clear();
        self.local.clear();
        self.reduction = (0, false);
        self.index = index;
        self.turn = TURN;
        self.freed = false;
        self.unmet = None;
        let threads = block[0] * block[1] * block[2];
        let first = index * 32;
        let count = (threads - first).min(32);
        self.live = if count == 32 { FULL } else { (1 << count) - 1 };
        self.path = Path::at(pc, self.live);
        if self.shape == (index, block) {
            return;
        }
        self.shape = (index, block);
        let mut tid = [first % block[0], first / block[0] % block[1], first / block[0] / block[1]];
        for lane in 0..32 {
            for (row, index) in self.tid.iter_mut().zip(tid) {
                row[lane] = index;
            }
            tid[0] += 1;
            if tid[0] == block[0] {
                tid = [0, tid[1] + 1, tid[2]];
            }
            if tid[1] == block[1] {
                tid = [tid[0], 0, tid[2] + 1];
            }
        }
    }

    /// Returns the registers, predicates and running path.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            registers: self.registers[..SINK].to_vec(),
            predicates: self.predicates,
            barriers: self.barriers,
            path: self.path,
            turn: self.turn,
        }
    }

    /// Returns to the state of a snapshot.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) {
        self.registers[..SINK].copy_from_slice(&snapshot.registers);
        (self.predicates, self.barriers) = (snapshot.predicates, snapshot.barriers);
        (self.path, self.turn) = (snapshot.path, snapshot.turn);
    }

    /// Whether all lanes have exited.
    pub(crate) fn done(&self) -> bool {
        self.live == 0
    }

    /// Whether a path can run.
    pub(crate) fn ready(&self) -> bool {
        self.live != 0 && (self.path.runs() || self.parked.iter().any(Path::runs))
    }

    /// Returns the row of a register.
    #[inline(always)]
    pub(crate) fn row(&self, register: u8) -> &Row {
        &self.registers[usize::from(register)]
    }

    /// Returns a register's row for writing all lanes; for RZ a row that is never read.
    #[inline(always)]
    pub(crate) fn row_mut(&mut self, register: u8) -> &mut Row {
        &mut self.registers[if register == 255 { SINK } else { usize::from(register) }]
    }

    /// Writes the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn write(&mut self, register: u8, mask: u32, values: &Row) {
        blend(self.row_mut(register), mask, values);
    }

    /// Writes one lane.
    #[inline(always)]
    pub(crate) fn write_lane(&mut self, register: u8, lane: usize, value: u32) {
        self.row_mut(register)[lane] = value;
    }

    /// Returns the addresses of the ready paths that do not run.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn ready_elsewhere(&self) -> impl Iterator<Item = u64> {
        self.parked.iter().filter(|path| path.runs()).map(|path| path.pc)
    }

    /// Returns the register `step` after `register` in a group; RZ for RZ.
    #[inline(always)]
    pub(crate) fn next(register: u8, step: u8) -> u8 {
        if register == 255 { 255 } else { register + step }
    }

    /// Returns a register pair of one lane.
    #[inline(always)]
    pub(crate) fn pair(&self, register: u8, lane: usize) -> u64 {
        u64::from(self.row(register)[lane]) | u64::from(self.row(Self::next(register, 1))[lane]) << 32
    }

    /// Writes a register pair of one lane.
    #[inline(always)]
    pub(crate) fn write_pair(&mut self, register: u8, lane: usize, value: u64) {
        // CAST: the halves of the value.
        self.write_lane(register, lane, value as u32);
        self.write_lane(Self::next(register, 1), lane, (value >> 32) as u32);
    }

    /// Returns the lanes in which a predicate operand is true.
    #[inline(always)]
    pub(crate) fn predicate(&self, operand: Predicate) -> u32 {
        self.predicates[usize::from(operand.index)] ^ if operand.not { FULL } else { 0 }
    }

    /// Writes the lanes of `mask` of a predicate; writes to PT are dropped.
    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, index: u8, mask: u32, values: u32) {
        if index != PT {
            let to = &mut self.predicates[usize::from(index)];
            *to = *to & !mask | values & mask;
        }
    }

    /// Returns a uniform register.
    #[inline(always)]
    pub(crate) fn uniform(&self, register: u8) -> u32 {
        self.path.uniform[usize::from(register & 63)]
    }

    /// Writes a uniform register; writes to URZ are dropped.
    #[inline(always)]
    pub(crate) fn set_uniform(&mut self, register: u8, value: u32) {
        if register & 63 != URZ {
            self.path.uniform[usize::from(register & 63)] = value;
        }
    }

    /// Returns the value of a uniform predicate operand.
    #[inline(always)]
    pub(crate) fn uniform_predicate(&self, operand: Predicate) -> bool {
        (self.path.uniform_predicates >> operand.index & 1 != 0) != operand.not
    }

    /// Writes a uniform predicate; writes to UPT are dropped.
    pub(crate) fn set_uniform_predicate(&mut self, index: u8, value: bool) {
        if index != PT {
            let bit = 1 << index;
            self.path.uniform_predicates = self.path.uniform_predicates & !bit | if value { bit } else { 0 };
        }
    }
}

impl Snapshot {
    /// Returns the first difference from another snapshot.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let rows = self.registers.iter().zip(&other.registers).enumerate();
        let row = rows.flat_map(|(number, (a, b))| (0..32).map(move |lane| (number, lane, a[lane], b[lane])));
        row.into_iter()
            .find(|(_, _, a, b)| a != b)
            .map(|(number, lane, a, b)| format!("R{number} of lane {lane} is {a:#x} and {b:#x}"))
            .or_else(|| {
                let mut predicates = self.predicates.iter().zip(&other.predicates).enumerate();
                predicates
                    .find(|(_, (a, b))| a != b)
                    .map(|(at, (a, b))| format!("P{at} is {a:#x} and {b:#x}"))
            })
            .or_else(|| (self != other).then(|| format!("{:?} and {:?}", self.path, other.path)))
    }
}

impl Path {
    fn at(pc: u64, mask: u32) -> Self {
        Self {
            pc,
            mask,
            state: State::Ready,
            uniform: [0; 64],
            uniform_predicates: 0x80,
            polls: 0,
            depth: 0,
            apart: false,
        }
    }

    /// Whether the path can run.
    #[inline(always)]
    pub(crate) fn runs(&self) -> bool {
        self.state == State::Ready && self.mask != 0
    }
}

/// Offsets in a warp, for generated code.
#[cfg(target_arch = "x86_64")]
pub(super) struct Layout {
    /// A pointer to the registers.
    pub(super) registers: usize,
    pub(super) predicates: usize,
    pub(super) barriers: usize,
    pub(super) tid: usize,
    pub(super) uniform: usize,
    /// A byte.
    pub(super) uniform_predicates: usize,
}

#[cfg(target_arch = "x86_64")]
pub(super) const LAYOUT: Layout = Layout {
    registers: offset_of!(Warp, registers),
    predicates: offset_of!(Warp, predicates),
    barriers: offset_of!(Warp, barriers),
    tid: offset_of!(Warp, tid),
    uniform: offset_of!(Warp, path.uniform),
    uniform_predicates: offset_of!(Warp, path.uniform_predicates),
};

/// The bit of each lane. Constants: not every processor shifts each lane of a vector by another amount.
const LANES: Row = {
    let mut bits = [0; 32];
    let mut lane = 0;
    while lane < 32 {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

/// Writes the lanes of `mask` of a row.
#[inline(always)]
pub(crate) fn blend(row: &mut Row, mask: u32, values: &Row) {
    if mask == FULL {
        *row = *values;
    } else {
        for (bit, (to, from)) in LANES.iter().zip(row.iter_mut().zip(values)) {
            *to = if mask & bit != 0 { *from } else { *to };
        }
    }
}

/// Returns the lanes of a mask in ascending order.
#[inline(always)]
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    core::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let lane = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(lane)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_warps_have_only_existing_lanes() {
        let mut warp = Warp::new();
        warp.start(0, 1, [5, 3, 3], 8);
        assert_eq!(warp.live, 0x1fff);
        assert_eq!([warp.tid[0][12], warp.tid[1][12], warp.tid[2][12]], [4, 2, 2]);
    }
}
