//! Memory of programs that do not register their objects: each mapping is one.
//!
//! A buffer of nvmap has whole pages, but the kernel knows the requested size in bytes. The rest of
//! the last page belongs to no object. Addresses without a mapping are left to the MMU.

use super::finding::{Kind, NearObject, Place};
use super::objects::{Extent, Found};
use crate::mmu::{MappedRange, View};

/// One past the last requested byte of a mapping.
fn end(range: &MappedRange) -> u64 {
    range.va + range.memory.requested().saturating_sub(range.offset).min(range.len)
}

/// Returns what a kernel may access at `va`, or the error.
pub(super) fn find(view: &View, va: u64) -> Found {
    match view.mapping(va) {
        None => Found::Wrong(Kind::Unmapped),
        Some(range) if va >= end(range) => Found::Wrong(Kind::OutOfBounds),
        Some(range) => Found::Extent(Extent {
            start: range.va,
            end: end(range),
            // The MMU refuses stores to read-only mappings.
            writable: true,
            base: range.va,
            written: None,
        }),
    }
}

/// The first address of `[va, va + bytes)` that is mapped, but lies beyond the requested size.
pub(super) fn beyond(view: &View, va: u64, bytes: u64) -> Option<u64> {
    let (mut at, last) = (va, va.saturating_add(bytes));
    while at < last {
        let range = view.mapping(at)?;
        let (exact, mapped) = (end(range), range.va + range.len);
        if exact < last && exact < mapped {
            return Some(at.max(exact));
        }
        at = mapped;
    }
    None
}

/// The mapping that contains `va`, or the nearest one.
pub(super) fn nearest(view: &View, va: u64) -> Option<NearObject> {
    let range = view.neighbour(va)?;
    let label = range.memory.label();
    let bytes = end(range) - range.va;
    let place = match va.checked_sub(range.va) {
        None => Place::Before(range.va - va),
        Some(offset) if offset < bytes => Place::Inside(offset),
        Some(offset) => Place::Past(offset - bytes),
    };
    Some(NearObject {
        name: if label.is_empty() { "mapped memory".to_owned() } else { label.to_owned() },
        va: range.va,
        bytes,
        place,
        argument: None,
        allocated: Vec::new(),
        freed: Vec::new(),
        viewed: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::Memory;
    use crate::mmu::AddressSpace;

    #[test]
    fn the_rest_of_the_last_page_belongs_to_no_object() {
        let space = AddressSpace::new();
        let map = |va, len, memory: &Arc<Memory>, offset| {
            let memory = Arc::clone(memory);
            space.map(MappedRange { va, len, memory, offset, writable: true, cached: false });
        };
        // One buffer in two mappings, directly followed by another one.
        let memory = Arc::new(Memory::new("data", 0x2000).unwrap().requested_as(0x1800));
        map(0x20_0000, 0x1000, &memory, 0);
        map(0x20_1000, 0x1000, &memory, 0x1000);
        map(0x20_2000, 0x1000, &Arc::new(Memory::new("whole", 0x1000).unwrap()), 0);
        let view = space.view();
        let extent = |va| match find(&view, va) {
            Found::Extent(extent) => Ok((extent.start, extent.end)),
            Found::Wrong(kind) => Err(kind),
        };
        assert_eq!(extent(0x20_0ffc), Ok((0x20_0000, 0x20_1000)));
        assert_eq!(extent(0x20_17fc), Ok((0x20_1000, 0x20_1800)));
        assert_eq!(extent(0x20_1800), Err(Kind::OutOfBounds));
        assert_eq!(extent(0x20_2000), Ok((0x20_2000, 0x20_3000)));
        assert_eq!(extent(0x20_3000), Err(Kind::Unmapped));
        let near = nearest(&view, 0x20_1900).unwrap();
        assert_eq!((near.bytes, near.place), (0x800, Place::Past(0x100)));
        assert_eq!(beyond(&view, 0x20_0000, 0x1800), None);
        assert_eq!(beyond(&view, 0x20_0000, 0x1801), Some(0x20_1800));
        assert_eq!(beyond(&view, 0x20_1f00, 4), Some(0x20_1f00));
        assert_eq!(beyond(&view, 0x20_2000, 0x9000), None, "the MMU reports it");
    }
}
