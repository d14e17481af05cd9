//! Ordering of work: waits of host, semaphores, chains of launches, and the CPU.
//!
//! Work of a channel is a grid, a copy or an upload. Other work is ordered before it for one of these reasons: the
//! channel waited for idle; the channel acquired a semaphore that was released after the other work; the end of another
//! grid started the work. When the CPU submits more work or writes a semaphore, it may have waited for any completed
//! work.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum number of stored semaphores and names. Beyond that the older ones are discarded, which assumes more ordering
/// than there is.
const MOST: usize = 1 << 16;

/// A piece of work: the channel's number and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WorkId {
    lane: u64,
    number: u64,
}

impl WorkId {
    /// No work.
    pub(super) const NONE: Self = Self { lane: u64::MAX, number: 0 };
}

/// Work of one channel that is known to have ended.
#[derive(Clone, Debug, Default)]
struct Horizon {
    /// All work up to this number.
    contiguous: u64,
    /// Further work after that.
    scattered: BTreeSet<u64>,
}

/// Work that is known to have ended.
#[derive(Clone, Debug, Default)]
struct Known(BTreeMap<u64, Horizon>);

impl Known {
    fn contains(&self, work: WorkId) -> bool {
        self.0.get(&work.lane).is_some_and(|horizon| {
            work.number <= horizon.contiguous || horizon.scattered.contains(&work.number)
        })
    }

    fn add(&mut self, work: WorkId) {
        let horizon = self.0.entry(work.lane).or_default();
        if work.number > horizon.contiguous {
            horizon.scattered.insert(work.number);
        }
        while horizon.scattered.remove(&(horizon.contiguous + 1)) {
            horizon.contiguous += 1;
        }
    }

    fn add_all(&mut self, lane: u64, number: u64) {
        let horizon = self.0.entry(lane).or_default();
        if number > horizon.contiguous {
            horizon.contiguous = number;
            horizon.scattered = horizon.scattered.split_off(&(number + 1));
        }
    }

    fn join(&mut self, other: &Self) {
        for (&lane, horizon) in &other.0 {
            self.add_all(lane, horizon.contiguous);
            for &number in &horizon.scattered {
                self.add(WorkId { lane, number });
            }
        }
    }
}

/// A piece of work and the work known to have ended before it.
#[derive(Debug)]
pub(crate) struct Work {
    pub(super) id: WorkId,
    pub(super) name: String,
    before: Known,
}

impl Work {
    /// Returns whether the other work is ordered before this work.
    pub(super) fn follows(&self, other: WorkId) -> bool {
        self.before.contains(other)
    }
}

/// A channel.
#[derive(Debug, Default)]
struct Lane {
    issued: u64,
    /// Work that host knows to have ended.
    known: Known,
}

/// The state of a semaphore.
#[derive(Debug)]
struct Semaphore {
    value: u64,
    known: Known,
}

/// All channels.
#[derive(Debug, Default)]
pub(super) struct Order {
    lanes: Vec<Lane>,
    finished: Known,
    /// Semaphores by CPU address.
    semaphores: HashMap<usize, Semaphore>,
    names: HashMap<WorkId, String>,
}

impl Order {
    pub(super) fn add_lane(&mut self) -> u64 {
        self.lanes.push(Lane::default());
        // CAST: a number of channels.
        self.lanes.len() as u64 - 1
    }

    fn lane(&mut self, lane: u64) -> &mut Lane {
        // CAST: an index returned by `add_lane`.
        &mut self.lanes[lane as usize]
    }

    pub(super) fn issue(&mut self, lane: u64, name: String, parent: Option<&Work>) -> Work {
        let state = self.lane(lane);
        state.issued += 1;
        let id = WorkId { lane, number: state.issued };
        let mut before = state.known.clone();
        if let Some(parent) = parent {
            before.join(&parent.before);
            before.add(parent.id);
        }
        if self.names.len() >= MOST {
            self.names.clear();
        }
        self.names.insert(id, name.clone());
        Work { id, name, before }
    }

    /// Creates work that is ordered after all earlier work of the channel.
    pub(super) fn issue_in_order(&mut self, lane: u64, name: String) -> Work {
        let mut work = self.issue(lane, name, None);
        work.before.add_all(lane, work.id.number - 1);
        work
    }

    pub(super) fn name(&self, work: WorkId) -> String {
        self.names.get(&work).cloned().unwrap_or_else(|| "earlier work".to_owned())
    }

    pub(super) fn finish(&mut self, work: WorkId) {
        self.finished.add(work);
    }

    pub(super) fn learn(&mut self, lane: u64, work: WorkId) {
        self.lane(lane).known.add(work);
    }

    pub(super) fn idle(&mut self, lane: u64) {
        let state = self.lane(lane);
        state.known.add_all(lane, state.issued);
    }

    pub(super) fn learn_finished(&mut self, lane: u64) {
        // CAST: as in `lane`.
        self.lanes[lane as usize].known.join(&self.finished);
    }

    pub(super) fn release(&mut self, lane: u64, work: Option<&Work>, semaphore: usize, value: u64) {
        let known = match work {
            Some(work) => {
                let mut known = work.before.clone();
                known.add(work.id);
                known
            }
            None => self.lane(lane).known.clone(),
        };
        if self.semaphores.len() >= MOST {
            self.semaphores.clear();
        }
        self.semaphores.insert(semaphore, Semaphore { value, known });
    }

    pub(super) fn acquire(&mut self, lane: u64, semaphore: usize, value: u64) {
        match self.semaphores.get(&semaphore).filter(|semaphore| semaphore.value == value) {
            // CAST: as in `lane`.
            Some(semaphore) => self.lanes[lane as usize].known.join(&semaphore.known),
            None => self.learn_finished(lane),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(order: &mut Order, lane: u64) -> Work {
        order.issue(lane, String::new(), None)
    }

    #[test]
    fn a_wait_for_idle_orders_the_work_of_a_channel() {
        let mut order = Order::default();
        let lane = order.add_lane();
        let (first, second) = (work(&mut order, lane), work(&mut order, lane));
        assert!(!second.follows(first.id));
        order.idle(lane);
        let third = work(&mut order, lane);
        assert!(third.follows(first.id) && third.follows(second.id));
    }

    #[test]
    fn a_semaphore_hands_on_what_its_writer_knew() {
        let mut order = Order::default();
        let (a, b, c) = (order.add_lane(), order.add_lane(), order.add_lane());
        let first = work(&mut order, a);
        let other = work(&mut order, a);
        order.release(a, Some(&first), 0x1000, 7);
        order.acquire(b, 0x1000, 7);
        let second = work(&mut order, b);
        assert!(second.follows(first.id) && !second.follows(other.id));
        order.release(b, Some(&second), 0x2000, 1);
        order.acquire(c, 0x2000, 1);
        assert!(work(&mut order, c).follows(first.id), "ordering is transitive");
    }

    #[test]
    fn the_cpu_knows_what_has_ended() {
        let mut order = Order::default();
        let (a, b) = (order.add_lane(), order.add_lane());
        let (first, second) = (work(&mut order, a), work(&mut order, a));
        order.finish(first.id);
        order.learn_finished(b);
        assert!(work(&mut order, b).follows(first.id));
        order.release(a, None, 0x1000, 7);
        order.finish(second.id);
        // A value that the GPU did not write was written by the CPU.
        order.acquire(b, 0x1000, 8);
        assert!(work(&mut order, b).follows(second.id));
    }

    #[test]
    fn a_grid_follows_the_one_that_starts_it() {
        let mut order = Order::default();
        let lane = order.add_lane();
        let first = work(&mut order, lane);
        let second = order.issue(lane, String::new(), Some(&first));
        let third = order.issue(lane, String::new(), Some(&second));
        assert!(third.follows(first.id) && third.follows(second.id) && !second.follows(third.id));
    }
}
