//! The mappings of the host process, from `/proc/self/maps`.

use crate::procfs;
use rustix::mm::MsyncFlags;

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

/// How often the file is read until it lists a mapping that exists.
const READS: usize = 32;

/// The mapping at `va`, or else the next one above it.
///
/// Emulators of user programs synthesise the file, and qemu omits a mapping while another thread changes its neighbour.
/// A page that exists but is not listed makes the function read the file again.
pub(crate) fn find(va: u64) -> Option<Vma> {
    let mut found = None;
    for _ in 0..READS {
        let maps = procfs::read_to_string("maps").ok()?;
        found = maps.lines().filter_map(parse).map(|(vma, _)| vma).find(|vma| vma.end > va);
        if found.is_some_and(|vma| vma.start <= va) || !exists(va) {
            break;
        }
    }
    found
}

/// Whether a page is mapped.
fn exists(va: u64) -> bool {
    let page = usize::try_from(va & !0xfff).map(core::ptr::with_exposed_provenance_mut);
    // SAFETY: an asynchronous msync only says whether the page is mapped.
    page.is_ok_and(|page| unsafe { rustix::mm::msync(page, 1, MsyncFlags::ASYNC) }.is_ok())
}

/// The mappings whose file contains `name` in its path, by address.
pub(crate) fn of_file(name: &str) -> Vec<Vma> {
    let maps = procfs::read_to_string("maps").unwrap_or_default();
    maps.lines().filter_map(parse).filter(|(_, rest)| rest.contains(name)).map(|(vma, _)| vma).collect()
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};

    use rustix::mm::{MapFlags, ProtFlags};

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

    /// Under qemu, one reading of the file in 20 lacks the page.
    #[test]
    fn a_page_is_found_while_other_threads_map_its_neighbours() {
        let map = |bytes, protection| {
            // SAFETY: a new anonymous mapping.
            unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }
                .unwrap()
        };
        // SAFETY: mappings of this test, without users.
        let unmap = |page, bytes| unsafe { rustix::mm::munmap(page, bytes) }.unwrap();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let (first, second) = (map(8192, both), map(16384, ProtFlags::READ));
                    unmap(first, 8192);
                    unmap(second, 16384);
                }
            });
            let missed = (0..200).filter(|_| {
                let page = map(8192, both);
                let va = page.expose_provenance() as u64;
                let found = find(va).is_some_and(|vma| vma.start <= va && va < vma.end && vma.writable);
                unmap(page, 8192);
                !found
            });
            let missed = missed.count();
            stop.store(true, Ordering::Relaxed);
            assert_eq!(missed, 0, "pages were not found");
        });
    }

    #[test]
    fn an_unmapped_page_is_not_found() {
        let top = find(u64::MAX - 0xfff);
        assert!(!exists(u64::MAX - 0xfff) && top.is_none(), "{top:?}");
        assert!(!exists(0));
    }

    #[test]
    fn a_variable_lies_in_a_private_mapping() {
        let own = Box::new(5_u32);
        let va = core::ptr::from_ref(&*own).expose_provenance() as u64;
        let vma = find(va).unwrap();
        assert!(vma.start <= va && va < vma.end && vma.readable && vma.writable && !vma.shared, "{vma:?}");
    }
}
