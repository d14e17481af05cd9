//! The mappings of the host process, from `/proc/self/maps`.

/// One mapping of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    /// First address.
    pub(crate) start: u64,
    /// One past the last address.
    pub(crate) end: u64,
    /// Whether loads are allowed.
    pub(crate) readable: bool,
    /// Whether stores are allowed.
    pub(crate) writable: bool,
    /// Whether stores go to pages shared with other mappings, not to private copies.
    pub(crate) shared: bool,
}

/// Parses a line of `/proc/self/maps`. Returns the mapping and the rest of the line from its flags on.
fn parse(line: &str) -> Option<(Vma, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let allows = |at, letter| rest.as_bytes().get(at) == Some(&letter);
    let (readable, writable, shared) = (allows(0, b'r'), allows(1, b'w'), allows(3, b's'));
    Some((Vma { start, end, readable, writable, shared }, rest))
}

/// A mapping of a file in another process of the host.
///
/// ```
/// let line = "7f0000001000-7f0000003000 rw-s 00001000 00:01 2049 /memfd:dmabuf (deleted)";
/// let mapping = orin_sim::caller::parse_mapping(line).unwrap();
/// assert_eq!((mapping.offset, mapping.inode), (0x1000, 2049));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerMapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Device number of the file system, as in `st_dev`.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// Parses a line of `/proc/PID/maps`. Returns `None` for a mapping without a file.
pub fn parse_mapping(line: &str) -> Option<CallerMapping> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let offset = fields.nth(1)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok().filter(|inode| *inode != 0)?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let device =
        rustix::fs::makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    Some(CallerMapping { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, device, inode })
}

/// The mapping at `va`, or else the next one above it.
pub(crate) fn find(va: u64) -> Option<Vma> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().filter_map(parse).map(|(vma, _)| vma).find(|vma| vma.end > va)
}

/// The mappings whose file contains `name` in its path, by address.
pub(crate) fn of_file(name: &str) -> Vec<Vma> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(parse).filter(|(_, rest)| rest.contains(name)).map(|(vma, _)| vma).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed() {
        let line = "7f0000001000-7f0000003000 rw-s 00001000 00:01 2049 /memfd:name (deleted)";
        let (start, end) = (0x7f00_0000_1000, 0x7f00_0000_3000);
        let vma = Vma { start, end, readable: true, writable: true, shared: true };
        assert_eq!(parse(line).map(|(vma, _)| vma), Some(vma));
        assert_eq!(parse("no mapping"), None);
    }

    #[test]
    fn mappings_of_files_have_their_inode() {
        let line = "7f0000001000-7f0000003000 rw-s 00002000 fd:01 2049 /memfd:name (deleted)";
        let device = rustix::fs::makedev(0xfd, 1);
        let (start, end) = (0x7f00_0000_1000, 0x7f00_0000_3000);
        let expected = CallerMapping { start, end, offset: 0x2000, device, inode: 2049 };
        assert_eq!(parse_mapping(line), Some(expected));
        assert_eq!(parse_mapping("7f0000001000-7f0000003000 rw-p 00000000 00:00 0 [heap]"), None);
        assert_eq!(parse_mapping("no mapping"), None);
    }

    #[test]
    fn a_variable_lies_in_a_private_mapping() {
        let own = Box::new(5_u32);
        let va = core::ptr::from_ref(&*own).expose_provenance() as u64;
        let vma = find(va).unwrap();
        assert!(vma.start <= va && va < vma.end && vma.readable && vma.writable && !vma.shared, "{vma:?}");
    }
}
