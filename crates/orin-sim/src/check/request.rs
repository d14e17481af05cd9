//! What instructions access, and in which order.

use crate::mmu::Access;
use crate::sm::{Row, Space};

/// Role of an atomic in synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing that racecheck treats specially.
    Plain,
    /// Compare-and-swap.
    Compare,
    /// An arrival at an `mbarrier`.
    Arrive,
    /// The write of a copy by `cp.async`, and its number in the warp.
    Copy(u32),
}

/// The threads that an access or a fence concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The own thread: other threads may not wait for the access.
    #[default]
    Own,
    /// Those of the block.
    Block,
    /// All.
    Device,
}

/// A fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) scope: Scope,
    /// Whether later atomic and volatile writes publish what is before it. Otherwise it only acquires.
    pub(crate) releases: bool,
}

/// The accesses of a warp by one instruction, in one space.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) space: Space,
    /// Lanes that access.
    pub(crate) mask: u32,
    pub(crate) addresses: [u64; 32],
    /// Size of a lane's access in bytes.
    pub(crate) bytes: u32,
    pub(crate) access: Access,
    /// The threads that may wait for it: not only the own one if it is atomic, volatile or stronger.
    pub(crate) strong: Scope,
    pub(crate) role: Role,
    /// Lanes that store in shared memory what is there already, as far as is known.
    pub(crate) repeats: u32,
}

/// The instruction and warp of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    /// GPU address of the instruction.
    pub(crate) pc: u64,
    /// Index of the warp in its block.
    pub(crate) warp: u32,
    /// Thread indices of the lanes, by axis.
    pub(crate) tid: &'a [Row; 3],
    /// The stack pointers of the lanes.
    pub(crate) stack: &'a Row,
}

/// Name of an access.
pub(super) fn name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Atomic => "atomic",
    }
}

/// The words of an access, with the bytes of each.
#[inline]
pub(super) fn words(va: u64, bytes: u32) -> impl Iterator<Item = (u64, u8)> {
    let (first, end) = (va / 4, va + u64::from(bytes));
    (first..end.div_ceil(4)).map(move |word| {
        let (low, high) = (va.max(4 * word) - 4 * word, end.min(4 * word + 4) - 4 * word);
        // CAST: at most 4 bits.
        (word, ((1u32 << high) - (1 << low)) as u8)
    })
}
