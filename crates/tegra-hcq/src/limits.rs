//! Sizes of launches, and limits of the library.

use std::time::Duration;

/// Time-out of calls that wait for the GPU and take no time-out argument: reading a buffer, a launch while the rings
/// are full, opening and closing a queue.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest number of queues that a device has open at a time. A queue takes two channels, so a driver with fewer
/// channels refuses a queue earlier (an Orin has 512 channels for all programs). `docs/memory.md` lists the memory
/// that a queue takes.
pub const MAX_QUEUES: usize = 240;

/// Priority of launches. Where SMs become free, the GPU places blocks of a higher priority first; blocks that run are
/// not interrupted. It concerns launches that may run at the same time: of queues in one group
/// ([`Device::queue_beside`](crate::Device::queue_beside)) that [spin](crate::WaitPolicy::Spin), and of the branches of
/// a graph.
///
/// Seen on an H100; on an Orin it was never tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The lowest, which launches have without one.
    pub const USUAL: Self = Self(0);
    /// The highest.
    pub const HIGHEST: Self = Self(63);

    /// A priority by its level above [`Priority::USUAL`]; at most [`Priority::HIGHEST`].
    pub const fn above_usual(level: u8) -> Self {
        if level < Self::HIGHEST.0 { Self(level) } else { Self::HIGHEST }
    }

    /// The group of the launch descriptor, which has six bits.
    pub(crate) const fn group(self) -> u32 {
        (Self::HIGHEST.0 - self.0) as u32
    }
}

/// Number of timeline reads before the first clock read.
pub(crate) const SPINS: u32 = 2000;

/// How long a wait yields before it sleeps.
pub(crate) const YIELD_FOR: Duration = Duration::from_micros(200);

/// Interval at which a wait that never sleeps reads the error notifier.
pub(crate) const LOOK: Duration = Duration::from_micros(500);

/// A size in x, y and z. Made from a number, a pair or a triple.
///
/// ```
/// use tegra_hcq::Dim3;
///
/// assert_eq!(Dim3::from((4, 2)).to_array(), [4, 2, 1]);
/// assert_eq!(Dim3::from(256).to_string(), "256x1x1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// Extent in x.
    pub x: u32,
    /// Extent in y.
    pub y: u32,
    /// Extent in z.
    pub z: u32,
}

impl Dim3 {
    /// x, y, z as an array.
    pub fn to_array(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }

    /// Number of threads or blocks. Does not overflow for sizes within the limits of a block.
    pub(crate) fn count(self) -> u32 {
        self.x.saturating_mul(self.y).saturating_mul(self.z)
    }
}

impl core::fmt::Display for Dim3 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}x{}x{}", self.x, self.y, self.z)
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self { x, y, z: 1 }
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self { x, y, z }
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self { x, y, z }
    }
}
