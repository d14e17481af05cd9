//! Copies by `cp.async` (LDGSTS) that are in flight.
//!
//! Hardware writes the target of a copy at some time until a thread has waited for it: for its group, which LDGDEPBAR
//! ends, by DEPBAR, or for all its copies by an arrival at an `mbarrier`. The model writes at the last moment, so that
//! a missing wait shows as a wrong result. The source is read when the copy begins: a program must not change it in
//! between. Barriers complete no copies, and nor does the end of the thread.
//!
//! With a random order of warps a copy may also be written when it begins, and then destroys what is still read if it
//! begins too early.
//!
//! Threads of a warp usually copy and wait together, but each has its own groups.

use super::warp::{Row, lanes};
use crate::config::draw;

/// Maximum number of instructions of a warp in flight. The oldest one is then complete.
const MOST: usize = 1024;

/// The copies of one LDGSTS.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Its number among those of the warp, not 0.
    pub(crate) number: u32,
    /// Lanes whose copies are in flight.
    lanes: u32,
    /// Number of groups that each lane has ended before.
    group: Row,
    /// Index of the first word of shared memory that each lane writes.
    first: Row,
    /// The words, one row for each step.
    data: [Row; 4],
    /// Number of words of each lane.
    count: usize,
    /// Whether shared memory has them already.
    written: bool,
}

/// The copies of a warp.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Groups that each lane has ended.
    ended: Row,
    /// Oldest first.
    flying: Vec<InFlight>,
    /// Number of the last copy.
    last: u32,
    /// Seed of the draw which copies are written when they begin; none of them without a seed.
    seed: Option<u64>,
}

impl Copies {
    /// Restarts without copies.
    pub(crate) fn start(&mut self, seed: Option<u64>) {
        self.flying.clear();
        (self.ended, self.last, self.seed) = ([0; 32], 0, seed);
    }

    /// Number of the next copy.
    pub(crate) fn next(&self) -> u32 {
        self.last.wrapping_add(1).max(1)
    }

    /// Begins copies of `lanes`: each writes its words of the first `count` rows to shared memory from the word `first`
    /// on.
    pub(crate) fn begin(
        &mut self,
        lanes: u32,
        first: Row,
        (data, count): ([Row; 4], usize),
        shared: &mut [u32],
    ) {
        if self.crowded_out().is_some() {
            self.flying.remove(0).write(!0, shared);
        }
        self.last = self.next();
        let mut copy =
            InFlight { number: self.last, lanes, group: self.ended, first, data, count, written: false };
        if self.seed.is_some_and(|seed| draw(seed, self.last.into()) & 1 == 1) {
            copy.write(lanes, shared);
            copy.written = true;
        }
        self.flying.push(copy);
    }

    /// The copy that is complete when the next one begins, because too many are in flight.
    pub(crate) fn crowded_out(&self) -> Option<&InFlight> {
        self.flying.first().filter(|_| self.flying.len() >= MOST)
    }

    /// Ends the groups of `lanes`, which may be empty.
    pub(crate) fn end_group(&mut self, lanes: u32) {
        for (lane, ended) in self.ended.iter_mut().enumerate() {
            *ended = ended.wrapping_add(lanes >> lane & 1);
        }
    }

    /// The copies, each with its lanes, that are complete when `lanes` have waited until at most `left` of their groups
    /// are in flight; without `left` all copies of the lanes, whether their group has ended or not.
    pub(crate) fn awaited(&self, lanes: u32, left: Option<u32>) -> impl Iterator<Item = (&InFlight, u32)> {
        let ended = &self.ended;
        self.flying
            .iter()
            .map(move |copy| (copy, copy.awaited(ended, lanes, left)))
            .filter(|(_, done)| *done != 0)
    }

    /// Lanes wait: writes what [`Copies::awaited`] returns.
    pub(crate) fn wait(&mut self, lanes: u32, left: Option<u32>, shared: &mut [u32]) {
        let ended = &self.ended;
        self.flying.retain_mut(|copy| {
            let done = copy.awaited(ended, lanes, left);
            copy.write(done, shared);
            copy.lanes &= !done;
            copy.lanes != 0
        });
    }
}

impl InFlight {
    fn awaited(&self, ended: &Row, lanes: u32, left: Option<u32>) -> u32 {
        let mut done = self.lanes & lanes;
        if let Some(left) = left {
            // Usually all lanes have ended as many groups since.
            let since = ended[0].wrapping_sub(self.group[0]);
            let apart = ended
                .iter()
                .zip(&self.group)
                .fold(0, |apart, (ended, group)| apart | ended.wrapping_sub(*group) ^ since);
            if apart == 0 {
                return if since <= left { 0 } else { done };
            }
            for (lane, (ended, group)) in ended.iter().zip(&self.group).enumerate() {
                done &= !(u32::from(ended.wrapping_sub(*group) <= left) << lane);
            }
        }
        done
    }

    fn write(&self, mask: u32, shared: &mut [u32]) {
        if self.written {
            return;
        }
        for lane in lanes(mask & self.lanes) {
            for (word, row) in shared[self.first[lane] as usize..].iter_mut().zip(&self.data[..self.count]) {
                *word = row[lane];
            }
        }
    }

    /// Words of shared memory that the lanes of `mask` write.
    pub(crate) fn words(&self, mask: u32) -> impl Iterator<Item = usize> {
        lanes(mask).flat_map(|lane| (self.first[lane] as usize..).take(self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins a copy of `lanes`, which write `value` to the words of their numbers.
    fn begin(copies: &mut Copies, lanes: u32, value: u32, shared: &mut [u32]) {
        copies.begin(lanes, core::array::from_fn(|lane| lane as u32), ([[value; 32]; 4], 1), shared);
    }

    #[test]
    fn each_lane_waits_for_its_own_groups() {
        let (mut copies, mut shared) = (Copies::default(), vec![0; 32]);
        // The upper lanes end a group before the lower ones begin one, and the lower ones end one more.
        begin(&mut copies, 0xffff_0000, 1, &mut shared);
        copies.end_group(0xffff_0000);
        begin(&mut copies, 0xffff, 2, &mut shared);
        copies.end_group(!0);
        copies.wait(0xffff, Some(1), &mut shared);
        assert_eq!(shared, [0; 32], "the only group of the lower lanes may be in flight");
        copies.wait(0xffff_0000, Some(1), &mut shared);
        assert_eq!(
            (shared[15], shared[16], shared[31]),
            (0, 1, 1),
            "the second group of the upper lanes is empty"
        );
        assert_eq!(
            copies.awaited(!0, Some(0)).map(|(copy, lanes)| (copy.number, lanes)).collect::<Vec<_>>(),
            [(2, 0xffff)]
        );
        copies.wait(!0, Some(0), &mut shared);
        assert!(copies.flying.is_empty() && shared[..16] == [2; 16]);
    }

    #[test]
    fn copies_without_a_group_are_not_complete() {
        let (mut copies, mut shared) = (Copies::default(), vec![0; 32]);
        begin(&mut copies, !0, 1, &mut shared);
        copies.wait(!0, Some(0), &mut shared);
        assert_eq!(shared, [0; 32]);
        copies.wait(1, None, &mut shared);
        assert_eq!((shared[0], shared[1]), (1, 0));
    }

    #[test]
    fn the_oldest_of_too_many_copies_is_complete() {
        let (mut copies, mut shared) = (Copies::default(), vec![0; 32]);
        for value in 1..=MOST as u32 {
            begin(&mut copies, !0, value, &mut shared);
        }
        assert_eq!((copies.crowded_out().map(|copy| copy.number), shared[5]), (Some(1), 0));
        begin(&mut copies, !0, 7, &mut shared);
        assert_eq!(shared[5], 1);
    }

    #[test]
    fn a_seed_writes_some_copies_at_once_and_no_copy_twice() {
        let mut early = 0;
        for seed in 0..16 {
            let (mut copies, mut shared) = (Copies::default(), vec![0; 32]);
            copies.start(Some(seed));
            begin(&mut copies, !0, 1, &mut shared);
            let at_once = shared[3] == 1;
            early += u32::from(at_once);
            shared[3] = 5;
            copies.wait(!0, None, &mut shared);
            assert_eq!(shared[3], if at_once { 5 } else { 1 }, "seed {seed}");
        }
        assert!((1..16).contains(&early));
    }
}
