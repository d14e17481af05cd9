//! SHFL from fixed lanes in blocks.
//!
//! A block computes eight lanes at a time, and SHFL reads any lanes. So its words are put into a row when the block
//! starts. Its source is a register that the block has not written before.

use super::frame::Frame;
use crate::sm::warp::Row;

/// A SHFL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shuffle {
    /// The register that it reads.
    pub(super) register: u8,
    /// The lane that each lane reads.
    pub(super) sources: Row,
    /// Index of its row.
    pub(super) row: usize,
}

/// Puts the words of each SHFL of a block into its row, for its code.
///
/// # Safety
///
/// The frame has the warp, and the processor the features. There are `count` items.
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe extern "sysv64" fn shuffle(frame: *mut Frame, shuffles: *const Shuffle, count: usize) {
    // SAFETY: as the caller guarantees. While the code waits, nothing else uses the frame or the warp.
    let (frame, shuffles) = unsafe { (&mut *frame, core::slice::from_raw_parts(shuffles, count)) };
    // SAFETY: the warp is that of the machine, which the caller of the code borrows.
    let warp = unsafe { &*frame.warp };
    for Shuffle { register, sources, row } in shuffles {
        let from = warp.row(*register);
        let to = &mut frame.rows[*row];
        for lane in 0..32 {
            to[lane] = from[sources[lane] as usize & 31];
        }
        frame.use_rows(*row, 1);
    }
}
