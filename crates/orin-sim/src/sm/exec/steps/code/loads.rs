//! Loads of blocks.
//!
//! The addresses of a block's loads are known when it starts, so all accesses are found before its code runs. If any
//! may fault, the handlers of the steps execute the block's instructions instead. The code reads eight lanes of a
//! loaded word through a pointer: to memory if they are consecutive words, else to a row that was filled before.

use core::arch::x86_64::{
    _mm_loadl_epi64, _mm_loadu_si128, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32,
    _mm_unpacklo_epi64,
};

use sass::{Instruction, Op, Predicate, RZ, URZ, field};

use super::frame::{Frame, WORDS};
use crate::mmu::Access;
use crate::sm::exec::memory::{self, Format, read_words, uniform_pair};
use crate::sm::exec::steps::Machine;
use crate::sm::exec::steps::eight::{Eight, Lanes, Native as V, Part, lanes_of, part};
use crate::sm::warp::{FULL, Row, Warp};

/// The address of loads, without their offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    shared: bool,
    /// The register of an address, and that of its upper half or RZ.
    pub(super) low: u8,
    pub(super) high: u8,
    /// Uniform register that is added, or URZ.
    pub(super) base: u8,
    /// Shift of a shared address.
    stride: u32,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) offset: i64,
    pub(super) format: Format,
    /// Index of its first word among those of the block.
    pub(super) first: usize,
}

/// Loads with the same address that differ in their offsets.
#[derive(Debug)]
pub(super) struct Group {
    address: Address,
    /// Which lanes access memory; `None` for all of the path.
    guard: Option<Predicate>,
    loads: Vec<Load>,
    /// The lowest offset, and the number of bytes from there to the end of the last load.
    pub(super) least: i64,
    span: u64,
    /// For a group of stores, the index of what is found.
    store: Option<usize>,
}

impl Address {
    /// Returns the address of LDS, STS, LDG or STG.
    pub(super) fn of(i: &Instruction) -> Self {
        let shared = matches!(i.op, Op::Lds | Op::Sts);
        let uniform_at = match i.op {
            Op::Lds | Op::Ldg => field::SLOT_UNIFORM,
            _ => field::UPPER_UNIFORM,
        };
        let wide = !shared && memory::is_wide(i);
        let has_base = if shared {
            i.bit(field::UNIFORM)
        } else {
            memory::has_uniform_base(i, i.bit(field::DESCRIPTOR))
        };
        Self {
            shared,
            low: i.a,
            high: if wide { Warp::next(i.a, 1) } else { RZ },
            // CAST: 6 bits.
            base: if has_base { i.register(uniform_at) } else { URZ },
            stride: if shared { memory::stride(i) & 31 } else { 0 },
        }
    }
}

/// Finds the words of all loads of a block, for its code. Returns false if the handlers must execute the block.
///
/// # Safety
///
/// The frame has the machine, and the processor the features. There are `count` groups.
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe extern "sysv64" fn find(frame: *mut Frame, groups: *const Group, count: usize) -> bool {
    // SAFETY: as the caller guarantees. While the code waits, nothing else uses the frame or the machine.
    let (frame, groups) = unsafe { (&mut *frame, core::slice::from_raw_parts(groups, count)) };
    // SAFETY: as above.
    let m = unsafe { &mut *frame.machine.cast::<Machine<'_, '_>>() };
    let mask = frame.mask;
    for group in groups {
        if !group.find(m, frame, mask) {
            return false;
        }
    }
    true
}

/// How eight lanes access memory.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pattern {
    /// Consecutive words; the address of the first.
    Run(u32),
    /// All active lanes the same address.
    Same(u32),
}

impl Pattern {
    /// Returns the pattern of eight lanes at `at`, of which those of `mask` are active.
    #[inline(always)]
    pub(super) fn of(values: V, at: &Part, mask: u32) -> Option<Self> {
        let lane = mask.trailing_zeros() & 7;
        let first = at[lane as usize];
        let inactive = lanes_of::<V>(!mask);
        if values.equal(V::splat(first)).or(inactive).bits() == 0xff {
            return Some(Self::Same(first));
        }
        let start = first.checked_sub(4 * lane)?;
        let run = values.sub(V::splat(start)).equal(V::load(&[0, 4, 8, 12, 16, 20, 24, 28]));
        (run.or(inactive).bits() == 0xff).then_some(Self::Run(start))
    }

    /// The lowest and the highest address of a lane.
    fn ends(self) -> (u32, u32) {
        match self {
            Self::Run(start) => (start, start.saturating_add(28)),
            Self::Same(at) => (at, at),
        }
    }
}

impl Group {
    /// Most bytes between the offsets of the loads of a group.
    const SPAN: u64 = 1 << 16;

    /// Creates a group of one load.
    pub(super) fn new(address: Address, guard: Option<Predicate>, load: Load, store: Option<usize>) -> Self {
        Self { address, guard, loads: vec![load], least: load.offset, span: load.format.bytes.into(), store }
    }

    /// Returns the number of bytes of each access.
    pub(super) fn bytes(&self) -> u32 {
        self.loads[0].format.bytes
    }

    /// Returns the index of what is found for stores.
    pub(super) fn store(&self) -> Option<usize> {
        self.store
    }

    /// Adds a load or store if it belongs to the group. Returns whether it does.
    pub(super) fn add(
        &mut self,
        address: &Address,
        guard: Option<Predicate>,
        load: &Load,
        is_store: bool,
    ) -> bool {
        let first = &self.loads[0];
        let bytes = u64::from(first.format.bytes);
        let least = self.least.min(load.offset);
        // CAST: the last offset is not below the first.
        let span =
            (self.least.wrapping_add_unsigned(self.span - bytes).max(load.offset) - least) as u64 + bytes;
        // One check of alignment and bounds serves all.
        let fits = self.store.is_some() == is_store
            && self.address == *address
            && self.guard == guard
            && first.format.bytes == load.format.bytes
            && (first.offset - load.offset).cast_unsigned().is_multiple_of(bytes)
            && span <= Self::SPAN;
        if fits {
            self.loads.push(*load);
            (self.least, self.span) = (least, span);
        }
        fits
    }

    /// Finds the words of all loads, for the lanes `mask`. Returns false if the handlers must execute the block.
    #[inline(always)]
    pub(super) fn find(&self, m: &mut Machine, frame: &mut Frame, mask: u32) -> bool {
        let active = mask & self.guard.map_or(!0, |guard| m.warp.predicate(guard));
        if active == 0 {
            if let Some(store) = self.store {
                frame.found[store].clear();
                return true;
            }
            // No lane uses what is in the rows.
            self.loads.iter().for_each(|load| frame.use_rows(load.first, load.format.words().into()));
            return true;
        }
        if active == FULL
            && self.bytes() == 4
            && let Some(found) = self.find_whole(m, frame)
        {
            return found;
        }
        let base = if self.address.shared {
            u64::from(m.warp.uniform(self.address.base))
        } else {
            uniform_pair(m.warp, self.address.base)
        };
        let mut base = base.wrapping_add(self.least.cast_unsigned());
        let first = active.trailing_zeros() as usize & 31;
        // The addresses; those of global memory without the base and the upper words, which must be the same.
        let mut at = *m.warp.row(self.address.low);
        if self.address.shared {
            for at in &mut at {
                // CAST: the address is 32 bits wide.
                *at = (*at << self.address.stride).wrapping_add(base as u32);
            }
            base = 0;
        } else {
            let upper = m.warp.row(self.address.high);
            let mut apart = V::splat(0);
            for eight in 0..4 {
                let differs = part::<V>(upper, eight).xor(V::splat(upper[first]));
                apart = apart.or(differs.and(lanes_of(active >> (8 * eight))));
            }
            if apart.equal(V::splat(0)).bits() != 0xff {
                return false;
            }
            base = base.wrapping_add(u64::from(upper[first]) << 32);
        }
        if let Some(store) = self.store {
            return self.find_stores(m, &mut frame.found[store], &at, active, base);
        }
        self.find_patterns(m, frame, &at, active, base) || self.find_lanes(m, frame, at, active, base)
    }

    /// [`Group::find`] if all 32 lanes access consecutive words; `None` if they do not.
    #[inline(always)]
    fn find_whole(&self, m: &mut Machine, frame: &mut Frame) -> Option<bool> {
        let low = m.warp.row(self.address.low);
        let first = low[0];
        let mut apart = V::splat(0);
        let mut expected = V::splat(first).add(V::load(&[0, 4, 8, 12, 16, 20, 24, 28]));
        for eight in 0..4 {
            apart = apart.or(part::<V>(low, eight).xor(expected));
            expected = expected.add(V::splat(32));
        }
        let mut base = self.least.cast_unsigned();
        let mut start = first;
        if self.address.shared {
            // CAST: the address is 32 bits wide.
            start = start.wrapping_add(m.warp.uniform(self.address.base)).wrapping_add(base as u32);
            base = 0;
        } else {
            let upper = m.warp.row(self.address.high);
            let same = V::splat(upper[0]);
            for eight in 0..4 {
                apart = apart.or(part::<V>(upper, eight).xor(same));
            }
            base = base.wrapping_add(u64::from(upper[0]) << 32);
            base = base.wrapping_add(uniform_pair(m.warp, self.address.base));
        }
        if apart.equal(V::splat(0)).bits() != 0xff || self.address.stride != 0 {
            return None;
        }
        let last = start.checked_add(124)?;
        let Some(pointer) = self.pointer(m, start, last, start, base) else { return Some(false) };
        if let Some(store) = self.store {
            frame.found[store].set_run(pointer, self.least);
            return Some(true);
        }
        for load in &self.loads {
            let from: *const u8 = pointer.wrapping_add(self.distance(load));
            frame.words[load.first % WORDS] =
                [from, from.wrapping_add(32), from.wrapping_add(64), from.wrapping_add(96)];
        }
        Some(true)
    }

    /// Returns a pointer to the lowest of the accessed bytes, if all are at hand and aligned.
    #[inline(always)]
    pub(super) fn pointer(
        &self,
        m: &mut Machine,
        lowest: u32,
        highest: u32,
        all: u32,
        base: u64,
    ) -> Option<*mut u8> {
        let bytes = u64::from(self.loads[0].format.bytes);
        // A mask: the compiler does not know that it is a power of two.
        if (u64::from(all) | base) & (bytes - 1) != 0 {
            return None;
        }
        if self.address.shared {
            let end = u64::from(highest) + self.span;
            let start = m.context.shared.as_mut_ptr().cast::<u8>();
            return (end <= m.context.launch.shared_bytes.into())
                .then(|| start.wrapping_add(lowest as usize));
        }
        let len = u64::from(highest - lowest) + self.span;
        let access = if self.store.is_some() { Access::Write } else { Access::Read };
        m.context.port.at_hand(base.wrapping_add(lowest.into()), len, access)
    }

    /// [`Group::find`] if each eight lanes access consecutive words, or the same.
    #[inline(always)]
    fn find_patterns(&self, m: &mut Machine, frame: &mut Frame, at: &Row, active: u32, base: u64) -> bool {
        let mut patterns = [Pattern::Same(at[active.trailing_zeros() as usize & 31]); 4];
        let parts = at.as_chunks::<8>().0;
        let (mut lowest, mut highest, mut all) = (u32::MAX, 0, 0);
        for eight in 0..4 {
            let mask = active >> (8 * eight) & 0xff;
            if mask != 0 {
                let Some(pattern) = Pattern::of(V::load(&parts[eight]), &parts[eight], mask) else {
                    return false;
                };
                patterns[eight] = pattern;
            }
            let (first, last) = patterns[eight].ends();
            (lowest, highest, all) = (lowest.min(first), highest.max(last), all | first);
        }
        let run = |pattern: &Pattern| matches!(pattern, Pattern::Run(_));
        let runs = patterns.iter().filter(|pattern| run(pattern)).count();
        if runs != 0 && self.bytes() != 4 {
            return false;
        }
        let Some(pointer) = self.pointer(m, lowest, highest, all, base) else { return false };
        let from = patterns.map(|pattern| pointer.wrapping_add((pattern.ends().0 - lowest) as usize));
        if runs == 4 {
            for load in &self.loads {
                frame.words[load.first % WORDS] =
                    from.map(|from| from.wrapping_add(self.distance(load)).cast_const());
            }
            return true;
        }
        // SAFETY: `pointer` has found the words accessible and aligned.
        unsafe {
            match self.bytes() {
                4 => self.spread::<4>(frame, &from),
                8 => self.spread::<8>(frame, &from),
                16 => self.spread::<16>(frame, &from),
                1 => self.spread::<1>(frame, &from),
                _ => self.spread::<2>(frame, &from),
            }
        }
        for eight in (0..4).filter(|eight| run(&patterns[*eight])) {
            for load in &self.loads {
                frame.words[load.first % WORDS][eight] = from[eight].wrapping_add(self.distance(load));
            }
        }
        true
    }

    /// Fills rows with loads of `BYTES` bytes: in each eight lanes those from a place.
    ///
    /// # Safety
    ///
    /// As [`read_words`].
    #[inline(always)]
    unsafe fn spread<const BYTES: u32>(&self, frame: &mut Frame, from: &[*mut u8; 4]) {
        for load in &self.loads {
            let words = BYTES.div_ceil(4) as usize;
            let first = load.first.min(WORDS - words);
            frame.use_rows(first, words);
            for eight in 0..4 {
                // SAFETY: as the caller guarantees.
                let mut values = unsafe { read_words(from[eight].wrapping_add(self.distance(load)), BYTES) };
                values[0] = Format { bytes: BYTES, ..load.format }.extend(values[0]);
                for step in 0..words {
                    V::splat(values[step]).store(&mut frame.rows[first + step].as_chunks_mut().0[eight]);
                }
            }
        }
    }

    /// Returns the distance of a load from the first one.
    #[inline(always)]
    fn distance(&self, load: &Load) -> usize {
        // CAST: below the span.
        (load.offset - self.least) as usize
    }

    /// [`Group::find`] for any addresses.
    #[inline(always)]
    fn find_lanes(&self, m: &mut Machine, frame: &mut Frame, mut at: Row, active: u32, base: u64) -> bool {
        let instead = at[active.trailing_zeros() as usize & 31];
        let (mut lowest, mut highest, mut all) = (u32::MAX, 0, 0);
        for (lane, at) in at.iter_mut().enumerate() {
            *at = if active >> lane & 1 != 0 { *at } else { instead };
            (lowest, highest, all) = (lowest.min(*at), highest.max(*at), all | *at);
        }
        let Some(pointer) = self.pointer(m, lowest, highest, all, base) else { return false };
        for load in &self.loads {
            // CAST: below the span.
            let from = pointer.wrapping_add((load.offset - self.least) as usize);
            frame.use_rows(load.first, load.format.words().into());
            let rows = &mut frame.rows[load.first..];
            // SAFETY: `pointer` has found the words of all lanes accessible and aligned.
            unsafe {
                match load.format.bytes {
                    1 => load.gather::<1>(rows, from, &at, lowest),
                    2 => load.gather::<2>(rows, from, &at, lowest),
                    4 => load.gather::<4>(rows, from, &at, lowest),
                    8 => load.gather::<8>(rows, from, &at, lowest),
                    _ => load.gather::<16>(rows, from, &at, lowest),
                }
            }
        }
        true
    }
}

impl Load {
    /// Reads the words of all lanes, of `BYTES` bytes each, from their places above the lowest.
    ///
    /// # Safety
    ///
    /// As [`read_words`], for each lane.
    #[inline(always)]
    unsafe fn gather<const BYTES: u32>(self, rows: &mut [Row], from: *mut u8, at: &Row, lowest: u32) {
        let place = |lane: usize| from.wrapping_add((at[lane] - lowest) as usize);
        if BYTES >= 8 {
            for four in 0..8 {
                // SAFETY: as the caller guarantees. The processor has the features: see `find`. Concurrent writers
                // can tear the words of a lane, as on hardware.
                let words =
                    unsafe { transposed::<BYTES>(core::array::from_fn(|lane| place(4 * four + lane))) };
                for step in 0..BYTES as usize / 4 {
                    rows[step].as_chunks_mut().0[four] = words[step];
                }
            }
            return;
        }
        let format = Format { bytes: BYTES, ..self.format };
        for lane in 0..32 {
            // SAFETY: as the caller guarantees.
            rows[0][lane] = format.extend(unsafe { read_words(place(lane), BYTES) }[0]);
        }
    }
}

/// Reads 8 or 16 bytes of four lanes, and returns each of their words for all four.
///
/// # Safety
///
/// The bytes at each place must be accessible.
#[inline(always)]
unsafe fn transposed<const BYTES: u32>(from: [*mut u8; 4]) -> [[u32; 4]; 4] {
    // SAFETY: as the caller guarantees; the instructions are those of all x86-64.
    unsafe {
        let [a, b, c, d] = from.map(|from| match BYTES {
            8 => _mm_loadl_epi64(from.cast()),
            _ => _mm_loadu_si128(from.cast()),
        });
        let (low, high) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
        let (low_2, high_2) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
        core::mem::transmute([
            _mm_unpacklo_epi64(low, high),
            _mm_unpackhi_epi64(low, high),
            _mm_unpacklo_epi64(low_2, high_2),
            _mm_unpackhi_epi64(low_2, high_2),
        ])
    }
}
