//! Allocation.

use super::{KIB, MIB, size_name};
use crate::bench::{Bench, timed};
use crate::case::Case;
use crate::error::Result;

/// Sizes of the allocations, in bytes.
const SIZES: [u64; 5] = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in SIZES {
        let name = format!("memory/cached/{}", size_name(size));
        let about = "allocate a buffer from cached memory and free it";
        cases.push(Case::new(&name, about, cached).size(size).needs(size, false));
    }
    for size in SIZES {
        let name = format!("memory/fresh/{}", size_name(size));
        let about = "allocate a buffer through the driver, free it and return it to the system (trim)";
        cases.push(Case::new(&name, about, fresh).size(size).needs(size, false));
    }
    cases
}

fn cached(bench: &mut Bench<'_>) -> Result<()> {
    let (device, len) = (bench.device(), bench.len());
    let mut ours = || {
        timed(|| {
            drop(device.alloc::<u8>(len)?);
            Ok(())
        })
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let stream = cuda.stream()?;
        stream.allocate_and_free(len)?;
        Ok(Box::new(move || timed(|| stream.allocate_and_free(len))))
    })
}

fn fresh(bench: &mut Bench<'_>) -> Result<()> {
    let (device, len) = (bench.device(), bench.len());
    let mut ours = || {
        device.trim();
        timed(|| {
            drop(device.alloc::<u8>(len)?);
            device.trim();
            Ok(())
        })
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let cuda = cuda.clone();
        Ok(Box::new(move || timed(|| cuda.memory(len)?.free())))
    })
}
