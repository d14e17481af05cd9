//! Accesses of a warp or half a warp to consecutive words.
//!
//! Such accesses dominate most kernels. They copy a row instead of 32 single words.

use sass::{Instruction, field};

use super::Context;
use crate::mmu::Access;
use crate::sm::warp::{FULL, Row, Warp};

/// Returns whether the lanes access consecutive words.
#[inline(always)]
fn consecutive(addresses: &[u64; 32]) -> bool {
    let mut apart = 0;
    for (lane, va) in (0u64..).zip(addresses) {
        apart |= va ^ addresses[0].wrapping_add(4 * lane);
    }
    apart == 0
}

/// Access pattern of half a warp. Tiles with rows of 16 words, the most common ones, are accessed in halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// Consecutive words.
    Run,
    /// All lanes access the same word.
    Same,
    /// Any other pattern.
    Apart,
}

/// Returns the access pattern of the half warp that begins at lane `first`.
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

/// Loads runs of shared-memory words for all lanes. Returns false if the words are not in runs.
#[inline(always)]
pub(super) fn lds_runs(context: &Context, warp: &mut Warp, i: &Instruction, addresses: &Row) -> bool {
    let limit = context.launch.shared_bytes as usize;
    // No closures, which would be compiled without vectors and called.
    let halves =
        [(0, half(addresses, 0), addresses[0] as usize), (16, half(addresses, 16), addresses[16] as usize)];
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

/// Returns pointers to the words of the two halves of a warp if all lanes are active and each half accesses a mapped
/// run of words.
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
        // SAFETY: the port guarantees access to 128 bytes.
        return Some([pointer, unsafe { pointer.add(64) }]);
    }
    if half(addresses, 0) != Half::Run || half(addresses, 16) != Half::Run {
        return None;
    }
    let run = |lane: usize| context.port.at_hand(addresses[lane], 64, access);
    Some([run(0)?, run(16)?])
}
