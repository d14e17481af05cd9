//! Grid and block sizes with the limits of the launch descriptor.

use gpu_hal::chip::{MAX_BLOCK, MAX_GRID};

use crate::error::{Error, Result};

pub use gpu_hal::chip::MAX_BLOCK_THREADS;

/// A size in x, y and z. Made from a number, a pair or a triple.
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

    /// Refuses a grid that the launch descriptor cannot hold: 1 to 2^31 - 1 blocks in x, 1 to
    /// 65535 in y and z (QMD v3.0 CTA_RASTER_WIDTH, _HEIGHT, _DEPTH).
    pub(crate) fn check_grid(self) -> Result<()> {
        self.check("grid", MAX_GRID)
    }

    /// Refuses a block that an SM cannot hold: 1 to 1024 threads in x and y, 1 to 64 in z, at most
    /// 1024 in all.
    pub(crate) fn check_block(self) -> Result<()> {
        self.check("block", MAX_BLOCK)?;
        if self.x * self.y * self.z > MAX_BLOCK_THREADS {
            return Err(Error::Launch(format!(
                "block {self} has {} threads, at most {MAX_BLOCK_THREADS} fit",
                self.x * self.y * self.z
            )));
        }
        Ok(())
    }

    fn check(self, what: &str, limits: [u32; 3]) -> Result<()> {
        for ((value, limit), axis) in self.to_array().into_iter().zip(limits).zip(["x", "y", "z"]) {
            if value == 0 || value > limit {
                return Err(Error::Launch(format!("{what} {self}: {axis} must be between 1 and {limit}")));
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_descriptor() {
        assert!(Dim3::from(i32::MAX as u32).check_grid().is_ok());
        assert!(Dim3::from(1 << 31).check_grid().is_err());
        assert!(Dim3::from((1, 65_536)).check_grid().is_err());
        assert!(Dim3::from(0).check_grid().is_err());
        assert!(Dim3::from((32, 32)).check_block().is_ok());
        assert!(Dim3::from((32, 33)).check_block().is_err());
        assert!(Dim3::from((1, 1, 65)).check_block().is_err());
    }
}
