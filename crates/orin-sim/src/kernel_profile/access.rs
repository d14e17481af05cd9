//! Costs of one warp's accesses: sectors of global and local memory, passes of shared memory.
//!
//! The rules are those of the CUDA C++ Programming Guide ("Compute Capability 8.x" and the sections it cites). Memory
//! moves in sectors of 32 bytes, and shared memory has 32 banks of 4 bytes. A warp's accesses of 8 bytes take at least
//! two passes, those of 16 bytes four, each with the lanes of a half or a quarter of the warp.

use serde::{Deserialize, Serialize};

use crate::check::Request;
use crate::mmu::Access;
use crate::sm::{Space, lanes};

/// Unit in which global and local memory moves, in bytes.
pub(super) const SECTOR: u64 = 32;
/// Banks of shared memory, of 4 bytes each.
const BANKS: usize = 32;
/// Bytes that shared memory delivers in one pass.
const PASS: u32 = 128;

/// Accesses to global or local memory: whole sectors move, however few of their bytes are needed.
///
/// ```
/// use orin_sim::kernel_profile::Traffic;
///
/// // Each lane loads a word, 128 bytes apart: 32 sectors for 128 bytes, which fit 4.
/// let strided =
///     Traffic { requests: 1, sectors: 32, ideal_sectors: 4, needed_bytes: 128, requested_bytes: 128 };
/// assert_eq!((strided.moved_bytes(), strided.sectors_per_request()), (1024, 32.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Executions by a warp with at least one access.
    pub requests: u64,
    /// Sectors of 32 bytes that the requests touch: the transactions between an SM and its L1 cache's sectors.
    pub sectors: u64,
    /// Sectors that would suffice if the bytes of each request were contiguous.
    pub ideal_sectors: u64,
    /// Distinct bytes of each request.
    pub needed_bytes: u64,
    /// Bytes of all lanes; lanes that access the same bytes count each.
    pub requested_bytes: u64,
}

impl Traffic {
    /// Bytes of the sectors.
    pub fn moved_bytes(&self) -> u64 {
        self.sectors * SECTOR
    }

    /// Sectors per request; 0 without requests.
    pub fn sectors_per_request(&self) -> f64 {
        ratio(self.sectors, self.requests)
    }

    /// Sectors beyond those that would suffice.
    pub fn excess_sectors(&self) -> u64 {
        self.sectors - self.ideal_sectors
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.ideal_sectors += other.ideal_sectors;
        self.needed_bytes += other.needed_bytes;
        self.requested_bytes += other.requested_bytes;
    }

    /// The counts of one request, whose lanes are aligned to their size.
    pub(super) fn of(request: &Request) -> Self {
        let mut addresses = [0; 32];
        let mut count = 0;
        for lane in lanes(request.mask) {
            addresses[count] = request.addresses[lane];
            count += 1;
        }
        let size = u64::from(request.bytes);
        let requested = count as u64 * size;
        let (sectors, needed) = match request.space {
            Space::Local => {
                // The words of a warp's lanes at the same offset are contiguous.
                let words = size.div_ceil(4);
                let mut touched: Vec<u64> = lanes(request.mask)
                    .flat_map(|lane| {
                        let word = request.addresses[lane] / 4;
                        (word..word + words).map(move |word| word * 4 + lane as u64 / 8)
                    })
                    .collect();
                (distinct(&mut touched), requested)
            }
            _ => {
                let addresses = &mut addresses[..count];
                let unique = distinct(addresses);
                addresses.iter_mut().for_each(|va| *va /= SECTOR);
                (distinct(addresses), unique * size)
            }
        };
        Self {
            requests: 1,
            sectors,
            ideal_sectors: needed.div_ceil(SECTOR).min(sectors),
            needed_bytes: needed,
            requested_bytes: requested,
        }
    }
}

/// Number of distinct values; sorts them.
fn distinct(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    let repeated = values.windows(2).filter(|pair| pair[0] == pair[1]).count();
    (values.len() - repeated) as u64
}

/// `part / whole`; 0 if `whole` is 0.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    // CAST: counts far below 2^53 are exact.
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Accesses to shared memory: one pass delivers one word of each bank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passes {
    /// Executions by a warp with at least one access.
    pub requests: u64,
    /// Passes that the requests need: in each, a bank serves one word, to any number of lanes.
    pub passes: u64,
    /// Passes without conflicts: one, two for accesses of 8 bytes, four for those of 16.
    pub ideal_passes: u64,
    /// Passes that no hardware can avoid: those of a request whose lanes are all in one pass. GPUs merge the parts of
    /// some wide requests.
    pub least_passes: u64,
    /// Largest number of words of one bank that a pass would have to serve: n is an n-way conflict, 1 none.
    pub worst: u64,
    /// Lanes of atomics on a word that another lane of the warp also changes; such atomics are serialised.
    pub collisions: u64,
}

impl Passes {
    /// Passes that bank conflicts add.
    pub fn conflicts(&self) -> u64 {
        self.passes - self.ideal_passes
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.passes += other.passes;
        self.ideal_passes += other.ideal_passes;
        self.least_passes += other.least_passes;
        self.worst = self.worst.max(other.worst);
        self.collisions += other.collisions;
    }

    /// The counts of one request.
    pub(super) fn of(request: &Request) -> Self {
        let lanes_per_pass = (PASS / request.bytes.max(4)).clamp(1, 32);
        let mut all = Self { requests: 1, ..Self::default() };
        for first in (0..32).step_by(lanes_per_pass as usize) {
            let group = if lanes_per_pass == 32 { !0 } else { ((1 << lanes_per_pass) - 1) << first };
            if request.mask & group == 0 {
                continue;
            }
            let ways = ways(request, request.mask & group);
            all.passes += ways;
            all.ideal_passes += 1;
            all.worst = all.worst.max(ways);
        }
        all.least_passes = if lanes_per_pass == 32 { all.passes } else { ways(request, request.mask) };
        if request.access == Access::Atomic {
            let mut addresses: Vec<u64> = lanes(request.mask).map(|lane| request.addresses[lane]).collect();
            let count = addresses.len() as u64;
            all.collisions = count - distinct(&mut addresses);
        }
        all
    }
}

/// Largest number of distinct words of one bank that the lanes of `mask` access.
fn ways(request: &Request, mask: u32) -> u64 {
    let words = u64::from(request.bytes.div_ceil(4));
    // At most 16 bytes of each lane.
    let mut touched = [0; 4 * 32];
    let mut count = 0;
    for lane in lanes(mask) {
        let word = request.addresses[lane] / 4;
        for step in 0..words {
            touched[count] = word + step;
            count += 1;
        }
    }
    let touched = &mut touched[..count];
    touched.sort_unstable();
    let mut banks = [0; BANKS];
    let mut last = None;
    for &word in &*touched {
        if last != Some(word) {
            // CAST: below the number of banks.
            banks[(word % BANKS as u64) as usize] += 1;
            last = Some(word);
        }
    }
    banks.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Role;

    fn request(space: Space, bytes: u32, mask: u32, address: impl Fn(u64) -> u64) -> Request {
        Request {
            space,
            mask,
            addresses: core::array::from_fn(|lane| address(lane as u64)),
            bytes,
            access: Access::Read,
            strong: crate::check::Scope::Own,
            role: Role::Plain,
            repeats: 0,
        }
    }

    fn global(bytes: u32, mask: u32, address: impl Fn(u64) -> u64) -> (u64, u64, u64) {
        let traffic = Traffic::of(&request(Space::Global, bytes, mask, address));
        assert_eq!((traffic.requests, traffic.requested_bytes), (1, u64::from(mask.count_ones() * bytes)));
        (traffic.sectors, traffic.ideal_sectors, traffic.needed_bytes)
    }

    #[test]
    fn sectors_of_global_requests() {
        let va = 0x5_0000_0000;
        assert_eq!(global(4, !0, |lane| va + 4 * lane), (4, 4, 128));
        assert_eq!(global(4, !0, |lane| va + 16 + 4 * lane), (5, 4, 128), "not aligned to a sector");
        assert_eq!(global(4, !0, |lane| va + 8 * lane), (8, 4, 128));
        assert_eq!(global(4, !0, |lane| va + 128 * lane), (32, 4, 128));
        assert_eq!(global(4, !0, |_| va), (1, 1, 4), "all lanes load the same word");
        assert_eq!(global(16, !0, |lane| va + 16 * lane), (16, 16, 512));
        assert_eq!(global(1, !0, |lane| va + lane), (1, 1, 32));
        assert_eq!(global(1, 0xff, |lane| va + 32 * lane), (8, 1, 8));
        assert_eq!(global(4, 1 << 31, |lane| va + 4 * lane), (1, 1, 4));
    }

    #[test]
    fn sectors_of_local_requests() {
        let local = |bytes, mask, address: fn(u64) -> u64| {
            let traffic = Traffic::of(&request(Space::Local, bytes, mask, address));
            (traffic.sectors, traffic.ideal_sectors)
        };
        assert_eq!(local(4, !0, |_| 64), (4, 4), "one offset: the words of the lanes are contiguous");
        assert_eq!(local(16, !0, |_| 64), (16, 16));
        assert_eq!(local(4, !0, |lane| 4 * lane), (32, 4), "a different offset for each lane");
        assert_eq!(local(1, 0xff, |_| 3), (1, 1));
    }

    fn shared(bytes: u32, mask: u32, address: impl Fn(u64) -> u64) -> (u64, u64, u64) {
        let passes = Passes::of(&request(Space::Shared, bytes, mask, address));
        assert_eq!((passes.requests, passes.collisions), (1, 0));
        (passes.passes, passes.ideal_passes, passes.worst)
    }

    #[test]
    fn passes_of_shared_requests() {
        assert_eq!(shared(4, !0, |lane| 4 * lane), (1, 1, 1));
        assert_eq!(shared(4, !0, |_| 64), (1, 1, 1), "one word serves all lanes");
        assert_eq!(shared(4, !0, |lane| 8 * lane), (2, 1, 2));
        assert_eq!(shared(4, !0, |lane| 16 * lane), (4, 1, 4));
        assert_eq!(shared(4, !0, |lane| 128 * lane), (32, 1, 32));
        assert_eq!(shared(4, !0, |lane| 132 * lane), (1, 1, 1), "a padded column");
        assert_eq!(shared(4, 0xffff, |lane| 128 * lane), (16, 1, 16));
        assert_eq!(shared(1, !0, |lane| lane), (1, 1, 1), "bytes of the same words");
        assert_eq!(shared(8, !0, |lane| 8 * lane), (2, 2, 1));
        assert_eq!(shared(8, !0, |lane| 16 * lane), (4, 2, 2));
        assert_eq!(shared(8, 0xffff, |lane| 8 * lane), (1, 1, 1), "the other half has no lane");
        assert_eq!(shared(16, !0, |lane| 16 * lane), (4, 4, 1));
        assert_eq!(shared(16, !0, |lane| 128 * lane), (32, 4, 8));
    }

    #[test]
    fn parts_of_a_wide_request_may_share_a_pass() {
        let least = |bytes, address: fn(u64) -> u64| {
            Passes::of(&request(Space::Shared, bytes, !0, address)).least_passes
        };
        assert_eq!(least(4, |lane| 8 * lane), 2, "the passes of words are exact");
        assert_eq!(least(8, |lane| 8 * lane), 2, "256 bytes");
        assert_eq!(least(8, |_| 0), 1, "an H200 needs one pass for 8 bytes that all lanes read");
        assert_eq!(least(16, |lane| 16 * lane), 4);
        assert_eq!(least(16, |lane| 16 * (lane % 8)), 1);
    }

    #[test]
    fn atomics_on_the_same_word_collide() {
        let mut same = request(Space::Shared, 4, !0, |lane| 4 * (lane % 8));
        same.access = Access::Atomic;
        let passes = Passes::of(&same);
        assert_eq!((passes.passes, passes.collisions), (1, 24));
    }
}
