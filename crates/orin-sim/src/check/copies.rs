//! The checks of the copy engine and of uploads through the pushbuffer.

use super::finding::{Accessing, Finding, Kind, NearObject};
use super::request::name;
use super::{Checker, Tools, mapped};
use crate::mmu::{Access, View};

/// Lines of bytes: those of one side of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) va: u64,
    /// Distance between lines in bytes.
    pub(crate) pitch: u64,
    /// Length of a line in bytes.
    pub(crate) bytes: u64,
    pub(crate) count: u32,
}

impl Rows {
    /// The lines as ranges: one if they follow each other without gaps.
    fn ranges(self) -> impl Iterator<Item = (u64, u64)> {
        let (count, bytes) = if self.pitch == self.bytes || self.count == 1 {
            (1, self.bytes.saturating_mul(self.count.into()))
        } else {
            (self.count, self.bytes)
        };
        (0..u64::from(count)).map(move |line| (self.va.wrapping_add(line.wrapping_mul(self.pitch)), bytes))
    }
}

impl Checker {
    /// Checks one side of a transfer against the objects. `unit` names the engine.
    pub(crate) fn transfer(&self, view: &View, unit: &'static str, rows: Rows, access: Access) {
        let space = view.space();
        if rows.bytes == 0 || !self.tools().contains(Tools::MEMCHECK) {
            return;
        }
        let managed = self.objects().is_managed(space);
        for (va, bytes) in rows.ranges() {
            let wrong = if managed {
                match self.objects().find_any(space, va) {
                    Ok(end) if va.saturating_add(bytes) <= end => None,
                    Ok(end) => Some((end, Kind::OutOfBounds)),
                    Err(kind) => Some((va, kind)),
                }
            } else {
                mapped::beyond(view, va, bytes).map(|address| (address, Kind::OutOfBounds))
            };
            if let Some((address, kind)) = wrong {
                let object = if managed {
                    self.objects().nearest(space, address)
                } else {
                    mapped::nearest(view, address)
                };
                self.wrong_transfer(unit, (va, bytes), access, (address, kind), object);
            }
        }
    }

    /// Reports a transfer with an error from `address` on.
    fn wrong_transfer(
        &self,
        unit: &'static str,
        (va, bytes): (u64, u64),
        access: Access,
        (address, kind): (u64, Kind),
        object: Option<NearObject>,
    ) {
        // One finding per object.
        let cause =
            object.as_ref().map_or(address, |object| object.va) ^ u64::from(access == Access::Read) << 63;
        self.add(kind, cause, 1, || {
            let what = name(access);
            let how = if kind == Kind::UseAfterFree { "of a freed object" } else { "out of bounds" };
            let message = format!("{unit}: {what} of {bytes} bytes at {va:#x} {how}, from {address:#x} on");
            let last = va.saturating_add(bytes - 1);
            let access = Accessing { what: what.into(), space: "global".into(), bytes: 0, address, last };
            Finding { access: Some(access), object, ..Finding::new(kind, message) }
        });
    }

    /// Reports a transfer that writes to an object that the CPU has a view of. Returns whether it does.
    pub(crate) fn transfer_under_view(&self, view: &View, unit: &'static str, rows: Rows) -> bool {
        if rows.bytes == 0 || !self.has_views() {
            return false;
        }
        let space = view.space();
        let objects = self.objects();
        let mut written =
            rows.ranges().filter_map(|(va, bytes)| Some((objects.viewed(space, va, bytes)?, va, bytes)));
        let Some((address, va, bytes)) = written.next() else { return false };
        let object = objects.nearest(space, address);
        drop(objects);
        let cause = object.as_ref().map_or(address, |object| object.va);
        self.add(Kind::CpuRace, cause, 1, || {
            let message =
                format!("{unit}: write of {bytes} bytes at {va:#x} while the CPU has a view of the object");
            let last = va.saturating_add(bytes - 1);
            let access = Accessing { what: "write".into(), space: "global".into(), bytes: 0, address, last };
            Finding { access: Some(access), object, ..Finding::new(Kind::CpuRace, message) }
        });
        true
    }

    /// Records the bytes that a transfer writes. The state of unwritten source bytes is copied where both sides are
    /// single ranges of equal length.
    pub(crate) fn transferred(&self, view: &View, source: Option<Rows>, target: Rows) {
        if !self.tools().contains(Tools::INITCHECK) {
            return;
        }
        let space = view.space();
        for (line, (va, bytes)) in (0..).zip(target.ranges()) {
            let Some((written, start)) = self.objects().written(space, va) else { continue };
            let from = source.and_then(|source| source.ranges().nth(line)).filter(|(_, from)| *from == bytes);
            let tracked = from.and_then(|(from, _)| Some((from, self.objects().written(space, from)?)));
            match tracked {
                Some((from, (source, base))) => {
                    let cpu = |offset| source.are_written(view, base + offset, offset, 1);
                    written.copy(va - start, &source, from - base, bytes, cpu);
                }
                None => written.set(va - start, bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::check::What;
    use crate::mmu::AddressSpace;

    #[test]
    fn transfers_must_not_write_what_the_cpu_has_a_view_of() {
        let space = Arc::new(AddressSpace::new());
        let (checker, view) = (Checker::new(Tools::RACECHECK), space.view());
        let watcher = checker.watcher(space);
        for va in [0x1000, 0x2000, 0x3000] {
            watcher.allocated(va, 0x800, 0x1000, What::Data, "object");
        }
        let wrong = |va, pitch, bytes, count| {
            checker.transfer_under_view(&view, "copy engine", Rows { va, pitch, bytes, count })
        };
        assert!(!wrong(0x1000, 0, 0x3000, 1), "no view");
        watcher.viewed(0x2000, true);
        assert!(!wrong(0x1000, 0, 0x800, 1) && !wrong(0x3000, 0, 4, 1) && !wrong(0x2800, 0, 0x100, 1));
        assert!(!wrong(0x1000, 0x2000, 0x100, 2), "the lines are around it");
        assert_eq!(checker.findings(), []);
        assert!(wrong(0x27fc, 0, 8, 1) && wrong(0x1000, 0, 0x2000, 1) && wrong(0x1100, 0x1000, 4, 2));
        let findings = checker.findings();
        assert_eq!((findings.len(), findings[0].count, findings[0].kind), (1, 3, Kind::CpuRace));
        watcher.viewed(0x2000, false);
        assert!(!wrong(0x2000, 0, 4, 1));
    }
}
