//! Scheduling of time-slice groups (TSGs): their order, and the length of a turn.
//!
//! Host serves one TSG after the other, and within a TSG one channel after the other, until the TSG's time slice is
//! over or none of its channels can make progress. After a failing semaphore acquire, host continues with the next
//! channel of the TSG. If all channels with work wait for semaphores, the TSG yields the rest of its time slice if
//! every acquire has SWITCH_TSG set. An acquire without it holds the time slice until its end (GA100 `dev_pbdma`,
//! SEM_EXECUTE).
//!
//! Time is counted in traversals, so that a run does not depend on the speed of the machine. In a traversal each
//! channel of the TSG gets one slice of work. A turn has one traversal per millisecond of its time slice, rounded up.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::draw;
use crate::gpu::channel::Channel;

/// Microseconds of a time slice per traversal.
const TRAVERSAL_US: u32 = 1024;

/// Channels that are scheduled together.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) tsg: u32,
    pub(super) traversals: u32,
    pub(super) channels: Vec<Arc<Channel>>,
}

/// Groups `channels` in the order in which the groups' first channels were bound. `timeslices` contains the time slice
/// of each TSG in microseconds.
pub(super) fn groups(channels: &[Arc<Channel>], timeslices: &BTreeMap<u32, u32>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for channel in channels {
        let tsg = channel.group().tsg;
        if let Some(group) = groups.iter_mut().find(|group| group.tsg == tsg) {
            group.channels.push(Arc::clone(channel));
        } else {
            let timeslice = timeslices.get(&tsg).copied().unwrap_or_default();
            let traversals = timeslice.div_ceil(TRAVERSAL_US).max(1);
            groups.push(Group { tsg, traversals, channels: vec![Arc::clone(channel)] });
        }
    }
    groups
}

/// Index of the group that starts round `round`; the others follow in order. A seed of 0 keeps the binding order.
pub(super) fn first(seed: u64, round: u64, groups: usize) -> usize {
    if seed == 0 || groups == 0 {
        return 0;
    }
    // CAST: the remainder is an index.
    (draw(seed, round) % groups as u64) as usize
}

/// The result of one traversal of a TSG's channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traversal {
    /// Whether progress was made.
    pub(super) moved: bool,
    /// A channel waits for a semaphore without SWITCH_TSG.
    pub(super) held: bool,
    /// The turn ends early: the lists have changed, or the engines are stalled.
    pub(super) cut: bool,
}

/// Runs a TSG's turn. Returns whether progress was made.
pub(super) fn turn(traversals: u32, mut traverse: impl FnMut() -> Traversal) -> bool {
    let mut moved = false;
    for _ in 0..traversals {
        let traversal = traverse();
        moved |= traversal.moved;
        if traversal.cut || !(traversal.moved || traversal.held) {
            break;
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of traversals (of 5) in a turn that starts with these three traversals and has nothing to do afterwards.
    fn length(traversals: [Traversal; 3]) -> u32 {
        let mut count = 0;
        turn(5, || {
            count += 1;
            traversals.get(count as usize - 1).copied().unwrap_or_default()
        });
        count
    }

    const IDLE: Traversal = Traversal { moved: false, held: false, cut: false };
    const MOVED: Traversal = Traversal { moved: true, ..IDLE };
    const HELD: Traversal = Traversal { held: true, ..IDLE };
    const CUT: Traversal = Traversal { moved: true, held: true, cut: true };

    #[test]
    fn a_turn_ends_with_the_work_or_the_time() {
        assert_eq!(length([IDLE; 3]), 1);
        assert_eq!(length([MOVED, MOVED, IDLE]), 3);
        assert_eq!(length([MOVED; 3]), 4);
        assert_eq!(length([MOVED, CUT, MOVED]), 2);
        let mut count = 0;
        assert!(turn(5, || {
            count += 1;
            MOVED
        }));
        assert_eq!(count, 5, "the time slice is over");
    }

    #[test]
    fn an_acquire_without_switch_holds_the_time_slice() {
        assert_eq!(length([HELD, HELD, IDLE]), 3, "the hold ended");
        let mut count = 0;
        assert!(!turn(5, || {
            count += 1;
            HELD
        }));
        assert_eq!(count, 5, "held until the end of the time slice");
    }

    #[test]
    fn the_seed_decides_who_begins() {
        assert!((0..100).all(|round| first(0, round, 7) == 0));
        let order = |seed| (0..100).map(|round| first(seed, round, 7)).collect::<Vec<_>>();
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
        assert!((0..7).all(|group| order(3).contains(&group)));
        assert_eq!(first(3, 1, 0), 0);
    }
}
