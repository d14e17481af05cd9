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
        }
    }

    /// Starts over as the CTA `block` of the grid.
    pub(crate) fn start(&mut self, launch: &Launch, block: [u32; 3], sm: u32, registers: usize) {
        (self.block, self.sm, self.next) = (block, sm, 0);
        self.shared.fill(0);
        for barrier in &mut self.barriers {
            barrier.reset();
        }
        for (index, warp) in (0..).zip(&mut self.warps) {
            warp.start(launch.program_va, index, launch.block, registers);
        }
    }

    /// Runs the warps in turn for about `fuel` instructions.
    ///
    /// # Errors
    ///
    /// The fault of a warp, or that no warp can run.
    pub(crate) fn run(&mut self, grid: &mut Grid, fuel: u64, spent: &mut Spent) -> Result<Turn, SmFault> {
        let limit = spent.warp + fuel;
        let mut idle = 0;
        while spent.warp < limit {
            let index = self.next;
            let warp = &mut self.warps[index];
            if !warp.ready() {
                self.next = (index + 1) % self.warps.len();
                idle += 1;
                if idle > self.warps.len() {
                    return if self.warps.iter().all(Warp::done) {
                        Ok(Turn::Done)
                    } else {
                        Err(self.deadlock())
                    };
                }
                continue;
            }
            idle = 0;
            let mut context = Context {
                launch: grid.launch,
                constants: grid.constants,
                port: grid.port,
                counter: grid.counter,
                shared: &mut self.shared,
                block: self.block,
                sm: self.sm,
            };
            let turn = TURN.min(limit - spent.warp);
            match exec::run(grid.program, &mut context, warp, turn, spent)? {
                Stop::Fuel | Stop::Blocked => self.next = (index + 1) % self.warps.len(),
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
