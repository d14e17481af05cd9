//! Copies by `cp.async` that are in flight.
//!
//! A thread groups its copies, and waits until at most N of its newest groups are in flight. Threads of a warp usually
//! do so together, so the groups are kept by warp, with the lanes that they belong to.

use std::collections::VecDeque;

/// Maximum number of groups of a warp. The oldest one then counts as complete.
const MOST: usize = 256;

/// Copies of lanes of a warp.
#[derive(Debug)]
struct Group {
    lanes: u32,
    /// Whether it has ended: later copies belong to another group.
    ended: bool,
    /// Words of shared memory, and number of the copy that writes each.
    words: Vec<(usize, u32)>,
}

/// The copies in flight of a block.
#[derive(Debug)]
pub(super) struct Copies {
    /// By warp; oldest group first.
    groups: Vec<VecDeque<Group>>,
    /// Copies so far.
    count: u32,
}

impl Copies {
    pub(super) fn new(warps: usize) -> Self {
        Self { groups: (0..warps).map(|_| VecDeque::new()).collect(), count: 0 }
    }

    pub(super) fn start(&mut self) {
        self.groups.iter_mut().for_each(VecDeque::clear);
        self.count = 0;
    }

    /// Begins a copy. Returns its number.
    pub(super) fn begin(&mut self, warp: usize, lanes: u32) -> u32 {
        self.count = self.count.wrapping_add(1).max(1);
        let groups = &mut self.groups[warp];
        match groups.iter_mut().rev().find(|group| !group.ended && group.lanes & lanes != 0) {
            Some(group) => group.lanes |= lanes,
            None => groups.push_back(Group { lanes, ended: false, words: Vec::new() }),
        }
        self.count
    }

    /// Adds a word that the copy begun last writes.
    pub(super) fn add(&mut self, warp: usize, word: usize) {
        if let Some(group) = self.groups[warp].iter_mut().rev().find(|group| !group.ended) {
            group.words.push((word, self.count));
        }
    }

    /// Ends the group of `lanes`, which may be empty. Returns the words of copies that are followed no longer.
    pub(super) fn commit(&mut self, warp: usize, lanes: u32) -> Vec<(usize, u32)> {
        let groups = &mut self.groups[warp];
        let mut empty = true;
        for group in groups.iter_mut().filter(|group| !group.ended && group.lanes & lanes != 0) {
            (group.ended, empty) = (true, false);
        }
        if empty {
            groups.push_back(Group { lanes, ended: true, words: Vec::new() });
        }
        if groups.len() <= MOST {
            return Vec::new();
        }
        groups.pop_front().map_or_else(Vec::new, |group| group.words)
    }

    /// The lanes have waited until at most `left` of their groups are in flight. Returns the words of the others.
    pub(super) fn wait(&mut self, warp: usize, lanes: u32, left: u32) -> Vec<(usize, u32)> {
        let (mut done, mut newer) = (Vec::new(), 0);
        let mut kept = VecDeque::new();
        while let Some(group) = self.groups[warp].pop_back() {
            let counts = group.ended && group.lanes & lanes != 0;
            if counts && newer >= left {
                done.extend(group.words);
            } else {
                newer += u32::from(counts);
                kept.push_front(group);
            }
        }
        self.groups[warp] = kept;
        done
    }

    /// As [`Copies::wait`] for all copies of the lanes, whether their group has ended or not.
    pub(super) fn wait_all(&mut self, warp: usize, lanes: u32) -> Vec<(usize, u32)> {
        let (done, kept) =
            std::mem::take(&mut self.groups[warp]).into_iter().partition(|group| group.lanes & lanes != 0);
        self.groups[warp] = kept;
        let done: VecDeque<Group> = done;
        done.into_iter().flat_map(|group| group.words).collect()
    }
}
