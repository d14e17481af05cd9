//! Special registers: thread and block indices, clocks and others.
//!
//! Source: compiled code for sm_87 and its disassembly.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sass::{Instruction, Op, field};

use super::memory::WINDOW_BYTES;
use super::{Context, Outcome, Trap, unmodelled};
use crate::sm::warp::{Row, Warp};

/// Returns `%clock`: host nanoseconds, which is a clock of 1 GHz.
fn clock() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // CAST: lasts 500 years.
    START.elapsed().as_nanos() as u64
}

/// Returns `%globaltimer`: nanoseconds of the host's real-time clock.
fn global_timer() -> u64 {
    // CAST: lasts 500 years.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// A special register that does not change while a CTA runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fixed {
    Zero,
    /// The number of the lane.
    Lane,
    /// An axis of the thread's index.
    Thread(u8),
    /// An axis of the CTA's index.
    Block(u8),
}

impl Fixed {
    /// Returns the register that S2R or CS2R reads; `None` if it may change, as one of a pair may: all but zeros.
    pub(super) fn read_by(i: &Instruction) -> Option<Self> {
        let wide = i.op == Op::Cs2r && i.bit(field::SPECIAL_WIDE);
        Self::of(i.bits(field::SPECIAL)).filter(|fixed| !wide || *fixed == Self::Zero)
    }

    /// Returns the register with a number; `None` for any other.
    fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Lane,
            // CAST: 0 to 2.
            33..=35 => Self::Thread((number - 33) as u8),
            37..=39 => Self::Block((number - 37) as u8),
            255 => Self::Zero,
            _ => return None,
        })
    }
}

/// Returns the values of a 32-bit special register.
fn value(context: &Context, warp: &Warp, i: &Instruction, number: u32) -> Result<Row, Trap> {
    let launch = context.launch;
    let all = |value: u32| Ok([value; 32]);
    let by_lane = |f: fn(u32) -> u32| {
        // CAST: 0 to 31.
        Ok(core::array::from_fn(|lane| f(lane as u32)))
    };
    match Fixed::of(number) {
        Some(Fixed::Zero) => return all(0),
        Some(Fixed::Lane) => return by_lane(|lane| lane),
        Some(Fixed::Thread(axis)) => return Ok(warp.tid[usize::from(axis)]),
        Some(Fixed::Block(axis)) => return all(context.block[usize::from(axis)]),
        None => {}
    }
    // CAST: the halves of 64-bit values.
    match number {
        1 | 80 => all(clock() as u32),
        81 => all((clock() >> 32) as u32),
        3 => all(warp.index << 8),
        46 => all((launch.local_window >> 32) as u32),
        52 => all(launch.local_window as u32),
        47 => all((launch.shared_window >> 32) as u32),
        48 => all(launch.shared_window as u32),
        49 | 53 => all(WINDOW_BYTES as u32),
        50 => all(launch.shared_bytes),
        // SR_LMEMHIOFF: the lowest offset of local memory that the stack may use. Code compiled for debugging traps
        // if its stack pointer is below.
        55 => all(WINDOW_BYTES as u32 - launch.local_bytes.min(WINDOW_BYTES as u32)),
        56 => by_lane(|lane| 1 << lane),
        57 => by_lane(|lane| (1 << lane) - 1),
        58 => by_lane(|lane| (2u32 << lane).wrapping_sub(1)),
        59 => by_lane(|lane| !(2u32 << lane).wrapping_sub(1)),
        60 => by_lane(|lane| !((1 << lane) - 1)),
        61 => all(launch.registers),
        62 => all(launch.barriers),
        64 | 66 => all(0),
        67 => all(context.sm),
        82 => all(global_timer() as u32),
        83 => all((global_timer() >> 32) as u32),
        // Performance counters, which always read 0.
        100..=131 => all(0),
        _ => Err(unmodelled(i)),
    }
}

/// S2R, CS2R and S2UR.
pub(super) fn read(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let number = i.bits(field::SPECIAL);
    if i.op == Op::S2ur {
        let values = value(context, warp, i, number)?;
        // CAST: 6 bits are used.
        warp.set_uniform(i.d, values[active.trailing_zeros() as usize & 31]);
        return Ok(());
    }
    let values = value(context, warp, i, number)?;
    if i.op == Op::Cs2r && i.bit(field::SPECIAL_WIDE) {
        // Both words must come from one reading of the clock.
        let wide = match number {
            80 => Some(clock()),
            82 => Some(global_timer()),
            _ => None,
        };
        // CAST: the halves of the value.
        let (low, high) = match wide {
            Some(wide) => ([wide as u32; 32], [(wide >> 32) as u32; 32]),
            None if number == 255 => (values, values),
            None => (values, value(context, warp, i, number + 1)?),
        };
        warp.write(i.d, active, &low);
        warp.write(Warp::next(i.d, 1), active, &high);
        return Ok(());
    }
    warp.write(i.d, active, &values);
    Ok(())
}
