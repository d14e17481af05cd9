//! A CTA: its warps, its shared memory and its 16 named barriers.
//!
//! Since Volta, threads arrive at a barrier one by one. A warp whose live threads have all arrived counts as 32
//! threads, because the expected number is a multiple of the warp size. Without a thread count the barrier waits for
//! the whole CTA, and exited threads count as arrived.

use std::sync::Arc;

use super::arrival::{Arrival, Reduction};
use super::constants::Constants;
use super::coverage::Counter;
use super::exec::{self, Context, Spent, Stop};
use super::port::Port;
use super::program::Program;
use super::warp::Warp;
use super::{Launch, SmFault, SmFaultCause, Sms};
use crate::check::{BlockCheck, GridCheck};
use crate::config::draw;
use crate::kernel_profile::Tally;

/// Instructions that a warp executes before the next warp runs.
const TURN: u64 = 512;
/// Maximum number of instructions per turn with a random order of warps.
const RANDOM_TURN: u64 = 64;

/// One named barrier.
#[derive(Clone, Debug, Default)]
struct Barrier {
    /// Lanes that have arrived since the barrier last completed, by warp.
    arrived: Vec<u32>,
    /// Repeated arrivals of a lane, in threads: BAR.ARV may execute again before the other threads arrive.
    repeated: u32,
    /// Whether threads have arrived.
    used: bool,
    /// Expected threads; 0 for the whole CTA.
    threads: u32,
    reduction: Option<Reduction>,
    count: u32,
    all: bool,
}

/// A running CTA.
pub(crate) struct Cta {
    warps: Vec<Warp>,
    shared: Vec<u32>,
    barriers: [Barrier; 16],
    /// The barriers at which threads have arrived, one bit each.
    arrivals: u16,
    /// Index in the grid.
    pub(crate) block: [u32; 3],
    /// SM that executes it.
    sm: u32,
    /// Index of the next warp.
    next: usize,
    /// Instructions until another warp runs.
    warp_left: u64,
    /// State of the random generator for the order of warps, if the order is random.
    random: Option<u64>,
    /// Instructions of the running warp in this turn of the CTA.
    done: Done,
    /// Remaining budget of its turn for ordered instructions.
    order: Order,
    /// Linear index in the grid.
    pub(crate) number: u64,
    /// Whether the next instruction must wait for its turn among CTAs.
    pub(crate) ordered: bool,
    /// Warp instructions until another CTA runs.
    pub(crate) turn_left: u64,
    /// Warp instructions left in this phase.
    pub(crate) share_left: u64,
    /// Its checks, if enabled.
    check: Option<Box<BlockCheck>>,
}

/// Execution mode of a CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Concurrently with others, up to the next ordered instruction.
    SideBySide,
    /// Alone, in its turn for ordered instructions.
    InTurn,
}

/// Remaining budget of a CTA's turn for ordered instructions.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// Warp instructions.
    left: u64,
    /// Warp instructions since the last ordered one.
    quiet: u64,
    /// Ordered instructions.
    ordered: u32,
}

impl Order {
    /// A full turn. It ends early if the CTA has executed no ordered instruction for a while, or so many that it
    /// probably waits for another CTA.
    const WHOLE: Self = Self { left: 1 << 14, quiet: 1 << 12, ordered: 256 };

    /// Deducts the instructions of a warp. Returns whether the turn is over.
    fn spend(&mut self, done: Done) -> bool {
        self.left = self.left.saturating_sub(done.instructions);
        self.ordered = self.ordered.saturating_sub(done.ordered);
        self.quiet =
            if done.ordered == 0 { self.quiet.saturating_sub(done.instructions) } else { Self::WHOLE.quiet };
        self.left == 0 || self.quiet == 0 || self.ordered == 0
    }
}

/// Instructions of the running warp in the CTA's turn.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    instructions: u64,
    ordered: u32,
}

/// Data shared by all CTAs of a grid.
pub(crate) struct Grid<'a> {
    /// The launch.
    pub(crate) launch: &'a Launch,
    /// Constant banks.
    pub(crate) constants: &'a Constants,
    /// Decoded code.
    pub(crate) program: &'a mut Program,
    /// Counter of executed instructions.
    pub(crate) counter: &'a mut Counter,
    /// Global memory.
    pub(crate) port: &'a mut Port,
    /// Counts for the grid's profile, if profiling is enabled.
    pub(crate) tally: Option<&'a mut Tally>,
}

/// Reason why a turn of a CTA ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The fuel is used up.
    Fuel,
    /// The next instruction is ordered and must wait, or the turn is over.
    Ordered,
    /// All threads have exited.
    Done,
}

impl Cta {
    /// Creates an idle CTA for launches of `launch`'s shape.
    pub(crate) fn new(launch: &Launch, sms: &Sms, check: Option<&Arc<GridCheck>>) -> Self {
        let threads = launch.block.iter().product::<u32>();
        let warps = threads.div_ceil(32) as usize;
        Self {
            warps: (0..warps).map(|_| sms.take_warp()).collect(),
            // Rounded up to 16 bytes, the size of the widest access.
            shared: vec![0; launch.shared_bytes.div_ceil(16) as usize * 4],
            barriers: core::array::from_fn(|_| Barrier {
                arrived: vec![0; warps],
                all: true,
                ..Barrier::default()
            }),
            arrivals: 0,
            block: [0; 3],
            sm: 0,
            next: 0,
            warp_left: TURN,
            random: None,
            done: Done::default(),
            order: Order::WHOLE,
            number: 0,
            ordered: false,
            turn_left: 0,
            share_left: 0,
            check: check.map(|grid| Box::new(BlockCheck::new(grid))),
        }
    }

    /// Returns the warps, without local memory.
    pub(crate) fn into_warps(mut self) -> Vec<Warp> {
        self.warps.iter_mut().for_each(|warp| warp.local = Vec::new());
        self.warps
    }

    /// Restarts as CTA `number` of the grid.
    pub(crate) fn start(&mut self, launch: &Launch, number: u64, seed: Option<u64>) {
        let [x, y, _] = launch.grid.map(u64::from);
        // CAST: each coordinate is below an extent of the grid, and the SM is below the number of SMs.
        self.block = [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32];
        self.sm = (number % u64::from(launch.sm_count.max(1))) as u32;
        (self.number, self.ordered, self.order, self.done) = (number, false, Order::WHOLE, Done::default());
        (self.next, self.warp_left) = (0, if seed.is_some() { 0 } else { TURN });
        // Multiplication by an odd constant gives each CTA its own seed.
        self.random = seed.map(|seed| seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.shared.fill(0);
        if self.arrivals != 0 {
            self.arrivals = 0;
            self.barriers.iter_mut().for_each(Barrier::reset);
        }
        let registers = launch.registers.next_multiple_of(8) as usize;
        for (index, warp) in (0..).zip(&mut self.warps) {
            warp.start(launch.program_va, index, launch.block, registers);
            warp.copies.start(self.random.map(|seed| draw(seed, index.into())));
        }
        if let Some(check) = &mut self.check {
            check.start(self.block, number);
        }
    }

    /// Begins the next phase with a new share and a full turn.
    pub(crate) fn begin_phase(&mut self, share: u64, turn: u64) {
        (self.share_left, self.turn_left, self.ordered, self.order) = (share, turn, false, Order::WHOLE);
        self.done = Done::default();
    }

    /// Selects the next warp. Returns the length of its turn.
    fn choose_warp(&mut self) -> u64 {
        let Some(state) = &mut self.random else {
            self.next = (self.next + 1) % self.warps.len();
            return TURN;
        };
        // SplitMix64.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = *state;
        drawn = (drawn ^ drawn >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ drawn >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^= drawn >> 31;
        // CAST: below the number of warps.
        self.next = ((drawn >> 32) % self.warps.len() as u64) as usize;
        1 + drawn % RANDOM_TURN
    }

    /// Runs the warps in turn for about `fuel` instructions.
    ///
    /// # Errors
    ///
    /// Returns the fault of a warp, or a deadlock if no warp can run.
    pub(crate) fn run(
        &mut self,
        grid: &mut Grid,
        fuel: u64,
        mode: Mode,
        spent: &mut Spent,
    ) -> Result<Turn, SmFault> {
        let limit = spent.warp + fuel;
        let mut idle = 0;
        while spent.warp < limit {
            if self.warp_left == 0 {
                self.warp_left = self.choose_warp();
            }
            let index = self.next;
            let warp = &mut self.warps[index];
            if !warp.ready() {
                self.next = (index + 1) % self.warps.len();
                idle += 1;
                if idle > self.warps.len() {
                    if !self.warps.iter().all(Warp::done) {
                        return Err(self.deadlock());
                    }
                    if let Some(check) = &mut self.check {
                        check.ended();
                    }
                    return Ok(Turn::Done);
                }
                continue;
            }
            idle = 0;
            let in_turn = mode == Mode::InTurn;
            let mut context = Context {
                launch: grid.launch,
                constants: grid.constants,
                port: grid.port,
                counter: grid.counter,
                shared: &mut self.shared,
                block: self.block,
                sm: self.sm,
                in_turn,
                ordered: 0,
                check: self.check.as_deref_mut(),
                tally: grid.tally.as_deref_mut(),
            };
            let turn = self.warp_left.min(limit - spent.warp);
            let before = spent.warp;
            let stop = exec::run(grid.program, &mut context, warp, turn, spent)?;
            self.done.instructions += spent.warp - before;
            self.done.ordered += context.ordered;
            self.warp_left = self.warp_left.saturating_sub(spent.warp - before);
            // The end of the turn must not depend on how the caller divides it into steps.
            let interrupted = matches!(stop, Stop::Fuel) && self.warp_left > 0;
            match stop {
                Stop::Fuel => {}
                Stop::Blocked => self.warp_left = 0,
                Stop::Ordered => {
                    self.done = Done::default();
                    return Ok(Turn::Ordered);
                }
                Stop::Exited => {
                    let arrivals = self.arrivals;
                    for barrier in (0..16).filter(|barrier| arrivals >> barrier & 1 != 0) {
                        self.pass(barrier);
                    }
                }
                Stop::Arrived(arrival) => {
                    self.arrive(index, arrival);
                    self.warps[index].settle();
                }
            }
            if let Some(check) = &mut self.check
                && let Some(unmet) = self.warps[index].unmet.take()
            {
                check.unmet(index, unmet);
            }
            if in_turn && !interrupted && self.order.spend(core::mem::take(&mut self.done)) {
                return Ok(Turn::Ordered);
            }
        }
        Ok(Turn::Fuel)
    }

    /// Records an arrival. Releases the waiting threads if it was the last one.
    fn arrive(&mut self, index: usize, arrival: Arrival) {
        if let Some(check) = &mut self.check {
            check.arrived(index, &arrival);
        }
        self.arrivals |= 1 << arrival.barrier;
        let barrier = &mut self.barriers[usize::from(arrival.barrier)];
        barrier.repeated += (barrier.arrived[index] & arrival.lanes).count_ones();
        barrier.arrived[index] |= arrival.lanes;
        barrier.used = true;
        barrier.threads = arrival.threads;
        if arrival.reduction.is_some() {
            barrier.reduction = arrival.reduction;
        }
        barrier.count += arrival.truth.count_ones();
        barrier.all &= arrival.truth == arrival.lanes;
        self.pass(arrival.barrier);
    }

    /// Releases the threads that wait at a barrier if it is complete.
    fn pass(&mut self, number: u8) {
        let barrier = &mut self.barriers[usize::from(number)];
        if !barrier.complete(&self.warps) {
            return;
        }
        let result = barrier.reduction.map(|reduction| {
            let truth = match reduction {
                Reduction::And => barrier.all,
                Reduction::Or | Reduction::Count => barrier.count != 0,
            };
            (barrier.count, truth)
        });
        barrier.reset();
        self.arrivals &= !(1 << number);
        if let Some(check) = &mut self.check {
            check.passed(number);
        }
        for (index, warp) in self.warps.iter_mut().enumerate() {
            if warp.at_barrier(number) != 0 {
                if let Some(check) = &mut self.check {
                    check.released(index, number);
                }
                if let Some(result) = result {
                    warp.reduction = result;
                }
                warp.pass_barrier(number);
            }
        }
    }

    /// Returns the deadlock fault of a CTA in which every thread waits. Its location is the first waiting thread.
    #[cold]
    fn deadlock(&self) -> SmFault {
        let path = self
            .warps
            .iter()
            .filter(|warp| !warp.done())
            .find_map(|warp| warp.paths().find(|path| path.mask != 0).map(|path| (warp, *path)));
        let (pc, thread, what) = match path {
            Some((warp, path)) => {
                let lane = path.mask.trailing_zeros() as usize;
                let what = match path.state {
                    super::warp::State::Barrier(_) => "every thread of the block waits, the first at BAR",
                    super::warp::State::Lanes { .. } => {
                        "every thread of the block waits, the first at WARPSYNC"
                    }
                    _ => "every thread of the block waits, the first at BSYNC",
                };
                (path.pc, [0, 1, 2].map(|axis| warp.tid[axis][lane]), what)
            }
            None => (0, [0; 3], "no thread of the block can run"),
        };
        SmFault { pc, block: self.block, thread, cause: SmFaultCause::Deadlock(what) }
    }
}

impl Barrier {
    fn reset(&mut self) {
        if !core::mem::take(&mut self.used) {
            return;
        }
        self.arrived.fill(0);
        (self.repeated, self.threads, self.reduction) = (0, 0, None);
        (self.count, self.all) = (0, true);
    }

    /// Returns whether the expected threads have arrived; false before the first arrival.
    fn complete(&self, warps: &[Warp]) -> bool {
        if !self.used {
            return false;
        }
        let whole = |(lanes, warp): (&u32, &Warp)| warp.live & !lanes == 0;
        if self.threads == 0 {
            // From the end: warps run in order, so the last one is mostly the last to arrive.
            return self.arrived.iter().zip(warps).rev().all(whole);
        }
        let arrived: u32 = self
            .arrived
            .iter()
            .zip(warps)
            .map(|(lanes, warp)| match lanes {
                0 => 0,
                _ if whole((lanes, warp)) => 32,
                _ => lanes.count_ones(),
            })
            .sum();
        arrived + self.repeated >= self.threads.next_multiple_of(32)
    }
}
