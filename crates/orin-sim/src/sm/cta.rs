//! A CTA: its warps, its shared memory and its 16 named barriers.
//!
//! Threads arrive at a barrier one by one (since Volta); a warp of which all live threads have
//! arrived counts as 32, since the expected number is a multiple of the warp size. Without a
//! number the barrier is that of the whole CTA, and threads that have exited count as arrived.

use super::constants::Constants;
use super::coverage::Counter;
use super::exec::{self, Context, Spent, Stop};
use super::port::Port;
use super::program::Program;
use super::warp::Warp;
use super::{Launch, SmFault, SmFaultCause};

/// Instructions a warp runs before the next one does.
const TURN: u64 = 512;
/// Most instructions that a warp runs before another one does when the order is random.
const RANDOM_TURN: u64 = 64;

/// How BAR.RED combines the predicate of the arriving threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// How many are true.
    Count,
    /// Whether all are.
    And,
    /// Whether any is.
    Or,
}

/// Threads of a warp that arrive at a barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Number of the barrier, 0 to 15.
    pub(crate) barrier: u8,
    /// Lanes that arrive.
    pub(crate) lanes: u32,
    /// Threads that the barrier waits for; 0 for the whole CTA.
    pub(crate) threads: u32,
    /// Reduction over the arriving threads, if any.
    pub(crate) reduction: Option<Reduction>,
    /// Lanes whose predicate is true.
    pub(crate) truth: u32,
}

/// One named barrier.
#[derive(Clone, Debug, Default)]
struct Barrier {
    /// Lanes that have arrived since the barrier was last passed, by warp.
    arrived: Vec<u32>,
    /// Arrivals beyond the first of a lane, in threads: an ARV may come again before the rest.
    repeated: u32,
    /// Threads waited for; 0 for the whole CTA.
    threads: u32,
    reduction: Option<Reduction>,
    count: u32,
    all: bool,
}

/// One CTA in execution.
pub(crate) struct Cta {
    warps: Vec<Warp>,
    shared: Vec<u32>,
    barriers: [Barrier; 16],
    /// Index in the grid.
    pub(crate) block: [u32; 3],
    /// SM that it is on.
    sm: u32,
    /// Warp that runs next.
    next: usize,
    /// Instructions until another warp runs.
    warp_left: u64,
    /// State of the random order of warps, if they have one.
    random: Option<u64>,
    /// What the running warp has executed in it.
    done: Done,
    /// What is left of its turn to execute ordered instructions.
    order: Order,
    /// Number in the grid.
    pub(crate) number: u64,
    /// Whether it stands before an ordered instruction.
    pub(crate) ordered: bool,
    /// Warp instructions until another CTA runs.
    pub(crate) turn_left: u64,
    /// Warp instructions until the phase is over for it.
    pub(crate) share_left: u64,
}

/// How a CTA runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Side by side with others, up to the next ordered instruction.
    SideBySide,
    /// Alone, in its turn.
    InTurn,
}

/// What is left of a CTA's turn to execute ordered instructions.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// Warp instructions.
    left: u64,
    /// Warp instructions without an ordered one.
    quiet: u64,
    /// Ordered instructions.
    ordered: u32,
}

impl Order {
    /// A whole turn. It is over early when it does not seem to be needed any more, and when so many ordered
    /// instructions have been executed that the CTA is likely to wait for another one.
    const WHOLE: Self = Self { left: 1 << 14, quiet: 1 << 12, ordered: 256 };

    /// Notes what a warp has executed until another one runs; says whether the turn is over.
    fn spend(&mut self, done: Done) -> bool {
        self.left = self.left.saturating_sub(done.instructions);
        self.ordered = self.ordered.saturating_sub(done.ordered);
        self.quiet =
            if done.ordered == 0 { self.quiet.saturating_sub(done.instructions) } else { Self::WHOLE.quiet };
        self.left == 0 || self.quiet == 0 || self.ordered == 0
    }
}

/// What the running warp has executed in the CTA's turn.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    instructions: u64,
    ordered: u32,
}

/// What all CTAs of a grid share.
pub(crate) struct Grid<'a> {
    /// What runs.
    pub(crate) launch: &'a Launch,
    /// Constant banks.
    pub(crate) constants: &'a Constants,
    /// Decoded code.
    pub(crate) program: &'a mut Program,
    /// Counts executed instructions, when that is asked for.
    pub(crate) counter: &'a mut Counter,
    /// Global memory.
    pub(crate) port: &'a mut Port,
}

/// How a turn of a CTA ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The fuel is used up.
    Fuel,
    /// The next instruction is ordered and has to wait for its turn, or the turn is over.
    Ordered,
    /// All threads have exited.
    Done,
}

impl Cta {
    /// An empty CTA for launches of `launch`'s shape.
    pub(crate) fn new(launch: &Launch) -> Self {
        let threads = launch.block.iter().product::<u32>();
        let warps = threads.div_ceil(32) as usize;
        Self {
            warps: (0..warps).map(|_| Warp::new()).collect(),
            // Whole rows of 16 bytes, so that the widest access has room.
            shared: vec![0; launch.shared_bytes.div_ceil(16) as usize * 4],
            barriers: core::array::from_fn(|_| Barrier { arrived: vec![0; warps], ..Barrier::default() }),
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
        }
    }

    /// Starts over as the CTA `number` of the grid.
    pub(crate) fn start(&mut self, launch: &Launch, number: u64, seed: Option<u64>) {
        let [x, y, _] = launch.grid.map(u64::from);
        // CAST: each is below an extent of the grid, and the SM below their number.
        self.block = [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32];
        self.sm = (number % u64::from(launch.sm_count.max(1))) as u32;
        (self.number, self.ordered, self.order, self.done) = (number, false, Order::WHOLE, Done::default());
        (self.next, self.warp_left) = (0, if seed.is_some() { 0 } else { TURN });
        // Any odd multiple of the number makes unequal beginnings of unequal CTAs.
        self.random = seed.map(|seed| seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.shared.fill(0);
        for barrier in &mut self.barriers {
            barrier.reset();
        }
        let registers = launch.registers.next_multiple_of(8) as usize;
        for (index, warp) in (0..).zip(&mut self.warps) {
            warp.start(launch.program_va, index, launch.block, registers);
        }
    }

    /// Begins the next phase with a new share and a new turn.
    pub(crate) fn begin_phase(&mut self, share: u64, turn: u64) {
        (self.share_left, self.turn_left, self.ordered, self.order) = (share, turn, false, Order::WHOLE);
        self.done = Done::default();
    }

    /// Lets another warp run; returns for how long at most.
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
    /// The fault of a warp, or that no warp can run.
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
                    let done = self.warps.iter().all(Warp::done);
                    return if done { Ok(Turn::Done) } else { Err(self.deadlock()) };
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
            };
            let turn = self.warp_left.min(limit - spent.warp);
            let before = spent.warp;
            let stop = exec::run(grid.program, &mut context, warp, turn, spent)?;
            self.done.instructions += spent.warp - before;
            self.done.ordered += context.ordered;
            self.warp_left = self.warp_left.saturating_sub(spent.warp - before);
            // Whether the turn is over must not depend on how it is cut into steps.
            let interrupted = matches!(stop, Stop::Fuel) && self.warp_left > 0;
            match stop {
                Stop::Fuel => {}
                Stop::Blocked => self.warp_left = 0,
                Stop::Ordered => {
                    self.done = Done::default();
                    return Ok(Turn::Ordered);
                }
                Stop::Exited => {
                    for barrier in 0..16 {
                        self.pass(barrier);
                    }
                }
                Stop::Arrived(arrival) => {
                    self.arrive(index, arrival);
                    self.warps[index].settle();
                }
            }
            if in_turn && !interrupted && self.order.spend(core::mem::take(&mut self.done)) {
                return Ok(Turn::Ordered);
            }
        }
        Ok(Turn::Fuel)
    }

    /// Notes an arrival; lets everybody go on when it was the last.
    fn arrive(&mut self, index: usize, arrival: Arrival) {
        let barrier = &mut self.barriers[usize::from(arrival.barrier)];
        barrier.repeated += (barrier.arrived[index] & arrival.lanes).count_ones();
        barrier.arrived[index] |= arrival.lanes;
        barrier.threads = arrival.threads;
        if arrival.reduction.is_some() {
            barrier.reduction = arrival.reduction;
        }
        barrier.count += arrival.truth.count_ones();
        barrier.all &= arrival.truth == arrival.lanes;
        self.pass(arrival.barrier);
    }

    /// Lets everybody go on who waits at a complete barrier.
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
        for warp in &mut self.warps {
            if warp.at_barrier(number) != 0 {
                if let Some(result) = result {
                    warp.reduction = result;
                }
                warp.pass_barrier(number);
            }
        }
    }

    /// The fault of a CTA in which every thread waits: that of the first one.
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
        self.arrived.fill(0);
        (self.repeated, self.threads, self.reduction) = (0, 0, None);
        (self.count, self.all) = (0, true);
    }

    /// Whether the expected threads have arrived; never so before the first has.
    fn complete(&self, warps: &[Warp]) -> bool {
        if self.arrived.iter().all(|&lanes| lanes == 0) {
            return false;
        }
        let whole = |(lanes, warp): (&u32, &Warp)| warp.live & !lanes == 0;
        if self.threads == 0 {
            return self.arrived.iter().zip(warps).all(whole);
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
