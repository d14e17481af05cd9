//! Limits of the library and of launches.

use std::time::Duration;

/// Time-out of calls that wait for the GPU and take no time-out argument: reading a buffer, a launch while the rings
/// are full, opening and closing a queue.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest number of queues that a device has open at a time. A queue takes two channels, so a driver with fewer
/// channels refuses a queue earlier (an Orin has 512 channels for all programs). `docs/memory.md` lists the memory
/// that a queue takes.
pub const MAX_QUEUES: usize = 240;

/// Number of timeline reads before the first clock read.
pub(crate) const SPINS: u32 = 2000;

/// How long a wait yields before it sleeps.
pub(crate) const YIELD_FOR: Duration = Duration::from_micros(200);

/// Interval at which a wait that never sleeps reads the error notifier.
pub(crate) const LOOK: Duration = Duration::from_micros(500);
