//! Accesses in which the lanes of a warp, or of half a warp, read or write words that lie side by side.
//!
//! Most kernels do little else; such accesses are copies of a row instead of 32 single ones.

use sass::{Instruction, field};

use super::Context;
use crate::mmu::Access;
use crate::sm::warp::{FULL, Row, Warp};

/// Whether lanes access consecutive words.
#[inline(always)]
fn consecutive(addresses: &[u64; 32]) -> bool {
    let mut apart = 0;
    for (lane, va) in (0u64..).zip(addresses) {
        apart |= va ^ addresses[0].wrapping_add(4 * lane);
    }
    apart == 0
}

/// How the words that half a warp accesses lie. Tiles with rows of 16 words, the most usual ones, are
/// accessed in such halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    /// One after the other.
    Run,
    /// All lanes access the same.
    Same,
    /// Otherwise.
    Apart,
}

/// How the words of the half warp that begins at lane `first` lie.
#[inline(always)]
fn half<T: Copy + Into<u64>>(addresses: &[T; 32], first: usize) -> Half {
    let start = addresses[first].into();
    let (mut run, mut same) = (0, 0);
    for (step, &at) in (0u64..).zip(&addresses[first..first + 16]) {
        run |= at.into() ^ start.wrapping_add(4 * step);
        same |= at.into() ^ start;
    }
    match (run, same) {
        (0, _) => Half::Run,
        (_, 0) => Half::Same,
        _ => Half::Apart,
    }
}

/// Loads words of shared memory that lie in runs, for all lanes; whether they do.
#[inline(always)]
pub(super) fn lds_runs(context: &Context, warp: &mut Warp, i: &Instruction, addresses: &Row) -> bool {
    let limit = context.launch.shared_bytes as usize;
    let halves = [0, 16].map(|first| (first, half(addresses, first), addresses[first] as usize));
    // A loop, since the closures of an iterator would be compiled without vectors and called.
    for (_, kind, at) in halves {
        let reach = match kind {
            Half::Run => 64,
            Half::Same => 4,
            Half::Apart => return false,
        };
        if !at.is_multiple_of(4) || at + reach > limit {
            return false;
        }
    }
    let row = warp.row_mut(i.d);
    for (first, kind, at) in halves {
        let words = &context.shared[at / 4..];
        if kind == Half::Run {
            row[first..first + 16].copy_from_slice(&words[..16]);
        } else {
            row[first..first + 16].fill(words[0]);
        }
    }
    true
}

/// Pointers to the words that the two halves of a warp access, when all lanes do and each half accesses a
/// run of words that is mapped.
#[inline(always)]
pub(super) fn global_runs(
    context: &Context,
    i: &Instruction,
    active: u32,
    addresses: &[u64; 32],
    access: Access,
) -> Option<[*mut u8; 2]> {
    let first = addresses[0] | addresses[16];
    if active != FULL || i.bits(field::SIZE) != 4 || !first.is_multiple_of(4) {
        return None;
    }
    if consecutive(addresses)
        && let Some(pointer) = context.port.at_hand(addresses[0], 128, access)
    {
        // SAFETY: the port vouches for 128 bytes.
        return Some([pointer, unsafe { pointer.add(64) }]);
    }
    if half(addresses, 0) != Half::Run || half(addresses, 16) != Half::Run {
        return None;
    }
    let run = |lane: usize| context.port.at_hand(addresses[lane], 64, access);
    Some([run(0)?, run(16)?])
}
