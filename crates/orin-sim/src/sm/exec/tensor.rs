//! Tensor cores: matrix products over the registers of a whole warp.

use super::{Outcome, unmodelled};
use crate::sm::decode::Instruction;
use crate::sm::warp::Warp;

/// HMMA, IMMA, BMMA and DMMA.
pub(super) fn multiply(warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let _ = (warp, active);
    Err(unmodelled(i))
}
