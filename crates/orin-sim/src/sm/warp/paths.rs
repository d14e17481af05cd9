//! Divergence and convergence of the paths of a warp.

use super::{FULL, Path, State, TURN, Unmet, Warp, lanes};

/// Number of polls (see [`Warp::poll`]) after which the lanes that wait for a spinning path are released.
const PATIENCE: u32 = 4096;

impl Warp {
    /// Whether the warp has more than one path.
    #[inline(always)]
    pub(crate) fn diverged(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Moves the lanes `taken` of the running path to `target` and the others to `next`. The path with the lower
    /// address continues, because it has yet to reach the convergence point.
    pub(crate) fn branch(&mut self, taken: u32, target: u64, next: u64) {
        let rest = self.path.mask & !taken;
        if rest == 0 {
            self.path.pc = target;
        } else if taken == 0 {
            self.path.pc = next;
        } else {
            let mut other = self.path;
            let (low, low_lanes, high, high_lanes) =
                if target < next { (target, taken, next, rest) } else { (next, rest, target, taken) };
            (self.path.pc, self.path.mask) = (low, low_lanes);
            (other.pc, other.mask) = (high, high_lanes);
            self.parked.push(other);
        }
        self.meet();
    }

    /// Moves each lane of `taken` to its own target, and the other lanes of the path to `next`.
    pub(crate) fn branch_indirect(&mut self, taken: u32, targets: &[u64; 32], next: u64) {
        let mut left = taken;
        let template = self.path;
        let mut paths: Vec<Path> = Vec::new();
        while left != 0 {
            let target = targets[left.trailing_zeros() as usize];
            let same =
                lanes(left).filter(|&lane| targets[lane] == target).fold(0, |mask, lane| mask | 1 << lane);
            paths.push(Path { pc: target, mask: same, ..template });
            left &= !same;
        }
        let rest = template.mask & !taken;
        if rest != 0 {
            paths.push(Path { pc: next, mask: rest, ..template });
        }
        paths.sort_by_key(|path| core::cmp::Reverse(path.pc));
        if let Some(first) = paths.pop() {
            self.path = first;
        }
        self.parked.extend(paths);
        self.meet();
    }

    /// Merges with a ready path at the same address if the uniform registers agree. This converges paths cheaply
    /// where the compiler did not insert a barrier.
    #[inline(always)]
    fn meet(&mut self) {
        if !self.parked.is_empty() {
            self.meet_parked();
        }
    }

    #[cold]
    fn meet_parked(&mut self) {
        let path = &mut self.path;
        self.parked.retain(|other| {
            let same = other.runs()
                && !(other.apart || path.apart)
                && other.pc == path.pc
                && other.depth == path.depth
                && other.uniform == path.uniform
                && other.uniform_predicates == path.uniform_predicates;
            if same {
                path.mask |= other.mask;
            }
            !same
        });
    }

    /// Counts one instruction of the running path against its turn. Selects another ready path at the end of the
    /// turn, so that lanes that wait for each other through memory all make progress.
    #[inline(always)]
    pub(crate) fn tick(&mut self) {
        if self.diverged() {
            self.turn -= 1;
            if self.turn == 0 {
                self.rotate();
            }
        }
    }

    /// Returns how many of `count` instructions the running path may execute before the end of its turn.
    #[inline(always)]
    pub(crate) fn permitted(&self, count: usize) -> usize {
        if self.diverged() { count.min(self.turn as usize - 1) } else { count }
    }

    /// Counts a permitted number of instructions except for the last, which may change the paths.
    #[inline(always)]
    pub(crate) fn begin_run(&mut self, count: usize) {
        if self.diverged() {
            // CAST: below the turn, which has 32 bits.
            self.turn -= count as u32 - 1;
        }
    }

    /// Corrects [`Warp::begin_run`]: `executed` instructions were executed instead of `count`.
    #[inline(always)]
    pub(crate) fn correct_run(&mut self, count: usize, executed: usize) {
        if self.diverged() {
            // CAST: below the turn, which has 32 bits.
            self.turn = self.turn + count as u32 - executed as u32;
        }
    }

    /// Selects the path that has waited longest. If no path is ready, a path that polls without success releases
    /// those that wait for it.
    pub(crate) fn rotate(&mut self) {
        self.turn = TURN;
        if let Some(at) = self.parked.iter().position(Path::runs) {
            let next = self.parked.remove(at);
            let last = core::mem::replace(&mut self.path, next);
            self.parked.push(last);
        } else if self.path.polls >= PATIENCE {
            self.free_waiting();
        }
    }

    /// Records that the running path polls memory or yields; `weight` is the confidence that it waits. Lanes of the
    /// same warp that wait in BSYNC for a polling path may be the ones it waits for, as in a spin lock. They are
    /// released after a while, which costs only convergence. The release happens after the instruction, in
    /// [`Warp::tick`], because another path may run then.
    pub(crate) fn poll(&mut self, weight: u32) {
        if !self.diverged() {
            return;
        }
        self.path.polls = self.path.polls.saturating_add(weight);
        if self.path.polls >= PATIENCE && !self.parked.iter().any(Path::runs) {
            self.turn = 1;
        }
    }

    /// Releases the lanes that wait in BSYNC for the running path.
    fn free_waiting(&mut self) {
        self.path.polls = 0;
        self.freed = true;
        let spinning = self.path.mask;
        for path in &mut self.parked {
            let State::Convergence(barrier) = path.state else { continue };
            let row = &mut self.barriers[usize::from(barrier)];
            for lane in lanes(path.mask | spinning) {
                let apart = if spinning >> lane & 1 != 0 { path.mask } else { spinning };
                row[lane] &= !apart;
            }
        }
        self.settle();
    }

    /// Ends the lanes `mask` of the running path.
    pub(crate) fn exit(&mut self, mask: u32, next: u64) {
        self.live &= !mask;
        self.path.mask &= !mask;
        self.path.pc = next;
        self.settle();
    }

    /// Makes the lanes `mask` of the running path wait for `state` at the current instruction. The others continue at
    /// `next`.
    pub(crate) fn wait(&mut self, mask: u32, state: State, next: u64) {
        let rest = self.path.mask & !mask;
        if rest != 0 {
            let waiting = Path { mask, state, ..self.path };
            self.parked.push(waiting);
            (self.path.mask, self.path.pc) = (rest, next);
        } else {
            self.path.state = state;
        }
    }

    /// Returns whether lanes pass BSYNC without waiting. The usual case: no lane is elsewhere, and all are in the same
    /// instance of the region. (A lane that has called the function again may have merged with a path whose lane still
    /// waits for it.)
    pub(crate) fn is_converged(&self, mask: u32, barrier: usize) -> bool {
        let row = &self.barriers[barrier];
        let first = row[mask.trailing_zeros() as usize & 31];
        let here = mask == self.path.mask && first & self.live & !mask == 0;
        here && if mask == FULL {
            row.iter().fold(0, |apart, record| apart | record ^ first) == 0
        } else {
            lanes(mask).all(|lane| row[lane] == first)
        }
    }

    /// Executes YIELD if the warp has one path, which goes on. Returns whether it has. For generated code.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn yield_alone(&mut self) -> bool {
        if !self.diverged() {
            self.turn = TURN;
        }
        !self.diverged()
    }

    /// BSYNC: the lanes `mask` wait for the other lanes recorded in `barrier`. Lanes with the same record form a
    /// group.
    pub(crate) fn converge(&mut self, mask: u32, barrier: u8, next: u64) {
        if self.is_converged(mask, usize::from(barrier)) {
            self.path.pc = next;
            return;
        }
        let row = &self.barriers[usize::from(barrier)];
        let first = row[mask.trailing_zeros() as usize];
        let same = lanes(mask).filter(|&lane| row[lane] == first).fold(0, |same, lane| same | 1 << lane);
        let other = mask & !same;
        if other != 0 {
            let waiting = Path { mask: other, state: State::Convergence(barrier), ..self.path };
            self.parked.push(waiting);
            self.path.mask &= !other;
        }
        self.wait(same, State::Convergence(barrier), next);
        self.settle();
    }

    /// BREAK: the lanes `mask` will not reach the BSYNC of `barrier`.
    pub(crate) fn leave(&mut self, mask: u32, barrier: u8) {
        let row = &mut self.barriers[usize::from(barrier)];
        let members = lanes(mask).fold(0, |members, lane| members | row[lane]);
        let records = *row;
        for lane in lanes(members) {
            // Lanes with another record are in another instance of the region.
            if lanes(mask).any(|leaver| records[leaver] == records[lane]) {
                row[lane] &= !mask;
            }
        }
        self.settle();
    }

    /// Releases every complete group of waiting lanes, and makes a ready path run.
    pub(crate) fn settle(&mut self) {
        if !self.diverged() && self.path.runs() {
            return;
        }
        if !self.diverged() && self.path.mask != 0 && matches!(self.path.state, State::Barrier(_)) {
            // Only the CTA releases it.
            self.turn = TURN;
            return;
        }
        let path = self.path;
        self.parked.push(path);
        self.parked.retain(|path| path.mask != 0);
        while self.release_convergence() || self.release_lanes() || self.free_named() {}
        if self.freed && !self.parked.iter().any(Path::runs) {
            self.release_lowest();
        }
        self.choose();
    }

    /// Releases the lanes that wait in the BSYNC with the lowest address: those that they wait for were released
    /// earlier ([`Warp::free_waiting`]).
    fn release_lowest(&mut self) {
        let waiting = self.parked.iter().filter(|path| matches!(path.state, State::Convergence(_)));
        if let Some(&Path { state, mask, .. }) = waiting.min_by_key(|path| path.pc) {
            self.release(state, mask);
        }
    }

    /// Selects the ready path with the lowest address; any path if none is ready.
    fn choose(&mut self) {
        let best = (0..self.parked.len())
            .min_by_key(|&at| (!self.parked[at].runs(), self.parked[at].pc))
            .map(|at| self.parked.swap_remove(at));
        self.turn = TURN;
        match best {
            Some(path) => self.path = path,
            None => self.path.mask = 0,
        }
        if self.path.runs() {
            self.meet();
        }
    }

    /// Releases one complete group of BSYNC.
    fn release_convergence(&mut self) -> bool {
        let awaited = self.parked.iter().fold(0_u32, |awaited, path| match path.state {
            State::Convergence(barrier) => awaited | 1 << barrier,
            _ => awaited,
        });
        // CAST: 0 to 15.
        for barrier in lanes(awaited).map(|barrier| barrier as u8) {
            let state = State::Convergence(barrier);
            let waiting = self.lanes_in(state);
            let row = &self.barriers[usize::from(barrier)];
            for lane in lanes(waiting) {
                let group = (row[lane] & self.live) | 1 << lane;
                let together = || lanes(group).all(|other| (row[other] & self.live) | 1 << other == group);
                if group & !waiting == 0 && together() {
                    self.release(state, group);
                    return true;
                }
            }
        }
        false
    }

    /// Releases one complete group of WARPSYNC.
    fn release_lanes(&mut self) -> bool {
        for at in 0..self.parked.len() {
            let state = self.parked[at].state;
            if let State::Lanes { mask, .. } = state {
                let waiting = self.lanes_in(state);
                if mask & self.live & !waiting == 0 {
                    self.release(state, waiting);
                    return true;
                }
            }
        }
        false
    }

    /// Without a ready path, separates lanes that wait in BSYNC from those that wait for them in WARPSYNC, and returns
    /// whether there were any. An H100 lets such lanes pass the BSYNC. CUDA calls a `__syncwarp` undefined that lanes
    /// of its mask do not execute, but Numba's reductions have one.
    fn free_named(&mut self) -> bool {
        if self.parked.iter().any(Path::runs) {
            return false;
        }
        let mut freed = 0;
        for at in 0..self.parked.len() {
            let Path { state: State::Lanes { mask: named, .. }, mask: waiting, pc, .. } = self.parked[at]
            else {
                continue;
            };
            let mut others = 0;
            for barrier in 0..16 {
                let here = self.lanes_in(State::Convergence(barrier)) & named;
                let row = &mut self.barriers[usize::from(barrier)];
                let passing = lanes(here).filter(|&lane| row[lane] & waiting != 0);
                let passing = passing.fold(0, |passing, lane| passing | 1 << lane);
                lanes(passing).for_each(|lane| row[lane] &= !waiting);
                lanes(waiting).for_each(|lane| row[lane] &= !passing);
                others |= passing;
            }
            if others != 0 {
                self.unmet.get_or_insert(Unmet { pc, waiting, others });
            }
            freed |= others;
        }
        freed != 0
    }

    fn lanes_in(&self, state: State) -> u32 {
        self.parked.iter().filter(|path| path.state == state).fold(0, |mask, path| mask | path.mask)
    }

    /// Releases the lanes `group`, which wait for `state`; they continue after their instructions. Lanes at the same
    /// address become one path.
    fn release(&mut self, state: State, group: u32) {
        let mut released: Vec<Path> = Vec::new();
        let apart = matches!(state, State::Lanes { exclusive: true, .. });
        for path in &mut self.parked {
            let free = path.mask & group;
            if path.state != state || free == 0 {
                continue;
            }
            path.mask &= !free;
            let pc = path.pc + 16;
            match released.iter_mut().find(|other| other.pc == pc) {
                Some(other) => other.mask |= free,
                None => released.push(Path { pc, mask: free, state: State::Ready, polls: 0, apart, ..*path }),
            }
        }
        self.parked.retain(|path| path.mask != 0);
        self.parked.extend(released);
    }

    /// Releases all lanes that wait at a barrier of the CTA.
    pub(crate) fn pass_barrier(&mut self, barrier: u8) {
        let state = State::Barrier(barrier);
        if !self.diverged() {
            if self.path.state == state {
                self.path.state = State::Ready;
                self.path.pc += 16;
            }
            return;
        }
        let path = self.path;
        self.parked.push(path);
        let waiting = self.lanes_in(state);
        self.release(state, waiting);
        self.choose();
    }

    /// Returns the lanes that wait at a barrier of the CTA.
    pub(crate) fn at_barrier(&self, barrier: u8) -> u32 {
        let state = State::Barrier(barrier);
        self.lanes_in(state) | if self.path.state == state { self.path.mask } else { 0 }
    }

    /// Returns the paths, the current one first.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        core::iter::once(&self.path).chain(&self.parked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warp() -> Warp {
        let mut warp = Warp::new();
        warp.start(0x1000, 0, [32, 1, 1], 16);
        warp
    }

    fn enter(warp: &mut Warp, barrier: usize) {
        for lane in lanes(warp.path.mask) {
            warp.barriers[barrier][lane] = warp.path.mask;
        }
    }

    #[test]
    fn both_sides_of_a_branch_meet_at_bsync() {
        let mut warp = warp();
        enter(&mut warp, 0);
        warp.branch(0xff, 0x1100, 0x1010);
        assert_eq!((warp.path.pc, warp.path.mask), (0x1010, !0xff));
        warp.path.pc = 0x1200;
        warp.converge(!0xff, 0, 0x1210);
        assert_eq!((warp.path.pc, warp.path.mask), (0x1100, 0xff));
        warp.path.pc = 0x1200;
        warp.converge(0xff, 0, 0x1210);
        assert_eq!((warp.path.pc, warp.path.mask), (0x1210, FULL));
        assert!(!warp.diverged());
    }

    /// Lane 0 has called the function of the region again, and its path has merged with that of lane 1, which waits
    /// for it in the outer instance. Only lane 0 may pass.
    #[test]
    fn an_inner_instance_does_not_release_those_who_wait_in_the_outer_one() {
        let mut warp = warp();
        warp.live = 3;
        warp.path.mask = 3;
        (warp.barriers[5][0], warp.barriers[5][1]) = (1, 3);
        warp.path.pc = 0x1200;
        warp.converge(3, 5, 0x1210);
        assert_eq!((warp.path.pc, warp.path.mask), (0x1210, 1));
        // Back in the outer instance.
        warp.barriers[5][0] = 3;
        warp.path.pc = 0x1200;
        warp.converge(1, 5, 0x1210);
        assert_eq!((warp.path.pc, warp.path.mask), (0x1210, 3));
    }

    #[test]
    fn lanes_that_exit_or_break_are_not_waited_for() {
        let mut warp = warp();
        enter(&mut warp, 3);
        warp.branch(0xf, 0x1100, 0x1010);
        warp.converge(!0xf, 3, 0x1020);
        assert_eq!(warp.path.mask, 0xf);
        warp.exit(0x3, 0x1110);
        assert_eq!(warp.path.mask, 0xc);
        warp.leave(0xc, 3);
        assert_eq!(
            warp.paths().map(|path| (path.pc, path.mask)).collect::<Vec<_>>(),
            [(0x1020, !0xf), (0x1110, 0xc)]
        );
    }

    #[test]
    fn a_spinning_path_frees_those_that_wait_for_it() {
        let mut warp = warp();
        enter(&mut warp, 0);
        warp.branch(1, 0x1100, 0x1010);
        assert_eq!(warp.path.mask, !1);
        warp.branch(FULL, 0x1000, 0x1010);
        warp.rotate();
        assert_eq!(warp.path.mask, 1);
        warp.converge(1, 0, 0x1110);
        warp.path.pc = 0x1200;
        for _ in 0..PATIENCE {
            warp.poll(1);
        }
        assert_eq!((warp.path.pc, warp.path.mask), (0x1200, !1), "the instruction still has its path");
        warp.path.pc = 0x1210;
        warp.tick();
        assert_eq!((warp.path.pc, warp.path.mask), (0x1110, 1), "the lower address runs first");
        assert!(warp.paths().any(|path| path.pc == 0x1210 && path.mask == !1 && path.runs()));
        // The spinning lanes return from a function that has saved the barrier, which contains lane 0.
        warp.wait(1, State::Convergence(3), 0);
        warp.settle();
        for lane in 1..32 {
            warp.barriers[0][lane] = FULL;
        }
        warp.path.pc = 0x1300;
        warp.converge(!1, 0, 0x1310);
        assert!(warp.path.runs(), "no lane waits for ever");
    }

    #[test]
    fn lanes_that_a_warpsync_waits_for_pass_bsync() {
        let mut warp = warp();
        enter(&mut warp, 0);
        // Lanes 0 and 1 execute WARPSYNC for all lanes; the others have gone to the BSYNC at 0x1200.
        warp.branch(!3, 0x1200, 0x1010);
        warp.wait(3, State::Lanes { mask: !0, exclusive: false }, 0x1020);
        warp.settle();
        assert_eq!((warp.path.pc, warp.path.mask), (0x1200, !3));
        warp.converge(!3, 0, 0x1210);
        assert_eq!((warp.path.pc, warp.path.mask), (0x1210, !3), "they pass without lanes 0 and 1");
        assert_eq!(warp.unmet, Some(Unmet { pc: 0x1010, waiting: 3, others: !3 }));
        warp.exit(!3, 0x1220);
        assert_eq!((warp.path.pc, warp.path.mask), (0x1020, 3));
        warp.path.pc = 0x1200;
        warp.converge(3, 0, 0x1210);
        assert_eq!((warp.path.pc, warp.path.mask), (0x1210, 3));
    }

    #[test]
    fn warpsync_collects_the_lanes_of_its_mask() {
        let mut warp = warp();
        warp.branch(0xffff, 0x1100, 0x1010);
        let first = warp.path.mask;
        warp.wait(first, State::Lanes { mask: FULL, exclusive: false }, 0x1020);
        warp.settle();
        assert_eq!(warp.path.mask, 0xffff);
        warp.path.pc = 0x1010;
        warp.wait(0xffff, State::Lanes { mask: FULL, exclusive: false }, 0x1020);
        warp.settle();
        assert_eq!((warp.path.pc, warp.path.mask), (0x1020, FULL));
    }
}
