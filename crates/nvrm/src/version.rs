//! The version of the driver.

use core::fmt;

/// Version of the driver, for example 580.159.04.
///
/// ```
/// # fn main() -> nvrm::Result<()> {
/// use nvrm::Version;
///
/// let version: Version = "580.159.04".parse()?;
/// assert_eq!((version.major, version.to_string().as_str()), (580, "580.159.04"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The release.
    pub major: u32,
    /// Number in the release.
    pub minor: u32,
    /// Patch; 0 if the version has two parts.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}.{:02}", self.major, self.minor, self.patch)
    }
}
