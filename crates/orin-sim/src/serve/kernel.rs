//! Versions of the host's kernel.

/// First version that installs a descriptor and answers in one step.
pub(crate) const OLDEST: (u32, u32) = (5, 14);
/// First version in which only fatal signals interrupt a caller whose call the supervisor has received.
pub(crate) const WAITS_KILLABLE: (u32, u32) = (5, 19);
/// First version in which the wait for a call ends with the last served process.
pub(crate) const ENDS_WAITS: (u32, u32) = (6, 11);

/// Release and version of the kernel, if the release begins with a version.
pub(crate) fn running() -> Option<(String, (u32, u32))> {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let version = version(&release)?;
    Some((release, version))
}

/// Whether the kernel has the version or a newer one.
pub(crate) fn has(wanted: (u32, u32)) -> bool {
    running().is_some_and(|(_, version)| version >= wanted)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_the_version() {
        assert_eq!(version("5.15.148-tegra"), Some((5, 15)));
        assert_eq!(version("6.11.0-rc1+"), Some((6, 11)));
        assert_eq!((version("6"), version("")), (None, None));
        assert!(has((2, 6)) && !has((u32::MAX, 0)));
    }
}
