//! What is ordered before what: vector clocks of warps.
//!
//! A clock has, for each warp of a block, the newest step that is ordered before it. A barrier joins the clocks of its
//! warps. Fences order as in the memory models of C++ and PTX. Accesses before a warp's fence are ordered before
//! accesses after another warp's fence if an atomic or volatile access after the first fence is observed by one before
//! the second. Fences and accesses have a scope: `__threadfence_block()` and `atomicAdd_block()` order threads of one
//! block only. Barriers are fences of the block. Atomics on shared memory, including `mbarrier` operations, order
//! without a fence.
//!
//! Order within a block hands over what fences of all blocks have ordered. One thread may therefore publish, after a
//! barrier, what all threads of its block have stored and fenced before it, and the other way round.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::super::request::{Fence, Scope};

/// Most warps of a block.
const WARPS: usize = 32;
/// Maximum number of blocks that a block knows about.
const MOST_KNOWN: usize = 4096;

/// Steps of the warps of a block.
type Clock = [u32; WARPS];

/// Known clocks of the warps of other blocks, by block, in ascending order. Shared, so that two equal ones are found
/// equal without a look at them: a thread that waits in a loop learns the same again and again.
type Known = Arc<Vec<(u32, Clock)>>;

fn join(to: &mut Clock, from: &Clock) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*to).max(*from);
    }
}

/// Whether `to` has what `from` has.
fn has(to: &Clock, from: &Clock) -> bool {
    to.iter().zip(from).fold(true, |all, (to, from)| all & (to >= from))
}

/// Whether `to` has what `from` has.
fn knows(to: &[(u32, Clock)], from: &[(u32, Clock)]) -> bool {
    let mut to = to.iter();
    from.len() <= to.len()
        && from.iter().all(|(block, clock)| {
            to.find(|(known, _)| known >= block)
                .is_some_and(|(known, ours)| known == block && has(ours, clock))
        })
}

fn merged(mut a: &[(u32, Clock)], mut b: &[(u32, Clock)]) -> Vec<(u32, Clock)> {
    let mut all = Vec::with_capacity(a.len().max(b.len()));
    while let (Some((first, after_a)), Some((second, after_b))) = (a.split_first(), b.split_first()) {
        let order = first.0.cmp(&second.0);
        let mut next = if order == Ordering::Greater { *second } else { *first };
        if order == Ordering::Equal {
            join(&mut next.1, &second.1);
        }
        all.push(next);
        a = if order == Ordering::Greater { a } else { after_a };
        b = if order == Ordering::Less { b } else { after_b };
    }
    all.extend(a.iter().chain(b));
    all
}

fn learn(to: &mut Known, from: &Known) {
    if Arc::ptr_eq(to, from) || knows(to, from) {
        return;
    }
    *to = if knows(from, to) { Arc::clone(from) } else { Arc::new(merged(to, from)) };
}

/// The clock of a block.
fn of(known: &Known, block: u32) -> Option<&Clock> {
    let at = known.binary_search_by_key(&block, |(block, _)| *block).ok()?;
    Some(&known[at].1)
}

/// Steps of the own block and of others.
#[derive(Clone, Debug, Default)]
struct Steps {
    clock: Clock,
    known: Known,
}

impl Steps {
    fn join(&mut self, other: &Self) {
        join(&mut self.clock, &other.clock);
        learn(&mut self.known, &other.known);
    }
}

/// The state of a warp, and what one warp hands to another of its block.
#[derive(Clone, Debug, Default)]
pub(super) struct Handed {
    /// Ordered before the next access.
    now: Steps,
    /// Ordered before the last fence for all blocks.
    fenced: Steps,
    /// Published by what was observed; the next fence for all blocks orders it.
    seen: Steps,
}

impl Handed {
    fn join(&mut self, other: &Self) {
        self.now.join(&other.now);
        self.fenced.join(&other.fenced);
        self.seen.join(&other.seen);
    }
}

/// The releases through an address of global memory.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// To all blocks.
    all: Known,
    /// To threads of the same block, by block.
    own: HashMap<u32, Handed>,
}

/// State of one warp.
#[derive(Clone, Debug, Default)]
struct Warp {
    state: Handed,
    /// The state at the last fence.
    released: Option<Handed>,
    /// From threads of the block; the next fence orders it.
    observed: Handed,
}

/// The order in a block.
#[derive(Debug)]
pub(super) struct Order {
    /// The block.
    number: u32,
    warps: Vec<Warp>,
    /// Handed over by the arrivals at each barrier.
    barriers: [Option<Handed>; 16],
    /// What complete barriers pass to the warps that they release.
    complete: [Option<Handed>; 16],
}

impl Order {
    pub(super) fn new(warps: usize) -> Self {
        Self {
            number: 0,
            warps: vec![Warp::default(); warps],
            barriers: Default::default(),
            complete: Default::default(),
        }
    }

    pub(super) fn start(&mut self, number: u32) {
        self.number = number;
        for (index, warp) in self.warps.iter_mut().enumerate() {
            *warp = Warp::default();
            warp.state.now.clock[index] = 1;
        }
        self.barriers = Default::default();
        self.complete = Default::default();
    }

    /// The block.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The present step of a warp.
    pub(super) fn step_of(&self, warp: usize) -> u32 {
        self.warps[warp].state.now.clock[warp]
    }

    /// Begins the next step of a warp.
    pub(super) fn step(&mut self, warp: usize) {
        let clock = &mut self.warps[warp].state.now.clock[warp];
        *clock = clock.saturating_add(1);
    }

    pub(super) fn fenced(&mut self, warp: usize, fence: Fence) {
        let Warp { state, released, observed } = &mut self.warps[warp];
        state.join(observed);
        join(&mut state.now.clock, &state.seen.clock);
        if fence.scope == Scope::Device {
            state.now.join(&state.seen);
        }
        if !fence.releases {
            return;
        }
        if fence.scope == Scope::Device {
            state.fenced.join(&state.now);
        }
        *released = Some(state.clone());
        self.step(warp);
    }

    pub(super) fn arrived(&mut self, warp: usize, barrier: u8) {
        self.fenced(warp, Fence { scope: Scope::Block, releases: true });
        let mut state = self.warps[warp].state.clone();
        // The step that the fence has begun contains nothing yet.
        let clock = &mut state.now.clock;
        clock[warp] = clock[warp].saturating_sub(1);
        self.barriers[usize::from(barrier)].get_or_insert_default().join(&state);
    }

    pub(super) fn passed(&mut self, barrier: u8) {
        self.complete[usize::from(barrier)] = self.barriers[usize::from(barrier)].take();
    }

    pub(super) fn released(&mut self, warp: usize, barrier: u8) {
        if let Some(handed) = &self.complete[usize::from(barrier)] {
            self.warps[warp].state.join(handed);
        }
    }

    /// An access that orders without a fence: receives what `word` hands over, and if it `gives`, adds the own state.
    pub(super) fn exchange(&mut self, warp: usize, word: &mut Handed, gives: bool) {
        let state = &mut self.warps[warp].state;
        let mine = gives.then(|| state.clone());
        state.join(word);
        if let Some(mine) = mine {
            word.join(&mine);
        }
    }

    /// Handles an atomic or volatile access to global memory. A write publishes what the last fence ordered, a read may
    /// acquire it.
    pub(super) fn synchronise(
        &mut self,
        warp: usize,
        releases: &mut HashMap<u64, Release>,
        va: u64,
        scope: Scope,
        (reads, writes): (bool, bool),
    ) {
        let number = self.number;
        let Warp { state, released, observed } = &mut self.warps[warp];
        if reads && let Some(release) = releases.get(&va) {
            if let Some(own) = release.own.get(&number) {
                observed.join(own);
            }
            if scope == Scope::Device {
                learn(&mut state.seen.known, &release.all);
                if let Some(own) = of(&release.all, number) {
                    join(&mut state.seen.clock, own);
                }
            }
        }
        if writes && let Some(released) = released {
            let release = releases.entry(va).or_default();
            release.own.entry(number).or_default().join(released);
            if scope == Scope::Device {
                learn(&mut release.all, &state.fenced.known);
                let own = vec![(number, state.fenced.clock)];
                learn(&mut release.all, &Arc::new(own));
            }
        }
    }

    /// Whether a step of a warp of a block is ordered before the next access of `warp`.
    pub(super) fn follows(&self, warp: usize, block: u32, other: usize, step: u32) -> bool {
        let other = other % WARPS;
        let Steps { clock, known } = &self.warps[warp].state.now;
        if block == self.number {
            return other == warp || clock[other] >= step;
        }
        known.len() >= MOST_KNOWN || of(known, block).is_some_and(|clock| clock[other] >= step)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::btree_map;
    use proptest::prelude::*;

    use super::*;

    fn known() -> impl Strategy<Value = BTreeMap<u32, Clock>> {
        btree_map(0_u32..6, (0_usize..WARPS, 0_u32..3), 0..6).prop_map(|clocks| {
            let clock = |(warp, step)| std::array::from_fn(|at| if at == warp { step } else { 1 });
            clocks.into_iter().map(|(block, at)| (block, clock(at))).collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_learnt_is_joined_by_block(ours in known(), theirs in known()) {
            let mut joined = ours.clone();
            for (block, clock) in &theirs {
                join(joined.entry(*block).or_insert([0; WARPS]), clock);
            }
            let [mut learnt, from] = [ours, theirs].map(|clocks| Arc::new(clocks.into_iter().collect::<Vec<_>>()));
            learn(&mut learnt, &from);
            prop_assert!(learnt.iter().copied().eq(joined.clone()));
            for block in 0..6 {
                prop_assert_eq!(of(&learnt, block), joined.get(&block));
            }
            // What is known already is shared from then on.
            let before = Arc::clone(&learnt);
            learn(&mut learnt, &from);
            prop_assert!(Arc::ptr_eq(&learnt, &before));
        }
    }
}
