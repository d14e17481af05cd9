//! Kernel releases, and the requests and structs that each has.
//!
//! A request or struct of this crate lists its releases ([`RequestInfo::releases`], [`StructInfo::releases`]). Most
//! are in all of them. One that changed between releases has a row for each form: the later form has the suffix of
//! the first release that has it, such as [`ALLOC_R39`](crate::nvmap::ALLOC_R39).
//!
//! [`StructInfo::releases`]: kernel_door::layout::StructInfo::releases

use core::fmt;
use core::str::FromStr;

use kernel_door::RequestInfo;
use kernel_door::layout::Releases;

/// A release of L4T whose interface this crate has, in ascending order. Exhaustive: a caller that models a release
/// handles each one.
///
/// ```
/// use nvgpu_sys::{Release, nvmap};
///
/// let newest: Release = "r39.2".parse()?;
/// assert!(newest.has(nvmap::ALLOC_R39.info().releases) && !newest.has(nvmap::ALLOC.info().releases));
/// assert_eq!(Release::R36_4_3.last(nvmap::ALL), 107);
/// # Ok::<(), nvgpu_sys::UnknownRelease>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// R36.4.3 (JetPack 6.2, kernel 5.15). The tables were extracted from its headers.
    R36_4_3,
    /// R36.4.7 (update of JetPack 6.2.1, kernel 5.15). Inference: the requests and structs of R36.4.3. None of its
    /// headers was read; a published copy of R36.5's `nvgpu.h` equals that of R36.4.3.
    R36_4_7,
    /// R39.2 (JetPack 7.2, kernel 6.8). The rows come from published headers of that time: `nvgpu*.h` with the GPU
    /// GB10B, whose exact release is not proven, and `nvmap.h` from a tree for R39.
    R39_2,
}

impl Release {
    /// Every release, the oldest first.
    pub const ALL: [Self; 3] = [Self::R36_4_3, Self::R36_4_7, Self::R39_2];

    /// Name, as in `r36.4.3`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::R36_4_3 => "r36.4.3",
            Self::R36_4_7 => "r36.4.7",
            Self::R39_2 => "r39.2",
        }
    }

    /// Whether a request or struct with these releases exists in this one.
    pub const fn has(self, releases: Releases) -> bool {
        // CAST: the discriminants are 0 to 2.
        releases.contains(self as u8)
    }

    /// The requests among `requests` that this release has.
    pub fn requests(self, requests: &[RequestInfo]) -> impl Iterator<Item = &RequestInfo> {
        requests.iter().filter(move |request| self.has(request.releases))
    }

    /// Highest request number of a family, such as [`ctrl::ALL`](crate::ctrl::ALL), in this release.
    pub fn last(self, family: &[RequestInfo]) -> u32 {
        self.requests(family).map(|request| request.code & 0xff).max().unwrap_or(0)
    }

    /// Size of the longest argument of a family in this release, in bytes.
    pub fn longest_argument(self, family: &[RequestInfo]) -> u32 {
        self.requests(family).map(|request| request.code >> 16 & 0x3fff).max().unwrap_or(0)
    }

    /// The first release without a request or struct that earlier ones have; `None` if the newest has it.
    pub fn removed_in(releases: Releases) -> Option<Self> {
        // CAST: the discriminants are 0 to 2.
        Self::ALL.into_iter().find(|release| *release as u8 > releases.last)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Release {
    type Err = UnknownRelease;

    fn from_str(text: &str) -> Result<Self, UnknownRelease> {
        Self::ALL
            .into_iter()
            .find(|release| release.name() == text)
            .ok_or_else(|| UnknownRelease { text: text.to_owned() })
    }
}

/// The text names no [`Release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRelease {
    /// The text.
    pub text: String,
}

impl fmt::Display for UnknownRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Release::ALL.map(Release::name).join(", ");
        write!(f, "{:?} is not a known release; known are {names}", self.text)
    }
}

impl core::error::Error for UnknownRelease {}

/// The releases from `first` on.
pub(crate) const fn since(first: Release) -> Releases {
    // CAST: the discriminants are 0 to 2.
    Releases { first: first as u8, last: u8::MAX }
}

/// The releases up to `last`.
pub(crate) const fn until(last: Release) -> Releases {
    // CAST: as above.
    Releases { first: 0, last: last as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_ordered() {
        for release in Release::ALL {
            assert_eq!(release.name().parse(), Ok(release));
        }
        assert!(Release::ALL.is_sorted());
        let error = "r35".parse::<Release>().unwrap_err().to_string();
        assert_eq!(error, "\"r35\" is not a known release; known are r36.4.3, r36.4.7, r39.2");
    }

    #[test]
    fn a_range_of_releases_has_its_ends() {
        let counts = |releases| Release::ALL.map(|release| release.has(releases));
        assert_eq!(counts(Releases::ALL), [true; 3]);
        assert_eq!(counts(since(Release::R39_2)), [false, false, true]);
        assert_eq!(counts(until(Release::R36_4_7)), [true, true, false]);
        assert_eq!(Release::removed_in(until(Release::R36_4_7)), Some(Release::R39_2));
        assert_eq!(Release::removed_in(since(Release::R39_2)), None);
    }
}
