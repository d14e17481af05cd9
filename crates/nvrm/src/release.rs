//! Releases of the driver and what differs between them.
//!
//! The sizes of parameter structs belong to the release: the driver refuses a command whose size is not its
//! own. What this crate uses grew at the end from one release to the next, with two exceptions that are laid
//! out by hand where they are used (`space.rs`, `channel.rs`).

use core::str::FromStr;

use crate::abi::control;
use crate::error::Error;
use crate::version::Version;

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::BadVersion(text.to_owned());
        let mut parts = text.split('.').map(|part| part.parse::<u32>().map_err(|_| bad()));
        let (major, minor) = (parts.next().ok_or_else(bad)??, parts.next().ok_or_else(bad)??);
        let patch = parts.next().transpose()?.unwrap_or(0);
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Self { major, minor, patch })
    }
}

/// Releases with the same layouts.
///
/// ```
/// # fn main() -> nvrm::Result<()> {
/// use nvrm::Release;
///
/// let release = Release::of("580.159.04".parse()?)?;
/// assert!(release.is_tested());
/// assert!(Release::of("560.35.03".parse()?).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// 570 and 575.
    R570,
    /// 580 and 590.
    R580,
    /// 595.
    R595,
}

impl Release {
    /// Returns the release of a version.
    ///
    /// # Errors
    ///
    /// [`Error::Release`] for a version outside 570 to 595.
    pub fn of(version: Version) -> Result<Self, Error> {
        match version.major {
            570..580 => Ok(Self::R570),
            580..595 => Ok(Self::R580),
            595..=599 => Ok(Self::R595),
            _ => Err(Error::Release(version)),
        }
    }

    /// Returns whether this crate was tested with the release on a GPU.
    pub fn is_tested(self) -> bool {
        self == Self::R580
    }

    /// Returns the size of the parameters of a command in this release; `bytes` is the size of the struct.
    pub(crate) fn command_bytes(self, command: u32, bytes: usize) -> usize {
        const CLASS_LIST: u32 = control::GPU_GET_CLASSLIST_V2.number;
        const FB_INFO: u32 = control::FB_GET_INFO_V2.number;
        const SCHEDULE: u32 = control::GPFIFO_SCHEDULE.number;
        const NAME: u32 = control::GPU_GET_NAME_STRING.number;
        match (self, command) {
            (Self::R570, CLASS_LIST) => 404,
            (Self::R570, FB_INFO) => 460,
            (Self::R570, SCHEDULE) => 2,
            (Self::R595, NAME) => 68,
            _ => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_two_or_three_numbers() {
        let version: Version = "580.159.04".parse().unwrap();
        assert_eq!((version.major, version.minor, version.patch), (580, 159, 4));
        assert_eq!(version.to_string(), "580.159.04");
        assert_eq!("580.142".parse::<Version>().unwrap().patch, 0);
        for bad in ["", "580", "a.b", "1.2.3.4", "580.-1"] {
            assert!(bad.parse::<Version>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn other_releases_are_refused() {
        let release = |text: &str| Release::of(text.parse().unwrap());
        assert_eq!(release("580.65.06").unwrap(), Release::R580);
        assert_eq!(release("570.211.01").unwrap(), Release::R570);
        assert_eq!(release("595.45.04").unwrap(), Release::R595);
        for other in ["560.35.03", "610.43.02"] {
            assert!(matches!(release(other), Err(Error::Release(_))), "{other}");
        }
    }
}
